package name

import "time"

// MinIdleTime and MaxIdleTime bound AnnotationSleepWhenIdle. Clients that watch renew their watches within ten minutes, so that a shorter
// time would take a tenant for idle to which some are connected.
const (
	MinIdleTime = 15 * time.Minute
	MaxIdleTime = 720 * time.Hour
)

// IdleTime is after how long without use a tenant with these annotations is put to sleep; 0 for never, also for what can't be read.
func IdleTime(annotations map[string]string) time.Duration {
	d, err := time.ParseDuration(annotations[AnnotationSleepWhenIdle])
	if err != nil || d < MinIdleTime || d > MaxIdleTime {
		return 0
	}
	return d
}
