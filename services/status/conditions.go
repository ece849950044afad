package status

// The conditions of a tenant in the manner of kstatus: Ready sums up; Reconciling, Stalled and Paused are there only while
// they are true; one condition per service says how far it has come.

import (
	"cmp"
	"fmt"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/stoker-k8s/stoker/pkg/api/name"
	"github.com/stoker-k8s/stoker/pkg/api/reason"
	"github.com/stoker-k8s/stoker/pkg/api/state"
)

// Types of conditions.
const (
	ConditionReady        = "Ready"
	ConditionReconciling  = "Reconciling"
	ConditionStalled      = "Stalled"
	ConditionPaused       = "Paused"
	ConditionCertificates = "CertificatesReady"
	ConditionDatastore    = "DatastoreReady"
	ConditionWorkload     = "WorkloadAvailable"
	ConditionAddons       = "AddonsReady"
	ConditionEndpoint     = "EndpointReachable"
	// ConditionTunnel is only there for a tenant that has konnectivity.
	ConditionTunnel = "TunnelConnected"
	// ConditionWriteLimited is only there while some writes are blocked inside the tenant.
	ConditionWriteLimited = "WriteLimited"
	// ConditionQuota is only there for a tenant that has a quota.
	ConditionQuota = "WithinQuota"
	// ConditionArgoCD is only there for a tenant that asks to be known to Argo CD.
	ConditionArgoCD = "ArgoCDRegistered"
)

// conditions returns those that hold, and the summary.
func conditions(t *state.Tenant, in States, p standing, next state.Status) (all []metav1.Condition, ready metav1.Condition) {
	ready = summary(t, p, next, in)
	all = append(all, ready)
	truth := func(typ, why, message string) {
		all = append(all, metav1.Condition{Type: typ, Status: metav1.ConditionTrue, Reason: why, Message: message})
	}
	switch {
	case p.stalled != nil:
		truth(ConditionStalled, p.stalled.reason, p.stalled.service+": "+p.stalled.message)
	case p.retrying != nil:
		truth(ConditionReconciling, p.retrying.reason, p.retrying.service+": "+p.retrying.message)
	case p.ready && !p.workload.done:
		truth(ConditionReconciling, reason.WorkloadRollingOut, p.workload.service+" "+p.workload.message)
	case !p.ready && !p.asleep:
		truth(ConditionReconciling, ready.Reason, ready.Message)
	}
	all = append(all,
		certificates(in, p), datastore(in, p), workload(t, in, p), addons(in, p), endpoint(t, in, p))
	if t.Spec.Addons.Konnectivity != nil {
		all = append(all, tunnel(t, in))
	}
	if blocked := in.Addons.Data.WritePermissions.Blocked(); blocked != "" {
		truth(ConditionWriteLimited, reason.WritesBlocked, blocked+" of objects inside the tenant are blocked (spec.writePermissions)")
	}
	if t.Quota != (state.Quota{}) {
		all = append(all, withinQuota(in))
	}
	if a := in.Certs.Data.ArgoCD; a != nil {
		all = append(all, registered(a))
	}
	return all, ready
}

// withinQuota says how near to its quota the tenant is.
func withinQuota(in States) metav1.Condition {
	c := metav1.Condition{Type: ConditionQuota, Status: metav1.ConditionTrue, Reason: reason.WithinQuota}
	u := in.Datastore.Data.Usage
	if u == nil {
		c.Status, c.Reason, c.Message = metav1.ConditionUnknown, reason.Pending, "what the tenant keeps isn't counted yet"
		return c
	}
	switch u.Level {
	case state.QuotaNear:
		c.Reason = reason.NearQuota
	case state.QuotaFull:
		c.Status, c.Reason = metav1.ConditionFalse, reason.QuotaFull
	}
	c.Message = u.Words() + " were used when this was found"
	return c
}

// registered says whether Argo CD knows the tenant as a cluster.
func registered(a *state.ArgoCD) metav1.Condition {
	c := metav1.Condition{Type: ConditionArgoCD, Status: metav1.ConditionFalse, Reason: a.Reason, Message: a.Message}
	if a.Reason == "" {
		c.Status, c.Reason = metav1.ConditionTrue, reason.Registered
		c.Message = fmt.Sprintf("Secret %s/%s leads Argo CD to %s", a.Namespace, a.Name, a.Server)
	}
	return c
}

