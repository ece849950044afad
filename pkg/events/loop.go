package events

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"time"

	ce "github.com/cloudevents/sdk-go/v2/event"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/stoker-k8s/stoker/pkg/api/name"
)

// maxDeliveries is how often an event may outlive the replica that works on it before it counts as the cause.
const maxDeliveries = 20

// Handler is a service: it makes so what must be so for one object, or says why not. It is called again for as long as it
// returns an error; the kind of error says how (Unavailable, Permanent, anything else: retry with backoff, then give up).
// Everything it does must be harmless to repeat.
type Handler func(ctx context.Context, t *Turn) error

// Wake tells a loop that something about an object changed. It never blocks.
type Wake func(key Key, reason string)

// Loop is the one loop of a service: its consumers, one per partition it holds, the order of work per object, retries,
// dead letters. Fields are set before Run and not changed after.
type Loop struct {
	Bus *Bus
	// Service is the name of the service, and of its key and consumers.
	Service string
	Handle  Handler
	// Paused is called in Handle's place for a tenant that is paused, and lets go of what the service holds in memory for
	// it: connections, places in a queue. May be nil.
	Paused func(Key)
	// Known reports whether a service knows what watches saw of an object, so that it needs no turn for it. May be nil.
	Known func(key Key, reasons []string) bool
	// Classify gives errors of the service's own dependencies their intent; may be nil.
	Classify func(error) error
	// Watch runs watches for the partitions this replica holds until ctx ends; it is started anew when they change. May
	// be nil.
	Watch func(ctx context.Context, partitions []int, wake Wake) error
	// Ensure is called before consuming and again when streams turn out to be gone; intake provisions. May be nil.
	Ensure func(ctx context.Context) error
	// Commands makes the loop consume commands besides facts.
	Commands bool
	// Workers bounds how many objects are worked on side by side; 0 means 16.
	Workers int

	log     *slog.Logger
	shares  *shares
	slots   chan struct{}
	runCtx  context.Context
	mu      sync.Mutex
	lanes   map[Key]*lane
	holding map[*delivery]struct{} // received, not yet answered
	settled map[Key]bool           // the facts of the own state are known to be published
	alarms  *alarms
	lost    chan struct{}
	wg      sync.WaitGroup
}

// Event is a delivered command or fact.
type Event struct {
	ce.Event
	// Service and What of a fact, empty for a command.
	Service, What string
	// Err is set when the message is no valid CloudEvent; Event is then empty.
	Err error
	// Raw is the message as it came.
	Raw jetstream.Msg
}

// delivery is an event on its way through a lane.
type delivery struct {
	event     Event
	partition int
	again     bool // delivered before
	count     uint64
}

// Run works until ctx ends; then it finishes or hands back what it holds and returns. It returns early only with an error
// that no waiting helps.
func (l *Loop) Run(ctx context.Context) error {
	if l.Workers == 0 {
		l.Workers = 16
	}
	l.log = l.Bus.log
	l.slots = make(chan struct{}, l.Workers)
	l.lanes, l.holding, l.settled = map[Key]*lane{}, map[*delivery]struct{}{}, map[Key]bool{}
	l.lost, l.alarms = make(chan struct{}, 1), &alarms{wake: l.wake}
	l.shares = newShares(l.Bus, l.Service)
	l.shares.lost = l.noteLost
	// Turns may finish after ctx has ended, for as long as stopGrace.
	turns, endTurns := context.WithCancel(context.WithoutCancel(ctx))
	defer endTurns()
	l.runCtx = turns

	l.ensure(ctx)
	leaseCtx, endLease := context.WithCancel(context.WithoutCancel(ctx))
	leaseDone := make(chan error, 1)
	go func() { leaseDone <- l.shares.run(leaseCtx) }()
	aliveDone := make(chan struct{})
	go func() { defer close(aliveDone); l.keepAlive(turns) }()

	workers := map[int]*worker{}
	var endWatch func()
	stopWatch := func() {
		if endWatch != nil {
			endWatch()
			endWatch = nil
		}
	}
	settle := func(owned []int) {
		var gone []*worker
		for p, w := range workers {
			if !slices.Contains(owned, p) {
				gone = append(gone, w)
				delete(workers, p)
			}
		}
		stopWatch()
		l.release(gone) //nolint:contextcheck // turns end after ctx has, that is the point
		for _, p := range owned {
			if workers[p] == nil {
				workers[p] = l.startWorker(ctx, p)
			}
		}
		if len(owned) > 0 {
			endWatch = l.startWatch(ctx, owned)
		}
	}
	var err error
	owned := []int{}
loop:
	for {
		select {
		case <-ctx.Done():
			break loop
		case err = <-leaseDone:
			leaseDone <- nil
			break loop
		case owned = <-l.shares.changed:
			l.log.Debug("partitions", "held", owned)
			settle(owned)
		case <-l.lost:
			l.ensure(ctx)
			l.mu.Lock()
			clear(l.settled)
			l.mu.Unlock()
			stopWatch()
			if len(owned) > 0 {
				endWatch = l.startWatch(ctx, owned)
			}
		}
	}
	settle(nil)
	endLease() // the goodbye goes out when nothing is held any more
	<-leaseDone
	endTurns()
	<-aliveDone
	l.wg.Wait()
	return err
}

