package helm

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/nats-io/nats.go"

	"github.com/stoker-k8s/stoker/internal/testing/port"
	"github.com/stoker-k8s/stoker/pkg/kube"
	"github.com/stoker-k8s/stoker/pkg/pki"
	"github.com/stoker-k8s/stoker/test/env"
)

// rotation is an installation whose authority is replaced.
type rotation struct {
	t         *testing.T
	kind      string // of servers: nats, etcd
	chart     string
	authority string // what values ask for, and with etcd which step
	number    int

	old, next string // certificates of the authorities
	all       []*member
	connected *nats.Conn // all the time
	// prompt has the ca.crt of each step at once, slow just before the next step begins.
	prompt, slow *client
}

// newRotation begins without what another test's bootstrap made, and leaves nothing.
func newRotation(t *testing.T, kind, chart string) *rotation {
	t.Helper()
	remove := func() {
		out, err := e.TryKubectl(context.WithoutCancel(t.Context()), admin(), nil,
			"-n", "stoker-system", "delete", "secrets,configmaps", "-l", "app.kubernetes.io/managed-by=stoker-bootstrap")
		if err != nil {
			t.Errorf("%v: %s", err, out)
		}
	}
	remove()
	t.Cleanup(remove)
	return &rotation{t: t, kind: kind, chart: chart, authority: "1", number: 1}
}

func (r *rotation) values() []string {
	if r.kind == "etcd" {
		return []string{"--set-string", "authority.name=" + r.authority, "--set", fmt.Sprintf("authority.step=%d", r.number)}
	}
	return []string{"--set-string", "nats.authority=" + r.authority}
}

// object is the name of something that the bootstrap makes.
func (r *rotation) object(what string) string { return "stoker-" + r.kind + "-" + what }

// run runs the bootstrap, which must say each of these, or nothing if there is none.
func (r *rotation) run(wants ...string) {
	r.t.Helper()
	out := bootstrap(r.t, r.kind, r.chart+"-bootstrap", install(r.t, r.chart, r.values()...))
	for _, want := range wants {
		if !strings.Contains(out, want) {
			r.t.Fatalf("the bootstrap doesn't say %q: %s", want, out)
		}
	}
	if len(wants) == 0 && out != "" {
		r.t.Fatalf("the bootstrap changed something: %s", out)
	}
}

// later has what was changed be so for a while.
func (r *rotation) later(d time.Duration) {
	r.t.Helper()
	kubectl(r.t, "", "-n", "stoker-system", "annotate", "--overwrite", "secrets,configmaps",
		"-l", "app.kubernetes.io/managed-by=stoker-bootstrap", "stoker.dev/changed="+time.Now().Add(-d).UTC().Format(time.RFC3339))
}

// undo keeps an object as it is, to write it back: what is there if a run ends just before it writes it.
func (r *rotation) undo(kind, name string) (back func()) {
	r.t.Helper()
	object := parse(r.t, kubectl(r.t, "", "-n", "stoker-system", "get", kind, name, "-o", "yaml"))[kind+"/"+name]
	meta, _ := object["metadata"].(map[string]any)
	delete(meta, "resourceVersion")
	return func() {
		r.t.Helper()
		kubectl(r.t, text(r.t, object), "replace", "-f", "-")
	}
}

// bundle is ca.crt, and which step it says it is.
func (r *rotation) bundle() (ca, step string) {
	r.t.Helper()
	var m corev1.ConfigMap
	e.Get(r.t, kube.ConfigMaps, "stoker-system", r.object("ca"), &m)
	return m.Data["ca.crt"], m.Annotations["stoker.dev/step"]
}

// expect checks ca.crt and its step.
func (r *rotation) expect(ca, step string) {
	r.t.Helper()
	if gotCA, gotStep := r.bundle(); gotCA != ca || !strings.HasPrefix(gotStep, step) || step == "" && gotStep != "" {
		r.t.Fatalf("step %q and ca.crt\n%swant %q and\n%s", gotStep, gotCA, step, ca)
	}
}

// signing is the certificate of the authority that signs.
func (r *rotation) signing() string {
	r.t.Helper()
	return string(secret(r.t, r.object("authority"))["tls.crt"])
}

