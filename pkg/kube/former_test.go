package kube

import (
	"encoding/json"
	"errors"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/stoker-k8s/stoker/pkg/intent"
)

func TestDisown(t *testing.T) {
	s := startServer(t)
	kamaji, _ := s.client("kamaji")
	own, requests := s.client("stoker-test")
	service := func(ports ...int32) *corev1.Service {
		o := &corev1.Service{TypeMeta: Services.TypeMeta(), ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "made"}}
		o.Spec.Type, o.Spec.Selector = corev1.ServiceTypeLoadBalancer, map[string]string{"a": "b"}
		for _, p := range ports {
			o.Spec.Ports = append(o.Spec.Ports, corev1.ServicePort{Name: string('a' + p), Port: p, Protocol: corev1.ProtocolTCP})
		}
		return o
	}
	apply := func(ports ...int32) (live corev1.Service) {
		body, err := json.Marshal(service(ports...))
		if err == nil {
			err = own.ApplyRaw(t.Context(), Services, "default", "made", body, &live)
		}
		if err != nil {
			t.Fatal(err)
		}
		return live
	}
	made := service(1, 2)
	made.Spec.LoadBalancerIP = "192.0.2.1"
	if err := kamaji.Create(t.Context(), Services, made); err != nil {
		t.Fatal(err)
	}
	before := apply(1, 2)
	live := apply(1)
	if len(live.Spec.Ports) != 2 {
		t.Fatalf("what Kamaji has goes without being taken from it: %v", live.Spec.Ports)
	}
	if before.ResourceVersion != live.ResourceVersion {
		if err := own.Disown(t.Context(), Services, &before, nil, "spec", "ports"); !errors.Is(err, intent.ErrStale) {
			t.Errorf("of an object that changed since: %v", err)
		}
	}
	if err := own.Disown(t.Context(), Services, &live, &live, "spec", "ports"); err != nil {
		t.Fatal(err)
	}
	if len(live.Spec.Ports) != 2 {
		t.Errorf("it changed the object: %v", live.Spec.Ports)
	}
	sent := requests.n.Load()
	if err := own.Disown(t.Context(), Services, &live, &live, "spec", "ports"); err != nil || requests.n.Load() != sent {
		t.Errorf("again: %v, with %d requests", err, requests.n.Load()-sent)
	}
	apply(1, 2)
	if live = apply(1); len(live.Spec.Ports) != 1 || live.Spec.LoadBalancerIP != "192.0.2.1" {
		t.Errorf("%+v", live.Spec)
	}
}
