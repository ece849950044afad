package intake

// When a tenant sleeps by its annotations: two cron schedules in a time zone, and the commands sleep and wake in between. What they say is
// a function of the annotations and the time alone, so that nothing of it is kept that could be lost. The object's spec stays as it is: it
// is the tenant's spec in its bucket that asks for no pods.

import (
	"fmt"
	"iter"
	"regexp"
	"slices"
	"strings"
	"time"
	_ "time/tzdata" // images have no database of time zones

	"github.com/robfig/cron/v3"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/stoker-k8s/stoker/pkg/api/event"
	"github.com/stoker-k8s/stoker/pkg/api/name"
	"github.com/stoker-k8s/stoker/pkg/api/state"
)

// schedule is what a tenant's annotations say of its sleep.
type schedule struct {
	sleepAt, wakeAt times
	// sleptAt and wokenAt are when it was put to sleep and woken beside the schedule, zero for never. sleptBy says in words by what.
	sleptAt, wokenAt time.Time
	sleptBy          string
}

// times are those of one cron expression; the zero value has none.
type times struct {
	cron cron.Schedule
	zone *time.Location
	// said is the annotation in words.
	said string
}

const (
	mustBeCron = "must be minute, hour, day of month, month and day of week, as cron has them, such as 0 20 * * 1-5"
	mustBeZone = "must be a time zone of the IANA database, such as Europe/Berlin"
	mustBeTime = "must be a time as RFC 3339 has it, such as 2026-11-20T08:00:00Z"
	mustBeIdle = "must be a duration in hours and minutes, from 15m to 720h, such as 30m or 1h30m"
)

// cronFields keeps out what the parser takes beside the five fields: a time zone of its own, and intervals.
var cronFields = regexp.MustCompile(`^ *[0-9A-Za-z*/,?-]+( +[0-9A-Za-z*/,?-]+){4} *$`)

// scheduleOf reads the schedule, or says what of it can't be read; there is then no schedule.
func scheduleOf(annotations map[string]string) (s schedule, bad refusal) {
	zone := time.UTC
	read := func(annotation string, parse func(value string) (must string)) {
		value, said := annotations[annotation]
		if !said {
			return
		}
		if must := parse(value); must != "" {
			bad = append(bad, refuse("metadata.annotations["+annotation+"]", event.RuleInvalid, value, must)...)
		}
	}
	read(name.AnnotationTimeZone, func(value string) string {
		known, err := time.LoadLocation(value)
		if err != nil || value == "" || value == "Local" {
			return mustBeZone
		}
		zone = known
		return ""
	})
	for annotation, into := range map[string]*times{name.AnnotationSleepAt: &s.sleepAt, name.AnnotationWakeAt: &s.wakeAt} {
		read(annotation, func(value string) (must string) {
			into.zone, into.said = zone, fmt.Sprintf("%s %q (%s)", annotation, value, zone)
			into.cron, must = cronOf(value)
			return must
		})
	}
	for annotation, into := range map[string]*time.Time{name.AnnotationSleptAt: &s.sleptAt, name.AnnotationWokenAt: &s.wokenAt} {
		read(annotation, func(value string) string {
			at, err := time.Parse(time.RFC3339, value)
			if err != nil {
				return mustBeTime
			}
			*into = at.UTC()
			return ""
		})
	}
	s.sleptBy = name.AnnotationSleptAt
	read(name.AnnotationSleepWhenIdle, func(value string) string {
		if name.IdleTime(annotations) == 0 {
			return mustBeIdle
		}
		if annotations[name.AnnotationSleptBy] == name.SleptByIdleness {
			s.sleptBy = fmt.Sprintf("%s %q", name.AnnotationSleepWhenIdle, value)
		}
		return ""
	})
	if len(bad) > 0 {
		slices.SortFunc(bad, func(a, b event.FieldError) int { return strings.Compare(a.Field, b.Field) })
		return schedule{}, bad
	}
	return s, nil
}

// cronOf parses a cron expression, or says what it must be.
func cronOf(expression string) (parsed cron.Schedule, must string) {
	if !cronFields.MatchString(expression) {
		return nil, mustBeCron
	}
	parsed, err := cron.NewParser(cron.Minute | cron.Hour | cron.Dom | cron.Month | cron.Dow).Parse(expression)
	if err != nil {
		return nil, mustBeCron
	}
	if parsed.Next(time.Unix(0, 0).UTC()).IsZero() {
		return nil, "never comes"
	}
	return parsed, ""
}

// sleepOf is what a tenant's annotations say of its sleep at a time. One that can't be read puts nothing to sleep.
func sleepOf(o *metav1.ObjectMeta, now time.Time) state.Sleep {
	s, bad := scheduleOf(o.Annotations)
	if bad != nil {
		return state.Sleep{}
	}
	return s.at(o.CreationTimestamp.Time, now)
}

