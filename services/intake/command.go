package intake

// Wakes on commands. Makes the object they ask for by server-side apply, or deletes it. Answers the sender on its inbox,
// tells intake.rejected for what was refused; what can't be told to a sender goes to the dead letters.

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"regexp"
	"slices"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kjson "sigs.k8s.io/json"

	"github.com/stoker-k8s/stoker/pkg/api/event"
	"github.com/stoker-k8s/stoker/pkg/api/name"
	"github.com/stoker-k8s/stoker/pkg/api/v1alpha1"
	"github.com/stoker-k8s/stoker/pkg/events"
	"github.com/stoker-k8s/stoker/pkg/kube"
)

// refusal is a command that changes nothing, and why.
type refusal []event.FieldError

func (r refusal) Error() string {
	parts := make([]string, len(r))
	for i, e := range r {
		parts[i] = e.Field + ": " + e.Message
	}
	return strings.Join(parts, "; ")
}

func refuse(field, rule, value, message string) refusal {
	return refusal{{Field: field, Rule: rule, Value: shorten(value), Message: message}}
}

func shorten(s string) string {
	if len(s) > 256 {
		return strings.ToValidUTF8(s[:256], "") + "…"
	}
	return s
}

// kinds maps what may be commanded to where it is.
var kinds = map[string]struct {
	resource      kube.Resource
	apply, delete string
	object        func() any
}{
	event.TenantControlPlanes: {kube.TenantControlPlanes, event.TenantApply, event.TenantDelete, func() any { return &v1alpha1.TenantControlPlane{} }},
	event.DataStores:          {kube.DataStores, event.DataStoreApply, event.DataStoreDelete, func() any { return &v1alpha1.DataStore{} }},
}

// command carries a command out and answers it. Its error is one of the world (API server away): then the command is
// tried again, and those behind it wait, because their order is what the sender means.
func (s *intake) command(ctx context.Context, t *events.Turn, e events.Event) error {
	what, data, err := s.carryOut(ctx, t, e)
	var no refusal
	var away *events.Unavailable
	switch {
	case errors.As(err, &no):
		return s.reject(ctx, t, e, no)
	case err == nil, errors.As(err, &away), errors.Is(err, events.ErrFenced), errors.Is(err, events.ErrStale):
	case t.Attempt() >= 3:
		// The API server answers, and not to this. Those behind it must not wait for long.
		return s.reject(ctx, t, e, refuse("object", "InternalError", "", err.Error()))
	}
	if err != nil {
		return err
	}
	return s.answer(t.Key, e, what, data)
}

func (s *intake) carryOut(ctx context.Context, t *events.Turn, e events.Event) (what string, answer any, err error) {
	var attribute *events.AttributeError
	switch {
	case errors.As(e.Err, &attribute):
		return "", nil, refuse("event."+attribute.Attribute, "Invalid", attribute.Value, attribute.Message)
	case e.Err != nil:
		return "", nil, refuse("event", "Invalid", "", e.Err.Error())
	}
	kind, ok := kinds[t.Key.Kind]
	if !ok {
		return "", nil, refuse("event.subject", "Unknown", t.Key.Kind, "no such kind; commands are published on stoker.intake.tenantcontrolplanes.<namespace>.<name> and stoker.intake.datastores.-.<name>")
	}
	if !t.Key.Valid() || kind.resource.Namespaced == (t.Key.Namespace == events.ClusterScoped) {
		return "", nil, refuse("event.subject", "Invalid", t.Key.String(), "namespace and name in the subject must be those of a Kubernetes object (lower-case letters, digits, dashes); for cluster-scoped kinds the namespace is -")
	}
	if inbox := replyTo(e); inbox != "" && !events.IsInbox(inbox) {
		return "", nil, refuse("event."+events.ExtReplyTo, "Invalid", inbox, "must be an inbox (_INBOX.…)")
	}
	if n := len(e.Data()); n > events.MaxPayload {
		return "", nil, refuse("event.data", "TooLarge", fmt.Sprintf("%d bytes", n), fmt.Sprintf("must not be larger than %d bytes", events.MaxPayload))
	}
	switch e.Type() {
	case kind.apply:
		return s.apply(ctx, t, e, kind.resource, kind.object())
	case kind.delete:
		return s.delete(ctx, t, e, kind.resource)
	}
	return "", nil, refuse("event.type", "Unknown", e.Type(), "must be "+kind.apply+" or "+kind.delete)
}

