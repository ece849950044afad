package events

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// pullBatch is how many events one request may bring.
const pullBatch = 64

const (
	// pullGrace is how much later than it should the server's word may come that a request has expired.
	pullGrace = 5 * time.Second
	// pinGrace is how long after the server has pinned a consumer the first event may come.
	pinGrace = time.Second
)

// ErrPullLost means that the server may have forgotten the request for events: it has to be made anew.
var ErrPullLost = errors.New("the request for events may be lost")

// Pull passes the events of a service's consumer to receive, one at a time, until ctx ends, which is no error, or until the request for
// events that waits at the server is lost or refused: then events come only to a new call. opened is called before the first event,
// with the time at which the stream was created. [jetstream.ErrStreamNotFound], [jetstream.ErrConsumerNotFound],
// [jetstream.ErrConsumerDeleted], [ErrPullLost] and errors of the connection.
//
// Requests ask for no heartbeats, and those of all consumers expire at the same whole minutes: for hundreds of idle consumers there is one
// burst of small messages a minute. What a missing heartbeat would tell, the connection tells, or the server's advisory of a new leader, or at
// the latest a request that doesn't expire when it should.
func (b *Bus) Pull(ctx context.Context, stream, consumer string, opened func(created time.Time), receive func(*nats.Msg)) error {
	return (&pull{bus: b, stream: stream, consumer: consumer, expiry: PullExpiry}).run(ctx, opened, receive)
}

// pull is one call of [Bus.Pull]; it belongs to its goroutine.
type pull struct {
	bus              *Bus
	stream, consumer string
	expiry           time.Duration // of a request, and a quarter more at most
	inbox            string
	pin              string      // which the server knows us by, once it has sent something
	pinned           string      // whom the consumer was pinned to, as the server said last
	left             int         // how many events the request that waits may still bring
	overdue          *time.Timer // fires when the request should have expired
	lookAtPin        *time.Timer // fires when the first event of the pin's should have come
}

func (p *pull) run(ctx context.Context, opened func(created time.Time), receive func(*nats.Msg)) error {
	// Before anything is asked, so that nothing is missed in between.
	reconnected := p.bus.nc.StatusChanged(nats.CONNECTED)
	defer p.bus.nc.RemoveStatusListener(reconnected)
	messages, elected, pinned := make(chan *nats.Msg, 2*pullBatch), make(chan *nats.Msg, pullBatch), make(chan *nats.Msg, pullBatch)
	p.inbox = p.bus.nc.NewInbox()
	for subject, heard := range map[string]chan *nats.Msg{
		p.inbox: messages,
		electedAdvisory + p.stream + "." + p.consumer: elected,
		pinnedAdvisory + p.stream + "." + p.consumer:  pinned,
	} {
		sub, err := p.bus.nc.ChanSubscribe(subject, heard)
		if err != nil {
			return err
		}
		defer func() { _ = sub.Unsubscribe() }()
	}
	p.overdue, p.lookAtPin = stoppedTimer(), stoppedTimer()
	if err := p.open(ctx, opened); err != nil {
		return err
	}
	defer p.close(ctx, messages)
	for {
		select {
		case <-ctx.Done():
			return nil
		case m := <-messages:
			if err := p.take(m, receive); err != nil {
				return err
			}
		case m := <-pinned:
			p.hearPinned(m)
		case <-p.lookAtPin.C:
			p.liftForeignPin(ctx)
		case <-elected:
			return fmt.Errorf("%w: another server leads the consumer", ErrPullLost)
		case <-reconnected:
			return fmt.Errorf("%w: the connection began again", ErrPullLost)
		case <-p.overdue.C:
			return fmt.Errorf("%w: the server doesn't say that it expired", ErrPullLost)
		}
	}
}

func stoppedTimer() *time.Timer {
	t := time.NewTimer(0)
	t.Stop()
	return t
}

