package env

import (
	"fmt"
	"regexp"
	"strings"
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
	count, about := map[string]int{}, About(name)
	for _, m := range messages {
		if m.Write && about(m) {
			what := General(m.What, name)
			count[what]++
			all = append(all, Step{what, count[what]})
		}
	}
	return all
}

// is returns a function that compares messages about an object with the step. The function reports whether they are equal writes.
func (s Step) is(name string) func(Message) bool {
	about := About(name)
	return func(m Message) bool { return m.Write && about(m) && General(m.What, name) == s.What }
}