// holds checks which authority signs, and that the Secret has so many keys.
func (r *rotation) holds(signs string, keys int) {
	r.t.Helper()
	if held := secret(r.t, r.object("authority")); string(held["tls.crt"]) != signs || len(held) != keys {
		r.t.Fatalf("the Secret has %d keys, want %d, and the certificate\n%s, want\n%s", len(held), keys, held["tls.crt"], signs)
	}
}

// member is a NATS server with the chart's configuration, and what reloads it.
type member struct {
	name, url, monitor, dir string
	stop                    func()
	log                     string
}

// bring writes what a kubelet brings to a server.
func (m *member) bring(t *testing.T) {
	t.Helper()
	configMap(t, "stoker-nats-ca", m.dir)
	configMap(t, "stoker-nats-accounts", m.dir)
	files(t, "stoker-nats-tls", m.dir)
}

// reread brings a server what is new, and waits until it has read it.
func (m *member) reread(t *testing.T) {
	t.Helper()
	before := m.ask(t, "varz")["config_load_time"]
	m.bring(t)
	env.Eventually(t, m.name+" to read its configuration again", func() error {
		if m.ask(t, "varz")["config_load_time"] == before {
			return errors.New("it has not")
		}
		return nil
	})
}

// start starts the server, again if it was stopped.
func (m *member) start(t *testing.T) {
	t.Helper()
	m.log, m.stop = start(t, component(t, "nats-server", "nats-server"), "--config", filepath.Join(m.dir, "nats.conf"))
}

// restart has all its routes and connections made anew.
func (m *member) restart(t *testing.T, all []*member) {
	t.Helper()
	m.stop()
	m.start(t)
	for _, one := range all {
		env.Eventually(t, "routes of "+one.name, func() error { return one.routed(t, all) })
	}
}

// routed reports whether a server has routes to all others.
func (m *member) routed(t *testing.T, all []*member) error {
	t.Helper()
	found := map[string]bool{m.name: true}
	routes, _ := m.ask(t, "routez")["routes"].([]any)
	for _, entry := range routes {
		route, _ := entry.(map[string]any)
		name, _ := route["remote_name"].(string)
		found[name] = true
	}
	for _, other := range all {
		if !found[other.name] {
			return fmt.Errorf("%s has none to %s", m.name, other.name)
		}
	}
	return nil
}

// ask reads a page of the server's monitoring port, nothing while it doesn't answer.
func (m *member) ask(t *testing.T, page string) (answer map[string]any) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, m.monitor+"/"+page, nil)
	if err != nil {
		t.Fatal(err)
	}
	response, err := http.DefaultClient.Do(req)
	if err != nil {
		return nil
	}
	defer response.Body.Close()
	_ = json.NewDecoder(response.Body).Decode(&answer)
	return answer
}

// cluster starts three servers with routes between them.
func (r *rotation) cluster() (all []*member) {
	r.t.Helper()
	data, _ := render(r.t, "stoker", r.values()...)["ConfigMap/stoker-nats"]["data"].(map[string]any)
	conf, _ := data["nats.conf"].(string)
	system := write(r.t, filepath.Join(r.t.TempDir(), "seed"), string(secret(r.t, "stoker-nats-system")["seed"]))
	routes := []string{}
	for n := range 3 {
		m := &member{name: fmt.Sprintf("stoker-nats-%d", n), dir: r.t.TempDir()}
		client, monitor, route := port.Free(r.t), port.Free(r.t), port.Free(r.t)
		m.url, m.monitor = fmt.Sprintf("tls://127.0.0.1:%d", client), fmt.Sprintf("http://127.0.0.1:%d", monitor)
		routes = append(routes, fmt.Sprintf("%s.stoker-nats-servers.stoker-system.svc:6222", m.name), fmt.Sprintf("127.0.0.1:%d", route))
		m.bring(r.t)
		write(r.t, filepath.Join(m.dir, "nats.conf"), strings.NewReplacer(
			"$POD_NAME", m.name, "/etc/nats-tls", m.dir, "/etc/nats-ca", m.dir, "/data", r.t.TempDir(),
			"0.0.0.0:4222", fmt.Sprintf("127.0.0.1:%d", client), "0.0.0.0:8222", fmt.Sprintf("127.0.0.1:%d", monitor),
			"0.0.0.0:6222", fmt.Sprintf("127.0.0.1:%d", route)).Replace(conf))
		all = append(all, m)
	}
	for _, m := range all {
		file := filepath.Join(m.dir, "nats.conf")
		conf, err := os.ReadFile(file)
		if err != nil {
			r.t.Fatal(err)
		}
		write(r.t, file, strings.NewReplacer(routes...).Replace(string(conf)))
		m.start(r.t)
	}
	for _, m := range all {
		env.Eventually(r.t, "routes of "+m.name, func() error { return m.routed(r.t, all) })
		start(r.t, e.StokerBin(), "nats-reload", "--watch", m.dir, "--nats", m.url, "--nats-ca", filepath.Join(m.dir, "ca.crt"), "--nkey", system)
	}
	return all
}

