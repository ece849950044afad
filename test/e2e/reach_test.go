package e2e

import (
	"encoding/json"
	"fmt"
	"io"
	"log"
	"math/rand/v2"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/stoker-k8s/stoker/pkg/api/name"
	"github.com/stoker-k8s/stoker/pkg/api/reason"
	"github.com/stoker-k8s/stoker/pkg/api/state"
	"github.com/stoker-k8s/stoker/pkg/api/v1alpha1"
	"github.com/stoker-k8s/stoker/pkg/events"
	"github.com/stoker-k8s/stoker/pkg/kube"
	"github.com/stoker-k8s/stoker/test/env"
)

// A tenant's declared address leads to a server of another authority, as that of a node of another cluster would: the tenant is reached all
// the same, and what clients would meet is a condition of its own.
func TestAnEndpointThatLeadsToSomethingElse(t *testing.T) {
	e.Services(t)
	address := fmt.Sprintf("127.9.%d.%d", rand.IntN(200)+1, rand.IntN(200)+1)
	at := net.JoinHostPort(address, "6443")
	foreign, asked := foreignServer(t, at)

	key := events.Tenant("default", "elsewhere")
	o := env.Tenant(key.Name, "v1.36.3")
	o.Spec.NetworkProfile.Address = address
	e.Apply(t, o)
	before := e.Ready(t, key)

	t.Run("it is Ready, and its endpoint isn't reached", func(t *testing.T) {
		reachable(t, key, metav1.ConditionFalse, reason.EndpointForeign, at)
		if before.Status.ControlPlaneEndpoint != at {
			t.Errorf("endpoint %s, want %s", before.Status.ControlPlaneEndpoint, at)
		}
		if n := asked.Load(); n != 0 {
			t.Errorf("the foreign server was asked %d times", n)
		}
		if way := addonsOf(t, key).Way; way != state.WayLoadBalancer {
			t.Errorf("reached by %q", way)
		}
	})
	t.Run("once the address leads to the tenant, that is noticed, and nothing else changes", func(t *testing.T) {
		foreign.Close()
		var service corev1.Service
		get(t, kube.Services, key.Namespace, name.Service(key.Name), &service)
		carry(t, at, net.JoinHostPort(service.Status.LoadBalancer.Ingress[0].IP, "6443"))
		reachable(t, key, metav1.ConditionTrue, reason.Reached, at)
		if after := e.Ready(t, key); after.Generation != before.Generation {
			t.Errorf("generation %d", after.Generation)
		}
	})
	t.Run("another address is looked at, too", func(t *testing.T) {
		o.Spec.NetworkProfile.Address = ""
		e.Apply(t, o)
		var after *v1alpha1.TenantControlPlane
		env.Eventually(t, "another endpoint", func() error {
			if after = e.Ready(t, key); after.Status.ControlPlaneEndpoint == at {
				return errNotYet
			}
			return nil
		})
		reachable(t, key, metav1.ConditionTrue, reason.Reached, after.Status.ControlPlaneEndpoint)
	})
	e.Delete(t, key)
	e.Gone(t, key)
}

// foreignServer starts a TLS server of another authority.
func foreignServer(t testing.TB, at string) (s *httptest.Server, asked *atomic.Int32) {
	t.Helper()
	l, err := net.Listen("tcp", at)
	if err != nil {
		t.Fatal(err)
	}
	asked = &atomic.Int32{}
	s = &httptest.Server{Listener: l, Config: &http.Server{
		Handler: http.HandlerFunc(func(http.ResponseWriter, *http.Request) { asked.Add(1) }), ErrorLog: log.New(io.Discard, "", 0),
	}}
	s.StartTLS()
	t.Cleanup(s.Close)
	return s, asked
}

// reachable waits for what the condition EndpointReachable is to say.
func reachable(t testing.TB, key events.Key, status metav1.ConditionStatus, why, says string) {
	t.Helper()
	env.Eventually(t, fmt.Sprintf("EndpointReachable %s (%s)", status, why), func() error {
		var o v1alpha1.TenantControlPlane
		if err := e.Admin.Get(t.Context(), kube.TenantControlPlanes, key.Namespace, key.Name, &o); err != nil {
			return err
		}
		c := meta.FindStatusCondition(o.Status.Conditions, "EndpointReachable")
		if c == nil || c.Status != status || c.Reason != why || !strings.Contains(c.Message, says) {
			return fmt.Errorf("%+v", c)
		}
		return nil
	})
}

// addonsOf is what addons keeps of a tenant.
func addonsOf(t testing.TB, key events.Key) (a state.Addons) {
	t.Helper()
	s := e.State(t.Context(), key, name.ServiceAddons)
	if s == nil {
		t.Fatal("addons keeps nothing")
		return a
	}
	if err := json.Unmarshal(s.Data, &a); err != nil {
		t.Fatal(err)
	}
	return a
}
