package loop

import (
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stoker-k8s/stoker/pkg/events"
)

func TestAlarms(t *testing.T) {
	t.Parallel()
	demo, other := events.Tenant("default", "demo"), events.Tenant("default", "other")
	tests := map[string]struct {
		do   func(*alarms)
		want []string
	}{
		"an alarm wakes once, after its time": {
			func(a *alarms) { a.set(demo, 2*time.Second, Wake{Kind: "look"}) }, []string{"2s demo look"},
		},
		"the earlier of two stays": {
			func(a *alarms) {
				a.set(demo, 2*time.Second, Wake{Kind: "soon"})
				a.set(demo, 20*time.Second, Wake{Kind: "late"})
			}, []string{"2s demo soon"},
		},
		"an earlier one replaces a later one": {
			func(a *alarms) {
				a.set(demo, 20*time.Second, Wake{Kind: "late"})
				a.set(demo, 2*time.Second, Wake{Kind: "soon"})
			}, []string{"2s demo soon"},
		},
		"objects have their own": {
			func(a *alarms) {
				a.set(demo, 2*time.Second, Wake{Kind: "look"})
				a.set(other, time.Second, Wake{Kind: "look"})
			}, []string{"1s other look", "2s demo look"},
		},
		"what was given up has an alarm of its own": {
			func(a *alarms) {
				a.set(demo, 20*time.Second, Wake{Kind: wakeAgain})
				a.set(demo, 2*time.Second, Wake{Kind: "look"})
				a.off(alarmOf{key: demo})
			}, []string{"20s demo loop.again"},
		},
		"what was taken away wakes nobody": {
			func(a *alarms) {
				a.set(demo, 2*time.Second, Wake{Kind: "look"})
				a.off(alarmOf{key: demo})
				a.off(alarmOf{key: other})
			}, nil,
		},
		"the alarms of a partition go with it": {
			func(a *alarms) {
				a.set(demo, 2*time.Second, Wake{Kind: "look"})
				a.set(other, time.Second, Wake{Kind: "look"})
				a.stop(func(k events.Key) bool { return k == demo })
			}, []string{"1s other look"},
		},
		"one that has gone off can be set again": {
			func(a *alarms) {
				a.set(demo, time.Second, Wake{Kind: "first"})
				time.Sleep(3 * time.Second) //nolint:forbidigo // the bubble's clock
				a.set(demo, time.Second, Wake{Kind: "second"})
			}, []string{"1s demo first", "4s demo second"},
		},
	}
	for sentence, test := range tests {
		t.Run(sentence, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				start := time.Now()
				var mu sync.Mutex // each timer has a goroutine of its own
				var woken []string
				a := &alarms{wake: func(key events.Key, w Wake) {
					mu.Lock()
					defer mu.Unlock()
					woken = append(woken, time.Since(start).String()+" "+key.Name+" "+w.Kind)
				}}
				test.do(a)
				time.Sleep(time.Minute) //nolint:forbidigo // the bubble's clock
				synctest.Wait()
				mu.Lock()
				defer mu.Unlock()
				if !slices.Equal(woken, test.want) {
					t.Errorf("woken %q, want %q", woken, test.want)
				}
				if len(a.m) != 0 {
					t.Errorf("%d are left", len(a.m))
				}
			})
		})
	}
}
