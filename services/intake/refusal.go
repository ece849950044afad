package intake

// What is wrong with a command, said so that a portal can show it: field path, rule, value, message, whoever found it: this
// service, the schema and CEL rules of a CustomResourceDefinition, a ValidatingAdmissionPolicy.

import (
	"cmp"
	"encoding/json"
	"errors"
	"regexp"
	"slices"
	"strconv"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/stoker-k8s/stoker/pkg/api/event"
	"github.com/stoker-k8s/stoker/pkg/api/state"
	"github.com/stoker-k8s/stoker/pkg/events"
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
	return refusal{{Field: field, Rule: rule, Value: events.Clip(value), Message: message}}
}

// refused makes the API server's no a refusal; what is no refusal stays an error. sent is the object as it would have
// become, for the values that the API server doesn't name; may be nil.
func refused(err error, sent any) error {
	var status apierrors.APIStatus
	if !errors.As(err, &status) {
		return err
	}
	s := status.Status()
	switch s.Reason {
	case metav1.StatusReasonInvalid, metav1.StatusReasonBadRequest, metav1.StatusReasonForbidden, metav1.StatusReasonNotFound,
		metav1.StatusReasonMethodNotAllowed, metav1.StatusReasonRequestEntityTooLarge, metav1.StatusReasonUnsupportedMediaType:
	default:
		if m := typedPatch.FindStringSubmatch(s.Message); m != nil {
			return untyped(m[1], sent) // duplicates in a list keyed by name, for example
		}
		return err
	}
	if s.Reason == metav1.StatusReasonNotFound && s.Details != nil && s.Details.Kind == "namespaces" {
		return refuse("metadata.namespace", event.RuleNotFound, s.Details.Name, "there is no such namespace; create it first")
	}
	if _, found, ok := strings.Cut(s.Message, "strict decoding error: "); ok {
		return strictly(strings.Split(found, ", "), sent)
	}
	var found, vague refusal
	if s.Details != nil {
		for _, c := range s.Details.Causes {
			e := fromCause(c, sent)
			switch {
			case e.Field == "":
				e.Field = "spec"
				vague = append(vague, e)
			case !slices.Contains(found, e): // metadata is validated several times
				found = append(found, e)
			}
		}
	}
	if len(found) == 0 {
		found = vague // that other rules were not looked at says nothing beside those that were broken
	}
	if len(found) == 0 {
		found = refuse("object", string(s.Reason), "", state.ClipMessage(cmp.Or(s.Message, "the API server refuses it")))
	}
	return found
}

// fromCause puts a cause of the API server into fields of its own.
func fromCause(c metav1.StatusCause, sent any) event.FieldError {
	message := c.Message
	e := event.FieldError{Rule: strings.TrimPrefix(string(c.Type), "FieldValue"), Field: strings.TrimPrefix(c.Field, ".")}
	if e.Field == "<nil>" {
		e.Field = ""
	}
	if said := denied.FindStringSubmatch(message); said != nil {
		// A policy's message starts with the path of the field, by convention.
		message = said[1]
		if m := pathFirst.FindStringSubmatch(message); m != nil {
			e.Field, message = m[1], m[2]
		}
	}
	known := false
	if m := ruleFirst.FindStringSubmatch(message); m != nil {
		e.Value, known = unquote(m[2]), m[2] != "" && e.Rule != event.RuleTypeInvalid
		e.Rule = cmp.Or(e.Rule, ruleWords[m[1]])
		message = m[3]
	}
	e.Rule = cmp.Or(e.Rule, event.RuleInvalid)
	if message == "" {
		message = map[bool]string{true: "is given twice", false: "is required"}[e.Rule == event.RuleDuplicate]
	}
	// Of objects the API server doesn't say the value, of what has the wrong type it says the type.
	if !known && e.Field != "" {
		e.Value = lookup(sent, e.Field)
	}
	e.Value, e.Message = events.Clip(e.Value), state.ClipMessage(message)
	return e
}

