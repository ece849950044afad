package events

// What each replica says of itself, to intake, which asks all replicas of a service at once.

import (
	"context"
	"encoding/json"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/stoker-k8s/stoker/pkg/api/event"
)

const (
	// replicasWithin is how long replicas have to answer, and replicasQuiet how long after the last answer, all that were expected being
	// there, nobody else does.
	replicasWithin = 3 * time.Second
	replicasQuiet  = 300 * time.Millisecond
	// maxReplicas bounds the answers to one question.
	maxReplicas = 1024
)

// AnswerAsReplica says of this replica what self returns, whenever somebody asks, until stop is called.
func (b *Bus) AnswerAsReplica(self func() event.Replica) (stop func(), err error) {
	sub, err := b.nc.Subscribe(ReplicaSubject(b.cfg.User), func(m *nats.Msg) {
		if err := m.Respond(event.Marshal(self())); err != nil {
			b.log.Debug("could not say what this replica holds", "error", err)
		}
	})
	if err != nil {
		return nil, err
	}
	return func() { _ = sub.Unsubscribe() }, nil
}

// AskReplicas asks all replicas of services what they say of themselves. It waits for those that are expected, given by service and
// name, and a moment for others; who doesn't answer in seconds is not among the replies.
func (b *Bus) AskReplicas(ctx context.Context, services []string, expected [][2]string) ([]event.Replica, error) {
	answers := make(chan *nats.Msg, maxReplicas)
	inbox := b.nc.NewInbox()
	sub, err := b.nc.ChanSubscribe(inbox, answers)
	if err != nil {
		return nil, Classify(err)
	}
	defer func() { _ = sub.Unsubscribe() }()
	for _, service := range services {
		if err := b.nc.PublishRequest(ReplicaSubject(service), inbox, nil); err != nil {
			return nil, Classify(err)
		}
	}
	missing := map[[2]string]bool{}
	for _, e := range expected {
		missing[e] = true
	}
	var replicas []event.Replica
	end, quiet := time.NewTimer(replicasWithin), time.NewTimer(replicasQuiet)
	defer end.Stop()
	defer quiet.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-end.C:
			return replicas, nil
		case <-quiet.C:
			if len(missing) == 0 {
				return replicas, nil
			}
		case m := <-answers:
			var r event.Replica
			if json.Unmarshal(m.Data, &r) == nil && r.Service != "" { // else it says that nobody answers for a service
				replicas = append(replicas, r)
				delete(missing, [2]string{r.Service, r.Replica})
			}
			quiet.Reset(replicasQuiet)
		}
	}
}
