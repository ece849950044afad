package events

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"golang.org/x/sync/errgroup"

	"github.com/stoker-k8s/stoker/pkg/api/name"
)

// FactsKept is how long facts, and timers, are kept.
const FactsKept = 30 * 24 * time.Hour

// Limits of what is stored, so that nobody's flood fills a disk. maxCommand is a command's size with headers, maxDead that of a dead
// letter, which is an event with the headers of its cause. maxState is the largest message of a NATS server by default.
const (
	maxCommand = 2 * MaxPayload
	maxFact    = 2 * MaxPayload
	maxDead    = 4 * MaxPayload
	maxState   = 1 << 20
	mebibyte   = 1 << 20
)

// waitingCommands bounds the commands about one object that wait to be carried out, keptFacts the facts of one kind about one object
// and the dead letters of one service about one object.
const (
	waitingCommands = 256
	keptFacts       = 256
)

// streams are the configurations of the streams and of the buckets that are no tenant's, but for that of leases; replicas is the number
// of servers that hold each. All are on disk, and each has limits, and says what goes when they are reached; docs/operations.md has the
// reasons.
func streams(replicas int) []jetstream.StreamConfig {
	all := []jetstream.StreamConfig{
		{
			Name:        StreamIntake,
			Description: "commands that wait to be carried out",
			Subjects:    []string{"stoker.intake.*.*.*"},
			SubjectTransform: &jetstream.SubjectTransformConfig{
				Source:      "stoker.intake.*.*.*",
				Destination: fmt.Sprintf("stoker.intake.{{partition(%d,2,3)}}.{{wildcard(1)}}.{{wildcard(2)}}.{{wildcard(3)}}", name.Partitions),
			},
			// What was carried out is gone: only what waits takes room.
			Retention: jetstream.InterestPolicy, MaxAge: 7 * 24 * time.Hour,
			// A command too many is refused to its sender's face, never dropped.
			Discard: jetstream.DiscardNew, DiscardNewPerSubject: true,
			MaxBytes: 64 * mebibyte, MaxMsgsPerSubject: waitingCommands, MaxMsgSize: maxCommand,
			// A command is known by its source and id. Were one dropped for a Nats-Msg-Id that was seen before, whoever guesses it could
			// have another's command dropped. This is the shortest there is.
			Duplicates: 100 * time.Millisecond,
		},
		{
			Name:        StreamFacts,
			Description: "what happened, timers, and dead letters that are replayed",
			Subjects:    []string{"stoker.fact.*.*.*.*.*", "stoker.timer.>", replaySubjects},
			MaxAge:      FactsKept, AllowMsgSchedules: true, AllowMsgTTL: true,
			// A service that missed a fact finds what it told in the state when it looks at the tenant next, within a day.
			Discard: jetstream.DiscardOld, MaxBytes: 512 * mebibyte, MaxMsgsPerSubject: keptFacts, MaxMsgSize: maxFact,
			Duplicates: 2 * time.Minute,
		},
		{
			Name:        StreamStatus,
			Description: "the latest status of each tenant, for portals",
			Subjects:    []string{statusSubjects},
			AllowMsgTTL: true,
			Discard:     jetstream.DiscardOld, MaxBytes: 64 * mebibyte, MaxMsgsPerSubject: 1, MaxMsgSize: maxFact,
			Duplicates: 2 * time.Minute,
		},
		{
			Name:        StreamDead,
			Description: "events no retry can help, with their cause",
			Subjects:    []string{"stoker.dead.*.*.*.*"},
			MaxAge:      30 * 24 * time.Hour,
			Discard:     jetstream.DiscardOld, MaxBytes: 64 * mebibyte, MaxMsgsPerSubject: keptFacts, MaxMsgSize: maxDead,
			Duplicates: 2 * time.Minute,
		},
	}
	all = append(all, buckets()...)
	for i := range all {
		all[i].AllowDirect, all[i].Storage, all[i].Replicas = true, jetstream.FileStorage, replicas
	}
	return all
}

// buckets are the configurations of the buckets that are no tenant's, but for that of leases. No bucket lets a message replace all others by a header
// (AllowRollup), as those made by the client library do: else whoever may write one key could empty it.
func buckets() []jetstream.StreamConfig {
	bucket := func(name, description string, ttl time.Duration) jetstream.StreamConfig {
		return jetstream.StreamConfig{
			Name: "KV_" + name, Description: description, Subjects: []string{"$KV." + name + ".>"}, MaxAge: ttl,
			MaxMsgsPerSubject: 1, Discard: jetstream.DiscardOld, Duplicates: min(ttl, 2*time.Minute), DenyDelete: true,
		}
	}
	// A note that had to go means that its command, sent once more, is looked at anew.
	commands := bucket(BucketCommands, "what was answered to each command that was carried out", answersKept)
	commands.MaxBytes, commands.MaxMsgSize = 64*mebibyte, maxFact
	return []jetstream.StreamConfig{commands}
}

// Provision creates the streams, the consumers and the buckets that are no tenant's, or brings their configuration back to
// what it should be. It is idempotent and may run in several replicas at once.
func Provision(ctx context.Context, js jetstream.JetStream, replicas int) error {
	replicas = max(replicas, 1)
	for _, cfg := range streams(replicas) {
		if err := provisionStream(ctx, js, cfg); err != nil {
			return err
		}
	}
	if err := provisionLeases(ctx, js, leases(replicas)); err != nil {
		return Classify(fmt.Errorf("bucket %s: %w", BucketLeases, err))
	}
	return cmp.Or(Classify(removeFormerLeases(ctx, js)), restrictBuckets(ctx, js))
}

