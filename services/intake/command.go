package intake

// Wakes on commands. Understands each, carries it out by its verb (verbs.go), and ends it: the spec is written and told, the answer
// noted, the sender answered on the subject it named. What is refused is told as intake.rejected, and becomes a dead letter when there is no
// sender to tell.

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/stoker-k8s/stoker/pkg/api/event"
	"github.com/stoker-k8s/stoker/pkg/api/name"
	"github.com/stoker-k8s/stoker/pkg/api/state"
	"github.com/stoker-k8s/stoker/pkg/api/v1alpha1"
	"github.com/stoker-k8s/stoker/pkg/events"
	"github.com/stoker-k8s/stoker/pkg/fence"
	"github.com/stoker-k8s/stoker/pkg/intent"
	"github.com/stoker-k8s/stoker/pkg/kube"
	"github.com/stoker-k8s/stoker/pkg/loop"
)

// command is a command that was understood.
type command struct {
	event loop.Event
	key   events.Key
	kind  kind
	verb  string
	// expected is the generation the object must have, 0: it must not be there; nil when any will do.
	expected *int64
}

// understand checks everything about a command but its data. Its error is a refusal.
func (s *svc) understand(key events.Key, e loop.Event) (command, error) {
	c := command{event: e, key: key, kind: kinds[key.Kind]}
	if err := checkEvent(e); err != nil {
		return c, err
	}
	if err := c.checkObject(); err != nil {
		return c, err
	}
	if subject := events.ReplyTo(e.Event); subject != "" && !key.IsAnswer(subject) {
		return c, refuse("event."+events.ExtReplyTo, event.RuleInvalid, subject, "must be "+key.AnswerSubject("<token>"))
	}
	if n := len(e.Data()); n > events.MaxPayload {
		most := fmt.Sprintf("must not be larger than %d bytes", events.MaxPayload)
		return c, refuse("event.data", event.RuleTooLarge, fmt.Sprintf("%d bytes", n), most)
	}
	if !utf8.Valid(e.Raw.Data) {
		return c, refuse("event.data", event.RuleInvalid, string(e.Raw.Data), "must be UTF-8")
	}
	if secrets := event.InlineSecrets(key.Kind, e.Data()); secrets != nil {
		return c, refusal(secrets)
	}
	entry, known := commands[e.Type()]
	if !known || entry.Kind != key.Kind {
		return c, refuseType(e.Type(), typesOf(key.Kind))
	}
	c.verb = entry.What
	var err error
	if c.expected, err = expectedGeneration(e); err != nil {
		return c, err
	}
	return c, s.reaches(c)
}

// reaches refuses a command for a namespace that is not this installation's, or in which nothing is commanded.
func (s *svc) reaches(c command) error {
	if !c.kind.Namespaced {
		return nil
	}
	if err := s.forbidden.check(c.key.Namespace); err != nil {
		return err
	}
	if s.namespace != "" && c.key.Namespace != s.namespace {
		return refuse("metadata.namespace", event.RuleForbidden, c.key.Namespace, "this installation works on namespace "+s.namespace+" only")
	}
	return nil
}

// checkEvent refuses what is no CloudEvent, and ids without end.
func checkEvent(e loop.Event) error {
	var attribute *events.AttributeError
	tooLong := fmt.Sprintf("must not be longer than %d bytes", maxID)
	switch {
	case errors.As(e.Err, &attribute):
		return refuse("event."+attribute.Attribute, event.RuleInvalid, attribute.Value, attribute.Message)
	case e.Err != nil:
		return refuse("event", event.RuleInvalid, "", e.Err.Error())
	case len(e.ID()) > maxID:
		return refuse("event.id", event.RuleTooLarge, e.ID(), tooLong)
	case len(e.Source()) > maxID:
		return refuse("event.source", event.RuleTooLarge, e.Source(), tooLong)
	}
	return nil
}

// checkObject refuses a command whose subject names no object.
func (c command) checkObject() error {
	if _, known := kinds[c.key.Kind]; !known {
		return refuse("event.subject", event.RuleUnknown, c.key.Kind, "no such kind; commands are published on "+
			"stoker.intake.tenantcontrolplanes.<namespace>.<name>, stoker.intake.datastores.-.<name> and "+
			"stoker.intake.kubeconfiggenerators.-.<name>")
	}
	if !c.key.Valid() || c.kind.Namespaced == (c.key.Namespace == events.ClusterScoped) {
		return refuse("event.subject", event.RuleInvalid, c.key.String(), "namespace and name in the subject must be those of a Kubernetes "+
			"object (lower-case letters, digits, dashes); for cluster-scoped kinds the namespace is -")
	}
	return nil
}

// expectedGeneration reads which generation a command expects, nil for any.
func expectedGeneration(e loop.Event) (*int64, error) {
	v, ok := e.Extensions()[events.ExtExpectedGeneration]
	if !ok {
		return nil, nil
	}
	text := fmt.Sprint(v)
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil || n < 0 {
		return nil, refuse("event."+events.ExtExpectedGeneration, event.RuleInvalid, text,
			"must be a whole number: the object's metadata.generation, or 0 for one that must not exist")
	}
	return &n, nil
}

