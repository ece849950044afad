package progress

import (
	"bytes"
	"os"
	"testing"
	"testing/synctest"
	"time"
)

func TestLines(t *testing.T) {
	// say tells of a build that takes 70 seconds.
	say := func(f Func) {
		f("begin", false)
		for _, line := range []string{"1 of 3", "2 of 3", "3 of 3"} {
			<-time.After(20 * time.Second)
			f(line, true)
		}
		<-time.After(10 * time.Second)
		f("done", false)
		f("next", false)
	}
	for name, test := range map[string]struct {
		terminal bool
		want     string
	}{
		"on a terminal the newest line overwrites the passing one before it": {
			terminal: true,
			want:     "> begin\n> 1 of 3\r\x1b[K> 2 of 3\r\x1b[K> 3 of 3\r\x1b[K> done\n> next\n",
		},
		"elsewhere a passing line is written every half minute": {
			want: "> begin\n> 2 of 3\n> done\n> next\n",
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var out bytes.Buffer
				say(Lines(&out, test.terminal, func() string { return "> " }))
				if out.String() != test.want {
					t.Errorf("got %q\nwant %q", out.String(), test.want)
				}
			})
		})
	}
}

func TestTerminal(t *testing.T) {
	file, err := os.CreateTemp(t.TempDir(), "")
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	if Terminal(file) || Terminal(&bytes.Buffer{}) {
		t.Error("a file or a buffer is no terminal")
	}
}
