package addons

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	kubeadmapi "k8s.io/kubernetes/cmd/kubeadm/app/apis/kubeadm"
	"k8s.io/kubernetes/cmd/kubeadm/app/phases/addons/dns"
	"k8s.io/kubernetes/cmd/kubeadm/app/phases/addons/proxy"
	"k8s.io/kubernetes/cmd/kubeadm/app/phases/bootstraptoken/clusterinfo"
	"k8s.io/kubernetes/cmd/kubeadm/app/phases/bootstraptoken/node"
	"k8s.io/kubernetes/cmd/kubeadm/app/phases/kubeconfig"
	"k8s.io/kubernetes/cmd/kubeadm/app/phases/kubelet"
	"k8s.io/kubernetes/cmd/kubeadm/app/phases/uploadconfig"
	kubeconfigutil "k8s.io/kubernetes/cmd/kubeadm/app/util/kubeconfig"
	"sigs.k8s.io/yaml"

	"github.com/stoker-k8s/stoker/pkg/api/name"
)

// recorder is the far end of a real clientset, without a network: nothing exists, and each write is kept.
type recorder struct {
	mu   sync.Mutex
	objs []*unstructured.Unstructured
}

func (r *recorder) client(t *testing.T) kubernetes.Interface {
	t.Helper()
	c, err := kubernetes.NewForConfig(&rest.Config{
		Host: "https://recorder.invalid", Transport: r, QPS: -1,
		ContentConfig: rest.ContentConfig{ContentType: runtime.ContentTypeJSON, AcceptContentTypes: runtime.ContentTypeJSON},
	})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func (r *recorder) RoundTrip(req *http.Request) (*http.Response, error) {
	answer := func(code int, body []byte) *http.Response {
		return &http.Response{
			StatusCode: code, ProtoMajor: 1, ProtoMinor: 1, Request: req,
			Header: http.Header{"Content-Type": {runtime.ContentTypeJSON}}, Body: io.NopCloser(bytes.NewReader(body)),
		}
	}
	switch {
	case req.Method == http.MethodGet && strings.HasSuffix(req.URL.Path, "/deployments"):
		return answer(http.StatusOK, []byte(`{"apiVersion":"apps/v1","kind":"DeploymentList","items":[]}`)), nil
	case req.Method == http.MethodGet:
		return answer(http.StatusNotFound, []byte(`{"apiVersion":"v1","kind":"Status","status":"Failure","reason":"NotFound","code":404}`)), nil
	}
	if got := req.Header.Get("Content-Type"); got != runtime.ContentTypeJSON {
		return nil, fmt.Errorf("recorder: content type %q", got)
	}
	body, err := io.ReadAll(req.Body)
	if err != nil {
		return nil, err
	}
	typed, _, err := scheme.Codecs.UniversalDeserializer().Decode(body, nil, nil)
	if err != nil {
		return nil, fmt.Errorf("recorder: %w", err)
	}
	o, err := untyped(typed)
	if err != nil {
		return nil, err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.objs = append(r.objs, o)
	return answer(http.StatusCreated, body), nil
}

func untyped(o runtime.Object) (*unstructured.Unstructured, error) {
	m, err := runtime.DefaultUnstructuredConverter.ToUnstructured(o)
	return &unstructured.Unstructured{Object: m}, err
}

// phases runs, as kubeadm itself does, every phase that Render stands for.
func phases(k *kubeadm, c kubernetes.Interface) error {
	init := &kubeadmapi.InitConfiguration{ClusterConfiguration: *k.cfg, LocalAPIEndpoint: *k.local}
	steps := []func() error{
		func() error { return uploadconfig.UploadConfiguration(init, c) },
		func() error { return kubelet.CreateConfigMap(k.cfg, c) },
		func() error { return node.AllowBootstrapTokensToGetNodes(c) },
		func() error { return node.AllowBootstrapTokensToPostCSRs(c) },
		func() error { return node.AutoApproveNodeBootstrapTokens(c) },
		func() error { return node.AutoApproveNodeCertificateRotation(c) },
		func() error { return node.AllowAPIServerToAccessKubeletAPI(c) },
		func() error {
			return clusterinfo.CreateBootstrapConfigMapIfNotExists(c,
				kubeconfigutil.CreateBasic("https://"+k.cfg.ControlPlaneEndpoint, "kubernetes", "", k.in.CACertPEM))
		},
		func() error { return clusterinfo.CreateClusterInfoRBACRules(c) },
		func() error {
			_, err := kubeconfig.EnsureAdminClusterRoleBindingImpl(context.Background(), c, c, time.Millisecond, time.Second)
			return err
		},
		func() error { return dns.EnsureDNSAddon(k.cfg, c, "", io.Discard, false) },
		func() error { return proxy.EnsureProxyAddon(k.cfg, k.local, c, io.Discard, false) },
	}
	for _, step := range steps {
		if err := step(); err != nil {
			return err
		}
	}
	return nil
}

func TestKubeadm(t *testing.T) {
	for _, name := range []string{"HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY", "http_proxy", "https_proxy", "no_proxy"} {
		t.Setenv(name, "") // kubeadm would copy them to kube-proxy
	}
	in := input()
	k, err := newKubeadm(in)
	if err != nil {
		t.Fatal(err)
	}
	rec := &recorder{}
	if err := phases(k, rec.client(t)); err != nil {
		t.Fatal(err)
	}
	for _, o := range rec.objs {
		clean(o)
	}
	slices.SortFunc(rec.objs, func(a, b *unstructured.Unstructured) int { return RefOf(a).compare(RefOf(b)) })

	if *update {
		var text bytes.Buffer
		text.WriteString("# What kubeadm's phases write that is the same for every tenant. Made by go generate; do not edit.\n")
		for _, o := range rec.objs {
			ours := o.GetName() != "system:coredns" && o.GetName() != "kube-proxy" && o.GetName() != "kubeadm:node-proxier"
			if !strings.Contains(o.GetAPIVersion(), "rbac") || !ours {
				continue
			}
			o = o.DeepCopy()
			o.SetLabels(nil)
			doc, err := yaml.Marshal(o.Object)
			if err != nil {
				t.Fatal(err)
			}
			text.WriteString("---\n")
			text.Write(doc)
		}
		if err := os.WriteFile("rbac.yaml", text.Bytes(), 0o644); err != nil {
			t.Fatal(err)
		}
		rbacYAML = text.Bytes()
	}

	rendered, err := Render(in)
	if err != nil {
		t.Fatal(err)
	}
	t.Run("what is rendered is what kubeadm's own phases write", func(t *testing.T) {
		want := map[string]string{}
		for _, o := range rec.objs {
			want[RefOf(o).String()] = normal(t, o)
		}
		for _, o := range rendered {
			ref := RefOf(o).String()
			if o.GetName() == name.KeptEndpoints { // kubeadm has none
				continue
			}
			if ref == "Service/kube-system/kube-dns" { // the one difference there is meant to be
				for _, field := range []string{"clusterIPs", "ipFamilyPolicy"} {
					unstructured.RemoveNestedField(o.Object, "spec", field)
				}
			}
			if got := normal(t, o); got != want[ref] {
				t.Errorf("%s:\n got %s\nwant %s", ref, got, want[ref])
			}
			delete(want, ref)
		}
		for ref := range want {
			t.Errorf("%s: kubeadm writes it, Render doesn't", ref)
		}
	})
}

// normal is o as its Go type would have it, so that 1 and "1" of a quantity, or an absent and an empty list, are equal.
func normal(t *testing.T, o *unstructured.Unstructured) string {
	t.Helper()
	typed, err := scheme.Scheme.New(o.GroupVersionKind())
	if err != nil {
		t.Fatal(err)
	}
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(o.Object, typed); err != nil {
		t.Fatal(err)
	}
	text, err := yaml.Marshal(typed)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}
