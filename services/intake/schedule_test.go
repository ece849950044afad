package intake

import (
	"encoding/json"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/stoker-k8s/stoker/pkg/api/name"
	"github.com/stoker-k8s/stoker/pkg/api/state"
)

// instantOf reads a time for a test.
func instantOf(t *testing.T, text string) time.Time {
	t.Helper()
	if text == "" {
		return time.Time{}
	}
	at, err := time.Parse(time.RFC3339Nano, text)
	if err != nil {
		t.Fatal(err)
	}
	return at.UTC()
}

const (
	berlin   = "Europe/Berlin"
	evenings = "0 20 * * 1-5"
	mornings = "0 7 * * 1-5"
)

// saying makes annotations of keys and values.
func saying(pairs ...string) map[string]string {
	all := map[string]string{}
	for i := 0; i < len(pairs); i += 2 {
		all[pairs[i]] = pairs[i+1]
	}
	return all
}

func TestSleepOf(t *testing.T) {
	week := saying(name.AnnotationSleepAt, evenings, name.AnnotationWakeAt, mornings, name.AnnotationTimeZone, berlin)
	with := func(pairs ...string) map[string]string {
		all := saying(pairs...)
		for k, v := range week {
			all[k] = v
		}
		return all
	}
	const byWeek = `stoker.dev/sleep-at "0 20 * * 1-5" (Europe/Berlin)`
	for sentence, c := range map[string]struct {
		annotations       map[string]string
		created, now      string
		asleep            bool
		since, by, change string
	}{
		"without annotations nothing sleeps":             {now: "2026-11-25T12:00:00Z"},
		"by day it is awake until the evening":           {annotations: week, now: "2026-11-25T12:00:00Z", change: "2026-11-25T19:00:00Z"},
		"a moment before the evening, too":               {annotations: week, now: "2026-11-25T18:59:59.999Z", change: "2026-11-25T19:00:00Z"},
		"in the evening it is put to sleep":              {annotations: week, now: "2026-11-25T19:00:00Z", asleep: true, since: "2026-11-25T19:00:00Z", by: byWeek, change: "2026-11-26T06:00:00Z"},
		"in the morning it wakes":                        {annotations: week, now: "2026-11-26T06:00:00Z", change: "2026-11-26T19:00:00Z"},
		"it sleeps over the weekend":                     {annotations: week, now: "2026-11-29T12:00:00Z", asleep: true, since: "2026-11-27T19:00:00Z", by: byWeek, change: "2026-11-30T06:00:00Z"},
		"one that is made by night is awake":             {annotations: week, created: "2026-11-25T22:00:00Z", now: "2026-11-25T23:00:00Z", change: "2026-11-26T19:00:00Z"},
		"without a zone the times are UTC":               {annotations: saying(name.AnnotationSleepAt, evenings), now: "2026-11-25T19:30:00Z", asleep: true, since: "2026-11-20T20:00:00Z", by: `stoker.dev/sleep-at "0 20 * * 1-5" (UTC)`, created: "2026-11-20T10:00:00Z"},
		"a schedule that only wakes puts nothing asleep": {annotations: saying(name.AnnotationWakeAt, mornings), now: "2026-11-25T23:00:00Z"},
		"sleep repeated while it sleeps changes nothing": {
			annotations: saying(name.AnnotationSleepAt, "*/10 20-23 * * *", name.AnnotationWakeAt, "0 7 * * *"), now: "2026-11-25T21:35:00Z",
			asleep: true, since: "2026-11-25T20:00:00Z", by: `stoker.dev/sleep-at "*/10 20-23 * * *" (UTC)`, change: "2026-11-26T07:00:00Z",
		},
		"sleep and wake at once is awake": {
			annotations: saying(name.AnnotationSleepAt, "0 7 * * *", name.AnnotationWakeAt, "0 7 * * *"), now: "2026-11-25T07:00:00Z",
			change: "2026-11-26T07:00:00Z",
		},
		"woken by night it is awake until the next evening": {
			annotations: with(name.AnnotationWokenAt, "2026-11-25T23:00:00.5Z"), now: "2026-11-26T05:00:00Z", change: "2026-11-26T19:00:00Z",
		},
		"what woke it yesterday keeps it awake no more": {
			annotations: with(name.AnnotationWokenAt, "2026-11-25T23:00:00Z"), now: "2026-11-26T19:00:00Z",
			asleep: true, since: "2026-11-26T19:00:00Z", by: byWeek, change: "2026-11-27T06:00:00Z",
		},
		"put to sleep by day it sleeps until the next morning": {
			annotations: with(name.AnnotationSleptAt, "2026-11-25T12:00:00.5Z"), now: "2026-11-25T21:00:00Z",
			asleep: true, since: "2026-11-25T12:00:00.5Z", by: "stoker.dev/slept-at", change: "2026-11-26T06:00:00Z",
		},
		"idle it sleeps until somebody wakes it": {
			annotations: saying(name.AnnotationSleepWhenIdle, "30m", name.AnnotationSleptAt, "2026-11-25T12:00:00.5Z", name.AnnotationSleptBy, name.SleptByIdleness),
			now:         "2026-11-25T21:00:00Z", asleep: true, since: "2026-11-25T12:00:00.5Z", by: `stoker.dev/sleep-when-idle "30m"`,
		},
		"idle it sleeps until the next morning, with a schedule": {
			annotations: with(name.AnnotationSleepWhenIdle, "1h", name.AnnotationSleptAt, "2026-11-25T12:00:00.5Z", name.AnnotationSleptBy, name.SleptByIdleness),
			now:         "2026-11-25T21:00:00Z", asleep: true, since: "2026-11-25T12:00:00.5Z", by: `stoker.dev/sleep-when-idle "1h"`,
			change: "2026-11-26T06:00:00Z",
		},
		"a command put it to sleep that might have been idle": {
			annotations: with(name.AnnotationSleepWhenIdle, "1h", name.AnnotationSleptAt, "2026-11-25T12:00:00.5Z"),
			now:         "2026-11-25T21:00:00Z", asleep: true, since: "2026-11-25T12:00:00.5Z", by: "stoker.dev/slept-at", change: "2026-11-26T06:00:00Z",
		},
		"a command's time that this clock hasn't come to yet is one to look at": {
			annotations: with(name.AnnotationSleptAt, "2026-11-25T12:00:00.5Z"), now: "2026-11-25T12:00:00.4Z", change: "2026-11-25T12:00:00.5Z",
		},
		"what can't be read puts nothing to sleep": {annotations: with(name.AnnotationWokenAt, "now"), now: "2026-11-25T21:00:00Z"},
		// On 2026-03-29 the clock in Berlin goes from 2:00 to 3:00 (1:00 UTC), on 2026-10-25 from 3:00 to 2:00.
		"a wake that the clock is put forward over comes when it is": {
			annotations: saying(name.AnnotationSleepAt, "0 20 * * *", name.AnnotationWakeAt, "30 2 * * *", name.AnnotationTimeZone, berlin),
			now:         "2026-03-29T00:59:59Z", asleep: true, since: "2026-03-28T19:00:00Z", by: `stoker.dev/sleep-at "0 20 * * *" (Europe/Berlin)`,
			change: "2026-03-29T01:00:00Z",
		},
		"and has come then": {
			annotations: saying(name.AnnotationSleepAt, "0 20 * * *", name.AnnotationWakeAt, "30 2 * * *", name.AnnotationTimeZone, berlin),
			now:         "2026-03-29T01:00:00Z", change: "2026-03-29T18:00:00Z",
		},
		"a sleep that comes twice, for the clock is put back, counts the first time": {
			annotations: saying(name.AnnotationSleepAt, "30 2 * * *", name.AnnotationWakeAt, "0 9 * * *", name.AnnotationTimeZone, berlin),
			now:         "2026-10-25T00:29:59Z", change: "2026-10-25T00:30:00Z",
		},
		"and not the second": {
			annotations: saying(
				name.AnnotationSleepAt, "30 2 * * *", name.AnnotationWakeAt, "45 2 * * *", name.AnnotationTimeZone, berlin),
			now: "2026-10-25T01:30:00Z", change: "2026-10-26T01:30:00Z",
		},
		"where the clock goes back by half an hour, too": { // Lord Howe, 2026-04-05 at 2:00 (15:00 UTC of the day before)
			annotations: saying(name.AnnotationSleepAt, "45 1 * * *", name.AnnotationWakeAt, "0 3 * * *", name.AnnotationTimeZone, "Australia/Lord_Howe"),
			now:         "2026-04-04T14:44:00Z", change: "2026-04-04T14:45:00Z",
		},
		"midnight that there isn't is the start of the day": { // Beirut, 2026-03-29 from 0:00 to 1:00
			annotations: saying(name.AnnotationSleepAt, "0 0 * * *", name.AnnotationWakeAt, "0 6 * * *", name.AnnotationTimeZone, "Asia/Beirut"),
			now:         "2026-03-28T20:00:00Z", change: "2026-03-28T22:00:00Z",
		},
	} {
		t.Run(sentence, func(t *testing.T) {
			created := instantOf(t, "2026-01-01T00:00:00Z")
			if c.created != "" {
				created = instantOf(t, c.created)
			}
			o := &metav1.ObjectMeta{Annotations: c.annotations, CreationTimestamp: metav1.NewTime(created)}
			want := state.Sleep{Asleep: c.asleep, Since: instantOf(t, c.since), By: c.by, Until: instantOf(t, c.change)}
			if c.annotations != nil && c.asleep && c.change == "" {
				want.Until = time.Time{}
			}
			if got := sleepOf(o, instantOf(t, c.now)); got != want {
				t.Errorf("%+v, want %+v", got, want)
			}
		})
	}
	t.Run("minute by minute over a change of the clocks, the next time is the one that comes to be the last", func(t *testing.T) {
		for _, x := range []string{"30 2 * * *", "*/20 * * * *", "0 0 * * 0"} {
			s, bad := scheduleOf(saying(name.AnnotationSleepAt, x, name.AnnotationTimeZone, berlin))
			if bad != nil {
				t.Fatal(bad)
			}
			for _, day := range []string{"2026-03-29T00:00:00Z", "2026-10-25T00:00:00Z"} {
				start := instantOf(t, day).Add(-12 * time.Hour)
				next := s.sleepAt.next(start)
				for now := start; now.Before(start.Add(24 * time.Hour)); now = now.Add(time.Minute) {
					if last := s.sleepAt.last(now); !now.Before(next) {
						if !last.Equal(next) {
							t.Fatalf("%s at %s: last %s, which was to be %s", x, now, last, next)
						}
						next = s.sleepAt.next(now)
					}
					if again := s.sleepAt.next(now); !again.Equal(next) || !again.After(now) {
						t.Fatalf("%s at %s: next %s, before that %s", x, now, again, next)
					}
				}
			}
		}
	})
}

