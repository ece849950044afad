package e2e

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"net"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/stoker-k8s/stoker/local/images"
	"github.com/stoker-k8s/stoker/pkg/api/event"
	"github.com/stoker-k8s/stoker/pkg/api/name"
	"github.com/stoker-k8s/stoker/pkg/api/reason"
	"github.com/stoker-k8s/stoker/pkg/api/v1alpha1"
	"github.com/stoker-k8s/stoker/pkg/events"
	"github.com/stoker-k8s/stoker/pkg/kube"
	"github.com/stoker-k8s/stoker/pkg/portal"
	"github.com/stoker-k8s/stoker/test/env"
)

// TestNodes has machines join a tenant as far as they can without a kubelet: kubeadm finds the tenant by the command that stoker prints,
// trusts it by the hash and the token's signature, and reads its configuration with the token.
func TestNodes(t *testing.T) {
	e.Services(t)
	key := events.Tenant("default", "nodes")
	o := env.Tenant(key.Name, "v1.36.3")
	o.Spec.Kubernetes.Kubelet.ConfigurationJSONPatches = []v1alpha1.JSONPatch{
		{Op: "remove", Path: "/imagePullCredentialsVerificationPolicy"}, {Op: "remove", Path: "/nothing"},
	}
	e.Apply(t, o)
	t.Run("a patch of the kubelet's configuration that fails keeps the tenant from Ready, and is named", func(t *testing.T) {
		env.Eventually(t, "the patch to be named", func() error {
			var now v1alpha1.TenantControlPlane
			if err := e.Admin.Get(t.Context(), kube.TenantControlPlanes, key.Namespace, key.Name, &now); err != nil {
				return err
			}
			stalled := meta.FindStatusCondition(now.Status.Conditions, "Stalled")
			named := `configurationJSONPatches[1]: remove "/nothing"`
			if stalled == nil || stalled.Reason != reason.InvalidKubeletPatch || !strings.Contains(stalled.Message, named) {
				return fmt.Errorf("%v", stalled)
			}
			return nil
		})
	})
	o.Spec.Kubernetes.Kubelet.ConfigurationJSONPatches[1] = v1alpha1.JSONPatch{Op: "test", Path: "/maxPods"}
	o.Spec.Kubernetes.Kubelet.ConfigurationJSONPatches[1].Value = &runtime.RawExtension{Raw: []byte("110")}
	o.Annotations = map[string]string{name.AnnotationKubeletServing: name.KubeletServingApprove}
	e.Apply(t, o)
	e.Ready(t, key)
	kubeconfig := e.Kubeconfig(t, key)

	var join struct {
		Command, Token string
		CACertHashes   []string
		Expires        time.Time
	}
	stoker := func(t *testing.T, args ...string) string {
		t.Helper()
		cmd := exec.CommandContext(t.Context(), e.StokerBin(), append(args, "--kubeconfig", e.Local.Kubeconfig("admin"))...)
		var errs bytes.Buffer
		cmd.Stderr = &errs
		out, err := cmd.Output()
		if err != nil {
			t.Fatalf("stoker %s: %v\n%s", strings.Join(args, " "), err, errs.String())
		}
		return string(out)
	}
	t.Run("stoker join-command makes a token that ends", func(t *testing.T) {
		if err := json.Unmarshal([]byte(stoker(t, "join-command", key.Name, "--ttl", "15m", "-o", "json")), &join); err != nil {
			t.Fatal(err)
		}
		out := e.Kubectl(t, kubeconfig, "-n", "kube-system", "get", "secret", "bootstrap-token-"+join.Token[:6], "-o", "json")
		var secret corev1.Secret
		if err := json.Unmarshal([]byte(out), &secret); err != nil {
			t.Fatal(err)
		}
		ends := string(secret.Data["expiration"])
		if secret.Type != corev1.SecretTypeBootstrapToken || ends != join.Expires.Format(time.RFC3339) || time.Until(join.Expires) > 15*time.Minute {
			t.Errorf("type %s, ends %s, told %s", secret.Type, ends, join.Expires)
		}
		list := e.Kubeadm(t, kubeconfig, "token", "list", "--kubeconfig", kubeconfig)
		if !strings.Contains(list, join.Token) || !strings.Contains(list, "authentication,signing") {
			t.Error(list)
		}
		plain := regexp.MustCompile(`^kubeadm join [0-9.]+:[0-9]+ --token [a-z0-9]{6}\.[a-z0-9]{16} --discovery-token-ca-cert-hash sha256:[0-9a-f]{64}\n$`)
		if out := stoker(t, "join-command", key.Name); !plain.MatchString(out) {
			t.Errorf("%q", out)
		}
	})
	t.Run("a portal is told how to join, and nobody else", func(t *testing.T) { joinByPortal(t, key, kubeconfig) })
	for _, version := range []string{"v1.36.3", "v1.35.4"} {
		t.Run("kubeadm "+version+" finds the tenant, trusts it, and reads its configuration", func(t *testing.T) {
			if out, err := preflight(t, version, strings.Fields(join.Command)[2:]...); err != nil {
				t.Error(err, out)
			}
		})
	}
	t.Run("without the token's secret, or with another authority's hash, it doesn't", func(t *testing.T) {
		zeros := strings.Repeat("0", 64)
		for right, wrong := range map[string]string{join.Token: join.Token[:7] + zeros[:16], join.CACertHashes[0]: "sha256:" + zeros} {
			args := strings.Fields(strings.ReplaceAll(join.Command, right, wrong))[2:]
			if out, err := preflight(t, "v1.36.3", args...); err == nil || !strings.Contains(out, "couldn't validate the identity of the API Server") {
				t.Errorf("%v: %v\n%s", args, err, out)
			}
		}
	})
	t.Run("with the token, a node reads what its kubelet starts with", func(t *testing.T) {
		cfg, err := clientcmd.LoadFromFile(kubeconfig)
		if err != nil {
			t.Fatal(err)
		}
		for user := range cfg.AuthInfos {
			cfg.AuthInfos[user] = &clientcmdapi.AuthInfo{Token: join.Token}
		}
		bootstrap := filepath.Join(t.TempDir(), "kubeconfig")
		if err := clientcmd.WriteToFile(*cfg, bootstrap); err != nil {
			t.Fatal(err)
		}
		out := e.Kubectl(t, bootstrap, "-n", "kube-system", "get", "cm", "kubelet-config", "-o", "jsonpath={.data.kubelet}")
		if !strings.Contains(out, "serverTLSBootstrap: true") || strings.Contains(out, "imagePullCredentialsVerificationPolicy") {
			t.Error(out)
		}
	})
	t.Run("a kubelet's serving certificate is approved and signed", func(t *testing.T) { servingCertificate(t, kubeconfig) })
}

