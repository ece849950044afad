package loop

// What a replica says of itself when the operator asks (stoker.replicas.list), and what the claims say of all.

import (
	"context"
	"errors"
	"maps"
	"slices"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/stoker-k8s/stoker/pkg/api/event"
	"github.com/stoker-k8s/stoker/pkg/api/name"
	"github.com/stoker-k8s/stoker/pkg/events"
	"github.com/stoker-k8s/stoker/pkg/version"
)

// answerAsReplica answers until stop is called.
func (l *Loop) answerAsReplica() (stop func()) {
	stop, err := l.Bus.AnswerAsReplica(l.self)
	if err != nil {
		l.log.Error("this replica can't be asked what it holds", "error", err)
		return func() {}
	}
	return stop
}

// self is what this replica says of itself.
func (l *Loop) self() event.Replica {
	away := l.health.Away()
	r := event.Replica{
		Service: l.Service, Replica: l.lease.replica, Version: version.Get().Version, Ready: len(away) == 0, Away: away,
		Partitions: []event.Holding{},
	}
	s := l.lease
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.over() {
		return r
	}
	r.Heartbeat = s.deadline.wall.Add(-leaseTTL).UTC()
	for p := range name.Partitions {
		if s.owned[p] {
			r.Partitions = append(r.Partitions, event.Holding{Partition: p, Since: s.since[p].Round(0).UTC()})
		}
	}
	return r
}

// Claimed is what the replicas of a service have claimed: who holds each partition, empty for nobody, and which replicas there are or
// were a moment ago. Nothing is claimed where there is no bucket of leases.
func Claimed(ctx context.Context, bus *events.Bus, service string) (holders [name.Partitions]string, replicas []string, err error) {
	c, _, err := (&lease{bus: bus, service: service}).readClaims(ctx)
	if err != nil && !errors.Is(err, jetstream.ErrStreamNotFound) {
		return holders, nil, err
	}
	known := maps.Clone(c.Written)
	if known == nil {
		known = map[string]int{}
	}
	for _, h := range c.Holders {
		if h != "" {
			known[h] = 0
		}
	}
	return c.Holders, slices.Sorted(maps.Keys(known)), nil
}
