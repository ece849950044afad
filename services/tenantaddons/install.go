package tenantaddons

// What is done about one AddonRelease in a turn of its tenant.

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"helm.sh/helm/v4/pkg/chart/common"
	chart "helm.sh/helm/v4/pkg/chart/v2"
	helmrelease "helm.sh/helm/v4/pkg/release/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/stoker-k8s/stoker/pkg/api/event"
	"github.com/stoker-k8s/stoker/pkg/api/tenantaddon"
	"github.com/stoker-k8s/stoker/pkg/events"
	"github.com/stoker-k8s/stoker/pkg/intent"
	"github.com/stoker-k8s/stoker/pkg/kube"
	"github.com/stoker-k8s/stoker/pkg/loop"
	"github.com/stoker-k8s/stoker/services/tenantaddons/internal/release"
	"github.com/stoker-k8s/stoker/services/tenantaddons/internal/source"
)

// step brings an AddonRelease as far as it comes, and writes its status. The error is one for which the turn is repeated.
func (w *work) step(ctx context.Context, a *one, all []*one) error {
	err := w.advance(ctx, a, all)
	no := (*badError)(nil)
	switch {
	case errors.As(err, &no):
		a.fail(no)
		w.turn.Alarm(loop.HeldAgain(a.since(tenantaddon.ConditionReady)), loop.Wake{Kind: wakeLook})
	case err != nil:
		return err
	}
	return w.tell(ctx, a)
}

// advance does what is to be done. A *badError is what keeps it from being done.
func (w *work) advance(ctx context.Context, a *one, all []*one) error {
	spec := &a.o.Spec
	switch {
	case a.o.DeletionTimestamp != nil:
		return w.remove(ctx, a, all)
	case spec.Paused:
		return nil
	case w.in == nil:
		a.wait(w.away.reason, w.away.message)
		w.overdue(a)
		return nil
	}
	for _, before := range spec.After {
		of := types.NamespacedName{Namespace: spec.Addon.Namespace, Name: before}
		if b := find(all, of); b != nil && !b.ready() && !a.installed() {
			a.wait(tenantaddon.ReasonWaitingForAddon, fmt.Sprintf("TenantAddon %s isn't ready in the tenant yet", before))
			return nil
		}
	}
	if spec.Revision == "" {
		a.wait(tenantaddon.ReasonWaiting, spec.Waiting)
		return nil
	}
	if err := w.install(ctx, a); err != nil {
		return err
	}
	if a.installed() {
		if err := w.repair(ctx, a); err != nil {
			return err
		}
	}
	w.judge(a)
	return nil
}

// wait notes that nothing can be done now. What is installed stays as ready as it was seen last.
func (a *one) wait(reason, message string) {
	if a.installed() && a.status.Revision == a.o.Spec.Revision && a.ready() {
		return
	}
	if !a.installed() {
		a.set(tenantaddon.ConditionInstalled, false, reason, message)
	}
	a.set(tenantaddon.ConditionReady, false, reason, message)
}

// fail notes what keeps the software from being as it must be.
func (a *one) fail(e *badError) {
	a.status.Failed = e.reason != tenantaddon.ReasonSourceUnavailable && e.reason != tenantaddon.ReasonTenantUnavailable
	a.set(tenantaddon.ConditionReady, false, e.reason, e.message)
}

// install installs what the tenant may have, if it isn't installed.
func (w *work) install(ctx context.Context, a *one) error {
	p, err := w.revision(ctx, a)
	if err != nil {
		return err
	}
	if p == nil {
		return nil // the TenantAddon has gone on, and the tenant's turn hasn't come: it keeps what it has
	}
	values, err := source.Values(p.spec, p.in, w.templated())
	if err != nil {
		a.tries(p, "", w.now)
		return sourceError(err)
	}
	inputs := hashOf(p.revision, values)
	if a.installed() && a.status.Inputs == inputs && a.status.Revision == p.revision {
		return nil
	}
	if left := w.tooEarly(a, inputs); left > 0 {
		w.turn.Alarm(left, loop.Wake{Kind: wakeLook})
		return nil
	}
	content, err := w.content(ctx, p)
	if err != nil {
		return err
	}
	built, err := content.Chart(a.o.Spec.ReleaseName, values)
	if err != nil {
		return sourceError(err)
	}
	done, free := w.hookSlot(hasHooks(built.Chart))
	if !free {
		w.turn.Alarm(time.Second, loop.Wake{Kind: wakeLook})
		return nil
	}
	defer done()
	a.tries(p, inputs, w.now)
	w.in.tries(a.of, inputs, w.now)
	if err := w.tell(ctx, a); err != nil {
		return err
	}
	began := time.Now()
	r := release.Release{ID: a.id(), Chart: built.Chart, Values: values, Timeout: timeoutOf(p.spec)}
	if built.RemoveCRDs { // else they are the chart's
		r.CRDs = built.CRDs
	}
	in, err := w.in.cluster.Install(ctx, r)
	w.metrics.tried(err, time.Since(began))
	if err != nil {
		return w.refused(err)
	}
	w.in.put(a.of, in)
	a.status.HelmRevision, a.status.Objects, a.status.Failed = int32(in.Revision), int32(len(in.Objects())), false //nolint:gosec // small
	a.set(tenantaddon.ConditionInstalled, true, tenantaddon.ReasonSucceeded, "")
	return nil
}

