package e2e

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stoker-k8s/stoker/pkg/api/event"
	"github.com/stoker-k8s/stoker/pkg/api/name"
	"github.com/stoker-k8s/stoker/pkg/api/state"
	"github.com/stoker-k8s/stoker/pkg/events"
	"github.com/stoker-k8s/stoker/test/env"
)

// TestSleepWhenIdle has a tenant of two replicas put to sleep that nobody uses, and not one that somebody does. Half an hour passes by what
// addons knows being half an hour older.
func TestSleepWhenIdle(t *testing.T) {
	env.Long(t, "services/addons shows which tenants are idle, TestWakeByConnection a tenant that sleeps and wakes")
	key := events.Tenant("default", "idle")
	e.Services(t)
	o := env.Tenant(key.Name, "v1.36.3")
	o.Spec.ControlPlane.Deployment.Replicas = new(int32(2))
	o.Annotations = map[string]string{name.AnnotationSleepWhenIdle: "30m", name.AnnotationWakeOn: name.WakeOnConnection}
	e.Apply(t, o)
	before := e.Ready(t, key)
	kubeconfig := e.Kubeconfig(t, key)
	addons, err := e.Bus(name.ServiceAddons)
	if err != nil {
		t.Fatal(err)
	}
	defer addons.Close()
	x := &idling{key: key, addons: addons}

	t.Run("one that is used stays awake", func(t *testing.T) {
		seen := x.known(t, "")
		e.Kubectl(t, kubeconfig, "get", "namespaces")
		x.passes(t)
		x.known(t, seen)
		e.Ready(t, key)
	})
	t.Run("the control plane's own requests and probes are no use", func(t *testing.T) {
		e.Kubectl(t, kubeconfig, "get", "nodes") // so that the next look finds use, and counts from there
		x.passes(t)
		seen := x.known(t, "")
		e.Kubectl(t, kubeconfig, "get", "--raw", "/readyz")
		e.Kubectl(t, kubeconfig, "get", "--raw", "/version")
		x.passes(t)
		if m := falls(t, key); !strings.Contains(m, `by stoker.dev/sleep-when-idle "30m"; the first connection wakes it`) {
			t.Error(m)
		}
		if f := e.Facts(t, key); !slices.Contains(f, "addons."+event.Idle) {
			t.Errorf("facts %v, and %s was seen", f, seen)
		}
		if code, out := stoker(t, "why", key.Name); !strings.Contains(out, "asleep since") {
			t.Errorf("exit %d: %s", code, out)
		}
	})
	t.Run("a connection wakes it, and it isn't idle for that", func(t *testing.T) {
		heard(t, key)
		env.Eventually(t, "kubectl to be answered", func() error {
			_, err := e.TryKubectl(t.Context(), kubeconfig, nil, "get", "namespaces")
			return err
		})
		now := e.Ready(t, key)
		if now.Generation != before.Generation || now.Annotations[name.AnnotationSleptBy] != "" || now.Annotations[name.AnnotationWokenAt] == "" {
			t.Errorf("generation %d of %d, %v", now.Generation, before.Generation, now.Annotations)
		}
		x.passes(t)
		x.known(t, "")
		e.Ready(t, key)
	})
	e.Delete(t, key)
	e.Gone(t, key)
}

// idling is the tenant, and what writes addons' state as addons does.
type idling struct {
	key    events.Key
	addons *events.Bus
}

// known waits until addons knows of the tenant's use something else than before, since just now, and returns it.
func (x *idling) known(t *testing.T, before string) (seen string) {
	t.Helper()
	env.Eventually(t, "addons to look whether the tenant is used", func() error {
		var own state.Addons
		s := e.State(t.Context(), x.key, name.ServiceAddons)
		if s == nil {
			return errNotYet
		}
		if err := json.Unmarshal(s.Data, &own); err != nil {
			return err
		}
		if own.Use == nil || own.Use.Seen == "" || own.Use.Seen == before || time.Since(own.Use.Since) > 20*time.Minute {
			return fmt.Errorf("it knows %+v", own.Use)
		}
		seen = own.Use.Seen
		return nil
	})
	return seen
}

// passes lets half an hour pass.
func (x *idling) passes(t *testing.T) {
	t.Helper()
	x.known(t, "")
	env.Eventually(t, "the time to pass", func() error {
		s, revision, err := x.addons.ReadState(t.Context(), x.key, name.ServiceAddons)
		if err != nil {
			return err
		}
		var own state.Addons
		if err := json.Unmarshal(s.Data, &own); err != nil {
			return err
		}
		own.Use.Since = own.Use.Since.Add(-30 * time.Minute)
		s.Data = event.Marshal(&own)
		_, err = x.addons.WriteState(t.Context(), x.key, name.ServiceAddons, s, revision)
		return err
	})
	if code, out := stoker(t, "resync", x.key.Name); code != 0 {
		t.Fatalf("exit %d: %s", code, out)
	}
}
