package events

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	"golang.org/x/sync/errgroup"

	"github.com/stoker-k8s/stoker/pkg/api/name"
)

// Times that bound how long work can be stuck with a replica that died.
const (
	// ackWait is how long the server waits for an acknowledgement or a sign of life before it delivers again.
	ackWait = 3 * time.Second
	// pinnedTTL is how long a partition stays pinned to a replica that stopped asking.
	pinnedTTL = 5 * time.Second
	// maxAckPending bounds the facts of one partition in work at a service.
	maxAckPending = 1000
	// priorityGroup is the one group of every consumer.
	priorityGroup = "replicas"
	// historyOfState is how many revisions of each state a bucket keeps.
	historyOfState = 16
)

// wakes lists the facts each service listens to: the middle column of the design's table.
var wakes = map[string][]string{
	"datastore": {"intake.accepted", "intake.deleting", "workload.removed", "workload.available", "workload.slept", "datastore.due"},
	"certs":     {"intake.accepted", "intake.deleting", "workload.exposed", "datastore.removed", "certs.due", "certs.generated"},
	"workload":  {"intake.accepted", "intake.deleting", "intake.released", "certs.issued", "certs.rotated", "datastore.provisioned", "addons.removed"},
	"addons":    {"intake.accepted", "intake.deleting", "intake.released", "workload.available", "certs.rotated"},
	"intake":    {"certs.removed", "datastore.withdrawn", "intake.due"},
	// Every fact but status' own, which would wake it to find nothing new.
	"status": {"intake.*", "certs.*", "datastore.*", "workload.*", "addons.*"},
}

// streams are the configurations of the four streams; replicas is the number of servers that hold each.
func streams(replicas int) []jetstream.StreamConfig {
	return []jetstream.StreamConfig{
		{
			Name:        StreamIntake,
			Description: "commands from portals",
			Subjects:    []string{"stoker.intake.*.*.*"},
			SubjectTransform: &jetstream.SubjectTransformConfig{
				Source:      "stoker.intake.*.*.*",
				Destination: fmt.Sprintf("stoker.intake.{{partition(%d,2,3)}}.{{wildcard(1)}}.{{wildcard(2)}}.{{wildcard(3)}}", name.Partitions),
			},
			MaxAge: 7 * 24 * time.Hour, Storage: jetstream.FileStorage, Replicas: replicas,
			Duplicates: 2 * time.Minute, AllowDirect: true,
		},
		{
			Name:        StreamFacts,
			Description: "what happened, and timers",
			Subjects:    []string{"stoker.fact.*.*.*.*.*", "stoker.timer.>"},
			MaxAge:      30 * 24 * time.Hour, Storage: jetstream.FileStorage, Replicas: replicas,
			Duplicates: 2 * time.Minute, AllowDirect: true, AllowMsgSchedules: true, AllowMsgTTL: true,
		},
		{
			Name:        StreamStatus,
			Description: "the latest status of each tenant, for portals",
			Subjects:    []string{"stoker.status.*.*"},
			Storage:     jetstream.FileStorage, Replicas: replicas, MaxMsgsPerSubject: 1,
			Duplicates: 2 * time.Minute, AllowDirect: true, AllowMsgTTL: true,
		},
		{
			Name:        StreamDead,
			Description: "events no retry can help, with their cause",
			Subjects:    []string{"stoker.dead.*.*.*.*"},
			MaxAge:      30 * 24 * time.Hour, Storage: jetstream.FileStorage, Replicas: replicas,
			Duplicates: 2 * time.Minute, AllowDirect: true,
		},
	}
}

// consumers are the durables of all services on the streams that services consume.
func consumers() map[string][]jetstream.ConsumerConfig {
	all := map[string][]jetstream.ConsumerConfig{}
	add := func(stream, durable string, pending int, filters ...string) {
		all[stream] = append(all[stream], jetstream.ConsumerConfig{
			Durable: durable, AckPolicy: jetstream.AckExplicitPolicy, AckWait: ackWait,
			// A step that fails is retried by the replica that holds it; the server delivers again only when a
			// replica died, and the runner gives an event up that outlived too many.
			MaxDeliver: -1, MaxAckPending: pending, FilterSubjects: filters,
			PriorityPolicy: jetstream.PriorityPolicyPinned, PriorityGroups: []string{priorityGroup}, PinnedTTL: pinnedTTL,
		})
	}
	for p := range name.Partitions {
		// One command of a partition at a time: their order is what the portal means, also after a crash.
		add(StreamIntake, consumer("intake", p), 1, fmt.Sprintf("stoker.intake.%d.*.*.*", p))
		for service, facts := range wakes {
			var filters []string
			for _, f := range facts {
				filters = append(filters, fmt.Sprintf("stoker.fact.%d.*.*.%s", p, f))
			}
			add(StreamFacts, consumer(service, p), maxAckPending, filters...)
		}
	}
	return all
}

