package rules

import (
	"context"
	"errors"
	"path/filepath"
	"strings"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/yaml"

	"github.com/stoker-k8s/stoker/pkg/api/name"
	"github.com/stoker-k8s/stoker/pkg/api/tenantaddon"
	"github.com/stoker-k8s/stoker/test/env"
)

// everybody is a user who may do everything: policies alone keep them from anything.
const everybody = "rules-everybody"

// released addresses the objects of a resource of the group stoker.dev.
func released(d dynamic.Interface, resource, namespace string) dynamic.ResourceInterface {
	return d.Resource(tenantaddon.GroupVersion.WithResource(resource)).Namespace(namespace)
}

// object is one of the group stoker.dev.
func object(t *testing.T, kind, text string) *unstructured.Unstructured {
	t.Helper()
	o := &unstructured.Unstructured{}
	if err := yaml.Unmarshal([]byte(text), &o.Object); err != nil {
		t.Fatal(err)
	}
	o.SetGroupVersionKind(tenantaddon.GroupVersion.WithKind(kind))
	return o
}

const (
	addonText = `
metadata: {name: demo}
spec: {selector: {}, manifests: {inline: "a: b"}}
`
	fleetText = `
metadata: {name: demo}
spec: {selector: {}, namespaceSelector: {}, manifests: {inline: "a: b"}}
`
	releaseText = `
metadata: {name: shop.demo.default, finalizers: [stoker.dev/tenant-addon], labels: {stoker.dev/tenant: shop}}
spec: {addon: {namespace: default, name: demo}, tenant: shop, releaseName: demo, targetNamespace: kube-system, onRemoval: Delete}
`
)

// dynamicService is a client with what the account of a service may.
func dynamicService(t *testing.T, service string) dynamic.Interface {
	t.Helper()
	cfg, _ := admin(t)
	cfg.Impersonate = rest.ImpersonationConfig{
		UserName: userOf(service), Groups: []string{"system:serviceaccounts", "system:serviceaccounts:" + name.SystemNamespace, "system:authenticated"},
	}
	d, err := dynamic.NewForConfig(cfg)
	if err != nil {
		t.Fatal(err)
	}
	return d
}

// TestExampleOfTenantAddons has kubectl write the example, and list what there is by the names that the page says.
func TestExampleOfTenantAddons(t *testing.T) {
	config := e.Local.Kubeconfig("admin")
	e.Kubectl(t, config, "apply", "--server-side", "--dry-run=server", "-f", filepath.Join(env.Root(), "examples", "tenantaddon.yaml"))
	for _, kinds := range []string{"tad", "adr", "stoker"} {
		e.Kubectl(t, config, "get", kinds, "--all-namespaces")
	}
}

