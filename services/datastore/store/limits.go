package store

import "time"

// Limits and timeouts of this package.

// A database that is away is tried again after firstPause, twice that, … longestPause.
const (
	firstPause   = 250 * time.Millisecond
	longestPause = 5 * time.Second
)

// compactEvery is how long the history of a DataStore that is compacted here is kept at least, and at most twice that, for clients that read
// a list page by page. Kubernetes' API servers do it every 5 minutes; its conformance suite waits 10 for a page to expire.
const compactEvery = 4*time.Minute + 30*time.Second

// readAgainAfter is how long what was read of a DataStore and its Secrets is taken for true without a watch saying otherwise. What
// is wrong with them is read again after longestPause.
const readAgainAfter = 30 * time.Second

// probeEvery is how often a DataStore is looked at while nobody uses it.
const probeEvery = 30 * time.Second

// sampleEvery is how often a DataStore is asked for the sizes of its tenants. For one that is new it is asked once more when the
// tenant has had sampleNew to write what any tenant holds, and no more often than that for several.
const sampleEvery, sampleNew = 5 * time.Minute, 15 * time.Second

// largest is how many tenants of a DataStore have series of their own unless its annotation asks for all.
const largest = 10

// The least changes that are reported, if they are a tenth as well.
const (
	leastBytes        = 1 << 20
	leastKeys         = 1000
	leastMilliseconds = 20
)
