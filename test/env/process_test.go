package env

import (
	"errors"
	"os/exec"
	"strings"
	"syscall"
	"testing"
)

// process starts a shell as a process of an installation.
func process(t *testing.T, script string) (*Env, *Process) {
	t.Helper()
	e := &Env{dir: t.TempDir(), procs: map[string]*Process{}}
	p := &Process{Name: "certs", Replica: "a", env: e}
	if err := p.run(exec.Command("sh", "-c", script)); err != nil {
		t.Fatal(err)
	}
	e.procs["certs/a"] = p
	t.Cleanup(func() { p.Kill() })
	return e, p
}

// living is a script that does something, and then waits until it is asked to end.
func living(first string) string {
	return first + "; trap 'exit 0' TERM; echo started; while :; do sleep 0.05; done"
}

// logged waits until a process has written something.
func logged(t *testing.T, p *Process, text string) {
	t.Helper()
	Eventually(t, text+" in the log", func() error {
		if !strings.Contains(p.tail(), text) {
			return errors.New("not yet")
		}
		return nil
	})
}

func TestProcess(t *testing.T) {
	for what, c := range map[string]struct {
		script string
		ends   bool   // by itself
		want   string // of the error; empty for none
	}{
		"one that did its work is fine":                          {script: living(":")},
		"a crash in the middle":                                  {script: "echo 'panic: nil map' >&2; exit 2", ends: true, want: "ended by itself (exit status 2)"},
		"an end without an error, but unasked":                   {script: "echo bye", ends: true, want: "ended by itself (exit status 0)"},
		"a data race ends it with 66":                            {script: "echo 'WARNING: DATA RACE'; exit 66", ends: true, want: "exit status 66"},
		"a data race it outlives":                                {script: living("echo 'WARNING: DATA RACE'"), want: "WARNING: DATA RACE"},
		"a panic that the loop caught":                           {script: living(`echo 'level=ERROR msg="gave up" cause="certs panicked: nil map"'`), want: "panicked: nil map"},
		"a panic that net/http caught":                           {script: living("echo 'http: panic serving 127.0.0.1:1: no'"), want: "panic serving"},
		"killed by somebody else":                                {script: "kill -9 $$", ends: true, want: "signal: killed"},
		"the word panic in a message of the log says nothing":    {script: living(`echo 'level=INFO msg="don'"'"'t panic: all is well"'`)},
		"an exit code at SIGTERM that isn't zero, as of a defer": {script: "trap 'exit 3' TERM; echo started; while :; do sleep 0.05; done", want: "exit status 3 at SIGTERM"},
	} {
		t.Run(what, func(t *testing.T) {
			for name, end := range map[string]func(*Env, *Process) error{
				"Stop":                   func(_ *Env, p *Process) error { return p.Stop() },
				"the end of the package": func(e *Env, _ *Process) error { return e.endServices() },
			} {
				e, p := process(t, c.script)
				if c.ends {
					<-p.exited
				} else {
					logged(t, p, "started")
				}
				if err := end(e, p); !says(err, c.want) {
					t.Errorf("%s: %v, want %q", name, err, c.want)
				}
			}
			if strings.Contains(c.want, "SIGTERM") {
				return
			}
			_, p := process(t, c.script)
			if c.ends {
				<-p.exited
			} else {
				logged(t, p, "started")
			}
			p.Kill()
			if err := p.told(); !says(err, c.want) {
				t.Errorf("killed: %v, want %q", err, c.want)
			}
			if err := p.told(); err != nil {
				t.Errorf("told twice: %v", err)
			}
		})
	}
	t.Run("one that is told to end before it began is fine", func(t *testing.T) {
		_, p := process(t, "exec sleep 60")
		if err := p.Stop(); err != nil {
			t.Error(err)
		}
	})
	t.Run("one that had begun, and doesn't hear that it is to end", func(t *testing.T) {
		_, p := process(t, "echo started; exec sleep 60")
		logged(t, p, "started")
		if err := p.Stop(); !says(err, "signal: terminated at SIGTERM") {
			t.Error(err)
		}
	})
	t.Run("one that is stopped (SIGSTOP) ends, too", func(t *testing.T) {
		_, p := process(t, living(":"))
		logged(t, p, "started")
		p.Signal(syscall.SIGSTOP)
		if err := p.Stop(); err != nil {
			t.Error(err)
		}
	})
}

// says reports whether an error has a text; an empty one means that there must be no error.
func says(err error, want string) bool {
	if want == "" {
		return err == nil
	}
	return err != nil && strings.Contains(err.Error(), want)
}
