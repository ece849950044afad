package addons

import (
	"bytes"
	"strings"
	"testing"
	"time"

	"github.com/stoker-k8s/stoker/pkg/api/state"
)

// As kube-apiserver v1.36.3 writes it.
const useSeries = `apiserver_audit_event_total 42
apiserver_longrunning_requests{component="apiserver",group="",resource="configmaps",scope="cluster",subresource="",verb="WATCH",version="v1"} 3
apiserver_longrunning_requests{component="apiserver",group="",resource="pods",scope="resource",subresource="exec",verb="CONNECT",version="v1"} 0
process_start_time_seconds 1.76405e+09
`

func TestUseIn(t *testing.T) {
	t.Parallel()
	for sentence, c := range map[string]struct {
		text, want string
		bad        bool
	}{
		"what is counted, since the server was started": {text: useSeries, want: "1764050000 42"},
		"a watch is no session":                         {text: strings.Replace(useSeries, "} 3", "} 400", 1), want: "1764050000 42"},
		"a session is use":                              {text: strings.Replace(useSeries, `version="v1"} 0`, `version="v1"} 1`, 1)},
		"a server that doesn't count":                   {text: strings.Replace(useSeries, "apiserver_audit", "another", 1), bad: true},
		"nothing":                                       {bad: true},
		"what can't be read":                            {text: "apiserver_audit_event_total{", bad: true},
	} {
		t.Run(sentence, func(t *testing.T) {
			got, err := useIn(bytes.NewBufferString(c.text))
			if got != c.want || (err != nil) != c.bad {
				t.Errorf("%q, %v", got, err)
			}
		})
	}
}

func TestUse(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 11, 25, 12, 0, 0, 0, time.UTC)
	const idle = 30 * time.Minute
	for sentence, c := range map[string]struct {
		before *state.Use
		in     time.Duration
	}{
		"before the first time it is now":   {nil, 0},
		"half an hour later":                {&state.Use{Since: now.Add(-10 * time.Minute)}, 20 * time.Minute},
		"it is time":                        {&state.Use{Since: now.Add(-idle)}, 0},
		"it was time while nobody looked":   {&state.Use{Since: now.Add(-2 * idle)}, -idle},
		"another's clock was ahead of this": {&state.Use{Since: now.Add(time.Hour)}, idle},
	} {
		t.Run(sentence, func(t *testing.T) {
			if in := looksAtUseIn(c.before, idle, now); in != c.in {
				t.Errorf("in %s, want %s", in, c.in)
			}
		})
	}
	for sentence, c := range map[string]struct {
		before *state.Use
		seen   string
		idle   bool
	}{
		"seen for the first time":             {nil, "a", false},
		"nothing was counted since":           {&state.Use{Seen: "a"}, "a", true},
		"something was":                       {&state.Use{Seen: "a"}, "b", false},
		"it isn't known":                      {&state.Use{Seen: "a"}, "", false},
		"it isn't known again":                {&state.Use{}, "", false},
		"what was counted before isn't known": {&state.Use{}, "a", false},
	} {
		t.Run(sentence, func(t *testing.T) {
			after, unused := useAfter(c.before, c.seen, now)
			if unused != c.idle || after.Seen != c.seen || !after.Since.Equal(now) {
				t.Errorf("%+v, idle %t", after, unused)
			}
		})
	}
}
