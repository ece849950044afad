package intake

// Wakes on commands. Makes the object they ask for, changes or deletes it. Answers the sender on its inbox, tells
// intake.rejected for what was refused; what can't be told to a sender goes to the dead letters.

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	ce "github.com/cloudevents/sdk-go/v2/event"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/stoker-k8s/stoker/pkg/api/event"
	"github.com/stoker-k8s/stoker/pkg/api/name"
	"github.com/stoker-k8s/stoker/pkg/api/reason"
	"github.com/stoker-k8s/stoker/pkg/api/v1alpha1"
	"github.com/stoker-k8s/stoker/pkg/events"
	"github.com/stoker-k8s/stoker/pkg/fence"
	"github.com/stoker-k8s/stoker/pkg/intent"
	"github.com/stoker-k8s/stoker/pkg/loop"
)

// order is a command that was understood.
type order struct {
	event loop.Event
	key   events.Key
	kind  kind
	verb  string
	// expected is the generation the object must have, 0: it must not be there; nil when any will do.
	expected *int64
}

// commands are the catalogue's, by type.
var commands = func() map[string]event.Entry {
	all := map[string]event.Entry{}
	for _, e := range event.Catalogue() {
		if e.Command {
			all[e.Type] = e
		}
	}
	return all
}()

// typesOf lists the types of commands for a kind.
func typesOf(kind string) []string {
	var types []string
	for t, e := range commands {
		if e.Kind == kind {
			types = append(types, t)
		}
	}
	slices.Sort(types)
	return types
}

// maxID bounds id and source of a command.
const maxID = 256

// understand checks everything about a command but its data.
func (s *intake) understand(key events.Key, e loop.Event) (order, error) {
	o := order{event: e, key: key}
	var attribute *events.AttributeError
	switch {
	case errors.As(e.Err, &attribute):
		return o, refuse("event."+attribute.Attribute, ruleInvalid, attribute.Value, attribute.Message)
	case e.Err != nil:
		return o, refuse("event", ruleInvalid, "", e.Err.Error())
	case len(e.ID()) > maxID:
		return o, refuse("event.id", ruleTooLarge, e.ID(), fmt.Sprintf("must not be longer than %d bytes", maxID))
	case len(e.Source()) > maxID:
		return o, refuse("event.source", ruleTooLarge, e.Source(), fmt.Sprintf("must not be longer than %d bytes", maxID))
	}
	known := false
	if o.kind, known = kinds[key.Kind]; !known {
		return o, refuse("event.subject", ruleUnknown, key.Kind, "no such kind; commands are published on stoker.intake.tenantcontrolplanes.<namespace>.<name>, stoker.intake.datastores.-.<name> and stoker.intake.kubeconfiggenerators.-.<name>")
	}
	if !key.Valid() || o.kind.Namespaced == (key.Namespace == events.ClusterScoped) {
		return o, refuse("event.subject", ruleInvalid, key.String(), "namespace and name in the subject must be those of a Kubernetes object (lower-case letters, digits, dashes); for cluster-scoped kinds the namespace is -")
	}
	if inbox := replyTo(e); inbox != "" && !events.IsInbox(inbox) {
		return o, refuse("event."+events.ExtReplyTo, ruleInvalid, inbox, "must be an inbox (_INBOX.…)")
	}
	if n := len(e.Data()); n > events.MaxPayload {
		return o, refuse("event.data", ruleTooLarge, fmt.Sprintf("%d bytes", n), fmt.Sprintf("must not be larger than %d bytes", events.MaxPayload))
	}
	if !utf8.Valid(e.Raw.Data()) {
		return o, refuse("event.data", ruleInvalid, string(e.Raw.Data()), "must be UTF-8")
	}
	entry := commands[e.Type()]
	if entry.Kind != key.Kind {
		return o, refuse("event.type", ruleUnknown, e.Type(), "must be one of "+strings.Join(typesOf(key.Kind), ", "))
	}
	o.verb = entry.What
	if v, ok := e.Extensions()[events.ExtExpectedGeneration]; ok {
		said := fmt.Sprint(v)
		n, err := strconv.ParseInt(said, 10, 64)
		if err != nil || n < 0 {
			return o, refuse("event."+events.ExtExpectedGeneration, ruleInvalid, said, "must be a whole number: the object's metadata.generation, or 0 for one that must not exist")
		}
		o.expected = &n
	}
	if s.namespace != "" && o.kind.Namespaced && key.Namespace != s.namespace {
		return o, refuse("metadata.namespace", ruleForbidden, key.Namespace, "this installation works on namespace "+s.namespace+" only")
	}
	return o, nil
}

