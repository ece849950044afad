package main

import (
	"reflect"
	"testing"
	"time"
)

func TestCommandLine(t *testing.T) {
	for name, c := range map[string]struct {
		args  []string
		want  options
		wrong bool
	}{
		"nothing":                  {},
		"directories":              {args: []string{"./pkg/", "test/e2e"}, want: options{directories: []string{"pkg", "test/e2e"}}},
		"a flag after a directory": {args: []string{"pkg", "-race"}, wrong: true},
		"an unknown flag":          {args: []string{"-fast"}, wrong: true},
		"a slice":                  {args: []string{"-slice", "2/6", "-budget", "8m"}, want: options{slice: slice{2, 6}, budget: 8 * time.Minute}},
		"a slice that isn't there": {args: []string{"-slice", "7/6"}, wrong: true},
		"a slice of all":           {args: []string{"-long", "-slice", "2/6"}, wrong: true},
		"flags of go test": {
			args: []string{"-race", "pkg", "--", "-run", "TestX", "-count=3", "-update"},
			want: options{race: true, directories: []string{"pkg"}, flags: []string{"-test.run", "TestX", "-test.count=3", "-update"}},
		},
	} {
		t.Run(name, func(t *testing.T) {
			have, err := parse(c.args)
			if (err != nil) != c.wrong {
				t.Fatalf("parse(%q): %v", c.args, err)
			}
			if err == nil && !reflect.DeepEqual(have, c.want) {
				t.Errorf("parse(%q) = %+v", c.args, have)
			}
		})
	}
}
