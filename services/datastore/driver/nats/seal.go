package nats

import (
	"context"
	"errors"
	"fmt"

	"github.com/nats-io/nats.go/jetstream"
)

// A tenant that may only read has a bucket that takes no larger messages than maxReadOnly. All of kine's are larger, deletions too, which
// have a header. Servers compare sizes when a message's turn comes, whoever sent it and however long he is connected, and throw nobody
// out. It is not 0, which means that there is no limit.
const maxReadOnly = 1

// unused is the key of a bucket that no message has: kine's keys are in base58.
const unused = "stoker-seal"

// settle returns when nothing that was sent to a bucket before it became read-only is under way any more. It asks also when nothing had
// to be changed, for who changed it may have crashed before he asked. It leaves nothing in the bucket.
//
// In a cluster, a replica that gets to lead the bucket has the limit once it has caught up with what servers are told, which takes it
// less time than becoming the leader; nothing makes sure of that.
func settle(ctx context.Context, js jetstream.JetStream, bucket string) error {
	// The leader takes messages one by one. When it has refused this one, it has decided about all before. That the message is for
	// another stream keeps it out in any case.
	_, err := js.Publish(ctx, subjects(bucket)+unused, []byte(unused), jetstream.WithExpectStream("none"), jetstream.WithRetryAttempts(0))
	if codeOf(err) != codeTooLarge {
		if err == nil {
			err = errors.New("a message is taken")
		}
		return fmt.Errorf("bucket %s is not read-only yet: %w", bucket, err)
	}
	// What it had taken before is written when it has purged something.
	stream, err := js.Stream(ctx, streamOf(bucket))
	if err != nil {
		return fmt.Errorf("bucket %s: %w", bucket, err)
	}
	return stream.Purge(ctx, jetstream.WithPurgeSubject(subjects(bucket)+unused))
}
