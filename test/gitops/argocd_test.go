package gitops

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/yaml"

	"github.com/stoker-k8s/stoker/internal/testing/apiserver"
	"github.com/stoker-k8s/stoker/internal/testing/port"
	"github.com/stoker-k8s/stoker/local/images"
	"github.com/stoker-k8s/stoker/pkg/api/name"
	"github.com/stoker-k8s/stoker/pkg/api/reason"
	"github.com/stoker-k8s/stoker/pkg/events"
	"github.com/stoker-k8s/stoker/pkg/kube"
	"github.com/stoker-k8s/stoker/test/env"
)

const argoNamespace = "argocd"

var (
	argo            = schema.GroupVersion{Group: "argoproj.io", Version: "v1alpha1"}
	applications    = kube.Resource{GroupVersion: argo, Plural: "applications", Kind: "Application", Namespaced: true}
	applicationSets = kube.Resource{GroupVersion: argo, Plural: "applicationsets", Kind: "ApplicationSet", Namespaced: true}
)

// TestArgoCD has Argo CD's own controllers find a tenant by its labels and install software in it, by the cluster that Stoker makes of it.
func TestArgoCD(t *testing.T) {
	env.Long(t, "TestClustersOfArgoCD in services/certs shows the Secrets that Argo CD reads; this test builds and runs Argo CD")
	argoCD(t)
	t.Setenv("STOKER_ARGOCD_NAMESPACE", argoNamespace)
	t.Setenv("STOKER_ARGOCD_PROJECT", "tenants")
	t.Setenv("STOKER_ARGOCD_LABELS", "tier")
	e.NoServices(t)
	e.Services(t)
	t.Cleanup(func() { e.NoServices(t) })

	key := events.Tenant(namespace, "stall")
	o := env.Tenant(key.Name, "v1.36.3")
	o.Labels = map[string]string{"tier": "gold"}
	o.Annotations = map[string]string{name.AnnotationArgoCDCluster: "true"}
	e.Apply(t, o)
	git := newGit(t)
	git.commit(t, "first")
	for _, n := range []string{"gold", "silver"} {
		applyIn(t, argoNamespace, applicationSet(git.URL, n))
	}
	e.Ready(t, key)
	word := func(want string) {
		t.Helper()
		env.Eventually(t, "the tenant to say "+want, func() error {
			k, err := kube.FromKubeconfig(secret(t, "stall-admin-kubeconfig").Data["admin.conf"], kube.Options{FieldManager: "test", Timeout: apiserver.Patience})
			if err != nil {
				return err
			}
			defer k.Close()
			var c corev1.ConfigMap
			if err := k.Get(t.Context(), kube.ConfigMaps, "default", "config", &c); err != nil || c.Data["word"] != want {
				return fmt.Errorf("%q, %w; %s", c.Data["word"], err, argoSays(t))
			}
			return nil
		})
	}
	word("first")
	if o := e.Ready(t, key); !meta.IsStatusConditionTrue(o.Status.Conditions, "ArgoCDRegistered") {
		t.Errorf("%+v", o.Status.Conditions)
	}

	t.Run("who selects by a label gets the tenants that have it", func(t *testing.T) {
		if err := e.Admin.Get(t.Context(), applications, argoNamespace, "silver-default.stall", &metav1.PartialObjectMetadata{}); !apierrors.IsNotFound(err) {
			t.Errorf("silver: %v", err)
		}
	})
	t.Run("a new authority and new certificates interrupt nothing", func(t *testing.T) {
		before := secret(t, "stall-ca").Data["ca.crt"]
		e.Kubectl(t, e.Local.Kubeconfig("admin"), "annotate", "secret", "stall-ca", name.AnnotationRotate+"=")
		env.Eventually(t, "another authority", func() error {
			if string(secret(t, "stall-ca").Data["ca.crt"]) == string(before) {
				return errors.New("it is the same")
			}
			return nil
		})
		e.Ready(t, key)
		git.commit(t, "second")
		word("second")
	})
	t.Run("what is changed in Argo CD's namespace is put back", func(t *testing.T) {
		n := name.ArgoCDCluster(key.Namespace, key.Name)
		must(t, e.Admin.MergePatch(t.Context(), kube.Secrets, argoNamespace, n, map[string]any{"data": map[string]any{"server": []byte("https://192.0.2.1:6443")}}, nil))
		env.Eventually(t, "the server", func() error {
			var o corev1.Secret
			if err := e.Admin.Get(t.Context(), kube.Secrets, argoNamespace, n, &o); err != nil || string(o.Data["server"]) == "https://192.0.2.1:6443" {
				return fmt.Errorf("%s, %w", o.Data["server"], err)
			}
			return nil
		})
		git.commit(t, "third")
		word("third")
	})
	t.Run("another cluster of that address is told", func(t *testing.T) {
		e.Apply(t, env.Tenant("double", "v1.36.3"))
		other := events.Tenant(namespace, "double")
		double := e.Ready(t, other)
		must(t, e.Admin.Create(t.Context(), kube.Secrets, &corev1.Secret{
			TypeMeta:   kube.Secrets.TypeMeta(),
			ObjectMeta: metav1.ObjectMeta{Namespace: argoNamespace, Name: "mine", Labels: map[string]string{name.LabelArgoCDSecretType: name.ArgoCDSecretCluster}},
			Data:       map[string][]byte{"name": []byte("mine"), "server": []byte("https://" + double.Status.ControlPlaneEndpoint), "config": []byte("{}")},
		}))
		e.Kubectl(t, e.Local.Kubeconfig("admin"), "annotate", "tcp", "double", name.AnnotationArgoCDCluster+"=true")
		env.Eventually(t, "the condition", func() error {
			o := e.Ready(t, other)
			if c := meta.FindStatusCondition(o.Status.Conditions, "ArgoCDRegistered"); c == nil || c.Reason != reason.ArgoCDClusterTaken {
				return fmt.Errorf("%+v", c)
			}
			return nil
		})
		e.Delete(t, other)
		e.Gone(t, other)
	})
	t.Run("with the tenant, its cluster and what was made for it go", func(t *testing.T) {
		e.Delete(t, key)
		e.Gone(t, key)
		if err := e.Admin.Get(t.Context(), kube.Secrets, argoNamespace, name.ArgoCDCluster(key.Namespace, key.Name), &corev1.Secret{}); !apierrors.IsNotFound(err) {
			t.Errorf("the cluster is there: %v", err)
		}
		env.Eventually(t, "the end of the Application", func() error {
			err := e.Admin.Get(t.Context(), applications, argoNamespace, "gold-default.stall", &metav1.PartialObjectMetadata{})
			if apierrors.IsNotFound(err) {
				return nil
			}
			return errors.Join(errors.New("it is there"), err)
		})
	})
}

