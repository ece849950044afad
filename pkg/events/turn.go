package events

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"golang.org/x/sync/errgroup"

	"github.com/stoker-k8s/stoker/pkg/api/event"
	"github.com/stoker-k8s/stoker/pkg/api/name"
	"github.com/stoker-k8s/stoker/pkg/api/state"
)

// Turn is what a handler gets: the object, the events since its last turn, the desired state, its own state. A Turn
// belongs to one call of the handler.
type Turn struct {
	Key Key
	// Events since the last turn that succeeded, oldest first; empty when only a watch woke the service.
	Events []Event
	// Reasons given by watches.
	Reasons []string
	// Tenant is the desired state, nil when the tenant has none (no bucket yet, or no more) or the key is no tenant's.
	Tenant *state.Tenant
	// UID and Generation of Tenant.
	UID        string
	Generation int64

	loop     *Loop
	attempt  int
	own      *state.State
	revision uint64 // of own
	owed     bool   // facts of own may lack in the stream
}

// load reads spec and own state, and publishes facts the own state still owes.
func (t *Turn) load(ctx context.Context, again bool) error {
	if !t.Key.IsTenant() || !t.Key.Valid() {
		return nil
	}
	b, l := t.loop.Bus, t.loop
	var spec *state.State
	var g errgroup.Group
	if l.ownKey() != KeySpec {
		g.Go(func() (err error) {
			spec, _, err = b.readState(ctx, t.Key, KeySpec)
			return present(err)
		})
	}
	var err error
	if t.commandsOnly() {
		t.own, t.revision, err = b.askState(ctx, t.Key, l.ownKey())
		if errors.Is(err, nats.ErrNoResponders) {
			err = ErrNotFound
		}
	} else {
		t.own, t.revision, err = b.readState(ctx, t.Key, l.ownKey())
	}
	if err := cmp.Or(present(err), g.Wait()); err != nil {
		return err
	}
	if l.ownKey() == KeySpec {
		spec = t.own
	}
	if spec != nil {
		t.Tenant = &state.Tenant{}
		if err := json.Unmarshal(spec.Data, t.Tenant); err != nil {
			return &Permanent{Reason: "InvalidState", Message: "the tenant's spec in its bucket is not readable", Err: err}
		}
		t.UID, t.Generation = spec.UID, spec.Generation
		if err := t.behind(name.ServiceIntake, spec); err != nil {
			return err
		}
		if t.own != nil && t.own.UID != t.UID {
			// Left by an earlier tenant of that name: start anew, on top of its revision.
			t.own = nil
		}
	}
	l.mu.Lock()
	settled := l.settled[t.Key]
	l.mu.Unlock()
	if (!settled || again) && t.own != nil {
		t.owed = true
		if err := t.settle(ctx); err != nil {
			return err
		}
		t.owed = false
	}
	t.settled(t.own != nil)
	return nil
}

// commandsOnly reports whether a turn is about commands and nothing else. They concern the object, and the state only once that
// is written: if there is one after all, of a bucket that didn't answer yet, then the write is refused as stale. So there is no
// need to ask whether a bucket is really not there, which it isn't for each new tenant.
func (t *Turn) commandsOnly() bool {
	return len(t.Events) > 0 && len(t.Reasons) == 0 && !slices.ContainsFunc(t.Events, func(e Event) bool { return e.Service != "" })
}

// settled notes whether the facts of the own state are known to be published.
func (t *Turn) settled(are bool) {
	l := t.loop
	l.mu.Lock()
	defer l.mu.Unlock()
	if are {
		l.settled[t.Key] = true
	} else {
		delete(l.settled, t.Key)
	}
}

// present takes the absence of a state for no error.
func present(err error) error {
	if errors.Is(err, ErrNotFound) {
		return nil
	}
	return err
}

// settle publishes the facts of the own state that the stream doesn't have: a crash between the write and the publish
// leaves them owed.
func (t *Turn) settle(ctx context.Context) error {
	for _, f := range t.own.Facts {
		told, err := t.loop.Bus.told(ctx, t.Key.FactSubject(t.loop.Service, f.What), f)
		if err != nil {
			return err
		}
		if !told {
			if err := t.publish(ctx, t.own, f); err != nil {
				return err
			}
		}
	}
	return nil
}

