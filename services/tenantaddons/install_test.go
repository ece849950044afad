package tenantaddons

import (
	"strings"
	"testing"
	"time"

	"helm.sh/helm/v4/pkg/chart/common"
	chart "helm.sh/helm/v4/pkg/chart/v2"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/stoker-k8s/stoker/pkg/api/tenantaddon"
)

// stander is an AddonRelease of a TenantAddon with what comes before it; one that is being deleted begins with a minus.
func stander(word string) *one {
	n, after, _ := strings.Cut(word, ">")
	n, deleting := strings.TrimPrefix(n, "-"), strings.HasPrefix(n, "-")
	o := &tenantaddon.AddonRelease{Spec: tenantaddon.AddonReleaseSpec{Addon: tenantaddon.AddonRef{Name: n, Namespace: "ns"}}}
	if after != "" {
		o.Spec.After = strings.Split(after, ",")
	}
	if deleting {
		o.DeletionTimestamp = &metav1.Time{Time: planTime}
	}
	return &one{o: o, report: reportOn(nil, 1, planTime)}
}

func TestInOrder(t *testing.T) {
	for words, want := range map[string]string{
		"a b c":           "a b c",
		"a>b b>c c":       "c b a",
		"a>none b":        "a b",
		"-a -b>a -c>b":    "c b a",
		"a>c -b c>a,d d":  "b d c a", // a circle is broken somewhere
		"x>a -a>b b -c>a": "c a b x",
	} {
		var all []*one
		for w := range strings.FieldsSeq(words) {
			all = append(all, stander(w))
		}
		var got []string
		for _, a := range inOrder(all) {
			got = append(got, a.o.Spec.Addon.Name)
		}
		if s := strings.Join(got, " "); s != want {
			t.Errorf("%s: %s, want %s", words, s, want)
		}
	}
}

func TestCircle(t *testing.T) {
	for words, want := range map[string]string{
		"a>b b>a":            "a after b after a",
		"a>b,c b c>d d>a":    "a after c after d after a",
		"a>a":                "a after a",
		"a>b b>c c>b":        "", // its circle is not a's
		"a>b,none b>c c>d d": "",
	} {
		var all []*one
		for w := range strings.FieldsSeq(words) {
			all = append(all, stander(w))
		}
		var round string
		for _, b := range all[0].o.Spec.After {
			if to := find(all, types.NamespacedName{Namespace: "ns", Name: b}); to != nil && round == "" {
				round = strings.Join(circle(all[0], to, all), " after ")
			}
		}
		if round != want {
			t.Errorf("%s: %q, want %q", words, round, want)
		}
	}
}

// TestHowItStands takes an AddonRelease through what may happen to it.
func TestHowItStands(t *testing.T) {
	a := stander("a")
	a.o.Spec.Revision = "r1"
	check := func(what, reason string, failed bool) {
		t.Helper()
		if a.reason() != reason || a.status.Failed != failed {
			t.Errorf("%s: %s, failed %v", what, a.reason(), a.status.Failed)
		}
	}
	a.tries("r1", "1.0", "in1", planTime)
	check("tried", tenantaddon.ReasonProgressing, false)
	a.fail(&badError{tenantaddon.ReasonTenantUnavailable, "away"})
	check("what may pass is no failure", tenantaddon.ReasonTenantUnavailable, false)
	a.fail(&badError{tenantaddon.ReasonHookFailed, "hook"})
	check("a failure", tenantaddon.ReasonHookFailed, true)
	a.fail(&badError{tenantaddon.ReasonTenantUnavailable, "away"})
	check("isn't ended by what may pass", tenantaddon.ReasonTenantUnavailable, true)
	a.tries("r1", "1.0", "in1", planTime.Add(time.Hour))
	check("nor by another try", tenantaddon.ReasonTenantUnavailable, true)
	if !a.status.TriedAt.Time.Equal(planTime) {
		t.Errorf("tried since %s", a.status.TriedAt)
	}
	a.tries("r1", "", "", planTime.Add(time.Hour))
	check("by other inputs it is", tenantaddon.ReasonProgressing, false)
	if a.status.Inputs != noInputs {
		t.Errorf("inputs %q: what is in the tenant is forgotten", a.status.Inputs)
	}
	a.set(tenantaddon.ConditionInstalled, true, tenantaddon.ReasonSucceeded, "")
	a.set(tenantaddon.ConditionReady, true, tenantaddon.ReasonSucceeded, "")
	a.wait(tenantaddon.ReasonTenantUnavailable, "away")
	check("what is ready stays so while nobody can look", tenantaddon.ReasonSucceeded, false)
}

func TestHasHooks(t *testing.T) {
	plain := &chart.Chart{Templates: []*common.File{{Data: []byte("kind: ConfigMap")}}}
	hooked := &chart.Chart{Templates: []*common.File{{Data: []byte("annotations: {helm.sh/hook: pre-install}")}}}
	parent := &chart.Chart{}
	parent.AddDependency(hooked)
	for c, want := range map[*chart.Chart]bool{plain: false, hooked: true, parent: true} {
		if hasHooks(c) != want {
			t.Errorf("%+v: %v", c, !want)
		}
	}
}