// summary is the Ready condition.
func summary(t *state.Tenant, p standing, next state.Status, in States) metav1.Condition {
	c := metav1.Condition{Type: ConditionReady, Status: metav1.ConditionFalse}
	first := p.first()
	switch {
	case p.ready:
		c.Status, c.Reason = metav1.ConditionTrue, reason.Ready
		c.Message = fmt.Sprintf("Kubernetes %s answers at %s", next.Version, next.Endpoint)
		if !reachOf(in).Since.IsZero() {
			c.Message = fmt.Sprintf("Kubernetes %s answers, but not at %s as seen from Stoker (condition %s)",
				next.Version, next.Endpoint, ConditionEndpoint)
		}
	case p.stalled != nil:
		c.Reason, c.Message = p.stalled.reason, p.stalled.service+": "+p.stalled.message
	case t.Deleting:
		c.Reason, c.Message = reason.Deleting, p.removing()
	case p.asleep:
		c.Reason, c.Message = reason.Sleeping, "no pods are asked for and none runs"+byWhat(t.Sleep, in.Workload.Data.Hashes.Activator != "")
	case t.Sleeps():
		c.Reason, c.Message = reason.Sleeping, "no pods are asked for, going to sleep"+byWhat(t.Sleep, in.Workload.Data.Hashes.Activator != "")
	case first == nil:
		c.Reason, c.Message = reason.EndpointPending, "the endpoint is not known yet"
	default:
		c.Reason, c.Message = notReadyReasons[first.service][first.reason], first.service+" "+first.message
		if first.failure != nil {
			c.Reason, c.Message = first.reason, first.service+": "+first.message
		}
		if !first.begun {
			c.Message = first.message
		}
	}
	return c
}

// byWhat says since when and by what a tenant sleeps that does so by its schedule, and what wakes it.
func byWhat(s state.Sleep, byConnection bool) (text string) {
	if s.Asleep {
		text = fmt.Sprintf(": asleep since %s by %s", s.Since.Format(time.RFC3339), s.By)
		if !s.Until.IsZero() {
			text += ", until " + s.Until.Format(time.RFC3339)
		}
	}
	if byConnection {
		text += "; the first connection wakes it"
	}
	return text
}

// notReadyReasons are the reasons of a tenant that is not Ready because of one service, by service and by the service's own reason.
var notReadyReasons = map[string]map[string]string{
	name.ServiceCerts: {
		reason.Waiting: reason.CertificatesWaiting, reason.InProgress: reason.CertificatesInProgress,
		reason.Pending: reason.CertificatesPending, reason.Removed: reason.CertificatesRemoved,
	},
	name.ServiceDatastore: {
		reason.Waiting: reason.DatastoreWaiting, reason.InProgress: reason.DatastoreInProgress,
		reason.Pending: reason.DatastorePending, reason.Removed: reason.DatastoreRemoved,
	},
	name.ServiceWorkload: {
		reason.Waiting: reason.WorkloadWaiting, reason.InProgress: reason.WorkloadInProgress,
		reason.Pending: reason.WorkloadPending, reason.Removed: reason.WorkloadRemoved, reason.NoReadyPods: reason.WorkloadNoReadyPods,
	},
	name.ServiceAddons: {
		reason.Waiting: reason.AddonsWaiting, reason.InProgress: reason.AddonsInProgress,
		reason.Pending: reason.AddonsPending, reason.Removed: reason.AddonsRemoved,
	},
}

// condition returns the condition of a service.
func (x progress) condition(typ string) metav1.Condition {
	c := metav1.Condition{Type: typ, Status: metav1.ConditionFalse, Reason: x.reason, Message: x.message}
	if x.done {
		c.Status = metav1.ConditionTrue
	}
	if x.begun && !x.done && x.failure == nil && !x.removed {
		c.Message = x.service + " " + x.message
	}
	return c
}

func certificates(in States, p standing) metav1.Condition {
	c := p.certs.condition(ConditionCertificates)
	if p.certs.done && c.Message == "" {
		c.Message = "all keys, certificates and kubeconfigs exist"
		if at := in.Certs.Data.RenewAt; !at.IsZero() {
			c.Message += "; the first is renewed at " + at.UTC().Format(time.RFC3339)
		}
	}
	return c
}

func datastore(in States, p standing) metav1.Condition {
	c := p.datastore.condition(ConditionDatastore)
	if p.datastore.done && c.Message == "" {
		c.Message = fmt.Sprintf("schema %s of DataStore %s (%s)", in.Datastore.Data.Schema, in.Datastore.Data.DataStore, in.Datastore.Data.Driver)
	}
	return c
}

// workload is true as long as pods answer, also while others roll out.
func workload(t *state.Tenant, in States, p standing) metav1.Condition {
	c := p.workload.condition(ConditionWorkload)
	w := in.Workload.Data
	switch {
	case p.workload.removed:
	case t.Sleeps() && w.ReadyReplicas == 0 && p.workload.failure == nil:
		c.Status, c.Reason, c.Message = metav1.ConditionFalse, reason.Sleeping, "no pods are asked for"
	case w.ReadyReplicas > 0 && !p.workload.done:
		c.Status = metav1.ConditionTrue
		if p.workload.failure == nil {
			c.Reason = reason.RollingOut
		}
		c.Message = fmt.Sprintf("%d pods are ready; %s %s", w.ReadyReplicas, name.ServiceWorkload, p.workload.message)
	case w.ReadyReplicas > 0 && c.Message == "":
		c.Message = fmt.Sprintf("%d of %d pods are ready", w.ReadyReplicas, w.Replicas)
	}
	return c
}

