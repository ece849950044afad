package loop

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/nats-io/nuid"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/stoker-k8s/stoker/pkg/api/name"
	"github.com/stoker-k8s/stoker/pkg/events"
)

// A replica may work while its lease lasts: until leaseTTL after the last sign of life that NATS stored. The others take it for dead
// when they heard nothing of it for memberTTL, which is longer, so that a stopped and continued process finds its lease
// over before it does anything. Living replicas compute from the same list whose each partition is (share.go); a partition changes
// hands in the claims that all of them write one after the other (claim.go).
const (
	heartbeat = 4 * time.Second
	leaseTTL  = 6 * time.Second
	memberTTL = 7 * time.Second
	// beatTimeout bounds the wait for the answer to one sign of life.
	beatTimeout = time.Second
	// beatAgain is how long after a sign of life that failed the next one is sent.
	beatAgain = 500 * time.Millisecond
	// beatsPerLook is after how many signs of life a replica looks whether its claims are still there.
	beatsPerLook = 3
)

// clock is the time by which leases end: the machine's, or in tests a clock that a test moves, which moved tells. Signs of life are sent in real
// time.
type clock struct {
	now   func() time.Time
	moved <-chan struct{}
}

// machineClock is the clock of users.
var machineClock = &clock{now: time.Now}

// lease is one replica's right to work on its share of a service's partitions. It is safe for concurrent use.
type lease struct {
	bus     *events.Bus
	service string
	replica string
	// life tells this process from another of the same name.
	life string
	// clock says when the own lease ends, and when the others' leases do.
	clock *clock
	// changed gets the partitions to work on, whenever they change; the loop owns the receiving end.
	changed chan []int
	// regained is called when a lease begins or, after it was over, begins again; lost when the bucket turns out to be gone.
	regained, lost func()
	// count shows how many partitions are worked on.
	count prometheus.Gauge
	// wall is the wall clock.
	wall func() time.Time
	// nudge wakes run: partitions were released.
	nudge chan struct{}

	mu       sync.Mutex
	deadline deadline             // end of the own lease
	members  map[string]time.Time // when last heard
	// claims as they were last read or written. They are rewritten when somebody was heard to write since, and stale when somebody may
	// have.
	claims           claims
	rewritten, stale bool
	sequence         uint64 // of the last sign of life in the bucket
	beats            int    // signs of life so far
	// owned are the partitions that are claimed; of these, leaving are handed over. A partition that another claimed while the own
	// lease was over is leaving and not owned.
	owned, leaving [name.Partitions]bool
	told           []int // what changed last got
	// since is when each of the owned was claimed, by the wall clock.
	since [name.Partitions]time.Time
	// terms count how often each partition was lost, or the lease was over: what began in one term must not go on in the next,
	// though the partition may be held again.
	terms [name.Partitions]int
	// rivalUntil is when this process may hold partitions again after another was heard under the same name.
	rivalUntil time.Time
	// stopping is true when this replica takes no partition any more.
	stopping bool
}

// deadline is a moment by both clocks. While a virtual machine is paused the monotonic clock may stand still; the wall clock is put
// right when it goes on. A wall clock that is set back doesn't put the moment off.
type deadline struct{ monotonic, wall time.Time }

func (d deadline) passed(now, wall time.Time) bool {
	return !now.Before(d.monotonic) || !wall.Round(0).Before(d.wall)
}

func newLease(b *events.Bus, service string, count prometheus.Gauge) *lease {
	return &lease{
		bus: b, service: service, replica: events.Token(b.Config().Replica), life: nuid.Next(), changed: make(chan []int, 1),
		regained: func() {}, lost: func() {}, count: count, clock: machineClock, wall: time.Now, nudge: make(chan struct{}, 1),
		members: map[string]time.Time{}, stale: true,
	}
}

// subject of what this service's replicas tell each other.
func (s *lease) subject(what string) string {
	return "$KV." + events.BucketLeases + "." + s.service + "." + what
}

const (
	keyBeat   = "beat"
	keyClaims = "claims"
	goodbye   = "bye"
)

// over reports whether the lease is over. s.mu is held.
func (s *lease) over() bool { return s.deadline.passed(s.clock.now(), s.wall()) }

// valid reports whether the lease lasts, on whatever partitions.
func (s *lease) valid() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return !s.over()
}

// holds reports whether this replica may work on a partition now.
func (s *lease) holds(partition int) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.owned[partition] && !s.over()
}

// keeps reports whether a partition is this replica's to work on, though perhaps not now: it stays so while the lease is over and
// nobody has claimed the partition.
func (s *lease) keeps(partition int) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.owned[partition] && !s.leaving[partition]
}

