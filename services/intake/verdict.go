package intake

// The verdict on a change that somebody plans, from what was found out about it. Pure.

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/stoker-k8s/stoker/pkg/api/event"
	"github.com/stoker-k8s/stoker/pkg/api/name"
	"github.com/stoker-k8s/stoker/pkg/api/reason"
	"github.com/stoker-k8s/stoker/pkg/api/state"
	"github.com/stoker-k8s/stoker/pkg/api/v1alpha1"
	"github.com/stoker-k8s/stoker/pkg/events"
)

// proposal is a change of a tenant, and what was found out about it.
type proposal struct {
	// there is the object as it is, nil for none; after as it would be.
	there, after *object
	// refused says why the API server won't have it.
	refused refusal
	// now and spec are the effective specs of both.
	now, spec *v1alpha1.TenantControlPlaneSpec
	// stores are the DataStores it uses, by name; nil for one that isn't there.
	stores map[string]*v1alpha1.DataStore
	// What other services say; nil when they weren't asked, or don't know, and then why.
	pods         *event.PodsReply
	podsFailed   string
	inside       *event.InsideReply
	insideFailed string
}

// upgrades reports whether the minor version of Kubernetes changes.
func (p *proposal) upgrades() bool {
	if p.now == nil {
		return false
	}
	from, _ := v1alpha1.Minor(p.now.Kubernetes.Version)
	to, ok := v1alpha1.Minor(p.spec.Kubernetes.Version)
	return ok && from != to
}

// reply is the plan.
func (p *proposal) reply(key events.Key) event.PlanReply {
	r := event.PlanReply{About: event.About{Namespace: key.Namespace, Name: key.Name}}
	if p.there != nil {
		r.UID, r.Generation = string(p.there.UID), p.there.Generation
		r.From = p.there.tenant.Spec.Kubernetes.Version
	}
	if len(p.refused) > 0 {
		r.Errors = p.refused
		r.Checks = []event.PlanCheck{finding(event.CheckRules, event.VerdictBlocks, reason.ChangeRefused, "%s", p.refused.Error())}
		r.Blocked = true
		return r
	}
	if p.now != nil {
		r.From = p.now.Kubernetes.Version
	}
	if p.pods != nil {
		r.Running, r.Steps = p.pods.Version, p.pods.Steps
	}
	r.To = p.spec.Kubernetes.Version
	r.Checks = []event.PlanCheck{finding(event.CheckRules, event.VerdictPasses, "", "the API server accepts the change")}
	if p.there != nil {
		r.Checks = append(r.Checks, p.checkTenant(), p.checkPods())
	}
	r.Checks = append(r.Checks, p.checkDataStores())
	if p.upgrades() {
		var kubelets, apis event.PlanCheck
		kubelets, r.Kubelets = p.checkKubelets()
		apis, r.APIs = p.checkAPIs()
		r.Checks = append(r.Checks, kubelets, apis)
	}
	r.Blocked = slices.ContainsFunc(r.Checks, func(c event.PlanCheck) bool { return c.Verdict == event.VerdictBlocks })
	return r
}

func finding(of, verdict, why, format string, args ...any) event.PlanCheck {
	return event.PlanCheck{Check: of, Verdict: verdict, Reason: why, Message: state.ClipMessage(fmt.Sprintf(format, args...))}
}

// checkTenant says whether the tenant can be changed now.
func (p *proposal) checkTenant() event.PlanCheck {
	_, paused := p.there.Annotations[name.AnnotationPaused]
	_, until := p.there.Annotations[name.AnnotationPausedUntil]
	to := p.spec.Kubernetes.Version
	switch {
	case p.there.DeletionTimestamp != nil:
		return finding(event.CheckTenant, event.VerdictBlocks, reason.Deleting, "the tenant is being deleted")
	case p.pods != nil && jumps(p.pods.Version, append(slices.Clone(p.pods.Steps), to)):
		return finding(event.CheckTenant, event.VerdictBlocks, reason.VersionNotReached,
			"%s still runs, from which %s is more than one minor version away: the upgrade to %s must end first",
			p.pods.Version, to, p.now.Kubernetes.Version)
	case paused || until:
		return finding(event.CheckTenant, event.VerdictWarns, reason.Annotated, "the tenant is paused: what is changed is done when the pause ends")
	case p.pods != nil && !p.pods.Complete:
		return finding(event.CheckTenant, event.VerdictWarns, reason.RolloutUnderWay, "what was changed before is not done yet")
	}
	return finding(event.CheckTenant, event.VerdictPasses, "", "nothing else is under way")
}

