package portal

import (
	"context"
	"errors"
	"os/exec"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nuid"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/stoker-k8s/stoker/pkg/api/event"
	"github.com/stoker-k8s/stoker/pkg/api/name"
	"github.com/stoker-k8s/stoker/pkg/api/v1alpha1"
	"github.com/stoker-k8s/stoker/pkg/events"
	"github.com/stoker-k8s/stoker/pkg/internal/testing/natstest"
	"github.com/stoker-k8s/stoker/pkg/loop"
)

func TestMain(m *testing.M) { natstest.Main(m) }

// world is a NATS server with Stoker's users and streams, and connections as those whose part the tests play.
type world struct {
	*natstest.Server
	intake, status *events.Bus
}

func start(t *testing.T) *world {
	t.Helper()
	s := natstest.Start(t)
	w := &world{Server: s}
	w.intake, w.status = w.bus(t, name.ServiceIntake), w.bus(t, name.ServiceStatus)
	return w
}

func (w *world) bus(t *testing.T, user string) *events.Bus { return w.Connect(t, user, "") }

// client connects as the portal does.
func (w *world) client(t *testing.T) *Client {
	t.Helper()
	c, err := Connect(Config{URL: w.URL(), Source: "/shop", SeedFile: w.SeedFile(events.UserPortal)})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	return c
}

// answering consumes commands as intake does and answers each as the function says; nothing when that returns "".
func (w *world) answering(t *testing.T, answer func(loop.Event) (what string, data any)) *seen {
	t.Helper()
	s := &seen{}
	l := &loop.Loop{Bus: w.intake, Service: name.ServiceIntake, Commands: true, Ensure: w.intake.Provision, Handle: func(_ context.Context, turn *loop.Turn) error {
		for _, e := range turn.Events {
			s.mu.Lock()
			s.all = append(s.all, e)
			s.mu.Unlock()
			what, data := answer(e)
			inbox, _ := e.Extensions()[events.ExtReplyTo].(string)
			if what == "" || inbox == "" {
				continue
			}
			if err := w.intake.Answer(inbox, turn.Key, events.ID(e.Source(), e.ID(), "answer"), what, data); err != nil {
				return err
			}
		}
		return nil
	}}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- l.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	return s
}

type seen struct {
	mu  sync.Mutex
	all []loop.Event
}

func (s *seen) commands() []loop.Event {
	s.mu.Lock()
	defer s.mu.Unlock()
	return append([]loop.Event(nil), s.all...)
}

func demo() *v1alpha1.TenantControlPlane {
	o := &v1alpha1.TenantControlPlane{}
	o.Namespace, o.Name = "default", "demo"
	o.Labels, o.Finalizers, o.ResourceVersion = map[string]string{"team": "a"}, []string{"x"}, "7"
	o.Spec.Kubernetes.Version = "v1.36.3"
	o.Status.ControlPlaneEndpoint = "10.0.0.1:6443"
	return o
}

func yes(what, command string, paused bool) Accepted {
	return Accepted{IntakeAccepted: event.IntakeAccepted{About: about, Command: command, Paused: paused}, What: what}
}

var about = event.About{Namespace: "default", Name: "demo", UID: "u1", Generation: 3}

