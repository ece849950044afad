package loop

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/stoker-k8s/stoker/pkg/api/state"
	"github.com/stoker-k8s/stoker/pkg/events"
	"github.com/stoker-k8s/stoker/pkg/health"
	"github.com/stoker-k8s/stoker/pkg/intent"
	"github.com/stoker-k8s/stoker/pkg/partition"
)

// Handler is a service: it makes so what must be so for one object, or says why not. It is called again for as long as it
// returns an error; the error's intent says how ([intent.Of]). Everything it does must be harmless to repeat.
type Handler func(ctx context.Context, t *Turn) error

// maxTurns bounds how many objects a replica works on side by side, maxFailing how many of them may be such whose last try failed.
const maxTurns, maxFailing = 16, maxTurns / 4

// Loop is the one loop of a service: its consumers, one per partition it holds, the order of work per object, retries, dead
// letters. Fields are set before Run and not changed after.
type Loop struct {
	Bus *events.Bus
	// Service is the name of the service and of its consumers, and (but for intake, whose key is spec) of its key in buckets.
	Service string
	Handle  Handler
	// Paused is called in Handle's place for a tenant that is paused, and lets go of what the service holds in memory for
	// it: connections, places in a queue. It writes nothing. May be nil.
	Paused func(*Turn)
	// Known reports whether a service knows what watches saw of an object, so that it needs no turn for it. May be nil.
	Known func(key events.Key, wakes []Wake) bool
	// Watch runs watches for the partitions this replica holds, as they change, until ctx ends. At its start, and for each partition
	// that is gained, it wakes whom nobody may have worked on; for those that stay it goes on. It is started when the replica first
	// holds partitions, and anew when it returns an error and when streams turn out to be gone. May be nil.
	Watch func(ctx context.Context, held *partition.Held, wake Waker) error
	// Ensure is called before consuming and again when streams turn out to be gone, perhaps twice at once; intake provisions. May be nil.
	Ensure func(ctx context.Context) error
	// Commands makes the loop consume commands besides facts.
	Commands bool
	// TurnTimeout bounds one turn; 0: 30 s. Steps that wait longer for the world end their turn and are woken.
	TurnTimeout time.Duration
	// Metrics may be nil.
	Metrics prometheus.Registerer

	log     *slog.Logger
	health  *health.Health
	metrics *metrics
	lease   *lease
	running chan struct{}   // has an element for each turn that goes on
	failing chan struct{}   // likewise, for those whose last try failed
	turns   context.Context // outlives Run's by stopGrace
	alarms  *alarms
	// lost gets true when streams turned out to be gone, false when it is the bucket of leases alone.
	lost chan bool
	// againAfter is tryAgainAfter, but in tests.
	againAfter func(own *state.State, now time.Time) time.Duration
	// driftEvery is how often what keeps drifting is put right: the constant of that name, but in tests.
	driftEvery time.Duration
	// clock is the lease's: machineClock if nil.
	clock *clock
	// ackWait is how long the server waits for a word about an event: the constant if zero.
	ackWait time.Duration
	wg      sync.WaitGroup

	mu        sync.Mutex
	lanes     map[events.Key]*lane
	holding   map[origin]*delivery    // received, not yet answered
	published map[events.Key]uint64   // revision of the own state whose facts are known to be in the stream
	owing     map[events.Key]struct{} // objects whose facts may lack there
	created   map[string]time.Time    // of the streams that are consumed, as last seen
	drifts    map[events.Key]*drifts
}

// Run works until ctx ends; then it finishes or hands back what it holds and returns. It returns early only with an error
// that no waiting helps.
func (l *Loop) Run(ctx context.Context) error {
	// Turns may finish after ctx has ended, for as long as stopGrace.
	turns, endTurns := context.WithCancel(context.WithoutCancel(ctx))
	defer endTurns()
	l.prepare(turns)

	if l.Ensure != nil {
		l.wg.Go(func() { l.keepStreams(ctx) }) // beside the rest, for a new stream may have to wait for a server that is away
	}
	l.ensure(ctx)
	leaseCtx, endLease := context.WithCancel(context.WithoutCancel(ctx))
	defer endLease()
	defer l.answerAsReplica()()
	leaseDone := make(chan error, 1)
	go func() { leaseDone <- l.lease.run(leaseCtx) }()

	work := &partitions{loop: l, held: partition.Of(), consumers: map[int]*partitionConsumer{}}
	var err error
	for ended := false; !ended; {
		select {
		case <-ctx.Done():
			ended = true
		case err = <-leaseDone:
			leaseDone <- nil
			ended = true
		case held := <-l.lease.changed:
			l.log.Info("partitions", "held", held)
			work.hold(ctx, held)
		case streams := <-l.lost:
			l.ensure(ctx)
			if !streams {
				continue
			}
			l.mu.Lock()
			clear(l.published)
			l.mu.Unlock()
			work.stopWatch()
			work.watch(ctx)
		}
	}
	l.lease.stop()
	work.stopWatch()
	work.hold(ctx, nil)
	work.handingOver.Wait()
	endLease() // the goodbye goes out when nothing is held any more
	<-leaseDone
	endTurns()
	l.wg.Wait()
	return err
}