// ensure calls Ensure until it succeeds; a NATS that isn't there yet is waited for.
func (l *Loop) ensure(ctx context.Context) {
	if l.Ensure == nil {
		return
	}
	wait := newBackoff()
	for {
		err := l.Ensure(ctx)
		if err == nil || ctx.Err() != nil {
			return
		}
		if u := (*Unavailable)(nil); !errors.As(classify(err), &u) && !errors.Is(err, context.DeadlineExceeded) {
			l.log.Error("could not provision NATS, trying again", "error", err)
		}
		sleep(ctx, wait.Step())
	}
}

// startWatch starts the watches for a set of partitions; the returned function ends them and waits.
func (l *Loop) startWatch(ctx context.Context, owned []int) func() {
	if l.Watch == nil {
		return func() {}
	}
	ctx, cancel := context.WithCancel(ctx)
	done := make(chan struct{})
	go func() {
		defer close(done)
		wait := newBackoff()
		for ctx.Err() == nil {
			err := l.Watch(ctx, owned, l.wake)
			if err == nil || ctx.Err() != nil {
				return
			}
			l.log.Warn("watch ended, starting it again", "error", err)
			sleep(ctx, wait.Step())
		}
	}()
	return func() { cancel(); <-done }
}

// wake is given to watches.
func (l *Loop) wake(key Key, reason string) {
	if l.shares.held(key.Partition()) {
		l.enqueue(key, nil, reason)
	}
}

// worker consumes one partition.
type worker struct {
	partition int
	cancel    context.CancelFunc
	done      chan struct{}
	streams   []string
}

