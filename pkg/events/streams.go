package events

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	"golang.org/x/sync/errgroup"

	"github.com/stoker-k8s/stoker/pkg/api/name"
)

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

// streams are the configurations of the streams and of the buckets that are no tenant's; replicas is the number of servers that hold
// each. All are on disk: one in memory is gone with a restart of the server, also where it matters for seconds only. Each has limits,
// and says what goes when they are reached; docs/operations.md has the reasons.
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
			Description: "what happened, and timers",
			Subjects:    []string{"stoker.fact.*.*.*.*.*", "stoker.timer.>"},
			MaxAge:      30 * 24 * time.Hour, AllowMsgSchedules: true, AllowMsgTTL: true,
			// A service that missed a fact finds what it told in the state when it looks at the tenant next.
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

// buckets are the configurations of the buckets that are no tenant's. No bucket lets a message replace all others by a header
// (AllowRollup), as those made by the client library do: else whoever may write one key could empty it.
func buckets() []jetstream.StreamConfig {
	bucket := func(name, description string, ttl time.Duration) jetstream.StreamConfig {
		return jetstream.StreamConfig{
			Name: "KV_" + name, Description: description, Subjects: []string{"$KV." + name + ".>"}, MaxAge: ttl,
			MaxMsgsPerSubject: 1, Discard: jetstream.DiscardOld, Duplicates: min(ttl, 2*time.Minute), DenyDelete: true,
		}
	}
	replicas := bucket(BucketReplica, "which replicas of each service live", time.Minute)
	replicas.MaxBytes, replicas.MaxMsgSize = mebibyte, 1<<10
	// A note that had to go means that its command, sent once more, is looked at anew.
	commands := bucket(BucketCommands, "what was answered to each command that was carried out", answersKept)
	commands.MaxBytes, commands.MaxMsgSize = 64*mebibyte, maxFact
	return []jetstream.StreamConfig{replicas, commands}
}

// Provision creates the streams, the consumers and the buckets that are no tenant's, or brings their configuration back to
// what it should be. It is idempotent and may run in several replicas at once.
func Provision(ctx context.Context, js jetstream.JetStream, replicas int) error {
	for _, cfg := range streams(max(replicas, 1)) {
		if err := provisionStream(ctx, js, cfg); err != nil {
			return err
		}
	}
	return restrictBuckets(ctx, js)
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
		cfg.AllowDirect, cfg.Storage, cfg.Replicas = true, jetstream.FileStorage, max(replicas, 1)
		if err := provisionStream(ctx, js, cfg); err != nil {
			return err
		}
	}
	return nil
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
