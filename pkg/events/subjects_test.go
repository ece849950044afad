package events_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/stoker-k8s/stoker/pkg/api/event"
	"github.com/stoker-k8s/stoker/pkg/api/name"
	"github.com/stoker-k8s/stoker/pkg/events"
	"github.com/stoker-k8s/stoker/pkg/internal/testing/natstest"
)

func TestMain(m *testing.M) { natstest.Main(m) }

func TestPartitionIsTheServers(t *testing.T) {
	t.Parallel()
	s := natstest.Start(t)
	portal := s.Connect(t, events.UserPortal, "")
	in := s.Connect(t, "intake", "")
	st, err := in.JetStream().Stream(t.Context(), events.StreamIntake)
	if err != nil {
		t.Fatal(err)
	}
	_ = st
	for i := range 50 {
		key := events.Tenant(fmt.Sprintf("ns-%d", i*7), fmt.Sprintf("name-%d", i*i))
		e := portal.NewEvent(key, fmt.Sprintf("p-%d", i), event.TenantApply, map[string]string{}, time.Now())
		natstest.Publish(t, portal, key.CommandSubject(), e)
	}
	dotted := events.DataStore("main.eu-1")
	natstest.Publish(t, portal, dotted.CommandSubject(), portal.NewEvent(dotted, "dotted", event.DataStoreDelete, nil, time.Now()))
	info, err := st.Info(t.Context(), jetstream.WithSubjectFilter(">"))
	if err != nil {
		t.Fatal(err)
	}
	for i := range 51 {
		key := events.Tenant(fmt.Sprintf("ns-%d", i*7), fmt.Sprintf("name-%d", i*i))
		if i == 50 {
			key = dotted
		}
		want := fmt.Sprintf("stoker.intake.%d.%s.%s.%s", name.Partition(key.Namespace, key.Name), key.Kind, key.Namespace, name.Token(key.Name))
		if info.State.Subjects[want] != 1 {
			t.Errorf("the server stored %s under another partition than %d", key, key.Partition())
		}
	}
}

func TestIsAnswer(t *testing.T) {
	key := events.Tenant("default", "demo")
	for subject, want := range map[string]bool{
		"stoker.answer.default.abc": true, "stoker.answer.default.a-b_1": true, key.NewAnswerSubject(): true, key.AnswerSubject("x"): true,
		"": false, "stoker.answer.default": false, "stoker.answer.default.": false, "stoker.answer.default.>": false, "stoker.answer.default.*": false,
		"stoker.answer.acme.abc": false, "stoker.answer.default.a.b": false, "stoker.answer.default.a b": false, "stoker.answer.default.a\r\nPUB x": false,
		"_INBOX.abc": false, "stoker.fact.1.default.demo.intake.deleting": false, "$KV.tenant_default_demo.spec": false,
		"stoker.answer.default." + strings.Repeat("a", 300): false,
	} {
		if got := key.IsAnswer(subject); got != want {
			t.Errorf("IsAnswer(%q) = %v", subject, got)
		}
	}
	if store := events.DataStore("main"); !store.IsAnswer("stoker.answer.-.x") || store.IsAnswer("stoker.answer.default.x") {
		t.Error("a DataStore's answers are not where they should be")
	}
}

func TestSubjectsKeepUsersApart(t *testing.T) {
	t.Parallel()
	s := natstest.Start(t)
	in := s.Connect(t, "intake", "")
	key := events.Tenant("default", "demo")
	if err := in.CreateBucket(t.Context(), key); err != nil {
		t.Fatal(err)
	}
	for _, user := range []string{events.UserPortal, "certs", "status"} {
		b := s.Connect(t, user, "")
		t.Run(user+" may not tell workload's facts", func(t *testing.T) {
			e := b.NewEvent(key, "x", event.FactType("workload", event.Available), nil, time.Now())
			denied(t, b, events.Encode(key.FactSubject("workload", event.Available), e))
		})
	}
	t.Run("workload may", func(t *testing.T) {
		b := s.Connect(t, name.ServiceWorkload, "")
		e := b.NewEvent(key, "x", event.FactType("workload", event.Available), nil, time.Now())
		natstest.Publish(t, b, key.FactSubject("workload", event.Available), e)
	})
	t.Run("a portal may not read a tenant's bucket, as intake may", func(t *testing.T) {
		portal := s.Connect(t, events.UserPortal, "")
		for _, subject := range []string{"$JS.API.STREAM.INFO.KV_" + key.Bucket(), "$JS.API.DIRECT.GET.KV_" + key.Bucket() + ".$KV." + key.Bucket() + ".spec"} {
			denied(t, portal, nats.NewMsg(subject))
			m, err := in.Conn().RequestWithContext(t.Context(), subject, nil)
			if err != nil || len(m.Data) == 0 && m.Header.Get("Status") != "404" {
				t.Errorf("%s of intake: %v", subject, err)
			}
		}
	})
}

func TestSubjectsOfQuestionsNameTheTenant(t *testing.T) {
	key := events.Tenant("team-a", "demo")
	for question, subject := range map[string]string{event.QueryPlan: key.PlanSubject(), event.QueryJoin: key.JoinSubject()} {
		if got := events.ParseQuestionSubject(question, subject); got != key || subject != question+".team-a.demo" {
			t.Errorf("%s is %s", subject, got)
		}
	}
	for _, subject := range []string{"", "stoker.plan", "stoker.plan.a", "stoker.plan.a.b.c", "stoker.plan.A.b", "stoker.plan.a.b_c", key.JoinSubject()} {
		if got := events.ParseQuestionSubject(event.QueryPlan, subject); got.Valid() {
			t.Errorf("%q is of %s", subject, got)
		}
	}
}
