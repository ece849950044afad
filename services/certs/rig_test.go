package certs

import (
	"context"
	"crypto/x509"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/yaml"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/stoker-k8s/stoker/deployments/natsserver"
	"github.com/stoker-k8s/stoker/internal/testing/port"
	"github.com/stoker-k8s/stoker/pkg/api/event"
	"github.com/stoker-k8s/stoker/pkg/api/name"
	"github.com/stoker-k8s/stoker/pkg/api/state"
	"github.com/stoker-k8s/stoker/pkg/api/v1alpha1"
	"github.com/stoker-k8s/stoker/pkg/events"
	"github.com/stoker-k8s/stoker/pkg/kube"
	"github.com/stoker-k8s/stoker/pkg/loop"
	"github.com/stoker-k8s/stoker/pkg/partition"
	"github.com/stoker-k8s/stoker/services/certs/internal/pki"
)

func testLog() *slog.Logger {
	if testing.Verbose() {
		return slog.New(slog.NewTextHandler(os.Stderr, nil))
	}
	return slog.New(slog.DiscardHandler)
}

// binary is a program of the local stack, which builds it when it isn't in its cache: minutes, once.
func binary(t *testing.T, image, program string) string {
	t.Helper()
	if _, err := exec.LookPath("go"); err != nil {
		t.Skip("set-up: there is no Go to build " + program + " with")
	}
	cmd := exec.Command("go", "run", "./cmd/images", image)
	cmd.Dir, cmd.Stderr = filepath.Join("..", "..", "deployments", "local"), os.Stderr
	dir, err := cmd.Output()
	if err != nil {
		t.Fatalf("build image %s: %v", image, err)
	}
	return filepath.Join(strings.TrimSpace(string(dir)), program)
}

// manifests reads the objects of a file under deployments.
func manifests(t *testing.T, file string, each func(kind string, body []byte)) {
	t.Helper()
	f, err := os.Open(filepath.Join("..", "..", "deployments", file))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	d := yaml.NewYAMLOrJSONDecoder(f, 4096)
	for {
		var o map[string]any
		if err := d.Decode(&o); errors.Is(err, io.EOF) {
			return
		} else if err != nil {
			t.Fatal(err)
		}
		kind, ok := o["kind"].(string)
		if !ok {
			continue
		}
		body, err := json.Marshal(o)
		if err != nil {
			t.Fatal(err)
		}
		each(kind, body)
	}
}

func start(t *testing.T, program string, args ...string) *os.Process {
	t.Helper()
	cmd := exec.Command(program, args...)
	log, err := os.Create(filepath.Join(t.TempDir(), "log"))
	if err != nil {
		t.Fatal(err)
	}
	cmd.Stdout, cmd.Stderr = log, log
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
		if data, err := os.ReadFile(log.Name()); err == nil && t.Failed() {
			t.Logf("%s: %s", filepath.Base(program), data[max(0, len(data)-2000):])
		}
	})
	return cmd.Process
}

func eventually(t *testing.T, what string, is func() bool) {
	t.Helper()
	for began := time.Now(); !is(); {
		if time.Since(began) > 3*time.Minute { // on a machine that is busy
			t.Fatalf("never happened: %s", what)
		}
		time.Sleep(10 * time.Millisecond) //nolint:forbidigo // between two looks
	}
}

// issueAll makes the content of every Secret of an input, by component, and returns it with the CA.
func issueAll(t *testing.T, in pki.Input, now time.Time) (map[string]map[string][]byte, *pki.Signer) {
	t.Helper()
	roots, leaves, err := pki.Required(in)
	if err != nil {
		t.Fatal(err)
	}
	all, signers := map[string]map[string][]byte{}, map[string]*pki.Signer{}
	for _, w := range append(roots, leaves...) {
		data, err := w.Issue(signers[w.Signer], now)
		if err != nil {
			t.Fatal(err)
		}
		all[w.Component] = data
		if w.Kind == pki.Authority {
			if signers[w.Component], err = pki.NewSigner(data[w.Keys[0][0]], data[w.Keys[0][1]]); err != nil {
				t.Fatal(err)
			}
		}
	}
	return all, signers[name.ComponentCA]
}

// cluster starts etcd and a kube-apiserver from certificates of this package: that it runs, authenticates its
// administrator and signs ServiceAccount tokens says that they are good. It returns the administrator's client and kubeconfig, and a client
// with just the rights of this service.
func cluster(t *testing.T) (admin, certs *kube.Client, adminConfig []byte) {
	t.Helper()
	url, _ := startEtcd(t)
	return clusterOn(t, url)
}