func TestScheduleOf(t *testing.T) {
	for sentence, c := range map[string]struct{ annotation, value, message string }{
		"an hour too many":           {name.AnnotationSleepAt, "0 24 * * *", mustBeCron},
		"a range that ends early":    {name.AnnotationSleepAt, "0 20 * * 5-1", mustBeCron},
		"four fields":                {name.AnnotationWakeAt, "0 20 * *", mustBeCron},
		"a shorthand":                {name.AnnotationSleepAt, "@daily", mustBeCron},
		"an interval":                {name.AnnotationSleepAt, "@every 1h", mustBeCron},
		"a zone in the expression":   {name.AnnotationSleepAt, "TZ=UTC 20 * * *", mustBeCron},
		"a day that never comes":     {name.AnnotationSleepAt, "0 20 30 2 *", "never comes"},
		"a zone that nobody has":     {name.AnnotationTimeZone, "Europe/Atlantis", mustBeZone},
		"the zone of the machine":    {name.AnnotationTimeZone, "Local", mustBeZone},
		"no zone":                    {name.AnnotationTimeZone, "", mustBeZone},
		"a zone outside":             {name.AnnotationTimeZone, "../../etc/passwd", mustBeZone},
		"idle for too short a time":  {name.AnnotationSleepWhenIdle, "14m59s", mustBeIdle},
		"idle for no time":           {name.AnnotationSleepWhenIdle, "", mustBeIdle},
		"put to sleep at no time":    {name.AnnotationSleptAt, "yesterday", mustBeTime},
		"woken at a time of nowhere": {name.AnnotationWokenAt, "2026-11-20 08:00:00", mustBeTime},
	} {
		t.Run(sentence+" is refused", func(t *testing.T) {
			_, bad := scheduleOf(saying(c.annotation, c.value))
			if len(bad) != 1 || bad[0].Field != "metadata.annotations["+c.annotation+"]" || bad[0].Value != c.value || bad[0].Message != c.message {
				t.Errorf("%+v", bad)
			}
		})
	}
	t.Run("all that is wrong is said at once", func(t *testing.T) {
		_, bad := scheduleOf(saying(name.AnnotationSleepAt, "x", name.AnnotationWakeAt, "y", name.AnnotationTimeZone, "z"))
		if len(bad) != 3 || bad[0].Value != "x" || bad[1].Value != "z" || bad[2].Value != "y" {
			t.Errorf("%+v", bad)
		}
	})
}

