package status

// The conditions of a tenant in the manner of kstatus: Ready sums up; Reconciling, Stalled and Paused are there only while
// they are true; one condition per service says where its share stands.

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/stoker-k8s/stoker/pkg/api/event"
	"github.com/stoker-k8s/stoker/pkg/api/name"
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
)

// Reasons beside those of failures, which their service gives.
const (
	ReasonReady       = "Ready"
	ReasonWaiting     = "Waiting"
	ReasonInProgress  = "InProgress"
	ReasonRollingOut  = "RollingOut"
	ReasonNoReadyPods = "NoReadyPods"
	ReasonSleeping    = "Sleeping"
	ReasonRemoved     = "Removed"
	ReasonPending     = "Pending"
)

// maxMessage is the longest message in bytes.
const maxMessage = 1024

// share is where one service stands with the current generation.
type share struct {
	service string
	// done: its step for this generation is done; begun: it has come to this tenant at all.
	done, begun, removed bool
	wait                 state.Wait
	failure              *state.Failure
	reason, message      string
}

// standing is where all of them stand.
type standing struct {
	certs, datastore, workload, addons share
	ready, asleep                      bool
	stalled, retrying                  *share
}

func (p *standing) shares() []*share { return []*share{&p.certs, &p.datastore, &p.workload, &p.addons} }

func progress(t *state.Tenant, in States) standing {
	p := standing{
		certs:     shareOf(name.ServiceCerts, in.Certs.State, in),
		datastore: shareOf(name.ServiceDatastore, in.Datastore.State, in),
		workload:  shareOf(name.ServiceWorkload, in.Workload.State, in),
		addons:    shareOf(name.ServiceAddons, in.Addons.State, in),
	}
	w, s := in.Workload.Data, in.Workload.State
	p.asleep = sleepAsked(t) && p.certs.done && p.datastore.done && s != nil && s.Generation == in.Generation && s.Step == event.Slept &&
		w.ReadyReplicas == 0
	if p.workload.done && w.ReadyReplicas == 0 {
		p.workload.done, p.workload.reason, p.workload.message = false, ReasonNoReadyPods, "has no ready pod"
	}
	for _, x := range p.shares() {
		switch {
		case x.failure == nil:
		case x.failure.Permanent && p.stalled == nil:
			p.stalled = x
		case !x.failure.Permanent && p.retrying == nil:
			p.retrying = x
		}
	}
	// Once the generation was Ready, it stays so as long as a pod answers: one of several may be lost or replaced, as by a
	// rotation of certificates.
	serving := p.workload.done || in.Previous.ReadyGeneration == in.Generation && s != nil && s.Generation == in.Generation &&
		!p.workload.removed && w.ReadyReplicas > 0
	p.ready = p.certs.done && p.datastore.done && serving && p.addons.done && w.Endpoint != "" && p.stalled == nil &&
		!t.Deleting && !sleepAsked(t)
	return p
}

// shareOf judges one service's state.
func shareOf(service string, s *state.State, in States) share {
	x := share{service: service}
	if s == nil {
		x.reason, x.message = ReasonWaiting, service+" has not begun"
		return x
	}
	x.begun, x.removed = true, s.Step == event.Removed
	current := s.Generation == in.Generation
	stepDone := slices.Contains(doneSteps[service], s.Step)
	if current {
		x.wait, x.failure = s.Wait, s.Failure
	}
	// A service that once finished this generation and now retries has not undone it: the workload's own state says when
	// the tenant's API is away.
	finished := in.Previous.ReadyGeneration == in.Generation && (s.Failure == nil || !s.Failure.Permanent)
	x.done = current && stepDone && (!s.Wait.Waits() && s.Failure == nil || finished)
	switch {
	case x.removed:
		x.reason, x.message = ReasonRemoved, "removed"
	case x.failure != nil:
		x.reason, x.message = cmp.Or(x.failure.Reason, "Failed"), x.failure.Message
	case current && s.Step == event.Degraded:
		x.reason, x.message = ReasonNoReadyPods, "has no ready pod"
		if x.wait.Waits() {
			x.message += ", waits for " + x.wait.Text
		}
	case x.wait.Waits():
		x.reason, x.message = ReasonWaiting, "waits for "+x.wait.Text
	case !current:
		x.reason, x.message = ReasonPending, fmt.Sprintf("is at generation %d", s.Generation)
	case !stepDone:
		x.reason, x.message = ReasonInProgress, "is at work"
		if s.Step != "" {
			x.message = "is at work, last step: " + s.Step
		}
	default:
		x.reason, x.message = title(s.Step), ""
	}
	return x
}