func TestEveryCommandIsWhatIntakeReads(t *testing.T) {
	t.Parallel()
	w := start(t)
	got := w.answering(t, func(e loop.Event) (string, any) {
		if strings.Contains(e.Type(), ".delete.") {
			return event.Deleting, event.IntakeDeleting{About: about}
		}
		return event.Accepted, event.IntakeAccepted{About: about, Paused: strings.Contains(e.Type(), ".pause.")}
	})
	c := w.client(t)
	ctx, key := t.Context(), events.Tenant("default", "demo")
	dataStore, generator := &v1alpha1.DataStore{}, &v1alpha1.KubeconfigGenerator{}
	dataStore.Name, generator.Name = "etcd", "ops"
	until := time.Date(2027, 1, 31, 18, 0, 0, 0, time.UTC)
	tests := []struct {
		send func() (Accepted, error)
		// what is on the wire: type, subject, and parts of the data.
		typ, subject, data string
		want               Accepted
	}{
		{
			func() (Accepted, error) { return c.Apply(ctx, demo(), ID("order-1"), ExpectGeneration(0)) },
			"dev.stoker.tenantcontrolplane.apply.v1", "default/demo",
			`"metadata":{"labels":{"team":"a"},"name":"demo","namespace":"default"},`, yes(event.Accepted, "order-1", false),
		},
		{
			func() (Accepted, error) { return c.Apply(ctx, dataStore, ID("a")) },
			"dev.stoker.datastore.apply.v1", "etcd", `"kind":"DataStore","metadata":{"name":"etcd"}`, yes(event.Accepted, "a", false),
		},
		{
			func() (Accepted, error) { return c.Apply(ctx, generator, ID("b")) },
			"dev.stoker.kubeconfiggenerator.apply.v1", "ops", `"apiVersion":"kamaji.clastix.io/v1alpha1"`, yes(event.Accepted, "b", false),
		},
		{
			func() (Accepted, error) {
				return c.Patch(ctx, key, map[string]any{"kubernetes": map[string]any{"version": "v1.36.3"}}, ID("c"), UID("u1"))
			},
			"dev.stoker.tenantcontrolplane.patch.v1", "default/demo", `{"uid":"u1","spec":{"kubernetes":{"version":"v1.36.3"}}}`, yes(event.Accepted, "c", false),
		},
		{
			func() (Accepted, error) { return c.Delete(ctx, events.DataStore("etcd.old"), ID("d")) },
			"dev.stoker.datastore.delete.v1", "etcd.old", `{}`, yes(event.Deleting, "d", false),
		},
		{
			func() (Accepted, error) { return c.Pause(ctx, key, until, ID("e")) },
			"dev.stoker.tenantcontrolplane.pause.v1", "default/demo", `{"until":"2027-01-31T18:00:00Z"}`, yes(event.Accepted, "e", true),
		},
		{
			func() (Accepted, error) { return c.Pause(ctx, key, time.Time{}, ID("f")) },
			"dev.stoker.tenantcontrolplane.pause.v1", "default/demo", `{}`, yes(event.Accepted, "f", true),
		},
		{
			func() (Accepted, error) { return c.Resume(ctx, events.Generator("ops"), ID("g")) },
			"dev.stoker.kubeconfiggenerator.resume.v1", "ops", `{}`, yes(event.Accepted, "g", false),
		},
		{
			func() (Accepted, error) { return c.Sleep(ctx, key, ID("h")) },
			"dev.stoker.tenantcontrolplane.sleep.v1", "default/demo", `{}`, yes(event.Accepted, "h", false),
		},
		{
			func() (Accepted, error) {
				return c.Wake(ctx, key, ID("i"), TraceParent("00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"))
			},
			"dev.stoker.tenantcontrolplane.wake.v1", "default/demo", `{}`, yes(event.Accepted, "i", false),
		},
	}
	for i, test := range tests {
		a, err := test.send()
		if err != nil || a != test.want {
			t.Fatalf("%s: %+v, %v", test.typ, a, err)
		}
		e := got.commands()[i]
		data := string(e.Data())
		if e.Type() != test.typ || e.Subject() != test.subject || e.Source() != "/shop" || e.ID() != a.Command || !strings.Contains(data, test.data) {
			t.Errorf("%s %s %s %s %s", e.Type(), e.Subject(), e.Source(), e.ID(), data)
		}
		if strings.Contains(data, "status") || strings.Contains(data, "finalizers") {
			t.Errorf("holds what intake doesn't take: %s", data)
		}
	}
	if g := got.commands()[0].Extensions()[events.ExtExpectedGeneration]; g != "0" {
		t.Errorf("the first expects generation %v", g)
	}
	if tp, _ := got.commands()[9].Extensions()[events.ExtTraceParent].(string); !strings.HasPrefix(tp, "00-0af7") {
		t.Errorf("the last has trace context %q", tp)
	}
}

