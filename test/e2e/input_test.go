package e2e

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/stoker-k8s/stoker/pkg/api/event"
	"github.com/stoker-k8s/stoker/pkg/api/name"
	"github.com/stoker-k8s/stoker/pkg/events"
	"github.com/stoker-k8s/stoker/test/env"
)

// ask publishes a message as a portal and returns intake's answer.
func ask(t *testing.T, m *nats.Msg) (string, event.IntakeRejected) {
	t.Helper()
	return askAs(t, e.Portal, m)
}

// askAs is ask for another user.
func askAs(t *testing.T, user *events.Bus, m *nats.Msg) (string, event.IntakeRejected) {
	t.Helper()
	parts := strings.Split(m.Subject, ".")
	inbox := events.Tenant(parts[len(parts)-2], "").NewAnswerSubject()
	sub, err := user.Conn().SubscribeSync(inbox)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = sub.Unsubscribe() }()
	if m.Header.Get("ce-replyto") == "" {
		m.Header.Set("ce-replyto", inbox)
	}
	env.Publish(t, user, m)
	got, err := sub.NextMsg(3 * time.Minute)
	if err != nil {
		t.Fatal("no answer: ", err)
	}
	a, err := events.Decode(got.Header, got.Data)
	if err != nil {
		t.Fatal(err)
	}
	var no event.IntakeRejected
	if err := json.Unmarshal(a.Data(), &no); err != nil {
		t.Fatal(err)
	}
	return a.Type(), no
}