// title makes a step's name a reason.
func title(step string) string {
	if step == "" {
		return ReasonInProgress
	}
	return strings.ToUpper(step[:1]) + step[1:]
}

// conditions returns those that hold, and the summary.
func conditions(t *state.Tenant, in States, p standing, next state.Status) (all []metav1.Condition, ready metav1.Condition) {
	ready = summary(t, p, next)
	all = append(all, ready)
	truth := func(typ, reason, message string) {
		all = append(all, metav1.Condition{Type: typ, Status: metav1.ConditionTrue, Reason: reason, Message: message})
	}
	switch {
	case p.stalled != nil:
		truth(ConditionStalled, p.stalled.reason, p.stalled.service+": "+p.stalled.message)
	case p.retrying != nil:
		truth(ConditionReconciling, p.retrying.reason, p.retrying.service+": "+p.retrying.message)
	case p.ready && !p.workload.done:
		truth(ConditionReconciling, "WorkloadRollingOut", p.workload.service+" "+p.workload.message)
	case !p.ready && !p.asleep:
		truth(ConditionReconciling, ready.Reason, ready.Message)
	}
	all = append(all,
		certificates(in, p), datastore(in, p), workload(t, in, p), addons(in, p), endpoint(t, in, p))
	return all, ready
}

// summary is the Ready condition.
func summary(t *state.Tenant, p standing, next state.Status) metav1.Condition {
	c := metav1.Condition{Type: ConditionReady, Status: metav1.ConditionFalse}
	first := p.first()
	switch {
	case p.ready:
		c.Status, c.Reason = metav1.ConditionTrue, ReasonReady
		c.Message = fmt.Sprintf("Kubernetes %s answers at %s", next.Version, next.Endpoint)
	case p.stalled != nil:
		c.Reason, c.Message = p.stalled.reason, p.stalled.service+": "+p.stalled.message
	case t.Deleting:
		c.Reason, c.Message = PhaseDeleting, p.removing()
	case p.asleep:
		c.Reason, c.Message = ReasonSleeping, "no pods are asked for and none runs"
	case sleepAsked(t):
		c.Reason, c.Message = ReasonSleeping, "no pods are asked for, going to sleep"
	case first == nil:
		c.Reason, c.Message = "EndpointPending", "the endpoint is not known yet"
	default:
		c.Reason, c.Message = reasons[first.service]+first.reason, first.service+" "+first.message
		if first.failure != nil {
			c.Reason, c.Message = first.reason, first.service+": "+first.message
		}
		if !first.begun {
			c.Message = first.message
		}
	}
	return c
}

// reasons start the reason of a tenant that is not Ready because of one service.
var reasons = map[string]string{
	name.ServiceCerts: "Certificates", name.ServiceDatastore: "Datastore", name.ServiceWorkload: "Workload", name.ServiceAddons: "Addons",
}

// first is the share that is most worth telling: a failure, then who is at work, then who waits, then who has not begun.
func (p *standing) first() *share {
	rank := func(x *share) int {
		switch {
		case x.failure != nil:
			return 0
		case x.begun && !x.wait.Waits():
			return 1
		case x.wait.Waits():
			return 2
		}
		return 3
	}
	var best *share
	for _, x := range p.shares() {
		if !x.done && (best == nil || rank(x) < rank(best)) {
			best = x
		}
	}
	return best
}

// removing says whose turn it is in a deletion.
func (p *standing) removing() string {
	for _, x := range []*share{&p.addons, &p.workload, &p.datastore, &p.certs} {
		switch {
		case x.removed || !x.begun && x != &p.certs:
			continue
		case x.failure != nil:
			return x.service + ": " + x.failure.Message
		}
		return x.service + " removes what it made"
	}
	return "the last of it is being removed"
}

