package status

import (
	"bytes"
	"slices"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/stoker-k8s/stoker/pkg/api/name"
	"github.com/stoker-k8s/stoker/pkg/api/state"
	"github.com/stoker-k8s/stoker/pkg/api/v1alpha1"
)

func TestHold(t *testing.T) {
	t.Parallel()
	later := clock.Add(time.Minute)
	annotated := func(t *state.Tenant) { t.Paused, t.Annotations = true, map[string]string{name.AnnotationPaused: ""} }
	until := func(t *state.Tenant) {
		t.Paused, t.PausedUntil = true, clock.Add(time.Hour)
		t.Annotations = map[string]string{name.AnnotationPausedUntil: "2026-11-05T14:00:03+01:00"}
	}
	tests := map[string]struct {
		tenant     []func(*state.Tenant)
		generation int64
		// before is what the services had done when the pause began, nil for nothing: the object has no status.
		before func(*States)
		// conditions of the paused tenant: the types that are true, and reason and generation of Ready.
		truths, reason string
		observed       int64
		// message says until when.
		message string
	}{
		"a tenant that was Ready stays Ready": {
			[]func(*state.Tenant){annotated}, 1, func(*States) {},
			"AddonsReady CertificatesReady DatastoreReady EndpointReachable Paused Ready WorkloadAvailable", "Ready", 1,
			"annotation kamaji.clastix.io/paused stops all services for this object until it is removed",
		},
		"the end of the pause is told": {
			[]func(*state.Tenant){until}, 1, func(*States) {},
			"AddonsReady CertificatesReady DatastoreReady EndpointReachable Paused Ready WorkloadAvailable", "Ready", 1,
			"annotation stoker.dev/paused-until stops all services for this object until 2026-11-05T13:00:03Z",
		},
		"one that goes to another management cluster says so": {
			[]func(*state.Tenant){func(t *state.Tenant) { t.Transfer = "x" }}, 1, func(*States) {},
			"AddonsReady CertificatesReady DatastoreReady EndpointReachable Paused Ready WorkloadAvailable", "Ready", 1,
			"annotation stoker.dev/transfer lets another management cluster take this object over; nothing is changed until it is removed",
		},
		"a pause without end outlasts one with": {
			[]func(*state.Tenant){until, annotated}, 1, func(*States) {},
			"AddonsReady CertificatesReady DatastoreReady EndpointReachable Paused Ready WorkloadAvailable", "Ready", 1,
			"annotation kamaji.clastix.io/paused stops all services for this object until it is removed",
		},
		"a change of the spec during the pause leaves Ready to the generation it is about": {
			[]func(*state.Tenant){annotated, func(t *state.Tenant) {
				t.Spec.Kubernetes.Version = "v1.37.0"
				t.Spec.ControlPlane.Deployment.Replicas = new(int32)
			}},
			2, func(*States) {},
			"AddonsReady CertificatesReady DatastoreReady EndpointReachable Paused Ready WorkloadAvailable", "Ready", 1,
			"annotation kamaji.clastix.io/paused stops all services for this object until it is removed",
		},
		"a deletion that waits is told": {
			[]func(*state.Tenant){annotated, func(t *state.Tenant) { t.Deleting = true }}, 2, func(*States) {},
			"AddonsReady CertificatesReady DatastoreReady EndpointReachable Paused Ready WorkloadAvailable", "Ready", 1,
			"annotation kamaji.clastix.io/paused stops all services for this object until it is removed; its deletion waits, too",
		},
		"nothing is in progress": {
			[]func(*state.Tenant){annotated}, 1, func(in *States) { in.Addons, in.Workload = Stage[state.Addons]{}, Stage[state.Workload]{} },
			"CertificatesReady DatastoreReady Paused", "WorkloadWaiting", 1,
			"annotation kamaji.clastix.io/paused stops all services for this object until it is removed",
		},
		"what was stalled still is": {
			[]func(*state.Tenant){annotated}, 1, func(in *States) {
				in.Datastore.State = &state.State{Generation: 1, Failure: &state.Failure{Reason: "QuotaExceeded", Permanent: true}}
			},
			"AddonsReady CertificatesReady EndpointReachable Paused Stalled WorkloadAvailable", "QuotaExceeded", 1,
			"annotation kamaji.clastix.io/paused stops all services for this object until it is removed",
		},
		"one that was made paused isn't Ready": {
			[]func(*state.Tenant){annotated}, 1, nil, "Paused", "Paused", 1,
			"annotation kamaji.clastix.io/paused stops all services for this object until it is removed",
		},
	}
	for sentence, test := range tests {
		t.Run(sentence, func(t *testing.T) {
			t.Parallel()
			tenant := demo()
			var was v1alpha1.TenantControlPlaneStatus
			in := States{UID: "u1"}
			if test.before != nil {
				before := complete()
				test.before(&before)
				was, in.Previous = Compute(tenant, before, clock)
			}
			for _, change := range test.tenant {
				change(tenant)
			}
			in.Generation = test.generation
			status, next := Hold(tenant, in, was, later)
			var truths []string
			for _, c := range status.Conditions {
				if c.Status == metav1.ConditionTrue {
					truths = append(truths, c.Type)
				}
			}
			slices.Sort(truths)
			if got := strings.Join(truths, " "); got != test.truths {
				t.Errorf("true are %s", got)
			}
			ready, paused := meta.FindStatusCondition(status.Conditions, ConditionReady), meta.FindStatusCondition(status.Conditions, ConditionPaused)
			if ready.Reason != test.reason || ready.ObservedGeneration != test.observed {
				t.Errorf("Ready: %+v", ready)
			}
			if paused.Message != test.message || paused.ObservedGeneration != test.generation || next.Message != test.message {
				t.Errorf("Paused: %+v, and portals hear %q", paused, next.Message)
			}
			if next.Phase != PhasePaused || next.Ready != (ready.Status == metav1.ConditionTrue) || next.ReadyGeneration != in.Previous.ReadyGeneration {
				t.Errorf("kept is %+v", next)
			}
			if !saysPaused(tenant, next.Conditions) {
				t.Error("it would be said again")
			}
			again, _ := Hold(tenant, in, status, later.Add(time.Hour))
			if a, b := encode(t, status), encode(t, again); !bytes.Equal(a, b) {
				t.Errorf("saying it again changes something:\n%s\n%s", a, b)
			}
			if test.before != nil {
				if before := meta.FindStatusCondition(was.Conditions, ConditionReady); *before != *ready {
					t.Errorf("Ready was %+v, is %+v", before, ready)
				}
				status.Conditions, was.Conditions = nil, nil
				if a, b := encode(t, status), encode(t, was); !bytes.Equal(a, b) {
					t.Errorf("the rest of the status changed:\n%s\n%s", a, b)
				}
			}
		})
	}

	t.Run("the end of the pause takes the condition away", func(t *testing.T) {
		t.Parallel()
		tenant, in := demo(), complete()
		was, previous := Compute(tenant, in, clock)
		paused := *tenant
		annotated(&paused)
		_, in.Previous = Hold(&paused, States{Generation: 1, Previous: previous}, was, later)
		status, next := Compute(tenant, in, later)
		if a, b := encode(t, status), encode(t, was); !bytes.Equal(a, b) || next.Phase != "Ready" {
			t.Errorf("%s:\n%s\n%s", next.Phase, a, b)
		}
	})
}