// apply makes the object as the command says.
func (s *intake) apply(ctx context.Context, t *events.Turn, e events.Event, r kube.Resource, typed any) (string, any, error) {
	body, err := object(t.Key, r, e.Data(), typed)
	if err != nil {
		return "", nil, err
	}
	there := &metav1.PartialObjectMetadata{}
	switch err := s.kube.Get(ctx, r, bare(t.Key.Namespace), t.Key.Name, there); {
	case err == nil && there.DeletionTimestamp != nil:
		return "", nil, refuse("metadata.name", "Deleting", t.Key.String(), "is being deleted; apply it again once it is gone (fact status.deleted)")
	case err != nil && !apierrors.IsNotFound(err):
		return "", nil, err
	}
	if t.Key.IsTenant() {
		o := &v1alpha1.TenantControlPlane{}
		if err := s.kube.ApplyRaw(ctx, r, t.Key.Namespace, t.Key.Name, body, o); err != nil {
			return "", nil, refused(err)
		}
		trace, _ := e.Extensions()[events.ExtTraceParent].(string)
		if err := s.accept(ctx, t, o, e.ID(), trace); err != nil {
			return "", nil, err
		}
		return event.Accepted, event.IntakeAccepted{About: t.About(), Version: o.Spec.Kubernetes.Version, DataStore: t.Tenant.Spec.DataStore, Command: e.ID()}, nil
	}
	o := &metav1.PartialObjectMetadata{}
	if err := s.kube.ApplyRaw(ctx, r, "", t.Key.Name, body, o); err != nil {
		return "", nil, refused(err)
	}
	data := event.IntakeAccepted{About: event.About{Name: t.Key.Name, UID: string(o.UID), Generation: o.Generation}, Command: e.ID()}
	return event.Accepted, data, s.bus.Tell(ctx, t.Key, o.Generation, events.ID(string(o.UID), generation(&o.ObjectMeta), event.Accepted), event.Accepted, data)
}

// bare is a namespace as Kubernetes writes it: empty for cluster-scoped kinds.
func bare(namespace string) string {
	if namespace == events.ClusterScoped {
		return ""
	}
	return namespace
}

// metadataAllowed is what of metadata a command may set, or carry because the object was read from somewhere.
var metadataAllowed = []string{"name", "namespace", "labels", "annotations", "creationTimestamp", "generation", "managedFields", "resourceVersion", "uid", "selfLink"}

