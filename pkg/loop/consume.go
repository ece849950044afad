package loop

import (
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

// maxDeliveries is how often an event may outlive the replica that works on it before it counts as the cause.
const maxDeliveries = 20

// Event is a command or a fact as it was delivered.
type Event struct {
	ce.Event
	// Service and What of a fact, empty for a command.
	Service, What string
	// Err is set when the message is no valid CloudEvent; Event is then empty.
	Err error
	// Raw is the message as it came.
	Raw jetstream.Msg
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

// delivery is one delivery of an event by the server, from its arrival until it is acknowledged.
type delivery struct {
	event     Event
	partition int
	count     uint64 // how often it was delivered, this time included
	ended     bool   // it is a command that has its answer; what is left of its turn goes on without it
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
	wait, again := newBackoff(), false
	for ctx.Err() == nil {
		err := l.consumeOnce(ctx, stream, durable, partition, again)
		again = true
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

// consumeOnce receives until ctx ends or the consumer breaks; again says that it broke before.
func (l *Loop) consumeOnce(ctx context.Context, stream, durable string, partition int, again bool) error {
	ask, cancel := context.WithTimeout(ctx, events.RequestTimeout)
	c, err := l.Bus.JetStream().Consumer(ask, stream, durable)
	if err == nil && (again || l.lease.revived) {
		// The pin of the process that had our name and died, or of our own last try; nobody else may lift it.
		if s, e := l.Bus.JetStream().Stream(ask, stream); e == nil {
			_ = s.UnpinConsumer(ask, durable, events.PriorityGroup)
		}
	}
	cancel()
	if err != nil {
		return err
	}
	broken := make(chan error, 1)
	cc, err := c.Consume(
		func(m jetstream.Msg) { l.receive(m, partition) }, //nolint:contextcheck // lanes outlive ctx by a grace
		jetstream.PullMaxMessages(64), jetstream.PullExpiry(4*time.Second), jetstream.PullHeartbeat(2*time.Second),
		jetstream.PullPriorityGroup(events.PriorityGroup),
		jetstream.ConsumeErrHandler(func(_ jetstream.ConsumeContext, err error) {
			if errors.Is(err, jetstream.ErrConsumerDeleted) || errors.Is(err, jetstream.ErrConsumerNotFound) ||
				errors.Is(err, jetstream.ErrNoHeartbeat) || errors.Is(err, nats.ErrNoResponders) ||
				errors.Is(err, nats.ErrConnectionClosed) {
				select {
				case broken <- err:
				default:
				}
			}
		}))
	if err != nil {
		return err
	}
	l.health.Up("nats streams")
	select {
	case <-ctx.Done():
		cc.Stop()
		<-cc.Closed()
		return nil
	case err := <-broken:
		cc.Stop()
		<-cc.Closed()
		return err
	}
}

// receive takes a delivered message into its object's lane.
func (l *Loop) receive(m jetstream.Msg, partition int) {
	d := &delivery{partition: partition}
	key, _, service, what, err := events.ParseSubject(m.Subject())
	if err != nil { // the filter lets no such subject through
		l.log.Error("message on an unknown subject", "subject", m.Subject())
		_ = m.TermWithReason("unknown subject")
		return
	}
	if meta, err := m.Metadata(); err == nil {
		d.count = meta.NumDelivered
	}
	if d.again() {
		l.metrics.redeliveries.Inc()
	}
	d.event = Event{Service: service, What: what, Raw: m}
	if scheduler := m.Headers().Get("Nats-Scheduler"); scheduler != "" && !ownTimer(scheduler, key, service, what) {
		// A timer may only become a fact of the service that set it, else any service could tell another's facts.
		l.log.Error("timer set by another than its service, dropped", "subject", m.Subject(), "timer", scheduler)
		_ = m.TermWithReason("timer set by another service")
		return
	}
	d.event.Event, d.event.Err = decode(m)
	l.mu.Lock()
	l.holding[d] = struct{}{}
	l.mu.Unlock()
	l.enqueue(key, d, Wake{})
}

// decode is [events.Decode] for what anybody may have sent: here, a panic would end the process again and again.
func decode(m jetstream.Msg) (e ce.Event, err error) {
	defer func() {
		if r := recover(); r != nil {
			e, err = ce.Event{}, &events.AttributeError{Attribute: "data", Message: fmt.Sprintf("can't be decoded: %v", r)}
		}
	}()
	return events.Decode(m.Headers(), m.Data())
}

func ownTimer(scheduler string, key events.Key, service, what string) bool {
	return scheduler == key.TimerSubject(service, what)
}

// keepAlive tells the server now and then that what this replica holds is being worked on.
func (l *Loop) keepAlive(ctx context.Context) {
	tick := time.NewTicker(events.AckWait / 4)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		l.mu.Lock()
		held := make([]*delivery, 0, len(l.holding))
		for d := range l.holding {
			held = append(held, d)
		}
		l.mu.Unlock()
		l.metrics.pending.Set(float64(len(held)))
		for _, d := range held {
			if l.lease.holds(d.partition) {
				_ = d.event.Raw.InProgress()
			}
		}
	}
}

// answer ends a delivery: done acknowledges it, else it goes back to the server for whoever holds the partition next.
func (l *Loop) answer(d *delivery, done bool) {
	l.mu.Lock()
	delete(l.holding, d)
	l.mu.Unlock()
	var err error
	if done {
		err = d.event.Raw.Ack()
	} else {
		err = d.event.Raw.Nak()
	}
	if err != nil {
		l.log.Debug("could not answer the server, it delivers again", "error", err)
	}
}
