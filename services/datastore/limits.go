package datastore

import "time"

// Limits and timeouts of this package.

// Times for an answer: databases may take minutes to remove what they hold.
const (
	orphansTimeout = 25 * time.Second
	dropTimeout    = 5 * time.Minute
)
