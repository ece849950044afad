package certs

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/stoker-k8s/stoker/internal/testing/poll"
	"github.com/stoker-k8s/stoker/pkg/api/event"
	"github.com/stoker-k8s/stoker/pkg/api/name"
	"github.com/stoker-k8s/stoker/pkg/events"
	"github.com/stoker-k8s/stoker/pkg/loop"
	"github.com/stoker-k8s/stoker/pkg/partition"
)

// outOfSpace raises, or lifts, etcd's alarm for a database that is full: then it refuses writes, and the API server answers 500.
func outOfSpace(t *testing.T, etcd string, is bool) {
	t.Helper()
	action := "DEACTIVATE"
	if is {
		action = "ACTIVATE"
	}
	body := strings.NewReader(fmt.Sprintf(`{"action":%q,"memberID":"0","alarm":"NOSPACE"}`, action))
	req, err := http.NewRequestWithContext(context.WithoutCancel(t.Context()), http.MethodPost, etcd+"/v3/maintenance/alarm", body)
	if err != nil {
		t.Fatal(err)
	}
	answer, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer answer.Body.Close()
	if answer.StatusCode != http.StatusOK {
		t.Fatalf("etcd's alarm: %s", answer.Status)
	}
}

// An API server whose etcd refuses writes is waited for, however long that takes, and the work done then.
func TestAnEtcdThatIsFull(t *testing.T) {
	_, limited, server := cluster(t)
	r := newRig(t, limited)
	t.Cleanup(func() { outOfSpace(t, server.Etcd, false) })
	outOfSpace(t, server.Etcd, true)

	s, tried := newService(r.bus("certs"), r.kube, testLog()), make(chan struct{}, 1000)
	wakes := make(chan loop.Waker, 1) // turns may begin before the watch
	r.run(&loop.Loop{
		Bus: r.bus("certs"), Service: "certs",
		Watch: func(ctx context.Context, held *partition.Held, w loop.Waker) error {
			select {
			case wakes <- w:
			default:
			}
			return s.watch(ctx, held, w)
		},
		Handle: func(ctx context.Context, turn *loop.Turn) error {
			err := s.handle(ctx, turn)
			if err != nil && turn.Tenant != nil {
				tried <- struct{}{}
				wake := <-wakes
				wakes <- wake
				wake(turn.Key, loop.Wake{Kind: "hurry", Version: fmt.Sprint(turn.Attempt())}) // else the pauses take minutes
			}
			return err
		},
	})
	r.accept(1)
	for range 25 { // more tries than a step has that fails for no known reason
		<-tried
	}
	if st, err := r.bus("certs").State(t.Context(), key, name.ServiceCerts); err != nil || st.Failure == nil || st.Failure.Permanent {
		t.Errorf("the state doesn't say that the API server is waited for: %+v, %v", st, err)
	}
	outOfSpace(t, server.Etcd, false)
	r.expose("127.0.0.1:6443")
	poll.True(t, "everything is issued", func() bool {
		st, err := r.bus("certs").State(t.Context(), key, name.ServiceCerts)
		return err == nil && st.Step == event.Issued && st.Failure == nil
	})
	dead, err := r.bus("intake").JetStream().Stream(t.Context(), events.StreamDead)
	if err != nil {
		t.Fatal(err)
	}
	if info, err := dead.Info(t.Context()); err != nil || info.State.Msgs != 0 {
		t.Errorf("dead letters: %+v, %v", info, err)
	}
}

// The timer of a renewal is set again by the daily look.
func TestATimerThatIsLost(t *testing.T) {
	_, limited, _ := cluster(t)
	r := newRig(t, limited)
	r.certs()
	r.accept(1)
	r.expose("127.0.0.1:6443")
	var issued event.CertsIssued
	r.fact(event.Issued, &issued)

	facts, err := r.bus("intake").JetStream().Stream(t.Context(), events.StreamFacts)
	if err != nil {
		t.Fatal(err)
	}
	timers := func() uint64 {
		info, err := facts.Info(t.Context(), jetstream.WithSubjectFilter("stoker.timer.>"))
		if err != nil {
			t.Fatal(err)
		}
		return info.State.Subjects[key.TimerSubject(name.ServiceCerts, event.Due)]
	}
	poll.True(t, "the timer is set", func() bool { return timers() == 1 })
	if err := facts.Purge(t.Context(), jetstream.WithPurgeSubject("stoker.timer.>")); err != nil {
		t.Fatal(err)
	}
	if timers() != 0 {
		t.Fatal("the timer is still there")
	}
	about := event.About{Namespace: key.Namespace, Name: key.Name, UID: uid, Generation: 1}
	if err := r.bus("intake").Tell(t.Context(), key, 1, "look", event.Checked, event.IntakeChecked{About: about}); err != nil {
		t.Fatal(err)
	}
	poll.True(t, "the timer is set again", func() bool { return timers() == 1 })
}
