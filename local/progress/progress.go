// Package progress shows a person how far something is that takes minutes.
package progress

import (
	"fmt"
	"io"
	"os"
	"sync"
	"time"
)

// Func takes one line, without its end. A passing line is followed within seconds by a newer one about the same thing.
// Several goroutines may call it at once.
type Func func(line string, passing bool)

// None takes lines that nobody reads.
func None(string, bool) {}

// seldom is how often a passing line is written where lines stay.
const seldom = 30 * time.Second

// Lines writes to w, each line behind what prefix returns. On a terminal a passing line is overwritten by the next line;
// elsewhere one is written every half minute, and all others are left out.
func Lines(w io.Writer, terminal bool, prefix func() string) Func {
	var mu sync.Mutex
	over, last := false, time.Now() // over: the last line is to be overwritten
	return func(line string, passing bool) {
		mu.Lock()
		defer mu.Unlock()
		start, end := "", "\n"
		switch {
		case terminal:
			if over {
				start = "\r\x1b[K"
			}
			if over = passing; passing {
				end = ""
			}
		case passing && time.Since(last) < seldom:
			return
		}
		last = time.Now()
		_, _ = fmt.Fprint(w, start, prefix(), line, end)
	}
}

// Terminal reports whether a writer is a terminal, where a line can be overwritten.
func Terminal(w io.Writer) bool {
	f, ok := w.(*os.File)
	if !ok || os.Getenv("TERM") == "dumb" {
		return false
	}
	info, err := f.Stat()
	return err == nil && info.Mode()&os.ModeCharDevice != 0
}
