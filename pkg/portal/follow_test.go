package portal

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stoker-k8s/stoker/pkg/api/event"
	"github.com/stoker-k8s/stoker/pkg/api/name"
)

func TestFollowing(t *testing.T) {
	t.Parallel()
	w := start(t)
	c := w.client(t)
	t.Run("gives the last status first, then what is told, each once", func(t *testing.T) {
		w.say(t, named("a", statusOf("Provisioning", 1)), named("a", statusOf("NotReady", 1)))
		var phases []string
		for s, err := range c.Follow(t.Context(), "default", "a") {
			if err != nil {
				t.Fatal(err)
			}
			phases = append(phases, s.Phase)
			switch s.Phase {
			case "NotReady":
				w.say(t, named("a", statusOf("Ready", 1)))
			case "Ready":
				w.say(t, named("a", statusOf("Deleted", 2)))
			}
			if s.Phase == phaseDeleted {
				break
			}
		}
		if want := []string{"NotReady", "Ready", "Deleted"}; !slices.Equal(phases, want) {
			t.Errorf("%v", phases)
		}
	})
	t.Run("ends with ctx, and says so", func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		w.say(t, named("b", statusOf("Provisioning", 1)))
		var last error
		for _, err := range c.Follow(ctx, "default", "b") {
			last = err
			cancel()
		}
		if !errors.Is(last, context.Canceled) {
			t.Errorf("%v", last)
		}
	})
	t.Run("of what can't be a tenant ends at once", func(t *testing.T) {
		for _, err := range c.Follow(t.Context(), "default", ">") {
			if err == nil {
				t.Error("a status")
			}
		}
	})
	t.Run("finds what was told while the connection was lost", func(t *testing.T) {
		w.say(t, statusOf("Provisioning", 1))
		ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
		defer cancel()
		var phases []string
		for s, err := range c.Follow(ctx, "default", "demo") {
			if err != nil {
				t.Fatal(err)
			}
			if phases = append(phases, s.Phase); s.Ready {
				break
			}
			// The server is back with another status before this client is.
			gone := c.nc.StatusChanged()
			w.Stop()
			<-gone
			c.nc.RemoveStatusListener(gone)
			if err := w.Restart(ctx); err != nil {
				t.Fatal(err)
			}
			w.tell(t, w.bus(t, name.ServiceStatus), statusOf("Ready", 1))
		}
		if want := []string{"Provisioning", "Ready"}; !slices.Equal(phases, want) {
			t.Errorf("%v", phases)
		}
	})
}

func TestStatus(t *testing.T) {
	t.Parallel()
	w := start(t)
	c := w.client(t)
	if _, err := c.Status(t.Context(), "default", "demo"); !errors.Is(err, ErrNoStatus) {
		t.Errorf("before there is one: %v", err)
	}
	w.say(t, statusOf("Ready", 4))
	if s, err := c.Status(t.Context(), "default", "demo"); err != nil || s.Generation != 4 {
		t.Errorf("%+v, %v", s, err)
	}
}

func TestDone(t *testing.T) {
	other := statusOf("Deleted", 9)
	other.UID = "u0"
	held := statusOf("Paused", 3)
	held.Ready = true
	tests := map[string]struct {
		status       event.StatusChanged
		paused       bool
		done, failed bool
	}{
		"Ready in an earlier generation is not the end":                   {statusOf("Ready", 2), false, false, false},
		"Ready in this generation is":                                     {statusOf("Ready", 3), false, true, false},
		"Ready in a later one is":                                         {statusOf("Ready", 4), false, true, false},
		"asleep as asked for is":                                          {statusOf("Sleeping", 3), false, true, false},
		"under way is not":                                                {statusOf("Upgrading", 3), false, false, false},
		"an unknown phase is not":                                         {statusOf("Levitating", 3), false, false, false},
		"Failed is an error":                                              {statusOf("Failed", 3), false, true, true},
		"Failed in an earlier generation is not the end":                  {statusOf("Failed", 2), false, false, false},
		"deleted by somebody else is an error":                            {statusOf("Deleting", 4), false, true, true},
		"given to another installation is an error":                       {statusOf("Released", 3), false, true, true},
		"the end of an earlier tenant of that name is not":                {other, false, false, false},
		"Paused, and paused when it was accepted, is an error":            {statusOf("Paused", 3), true, true, true},
		"Paused of before it was resumed is not the end":                  {statusOf("Paused", 3), false, false, false},
		"Paused isn't Ready, even of a tenant that was before the change": {held, false, false, false},
	}
	for sentence, test := range tests {
		t.Run(sentence, func(t *testing.T) {
			done, err := yes(event.Accepted, "c", test.paused).Done(test.status)
			if done != test.done || (err != nil) != test.failed {
				t.Errorf("done %t, %v", done, err)
			}
		})
	}
}

