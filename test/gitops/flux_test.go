package gitops

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/yaml"

	"github.com/stoker-k8s/stoker/internal/testing/apiserver"
	"github.com/stoker-k8s/stoker/internal/testing/port"
	"github.com/stoker-k8s/stoker/local/images"
	"github.com/stoker-k8s/stoker/pkg/api/name"
	"github.com/stoker-k8s/stoker/pkg/events"
	"github.com/stoker-k8s/stoker/pkg/kube"
	"github.com/stoker-k8s/stoker/test/env"
)

const namespace = "default"

var (
	source         = schema.GroupVersion{Group: "source.toolkit.fluxcd.io", Version: "v1"}
	repositories   = kube.Resource{GroupVersion: source, Plural: "helmrepositories", Kind: "HelmRepository", Namespaced: true}
	gits           = kube.Resource{GroupVersion: source, Plural: "gitrepositories", Kind: "GitRepository", Namespaced: true}
	releases       = kube.Resource{GroupVersion: schema.GroupVersion{Group: "helm.toolkit.fluxcd.io", Version: "v2"}, Plural: "helmreleases", Kind: "HelmRelease", Namespaced: true}
	kustomizations = kube.Resource{GroupVersion: schema.GroupVersion{Group: "kustomize.toolkit.fluxcd.io", Version: "v1"}, Plural: "kustomizations", Kind: "Kustomization", Namespaced: true}
)

// TestFlux has Flux install a chart and two kustomizations in a tenant, each by another of its kubeconfigs.
func TestFlux(t *testing.T) {
	env.Long(t, "TestFromAnEventToALiveAPI uses the kubeconfigs that Flux reads; this test builds and runs Flux's controllers")
	e.Services(t)
	dir := env.Built(t, images.Flux)
	e.Manifests(t, filepath.Join(dir, images.Manifests, "config", "crd", "bases"), filepath.Join(env.Root(), "deployments", "cluster-api", "crds"),
		filepath.Join(env.Built(t, images.ClusterAPI), images.Manifests, "core", "config", "crd", "bases"))
	flux(t, dir)
	shop(t)

	charts := newCharts(t)
	charts.publish(t, "1.0.0", "first")
	git := newGit(t)
	git.commit(t, "first")
	put(t, repositories, "charts", `{interval: 2s, url: "`+charts.URL+`"}`)
	put(t, gits, "config", `{interval: 2s, url: "`+git.URL+`/config", ref: {branch: main}}`)
	put(t, releases, "baseline", `
interval: 3s
chart: {spec: {chart: baseline, version: "*", interval: 2s, sourceRef: {kind: HelmRepository, name: charts}}}
driftDetection: {mode: enabled}
targetNamespace: default
storageNamespace: default
kubeConfig: {secretRef: {name: shop-admin-kubeconfig, key: admin.conf}}`)
	for n, ref := range map[string]string{"by-service": "{name: shop-admin-kubeconfig, key: admin.svc}", "by-value": "{name: shop-kubeconfig}"} {
		put(t, kustomizations, n, `
interval: 3s
path: ./
prune: true
targetNamespace: `+n+`
sourceRef: {kind: GitRepository, name: config}
kubeConfig: {secretRef: `+ref+`}`)
	}
	inside := inside(t)
	for _, n := range []string{"by-service", "by-value"} {
		must(t, inside().Create(t.Context(), kube.Namespaces, &corev1.Namespace{TypeMeta: kube.Namespaces.TypeMeta(), ObjectMeta: metav1.ObjectMeta{Name: n}}))
	}
	all := map[string]string{"default": "baseline", "by-service": "config", "by-value": "config"} // ConfigMaps, by namespaces
	says := func(word string) {
		t.Helper()
		for in, n := range all {
			env.Eventually(t, n+" in "+in+" to say "+word, func() error {
				var o corev1.ConfigMap
				if err := inside().Get(t.Context(), kube.ConfigMaps, in, n, &o); err != nil || o.Data["word"] != word {
					return fmt.Errorf("%q, %w", o.Data["word"], err)
				}
				return nil
			})
		}
	}
	says("first")

	t.Run("what is changed or deleted in the tenant is put back", func(t *testing.T) {
		must(t, inside().MergePatch(t.Context(), kube.ConfigMaps, "default", "baseline", map[string]any{"data": map[string]any{"word": "drift"}}, nil))
		_, err := inside().Delete(t.Context(), kube.ConfigMaps, "by-service", "config", metav1.DeleteOptions{})
		must(t, err)
		must(t, inside().MergePatch(t.Context(), kube.ConfigMaps, "by-value", "config", map[string]any{"data": map[string]any{"word": "drift"}}, nil))
		says("first")
	})
	t.Run("a new authority and new certificates interrupt nothing", func(t *testing.T) {
		before := secret(t, "shop-ca").Data["ca.crt"]
		e.Kubectl(t, e.Local.Kubeconfig("admin"), "annotate", "secret", "shop-ca", name.AnnotationRotate+"=")
		env.Eventually(t, "another authority", func() error {
			if string(secret(t, "shop-ca").Data["ca.crt"]) == string(before) {
				return errors.New("it is the same")
			}
			return nil
		})
		e.Ready(t, events.Tenant(namespace, "shop"))
		charts.publish(t, "2.0.0", "second")
		git.commit(t, "second")
		says("second")
	})
	t.Run("what is taken away is taken away in the tenant", func(t *testing.T) {
		for _, o := range []struct {
			kube.Resource
			name, in string
		}{{releases, "baseline", "default"}, {kustomizations, "by-service", "by-service"}} {
			_, err := e.Admin.Delete(t.Context(), o.Resource, namespace, o.name, metav1.DeleteOptions{})
			must(t, err)
			env.Eventually(t, "the end of what "+o.name+" made", func() error {
				err := inside().Get(t.Context(), kube.ConfigMaps, o.in, all[o.in], &corev1.ConfigMap{})
				if apierrors.IsNotFound(err) {
					return nil
				}
				return errors.Join(errors.New("it is there"), err)
			})
		}
	})
	t.Run("what outlives the tenant can be deleted", func(t *testing.T) {
		put(t, releases, "late", `
interval: 1h
chart: {spec: {chart: baseline, version: "*", interval: 1h, sourceRef: {kind: HelmRepository, name: charts}}}
targetNamespace: default
storageNamespace: default
kubeConfig: {secretRef: {name: shop-admin-kubeconfig, key: admin.conf}}`)
		env.Eventually(t, "the release", func() error {
			return inside().Get(t.Context(), kube.ConfigMaps, "default", "baseline", &corev1.ConfigMap{})
		})
		_, err := e.Admin.Delete(t.Context(), kube.KamajiControlPlanes, namespace, "shop", metav1.DeleteOptions{})
		must(t, err)
		e.Gone(t, events.Tenant(namespace, "shop"))
		// kustomize-controller looks for what it is to prune, whether it can or not.
		must(t, e.Admin.MergePatch(t.Context(), kustomizations, namespace, "by-value", map[string]any{"spec": map[string]any{"prune": false}}, nil))
		for r, n := range map[kube.Resource]string{releases: "late", kustomizations: "by-value"} {
			_, err := e.Admin.Delete(t.Context(), r, namespace, n, metav1.DeleteOptions{})
			must(t, err)
			env.Eventually(t, "the end of "+n, func() error {
				err := e.Admin.Get(t.Context(), r, namespace, n, &metav1.PartialObjectMetadata{})
				if apierrors.IsNotFound(err) {
					return nil
				}
				return errors.Join(errors.New("it is there"), err)
			})
		}
	})
}