// startEtcd starts an etcd and returns its URL.
func startEtcd(t *testing.T) (url string, etcd *os.Process) {
	t.Helper()
	url, peer := "http://"+port.Address(t, "127.0.0.1"), "http://"+port.Address(t, "127.0.0.1")
	return url, start(t, binary(t, "etcd", "etcd"), "--data-dir", t.TempDir(), "--listen-client-urls", url, "--advertise-client-urls", url,
		"--listen-peer-urls", peer, "--initial-advertise-peer-urls", peer, "--initial-cluster", "default="+peer,
		"--unsafe-no-fsync", "--log-level", "warn")
}

// clusterOn is cluster with an etcd that is there already.
func clusterOn(t *testing.T, etcdURL string) (admin, certs *kube.Client, adminConfig []byte) {
	t.Helper()
	apiserver, address := binary(t, "kubernetes-v1.36.3", "kube-apiserver"), port.Address(t, "127.0.0.1")

	today, dir := time.Now(), t.TempDir()
	x, ca := issueAll(t, pki.Input{
		Namespace: "default", Name: "management", UID: "u-1", Port: 6443, ClusterDomain: "cluster.local", ServiceCIDRs: []string{"10.96.0.0/16"},
		Exposed: &pki.Exposed{Endpoint: address, Address: "127.0.0.1"},
	}, today)
	for _, data := range x {
		for key, value := range data {
			if err := os.WriteFile(filepath.Join(dir, key), value, 0o600); err != nil {
				t.Fatal(err)
			}
		}
	}
	file := func(key string) string { return filepath.Join(dir, key) }
	_, port, err := net.SplitHostPort(address)
	if err != nil {
		t.Fatal(err)
	}
	start(t, apiserver, "--bind-address=127.0.0.1", "--secure-port="+port, "--etcd-servers="+etcdURL,
		"--advertise-address=192.0.2.1", "--endpoint-reconciler-type=none", "--authorization-mode=RBAC",
		"--tls-cert-file="+file(name.KeyAPIServerCert), "--tls-private-key-file="+file(name.KeyAPIServerKey),
		"--client-ca-file="+file(name.KeyCACert), "--service-account-issuer=https://kubernetes.default.svc",
		"--service-account-key-file="+file(name.KeyServiceAccountPublic),
		"--service-account-signing-key-file="+file(name.KeyServiceAccountPrivate), "--service-cluster-ip-range=10.96.0.0/16",
		"--kubelet-client-certificate="+file(name.KeyAPIServerKubeletClientCert),
		"--kubelet-client-key="+file(name.KeyAPIServerKubeletClientKey),
		"--proxy-client-cert-file="+file(name.KeyFrontProxyClientCert), "--proxy-client-key-file="+file(name.KeyFrontProxyClientKey),
		"--requestheader-client-ca-file="+file(name.KeyFrontProxyCACert), "--requestheader-allowed-names=front-proxy-client",
		"--disable-admission-plugins=ServiceAccount", "--shutdown-delay-duration=0s")

	superAdmin := x[name.ComponentAdminKubeconfig][name.KeySuperAdminConf]
	if admin, err = kube.FromKubeconfig(superAdmin, kube.Options{FieldManager: "test"}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(admin.Close)
	eventually(t, "the API server answers its administrator", func() bool {
		return admin.Get(t.Context(), kube.Namespaces, "", "default", &corev1.Namespace{}) == nil
	})
	eventually(t, "the API server has its roles", func() bool {
		return admin.Get(t.Context(), kube.ClusterRoles, "", "cluster-admin", &rbacv1.ClusterRole{}) == nil
	})

	role := &rbacv1.ClusterRole{}
	manifests(t, "rbac/certs.yaml", func(kind string, body []byte) {
		if kind == "ClusterRole" {
			if err := json.Unmarshal(body, role); err != nil {
				t.Fatal(err)
			}
		}
	})
	binding := &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: "stoker-certs"},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "stoker-certs"},
		Subjects:   []rbacv1.Subject{{Kind: "User", APIGroup: rbacv1.GroupName, Name: "stoker-certs"}},
	}
	if err := admin.Apply(t.Context(), kube.ClusterRoles, role); err != nil {
		t.Fatal(err)
	}
	if err := admin.Apply(t.Context(), kube.ClusterRoleBindings, binding); err != nil {
		t.Fatal(err)
	}
	cert, key, err := (&pki.Credential{CommonName: "stoker-certs", Usage: x509.ExtKeyUsageClientAuth}).Issue(ca, today)
	if err != nil {
		t.Fatal(err)
	}
	config, err := kube.Kubeconfig{
		Server: "https://" + address, CA: x[name.ComponentCA][name.KeyCACert], Cluster: "m", User: "c", Certificate: cert, Key: key,
	}.Marshal()
	if err != nil {
		t.Fatal(err)
	}
	restConfig, err := clientcmd.RESTConfigFromKubeConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	listed.Store(0)
	restConfig.Wrap(func(next http.RoundTripper) http.RoundTripper { return countsLists{next} })
	if certs, err = kube.New(restConfig, kube.Options{FieldManager: name.FieldManagerCerts}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(certs.Close)
	return admin, certs, superAdmin
}

