package account

import "time"

// Limits and timeouts of this package.

// A deletion waits for a DataStore that is away this long, and this many tries, from the moment it was its turn.
const (
	patience = 20 * time.Second
	minTries = 4
	// longestDrop bounds one try. A turn has a little longer, for what comes after the last.
	longestDrop = 22 * time.Second
)

// lookAgain is when a tenant that nothing happened to is looked at all the same. It must stay below the age at which the
// stream drops timers.
const lookAgain = 14 * 24 * time.Hour

// How often the service reads a tenant's usage; more often for a tenant near its quota. Gates write it every ten seconds.
const (
	readUsageEvery = 5 * time.Minute
	readUsageSoon  = 30 * time.Second
)

// From which share of a bound, in percent, a tenant is near its quota, and below which it isn't any more.
const nearFrom, nearUntil = 80, 75
