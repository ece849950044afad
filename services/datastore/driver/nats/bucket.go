package nats

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"strings"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/stoker-k8s/stoker/services/datastore/driver"
)

// history is how many versions of a key kine keeps.
const history = 10

// description is what kine calls its buckets.
const description = "Holds kine key/values"

func streamOf(bucket string) string { return "KV_" + bucket }

// subjects begins those of a bucket's keys.
func subjects(bucket string) string { return "$KV." + bucket + "." }

// streamFor is a tenant's bucket, to the last detail as kine makes it: it asks for just this one when it starts, and ends
// when it is another. Kine's own limits (--endpoint …&revHistory=) must be left at their defaults for that. One that is read-only takes
// no message of kine's: a kine that runs goes on reading, and none starts.
func streamFor(a driver.Account, replicas int) jetstream.StreamConfig {
	c := jetstream.StreamConfig{
		Name: streamOf(a.Schema), Description: description, Subjects: []string{subjects(a.Schema) + ">"},
		Replicas: replicas, Storage: jetstream.FileStorage, Retention: jetstream.LimitsPolicy, Discard: jetstream.DiscardNew,
		MaxMsgsPerSubject: history, MaxMsgs: -1, MaxBytes: -1, MaxMsgSize: -1, MaxConsumers: -1,
		Duplicates: 2 * time.Minute, AllowRollup: true, DenyDelete: true, AllowDirect: true,
	}
	if a.ReadOnly {
		c.MaxMsgSize = maxReadOnly
	}
	return c
}

// comparable is a stream's configuration without what the server notes there for itself.
func comparable(c jetstream.StreamConfig) jetstream.StreamConfig {
	c.Metadata = maps.Clone(c.Metadata)
	maps.DeleteFunc(c.Metadata, func(key, _ string) bool { return strings.HasPrefix(key, "_nats.") })
	if len(c.Metadata) == 0 {
		c.Metadata = nil
	}
	return c
}

// bucketIn returns a bucket's configuration, nil when there is none.
func bucketIn(ctx context.Context, js jetstream.JetStream, bucket string) (*jetstream.StreamConfig, error) {
	stream, err := js.Stream(ctx, streamOf(bucket))
	if errors.Is(err, jetstream.ErrStreamNotFound) {
		return nil, nil //nolint:nilnil // there is none
	}
	if err != nil {
		return nil, fmt.Errorf("bucket %s: %w", bucket, err)
	}
	config := comparable(stream.CachedInfo().Config)
	return &config, nil
}

// mend makes the bucket what it must be, by the steps that takes.
func mend(do func(what string, change func(context.Context) error), js jetstream.JetStream, have *jetstream.StreamConfig, want jetstream.StreamConfig) {
	switch {
	case have == nil:
		do("bucket made", func(ctx context.Context) error { _, err := js.CreateStream(ctx, want); return err })
	case !reflect.DeepEqual(*have, want):
		do("bucket set", func(ctx context.Context) error { _, err := js.UpdateStream(ctx, want); return err })
	}
}

// empty deletes the streams of an account, and returns how many there were.
func empty(ctx context.Context, js jetstream.JetStream) (n int, err error) {
	var names []string
	list := js.StreamNames(ctx)
	for name := range list.Name() {
		names = append(names, name)
	}
	if err := list.Err(); err != nil {
		return 0, err
	}
	for _, name := range names {
		if err := js.DeleteStream(ctx, name); err != nil && !errors.Is(err, jetstream.ErrStreamNotFound) {
			return n, err
		}
		n++
	}
	return n, nil
}
