package data

import "time"

// Limits and timeouts of this package.

// backupsTimeout bounds an answer, for which the location is asked for each manifest.
const backupsTimeout = 50 * time.Second

const (
	// firstRetry is when a backup that failed is tried again; each time it takes twice as long, up to longestRetry.
	firstRetry, longestRetry = time.Minute, time.Hour
	// forgetUnfinished is how old a backup must be that nobody finished to be removed.
	forgetUnfinished = 24 * time.Hour
)

// fullPart is the part of a quota from which a database counts as nearly full.
const fullPart = 0.9

// maxJobs is how many tenants' data a replica writes to backups or brings back from them at once. Others wait for their turn.
const maxJobs = 2

// defaultGrace is how long the data of before are kept after a move.
const defaultGrace = 24 * time.Hour

const (
	// maxMovers is how many tenants' data a replica copies at once, maxMoversOn how many of those from or to one of the two DataStores.
	maxMovers, maxMoversOn = 4, 2
	// tellEvery is how often a mover has its progress written down, followEvery how often it brings changes over while it waits.
	tellEvery, followEvery = 5 * time.Second, time.Second
	// margin is by how much the revisions of the other store begin above the former one's.
	margin = 10_000
	// longestHoldPause is the longest time between two tries to go over that pods aren't ready for.
	longestHoldPause = 30 * time.Second
	// fromAnew is how often a mover begins anew by itself.
	fromAnew = 5
)

const (
	// leastInterval is the shortest time that says something about a rate.
	leastInterval = time.Second
	// tellCopyingEvery is how often the fact migrating is told while data are copied.
	tellCopyingEvery = 30 * time.Second
)

// moveTimeout bounds an answer: a database that is away is noticed within seconds.
const moveTimeout = 20 * time.Second

// firstRestoreRetry is when data that could not be brought are tried again; each time it takes twice as long, up to longestRestoreRetry.
const firstRestoreRetry, longestRestoreRetry = 5 * time.Second, 5 * time.Minute
