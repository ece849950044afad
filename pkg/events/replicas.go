package events

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// LastHeard reads when each replica of the connection's service last said that it lives; one that said goodbye isn't among them. It
// takes one direct get and no consumer.
func (b *Bus) LastHeard(ctx context.Context) (map[string]time.Time, error) {
	ctx, cancel := context.WithTimeout(ctx, RequestTimeout)
	defer cancel()
	prefix := "$KV." + BucketReplica + "." + b.cfg.User + "."
	inbox := b.nc.NewInbox()
	sub, err := b.nc.SubscribeSync(inbox)
	if err != nil {
		return nil, Classify(err)
	}
	defer func() { _ = sub.Unsubscribe() }()
	question := fmt.Appendf(nil, `{"multi_last":[%q]}`, prefix+"*")
	if err := b.nc.PublishRequest(directGet+"KV_"+BucketReplica, inbox, question); err != nil {
		return nil, Classify(err)
	}
	heard := map[string]time.Time{}
	for {
		m, err := sub.NextMsgWithContext(ctx)
		if err != nil {
			return nil, classifyRequest(ctx, err)
		}
		switch status := m.Header.Get("Status"); status {
		case "":
		case "204", "404": // the end; nothing there
			return heard, nil
		case "503":
			return nil, Classify(nats.ErrNoResponders)
		default:
			return nil, fmt.Errorf("replicas of %s: server answered %s %s", b.cfg.User, status, m.Header.Get("Description"))
		}
		at, err := time.Parse(time.RFC3339Nano, m.Header.Get(jetstream.TimeStampHeaer))
		if err != nil {
			return nil, errors.New("replicas of " + b.cfg.User + ": an answer without a time")
		}
		if m.Header.Get("KV-Operation") == "" {
			heard[strings.TrimPrefix(m.Header.Get(jetstream.SubjectHeader), prefix)] = at
		}
	}
}
