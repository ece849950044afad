package tenantaddons

// Which tenants may have the revision of a TenantAddon: a pure function of what the spec asks and of how the tenants stand.

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/stoker-k8s/stoker/pkg/api/tenantaddon"
)

// restWave is the wave of the tenants that no wave chooses.
const restWave = "rest"

// member is a tenant that a TenantAddon is for.
type member struct {
	of     types.NamespacedName
	labels labels.Set
	// created is when the tenant was made, paused that nothing may be changed in it.
	created time.Time
	paused  bool
	standing
}

// standing is how a TenantAddon stands in a tenant, as its AddonRelease says.
type standing struct {
	// allowed is the revision that the tenant may have, tried the one that was tried last; both empty for none.
	allowed, tried string
	// ready says that the revision that was tried last is ready, failed that it has failed; neither while it is under way.
	ready, failed bool
	// since is when it became ready, or has failed.
	since time.Time
	// reason and message are those of the condition Ready.
	reason, message string
}

// untouchable reports whether nothing can be done in the tenant now, which is nobody's failure.
func (m *member) untouchable() bool {
	switch m.reason {
	case tenantaddon.ReasonTenantUnavailable, tenantaddon.ReasonTenantAsleep, tenantaddon.ReasonPaused, tenantaddon.ReasonWaitingForAddon:
		return true
	}
	return m.paused
}

// has reports whether the tenant has the revision, or is getting it.
func (m *member) has(revision string) bool {
	return m.tried == revision || m.allowed == revision && !m.untouchable()
}

// rollout is what is to be decided on.
type rollout struct {
	spec tenantaddon.Rollout
	// revision is what all tenants must have, since when it is that.
	revision string
	since    time.Time
	members  []*member
	// wave and waveReady are what the status says: the wave that was reached, empty for the first; and since when all up to it are ready, zero
	// while they aren't. done says that all waves were through before; it counts if there was anybody to go through them.
	wave      string
	waveReady time.Time
	done      bool
	// frozen says why nobody gets anything now; empty when they do.
	frozen string
	now    time.Time
}

// decision is what comes of it.
type decision struct {
	// allowed has the revision that each tenant may have, waiting why that isn't the latest.
	allowed map[types.NamespacedName]string
	waiting map[types.NamespacedName]string
	// wave that was reached; empty when there is none left. waveReady is since when all tenants up to it are ready, while the next one waits
	// for its soak, which ends in soak.
	wave      string
	waveReady time.Time
	soak      time.Duration
	// stopped says that too many tenants have failed, failures how many, of maxFailures that may.
	stopped               bool
	failures, maxFailures int
	counts                tenantaddon.TenantCounts
	failing               []*member
	// passedOver are those in which nothing can be done now, and that haven't the revision.
	passedOver []*member
}

// waves are the rollout's waves with their members; the last is that of the rest.
func (r *rollout) waves() (waves [][]*member, err error) {
	selectors := make([]labels.Selector, len(r.spec.Waves))
	for i := range r.spec.Waves {
		if selectors[i], err = metav1.LabelSelectorAsSelector(&r.spec.Waves[i].Selector); err != nil {
			return nil, fmt.Errorf("spec.rollout.waves[%d].selector: %w", i, err)
		}
	}
	waves = make([][]*member, len(selectors)+1)
	for _, m := range r.members {
		in := slices.IndexFunc(selectors, func(s labels.Selector) bool { return s.Matches(m.labels) })
		if in < 0 {
			in = len(selectors)
		}
		waves[in] = append(waves[in], m)
	}
	for _, w := range waves {
		slices.SortFunc(w, func(a, b *member) int {
			return cmp.Or(cmp.Compare(a.of.Namespace, b.of.Namespace), cmp.Compare(a.of.Name, b.of.Name))
		})
	}
	return waves, nil
}

// name of a wave by its index.
func (r *rollout) name(wave int) string {
	if wave < len(r.spec.Waves) {
		return r.spec.Waves[wave].Name
	}
	return restWave
}

// over reports whether all waves were through before, and somebody went through them.
func (r *rollout) over() bool {
	return r.done && slices.ContainsFunc(r.members, func(m *member) bool { return m.tried == r.revision })
}

// reached is the index of the wave that was reached before.
func (r *rollout) reached(last int) int {
	if r.over() || r.wave == restWave {
		return last
	}
	return max(0, slices.IndexFunc(r.spec.Waves, func(w tenantaddon.Wave) bool { return w.Name == r.wave }))
}

// through reports whether the rollout needn't wait for the tenant: it is ready, has failed, which is counted, or nothing can be done in it.
func (m *member) through(revision string) bool {
	if m.tried == revision {
		return m.ready || m.failed || m.reason == tenantaddon.ReasonTenantAsleep || m.paused
	}
	return m.untouchable()
}

