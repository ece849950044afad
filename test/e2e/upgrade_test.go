package e2e

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"

	"github.com/stoker-k8s/stoker/pkg/api/event"
	"github.com/stoker-k8s/stoker/pkg/api/name"
	"github.com/stoker-k8s/stoker/pkg/api/reason"
	"github.com/stoker-k8s/stoker/pkg/api/state"
	"github.com/stoker-k8s/stoker/pkg/api/v1alpha1"
	"github.com/stoker-k8s/stoker/pkg/events"
	"github.com/stoker-k8s/stoker/pkg/kube"
	"github.com/stoker-k8s/stoker/test/env"
)

func TestAnUpgradeThatFailsIsUndoneAndNobodyNoticesInside(t *testing.T) {
	workload := e.Services(t)[name.ServiceWorkload]
	key, next := events.Tenant("default", "undone"), events.Tenant("default", "undone-next")
	// Nothing is undone before the test has seen what it waits for, and shortens the time (shorten).
	tenant := func(version string, args ...string) *v1alpha1.TenantControlPlane {
		o := env.Tenant(key.Name, version)
		o.Labels = map[string]string{"upgrade": "undone"}
		o.Annotations = map[string]string{name.AnnotationUpgradeTimeout: "10m"}
		if len(args) > 0 {
			o.Spec.ControlPlane.Deployment.ExtraArgs = &v1alpha1.ControlPlaneExtraArgs{APIServer: args}
		}
		return o
	}
	const gate = "--feature-gates=HonorPVReclaimPolicy=true" // which v1.36 doesn't know any more
	e.Apply(t, tenant("v1.35.4", gate))
	e.Ready(t, key)
	asleep := tenant("v1.35.4")
	asleep.Name, asleep.Spec.ControlPlane.Deployment.Replicas = next.Name, new(int32(0))
	e.Apply(t, asleep)
	e.Fact(t, next, name.ServiceWorkload, event.Slept)

	before := podsOf(t, key)
	asking := keepAsking(t, readFile(t, e.Kubeconfig(t, key)))
	t.Run("a version that can't be had, workload being killed meanwhile", func(t *testing.T) {
		e.Apply(t, tenant("v1.36.99", gate))
		env.Eventually(t, "pods of it", func() error {
			if n := len(podsOf(t, key)); n != 2 {
				return fmt.Errorf("%d pods", n)
			}
			return nil
		})
		workload.Kill()
		workload.Restart(t)
		shorten(t, key, "v1.36.99", "kube-apiserver: ErrImagePull")
		o := undone(t, key, "v1.36.99", "kube-apiserver: ErrImagePull")
		back(t, key, before)
		e.Fact(t, key, name.ServiceAddons, event.Applied)
		if c := meta.FindStatusCondition(o.Status.Conditions, "EndpointReachable"); c == nil || c.Status != "True" {
			t.Errorf("%+v", o.Status.Conditions)
		}
	})
	t.Run("a rollout in waves stops there", func(t *testing.T) {
		code, out := stoker(t, "rollout", "-l", "upgrade=undone", "--version", "v1.36.99", "--wave", "1")
		if code != 1 || !strings.Contains(out, "did not become ready in time") || !strings.Contains(out, "stopped: 1 tenants are left") {
			t.Errorf("exit %d:\n%s", code, out)
		}
		var o v1alpha1.TenantControlPlane
		get(t, kube.TenantControlPlanes, next.Namespace, next.Name, &o)
		if o.Spec.Kubernetes.Version != "v1.35.4" {
			t.Errorf("the next one was changed: %s", o.Spec.Kubernetes.Version)
		}
	})
	t.Run("the version of before is Ready at once, with the pods that there are, although it is a lower one", func(t *testing.T) {
		if code, out := stoker(t, "plan", key.Name, "--version", "v1.35.4"); code != 0 || !strings.Contains(out, "no pod is replaced") {
			t.Errorf("exit %d:\n%s", code, out)
		}
		if code, out := stoker(t, "plan", key.Name, "--version", "v1.35.3"); code != 4 || !strings.Contains(out, "cannot go back to an earlier minor version") {
			t.Errorf("exit %d:\n%s", code, out)
		}
		e.Apply(t, tenant("v1.35.4", gate))
		accepted(t, key, "v1.35.4")
		e.Ready(t, key)
		back(t, key, before)
	})
	t.Run("a version that ends over a flag which it doesn't know says so", func(t *testing.T) {
		e.Apply(t, tenant("v1.36.3", gate))
		shorten(t, key, "v1.36.3", "HonorPVReclaimPolicy")
		undone(t, key, "v1.36.3", "HonorPVReclaimPolicy")
		back(t, key, before)
	})
	t.Run("and comes up without it", func(t *testing.T) {
		e.Apply(t, tenant("v1.36.3"))
		accepted(t, key, "v1.36.3", "10m")
		if o := e.Ready(t, key); o.Status.Kubernetes.Version.Version != "v1.36.3" {
			t.Errorf("%+v", o.Status.Kubernetes.Version)
		}
	})
	asking.end(t, key, "v1.35.4", "v1.36.3")
	for _, key := range []events.Key{key, next} {
		e.Delete(t, key)
		e.Gone(t, key)
	}
}

