package env

// Everything that was said is what the catalogue says: at the end of each package of tests, every fact and status in the
// streams is held against its published schema, and so is every command that intake accepted.

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"path/filepath"
	"strings"

	"github.com/nats-io/nats.go/jetstream"
	"github.com/santhosh-tekuri/jsonschema/v6"
	"github.com/santhosh-tekuri/jsonschema/v6/kind"

	"github.com/stoker-k8s/stoker/pkg/api/event"
	"github.com/stoker-k8s/stoker/pkg/api/name"
	"github.com/stoker-k8s/stoker/pkg/events"
)

// schemas are the catalogue's, by type.
func schemas() (map[string]*jsonschema.Schema, error) {
	c := jsonschema.NewCompiler()
	c.AssertFormat()
	all := map[string]*jsonschema.Schema{}
	for _, e := range event.Catalogue() {
		s, err := c.Compile(filepath.Join(Root(), "pkg/api/event/schemas", e.Short()+".json"))
		if err != nil {
			return nil, err
		}
		all[e.Type] = s
	}
	return all, nil
}

// maxComplaints bounds what is told of what is wrong.
const maxComplaints = 20

// checkEvents reads all that is left in the streams.
func (e *Env) checkEvents(ctx context.Context) error {
	schemas, err := schemas()
	if err != nil {
		return err
	}
	var wrong []error
	accepted := map[string]bool{} // commands, by id
	patched := map[string]bool{}  // objects, by the subject of their commands
	patches := map[string]bool{}  // types of commands
	for _, c := range event.Catalogue() {
		patches[c.Type] = c.Command && c.What == event.Patch
	}
	complain := func(subject, typ string, data []byte, err error) {
		if err != nil && len(wrong) < maxComplaints {
			wrong = append(wrong, fmt.Errorf("%s %s: %w in %s", subject, typ, err, data))
		}
	}
	for _, stream := range []string{events.StreamFacts, events.StreamStatus} {
		err := e.each(ctx, stream, func(m jetstream.Msg) {
			if strings.HasPrefix(m.Subject(), "stoker.timer.") || events.IsReplay(m.Subject()) { // a dead letter may be anything
				return
			}
			said, err := events.Decode(m.Headers(), m.Data())
			data := said.Data()
			var a event.IntakeAccepted
			if said.Type() == event.FactType(name.ServiceIntake, event.Accepted) && json.Unmarshal(data, &a) == nil && a.Command != "" {
				accepted[a.Command] = true
			}
			if err == nil {
				err = valid(schemas[said.Type()], data)
			}
			complain(m.Subject(), said.Type(), data, err)
		})
		if err != nil {
			return fmt.Errorf("stream %s: %w", stream, err)
		}
	}
	for _, m := range e.Commands() {
		said, err := events.Decode(m.Header, m.Data)
		if err != nil || !accepted[said.ID()] {
			continue // it may be anything
		}
		data := withoutNulls(said.Data())
		patched[m.Subject] = patched[m.Subject] || patches[said.Type()]
		if err = valid(schemas[said.Type()], data); patched[m.Subject] && lacksOnly(err) {
			err = nil // what a patch set before stays when an apply leaves it out
		}
		complain(m.Subject, said.Type(), data, err)
	}
	return errors.Join(wrong...)
}

// withoutNulls is the data of a command without the fields that are null: those are absent, and so is the data itself.
func withoutNulls(data []byte) []byte {
	var v any
	d := json.NewDecoder(bytes.NewReader(data))
	d.UseNumber()
	if d.Decode(&v) != nil || v == nil {
		return []byte("{}")
	}
	var clean func(v any)
	clean = func(v any) {
		switch x := v.(type) {
		case map[string]any:
			for k, y := range x {
				if y == nil {
					delete(x, k)
				}
				clean(y)
			}
		case []any:
			for _, y := range x {
				clean(y)
			}
		}
	}
	clean(v)
	return event.Marshal(v)
}

func valid(schema *jsonschema.Schema, data []byte) error {
	if schema == nil {
		return errors.New("a type that isn't in the catalogue")
	}
	v, err := jsonschema.UnmarshalJSON(bytes.NewReader(data))
	if err != nil {
		return err
	}
	if status, ok := v.(map[string]any); ok && status["phase"] != nil {
		known := false
		for _, phase := range event.Phases() {
			known = known || phase == status["phase"]
		}
		if !known {
			return fmt.Errorf("phase %v, which event.Phases doesn't list", status["phase"])
		}
	}
	return schema.Validate(v)
}

// lacksOnly reports whether all that is wrong is that fields are missing.
func lacksOnly(err error) bool {
	var no *jsonschema.ValidationError
	if !errors.As(err, &no) {
		return false
	}
	if len(no.Causes) == 0 {
		_, is := no.ErrorKind.(*kind.Required)
		return is
	}
	for _, cause := range no.Causes {
		if !lacksOnly(cause) {
			return false
		}
	}
	return true
}

// each calls out for every message of a stream; for none when there is no such stream.
func (e *Env) each(ctx context.Context, stream string, f func(jetstream.Msg)) error {
	for from := uint64(1); ; {
		var some []jetstream.Msg
		left, err := e.next(ctx, stream, ">", &from, &some)
		for _, m := range some {
			f(m)
		}
		if left == 0 || err != nil || ctx.Err() != nil {
			return errors.Join(err, ctx.Err())
		}
	}
}