// of makes a condition of a share.
func (x share) of(typ string) metav1.Condition {
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
	c := p.certs.of(ConditionCertificates)
	if p.certs.done && c.Message == "" {
		c.Message = "all keys, certificates and kubeconfigs exist"
		if at := in.Certs.Data.RenewAt; !at.IsZero() {
			c.Message += "; the first is renewed at " + at.UTC().Format(time.RFC3339)
		}
	}
	return c
}

func datastore(in States, p standing) metav1.Condition {
	c := p.datastore.of(ConditionDatastore)
	if p.datastore.done && c.Message == "" {
		c.Message = fmt.Sprintf("schema %s of DataStore %s (%s)", in.Datastore.Data.Schema, in.Datastore.Data.DataStore, in.Datastore.Data.Driver)
	}
	return c
}

// workload is true as long as pods answer, also while others roll out.
func workload(t *state.Tenant, in States, p standing) metav1.Condition {
	c := p.workload.of(ConditionWorkload)
	w := in.Workload.Data
	switch {
	case p.workload.removed:
	case sleepAsked(t) && w.ReadyReplicas == 0 && p.workload.failure == nil:
		c.Status, c.Reason, c.Message = metav1.ConditionFalse, ReasonSleeping, "no pods are asked for"
	case w.ReadyReplicas > 0 && !p.workload.done:
		c.Status = metav1.ConditionTrue
		if p.workload.failure == nil {
			c.Reason = ReasonRollingOut
		}
		c.Message = fmt.Sprintf("%d pods are ready; %s %s", w.ReadyReplicas, name.ServiceWorkload, p.workload.message)
	case w.ReadyReplicas > 0 && c.Message == "":
		c.Message = fmt.Sprintf("%d of %d pods are ready", w.ReadyReplicas, w.Replicas)
	}
	return c
}

func addons(in States, p standing) metav1.Condition {
	c := p.addons.of(ConditionAddons)
	if p.addons.done && c.Message == "" {
		c.Message = fmt.Sprintf("%d objects inside the tenant are as they must be", in.Addons.Data.Objects)
	}
	return c
}

// endpoint is true when add-ons were applied through the published endpoint, with the published CA, and pods are ready.
func endpoint(t *state.Tenant, in States, p standing) metav1.Condition {
	c := metav1.Condition{Type: ConditionEndpoint, Status: metav1.ConditionFalse}
	w := in.Workload.Data
	switch {
	case p.workload.removed:
		c.Reason, c.Message = ReasonRemoved, "removed"
	case w.Endpoint == "":
		c.Reason, c.Message = ReasonPending, "the endpoint is not known yet"
	case w.ReadyReplicas == 0 && sleepAsked(t):
		c.Reason, c.Message = ReasonSleeping, "nothing answers at "+w.Endpoint+" while the tenant sleeps"
	case w.ReadyReplicas == 0:
		c.Reason, c.Message = ReasonNoReadyPods, "no pod is ready behind "+w.Endpoint
	case in.Addons.Data.Hash == "":
		c.Status, c.Reason, c.Message = metav1.ConditionUnknown, ReasonPending, w.Endpoint+" was not reached yet"
	default:
		c.Status, c.Reason, c.Message = metav1.ConditionTrue, "Reached", w.Endpoint+" answers with a certificate of the tenant's authority"
	}
	return c
}

// settle completes conditions: generation, the time of the last transition, kept from the previous ones, message length.
func settle(conditions, previous []metav1.Condition, generation int64, now time.Time) []metav1.Condition {
	for i := range conditions {
		c := &conditions[i]
		c.ObservedGeneration, c.LastTransitionTime = generation, at(now)
		if before := meta.FindStatusCondition(previous, c.Type); before != nil && before.Status == c.Status {
			c.LastTransitionTime = at(before.LastTransitionTime.Time)
		}
		c.Message, c.Reason = clip(c.Message), validReason(c.Reason)
	}
	return conditions
}

// clip shortens a message at a whole character.
func clip(s string) string {
	s = strings.ToValidUTF8(s, "�")
	if len(s) <= maxMessage {
		return s
	}
	const more = "…"
	return strings.ToValidUTF8(s[:maxMessage-len(more)], "") + more
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
	return cmp.Or(s, "Unknown")
}
