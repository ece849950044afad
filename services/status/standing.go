package status

// Where a tenant stands: how far each service has come with the current generation, and what follows from that for the tenant.

import (
	"cmp"
	"fmt"

	"github.com/stoker-k8s/stoker/pkg/api/event"
	"github.com/stoker-k8s/stoker/pkg/api/name"
	"github.com/stoker-k8s/stoker/pkg/api/reason"
	"github.com/stoker-k8s/stoker/pkg/api/state"
)

// progress is how far one service has come with the current generation.
type progress struct {
	service string
	// done: it has done all of this generation; begun: it has come to this tenant at all; removed: a deletion has removed its part.
	done, begun, removed bool
	wait                 state.Wait
	failure              *state.Failure
	// reason and message of its condition.
	reason, message string
}

// standing is where a tenant stands.
type standing struct {
	certs, datastore, workload, addons progress
	ready, asleep                      bool
	// stalled and retrying are the first service with a failure that no retry helps, and with one that is retried.
	stalled, retrying *progress
}

// services lists the services in the order in which a tenant meets them.
func (p *standing) services() []*progress {
	return []*progress{&p.certs, &p.datastore, &p.workload, &p.addons}
}

// doneSteps are the steps at which a service has done all of a generation, with the reason of its condition.
var doneSteps = map[string]map[string]string{
	name.ServiceCerts:     {event.Issued: reason.Issued, event.Rotated: reason.Rotated},
	name.ServiceDatastore: {event.Provisioned: reason.Provisioned},
	name.ServiceWorkload:  {event.Available: reason.Available, event.Upgraded: reason.Upgraded},
	name.ServiceAddons:    {event.Applied: reason.Applied, event.Repaired: reason.Repaired},
}

// standingOf computes where a tenant stands.
func standingOf(t *state.Tenant, in States) standing {
	p := standing{
		certs:     progressOf(name.ServiceCerts, in.Certs.State, in),
		datastore: progressOf(name.ServiceDatastore, in.Datastore.State, in),
		workload:  progressOf(name.ServiceWorkload, in.Workload.State, in),
		addons:    progressOf(name.ServiceAddons, in.Addons.State, in),
	}
	w, s := in.Workload.Data, in.Workload.State
	p.asleep = t.Sleeps() && p.certs.done && p.datastore.done && s != nil && s.Generation == in.Generation && s.Step == event.Slept &&
		w.ReadyReplicas == 0
	if p.workload.done && w.ReadyReplicas == 0 {
		p.workload.done, p.workload.reason, p.workload.message = false, reason.NoReadyPods, "has no ready pod"
	}
	for _, x := range p.services() {
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
		!t.Deleting && !t.Sleeps()
	return p
}

// progressOf computes how far a service has come from its state.
func progressOf(service string, s *state.State, in States) progress {
	x := progress{service: service}
	if s == nil {
		x.reason, x.message = reason.Waiting, service+" has not begun"
		return x
	}
	x.begun, x.removed = true, s.Step == event.Removed
	current := s.Generation == in.Generation
	doneReason, stepDone := doneSteps[service][s.Step]
	if current {
		x.wait, x.failure = s.Wait, s.Failure
	}
	// A service that once finished this generation and now retries has not undone it: the workload's own state says when
	// the tenant's API is away.
	finished := in.Previous.ReadyGeneration == in.Generation && (s.Failure == nil || !s.Failure.Permanent)
	x.done = current && stepDone && (!s.Wait.Waits() && !s.Failed() || finished)
	switch {
	case x.removed:
		x.reason, x.message = reason.Removed, "removed"
	case x.failure != nil:
		x.reason, x.message = cmp.Or(x.failure.Reason, reason.Unknown), x.failure.Message
	case current && s.Step == event.Degraded:
		x.reason, x.message = reason.NoReadyPods, "has no ready pod"
		if x.wait.Waits() {
			x.message += ", waits for " + x.wait.Text
		}
	case x.wait.Waits():
		x.reason, x.message = reason.Waiting, "waits for "+x.wait.Text
	case !current:
		x.reason, x.message = reason.Pending, fmt.Sprintf("is at generation %d", s.Generation)
	case !stepDone:
		x.reason, x.message = reason.InProgress, "is at work"
		if s.Step != "" {
			x.message = "is at work, last step: " + s.Step
		}
	default:
		x.reason, x.message = doneReason, ""
	}
	return x
}

// first is the service that is most worth telling of: one that fails, then one at work, then one that waits for something else than the
// others, which is what they wait for in the end, then one that waits, then one that has not begun; nil when all are done.
func (p *standing) first() *progress {
	rank := func(x *progress) int {
		switch {
		case x.failure != nil:
			return 0
		case x.begun && !x.wait.Waits():
			return 1
		case x.wait.Waits() && (x.wait.On == x.service || p.of(x.wait.On) == nil):
			return 2
		case x.wait.Waits():
			return 3
		}
		return 4
	}
	var best *progress
	for _, x := range p.services() {
		if !x.done && (best == nil || rank(x) < rank(best)) {
			best = x
		}
	}
	return best
}

// removing says whose turn it is in a deletion, and what it waits for.
func (p *standing) removing() string {
	for _, service := range event.RemovalOrder() {
		x := p.of(service)
		switch {
		case x == nil || x.removed || !x.begun && x != &p.certs:
			continue
		case x.failure != nil:
			return x.service + ": " + x.failure.Message
		case x.wait.Waits() && x.wait.Reason != reason.EarlierRemoval:
			return x.service + " waits for " + x.wait.Text
		}
		return x.service + " removes what it made"
	}
	return "the last of it is being removed"
}

// of returns the progress of a service, nil for those that make nothing of a tenant's.
func (p *standing) of(service string) *progress {
	for _, x := range p.services() {
		if x.service == service {
			return x
		}
	}
	return nil
}