// client connects with a ca.crt of its own.
type client struct{ ca, seed string }

func newClient(t *testing.T) *client {
	t.Helper()
	seed := write(t, filepath.Join(t.TempDir(), "seed"), string(secret(t, "stoker-nats-certs")["seed"]))
	c := &client{ca: filepath.Join(t.TempDir(), "ca.crt"), seed: seed}
	c.bring(t)
	return c
}

// bring writes what a kubelet brings to a client.
func (c *client) bring(t *testing.T) { t.Helper(); configMap(t, "stoker-nats-ca", filepath.Dir(c.ca)) }

func (c *client) connect(m *member, more ...nats.Option) (*nats.Conn, error) {
	seed, err := nats.NkeyOptionFromSeed(c.seed)
	if err != nil {
		return nil, err
	}
	return nats.Connect(m.url, append(more, seed, nats.RootCAs(c.ca), nats.IgnoreDiscoveredServers(), nats.Timeout(10*time.Second))...)
}

// reaches waits until a server lets the client in, with a certificate by this authority.
func (c *client) reaches(t *testing.T, m *member, authority string) {
	t.Helper()
	pool := x509.NewCertPool()
	pool.AppendCertsFromPEM([]byte(authority))
	env.Eventually(t, m.name+" to let a client in with a certificate by that authority", func() error {
		conn, err := c.connect(m)
		if err != nil {
			return err
		}
		defer conn.Close()
		state, err := conn.TLSConnectionState()
		if err != nil {
			return err
		}
		_, err = state.PeerCertificates[0].Verify(x509.VerifyOptions{Roots: pool})
		return err
	})
}

// unverified reports whether a server's certificate was refused.
func unverified(err error) bool {
	var v *tls.CertificateVerificationError
	return errors.As(err, &v)
}

// keepConnecting has clients connect to all servers again and again until it is stopped. No server's certificate may ever be refused; other
// errors may be, for a server that reloads or begins anew closes connections that are being made.
func keepConnecting(t *testing.T, all []*member, clients ...*client) (stop func()) {
	t.Helper()
	stopped, done := make(chan struct{}), sync.WaitGroup{}
	let := make([]int, len(clients))
	for i, c := range clients {
		done.Go(func() {
			pace := time.NewTicker(20 * time.Millisecond)
			defer pace.Stop()
			for n := 0; ; n++ {
				select {
				case <-stopped:
					return
				case <-pace.C:
				}
				conn, err := c.connect(all[n%len(all)])
				if err == nil {
					conn.Close()
					let[i]++
				} else if unverified(err) {
					t.Errorf("client %d at %s: %v", i, all[n%len(all)].name, err)
					return
				}
			}
		})
	}
	stop = sync.OnceFunc(func() {
		close(stopped)
		done.Wait()
		t.Logf("connections made by the clients: %v", let)
	})
	t.Cleanup(stop)
	return stop
}

