package faults

import (
	"context"
	"encoding/json"
	"fmt"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/stoker-k8s/stoker/pkg/api/event"
	"github.com/stoker-k8s/stoker/pkg/api/name"
	"github.com/stoker-k8s/stoker/pkg/api/state"
	"github.com/stoker-k8s/stoker/pkg/api/v1alpha1"
	"github.com/stoker-k8s/stoker/pkg/events"
	"github.com/stoker-k8s/stoker/pkg/kube"
	"github.com/stoker-k8s/stoker/test/env"
)

// Facts and timers that are lost are made good by the daily look at the latest: a generation of which nobody was told becomes Ready, and
// a renewal whose timer is gone has one again.
func TestWhatTheStreamLostIsMadeGoodWithinADay(t *testing.T) {
	services := e.Services(t)
	key, tenant := events.Tenant("default", "daily"), env.Tenant("daily", "v1.36.3")
	e.Apply(t, tenant)
	e.Ready(t, key)
	for s, p := range services {
		if s == name.ServiceIntake {
			continue
		}
		if err := p.Stop(); err != nil {
			t.Fatal(err)
		}
	}
	tenant.Spec.ControlPlane.Deployment.AdditionalMetadata.Labels = map[string]string{"example.com/changed": "true"}
	e.Apply(t, tenant)
	env.Eventually(t, "the change is accepted", func() error {
		if s := e.State(t.Context(), key, events.KeySpec); s == nil || s.Generation < 2 {
			return fmt.Errorf("spec is %+v", s)
		}
		return nil
	})
	if err := services[name.ServiceIntake].Stop(); err != nil {
		t.Fatal(err)
	}

	intake, err := e.Bus(name.ServiceIntake)
	if err != nil {
		t.Fatal(err)
	}
	defer intake.Close()
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Minute) // else a request to JetStream has three seconds
	defer cancel()
	facts, err := intake.JetStream().Stream(ctx, events.StreamFacts)
	if err != nil {
		t.Fatal(err)
	}
	timer := key.TimerSubject(name.ServiceCerts, event.Due)
	for _, lost := range []string{key.FactSubject("*", "*"), timer} {
		if err := facts.Purge(ctx, jetstream.WithPurgeSubject(lost)); err != nil {
			t.Fatal(err)
		}
	}
	s, revision, err := intake.ReadState(t.Context(), key, events.KeySpec)
	if err != nil {
		t.Fatal(err)
	}
	var spec state.Tenant
	if err := json.Unmarshal(s.Data, &spec); err != nil {
		t.Fatal(err)
	}
	s.Facts = nil // those of a state that is young are told again at a start
	spec.AcceptedAt = spec.AcceptedAt.Add(-24 * time.Hour)
	s.Data = event.Marshal(spec)
	if _, err := intake.WriteState(t.Context(), key, events.KeySpec, s, revision); err != nil {
		t.Fatal(err)
	}
	for _, p := range services {
		p.Restart(t)
	}
	e.Ready(t, key)
	env.Eventually(t, "the renewal has a timer", func() error {
		info, err := facts.Info(ctx, jetstream.WithSubjectFilter(timer))
		if err == nil && info.State.Subjects[timer] == 0 {
			err = fmt.Errorf("none on %s", timer)
		}
		return err
	})
	e.Delete(t, key)
	e.Gone(t, key)
}

// What was told of a DataStore and is lost is told again at its daily look: nothing else changes about it that would have it told.
func TestWhatIsLostOfADataStoreIsMadeGoodWithinADay(t *testing.T) {
	services, key := e.Services(t), events.DataStore("default")
	ready := func() error {
		ds := v1alpha1.DataStore{}
		get(t, kube.DataStores, "", key.Name, &ds)
		if !ds.Status.Ready {
			return fmt.Errorf("its status is %+v", ds.Status)
		}
		return nil
	}
	env.Eventually(t, "the DataStore is ready", ready)
	intake, err := e.Bus(name.ServiceIntake)
	if err != nil {
		t.Fatal(err)
	}
	defer intake.Close()
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Minute) // else a request to JetStream has three seconds
	defer cancel()
	facts, err := intake.JetStream().Stream(ctx, events.StreamFacts)
	if err != nil {
		t.Fatal(err)
	}
	if err := services[name.ServiceStatus].Stop(); err != nil {
		t.Fatal(err)
	}
	// The last look is in memory, too, and where it isn't known it comes at once.
	if err := services[name.ServiceIntake].Stop(); err != nil {
		t.Fatal(err)
	}
	told, looked := key.FactSubject(name.ServiceDatastore, "*"), key.FactSubject(name.ServiceIntake, event.Checked)
	for _, lost := range []string{told, looked} {
		if err := facts.Purge(ctx, jetstream.WithPurgeSubject(lost)); err != nil {
			t.Fatal(err)
		}
	}
	if err := e.Admin.ApplyStatus(t.Context(), kube.DataStores, &metav1.ObjectMeta{Name: key.Name}, map[string]any{"ready": false}); err != nil {
		t.Fatal(err)
	}
	e.Fact(t, key, name.ServiceDatastore, event.Checked)
	if err := facts.Purge(ctx, jetstream.WithPurgeSubject(told)); err != nil {
		t.Fatal(err)
	}
	services[name.ServiceStatus].Restart(t)
	services[name.ServiceIntake].Restart(t)
	env.Eventually(t, "the DataStore is ready", ready)
}
