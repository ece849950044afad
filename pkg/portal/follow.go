package portal

// Statuses. Live ones come by a plain subscription, which delivers at most once: so the last one is read when following
// begins, whenever the connection came back, and every now and then.

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"strconv"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/stoker-k8s/stoker/pkg/api/event"
	"github.com/stoker-k8s/stoker/pkg/events"
)

// Phases of a tenant that mean something here; event.Phases lists all.
const (
	phaseSleeping = "Sleeping"
	phasePaused   = "Paused"
	phaseFailed   = "Failed"
	phaseDeleting = "Deleting"
	phaseDeleted  = "Deleted"
	phaseReleased = "Released"
)

// How soon the last status is read again: after it could not be, and to find what was lost on the way.
const (
	lookSoon  = time.Second
	lookAgain = 30 * time.Second
)

// published is a status as it was published.
type published struct {
	event.StatusChanged
	id       string
	sequence uint64 // 0 when it was delivered live
}

// Status reads what was published last about a tenant. ErrNoStatus when nothing is.
func (c *Client) Status(ctx context.Context, namespace, name string) (event.StatusChanged, error) {
	s, err := c.last(ctx, events.Tenant(namespace, name))
	return s.StatusChanged, err
}

// last reads what is kept on a tenant's subject.
func (c *Client) last(ctx context.Context, key events.Key) (published, error) {
	if !key.Valid() {
		return published{}, fmt.Errorf("%s can't be the name of a tenant", key)
	}
	ask, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	subject := key.LastStatusSubject()
	m, err := c.nc.RequestWithContext(ask, subject, nil)
	if err != nil {
		if denied := c.denied(subject); denied != nil {
			err = denied
		}
		return published{}, fmt.Errorf("status of %s: %w", key, err)
	}
	switch code := m.Header.Get("Status"); code {
	case "":
	case "404":
		return published{}, fmt.Errorf("%w of %s", ErrNoStatus, key)
	default:
		return published{}, fmt.Errorf("status of %s: the server answered %s %s", key, code, m.Header.Get("Description"))
	}
	s, err := readStatus(m)
	if err == nil {
		s.sequence, err = strconv.ParseUint(m.Header.Get(jetstream.SequenceHeader), 10, 64)
	}
	if err != nil {
		return published{}, fmt.Errorf("status of %s: %w", key, err)
	}
	return s, nil
}

func readStatus(m *nats.Msg) (published, error) {
	e, err := events.Decode(m.Header, m.Data)
	if err != nil {
		return published{}, err
	}
	s := published{id: e.ID()}
	return s, json.Unmarshal(e.Data(), &s.StatusChanged)
}

// Follow gives the last status of a tenant and every one after it, until the loop is left or ctx ends, which it gives as
// the error. A slow reader and an outage may miss statuses, never the last one. It goes on after the tenant was deleted:
// another of that name may come.
func (c *Client) Follow(ctx context.Context, namespace, name string) iter.Seq2[event.StatusChanged, error] {
	key := events.Tenant(namespace, name)
	return func(yield func(event.StatusChanged, error) bool) {
		if err := c.follow(ctx, key, func(s event.StatusChanged) bool { return yield(s, nil) }); err != nil {
			yield(event.StatusChanged{}, err)
		}
	}
}

