package intake

import (
	"encoding/json"
	"fmt"
	"testing"
	"time"

	ce "github.com/cloudevents/sdk-go/v2/event"
	"github.com/nats-io/nats.go"

	"github.com/stoker-k8s/stoker/pkg/api/event"
	"github.com/stoker-k8s/stoker/pkg/api/name"
	"github.com/stoker-k8s/stoker/pkg/events"
	"github.com/stoker-k8s/stoker/pkg/loop"
)

// sent is a message as the stream delivers it; only when it was stored matters here (the fields of its reply subject are those of ADR-15
// of NATS).
func sent(at time.Time) *nats.Msg {
	return &nats.Msg{Sub: &nats.Subscription{}, Reply: fmt.Sprintf("$JS.ACK.%s.intake-0.1.1.1.%d.0", events.StreamIntake, at.UnixNano())}
}

var noon = time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC)

func commandFor(key events.Key, verb, data string) command {
	e := ce.New()
	e.SetID("1")
	e.SetSource("/portal")
	e.SetType(event.CommandType(key.Kind, verb))
	e.DataEncoded = []byte(data)
	return command{event: loop.Event{Event: e, Raw: sent(noon)}, key: key, kind: kinds[key.Kind], verb: verb}
}

func objectOf(t *testing.T, data string) *object {
	t.Helper()
	o, err := command{key: events.Tenant("default", "demo")}.object([]byte(data))
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
		{"backup asks for one now, to the tenant's location", event.Backup, ``, tenant(two, note(name.AnnotationBackupLocation, "offsite")), `{"metadata":{"annotations":{"stoker.dev/backup-at":"2026-11-20T12:00:00Z"}}}`},
		{"or to another one", event.Backup, `{"location":"other"}`, tenant(two, note(name.AnnotationBackupLocation, "offsite")), `{"metadata":{"annotations":{"stoker.dev/backup-at":"2026-11-20T12:00:00Z","stoker.dev/backup-location":"other"}}}`},
		{"one asked for again after a later one changes nothing", event.Backup, `{"location":"other"}`, tenant(two, note(name.AnnotationBackupAt, "2026-11-20T12:00:00.5Z")), `{}`},
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
			what, err := verbs[c.verb].change(commandFor(events.Tenant("default", "demo"), c.verb, c.data))
			if err != nil {
				t.Fatal(err)
			}
			patch, err := what.patch(objectOf(t, c.object))
			if got := string(event.Marshal(patch)); err != nil || got != c.patch {
				t.Errorf("%s, want %s (%v)", got, c.patch, err)
			}
		})
	}
	for _, c := range []struct{ name, verb, data, field, rule, value string }{
		{"an unknown field", event.Sleep, `{"replicas":1}`, "replicas", event.RuleUnknown, "1"},
		{"data that is no object", event.Wake, `7`, "event.data", event.RuleInvalid, "7"},
		{"data that is no JSON", event.Resume, `{`, "event.data", event.RuleInvalid, "{"},
		{"a uid that is no string", event.Pause, `{"uid":7}`, "uid", event.RuleInvalid, "7"},
		{"a pause until something", event.Pause, `{"until":"tomorrow"}`, "until", event.RuleInvalid, "tomorrow"},
		{"a pause until the past", event.Pause, `{"until":"2026-11-20T12:00:00Z"}`, "until", event.RuleInvalid, "2026-11-20T12:00:00Z"},
		{"a backup to no name", event.Backup, `{"location":"Off/Site"}`, "location", event.RuleInvalid, "Off/Site"},
		{"a patch of nothing", event.Patch, `{}`, "spec", event.RuleRequired, ""},
		{"a patch to null", event.Patch, `{"spec":null}`, "spec", event.RuleRequired, ""},
		{"a patch that is no object", event.Patch, `{"spec":[1]}`, "spec", event.RuleInvalid, "[1]"},
		{"a patch of the metadata", event.Patch, `{"spec":{},"metadata":{"labels":{"a":"b"}}}`, "metadata", event.RuleUnknown, `{"labels":{"a":"b"}}`},
		{"a patch with an unknown field", event.Patch, `{"spec":{"kubernetes":{"colour":"red"}}}`, "spec.kubernetes.colour", event.RuleUnknown, "red"},
		{"a patch that removes an unknown field", event.Patch, `{"spec":{"colour":null}}`, "spec.colour", event.RuleUnknown, ""},
		{"a patch with a field twice", event.Patch, `{"spec":{"dataStore":"a","dataStore":"b"}}`, "spec.dataStore", event.RuleDuplicate, "b"},
		{"a patch of the wrong type", event.Patch, `{"spec":{"networkProfile":{"port":"http"}}}`, "spec.networkProfile.port", event.RuleInvalid, "http"},
	} {
		t.Run(c.name+" is refused", func(t *testing.T) {
			_, err := verbs[c.verb].change(commandFor(events.Tenant("default", "demo"), c.verb, c.data))
			if e := wants(t, err, c.field, c.rule); e.Value != c.value {
				t.Errorf("value %q, want %q", e.Value, c.value)
			}
		})
	}
}

