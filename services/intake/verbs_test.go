package intake

import (
	"fmt"
	"testing"
	"time"

	ce "github.com/cloudevents/sdk-go/v2/event"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/stoker-k8s/stoker/pkg/api/event"
	"github.com/stoker-k8s/stoker/pkg/api/name"
	"github.com/stoker-k8s/stoker/pkg/events"
	"github.com/stoker-k8s/stoker/pkg/loop"
)

// sent is a message as the stream delivers it; only when it was stored matters here.
type sent struct {
	jetstream.Msg
	at time.Time
}

func (s sent) Data() []byte { return nil }

func (s sent) Metadata() (*jetstream.MsgMetadata, error) {
	return &jetstream.MsgMetadata{Timestamp: s.at}, nil
}

var noon = time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC)

func ordered(key events.Key, verb, data string) order {
	e := ce.New()
	e.SetID("1")
	e.SetSource("/portal")
	e.SetType(event.CommandType(key.Kind, verb))
	e.DataEncoded = []byte(data)
	return order{event: loop.Event{Event: e, Raw: sent{at: noon}}, key: key, kind: kinds[key.Kind], verb: verb}
}

func objectOf(t *testing.T, data string) *object {
	t.Helper()
	o, err := order{key: events.Tenant("default", "demo")}.object([]byte(data))
	if err != nil {
		t.Fatal(err)
	}
	return o
}

