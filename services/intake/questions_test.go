package intake

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/stoker-k8s/stoker/internal/testing/poll"
	"github.com/stoker-k8s/stoker/pkg/api/event"
	"github.com/stoker-k8s/stoker/pkg/api/name"
	"github.com/stoker-k8s/stoker/pkg/api/state"
	"github.com/stoker-k8s/stoker/pkg/events"
	"github.com/stoker-k8s/stoker/pkg/loop"
)

func TestQuestionsThatAreRefused(t *testing.T) {
	l := newLooks(t)
	l.index.reset()
	l.index.listed(event.DataStores)
	l.index.listed(event.TenantControlPlanes)
	for question, c := range map[string]struct {
		answer     func(context.Context, []byte) (any, error)
		code, says string
	}{
		`{"limit":101}`:                      {l.answerDeadList, "400", "limit 101: must be 1 to 100"},
		`{"service":"cert"}`:                 {l.answerDeadList, "400", `service "cert": must be one of intake, certs`},
		`{"namespace":"a.>"}`:                {l.answerDeadList, "400", `namespace "a.>"`},
		`{"name":"*"}`:                       {l.answerDeadList, "400", `name "*"`},
		`{}`:                                 {l.answerDeadReplay, "400", `"all":true`},
		`{"namespace":"default"}`:            {l.answerDeadDrop, "400", `"all":true`},
		`{"sequence":3,"all":true}`:          {l.answerDeadDrop, "400", "sequence 3"},
		`{"nmespace":"default","all":true}`:  {l.answerDeadDrop, "400", `unknown field "nmespace"`},
		`{"sequence":3}`:                     {l.answerDeadReplay, "404", "there is no dead letter 3"},
		`{"sequence":4}`:                     {l.answerDeadDrop, "404", "there is no dead letter 4"},
		`{"service":"x"}`:                    {l.answerReplicas, "400", `service "x"`},
		`certs`:                              {l.answerPartitions, "400", "send JSON like"},
		`{"name":"demo"}`:                    {l.answerResync, "400", "namespace: missing"},
		`{"namespace":"default","all":true}`: {l.answerResync, "400", "leave out namespace"},
		`{"namespace":"nowhere"}`:            {l.answerResync, "404", "there is no tenant nowhere"},
	} {
		_, err := c.answer(t.Context(), []byte(question))
		var refused *events.Refusal
		if !errors.As(err, &refused) || refused.Code != c.code || !strings.Contains(refused.Message, c.says) {
			t.Errorf("%s: %v, not %s … %s", question, err, c.code, c.says)
		}
	}
}

// bury stores a dead letter of intake's own that holds a command.
func (l *looks) bury(key events.Key, id, data string, more ...string) {
	l.Helper()
	m := events.Encode(key.DeadSubject(name.ServiceIntake), l.bus.NewEvent(key, id, "dev.stoker.tenantcontrolplane.apply.v1", nil, time.Now()))
	m.Header.Del(nats.MsgIdHdr)
	m.Data = []byte(data)
	m.Header.Set(events.HeaderSubject, fmt.Sprintf("stoker.intake.%d.%s.%s.%s", key.Partition(), key.Kind, key.Namespace, key.Name))
	m.Header.Set(events.HeaderReason, "Rejected")
	for i := 0; i < len(more); i += 2 {
		m.Header.Set(more[i], more[i+1])
	}
	if _, err := l.bus.JetStream().PublishMsg(l.Context(), m); err != nil {
		l.Fatal(err)
	}
}

func TestReplayingCommands(t *testing.T) {
	l := newLooks(t)
	l.log = slog.New(slog.DiscardHandler)
	fresh, changed, store := events.Tenant("default", "fresh"), events.Tenant("default", "changed"), events.DataStore("main")
	l.bury(fresh, "fresh", "{}")
	l.bury(changed, "before", "{}")
	l.bury(fresh, "cut", "{", events.HeaderTruncated, "70000")
	l.bury(store, "secret", `{"spec":{"basicAuth":{"password":{"content":"redacted"}}}}`)
	accepted := l.bus.NewEvent(changed, "later", event.FactType(name.ServiceIntake, event.Accepted), event.IntakeAccepted{}, time.Now().Add(time.Hour))
	if _, err := l.bus.JetStream().PublishMsg(t.Context(), events.Encode(changed.FactSubject(name.ServiceIntake, event.Accepted), accepted)); err != nil {
		t.Fatal(err)
	}
	replay := func(question string) (replayed, left string) {
		t.Helper()
		reply, err := l.answerDeadReplay(t.Context(), []byte(question))
		if err != nil {
			t.Fatal(err)
		}
		for _, d := range reply.(event.DeadReplayReply).Replayed {
			replayed += d.ID + " "
		}
		for _, d := range reply.(event.DeadReplayReply).Left {
			left += d.ID + ": " + d.Error + "\n"
		}
		return replayed, left
	}
	replayed, left := replay(`{"all":true}`)
	if replayed != "fresh " {
		t.Errorf("replayed %q", replayed)
	}
	for _, says := range []string{"before: intake.accepted was told after", "cut: 70000 bytes", "secret: it held a password"} {
		if !strings.Contains(left, says) {
			t.Errorf("left:\n%s\nwithout %q", left, says)
		}
	}
	subject := strings.Replace(fresh.DeadSubject(name.ServiceIntake), "dead", "replay", 1)
	if m, err := l.bus.LastOfLeader(t.Context(), events.StreamFacts, subject); err != nil || m.Header.Get("ce-id") != "fresh" || string(m.Data) != "{}" {
		t.Errorf("in the stream: %v, %v", m, err)
	}
	if replayed, left := replay(`{"namespace":"default","name":"changed","all":true,"force":true}`); replayed != "before " || left != "" {
		t.Errorf("with force: %q, left %q", replayed, left)
	}
	dropped, err := l.answerDeadDrop(t.Context(), []byte(`{"namespace":"-","all":true}`))
	if err != nil || len(dropped.(event.DeadDropReply).Dropped) != 1 {
		t.Errorf("dropped %v, %v", dropped, err)
	}
	list, err := l.answerDeadList(t.Context(), nil)
	if letters := list.(event.DeadListReply).Letters; err != nil || len(letters) != 1 || letters[0].ID != "cut" || letters[0].Truncated != 70000 {
		t.Errorf("left in the end: %+v, %v", list, err)
	}
}