// joinByPortal asks as portals do, while the operator, who hears everything, listens.
func joinByPortal(t *testing.T, key events.Key, kubeconfig string) {
	seed, err := nats.NkeyOptionFromSeed(e.NATS.SeedFile(events.UserPortal))
	if err != nil {
		t.Fatal(err)
	}
	nc, err := nats.Connect(e.NATS.URL(), seed, nats.Timeout(time.Minute))
	if err != nil {
		t.Fatal(err)
	}
	defer nc.Close()
	c, err := portal.New(nc, "/test")
	if err != nil {
		t.Fatal(err)
	}
	heard := make(chan *nats.Msg, 1000)
	overheard, err := e.Operator.Conn().ChanSubscribe("stoker.>", heard)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { must(t, overheard.Unsubscribe()) })
	j, err := c.Join(t.Context(), key.Namespace, key.Name, time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	if out, err := preflight(t, "v1.36.3", strings.Fields(j.Command)[2:]...); err != nil {
		t.Error(err, out)
	}
	list := e.Kubeadm(t, kubeconfig, "token", "list", "--kubeconfig", kubeconfig)
	if left := time.Until(j.Expires); !strings.Contains(list, j.Token) || left > time.Hour || left < 50*time.Minute {
		t.Errorf("ends %s\n%s", j.Expires, list)
	}
	for key.JoinSubject() != (<-heard).Subject { // the question is heard, so that no token in what else there was means something
	}
	for len(heard) > 0 {
		if m := <-heard; bytes.Contains(m.Data, []byte(j.Token[7:])) {
			t.Errorf("the token was published on %s", m.Subject)
		}
	}
	const somebody = "age1lvyvwawkr0mcnnnncaghunadrqkmuf9e6507x9y920xxpp866cnql7dp2z"
	for _, wrong := range []struct {
		tenant string
		query  event.JoinQuery
		code   string
	}{
		{"nobody", event.JoinQuery{Recipient: somebody}, "404"},
		{key.Name, event.JoinQuery{Recipient: "age1"}, "400"},
		{key.Name, event.JoinQuery{Recipient: somebody, ExpirationSeconds: 1}, "400"},
	} {
		var refusal *events.Refusal
		_, err := events.Ask[event.JoinReply](t.Context(), nc, events.Tenant(key.Namespace, wrong.tenant).JoinSubject(), wrong.query)
		if !errors.As(err, &refusal) || refusal.Code != wrong.code {
			t.Errorf("%+v: %v", wrong, err)
		}
	}
}

