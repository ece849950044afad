package tenantaddons

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/stoker-k8s/stoker/pkg/api/tenantaddon"
)

var planTime = time.Date(2026, 11, 27, 12, 0, 0, 0, time.UTC)

// stood are tenants by what a word says of each: its name, its stage after a slash, and after a colon how it stands with revision "new".
func stood(words ...string) []*member {
	var all []*member
	for _, w := range words {
		w, how, _ := strings.Cut(w, ":")
		n, stage, _ := strings.Cut(w, "/")
		m := &member{of: types.NamespacedName{Namespace: "ns", Name: n}, labels: labels.Set{"stage": stage}, created: planTime.Add(-time.Hour)}
		m.allowed, m.tried, m.ready = "old", "old", true
		switch how {
		case "new":
			m.allowed, m.tried, m.ready = "", "", false
		case "fresh": // made after the revision
			m.allowed, m.tried, m.ready, m.created = "", "", false, planTime.Add(time.Minute)
		case "allowed":
			m.allowed = "new"
		case "trying":
			m.allowed, m.tried, m.ready = "new", "new", false
		case "ready":
			m.allowed, m.tried = "new", "new"
		case "failed":
			m.allowed, m.tried, m.ready, m.failed, m.reason = "new", "new", false, true, tenantaddon.ReasonHookFailed
		case "freshfailed":
			m.allowed, m.tried, m.ready, m.failed, m.created = "new", "new", false, true, planTime.Add(time.Minute)
		case "oldfailed":
			m.ready, m.failed = false, true
		case "away":
			m.reason = tenantaddon.ReasonTenantUnavailable
		case "allowedaway":
			m.allowed, m.reason = "new", tenantaddon.ReasonTenantUnavailable
		case "tryingaway":
			m.allowed, m.tried, m.ready, m.reason = "new", "new", false, tenantaddon.ReasonTenantUnavailable
		case "tryingasleep":
			m.allowed, m.tried, m.ready, m.reason = "new", "new", false, tenantaddon.ReasonTenantAsleep
		case "paused":
			m.paused = true
		}
		all = append(all, m)
	}
	return all
}

func waves(soak time.Duration) tenantaddon.Rollout {
	of := func(n string) tenantaddon.Wave {
		return tenantaddon.Wave{Name: n, Selector: metav1.LabelSelector{MatchLabels: map[string]string{"stage": n}}, Soak: &metav1.Duration{Duration: soak}}
	}
	return tenantaddon.Rollout{Waves: []tenantaddon.Wave{of("canary"), of("early")}}
}