// follow calls out for every status until that returns false, or returns why it can't go on.
func (c *Client) follow(ctx context.Context, key events.Key, out func(event.StatusChanged) bool) error {
	if !key.Valid() {
		return fmt.Errorf("%s can't be the name of a tenant", key)
	}
	live := make(chan *nats.Msg, 64)
	sub, err := c.nc.ChanSubscribe(key.StatusSubject(), live)
	if err != nil {
		return fmt.Errorf("status of %s: %w", key, err)
	}
	defer func() { _ = sub.Unsubscribe() }()
	reconnected, stop := c.reconnects()
	defer stop()

	var latest published
	// hand hands a status out unless it was the last one to be.
	hand := func(s published) bool {
		if s.id == latest.id {
			return true
		}
		sequence := max(latest.sequence, s.sequence)
		latest = s
		latest.sequence = sequence
		return out(s.StatusChanged)
	}
	delivered := func(m *nats.Msg) bool {
		s, err := readStatus(m)
		return err != nil || hand(s) // what can't be read isn't the status service's
	}
	look := time.NewTimer(0)
	defer look.Stop()
	for {
		select {
		case <-ctx.Done():
			return fmt.Errorf("following %s: %w", key, ctx.Err())
		case m := <-live:
			if !delivered(m) {
				return nil
			}
			continue
		case <-reconnected:
		case <-look.C:
		}
		// What was delivered before the last one is read is not newer than that.
		for range len(live) {
			if !delivered(<-live) {
				return nil
			}
		}
		if denied := c.denied(key.StatusSubject()); denied != nil {
			return denied
		}
		s, err := c.last(ctx, key)
		var denied *DeniedError
		switch {
		case errors.As(err, &denied), errors.Is(err, nats.ErrConnectionClosed):
			return err
		case err != nil && !errors.Is(err, ErrNoStatus):
			look.Reset(lookSoon)
			continue
		}
		look.Reset(lookAgain)
		// A server that lags behind may answer with one that was handed out before.
		if err == nil && s.sequence > latest.sequence && !hand(s) {
			return nil
		}
	}
}

// Done reports whether a status is the end of what was accepted: the tenant is Ready in that generation or a later one,
// or asleep; or, with a *FailedError, it won't be without somebody's help.
func (a Accepted) Done(s event.StatusChanged) (bool, error) {
	switch {
	case s.Generation < a.Generation, a.UID != "" && s.UID != a.UID: // of before, or of another tenant of that name
		return false, nil
	case s.Phase == phasePaused:
		// It says nothing of this generation. One that was paused when the command was accepted stays so; else the status is of
		// before, or the pause will end.
		if a.Paused {
			return true, &FailedError{s}
		}
		return false, nil
	case a.Replicas != nil && s.Generation == a.Generation && (s.Ready && *a.Replicas == 0 || s.Phase == phaseSleeping && *a.Replicas > 0):
		return false, nil // of before: what has a schedule sleeps and wakes within a generation
	case s.Phase == phaseFailed, s.Phase == phaseDeleting, s.Phase == phaseDeleted, s.Phase == phaseReleased:
		return true, &FailedError{s}
	}
	return s.Ready || s.Phase == phaseSleeping, nil
}

// WaitReady waits until the tenant that was accepted is Ready in that generation or a later one, or asleep when that was
// asked for, and returns its status. A *FailedError when it won't be without somebody's help; when ctx ends, its error and
// the last status.
func (c *Client) WaitReady(ctx context.Context, a Accepted) (event.StatusChanged, error) {
	return c.wait(ctx, a, "Ready", a.Done)
}

// WaitDeleted waits until nothing is left of the tenant whose deletion was accepted. The status it returns says what was
// removed, and what could not be.
func (c *Client) WaitDeleted(ctx context.Context, a Accepted) (event.StatusChanged, error) {
	return c.wait(ctx, a, phaseDeleted, func(s event.StatusChanged) (bool, error) {
		return s.Phase == phaseDeleted && (a.UID == "" || s.UID == a.UID), nil
	})
}

func (c *Client) wait(ctx context.Context, a Accepted, what string, settled func(event.StatusChanged) (bool, error)) (last event.StatusChanged, err error) {
	if a.Namespace == "" {
		return last, fmt.Errorf("%s has no status to wait for: only tenants do", a.Name)
	}
	for s, err := range c.Follow(ctx, a.Namespace, a.Name) {
		switch {
		case err != nil && last.Phase != "":
			return last, fmt.Errorf("%s/%s is not %s yet but %s: %s: %w", a.Namespace, a.Name, what, last.Phase, last.Message, err)
		case err != nil:
			return last, err
		}
		last = s
		if done, err := settled(s); done {
			return s, err
		}
	}
	return last, nil
}