// accepted waits until the tenant's object asks for a version, and has a time-out if one is given.
func accepted(t *testing.T, key events.Key, version string, timeout ...string) {
	t.Helper()
	env.Eventually(t, version+" asked for", func() error {
		var o v1alpha1.TenantControlPlane
		if err := e.Admin.Get(t.Context(), kube.TenantControlPlanes, key.Namespace, key.Name, &o); err != nil {
			return err
		}
		if o.Spec.Kubernetes.Version != version || len(timeout) > 0 && o.Annotations[name.AnnotationUpgradeTimeout] != timeout[0] {
			return errNotYet
		}
		return nil
	})
}

// shorten waits until a portal is told why pods of a version are not ready, and has their time end three seconds later.
func shorten(t *testing.T, key events.Key, version, says string) {
	t.Helper()
	env.Eventually(t, "why pods of "+version+" are not ready", func() error {
		s, err := e.Status(t.Context(), key)
		if err != nil {
			return err
		}
		if !strings.Contains(s.Message, says) {
			return fmt.Errorf("%+v", s)
		}
		return nil
	})
	s := e.State(t.Context(), key, name.ServiceWorkload)
	if s == nil {
		t.Fatal("workload has no state")
	}
	var data state.Workload
	must(t, json.Unmarshal(s.Data, &data))
	if data.Upgrade == nil || data.Upgrade.Since.IsZero() || data.Upgrade.To != version || !data.Upgrade.UndoneAt.IsZero() {
		t.Fatalf("the upgrade on record: %+v", data.Upgrade)
	}
	limit := (time.Since(data.Upgrade.Since) + 3*time.Second).Round(time.Second)
	merge(t, kube.TenantControlPlanes, key.Namespace, key.Name, annotations(map[string]any{name.AnnotationUpgradeTimeout: limit.String()}))
}

// undone waits until a portal, and the object, are told that the upgrade to a version was undone and the tenant runs v1.35.4 again.
func undone(t *testing.T, key events.Key, version, says string) *v1alpha1.TenantControlPlane {
	t.Helper()
	o := &v1alpha1.TenantControlPlane{}
	env.Eventually(t, "the upgrade to "+version+" undone", func() error {
		s, err := e.Status(t.Context(), key)
		if err != nil {
			return err
		}
		if err := e.Admin.Get(t.Context(), kube.TenantControlPlanes, key.Namespace, key.Name, o); err != nil {
			return err
		}
		v := o.Status.Kubernetes.Version
		if s.Phase != "Failed" || s.Reason != reason.UpgradeUndone || o.Spec.Kubernetes.Version != version || s.Generation != o.Generation ||
			v.Status == nil || *v.Status != v1alpha1.VersionReady || s.Version != "v1.35.4" || v.Version != "v1.35.4" {
			return fmt.Errorf("%+v, version %+v", s, v)
		}
		if !strings.Contains(s.Message, "pods of "+version+" did not become ready") || !strings.Contains(s.Message, says) {
			t.Errorf("it says %s", s.Message)
		}
		t.Log(s.Message)
		return nil
	})
	return o
}

// podsOf are the names of a tenant's pods that are not on their way out.
func podsOf(t *testing.T, key events.Key) (names []string) {
	t.Helper()
	var pods corev1.PodList
	e.List(t, kube.Pods, key.Namespace, name.LabelName+"="+key.Name, &pods)
	for _, p := range pods.Items {
		if p.DeletionTimestamp == nil {
			names = append(names, p.Name)
		}
	}
	return names
}

// back waits until a tenant has the pods of before and no other.
func back(t *testing.T, key events.Key, before []string) {
	t.Helper()
	env.Eventually(t, "the pods of before alone", func() error {
		if now := podsOf(t, key); strings.Join(now, " ") != strings.Join(before, " ") {
			return errors.New(strings.Join(now, " "))
		}
		return nil
	})
}
