// Package etcdserver runs a real etcd for tests, with TLS and authentication on, as a DataStore wants it. The server is
// the one of the local stack, or one in a container (testserver.Program.Contained).
package etcdserver

import (
	"context"
	"crypto"
	"crypto/tls"
	"crypto/x509"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"

	"github.com/stoker-k8s/stoker/internal/testing/built"
	"github.com/stoker-k8s/stoker/internal/testing/port"
	"github.com/stoker-k8s/stoker/internal/testing/testserver"
	"github.com/stoker-k8s/stoker/services/datastore/driver"
)

// Server is an etcd on a free port of the loopback, stopped at the end of the test.
type Server struct {
	// Endpoint as host:port.
	Endpoint string
	// CA signs server and clients.
	CA *Authority
	// RootCert and RootKey are the PEM of the administrator's.
	RootCert, RootKey []byte
	// Root is connected as administrator.
	Root *clientv3.Client

	program            testserver.Program
	dir                *testserver.Dir
	peer               string
	flags              []string
	name, clusterState string
	cluster            []string // the members it knew when it was made, as name=URL

	process *testserver.Process
}

// Authority is a certificate authority in memory.
type Authority = testserver.Authority

// NewAuthority makes an authority that lives for ten years, of any key.
func NewAuthority(t testing.TB, key crypto.Signer) *Authority {
	t.Helper()
	return testserver.NewAuthority(t, key)
}

// Start runs a server with a user root and authentication on, and with further flags.
func Start(t testing.TB, flags ...string) *Server {
	t.Helper()
	return StartWith(t, NewAuthority(t, testserver.EC(t)), "127.0.0.1", flags...)
}

// StartWith does what Start does, with an authority that other servers may have, too, on 127.0.0.1 or, for pods of the local
// stack, to which that is their own address, on 127.0.0.2.
func StartWith(t testing.TB, ca *Authority, host string, flags ...string) *Server {
	t.Helper()
	s := &Server{
		CA: ca, flags: flags, dir: testserver.OwnDir(t, "etcd"), Endpoint: port.Address(t, host), peer: port.Address(t, host),
		program: testserver.Program{Path: built.Program(t, "etcd", "etcd", "STOKER_TEST_ETCD")},
	}
	s.name, s.clusterState = "test", "new"
	s.cluster = []string{s.name + "=http://" + s.peer}
	t.Cleanup(func() { s.Kill(t) })
	s.Trust(t, ca)
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	if _, err := s.Root.UserAddWithOptions(ctx, "root", "", &clientv3.UserAddOptions{NoPassword: true}); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Root.UserGrantRole(ctx, "root", "root"); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Root.AuthEnable(ctx); err != nil {
		t.Fatal(err)
	}
	return s
}

// Join starts another member of the cluster, with the same flags.
func (s *Server) Join(t testing.TB) *Server {
	t.Helper()
	other := &Server{
		CA: s.CA, flags: s.flags, dir: testserver.OwnDir(t, "etcd"), Endpoint: port.Address(t, "127.0.0.1"), peer: port.Address(t, "127.0.0.1"),
		program: s.program, name: s.name + strconv.Itoa(len(s.cluster)), clusterState: "existing",
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	if _, err := s.Root.MemberAdd(ctx, []string{"http://" + other.peer}); err != nil {
		t.Fatal(err)
	}
	s.cluster = append(s.cluster, other.name+"=http://"+other.peer)
	other.cluster = s.cluster
	t.Cleanup(func() { other.Kill(t) })
	other.Trust(t, other.CA)
	return other
}

// Trust starts the process, anew if it runs, with the data it had before, a certificate of an authority, and no trust in clients of
// any other.
func (s *Server) Trust(t testing.TB, ca *Authority) {
	t.Helper()
	s.Kill(t)
	s.CA = ca
	s.RootCert, s.RootKey = ca.Issue(t, "root")
	cert, private := ca.Issue(t, "etcd")
	for file, data := range map[string][]byte{"ca.crt": ca.PEM, "server.crt": cert, "server.key": private} {
		s.dir.Write(t, file, data)
	}
	s.Run(t)
	s.Root = s.Connect(t, s.RootCert, s.RootKey)
	s.Await(t)
}

// Await waits until it answers.
func (s *Server) Await(t testing.TB) {
	t.Helper()
	s.process.Await(t, func(ctx context.Context) error { _, err := s.Root.Get(ctx, "/"); return err })
}

// Config is what a DataStore object of this server would say.
func (s *Server) Config(t testing.TB) driver.Config {
	t.Helper()
	return driver.Config{
		Name: "test", Endpoints: []string{s.Endpoint}, CA: s.CA.PEM, CAKey: s.CA.KeyPEM(t), ClientCert: s.RootCert, ClientKey: s.RootKey,
	}
}

// Connect opens a connection by a client certificate.
func (s *Server) Connect(t testing.TB, cert, key []byte) *clientv3.Client {
	t.Helper()
	pair, err := tls.X509KeyPair(cert, key)
	if err != nil {
		t.Fatal(err)
	}
	pool := x509.NewCertPool()
	pool.AppendCertsFromPEM(s.CA.PEM)
	c, err := clientv3.New(clientv3.Config{
		Endpoints: []string{"https://" + s.Endpoint}, DialTimeout: 3 * time.Second, Logger: zap.NewNop(),
		TLS: &tls.Config{RootCAs: pool, Certificates: []tls.Certificate{pair}, MinVersion: tls.VersionTLS12},
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	return c
}

// Run starts the process, with the data it had before.
func (s *Server) Run(t testing.TB) {
	t.Helper()
	s.process = s.dir.Run(t, s.program, append([]string{
		"--name=" + s.name, "--data-dir=" + filepath.Join(s.dir.Path, "data"), "--log-level=panic",
		"--listen-client-urls=https://" + s.Endpoint, "--advertise-client-urls=https://" + s.Endpoint,
		"--listen-peer-urls=http://" + s.peer, "--initial-advertise-peer-urls=http://" + s.peer, "--initial-cluster=" + strings.Join(s.cluster, ","), "--initial-cluster-state=" + s.clusterState,
		"--client-cert-auth", "--trusted-ca-file=" + filepath.Join(s.dir.Path, "ca.crt"),
		"--cert-file=" + filepath.Join(s.dir.Path, "server.crt"), "--key-file=" + filepath.Join(s.dir.Path, "server.key"),
	}, s.flags...)...)
}

// Kill ends the process at once.
func (s *Server) Kill(testing.TB) {
	if s.process != nil {
		s.process.Kill()
		s.process = nil
	}
}