// resumed adds to the events of a turn in which a pause has ended that the service's timer is due: the service then looks at
// everything, since what watches saw and timers said during the pause has passed. The fact that ends the pause is proof
// against restarts and moves of the partition, which a memory of the pause would not be.
func (t *Turn) resumed() {
	if t.Tenant == nil || !t.pausable() {
		return
	}
	for _, e := range t.Events {
		var a event.IntakeAccepted
		if e.Err == nil && e.Service == name.ServiceIntake && e.What == event.Accepted && json.Unmarshal(e.Data(), &a) == nil && a.Resumed {
			t.Events = append(t.Events, Event{Service: t.loop.Service, What: event.Due})
			return
		}
	}
}

// tellAgain tells once more that this service has removed what it made, when a deletion goes on after a pause: the fact
// reached a service that was paused, which let it pass. Each service that is done says so, and the first that isn't goes on.
// To the others it is a repeat.
func (t *Turn) tellAgain(ctx context.Context) error {
	if t.Tenant == nil || !t.Tenant.Deleting || t.own == nil || t.own.Step != event.Removed {
		return nil
	}
	if !slices.ContainsFunc(t.Events, func(e Event) bool { return e.Service == name.ServiceIntake && e.What == event.Deleting }) {
		return nil
	}
	for _, f := range t.own.Facts {
		msg := Encode(t.Key.FactSubject(t.loop.Service, f.What), t.loop.Bus.factEvent(t.Key, t.own.Generation, t.Tenant.TraceParent, f))
		msg.Header.Del(nats.MsgIdHdr) // a repeat that is meant
		if _, err := t.loop.Bus.publish(ctx, msg); err != nil {
			return err
		}
	}
	return nil
}

// told reports whether the last fact on a subject is this one, or a later one.
func (b *Bus) told(ctx context.Context, subject string, f state.Fact) (bool, error) {
	ctx, cancel := context.WithTimeout(ctx, stateTimeout)
	defer cancel()
	msg, err := b.nc.RequestWithContext(ctx, "$JS.API.DIRECT.GET."+StreamFacts+"."+subject, nil)
	if err != nil {
		if errors.Is(err, context.DeadlineExceeded) {
			return false, &Unavailable{Dependency: "nats", Err: err}
		}
		return false, classify(err)
	}
	if msg.Header.Get("Status") == "404" {
		return false, nil
	}
	if msg.Header.Get(headerPrefix+"id") == f.ID {
		return true, nil
	}
	at, err := time.Parse(time.RFC3339Nano, msg.Header.Get(headerPrefix+"time"))
	return err == nil && at.After(f.Time), nil
}

func (l *Loop) ownKey() string {
	if l.Service == "intake" {
		return KeySpec
	}
	return l.Service
}

// Paused reports whether the tenant is paused: then nothing is changed for it, and the handler isn't called. intake sees to
// pauses and status says so: they go on.
func (t *Turn) Paused() bool {
	return t.Tenant != nil && t.Tenant.Paused && t.pausable()
}

func (t *Turn) pausable() bool {
	return t.loop.Service != name.ServiceIntake && t.loop.Service != name.ServiceStatus
}

// Woken reports whether a watch gave this reason.
func (t *Turn) Woken(reason string) bool {
	for _, r := range t.Reasons {
		if r == reason {
			return true
		}
	}
	return false
}

// Attempt counts the failures of this turn so far; 0 at first.
func (t *Turn) Attempt() int { return t.attempt }

// About starts the payload of a fact about this tenant.
func (t *Turn) About() event.About {
	a := event.About{Namespace: t.Key.Namespace, Name: t.Key.Name, UID: t.UID, Generation: t.Generation}
	if a.Namespace == ClusterScoped {
		a.Namespace = ""
	}
	return a
}

