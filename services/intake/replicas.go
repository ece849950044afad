package intake

// Replicas and partitions for the operator: what the claims in the bucket of leases say, and what each replica says of itself.

import (
	"cmp"
	"context"
	"slices"
	"strings"

	"github.com/stoker-k8s/stoker/pkg/api/event"
	"github.com/stoker-k8s/stoker/pkg/api/name"
	"github.com/stoker-k8s/stoker/pkg/loop"
)

// claimed is who has claimed which partition of a service.
type claimed struct {
	service string
	holders [name.Partitions]string
}

// survey asks every replica of the services that a question names; silent ones that are known are among them.
func (s *svc) survey(ctx context.Context, question []byte) (replicas []event.Replica, claims []claimed, err error) {
	var q event.ReplicasQuery
	if err := decodeQuestion(question, &q, `{"service":"certs"} or {}`); err != nil {
		return nil, nil, err
	}
	services := name.Services()
	if q.Service != "" {
		if err := checkFilter(event.DeadFilter{Service: q.Service}); err != nil {
			return nil, nil, err
		}
		services = []string{q.Service}
	}
	var expected [][2]string
	for _, service := range services {
		holders, known, err := loop.Claimed(ctx, s.bus, service)
		if err != nil {
			return nil, nil, err
		}
		claims = append(claims, claimed{service, holders})
		for _, r := range known {
			expected = append(expected, [2]string{service, r})
		}
	}
	replicas, err = s.bus.AskReplicas(ctx, services, expected)
	return withSilent(replicas, claims, expected), claims, err
}

// withSilent adds the replicas that were expected and said nothing, with what they have claimed. Those that hold nothing are gone.
func withSilent(replicas []event.Replica, claims []claimed, expected [][2]string) []event.Replica {
	for _, e := range expected {
		if slices.ContainsFunc(replicas, func(r event.Replica) bool { return r.Service == e[0] && r.Replica == e[1] }) {
			continue
		}
		silent := event.Replica{Service: e[0], Replica: e[1], Silent: true}
		for _, c := range claims {
			for p, holder := range c.holders {
				if c.service == e[0] && holder == e[1] {
					silent.Partitions = append(silent.Partitions, event.Holding{Partition: p})
				}
			}
		}
		if len(silent.Partitions) > 0 {
			replicas = append(replicas, silent)
		}
	}
	slices.SortFunc(replicas, func(a, b event.Replica) int {
		services := name.Services()
		return cmp.Or(cmp.Compare(slices.Index(services, a.Service), slices.Index(services, b.Service)), strings.Compare(a.Replica, b.Replica))
	})
	return replicas
}

// answerReplicas lists the replicas.
func (s *svc) answerReplicas(ctx context.Context, question []byte) (any, error) {
	replicas, claims, err := s.survey(ctx, question)
	if err != nil {
		return nil, err
	}
	reply := event.ReplicasReply{Replicas: append([]event.Replica{}, replicas...)}
	for _, c := range claims {
		if !slices.ContainsFunc(replicas, func(r event.Replica) bool { return r.Service == c.service && !r.Silent }) {
			reply.Missing = append(reply.Missing, c.service)
		}
	}
	return reply, nil
}

// answerPartitions says who holds each partition.
func (s *svc) answerPartitions(ctx context.Context, question []byte) (any, error) {
	replicas, claims, err := s.survey(ctx, question)
	if err != nil {
		return nil, err
	}
	reply := event.PartitionsReply{Services: []event.ServicePartitions{}}
	for _, c := range claims {
		reply.Services = append(reply.Services, partitionsOf(c, replicas))
	}
	return reply, nil
}

// partitionsOf says who holds the partitions of a service.
func partitionsOf(c claimed, replicas []event.Replica) event.ServicePartitions {
	of := event.ServicePartitions{Service: c.service, Held: []event.HeldPartition{}}
	for p, holder := range c.holders {
		if holder == "" {
			of.Nobody = append(of.Nobody, p)
			continue
		}
		held := event.HeldPartition{Holding: event.Holding{Partition: p}, Replica: holder, Silent: true}
		for _, r := range replicas {
			if r.Service != c.service || r.Replica != holder {
				continue
			}
			held.Silent = r.Silent
			if i := slices.IndexFunc(r.Partitions, func(h event.Holding) bool { return h.Partition == p }); i >= 0 {
				held.Holding = r.Partitions[i]
			}
		}
		of.Held = append(of.Held, held)
	}
	return of
}
