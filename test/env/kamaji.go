package env

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/stoker-k8s/stoker/deployments/local/pki"
	"github.com/stoker-k8s/stoker/deployments/stack"
	"github.com/stoker-k8s/stoker/pkg/kube"
)

// KamajiNamespace is where Kamaji keeps its lease.
const KamajiNamespace = "kamaji-system"

// Kamaji starts Kamaji's controller on the management cluster, as its chart would, but without its webhooks. What it writes is under the
// field manager "kamaji", the name of its program.
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
	p := &Process{Name: "kamaji", Replica: "a", env: e}
	cmd := exec.Command(program, "manager", "--datastore="+stack.DefaultDataStore, "--migrate-image=none", "--pod-namespace="+KamajiNamespace,
		"--serviceaccount-name=kamaji", "--webhook-ca-path="+filepath.Join(webhooks, "ca.crt"), "--tmp-directory="+dir, "--disable-telemetry",
		"--metrics-bind-address=0", "--health-probe-bind-address=0", "--kine-image=rancher/kine:v0.16.4")
	cmd.Env = append(os.Environ(), "KUBECONFIG="+e.Local.Kubeconfig("admin"), "TMPDIR="+dir)
	if err := p.run(cmd); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.Kill)
	return p
}
