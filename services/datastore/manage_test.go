package datastore_test

import (
	"context"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"encoding/pem"
	"flag"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"

	"github.com/stoker-k8s/stoker/internal/testing/port"
	"github.com/stoker-k8s/stoker/pkg/api/name"
	"github.com/stoker-k8s/stoker/pkg/api/v1alpha1"
	"github.com/stoker-k8s/stoker/pkg/kube"
	"github.com/stoker-k8s/stoker/services/datastore/driver/drivertest"
	"github.com/stoker-k8s/stoker/services/datastore/driver/etcd/etcdserver"
	"github.com/stoker-k8s/stoker/services/datastore/internal/built"
)

// management is the API server of a management cluster, with the CRDs. All tests share one: each is in a namespace of
// its own.
type management struct {
	kube     *kube.Client
	kubeFile string
	address  string
}

var shared struct {
	once       sync.Once
	management *management
	ends       []func()
}

func TestMain(m *testing.M) {
	flag.Parse()
	// They wait for servers more than they compute, but the servers do compute: with more at once, some wait too long for others.
	if f := flag.Lookup("test.parallel"); f.Value.String() == f.DefValue {
		_ = flag.Set("test.parallel", "10")
	}
	code := m.Run()
	for _, end := range slices.Backward(shared.ends) {
		end()
	}
	os.Exit(code)
}

// lasting is a test that ends with all of them.
type lasting struct{ testing.TB }

func (lasting) Cleanup(end func())       { shared.ends = append(shared.ends, end) }
func (lasting) Context() context.Context { return context.Background() }
func (lasting) Output() io.Writer        { return io.Discard }
func (l lasting) TempDir() string        { l.Helper(); return drivertest.TempDir(l) }

// manage returns the management cluster, which the first test starts.
func manage(t *testing.T) *management {
	t.Helper()
	shared.once.Do(func() { shared.management = startManagement(lasting{t}) })
	if shared.management == nil {
		t.Fatal("the management cluster could not be started, as another test says")
	}
	return shared.management
}

func startManagement(t testing.TB) *management {
	t.Helper()
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	dir := t.TempDir()
	at := func(file string) string { return filepath.Join(dir, file) }
	program := built.Program(t, "kubernetes-v1.36.3", "kube-apiserver", "STOKER_TEST_KUBERNETES")
	server := etcdserver.Start(t)
	for file, data := range map[string][]byte{"etcd-ca.crt": server.CA.PEM, "root.crt": server.RootCert, "root.key": server.RootKey} {
		must(os.WriteFile(at(file), data, 0o600))
	}
	key, err := rsa.GenerateKey(rand.Reader, 2048)
	must(err)
	must(os.WriteFile(at("sa.key"), pem.EncodeToMemory(&pem.Block{Type: "RSA PRIVATE KEY", Bytes: x509.MarshalPKCS1PrivateKey(key)}), 0o600))
	must(os.WriteFile(at("tokens"), []byte("admin,admin,admin,system:masters\n"), 0o600))
	secure := strconv.Itoa(port.Free(t))
	m := &management{kubeFile: at("kubeconfig"), address: net.JoinHostPort("127.0.0.1", secure)}
	cmd := exec.Command(program, "--secure-port="+secure, "--bind-address=127.0.0.1", "--advertise-address=192.0.2.1",
		"--endpoint-reconciler-type=none", "--etcd-servers=https://"+server.Endpoint, "--etcd-cafile="+at("etcd-ca.crt"), "--etcd-certfile="+at("root.crt"),
		"--etcd-keyfile="+at("root.key"), "--cert-dir="+at("pki"), "--service-account-key-file="+at("sa.key"), "--service-account-signing-key-file="+at("sa.key"),
		"--service-account-issuer=https://localhost", "--token-auth-file="+at("tokens"), "--authorization-mode=RBAC", "--service-cluster-ip-range=10.96.0.0/16",
		"--disable-admission-plugins=ServiceAccount", "-v=0")
	log, err := os.Create(at("log"))
	must(err)
	defer log.Close()
	cmd.Stdout, cmd.Stderr, cmd.SysProcAttr = log, log, &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	must(cmd.Start())
	t.Cleanup(func() { _ = cmd.Process.Kill(); _ = cmd.Wait() })
	must(os.WriteFile(m.kubeFile, kubeconfig(m.address), 0o600))
	m.kube, err = kube.New(&rest.Config{Host: "https://" + m.address, BearerToken: "admin", TLSClientConfig: rest.TLSClientConfig{Insecure: true}},
		kube.Options{FieldManager: name.FieldManagerIntake})
	must(err)
	ctx := t.Context()
	drivertest.Eventually(t, time.Minute, func() error {
		err := m.kube.Get(ctx, kube.Namespaces, "", "default", &corev1.Namespace{})
		if err != nil {
			said, _ := os.ReadFile(at("log"))
			err = fmt.Errorf("%w\n%s", err, said[max(0, len(said)-2000):])
		}
		return err
	})
	crds := kube.Resource{GroupVersion: schema.GroupVersion{Group: "apiextensions.k8s.io", Version: "v1"}, Plural: "customresourcedefinitions", Kind: "CustomResourceDefinition"}
	files, err := filepath.Glob("../../deployments/crds/kamaji.clastix.io_*.yaml")
	must(err)
	for _, file := range files {
		data, err := os.ReadFile(file)
		must(err)
		_, plural, _ := strings.Cut(strings.TrimSuffix(filepath.Base(file), ".yaml"), "_")
		must(m.kube.ApplyRaw(ctx, crds, "", plural+".kamaji.clastix.io", data, nil))
	}
	drivertest.Eventually(t, 20*time.Second, func() error { return m.kube.List(ctx, kube.DataStores, "", "", &v1alpha1.DataStoreList{}) })
	return m
}

// kubeconfig is of the administrator of an API server.
func kubeconfig(address string) []byte {
	return fmt.Appendf(nil, `{"apiVersion":"v1","kind":"Config","clusters":[{"name":"c","cluster":{"server":"https://%s","insecure-skip-tls-verify":true}}],
"users":[{"name":"u","user":{"token":"admin"}}],"contexts":[{"name":"x","context":{"cluster":"c","user":"u"}}],"current-context":"x"}`, address)
}
