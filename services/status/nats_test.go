package status

import (
	"context"
	"encoding/json"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/stoker-k8s/stoker/deployments/natsserver"
	"github.com/stoker-k8s/stoker/pkg/api/event"
	"github.com/stoker-k8s/stoker/pkg/api/name"
	"github.com/stoker-k8s/stoker/pkg/api/state"
	"github.com/stoker-k8s/stoker/pkg/events"
	"github.com/stoker-k8s/stoker/pkg/loop"
)

// stack is a NATS server with Stoker's users, and connections as three of them.
type stack struct {
	intake, status, operator *events.Bus
}

func start(t *testing.T) stack {
	t.Helper()
	srv, err := natsserver.Start(t.Context(), t.TempDir(), "127.0.0.1:-1", nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(srv.Stop)
	connect := func(user string) *events.Bus {
		b, err := events.Connect(events.Config{URL: srv.URL(), User: user, SeedFile: srv.SeedFile(user), Replica: "test", StreamReplicas: 1})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(b.Close)
		return b
	}
	s := stack{connect(name.ServiceIntake), connect(name.ServiceStatus), connect(events.UserOperator)}
	if err := s.intake.Provision(t.Context()); err != nil {
		t.Fatal(err)
	}
	return s
}

func TestQuestionsAreAnswered(t *testing.T) {
	t.Parallel()
	s := start(t)
	key := events.Tenant("default", "demo")
	if err := s.intake.CreateBucket(t.Context(), key); err != nil {
		t.Fatal(err)
	}
	keep := func(b *events.Bus, of string, st state.State) {
		t.Helper()
		msg := nats.NewMsg("$KV." + key.Bucket() + "." + of)
		msg.Data = encode(t, st)
		if _, err := b.JetStream().PublishMsg(t.Context(), msg); err != nil {
			t.Fatal(err)
		}
	}
	keep(s.intake, events.KeySpec, state.State{UID: "u1", Generation: 2, Step: event.Accepted, Data: encode(t, demo())})
	_, own := Compute(demo(), complete(), clock)
	keep(s.status, name.ServiceStatus, state.State{UID: "u1", Generation: 2, Step: event.Changed, Data: encode(t, own)})

	svc := &svc{bus: s.status, metrics: newMetrics(nil)}
	stop, err := svc.answerQuestions(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(stop)
	if err := s.status.Conn().Flush(); err != nil {
		t.Fatal(err)
	}
	ask := func(subject, question string) *nats.Msg {
		t.Helper()
		m, err := s.operator.Conn().Request(subject, []byte(question), 5*time.Second)
		if err != nil {
			t.Fatalf("%s: %v", subject, err)
		}
		return m
	}
	t.Run("get tells the status and its conditions", func(t *testing.T) {
		var r event.StatusReply
		if err := json.Unmarshal(ask(event.QueryStatus, `{"namespace":"default","name":"demo"}`).Data, &r); err != nil {
			t.Fatal(err)
		}
		if !r.Ready || r.UID != "u1" || r.Generation != 2 || len(r.Conditions) == 0 || r.Kubeconfig == "" {
			t.Errorf("%+v", r)
		}
	})
	t.Run("why lists every service, also those that have not come to the tenant", func(t *testing.T) {
		var r event.WhyReply
		if err := json.Unmarshal(ask(event.QueryWhy, `{"namespace":"default","name":"demo"}`).Data, &r); err != nil {
			t.Fatal(err)
		}
		if len(r.Services) != len(name.Services()) || r.Services[0].Step != event.Accepted || r.Services[1].Step != "" {
			t.Errorf("%+v", r)
		}
	})
	for sentence, test := range map[string]struct{ question, code string }{
		"a tenant that does not exist is 404": {`{"namespace":"default","name":"nobody"}`, "404"},
		"a question without a name is 400":    {`{"namespace":"default"}`, "400"},
		"what is no question is 400":          {`?`, "400"},
		"a name that can't be is 400":         {`{"namespace":"a.>","name":"*"}`, "400"},
	} {
		t.Run(sentence, func(t *testing.T) {
			if got := ask(event.QueryWhy, test.question).Header.Get("Nats-Service-Error-Code"); got != test.code {
				t.Errorf("got %q", got)
			}
		})
	}
}

func TestTheEndOfATenantIsTold(t *testing.T) {
	t.Parallel()
	s := start(t)
	svc := &svc{bus: s.status, metrics: newMetrics(nil)}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	loop := &loop.Loop{Bus: s.status, Service: name.ServiceStatus, Handle: svc.handle}
	go func() { done <- loop.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})

	key := events.Tenant("default", "gone")
	about := event.About{Namespace: "default", Name: "gone", UID: "u9", Generation: 4}
	removals := event.Removals{About: about, Removed: map[string]int{"workload/Deployment": 1}, Left: []string{"etcd prefix /u9/"}}
	if err := s.intake.Tell(t.Context(), key, 4, "id-1", event.Removed, removals); err != nil {
		t.Fatal(err)
	}

	first := func(stream, subject string) jetstream.Msg {
		t.Helper()
		c, err := s.operator.JetStream().OrderedConsumer(t.Context(), stream, jetstream.OrderedConsumerConfig{FilterSubjects: []string{subject}})
		if err != nil {
			t.Fatal(err)
		}
		m, err := c.Next(jetstream.FetchMaxWait(15 * time.Second))
		if err != nil {
			t.Fatalf("%s: %v", subject, err)
		}
		return m
	}
	for stream, subject := range map[string]string{
		events.StreamFacts: key.FactSubject(name.ServiceStatus, event.Deleted), events.StreamStatus: key.StatusSubject(),
	} {
		m := first(stream, subject)
		e, err := events.Decode(m.Headers(), m.Data())
		if err != nil {
			t.Fatal(err)
		}
		var c event.StatusChanged
		if err := json.Unmarshal(e.Data(), &c); err != nil {
			t.Fatal(err)
		}
		if e.Type() != event.FactType(name.ServiceStatus, event.Deleted) || c.Phase != PhaseDeleted || c.UID != "u9" ||
			c.Removed["workload/Deployment"] != 1 || len(c.Left) != 1 {
			t.Errorf("%s: %s %+v", subject, e.Type(), c)
		}
		if ttl := m.Headers().Get(headerTTL); (ttl != "") != (stream == events.StreamStatus) {
			t.Errorf("%s: kept for %q", subject, ttl)
		}
	}
}