var (
	typedPatch = regexp.MustCompile(`(?s)failed to create typed patch object \([^)]*\): (.*)`)
	denied     = regexp.MustCompile(`(?s)^ValidatingAdmissionPolicy '[^']*' with binding '[^']*' denied request: (.*)$`)
	pathFirst  = regexp.MustCompile(`(?s)^((?:spec|metadata|status|kind|apiVersion)[A-Za-z0-9_./\-\[\]"]*): (.*)$`)
	// ruleFirst splits the messages of Kubernetes' field validation: `Invalid value: "x": must be …`. Of objects the value
	// is not said.
	ruleFirst = regexp.MustCompile(
		`(?s)^(Invalid value|Unsupported value|Duplicate value|Forbidden|Required value|Too long|Too many|Not found|Internal error)` +
			`(?:: ("(?:[^"\\]|\\.)*"|-?[0-9][0-9.eE+-]*|null|true|false|\{.*\}|\[.*\]))?(?:: (.*))?$`)
	ruleWords = map[string]string{
		"Invalid value": event.RuleInvalid, "Unsupported value": event.RuleNotSupported, "Duplicate value": event.RuleDuplicate,
		"Forbidden": event.RuleForbidden, "Required value": event.RuleRequired, "Too long": event.RuleTooLong,
		"Too many": event.RuleTooMany, "Not found": event.RuleNotFound, "Internal error": event.RuleInternal,
	}
)

func unquote(s string) string {
	if u, err := strconv.Unquote(s); err == nil {
		return u
	}
	return s
}

// untyped is the refusal of an object that doesn't fit the schema so far that server-side apply can't merge it:
// ".spec.controlPlane: expected map, got …" or "…: duplicate entries for key [name=\"a\"]"; one a line if there are several.
func untyped(message string, sent any) refusal {
	var found refusal
	for _, line := range strings.Split(message, "\n") {
		e := event.FieldError{Field: "spec", Rule: event.RuleInvalid, Message: state.ClipMessage(strings.TrimSpace(line))}
		if field, rest, _ := strings.Cut(e.Message, ": "); strings.HasPrefix(field, ".") {
			e.Field, e.Message = strings.TrimPrefix(field, "."), cmp.Or(rest, e.Message)
			e.Field, e.Value = cmp.Or(e.Field, "object"), events.Clip(lookup(sent, e.Field))
		}
		switch {
		case strings.HasPrefix(e.Message, "duplicate entries"):
			e.Rule = event.RuleDuplicate
			if _, key, ok := strings.Cut(e.Message, "for key "); ok {
				e.Value = events.Clip(key)
			}
		case strings.HasPrefix(e.Message, "field not declared"):
			e.Rule = event.RuleUnknown
		}
		if e.Message != "" && !strings.HasPrefix(e.Message, "errors:") {
			found = append(found, e)
		}
	}
	if len(found) == 0 {
		return refuse("spec", event.RuleInvalid, "", "does not fit the schema")
	}
	return found
}

var quotedField = regexp.MustCompile(`field "([^"]*)"`)

// strictly is the refusal of fields that are unknown or given twice, from the messages of strict decoding.
func strictly(messages []string, sent any) refusal {
	var found refusal
	for _, m := range messages {
		e := event.FieldError{
			Field: "event.data", Rule: event.RuleUnknown, Message: "unknown field; `kubectl explain` lists the fields there are",
		}
		if f := quotedField.FindStringSubmatch(m); f != nil && f[1] != "" {
			e.Field = f[1]
			e.Value = events.Clip(lookup(sent, e.Field))
		}
		if strings.HasPrefix(m, "duplicate") {
			e.Rule, e.Message = event.RuleDuplicate, "the field is given twice"
		}
		found = append(found, e)
	}
	return found
}

// lookup finds the value of a field in decoded JSON by its path ("spec.a[0].b", "metadata.labels[x/y]"); what isn't a
// string is given as JSON. Empty for what isn't there.
func lookup(object any, path string) string {
	for path != "" {
		var key string
		if rest, ok := strings.CutPrefix(path, "["); ok {
			if key, path, ok = strings.Cut(rest, "]"); !ok {
				return ""
			}
			path = strings.TrimPrefix(path, ".")
		} else if i := strings.IndexAny(path, ".["); i < 0 {
			key, path = path, ""
		} else {
			key, path = path[:i], strings.TrimPrefix(path[i:], ".")
		}
		switch x := object.(type) {
		case map[string]any:
			v, ok := x[key]
			if !ok {
				return ""
			}
			object = v
		case []any:
			i, err := strconv.Atoi(key)
			if err != nil || i < 0 || i >= len(x) {
				return ""
			}
			object = x[i]
		default:
			return ""
		}
	}
	switch x := object.(type) {
	case nil:
		return ""
	case string:
		return x
	}
	data, _ := json.Marshal(object) // decoded JSON can be encoded
	return string(data)
}
