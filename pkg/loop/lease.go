package loop

import (
	"context"
	"errors"
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

// Replicas of a service tell each other that they live, and each computes from the same list which partitions are whose.
// A replica that could not tell it for leaseTTL stops by itself; the others wait memberTTL before they take over, so that
// even a stopped and continued process finds its lease gone before it does anything. The server's pin on each consumer
// holds where the replicas' views differ for a moment.
const (
	heartbeat = time.Second
	leaseTTL  = 4 * time.Second
	memberTTL = 5 * time.Second
)

// lease is one replica's right to work on its share of a service's partitions. It is safe for concurrent use.
type lease struct {
	bus     *events.Bus
	service string
	replica string
	// changed gets the partitions this replica holds, whenever they change; the loop owns the receiving end.
	changed chan []int
	// lost is called when the bucket turns out to be gone.
	lost func()
	// count shows how many partitions are held.
	count prometheus.Gauge

	mu       sync.Mutex
	members  map[string]time.Time // when last heard
	owned    []int
	deadline time.Time // end of the own lease
	// terms count how often each partition was lost: what began in one term must not go on in the next, though the partition
	// may have come back meanwhile.
	terms [name.Partitions]int
	// rivalUntil is when this process may hold partitions again after another was heard under the same name.
	rivalUntil time.Time
	// life tells this process from another of the same name.
	life string
	// revived is true when a replica of this name lived shortly before: its pins are ours to lift.
	revived bool
}

func newLease(b *events.Bus, service string, lost func(), count prometheus.Gauge) *lease {
	return &lease{
		bus: b, service: service, replica: events.Token(b.Config().Replica), changed: make(chan []int, 1), lost: lost, count: count,
		members: map[string]time.Time{}, life: nuid.Next(),
	}
}

func (s *lease) subject(replica string) string {
	return "$KV." + events.BucketReplica + "." + s.service + "." + replica
}

// holds reports whether this replica may work on a partition now.
func (s *lease) holds(partition int) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return time.Now().Before(s.deadline) && slices.Contains(s.owned, partition)
}

// term of a partition: a turn may go on while it is that in which it began.
func (s *lease) term(partition int) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.terms[partition]
}

// end ends the term of partitions. s.mu is held.
func (s *lease) end(partitions []int) {
	for _, p := range partitions {
		s.terms[p]++
	}
}

// run keeps the lease until ctx ends, then says goodbye.
func (s *lease) run(ctx context.Context) error {
	heard := make(chan *nats.Msg, 256)
	sub, err := s.bus.Conn().ChanSubscribe(s.subject("*"), heard)
	if err != nil {
		return events.Classify(err)
	}
	defer func() { _ = sub.Unsubscribe() }()
	_ = s.recall(ctx, false)
	s.beat(ctx)
	s.assign()
	tick := time.NewTicker(heartbeat)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			s.leave() //nolint:contextcheck // ctx has ended
			return nil
		case m := <-heard:
			if s.hear(m) {
				s.beat(ctx) // a newcomer learns of us at once
			}
		case <-tick.C:
			s.beat(ctx)
		}
		s.assign()
	}
}

// recall reads who lived a moment ago, so that a replica that is new, or was cut off, doesn't take what others hold. announced
// says that this replica's own sign of life is already in the bucket; its time of storage then is the server's clock.
func (s *lease) recall(ctx context.Context, announced bool) error {
	lived, err := s.bus.LastHeard(ctx)
	if err != nil {
		return err
	}
	now := time.Now()
	if at, ok := lived[s.replica]; ok && announced {
		now = at
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for replica, at := range lived {
		switch {
		case now.Sub(at) > memberTTL:
		case replica != s.replica:
			s.members[replica] = time.Now()
		case !announced:
			s.revived = true
		}
	}
	return nil
}

// beat renews the lease. This replica counts its lease from before the write was sent, the others from
// when they hear of it.
func (s *lease) beat(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, heartbeat)
	defer cancel()
	sent := time.Now()
	msg := nats.NewMsg(s.subject(s.replica))
	msg.Data = []byte(s.life)
	if _, err := s.bus.JetStream().PublishMsg(ctx, msg); err != nil {
		// Nobody answers for a stream that isn't there, but the others' ears on its subject look like an answer to come.
		ask, cancel := context.WithTimeout(context.WithoutCancel(ctx), heartbeat)
		defer cancel()
		if _, err := s.bus.JetStream().KeyValue(ask, events.BucketReplica); errors.Is(err, jetstream.ErrBucketNotFound) {
			s.lost()
		}
		return
	}
	s.mu.Lock()
	lapsed := !time.Now().Before(s.deadline)
	s.mu.Unlock()
	if lapsed && s.recall(context.WithoutCancel(ctx), true) != nil {
		return // others may hold everything by now
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if lapsed {
		s.end(s.owned)
		s.owned = nil
	}
	s.deadline = sent.Add(leaseTTL)
	s.members[s.replica] = sent
}

// hear notes another replica's sign of life or goodbye; it reports whether that replica was unknown.
func (s *lease) hear(m *nats.Msg) bool {
	replica := m.Subject[strings.LastIndexByte(m.Subject, '.')+1:]
	s.mu.Lock()
	defer s.mu.Unlock()
	if op := m.Header.Get("KV-Operation"); op != "" {
		if replica != s.replica {
			delete(s.members, replica)
		}
		return false
	}
	if replica == s.replica {
		// Two processes of one name would both hold that name's partitions: the one whose life sorts first yields.
		if life := string(m.Data); life != s.life && life > s.life {
			if time.Now().After(s.rivalUntil) {
				s.bus.Config().Log.Error("another process has this replica's name and works in its place; give each its own (--replica)", "replica", s.replica)
				s.bus.Config().Health.Down("replica name", errors.New("another process calls itself "+s.replica))
			}
			s.rivalUntil = time.Now().Add(memberTTL)
		}
		return false
	}
	_, known := s.members[replica]
	s.members[replica] = time.Now()
	return !known
}

// leave hands the partitions over at once.
func (s *lease) leave() {
	s.mu.Lock()
	s.deadline, s.owned = time.Time{}, nil
	s.mu.Unlock()
	ctx, cancel := context.WithTimeout(context.Background(), heartbeat)
	defer cancel()
	msg := nats.NewMsg(s.subject(s.replica))
	msg.Header.Set("KV-Operation", "DEL")
	if _, err := s.bus.JetStream().PublishMsg(ctx, msg); err != nil && !errors.Is(err, nats.ErrConnectionClosed) {
		s.bus.Config().Log.Warn("could not say goodbye, others take over after a time-out", "error", err)
	}
}

// assign computes the own share and tells the loop when it changed.
func (s *lease) assign() {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := time.Now()
	maps.DeleteFunc(s.members, func(r string, heard time.Time) bool { return now.Sub(heard) > memberTTL })
	var owned []int
	if !s.rivalUntil.IsZero() && now.After(s.rivalUntil) {
		s.rivalUntil = time.Time{}
		s.bus.Config().Health.Up("replica name")
	}
	if now.Before(s.deadline) && s.rivalUntil.IsZero() {
		owned = share(slices.Sorted(maps.Keys(s.members)), s.replica)
	}
	if slices.Equal(owned, s.owned) {
		return
	}
	s.end(slices.DeleteFunc(s.owned, func(p int) bool { return slices.Contains(owned, p) }))
	s.owned = owned
	s.count.Set(float64(len(owned)))
	select { // only the latest counts
	case <-s.changed:
	default:
	}
	s.changed <- slices.Clone(owned)
}
