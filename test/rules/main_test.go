// Package rules tries every rule of the API on a real API server and NATS, with intake and nothing else running: each rule's
// objects are written as kubectl writes them, by a user without any of Stoker's rights, and sent as commands; both are
// accepted, or refused for the same reason.
package rules

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/stoker-k8s/stoker/pkg/api/event"
	"github.com/stoker-k8s/stoker/pkg/api/name"
	"github.com/stoker-k8s/stoker/pkg/api/v1alpha1"
	"github.com/stoker-k8s/stoker/pkg/testing/ruletest"
	"github.com/stoker-k8s/stoker/test/env"
)

var e *env.Env

func TestMain(m *testing.M) { env.Main(m, func(started *env.Env) { e = started }, env.APIOnly) }

// author is a user who may write Stoker's kinds, with all their fields, and nothing else.
const author = "rules-author"

// editor is a user who has the role for editors of tenants, and nothing else.
const editor = "rules-editor"

var plurals = map[string]string{
	v1alpha1.TenantControlPlaneKind: event.TenantControlPlanes, v1alpha1.DataStoreKind: event.DataStores,
	v1alpha1.KubeconfigGeneratorKind: event.KubeconfigGenerators,
}

// admin is a client that may do everything.
func admin(t testing.TB) (*rest.Config, kubernetes.Interface) {
	t.Helper()
	cfg := e.Local.AdminConfig()
	cfg.QPS, cfg.Burst = -1, 0
	c, err := kubernetes.NewForConfig(cfg)
	if err != nil {
		t.Fatal(err)
	}
	return cfg, c
}

// asAuthor is a client of the author.
func asAuthor(t testing.TB) dynamic.Interface {
	t.Helper()
	cfg, c := admin(t)
	role := &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: author}, Rules: []rbacv1.PolicyRule{{
		APIGroups: []string{v1alpha1.GroupName}, Resources: []string{"*"}, Verbs: []string{"get", "list", "create", "update", "patch", "delete"},
	}}}
	if _, err := c.RbacV1().ClusterRoles().Create(t.Context(), role, metav1.CreateOptions{}); err != nil && !apierrors.IsAlreadyExists(err) {
		t.Fatal(err)
	}
	d := as(t, cfg, c, author, author)
	e.PrivilegedFields(t, author, true)
	refuses(t, d, `nodeSelector: {"a b": c}`)
	return d
}

// refuses waits until policies are looked at, which they aren't at once when they are new. Nor are roles: without them all is refused.
func refuses(t testing.TB, d dynamic.Interface, patch string) {
	t.Helper()
	o := &unstructured.Unstructured{Object: ruletest.Object(v1alpha1.TenantControlPlaneKind, deployment(patch))}
	env.Eventually(t, "the policies to refuse "+patch, func() error {
		_, err := resource(d, v1alpha1.TenantControlPlaneKind).Create(t.Context(), o, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
		switch {
		case err == nil:
			return errors.New("accepted")
		case !strings.Contains(err.Error(), "ValidatingAdmissionPolicy"):
			return err
		}
		return nil
	})
}

// asEditor is a client of the editor.
func asEditor(t testing.TB) dynamic.Interface {
	t.Helper()
	cfg, c := admin(t)
	d := as(t, cfg, c, editor, "stoker-editor")
	refuses(t, d, `nodeSelector: {a: b}`)
	return d
}

// as is a client of a user who has a role.
func as(t testing.TB, cfg *rest.Config, c kubernetes.Interface, user, role string) dynamic.Interface {
	t.Helper()
	binding := &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: user}, Subjects: []rbacv1.Subject{{Kind: "User", Name: user, APIGroup: rbacv1.GroupName}},
		RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: role},
	}
	if _, err := c.RbacV1().ClusterRoleBindings().Create(t.Context(), binding, metav1.CreateOptions{}); err != nil && !apierrors.IsAlreadyExists(err) {
		t.Fatal(err)
	}
	cfg = rest.CopyConfig(cfg)
	cfg.Impersonate = rest.ImpersonationConfig{UserName: user, Groups: []string{"system:authenticated"}}
	d, err := dynamic.NewForConfig(cfg)
	if err != nil {
		t.Fatal(err)
	}
	return d
}