// flux starts Flux' controllers.
func flux(t *testing.T, dir string) {
	t.Helper()
	storage := port.Address(t, "127.0.0.1")
	for program, flags := range map[string][]string{
		"source-controller":    {"--storage-path=" + t.TempDir(), "--storage-addr=" + storage, "--storage-adv-addr=" + storage},
		"helm-controller":      nil,
		"kustomize-controller": nil,
	} {
		cmd := exec.Command(filepath.Join(dir, program), append(flags, "--metrics-addr=127.0.0.1:0", "--health-addr=127.0.0.1:0", "--log-level=debug")...)
		cmd.Env = append(os.Environ(), "KUBECONFIG="+e.Local.Kubeconfig("admin"), "RUNTIME_NAMESPACE="+namespace, "HTTPS_PROXY="+e.ServiceNames(t), "TMPDIR="+t.TempDir())
		e.Program(t, program, cmd)
	}
}

// shop makes the tenant, as the control plane of a Cluster, so that it has all kinds of kubeconfigs.
func shop(t *testing.T) {
	t.Helper()
	put(t, kube.Clusters, "shop", `{controlPlaneRef: {apiGroup: controlplane.cluster.x-k8s.io, kind: KamajiControlPlane, name: shop}}`)
	put(t, kube.KamajiControlPlanes, "shop", `{version: v1.36.3, replicas: 1}`)
	must(t, e.Admin.MergePatch(t.Context(), kube.KamajiControlPlanes, namespace, "shop",
		map[string]any{"metadata": map[string]any{"labels": map[string]any{name.LabelClusterName: "shop"}}}, nil)) // as Cluster API does
	e.Ready(t, events.Tenant(namespace, "shop"))
}

// inside returns what gives a client of the tenant, by its kubeconfig of now.
func inside(t *testing.T) func() *kube.Client {
	var k *kube.Client
	var by string
	return func() *kube.Client {
		if now := string(secret(t, "shop-admin-kubeconfig").Data["admin.conf"]); now != by {
			next, err := kube.FromKubeconfig([]byte(now), kube.Options{FieldManager: "test", Timeout: apiserver.Patience})
			must(t, err)
			t.Cleanup(next.Close)
			k, by = next, now
		}
		return k
	}
}

func secret(t testing.TB, n string) *corev1.Secret {
	t.Helper()
	var s corev1.Secret
	must(t, e.Admin.Get(t.Context(), kube.Secrets, namespace, n, &s))
	return &s
}

// put applies an object with a spec.
func put(t testing.TB, r kube.Resource, n, spec string) {
	t.Helper()
	var of any
	must(t, yaml.Unmarshal([]byte(spec), &of))
	body, err := json.Marshal(map[string]any{
		"apiVersion": r.GroupVersion.String(), "kind": r.Kind, "metadata": map[string]any{"name": n, "namespace": namespace}, "spec": of,
	})
	must(t, err)
	must(t, e.Admin.ApplyRaw(t.Context(), r, namespace, n, body, nil))
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
