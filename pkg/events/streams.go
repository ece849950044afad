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

// FactsKept is how long facts, and timers, are kept.
const FactsKept = 30 * 24 * time.Hour

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
			MaxAge:      FactsKept, Storage: jetstream.FileStorage, Replicas: replicas,
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

// Provision creates the streams, the consumers and the buckets that are no tenant's, or brings their configuration back to
// what it should be. It is idempotent and may run in several replicas at once.
func Provision(ctx context.Context, js jetstream.JetStream, replicas int) error {
	replicas = max(replicas, 1)
	for _, cfg := range streams(replicas) {
		s, err := js.CreateOrUpdateStream(ctx, cfg)
		if err != nil {
			return Classify(fmt.Errorf("stream %s: %w", cfg.Name, err))
		}
		existing := map[string]jetstream.ConsumerConfig{}
		list := s.ListConsumers(ctx)
		for c := range list.Info() {
			existing[c.Name] = c.Config
		}
		if err := list.Err(); err != nil {
			return Classify(fmt.Errorf("consumers of %s: %w", cfg.Name, err))
		}
		g, gctx := errgroup.WithContext(ctx)
		g.SetLimit(16)
		for _, c := range consumers()[cfg.Name] {
			if have, ok := existing[c.Durable]; ok && sameConsumer(have, c) {
				continue
			}
			g.Go(func() error {
				if _, err := s.CreateOrUpdateConsumer(gctx, c); err != nil {
					return Classify(fmt.Errorf("consumer %s of %s: %w", c.Durable, cfg.Name, err))
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

// buckets are the configurations of the buckets that are no tenant's, but for that of leases.
func buckets(replicas int) []jetstream.KeyValueConfig {
	return []jetstream.KeyValueConfig{
		{
			Bucket: BucketCommands, Description: "what was answered to each command that was carried out", History: 1, TTL: answersKept,
			Storage: jetstream.FileStorage, Replicas: replicas,
		},
	}
}

// leases is the stream of the bucket of leases. Its messages matter for seconds, and there are some at all times, so none waits for
// a disk: with several servers it is in their memory, and the quorum confirms each message; with one it is on disk, written
// a moment later, so that it outlives a restart.
func leases(replicas int) jetstream.StreamConfig {
	cfg := jetstream.StreamConfig{
		Name: "KV_" + BucketLeases, Description: "which replica of each service holds which partitions",
		Subjects: []string{"$KV." + BucketLeases + ".>"}, MaxMsgsPerSubject: 1, Discard: jetstream.DiscardNew,
		Duplicates: 2 * time.Minute, AllowRollup: true, DenyDelete: true, AllowMsgTTL: true,
		Storage: jetstream.MemoryStorage, Replicas: replicas,
	}
	if replicas == 1 {
		cfg.Storage, cfg.PersistMode = jetstream.FileStorage, jetstream.AsyncPersistMode
	}
	return cfg
}

func provisionBuckets(ctx context.Context, js jetstream.JetStream, replicas int) error {
	for _, cfg := range buckets(replicas) {
		if _, err := js.CreateOrUpdateKeyValue(ctx, cfg); err != nil {
			return Classify(fmt.Errorf("bucket %s: %w", cfg.Bucket, err))
		}
	}
	if err := provisionLeases(ctx, js, leases(replicas)); err != nil {
		return Classify(fmt.Errorf("bucket %s: %w", BucketLeases, err))
	}
	return Classify(removeFormerLeases(ctx, js))
}

// provisionLeases makes the bucket of leases. One that is stored otherwise, as from before the number of servers changed, is replaced:
// replicas write into the new one what they hold.
func provisionLeases(ctx context.Context, js jetstream.JetStream, cfg jetstream.StreamConfig) error {
	_, err := js.CreateOrUpdateStream(ctx, cfg)
	if err == nil {
		return nil
	}
	s, infoErr := js.Stream(ctx, cfg.Name)
	if infoErr != nil || s.CachedInfo().Config.Storage == cfg.Storage && s.CachedInfo().Config.PersistMode == cfg.PersistMode {
		return err
	}
	if err := js.DeleteStream(ctx, cfg.Name); err != nil && !errors.Is(err, jetstream.ErrStreamNotFound) {
		return err
	}
	_, err = js.CreateStream(ctx, cfg)
	return err
}

// removeFormerLeases removes the bucket in which replicas of versions before the bucket of leases told that they live.
func removeFormerLeases(ctx context.Context, js jetstream.JetStream) error {
	err := js.DeleteStream(ctx, "KV_stoker_replicas")
	if errors.Is(err, jetstream.ErrStreamNotFound) {
		return nil
	}
	return err
}
