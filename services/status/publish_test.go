package status

import (
	"context"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/stoker-k8s/stoker/pkg/api/event"
	"github.com/stoker-k8s/stoker/pkg/api/name"
	"github.com/stoker-k8s/stoker/pkg/api/state"
	"github.com/stoker-k8s/stoker/pkg/api/v1alpha1"
	"github.com/stoker-k8s/stoker/pkg/events"
	"github.com/stoker-k8s/stoker/pkg/loop"
	"github.com/stoker-k8s/stoker/pkg/metric"
)

func TestTheDailyLookPublishesALastStatusThatWasLost(t *testing.T) {
	for what, paused := range map[string]bool{"of a tenant": false, "of a tenant that is paused": true} {
		t.Run(what, func(t *testing.T) {
			s, key := start(t), events.Tenant("default", "demo")
			if err := s.intake.CreateBucket(t.Context(), key); err != nil {
				t.Fatal(err)
			}
			tenant := state.Tenant{Namespace: key.Namespace, Name: key.Name, Paused: paused}
			known := state.Status{Phase: "Ready", Ready: true, Message: "as it was"}
			if paused {
				tenant.Annotations = map[string]string{name.AnnotationPaused: ""}
				known.Conditions = append(known.Conditions, pausedCondition(&tenant))
			}
			for bus, data := range map[*events.Bus]any{s.intake: tenant, s.status: known} {
				own := events.KeySpec
				if bus == s.status {
					own = events.StateKey(name.ServiceStatus)
				}
				st := &state.State{UID: "u", Generation: 3, Step: event.Changed, Data: event.Marshal(data), UpdatedAt: time.Now()}
				if _, err := bus.WriteState(t.Context(), key, own, st, 0); err != nil {
					t.Fatal(err)
				}
			}
			service := &svc{bus: s.status, metrics: newMetrics(&metric.Catalogue{}, &metric.Catalogue{}, false)}
			turns := make(chan struct{}, 10)
			l := &loop.Loop{Bus: s.status, Service: name.ServiceStatus, Handle: func(ctx context.Context, turn *loop.Turn) error {
				handle := service.handle
				if !paused { // what a look comes to that finds nothing new
					handle = func(ctx context.Context, turn *loop.Turn) error {
						return service.finish(ctx, turn, States{Previous: known}, known, nil)
					}
				}
				err := handle(ctx, turn)
				turns <- struct{}{}
				return err
			}}
			ctx, cancel := context.WithCancel(t.Context())
			done := make(chan error, 1)
			go func() { done <- l.Run(ctx) }()
			t.Cleanup(func() { cancel(); <-done })
			statuses, err := s.operator.JetStream().Stream(t.Context(), events.StreamStatus)
			if err != nil {
				t.Fatal(err)
			}
			look := func(id string) (sequence uint64) {
				t.Helper()
				about := event.About{Namespace: key.Namespace, Name: key.Name, UID: "u", Generation: 3}
				if err := s.intake.Tell(t.Context(), key, 3, id, event.Checked, event.IntakeChecked{About: about}); err != nil {
					t.Fatal(err)
				}
				<-turns
				last, err := statuses.GetLastMsgForSubject(t.Context(), key.StatusSubject())
				if err != nil {
					t.Fatalf("the subject has nothing: %v", err)
				}
				return last.Sequence
			}
			first := look("1")
			if again := look("2"); again != first {
				t.Errorf("it is told again although it is there")
			}
			if err := s.intake.JetStream().DeleteStream(t.Context(), events.StreamStatus); err != nil {
				t.Fatal(err)
			}
			if err := s.intake.Provision(t.Context()); err != nil {
				t.Fatal(err)
			}
			look("3")
		})
	}
}

func TestFieldsOfAStatus(t *testing.T) {
	service := &v1alpha1.KubernetesServiceStatus{Name: "demo", Namespace: "default", Port: 6443}
	status := v1alpha1.TenantControlPlaneStatus{}
	status.Kubernetes.Service = service
	balancer := func() (any, bool) {
		t.Helper()
		fields, err := fieldsOf(status)
		if err != nil {
			t.Fatal(err)
		}
		value, there, err := unstructured.NestedFieldNoCopy(fields, "kubernetesResources", "service", "loadBalancer")
		if err != nil {
			t.Fatal(err)
		}
		return value, there
	}
	if value, there := balancer(); there {
		t.Errorf("a Service without a load balancer has %v", value)
	}
	service.LoadBalancer.Ingress = []corev1.LoadBalancerIngress{{IP: "192.0.2.1"}}
	if _, there := balancer(); !there {
		t.Error("one with a load balancer has none")
	}
}
