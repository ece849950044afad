// Package standin has servers that take the place of the programs in tenants' pods, for tests with more tenants, or more short-lived ones, than
// a machine can run API servers.
package standin

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nats-io/nuid"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"

	"github.com/stoker-k8s/stoker/local/node"
	"github.com/stoker-k8s/stoker/local/process"
)

// Programs are the stand-ins for the programs of tenants' pods. Each is a server in this process: it listens on the pod's address, it uses the
// tenant's own certificates, and the node starts, probes and ends it like the real program. A stand-in for kube-apiserver serves
// [tenantAPI] and opens the DataStore with the tenant's account. The stand-ins for kube-scheduler and kube-controller-manager answer probes.
// Programs is safe for concurrent use.
type Programs struct {
	of   func(tenant string) bool // whether a tenant has stand-ins
	pair tls.Certificate          // of programs that make one themselves

	mu    sync.Mutex
	data  map[string]*tenantAPI    // what tenants hold, by the id that is in the DataStore
	hangs map[string]chan struct{} // by tenant, closed when it goes on
}

// New makes stand-ins for the pods of one installation. Tenants for which of returns false run the real programs; nil means that all tenants
// have stand-ins. Tenants are named as namespace/name.
func New(of func(tenant string) bool) *Programs {
	s := httptest.NewUnstartedServer(nil)
	s.StartTLS()
	defer s.Close()
	if of == nil {
		of = func(string) bool { return true }
	}
	return &Programs{of: of, pair: s.TLS.Certificates[0], data: map[string]*tenantAPI{}, hangs: map[string]chan struct{}{}}
}

// Hang has a tenant's API accept connections and answer nothing, on those that are open already as well, but to the node's probes:
// the node takes it for healthy. Tenants are named as namespace/name, whether they exist or not.
func (s *Programs) Hang(tenant string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.hangs[tenant] == nil {
		s.hangs[tenant] = make(chan struct{})
	}
}

// Release ends Hang.
func (s *Programs) Release(tenant string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if c := s.hangs[tenant]; c != nil {
		close(c)
		delete(s.hangs, tenant)
	}
}

// hanging is nil, or closed when the tenant goes on.
func (s *Programs) hanging(tenant string) <-chan struct{} {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.hangs[tenant]
}

// holding is what the tenant holds whose id is in the DataStore.
func (s *Programs) holding(id string) *tenantAPI {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.data[id] == nil {
		s.data[id] = newTenantAPI()
	}
	return s.data[id]
}

// ports of the programs, unless --secure-port says otherwise.
var ports = map[string]string{"kube-apiserver": "6443", "kube-controller-manager": "10257", "kube-scheduler": "10259"}

// Start starts the stand-in for a container's program; it is a Start of local.Config.
func (s *Programs) Start(spec process.Spec) (node.Process, error) {
	tenant := tenantOf(spec.Dir)
	if !s.of(tenant) {
		return node.StartProcess(spec)
	}
	program, flags := filepath.Base(spec.Path), map[string]string{}
	for _, arg := range spec.Args[1:] {
		if name, value, ok := strings.Cut(strings.TrimPrefix(arg, "--"), "="); ok {
			flags[name] = value
		}
	}
	port, ok := ports[program]
	if !ok {
		return nil, fmt.Errorf("there is no stand-in for %s", spec.Path)
	}
	if p := flags["secure-port"]; p != "" {
		port = p
	}
	p := &standIn{
		programs: s, flags: flags, tenant: tenant, started: time.Now(), ended: make(chan struct{}), done: make(chan struct{}),
	}
	config := &tls.Config{MinVersion: tls.VersionTLS12, Certificates: []tls.Certificate{s.pair}}
	if program == "kube-apiserver" {
		pair, err := tls.LoadX509KeyPair(flags["tls-cert-file"], flags["tls-private-key-file"])
		if err != nil {
			return nil, err
		}
		if p.clients, err = authorities(flags["client-ca-file"]); err != nil {
			return nil, err
		}
		config.Certificates, config.ClientAuth = []tls.Certificate{pair}, tls.RequestClientCert
	}
	listener, err := net.Listen("tcp", net.JoinHostPort(flags["bind-address"], port))
	if err != nil {
		return nil, err
	}
	p.server = &http.Server{
		Handler: p, TLSConfig: config, ErrorLog: log.New(io.Discard, "", 0), ReadHeaderTimeout: time.Minute,
		ConnContext: func(ctx context.Context, c net.Conn) context.Context {
			return context.WithValue(ctx, connKey{}, c.(*tls.Conn).NetConn())
		},
	}
	go func() { _ = p.server.ServeTLS(holdable{listener, p}, "", "") }()
	if program == "kube-apiserver" {
		go p.open()
	} else {
		p.api.Store(newTenantAPI())
	}
	return p, nil
}

// authorities of a file.
func authorities(path string) (*x509.CertPool, error) {
	data, err := os.ReadFile(path)
	pool := x509.NewCertPool()
	if err == nil && !pool.AppendCertsFromPEM(data) {
		err = fmt.Errorf("%s has no certificate", path)
	}
	return pool, err
}

// tenantOf finds the tenant by the working directory of a container, <namespace>_<deployment>-<replica set>-<pod>_<uid>/home/<name>.
func tenantOf(dir string) string {
	namespace, pod, _ := strings.Cut(filepath.Base(filepath.Dir(filepath.Dir(dir))), "_")
	pod, _, _ = strings.Cut(pod, "_")
	parts := strings.Split(pod, "-")
	return namespace + "/" + strings.Join(parts[:max(1, len(parts)-2)], "-")
}

