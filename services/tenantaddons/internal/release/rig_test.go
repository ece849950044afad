package release

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"math/big"
	mrand "math/rand/v2"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"helm.sh/helm/v4/pkg/chart/common"
	chart "helm.sh/helm/v4/pkg/chart/v2"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/stoker-k8s/stoker/internal/testing/port"
	"github.com/stoker-k8s/stoker/pkg/kube"
)

// server is the API server of all tests of this package: each has namespaces and names of its own there.
var server *apiServer

func TestMain(m *testing.M) {
	if _, err := exec.LookPath("go"); err != nil {
		fmt.Fprintln(os.Stderr, "skipped: there is no Go to build etcd and kube-apiserver with")
		return
	}
	os.Exit(func() int {
		var err error
		var stop func()
		if server, stop, err = startServer(); stop != nil {
			defer stop()
		}
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 1
		}
		return m.Run()
	}())
}

// apiServer is a real API server on a real etcd, and nothing else.
type apiServer struct {
	kubeconfig []byte
	admin      dynamic.Interface // what somebody with kubectl has
	config     *rest.Config
}

func startServer() (s *apiServer, stop func(), err error) {
	build := exec.Command("go", "run", "./cmd/images", "etcd", "kubernetes-v1.36.3")
	build.Dir, build.Stderr = filepath.Join("..", "..", "..", "..", "deployments", "local"), os.Stderr
	out, err := build.Output()
	if err != nil {
		return nil, nil, fmt.Errorf("build etcd and kube-apiserver: %w", err)
	}
	images := strings.Fields(string(out))
	var addresses [3]string
	for i := range addresses { // until this process ends, as the server does
		if addresses[i], _, err = port.Reserve("127.0.0.1"); err != nil {
			return nil, nil, err
		}
	}
	dir, err := os.MkdirTemp("", "stoker-test-release-")
	if err != nil {
		return nil, nil, err
	}
	ctx, cancel := context.WithCancel(context.Background())
	var running []*exec.Cmd
	stop = func() {
		cancel()
		for _, cmd := range running {
			_ = cmd.Wait()
		}
		_ = os.RemoveAll(dir)
	}
	run := func(program string, args ...string) {
		if err != nil {
			return
		}
		cmd := exec.CommandContext(ctx, program, args...)
		cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
		if err = cmd.Start(); err == nil {
			running = append(running, cmd)
		}
	}
	keys := newKeys(dir)
	client, peer, secure := addresses[0], addresses[1], addresses[2]
	run(filepath.Join(images[0], "etcd"), "--data-dir="+filepath.Join(dir, "etcd"), "--unsafe-no-fsync", "--log-level=error",
		"--listen-client-urls=http://"+client, "--advertise-client-urls=http://"+client,
		"--listen-peer-urls=http://"+peer, "--initial-advertise-peer-urls=http://"+peer, "--initial-cluster=default=http://"+peer)
	_, port, _ := net.SplitHostPort(secure)
	run(filepath.Join(images[1], "kube-apiserver"), "--bind-address=127.0.0.1", "--secure-port="+port, "--etcd-servers=http://"+client,
		"--advertise-address=192.0.2.1", "--endpoint-reconciler-type=none", "--authorization-mode=RBAC",
		"--client-ca-file="+keys.ca, "--tls-cert-file="+keys.cert, "--tls-private-key-file="+keys.key,
		"--service-account-issuer=https://localhost", "--service-account-key-file="+keys.key, "--service-account-signing-key-file="+keys.key,
		"--service-cluster-ip-range=10.96.0.0/16", "--disable-admission-plugins=ServiceAccount", "--shutdown-delay-duration=0s")
	if err != nil {
		return nil, stop, err
	}
	s = &apiServer{}
	if s.kubeconfig, err = keys.kubeconfig("https://" + secure); err != nil {
		return nil, stop, err
	}
	if s.config, err = clientcmd.RESTConfigFromKubeConfig(s.kubeconfig); err != nil {
		return nil, stop, err
	}
	s.config.QPS, s.config.WarningHandler = -1, rest.NoWarnings{}
	if s.admin, err = dynamic.NewForConfig(s.config); err != nil {
		return nil, stop, err
	}
	return s, stop, s.await(ctx)
}