// listed counts the lists of whole Secrets that the service asked for since the last cluster began.
var listed atomic.Int32

// listedMetadata gets the label selector of each list of Secrets' metadata, as long as it has room.
var listedMetadata = make(chan string, 100)

type countsLists struct{ http.RoundTripper }

func (c countsLists) RoundTrip(r *http.Request) (*http.Response, error) {
	metadata := strings.Contains(r.Header.Get("Accept"), "PartialObjectMetadata")
	if r.Method == http.MethodGet && strings.HasSuffix(r.URL.Path, "/"+kube.Secrets.Plural) && !metadata {
		listed.Add(1)
	}
	if strings.HasSuffix(r.URL.Path, "/"+kube.Secrets.Plural) && strings.Contains(r.Header.Get("Accept"), "PartialObjectMetadataList") {
		select {
		case listedMetadata <- r.URL.Query().Get("labelSelector"):
		default:
		}
	}
	return c.RoundTripper.RoundTrip(r)
}

// rig is a NATS with this service and stand-ins of those around it: they write the states and tell the facts a test asks
// them to.
type rig struct {
	t      *testing.T
	uid    string // of the tenant
	nats   *natsserver.Server
	kube   *kube.Client
	facts  chan loop.Event
	intake chan loop.Outcome
	work   chan loop.Outcome
	wakes  map[string]chan loop.Waker
	buses  map[string]*events.Bus
	stops  []func()
}

var key = events.Tenant("default", "demo")

const uid = "2a3c8f0e-0000-4000-8000-000000000001"

