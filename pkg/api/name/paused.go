package name

import (
	"fmt"
	"time"
)

// Paused reads from an object's annotations whether it is paused at a time, and when the pause ends by itself (UTC), zero
// when it doesn't. An end that can't be read does not pause and is the error; paused is right all the same.
func Paused(annotations map[string]string, now time.Time) (paused bool, until time.Time, err error) {
	text, limited := annotations[AnnotationPausedUntil]
	if limited {
		if until, err = time.Parse(time.RFC3339, text); err != nil {
			err = fmt.Errorf("annotation %s: %q is no RFC 3339 time (2026-01-02T15:04:05Z) and does not pause", AnnotationPausedUntil, text)
		}
	}
	if _, ok := annotations[AnnotationPaused]; ok {
		return true, time.Time{}, err
	}
	if !limited || err != nil || !until.After(now) {
		return false, time.Time{}, err
	}
	return true, until.UTC(), nil
}
