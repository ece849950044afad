package events

import (
	"fmt"
	"slices"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/stoker-k8s/stoker/pkg/api/name"
)

const (
	// AckWait is how long the server waits for an acknowledgement or a sign of life before it delivers an event again: less than it
	// takes to notice that a replica died.
	AckWait = 3 * time.Second
	// PullExpiry is how long a request for events waits at the server, and a quarter more at most; at rest, requests are all that a consumer
	// costs. Between accounts a server forgets who asked after two minutes without an answer.
	PullExpiry = time.Minute
	// PinnedTTL is how long a partition stays pinned to a replica that stopped asking: longer than a request. Nobody waits for it: who
	// holds a partition by the lease lifts the pin of the one before.
	PinnedTTL = 90 * time.Second
	// maxAckPending bounds the facts of one partition in work at a service.
	maxAckPending = 1000
	// PriorityGroup is the one group of every consumer.
	PriorityGroup = "replicas"
)

// redeliveries are the times after which the server delivers an event again that was neither acknowledged nor told to be in work:
// an event may wait long for its turn, and each delivery is one more entry in the servers' log.
func redeliveries() []time.Duration {
	return []time.Duration{AckWait, 2 * AckWait, 5 * AckWait, 10 * AckWait}
}

// Consumer is the name of a service's durable consumer for one partition, on each stream it consumes.
func Consumer(service string, partition int) string { return fmt.Sprintf("%s-%d", service, partition) }

// consumers are the durables of all services on the streams that services consume.
func consumers() map[string][]jetstream.ConsumerConfig {
	all := map[string][]jetstream.ConsumerConfig{}
	add := func(stream, durable string, pending int, filters ...string) {
		all[stream] = append(all[stream], jetstream.ConsumerConfig{
			Durable: durable, AckPolicy: jetstream.AckExplicitPolicy, AckWait: AckWait, BackOff: redeliveries(),
			// A step that fails is retried by the replica that holds it; the server delivers again only when a
			// replica died, and the loop gives an event up that outlived too many.
			MaxDeliver: -1, MaxAckPending: pending, FilterSubjects: filters,
			PriorityPolicy: jetstream.PriorityPolicyPinned, PriorityGroups: []string{PriorityGroup}, PinnedTTL: PinnedTTL,
		})
	}
	for p := range name.Partitions {
		// One command of a partition at a time: their order is what the portal means, also after a crash.
		add(StreamIntake, Consumer(name.ServiceIntake, p), 1, fmt.Sprintf("stoker.intake.%d.*.*.*", p))
		for service, facts := range wakes {
			var filters []string
			for _, f := range facts {
				filters = append(filters, fmt.Sprintf("stoker.fact.%d.*.*.%s", p, f))
			}
			filters = append(filters, fmt.Sprintf("stoker.replay.%s.%d.*.*", service, p))
			add(StreamFacts, Consumer(service, p), maxAckPending, filters...)
		}
	}
	return all
}

func sameConsumer(have, want jetstream.ConsumerConfig) bool {
	if have.AckWait != want.AckWait || have.MaxAckPending != want.MaxAckPending || have.MaxDeliver != want.MaxDeliver ||
		have.PinnedTTL != want.PinnedTTL || have.PriorityPolicy != want.PriorityPolicy || have.AckPolicy != want.AckPolicy ||
		!slices.Equal(have.BackOff, want.BackOff) {
		return false
	}
	filters := have.FilterSubjects
	if have.FilterSubject != "" {
		filters = []string{have.FilterSubject}
	}
	return slices.Equal(slices.Sorted(slices.Values(filters)), slices.Sorted(slices.Values(want.FilterSubjects)))
}