// term of a partition: a turn may go on while it is that in which it began.
func (s *lease) term(partition int) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.terms[partition]
}

// release gives partitions up that the loop has handed over. Only now may another replica claim them.
func (s *lease) release(partitions []int) {
	s.mu.Lock()
	for _, p := range partitions {
		s.owned[p], s.leaving[p] = false, false
		s.terms[p]++
	}
	s.mu.Unlock()
	s.wake()
}

// wake has run look at the claims.
func (s *lease) wake() {
	select {
	case s.nudge <- struct{}{}:
	default:
	}
}

// stop has the replica claim nothing any more.
func (s *lease) stop() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.stopping = true
}

// run keeps the lease until ctx ends, then says goodbye.
func (s *lease) run(ctx context.Context) error {
	heard := make(chan *nats.Msg, 256)
	sub, err := s.bus.Conn().ChanSubscribe(s.subject(">"), heard)
	if err != nil {
		return events.Classify(err)
	}
	defer func() { _ = sub.Unsubscribe() }()
	due := time.Now()
	timer := time.NewTimer(0)
	for {
		select {
		case <-ctx.Done():
			last, cancel := context.WithTimeout(context.WithoutCancel(ctx), events.RequestTimeout)
			defer cancel()
			s.leave(last)
			return nil
		case m := <-heard:
			if s.hear(m) {
				due = time.Now() // a newcomer learns of us at once
			}
		case <-s.nudge:
		case <-s.clock.moved:
			due = time.Now()
		case <-timer.C:
		}
		if len(heard) > 0 {
			continue // a claim is made by everything that is known
		}
		if now := time.Now(); !now.Before(due) {
			// All at the same moments, so that processes and servers wake once for many.
			due = now.Add(heartbeat - now.Round(0).Sub(now.Truncate(heartbeat)))
			if !s.beat(ctx) {
				due = time.Now().Add(beatAgain)
			}
		}
		s.assign(ctx)
		now := s.clock.now()
		timer.Reset(s.next(now.Add(time.Until(due))).Sub(now))
	}
}

// next is when something is to be done: the sign of life that is due, or a replica that was not heard for too long by then.
func (s *lease) next(due time.Time) time.Time {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.over() { // nothing is done about others
		return due
	}
	for replica, at := range s.members {
		if gone := at.Add(memberTTL + time.Millisecond); replica != s.replica && gone.Before(due) {
			due = gone
		}
	}
	return due
}

// beat renews the lease. This replica counts its lease from before the sign of life was sent, the others from when they hear it. It
// returns false when that failed.
func (s *lease) beat(ctx context.Context) bool {
	ask, cancel := context.WithTimeout(ctx, beatTimeout)
	defer cancel()
	sent, wall := s.clock.now(), s.wall().Round(0)
	msg := nats.NewMsg(s.subject(keyBeat))
	msg.Data = []byte(s.replica + " " + s.life)
	ack, err := s.bus.JetStream().PublishMsg(ask, msg)
	if err != nil {
		s.findCause(ctx)
		s.silenced(ctx, err)
		return false
	}
	s.mu.Lock()
	s.members[s.replica] = sent
	// Others may have claimed everything while the lease was over, or else the bucket may be another one, without our claims.
	uncertain := s.over() || ack.Sequence <= s.sequence
	s.sequence, s.stale = ack.Sequence, true
	s.beats++
	// A bucket that was made anew may have come as far as the lost one was.
	s.rewritten = s.rewritten || s.beats%beatsPerLook == 0
	if uncertain {
		s.deadline, s.claims = deadline{}, claims{} // what was heard of others is old, too
		for p := range s.terms {
			s.terms[p]++
		}
	}
	s.mu.Unlock()
	for try := 0; uncertain && !s.claim(context.WithoutCancel(ctx), true); try++ {
		if try == 3 {
			return false
		}
	}
	s.mu.Lock()
	s.deadline = deadline{sent.Add(leaseTTL), wall.Add(leaseTTL)}
	s.count.Set(float64(len(s.told)))
	s.mu.Unlock()
	s.bus.Config().Health.Up(leaseDependency)
	if uncertain {
		s.regained()
	}
	return true
}

// leaseDependency is in /readyz whether signs of life are stored. A server that answers is not enough for that: without a quorum it stores
// nothing.
const leaseDependency = "nats lease"

// silenced says that this replica isn't ready once its lease is over, for it does nothing then.
func (s *lease) silenced(ctx context.Context, cause error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.over() && ctx.Err() == nil {
		s.bus.Config().Health.Down(leaseDependency, fmt.Errorf("no sign of life is stored: %w", cause))
	}
}