func TestDecide(t *testing.T) {
	two, half := intstr.FromInt32(2), intstr.FromString("50%")
	for _, c := range []struct {
		sentence string
		spec     tenantaddon.Rollout
		members  []*member
		wave     string
		ready    time.Duration // since when the wave is ready, before now; 0: it isn't
		done     bool
		frozen   string

		want     string // tenants that may have the new revision
		wantWave string
		stopped  bool
		soak     time.Duration
	}{
		{sentence: "all get it, ten at once", members: stood("a", "b", "c", "d", "e", "f", "g", "h", "i", "j", "k", "l"), want: "a b c d e f g h i j", wantWave: "rest"},
		{sentence: "those under way count", spec: tenantaddon.Rollout{MaxParallel: &two}, members: stood("a:trying", "b:allowed", "c", "d"), want: "a b", wantWave: "rest"},
		{sentence: "those that are ready don't", spec: tenantaddon.Rollout{MaxParallel: &two}, members: stood("a:ready", "b:trying", "c", "d"), want: "a b c", wantWave: "rest"},
		{sentence: "a share is rounded up", spec: tenantaddon.Rollout{MaxParallel: &half}, members: stood("a", "b", "c"), want: "a b", wantWave: "rest"},
		{sentence: "all have it", members: stood("a:ready", "b:ready"), want: "a b"},
		{sentence: "one failure stops it", members: stood("a:failed", "b:trying", "c"), want: "a b", wantWave: "rest", stopped: true},
		{sentence: "failures that may be don't", spec: tenantaddon.Rollout{MaxFailures: &two}, members: stood("a:failed", "b:failed", "c"), want: "a b c", wantWave: "rest"},
		{sentence: "a failure of before doesn't: this may be the way out", members: stood("a:oldfailed", "b"), want: "a b", wantWave: "rest"},
		{sentence: "nobody gets anything while it is paused", members: stood("a:trying", "b"), frozen: "it is paused", want: "a", wantWave: "rest"},

		{sentence: "the first wave first", spec: waves(0), members: stood("a/canary", "b/early", "c"), want: "a", wantWave: "canary"},
		{sentence: "the second when the first is ready", spec: waves(0), members: stood("a/canary:ready", "b/early", "c"), wave: "canary", want: "a b", wantWave: "early"},
		{sentence: "the rest at the end", spec: waves(0), members: stood("a/canary:ready", "b/early:ready", "c", "d"), wave: "early", want: "a b c d", wantWave: "rest"},
		{sentence: "waves without tenants are none", spec: waves(time.Hour), members: stood("c", "d"), want: "c d", wantWave: "rest"},
		{sentence: "a failed tenant ends the rollout in its wave", spec: waves(0), members: stood("a/canary:failed", "b/early", "c"), wave: "canary", want: "a", wantWave: "early", stopped: true},
		{sentence: "a wave that is ready soaks", spec: waves(time.Hour), members: stood("a/canary:ready", "b/early"), wave: "canary", want: "a", wantWave: "canary", soak: time.Hour},
		{sentence: "for as long as it must", spec: waves(time.Hour), members: stood("a/canary:ready", "b/early"), wave: "canary", ready: 59 * time.Minute, want: "a", wantWave: "canary", soak: time.Minute},
		{sentence: "and no longer", spec: waves(time.Hour), members: stood("a/canary:ready", "b/early"), wave: "canary", ready: time.Hour, want: "a b", wantWave: "early"},
		{sentence: "nothing soaks when nobody comes after it", spec: waves(time.Hour), members: stood("a/canary:ready"), wave: "canary", want: "a"},
		{sentence: "who comes late closes no wave again", spec: waves(time.Hour), members: stood("a/canary", "b/early:ready", "c"), wave: "rest", want: "a b c", wantWave: "rest"},
		{sentence: "nor when all were through", spec: waves(time.Hour), members: stood("a/canary", "b/early:ready", "c:ready"), done: true, want: "a b c", wantWave: "rest"},

		{sentence: "a tenant that is away is passed over", spec: waves(0), members: stood("a/canary:away", "x/canary:ready", "b/early"), wave: "canary", want: "b x", wantWave: "early"},
		{sentence: "but a wave of them alone shows nothing", spec: waves(0), members: stood("a/canary:away", "b/early"), wave: "canary", want: "", wantWave: "canary"},
		{sentence: "it may no longer have what it wasn't given while it could", members: stood("a:allowedaway", "b"), want: "b", wantWave: "rest"},
		{sentence: "one that went away over it holds its place", spec: tenantaddon.Rollout{MaxParallel: &two}, members: stood("a:tryingaway", "b:trying", "c"), want: "a b", wantWave: "rest"},
		{sentence: "one that fell asleep doesn't", spec: tenantaddon.Rollout{MaxParallel: &two}, members: stood("a:tryingasleep", "b:trying", "c"), want: "a b c", wantWave: "rest"},
		{sentence: "paused tenants are passed over", spec: waves(0), members: stood("a/canary:paused", "x/canary:ready", "b/early"), wave: "canary", want: "b x", wantWave: "early"},

		{sentence: "a tenant made since gets it at once", spec: waves(0), members: stood("a/canary", "b:fresh", "c:new"), want: "a b", wantWave: "canary"},
		{sentence: "but not while it is stopped", members: stood("a:failed", "b:fresh", "c"), wave: "rest", want: "a", wantWave: "rest", stopped: true},
		{sentence: "a failure after all had it keeps no new one from it", members: stood("a:failed", "b:fresh"), done: true, want: "a b", wantWave: "rest", stopped: true},
		{sentence: "a new one's failure says nothing about others", members: stood("a:freshfailed", "b"), want: "a b", wantWave: "rest"},
		{sentence: "waves that nobody was in weren't gone through", spec: waves(0), members: stood("a/canary", "b/early", "c"), done: true, want: "a", wantWave: "canary"},
		{sentence: "who has failed on the way to it isn't under way", members: stood("a:failed", "b"), spec: tenantaddon.Rollout{MaxFailures: &two}, want: "a b", wantWave: "rest"},
	} {
		t.Run(c.sentence, func(t *testing.T) {
			r := rollout{spec: c.spec, revision: "new", since: planTime, members: c.members, wave: c.wave, done: c.done, frozen: c.frozen, now: planTime.Add(time.Hour)}
			if c.ready > 0 {
				r.waveReady = r.now.Add(-c.ready)
			}
			d, err := r.decide()
			if err != nil {
				t.Fatal(err)
			}
			var got []string
			for of, revision := range d.allowed {
				if revision == "new" {
					got = append(got, of.Name)
				} else if d.waiting[of] == "" {
					t.Errorf("%s may not have it, and nothing says why", of.Name)
				}
			}
			slices.Sort(got)
			if s := strings.Join(got, " "); s != c.want {
				t.Errorf("allowed %q, want %q", s, c.want)
			}
			if d.wave != c.wantWave || d.stopped != c.stopped || d.soak != c.soak {
				t.Errorf("wave %q, stopped %v, soak %s; want %q, %v, %s", d.wave, d.stopped, d.soak, c.wantWave, c.stopped, c.soak)
			}
		})
	}
}

// A rollout comes to its end, whatever the tenants do, and never changes more of them at once than it may.
func TestARolloutEnds(t *testing.T) {
	five := intstr.FromInt32(5)
	spec := waves(0)
	spec.MaxParallel = &five
	var words []string
	for i := range 60 {
		words = append(words, fmt.Sprintf("t%02d/%s", i, []string{"canary", "early", "other"}[min(i/5, 2)]))
	}
	members, wave := stood(words...), ""
	for turn := range 200 {
		r := rollout{spec: spec, revision: "new", since: planTime, members: members, wave: wave, now: planTime.Add(time.Duration(turn) * time.Second)}
		d, err := r.decide()
		if err != nil {
			t.Fatal(err)
		}
		underWay := 0
		for i, m := range members {
			if m.allowed = d.allowed[m.of]; m.allowed != "new" || m.tried == "new" && m.ready {
				continue
			}
			if underWay++; m.tried != "new" {
				m.tried, m.ready = "new", false
			} else if (turn+i)%3 == 0 {
				m.ready = true
			}
		}
		if underWay > 5 {
			t.Fatalf("turn %d: %d tenants under way", turn, underWay)
		}
		if wave = d.wave; wave == "" {
			if d.counts.Ready != 60 {
				t.Errorf("at the end %d of 60 are ready", d.counts.Ready)
			}
			return
		}
	}
	t.Error("the rollout doesn't end")
}