// standIn is a program that runs, or has run.
type standIn struct {
	programs *Programs
	flags    map[string]string
	tenant   string
	started  time.Time
	server   *http.Server
	clients  *x509.CertPool            // that sign clients' certificates
	api      atomic.Pointer[tenantAPI] // nil until it is ready, and when it is asked to end

	ending sync.Once
	ended  chan struct{} // closed when it is to end now
	done   chan struct{}
	exit   process.Exit
}

// PID is none.
func (p *standIn) PID() int { return 0 }

// Started implements [node.Process], as the next ones.
func (p *standIn) Started() time.Time    { return p.started }
func (p *standIn) Done() <-chan struct{} { return p.done }
func (p *standIn) Exit() process.Exit    { return p.exit }
func (p *standIn) Running() bool {
	select {
	case <-p.done:
		return false
	default:
		return true
	}
}

// Stop has it end as kube-apiserver does: not ready at once, gone after the delay that its flags say.
func (p *standIn) Stop(ctx context.Context, grace time.Duration) {
	p.ending.Do(func() {
		p.api.Store(nil)
		delay, _ := time.ParseDuration(p.flags["shutdown-delay-duration"])
		select {
		case <-time.After(min(delay, grace)):
		case <-ctx.Done():
		}
		close(p.ended)
		_ = p.server.Close()
		p.exit.At = time.Now()
		close(p.done)
	})
	<-p.done
}

// open opens the DataStore with the tenant's account, until it succeeds. There it keeps an id: what the tenant holds lives as long as
// the id does, from pod to pod.
func (p *standIn) open() {
	for {
		id, err := p.id()
		if err == nil {
			p.api.Store(p.programs.holding(id))
			return
		}
		select {
		case <-p.ended:
			return
		case <-time.After(500 * time.Millisecond):
		}
	}
}

func (p *standIn) id() (string, error) {
	roots, err := authorities(p.flags["etcd-cafile"])
	if err != nil {
		return "", err
	}
	pair, err := tls.LoadX509KeyPair(p.flags["etcd-certfile"], p.flags["etcd-keyfile"])
	if err != nil {
		return "", err
	}
	c, err := clientv3.New(clientv3.Config{
		Endpoints: strings.Split(p.flags["etcd-servers"], ","), DialTimeout: 10 * time.Second, Logger: zap.NewNop(),
		TLS: &tls.Config{RootCAs: roots, Certificates: []tls.Certificate{pair}, MinVersion: tls.VersionTLS12},
	})
	if err != nil {
		return "", err
	}
	defer c.Close()
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	key := p.flags["etcd-prefix"] + "/stand-in"
	_, err = c.Txn(ctx).If(clientv3.Compare(clientv3.CreateRevision(key), "=", 0)).Then(clientv3.OpPut(key, nuid.Next())).Commit()
	if err != nil {
		return "", err
	}
	got, err := c.Get(ctx, key)
	if err != nil {
		return "", err
	}
	if len(got.Kvs) == 0 {
		return "", errors.New(key + " went meanwhile")
	}
	return string(got.Kvs[0].Value), nil
}

// ServeHTTP answers probes, and asks others for a certificate of the tenant's authority.
func (p *standIn) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	api := p.api.Load()
	if strings.HasPrefix(r.UserAgent(), "kube-probe/") {
		if api == nil {
			w.WriteHeader(http.StatusInternalServerError)
		}
		return
	}
	if c, ok := r.Context().Value(connKey{}).(*heldConn); ok {
		c.client.Store(true)
		c.hold()
	}
	if !p.knows(r.TLS.PeerCertificates) {
		say(w, http.StatusUnauthorized, "Unauthorized", "Unauthorized")
		return
	}
	if api == nil {
		say(w, http.StatusServiceUnavailable, "ServiceUnavailable", "the DataStore isn't open")
		return
	}
	api.ServeHTTP(w, r)
}

// knows reports whether a client's certificate is of the tenant's authority.
func (p *standIn) knows(certificates []*x509.Certificate) bool {
	if p.clients == nil || len(certificates) == 0 {
		return false
	}
	_, err := certificates[0].Verify(x509.VerifyOptions{Roots: p.clients, KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}})
	return err == nil
}

// connKey is the key of a request's connection in its context.
type connKey struct{}

// holdable takes connections that can be held up.
type holdable struct {
	net.Listener
	program *standIn
}

// Accept implements [net.Listener].
func (l holdable) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	return &heldConn{Conn: c, program: l.program}, nil
}

// heldConn is a connection on which nothing is read or written while the tenant hangs, once it is known to be no probe's.
type heldConn struct {
	net.Conn
	program *standIn
	client  atomic.Bool
}

// Read implements [net.Conn].
func (c *heldConn) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	c.hold()
	return n, err
}

// Write implements [net.Conn].
func (c *heldConn) Write(b []byte) (int, error) {
	c.hold()
	return c.Conn.Write(b)
}

func (c *heldConn) hold() {
	if !c.client.Load() {
		return
	}
	if goesOn := c.program.programs.hanging(c.program.tenant); goesOn != nil {
		select {
		case <-goesOn:
		case <-c.program.ended:
		}
	}
}