// id names a command, in the annotation of the object that it changed.
func (c command) id() string { return events.ID(c.event.Source(), c.event.ID()) }

// result is what a command that was carried out has come to.
type result struct {
	loop.CommandOutcome
	// spec is what follows for the tenant's spec, nil when nothing does.
	spec *acceptance
}

// command carries a command out, once, and ends it. Its error is one of the world (API server away): then the command is tried
// again, and those behind it wait, because their order is what the sender means.
func (s *svc) command(ctx context.Context, t *loop.Turn, e loop.Event) error {
	c, err := s.understand(t.Key, e)
	if err != nil {
		return s.endFailed(ctx, t, e, err, "")
	}
	request := events.Fingerprint(t.Key, e.Event)
	noted, err := s.bus.Answered(ctx, t.Key, e.Source(), e.ID())
	switch {
	case err != nil:
		return err
	case noted != nil && noted.What == event.Rejected && (noted.Request != request || !isCopy(e, noted)):
		// It was refused, and sent again since: it is looked at anew.
	case noted != nil && noted.Request == request:
		return t.EndCommand(ctx, e, loop.CommandOutcome{What: noted.What, Data: noted.Data})
	case noted != nil:
		return s.endFailed(ctx, t, e, refuse("event.id", event.RuleDuplicate, e.ID(),
			"another command of this source had this id and was carried out; give each command an id of its own"), "")
	}
	done, err := s.carryOut(ctx, t, c)
	if err != nil {
		return s.endFailed(ctx, t, e, err, request)
	}
	done.Request = request
	if done.spec != nil {
		done.State = done.spec.outcome
	}
	if err := t.EndCommand(ctx, e, done.CommandOutcome); err != nil {
		return err
	}
	if done.spec != nil {
		s.noteAccepted(t, done.spec)
	}
	return nil
}

// isCopy reports whether a command was stored before its refusal was noted: its sender sent it more than once while it waited for the
// answer, which is the refusal, though by now the command might be accepted.
func isCopy(e loop.Event, noted *events.Answer) bool {
	meta, err := e.Raw.Metadata()
	return err == nil && meta.Timestamp.Before(noted.Noted)
}

// endFailed ends a command that was not carried out: it is refused for good, or its error returned, to try it again. The refusal of a
// request that isn't empty is noted for the copies of the command.
func (s *svc) endFailed(ctx context.Context, t *loop.Turn, e loop.Event, err error, request string) error {
	var refused refusal
	var away *intent.Unavailable
	switch {
	case errors.As(err, &away) && !kube.FailsAlone(err), errors.Is(err, fence.ErrFenced), errors.Is(err, intent.ErrStale), errors.Is(err, context.Canceled):
		return err
	case errors.As(err, &refused):
		if err := s.eraseSecrets(ctx, t.Key, e, refused); err != nil {
			return err
		}
		return t.EndCommand(ctx, e, rejected(t.Key, e, refused, request))
	case t.Attempt() < maxUnknown-1:
		return err
	}
	// The API server answers others, and not this one. Those behind it must not wait for long.
	return t.EndCommand(ctx, e, rejected(t.Key, e, refuse("object", event.RuleInternal, "", state.ClipMessage(err.Error())), request))
}

// withoutSecrets is an object as it may be quoted in a refusal: one made by kubectl may hold a password.
func (s *svc) withoutSecrets(c command, sent any) any {
	if c.key.Kind != event.DataStores {
		return sent
	}
	kept, _ := event.Redact(c.key.Kind, event.Marshal(sent))
	var quoted any
	if json.Unmarshal(kept, &quoted) != nil {
		return nil
	}
	return quoted
}

// eraseSecrets removes a command from its stream that is refused and holds, or may hold, a DataStore's password or private key, and
// takes the values out of the refusal. It is done before the sender is answered: should this replica die in between, the sender hears
// nothing, sends the command again and is refused again.
func (s *svc) eraseSecrets(ctx context.Context, key events.Key, e loop.Event, refused refusal) error {
	if _, held := event.Redact(key.Kind, e.Raw.Data); !held {
		return nil
	}
	for i := range refused {
		refused[i].Value = ""
	}
	meta, err := e.Raw.Metadata()
	if err != nil || meta.Stream != events.StreamIntake { // a dead letter that is replayed is in another stream, and was redacted
		return err
	}
	return s.bus.EraseCommand(ctx, meta.Sequence.Stream)
}

