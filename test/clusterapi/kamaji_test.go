package clusterapi

import (
	"errors"
	"os"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/stoker-k8s/stoker/pkg/api/event"
	"github.com/stoker-k8s/stoker/pkg/api/name"
	"github.com/stoker-k8s/stoker/pkg/api/v1alpha1"
	"github.com/stoker-k8s/stoker/pkg/kube"
	"github.com/stoker-k8s/stoker/test/env"
)

// TestKamajisProvider has the control plane provider of Kamaji, as it is published, in front of Stoker.
func TestKamajisProvider(t *testing.T) {
	env.Long(t, "TestProvider shows Stoker's own provider; this test builds Kamaji's")
	core(t)
	provider, tap := kamajisProvider(t)
	taps := []*env.Tap{tap}
	for _, service := range name.Services() {
		if service == name.ServiceCAPI { // which does what the provider does
			continue
		}
		if service != name.ServiceIntake && service != name.ServiceStatus {
			e.Service(t, service, "a")
			continue
		}
		_, of := e.Tapped(t, service, "a")
		taps = append(taps, of)
	}
	c := cluster{name: "shop", controlPlane: "shop-cp", infrastructure: "shop-infra"}
	c.make(t, "v1.35.4")
	c.available(t, "v1.35.4", 1)
	c.works(t)

	t.Run("what Stoker keeps on the tenant survives", func(t *testing.T) {
		o := tenant(t, c)
		if o.Annotations[name.AnnotationDataStore] == "" || o.Annotations["team.example/note"] != "kept" || !slices.Contains(o.Finalizers, name.FinalizerTenant) {
			t.Errorf("annotations %v, finalizers %v", o.Annotations, o.Finalizers)
		}
		for label := range o.Labels {
			if strings.HasPrefix(label, "stoker.dev/") {
				t.Errorf("label %s is there: the provider takes it away, and somebody put it back", label)
			}
		}
		var store v1alpha1.DataStore
		must(t, e.Admin.Get(t.Context(), kube.DataStores, "", o.Status.Storage.DataStoreName, &store))
		if !slices.Contains(store.Status.UsedBy, c.key().String()) {
			t.Errorf("used by %v", store.Status.UsedBy)
		}
	})
	t.Run("at rest nobody writes", func(t *testing.T) { quiet(t, taps...) })
	t.Run("labels that come and go cost a write or two, not a fight", func(t *testing.T) {
		from := len(tap.Messages(0))
		change(t, kube.TenantControlPlanes, c.controlPlane, `{"metadata":{"labels":{"stoker.dev/datastore":"x"}}}`)
		env.Eventually(t, "the provider to take it away", func() error {
			if _, there := tenant(t, c).Labels[name.LabelDataStore]; there {
				return errNotYet
			}
			return nil
		})
		quiet(t, taps...)
		if n := len(writes(tap.Messages(from))); n > 30 {
			t.Errorf("%d writes of the provider", n)
		}
	})
	t.Run("commands that it would undo are refused", func(t *testing.T) { refused(t, c) })
	t.Run("replicas and version come from the control plane object", func(t *testing.T) {
		change(t, controlPlanes, c.controlPlane, `{"spec":{"replicas":2}}`)
		c.available(t, "v1.35.4", 2)
		change(t, controlPlanes, c.controlPlane, `{"spec":{"replicas":1,"version":"v1.36.3"}}`)
		c.available(t, "v1.36.3", 1)
		c.works(t)
	})
	t.Run("a kubeconfig that is issued anew reaches Cluster API's Secret", func(t *testing.T) {
		before := secret(t, c.name+"-kubeconfig").Data["value"]
		_, err := e.Admin.Delete(t.Context(), kube.Secrets, namespace, tenant(t, c).Status.KubeConfig.Admin.SecretName, metav1.DeleteOptions{})
		must(t, err)
		env.Eventually(t, "another kubeconfig", func() error {
			if string(secret(t, c.name+"-kubeconfig").Data["value"]) == string(before) {
				return errNotYet
			}
			return nil
		})
		c.works(t)
		quiet(t, taps...)
	})
	t.Run("Stoker's services restart, and nobody fights", func(t *testing.T) {
		e.NoServices(t)
		for _, service := range name.Services() {
			if service != name.ServiceCAPI {
				e.Service(t, service, "a")
			}
		}
		c.works(t)
		quiet(t, tap)
	})
	t.Run("Stoker's own takes its control planes over, without touching the tenant", func(t *testing.T) {
		change(t, controlPlanes, c.controlPlane, `{"metadata":{"labels":{"tier":"gold"}},"spec":{"apiServer":{"extraArgs":["--v=3"]}}}`)
		awaitTenant(t, c, "what is added", func(o *v1alpha1.TenantControlPlane) bool {
			return o.Spec.ControlPlane.Deployment.ExtraArgs != nil && o.Status.ObservedGeneration == o.Generation && rolledOut(o)
		})
		quiet(t, tap)
		provider.Kill()
		before, deployment := tenant(t, c), deploymentOf(t, c)
		e.Service(t, name.ServiceCAPI, "a")
		e.Fact(t, c.key(), name.ServiceCAPI, "initialized")
		after := tenant(t, c)
		if after.Generation != before.Generation || after.Labels["tier"] != "gold" || !reflect.DeepEqual(after.Spec, before.Spec) {
			t.Errorf("generation %d, not %d; labels %v; spec\n%+v, not\n%+v", after.Generation, before.Generation, after.Labels, after.Spec, before.Spec)
		}
		if now := deploymentOf(t, c); now.Generation != deployment.Generation {
			t.Errorf("its Deployment has generation %d, not %d", now.Generation, deployment.Generation)
		}
		c.works(t)
		change(t, controlPlanes, c.controlPlane, `{"metadata":{"labels":{"tier":null}},"spec":{"apiServer":{"extraArgs":null}}}`)
		awaitTenant(t, c, "what is taken off", func(o *v1alpha1.TenantControlPlane) bool {
			_, there := o.Labels["tier"]
			return !there && o.Spec.ControlPlane.Deployment.ExtraArgs == nil
		})
	})
	c.gone(t)
}

