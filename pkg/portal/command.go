package portal

// Commands: published with a subject for the answer, and again until there is one. intake knows a command by its source and
// id, so that one that is sent twice is carried out once.

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"time"

	ce "github.com/cloudevents/sdk-go/v2/event"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/nats-io/nuid"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/stoker-k8s/stoker/pkg/api/event"
	"github.com/stoker-k8s/stoker/pkg/api/name"
	"github.com/stoker-k8s/stoker/pkg/api/v1alpha1"
	"github.com/stoker-k8s/stoker/pkg/events"
	"github.com/stoker-k8s/stoker/pkg/intent"
)

// Accepted is intake's yes: the object as it is after the command, and the command's id. Of a deletion it has no more than
// that.
type Accepted struct {
	event.IntakeAccepted
	// What was done: event.Accepted or event.Deleting.
	What string
}

// Option changes a command.
type Option func(*options)

type options struct {
	id, uid, trace string
	generation     *int64
}

// ID gives the command an id, so that a portal that doesn't know whether it sent it can send it again. Default: a random
// one.
func ID(id string) Option { return func(o *options) { o.id = id } }

// UID refuses the command for any object but the one with this UID: it is meant for no other of that name. Not for Apply.
func UID(uid string) Option { return func(o *options) { o.uid = uid } }

// ExpectGeneration refuses the command (rule "Conflict") unless the object has this generation; 0: unless there is none.
func ExpectGeneration(generation int64) Option {
	return func(o *options) { o.generation = &generation }
}

// TraceParent hands a W3C trace context on to every fact that follows from the command.
func TraceParent(traceparent string) Option { return func(o *options) { o.trace = traceparent } }

// Apply creates an object or makes it what is given: a *v1alpha1.TenantControlPlane, *v1alpha1.DataStore or
// *v1alpha1.KubeconfigGenerator. Of its metadata, labels and annotations count. What an earlier Apply set and this one
// leaves out is removed.
//
// This and all other commands return a *RefusedError when the command is refused, an *UnansweredError when ctx ends before
// the answer is there, and a *DeniedError when this NATS user may not command the object.
func (c *Client) Apply(ctx context.Context, object metav1.Object, opts ...Option) (Accepted, error) {
	key, data, err := body(object)
	if err != nil {
		return Accepted{}, err
	}
	return c.Command(ctx, key, event.Apply, data, opts...)
}

// Command sends any command of the catalogue, for those who have its data already, such as an object in JSON for event.Apply.
// What data says of the object must be what key says.
func (c *Client) Command(ctx context.Context, key events.Key, verb string, data any, opts ...Option) (Accepted, error) {
	o := resolve(opts)
	if o.uid != "" {
		return Accepted{}, errors.New("option UID is for Patch, Delete, Pause, Resume, Sleep and Wake; Apply has ExpectGeneration")
	}
	return c.send(ctx, key, verb, data, o)
}

// body is the data of an apply command, and the object's key.
func body(object metav1.Object) (events.Key, json.RawMessage, error) {
	var key events.Key
	var kind string
	switch object.(type) {
	case *v1alpha1.TenantControlPlane:
		key, kind = events.Tenant(object.GetNamespace(), object.GetName()), "TenantControlPlane"
	case *v1alpha1.DataStore:
		key, kind = events.DataStore(object.GetName()), "DataStore"
	case *v1alpha1.KubeconfigGenerator:
		key, kind = events.Generator(object.GetName()), "KubeconfigGenerator"
	default:
		return key, nil, fmt.Errorf("%T can't be applied by command", object)
	}
	data, err := json.Marshal(object)
	if err != nil {
		return key, nil, err
	}
	var whole map[string]any
	if err := json.Unmarshal(data, &whole); err != nil {
		return key, nil, err
	}
	meta := map[string]any{"name": object.GetName()}
	for field, value := range map[string]map[string]string{"labels": object.GetLabels(), "annotations": object.GetAnnotations()} {
		if len(value) > 0 {
			meta[field] = value
		}
	}
	if key.IsTenant() {
		meta["namespace"] = object.GetNamespace()
	}
	whole["apiVersion"], whole["kind"], whole["metadata"] = v1alpha1.GroupVersion.String(), kind, meta
	delete(whole, "status")
	data, err = json.Marshal(whole)
	return key, data, err
}

// Patch changes parts of an object's spec: a JSON merge patch (RFC 7386), anything that marshals to a JSON object. What it
// doesn't mention stays, null removes.
func (c *Client) Patch(ctx context.Context, key events.Key, spec any, opts ...Option) (Accepted, error) {
	data, err := json.Marshal(spec)
	if err != nil {
		return Accepted{}, fmt.Errorf("the patch of %s: %w", key, err)
	}
	o := resolve(opts)
	return c.send(ctx, key, event.Patch, event.PatchCommand{Target: o.target(), Spec: data}, o)
}