// mark names a command on the object it changed.
func (o order) mark() string { return events.ID(o.event.Source(), o.event.ID()) }

// gist is what a command asks for: the same id with another gist is another command.
func gist(key events.Key, e ce.Event) string {
	data := e.Data()
	var compact bytes.Buffer
	if json.Compact(&compact, data) == nil {
		data = compact.Bytes()
	}
	expected := ""
	if v, ok := e.Extensions()[events.ExtExpectedGeneration]; ok {
		expected = fmt.Sprint(v)
	}
	return events.ID(e.Type(), key.Kind, key.String(), expected, string(data))
}

// command carries a command out, once, and answers it. Its error is one of the world (API server away): then the command is
// tried again, and those behind it wait, because their order is what the sender means.
func (s *intake) command(ctx context.Context, t *loop.Turn, e loop.Event) error {
	o, err := s.understand(t.Key, e)
	if err != nil {
		return s.settle(ctx, t, e, err)
	}
	asks := gist(t.Key, e.Event)
	noted, err := s.bus.Answered(ctx, e.Source(), e.ID())
	switch {
	case err != nil:
		return err
	case noted != nil && noted.Command == asks:
		return s.answer(t.Key, e, noted.What, noted.Data)
	case noted != nil:
		return s.settle(ctx, t, e, refuse("event.id", ruleDuplicate, e.ID(), "another command of this source had this id and was carried out; give each command an id of its own"))
	}
	what, data, err := s.carryOut(ctx, t, o)
	if err != nil {
		return s.settle(ctx, t, e, err)
	}
	told := event.Marshal(data)
	if err := s.bus.NoteAnswer(ctx, e.Source(), e.ID(), events.Answer{Command: asks, What: what, Data: told}); err != nil {
		return err
	}
	return s.answer(t.Key, e, what, told)
}

// maxEarly is how often a command is tried that names a DataStore which admission policies have not heard of yet: some
// seconds in all.
const maxEarly = 5

// settle ends a command that was not carried out: refused for good, or to be tried again.
func (s *intake) settle(ctx context.Context, t *loop.Turn, e loop.Event, err error) error {
	var no refusal
	var away *intent.Unavailable
	switch {
	case errors.As(err, &no):
		early, bad := s.lags(ctx, no)
		if bad != nil {
			return bad
		}
		if early && t.Attempt() < maxEarly {
			return &intent.Unavailable{Err: no}
		}
		return s.reject(ctx, t, e, no)
	case errors.As(err, &away), errors.Is(err, fence.ErrFenced), errors.Is(err, intent.ErrStale), errors.Is(err, context.Canceled), t.Attempt() < 3:
		return err
	}
	// The API server answers, and not to this. Those behind it must not wait for long.
	return s.reject(ctx, t, e, refuse("object", ruleInternal, "", cut(err.Error(), 4*maxText)))
}

func (s *intake) carryOut(ctx context.Context, t *loop.Turn, o order) (what string, answer any, err error) {
	switch o.verb {
	case event.Apply:
		return s.apply(ctx, t, o)
	case event.Delete:
		return s.delete(ctx, t, o)
	}
	return s.change(ctx, t, o)
}

// read reads the object a command is about, nil when there is none. One that belongs to another installation is refused.
func (s *intake) read(ctx context.Context, o order) (*object, error) {
	var raw json.RawMessage
	err := s.kube.Get(ctx, o.kind.Resource, bare(o.key.Namespace), o.key.Name, &raw)
	if apierrors.IsNotFound(err) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	there, err := o.object(raw)
	if err != nil {
		return nil, err
	}
	if of := there.Labels[name.LabelWatchFilter]; s.watchFilter != "" && of != s.watchFilter {
		return nil, refuse("metadata.labels["+name.LabelWatchFilter+"]", ruleForbidden, of, "this installation works on objects whose label is "+s.watchFilter+" only")
	}
	return there, nil
}

// unexpected refuses a command whose object has another generation than it expects. done tells a command that has been
// carried out already: what it changed carries its mark.
func (o order) unexpected(there *object) (done bool, err error) {
	if o.expected == nil {
		return false, nil
	}
	want := *o.expected
	field := "event." + events.ExtExpectedGeneration
	switch {
	case there == nil && want > 0:
		return false, refuse(field, ruleConflict, strconv.FormatInt(want, 10), "there is no such "+o.kind.Kind)
	case there == nil || there.Generation == want:
		return false, nil
	case there.Annotations[name.AnnotationCommand] == o.mark():
		return true, nil
	}
	return false, refuse(field, ruleConflict, strconv.FormatInt(want, 10), "the "+o.kind.Kind+" has generation "+generation(&there.ObjectMeta))
}

