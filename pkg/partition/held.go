// Package partition says which partitions a replica holds, as that changes: pkg/loop tells it, watches follow it.
package partition

import (
	"context"
	"iter"
	"sync"

	"github.com/stoker-k8s/stoker/pkg/api/name"
)

// Held are the partitions that a replica holds. They change while it runs. It is safe for concurrent use.
type Held struct {
	mu      sync.Mutex
	terms   terms
	last    int           // number of the last term that began
	changed chan struct{} // closed with the next change
}

// terms has for each partition the number of its term, 0 while it isn't held. So one that was lost and is held again isn't taken for
// one that stayed.
type terms [name.Partitions]int

// Of returns Held with these partitions.
func Of(partitions ...int) *Held {
	h := &Held{changed: make(chan struct{})}
	h.Hold(partitions)
	return h
}

// Hold makes these the partitions that are held.
func (h *Held) Hold(partitions []int) {
	h.mu.Lock()
	defer h.mu.Unlock()
	var now terms
	for _, p := range partitions {
		if now[p] = h.terms[p]; now[p] == 0 {
			h.last++
			now[p] = h.last
		}
	}
	if now != h.terms {
		h.terms = now
		close(h.changed)
		h.changed = make(chan struct{})
	}
}

// Now returns the partitions that are held, in order.
func (h *Held) Now() []int {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.terms.move(terms{}).Held
}

// Move is a change of the partitions that are held. Each list is in order.
type Move struct {
	// Held are all that are held now: those that were gained and those that stayed. What is in none of them was lost.
	Held, Gained, Stayed []int
}

// move is the change from the terms before.
func (now terms) move(before terms) (m Move) {
	for p, term := range now {
		switch term {
		case 0:
			continue
		case before[p]:
			m.Stayed = append(m.Stayed, p)
		default:
			m.Gained = append(m.Gained, p)
		}
		m.Held = append(m.Held, p)
	}
	return m
}

// Moves returns the changes until ctx ends, the next one when the one before is worked on: first that all that are held were gained.
// Changes that follow each other meanwhile are one.
func (h *Held) Moves(ctx context.Context) iter.Seq[Move] {
	return func(yield func(Move) bool) {
		for f := h.Follow(); ctx.Err() == nil; {
			m, _ := f.Next()
			if !yield(m) {
				return
			}
			select {
			case <-ctx.Done():
			case <-f.Changed():
			}
		}
	}
}

// Follower sees the changes of [Held]. It belongs to one goroutine.
type Follower struct {
	held *Held
	seen terms
	next bool // Next was called
}

// Follow returns a Follower that has seen nothing yet.
func (h *Held) Follow() *Follower { return &Follower{held: h} }

// Changed returns a channel that is closed once there is a change that Next has not returned.
func (f *Follower) Changed() <-chan struct{} {
	f.held.mu.Lock()
	defer f.held.mu.Unlock()
	if f.next && f.held.terms == f.seen {
		return f.held.changed
	}
	at := make(chan struct{})
	close(at)
	return at
}

// Next returns what has changed since it was called last, and whether anything has. The first time, everything was gained.
func (f *Follower) Next() (m Move, changed bool) {
	f.held.mu.Lock()
	defer f.held.mu.Unlock()
	now, before, first := f.held.terms, f.seen, !f.next
	f.seen, f.next = now, true
	return now.move(before), first || now != before
}