// Delete deletes an object: a tenant with everything of it, a DataStore once no tenant uses it.
func (c *Client) Delete(ctx context.Context, key events.Key, opts ...Option) (Accepted, error) {
	o := resolve(opts)
	return c.send(ctx, key, event.Delete, event.DeleteCommand{Target: o.target()}, o)
}

// Pause makes all services leave an object alone, its deletion included: until the given time, or until Resume when it is
// zero.
func (c *Client) Pause(ctx context.Context, key events.Key, until time.Time, opts ...Option) (Accepted, error) {
	o := resolve(opts)
	return c.send(ctx, key, event.Pause, event.PauseCommand{Target: o.target(), Until: until}, o)
}

// Resume ends a pause.
func (c *Client) Resume(ctx context.Context, key events.Key, opts ...Option) (Accepted, error) {
	o := resolve(opts)
	return c.send(ctx, key, event.Resume, event.ResumeCommand{Target: o.target()}, o)
}

// Sleep stops a tenant's pods; its data and keys stay.
func (c *Client) Sleep(ctx context.Context, tenant events.Key, opts ...Option) (Accepted, error) {
	o := resolve(opts)
	return c.send(ctx, tenant, event.Sleep, event.SleepCommand{Target: o.target()}, o)
}

// Wake starts as many of a sleeping tenant's pods as there were.
func (c *Client) Wake(ctx context.Context, tenant events.Key, opts ...Option) (Accepted, error) {
	o := resolve(opts)
	return c.send(ctx, tenant, event.Wake, event.WakeCommand{Target: o.target()}, o)
}

// Backup asks for a backup of a tenant, to a location, the name of its Secret, or, if that is empty, to the one that the tenant has. The fact
// datastore.backedup says that it was made.
func (c *Client) Backup(ctx context.Context, tenant events.Key, location string, opts ...Option) (Accepted, error) {
	o := resolve(opts)
	return c.send(ctx, tenant, event.Backup, event.BackupCommand{Target: o.target(), Location: location}, o)
}

// Restore sets a tenant back to a backup of its own, location/namespace/name/ID. The key identity of the Secret <tenant>-restore has to be the age
// identity that opens the backup's data. The fact datastore.restored says that it was done, datastore.notrestored that it can't be.
func (c *Client) Restore(ctx context.Context, tenant events.Key, backup string, opts ...Option) (Accepted, error) {
	o := resolve(opts)
	return c.send(ctx, tenant, event.Restore, event.RestoreCommand{Target: o.target(), Backup: backup}, o)
}

func resolve(opts []Option) options {
	var o options
	for _, apply := range opts {
		apply(&o)
	}
	o.id = cmp.Or(o.id, nuid.Next())
	return o
}

func (o options) target() event.Target { return event.Target{UID: o.uid} }

// Patience with an answer: after firstRepeat the command is sent again, then after twice as long, up to lastRepeat. An
// answer may have been lost with a connection, of either side.
const (
	firstRepeat = 5 * time.Second
	lastRepeat  = time.Minute
)

// send publishes a command and waits for its answer.
func (c *Client) send(ctx context.Context, key events.Key, verb string, data any, o options) (Accepted, error) {
	if !key.Valid() {
		return Accepted{}, fmt.Errorf("%q in namespace %q can't be the name of one of the %s", key.Name, key.Namespace, key.Kind)
	}
	e, err := c.event(key, verb, data, o)
	if err != nil {
		return Accepted{}, err
	}
	answer := key.NewAnswerSubject()
	e.SetExtension(events.ExtReplyTo, answer)
	answers := make(chan *nats.Msg, 4)
	sub, err := c.nc.ChanSubscribe(answer, answers)
	if err != nil {
		return Accepted{}, fmt.Errorf("subject for the answer about %s: %w", key, err)
	}
	defer func() { _ = sub.Unsubscribe() }()
	reconnected, stop := c.reconnects()
	defer stop()

	stored := false
	for wait := c.patience; ; wait = min(2*wait, lastRepeat) {
		if err := c.publish(ctx, key.CommandSubject(), e); err != nil {
			if ctx.Err() != nil {
				err = &UnansweredError{Command: e.ID(), Stored: stored, Err: err}
			}
			return Accepted{}, fmt.Errorf("%s: %w", key, err)
		}
		stored = true
		again := time.NewTimer(wait)
		select {
		case m := <-answers:
			again.Stop()
			return answered(m, e.ID())
		case <-reconnected:
		case <-again.C:
			if denied := c.denied(answer); denied != nil {
				return Accepted{}, fmt.Errorf("%s: the command is stored, but its answer can't be heard: %w", key, denied)
			}
		case <-ctx.Done():
			again.Stop()
			return Accepted{}, fmt.Errorf("%s: %w", key, &UnansweredError{Command: e.ID(), Stored: true, Err: ctx.Err()})
		}
		again.Stop()
	}
}