func (l *Loop) startWorker(ctx context.Context, partition int) *worker {
	ctx, cancel := context.WithCancel(ctx)
	w := &worker{partition: partition, cancel: cancel, done: make(chan struct{}), streams: []string{StreamFacts}}
	if l.Commands {
		w.streams = append(w.streams, StreamIntake)
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
	durable := consumer(l.Service, partition)
	wait, again := newBackoff(), false
	for ctx.Err() == nil {
		err := l.consumeOnce(ctx, stream, durable, partition, again)
		again = true
		if ctx.Err() != nil {
			return
		}
		if errors.Is(err, jetstream.ErrConsumerNotFound) || errors.Is(err, jetstream.ErrStreamNotFound) ||
			errors.Is(err, jetstream.ErrConsumerDeleted) {
			l.Bus.health.Down("nats streams", fmt.Errorf("%s %s: %w", stream, durable, err))
			l.noteLost()
		}
		sleep(ctx, wait.Step())
	}
}

// noteLost makes Run provision again and look at everything anew.
func (l *Loop) noteLost() {
	select {
	case l.lost <- struct{}{}:
	default:
	}
}

// consumeOnce receives until ctx ends or the consumer breaks. Again says that it broke before.
func (l *Loop) consumeOnce(ctx context.Context, stream, durable string, partition int, again bool) error {
	ask, cancel := context.WithTimeout(ctx, requestTimeout)
	c, err := l.Bus.js.Consumer(ask, stream, durable)
	if err == nil && (again || l.shares.revived) {
		// The pin of the process that had our name and died, or of our own last try; nobody else may lift it.
		if s, e := l.Bus.js.Stream(ask, stream); e == nil {
			_ = s.UnpinConsumer(ask, durable, priorityGroup)
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
		jetstream.PullPriorityGroup(priorityGroup),
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
	l.Bus.health.Up("nats streams")
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
	key, _, service, what, err := parseSubject(m.Subject())
	if err != nil { // the filter lets no such subject through
		l.log.Error("message on an unknown subject", "subject", m.Subject())
		_ = m.TermWithReason("unknown subject")
		return
	}
	if meta, err := m.Metadata(); err == nil {
		d.count = meta.NumDelivered
		d.again = meta.NumDelivered > 1
	}
	if d.again {
		l.Bus.metrics.redeliveries.Inc()
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
	l.enqueue(key, d, "")
}

// decode is Decode for what anybody may have sent: here, a panic would end the process again and again.
func decode(m jetstream.Msg) (e ce.Event, err error) {
	defer func() {
		if r := recover(); r != nil {
			e, err = ce.Event{}, &AttributeError{"data", "", fmt.Sprintf("can't be decoded: %v", r)}
		}
	}()
	return Decode(m.Headers(), m.Data())
}

func ownTimer(scheduler string, key Key, service, what string) bool {
	return scheduler == key.TimerSubject(service, what)
}

// keepAlive tells the server now and then that what this replica holds is being worked on.
func (l *Loop) keepAlive(ctx context.Context) {
	tick := time.NewTicker(ackWait / 4)
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
		l.Bus.metrics.pending.Set(float64(len(held)))
		for _, d := range held {
			if l.shares.held(d.partition) {
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

// stopGrace is how long turns may go on after their partition is given up.
const stopGrace = 5 * time.Second

// release stops consuming partitions, lets their turns finish and hands everything else back.
func (l *Loop) release(gone []*worker) {
	if len(gone) == 0 {
		return
	}
	partitions := map[int]bool{}
	for _, w := range gone {
		w.cancel()
		partitions[w.partition] = true
	}
	for _, w := range gone {
		<-w.done
	}
	var leaving []*lane
	l.mu.Lock()
	for key, ln := range l.lanes {
		if partitions[key.Partition()] {
			leaving = append(leaving, ln)
			ln.close()
		}
	}
	for key := range l.settled {
		if partitions[key.Partition()] {
			delete(l.settled, key)
		}
	}
	l.mu.Unlock()
	grace := time.NewTimer(stopGrace)
	defer grace.Stop()
	for _, ln := range leaving {
		select {
		case <-ln.done:
		case <-grace.C:
			grace.Reset(0)
			ln.cancel()
			<-ln.done
		}
	}
	l.alarms.stop(func(key Key) bool { return partitions[key.Partition()] })
	// Lift the pins so that the next holder needn't wait for their time-out.
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Second)
	defer cancel()
	if !l.Bus.nc.IsConnected() {
		return
	}
	for _, stream := range gone[0].streams {
		s, err := l.Bus.js.Stream(ctx, stream)
		if err != nil {
			return
		}
		for _, w := range gone {
			_ = s.UnpinConsumer(ctx, consumer(l.Service, w.partition), priorityGroup)
		}
	}
}

func sleep(ctx context.Context, d time.Duration) {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
	case <-t.C:
	}
}

// Filter returns the label selector that limits a watch to partitions, empty when they are all.
func Filter(partitions []int) string {
	if len(partitions) == name.Partitions {
		return name.LabelPartition
	}
	s := name.LabelPartition + " in ("
	for i, p := range partitions {
		if i > 0 {
			s += ","
		}
		s += fmt.Sprint(p)
	}
	return s + ")"
}