func TestVerbs(t *testing.T) {
	tenant := func(replicas, annotations string) string {
		return fmt.Sprintf(`{"metadata":{"name":"demo","annotations":{%s}},"spec":{"controlPlane":{"deployment":{%s}}}}`, annotations, replicas)
	}
	note := func(key, value string) string { return fmt.Sprintf("%q:%q", key, value) }
	const two, none = `"replicas":2`, `"replicas":0`
	for _, c := range []struct{ name, verb, data, object, patch string }{
		{"pause sets the annotation", event.Pause, ``, tenant(two, ""), `{"metadata":{"annotations":{"kamaji.clastix.io/paused":""}}}`},
		{"pausing what is paused changes nothing", event.Pause, `null`, tenant(two, note(name.AnnotationPaused, "by me")), `{}`},
		{"pause until a time ends by itself", event.Pause, `{"until":"2026-11-20T14:30:00.5+01:00"}`, tenant(two, ""), `{"metadata":{"annotations":{"stoker.dev/paused-until":"2026-11-20T13:30:01Z"}}}`},
		{"a limit replaces a pause without one", event.Pause, `{"until":"2026-11-20T13:30:00Z"}`, tenant(two, note(name.AnnotationPaused, "")), `{"metadata":{"annotations":{"kamaji.clastix.io/paused":null,"stoker.dev/paused-until":"2026-11-20T13:30:00Z"}}}`},
		{"and the other way round", event.Pause, `{}`, tenant(two, note(name.AnnotationPausedUntil, "2026-11-20T13:30:00Z")), `{"metadata":{"annotations":{"kamaji.clastix.io/paused":"","stoker.dev/paused-until":null}}}`},
		{"the same limit twice changes nothing", event.Pause, `{"until":"2026-11-20T13:30:00Z"}`, tenant(two, note(name.AnnotationPausedUntil, "2026-11-20T13:30:00Z")), `{}`},
		{"resume removes both", event.Resume, ``, tenant(two, note(name.AnnotationPaused, "")+","+note(name.AnnotationPausedUntil, "x")), `{"metadata":{"annotations":{"kamaji.clastix.io/paused":null,"stoker.dev/paused-until":null}}}`},
		{"resuming what isn't paused changes nothing", event.Resume, ``, tenant(two, note("a", "b")), `{}`},
		{"sleep remembers the replicas", event.Sleep, ``, tenant(`"replicas":3`, ""), `{"metadata":{"annotations":{"stoker.dev/awake-replicas":"3"}},"spec":{"controlPlane":{"deployment":{"replicas":0}}}}`},
		{"sleep remembers the default", event.Sleep, ``, tenant(``, ""), `{"metadata":{"annotations":{"stoker.dev/awake-replicas":"2"}},"spec":{"controlPlane":{"deployment":{"replicas":0}}}}`},
		{"sleep replaces a stale note", event.Sleep, ``, tenant(`"replicas":1`, note(name.AnnotationAwakeReplicas, "5")), `{"metadata":{"annotations":{"stoker.dev/awake-replicas":"1"}},"spec":{"controlPlane":{"deployment":{"replicas":0}}}}`},
		{"what sleeps is left asleep", event.Sleep, ``, tenant(none, note(name.AnnotationAwakeReplicas, "5")), `{}`},
		{"also without a note", event.Sleep, ``, tenant(none, ""), `{}`},
		{"wake brings the replicas back", event.Wake, ``, tenant(none, note(name.AnnotationAwakeReplicas, "3")), `{"metadata":{"annotations":{"stoker.dev/awake-replicas":null}},"spec":{"controlPlane":{"deployment":{"replicas":3}}}}`},
		{"wake without a note brings the default", event.Wake, ``, tenant(none, ""), `{"spec":{"controlPlane":{"deployment":{"replicas":2}}}}`},
		{"wake with a note that is no number, too", event.Wake, ``, tenant(none, note(name.AnnotationAwakeReplicas, "-1")), `{"metadata":{"annotations":{"stoker.dev/awake-replicas":null}},"spec":{"controlPlane":{"deployment":{"replicas":2}}}}`},
		{"of what is awake only a stale note goes", event.Wake, ``, tenant(two, note(name.AnnotationAwakeReplicas, "3")), `{"metadata":{"annotations":{"stoker.dev/awake-replicas":null}}}`},
		{"waking what is awake changes nothing", event.Wake, ``, tenant(two, ""), `{}`},
		{"patch is the patch", event.Patch, `{"spec":{"kubernetes":{"version":"v1.36.3"},"addons":{"coreDNS":null}}}`, tenant(two, ""), `{"spec":{"addons":{"coreDNS":null},"kubernetes":{"version":"v1.36.3"}}}`},
	} {
		t.Run(c.name, func(t *testing.T) {
			asks, err := ordered(events.Tenant("default", "demo"), c.verb, c.data).asked()
			if err != nil {
				t.Fatal(err)
			}
			patch, err := asks.patch(objectOf(t, c.object))
			if got := string(event.Marshal(patch)); err != nil || got != c.patch {
				t.Errorf("%s, want %s (%v)", got, c.patch, err)
			}
		})
	}
	for _, c := range []struct{ name, verb, data, field, rule, value string }{
		{"an unknown field", event.Sleep, `{"replicas":1}`, "replicas", ruleUnknown, "1"},
		{"data that is no object", event.Wake, `7`, "event.data", ruleInvalid, "7"},
		{"data that is no JSON", event.Resume, `{`, "event.data", ruleInvalid, "{"},
		{"a uid that is no string", event.Pause, `{"uid":7}`, "uid", ruleInvalid, "7"},
		{"a pause until something", event.Pause, `{"until":"tomorrow"}`, "until", ruleInvalid, "tomorrow"},
		{"a pause until the past", event.Pause, `{"until":"2026-11-20T12:00:00Z"}`, "until", ruleInvalid, "2026-11-20T12:00:00Z"},
		{"a patch of nothing", event.Patch, `{}`, "spec", ruleRequired, ""},
		{"a patch to null", event.Patch, `{"spec":null}`, "spec", ruleRequired, ""},
		{"a patch that is no object", event.Patch, `{"spec":[1]}`, "spec", ruleInvalid, "[1]"},
		{"a patch of the metadata", event.Patch, `{"spec":{},"metadata":{"labels":{"a":"b"}}}`, "metadata", ruleUnknown, `{"labels":{"a":"b"}}`},
		{"a patch with an unknown field", event.Patch, `{"spec":{"kubernetes":{"colour":"red"}}}`, "spec.kubernetes.colour", ruleUnknown, "red"},
		{"a patch that removes an unknown field", event.Patch, `{"spec":{"colour":null}}`, "spec.colour", ruleUnknown, ""},
		{"a patch with a field twice", event.Patch, `{"spec":{"dataStore":"a","dataStore":"b"}}`, "spec.dataStore", ruleDuplicate, "b"},
		{"a patch of the wrong type", event.Patch, `{"spec":{"networkProfile":{"port":"http"}}}`, "spec.networkProfile.port", ruleInvalid, "http"},
	} {
		t.Run(c.name+" is refused", func(t *testing.T) {
			_, err := ordered(events.Tenant("default", "demo"), c.verb, c.data).asked()
			if e := wants(t, err, c.field, c.rule); e.Value != c.value {
				t.Errorf("value %q, want %q", e.Value, c.value)
			}
		})
	}
}

