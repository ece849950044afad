package service

import (
	"fmt"
	"time"
)

// FlagDeadline is the flag of services that renew certificates, under Kamaji's name for it, and UsageDeadline what --help says of it.
const (
	FlagDeadline  = "certificate-expiration-deadline"
	UsageDeadline = "`time` before the end of a certificate when it is renewed, 24h to 4380h; empty for a third of its life"
)

// What may be said: less leaves no day to notice a renewal that fails, and more than half of a certificate's year is none.
const (
	shortestDeadline = 24 * time.Hour
	longestDeadline  = 4380 * time.Hour
)

// ParseDeadline reads the value of the flag; 0 for an empty one.
func ParseDeadline(text string) (time.Duration, error) {
	if text == "" {
		return 0, nil
	}
	d, err := time.ParseDuration(text)
	if err != nil || d < shortestDeadline || d > longestDeadline {
		return 0, fmt.Errorf("%s %q: must be a duration from 24h to 4380h, half of a certificate's life", FlagDeadline, text)
	}
	return d, nil
}