func TestARefusalSaysWhatIsWrong(t *testing.T) {
	t.Parallel()
	w := start(t)
	w.answering(t, func(loop.Event) (string, any) {
		return event.Rejected, event.IntakeRejected{About: event.About{Namespace: "default", Name: "demo"}, Errors: []event.FieldError{
			{Field: "spec.kubernetes.version", Rule: "Invalid", Value: "1.2", Message: "must be a version"},
		}}
	})
	_, err := w.client(t).Apply(t.Context(), demo())
	var refused *RefusedError
	if !errors.As(err, &refused) || !refused.Has("Invalid") || refused.Has("Conflict") ||
		err.Error() != `default/demo was refused: spec.kubernetes.version: Invalid: must be a version (is "1.2")` {
		t.Errorf("%v", err)
	}
}

func TestWhatCanNotBeACommandIsNotSent(t *testing.T) {
	t.Parallel()
	w := start(t)
	c := w.client(t)
	for sentence, send := range map[string]func() (Accepted, error){
		"a name that can't be":       func() (Accepted, error) { return c.Delete(t.Context(), events.Tenant("default", "*")) },
		"a tenant's name with a dot": func() (Accepted, error) { return c.Delete(t.Context(), events.Tenant("default", "a.b")) },
		"data that is too large": func() (Accepted, error) {
			return c.Patch(t.Context(), events.Tenant("default", "demo"), strings.Repeat("x", events.MaxPayload))
		},
		"a kind that can't be applied": func() (Accepted, error) { return c.Apply(t.Context(), &metav1.ObjectMeta{Name: "x"}) },
		"a uid of what is applied":     func() (Accepted, error) { return c.Apply(t.Context(), demo(), UID("u")) },
	} {
		if _, err := send(); err == nil {
			t.Errorf("%s is sent", sentence)
		}
	}
}

func TestAPasswordIsNotSent(t *testing.T) {
	t.Parallel()
	w := start(t)
	got := w.answering(t, func(loop.Event) (string, any) { return event.Accepted, event.IntakeAccepted{} })
	o := &v1alpha1.DataStore{ObjectMeta: metav1.ObjectMeta{Name: "main"}}
	o.Spec.BasicAuth = &v1alpha1.BasicAuth{Password: v1alpha1.ContentRef{Content: []byte("hunter2")}}
	_, err := w.client(t).Apply(t.Context(), o)
	var no *RefusedError
	if !errors.As(err, &no) || no.Errors[0].Field != "spec.basicAuth.password.content" || no.Name != "main" || no.Command == "" {
		t.Errorf("%v", err)
	}
	if sent := got.commands(); len(sent) > 0 {
		t.Errorf("%d were sent", len(sent))
	}
}

func TestACommandIsSentAgainUntilItIsAnswered(t *testing.T) {
	t.Parallel()
	t.Run("when the answer is lost", func(t *testing.T) {
		w := start(t)
		first := true
		got := w.answering(t, func(loop.Event) (string, any) {
			if first {
				first = false
				return "", nil
			}
			return event.Accepted, event.IntakeAccepted{About: about}
		})
		c := w.client(t)
		c.patience = 200 * time.Millisecond
		if _, err := c.Apply(t.Context(), demo()); err != nil {
			t.Fatal(err)
		}
		all := got.commands()
		if len(all) < 2 || all[0].ID() != all[1].ID() || all[0].Source() != all[1].Source() {
			t.Errorf("%d commands", len(all))
		}
	})
	t.Run("when NATS goes away meanwhile", func(t *testing.T) {
		w := start(t)
		c := w.client(t)
		asked, stopped := make(chan struct{}), make(chan struct{})
		var once sync.Once
		w.answering(t, func(loop.Event) (string, any) {
			once.Do(func() { close(asked); <-stopped })
			return event.Accepted, event.IntakeAccepted{About: about}
		})
		go func() {
			<-asked
			w.Stop()
			close(stopped)
			if err := w.Restart(context.WithoutCancel(t.Context())); err != nil {
				t.Error(err)
			}
		}()
		c.patience = time.Hour // the connection that came back is why it is sent again
		ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
		defer cancel()
		if a, err := c.Apply(ctx, demo()); err != nil || a.Generation != 3 {
			t.Errorf("%+v, %v", a, err)
		}
	})
	t.Run("until ctx ends, and what is stored is said to be", func(t *testing.T) {
		c := start(t).client(t)
		var unanswered *UnansweredError
		err := within(t, func(ctx context.Context) error { _, err := c.Apply(ctx, demo(), ID("order-1")); return err }, func(err error) bool {
			return errors.As(err, &unanswered) && unanswered.Stored
		})
		if unanswered == nil || unanswered.Command != "order-1" || !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("%v", err)
		}
	})
	t.Run("until ctx ends, and what isn't stored is not said to be", func(t *testing.T) {
		w := start(t)
		c := w.client(t)
		w.Stop()
		ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
		defer cancel()
		_, err := c.Apply(ctx, demo())
		var unanswered *UnansweredError
		if !errors.As(err, &unanswered) || unanswered.Stored || !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("%v", err)
		}
	})
}