// Another authority comes in three steps. Clients and servers that have the files of the step before, or of this one, always connect.
func TestAnotherAuthority(t *testing.T) {
	env.Long(t, "rotation in three steps takes minutes; TestAnAuthorityThatEnds shows what an ending authority says")
	r := newRotation(t, "nats", "stoker")
	r.run("made Secret stoker-nats-authority\n")
	r.run()
	r.old, r.all = r.signing(), r.cluster()
	r.expect(r.old, "")
	r.prompt, r.slow = newClient(t), newClient(t)
	connected, err := r.prompt.connect(r.all[2], nats.DisconnectErrHandler(func(_ *nats.Conn, err error) {
		t.Errorf("the connected client was disconnected: %v", err)
	}))
	if err != nil {
		t.Fatal(err)
	}
	// Cleanups run in the opposite order: the client is closed before servers end.
	t.Cleanup(func() {
		connected.SetDisconnectErrHandler(nil)
		connected.Close()
	})
	r.connected = connected
	stop := keepConnecting(t, r.all, r.prompt, r.slow)
	formerly := secret(t, "stoker-nats-tls")

	r.askedForAndThenNot()
	r.authority = "2"
	r.bothAreTrusted()
	r.newCertificates()
	r.formerIsGone()
	stop()
	r.lateServer(formerly)
}

// askedForAndThenNot shows that nothing is left of an authority that isn't wanted any more before it signs.
func (r *rotation) askedForAndThenNot() {
	r.t.Helper()
	r.authority = "2"
	r.run("made the next authority")
	r.authority = "1"
	r.run("isn't asked for any more")
	r.run()
	r.expect(r.old, "")
	r.holds(r.old, 2)
}

// bothAreTrusted is the first step.
func (r *rotation) bothAreTrusted() {
	r.t.Helper()
	back := r.undo("ConfigMap", "stoker-nats-ca")
	r.run("made the next authority", "wrote ConfigMap stoker-nats-ca")
	r.run()
	back() // as if that run had ended in between: a later one begins the hour
	r.later(2 * time.Hour)
	r.run("wrote ConfigMap stoker-nats-ca")
	r.run()
	r.next = string(secret(r.t, "stoker-nats-authority")["next.crt"])
	r.expect(r.old+r.next, "1 of 3")
	r.prompt.bring(r.t)
	for _, m := range r.all {
		m.reread(r.t)
	}
	r.works()
}

// newCertificates is the second step.
func (r *rotation) newCertificates() {
	r.t.Helper()
	r.slow.bring(r.t)
	r.later(2 * time.Hour)
	back := r.undo("Secret", "stoker-nats-tls")
	r.run("signs from now on", "changed Secret stoker-nats-tls")
	back() // as if that run had ended in between: a later one begins the hour
	r.later(2 * time.Hour)
	r.run("changed Secret stoker-nats-tls")
	r.run()
	r.expect(r.old+r.next, "2 of 3")
	r.holds(r.next, 3)
	r.prompt.bring(r.t)
	r.all[0].reread(r.t)
	r.prompt.reaches(r.t, r.all[0], r.next)
	r.prompt.reaches(r.t, r.all[1], r.old)
	r.all[1].restart(r.t, r.all) // with the files it has: those of the step before
	r.slow.reaches(r.t, r.all[1], r.old)
	r.all[1].reread(r.t)
	r.all[2].reread(r.t)
	r.works()
}

// formerIsGone is the third step.
func (r *rotation) formerIsGone() {
	r.t.Helper()
	r.slow.bring(r.t)
	r.later(2 * time.Hour)
	r.run("isn't trusted any more", "wrote ConfigMap stoker-nats-ca")
	r.run()
	r.expect(r.next, "")
	r.holds(r.next, 2)
	r.prompt.bring(r.t)
	for _, m := range r.all {
		m.reread(r.t)
	}
	r.works()
	former := newClient(r.t)
	write(r.t, former.ca, r.old)
	if conn, err := former.connect(r.all[2]); !unverified(err) {
		conn.Close()
		r.t.Errorf("with the former authority's certificate: %v", err)
	}
}