func addons(in States, p standing) metav1.Condition {
	c := p.addons.condition(ConditionAddons)
	if p.addons.done && c.Message == "" {
		c.Message = fmt.Sprintf("%d objects inside the tenant are as they must be", in.Addons.Data.Objects)
	}
	return c
}

// reachOf is what addons has seen of the endpoint as it is now; the zero value before it has looked there.
func reachOf(in States) state.Reach {
	if r := in.Addons.Data.Endpoint; r.Endpoint == in.Workload.Data.Endpoint {
		return r
	}
	return state.Reach{}
}

// endpoint is true when the published endpoint answers with a certificate of the published CA, as seen from addons, and pods are ready. It
// is apart from Ready: Stoker itself may reach the tenant by another way, and clients may be elsewhere.
func endpoint(t *state.Tenant, in States, p standing) metav1.Condition {
	c := metav1.Condition{Type: ConditionEndpoint, Status: metav1.ConditionFalse}
	w, reach := in.Workload.Data, reachOf(in)
	switch {
	case p.workload.removed:
		c.Reason, c.Message = reason.Removed, "removed"
	case w.Endpoint == "":
		c.Reason, c.Message = reason.Pending, "the endpoint is not known yet"
	case w.ReadyReplicas == 0 && t.Sleeps():
		c.Reason, c.Message = reason.Sleeping, "nothing answers at "+w.Endpoint+" while the tenant sleeps"
	case w.ReadyReplicas == 0:
		c.Reason, c.Message = reason.NoReadyPods, "no pod is ready behind "+w.Endpoint
	case reach.Reason == "":
		c.Status, c.Reason, c.Message = metav1.ConditionUnknown, reason.Pending, w.Endpoint+" was not looked at yet"
	case reach.Reason == reason.Reached:
		c.Status, c.Reason, c.Message = metav1.ConditionTrue, reason.Reached, w.Endpoint+" answers with a certificate of the tenant's authority"
	default:
		c.Reason, c.Message = reach.Reason, fmt.Sprintf("%s, as seen from Stoker: %s", w.Endpoint, reach.Cause)
		if e, known := reason.FindCondition(reach.Reason); known {
			c.Message += ". " + strings.NewReplacer("{name}", t.Name, "{namespace}", t.Namespace).Replace(e.Do)
		}
	}
	return c
}

// tunnel is true when an agent inside the tenant is connected, so that the API server reaches nodes, pods and Services. It is apart from
// Ready: agents need nodes, and nodes join a control plane that is ready.
func tunnel(t *state.Tenant, in States) metav1.Condition {
	c := metav1.Condition{Type: ConditionTunnel, Status: metav1.ConditionFalse}
	agents, w := in.Addons.Data.Agents, in.Workload.Data
	const without = "logs, exec, port-forward, webhooks and aggregated APIs inside the tenant don't work"
	switch {
	case w.ReadyReplicas == 0 && t.Sleeps():
		c.Reason, c.Message = reason.Sleeping, "agents have nothing to connect to while the tenant sleeps"
	case !w.Konnectivity || in.Addons.Data.Konnectivity == "":
		c.Reason, c.Message = reason.Pending, "the tunnel is being set up; until then, "+without
	case agents.Wanted == 0:
		c.Reason, c.Message = reason.NoAgents, "no node runs an agent yet; until one does, "+without
	case agents.Connected == 0:
		c.Reason = reason.AgentsNotConnected
		c.Message = fmt.Sprintf("none of %d agents is connected to %s; until one is, %s", agents.Wanted, w.KonnectivityEndpoint, without)
	default:
		c.Status, c.Reason = metav1.ConditionTrue, reason.AgentsConnected
		c.Message = fmt.Sprintf("%d of %d agents are connected to %s", agents.Connected, agents.Wanted, w.KonnectivityEndpoint)
	}
	return c
}

// withTimes fills in what all conditions have: the generation, and the time of the last transition, which is that of the previous
// condition of the type if the status is the same. Messages and reasons become what the API takes.
func withTimes(conditions, previous []metav1.Condition, generation int64, now time.Time) []metav1.Condition {
	for i := range conditions {
		c := &conditions[i]
		c.ObservedGeneration, c.LastTransitionTime = generation, at(now)
		if before := meta.FindStatusCondition(previous, c.Type); before != nil && before.Status == c.Status {
			c.LastTransitionTime = at(before.LastTransitionTime.Time)
		}
		c.Message, c.Reason = state.ClipMessage(c.Message), validReason(c.Reason)
	}
	return conditions
}

// validReason keeps what the API takes for a reason.
func validReason(s string) string {
	s = strings.Map(func(r rune) rune {
		if r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' {
			return r
		}
		return -1
	}, s)
	s = strings.TrimLeft(s, "0123456789")
	return cmp.Or(s, reason.Unknown)
}