// tries notes which revision is tried, and since when.
func (a *one) tries(p *prepared, inputs string, now time.Time) {
	if a.status.Inputs != inputs || a.status.Revision != p.revision || a.status.TriedAt == nil {
		at := metav1.NewTime(now)
		a.status.TriedAt, a.status.Failed = &at, false
		const message = "it is being installed"
		a.set(tenantaddon.ConditionInstalled, false, tenantaddon.ReasonProgressing, message)
		a.set(tenantaddon.ConditionReady, false, tenantaddon.ReasonProgressing, message)
	}
	a.status.Revision, a.status.Version, a.status.Inputs = p.revision, p.version, inputs
}

// tooEarly is how long what has failed waits to be tried again: as long as it has been failing, two minutes at most.
func (w *work) tooEarly(a *one, inputs string) time.Duration {
	last, there := w.in.lastTry(a.of)
	if !there || last.inputs != inputs || a.status.TriedAt == nil || w.turn.Due() {
		return 0
	}
	return loop.HeldAgain(last.at.Sub(a.status.TriedAt.Time)) - w.now.Sub(last.at)
}

// hasHooks reports whether a chart has hooks, as far as can be told before it is rendered.
func hasHooks(c *chart.Chart) bool {
	return slices.ContainsFunc(c.Templates, func(f *common.File) bool { return bytes.Contains(f.Data, []byte(helmrelease.HookAnnotation)) }) ||
		slices.ContainsFunc(c.Dependencies(), hasHooks)
}

// id is which Helm release it is.
func (a *one) id() release.ID {
	return release.ID{Name: a.o.Spec.ReleaseName, Namespace: a.o.Spec.TargetNamespace, Addon: a.addon()}
}

// hookSlot takes one of the places for charts with hooks.
func (w *work) hookSlot(hooks bool) (done func(), free bool) {
	if !hooks {
		return func() {}, true
	}
	select {
	case w.hooks <- struct{}{}:
		return func() { <-w.hooks }, true
	default:
		return nil, false
	}
}