// behind is by how many minor versions one version is older than another, 0 when one of them is none.
func behind(version, than string) int {
	older, known := v1alpha1.Minor(version)
	newer, ok := v1alpha1.Minor(than)
	if !known || !ok {
		return 0
	}
	return newer - older
}

// jumps reports whether there is more than one minor version from one version to the next.
func jumps(from string, steps []string) bool {
	for _, to := range steps {
		if behind(from, to) > 1 {
			return true
		}
		from = to
	}
	return false
}

// replicas a spec asks for.
func replicas(spec *v1alpha1.TenantControlPlaneSpec) int32 {
	if r := spec.ControlPlane.Deployment.Replicas; r != nil {
		return *r
	}
	return v1alpha1.DefaultReplicas
}

// checkPods says what becomes of the pods.
func (p *proposal) checkPods() event.PlanCheck {
	passes := func(message string, args ...any) event.PlanCheck {
		return finding(event.CheckPods, event.VerdictPasses, "", message, args...)
	}
	n := replicas(p.spec)
	switch {
	case n == 0 && replicas(p.now) == 0:
		return passes("the tenant sleeps: no pod is started")
	case n == 0:
		return passes("the tenant is put to sleep: its pods are stopped")
	case replicas(p.now) == 0:
		return passes("the tenant is woken: %d pods are started", n)
	case p.podsFailed != "":
		return finding(event.CheckPods, event.VerdictUnknown, reason.Unavailable, "%s", p.podsFailed)
	case p.pods == nil || p.pods.Version == "" && p.pods.Replicas == 0:
		return passes("no pod has been started yet")
	case p.pods.Pods == event.PodsStay:
		return passes("no pod is replaced")
	case p.pods.Pods == event.PodsMayRestart:
		return finding(event.CheckPods, event.VerdictUnknown, reason.PodsMayRestart,
			"whether pods are replaced is known once keys, certificates or the account in the DataStore are made")
	case interrupts(&p.spec.ControlPlane.Deployment.Strategy, n):
		return finding(event.CheckPods, event.VerdictWarns, reason.APIAway,
			"all %d pods are replaced, and the strategy lets all of them end first: the API is away meanwhile", n)
	}
	return passes("all %d pods are replaced; the old ones go on until new ones are ready", n)
}

// interrupts reports whether a rollout of so many pods may be without any that is ready.
func interrupts(s *appsv1.DeploymentStrategy, pods int32) bool {
	if s.Type == appsv1.RecreateDeploymentStrategyType {
		return true
	}
	if s.RollingUpdate == nil || s.RollingUpdate.MaxUnavailable == nil {
		return false // defaults are without
	}
	n, err := intstr.GetScaledValueFromIntOrPercent(s.RollingUpdate.MaxUnavailable, int(pods), false)
	return err == nil && n >= int(pods)
}

// checkDataStores says whether the DataStores are well. One that isn't is in the way of pods that start.
func (p *proposal) checkDataStores() event.PlanCheck {
	var away, warn, well []string
	for _, n := range slices.Sorted(maps.Keys(p.stores)) {
		o := p.stores[n]
		if o == nil {
			away = append(away, n+": there is no such DataStore")
			continue
		}
		said, why := "not checked yet", ""
		if c := meta.FindStatusCondition(o.Status.Conditions, v1alpha1.DataStoreConditionValid); c != nil {
			said, why = c.Message, c.Reason
		}
		switch {
		case !o.Status.Ready:
			away = append(away, n+": "+said)
		case why != v1alpha1.DataStoreReasonValid:
			warn = append(warn, n+": "+said)
		default:
			well = append(well, n)
		}
	}
	switch {
	case len(away) > 0:
		verdict := event.VerdictBlocks
		if p.there != nil && replicas(p.spec) == 0 || p.pods != nil && p.pods.Pods == event.PodsStay && replicas(p.now) > 0 {
			verdict = event.VerdictWarns
		}
		return finding(event.CheckDataStore, verdict, reason.DataStoreNotReady, "%s", strings.Join(append(away, warn...), "; "))
	case len(warn) > 0:
		return finding(event.CheckDataStore, event.VerdictWarns, reason.DataStoreWarns, "%s", strings.Join(warn, "; "))
	case len(well) == 0:
		return finding(event.CheckDataStore, event.VerdictPasses, "", "a DataStore is chosen when the tenant is made")
	}
	return finding(event.CheckDataStore, event.VerdictPasses, "", "%s: ready", strings.Join(well, ", "))
}

