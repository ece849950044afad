package tenantaddons

// How a TenantAddon stands in all its tenants, in its status.

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/stoker-k8s/stoker/pkg/api/tenantaddon"
	"github.com/stoker-k8s/stoker/pkg/kube"
	"github.com/stoker-k8s/stoker/pkg/loop"
)

// report is the conditions of a turn.
type report struct {
	generation int64
	now        time.Time
	conditions []metav1.Condition
}

func reportOn(has []metav1.Condition, generation int64, now time.Time) *report {
	return &report{generation: generation, now: now, conditions: slices.Clone(has)}
}

// set notes a condition.
func (r *report) set(condition string, is bool, reason, message string) {
	status := metav1.ConditionFalse
	if is {
		status = metav1.ConditionTrue
	}
	meta.SetStatusCondition(&r.conditions, metav1.Condition{
		Type: condition, Status: status, Reason: reason, Message: clip(message, maxCondition), ObservedGeneration: r.generation,
		LastTransitionTime: metav1.NewTime(r.now),
	})
}

// since is how long a condition has been as it is.
func (r *report) since(condition string) time.Duration {
	c := meta.FindStatusCondition(r.conditions, condition)
	if c == nil {
		return 0
	}
	return r.now.Sub(c.LastTransitionTime.Time)
}

// notReady sets the conditions of a TenantAddon that isn't rolled out, for a reason.
func (r *report) notReady(reason, message string) {
	r.set(tenantaddon.ConditionRolledOut, false, reason, message)
	r.set(tenantaddon.ConditionReady, false, reason, message)
}

// clip cuts a message.
func clip(s string, at int) string {
	if len(s) <= at {
		return s
	}
	return strings.ToValidUTF8(s[:at-3], "") + "..."
}

// listed names some of many.
func listed(all []string) string {
	slices.Sort(all)
	s := strings.Join(all[:min(len(all), maxNamed)], "; ")
	if more := len(all) - maxNamed; more > 0 {
		s += fmt.Sprintf("; and %d more", more)
	}
	return s
}

// conclude puts what was decided into the status; the conditions only if nothing else is to be said in them.
func (w *rolling) conclude(s *tenantaddon.TenantAddonStatus, d *decision, conditions bool) {
	s.Tenants, s.Wave, s.WaveReadySince, s.Failing = d.counts, d.wave, nil, nil
	if !d.waveReady.IsZero() {
		at := metav1.NewTime(d.waveReady)
		s.WaveReadySince = &at
		w.turn.Alarm(d.soak, loop.Wake{Kind: wakeLook})
	}
	for _, k := range w.releases {
		if k.deleting {
			s.Tenants.Removing++
		}
	}
	slices.SortFunc(d.failing, func(a, b *member) int {
		return cmp.Or(a.since.Compare(b.since), cmp.Compare(a.of.Namespace, b.of.Namespace), cmp.Compare(a.of.Name, b.of.Name))
	})
	var failing []string
	for i, m := range d.failing {
		failing = append(failing, m.of.String()+": "+m.reason)
		if i < maxFailing {
			s.Failing = append(s.Failing, tenantaddon.FailingTenant{
				Namespace: m.of.Namespace, Name: m.of.Name, Reason: m.reason, Message: clip(m.message, maxMessage),
			})
		}
	}
	if conditions {
		w.judge(s, d, failing)
	}
}

// judge sets the conditions by what was decided.
func (w *rolling) judge(s *tenantaddon.TenantAddonStatus, d *decision, failing []string) {
	c := d.counts
	rolled := fmt.Sprintf("%d of %d tenants have revision %s", c.Current, c.Selected, s.Revision)
	var over []string
	for _, m := range d.passedOver {
		over = append(over, m.of.String()+": "+cmp.Or(m.reason, tenantaddon.ReasonPaused))
	}
	if len(over) > 0 {
		rolled += fmt.Sprintf("; nothing can be done now in %d: %s", len(over), listed(over))
	}
	switch {
	case c.Selected == 0:
		w.set(tenantaddon.ConditionRolledOut, true, tenantaddon.ReasonSucceeded, "no tenant is selected")
	case c.Current == c.Selected:
		w.set(tenantaddon.ConditionRolledOut, true, tenantaddon.ReasonSucceeded, rolled)
	case w.o.Spec.Paused:
		w.set(tenantaddon.ConditionRolledOut, false, tenantaddon.ReasonPaused, rolled+"; spec.paused")
	case d.stopped:
		w.set(tenantaddon.ConditionRolledOut, false, tenantaddon.ReasonStopped, fmt.Sprintf("%s; %d have failed, and spec.rollout.maxFailures is %d: %s. "+
			"It goes on when they are ready, or with another spec", rolled, d.failures, d.maxFailures, listed(slices.Clone(failing))))
	case d.soak > 0:
		w.set(tenantaddon.ConditionRolledOut, false, tenantaddon.ReasonSoaking, fmt.Sprintf("%s; wave %s is ready, and the next one begins at %s", rolled, d.wave,
			w.now.Add(d.soak).UTC().Format(time.RFC3339)))
	default:
		w.set(tenantaddon.ConditionRolledOut, false, tenantaddon.ReasonRolling, fmt.Sprintf("%s; wave %s", rolled, cmp.Or(d.wave, restWave)))
	}
	ready := fmt.Sprintf("it is ready in %d of %d tenants", c.Ready, c.Selected)
	at := meta.FindStatusCondition(w.conditions, tenantaddon.ConditionRolledOut)
	switch {
	case c.Ready == c.Selected:
		w.set(tenantaddon.ConditionReady, true, tenantaddon.ReasonSucceeded, ready)
	case at.Status == metav1.ConditionFalse && (d.stopped || c.Failed == 0):
		w.set(tenantaddon.ConditionReady, false, at.Reason, ready)
	case c.Failed > 0:
		w.set(tenantaddon.ConditionReady, false, tenantaddon.ReasonFailing, ready+"; "+listed(failing))
	default:
		w.set(tenantaddon.ConditionReady, false, tenantaddon.ReasonProgressing, ready)
	}
}

// tell writes the status, if the TenantAddon has another.
func (w *rolling) tell(ctx context.Context, s tenantaddon.TenantAddonStatus) error {
	slices.SortFunc(w.conditions, func(a, b metav1.Condition) int { return strings.Compare(a.Type, b.Type) })
	s.Conditions = w.conditions
	w.note(w.of, s)
	if equality.Semantic.DeepEqual(s, w.o.Status) {
		return nil
	}
	err := w.kube.ApplyStatus(ctx, kube.TenantAddons, &w.o.ObjectMeta, s)
	if apierrors.IsNotFound(err) {
		return nil
	}
	return err
}