// revision is what the tenant may have; nil when it isn't what the TenantAddon says now.
func (w *work) revision(ctx context.Context, a *one) (*prepared, error) {
	of, p := a.addon(), w.last(a)
	switch {
	case p != nil && p.revision == a.o.Spec.Revision:
		return p, nil
	case p != nil && a.installed() && a.status.Revision == a.o.Spec.Revision && !w.turn.Due():
		return nil, nil
	}
	o := &tenantaddon.TenantAddon{}
	err := w.kube.Get(ctx, kube.TenantAddons, of.Namespace, of.Name, o)
	if apierrors.IsNotFound(err) || err == nil && o.DeletionTimestamp != nil {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	if p, err = w.prepare(ctx, o); err != nil {
		return nil, err
	}
	w.mu.Lock()
	w.prepared[of] = p
	w.mu.Unlock()
	if p.revision != a.o.Spec.Revision {
		return nil, nil
	}
	return p, nil
}

// templated is what templates of values read of the tenant.
func (w *work) templated() source.Tenant {
	t := w.turn.Tenant
	n := t.Spec.NetworkProfile
	s := source.Tenant{
		Name: t.Name, Namespace: t.Namespace, Labels: t.Labels, Version: t.Spec.Kubernetes.Version, PodCIDR: n.PodCIDR, ServiceCIDR: n.ServiceCIDR,
		DNSDomain: n.ClusterDomain, DNSServiceIPs: n.DNSServiceIPs,
	}
	s.Endpoint, s.Host, s.Port = w.in.endpoint()
	return s
}

// hashOf names what goes into an installation.
func hashOf(revision string, values map[string]any) string {
	data, _ := json.Marshal(values) // of YAML
	return events.ID(revision, string(data))
}

// defaultTimeout is spec.timeout where none is said.
const defaultTimeout = 5 * time.Minute

func timeoutOf(spec *tenantaddon.TenantAddonSpec) time.Duration {
	if spec.Timeout != nil {
		return spec.Timeout.Duration
	}
	return defaultTimeout
}

// prepared is what the TenantAddon of an AddonRelease came to last; nil when nobody has looked since the start.
func (w *work) last(a *one) *prepared {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.prepared[a.addon()]
}

// timeout is how long an installation may take until it is ready; readyWhen when it is.
func (w *work) timeout(a *one) time.Duration {
	if p := w.last(a); p != nil {
		return timeoutOf(p.spec)
	}
	return defaultTimeout
}

func (w *work) readyWhen(a *one) string {
	if p := w.last(a); p != nil {
		return p.spec.ReadyWhen
	}
	return tenantaddon.ReadyWhenHealthy
}

// repair puts right what isn't in the tenant as it must be.
func (w *work) repair(ctx context.Context, a *one) error {
	in, err := w.installed(ctx, a)
	if err != nil {
		return w.refused(err)
	}
	if in == nil {
		return w.anew(a)
	}
	refs := in.Drift()
	if w.turn.Due() {
		refs = in.Objects()
	}
	if len(refs) == 0 {
		return nil
	}
	repaired, err := w.in.cluster.Repair(ctx, in, refs)
	if len(repaired) > 0 {
		var names []string
		for _, r := range repaired {
			names = append(names, r.String())
		}
		w.turn.Drifted(names...)
		w.metrics.repaired.Add(float64(len(names)))
		w.facts = append(w.facts, loop.Tell{What: event.Repaired, Data: event.TenantAddonRepaired{
			About: w.turn.About(), Addon: a.about(), Objects: names[:min(len(names), maxFailing)], Count: len(names),
		}})
	}
	if errors.Is(err, release.ErrNotInstalled) {
		return w.anew(a)
	}
	if err != nil {
		return w.refused(err)
	}
	return nil
}

// anew has the software installed once more, because somebody in the tenant has taken away what Helm knows of it.
func (w *work) anew(a *one) error {
	w.in.take(a.of)
	a.status.Inputs = noInputs
	a.set(tenantaddon.ConditionInstalled, false, tenantaddon.ReasonProgressing, "the Helm release isn't there any more, and is installed anew")
	w.turn.Alarm(0, loop.Wake{Kind: wakeLook})
	return nil
}

// noInputs are those of an installation that is to be made once more.
const noInputs = "none"

// installed is what is installed, read in the tenant if it isn't known yet; nil when there is nothing.
func (w *work) installed(ctx context.Context, a *one) (*release.Installed, error) {
	if in := w.in.known(a.of); in != nil {
		return in, nil
	}
	in, err := w.in.cluster.Read(ctx, a.id())
	if in != nil {
		w.in.put(a.of, in)
	}
	return in, err
}

// judge says whether the software is ready.
func (w *work) judge(a *one) {
	in := w.in.known(a.of)
	if !a.installed() || in == nil {
		return
	}
	health := in.Health()
	if w.readyWhen(a) == tenantaddon.ReadyWhenApplied {
		health.State = release.Current
	}
	switch health.State {
	case release.Current:
		a.status.Failed = false
		a.set(tenantaddon.ConditionReady, true, tenantaddon.ReasonSucceeded, "")
	case release.Failed:
		a.status.Failed = true
		a.set(tenantaddon.ConditionReady, false, tenantaddon.ReasonUnhealthy, health.Message)
	case release.Unknown:
		if !a.ready() && !a.status.Failed {
			a.set(tenantaddon.ConditionReady, false, tenantaddon.ReasonProgressing, "it is looked at for the first time")
		}
	default:
		if a.ready() || a.reason() == tenantaddon.ReasonUnhealthy { // it has the time of an installation to come back
			at := metav1.NewTime(w.now)
			a.status.TriedAt, a.status.Failed = &at, false
		}
		if a.reason() != tenantaddon.ReasonTimedOut {
			a.set(tenantaddon.ConditionReady, false, tenantaddon.ReasonProgressing, health.Message)
		}
		w.overdue(a)
	}
}

// overdue notes that the software isn't ready in time.
func (w *work) overdue(a *one) {
	if a.status.TriedAt == nil || a.ready() || a.status.Revision != a.o.Spec.Revision || a.status.Failed || w.turn.Tenant.Sleeps() {
		return
	}
	if left := a.status.TriedAt.Add(w.timeout(a)).Sub(w.now); left > 0 {
		w.turn.Alarm(left, loop.Wake{Kind: wakeLook})
		return
	}
	a.status.Failed = true
	a.set(tenantaddon.ConditionReady, false, tenantaddon.ReasonTimedOut, fmt.Sprintf("it wasn't ready within %s: %s", w.timeout(a), a.message()))
}

// remove removes the software from the tenant.
func (w *work) remove(ctx context.Context, a *one, all []*one) error {
	lasted := w.now.Sub(a.o.DeletionTimestamp.Time)
	about := a.about()
	err := w.uninstall(ctx, a, all)
	no := (*badError)(nil)
	switch {
	case err == nil:
		a.gone = &loop.Tell{What: event.Uninstalled, Data: event.TenantAddonUninstalled{
			About: w.turn.About(), Addon: about, Kept: a.o.Spec.OnRemoval == tenantaddon.RemovalKeep,
		}}
		return nil
	case !errors.As(err, &no):
		return err
	case lasted >= w.abandonAfter:
		w.log.Warn("a TenantAddon is left in a tenant", "tenant", w.turn.Key.String(), "addon", a.addon().String(), "error", no.message)
		w.metrics.abandoned.Inc()
		a.gone = &loop.Tell{What: event.Abandoned, Data: event.TenantAddonAbandoned{About: w.turn.About(), Addon: about, Message: no.message}}
		return nil
	}
	w.turn.Alarm(min(loop.HeldAgain(lasted), w.abandonAfter-lasted), loop.Wake{Kind: wakeLook})
	return no
}

// uninstall takes the software out of the tenant, or leaves it there, as is asked.
func (w *work) uninstall(ctx context.Context, a *one, all []*one) error {
	spec := &a.o.Spec
	for _, b := range all {
		if b.o.DeletionTimestamp != nil && b.gone == nil && b.o.Spec.Addon.Namespace == spec.Addon.Namespace && slices.Contains(b.o.Spec.After, spec.Addon.Name) {
			return bad(tenantaddon.ReasonWaitingForAddon, "TenantAddon %s, which comes after it, is removed first", b.o.Spec.Addon.Name)
		}
	}
	switch {
	case a.status.Inputs == "": // it never was there
		return nil
	case spec.Paused:
		return bad(tenantaddon.ReasonPaused, "it is to be removed, and the TenantAddon is paused")
	case w.in == nil:
		return w.away
	}
	w.in.take(a.of)
	if spec.OnRemoval == tenantaddon.RemovalKeep {
		if err := w.in.cluster.Forget(ctx, a.id()); err != nil {
			return w.unremoved(err)
		}
		return nil
	}
	// Hooks that fail are tried for half of the time that there is; then it goes without them.
	noHooks := w.now.Sub(a.o.DeletionTimestamp.Time) > w.abandonAfter/2
	if err := w.in.cluster.Uninstall(ctx, a.id(), release.Removal{NoHooks: noHooks}); err != nil {
		return w.unremoved(err)
	}
	return nil
}

// unremoved is what keeps the software from being removed.
func (w *work) unremoved(err error) error {
	err = w.refused(err)
	if no := (*badError)(nil); errors.As(err, &no) && no.reason != tenantaddon.ReasonTenantUnavailable {
		if no.reason == tenantaddon.ReasonTaken {
			return nil // somebody else's now
		}
		return bad(tenantaddon.ReasonRemovalFailed, "%s", no.message)
	}
	return err
}

// refused is what an error of the tenant means. What it refuses, or that it is away, concerns it alone.
func (w *work) refused(err error) error {
	if e := (*release.Error)(nil); errors.As(err, &e) {
		return &badError{e.Reason, e.Error()}
	}
	if away := (*intent.Unavailable)(nil); errors.As(err, &away) {
		return &badError{tenantaddon.ReasonTenantUnavailable, away.Error()}
	}
	return err
}
