package loop

import (
	"sync"
	"time"
)

// Share is the share of a member, for tests that need members of certain shares.
var Share = share

// Heartbeat and LeaseTTL are how far a test moves a [Clock]: by the first no lease ends, by the second each that isn't renewed.
const (
	Heartbeat = heartbeat
	LeaseTTL  = leaseTTL
)

// Clock is a clock that stands still until a test moves it: a lease ends when the test wants it, and not because the machine stalls. Several loops
// may have the same clock. It is safe for concurrent use.
type Clock struct {
	mu    sync.Mutex
	at    time.Time
	moved []chan struct{}
}

// NewClock returns a clock that shows the machine's time.
func NewClock() *Clock { return &Clock{at: time.Now().Round(0)} }

// Now is the time that the clock shows.
func (c *Clock) Now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.at
}

// Step moves the clock. The replicas whose leases last by it send a sign of life at once.
func (c *Clock) Step(by time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.at = c.at.Add(by)
	for _, moved := range c.moved {
		select {
		case moved <- struct{}{}:
		default:
		}
	}
}

// SetClock has a lease last by a clock.
func (l *Loop) SetClock(c *Clock) {
	moved := make(chan struct{}, 1)
	c.mu.Lock()
	defer c.mu.Unlock()
	c.moved = append(c.moved, moved)
	l.clock = &clock{now: c.Now, moved: moved}
}

// SetMachineClock has a lease last by the machine's clock, as for users.
func (l *Loop) SetMachineClock() { l.clock = machineClock }

// HasClock reports whether a test has set the clock.
func (l *Loop) HasClock() bool { return l.clock != nil }

// Heard is when a running loop's lease heard of a replica last, by its clock; zero if it hasn't, or takes it for dead.
func (l *Loop) Heard(replica string) time.Time {
	l.lease.mu.Lock()
	defer l.lease.mu.Unlock()
	return l.lease.members[replica]
}

// SetAckWait tells the loop how long the server waits for a word about an event.
func (l *Loop) SetAckWait(wait time.Duration) { l.ackWait = wait }