// maxRaces bounds how often a write is tried that somebody else's keeps overtaking.
const maxRaces = 10

// errRaces means that they did all those times.
var errRaces = errors.New("others write the object all the time")

// unborn, as the resourceVersion of an object that is applied, is that of none that is there: the API server takes it for
// a new one and refuses it for one that exists.
const unborn = "0"

// exists reports whether the API server refused an unborn object because it is there.
func exists(err error) bool {
	var status apierrors.APIStatus
	if !errors.As(err, &status) || status.Status().Details == nil {
		return false
	}
	return slices.ContainsFunc(status.Status().Details.Causes, func(c metav1.StatusCause) bool { return c.Field == "metadata.resourceVersion" })
}

// apply makes the object as the command says.
func (s *intake) apply(ctx context.Context, t *loop.Turn, o order) (string, any, error) {
	typed, body, err := whole(o.key, o.kind, o.event.Data(), s.watchFilter)
	if err != nil {
		return "", nil, err
	}
	meta := within(body, "metadata")
	if o.expected != nil {
		annotate(body, map[string]any{name.AnnotationCommand: o.mark()})
	}
	// write applies the object on top of what was read; version is the resourceVersion it must have, empty for any.
	write := func(there *object, version string) (*object, error) {
		if delete(meta, "resourceVersion"); version != "" {
			meta["resourceVersion"] = version
		}
		if asked, ok := typed.(*v1alpha1.TenantControlPlane); ok {
			dataStore, err := s.labelOf(o.key, asked, there.meta())
			if err != nil {
				return nil, err
			}
			labels := within(meta, "labels")
			if delete(labels, name.LabelDataStore); dataStore != "" {
				labels[name.LabelDataStore] = dataStore
			}
		}
		data, err := json.Marshal(body)
		if err != nil {
			return nil, err
		}
		var raw json.RawMessage
		if err := s.kube.ApplyRaw(ctx, o.kind.Resource, bare(o.key.Namespace), o.key.Name, data, &raw); err != nil {
			return nil, err
		}
		return o.object(raw)
	}
	if o.key.IsTenant() && t.UID == "" && (o.expected == nil || *o.expected == 0) { // most likely new: one question less
		after, err := write(nil, unborn)
		if !exists(err) {
			return s.end(ctx, t, o, after, err, body)
		}
	}
	for range maxRaces {
		there, err := s.read(ctx, o)
		if err != nil {
			return "", nil, err
		}
		if there != nil && there.DeletionTimestamp != nil {
			return "", nil, refuse("metadata.name", ruleDeleting, o.key.String(), "is being deleted; apply it again once it is gone (fact status.deleted)")
		}
		done, err := o.unexpected(there)
		if err != nil {
			return "", nil, err
		}
		if done {
			return s.accepted(ctx, t, o, there)
		}
		version := ""
		switch {
		case o.expected != nil && there == nil:
			version = unborn
		case o.expected != nil:
			version = there.ResourceVersion
		}
		after, err := write(there, version)
		if apierrors.IsConflict(err) || exists(err) {
			continue
		}
		return s.end(ctx, t, o, after, err, body)
	}
	return "", nil, errRaces
}

// end ends a command whose object was written, or refused.
func (s *intake) end(ctx context.Context, t *loop.Turn, o order, after *object, err error, sent any) (string, any, error) {
	if err != nil {
		return "", nil, refused(err, sent)
	}
	return s.accepted(ctx, t, o, after)
}

// accepted tells what a command has made of an object, if it is news, and returns the answer.
func (s *intake) accepted(ctx context.Context, t *loop.Turn, o order, after *object) (string, any, error) {
	e := o.event
	data := event.IntakeAccepted{
		About:   event.About{Namespace: bare(o.key.Namespace), Name: o.key.Name, UID: string(after.UID), Generation: after.Generation},
		Command: e.ID(),
	}
	if !o.key.IsTenant() {
		data.Paused, _, _ = name.Paused(after.Annotations, time.Now())
		return event.Accepted, data, s.bus.Tell(ctx, o.key, after.Generation, events.ID(o.mark(), event.Accepted), event.Accepted, data)
	}
	trace, _ := e.Extensions()[events.ExtTraceParent].(string)
	if err := s.accept(ctx, t, after.tenant, e.ID(), trace); err != nil {
		return "", nil, err
	}
	if t.Tenant != nil {
		data = acceptedOf(data.About, t.Tenant, e.ID())
	}
	return event.Accepted, data, nil
}

