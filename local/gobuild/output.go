package gobuild

import (
	"bytes"
	"fmt"
	"math"
	"strings"
	"sync"
	"time"
)

// staleFormat makes go list print a line for each package that has to be compiled: why.
const staleFormat = "{{if .Stale}}{{.StaleReason}}{{end}}"

// cached is go's reason to call a package stale that has been compiled. Should go say it otherwise one day, all packages
// are counted, and the count jumps over those that needn't be compiled.
const cached = "not installed but available in build cache"

// countStale counts the packages to compile in what go list prints by staleFormat.
func countStale(list string) int {
	n := 0
	for line := range strings.Lines(list) {
		if why := strings.TrimSpace(line); why != "" && why != cached {
			n++
		}
	}
	return n
}

// output reads what go writes beside its output: with -v a line per package that it compiles, a line per module that it
// downloads, and complaints. It is safe for concurrent use.
type output struct {
	mu         sync.Mutex
	start      time.Time // of all
	since      time.Time // when compiling began; zero before
	stale      int       // packages to compile
	compiled   int
	downloaded int
	rest       []byte // of a line that isn't complete
	other      []string
}

func newOutput(start time.Time) *output { return &output{start: start} }

// compile tells that so many packages are compiled from now on.
func (o *output) compile(stale int, now time.Time) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.since, o.stale = now, stale
}

// Write takes a piece of what go writes.
func (o *output) Write(p []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.rest = append(o.rest, p...)
	for {
		i := bytes.IndexByte(o.rest, '\n')
		if i < 0 {
			return len(p), nil
		}
		line := string(o.rest[:i])
		o.rest = o.rest[i+1:]
		switch {
		case strings.HasPrefix(line, "go: downloading "):
			o.downloaded++
		case !strings.ContainsAny(line, " \t"):
			o.compiled++
		default:
			o.other = append(o.other, line)
		}
	}
}

// summary says how far it is: n of N packages, and about how long the rest takes.
func (o *output) summary(now time.Time) string {
	o.mu.Lock()
	defer o.mu.Unlock()
	took := now.Sub(o.start).Round(time.Second)
	if o.since.IsZero() {
		return fmt.Sprintf("%d modules downloaded, %s", o.downloaded, took)
	}
	packages := fmt.Sprintf("%d of %d packages", o.compiled, max(o.stale, o.compiled))
	if o.compiled >= o.stale {
		return fmt.Sprintf("%s, linking, %s", packages, took)
	}
	if left := o.left(now); left != "" {
		return fmt.Sprintf("%s, %s, about %s left", packages, took, left)
	}
	return fmt.Sprintf("%s, %s", packages, took)
}

// left estimates how long the rest takes, to ten seconds in the last minute, to minutes before. It takes packages to be alike:
// of Kubernetes, a third is done after a third of the time (the size of their files told less).
// It is empty while too little is known.
func (o *output) left(now time.Time) string {
	compiling := now.Sub(o.since)
	if compiling < 10*time.Second || o.compiled == 0 {
		return ""
	}
	left := time.Duration(float64(compiling) * float64(o.stale-o.compiled) / float64(o.compiled))
	if left > time.Minute {
		return fmt.Sprintf("%.0f min", math.Ceil(left.Minutes()))
	}
	return fmt.Sprintf("%.0f s", 10*math.Ceil(left.Seconds()/10))
}

// complaints are the last lines that say what went wrong.
func (o *output) complaints() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	lines := o.other
	if len(lines) > 30 {
		lines = lines[len(lines)-30:]
	}
	var b strings.Builder
	for _, line := range lines {
		fmt.Fprintln(&b, line)
	}
	b.Write(o.rest)
	return b.String()
}