// lateServer shows that a server with a certificate of the former authority gets no route.
func (r *rotation) lateServer(formerly map[string][]byte) {
	r.t.Helper()
	m := &member{name: r.all[1].name, url: r.all[1].url, monitor: r.all[1].monitor, dir: r.t.TempDir()}
	for file, data := range formerly {
		write(r.t, filepath.Join(m.dir, file), string(data))
	}
	conf, err := os.ReadFile(filepath.Join(r.all[1].dir, "nats.conf"))
	if err != nil {
		r.t.Fatal(err)
	}
	for _, key := range []string{"tls.crt", "tls.key"} {
		conf = []byte(strings.ReplaceAll(string(conf), filepath.Join(r.all[1].dir, key), filepath.Join(m.dir, key)))
	}
	configMap(r.t, "stoker-nats-accounts", m.dir)
	write(r.t, filepath.Join(m.dir, "nats.conf"), string(conf))
	r.all[1].stop()
	m.start(r.t)
	env.Eventually(r.t, "the others to refuse it", func() error {
		said, err := os.ReadFile(r.all[2].log)
		if err == nil && !strings.Contains(string(said), "certificate signed by unknown authority") {
			err = errors.New("it doesn't say so")
		}
		return err
	})
	if err := m.routed(r.t, r.all); err == nil {
		r.t.Error("it has routes")
	}
}

// works shows that clients with the files of this step and of the one before are let in, and that servers find each other anew.
func (r *rotation) works() {
	r.t.Helper()
	for _, m := range r.all {
		r.prompt.reaches(r.t, m, r.signing())
		r.slow.reaches(r.t, m, r.signing())
	}
	// The client that stays connected is at the third.
	r.all[0].restart(r.t, r.all)
	r.all[1].restart(r.t, r.all)
	if err := r.connected.FlushTimeout(30 * time.Second); err != nil {
		r.t.Errorf("the connected client: %v", err)
	}
}

// etcdMember is an etcd server with the chart's flags for TLS.
type etcdMember struct {
	name, url, peer, dir, data string
	stop                       func()
}

// bring writes what a kubelet brings to a member.
func (m *etcdMember) bring(t *testing.T) {
	t.Helper()
	configMap(t, "stoker-etcd-ca", m.dir)
	files(t, "stoker-etcd-tls", m.dir)
}

func (m *etcdMember) start(t *testing.T, all []*etcdMember) {
	t.Helper()
	var cluster []string
	for _, one := range all {
		cluster = append(cluster, one.name+"="+one.peer)
	}
	ca, cert, key := filepath.Join(m.dir, "ca.crt"), filepath.Join(m.dir, "tls.crt"), filepath.Join(m.dir, "tls.key")
	_, m.stop = start(t, component(t, "etcd", "etcd"), "--name="+m.name, "--data-dir="+m.data, "--initial-cluster="+strings.Join(cluster, ","),
		"--listen-client-urls="+m.url, "--advertise-client-urls="+m.url, "--listen-peer-urls="+m.peer, "--initial-advertise-peer-urls="+m.peer,
		"--client-cert-auth", "--trusted-ca-file="+ca, "--cert-file="+cert, "--key-file="+key,
		"--peer-client-cert-auth", "--peer-trusted-ca-file="+ca, "--peer-cert-file="+cert, "--peer-key-file="+key)
}

// tenant has what datastore gives the API server of a tenant: ca.crt, and a certificate by the authority.
type tenant struct {
	mu     sync.Mutex
	client *http.Client
}

// bring gives it what the DataStore says now; its API server begins anew.
func (c *tenant) bring(t *testing.T) {
	t.Helper()
	held := secret(t, "stoker-etcd-authority")
	authority, err := pki.Pair{Cert: held["tls.crt"], Key: held["tls.key"]}.Signer()
	if err != nil {
		t.Fatal(err)
	}
	pair, err := pki.Issue(&x509.Certificate{
		Subject: pkix.Name{CommonName: "tenant"}, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
	}, authority)
	if err != nil {
		t.Fatal(err)
	}
	certificate, err := pair.TLS()
	if err != nil {
		t.Fatal(err)
	}
	pool := x509.NewCertPool()
	pool.AppendCertsFromPEM(secret(t, "stoker-etcd-root")["ca.crt"])
	c.mu.Lock()
	defer c.mu.Unlock()
	c.client = &http.Client{Timeout: 10 * time.Second, Transport: &http.Transport{
		DisableKeepAlives: true, TLSClientConfig: &tls.Config{
			MinVersion: tls.VersionTLS12, RootCAs: pool, Certificates: []tls.Certificate{certificate},
		},
	}}
}