// bare is a namespace as Kubernetes writes it: empty for cluster-scoped kinds.
func bare(namespace string) string {
	if namespace == events.ClusterScoped {
		return ""
	}
	return namespace
}

// delete asks the API server to delete the object; what was made for it goes by the watch.
func (s *intake) delete(ctx context.Context, t *loop.Turn, o order) (string, any, error) {
	cmd, err := target[event.DeleteCommand](o.event.Data())
	if err != nil {
		return "", nil, err
	}
	about := event.About{Namespace: bare(o.key.Namespace), Name: o.key.Name, UID: cmd.UID}
	for range maxRaces {
		there, err := s.read(ctx, o)
		switch {
		case err != nil:
			return "", nil, err
		case there == nil && (again(o.event) || t.Attempt() > 0):
			return event.Deleting, event.IntakeDeleting{About: about}, nil // by an earlier try of this very command
		case there == nil:
			return "", nil, o.missing()
		}
		if err := sameUID(o, cmd.UID, there); err != nil {
			return "", nil, err
		}
		about.UID, about.Generation = string(there.UID), there.Generation
		if there.DeletionTimestamp != nil {
			return event.Deleting, event.IntakeDeleting{About: about}, nil
		}
		if _, err := o.unexpected(there); err != nil {
			return "", nil, err
		}
		only := &metav1.Preconditions{UID: &there.UID}
		if o.expected != nil {
			only.ResourceVersion = &there.ResourceVersion
		}
		_, err = s.kube.Delete(ctx, o.kind.Resource, bare(o.key.Namespace), o.key.Name, metav1.DeleteOptions{Preconditions: only})
		if apierrors.IsConflict(err) {
			continue
		}
		if err != nil {
			return "", nil, refused(err, nil)
		}
		return event.Deleting, event.IntakeDeleting{About: about}, nil
	}
	return "", nil, errRaces
}

func (o order) missing() refusal {
	return refuse("metadata.name", ruleNotFound, o.key.String(), "there is no such "+o.kind.Kind)
}

// sameUID refuses a command meant for an earlier object of that name.
func sameUID(o order, want string, there *object) error {
	if want == "" || want == string(there.UID) {
		return nil
	}
	return refuse("uid", ruleInvalid, want, "the "+o.kind.Kind+" of that name has uid "+string(there.UID))
}

// again reports whether an event was delivered before.
func again(e loop.Event) bool {
	meta, err := e.Raw.Metadata()
	return err == nil && meta.NumDelivered > 1
}

func replyTo(e loop.Event) string {
	inbox, _ := e.Extensions()[events.ExtReplyTo].(string)
	return inbox
}

// answer tells the sender, when it left an inbox.
func (s *intake) answer(key events.Key, e loop.Event, what string, data any) error {
	inbox := replyTo(e)
	if inbox == "" {
		return nil
	}
	return s.bus.Answer(inbox, key, events.ID(e.Source(), e.ID(), "answer"), what, data)
}

// maxErrors bounds what a rejection lists, and with it its size.
const maxErrors = 20

// reject tells that a command was refused: as a fact, to the sender, and when there is no sender to tell, in the dead
// letters.
func (s *intake) reject(ctx context.Context, t *loop.Turn, e loop.Event, no refusal) error {
	no = slices.Clone(no[:min(len(no), maxErrors)])
	for i := range no {
		no[i].Field = shorten(no[i].Field)
	}
	data := event.IntakeRejected{
		About: event.About{Namespace: bare(t.Key.Namespace), Name: t.Key.Name}, Kind: t.Key.Kind, Command: shorten(e.ID()), Errors: no,
	}
	if t.Key.Valid() {
		if err := s.bus.Tell(ctx, t.Key, 0, events.ID(e.Source(), e.ID(), t.Key.CommandSubject(), event.Rejected, no.Error()), event.Rejected, data); err != nil {
			return err
		}
	}
	if events.IsInbox(replyTo(e)) {
		return s.answer(t.Key, e, event.Rejected, data)
	}
	return t.Bury(ctx, e, reason.Rejected, no.Error())
}