func TestResync(t *testing.T) {
	l := newLooks(t)
	l.index.reset()
	l.index.listed(event.DataStores)
	l.index.listed(event.TenantControlPlanes)
	for _, key := range []events.Key{events.Tenant("a", "one"), events.Tenant("a", "two"), events.Tenant("b", "one")} {
		l.index.see(key, seen{ours: true})
	}
	l.index.see(events.Tenant("b", "others"), seen{})
	for question, want := range map[string]int{`{"namespace":"a","name":"one"}`: 1, `{"namespace":"a"}`: 2, `{"namespace":"b"}`: 1, `{"all":true}`: 3} {
		reply, err := l.answerResync(t.Context(), []byte(question))
		if err != nil || reply.(event.ResyncReply).Asked != want {
			t.Errorf("%s: %v, %v, not %d", question, reply, err, want)
		}
	}
	// At once for one; for many by a timer each, which the server turns into the fact.
	for _, key := range []events.Key{events.Tenant("a", "one"), events.Tenant("a", "two"), events.Tenant("b", "one")} {
		for subject := key.FactSubject(name.ServiceIntake, event.Asked); ; {
			if _, err := l.facts.GetLastMsgForSubject(t.Context(), subject); err == nil {
				break
			}
			if t.Context().Err() != nil {
				t.Fatalf("nothing on %s", subject)
			}
		}
	}

	key := events.Tenant("a", "one")
	l.lookedAt(key, time.Now())
	turn := &loop.Turn{Key: key, UID: "u", Generation: 1}
	for _, c := range []struct {
		events []loop.Event
		looks  bool
	}{{nil, false}, {[]loop.Event{{Service: name.ServiceIntake, What: event.Asked}}, true}} {
		turn.Events = c.events
		turn.Tenant = &state.Tenant{AcceptedAt: time.Now().Add(-48 * time.Hour), Seen: "1"}
		turn.Tenant.Spec.DataStore = "default"
		had, synced := l.told(key), l.synced
		if err := l.dailyLook(t.Context(), turn, time.Now(), func(context.Context, *loop.Turn, time.Time) error { l.synced++; return nil }); err != nil {
			t.Fatal(err)
		}
		if (l.synced > synced) != c.looks || (l.told(key) > had) != c.looks {
			t.Errorf("looked at just now, asked for: %v: looked %d times, told %d", c.looks, l.synced-synced, l.told(key)-had)
		}
	}
}

func TestReplicasAndPartitions(t *testing.T) {
	l := newLooks(t)
	bus, err := events.Connect(events.Config{
		URL: l.nats.URL(), User: name.ServiceCerts, SeedFile: l.nats.SeedFile(name.ServiceCerts), Replica: "certs-0",
		RequestTimeout: 30 * time.Second,
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(bus.Close)
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() {
		done <- (&loop.Loop{Bus: bus, Service: name.ServiceCerts, Handle: func(context.Context, *loop.Turn) error { return nil }}).Run(ctx)
	}()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	poll.Nil(t, "the replica to say since when it holds each partition", func() error {
		reply, err := l.answerPartitions(t.Context(), []byte(`{"service":"certs"}`))
		if err != nil {
			t.Fatal(err)
		}
		of := reply.(event.PartitionsReply).Services[0]
		if len(of.Held) < name.Partitions {
			return fmt.Errorf("%d partitions are held", len(of.Held))
		}
		for p, h := range of.Held {
			if h.Partition != p || h.Replica != "certs-0" {
				t.Errorf("partition %d: %+v", p, h)
			}
			if h.Silent || h.Since.IsZero() {
				return fmt.Errorf("partition %d: %+v", p, h)
			}
		}
		return nil
	})
	reply, err := l.answerReplicas(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	all := reply.(event.ReplicasReply)
	if len(all.Replicas) != 1 || len(all.Missing) != len(name.Services())-1 {
		t.Fatalf("%+v", all)
	}
	if r := all.Replicas[0]; r.Service != "certs" || r.Replica != "certs-0" || !r.Ready || r.Heartbeat.IsZero() || len(r.Partitions) != name.Partitions || r.Version == "" {
		t.Errorf("%+v", r)
	}
}

func TestASilentReplicaIsListedWithWhatItHolds(t *testing.T) {
	c := claimed{service: "certs"}
	c.holders[3], c.holders[5] = "certs-0", "certs-1"
	answers := []event.Replica{{Service: "certs", Replica: "certs-1", Partitions: []event.Holding{{Partition: 5}}}}
	replicas := withSilent(answers, []claimed{c}, [][2]string{{"certs", "certs-0"}, {"certs", "certs-1"}, {"certs", "gone"}})
	if len(replicas) != 2 || !replicas[0].Silent || replicas[0].Partitions[0].Partition != 3 || replicas[1].Silent {
		t.Errorf("%+v", replicas)
	}
	of := partitionsOf(c, replicas)
	if len(of.Held) != 2 || !of.Held[0].Silent || of.Held[1].Silent || len(of.Nobody) != name.Partitions-2 {
		t.Errorf("%+v", of)
	}
}