// at is what the schedule says of a tenant at a time: it sleeps if it was put to sleep later than it was woken, by the schedule or a
// command, or made. What comes at the same time as a wake puts nothing to sleep.
func (s *schedule) at(created, now time.Time) state.Sleep {
	woken := latest(s.wakeAt.last(now), past(s.wokenAt, now), created)
	slept := latest(s.sleepAt.last(now), past(s.sleptAt, now))
	if !slept.After(woken) {
		return state.Sleep{Until: earliest(s.sleepAt.next(now), future(s.sleptAt, now))}
	}
	scheduled, commanded := past(s.sleepAt.next(woken), now), future(past(s.sleptAt, now), woken)
	sleep := state.Sleep{Asleep: true, Since: scheduled, By: s.sleepAt.said, Until: earliest(s.wakeAt.next(now), future(s.wokenAt, now))}
	if earliest(scheduled, commanded).Equal(commanded) {
		sleep.Since, sleep.By = commanded, s.sleptBy
	}
	return sleep
}

// scheduled reports whether a tenant with these annotations sleeps by them, and wakes.
func scheduled(annotations map[string]string) bool {
	for _, a := range []string{name.AnnotationSleepAt, name.AnnotationWakeAt, name.AnnotationWakeOn, name.AnnotationSleepWhenIdle} {
		if _, said := annotations[a]; said {
			return true
		}
	}
	return false
}

// besideSchedule adds to a merge patch what puts a tenant to sleep at a time, or wakes it, beside its schedule: nothing where it sleeps, or is
// awake, already, and for a command that comes again after a later one was carried out. by is what puts it to sleep, a value of
// name.AnnotationSleptBy, nil for a command.
func besideSchedule(patch map[string]any, o *metav1.ObjectMeta, asleep bool, by any, at time.Time) map[string]any {
	s, bad := scheduleOf(o.Annotations)
	if bad != nil || latest(s.sleptAt, s.wokenAt).After(at) || s.at(o.CreationTimestamp.Time, at).Asleep == asleep {
		return patch
	}
	noted := at.UTC().Format(time.RFC3339Nano)
	if asleep {
		annotate(patch, map[string]any{name.AnnotationSleptAt: noted, name.AnnotationSleptBy: by, name.AnnotationWokenAt: nil})
	} else {
		annotate(patch, map[string]any{name.AnnotationSleptAt: nil, name.AnnotationSleptBy: nil, name.AnnotationWokenAt: noted})
	}
	return patch
}

// from are its times from a little before t on, in order (UTC).
func (x times) from(t time.Time) iter.Seq[time.Time] {
	return func(yield func(time.Time) bool) {
		if x.cron == nil {
			return
		}
		wall := x.cron.Next(wallOf(t.In(x.zone)).Add(-clockShift))
		for !wall.IsZero() && yield(instant(wall, x.zone)) {
			wall = x.cron.Next(wall)
		}
	}
}

// next is the first time after t, zero when there is none.
func (x times) next(t time.Time) time.Time {
	for at := range x.from(t) {
		if at.After(t) {
			return at
		}
	}
	return time.Time{}
}

// last is the latest time that is not after t, zero when there was none in the five years before.
func (x times) last(t time.Time) (last time.Time) {
	const day = 24 * time.Hour
	for _, back := range []time.Duration{time.Hour, day, 8 * day, 32 * day, 367 * day, 5 * 366 * day} {
		for at := range x.from(t.Add(-back)) {
			if at.After(t) {
				break
			}
			last = at
		}
		if !last.IsZero() {
			break
		}
	}
	return last
}

// wallOf is what a clock on the wall shows, as if it were in UTC: cron expressions are of that, and know no change of the clocks.
func wallOf(t time.Time) time.Time {
	return time.Date(t.Year(), t.Month(), t.Day(), t.Hour(), t.Minute(), t.Second(), 0, time.UTC)
}

// instant is when a clock on the wall shows something in a zone (UTC). What it shows twice counts the first time; what it never shows, for
// the clock is put forward over it, is when it is put forward.
func instant(wall time.Time, zone *time.Location) time.Time {
	at := time.Date(wall.Year(), wall.Month(), wall.Day(), wall.Hour(), wall.Minute(), wall.Second(), 0, zone)
	start, end := at.ZoneBounds()
	switch shown := wallOf(at); {
	case shown.After(wall): // by the offset of before: it is after the clock was put forward
		return start.UTC()
	case shown.Before(wall):
		return end.UTC()
	}
	if !start.IsZero() {
		_, offset := start.Add(-time.Second).Zone()
		if first := wall.Add(-time.Duration(offset) * time.Second); first.Before(at) && wallOf(first.In(zone)).Equal(wall) {
			return first
		}
	}
	return at.UTC()
}

// past is t unless it is after now, future is t if it is; else they are zero.
func past(t, now time.Time) time.Time {
	if t.After(now) {
		return time.Time{}
	}
	return t
}

func future(t, now time.Time) time.Time {
	if t.After(now) {
		return t
	}
	return time.Time{}
}

func latest(all ...time.Time) (last time.Time) {
	for _, t := range all {
		if t.After(last) {
			last = t
		}
	}
	return last
}

// earliest leaves zero times out.
func earliest(all ...time.Time) (first time.Time) {
	for _, t := range all {
		if !t.IsZero() && (first.IsZero() || t.Before(first)) {
			first = t
		}
	}
	return first
}
