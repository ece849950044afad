package status

import "time"

// Limits and timeouts of this package.

const (
	// lettersFor is how long an answer counts, also that there was none.
	lettersFor = 15 * time.Second
	// lettersTimeout bounds the wait for it, so that a scrape doesn't fail with NATS.
	lettersTimeout = 500 * time.Millisecond
)

const (
	// lookAgain is when a status that changed is looked at again, and how long details of a tenant that is on its way may
	// wait to be written with others.
	lookAgain = 2 * time.Second
	// lookSlowest and lookSlow bound how often one is looked at that doesn't change: the longer it hasn't, the less. The first time is just
	// after workload has asked pods that aren't ready for the cause, which it does when it has waited for them for 8 s.
	lookSlow, lookSlowest = 8 * time.Second, time.Minute
)

// Bounds of answers: each takes a few reads from NATS, so that many go on at once and few are slow.
const (
	questionTimeout = 3 * time.Second
	storesTimeout   = time.Second
	questionsAtOnce = 64
)

// keepDeleted is how long the last word about a deleted tenant stays on its subject.
const keepDeleted = 24 * time.Hour

// rebuildFor bounds how long a status stays only because services have not looked at the tenant again.
const rebuildFor = time.Minute
