package loop

import "time"

// Share is the share of a member, for tests that need members of certain shares.
var Share = share

// SetLease has a replica's lease end that long after its last sign of life, and others take it for dead a tenth later. Signs of life are as
// many as ever, so that a machine that stalls does not end the lease.
func (l *Loop) SetLease(ttl time.Duration) {
	l.leaseLimits = leaseLimits{heartbeat: heartbeat, leaseTTL: ttl, memberTTL: ttl + ttl/10, beatTimeout: ttl / 2}
}

// SetAckWait tells the loop how long the server waits for a word about an event.
func (l *Loop) SetAckWait(wait time.Duration) { l.ackWait = wait }
