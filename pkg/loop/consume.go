package loop

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	ce "github.com/cloudevents/sdk-go/v2/event"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/stoker-k8s/stoker/pkg/events"
)

// Event is a command or a fact as it was delivered.
type Event struct {
	ce.Event
	// Service and What of a fact, empty for a command.
	Service, What string
	// Err is set when the message is no valid CloudEvent; Event is then empty.
	Err error
	// Raw is the message as it came.
	Raw *nats.Msg
}

// IsCommand reports whether the event is a command; else it is a fact.
func (e Event) IsCommand() bool { return e.Service == "" }

// metricType is the event's value of the label type.
func (e Event) metricType() string {
	if e.IsCommand() {
		return "command"
	}
	return e.Service + "." + e.What
}

// delivery is an event that the server delivered, from its arrival until it is acknowledged.
type delivery struct {
	event     Event
	latest    *nats.Msg // the event as it was delivered last, which is answered; guarded by Loop.mu
	partition int
	count     uint64 // how often it was delivered when it arrived here, that time included
	origin    origin
	begun     bool // a turn about it has begun
	ended     bool // it is a command that has its answer; what is left of its turn goes on without it
}

// origin tells a message of a stream from every other, also of a stream of that name that is lost since.
type origin struct {
	stream   string
	sequence uint64
	stored   int64
}

// again reports whether the event was delivered before.
func (d *delivery) again() bool { return d.count > 1 }

// partitionConsumer receives the events of one partition.
type partitionConsumer struct {
	partition int
	cancel    context.CancelFunc
	done      chan struct{}
	streams   []string
}

func (l *Loop) startConsumer(ctx context.Context, partition int) *partitionConsumer {
	ctx, cancel := context.WithCancel(ctx)
	w := &partitionConsumer{partition: partition, cancel: cancel, done: make(chan struct{}), streams: []string{events.StreamFacts}}
	if l.Commands {
		w.streams = append(w.streams, events.StreamIntake)
	}
	var wg sync.WaitGroup
	for _, stream := range w.streams {
		wg.Go(func() { l.consume(ctx, stream, partition) })
	}
	go func() { wg.Wait(); close(w.done) }()
	return w
}

// consume receives until ctx ends, through every outage.
func (l *Loop) consume(ctx context.Context, stream string, partition int) {
	durable := events.Consumer(l.Service, partition)
	wait := newBackoff()
	for ctx.Err() == nil {
		err := l.Bus.Pull(ctx, stream, durable,
			func(created time.Time) { wait = newBackoff(); l.opened(stream, created) },
			func(m *nats.Msg) { l.receive(m, partition) }) //nolint:contextcheck // lanes outlive ctx by a grace
		if ctx.Err() != nil {
			return
		}
		if errors.Is(err, jetstream.ErrConsumerNotFound) || errors.Is(err, jetstream.ErrStreamNotFound) ||
			errors.Is(err, jetstream.ErrConsumerDeleted) {
			l.health.Down("nats streams", fmt.Errorf("%s %s: %w", stream, durable, err))
			l.noteLost()
		}
		sleep(ctx, wait.Step())
	}
}

// opened notes when a stream was created that is consumed. A stream that is another one now was lost, and with it, perhaps, all of
// JetStream: another replica may have made it again before this one looked.
func (l *Loop) opened(stream string, created time.Time) {
	l.health.Up("nats streams")
	l.mu.Lock()
	before := l.created[stream]
	if created.After(before) {
		l.created[stream] = created
	}
	l.mu.Unlock()
	if !before.IsZero() && created.After(before) {
		l.log.Warn("a stream was lost and is there again, looking at everything anew", "stream", stream)
		l.noteLost()
	}
}

// receive takes a delivered message into its object's lane.
func (l *Loop) receive(m *nats.Msg, partition int) {
	d := &delivery{partition: partition, latest: m}
	key, _, service, what, err := events.ParseSubject(subjectOf(m))
	if err != nil { // the filter lets no such subject through, and no such dead letter is replayed
		l.log.Error("message on an unknown subject", "subject", m.Subject)
		_ = m.Term()
		return
	}
	if meta, err := m.Metadata(); err == nil {
		d.count, d.origin = meta.NumDelivered, origin{meta.Stream, meta.Sequence.Stream, meta.Timestamp.UnixNano()}
	}
	if d.again() {
		l.metrics.redeliveries.Inc()
	}
	if l.waitsHere(d.origin, m) {
		return
	}
	d.event = Event{Service: service, What: what, Raw: m}
	if scheduler := m.Header.Get("Nats-Scheduler"); scheduler != "" && !ownTimer(scheduler, key, service, what) {
		// A timer may only become a fact of the service that set it, else any service could tell another's facts.
		l.log.Error("timer set by another than its service, dropped", "subject", m.Subject, "timer", scheduler)
		_ = m.Term()
		return
	}
	d.event.Event, d.event.Err = decode(m)
	l.mu.Lock()
	l.holding[d.origin] = d
	l.mu.Unlock()
	l.metrics.pending.Inc()
	l.enqueue(key, d, Wake{})
}

// waitsHere reports whether an event that is delivered once more is one that waits for its turn here; it is answered as it was
// delivered last.
func (l *Loop) waitsHere(o origin, m *nats.Msg) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	d := l.holding[o]
	if d != nil {
		d.latest = m
	}
	return d != nil
}

// decode is [events.Decode] for what anybody may have sent: here, a panic would end the process again and again.
func decode(m *nats.Msg) (e ce.Event, err error) {
	defer func() {
		if r := recover(); r != nil {
			e, err = ce.Event{}, &events.AttributeError{Attribute: "data", Message: fmt.Sprintf("can't be decoded: %v", r)}
		}
	}()
	return events.Decode(m.Header, m.Data)
}

func ownTimer(scheduler string, key events.Key, service, what string) bool {
	return scheduler == key.TimerSubject(service, what)
}

// keepAlive tells the server now and then that events are worked on, until the returned function is called. What waits for its turn
// isn't kept alive: each such word is one more entry in the servers' log. The server delivers it again, ever more rarely.
func (l *Loop) keepAlive(batch []*delivery) (end func()) {
	if len(batch) == 0 {
		return func() {}
	}
	ctx, cancel := context.WithCancel(context.Background())
	every := cmp.Or(l.ackWait, events.AckWait) / 3
	first := time.AfterFunc(every, func() {
		for ctx.Err() == nil {
			for _, d := range batch {
				l.mu.Lock()
				raw := d.latest
				l.mu.Unlock()
				if l.lease.holds(d.partition) {
					_ = raw.InProgress()
				}
			}
			sleep(ctx, every)
		}
	})
	return func() { cancel(); first.Stop() }
}

// answer ends a delivery: done acknowledges it, else it goes back to the server for whoever holds the partition next.
func (l *Loop) answer(d *delivery, done bool) {
	l.mu.Lock()
	delete(l.holding, d.origin)
	raw := d.latest
	l.mu.Unlock()
	l.metrics.pending.Dec()
	var err error
	if done {
		err = raw.Ack()
	} else {
		err = raw.Nak()
	}
	if err != nil {
		l.log.Debug("could not answer the server, it delivers again", "error", err)
	}
}