// resource addresses the objects of a kind.
func resource(d dynamic.Interface, kind string) dynamic.ResourceInterface {
	r := d.Resource(v1alpha1.GroupVersion.WithResource(plurals[kind]))
	if kind == v1alpha1.TenantControlPlaneKind {
		return r.Namespace(metav1.NamespaceDefault)
	}
	return r
}

// cluster makes what the rules refer to: DataStores a and b of etcd, sql of PostgreSQL, and an API server that serves
// TLSRoutes.
func cluster(t testing.TB) {
	t.Helper()
	cfg, c := admin(t)
	d, err := dynamic.NewForConfig(cfg)
	if err != nil {
		t.Fatal(err)
	}
	data := map[string]string{}
	for n, patch := range map[string]string{
		"a": `{}`, "b": `{}`, "sql": `spec: {driver: PostgreSQL}`,
	} {
		o := &unstructured.Unstructured{Object: ruletest.Object(v1alpha1.DataStoreKind, patch)}
		o.SetName(n)
		if _, err := resource(d, v1alpha1.DataStoreKind).Apply(t.Context(), n, o, metav1.ApplyOptions{FieldManager: "test", Force: true}); err != nil {
			t.Fatal(err)
		}
		driver, _, _ := unstructured.NestedString(o.Object, "spec", "driver")
		data[name.AdmissionDataStore(n)] = driver
	}
	setRoutesServed(t, d, true)
	// intake keeps the ConfigMap the policies look at.
	env.Eventually(t, "the policies' ConfigMap to say what there is", func() error {
		have, err := c.CoreV1().ConfigMaps(name.SystemNamespace).Get(t.Context(), name.AdmissionConfigMap, metav1.GetOptions{})
		if err != nil {
			return err
		}
		data[name.AdmissionGateway] = "true"
		return contains(have, data)
	})
	// The policies hear of it after that.
	for _, patch := range []string{`spec: {dataStore: a}`, `spec: {dataStore: b}`, `spec: {dataStore: sql}`, ruletest.Gateway} {
		o := &unstructured.Unstructured{Object: ruletest.Object(v1alpha1.TenantControlPlaneKind, patch)}
		o.SetName("heard")
		env.Eventually(t, "the policies to accept "+patch, func() error {
			_, err := resource(d, v1alpha1.TenantControlPlaneKind).Create(t.Context(), o, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
			return err
		})
	}
}

func contains(have *corev1.ConfigMap, want map[string]string) error {
	for k, v := range want {
		if have.Data[k] != v {
			return fmt.Errorf("%s is %q, want %q", k, have.Data[k], v)
		}
	}
	return nil
}

var definitions = schema.GroupVersionResource{Group: "apiextensions.k8s.io", Version: "v1", Resource: "customresourcedefinitions"}

// setRoutesServed installs or removes a definition of TLSRoute, as much of it as it takes to be served.
func setRoutesServed(t testing.TB, d dynamic.Interface, served bool) {
	t.Helper()
	const definition = `{"apiVersion":"apiextensions.k8s.io/v1","kind":"CustomResourceDefinition","metadata":{"name":"tlsroutes.gateway.networking.k8s.io",
		"annotations":{"api-approved.kubernetes.io":"unapproved, a test"}},
		"spec":{"group":"gateway.networking.k8s.io","scope":"Namespaced","names":{"kind":"TLSRoute","plural":"tlsroutes"},
		"versions":[{"name":"v1","served":true,"storage":true,"schema":{"openAPIV3Schema":{"type":"object"}}}]}}`
	o := &unstructured.Unstructured{}
	if err := json.Unmarshal([]byte(definition), &o.Object); err != nil {
		t.Fatal(err)
	}
	var err error
	if served {
		_, err = d.Resource(definitions).Apply(t.Context(), o.GetName(), o, metav1.ApplyOptions{FieldManager: "test", Force: true})
	} else {
		err = d.Resource(definitions).Delete(t.Context(), o.GetName(), metav1.DeleteOptions{})
	}
	if err != nil && !apierrors.IsNotFound(err) {
		t.Fatal(err)
	}
}

// short is a context for one request.
func short(t testing.TB) (context.Context, context.CancelFunc) {
	return context.WithTimeout(t.Context(), 2*time.Minute)
}