// TestTenantAddonsOfNamespaces writes TenantAddons: those for the tenants of other namespaces are made where Stoker's services are.
func TestTenantAddonsOfNamespaces(t *testing.T) {
	cfg, c := admin(t)
	d := as(t, cfg, c, everybody, "cluster-admin")
	dry := metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}}
	const refused = "spec.namespaceSelector: Forbidden: a TenantAddon of namespace default is for the tenants of that namespace"
	here := released(d, tenantaddon.TenantAddonResource, metav1.NamespaceDefault)
	fleet := object(t, tenantaddon.TenantAddonKind, fleetText)
	until(t, func() error {
		_, err := here.Create(t.Context(), fleet, dry)
		return err
	})
	_, err := here.Create(t.Context(), fleet, dry)
	expect(t, err, refused)
	_, err = released(d, tenantaddon.TenantAddonResource, name.SystemNamespace).Create(t.Context(), fleet, dry)
	expect(t, err, "")

	own := object(t, tenantaddon.TenantAddonKind, addonText)
	if _, err := here.Create(t.Context(), own, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := here.Delete(context.Background(), "demo", metav1.DeleteOptions{}); err != nil && !apierrors.IsNotFound(err) {
			t.Error(err)
		}
	})
	patch := func(text string) error {
		_, err := here.Patch(t.Context(), "demo", types.MergePatchType, []byte(text), metav1.PatchOptions{})
		return err
	}
	t.Run("one of the own namespace may change, but for that", func(t *testing.T) {
		expect(t, patch(`{"spec":{"paused":true}}`), "")
		expect(t, patch(`{"spec":{"namespaceSelector":{}}}`), refused)
	})
	t.Run("one that was there before the rule is left alone until it changes, and goes", func(t *testing.T) {
		policies := c.AdmissionregistrationV1().ValidatingAdmissionPolicyBindings()
		rule, err := policies.Get(t.Context(), "stoker-tenant-addons", metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		if err := policies.Delete(t.Context(), rule.Name, metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
		env.Eventually(t, "it to be written without the rule", func() error { return patch(`{"spec":{"namespaceSelector":{}}}`) })
		rule.ObjectMeta = metav1.ObjectMeta{Name: rule.Name}
		if _, err := policies.Create(t.Context(), rule, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
		until(t, func() error {
			_, err := here.Create(t.Context(), object(t, tenantaddon.TenantAddonKind, strings.Replace(fleetText, "demo", "other", 1)), dry)
			return err
		})
		expect(t, patch(`{"metadata":{"finalizers":["stoker.dev/tenant-addon"]}}`), "")
		expect(t, patch(`{"spec":{"paused":false}}`), refused)
		expect(t, here.Delete(t.Context(), "demo", metav1.DeleteOptions{}), "")
		expect(t, patch(`{"metadata":{"finalizers":null}}`), "")
	})
}

// TestAddonReleases writes AddonReleases: the service tenantaddons does, and nobody else, whatever they may.
func TestAddonReleases(t *testing.T) {
	cfg, c := admin(t)
	const ns = metav1.NamespaceDefault
	others := released(as(t, cfg, c, everybody, "cluster-admin"), tenantaddon.AddonReleaseResource, ns)
	service := released(dynamicService(t, name.ServiceTenantAddons), tenantaddon.AddonReleaseResource, ns)
	dry := metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}}
	const refused = "AddonRelease shop.demo.default is made by the service tenantaddons, and by nobody else"
	release := object(t, tenantaddon.AddonReleaseKind, releaseText)
	until(t, func() error {
		_, err := others.Create(t.Context(), release, dry)
		return err
	})
	_, err := others.Create(t.Context(), release, dry)
	expect(t, err, refused)
	if _, err := service.Create(t.Context(), release, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	patch := func(by dynamic.ResourceInterface, text string, sub ...string) error {
		_, err := by.Patch(t.Context(), release.GetName(), types.MergePatchType, []byte(text), metav1.PatchOptions{}, sub...)
		return err
	}
	for what, test := range map[string]struct {
		text    string
		sub     []string
		refused bool
	}{
		"what is to be in the tenant": {text: `{"spec":{"revision":"x"}}`, refused: true},
		"whose it is":                 {text: `{"metadata":{"labels":{"stoker.dev/tenant":"other"}}}`, refused: true},
		"that it has no labels":       {text: `{"metadata":{"labels":null}}`, refused: true},
		"how it is":                   {text: `{"status":{"revision":"x"}}`, sub: []string{"status"}, refused: true},
		"a note":                      {text: `{"metadata":{"annotations":{"a":"b"}}}`},
		"its owner, as the garbage collector does": {text: `{"metadata":{"ownerReferences":null}}`},
	} {
		t.Run("others write "+what, func(t *testing.T) {
			expect(t, patch(others, test.text, test.sub...), map[bool]string{true: refused}[test.refused])
		})
	}
	t.Run("the service writes all of it", func(t *testing.T) {
		expect(t, patch(service, `{"metadata":{"labels":{"a":"b"}},"spec":{"revision":"y"}}`), "")
		expect(t, patch(service, `{"status":{"revision":"y"}}`, "status"), "")
	})
	t.Run("where the service no longer runs, people take it away", func(t *testing.T) {
		expect(t, others.Delete(t.Context(), release.GetName(), metav1.DeleteOptions{}), "")
		expect(t, patch(others, `{"metadata":{"finalizers":null}}`), "")
		if _, err := service.Get(t.Context(), release.GetName(), metav1.GetOptions{}); !apierrors.IsNotFound(err) {
			t.Errorf("it is there: %v", err)
		}
	})
}

// TestRolesForTenantAddons has users with Stoker's roles write both kinds: TenantAddons are written by those who may change tenants, and
// AddonReleases by none.
func TestRolesForTenantAddons(t *testing.T) {
	cfg, c := admin(t)
	dry := metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}}
	for role, writes := range map[string]bool{"stoker-editor": true, "stoker-viewer": false} {
		t.Run(role, func(t *testing.T) {
			d := as(t, cfg, c, "rules-with-"+role, role)
			addons := released(d, tenantaddon.TenantAddonResource, metav1.NamespaceDefault)
			releases := released(d, tenantaddon.AddonReleaseResource, metav1.NamespaceDefault)
			env.Eventually(t, "the user to read both", func() error {
				_, err := addons.List(t.Context(), metav1.ListOptions{})
				_, of := releases.List(t.Context(), metav1.ListOptions{})
				return errors.Join(err, of)
			})
			_, err := addons.Create(t.Context(), object(t, tenantaddon.TenantAddonKind, addonText), dry)
			if writes && err != nil || !writes && !apierrors.IsForbidden(err) {
				t.Errorf("a TenantAddon is written: %v", err)
			}
			_, err = releases.Create(t.Context(), object(t, tenantaddon.AddonReleaseKind, releaseText), dry)
			if !apierrors.IsForbidden(err) {
				t.Errorf("an AddonRelease is written: %v", err)
			}
		})
	}
}
