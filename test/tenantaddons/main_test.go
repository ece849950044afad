// Package tenantaddons has TenantAddons install software in real tenants: charts, kustomizations and manifests, in waves, with failures.
package tenantaddons

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/stoker-k8s/stoker/internal/testing/apiserver"
	"github.com/stoker-k8s/stoker/pkg/api/name"
	"github.com/stoker-k8s/stoker/pkg/api/tenantaddon"
	"github.com/stoker-k8s/stoker/pkg/events"
	"github.com/stoker-k8s/stoker/pkg/kube"
	"github.com/stoker-k8s/stoker/test/env"
)

const namespace = "default"

var e *env.Env

func TestMain(m *testing.M) {
	env.Main(m, func(started *env.Env) { e = started })
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// tenants makes tenants with labels, and waits until they are ready.
func tenants(t testing.TB, labels map[string]map[string]string) {
	t.Helper()
	for n, l := range labels {
		o := env.Tenant(n, "v1.36.3")
		o.Labels = l
		e.Apply(t, o)
	}
	for n := range labels {
		e.Ready(t, events.Tenant(namespace, n))
	}
}

// put applies a TenantAddon, whose spec is YAML.
func put(t testing.TB, n, spec string) {
	t.Helper()
	must(t, tryPut(t, n, spec))
}

func tryPut(t testing.TB, n, spec string) error {
	t.Helper()
	return env.ApplySpec(t.Context(), e.Admin, kube.TenantAddons, namespace, n, spec)
}

// words are manifests of a ConfigMap of a name, with a word, as a spec's source.
func words(n, word string) string {
	return fmt.Sprintf("manifests: {inline: '{apiVersion: v1, kind: ConfigMap, metadata: {name: %s}, data: {word: %s}}'}\n", n, word)
}

func addon(t testing.TB, n string) *tenantaddon.TenantAddon {
	t.Helper()
	var o tenantaddon.TenantAddon
	e.Get(t, kube.TenantAddons, namespace, n, &o)
	return &o
}

func release(t testing.TB, tenant, n string) (*tenantaddon.AddonRelease, error) {
	t.Helper()
	var o tenantaddon.AddonRelease
	return &o, e.Admin.Get(t.Context(), kube.AddonReleases, namespace, tenant+"."+n+"."+namespace, &o)
}

// await waits until a TenantAddon, as it is now, has a condition with a reason.
func await(t testing.TB, n, condition, reason string) *tenantaddon.TenantAddon {
	t.Helper()
	var o *tenantaddon.TenantAddon
	defer func() {
		if t.Failed() {
			explain(t, n)
		}
	}()
	env.Eventually(t, n+" to be "+condition+" for "+reason, func() error {
		o = addon(t, n)
		c := meta.FindStatusCondition(o.Status.Conditions, condition)
		if o.Status.ObservedGeneration != o.Generation || c == nil || c.Reason != reason || c.ObservedGeneration != o.Generation {
			return fmt.Errorf("generation %d, %+v", o.Generation, o.Status)
		}
		return nil
	})
	return o
}

// explain logs how a TenantAddon stands.
func explain(t testing.TB, n string) {
	var all tenantaddon.AddonReleaseList
	e.List(t, kube.AddonReleases, namespace, name.LabelTenantAddon+"="+n, &all)
	for i := range all.Items {
		data, _ := json.Marshal(all.Items[i].Status)
		t.Logf("%s %+v %s", all.Items[i].Name, all.Items[i].Spec, data)
	}
}

// ready waits until a TenantAddon is ready in all tenants.
func ready(t testing.TB, n string) *tenantaddon.TenantAddon {
	t.Helper()
	return await(t, n, tenantaddon.ConditionReady, tenantaddon.ReasonSucceeded)
}

// stands waits until an AddonRelease's condition Ready has a reason.
func stands(t testing.TB, tenant, n, reason string) *tenantaddon.AddonRelease {
	t.Helper()
	var o *tenantaddon.AddonRelease
	env.Eventually(t, n+" in "+tenant+" to be "+reason, func() error {
		var err error
		if o, err = release(t, tenant, n); err != nil {
			return err
		}
		c := meta.FindStatusCondition(o.Status.Conditions, tenantaddon.ConditionReady)
		if c == nil || c.Reason != reason {
			return fmt.Errorf("%+v", o.Status)
		}
		return nil
	})
	return o
}

// inside is a client of a tenant.
func inside(t testing.TB, tenant string) *kube.Client {
	t.Helper()
	var s corev1.Secret
	e.Get(t, kube.Secrets, namespace, name.AdminKubeconfig(tenant), &s)
	k, err := kube.FromKubeconfig(s.Data[name.KeyAdminConf], kube.Options{FieldManager: "test", Timeout: apiserver.Patience})
	must(t, err)
	t.Cleanup(k.Close)
	return k
}

// word is that of a ConfigMap in a tenant; empty for none.
func word(t testing.TB, in *kube.Client, ns, n string) string {
	t.Helper()
	is, err := read(t, in, ns, n)
	must(t, err)
	return is
}

func read(t testing.TB, in *kube.Client, ns, n string) (word string, err error) {
	t.Helper()
	var o corev1.ConfigMap
	err = in.Get(t.Context(), kube.ConfigMaps, ns, n, &o)
	if apierrors.IsNotFound(err) {
		return "", nil
	}
	return o.Data["word"], err
}

// says waits until a ConfigMap in kube-system of a tenant has a word; empty: it isn't there.
func says(t testing.TB, in *kube.Client, n, want string) {
	t.Helper()
	env.Eventually(t, n+" to say "+want, func() error {
		is, err := read(t, in, "kube-system", n)
		if err == nil && is != want {
			err = fmt.Errorf("it says %q", is)
		}
		return err // such as of a pod from before a new authority, which answers for a moment yet
	})
}

// gone deletes a TenantAddon and waits until it is.
func gone(t testing.TB, n string) {
	t.Helper()
	_, err := e.Admin.Delete(t.Context(), kube.TenantAddons, namespace, n, metav1.DeleteOptions{})
	must(t, err)
	env.Eventually(t, "the end of "+n, func() error {
		var o tenantaddon.TenantAddon
		err := e.Admin.Get(t.Context(), kube.TenantAddons, namespace, n, &o)
		if apierrors.IsNotFound(err) {
			return nil
		}
		return fmt.Errorf("it is there: %+v, %w", o.Status.Conditions, err)
	})
}

// facts about a tenant by this service, since a number of them.
func facts(t testing.TB, tenant string) []string {
	t.Helper()
	return slices.DeleteFunc(e.Facts(t, events.Tenant(namespace, tenant)), func(f string) bool {
		return !strings.HasPrefix(f, name.ServiceTenantAddons+".")
	})
}
