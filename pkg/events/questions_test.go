package events_test

import (
	"context"
	"encoding/json"
	"errors"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/micro"

	"github.com/stoker-k8s/stoker/pkg/api/event"
	"github.com/stoker-k8s/stoker/pkg/events"
	"github.com/stoker-k8s/stoker/pkg/internal/testing/natstest"
)

func TestAnswerQuestions(t *testing.T) {
	t.Parallel()
	s := natstest.Start(t)
	held, release := make(chan struct{}), make(chan struct{})
	stop, err := s.Connect(t, "datastore", "").AnswerQuestions(t.Context(), events.Questions{
		Service: event.DatastoreService, Version: "1.0.0", Description: "a test", AtOnce: 1,
		Endpoints: map[string]events.Question{
			"orphans": {Subject: event.QueryOrphans, Timeout: time.Minute, Answer: func(ctx context.Context, question []byte) (any, error) {
				if _, bounded := ctx.Deadline(); !bounded {
					t.Error("an answer may take for ever")
				}
				switch string(question) {
				case "held":
					close(held)
					<-release
				case "refused":
					return nil, &events.Refusal{Code: "404", Message: "there is none"}
				case "failed":
					return nil, errors.New("it broke")
				}
				return map[string]string{"question": string(question)}, nil
			}},
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	operator := s.Connect(t, events.UserOperator, "").Conn()
	ask := func(question string) (code string, reply map[string]string) {
		t.Helper()
		m, err := operator.Request(event.QueryOrphans, []byte(question), time.Minute)
		if err != nil {
			t.Error(err)
			return "none", nil
		}
		if code = m.Header.Get(micro.ErrorCodeHeader); code == "" {
			if err := json.Unmarshal(m.Data, &reply); err != nil {
				t.Error(err)
			}
		}
		return code, reply
	}
	// The one before is done a moment after its answer has come.
	askUntil := func(question, want string) map[string]string {
		t.Helper()
		for {
			code, reply := ask(question)
			if code == want {
				return reply
			}
			if code != "503" {
				t.Errorf("%s: code %q", question, code)
				return nil
			}
		}
	}
	if reply := askUntil("this", ""); reply["question"] != "this" {
		t.Error(reply)
	}
	askUntil("refused", "404")
	askUntil("failed", "503")

	done := make(chan struct{})
	go func() { defer close(done); askUntil("held", "") }()
	<-held
	if code, _ := ask("this"); code != "503" {
		t.Errorf("a second one at once: code %q", code)
	}
	close(release)
	<-done
	for {
		reply, err := events.Ask[map[string]string](t.Context(), operator, event.QueryOrphans, "asked")
		if refused := (*events.Refusal)(nil); errors.As(err, &refused) && refused.Code == "503" {
			continue
		}
		if err != nil || reply["question"] != `"asked"` {
			t.Errorf("%v, %v", reply, err)
		}
		break
	}
	stop()
	natstest.Eventually(t, "nobody answers after the stop", func() bool {
		_, err := operator.Request(event.QueryOrphans, nil, time.Minute)
		return errors.Is(err, nats.ErrNoResponders)
	})
}

func TestAQuestionOnOneOfManySubjectsIsToldWhich(t *testing.T) {
	t.Parallel()
	s := natstest.Start(t)
	stop, err := s.Connect(t, "intake", "").AnswerQuestions(t.Context(), events.Questions{
		Service: event.IntakeService, Version: "1.0.0", Description: "a test",
		Endpoints: map[string]events.Question{
			"plan": {Subject: events.PlanSubjects, Timeout: time.Minute, AnswerOn: func(_ context.Context, subject string, _ []byte) (any, error) {
				key := events.ParseQuestionSubject(event.QueryPlan, subject)
				if key.Name == "refused" {
					return nil, &events.Refusal{Code: "404", Message: "there is none"}
				}
				return key, nil
			}},
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(stop)
	operator := s.Connect(t, events.UserOperator, "").Conn()
	natstest.Eventually(t, "an answer", func() bool {
		key, err := events.Ask[events.Key](t.Context(), operator, "stoker.plan.default.demo", nil)
		return err == nil && key == events.Tenant("default", "demo")
	})
	_, err = events.Ask[events.Key](t.Context(), operator, "stoker.plan.default.refused", nil)
	if refused := (*events.Refusal)(nil); !errors.As(err, &refused) || refused.Code != "404" || refused.Message != "there is none" {
		t.Error(err)
	}
}