// Own is the service's state as it was read or last written, nil when there is none.
func (t *Turn) Own() *state.State { return t.own }

// OwnData decodes the data of the own state into v; v is left alone when there is none.
func (t *Turn) OwnData(v any) error {
	if t.own == nil || len(t.own.Data) == 0 {
		return nil
	}
	return json.Unmarshal(t.own.Data, v)
}

// Read decodes another service's data into v and returns its state; nil when there is none yet or it is an earlier
// tenant's of that name.
func (t *Turn) Read(ctx context.Context, service string, v any) (*state.State, error) {
	s, _, err := t.loop.Bus.readState(ctx, t.Key, service)
	if errors.Is(err, ErrNotFound) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	if t.UID != "" && s.UID != t.UID {
		return nil, nil
	}
	if err := t.behind(service, s); err != nil {
		return nil, err
	}
	if v != nil && len(s.Data) > 0 {
		if err := json.Unmarshal(s.Data, v); err != nil {
			return nil, fmt.Errorf("state %s of %s: %w", service, t.Key, err)
		}
	}
	return s, nil
}

// behind reports a state older than a fact of this turn that it announced: with several servers a direct get may be
// answered by one that lags. Acting on it would lose the fact.
func (t *Turn) behind(service string, s *state.State) error {
	for _, e := range t.Events {
		// Of intake, only these announce a state; a timer announces none.
		if s.UpdatedAt.IsZero() || e.Service != service || e.What == event.Due || service == name.ServiceIntake && e.What != event.Accepted && e.What != event.Deleting {
			continue
		}
		var about event.About
		if json.Unmarshal(e.Data(), &about) == nil && about.UID == s.UID && about.Generation >= s.Generation && e.Time().After(s.UpdatedAt) {
			return fmt.Errorf("state of %s read is older than its fact %s", service, e.ID())
		}
	}
	return nil
}

// Adopt makes the turn work for an object: intake calls it with what the API server says before it writes the spec. The
// bucket is made if it isn't there; one that an earlier tenant of that name left behind is replaced.
func (t *Turn) Adopt(ctx context.Context, uid string, generation int64) error {
	if t.own != nil && t.own.UID != uid {
		if err := t.loop.Bus.Forget(ctx, t.Key); err != nil {
			return err
		}
		t.own, t.revision, t.Tenant = nil, 0, nil
	}
	if t.own == nil {
		if err := t.loop.Bus.CreateBucket(ctx, t.Key); err != nil {
			return err
		}
	}
	t.UID, t.Generation = uid, generation
	return nil
}

// Tell is a fact to be told with a state.
type Tell struct {
	What string
	// Data is the payload, one of pkg/api/event.
	Data any
}

// Outcome is what a turn has come to.
type Outcome struct {
	// Step that was done last, Inputs it was computed from, Waiting: what is missing for the next.
	Step, Inputs, Waiting string
	// Data is the service's part of the state.
	Data any
	// Facts announced by this write, in order.
	Facts []Tell
	// Failure is what went wrong although the turn did all it could, nil for nothing: Reason, Message and Permanent are
	// taken from it. A new reason is told as the fact failed; the turn is not repeated.
	Failure *state.Failure
}

// Done writes the own state, if it differs from what is there, and then publishes its facts. ErrStale when somebody else
// wrote meanwhile; the turn is then repeated by the runner.
func (t *Turn) Done(ctx context.Context, o Outcome) error {
	s := &state.State{UID: t.UID, Generation: t.Generation, Step: o.Step, Inputs: o.Inputs, Waiting: o.Waiting, UpdatedAt: time.Now().UTC()}
	if o.Data != nil {
		s.Data = event.Marshal(o.Data)
	}
	if o.Failure != nil {
		f := state.Failure{Reason: o.Failure.Reason, Message: clipFailure(o.Failure.Message), Permanent: o.Failure.Permanent, Since: s.UpdatedAt}
		said := false
		if own := t.own; own != nil && own.Failure != nil && own.Generation == t.Generation {
			f.Since = own.Failure.Since
			said = own.Failure.Reason == f.Reason && own.Failure.Permanent == f.Permanent
		}
		s.Failure = &f
		if !said {
			o.Facts = append(slices.Clone(o.Facts), t.failed(f))
		}
	}
	return t.write(ctx, s, o.Facts)
}