// preflight has kubeadm of a version do what it does first on a machine that joins. It changes nothing on this one, whatever this one lacks.
func preflight(t *testing.T, version string, args ...string) (string, error) {
	t.Helper()
	store, err := images.Open(env.Root())
	if err != nil {
		t.Fatal(err)
	}
	programs, err := store.Build(t.Context(), "kubernetes-"+version, nil)
	if err != nil {
		t.Fatal(err)
	}
	args = append([]string{"join", "phase", "preflight"}, args...)
	out, err := exec.CommandContext(t.Context(), filepath.Join(programs, "kubeadm"), append(args,
		"--ignore-preflight-errors=all", "--node-name=worker", "--cri-socket=unix:///run/containerd/containerd.sock")...).CombinedOutput()
	return string(out), err
}

// servingCertificate asks for a certificate as the kubelet of a node would.
func servingCertificate(t *testing.T, kubeconfig string) {
	apply := func(o any, args ...string) {
		t.Helper()
		text, err := json.Marshal(o)
		if err != nil {
			t.Fatal(err)
		}
		args = append([]string{"create", "-f", "-"}, args...)
		if out, err := e.TryKubectl(t.Context(), kubeconfig, bytes.NewReader(text), args...); err != nil {
			t.Fatal(err, out)
		}
	}
	apply(&corev1.Node{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Node"}, ObjectMeta: metav1.ObjectMeta{Name: "worker"}})
	e.Kubectl(t, kubeconfig, "patch", "node", "worker", "--subresource=status", "--type=merge", "-p",
		`{"status":{"addresses":[{"type":"Hostname","address":"worker"},{"type":"InternalIP","address":"10.1.2.3"}]}}`)
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	ask := func(request, dns string) {
		t.Helper()
		der, err := x509.CreateCertificateRequest(rand.Reader, &x509.CertificateRequest{
			Subject:  pkix.Name{CommonName: "system:node:worker", Organization: []string{"system:nodes"}},
			DNSNames: []string{dns}, IPAddresses: []net.IP{net.ParseIP("10.1.2.3")},
		}, key)
		if err != nil {
			t.Fatal(err)
		}
		apply(&certificatesv1.CertificateSigningRequest{
			TypeMeta: kube.SigningRequests.TypeMeta(), ObjectMeta: metav1.ObjectMeta{Name: request},
			Spec: certificatesv1.CertificateSigningRequestSpec{
				SignerName: certificatesv1.KubeletServingSignerName,
				Request:    pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE REQUEST", Bytes: der}),
				Usages:     []certificatesv1.KeyUsage{certificatesv1.UsageDigitalSignature, certificatesv1.UsageServerAuth},
			},
		}, "--as=system:node:worker", "--as-group=system:nodes")
	}
	ask("foreign", "kubernetes.default")
	ask("own", "worker")
	env.Eventually(t, "the certificate", func() error {
		out, err := e.TryKubectl(t.Context(), kubeconfig, nil, "get", "csr", "own", "-o", "jsonpath={.status.certificate}")
		if err == nil && out == "" {
			err = errors.New("there is none yet")
		}
		return err
	})
	if out := e.Kubectl(t, kubeconfig, "get", "csr", "foreign", "-o", "jsonpath={.status}"); out != "{}" {
		t.Errorf("a request with somebody's name: %s", out)
	}
}
