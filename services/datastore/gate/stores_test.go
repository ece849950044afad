package gate_test

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"log/slog"
	"path/filepath"
	"sync"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"

	"github.com/stoker-k8s/stoker/internal/testing/etcdserver"
	"github.com/stoker-k8s/stoker/services/datastore/driver"
	"github.com/stoker-k8s/stoker/services/datastore/driver/etcd"
	"github.com/stoker-k8s/stoker/services/datastore/gate"
	"github.com/stoker-k8s/stoker/services/datastore/move"
)

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// side is one of the two stores of a move: an account in an etcd.
type side struct {
	server  *etcdserver.Server
	driver  driver.Driver
	account driver.Account
	access  driver.Access
	data    driver.Data
	store   gate.Store
}

func newSide(t *testing.T, schema string) *side {
	t.Helper()
	s := &side{server: etcdserver.Start(t), account: driver.Account{Owner: "uid", Schema: schema, User: schema}}
	var err error
	s.driver, err = etcd.Open(s.server.Config(t))
	must(t, err)
	t.Cleanup(func() { _ = s.driver.Close() })
	_, err = s.driver.Provision(t.Context(), s.account)
	must(t, err)
	s.access, err = s.driver.Access(s.account, driver.Access{}, time.Now())
	must(t, err)
	s.open(t)
	pair, err := tls.X509KeyPair(s.access.Cert, s.access.Key)
	must(t, err)
	pool := x509.NewCertPool()
	pool.AppendCertsFromPEM(s.access.CA)
	s.store = gate.Store{
		Endpoints: []string{"https://" + s.server.Endpoint}, Prefix: "/" + schema + "/",
		TLS: &tls.Config{Certificates: []tls.Certificate{pair}, RootCAs: pool, MinVersion: tls.VersionTLS12},
	}
	return s
}

func (s *side) open(t *testing.T) {
	t.Helper()
	var err error
	s.data, err = s.driver.(driver.DataAccess).Data(t.Context(), s.account, s.access)
	must(t, err)
	t.Cleanup(func() { _ = s.data.Close() })
}

// seal takes the right to write away, or gives it back.
func (s *side) seal(readOnly bool) func(context.Context) error {
	return func(ctx context.Context) error {
		a := s.account
		a.ReadOnly = readOnly
		_, err := s.driver.Provision(ctx, a)
		return err
	}
}

// moving is a move between two etcds, with the schemas of a tenant that has other names in the one than in the other.
type moving struct {
	from, to *side
	move     *move.Move
	dir      string
}

const id, what = "move-1", "data"

func newMoving(t *testing.T) *moving {
	t.Helper()
	m := &moving{from: newSide(t, "tenant_a"), to: newSide(t, "tenant_b"), dir: t.TempDir()}
	now, err := m.from.data.Revision(t.Context())
	must(t, err)
	must(t, m.to.driver.(driver.DataAccess).Raise(t.Context(), m.to.account, m.to.access, now+5000))
	m.move = &move.Move{ID: id, What: what, From: m.from.data, To: m.to.data, Seal: m.from.seal(true), Unseal: m.from.seal(false)}
	t.Cleanup(m.move.Close)
	must(t, m.move.Take(t.Context()))
	must(t, m.move.Begin(t.Context()))
	return m
}

// gate runs one until the test, or what is returned, ends it.
func (m *moving) gate(t *testing.T, pod string) (socket string, end func()) {
	t.Helper()
	socket = filepath.Join(m.dir, pod)
	return socket, run(t, gate.Config{Listen: socket, Move: id, Name: pod, From: m.from.store, To: m.to.store})
}

// run runs a gate until the test, or what is returned, ends it.
func run(t *testing.T, cfg gate.Config) (end func()) {
	t.Helper()
	cfg.Log = slog.New(slog.DiscardHandler)
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	var running sync.WaitGroup
	ready, failed := make(chan struct{}), make(chan error, 1)
	running.Go(func() { failed <- gate.Run(ctx, cfg, func() error { close(ready); return nil }) })
	end = func() { cancel(); running.Wait() }
	t.Cleanup(end)
	select {
	case <-ready:
	case err := <-failed:
		t.Fatal(err)
	case <-time.After(time.Minute):
		t.Fatal("the gate serves nothing")
	}
	return end
}

// client speaks to a gate as an API server does.
func client(t *testing.T, socket string) *clientv3.Client {
	t.Helper()
	c, err := clientv3.New(clientv3.Config{Endpoints: []string{"unix://" + socket}, Logger: zap.NewNop()})
	must(t, err)
	t.Cleanup(func() { _ = c.Close() })
	return c
}

// create makes a key, as API servers do.
func create(ctx context.Context, c *clientv3.Client, key, value string, options ...clientv3.OpOption) (int64, error) {
	done, err := c.Txn(ctx).If(clientv3.Compare(clientv3.ModRevision(key), "=", 0)).Then(clientv3.OpPut(key, value, options...)).Commit()
	if err != nil {
		return 0, err
	}
	return done.Header.Revision, nil
}
