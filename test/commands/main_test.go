// Package commands tries every command, on NATS and by HTTP, against a real API server, with intake and nothing else
// running.
package commands

import (
	"context"
	"encoding/json"
	"fmt"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nuid"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/stoker-k8s/stoker/pkg/api/event"
	"github.com/stoker-k8s/stoker/pkg/api/name"
	"github.com/stoker-k8s/stoker/pkg/events"
	"github.com/stoker-k8s/stoker/pkg/kube"
	"github.com/stoker-k8s/stoker/services/intake"
	"github.com/stoker-k8s/stoker/test/env"
)

var e *env.Env

func TestMain(m *testing.M) { env.Main(m, func(started *env.Env) { e = started }, env.APIOnly) }

// startIntake runs a replica of intake until the test ends, or stop is called.
func startIntake(t testing.TB, replica string, change ...func(*intake.Config)) (stop func()) {
	t.Helper()
	cfg := intake.Config{Config: e.Stack.Service(name.ServiceIntake, replica), DataStore: "default"}
	for _, c := range change {
		c(&cfg)
	}
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	done := make(chan error, 1)
	go func() { done <- intake.Run(ctx, cfg) }()
	stopped := false
	stop = func() {
		if stopped {
			return
		}
		stopped = true
		cancel()
		select {
		case err := <-done:
			if err != nil {
				t.Errorf("intake %s: %v", replica, err)
			}
		case <-time.After(2 * time.Minute):
			t.Errorf("intake %s does not end", replica)
		}
	}
	t.Cleanup(stop)
	return stop
}

// answer is what intake answered to a command.
type answer struct {
	what string
	event.IntakeAccepted
	errors []event.FieldError
	data   string
}

// command is a command as a portal makes it.
type command struct {
	key      events.Key
	verb     string
	data     any
	id       string // empty: a new one
	expected any    // generation
	message  string // Nats-Msg-Id; empty: one of its own, so that the server drops nothing
}

func (c *command) encode(t testing.TB, inbox string) *nats.Msg {
	t.Helper()
	if c.id == "" {
		c.id = nuid.Next()
	}
	if c.data == nil {
		c.data = struct{}{}
	}
	ev := e.Portal.NewEvent(c.key, c.id, event.CommandType(c.key.Kind, c.verb), c.data, time.Now())
	if c.expected != nil {
		ev.SetExtension(events.ExtExpectedGeneration, fmt.Sprint(c.expected))
	}
	if inbox != "" {
		ev.SetExtension(events.ExtReplyTo, inbox)
	}
	m := events.Encode(c.key.CommandSubject(), ev)
	if c.message == "" {
		c.message = nuid.Next()
	}
	m.Header.Set(nats.MsgIdHdr, c.message)
	return m
}

// connected waits until the portal is connected, which a test before may have kept from NATS.
func connected(t testing.TB) {
	t.Helper()
	env.Eventually(t, "the portal to be connected", func() error {
		if !e.Portal.Conn().IsConnected() {
			return nats.ErrDisconnected
		}
		return nil
	})
}

// ask sends a command and returns the answer.
func ask(t testing.TB, c command) answer {
	t.Helper()
	connected(t)
	inbox := c.key.NewAnswerSubject()
	sub, err := e.Portal.Conn().SubscribeSync(inbox)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = sub.Unsubscribe() }()
	env.Publish(t, e.Portal, c.encode(t, inbox))
	m, err := sub.NextMsg(3 * time.Minute)
	if err != nil {
		t.Fatalf("%s %s: no answer: %v", c.verb, c.key, err)
	}
	return decode(t, m)
}

func decode(t testing.TB, m *nats.Msg) answer {
	t.Helper()
	a, err := events.Decode(m.Header, m.Data)
	if err != nil {
		t.Fatal(err)
	}
	got := answer{data: string(m.Data)}
	for _, what := range []string{event.Accepted, event.Rejected, event.Deleting} {
		if a.Type() == event.FactType(name.ServiceIntake, what) {
			got.what = what
		}
	}
	var no event.IntakeRejected
	for _, v := range []any{&got.IntakeAccepted, &no} {
		if err := json.Unmarshal(m.Data, v); err != nil {
			t.Fatal(err)
		}
	}
	got.errors = no.Errors
	return got
}

// accepts fails the test unless a command is accepted.
func accepts(t testing.TB, c command) answer {
	t.Helper()
	a := ask(t, c)
	if a.what != event.Accepted && a.what != event.Deleting {
		t.Fatalf("%s %s: %s %+v", c.verb, c.key, a.what, a.errors)
	}
	return a
}

// refuses fails the test unless a command is refused because of a field.
func refuses(t testing.TB, c command, field, rule string) event.FieldError {
	t.Helper()
	a := ask(t, c)
	if a.what != event.Rejected {
		t.Fatalf("%s %s: %s %s, want it refused", c.verb, c.key, a.what, a.data)
	}
	for _, no := range a.errors {
		if no.Field == field && no.Rule == rule && no.Message != "" {
			return no
		}
	}
	t.Fatalf("%s %s: want %s %s, got %+v", c.verb, c.key, field, rule, a.errors)
	return event.FieldError{}
}

// there reads the object of a key.
type object struct {
	Metadata struct {
		UID, ResourceVersion string
		Generation           int64
		Labels, Annotations  map[string]string
		Finalizers           []string
		DeletionTimestamp    string
	}
	Spec map[string]any
}

func there(t testing.TB, key events.Key) object {
	t.Helper()
	var o object
	e.Get(t, resources[key.Kind], bare(key), key.Name, &o)
	return o
}

func bare(key events.Key) string {
	if key.Namespace == events.ClusterScoped {
		return ""
	}
	return key.Namespace
}

var resources = map[string]kube.Resource{
	event.TenantControlPlanes: kube.TenantControlPlanes, event.DataStores: kube.DataStores, event.KubeconfigGenerators: kube.KubeconfigGenerators,
}

// tenant is a small tenant as a portal writes it.
func tenant(t testing.TB, n string) (events.Key, map[string]any) {
	t.Helper()
	return events.Tenant("default", n), env.JSON(t, env.Tenant(n, "v1.36.3"))
}

func dataStore(n string) (events.Key, map[string]any) {
	secret := func(key string) map[string]any {
		return map[string]any{"secretReference": map[string]any{"name": "s", "namespace": "default", "keyPath": key}}
	}
	return events.DataStore(n), map[string]any{
		"apiVersion": "kamaji.clastix.io/v1alpha1", "kind": "DataStore", "metadata": map[string]any{"name": n},
		"spec": map[string]any{"driver": "etcd", "endpoints": []string{"127.0.0.1:2379"}, "tlsConfig": map[string]any{
			"certificateAuthority": map[string]any{"certificate": secret("ca.crt"), "privateKey": secret("ca.key")},
			"clientCertificate":    map[string]any{"certificate": secret("tls.crt"), "privateKey": secret("tls.key")},
		}},
	}
}

func generator(n string) (events.Key, map[string]any) {
	return events.Generator(n), map[string]any{
		"apiVersion": "kamaji.clastix.io/v1alpha1", "kind": "KubeconfigGenerator", "metadata": map[string]any{"name": n},
		"spec": map[string]any{"user": map[string]any{"stringValue": "someone"}},
	}
}

// spec is a merge patch of a spec.
func spec(patch string) map[string]any { return map[string]any{"spec": json.RawMessage(patch)} }

func namespace(n string) *metav1.PartialObjectMetadata {
	return &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{Name: n}}
}