func TestDoneOfWhatSleepsWithinAGeneration(t *testing.T) {
	for sentence, test := range map[string]struct {
		replicas   int32
		phase      string
		generation int64
		done       bool
	}{
		"Ready of before is not the end of being put to sleep": {0, "Ready", 3, false},
		"asleep is": {0, "Sleeping", 3, true},
		"asleep of before is not the end of being woken": {2, "Sleeping", 3, false},
		"Ready is": {2, "Ready", 3, true},
		"asleep in a later generation is the end of what came before":    {2, "Sleeping", 4, true},
		"and so is Ready in a later generation of what was to be asleep": {0, "Ready", 4, true},
	} {
		t.Run(sentence, func(t *testing.T) {
			accepted := yes(event.Accepted, "c", false)
			accepted.Replicas = &test.replicas
			if done, err := accepted.Done(statusOf(test.phase, test.generation)); done != test.done || err != nil {
				t.Errorf("done %t, %v", done, err)
			}
		})
	}
}

// within calls f with ever more time, of which the first answers of a busy server take some, until it ends as expected.
func within(t *testing.T, f func(context.Context) error, expected func(error) bool) (err error) {
	t.Helper()
	for patience := 200 * time.Millisecond; patience < time.Minute; patience *= 3 {
		ctx, cancel := context.WithTimeout(t.Context(), patience)
		err = f(ctx)
		cancel()
		if err == nil {
			t.Fatal("no error")
		}
		if expected(err) {
			return err
		}
	}
	t.Errorf("it ends with %v", err)
	return err
}

func TestWaiting(t *testing.T) {
	t.Parallel()
	w := start(t)
	c := w.client(t)
	accepted := func(name string) Accepted {
		a := yes(event.Accepted, "c", false)
		a.Name = name
		return a
	}
	// later says statuses while the test waits.
	later := func(t *testing.T, all ...event.StatusChanged) (said func()) {
		var saying sync.WaitGroup
		saying.Go(func() { w.say(t, all...) })
		return saying.Wait
	}
	t.Run("ends when the generation is Ready", func(t *testing.T) {
		w.say(t, named("a", statusOf("Ready", 2)))
		defer later(t, named("a", statusOf("Ready", 3)))()
		if s, err := c.WaitReady(t.Context(), accepted("a")); err != nil || s.Generation != 3 {
			t.Errorf("%+v, %v", s, err)
		}
	})
	t.Run("ends with an error when it won't be", func(t *testing.T) {
		w.say(t, named("b", statusOf("Failed", 3)))
		var failed *FailedError
		if _, err := c.WaitReady(t.Context(), accepted("b")); !errors.As(err, &failed) || failed.Status.Phase != "Failed" {
			t.Errorf("%v", err)
		}
	})
	t.Run("for too long says how far it came", func(t *testing.T) {
		w.say(t, named("c", statusOf("Upgrading", 3)))
		err := within(t, func(ctx context.Context) error { _, err := c.WaitReady(ctx, accepted("c")); return err }, func(err error) bool {
			return strings.HasPrefix(err.Error(), "default/c is not Ready yet but Upgrading: as it is: ")
		})
		if !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("%v", err)
		}
	})
	t.Run("for the end of a tenant ends when it is gone", func(t *testing.T) {
		earlier := named("d", statusOf("Deleted", 9))
		earlier.UID = "u0"
		w.say(t, earlier)
		defer later(t, named("d", statusOf("Deleting", 4)), named("d", statusOf("Deleted", 4)))()
		if s, err := c.WaitDeleted(t.Context(), accepted("d")); err != nil || s.Phase != phaseDeleted || s.UID != "u1" {
			t.Errorf("%+v, %v", s, err)
		}
	})
	t.Run("for what has no status is refused", func(t *testing.T) {
		if _, err := c.WaitReady(t.Context(), Accepted{IntakeAccepted: event.IntakeAccepted{About: event.About{Name: "etcd"}}}); err == nil {
			t.Error("it waits")
		}
	})
}