func TestConnecting(t *testing.T) {
	t.Parallel()
	w := start(t)
	t.Run("without credentials fails", func(t *testing.T) {
		if _, err := Connect(Config{URL: w.URL()}); !errors.Is(err, nats.ErrAuthorization) {
			t.Errorf("%v", err)
		}
	})
	t.Run("to nobody fails", func(t *testing.T) {
		if _, err := Connect(Config{URL: "nats://127.0.0.1:1", SeedFile: w.SeedFile(events.UserPortal)}); err == nil {
			t.Error("it doesn't")
		}
	})
	t.Run("as a user that may not command says so", func(t *testing.T) {
		c, err := Connect(Config{URL: w.URL(), SeedFile: w.SeedFile(name.ServiceCerts)})
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		var denied *DeniedError
		if _, err := c.Apply(t.Context(), demo()); !errors.As(err, &denied) {
			t.Errorf("apply: %v", err)
		}
		for _, err := range c.Follow(t.Context(), "default", "demo") {
			if !errors.As(err, &denied) {
				t.Errorf("follow: %v", err)
			}
		}
	})
	t.Run("as the operator, whose own inboxes are elsewhere, commands too", func(t *testing.T) {
		w.answering(t, func(loop.Event) (string, any) { return event.Accepted, event.IntakeAccepted{About: about} })
		c, err := New(w.bus(t, events.UserOperator).Conn(), "/stoker/operator")
		if err != nil {
			t.Fatal(err)
		}
		if _, err := c.Apply(t.Context(), demo()); err != nil {
			t.Error(err)
		}
	})
}

// A portal takes in what it needs to talk to NATS and the API types, not what services are made of.
func TestTheClientIsLight(t *testing.T) {
	out, err := exec.CommandContext(t.Context(), "go", "list", "-deps", ".").Output()
	if err != nil {
		t.Fatal(err)
	}
	for _, heavy := range []string{"k8s.io/client-go", "k8s.io/apiserver", "k8s.io/apiextensions-apiserver", "nats-server", "google.golang.org/grpc", "go.opentelemetry.io", "stoker/pkg/kube", "stoker/pkg/service"} {
		for line := range strings.Lines(string(out)) {
			if strings.Contains(line, heavy) {
				t.Errorf("imports %s", line)
			}
		}
	}
}

// say publishes statuses as the status service does.
func (w *world) say(t *testing.T, all ...event.StatusChanged) {
	t.Helper()
	for _, s := range all {
		w.tell(t, w.status, s)
	}
}

func (w *world) tell(t *testing.T, as *events.Bus, s event.StatusChanged) {
	t.Helper()
	what := event.Changed
	if s.Phase == phaseDeleted {
		what = event.Deleted
	}
	key := events.Tenant(s.Namespace, s.Name)
	e := as.NewEvent(key, nuid.Next(), event.FactType(name.ServiceStatus, what), s, time.Now())
	var err error
	for range 50 { // a server that has just started
		if _, err = as.Publish(t.Context(), key.StatusSubject(), e); err == nil {
			return
		}
	}
	t.Error(err)
}

// statusOf is a status of the tenant that about is about.
func statusOf(phase string, generation int64) event.StatusChanged {
	s := event.StatusChanged{About: about, Phase: phase, Ready: phase == "Ready", Message: "as it is"}
	s.Generation = generation
	return s
}

// named is a status of another tenant.
func named(n string, s event.StatusChanged) event.StatusChanged {
	s.Name = n
	return s
}