func (l *Loop) prepare(turns context.Context) {
	cfg := l.Bus.Config()
	l.log, l.health, l.metrics = cfg.Log, cfg.Health, newMetrics()
	l.running, l.failing, l.turns = make(chan struct{}, maxTurns), make(chan struct{}, maxFailing), turns
	l.lanes, l.holding, l.published = map[events.Key]*lane{}, map[origin]*delivery{}, map[events.Key]uint64{}
	l.owing, l.drifts, l.created = map[events.Key]struct{}{}, map[events.Key]*drifts{}, map[string]time.Time{}
	l.lost, l.alarms = make(chan bool, 1), &alarms{wake: l.wake}
	l.TurnTimeout = cmp.Or(l.TurnTimeout, turnTimeout)
	if l.againAfter == nil {
		l.againAfter = tryAgainAfter
	}
	if l.driftEvery == 0 {
		l.driftEvery = driftEvery
	}
	l.lease = newLease(l.Bus, l.Service, l.metrics.partitions)
	if l.lease.regained = l.tryNow; l.clock != nil {
		l.lease.clock, l.lease.wall = l.clock, l.clock.now
	}
	if l.Ensure != nil {
		l.lease.lost = l.noteLeasesLost
	}
	if l.Metrics != nil {
		l.metrics.register(l.Metrics, l)
	}
}

// partitions is what Run consumes and watches at the moment. It belongs to Run's goroutine.
type partitions struct {
	loop      *Loop
	held      *partition.Held            // followed by the watches
	consumers map[int]*partitionConsumer // by partition
	endWatch  func()                     // nil when nothing is watched
	// handingOver is what was held and is not yet released; it goes on beside the work on the rest.
	handingOver sync.WaitGroup
}

// hold makes these the partitions that are worked on: it hands back the others and begins with what is new.
func (p *partitions) hold(ctx context.Context, held []int) {
	var gone []*partitionConsumer
	for of, w := range p.consumers {
		if !slices.Contains(held, of) {
			gone = append(gone, w)
			delete(p.consumers, of)
		}
	}
	if len(gone) > 0 {
		p.handingOver.Go(func() { p.loop.handOver(gone) })
	}
	for _, of := range held {
		if p.consumers[of] == nil {
			p.consumers[of] = p.loop.startConsumer(ctx, of)
		}
	}
	p.held.Hold(held)
	p.watch(ctx)
}

// watch starts the watches, unless they run or there is nothing to watch yet.
func (p *partitions) watch(ctx context.Context) {
	if p.endWatch == nil && len(p.consumers) > 0 {
		p.endWatch = p.loop.startWatch(ctx, p.held)
	}
}

func (p *partitions) stopWatch() {
	if p.endWatch != nil {
		p.endWatch()
		p.endWatch = nil
	}
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
		if intent.Of(events.Classify(err)) != intent.Wait && !errors.Is(err, context.DeadlineExceeded) {
			l.log.Error("could not provision NATS, trying again", "error", err)
		}
		sleep(ctx, wait.Step())
	}
}

// keepStreams calls Ensure whenever a stream that is not consumed may be gone, until ctx ends.
func (l *Loop) keepStreams(ctx context.Context) {
	if err := l.Bus.HearDeleted(ctx, func() { l.ensure(ctx) }); err != nil {
		l.log.Error("the loss of streams that nobody consumes will not be noticed", "error", err)
	}
}

// startWatch starts the watches; the returned function ends them and waits.
func (l *Loop) startWatch(ctx context.Context, held *partition.Held) func() {
	if l.Watch == nil {
		return func() {}
	}
	ctx, cancel := context.WithCancel(ctx)
	done := make(chan struct{})
	go func() {
		defer close(done)
		wait := newBackoff()
		for ctx.Err() == nil {
			err := l.Watch(ctx, held, l.wake)
			if err == nil || ctx.Err() != nil {
				return
			}
			l.log.Warn("watch ended, starting it again", "error", err)
			sleep(ctx, wait.Step())
		}
	}()
	return func() { cancel(); <-done }
}

// noteLost makes Run provision again and look at everything anew.
func (l *Loop) noteLost() {
	select {
	case <-l.lost:
	default:
	}
	select {
	case l.lost <- true:
	default:
	}
}

// noteLeasesLost makes Run provision again.
func (l *Loop) noteLeasesLost() {
	select {
	case l.lost <- false:
	default:
	}
}

// tryNow has every lane that waits for a retry try at once: the lease was over, and is held again.
func (l *Loop) tryNow() {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, n := range l.lanes {
		select {
		case n.news <- struct{}{}:
		default:
		}
	}
}

// stateKey is the key of the service's state in a tenant's bucket.
func (l *Loop) stateKey() string { return events.StateKey(l.Service) }

func sleep(ctx context.Context, d time.Duration) {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
	case <-t.C:
	}
}