// event makes the CloudEvent of a command.
func (c *Client) event(key events.Key, verb string, data any, o options) (ce.Event, error) {
	typ := event.CommandType(key.Kind, verb)
	e := ce.New()
	e.SetID(o.id)
	e.SetSource(c.source)
	e.SetType(typ)
	e.SetSubject(key.String())
	e.SetTime(time.Now().UTC())
	e.SetDataSchema(event.SchemaURI(typ))
	if err := e.SetData(ce.ApplicationJSON, data); err != nil {
		return e, fmt.Errorf("data of %s for %s: %w", typ, key, err)
	}
	if n := len(e.Data()); n > events.MaxPayload {
		return e, fmt.Errorf("data of %s for %s has %d bytes, more than %d", typ, key, n, events.MaxPayload)
	}
	if secrets := event.InlineSecrets(key.Kind, e.Data()); secrets != nil {
		about := event.About{Namespace: key.Namespace, Name: key.Name}
		if key.Namespace == events.ClusterScoped {
			about.Namespace = ""
		}
		return e, &RefusedError{event.IntakeRejected{About: about, Kind: key.Kind, Command: o.id, Errors: secrets}}
	}
	if o.generation != nil {
		e.SetExtension(events.ExtExpectedGeneration, strconv.FormatInt(*o.generation, 10))
	}
	if o.trace != "" {
		e.SetExtension(events.ExtTraceParent, o.trace)
	}
	if err := e.Validate(); err != nil {
		return e, fmt.Errorf("command for %s: %w", key, err)
	}
	return e, nil
}

// publish stores a command, as often as it takes while ctx lasts.
func (c *Client) publish(ctx context.Context, subject string, e ce.Event) error {
	msg := events.Encode(subject, e)
	// The repeats in here share one Nats-Msg-Id, so JetStream stores the command once. A command that is sent again has another
	// one, so that intake sees it and answers again.
	msg.Header.Set(nats.MsgIdHdr, e.ID()+" "+nuid.Next())
	for wait := 50 * time.Millisecond; ; wait = min(2*wait, 2*time.Second) {
		ask, cancel := context.WithTimeout(ctx, requestTimeout)
		_, err := c.js.PublishMsg(ask, msg)
		cancel()
		switch {
		case err == nil:
			return nil
		case c.denied(subject) != nil:
			return c.denied(subject)
		case errors.Is(err, nats.ErrConnectionClosed), errors.Is(err, nats.ErrMaxPayload), refused(err):
			return err
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("%w (%w)", ctx.Err(), err)
		case <-time.After(wait):
		}
	}
}

// refused reports whether the server has refused a message, and would again.
func refused(err error) bool {
	var api *jetstream.APIError
	return errors.As(err, &api) && api.Code < 500 && intent.Of(events.Classify(err)) != intent.Wait
}

// answered reads intake's answer.
func answered(m *nats.Msg, id string) (Accepted, error) {
	e, err := events.Decode(m.Header, m.Data)
	if err != nil {
		return Accepted{}, fmt.Errorf("answer to command %s: %w", id, err)
	}
	switch e.Type() {
	case event.FactType(name.ServiceIntake, event.Rejected):
		no := &RefusedError{}
		if err := json.Unmarshal(e.Data(), &no.IntakeRejected); err != nil {
			return Accepted{}, fmt.Errorf("answer to command %s: %w", id, err)
		}
		return Accepted{}, no
	case event.FactType(name.ServiceIntake, event.Accepted), event.FactType(name.ServiceIntake, event.Deleting):
		yes := Accepted{What: event.Accepted}
		if e.Type() == event.FactType(name.ServiceIntake, event.Deleting) {
			yes.What = event.Deleting
		}
		if err := json.Unmarshal(e.Data(), &yes.IntakeAccepted); err != nil {
			return Accepted{}, fmt.Errorf("answer to command %s: %w", id, err)
		}
		yes.Command = id
		return yes, nil
	}
	return Accepted{}, fmt.Errorf("answer to command %s is of unknown type %s", id, e.Type())
}
