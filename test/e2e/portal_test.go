package e2e

import (
	"context"
	"errors"
	"os/exec"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/stoker-k8s/stoker/pkg/api/event"
	"github.com/stoker-k8s/stoker/pkg/events"
	"github.com/stoker-k8s/stoker/pkg/portal"
	"github.com/stoker-k8s/stoker/test/env"
)

func TestThePortalExample(t *testing.T) {
	e.Services(t)
	run := func(args ...string) string {
		t.Helper()
		ctx, cancel := context.WithTimeout(t.Context(), 15*time.Minute)
		defer cancel()
		cmd := exec.CommandContext(ctx, "go", append([]string{
			"run", "./examples/portal", "-nats", e.NATS.URL(), "-nkey", e.NATS.SeedFile(events.UserPortal), "-name", "portal",
		}, args...)...)
		cmd.Dir = env.Root()
		out, err := cmd.CombinedOutput()
		if err != nil {
			e.Explain(t, events.Tenant("default", "portal"))
			t.Fatalf("%v: %v\n%s", args, err, out)
		}
		return string(out)
	}
	out := run()
	for _, want := range []string{"accepted as generation 1\n", "\nReady ", "kubeconfig in Secret portal-admin-kubeconfig"} {
		if !strings.Contains(out, want) {
			t.Errorf("%q is missing in\n%s", want, out)
		}
	}
	if out := run("-delete"); !strings.Contains(out, "deleted: nothing of the tenant is left") {
		t.Error(out)
	}
}

func TestAPortalsTenantLives(t *testing.T) {
	e.Services(t)
	c, err := portal.Connect(portal.Config{URL: e.NATS.URL(), Source: "/test", SeedFile: e.NATS.SeedFile(events.UserPortal)})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	ctx, cancel := context.WithTimeout(t.Context(), 15*time.Minute)
	defer cancel()
	tenant, key := env.Tenant("portal-life", "v1.36.3"), events.Tenant("default", "portal-life")
	defer func() {
		if t.Failed() {
			e.Explain(t, key)
		}
	}()
	ready := func(a portal.Accepted, err error) event.StatusChanged {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		s, err := c.WaitReady(ctx, a)
		if err != nil {
			t.Fatal(err)
		}
		return s
	}
	refused := func(rule string) func(portal.Accepted, error) {
		return func(_ portal.Accepted, err error) {
			t.Helper()
			var no *portal.RefusedError
			if !errors.As(err, &no) || !no.Has(rule) {
				t.Errorf("%v, not refused with %s", err, rule)
			}
		}
	}

	first, err := c.Apply(ctx, tenant, portal.ID("portal-life-1"), portal.ExpectGeneration(0))
	if s := ready(first, err); !s.Ready || s.Endpoint == "" {
		t.Errorf("%+v", s)
	}
	again, err := c.Apply(ctx, tenant, portal.ID("portal-life-1"), portal.ExpectGeneration(0))
	if err != nil || !reflect.DeepEqual(again, first) {
		t.Errorf("the same command again: %+v, %v; first %+v", again, err, first)
	}
	refused("Conflict")(c.Apply(ctx, tenant, portal.ExpectGeneration(0)))
	refused("Invalid")(c.Patch(ctx, key, map[string]any{"kubernetes": map[string]any{"version": "latest"}}))
	refused("NotFound")(c.Delete(ctx, events.Tenant("default", "nobody")))
	refused("Invalid")(c.Delete(ctx, key, portal.UID("another")))

	paused, err := c.Pause(ctx, key, time.Time{})
	if err != nil || !paused.Paused {
		t.Errorf("%+v, %v", paused, err)
	}
	labels := map[string]any{"labels": map[string]any{"team": "a"}}
	changed, err := c.Patch(ctx, key, map[string]any{"controlPlane": map[string]any{"service": map[string]any{"additionalMetadata": labels}}})
	if err != nil || changed.Generation != first.Generation+1 || !changed.Paused {
		t.Errorf("%+v, %v", changed, err)
	}
	var failed *portal.FailedError
	if _, err := c.WaitReady(ctx, changed); !errors.As(err, &failed) || failed.Status.Phase != "Paused" {
		t.Errorf("waiting for a change of one that is paused: %v", err)
	}
	ready(c.Resume(ctx, key))

	if s := ready(c.Sleep(ctx, key)); s.Phase != "Sleeping" {
		t.Errorf("asleep: %+v", s)
	}
	woken, err := c.Wake(ctx, key)
	if s := ready(woken, err); !s.Ready {
		t.Errorf("awake: %+v", s)
	}

	going, err := c.Delete(ctx, key, portal.UID(woken.UID))
	if err != nil || going.What != event.Deleting {
		t.Fatalf("%+v, %v", going, err)
	}
	if last, err := c.WaitDeleted(ctx, going); err != nil || len(last.Removed) == 0 {
		t.Errorf("%+v, %v", last, err)
	}
}
