// Package follow reads what happens to one tenant from the stream of facts and puts it into words: for `stoker watch`,
// `stoker apply --wait` and `stoker up`.
package follow

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	ce "github.com/cloudevents/sdk-go/v2/event"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/stoker-k8s/stoker/pkg/api/event"
	"github.com/stoker-k8s/stoker/pkg/api/name"
	"github.com/stoker-k8s/stoker/pkg/events"
	"github.com/stoker-k8s/stoker/pkg/portal"
)

// Line is one fact, ready to be shown.
type Line struct {
	// Event is the fact as it was published.
	Event ce.Event
	// Service that told it and What happened ("certs", "issued").
	Service, What string
	// Time of the fact, and Since the last acceptance; Since is negative while no acceptance is known.
	Time  time.Time
	Since time.Duration
	// Text puts the payload into words; may be empty.
	Text string
	// Mood is how to colour it.
	Mood Mood
}

// Mood of a line.
type Mood int

// Moods.
const (
	Plain Mood = iota
	Good
	Bad
)

// Options of Open. The zero value gives the facts from now on.
type Options struct {
	// From gives the history since then too.
	From time.Time
}

// Feed is an open subscription to the facts about one object. It is not safe for concurrent use.
type Feed struct {
	bus      *events.Bus
	key      events.Key
	messages jetstream.MessagesContext
	accepted time.Time
}

// Open subscribes; facts that are published after it returned are not missed. Close the feed.
func Open(ctx context.Context, bus *events.Bus, key events.Key, o Options) (*Feed, error) {
	f := &Feed{bus: bus, key: key}
	stream, err := bus.JetStream().Stream(ctx, events.StreamFacts)
	if errors.Is(err, jetstream.ErrStreamNotFound) {
		return nil, fmt.Errorf("stream %s does not exist: has intake ever run against this NATS server?", events.StreamFacts)
	}
	if err != nil {
		return nil, fmt.Errorf("facts about %s: %w", key, err)
	}
	cfg := jetstream.OrderedConsumerConfig{FilterSubjects: []string{key.FactSubject("*", "*")}, DeliverPolicy: jetstream.DeliverNewPolicy}
	if o.From.IsZero() {
		// Seconds count from the acceptance, which may have been told before.
		if last, err := stream.GetLastMsgForSubject(ctx, key.FactSubject(name.ServiceIntake, event.Accepted)); err == nil {
			if e, err := events.Decode(last.Header, last.Data); err == nil {
				f.accepted = e.Time()
			}
		}
	} else {
		cfg.DeliverPolicy, cfg.OptStartTime = jetstream.DeliverByStartTimePolicy, &o.From
	}
	consumer, err := stream.OrderedConsumer(ctx, cfg)
	if err == nil {
		f.messages, err = consumer.Messages()
	}
	if err != nil {
		return nil, fmt.Errorf("facts about %s: %w", key, err)
	}
	return f, nil
}

// Close ends the subscription.
func (f *Feed) Close() { f.messages.Stop() }

// Next waits for the next fact; ctx's error when it ends first.
func (f *Feed) Next(ctx context.Context) (Line, error) {
	for {
		m, err := f.messages.Next(jetstream.NextContext(ctx))
		if ctx.Err() != nil {
			return Line{}, ctx.Err()
		}
		if err != nil {
			return Line{}, fmt.Errorf("facts about %s: %w", f.key, err)
		}
		e, err := events.Decode(m.Headers(), m.Data())
		if err != nil {
			continue // not one of ours
		}
		return f.line(e, m.Subject()), nil
	}
}

func (f *Feed) line(e ce.Event, subject string) Line {
	service, what := tail(subject)
	if service == name.ServiceIntake && what == event.Accepted {
		f.accepted = e.Time()
	}
	l := Line{Event: e, Service: service, What: what, Time: e.Time(), Since: -1}
	if !f.accepted.IsZero() {
		l.Since = max(e.Time().Sub(f.accepted), 0)
	}
	l.Text, l.Mood = words(service, what, e.Data())
	return l
}

// Facts calls out for every fact about an object until ctx ends.
func Facts(ctx context.Context, bus *events.Bus, key events.Key, o Options, out func(Line)) error {
	f, err := Open(ctx, bus, key, o)
	if err != nil {
		return err
	}
	defer f.Close()
	for {
		l, err := f.Next(ctx)
		if ctx.Err() != nil {
			return nil
		}
		if err != nil {
			return err
		}
		out(l)
	}
}