func TestBadInputIsRefusedClearly(t *testing.T) {
	e.Services(t)
	key := events.Tenant("default", "bad")
	command := func(change func(m map[string]any)) *nats.Msg {
		o := env.JSON(t, env.Tenant("bad", "v1.36.3"))
		change(o)
		return events.Encode(key.CommandSubject(), e.Portal.NewEvent(key, nats.NewInbox(), event.TenantApply, o, time.Now()))
	}
	spec := func(m map[string]any, path ...string) map[string]any {
		for _, p := range path {
			m = m[p].(map[string]any)
		}
		return m
	}
	for _, c := range []struct {
		name        string
		message     *nats.Msg
		field, says string
	}{
		{"an unknown field", command(func(m map[string]any) { spec(m, "spec")["colour"] = "red" }), "spec.colour", "unknown field"},
		{"a value of the wrong type", command(func(m map[string]any) { spec(m, "spec", "networkProfile")["port"] = "http" }), "spec.networkProfile.port", "whole number"},
		{"a CIDR that is none", command(func(m map[string]any) { spec(m, "spec", "networkProfile")["serviceCidr"] = "10.96.0.0/99" }), "spec.networkProfile.serviceCidr", "CIDR"},
		{"an empty name", command(func(m map[string]any) { spec(m, "metadata")["name"] = "" }), "metadata.name", "must be bad"},
		{"another name than the subject's", command(func(m map[string]any) { spec(m, "metadata")["name"] = "other" }), "metadata.name", "subject"},
		{"a version that isn't supported", command(func(m map[string]any) { spec(m, "spec", "kubernetes")["version"] = "v1.99.0" }), "spec.kubernetes.version", "1.36"},
		{"a missing required field", command(func(m map[string]any) { delete(m["spec"].(map[string]any), "kubernetes") }), "spec.kubernetes", "equired"},
		{"finalizers", command(func(m map[string]any) { spec(m, "metadata")["finalizers"] = []string{"x/y"} }), "metadata.finalizers", "labels and annotations only"},
		{"an unknown type", func() *nats.Msg {
			m := command(func(map[string]any) {})
			m.Header.Set("ce-type", "com.example.tenant.wish.v1")
			return m
		}(), "event.type", event.TenantApply},
		{"a CloudEvent without id", func() *nats.Msg {
			m := command(func(map[string]any) {})
			m.Header.Del("ce-id")
			return m
		}(), "event.id", "missing"},
		{"data that isn't JSON", func() *nats.Msg {
			m := command(func(map[string]any) {})
			m.Data = []byte("apiVersion: yaml")
			return m
		}(), "event.data", "JSON"},
		{"data of 100 KiB", func() *nats.Msg {
			m := command(func(map[string]any) {})
			m.Data = append([]byte(`{"x":"`), append([]byte(strings.Repeat("x", 100<<10)), `"}`...)...)
			return m
		}(), "event.data", "65536"},
	} {
		t.Run(c.name, func(t *testing.T) {
			typ, no := ask(t, c.message)
			if typ != event.FactType("intake", event.Rejected) || len(no.Errors) == 0 {
				t.Fatalf("answer %s %+v", typ, no)
			}
			for _, f := range no.Errors {
				if f.Field == c.field && strings.Contains(f.Message, c.says) {
					return
				}
			}
			t.Errorf("want field %s and %q, got %+v", c.field, c.says, no.Errors)
		})
	}
	t.Run("what has nobody to tell is in the dead letters", func(t *testing.T) {
		m := nats.NewMsg(key.CommandSubject())
		m.Data = []byte("garbage")
		env.Publish(t, e.Portal, m)
		s, err := e.JetStream().Stream(t.Context(), events.StreamDead)
		if err != nil {
			t.Fatal(err)
		}
		env.Eventually(t, "the dead letter", func() error {
			m, err := s.GetLastMsgForSubject(t.Context(), key.DeadSubject("intake"))
			if err == nil && (string(m.Data) != "garbage" || !strings.Contains(m.Header.Get("Stoker-Cause"), "specversion")) {
				t.Fatalf("dead letter %v %s", m.Header, m.Data)
			}
			return err
		})
	})
	t.Run("subjects that name no Kubernetes object are refused", func(t *testing.T) {
		for _, subject := range []string{"stoker.intake.tenantcontrolplanes.default.UPPER_case!", "stoker.intake.pods.default.x", "stoker.intake.tenantcontrolplanes.-.x"} {
			m := command(func(map[string]any) {})
			m.Subject = subject
			typ, no := askAs(t, e.Operator, m) // a portal may not even publish on most of them
			if typ != event.FactType("intake", event.Rejected) || no.Errors[0].Field != "event.subject" {
				t.Errorf("%s: %s %+v", subject, typ, no)
			}
		}
	})
	t.Run("a structured event is as good as a binary one", func(t *testing.T) {
		ev := e.Portal.NewEvent(key, "structured", "com.example.no.v1", map[string]any{}, time.Now())
		data, err := json.Marshal(ev)
		if err != nil {
			t.Fatal(err)
		}
		m := nats.NewMsg(key.CommandSubject())
		m.Header.Set("Content-Type", "application/cloudevents+json; charset=UTF-8")
		m.Data = data
		env.Publish(t, e.Portal, m)
		env.Eventually(t, "its rejection", func() error {
			s, err := e.JetStream().Stream(t.Context(), events.StreamFacts)
			if err != nil {
				return err
			}
			m, err := s.GetLastMsgForSubject(t.Context(), key.FactSubject("intake", event.Rejected))
			if err == nil && !strings.Contains(string(m.Data), "structured") {
				return errNotYet
			}
			return err
		})
	})
	t.Run("an apply for a tenant being deleted is refused, and no other tenant waits", func(t *testing.T) {
		doomed := events.Tenant("default", "doomed")
		const trace = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
		command := e.Portal.NewEvent(doomed, nats.NewInbox(), event.TenantApply, env.JSON(t, env.Tenant("doomed", "v1.36.3")), time.Now())
		command.SetExtension(events.ExtTraceParent, trace)
		env.Publish(t, e.Portal, events.Encode(doomed.CommandSubject(), command))
		e.Fact(t, doomed, "workload", event.Exposed)
		facts, err := e.JetStream().Stream(t.Context(), events.StreamFacts)
		if err != nil {
			t.Fatal(err)
		}
		fact, err := facts.GetLastMsgForSubject(t.Context(), doomed.FactSubject("workload", event.Exposed))
		if err != nil || fact.Header.Get("ce-traceparent") != trace || fact.Header.Get("traceparent") != trace {
			t.Errorf("the command's trace context isn't in the fact: %v %v", err, fact.Header)
		}
		finalizers(t, doomed, name.FinalizerTenant, "test.stoker.dev/hold") // keeps the object where it is
		e.Delete(t, doomed)
		o := env.JSON(t, env.Tenant("doomed", "v1.36.3"))
		_, no := ask(t, events.Encode(doomed.CommandSubject(), e.Portal.NewEvent(doomed, nats.NewInbox(), event.TenantApply, o, time.Now())))
		if len(no.Errors) != 1 || no.Errors[0].Rule != "Deleting" {
			t.Errorf("answer %+v", no)
		}
		e.Gone(t, doomed)
		finalizers(t, doomed)
		nothingLeft(t, doomed)
	})
}