// object checks the data of an apply command against the Go type, strictly, and returns the body to apply.
func object(key events.Key, r kube.Resource, data []byte, typed any) ([]byte, error) {
	unknown, err := kjson.UnmarshalStrict(data, typed)
	var no refusal
	var mistyped *json.UnmarshalTypeError
	switch {
	case errors.As(err, &mistyped):
		return nil, refuse(fieldOr(mistyped.Field), "Invalid", valueAt(data, mistyped.Field), fmt.Sprintf("must be %s, not %s", article(mistyped.Type.String()), mistyped.Value))
	case err != nil:
		return nil, refuse("event.data", "Invalid", string(data), "must be the JSON of a "+r.Kind+": "+err.Error())
	}
	for _, u := range unknown {
		field := fieldIn(u.Error())
		rule := "Unknown"
		if strings.HasPrefix(u.Error(), "duplicate") {
			rule = "Duplicate"
		}
		no = append(no, event.FieldError{Field: field, Rule: rule, Message: fmt.Sprintf("%s field; `kubectl explain %s` lists the fields there are", strings.ToLower(rule), strings.ToLower(r.Kind))})
	}
	var m map[string]any
	if err := json.Unmarshal(data, &m); err != nil {
		return nil, refuse("event.data", "Invalid", string(data), "must be a JSON object")
	}
	meta, _ := m["metadata"].(map[string]any)
	check := func(field, have, want string) {
		switch have {
		case want:
		case "":
			no = append(no, event.FieldError{Field: field, Rule: "Required", Message: "missing; must be " + want})
		default:
			no = append(no, event.FieldError{Field: field, Rule: "Invalid", Value: shorten(have), Message: "must be " + want + ", as the subject the event was published on says"})
		}
	}
	str := func(m map[string]any, k string) string { v, _ := m[k].(string); return v }
	check("apiVersion", str(m, "apiVersion"), r.GroupVersion.String())
	check("kind", str(m, "kind"), r.Kind)
	check("metadata.name", str(meta, "name"), key.Name)
	if r.Namespaced {
		check("metadata.namespace", str(meta, "namespace"), key.Namespace)
	}
	for k, v := range meta {
		if !slices.Contains(metadataAllowed, k) {
			no = append(no, event.FieldError{Field: "metadata." + k, Rule: "Forbidden", Value: shorten(fmt.Sprint(v)), Message: "a command may set labels and annotations only"})
		}
	}
	if len(no) > 0 {
		slices.SortFunc(no, func(a, b event.FieldError) int { return strings.Compare(a.Field, b.Field) })
		return nil, no
	}
	clean := map[string]any{"name": key.Name}
	labels, _ := meta["labels"].(map[string]any)
	if labels == nil {
		labels = map[string]any{}
	}
	if r.Namespaced {
		clean["namespace"] = key.Namespace
		labels[name.LabelPartition] = partition(key.Namespace, key.Name)
		clean["finalizers"] = []string{name.FinalizerTenant}
	}
	clean["labels"] = labels
	if a, ok := meta["annotations"]; ok {
		clean["annotations"] = a
	}
	m["metadata"] = clean
	delete(m, "status")
	return json.Marshal(m)
}

// valueAt is the JSON of a field, empty when it can't be told.
func valueAt(data []byte, path string) string {
	for _, k := range strings.Split(path, ".") {
		var m map[string]json.RawMessage
		if json.Unmarshal(data, &m) != nil {
			return ""
		}
		data = m[k]
	}
	return strings.Trim(string(data), `"`)
}

func fieldOr(field string) string {
	if field == "" {
		return "event.data"
	}
	return field
}

func article(goType string) string {
	switch {
	case strings.HasPrefix(goType, "int"):
		return "a whole number"
	case goType == "bool":
		return "true or false"
	case goType == "string":
		return "a string"
	case strings.HasPrefix(goType, "[]"):
		return "a list"
	case strings.HasPrefix(goType, "map"):
		return "an object"
	}
	return "an object"
}

var quotedField = regexp.MustCompile(`field "([^"]*)"`)

// fieldIn finds the path in an error of strict decoding.
func fieldIn(message string) string {
	if m := quotedField.FindStringSubmatch(message); m != nil {
		return m[1]
	}
	return "event.data"
}

// valueIn splits the messages of Kubernetes' field validation: "Invalid value: \"x\": must be …".
var valueIn = regexp.MustCompile(`^(?:Invalid value|Unsupported value|Duplicate value|Forbidden|Required value|Too long|Too many|Internal error)(?:: (.*?))?: (.*)$`)

// refused makes the API server's no a refusal; what is no refusal stays an error.
func refused(err error) error {
	var status apierrors.APIStatus
	if !errors.As(err, &status) {
		return err
	}
	s := status.Status()
	switch s.Reason {
	case metav1.StatusReasonInvalid, metav1.StatusReasonBadRequest, metav1.StatusReasonForbidden, metav1.StatusReasonNotFound,
		metav1.StatusReasonMethodNotAllowed, metav1.StatusReasonRequestEntityTooLarge, metav1.StatusReasonUnsupportedMediaType:
	default:
		if s.Code == http.StatusInternalServerError && strings.Contains(s.Message, "typed patch object") {
			return refuse("spec", "Invalid", "", s.Message) // duplicates in a list keyed by name, for example
		}
		return err
	}
	if s.Reason == metav1.StatusReasonNotFound && s.Details != nil && s.Details.Kind == "namespaces" {
		return refuse("metadata.namespace", "NotFound", s.Details.Name, "there is no such namespace; create it first")
	}
	var no refusal
	if s.Details != nil {
		for _, c := range s.Details.Causes {
			e := event.FieldError{Field: c.Field, Rule: strings.TrimPrefix(string(c.Type), "FieldValue"), Message: c.Message}
			if m := valueIn.FindStringSubmatch(c.Message); m != nil {
				e.Value, e.Message = shorten(strings.Trim(m[1], `"`)), m[2]
			}
			if e.Field == "" || e.Field == "<nil>" {
				e.Field = "spec"
			}
			no = append(no, e)
		}
	}
	if len(no) == 0 {
		no = refuse("object", string(s.Reason), "", s.Message)
	}
	return no
}