// UntilReady gives every fact of the feed to out (may be nil) until the tenant is what was accepted: Ready in that
// generation or a later one, or asleep. It returns a *portal.FailedError when it won't be, ctx's error when that ends first.
func UntilReady(ctx context.Context, f *Feed, accepted portal.Accepted, out func(Line)) (event.StatusChanged, error) {
	return until(ctx, f, out, accepted.Done)
}

// UntilPaused gives every fact of the feed to out (may be nil) until the tenant's status says that it is paused.
func UntilPaused(ctx context.Context, f *Feed, out func(Line)) (event.StatusChanged, error) {
	return until(ctx, f, out, func(s event.StatusChanged) (bool, error) { return s.Phase == paused, nil })
}

// UntilBackedUp gives every fact of the feed to out until a backup that somebody asked for is made, or could not be made.
func UntilBackedUp(ctx context.Context, f *Feed, out func(Line)) error {
	for {
		l, err := f.Next(ctx)
		if err != nil {
			return err
		}
		out(l)
		switch l.Service + "." + l.What {
		case name.ServiceDatastore + "." + event.BackedUp:
			var b event.DatastoreBackedUp
			if err := json.Unmarshal(l.Event.Data(), &b); err != nil || !b.Scheduled {
				return err
			}
		case name.ServiceDatastore + "." + event.NotBackedUp:
			var b event.DatastoreNotBackedUp
			if err := json.Unmarshal(l.Event.Data(), &b); err != nil {
				return err
			}
			if b.Scheduled {
				continue
			}
			return fmt.Errorf("no backup in %s: %s", b.Location, b.Message)
		}
	}
}

// UntilRestored gives every fact of the feed to out until the tenant was set back to a backup, or can't be.
func UntilRestored(ctx context.Context, f *Feed, backup string, out func(Line)) error {
	for {
		l, err := f.Next(ctx)
		if err != nil {
			return err
		}
		out(l)
		switch l.Service + "." + l.What {
		case name.ServiceDatastore + "." + event.Restored:
			var r event.DatastoreRestored
			if err := json.Unmarshal(l.Event.Data(), &r); err != nil || r.InPlace != "" && r.From == backup {
				return err
			}
		case name.ServiceDatastore + "." + event.NotRestored:
			var r event.DatastoreNotRestored
			if err := json.Unmarshal(l.Event.Data(), &r); err != nil {
				return err
			}
			if r.From == backup {
				return fmt.Errorf("not restored, the tenant keeps its data: %s", r.Message)
			}
		}
	}
}

// paused is the phase of a tenant that is.
const paused = "Paused"

// until gives every fact of the feed to out until a status is the end, as ended says; the error is ended's then.
func until(
	ctx context.Context, f *Feed, out func(Line), ended func(event.StatusChanged) (bool, error),
) (event.StatusChanged, error) {
	// The status may be there already when nothing changed; the feed was opened before, so nothing falls in between.
	if s, err := Status(ctx, f.bus, f.key); err == nil {
		if done, err := ended(s.StatusChanged); done {
			if out != nil {
				l := Line{Service: name.ServiceStatus, What: event.Changed, Time: time.Now(), Since: -1}
				l.Text, l.Mood = words(l.Service, l.What, event.Marshal(s.StatusChanged))
				out(l)
			}
			return s.StatusChanged, err
		}
	}
	for {
		l, err := f.Next(ctx)
		if err != nil {
			return event.StatusChanged{}, err
		}
		if out != nil {
			out(l)
		}
		if l.Service != name.ServiceStatus {
			continue
		}
		var s event.StatusChanged
		if err := json.Unmarshal(l.Event.Data(), &s); err != nil {
			return s, fmt.Errorf("%s about %s: %w", l.Event.Type(), f.key, err)
		}
		if done, err := ended(s); done {
			return s, err
		}
	}
}

// UntilDeleted gives every fact of the feed to out (may be nil) until nothing of the tenant with this UID (any, when
// empty) is left, and returns the last word about it.
func UntilDeleted(ctx context.Context, f *Feed, uid string, out func(Line)) (event.StatusChanged, error) {
	for {
		l, err := f.Next(ctx)
		if err != nil {
			return event.StatusChanged{}, err
		}
		if out != nil {
			out(l)
		}
		if l.Service != name.ServiceStatus || l.What != event.Deleted {
			continue
		}
		var s event.StatusChanged
		if err := json.Unmarshal(l.Event.Data(), &s); err != nil {
			return s, fmt.Errorf("%s about %s: %w", l.Event.Type(), f.key, err)
		}
		if uid == "" || s.UID == uid {
			return s, nil
		}
	}
}