// await waits until the server has the roles that it makes itself, and the namespaces.
func (s *apiServer) await(ctx context.Context) error {
	var err error
	for deadline := time.Now().Add(time.Minute); time.Now().Before(deadline); <-time.After(20 * time.Millisecond) {
		k, e := kube.ForTenant(s.kubeconfig, kube.Options{FieldManager: "test"})
		if e != nil {
			return e
		}
		err = k.Get(ctx, kube.ClusterRoles, "", "cluster-admin", &struct{}{})
		if err == nil {
			err = k.Get(ctx, kube.Namespaces, "", "kube-system", &struct{}{})
		}
		k.Close()
		if err == nil {
			return nil
		}
	}
	return err
}

// keys are those of an API server and its administrator.
type keys struct {
	ca, cert, key          string
	caPEM, admin, adminKey []byte
	err                    error
}

func newKeys(dir string) *keys {
	k := &keys{}
	ca, caKey, caPEM, _ := k.issue("ca", "", nil, nil)
	_, _, cert, key := k.issue("kube-apiserver", "", ca, caKey)
	_, _, k.admin, k.adminKey = k.issue("admin", "system:masters", ca, caKey)
	k.caPEM = caPEM
	write := func(file string, data []byte) string {
		at := filepath.Join(dir, file)
		if err := os.WriteFile(at, data, 0o600); err != nil {
			k.err = err
		}
		return at
	}
	k.ca, k.cert, k.key = write("ca.crt", caPEM), write("tls.crt", cert), write("tls.key", key)
	return k
}

func (k *keys) issue(name, group string, ca *x509.Certificate, caKey *ecdsa.PrivateKey) (*x509.Certificate, *ecdsa.PrivateKey, []byte, []byte) {
	must := func(err error) {
		if err != nil && k.err == nil {
			k.err = err
		}
	}
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	must(err)
	template := &x509.Certificate{
		SerialNumber: big.NewInt(mrand.Int64()), Subject: pkix.Name{CommonName: name}, NotBefore: time.Now().Add(-time.Hour),
		NotAfter: time.Now().Add(24 * time.Hour), IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, DNSNames: []string{"localhost"},
		KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth, x509.ExtKeyUsageServerAuth},
	}
	if group != "" {
		template.Subject.Organization = []string{group}
	}
	if ca == nil {
		template.IsCA, template.BasicConstraintsValid, template.KeyUsage = true, true, x509.KeyUsageCertSign
		ca, caKey = template, key
	}
	der, err := x509.CreateCertificate(rand.Reader, template, ca, &key.PublicKey, caKey)
	must(err)
	cert, err := x509.ParseCertificate(der)
	must(err)
	keyDER, err := x509.MarshalECPrivateKey(key)
	must(err)
	return cert, key, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}),
		pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: keyDER})
}

func (k *keys) kubeconfig(url string) ([]byte, error) {
	if k.err != nil {
		return nil, k.err
	}
	return kube.Kubeconfig{Server: url, CA: k.caPEM, Cluster: "demo", User: "admin", Certificate: k.admin, Key: k.adminKey}.Marshal()
}

// open opens the test's tenant.
func open(t testing.TB, o kube.Options) *Cluster {
	t.Helper()
	c, err := Open(server.kubeconfig, o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	return c
}

var tests atomic.Int32

// newID is a release that nobody else has, in a namespace that isn't there yet.
func newID() ID {
	n := tests.Add(1)
	return ID{
		Name: fmt.Sprint("web-", n), Namespace: fmt.Sprint("apps-", n), Addon: types.NamespacedName{Namespace: "platform", Name: fmt.Sprint("web-", n)},
	}
}

// newChart is a chart of templates and other files, by their names.
func newChart(files map[string]string) *chart.Chart {
	c := &chart.Chart{Metadata: &chart.Metadata{APIVersion: "v2", Name: "web", Version: "1.2.3"}, Values: map[string]any{}}
	for file, text := range files {
		f := &common.File{Name: file, Data: []byte(text)}
		switch {
		case strings.HasPrefix(file, "templates/"):
			c.Templates = append(c.Templates, f)
		case file == "values.schema.json":
			c.Schema = f.Data
		default:
			c.Files = append(c.Files, f)
		}
	}
	return c
}

// objects reads what manifests say.
func objects(t testing.TB, manifests string) []*unstructured.Unstructured {
	t.Helper()
	all, err := parse(strings.NewReader(manifests))
	if err != nil {
		t.Fatal(err)
	}
	return all
}

func until(t testing.TB, what string, ok func() bool) {
	t.Helper()
	for began := time.Now(); !ok(); <-time.After(10 * time.Millisecond) {
		if time.Since(began) > 3*time.Minute { // on a machine that is busy
			t.Fatalf("waited in vain until %s", what)
		}
	}
}