// unseen is the verdict on what is inside a tenant that could not be looked at; false when it was.
func (p *proposal) unseen(of string) (event.PlanCheck, bool) {
	switch {
	case p.inside == nil && p.insideFailed == "": // no service knows of the tenant yet
		return finding(of, event.VerdictUnknown, reason.Unavailable, "the tenant has not been made yet"), true
	case p.inside == nil:
		return finding(of, event.VerdictUnknown, reason.Unavailable, "could not look inside the tenant: %s", p.insideFailed), true
	case p.inside.Asleep:
		return finding(of, event.VerdictUnknown, reason.Asleep, "the tenant sleeps: one can't look inside"), true
	}
	return event.PlanCheck{}, false
}

// checkKubelets says which kubelets the new version doesn't work with: they may be some minor versions older, and none newer.
func (p *proposal) checkKubelets() (event.PlanCheck, []event.Kubelets) {
	if c, is := p.unseen(event.CheckKubelets); is {
		return c, nil
	}
	to := p.spec.Kubernetes.Version
	var old, newer []event.Kubelets
	nodes := 0
	for _, k := range p.inside.Kubelets {
		nodes += k.Nodes
		switch n := behind(k.Version, to); {
		case n > v1alpha1.MostMinorsBehind:
			old = append(old, k)
		case n < 0:
			newer = append(newer, k)
		}
	}
	switch {
	case len(old) > 0:
		return finding(event.CheckKubelets, event.VerdictBlocks, reason.KubeletTooOld, "more than %d minor versions older than %s: %s",
			v1alpha1.MostMinorsBehind, to, listed(old, kubelets)), append(old, newer...)
	case len(newer) > 0:
		return finding(event.CheckKubelets, event.VerdictBlocks, reason.KubeletTooNew, "newer than %s: %s", to, listed(newer, kubelets)), newer
	}
	return finding(event.CheckKubelets, event.VerdictPasses, "", "%s works with all of %d nodes", to, nodes), nil
}

// kubelets says which nodes have a version.
func kubelets(k event.Kubelets) string {
	names := slices.Clone(k.Names)
	if more := k.Nodes - len(names); more > 0 {
		names = append(names, fmt.Sprintf("and %d more", more))
	}
	return k.Version + " on " + strings.Join(names, ", ")
}

// checkAPIs says which deprecated APIs are used: those that the new version no longer serves, and those that a later one won't.
func (p *proposal) checkAPIs() (event.PlanCheck, []event.DeprecatedAPI) {
	if c, is := p.unseen(event.CheckAPIs); is {
		return c, nil
	}
	to, _ := v1alpha1.Minor(p.spec.Kubernetes.Version)
	var removed, later, undecided []event.DeprecatedAPI
	for _, a := range p.inside.APIs {
		switch in, ok := v1alpha1.Minor(a.RemovedIn); {
		case !ok:
			undecided = append(undecided, a)
		case in <= to:
			removed = append(removed, a)
		default:
			later = append(later, a)
		}
	}
	all := slices.Concat(removed, later, undecided)
	switch {
	case len(removed) > 0:
		return finding(event.CheckAPIs, event.VerdictBlocks, reason.APIRemoved, "used, and no longer served by %s: %s",
			p.spec.Kubernetes.Version, listed(removed, api)), all
	case len(later) > 0:
		return finding(event.CheckAPIs, event.VerdictWarns, reason.APIDeprecated, "used, and no longer served by later versions: %s", listed(later, api)), all
	}
	return finding(event.CheckAPIs, event.VerdictPasses, "", "%s serves all APIs that were used since the API server was started",
		p.spec.Kubernetes.Version), all
}

// api names a deprecated API.
func api(a event.DeprecatedAPI) string {
	resource := a.Resource
	if a.Subresource != "" {
		resource += "/" + a.Subresource
	}
	if a.Group != "" {
		resource += "." + a.Group
	}
	return fmt.Sprintf("%s %s (until v%s)", resource, a.Version, a.RemovedIn)
}

// listed joins some of a list.
func listed[T any](all []T, say func(T) string) string {
	var said []string
	for _, x := range all[:min(len(all), maxNamed)] {
		said = append(said, say(x))
	}
	if more := len(all) - maxNamed; more > 0 {
		said = append(said, fmt.Sprintf("and %d more", more))
	}
	return strings.Join(said, "; ")
}
