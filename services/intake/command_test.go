package intake

import (
	"testing"

	"github.com/stoker-k8s/stoker/pkg/api/event"
	"github.com/stoker-k8s/stoker/pkg/api/name"
	"github.com/stoker-k8s/stoker/pkg/events"
	"github.com/stoker-k8s/stoker/pkg/loop"
)

func TestUnderstand(t *testing.T) {
	s := &svc{namespace: "default"}
	key := events.Tenant("default", "demo")
	t.Run("every command of the catalogue is understood", func(t *testing.T) {
		keys := map[string]events.Key{event.TenantControlPlanes: key, event.DataStores: events.DataStore("ds"), event.KubeconfigGenerators: events.Generator("kg")}
		for _, c := range event.Catalogue() {
			if c.Command {
				if got, err := s.understand(keys[c.Kind], commandFor(keys[c.Kind], c.What, ``).event); err != nil || got.verb != c.What {
					t.Errorf("%s: %v", c.Type, err)
				}
			}
		}
	})
	for _, c := range []struct {
		name   string
		key    events.Key
		change func(*loop.Event)
		field  string
		rule   string
		value  string
	}{
		{"sleep for a DataStore", events.DataStore("ds"), func(e *loop.Event) { e.SetType(event.CommandType(event.DataStores, event.Sleep)) }, "event.type", event.RuleUnknown, "dev.stoker.datastore.sleep.v1"},
		{"a tenant's command on a DataStore's subject", events.DataStore("ds"), func(e *loop.Event) { e.SetType(event.TenantApply) }, "event.type", event.RuleUnknown, event.TenantApply},
		{"an unknown kind", events.Key{Kind: "pods", Namespace: "default", Name: "x"}, func(*loop.Event) {}, "event.subject", event.RuleUnknown, "pods"},
		{"a tenant without namespace", events.Key{Kind: event.TenantControlPlanes, Namespace: "-", Name: "x"}, func(*loop.Event) {}, "event.subject", event.RuleInvalid, "x"},
		{"a name that is none", events.Tenant("default", "X_"), func(*loop.Event) {}, "event.subject", event.RuleInvalid, "default/X_"},
		{"an answer to no inbox", key, func(e *loop.Event) { e.SetExtension(events.ExtReplyTo, "stoker.status.a.b") }, "event.replyto", event.RuleInvalid, "stoker.status.a.b"},
		{"an expected generation that is none", key, func(e *loop.Event) { e.SetExtension(events.ExtExpectedGeneration, "-1") }, "event.expectedgeneration", event.RuleInvalid, "-1"},
		{"too much", key, func(e *loop.Event) { e.DataEncoded = make([]byte, events.MaxPayload+1) }, "event.data", event.RuleTooLarge, "65537 bytes"},
		{"another namespace than the installation's", events.Tenant("prod", "demo"), func(*loop.Event) {}, "metadata.namespace", event.RuleForbidden, "prod"},
	} {
		t.Run(c.name+" is refused", func(t *testing.T) {
			e := commandFor(c.key, event.Apply, ``).event
			c.change(&e)
			_, err := s.understand(c.key, e)
			if e := wants(t, err, c.field, c.rule); e.Value != c.value {
				t.Errorf("value %q, want %q", e.Value, c.value)
			}
		})
	}
	t.Run("an expected generation may be a number or its text", func(t *testing.T) {
		for _, v := range []any{"3", int32(3), 3} {
			e := commandFor(key, event.Sleep, ``).event
			e.SetExtension(events.ExtExpectedGeneration, v)
			if c, err := s.understand(key, e); err != nil || *c.expected != 3 {
				t.Errorf("%v: %v", v, err)
			}
		}
	})
}

func TestUnexpected(t *testing.T) {
	key := events.Tenant("default", "demo")
	there := objectOf(t, `{"metadata":{"generation":4}}`)
	expecting := func(n int64) command {
		c := commandFor(key, event.Sleep, ``)
		c.expected = &n
		return c
	}
	for _, fine := range []struct {
		c     command
		there *object
	}{{commandFor(key, event.Sleep, ``), there}, {commandFor(key, event.Sleep, ``), nil}, {expecting(4), there}, {expecting(0), nil}} {
		if done, err := fine.c.unexpected(fine.there); done || err != nil {
			t.Errorf("%v %v", done, err)
		}
	}
	_, err := expecting(3).unexpected(there)
	if e := wants(t, err, "event.expectedgeneration", event.RuleConflict); e.Value != "3" || e.Message != "the TenantControlPlane has generation 4" {
		t.Errorf("%+v", e)
	}
	_, err = expecting(3).unexpected(nil)
	wants(t, err, "event.expectedgeneration", event.RuleConflict)
	_, err = expecting(0).unexpected(there)
	wants(t, err, "event.expectedgeneration", event.RuleConflict)
	t.Run("what this very command made is as expected", func(t *testing.T) {
		there.Annotations = map[string]string{name.AnnotationCommand: expecting(3).id()}
		if done, err := expecting(3).unexpected(there); !done || err != nil {
			t.Errorf("%v %v", done, err)
		}
	})
}
