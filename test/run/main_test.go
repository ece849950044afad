package main

import (
	"reflect"
	"testing"
)

func TestTheCommandLineNamesGroups(t *testing.T) {
	for name, c := range map[string]struct {
		args []string
		want []group
	}{
		"nothing":                   {},
		"flags alone":               {args: []string{"--", "-race"}},
		"what is left out alone":    {args: []string{"!pkg"}},
		"a flag for a directory":    {args: []string{"-race"}},
		"a second without any":      {args: []string{"pkg", "--", "-race", "--", "--"}},
		"directories without flags": {args: []string{"pkg", "test"}, want: []group{{directories: []string{"pkg", "test"}}}},
		"two": {
			args: []string{"pkg", "!pkg/loop", "--", "-race", "--", "test", "--", "-p", "3"},
			want: []group{{directories: []string{"pkg", "!pkg/loop"}, flags: []string{"-race"}}, {directories: []string{"test"}, flags: []string{"-p", "3"}}},
		},
	} {
		t.Run(name, func(t *testing.T) {
			if have := parse(c.args); len(have) != len(c.want) || len(have) > 0 && !reflect.DeepEqual(have, c.want) {
				t.Errorf("parse(%q) = %+v", c.args, have)
			}
		})
	}
}
