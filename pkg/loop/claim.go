package loop

import (
	"context"
	"encoding/json"
	"errors"
	"slices"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/stoker-k8s/stoker/pkg/api/name"
	"github.com/stoker-k8s/stoker/pkg/events"
)

// claims say who holds each partition of a service: one message, which each replica writes on top of the one that it read. So of two
// that claim the same partition one is refused, whatever each believes about the other.
type claims struct {
	// Holders are replicas by partition, empty where nobody holds it.
	Holders [name.Partitions]string `json:"holders"`
	// Written counts how often each replica wrote: one whose number grew was alive.
	Written map[string]int `json:"written"`
}

// differs reports whether a partition's claim may have to be written. s.mu is held.
func (s *lease) differs(want [name.Partitions]bool, p int) bool {
	if s.owned[p] || s.leaving[p] {
		return s.claims.Holders[p] != s.replica && s.owned[p]
	}
	return s.claims.Holders[p] == s.replica && s.rivalUntil.IsZero() || want[p] && (s.stale || !s.lives(s.claims.Holders[p]))
}

// lives reports whether a replica lives, as far as is known here. s.mu is held.
func (s *lease) lives(replica string) bool {
	_, lives := s.members[replica]
	return lives
}

// claim reads the claims and writes its own into them: partitions of the own share that are free, or whose holder is dead, and those
// that were released. confirm has it write in any case, on the revision that it read: whoever was about to claim what is in it is refused, and
// sees that this replica lives. It returns false when that failed; it is then tried again.
func (s *lease) claim(ctx context.Context, confirm bool) bool {
	ctx, cancel := context.WithTimeout(ctx, beatTimeout)
	defer cancel()
	read, revision, err := s.readClaims(ctx)
	if err != nil {
		return false
	}
	s.mu.Lock()
	s.note(read)
	next, taken, changes := s.amend(read)
	s.tell()
	s.mu.Unlock()
	if !changes && !confirm {
		return true
	}
	next.Written[s.replica]++
	if err := s.writeClaims(ctx, next, revision); err != nil {
		s.mu.Lock()
		s.stale = true
		s.mu.Unlock()
		s.wake()
		return false
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.claims = next
	for _, p := range taken {
		s.owned[p], s.since[p] = true, s.wall()
	}
	s.tell()
	return true
}

// note notes claims that were read: who wrote since they were read last is alive. s.mu is held.
func (s *lease) note(read claims) {
	for _, holder := range read.Holders {
		if holder != "" && holder != s.replica && read.Written[holder] != s.claims.Written[holder] {
			s.members[holder] = s.clock.now()
		}
	}
	s.claims, s.rewritten, s.stale = read, false, false
}

// amend makes of claims that were read those to be written. What another holds is lost, if it was held here: it took this replica for
// dead. s.mu is held.
func (s *lease) amend(read claims) (next claims, taken []int, changes bool) {
	next = claims{Holders: read.Holders, Written: map[string]int{}}
	want := s.want()
	for p, holder := range read.Holders {
		mine := holder == s.replica
		switch {
		case s.owned[p] && !mine && holder != "":
			s.drop(p)
		case s.owned[p]:
			next.Holders[p] = s.replica
		case s.leaving[p]:
		case want[p] && (mine || !s.lives(holder)):
			next.Holders[p] = s.replica
			taken = append(taken, p)
		case mine && s.rivalUntil.IsZero():
			next.Holders[p] = ""
		}
		changes = changes || next.Holders[p] != holder
	}
	for replica, n := range read.Written {
		if s.lives(replica) || slices.Contains(next.Holders[:], replica) {
			next.Written[replica] = n
		}
	}
	return next, taken, changes || len(taken) > 0
}

// readClaims reads the claims and their revision.
func (s *lease) readClaims(ctx context.Context) (claims, uint64, error) {
	var c claims
	data, revision, err := s.read(ctx, keyClaims)
	if err != nil || revision == 0 {
		return c, 0, err
	}
	if err := json.Unmarshal(data, &c); err != nil {
		// What can't be read holds nobody up: it is written anew.
		s.bus.Config().Log.Error("claims of partitions are not readable, written anew", "service", s.service, "error", err)
		c = claims{}
	}
	return c, revision, nil
}

// read asks the leader for what was written last; what a follower says may be old. The revision is 0 when there is nothing;
// [jetstream.ErrStreamNotFound] when the bucket is lost.
func (s *lease) read(ctx context.Context, what string) (data []byte, revision uint64, err error) {
	msg, err := s.bus.LastOfLeader(ctx, "KV_"+events.BucketLeases, s.subject(what))
	switch {
	case errors.Is(err, events.ErrNotFound):
		return nil, 0, nil
	case err != nil:
		return nil, 0, err
	}
	return msg.Data, msg.Sequence, nil
}

func (s *lease) writeClaims(ctx context.Context, c claims, revision uint64) error {
	data, err := json.Marshal(c)
	if err != nil {
		return err
	}
	msg := nats.NewMsg(s.subject(keyClaims))
	msg.Data = data
	_, err = s.bus.JetStream().PublishMsg(ctx, msg, jetstream.WithExpectLastSequencePerSubject(revision))
	return err
}