// applicationSet installs a repository in all tenants of a tier, as docs/gitops.md has it.
func applicationSet(url, tier string) string {
	return `
apiVersion: argoproj.io/v1alpha1
kind: ApplicationSet
metadata: {name: ` + tier + `}
spec:
  goTemplate: true
  generators:
    - clusters:
        selector:
          matchExpressions: [{key: stoker.dev/tenant, operator: Exists}]
          matchLabels: {tier: ` + tier + `}
  template:
    metadata:
      name: '` + tier + `-{{index .metadata.labels "stoker.dev/tenant-namespace"}}.{{index .metadata.labels "stoker.dev/tenant"}}'
    spec:
      project: tenants
      source: {repoURL: "` + url + `/config", targetRevision: main, path: .}
      destination: {server: '{{.server}}', namespace: default}
      syncPolicy:
        automated: {prune: true, selfHeal: true}
`
}

// argoSays is what Argo CD says of its Applications.
func argoSays(t testing.TB) string {
	var all unstructured.UnstructuredList
	if err := e.Admin.List(t.Context(), applications, argoNamespace, "", &all); err != nil {
		return err.Error()
	}
	text := fmt.Sprint(len(all.Items), " Applications")
	for i := range all.Items {
		says, err := json.Marshal(all.Items[i].Object["status"])
		text += fmt.Sprintf("; %s: %s, %v", all.Items[i].GetName(), says, err)
	}
	return text
}

