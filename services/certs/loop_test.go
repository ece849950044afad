package certs

import (
	"bytes"
	"context"
	"crypto/x509"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"maps"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/yaml"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/stoker-k8s/stoker/deployments/natsserver"
	"github.com/stoker-k8s/stoker/pkg/api/event"
	"github.com/stoker-k8s/stoker/pkg/api/name"
	"github.com/stoker-k8s/stoker/pkg/api/state"
	"github.com/stoker-k8s/stoker/pkg/api/v1alpha1"
	"github.com/stoker-k8s/stoker/pkg/events"
	"github.com/stoker-k8s/stoker/pkg/kube"
	"github.com/stoker-k8s/stoker/pkg/loop"
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
		t.Skip("there is no Go to build " + program + " with")
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

func freeAddress(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().String()
}

func start(t *testing.T, program string, args ...string) {
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
}

func eventually(t *testing.T, what string, is func() bool) {
	t.Helper()
	for deadline := time.Now().Add(60 * time.Second); !is(); {
		if time.Now().After(deadline) {
			t.Fatalf("never happened: %s", what)
		}
		time.Sleep(10 * time.Millisecond) //nolint:forbidigo // between two looks at a condition
	}
}

// cluster starts etcd and a kube-apiserver from certificates of this package: that it runs, authenticates its
// administrator and signs ServiceAccount tokens says that they are good. It returns the administrator's client and one
// with just the rights of this service.
func cluster(t *testing.T) (admin, certs *kube.Client) {
	t.Helper()
	etcd, apiserver := binary(t, "etcd", "etcd"), binary(t, "kubernetes-v1.36.3", "kube-apiserver")
	etcdURL, etcdPeer, address := "http://"+freeAddress(t), "http://"+freeAddress(t), freeAddress(t)
	start(t, etcd, "--data-dir", t.TempDir(), "--listen-client-urls", etcdURL, "--advertise-client-urls", etcdURL,
		"--listen-peer-urls", etcdPeer, "--initial-advertise-peer-urls", etcdPeer, "--initial-cluster", "default="+etcdPeer,
		"--unsafe-no-fsync", "--log-level", "warn")

	in, x := demo(), world{}
	in.Name, in.Exposed = "management", &exposed{Endpoint: address, Address: "127.0.0.1"}
	today := time.Now()
	x.turn(t, in, nil, today)
	dir := t.TempDir()
	for _, secret := range x {
		for key, value := range secret.Data {
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

	if admin, err = kube.FromKubeconfig(x[name.ComponentAdminKubeconfig].Data[name.KeySuperAdminConf], kube.Options{FieldManager: "test"}); err != nil {
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
	caCert, caKey, err := parsePair(x[name.ComponentCA].Data[name.KeyCACert], x[name.ComponentCA].Data[name.KeyCAKey])
	if err != nil {
		t.Fatal(err)
	}
	cert, key, err := (&credential{CommonName: "stoker-certs", Usage: x509.ExtKeyUsageClientAuth}).issue(&signer{cert: caCert, key: caKey}, today)
	if err != nil {
		t.Fatal(err)
	}
	config, err := kube.Kubeconfig{
		Server: "https://" + address, CA: x[name.ComponentCA].Data[name.KeyCACert], Cluster: "m", User: "c", Certificate: cert, Key: key,
	}.Marshal()
	if err != nil {
		t.Fatal(err)
	}
	if certs, err = kube.FromKubeconfig(config, kube.Options{FieldManager: name.FieldManagerCerts}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(certs.Close)
	return admin, certs
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
		b, err := events.Connect(events.Config{URL: r.nats.URL(), User: user, SeedFile: r.nats.SeedFile(user), Replica: "test", Log: testLog()})
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
	r.wakes[service] = make(chan loop.Waker, 1)
	r.run(&loop.Loop{
		Bus: r.bus(service), Service: service,
		Watch: func(ctx context.Context, partitions []int, wake loop.Waker) error {
			if slices.Contains(partitions, key.Partition()) {
				select {
				case r.wakes[service] <- wake:
				default:
				}
			}
			<-ctx.Done()
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
	v1alpha1.Default(tcp)
	r.do("intake", r.intake, loop.Outcome{
		Step: event.Accepted, Data: generation{number, state.Tenant{Namespace: key.Namespace, Name: key.Name, Labels: labels, Spec: tcp.Spec}},
		Facts: []loop.Tell{{What: event.Accepted}},
	})
}

func (r *rig) expose(endpoint string) {
	host, _, err := net.SplitHostPort(endpoint)
	if err != nil {
		r.t.Fatal(err)
	}
	r.do("workload", r.work, loop.Outcome{
		Step: event.Exposed, Data: state.Workload{Endpoint: endpoint, Address: host, ClusterIP: "10.96.0.77", AdvertiseAddress: "192.0.2.1"},
		Facts: []loop.Tell{{What: event.Exposed}},
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
	deadline := time.After(30 * time.Second)
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

func TestTheLoop(t *testing.T) {
	admin, limited := cluster(t)
	ctx := t.Context()

	t.Run("ServiceAccount tokens are signed with the ECDSA key and accepted", func(t *testing.T) {
		account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "probe"}}
		if err := admin.Apply(ctx, kube.ServiceAccounts, account); err != nil {
			t.Fatal(err)
		}
		tokens := kube.ServiceAccounts
		tokens.Plural = "serviceaccounts/probe/token"
		request := &authenticationv1.TokenRequest{
			TypeMeta:   metav1.TypeMeta{APIVersion: "authentication.k8s.io/v1", Kind: "TokenRequest"},
			ObjectMeta: metav1.ObjectMeta{Namespace: "default"},
		}
		if err := admin.Create(ctx, tokens, request); err != nil {
			t.Fatal(err)
		}
		review := &authenticationv1.TokenReview{
			TypeMeta: metav1.TypeMeta{APIVersion: "authentication.k8s.io/v1", Kind: "TokenReview"},
			Spec:     authenticationv1.TokenReviewSpec{Token: request.Status.Token},
		}
		reviews := kube.Resource{GroupVersion: authenticationv1.SchemeGroupVersion, Plural: "tokenreviews", Kind: "TokenReview"}
		if err := admin.Create(ctx, reviews, review); err != nil || !review.Status.Authenticated {
			t.Errorf("%v %v", err, review.Status)
		}
	})

	changes := make(chan kube.Change, 1000)
	go func() {
		_ = admin.Watch(ctx, kube.Secrets, "default", name.LabelName+"=demo", func(c kube.Change) { changes <- c })
	}()
	appear := func(t *testing.T, count int) {
		t.Helper()
		for seen := 0; seen < count; {
			select {
			case c := <-changes:
				if c.Type == watch.Added {
					seen++
				}
			case <-time.After(30 * time.Second):
				t.Fatalf("%d of %d Secrets appeared", seen, count)
			}
		}
	}
	secrets := func() map[string]corev1.Secret {
		list := &corev1.SecretList{}
		if err := admin.List(ctx, kube.Secrets, "default", name.LabelName+"=demo", list); err != nil {
			t.Fatal(err)
		}
		all := map[string]corev1.Secret{}
		for _, s := range list.Items {
			all[s.Labels[name.LabelComponent]] = s
		}
		return all
	}
	unchanged := func(t *testing.T, before, after map[string]corev1.Secret, but ...string) {
		t.Helper()
		if !slices.Equal(slices.Sorted(maps.Keys(before)), slices.Sorted(maps.Keys(after))) {
			t.Errorf("Secrets %v, before %v", slices.Sorted(maps.Keys(after)), slices.Sorted(maps.Keys(before)))
		}
		for component, s := range before {
			same := s.ResourceVersion == after[component].ResourceVersion
			if same == slices.Contains(but, component) {
				t.Errorf("%s: unchanged is %t", component, same)
			}
		}
	}

	r := newRig(t, limited)
	stopCerts := r.certs()
	var issued event.CertsIssued
	if ok := t.Run("what needs no endpoint is issued on acceptance, the rest when it is known", func(t *testing.T) {
		r.t = t
		begin := time.Now()
		r.accept(1, "one.example.org")
		appear(t, len(components("demo"))-2)
		t.Logf("from accepted to the last Secret of the first stage: %s", time.Since(begin))
		begin = time.Now()
		r.expose("192.0.2.7:6443")
		appear(t, 2)
		r.fact(event.Issued, &issued)
		t.Logf("from exposed to issued, as status hears it: %s", time.Since(begin))
		for component, s := range secrets() {
			if issued.Checksums[component] != name.Checksum(s.Data) {
				t.Errorf("%s: checksum differs", component)
			}
		}
		if len(issued.Checksums) != len(components("demo")) || issued.UID != uid || issued.NotAfter.IsZero() {
			t.Errorf("%+v", issued)
		}
	}); !ok {
		t.FailNow()
	}
	t.Run("a new generation without consequence for certificates is issued and changes nothing", func(t *testing.T) {
		r.t = t
		before := secrets()
		r.accept(2, "one.example.org")
		var again event.CertsIssued
		r.fact(event.Issued, &again)
		if again.Generation != 2 || !maps.Equal(again.Checksums, issued.Checksums) || len(again.Reasons) != 0 {
			t.Errorf("%+v", again)
		}
		unchanged(t, before, secrets())
	})
	t.Run("a new name replaces the API server's certificate alone", func(t *testing.T) {
		r.t = t
		before := secrets()
		r.accept(3, "one.example.org", "two.example.org")
		r.fact(event.Issued, &issued)
		unchanged(t, before, secrets(), name.ComponentAPIServerCertificate)
	})
	t.Run("a deleted Secret is back within a second, of the same CA", func(t *testing.T) {
		r.t = t
		before := secrets()
		for len(changes) > 0 {
			<-changes
		}
		begin := time.Now()
		if _, err := admin.Delete(ctx, kube.Secrets, "default", name.SchedulerKubeconfig("demo"), metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
		appear(t, 1)
		if took := time.Since(begin); took > time.Second {
			t.Errorf("it took %s", took)
		} else {
			t.Logf("it took %s", took)
		}
		r.fact(event.Rotated, &issued)
		unchanged(t, before, secrets(), name.ComponentSchedulerKubeconfig)
	})
	t.Run("an edited label comes back and no key changes", func(t *testing.T) {
		before := secrets()
		patch := map[string]any{"metadata": map[string]any{"labels": map[string]any{name.LabelComponent: nil, name.LabelPartition: nil}}}
		if err := admin.MergePatch(ctx, kube.Secrets, "default", name.CA("demo"), patch, nil); err != nil {
			t.Fatal(err)
		}
		eventually(t, "the CA has its labels", func() bool { return secrets()[name.ComponentCA].Labels[name.LabelPartition] != "" })
		if a, b := secrets()[name.ComponentCA], before[name.ComponentCA]; !sameData(a.Data, b.Data) || !maps.Equal(a.Labels, b.Labels) {
			t.Errorf("labels %v", a.Labels)
		}
	})
	t.Run("the rotate annotation on the CA replaces it and all it signed", func(t *testing.T) {
		r.t = t
		before := secrets()
		patch := map[string]any{"metadata": map[string]any{"annotations": map[string]any{name.AnnotationRotate: ""}}}
		if err := admin.MergePatch(ctx, kube.Secrets, "default", name.CA("demo"), patch, nil); err != nil {
			t.Fatal(err)
		}
		r.fact(event.Rotated, &issued)
		after := secrets()
		unchanged(t, before, after, append([]string{name.ComponentCA}, leavesOfCA...)...)
		ca := after[name.ComponentCA]
		if _, err := time.Parse(time.RFC3339, ca.Annotations[name.AnnotationRotate]); err != nil || issued.Reasons[name.ComponentCA] == "" {
			t.Errorf("annotation %q, reasons %v", ca.Annotations[name.AnnotationRotate], issued.Reasons)
		}
	})
	t.Run("what was deleted while the service was away is back when it is", func(t *testing.T) {
		r.t = t
		stopCerts()
		before := secrets()
		if _, err := admin.Delete(ctx, kube.Secrets, "default", name.FrontProxyClientCertificate("demo"), metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
		stopCerts = r.certs()
		r.fact(event.Rotated, &issued)
		unchanged(t, before, secrets(), name.ComponentFrontProxyClientCertificate)
	})
	t.Run("when NATS was lost, every service's work is found done", func(t *testing.T) {
		before := secrets()
		for _, stop := range r.stops {
			stop()
		}
		r.nats.Stop()
		r = newRig(t, limited)
		r.certs()
		r.accept(3, "one.example.org", "two.example.org")
		r.expose("192.0.2.7:6443")
		var again event.CertsIssued
		r.fact(event.Issued, &again)
		unchanged(t, before, secrets())
		if !maps.Equal(again.Checksums, issued.Checksums) || len(again.Reasons) != 0 {
			t.Errorf("%+v", again)
		}

		t.Run("and deletion takes all of it and nothing else", func(t *testing.T) {
			r.t = t
			own := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "demo-mine", Labels: map[string]string{name.LabelName: "demo"}}}
			if err := admin.Create(ctx, kube.Secrets, own); err != nil {
				t.Fatal(err)
			}
			r.do("intake", r.intake, loop.Outcome{
				Step: event.Deleting, Data: generation{4, state.Tenant{Namespace: key.Namespace, Name: key.Name, Deleting: true}},
				Facts: []loop.Tell{{What: event.Deleting}},
			})
			about := event.About{Namespace: key.Namespace, Name: key.Name, UID: "another", Generation: 4}
			tell := func(id string) {
				gone := event.Removals{About: about, Removed: map[string]int{"workload/Deployment": 1}, Left: []string{"a prefix"}}
				if err := r.bus("datastore").Tell(ctx, key, 4, id, event.Removed, gone); err != nil {
					t.Fatal(err)
				}
			}
			tell("1")
			about.UID = uid
			tell("2")
			var gone event.Removals
			r.fact(event.Removed, &gone)
			if gone.Removed["certs/Secret"] != len(components("demo")) || gone.Removed["workload/Deployment"] != 1 || len(gone.Left) != 1 {
				t.Errorf("%+v", gone)
			}
			if left := secrets(); len(left) != 1 || left[""].Name != "demo-mine" {
				t.Errorf("left: %v", slices.Sorted(maps.Keys(left)))
			}
		})
	})
	t.Run("its rights are enough for its work and for nothing else", func(t *testing.T) {
		if err := limited.Get(ctx, kube.ConfigMaps, "default", "x", &corev1.ConfigMap{}); !apierrors.IsForbidden(err) {
			t.Errorf("got %v", err)
		}
	})
	t.Run("no key is in a fact", func(t *testing.T) {
		data, err := json.Marshal(issued)
		if err != nil || bytes.Contains(data, []byte("PRIVATE")) {
			t.Errorf("%v %s", err, data)
		}
	})
}
