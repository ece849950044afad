package certs

import "time"

// Limits and timeouts of this package.

// What could not be done is tried again after a while, first soon, then after as long as it has failed.
const (
	soonestCluster = 5 * time.Second
	latestCluster  = 10 * time.Minute
)

// checkEvery is how long a tenant's Secrets go unchecked. Timers live in a stream that keeps messages for 30 days, so a renewal
// months ahead is reached in steps; each step also finds what was deleted while no replica watched.
const checkEvery = 7 * 24 * time.Hour

// soonest keeps a timer from firing again and again should a renewal not move its own date.
const soonest = 10 * time.Minute