// decide decides which tenants may have the revision.
//
// A tenant keeps what it has until its turn comes. A wave begins when all tenants of those before are through and were so for the soak; tenants
// that come late, because nothing could be done in them, don't close waves again. Tenants that were made since the revision was what all must have
// run nothing yet that a wave would protect: they get it at once, and if they fail, that says nothing about others. When more than maxFailures
// tenants have failed, none gets it any more. Once all have it, that holds no longer for new ones.
func (r *rollout) decide() (*decision, error) {
	waves, err := r.waves()
	if err != nil {
		return nil, err
	}
	d := &decision{allowed: map[types.NamespacedName]string{}, waiting: map[types.NamespacedName]string{}}
	underWay := r.count(d)
	reached := r.open(d, waves)
	slots, err := share(r.spec.MaxParallel, len(r.members), defaultMaxParallel, true)
	if err != nil {
		return nil, fmt.Errorf("spec.rollout.maxParallel: %w", err)
	}
	if d.maxFailures, err = share(r.spec.MaxFailures, len(r.members), 0, false); err != nil {
		return nil, fmt.Errorf("spec.rollout.maxFailures: %w", err)
	}
	d.stopped = d.failures > d.maxFailures
	free := max(slots, 1) - underWay
	for i, wave := range waves {
		for _, m := range wave {
			d.allowed[m.of] = r.revision
			if m.has(r.revision) {
				continue
			}
			if why := r.against(d, m, i, reached, free); why != "" {
				d.allowed[m.of], d.waiting[m.of] = m.tried, why
				continue
			}
			free--
		}
	}
	return d, nil
}

// against says why a tenant of a wave may not get the revision yet; empty when it may.
func (r *rollout) against(d *decision, m *member, wave, reached, free int) string {
	fresh := m.tried == "" && m.created.After(r.since)
	switch {
	case r.frozen != "":
		return r.frozen
	case m.untouchable():
		return "nothing can be done in the tenant now"
	case d.stopped && (!fresh || !r.over()):
		return fmt.Sprintf("the rollout is stopped: %d tenants have failed, %d may", d.failures, d.maxFailures)
	case wave > reached && !fresh:
		return fmt.Sprintf("wave %q comes after wave %q", r.name(wave), r.name(reached))
	case free <= 0:
		return "other tenants are being changed"
	}
	return ""
}

// count counts, and returns how many tenants are being changed.
func (r *rollout) count(d *decision) (underWay int) {
	d.counts.Selected = int32(len(r.members))
	for _, m := range r.members {
		current := m.tried == r.revision
		if current {
			d.counts.Current++
		}
		if m.failed {
			d.counts.Failed++
			d.failing = append(d.failing, m)
		}
		if !current && m.untouchable() {
			d.passedOver = append(d.passedOver, m)
		}
		switch {
		case current && m.ready:
			d.counts.Ready++
		case current && m.failed:
			if !m.created.After(r.since) {
				d.failures++
			}
		case m.has(r.revision) && !m.through(r.revision):
			underWay++
		}
	}
	return underWay
}

// open finds out which wave is reached.
func (r *rollout) open(d *decision, waves [][]*member) (reached int) {
	last := len(waves) - 1
	reached = r.reached(last)
	ready := r.waveReady
	// A wave in which nothing could be done has shown nothing.
	through := func(wave []*member) bool {
		return !slices.ContainsFunc(wave, func(m *member) bool { return !m.through(r.revision) }) &&
			(len(wave) == 0 || slices.ContainsFunc(wave, func(m *member) bool { return m.tried == r.revision }))
	}
	for reached < last {
		if slices.ContainsFunc(waves[:reached+1], func(w []*member) bool { return !through(w) }) {
			d.wave = r.name(reached)
			return reached
		}
		if soak := r.spec.Waves[reached].Soak; soak != nil && soak.Duration > 0 && len(waves[reached]) > 0 && !allThrough(waves[reached+1:], through) {
			if ready.IsZero() {
				ready = r.now
			}
			if left := ready.Add(soak.Duration).Sub(r.now); left > 0 {
				d.wave, d.waveReady, d.soak = r.name(reached), ready, left
				return reached
			}
		}
		reached, ready = reached+1, time.Time{}
	}
	if !allThrough(waves, through) {
		d.wave = r.name(last)
	}
	return last
}

func allThrough(waves [][]*member, through func([]*member) bool) bool {
	return !slices.ContainsFunc(waves, func(w []*member) bool { return !through(w) })
}

// share is a number, or a share of all, rounded up or down.
func share(of *intstr.IntOrString, all, otherwise int, up bool) (int, error) {
	if of == nil {
		return otherwise, nil
	}
	return intstr.GetScaledValueFromIntOrPercent(of, all, up)
}