// reach asks a member whether a majority answers it.
func (c *tenant) reach(t *testing.T, m *etcdMember) error {
	t.Helper()
	c.mu.Lock()
	client := c.client
	c.mu.Unlock()
	req, err := http.NewRequestWithContext(context.WithoutCancel(t.Context()), http.MethodGet, m.url+"/health", nil)
	if err != nil {
		return err
	}
	response, err := client.Do(req)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusOK {
		return fmt.Errorf("%s: %s", m.name, response.Status)
	}
	return nil
}

// distrusted reports whether one side refused the other's certificate. (A member that reads its files while they are replaced says
// "internal error", once.)
func distrusted(err error) bool {
	var alert *net.OpError
	return unverified(err) || errors.As(err, &alert) && alert.Op == "remote error" && strings.Contains(err.Error(), "certificate")
}

// etcdRotation is the replacement of the authority of three members.
type etcdRotation struct {
	*rotation

	all          []*etcdMember
	prompt, slow *tenant
}

// begin starts the members, and tenants that ask them again and again. No certificate may ever be refused.
func (r *etcdRotation) begin() (stop func()) {
	r.t.Helper()
	for n := range 3 {
		r.all = append(r.all, &etcdMember{
			name: fmt.Sprintf("stoker-etcd-%d", n), dir: r.t.TempDir(), data: filepath.Join(r.t.TempDir(), "data"),
			url: fmt.Sprintf("https://127.0.0.1:%d", port.Free(r.t)), peer: fmt.Sprintf("https://127.0.0.1:%d", port.Free(r.t)),
		})
	}
	for _, m := range r.all {
		m.bring(r.t)
		m.start(r.t, r.all)
	}
	stopped, done := make(chan struct{}), sync.WaitGroup{}
	for n, c := range []*tenant{r.prompt, r.slow} {
		c.bring(r.t)
		done.Go(func() {
			pace := time.NewTicker(20 * time.Millisecond)
			defer pace.Stop()
			for i := 0; ; i++ {
				select {
				case <-stopped:
					return
				case <-pace.C:
				}
				if err := c.reach(r.t, r.all[i%len(r.all)]); distrusted(err) {
					r.t.Errorf("tenant %d: %v", n, err)
					return
				}
			}
		})
	}
	stop = sync.OnceFunc(func() {
		close(stopped)
		done.Wait()
	})
	r.t.Cleanup(stop)
	r.answers()
	return stop
}

// answers waits until each member answers both tenants.
func (r *etcdRotation) answers() {
	r.t.Helper()
	for _, m := range r.all {
		for _, c := range []*tenant{r.prompt, r.slow} {
			env.Eventually(r.t, m.name+" to answer", func() error { return c.reach(r.t, m) })
		}
	}
}

// rollout brings each member what is new, and has it begin anew, one after the other; one of the tenants has begun anew before.
func (r *etcdRotation) rollout() {
	r.t.Helper()
	r.prompt.bring(r.t)
	r.answers()
	for _, m := range r.all {
		m.bring(r.t)
		r.answers() // certificates are read for each connection
		m.stop()
		m.start(r.t, r.all)
		r.answers()
	}
	r.slow.bring(r.t)
	r.answers()
}