// rolledOut reports whether a tenant's pods are as it asks.
func rolledOut(o *v1alpha1.TenantControlPlane) bool {
	s := o.Status.Kubernetes.Version.Status
	return s != nil && *s == v1alpha1.VersionReady
}

func deploymentOf(t testing.TB, c cluster) *appsv1.Deployment {
	t.Helper()
	var d appsv1.Deployment
	must(t, e.Admin.Get(t.Context(), kube.Deployments, namespace, name.Deployment(c.controlPlane), &d))
	return &d
}

// refused sends the commands that would change what the provider writes.
func refused(t *testing.T, c cluster) {
	generation := tenant(t, c).Generation
	for verb, data := range map[string]any{
		event.Sleep: nil, event.Delete: nil,
		event.Patch: map[string]any{"spec": map[string]any{"controlPlane": map[string]any{"deployment": map[string]any{"replicas": 3}}}},
	} {
		before := len(e.Facts(t, c.key()))
		e.Command(t, c.key(), event.CommandType(event.TenantControlPlanes, verb), data)
		env.Eventually(t, "refusal of "+verb, func() error {
			facts := e.Facts(t, c.key())
			if !slices.Contains(facts[before:], "intake.rejected") {
				return errNotYet
			}
			return nil
		})
	}
	if o := tenant(t, c); o.Generation != generation || o.DeletionTimestamp != nil {
		t.Errorf("generation %d, not %d; deleted %v", o.Generation, generation, o.DeletionTimestamp)
	}
}

// quietFor is how long nothing may be written: longer than the provider and Stoker take to answer each other's writes, by far.
const quietFor = 10 * time.Second

// quiet waits until nobody has written for some time. What is asked for stays asked for: writers who answer each other never end.
func quiet(t *testing.T, taps ...*env.Tap) {
	t.Helper()
	deadline := time.After(2 * time.Minute)
	for {
		var before []int
		for _, tap := range taps {
			before = append(before, len(tap.Messages(0)))
		}
		select {
		case <-deadline:
			t.Fatalf("they write all the time: %v", writes(taps[0].Messages(before[0])))
		case <-time.After(quietFor):
		}
		written := 0
		for i, tap := range taps {
			written += len(writes(tap.Messages(before[i])))
		}
		if written == 0 {
			return
		}
	}
}

// writes are the messages to the API server that change something.
func writes(messages []env.Message) (all []string) {
	for _, m := range messages {
		if m.Write && !strings.HasPrefix(m.What, "PUB ") && !strings.Contains(m.What, "/leases/") {
			all = append(all, m.What)
		}
	}
	return all
}

func tenant(t testing.TB, c cluster) *v1alpha1.TenantControlPlane {
	t.Helper()
	var o v1alpha1.TenantControlPlane
	must(t, e.Admin.Get(t.Context(), kube.TenantControlPlanes, namespace, c.controlPlane, &o))
	return &o
}

func secret(t testing.TB, name string) *corev1.Secret {
	t.Helper()
	var s corev1.Secret
	must(t, e.Admin.Get(t.Context(), kube.Secrets, namespace, name, &s))
	return &s
}

var errNotYet = errors.New("not yet")

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func writeFile(t testing.TB, path string, data []byte) {
	t.Helper()
	must(t, os.WriteFile(path, data, 0o600))
}