func TestUnderstand(t *testing.T) {
	s := &intake{namespace: "default"}
	key := events.Tenant("default", "demo")
	t.Run("every command of the catalogue is understood", func(t *testing.T) {
		keys := map[string]events.Key{event.TenantControlPlanes: key, event.DataStores: events.DataStore("ds"), event.KubeconfigGenerators: events.Generator("kg")}
		for _, c := range event.Catalogue() {
			if c.Command {
				if o, err := s.understand(keys[c.Kind], ordered(keys[c.Kind], c.What, ``).event); err != nil || o.verb != c.What {
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
		{"sleep for a DataStore", events.DataStore("ds"), func(e *loop.Event) { e.SetType(event.CommandType(event.DataStores, event.Sleep)) }, "event.type", ruleUnknown, "dev.stoker.datastore.sleep.v1"},
		{"a tenant's command on a DataStore's subject", events.DataStore("ds"), func(e *loop.Event) { e.SetType(event.TenantApply) }, "event.type", ruleUnknown, event.TenantApply},
		{"an unknown kind", events.Key{Kind: "pods", Namespace: "default", Name: "x"}, func(*loop.Event) {}, "event.subject", ruleUnknown, "pods"},
		{"a tenant without namespace", events.Key{Kind: event.TenantControlPlanes, Namespace: "-", Name: "x"}, func(*loop.Event) {}, "event.subject", ruleInvalid, "x"},
		{"a name that is none", events.Tenant("default", "X_"), func(*loop.Event) {}, "event.subject", ruleInvalid, "default/X_"},
		{"an answer to no inbox", key, func(e *loop.Event) { e.SetExtension(events.ExtReplyTo, "stoker.status.a.b") }, "event.replyto", ruleInvalid, "stoker.status.a.b"},
		{"an expected generation that is none", key, func(e *loop.Event) { e.SetExtension(events.ExtExpectedGeneration, "-1") }, "event.expectedgeneration", ruleInvalid, "-1"},
		{"too much", key, func(e *loop.Event) { e.DataEncoded = make([]byte, events.MaxPayload+1) }, "event.data", ruleTooLarge, "65537 bytes"},
		{"another namespace than the installation's", events.Tenant("prod", "demo"), func(*loop.Event) {}, "metadata.namespace", ruleForbidden, "prod"},
	} {
		t.Run(c.name+" is refused", func(t *testing.T) {
			e := ordered(c.key, event.Apply, ``).event
			c.change(&e)
			_, err := s.understand(c.key, e)
			if e := wants(t, err, c.field, c.rule); e.Value != c.value {
				t.Errorf("value %q, want %q", e.Value, c.value)
			}
		})
	}
	t.Run("an expected generation may be a number or its text", func(t *testing.T) {
		for _, v := range []any{"3", int32(3), 3} {
			e := ordered(key, event.Sleep, ``).event
			e.SetExtension(events.ExtExpectedGeneration, v)
			if o, err := s.understand(key, e); err != nil || *o.expected != 3 {
				t.Errorf("%v: %v", v, err)
			}
		}
	})
	t.Run("the fingerprint is of what is asked for, not of how it is written", func(t *testing.T) {
		a, b, c := ordered(key, event.Pause, `{"uid": "x"}`), ordered(key, event.Pause, `{"uid":"x"}`), ordered(key, event.Pause, `{"uid":"y"}`)
		of := func(o order) string { return gist(key, o.event.Event) }
		if of(a) != of(b) || of(a) == of(c) {
			t.Error("it isn't")
		}
	})
}

func TestUnexpected(t *testing.T) {
	key := events.Tenant("default", "demo")
	there := objectOf(t, `{"metadata":{"generation":4}}`)
	expecting := func(n int64) order {
		o := ordered(key, event.Sleep, ``)
		o.expected = &n
		return o
	}
	for _, fine := range []struct {
		o     order
		there *object
	}{{ordered(key, event.Sleep, ``), there}, {ordered(key, event.Sleep, ``), nil}, {expecting(4), there}, {expecting(0), nil}} {
		if done, err := fine.o.unexpected(fine.there); done || err != nil {
			t.Errorf("%v %v", done, err)
		}
	}
	_, err := expecting(3).unexpected(there)
	if e := wants(t, err, "event.expectedgeneration", ruleConflict); e.Value != "3" || e.Message != "the TenantControlPlane has generation 4" {
		t.Errorf("%+v", e)
	}
	_, err = expecting(3).unexpected(nil)
	wants(t, err, "event.expectedgeneration", ruleConflict)
	_, err = expecting(0).unexpected(there)
	wants(t, err, "event.expectedgeneration", ruleConflict)
	t.Run("what this very command made is as expected", func(t *testing.T) {
		there.Annotations = map[string]string{name.AnnotationCommand: expecting(3).mark()}
		if done, err := expecting(3).unexpected(there); !done || err != nil {
			t.Errorf("%v %v", done, err)
		}
	})
}