func newRig(t *testing.T, certs *kube.Client) *rig {
	t.Helper()
	r := &rig{
		t: t, uid: uid, kube: certs, facts: make(chan loop.Event, 1000), wakes: map[string]chan loop.Waker{}, buses: map[string]*events.Bus{},
		intake: make(chan loop.Outcome, 1), work: make(chan loop.Outcome, 1),
	}
	var err error
	if r.nats, err = natsserver.Start(t.Context(), t.TempDir(), "127.0.0.1:0", testLog()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(r.nats.Stop)
	if err := r.bus("intake").Provision(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := r.bus("intake").CreateBucket(t.Context(), key); err != nil {
		t.Fatal(err)
	}
	r.standIn("intake", r.intake)
	r.standIn("workload", r.work)
	r.run(&loop.Loop{Bus: r.bus("status"), Service: "status", Handle: func(_ context.Context, turn *loop.Turn) error {
		for _, e := range turn.Events {
			r.facts <- e
		}
		return nil
	}})
	return r
}

func (r *rig) bus(user string) *events.Bus {
	r.t.Helper()
	if r.buses[user] == nil {
		b, err := events.Connect(events.Config{
			URL: r.nats.URL(), User: user, SeedFile: r.nats.SeedFile(user), Replica: "test", Log: testLog(), RequestTimeout: 30 * time.Second,
		})
		if err != nil {
			r.t.Fatal(err)
		}
		r.t.Cleanup(b.Close)
		r.buses[user] = b
	}
	return r.buses[user]
}

func (r *rig) run(l *loop.Loop) (stop func()) {
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- l.Run(ctx) }()
	stopped := false
	stop = func() {
		if !stopped {
			stopped = true
			cancel()
			if err := <-done; err != nil {
				r.t.Errorf("%s: %v", l.Service, err)
			}
		}
	}
	r.stops = append(r.stops, stop)
	r.t.Cleanup(stop)
	return stop
}

func (r *rig) standIn(service string, outcomes chan loop.Outcome) {
	wakes := make(chan loop.Waker, 1)
	r.wakes[service] = wakes
	r.run(&loop.Loop{
		Bus: r.bus(service), Service: service,
		Watch: func(ctx context.Context, held *partition.Held, wake loop.Waker) error {
			for m := range held.Moves(ctx) {
				if slices.Contains(m.Gained, key.Partition()) {
					select {
					case wakes <- wake:
					default:
					}
				}
			}
			return nil
		},
		Handle: func(ctx context.Context, t *loop.Turn) error {
			if service != "intake" && t.Tenant == nil {
				return errors.New("the tenant isn't accepted yet")
			}
			select {
			case o := <-outcomes:
				if tenant, ok := o.Data.(generation); ok {
					t.UID, t.Generation, o.Data = r.uid, tenant.number, tenant.Tenant
				}
				for i, f := range o.Facts {
					if f.Data == nil {
						o.Facts[i].Data = t.About()
					}
				}
				return t.Done(ctx, o)
			default:
				return nil
			}
		},
	})
}

// generation is a Tenant with the generation to write it under.
type generation struct {
	number int64
	state.Tenant
}

// do makes a stand-in write and tell.
func (r *rig) do(service string, outcomes chan loop.Outcome, o loop.Outcome) {
	wake := <-r.wakes[service]
	r.wakes[service] <- wake
	outcomes <- o
	wake(key, loop.Wake{Kind: "test"})
}

func (r *rig) accept(number int64, sans ...string) { r.acceptLabelled(number, nil, sans...) }

func (r *rig) acceptLabelled(number int64, labels map[string]string, sans ...string) {
	tcp := &v1alpha1.TenantControlPlane{}
	tcp.Spec.NetworkProfile.CertSANs = sans
	tcp.Spec.Addons.Konnectivity = &v1alpha1.KonnectivitySpec{} // it adds Secrets to those that every tenant has
	v1alpha1.Default(tcp)
	r.do("intake", r.intake, loop.Outcome{
		Step: event.Accepted, Data: generation{number, state.Tenant{Namespace: key.Namespace, Name: key.Name, Labels: labels, Spec: tcp.Spec}},
		Facts: []loop.Tell{{What: event.Accepted}},
	})
}

func (r *rig) expose(endpoint string) { r.exposeServed(event.Exposed, endpoint, "") }

// exposeServed says, too, of which checksum the API server's certificate is that pods have.
func (r *rig) exposeServed(what, endpoint, serving string) {
	host, _, err := net.SplitHostPort(endpoint)
	if err != nil {
		r.t.Fatal(err)
	}
	r.do("workload", r.work, loop.Outcome{
		Step: what, Data: state.Workload{
			Endpoint: endpoint, Address: host, ClusterIP: "10.96.0.77", AdvertiseAddress: "192.0.2.1", Serving: serving,
		},
		Facts: []loop.Tell{{What: what}},
	})
}

// certs runs the service.
func (r *rig) certs() (stop func()) {
	s := newService(r.bus("certs"), r.kube, testLog())
	return r.run(&loop.Loop{Bus: r.bus("certs"), Service: "certs", Handle: s.handle, Watch: s.watch})
}

// fact waits for a fact of this service.
func (r *rig) fact(what string, into any) {
	r.t.Helper()
	deadline := time.After(3 * time.Minute) // on a machine that is busy
	for {
		select {
		case e := <-r.facts:
			if e.Service != "certs" {
				continue
			}
			if e.What != what {
				r.t.Fatalf("certs told %s, not %s: %s", e.What, what, e.Data())
			}
			if err := json.Unmarshal(e.Data(), into); err != nil {
				r.t.Fatal(err)
			}
			return
		case <-deadline:
			r.t.Fatalf("certs never told %s", what)
		}
	}
}

// state reads the state of the service.
func (r *rig) state() state.Certs {
	r.t.Helper()
	st, err := r.bus("certs").State(r.t.Context(), key, name.ServiceCerts)
	if err != nil {
		r.t.Fatal(err)
	}
	var c state.Certs
	if err := json.Unmarshal(st.Data, &c); err != nil {
		r.t.Fatal(err)
	}
	return c
}

// writeOldState makes the state of the service one of the version before, which had no field for the generation it was issued for.
func (r *rig) writeOldState() {
	r.t.Helper()
	ctx, bus := r.t.Context(), r.bus("certs")
	st, revision, err := bus.ReadState(ctx, key, name.ServiceCerts)
	if err != nil {
		r.t.Fatal(err)
	}
	var data map[string]any
	if err := json.Unmarshal(st.Data, &data); err != nil {
		r.t.Fatal(err)
	}
	if _, ok := data["issuedFor"]; !ok {
		r.t.Fatalf("no issuedFor in %s", st.Data)
	}
	delete(data, "issuedFor")
	st.Data, st.Facts = event.Marshal(data), nil
	if _, err := bus.WriteState(ctx, key, name.ServiceCerts, st, revision); err != nil {
		r.t.Fatal(err)
	}
}