// unconsumed are the streams whose loss no consumer of a service notices.
var unconsumed = []string{StreamStatus, StreamDead, "KV_" + BucketCommands}

// HearDeleted calls deleted when a stream that no service consumes was deleted, and each time the connection began again, for that may have
// been missed meanwhile. It returns when ctx ends, or with the error of a connection that is closed.
func (b *Bus) HearDeleted(ctx context.Context, deleted func()) error {
	reconnected := b.nc.StatusChanged(nats.CONNECTED)
	defer b.nc.RemoveStatusListener(reconnected)
	heard := make(chan *nats.Msg, len(unconsumed))
	for _, stream := range unconsumed {
		sub, err := b.nc.ChanSubscribe(deletedAdvisory+stream, heard)
		if err != nil {
			return err
		}
		defer func() { _ = sub.Unsubscribe() }()
	}
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-heard:
		case <-reconnected:
		}
		deleted()
	}
}

// provisionStream makes a stream and its consumers.
func provisionStream(ctx context.Context, js jetstream.JetStream, cfg jetstream.StreamConfig) error {
	// Without consumers, a stream that keeps what somebody is interested in would keep nothing and still say that it did.
	want := cfg.Retention
	cfg.Retention = jetstream.LimitsPolicy
	have, err := js.Stream(ctx, cfg.Name)
	switch {
	case err == nil:
		cfg.Retention = have.CachedInfo().Config.Retention
	case !errors.Is(err, jetstream.ErrStreamNotFound):
		return Classify(fmt.Errorf("stream %s: %w", cfg.Name, err))
	}
	s, err := js.CreateOrUpdateStream(ctx, cfg)
	if err != nil {
		return Classify(fmt.Errorf("stream %s: %w", cfg.Name, err))
	}
	if err := provisionConsumers(ctx, s, consumers()[cfg.Name]); err != nil {
		return err
	}
	if cfg.Retention == want {
		return nil
	}
	cfg.Retention = want
	if _, err := js.UpdateStream(ctx, cfg); err != nil {
		return Classify(fmt.Errorf("stream %s: %w", cfg.Name, err))
	}
	return nil
}

// leases is the stream of the bucket of leases. Its messages matter for seconds, and there are some at all times, so none waits for
// a disk: with several servers it is in their memory, and the quorum confirms each message; with one it is on disk, written
// a moment later, so that it outlives a restart.
func leases(replicas int) jetstream.StreamConfig {
	cfg := jetstream.StreamConfig{
		Name: "KV_" + BucketLeases, Description: "which replica of each service holds which partitions",
		Subjects: []string{"$KV." + BucketLeases + ".>"}, MaxMsgsPerSubject: 1, MaxBytes: mebibyte, MaxMsgSize: 16 << 10,
		Discard: jetstream.DiscardNew, Duplicates: 2 * time.Minute, DenyDelete: true, AllowMsgTTL: true,
		Storage: jetstream.MemoryStorage, Replicas: replicas,
	}
	if replicas == 1 {
		cfg.Storage, cfg.PersistMode = jetstream.FileStorage, jetstream.AsyncPersistMode
	}
	return cfg
}

func provisionConsumers(ctx context.Context, s jetstream.Stream, wanted []jetstream.ConsumerConfig) error {
	if len(wanted) == 0 {
		return nil
	}
	stream := s.CachedInfo().Config.Name
	existing := map[string]jetstream.ConsumerConfig{}
	list := s.ListConsumers(ctx)
	for c := range list.Info() {
		existing[c.Name] = c.Config
	}
	if err := list.Err(); err != nil {
		return Classify(fmt.Errorf("consumers of %s: %w", stream, err))
	}
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(16)
	for _, c := range wanted {
		if have, ok := existing[c.Durable]; ok && sameConsumer(have, c) {
			continue
		}
		g.Go(func() error {
			if _, err := s.CreateOrUpdateConsumer(ctx, c); err != nil {
				return Classify(fmt.Errorf("consumer %s of %s: %w", c.Durable, stream, err))
			}
			return nil
		})
	}
	return g.Wait()
}

// provisionBuckets makes the buckets alone.
func provisionBuckets(ctx context.Context, js jetstream.JetStream, replicas int) error {
	for _, cfg := range buckets() {
		cfg.AllowDirect, cfg.Storage, cfg.Replicas = true, jetstream.FileStorage, replicas
		if err := provisionStream(ctx, js, cfg); err != nil {
			return err
		}
	}
	return nil
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

// restrictBuckets gives tenants' buckets of a version before the limits that new ones have.
func restrictBuckets(ctx context.Context, js jetstream.JetStream) error {
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(16)
	list := js.ListStreams(ctx, jetstream.WithStreamListSubject("$KV.*."+KeySpec))
	for s := range list.Info() {
		cfg := s.Config
		if !cfg.AllowRollup || !strings.HasPrefix(cfg.Name, "KV_tenant_") {
			continue
		}
		cfg.AllowRollup, cfg.MaxMsgSize = false, maxState
		g.Go(func() error {
			if _, err := js.UpdateStream(ctx, cfg); err != nil && !errors.Is(err, jetstream.ErrStreamNotFound) {
				return Classify(fmt.Errorf("bucket %s: %w", cfg.Name, err))
			}
			return nil
		})
	}
	err := g.Wait()
	return cmp.Or(err, Classify(list.Err()))
}