// Provision creates the streams, the consumers and the buckets that are no tenant's, or brings their configuration back to
// what it should be. It is idempotent and may run in several replicas at once.
func Provision(ctx context.Context, js jetstream.JetStream, replicas int) error {
	replicas = max(replicas, 1)
	for _, cfg := range streams(replicas) {
		s, err := js.CreateOrUpdateStream(ctx, cfg)
		if err != nil {
			return classify(fmt.Errorf("stream %s: %w", cfg.Name, err))
		}
		existing := map[string]jetstream.ConsumerConfig{}
		list := s.ListConsumers(ctx)
		for c := range list.Info() {
			existing[c.Name] = c.Config
		}
		if err := list.Err(); err != nil {
			return classify(fmt.Errorf("consumers of %s: %w", cfg.Name, err))
		}
		g, gctx := errgroup.WithContext(ctx)
		g.SetLimit(16)
		for _, c := range consumers()[cfg.Name] {
			if have, ok := existing[c.Durable]; ok && sameConsumer(have, c) {
				continue
			}
			g.Go(func() error {
				if _, err := s.CreateOrUpdateConsumer(gctx, c); err != nil {
					return classify(fmt.Errorf("consumer %s of %s: %w", c.Durable, cfg.Name, err))
				}
				return nil
			})
		}
		if err := g.Wait(); err != nil {
			return err
		}
	}
	return provisionBuckets(ctx, js, replicas)
}

// buckets are the configurations of the buckets that are no tenant's. All are on disk: one in memory is gone with a restart
// of the server, also where it matters for seconds only.
func buckets(replicas int) []jetstream.KeyValueConfig {
	return []jetstream.KeyValueConfig{
		{
			Bucket: BucketReplica, Description: "which replicas of each service live", History: 1, TTL: time.Minute,
			Storage: jetstream.FileStorage, Replicas: replicas,
		},
		{
			Bucket: BucketCommands, Description: "what was answered to each command that was carried out", History: 1, TTL: answersKept,
			Storage: jetstream.FileStorage, Replicas: replicas,
		},
	}
}

func provisionBuckets(ctx context.Context, js jetstream.JetStream, replicas int) error {
	for _, cfg := range buckets(max(replicas, 1)) {
		if _, err := js.CreateOrUpdateKeyValue(ctx, cfg); err != nil {
			return classify(fmt.Errorf("bucket %s: %w", cfg.Bucket, err))
		}
	}
	return nil
}

func sameConsumer(have, want jetstream.ConsumerConfig) bool {
	if have.AckWait != want.AckWait || have.MaxAckPending != want.MaxAckPending || have.MaxDeliver != want.MaxDeliver ||
		have.PinnedTTL != want.PinnedTTL || have.PriorityPolicy != want.PriorityPolicy || have.AckPolicy != want.AckPolicy {
		return false
	}
	filters := have.FilterSubjects
	if have.FilterSubject != "" {
		filters = []string{have.FilterSubject}
	}
	if len(filters) != len(want.FilterSubjects) {
		return false
	}
	for i := range filters {
		if filters[i] != want.FilterSubjects[i] {
			return false
		}
	}
	return true
}

// createBucket makes a tenant's bucket; it exists already when a repeat comes by.
func createBucket(ctx context.Context, js jetstream.JetStream, key Key, replicas int) error {
	ask, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	// What CreateKeyValue makes, without its question about the account before.
	_, err := js.CreateStream(ask, jetstream.StreamConfig{
		Name: "KV_" + key.Bucket(), Description: "state of tenant " + key.String(), Subjects: []string{"$KV." + key.Bucket() + ".>"},
		MaxMsgsPerSubject: historyOfState, Discard: jetstream.DiscardNew, Duplicates: 2 * time.Minute,
		Storage: jetstream.FileStorage, Replicas: max(replicas, 1), AllowDirect: true, AllowRollup: true, DenyDelete: true,
		MaxMsgs: -1, MaxBytes: -1, MaxMsgSize: -1, MaxConsumers: -1,
	})
	if err != nil && !errors.Is(err, jetstream.ErrStreamNameAlreadyInUse) {
		return late(ctx, err)
	}
	return nil
}

// deleteBucket removes a tenant's bucket and everything in it.
func deleteBucket(ctx context.Context, js jetstream.JetStream, key Key) error {
	ask, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	err := js.DeleteKeyValue(ask, key.Bucket())
	if err != nil && !errors.Is(err, jetstream.ErrBucketNotFound) && !errors.Is(err, jetstream.ErrStreamNotFound) {
		return late(ctx, err)
	}
	return nil
}
