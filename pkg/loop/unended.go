package loop

import (
	"context"
	"fmt"
	"strconv"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/stoker-k8s/stoker/pkg/api/reason"
	"github.com/stoker-k8s/stoker/pkg/events"
	"github.com/stoker-k8s/stoker/pkg/intent"
)

// An event that ends each process which works on it comes back for ever. How often it was delivered tells nothing: events wait for
// their turn, and partitions move. So turns on events that were delivered often are noted when they begin and when they end, in the
// bucket of leases.

const (
	// suspectAfter is how often an event was delivered before its turns are noted.
	suspectAfter = 5
	// maxUnended is how many turns on an event may begin and not end before it is given up.
	maxUnended = 15
	// unendedKept is how long a note is kept.
	unendedKept = 24 * time.Hour
)

// begin notes that a turn on events begins; the returned function notes that it has ended. *[intent.Permanent] when too many turns on
// one of them never ended.
func (l *Loop) begin(ctx context.Context, batch []*delivery) (ended func(), err error) {
	var ends []func()
	for _, d := range batch {
		if d.count <= suspectAfter {
			continue
		}
		what := fmt.Sprintf("turn.%s.%d.%d", d.origin.stream, d.origin.sequence, d.origin.stored)
		data, _, err := l.lease.read(ctx, what)
		if err != nil {
			return nil, err
		}
		unended, _ := strconv.Atoi(string(data))
		if unended >= maxUnended {
			return nil, &intent.Permanent{
				Reason:  reason.TooManyDeliveries,
				Message: fmt.Sprintf("%d turns on event %s began and never ended", unended, d.event.ID()),
			}
		}
		if err := l.noteUnended(ctx, what, unended+1); err != nil {
			return nil, err
		}
		ends = append(ends, func() {
			// The turn has ended, whatever its context says. A note that can't be written counts one turn too many.
			ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), events.RequestTimeout)
			defer cancel()
			_ = l.noteUnended(ctx, what, unended)
		})
	}
	return func() {
		for _, end := range ends {
			end()
		}
	}, nil
}

func (l *Loop) noteUnended(ctx context.Context, what string, turns int) error {
	msg := nats.NewMsg(l.lease.subject(what))
	msg.Data = []byte(strconv.Itoa(turns))
	msg.Header.Set(jetstream.MsgTTLHeader, unendedKept.String())
	_, err := l.Bus.JetStream().PublishMsg(ctx, msg)
	return err
}
