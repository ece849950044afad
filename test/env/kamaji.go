package env

import (
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/stoker-k8s/stoker/local/stack"
	"github.com/stoker-k8s/stoker/pkg/api/v1alpha1"
	"github.com/stoker-k8s/stoker/pkg/kube"
	"github.com/stoker-k8s/stoker/pkg/pki"
)

// KamajiNamespace is where Kamaji keeps its lease.
const KamajiNamespace = "kamaji-system"

// Kamaji starts Kamaji's controller on the management cluster, as its chart would, but without its webhooks. What it writes, there and inside
// tenants, is under the field manager "kamaji", the name of its program. It may be started again after it was killed.
func (e *Env) Kamaji(t testing.TB) *Process {
	t.Helper()
	dir := t.TempDir()
	program := filepath.Join(e.bins, "kamaji")
	unlock, err := lock(filepath.Join(e.bins, ".lock"))
	if err != nil {
		t.Fatal(err)
	}
	build := exec.CommandContext(t.Context(), "go", "build", "-o", program, ".")
	build.Dir, build.Env = filepath.Join(Root(), "test", "kamaji"), append(os.Environ(), "GOWORK=off")
	out, err := build.CombinedOutput()
	unlock()
	if err != nil {
		t.Fatalf("go build: %v\n%s", err, out)
	}
	namespace := &corev1.Namespace{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Namespace"}, ObjectMeta: metav1.ObjectMeta{Name: KamajiNamespace}}
	if err := e.Admin.Create(t.Context(), kube.Namespaces, namespace); err != nil && !apierrors.IsAlreadyExists(err) {
		t.Fatal(err)
	}
	webhooks := filepath.Join(dir, "k8s-webhook-server", "serving-certs") // which nobody calls
	authority, err := pki.OpenAuthority(webhooks, "ca")
	if err == nil {
		_, err = authority.Issue(pki.Leaf{File: "tls", Name: "kamaji", Hosts: []string{"localhost"}})
	}
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(program, "manager", "--datastore="+stack.DefaultDataStore, "--migrate-image=none", "--pod-namespace="+KamajiNamespace,
		"--serviceaccount-name=kamaji", "--webhook-ca-path="+filepath.Join(webhooks, "ca.crt"), "--tmp-directory="+dir, "--disable-telemetry",
		"--metrics-bind-address=0", "--health-probe-bind-address=0", "--kine-image=rancher/kine:v0.16.4")
	cmd.Env = append(os.Environ(), "KUBECONFIG="+e.Local.Kubeconfig("admin"), "TMPDIR="+dir, "HTTPS_PROXY="+e.ServiceNames(t), "NO_PROXY=")
	return e.Program(t, "kamaji", cmd)
}

// Program starts a program that isn't Stoker's, and kills it when the test ends.
func (e *Env) Program(t testing.TB, name string, cmd *exec.Cmd) *Process {
	t.Helper()
	p := &Process{Name: name, Replica: "a", env: e}
	if err := p.run(cmd); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.Kill)
	return p
}

// ServiceNames is the URL of a proxy that knows tenants by the names of their Services, <name>.<namespace>.svc, as the DNS of a cluster does.
func (e *Env) ServiceNames(t testing.TB) string {
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		host, _, _ := net.SplitHostPort(r.Host)
		parts := strings.Split(host, ".")
		if r.Method != http.MethodConnect || len(parts) != 3 || parts[2] != "svc" {
			http.Error(w, "only CONNECT name.namespace.svc:port", http.StatusBadRequest)
			return
		}
		var o v1alpha1.TenantControlPlane
		err := e.Admin.Get(r.Context(), kube.TenantControlPlanes, parts[1], parts[0], &o)
		var to net.Conn
		if err == nil {
			to, err = (&net.Dialer{}).DialContext(r.Context(), "tcp", o.Status.ControlPlaneEndpoint)
		}
		if err != nil {
			http.Error(w, err.Error(), http.StatusBadGateway)
			return
		}
		defer func() { _ = to.Close() }()
		from, _, err := http.NewResponseController(w).Hijack()
		if err != nil {
			return
		}
		defer func() { _ = from.Close() }()
		_, _ = io.WriteString(from, "HTTP/1.1 200 OK\r\n\r\n")
		go func() {
			_, _ = io.Copy(to, from)
			_ = to.Close()
		}()
		_, _ = io.Copy(from, to)
	}))
	t.Cleanup(s.Close)
	return s.URL
}