// findCause looks why a sign of life failed. A server that is silent is left for another one. A bucket that isn't there is reported as
// lost: nobody answers for a stream that isn't, but the others' ears on its subjects look like an answer to come.
func (s *lease) findCause(ctx context.Context) {
	ask, cancel := context.WithTimeout(ctx, beatTimeout)
	defer cancel()
	if s.bus.LeaveSilentServer(ask) {
		return
	}
	if _, err := s.bus.JetStream().Stream(ask, "KV_"+events.BucketLeases); errors.Is(err, jetstream.ErrStreamNotFound) {
		s.lost()
	}
}

// hear notes what another replica says; it reports whether that replica was unknown.
func (s *lease) hear(m *nats.Msg) (unknown bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch m.Subject {
	case s.subject(keyClaims):
		s.rewritten = true
	case s.subject(keyBeat):
		replica, rest, _ := strings.Cut(string(m.Data), " ")
		life, word, _ := strings.Cut(rest, " ")
		switch {
		case replica == s.replica:
			s.rival(life)
		case word == goodbye:
			delete(s.members, replica)
		default:
			_, known := s.members[replica]
			s.members[replica] = s.clock.now()
			return !known
		}
	}
	return false
}

// rival notes a process of this replica's name. Both would hold that name's partitions: the one whose life sorts first yields.
// s.mu is held.
func (s *lease) rival(life string) {
	if life <= s.life {
		return
	}
	if s.clock.now().After(s.rivalUntil) {
		s.bus.Config().Log.Error("another process has this replica's name and works in its place; give each its own (--replica)", "replica", s.replica)
		s.bus.Config().Health.Down("replica name", errors.New("another process calls itself "+s.replica))
	}
	s.rivalUntil = s.clock.now().Add(memberTTL)
	for p := range s.owned {
		if s.owned[p] {
			s.drop(p)
		}
	}
}

// drop takes a partition for lost, which another works on; what goes on here is fenced at once. s.mu is held.
func (s *lease) drop(p int) {
	s.owned[p], s.leaving[p] = false, true
	s.terms[p]++
}

// leave gives up the claims that are left and says goodbye, so that others needn't wait.
func (s *lease) leave(ctx context.Context) {
	s.stop()
	s.mu.Lock()
	s.owned, s.leaving = [name.Partitions]bool{}, [name.Partitions]bool{}
	s.mu.Unlock()
	for ctx.Err() == nil && s.bus.Conn().IsConnected() && !s.claim(ctx, false) {
		sleep(ctx, 50*time.Millisecond)
	}
	msg := nats.NewMsg(s.subject(keyBeat))
	msg.Data = []byte(s.replica + " " + s.life + " " + goodbye)
	if _, err := s.bus.JetStream().PublishMsg(ctx, msg); err != nil {
		s.bus.Config().Log.Warn("could not say goodbye, others take over after a time-out", "error", err)
	}
}

// assign gives up what is no longer this replica's share and claims what is and can be had. At rest it asks nobody anything.
func (s *lease) assign(ctx context.Context) {
	s.mu.Lock()
	now := s.clock.now()
	maps.DeleteFunc(s.members, func(r string, heard time.Time) bool { return r != s.replica && now.Sub(heard) > memberTTL })
	if !s.rivalUntil.IsZero() && now.After(s.rivalUntil) {
		s.rivalUntil = time.Time{}
		s.bus.Config().Health.Up("replica name")
	}
	if s.over() { // what is known of others may be old as well
		s.count.Set(0)
		s.mu.Unlock()
		return
	}
	want, ask := s.want(), s.rewritten
	for p := range name.Partitions {
		if s.owned[p] && !want[p] {
			s.leaving[p] = true
		}
		ask = ask || s.differs(want, p)
	}
	s.tell()
	s.mu.Unlock()
	if ask {
		s.claim(ctx, false)
	}
}

// want is the share of this replica. s.mu is held.
func (s *lease) want() (want [name.Partitions]bool) {
	if s.stopping || !s.rivalUntil.IsZero() {
		return want
	}
	for _, p := range share(slices.Sorted(maps.Keys(s.members)), s.replica) {
		want[p] = true
	}
	return want
}

// tell tells the loop which partitions to work on, if they changed. s.mu is held.
func (s *lease) tell() {
	var work []int
	for p := range name.Partitions {
		if s.owned[p] && !s.leaving[p] {
			work = append(work, p)
		}
	}
	if slices.Equal(work, s.told) {
		return
	}
	s.told = work
	s.count.Set(float64(len(work)))
	select { // only the latest counts
	case <-s.changed:
	default:
	}
	s.changed <- slices.Clone(work)
}