// delete asks the API server to delete the object; what was made for it goes by the watch.
func (s *intake) delete(ctx context.Context, t *events.Turn, e events.Event, r kube.Resource) (string, any, error) {
	var cmd event.DeleteCommand
	if data := e.Data(); len(data) > 0 && string(data) != "null" {
		unknown, err := kjson.UnmarshalStrict(data, &cmd)
		if err != nil {
			return "", nil, refuse("event.data", "Invalid", string(data), "must be a JSON object, empty or with uid: "+err.Error())
		}
		if len(unknown) > 0 {
			return "", nil, refuse(fieldIn(unknown[0].Error()), "Unknown", "", "a delete command holds nothing but uid")
		}
	}
	there := &metav1.PartialObjectMetadata{}
	err := s.kube.Get(ctx, r, bare(t.Key.Namespace), t.Key.Name, there)
	if apierrors.IsNotFound(err) && again(e) {
		// Deleted by an earlier delivery of this very command.
		return event.Deleting, event.IntakeDeleting{About: event.About{Namespace: bare(t.Key.Namespace), Name: t.Key.Name, UID: cmd.UID}}, nil
	}
	if apierrors.IsNotFound(err) {
		return "", nil, refuse("metadata.name", "NotFound", t.Key.String(), "there is no such "+r.Kind)
	}
	if err != nil {
		return "", nil, err
	}
	if cmd.UID != "" && cmd.UID != string(there.UID) {
		return "", nil, refuse("uid", "Invalid", cmd.UID, "the "+r.Kind+" of that name has uid "+string(there.UID))
	}
	uid := there.UID
	if _, err := s.kube.Delete(ctx, r, bare(t.Key.Namespace), t.Key.Name, metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &uid}}); err != nil {
		return "", nil, refused(err)
	}
	about := event.About{Namespace: bare(t.Key.Namespace), Name: t.Key.Name, UID: string(there.UID), Generation: there.Generation}
	return event.Deleting, event.IntakeDeleting{About: about}, nil
}

// again reports whether an event was delivered before.
func again(e events.Event) bool {
	meta, err := e.Raw.Metadata()
	return err == nil && meta.NumDelivered > 1
}

func replyTo(e events.Event) string {
	inbox, _ := e.Extensions()[events.ExtReplyTo].(string)
	return inbox
}

// answer tells the sender, when it left an inbox.
func (s *intake) answer(key events.Key, e events.Event, what string, data any) error {
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
func (s *intake) reject(ctx context.Context, t *events.Turn, e events.Event, no refusal) error {
	no = no[:min(len(no), maxErrors)]
	data := event.IntakeRejected{
		About: event.About{Namespace: bare(t.Key.Namespace), Name: t.Key.Name}, Kind: t.Key.Kind, Command: e.ID(), Errors: no,
	}
	if t.Key.Valid() {
		if err := s.bus.Tell(ctx, t.Key, 0, events.ID(e.Source(), e.ID(), t.Key.CommandSubject(), event.Rejected, no.Error()), event.Rejected, data); err != nil {
			return err
		}
	}
	if events.IsInbox(replyTo(e)) {
		return s.answer(t.Key, e, event.Rejected, data)
	}
	return s.bus.Bury(ctx, t.Key, e, "Rejected", no.Error())
}
