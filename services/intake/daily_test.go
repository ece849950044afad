package intake

import (
	"fmt"
	"testing"
	"time"

	"github.com/stoker-k8s/stoker/pkg/events"
)

func TestDailyLooks(t *testing.T) {
	var tenants []events.Key
	for i := range 600 {
		tenants = append(tenants, events.Tenant("default", fmt.Sprint("t", i)))
	}
	var d daily
	now := time.Date(2026, 11, 22, 12, 0, 0, 0, time.UTC)
	t.Run("after a start all are looked at within an hour, a few each minute", func(t *testing.T) {
		looked := map[events.Key]int{}
		for minute := range 60 {
			due := d.due(tenants, now.Add(time.Duration(minute)*time.Minute))
			if len(due) > 10 {
				t.Fatalf("%d at once", len(due))
			}
			for _, key := range due {
				looked[key]++
				d.note(key, now.Add(time.Duration(minute)*time.Minute))
			}
		}
		if len(looked) != len(tenants) {
			t.Errorf("%d of %d were looked at", len(looked), len(tenants))
		}
		for key, n := range looked {
			if n != 1 {
				t.Errorf("%s was looked at %d times", key, n)
			}
		}
	})
	t.Run("then each once within a day", func(t *testing.T) {
		looked := map[events.Key]int{}
		for minute := 60; minute < 24*60+60; minute++ {
			at := now.Add(time.Duration(minute) * time.Minute)
			for _, key := range d.due(tenants, at) {
				looked[key]++
				d.note(key, at)
			}
		}
		for _, key := range tenants {
			if looked[key] == 0 || looked[key] > 2 {
				t.Errorf("%s was looked at %d times", key, looked[key])
			}
		}
	})
	t.Run("one of which nothing came is due again", func(t *testing.T) {
		var d daily
		one := tenants[:1]
		if got := len(d.due(one, now)); got != 1 {
			t.Fatal(got)
		}
		if got := len(d.due(one, now.Add(time.Minute))); got != 0 {
			t.Errorf("at once")
		}
		if got := len(d.due(one, now.Add(time.Hour))); got != 1 {
			t.Errorf("not within an hour")
		}
	})
	t.Run("one that is gone is forgotten", func(t *testing.T) {
		if d.due(nil, now); len(d.next) != 0 {
			t.Errorf("%d are left", len(d.next))
		}
	})
	t.Run("a look that a clock noted which was a day ahead puts off none", func(t *testing.T) {
		var d daily
		if !d.over(tenants[0], now.Add(24*time.Hour), now) {
			t.Error("it isn't looked at before that clock's day has come, and another one has passed")
		}
		if d.over(tenants[0], now.Add(time.Second), now) {
			t.Error("clocks that differ by a second make a look")
		}
	})
}