// Wait notes what the service waits for and keeps the rest of its state; the fact or watch that brings it wakes the
// service.
func (t *Turn) Wait(ctx context.Context, what string) error {
	s := &state.State{UID: t.UID, UpdatedAt: time.Now().UTC()}
	if t.own != nil {
		*s = *t.own
	}
	s.UpdatedAt, s.Waiting, s.Generation, s.Failure = time.Now().UTC(), what, t.Generation, nil
	return t.write(ctx, s, nil)
}

// reasonUnavailable is the reason of a Failure while a dependency is away.
const reasonUnavailable = "Unavailable"

// fail notes a failure in the own state and tells it.
func (t *Turn) fail(ctx context.Context, f state.Failure) error {
	if t.Tenant == nil || !t.Key.IsTenant() {
		return nil
	}
	s := &state.State{UID: t.UID}
	f.Since = time.Now().UTC()
	f.Message = clipFailure(f.Message)
	if t.own != nil {
		*s = *t.own
		if t.own.Failure != nil {
			f.Since = t.own.Failure.Since
			if t.own.Failure.Reason == f.Reason && t.own.Failure.Message == f.Message && t.own.Failure.Permanent == f.Permanent &&
				t.own.Generation == t.Generation {
				return nil // said already
			}
			if f.Reason == reasonUnavailable && t.own.Failure.Reason == reasonUnavailable && time.Since(t.own.UpdatedAt) < time.Minute {
				return nil // the same outage in other words: addresses in them differ from try to try
			}
		}
	}
	s.Generation, s.Failure, s.UpdatedAt = t.Generation, &f, time.Now().UTC()
	return t.write(ctx, s, []Tell{t.failed(f)})
}

// failed is the fact that tells a failure.
func (t *Turn) failed(f state.Failure) Tell {
	return Tell{event.Failed, event.StepFailed{
		About: t.About(), Reason: f.Reason, Message: f.Message, Attempts: f.Attempts, Retrying: !f.Permanent,
	}}
}

// clipFailure shortens what a failure says at a whole character.
func clipFailure(message string) string {
	if len(message) > 1024 {
		return strings.ToValidUTF8(message[:1024], "")
	}
	return message
}

func (t *Turn) write(ctx context.Context, s *state.State, tells []Tell) error {
	if err := Held(ctx); err != nil {
		return err
	}
	if len(tells) == 0 && t.own != nil {
		s.Facts = t.own.Facts
		if sameState(t.own, s) {
			return nil
		}
	}
	if t.own != nil && !s.UpdatedAt.After(t.own.UpdatedAt) { // by another replica's clock
		s.UpdatedAt = t.own.UpdatedAt.Add(time.Nanosecond)
	}
	facts := make([]state.Fact, 0, len(tells))
	for _, x := range tells {
		data := event.Marshal(x.Data)
		facts = append(facts, state.Fact{
			ID:   ID(t.UID, strconv.FormatInt(t.Generation, 10), t.loop.Service, x.What, strconv.FormatUint(t.revision, 10)),
			What: x.What, Time: s.UpdatedAt, Data: data,
		})
	}
	if len(tells) > 0 {
		s.Facts = nil
		if t.owed && t.own != nil { // as when a failure is noted that keeps them from being published
			s.Facts = slices.DeleteFunc(slices.Clone(t.own.Facts), func(f state.Fact) bool { return f.What == event.Failed })
		}
		s.Facts = append(s.Facts, facts...)
		// Until they are published they are owed, also when the answer to the write is lost.
		t.settled(false)
	}
	revision, err := t.loop.Bus.writeState(ctx, t.Key, t.loop.ownKey(), s, t.revision)
	if err != nil {
		return err
	}
	t.own, t.revision = s, revision
	if len(tells) > 0 {
		t.owed = true
		for _, f := range s.Facts {
			if err := t.publish(ctx, s, f); err != nil {
				return err
			}
		}
		t.owed = false
		t.settled(true)
		t.loop.log.Info("step done", "tenant", t.Key.String(), "generation", s.Generation, "step", facts[len(facts)-1].What)
	}
	return nil
}