// open makes the first request and lifts the pin of whoever held the partition before, or of our own last call. Not before the server has
// that request: it would pin the consumer to one that is left of others.
func (p *pull) open(ctx context.Context, opened func(created time.Time)) error {
	ask, cancel := context.WithTimeout(ctx, p.bus.requestTimeout())
	defer cancel()
	s, err := p.bus.js.Stream(ask, p.stream)
	if err != nil {
		return err
	}
	if _, err := s.Consumer(ask, p.consumer); err != nil {
		return err
	}
	opened(s.CachedInfo().Created)
	if err := p.request(); err != nil {
		return err
	}
	if err := p.bus.AwaitRequestsSeen(ask, p.stream, p.consumer); err != nil {
		return err
	}
	_ = p.bus.Unpin(ask, p.stream, p.consumer) // nobody may be pinned
	return nil
}

// close lets the server see the request that is about to be left, and gives back what came and was not passed on.
func (p *pull) close(ctx context.Context, messages <-chan *nats.Msg) {
	p.overdue.Stop()
	p.lookAtPin.Stop()
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), pullCloseTimeout)
	defer cancel()
	_ = p.bus.AwaitRequestsSeen(ctx, p.stream, p.consumer)
	for len(messages) > 0 {
		if m := <-messages; m.Reply != "" {
			_ = m.Nak()
		}
	}
}

// pullCloseTimeout bounds the wait for the server to see what is about to be left.
const pullCloseTimeout = time.Second

// request asks for events until the next whole minute, or that after it.
func (p *pull) request() error {
	now := time.Now()
	expires := p.expiry - now.Round(0).Sub(now.Truncate(p.expiry))
	if expires < p.expiry/4 {
		expires += p.expiry
	}
	body, err := json.Marshal(struct {
		Batch   int           `json:"batch"`
		Expires time.Duration `json:"expires"`
		Group   string        `json:"group"`
		Pin     string        `json:"id,omitempty"`
	}{pullBatch, expires, PriorityGroup, p.pin})
	if err != nil {
		return err
	}
	p.left = pullBatch
	p.overdue.Reset(expires + pullGrace)
	return p.bus.nc.PublishRequest(nextSubject(p.stream, p.consumer), p.inbox, body)
}

// take passes an event on, or heeds what the server says in its place (ADR-13 and ADR-42 of NATS). An event is what can be acknowledged:
// its headers are its sender's, who may write anything into them.
func (p *pull) take(m *nats.Msg, receive func(*nats.Msg)) error {
	if m.Reply != "" {
		if pins := m.Header["Nats-Pin-Id"]; len(pins) > 0 {
			p.pin = pins[len(pins)-1] // any before are its sender's
		}
		receive(m)
		if p.left--; p.left > 0 {
			return nil
		}
		return p.request()
	}
	status, description := m.Header.Get("Status"), m.Header.Get("Description")
	switch {
	case status == "408": // expired
		return p.request()
	case status == "423": // the pin was lifted: by open, after the server had pinned the consumer to its request, or by another replica
		p.pin = ""
		return p.request()
	case status == "409" && strings.EqualFold(description, "Consumer Deleted"):
		return jetstream.ErrConsumerDeleted
	case status == "503":
		return nats.ErrNoResponders
	}
	return fmt.Errorf("%w: %s %s", ErrPullLost, status, description)
}

// hearPinned notes that the server has pinned the consumer to a request. If it is ours, an event comes at once.
func (p *pull) hearPinned(m *nats.Msg) {
	var advisory struct {
		ID string `json:"pinned_id"`
	}
	if json.Unmarshal(m.Data, &advisory) == nil {
		p.pinned = advisory.ID
		p.lookAtPin.Reset(pinGrace)
	}
}

// liftForeignPin has the server pin the consumer anew if it is pinned to somebody else: a replica that was stopped, and whose partition
// this is now, or an inbox that is gone.
func (p *pull) liftForeignPin(ctx context.Context) {
	if p.pinned == p.pin {
		return
	}
	ask, cancel := context.WithTimeout(ctx, p.bus.requestTimeout())
	defer cancel()
	_ = p.bus.Unpin(ask, p.stream, p.consumer) // without an answer, the pin ends by itself
}
