package intake

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"

	"github.com/stoker-k8s/stoker/pkg/api/name"
	"github.com/stoker-k8s/stoker/pkg/kube"
	"github.com/stoker-k8s/stoker/test/env"
)

// The remote API is the same server here, and its objects are told from local ones by suffixes.
func TestARemoteSource(t *testing.T) {
	e.Manifests(t, filepath.Join(env.Root(), "deployments", "rbac-remote"))
	rules := documented(t)
	kubeconfig, written := follower(t, rules)
	e.NoServices(t)
	for flag, value := range map[string]string{
		"KUBECONFIG": kubeconfig, "SUFFIX": "-remote", "NAMESPACE_SUFFIX": "-local", "NAMESPACES": "true", "SECRETS": "{name}-admin-kubeconfig",
		"SECRET_RIGHTS": "create,watch", "NAMESPACE_PREFIX": "",
	} {
		t.Setenv("STOKER_REMOTE_"+flag, value)
	}
	t.Cleanup(func() { e.NoServices(t) })
	if err := os.WriteFile(kubeconfig, bytes.ReplaceAll(written, []byte("token: "), []byte("tokenFile: ")), 0o600); err != nil {
		t.Fatal(err)
	}
	intake := e.Service(t, name.ServiceIntake, "a")
	env.Eventually(t, "a kubeconfig that can't be used to be told, and to count as an outage", func() error {
		log, err := os.ReadFile(intake.Log())
		if err == nil && !bytes.Contains(log, []byte("users[].user.tokenFile")) {
			err = errors.New("the log doesn't say it")
		}
		if err != nil {
			return err
		}
		metrics, err := intake.Metrics(t.Context())
		if err == nil && !strings.Contains(metrics, `stoker_mirror_up{service="intake",side="remote"} 0`) {
			err = errors.New("it is no outage")
		}
		return err
	})
	if err := os.WriteFile(kubeconfig, written, 0o600); err != nil {
		t.Fatal(err)
	}
	ns := &corev1.Namespace{TypeMeta: kube.Namespaces.TypeMeta(), ObjectMeta: metav1.ObjectMeta{Name: "mirrored"}}
	if err := e.Admin.Create(t.Context(), kube.Namespaces, ns); err != nil {
		t.Fatal(err)
	}
	o := &unstructured.Unstructured{Object: env.JSON(t, env.Tenant("demo-remote", "v1.36.3"))}
	delete(o.Object, "status")
	o.SetNamespace("mirrored")
	o.SetGroupVersionKind(kube.TenantControlPlanes.GroupVersion.WithKind(kube.TenantControlPlanes.Kind))
	if err := e.Admin.Create(t.Context(), kube.TenantControlPlanes, o); err != nil {
		t.Fatal(err)
	}
	for _, ns := range []string{"kube-mirrored", "kube-mirrored-local"} {
		if err := e.Admin.Create(t.Context(), kube.Namespaces, &corev1.Namespace{TypeMeta: kube.Namespaces.TypeMeta(), ObjectMeta: metav1.ObjectMeta{Name: ns}}); err != nil {
			t.Fatal(err)
		}
	}
	forbidden := o.DeepCopy()
	forbidden.SetResourceVersion("")
	forbidden.SetUID("")
	forbidden.SetNamespace("kube-mirrored")
	if err := e.Admin.Create(t.Context(), kube.TenantControlPlanes, forbidden); err != nil {
		t.Fatal(err)
	}
	local := awaitObject(t, "mirrored-local", "demo", func(o *unstructured.Unstructured) bool { return len(o.GetFinalizers()) > 0 })
	endpoint := func(o *unstructured.Unstructured) string {
		s, _, _ := unstructured.NestedString(o.Object, "status", "controlPlaneEndpoint")
		return s
	}
	put := func(value string) {
		t.Helper()
		if err := e.Admin.MergePatch(t.Context(), kube.TenantControlPlanes, "mirrored-local", "demo", map[string]any{
			"status": map[string]any{"controlPlaneEndpoint": value},
		}, nil, "status"); err != nil {
			t.Fatal(err)
		}
	}
	tell := func(value string) {
		t.Helper()
		put(value)
		awaitObject(t, "mirrored", "demo-remote", func(o *unstructured.Unstructured) bool { return endpoint(o) == value })
	}
	tell("192.0.2.1:6443")
	secret := &corev1.Secret{
		TypeMeta: kube.Secrets.TypeMeta(), Data: map[string][]byte{"admin.conf": []byte("x")}, ObjectMeta: metav1.ObjectMeta{
			Namespace: "mirrored-local", Name: "demo-admin-kubeconfig",
			OwnerReferences: []metav1.OwnerReference{*metav1.NewControllerRef(local, local.GroupVersionKind())},
		},
	}
	if err := e.Admin.Create(t.Context(), kube.Secrets, secret); err != nil {
		t.Fatal(err)
	}
	env.Eventually(t, "the Secret up", func() error {
		return e.Admin.Get(t.Context(), kube.Secrets, "mirrored", "demo-admin-kubeconfig-remote", &corev1.Secret{})
	})
	t.Run("another kubeconfig is read", func(t *testing.T) {
		if err := os.WriteFile(kubeconfig, append(slices.Clone(written), '\n'), 0o600); err != nil {
			t.Fatal(err)
		}
		tell("192.0.2.2:6443")
		env.Eventually(t, "the log says so", func() error {
			log, err := os.ReadFile(intake.Log())
			if err == nil && !bytes.Contains(log, []byte("kubeconfig has changed")) {
				err = errors.New("not yet")
			}
			return err
		})
		tell("192.0.2.3:6443")
	})
	err := e.Admin.Get(t.Context(), kube.TenantControlPlanes, "kube-mirrored-local", "demo", &metav1.PartialObjectMetadata{})
	if !apierrors.IsNotFound(err) {
		t.Errorf("in a forbidden namespace: %v", err)
	}
	env.Eventually(t, "the metrics to count the object", func() error { // the mirror counts at the end of a turn, after it wrote the status
		metrics, err := intake.Metrics(t.Context())
		if err == nil && (!strings.Contains(metrics, `stoker_mirror_up{service="intake",side="remote"} 1`) ||
			!strings.Contains(metrics, `stoker_mirror_objects{kind="TenantControlPlane",service="intake",state="synced"} 1`)) {
			err = errors.New(metrics)
		}
		return err
	})
	t.Run("rights that lack there are told there, and missed as long as they lack", func(t *testing.T) {
		grant(t, slices.DeleteFunc(slices.Clone(rules), func(r rbacv1.PolicyRule) bool { return slices.Contains(r.Resources, "tenantcontrolplanes/status") }))
		last, tries := "", 0
		env.Eventually(t, "a refusal, once the right is gone", func() error {
			last = fmt.Sprintf("192.0.2.4:%d", 6443+tries)
			tries++
			put(last) // another each time, for what came up before the right was gone isn't written again
			o := awaitObject(t, "mirrored", "demo-remote", func(*unstructured.Unstructured) bool { return true })
			why := o.GetAnnotations()[name.Mirror(name.MirrorDomain).Message]
			if !strings.Contains(why, "forbidden") || !strings.Contains(why, "the status of TenantControlPlane mirrored-local/demo") {
				return fmt.Errorf("it says %q", why)
			}
			return nil
		})
		env.Eventually(t, "the metric of what failed", func() error {
			metrics, err := intake.Metrics(t.Context())
			if series := `stoker_mirror_objects{kind="TenantControlPlane",service="intake",state="failed"} 1`; err == nil && !strings.Contains(metrics, series) {
				err = fmt.Errorf("no %s in metrics", series)
			}
			return err
		})
		grant(t, rules)
		awaitObject(t, "mirrored", "demo-remote", func(o *unstructured.Unstructured) bool {
			return endpoint(o) == last && o.GetAnnotations()[name.Mirror(name.MirrorDomain).Message] == ""
		})
	})
	t.Run("another replica takes its part, and all of it once the first is killed", func(t *testing.T) {
		other := e.Service(t, name.ServiceIntake, "b")
		holds := func(partitions int) {
			t.Helper()
			env.Eventually(t, fmt.Sprintf("%d partitions", partitions), func() error {
				if n := len(other.Held(t)); n != partitions {
					return fmt.Errorf("it holds %d", n)
				}
				return nil
			})
		}
		holds(name.Partitions / 2)
		tell("192.0.2.5:6443")
		intake.Kill()
		holds(name.Partitions)
		tell("192.0.2.6:6443")
	})
	if _, err := e.Admin.Delete(t.Context(), kube.TenantControlPlanes, "mirrored", "demo-remote", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	awaitObject(t, "mirrored-local", "demo", func(o *unstructured.Unstructured) bool { return o.GetDeletionTimestamp() != nil })
	there := awaitObject(t, "mirrored", "demo-remote", func(o *unstructured.Unstructured) bool { return o.GetDeletionTimestamp() != nil })
	if !slices.Contains(there.GetFinalizers(), name.Mirror(name.MirrorDomain).Finalizer) {
		t.Errorf("the remote object isn't held until the local one is gone: %v", there.GetFinalizers())
	}
	t.Run("with a watch filter nothing is followed but what has its label", func(t *testing.T) {
		e.NoServices(t)
		create := func(n string, labels map[string]string) {
			t.Helper()
			o := o.DeepCopy()
			o.SetResourceVersion("")
			o.SetUID("")
			o.SetName(n + "-remote")
			o.SetLabels(labels)
			if err := e.Admin.Create(t.Context(), kube.TenantControlPlanes, o); err != nil {
				t.Fatal(err)
			}
		}
		create("plain", nil)
		create("green", map[string]string{name.LabelWatchFilter: "green"})
		t.Setenv("STOKER_WATCH_FILTER", "blue")
		e.Service(t, name.ServiceIntake, "a")
		// Were the others followed, they would be here before what is made once the first of its colour is.
		for _, n := range []string{"blue", "later"} {
			create(n, map[string]string{name.LabelWatchFilter: "blue"})
			awaitObject(t, "mirrored-local", n, func(o *unstructured.Unstructured) bool {
				return o.GetLabels()[name.LabelWatchFilter] == "blue" && len(o.GetFinalizers()) > 0
			})
		}
		for _, n := range []string{"plain", "green"} {
			err := e.Admin.Get(t.Context(), kube.TenantControlPlanes, "mirrored-local", n, &metav1.PartialObjectMetadata{})
			if there := awaitObject(t, "mirrored", n+"-remote", func(*unstructured.Unstructured) bool { return true }); !apierrors.IsNotFound(err) || len(there.GetFinalizers()) > 0 {
				t.Errorf("%s: %v, finalizers %v", n, err, there.GetFinalizers())
			}
		}
	})
}

// documented are the rights at the remote API that the documents ask for, for the Secret of the tenant demo, and with all the rights to Secrets.
func documented(t *testing.T) []rbacv1.PolicyRule {
	t.Helper()
	doc, err := os.ReadFile(filepath.Join(env.Root(), "docs", "remote-source.md"))
	if err != nil {
		t.Fatal(err)
	}
	_, after, _ := strings.Cut(string(doc), "```yaml\n")
	text, _, _ := strings.Cut(after, "```")
	role := rbacv1.ClusterRole{}
	if err := yaml.UnmarshalStrict([]byte(text), &role); err != nil || len(role.Rules) == 0 {
		t.Fatalf("%v in\n%s", err, text)
	}
	for i, r := range role.Rules {
		if len(r.ResourceNames) > 0 {
			role.Rules[i].ResourceNames = []string{"demo-admin-kubeconfig-remote"}
		}
	}
	return append(role.Rules, rbacv1.PolicyRule{APIGroups: []string{""}, Resources: []string{"secrets"}, Verbs: []string{"create", "list", "watch"}})
}

// follower makes an account at the remote API with these rights and no other, and a kubeconfig of it in a file.
func follower(t *testing.T, rules []rbacv1.PolicyRule) (file string, kubeconfig []byte) {
	t.Helper()
	admin := e.Local.Kubeconfig("admin")
	grant(t, rules)
	e.Kubectl(t, admin, "create", "serviceaccount", "follower", "-n", "default")
	e.Kubectl(t, admin, "create", "clusterrolebinding", "follower", "--clusterrole=follower", "--serviceaccount=default:follower")
	kubeconfig, _ = env.Through(t, admin, strings.TrimSpace(e.Kubectl(t, admin, "create", "token", "follower", "-n", "default")))
	file = filepath.Join(t.TempDir(), "kubeconfig")
	if err := os.WriteFile(file, kubeconfig, 0o600); err != nil {
		t.Fatal(err)
	}
	return file, kubeconfig
}

// grant gives the account of [follower] these rights, and takes all others.
func grant(t *testing.T, rules []rbacv1.PolicyRule) {
	t.Helper()
	role := &rbacv1.ClusterRole{TypeMeta: kube.ClusterRoles.TypeMeta(), ObjectMeta: metav1.ObjectMeta{Name: "follower"}, Rules: rules}
	if err := e.Admin.Apply(t.Context(), kube.ClusterRoles, role); err != nil {
		t.Fatal(err)
	}
}

func awaitObject(t *testing.T, namespace, n string, is func(*unstructured.Unstructured) bool) *unstructured.Unstructured {
	t.Helper()
	o := &unstructured.Unstructured{}
	env.Eventually(t, n, func() error {
		if err := e.Admin.Get(t.Context(), kube.TenantControlPlanes, namespace, n, o); err != nil {
			return err
		}
		if !is(o) {
			return fmt.Errorf("%v", o.Object)
		}
		return nil
	})
	return o
}
