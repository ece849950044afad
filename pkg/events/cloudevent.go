package events

import (
	"encoding/json"
	"errors"
	"fmt"
	"mime"
	"strings"
	"time"

	ce "github.com/cloudevents/sdk-go/v2/event"
	"github.com/nats-io/nats.go"
)

// MaxPayload is the largest data of an event in bytes; above it a payload belongs into an object it refers to.
const MaxPayload = 64 << 10

// Extension attributes (CloudEvents 1.0.2: lower-case letters and digits).
const (
	// ExtReplyTo names the subject on which intake answers a command ([Key.AnswerSubject]). A header rather than NATS' own reply subject, which
	// a stream takes for its acknowledgement.
	ExtReplyTo = "replyto"
	// ExtExpectedGeneration, on a command, is the generation the object must have for the command to be carried out; 0: it
	// must not exist yet.
	ExtExpectedGeneration = "expectedgeneration"
	// ExtTraceParent is the W3C trace context of the start of the trace (distributed tracing extension).
	ExtTraceParent = "traceparent"
	// ExtSequence is the generation.
	ExtSequence = "sequence"
)

const (
	headerPrefix    = "ce-"
	headerType      = "Content-Type"
	structuredMedia = "application/cloudevents+json"
	jsonMedia       = "application/json"
)

// Encode puts an event on a message in binary mode: attributes as ce- headers, data as it is, and the id also as
// Nats-Msg-Id so that the server drops repeats (CloudEvents NATS protocol binding 1.0.2, sections 3.1).
func Encode(subject string, e ce.Event) *nats.Msg {
	msg := nats.NewMsg(subject)
	h := msg.Header
	h.Set(headerPrefix+"specversion", e.SpecVersion())
	h.Set(headerPrefix+"id", e.ID())
	h.Set(headerPrefix+"source", e.Source())
	h.Set(headerPrefix+"type", e.Type())
	if s := e.Subject(); s != "" {
		h.Set(headerPrefix+"subject", s)
	}
	if s := e.DataSchema(); s != "" {
		h.Set(headerPrefix+"dataschema", s)
	}
	if t := e.Time(); !t.IsZero() {
		h.Set(headerPrefix+"time", t.UTC().Format(time.RFC3339Nano))
	}
	for k, v := range e.Extensions() {
		h.Set(headerPrefix+k, fmt.Sprint(v))
	}
	if tp, ok := e.Extensions()[ExtTraceParent].(string); ok {
		h.Set(ExtTraceParent, tp)
	}
	if c := e.DataContentType(); c != "" {
		h.Set(headerType, c)
	}
	h.Set(nats.MsgIdHdr, e.ID())
	msg.Data = e.Data()
	return msg
}

// AttributeError says which attribute of a CloudEvent is wrong.
type AttributeError struct {
	Attribute, Value, Message string
}

func (e *AttributeError) Error() string {
	return fmt.Sprintf("event.%s %q: %s", e.Attribute, e.Value, e.Message)
}

// Decode reads an event in binary or structured mode and checks what CloudEvents 1.0.2 requires of it. Its errors are
// *AttributeError.
func Decode(header nats.Header, data []byte) (ce.Event, error) {
	media := headerValue(header, headerType)
	if t, _, err := mime.ParseMediaType(media); err == nil && strings.HasPrefix(t, "application/cloudevents") {
		if t != structuredMedia {
			return ce.Event{}, &AttributeError{"datacontenttype", media, "the structured format must be " + structuredMedia}
		}
		return decodeStructured(data)
	}
	e := ce.New()
	version := headerValue(header, headerPrefix+"specversion")
	if version == "" {
		return e, &AttributeError{"specversion", "", "missing: send CloudEvents headers (ce-specversion, ce-id, ce-source, ce-type), or " + structuredMedia}
	}
	if version != ce.CloudEventsVersionV1 {
		return e, &AttributeError{"specversion", Clip(version), "must be 1.0"}
	}
	for k, values := range header {
		attribute, ok := strings.CutPrefix(strings.ToLower(k), headerPrefix)
		if !ok || len(values) == 0 {
			continue
		}
		v := values[0]
		switch attribute {
		case "specversion":
		case "id":
			e.SetID(v)
		case "source":
			e.SetSource(v)
		case "type":
			e.SetType(v)
		case "subject":
			e.SetSubject(v)
		case "dataschema":
			e.SetDataSchema(v)
		case "datacontenttype": // where the binding puts it; Content-Type then tells binary from structured mode only
			media = v
		case "time":
			t, err := time.Parse(time.RFC3339Nano, v)
			if err != nil {
				return e, &AttributeError{"time", Clip(v), "must be an RFC 3339 time"}
			}
			e.SetTime(t)
		default:
			e.SetExtension(attribute, v)
		}
	}
	if media == "" {
		media = jsonMedia
	}
	e.SetDataContentType(media)
	e.DataEncoded = data
	return e, valid(e)
}

func decodeStructured(data []byte) (ce.Event, error) {
	e := ce.New()
	if err := json.Unmarshal(data, &e); err != nil {
		var v ce.ValidationError
		if errors.As(err, &v) {
			for attribute, err := range v {
				return e, &AttributeError{attribute, "", err.Error()}
			}
		}
		return e, &AttributeError{"data", Clip(string(data)), "the structured event isn't a JSON CloudEvent: " + err.Error()}
	}
	return e, valid(e)
}

func valid(e ce.Event) error {
	for _, a := range []struct{ attribute, value string }{{"id", e.ID()}, {"source", e.Source()}, {"type", e.Type()}} {
		if a.value == "" {
			return &AttributeError{a.attribute, "", "missing: CloudEvents requires id, source and type"}
		}
	}
	if err := e.Validate(); err != nil {
		var v ce.ValidationError
		if errors.As(err, &v) {
			for attribute, err := range v {
				return &AttributeError{attribute, "", err.Error()}
			}
		}
		return &AttributeError{"specversion", "", err.Error()}
	}
	t, _, err := mime.ParseMediaType(e.DataContentType())
	if e.DataContentType() != "" && (err != nil || t != jsonMedia) {
		return &AttributeError{"datacontenttype", Clip(e.DataContentType()), "must be " + jsonMedia}
	}
	return nil
}

// headerValue looks a header up regardless of case: NATS keeps the sender's.
func headerValue(h nats.Header, key string) string {
	if v := h.Get(key); v != "" {
		return v
	}
	for k, v := range h {
		if strings.EqualFold(k, key) && len(v) > 0 {
			return v[0]
		}
	}
	return ""
}

// Clip shortens a value that goes into a message to 256 bytes, at a whole character.
func Clip(s string) string {
	if len(s) > 256 {
		return strings.ToValidUTF8(s[:256], "") + "…"
	}
	return s
}