// argoCD starts Argo CD: its definitions, its settings, and of its components those that nobody has to log in at.
func argoCD(t *testing.T) {
	t.Helper()
	dir := env.Built(t, images.ArgoCD)
	crds := t.TempDir()
	for _, n := range []string{"application", "applicationset", "appproject"} {
		data, err := os.ReadFile(filepath.Join(dir, images.Manifests, "manifests", "crds", n+"-crd.yaml"))
		must(t, err)
		must(t, os.WriteFile(filepath.Join(crds, n+".yaml"), data, 0o600))
	}
	must(t, e.Admin.Apply(t.Context(), kube.Namespaces, &corev1.Namespace{TypeMeta: kube.Namespaces.TypeMeta(), ObjectMeta: metav1.ObjectMeta{Name: argoNamespace}}))
	e.Manifests(t, crds, filepath.Join(env.Root(), "deployments", "rbac-argocd"))
	part := map[string]string{"app.kubernetes.io/part-of": "argocd"}
	must(t, e.Admin.Apply(t.Context(), kube.ConfigMaps, &corev1.ConfigMap{
		TypeMeta: kube.ConfigMaps.TypeMeta(), ObjectMeta: metav1.ObjectMeta{Namespace: argoNamespace, Name: "argocd-cm", Labels: part},
		Data: map[string]string{"timeout.reconciliation": "3s", "timeout.reconciliation.jitter": "0s"},
	}))
	must(t, e.Admin.Apply(t.Context(), kube.Secrets, &corev1.Secret{
		TypeMeta: kube.Secrets.TypeMeta(), ObjectMeta: metav1.ObjectMeta{Namespace: argoNamespace, Name: "argocd-secret", Labels: part},
		Data: map[string][]byte{"server.secretkey": []byte("of this test")},
	}))
	applyIn(t, argoNamespace, `
apiVersion: argoproj.io/v1alpha1
kind: AppProject
metadata: {name: tenants}
spec:
  sourceRepos: ["*"]
  destinations: [{server: "*", namespace: "*"}]
  permitOnlyProjectScopedClusters: true
`)

	redis := newRedis(t)
	repositoryPort := strconv.Itoa(port.Free(t))
	repositories := "127.0.0.1:" + repositoryPort
	component := func(n string, flags ...string) {
		cmd := exec.Command(filepath.Join(dir, "argocd"), flags...)
		home := t.TempDir()
		cmd.Env = append(os.Environ(), "ARGOCD_BINARY_NAME="+n, "KUBECONFIG="+e.Local.Kubeconfig("admin"), "ARGOCD_FAKE_IN_CLUSTER=true", "HOME="+home, "TMPDIR="+home,
			"ARGOCD_GPG_ENABLED=false", "ARGOCD_ASK_PASS_SOCK="+filepath.Join(home, "ask-pass.sock"), "ARGOCD_APPLICATION_NAMESPACES=",
			"ARGOCD_RECONCILIATION_TIMEOUT=3s", "ARGOCD_RECONCILIATION_JITTER=0s")
		e.Program(t, n, cmd)
	}
	kubeconfig := []string{"--kubeconfig=" + e.Local.Kubeconfig("admin"), "--namespace=" + argoNamespace}
	component("argocd-repo-server", "--address=127.0.0.1", "--port="+repositoryPort, "--metrics-address=127.0.0.1", "--metrics-port="+strconv.Itoa(port.Free(t)), "--disable-tls",
		"--redis="+redis.Addr(), "--revision-cache-expiration=1s")
	component("argocd-application-controller", append(kubeconfig, "--repo-server="+repositories, "--repo-server-plaintext", "--redis="+redis.Addr(),
		"--metrics-port="+strconv.Itoa(port.Free(t)))...)
	component("argocd-applicationset-controller", append(kubeconfig, "--argocd-repo-server="+repositories, "--repo-server-plaintext",
		"--metrics-addr="+port.Address(t, "127.0.0.1"), "--probe-addr="+port.Address(t, "127.0.0.1"), "--webhook-addr="+port.Address(t, "127.0.0.1"))...)
}

// newRedis is a Redis in which time passes, so that what Argo CD keeps there for a while it forgets.
func newRedis(t *testing.T) *miniredis.Miniredis {
	t.Helper()
	redis, tick := miniredis.RunT(t), time.NewTicker(time.Second)
	go func() {
		for {
			select {
			case <-t.Context().Done():
				tick.Stop()
				return
			case <-tick.C:
				redis.FastForward(time.Second)
			}
		}
	}()
	return redis
}

// applyIn applies an object of Argo CD in a namespace.
func applyIn(t *testing.T, in, text string) {
	t.Helper()
	var o unstructured.Unstructured
	must(t, yaml.Unmarshal([]byte(text), &o.Object))
	o.SetNamespace(in)
	r := map[string]kube.Resource{"ApplicationSet": applicationSets}[o.GetKind()]
	if r.Kind == "" {
		r = kube.Resource{GroupVersion: argo, Plural: "appprojects", Kind: "AppProject", Namespaced: true}
	}
	body, err := json.Marshal(o.Object)
	must(t, err)
	must(t, e.Admin.ApplyRaw(t.Context(), r, in, o.GetName(), body, nil))
}
