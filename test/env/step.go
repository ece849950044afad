package env

import (
	"errors"
	"fmt"
	"regexp"
	"strings"
	"testing"
)

// Step is a write of a process about an object: the nth of those that look the same but for the object's name.
type Step struct {
	What string
	Nth  int
}

func (s Step) String() string { return fmt.Sprintf("%s (%d)", s.What, s.Nth) }

// varies is what differs between messages about two tenants beside their names: the partition.
var varies = regexp.MustCompile(`stoker\.(fact|timer|dead)\.[0-9]+`)

// General is text about an object that another's would equal.
func General(text, name string) string {
	for old, to := range map[string]string{name: "NAME", strings.ReplaceAll(name, "-", "_"): "NAME"} {
		text = strings.ReplaceAll(text, old, to)
	}
	return varies.ReplaceAllString(text, "stoker.$1.P")
}

// Steps are the writes about an object among messages, in order.
func Steps(messages []Message, name string) (all []Step) {
	count := map[string]int{}
	for _, m := range messages {
		if m.Write && m.About(name) {
			what := General(m.What, name)
			count[what]++
			all = append(all, Step{what, count[what]})
		}
	}
	return all
}

// At tells the message that is the step for an object, of those that are sent from now on.
func (s Step) At(name string) func(Message) bool {
	n := 0
	return func(m Message) bool {
		if !m.Write || !m.About(name) || General(m.What, name) != s.What {
			return false
		}
		n++
		return n == s.Nth
	}
}

// Kill kills a process that is tapped at the step for an object, before or after the write is made, and starts it again. It waits for that from begin
// on. A step that is one of several alike may not be needed, when all is over without it.
func (s Step) Kill(t testing.TB, p *Process, after bool, name string, begin func(), over func() bool) {
	t.Helper()
	kill := p.tap.KillBefore
	if after {
		kill = p.tap.KillAfter
	}
	killed := kill(p, s.At(name))
	defer p.tap.Clear()
	begin()
	Eventually(t, s.String(), func() error {
		select {
		case <-killed:
			return nil
		default:
		}
		if over() {
			return nil
		}
		return errors.New("it has not come, and nothing is over")
	})
	if p.tap.Clear() {
		if s.Nth == 1 {
			t.Fatalf("it ended without %s", s)
		}
		return
	}
	<-killed
	p.Restart(t)
}