func TestEveryCommandHasAVerb(t *testing.T) {
	rows := 0
	for _, e := range event.Catalogue() {
		if !e.Command {
			continue
		}
		rows++
		v, ok := verbs[e.What]
		if !ok || (v.do == nil) == (v.change == nil) {
			t.Errorf("%s: the table of verbs doesn't say, or says twice, what it does", e.Type)
		}
		if commands[e.Type].What != e.What {
			t.Errorf("%s is refused", e.Type)
		}
	}
	if rows == 0 || rows != len(commands) {
		t.Errorf("%d commands in the catalogue, %d are understood", rows, len(commands))
	}
}

func TestAnUnknownVerbIsRefused(t *testing.T) {
	const hibernate = "hibernate"
	key := events.Tenant("default", "demo")
	typ := event.CommandType(key.Kind, hibernate)
	row := event.Entry{Type: typ, Command: true, Service: name.ServiceIntake, Kind: key.Kind, What: hibernate}
	t.Run("also when the catalogue has it", func(t *testing.T) {
		if known := knownCommands(append(event.Catalogue(), row)); known[typ].Type != "" || len(known) != len(commands) {
			t.Errorf("%+v", known[typ])
		}
	})
	t.Run("before anything is looked at", func(t *testing.T) {
		_, err := (&svc{}).understand(key, commandFor(key, hibernate, ``).event)
		if e := wants(t, err, "event.type", event.RuleUnknown); e.Value != typ {
			t.Errorf("%+v", e)
		}
	})
	t.Run("and not carried out: it wakes no sleeping tenant", func(t *testing.T) {
		_, err := (&svc{}).carryOut(t.Context(), nil, commandFor(key, hibernate, ``))
		if e := wants(t, err, "event.type", event.RuleUnknown); e.Value != typ {
			t.Errorf("%+v", e)
		}
	})
}

// FuzzPatch takes the data of commands that change an object, as anybody may send them.
func FuzzPatch(f *testing.F) {
	f.Add(event.Patch, []byte(`{"spec":{"kubernetes":{"version":"v1.36.3"},"networkProfile":null}}`))
	f.Add(event.Patch, []byte(`{"uid":"u","spec":{"controlPlane":{"deployment":{"replicas":1e3,"extraArgs":{"apiServer":["--v=2",null]}}}}}`))
	f.Add(event.Patch, []byte(`{"spec":{"addons":{},"addons":{"coreDNS":null}}}`))
	f.Add(event.Patch, []byte(`{"spec":[]}`))
	f.Add(event.Patch, []byte(`{"metadata":{"name":"x"}}`))
	f.Add(event.Pause, []byte(`{"until":"2027-01-31T18:00:00Z"}`))
	f.Add(event.Pause, []byte(`{"until":12}`))
	f.Add(event.Sleep, []byte(`null`))
	f.Add(event.Wake, []byte(`{"uid":7}`))
	there, err := command{key: events.Tenant("default", "demo")}.object([]byte(good))
	if err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, verb string, data []byte) {
		for name := range kinds {
			if _, ok := commands[event.CommandType(name, verb)]; !ok || verb == event.Apply || verb == event.Delete {
				continue
			}
			key := events.Tenant("default", "demo")
			key.Kind = name
			c, err := verbs[verb].change(commandFor(key, verb, string(data)))
			if err != nil {
				if missing := said(err); missing != "" {
					t.Errorf("%s %s %q: %s: %v", name, verb, data, missing, err)
				}
				continue
			}
			patch, err := c.patch(there)
			if err != nil {
				t.Errorf("%s %s %q: %v", name, verb, data, err)
				continue
			}
			for field := range patch {
				if field != "spec" && field != "metadata" {
					t.Errorf("%s %s %q changes %s", name, verb, data, field)
				}
			}
			whole, _ := parse(there.raw)
			if _, err := json.Marshal(merge(any(whole), any(patch))); err != nil {
				t.Errorf("%s %s %q: %v", name, verb, data, err)
			}
		}
	})
}