// Another authority of etcd comes in three steps, each of which is allowed when members and tenants have begun anew since the one before.
func TestAnotherAuthorityOfEtcd(t *testing.T) {
	env.Long(t, "rotation in three steps takes minutes; TestBootstrapOfEtcd shows the first authority")
	r := &etcdRotation{rotation: newRotation(t, "etcd", "stoker-etcd"), prompt: &tenant{}, slow: &tenant{}}
	r.run("made Secret stoker-etcd-authority\n")
	r.run()
	old := r.signing()
	stop := r.begin()
	former := &tenant{}
	former.bring(t)

	r.authority, r.number = "2", 2
	r.refuses("authority.step: is 2")
	r.number = 1
	r.run("made the next authority", "changed Secret stoker-etcd-root")
	r.run()
	next := string(secret(t, "stoker-etcd-authority")["next.crt"])
	r.expect(old+next, "1 of 3")
	r.rollout()
	r.number = 3
	r.refuses("authority.step: is 3")
	r.number = 2
	r.run("signs from now on", "changed Secret stoker-etcd-tls", "changed Secret stoker-etcd-root")
	r.run()
	r.expect(old+next, "2 of 3")
	r.rollout()
	r.number = 3
	r.run("isn't trusted any more", "changed Secret stoker-etcd-root")
	r.run()
	r.expect(next, "")
	r.rollout()
	stop()
	for _, m := range r.all {
		if err := former.reach(t, m); !distrusted(err) {
			t.Errorf("%s and a tenant of the former authority: %v", m.name, err)
		}
	}
}

// refuses runs the bootstrap, which must fail and say so.
func (r *rotation) refuses(want string) {
	r.t.Helper()
	config, kubeconfig := install(r.t, r.chart, r.values()...), as(r.t, r.chart+"-bootstrap")
	out, err := stoker(r.t.Context(), r.t, kubeconfig, "bootstrap", r.kind, "--config", config)
	if err == nil || !strings.Contains(out, want) {
		r.t.Fatalf("the bootstrap says %q and %v, want %q", out, err, want)
	}
}

// Runs at once: one makes the next authority, and none overwrites another's.
func TestRunsAtOnce(t *testing.T) {
	r := newRotation(t, "nats", "stoker")
	r.run("made Secret stoker-nats-authority\n")
	r.authority = "2"
	config, kubeconfig := install(t, "stoker", r.values()...), as(t, "stoker-bootstrap")
	var mu sync.Mutex
	var runs sync.WaitGroup
	made := 0
	for range 6 {
		runs.Go(func() {
			out, err := stoker(t.Context(), t, kubeconfig, "bootstrap", "nats", "--config", config)
			mu.Lock()
			defer mu.Unlock()
			if err == nil && strings.Contains(out, "made the next authority") {
				made++
			}
			if err != nil && !strings.Contains(out, "the object has been modified") {
				t.Errorf("%v: %s", err, out)
			}
		})
	}
	runs.Wait()
	if made != 1 {
		t.Errorf("%d runs made the next authority", made)
	}
	r.run()
	r.expect(r.signing()+string(secret(t, "stoker-nats-authority")["next.crt"]), "1 of 3")
}

// An authority that ends is replaced without being asked, with more time in between.
func TestAnAuthorityThatEnds(t *testing.T) {
	r := newRotation(t, "nats", "stoker")
	install(t, "stoker", r.values()...)
	year := 365 * 24 * time.Hour
	authority, err := pki.Issue(&x509.Certificate{
		Subject: pkix.Name{CommonName: "stoker-nats"}, IsCA: true,
		KeyUsage: x509.KeyUsageCertSign, NotBefore: time.Now().Add(-8*year - time.Hour), NotAfter: time.Now().Add(2*year - time.Hour),
	}, nil)
	if err != nil {
		t.Fatal(err)
	}
	old := string(authority.Cert)
	object := map[string]any{
		"apiVersion": "v1", "kind": "Secret", "type": corev1.SecretTypeTLS, "stringData": map[string]string{
			"tls.crt": old, "tls.key": string(authority.Key),
		},
		"metadata": map[string]any{
			"name": "stoker-nats-authority", "namespace": "stoker-system",
			"labels": map[string]string{"app.kubernetes.io/managed-by": "stoker-bootstrap"},
		},
	}
	kubectl(t, text(t, object), "create", "-f", "-")
	r.run("made the next authority")
	next := string(secret(t, "stoker-nats-authority")["next.crt"])
	r.expect(old+next, "1 of 3")
	r.later(29 * 24 * time.Hour)
	r.run()
	r.later(31 * 24 * time.Hour)
	r.run("signs from now on")
	r.expect(old+next, "2 of 3")
	r.later(2 * time.Hour)
	r.run("isn't trusted any more")
	r.expect(next, "")
	r.later(20 * year)
	r.run()
}
