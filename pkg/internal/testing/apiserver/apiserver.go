// Package apiserver gives tests of this module real API servers: etcd and kube-apiserver, from the local stack's images, as child processes.
package apiserver

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	mrand "math/rand/v2"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/stoker-k8s/stoker/pkg/internal/testing/checkout"
)

// Server is a running API server whose administrator the configuration is.
type Server struct {
	Config *rest.Config
	// Kubeconfig says the same as Config.
	Kubeconfig []byte

	address, images string
}

// Start starts etcd and an API server for the test's time. It builds them when they aren't in the local stack's cache: minutes, once.
func Start(t testing.TB) *Server {
	t.Helper()
	return StartAll(t, 1)[0]
}

// StartAll starts several API servers, which share an etcd and nothing that is in it.
func StartAll(t testing.TB, n int) []*Server {
	t.Helper()
	if _, err := exec.LookPath("go"); err != nil {
		t.Skip("set-up: there is no Go to build etcd and kube-apiserver with")
	}
	root, err := checkout.Root()
	if err != nil {
		t.Fatal(err)
	}
	build := exec.CommandContext(t.Context(), "go", "run", "-trimpath", "./cmd/images", "etcd", "kubernetes-v1.36.3")
	build.Dir, build.Stderr = filepath.Join(root, "local"), os.Stderr
	out, err := build.Output()
	if err != nil {
		t.Fatal(err)
	}
	images, dir := strings.Fields(string(out)), t.TempDir()
	client, peer := freeAddress(t), freeAddress(t)
	run(t, filepath.Join(images[0], "etcd"), "--data-dir="+filepath.Join(dir, "etcd"), "--unsafe-no-fsync", "--log-level=error",
		"--listen-client-urls=http://"+client, "--advertise-client-urls=http://"+client,
		"--listen-peer-urls=http://"+peer, "--initial-advertise-peer-urls=http://"+peer, "--initial-cluster=default=http://"+peer)
	all := make([]*Server, n)
	for i := range all {
		all[i] = start(t, images[1], client, fmt.Sprint("/registry-", i))
	}
	for _, s := range all {
		s.await(t)
	}
	return all
}

func start(t testing.TB, images, etcd, prefix string) *Server {
	t.Helper()
	dir := t.TempDir()
	s := &Server{address: freeAddress(t), images: images}
	_, port, _ := net.SplitHostPort(s.address)
	sa := write(t, dir, "sa.key", serviceAccountKey(t))
	run(t, filepath.Join(images, "kube-apiserver"), "--bind-address="+host, "--secure-port="+port, "--etcd-servers=http://"+etcd,
		"--etcd-prefix="+prefix, "--advertise-address=192.0.2.1", "--endpoint-reconciler-type=none", "--cert-dir="+filepath.Join(dir, "pki"),
		"--token-auth-file="+write(t, dir, "tokens", []byte("admin,admin,admin,system:masters\n")), "--authorization-mode=RBAC",
		"--service-account-issuer=https://localhost", "--service-account-key-file="+sa, "--service-account-signing-key-file="+sa,
		"--service-cluster-ip-range=10.96.0.0/16", "--disable-admission-plugins=ServiceAccount", "--shutdown-delay-duration=0s")
	s.Kubeconfig = s.kubeconfig(s.address)
	var err error
	if s.Config, err = clientcmd.RESTConfigFromKubeConfig(s.Kubeconfig); err != nil {
		t.Fatal(err)
	}
	return s
}

// Address is where the server listens, as host:port.
func (s *Server) Address() string { return s.address }

// Through is the configuration for whoever goes to the server by another address.
func (s *Server) Through(address string) *rest.Config {
	cfg := rest.CopyConfig(s.Config)
	cfg.Host = "https://" + address
	return cfg
}

// Controllers starts those of Kubernetes' that remove what belongs to what is deleted, and the content of namespaces.
func (s *Server) Controllers(t testing.TB) {
	t.Helper()
	dir := t.TempDir()
	_, port, _ := net.SplitHostPort(freeAddress(t))
	run(t, filepath.Join(s.images, "kube-controller-manager"), "--kubeconfig="+write(t, dir, "kubeconfig", s.Kubeconfig), "--leader-elect=false",
		"--controllers=garbage-collector-controller,namespace-controller", "--bind-address="+host, "--secure-port="+port,
		"--cert-dir="+filepath.Join(dir, "pki"), "--kube-api-qps=200", "--kube-api-burst=400")
}

func (s *Server) kubeconfig(address string) []byte {
	return fmt.Appendf(nil, `{"clusters":[{"name":"c","cluster":{"server":"https://%s","insecure-skip-tls-verify":true}}],
"users":[{"name":"c","user":{"token":"admin"}}],"contexts":[{"name":"c","context":{"cluster":"c","user":"c"}}],"current-context":"c"}`, address)
}

// await waits until the server answers and has the roles that it makes itself.
func (s *Server) await(t testing.TB) {
	t.Helper()
	cfg := rest.CopyConfig(s.Config)
	c, err := rest.HTTPClientFor(cfg)
	if err != nil {
		t.Fatal(err)
	}
	defer c.CloseIdleConnections()
	get := func(path string) error {
		req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, cfg.Host+path, http.NoBody)
		if err != nil {
			return err
		}
		resp, err := c.Do(req)
		if err != nil {
			return err
		}
		defer resp.Body.Close()
		if resp.StatusCode != http.StatusOK {
			return errors.New(resp.Status)
		}
		return nil
	}
	for deadline := time.Now().Add(3 * time.Minute); ; time.Sleep(10 * time.Millisecond) { //nolint:forbidigo // between two looks at a condition
		err := errors.Join(get("/api/v1/namespaces/default"), get("/apis/rbac.authorization.k8s.io/v1/clusterroles/cluster-admin"))
		if err == nil {
			return
		}
		if time.Now().After(deadline) {
			t.Fatal(err)
		}
	}
}

func serviceAccountKey(t testing.TB) []byte {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	der, err := x509.MarshalECPrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	return pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: der})
}

func write(t testing.TB, dir, file string, data []byte) string {
	t.Helper()
	path := filepath.Join(dir, file)
	if err := os.WriteFile(path, data, 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// host is an address of the loopback for the servers of this process alone: no other process takes a port before they listen on it. Local
// stacks have 127.16.0.0 and above.
var host = fmt.Sprintf("127.%d.%d.%d", 2+os.Getpid()>>16%14, os.Getpid()>>8&0xff, os.Getpid()&0xff)

// given are the ports of host that were given away.
var given sync.Map

// freeAddress is an address on which no other process will listen.
func freeAddress(t testing.TB) string {
	t.Helper()
	for range 100 {
		address := fmt.Sprint(host, ":", 10000+mrand.IntN(20000))
		if _, taken := given.LoadOrStore(address, true); taken {
			continue
		}
		if l, err := net.Listen("tcp", address); err == nil { // nor does anybody on that port of all addresses
			_ = l.Close()
			return address
		}
	}
	t.Fatal("no port is free")
	return ""
}

func run(t testing.TB, program string, args ...string) {
	t.Helper()
	log, err := os.Create(filepath.Join(t.TempDir(), "log"))
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(context.WithoutCancel(t.Context()), program, args...)
	cmd.Stdout, cmd.Stderr, cmd.SysProcAttr = log, log, &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
		if data, err := os.ReadFile(log.Name()); err == nil && t.Failed() {
			t.Logf("%s: %s", filepath.Base(program), data[max(0, len(data)-1500):])
		}
	})
}
