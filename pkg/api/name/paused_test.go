package name

import (
	"testing"
	"time"
)

func TestPaused(t *testing.T) {
	now := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	later := now.Add(time.Hour)
	for what, c := range map[string]struct {
		annotations map[string]string
		paused, bad bool
		until       time.Time
	}{
		"nothing said":                    {},
		"the annotation, empty":           {annotations: map[string]string{AnnotationPaused: ""}, paused: true},
		"the annotation with any value":   {annotations: map[string]string{AnnotationPaused: "false"}, paused: true},
		"until later":                     {annotations: map[string]string{AnnotationPausedUntil: "2026-03-01T13:00:00Z"}, paused: true, until: later},
		"until later, in another zone":    {annotations: map[string]string{AnnotationPausedUntil: "2026-03-01T15:00:00+02:00"}, paused: true, until: later},
		"until now":                       {annotations: map[string]string{AnnotationPausedUntil: "2026-03-01T12:00:00Z"}},
		"until earlier":                   {annotations: map[string]string{AnnotationPausedUntil: "2026-03-01T11:00:00Z"}},
		"an end that is no time":          {annotations: map[string]string{AnnotationPausedUntil: "tomorrow"}, bad: true},
		"both: it doesn't end by itself":  {annotations: map[string]string{AnnotationPaused: "", AnnotationPausedUntil: "2026-03-01T13:00:00Z"}, paused: true},
		"the annotation and an end amiss": {annotations: map[string]string{AnnotationPaused: "", AnnotationPausedUntil: "x"}, paused: true, bad: true},
	} {
		t.Run(what, func(t *testing.T) {
			paused, until, err := Paused(c.annotations, now)
			if paused != c.paused || !until.Equal(c.until) || (err != nil) != c.bad {
				t.Errorf("paused %v until %v error %v", paused, until, err)
			}
		})
	}
}