func (t *Turn) publish(ctx context.Context, s *state.State, f state.Fact) error {
	trace := ""
	if t.Tenant != nil {
		trace = t.Tenant.TraceParent
	}
	_, err := t.loop.Bus.Publish(ctx, t.Key.FactSubject(t.loop.Service, f.What), t.loop.Bus.factEvent(t.Key, s.Generation, trace, f))
	return err
}

// At wakes the service with the fact <service>.due at a time, replacing an earlier timer of this tenant and service. The
// server keeps the timer; it outlives every replica.
func (t *Turn) At(ctx context.Context, at time.Time) error {
	b, service := t.loop.Bus, t.loop.Service
	id := ID(t.UID, service, event.Due, at.UTC().Format(time.RFC3339Nano))
	msg := Encode(t.Key.TimerSubject(service, event.Due), b.factEvent(t.Key, t.Generation, "",
		state.Fact{ID: id, What: event.Due, Time: at, Data: event.Marshal(event.TimerDue{About: t.About()})}))
	// A timer replaces the one before, so that a repeat is harmless; by its id the server would drop a timer that is set
	// again. Whole seconds, and never before its time.
	msg.Header.Del(nats.MsgIdHdr)
	msg.Header.Set("Nats-Schedule", "@at "+at.UTC().Add(time.Second-1).Format(time.RFC3339))
	msg.Header.Set("Nats-Schedule-Target", t.Key.FactSubject(service, event.Due))
	_, err := b.publish(ctx, msg)
	return err
}

// bury puts the turn's events into the dead letters with their cause and notes the failure; the events are then done.
func (l *Loop) bury(ctx context.Context, t *Turn, batch []*delivery, f state.Failure) error {
	l.log.Error("gave up", "tenant", t.Key.String(), "reason", f.Reason, "cause", f.Message, "attempts", f.Attempts)
	for _, d := range batch {
		if err := l.Bus.bury(ctx, l.Service, t.Key, d.event, f); err != nil {
			return err
		}
	}
	if err := t.fail(ctx, f); err != nil && !errors.Is(err, ErrNotFound) {
		return err
	}
	return nil
}

// bury stores one event in the dead letters.
func (b *Bus) bury(ctx context.Context, service string, key Key, e Event, f state.Failure) error {
	m := nats.NewMsg(key.DeadSubject(service))
	size := 0
	for k, v := range e.Raw.Headers() {
		if size += len(k) + len(strings.Join(v, "")); !strings.HasPrefix(k, "Nats-") && size <= MaxPayload {
			m.Header[k] = v
		}
	}
	// One as large as the server allows has no room for its cause.
	m.Data = e.Raw.Data()
	if len(m.Data) > MaxPayload {
		m.Header.Set("Stoker-Truncated", strconv.Itoa(len(m.Data)))
		m.Data = m.Data[:MaxPayload]
	}
	m.Header.Set("Stoker-Subject", e.Raw.Subject())
	m.Header.Set("Stoker-Reason", f.Reason)
	m.Header.Set("Stoker-Cause", strings.Map(printable, clip(f.Message)))
	if meta, err := e.Raw.Metadata(); err == nil {
		m.Header.Set(nats.MsgIdHdr, ID("dead", service, meta.Stream, strconv.FormatUint(meta.Sequence.Stream, 10), meta.Timestamp.String()))
	}
	b.metrics.dead.Inc()
	_, err := b.publish(ctx, m)
	return err
}

// printable keeps header values on one line.
func printable(r rune) rune {
	if r < ' ' || r == 0x7f {
		return ' '
	}
	return r
}

func (e Event) metricType() string {
	if e.Service == "" {
		return "command"
	}
	return e.Service + "." + e.What
}
