package tenantaddons

// What is done about one AddonRelease in a turn of its tenant.

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
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
	case errors.Is(err, errBusy):
		w.turn.Alarm(busyAgain, loop.Wake{Kind: wakeLook})
	case errors.As(err, &no):
		a.fail(no)
		w.turn.Alarm(loop.HeldAgain(a.since(tenantaddon.ConditionReady)), loop.Wake{Kind: wakeLook})
		if a.o.DeletionTimestamp == nil {
			w.overdue(a)
		}
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
			a.wait(tenantaddon.ReasonWaitingForAddon, a.waiting(b, all))
			w.overdue(a)
			return nil
		}
	}
	if spec.Revision == "" {
		a.wait(tenantaddon.ReasonWaiting, spec.Waiting)
		return nil
	}
	if err := w.install(ctx, a); err != nil {
		if no := (*badError)(nil); errors.As(err, &no) && a.status.Revision != spec.Revision {
			a.tries(spec.Revision, "", "", w.now)
		}
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

// waiting says for people that a waits for b.
func (a *one) waiting(b *one, all []*one) string {
	if round := circle(a, b, all); round != nil {
		return "spec.after goes round in a circle, " + strings.Join(round, " after ") + ", so that none of them is installed: take one name out"
	}
	return fmt.Sprintf("TenantAddon %s isn't ready in the tenant yet", b.addon().Name)
}

// circle are the names of the TenantAddons from a over b back to a of which each is after the next; nil if there is no such way.
func circle(a, b *one, all []*one) []string {
	seen := map[*one]bool{}
	var way func(from *one) []string
	way = func(from *one) []string {
		if from == a {
			return []string{a.addon().Name}
		}
		if from == nil || seen[from] {
			return nil
		}
		seen[from] = true
		for _, before := range from.o.Spec.After {
			if rest := way(find(all, types.NamespacedName{Namespace: from.addon().Namespace, Name: before})); rest != nil {
				return append([]string{from.addon().Name}, rest...)
			}
		}
		return nil
	}
	if rest := way(b); rest != nil {
		return append([]string{a.addon().Name}, rest...)
	}
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

// fail notes what keeps the software from being as it must be. What may pass by itself is no failure yet, and doesn't end one.
func (a *one) fail(e *badError) {
	if failure(e.reason) {
		a.status.Failed = true
	}
	a.set(tenantaddon.ConditionReady, false, e.reason, e.message)
}

// install installs what the tenant may have, if it isn't installed.
func (w *work) install(ctx context.Context, a *one) error {
	p, err := w.revision(ctx, a)
	if p == nil || err != nil {
		return err // without an error the TenantAddon has gone on, and the tenant's turn hasn't come: it keeps what it has
	}
	tenant := w.templated()
	inputs, known := w.in.rendered(a.of, p, tenant)
	var values map[string]any
	if !known {
		if values, inputs, err = w.values(a, p, tenant); err != nil {
			return err
		}
	}
	if a.installed() && a.status.Inputs == inputs && a.status.Revision == p.revision {
		return nil
	}
	if left := w.tooEarly(a, inputs); left > 0 {
		w.turn.Alarm(left, loop.Wake{Kind: wakeLook})
		return nil
	}
	if values == nil {
		if values, _, err = w.values(a, p, tenant); err != nil {
			return err
		}
	}
	content, err := w.content(ctx, p)
	if err != nil {
		return err
	}
	built, err := content.Chart(a.o.Spec.ReleaseName, values)
	if err != nil {
		return sourceError(err)
	}
	a.tries(p.revision, p.version, inputs, w.now)
	if err := w.tell(ctx, a); err != nil {
		return err
	}
	r := release.Release{ID: a.id(), Chart: built.Chart, Values: values, Timeout: w.timeout(a)}
	if built.RemoveCRDs { // else they are the chart's
		r.CRDs = built.CRDs
	}
	return w.apply(ctx, a, r, inputs)
}

// apply has the release made so.
func (w *work) apply(ctx context.Context, a *one, r release.Release, inputs string) error {
	cluster, metrics := w.in.cluster, w.metrics
	if in, last := w.in.known(a.of), w.in.last(a.of); in != nil && last.inputs == inputs && last.err == nil {
		a.succeeded(in, w.now) // and the status couldn't be written
		return nil
	}
	in, err := w.do(ctx, jobOf{a.of, inputs}, hasHooks(r.Chart), func(ctx context.Context) (*release.Installed, error) {
		began := time.Now()
		in, err := cluster.Install(ctx, r)
		metrics.tried(err, time.Since(began))
		return in, err
	})
	if errors.Is(err, errBusy) {
		return err
	}
	w.in.tries(a.of, inputs, time.Now(), err)
	if err != nil {
		return w.refused(err)
	}
	w.in.put(a.of, in)
	a.succeeded(in, time.Now())
	return nil
}

// succeeded notes what is installed. From now on it has its time to become ready.
func (a *one) succeeded(in *release.Installed, now time.Time) {
	at := metav1.NewTime(now)
	a.status.TriedAt, a.status.Failed = &at, false
	a.status.HelmRevision, a.status.Objects = int32(in.Revision), int32(len(in.Objects()))
	a.set(tenantaddon.ConditionInstalled, true, tenantaddon.ReasonSucceeded, "")
}

// values are the tenant's, and inputs name all that goes into the installation.
func (w *work) values(a *one, p *prepared, tenant source.Tenant) (values map[string]any, inputs string, err error) {
	if values, err = source.Values(p.spec, p.in, tenant); err != nil {
		return nil, "", sourceError(err)
	}
	inputs = hashOf(p.revision, values)
	w.in.render(a.of, p, tenant, inputs)
	return values, inputs, nil
}

// tries notes which revision is tried, and since when.
func (a *one) tries(revision, version, inputs string, now time.Time) {
	if inputs == "" && a.status.Inputs != "" {
		inputs = noInputs // there is something in the tenant
	}
	if a.status.Inputs != inputs || a.status.Revision != revision || a.status.TriedAt == nil {
		at := metav1.NewTime(now)
		a.status.TriedAt, a.status.Failed = &at, false
		const message = "it is being installed"
		a.set(tenantaddon.ConditionInstalled, false, tenantaddon.ReasonProgressing, message)
		a.set(tenantaddon.ConditionReady, false, tenantaddon.ReasonProgressing, message)
	}
	a.status.Revision, a.status.Version, a.status.Inputs = revision, version, inputs
}

// tooEarly is how long what has failed waits to be tried again: as long as it has been failing, two minutes at most.
func (w *work) tooEarly(a *one, inputs string) time.Duration {
	last := w.in.last(a.of)
	if last.inputs != inputs || last.err == nil || a.status.TriedAt == nil || a.installed() || w.turn.Due() {
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

// revision is what the tenant may have; nil when it isn't what the TenantAddon says now.
func (w *work) revision(ctx context.Context, a *one) (*prepared, error) {
	of, p := a.addon(), w.latest(a)
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
	p, err = w.prepare(ctx, o)
	if no := (*badError)(nil); errors.As(err, &no) && a.installed() && a.status.Revision == a.o.Spec.Revision {
		return nil, nil // what it says now can't be used; the tenant keeps what it has
	}
	if err != nil {
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

// latest is what the TenantAddon of an AddonRelease came to last; nil when nobody has looked since the start.
func (w *work) latest(a *one) *prepared {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.prepared[a.addon()]
}

// timeout is how long an installation may take until it is ready.
func (w *work) timeout(a *one) time.Duration {
	if t := a.o.Spec.Timeout; t != nil {
		return t.Duration
	}
	return defaultTimeout
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
		a.repaired = true
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
	if a.o.Spec.ReadyWhen == tenantaddon.ReadyWhenApplied {
		health.State = release.Current
	}
	switch health.State {
	case release.Current:
		a.status.Failed = false
		if often := w.turn.Drifting(); often != nil && (a.repaired || a.reason() == tenantaddon.ReasonKeepsDrifting) {
			a.set(tenantaddon.ConditionReady, true, tenantaddon.ReasonKeepsDrifting, often.Message)
			return
		}
		a.set(tenantaddon.ConditionReady, true, tenantaddon.ReasonSucceeded, "")
	case release.Failed:
		a.status.Failed = true
		a.set(tenantaddon.ConditionReady, false, tenantaddon.ReasonUnhealthy, health.Message)
	case release.Unknown:
		if !a.ready() && !a.status.Failed {
			a.set(tenantaddon.ConditionReady, false, tenantaddon.ReasonProgressing, "it is looked at for the first time")
		}
		w.overdue(a)
	default:
		if a.ready() { // it has the time of an installation to come back
			at := metav1.NewTime(w.now)
			a.status.TriedAt = &at
		}
		if a.reason() != tenantaddon.ReasonTimedOut {
			a.set(tenantaddon.ConditionReady, false, tenantaddon.ReasonProgressing, health.Message)
		}
		w.overdue(a)
	}
}

// overdue notes that the software isn't ready in time.
func (w *work) overdue(a *one) {
	if a.status.TriedAt == nil || a.ready() || a.status.Revision != a.o.Spec.Revision || a.status.Failed || w.turn.Tenant == nil || w.turn.Tenant.Sleeps() {
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
	}
	switch no.reason {
	case tenantaddon.ReasonTenantUnavailable, tenantaddon.ReasonTenantAsleep, tenantaddon.ReasonRemovalFailed:
		if a.status.UnremovableSince == nil {
			at := metav1.NewTime(w.now)
			a.status.UnremovableSince = &at
		}
		lasted := w.unremovableFor(a)
		if left := w.abandonAfter - lasted; left > 0 {
			w.turn.Alarm(left, loop.Wake{Kind: wakeLook})
			return no
		}
		w.log.Warn("a TenantAddon is left in a tenant", "tenant", w.turn.Key.String(), "addon", a.addon().String(), "error", no.message)
		w.metrics.abandoned.Inc()
		a.gone = &loop.Tell{What: event.Abandoned, Data: event.TenantAddonAbandoned{About: w.turn.About(), Addon: about, Message: no.message}}
		return nil
	}
	a.status.UnremovableSince = nil
	return no
}

// unremovableFor is how long the software couldn't be removed.
func (w *work) unremovableFor(a *one) time.Duration {
	if a.status.UnremovableSince == nil {
		return 0
	}
	return w.now.Sub(a.status.UnremovableSince.Time)
}

// uninstall takes the software out of the tenant, or leaves it there, as is asked.
func (w *work) uninstall(ctx context.Context, a *one, all []*one) error {
	spec := &a.o.Spec
	for _, b := range all {
		if b.o.DeletionTimestamp != nil && b.gone == nil && b.o.Spec.Addon.Namespace == spec.Addon.Namespace &&
			slices.Contains(b.o.Spec.After, spec.Addon.Name) {
			return bad(tenantaddon.ReasonWaitingForAddon, "TenantAddon %s, which comes after it, is removed first", b.o.Spec.Addon.Name)
		}
	}
	switch {
	case a.status.Inputs == "" && a.status.HelmRevision == 0: // it never was there
		return nil
	case spec.Paused:
		return bad(tenantaddon.ReasonPaused, "it is to be removed, and the TenantAddon is paused")
	case w.in == nil:
		return w.away
	}
	w.in.take(a.of)
	lasted := w.unremovableFor(a)
	what, r := removal, release.Removal{Timeout: min(w.timeout(a), max(w.abandonAfter/2, time.Second))}
	switch {
	case spec.OnRemoval == tenantaddon.RemovalKeep:
		what = leaving
	case lasted > w.abandonAfter/2: // hooks that fail are tried for half of the time that there is
		what, r.NoHooks = removalNoHooks, true
	}
	if last := w.in.last(a.of); last.inputs == what && last.err != nil {
		if left := loop.HeldAgain(lasted) - w.now.Sub(last.at); left > 0 {
			w.turn.Alarm(left, loop.Wake{Kind: wakeLook})
			return w.unremoved(last.err)
		}
	}
	cluster, id := w.in.cluster, a.id()
	_, err := w.do(ctx, jobOf{a.of, what}, what == removal, func(ctx context.Context) (*release.Installed, error) {
		if what == leaving {
			return nil, cluster.Forget(ctx, id)
		}
		return nil, cluster.Uninstall(ctx, id, r)
	})
	if errors.Is(err, errBusy) {
		return err
	}
	w.in.tries(a.of, what, time.Now(), err)
	if err != nil {
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