// rejected is the end of a command that was refused.
func rejected(key events.Key, e loop.Event, refused refusal, request string) loop.CommandOutcome {
	refused = slices.Clone(refused[:min(len(refused), maxErrors)])
	for i := range refused {
		refused[i].Field = events.Clip(refused[i].Field)
	}
	o := loop.CommandOutcome{What: event.Rejected, Request: request, Refused: refused.Error(), Data: event.IntakeRejected{
		About: event.About{Namespace: bare(key.Namespace), Name: key.Name}, Kind: key.Kind, Command: events.Clip(e.ID()), Errors: refused,
	}}
	if key.Valid() { // else there is no subject for the fact
		o.FactID = events.ID(e.Source(), e.ID(), key.CommandSubject(), event.Rejected, refused.Error())
	}
	return o
}

// about starts the payload of what is told of a command that was carried out.
func (c command) about(o *object) event.About {
	return event.About{Namespace: bare(c.key.Namespace), Name: c.key.Name, UID: string(o.UID), Generation: o.Generation}
}

// accepted is the end of a command that made an object what it is now.
func (s *svc) accepted(ctx context.Context, t *loop.Turn, c command, after *object) (result, error) {
	e := c.event
	if !c.key.IsTenant() { // there is no bucket, hence no state that announces the fact
		paused, _, _ := name.Paused(after.Annotations, time.Now())
		return result{CommandOutcome: loop.CommandOutcome{
			What: event.Accepted, Data: event.IntakeAccepted{About: c.about(after), Command: e.ID(), Paused: paused},
			FactID: events.ID(c.id(), event.Accepted), Generation: after.Generation,
		}}, nil
	}
	spec, err := s.accept(ctx, t, after.tenant, &c, time.Now())
	if err != nil {
		return result{}, err
	}
	told := acceptedOf(c.about(after), &spec.tenant, e.ID())
	return result{CommandOutcome: loop.CommandOutcome{What: event.Accepted, Data: told}, spec: spec}, nil
}

// afterWrite is the end of a command whose object was written, as after, or refused by the API server, err. sent is the object as the
// command would have it.
func (s *svc) afterWrite(ctx context.Context, t *loop.Turn, c command, after *object, err error, sent any) (result, error) {
	if err == nil {
		return s.accepted(ctx, t, c, after)
	}
	err, denied := refused(err, s.withoutSecrets(c, sent)), err
	if c.key.IsTenant() && t.Attempt() < maxEarly {
		early, bad := s.deniedEarly(ctx, denied, sent)
		if bad != nil {
			return result{}, bad
		}
		if early {
			return result{}, &intent.Unavailable{Err: err}
		}
	}
	return result{}, err
}

// read reads the object a command is about, nil when there is none. One that belongs to another installation is refused.
func (s *svc) read(ctx context.Context, c command) (*object, error) {
	var raw json.RawMessage
	err := s.permitted(ctx, c, func(ctx context.Context) error {
		return s.kube.Get(ctx, c.kind.Resource, bare(c.key.Namespace), c.key.Name, &raw)
	})
	if apierrors.IsNotFound(err) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	there, err := c.object(raw)
	if err != nil {
		return nil, err
	}
	if of := there.Labels[name.LabelWatchFilter]; s.watchFilter != "" && of != s.watchFilter {
		return nil, refuse("metadata.labels["+name.LabelWatchFilter+"]", event.RuleForbidden, of,
			"this installation works on objects whose label is "+s.watchFilter+" only")
	}
	if there.tenant != nil && v1alpha1.MadeByKamaji(there.tenant) {
		return nil, notAdopted(c.key)
	}
	return there, nil
}

// unexpected refuses a command whose object has another generation than it expects. done tells a command that has been
// carried out already: what it changed carries its id.
func (c command) unexpected(there *object) (done bool, err error) {
	if c.expected == nil {
		return false, nil
	}
	want := *c.expected
	field := "event." + events.ExtExpectedGeneration
	switch {
	case there == nil && want > 0:
		return false, refuse(field, event.RuleConflict, strconv.FormatInt(want, 10), "there is no such "+c.kind.Kind)
	case there == nil || there.Generation == want:
		return false, nil
	case there.Annotations[name.AnnotationCommand] == c.id():
		return true, nil
	}
	return false, refuse(field, event.RuleConflict, strconv.FormatInt(want, 10),
		"the "+c.kind.Kind+" has generation "+generation(&there.ObjectMeta))
}

// errRaces means that they did all those times.
var errRaces = errors.New("others write the object all the time")

func (c command) missing() refusal {
	return refuse("metadata.name", event.RuleNotFound, c.key.String(), "there is no such "+c.kind.Kind)
}

// sameUID refuses a command meant for an earlier object of that name.
func sameUID(c command, want string, there *object) error {
	if want == "" || want == string(there.UID) {
		return nil
	}
	return refuse("uid", event.RuleInvalid, want, "the "+c.kind.Kind+" of that name has uid "+string(there.UID))
}

// refuseType is the refusal of a type of event.
func refuseType(typ string, known []string) refusal {
	return refuse("event.type", event.RuleUnknown, typ, "must be one of "+strings.Join(known, ", "))
}

// bare is a namespace as Kubernetes writes it: empty for cluster-scoped kinds.
func bare(namespace string) string {
	if namespace == events.ClusterScoped {
		return ""
	}
	return namespace
}
