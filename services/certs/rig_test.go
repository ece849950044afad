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
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/yaml"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/stoker-k8s/stoker/internal/testing/apiserver"
	"github.com/stoker-k8s/stoker/local/natsserver"
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

// shared is the API server of tests that don't run in parallel and leave only Secrets behind.
var shared struct {
	apiserver.Shared
	credentials
}

func TestMain(m *testing.M) { os.Exit(shared.Main(m)) }

// cluster returns the API server that tests share, without Secrets, and two clients: the administrator's, and one with just the rights of this
// service. A test that runs in parallel or makes other kinds of objects needs a [newCluster].
func cluster(t *testing.T) (admin, certs *kube.Client, server *apiserver.Server) {
	t.Helper()
	server = shared.Server(t, shared.options(t))
	server.Purge(t, "", kube.Secrets)
	admin, certs = shared.connect(t, server)
	return admin, certs, server
}

// newCluster is [cluster] with an API server that no other test uses.
func newCluster(t *testing.T) (admin, certs *kube.Client) {
	t.Helper()
	var c credentials
	return c.connect(t, apiserver.Run(t, c.options(t)))
}

// credentials makes the PKI of an API server from certificates that this package issues. The API server shows that they are good: it starts,
// authenticates its administrator and signs ServiceAccount tokens with them. certs is the kubeconfig of this service.
type credentials struct{ certs []byte }

func (c *credentials) options(t *testing.T) apiserver.Options {
	return apiserver.Options{Credentials: func(dir, address string) (flags map[string]string, kubeconfig []byte, err error) {
		now := time.Now()
		x, ca := issueAll(t, pki.Input{
			Namespace: "default", Name: "management", UID: "u-1", Port: 6443, ClusterDomain: "cluster.local", ServiceCIDRs: []string{"10.96.0.0/16"},
			Exposed: &pki.Exposed{Endpoint: address, Address: "127.0.0.1"},
		}, now)
		for _, data := range x {
			for key, value := range data {
				if err := os.WriteFile(filepath.Join(dir, key), value, 0o600); err != nil {
					return nil, nil, err
				}
			}
		}
		cert, key, err := (&pki.Credential{CommonName: "stoker-certs", Usage: x509.ExtKeyUsageClientAuth}).Issue(ca, now)
		if err != nil {
			return nil, nil, err
		}
		c.certs, err = kube.Kubeconfig{
			Server: "https://" + address, CA: x[name.ComponentCA][name.KeyCACert], Cluster: "m", User: "c", Certificate: cert, Key: key,
		}.Marshal()
		flags = map[string]string{"requestheader-allowed-names": "front-proxy-client"}
		for flag, key := range map[string]string{
			"tls-cert-file": name.KeyAPIServerCert, "tls-private-key-file": name.KeyAPIServerKey, "client-ca-file": name.KeyCACert,
			"service-account-key-file": name.KeyServiceAccountPublic, "service-account-signing-key-file": name.KeyServiceAccountPrivate,
			"kubelet-client-certificate": name.KeyAPIServerKubeletClientCert, "kubelet-client-key": name.KeyAPIServerKubeletClientKey,
			"proxy-client-cert-file": name.KeyFrontProxyClientCert, "proxy-client-key-file": name.KeyFrontProxyClientKey,
			"requestheader-client-ca-file": name.KeyFrontProxyCACert,
		} {
			flags[flag] = filepath.Join(dir, key)
		}
		return flags, x[name.ComponentAdminKubeconfig][name.KeySuperAdminConf], err
	}}
}

// connect makes the clients and gives this service its rights.
func (c *credentials) connect(t *testing.T, server *apiserver.Server) (admin, certs *kube.Client) {
	t.Helper()
	admin, err := kube.FromKubeconfig(server.Kubeconfig, kube.Options{FieldManager: "test", Timeout: apiserver.Patience})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(admin.Close)
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
	restConfig, err := clientcmd.RESTConfigFromKubeConfig(c.certs)
	if err != nil {
		t.Fatal(err)
	}
	listed.Store(0)
	restConfig.Wrap(func(next http.RoundTripper) http.RoundTripper { return countsLists{next} })
	if certs, err = kube.New(restConfig, kube.Options{FieldManager: name.FieldManagerCerts}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(certs.Close)
	return admin, certs
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
