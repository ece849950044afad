package capi

import "time"

// Limits and timeouts of this package.

const (
	// maxVisits is how many turns ask one external cluster side by side, maxVisitsInAll how many ask any: a part of those that a replica has.
	maxVisits, maxVisitsInAll = 4, 8
	// steadyAfter is how long a cluster must have answered for its next failure to count as the first.
	steadyAfter = time.Minute
	// pendingFor is longer than it takes to know whether a cluster answers.
	pendingFor = 30 * time.Second
)

// defaultAbandonAfter is Config.AbandonAfter where none is said.
const defaultAbandonAfter = 15 * time.Minute
