package events_test

import (
	"encoding/json"
	"testing"

	ce "github.com/cloudevents/sdk-go/v2/event"

	"github.com/stoker-k8s/stoker/pkg/events"
	"github.com/stoker-k8s/stoker/pkg/internal/testing/natstest"
)

func TestAnswers(t *testing.T) {
	t.Parallel()
	s := natstest.Start(t)
	in := s.Connect(t, "intake", "")
	if err := in.Provision(t.Context()); err != nil {
		t.Fatal(err)
	}
	key := events.Tenant("default", "demo")
	look := func(source, id string) *events.Answer {
		t.Helper()
		a, err := in.Answered(t.Context(), key, source, id)
		if err != nil {
			t.Fatal(err)
		}
		return a
	}
	note := func(source, id, command string) {
		t.Helper()
		if err := in.NoteAnswer(t.Context(), key, source, id, events.Answer{Request: command, What: "accepted", Data: json.RawMessage(`{"name":"demo"}`)}); err != nil {
			t.Fatal(err)
		}
	}
	t.Run("a command nobody noted has no answer", func(t *testing.T) {
		if a := look("/portal", "1"); a != nil {
			t.Errorf("%+v", a)
		}
	})
	t.Run("what was noted is found by source and id", func(t *testing.T) {
		note("/portal", "1", "print")
		a := look("/portal", "1")
		if a == nil || a.Request != "print" || a.What != "accepted" || string(a.Data) != `{"name":"demo"}` {
			t.Errorf("%+v", a)
		}
		if a := look("/another", "1"); a != nil {
			t.Errorf("another source's id: %+v", a)
		}
	})
	t.Run("nobody takes the source and id of a command in another namespace", func(t *testing.T) {
		a, err := in.Answered(t.Context(), events.Tenant("acme", "demo"), "/portal", "1")
		if err != nil || a != nil {
			t.Errorf("%+v, %v", a, err)
		}
	})
	t.Run("what a version before noted is known still", func(t *testing.T) {
		if _, err := in.JetStream().Publish(t.Context(), "$KV."+events.BucketCommands+"."+events.ID("/portal", "old"), []byte(`{"what":"accepted"}`)); err != nil {
			t.Fatal(err)
		}
		if a := look("/portal", "old"); a == nil || a.What != "accepted" {
			t.Errorf("%+v", a)
		}
	})
	t.Run("a bucket that was removed is made again", func(t *testing.T) {
		if err := in.JetStream().DeleteKeyValue(t.Context(), events.BucketCommands); err != nil {
			t.Fatal(err)
		}
		if a := look("/portal", "1"); a != nil {
			t.Errorf("%+v", a)
		}
		note("/portal", "2", "print")
		if look("/portal", "2") == nil {
			t.Error("it is not noted")
		}
	})
	t.Run("no other service reads or writes answers", func(t *testing.T) {
		other := s.Connect(t, "certs", "")
		if err := other.NoteAnswer(t.Context(), key, "/portal", "3", events.Answer{}); err == nil {
			t.Error("certs noted an answer")
		}
		if look("/portal", "3") != nil {
			t.Error("certs wrote an answer")
		}
	})
}

func TestFingerprint(t *testing.T) {
	key := events.Tenant("default", "demo")
	of := func(data string, expected any) string {
		e := ce.New()
		e.SetType("dev.stoker.tenantcontrolplane.pause.v1")
		e.DataEncoded = []byte(data)
		if expected != nil {
			e.SetExtension(events.ExtExpectedGeneration, expected)
		}
		return events.Fingerprint(key, e)
	}
	if of(`{"uid": "x"}`, nil) != of(`{"uid":"x"}`, nil) {
		t.Error("it depends on how the data is spaced")
	}
	if of(`{"uid":"x"}`, nil) == of(`{"uid":"y"}`, nil) || of(`{}`, nil) == of(`{}`, "3") {
		t.Error("two commands have the same")
	}
}