func TestBesideSchedule(t *testing.T) {
	week := saying(name.AnnotationSleepAt, evenings, name.AnnotationWakeAt, mornings)
	with := func(pairs ...string) map[string]string {
		all := saying(pairs...)
		for k, v := range week {
			all[k] = v
		}
		return all
	}
	const night, day = "2026-11-25T21:00:00.25Z", "2026-11-25T12:00:00.25Z"
	for sentence, c := range map[string]struct {
		annotations map[string]string
		asleep      bool
		at, patch   string
	}{
		"to wake by night is noted":        {week, false, night, `{"metadata":{"annotations":{"stoker.dev/slept-at":null,"stoker.dev/slept-by":null,"stoker.dev/woken-at":"` + night + `"}}}`},
		"to sleep by day is noted":         {week, true, day, `{"metadata":{"annotations":{"stoker.dev/slept-at":"` + day + `","stoker.dev/slept-by":"idleness","stoker.dev/woken-at":null}}}`},
		"to wake by day is nothing new":    {week, false, day, `{}`},
		"to sleep by night is nothing new": {week, true, night, `{}`},
		"to wake what was put to sleep by day": {
			with(name.AnnotationSleptAt, "2026-11-25T11:00:00Z"), false, day,
			`{"metadata":{"annotations":{"stoker.dev/slept-at":null,"stoker.dev/slept-by":null,"stoker.dev/woken-at":"` + day + `"}}}`,
		},
		"a command that comes again after another does nothing": {with(name.AnnotationWokenAt, "2026-11-25T13:00:00Z"), true, day, `{}`},
		"without a schedule there is nothing to note":           {nil, false, night, `{}`},
	} {
		t.Run(sentence, func(t *testing.T) {
			o := &metav1.ObjectMeta{Annotations: c.annotations, CreationTimestamp: metav1.NewTime(instantOf(t, "2026-01-01T00:00:00Z"))}
			got, err := json.Marshal(besideSchedule(map[string]any{}, o, c.asleep, name.SleptByIdleness, instantOf(t, c.at)))
			if err != nil || string(got) != c.patch {
				t.Errorf("%s %v, want %s", got, err, c.patch)
			}
		})
	}
}
