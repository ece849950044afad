// Package etcd measures what it costs API servers when an etcd with users denies them Maintenance.Status (docs/datastore.md#etcd-versions),
// and what the cures for it bring: `make bench BENCH=./bench/etcd`.
package etcd

import (
	"bytes"
	"context"
	"crypto/tls"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"text/tabwriter"
	"time"

	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/klog/v2"

	"github.com/stoker-k8s/stoker/internal/etcdauth"
	"github.com/stoker-k8s/stoker/internal/testing/port"
	"github.com/stoker-k8s/stoker/local/images"
	"github.com/stoker-k8s/stoker/local/progress"
	"github.com/stoker-k8s/stoker/pkg/pki"
	"github.com/stoker-k8s/stoker/test/env"
)

const (
	// denying is an etcd that wants the role root for Maintenance.Status; images.Etcd is one that doesn't.
	denying = "v3.6.8"
	// objects of 2 kB are in each tenant.
	objects = 1000
	// samples of each latency are taken.
	samples = 30
	// resting is how long requests are counted while nobody asks for anything.
	resting = time.Minute
)

// cure is a way to run API servers on an etcd with users.
type cure struct {
	name string
	etcd string   // program
	args []string // of API servers
}

// BenchmarkStatus compares the cures with 1 and with 10 API servers on one etcd.
func BenchmarkStatus(b *testing.B) {
	store, err := images.Open(filepath.Join("..", "..", ".."))
	check(b, err)
	built := func(image, program string) string {
		dir, err := store.Build(b.Context(), image, progress.None)
		check(b, err)
		return filepath.Join(dir, program)
	}
	apiserver, granting, older := built("kubernetes-v1.36.3", "kube-apiserver"), built("etcd", "etcd"), olderEtcd(b)
	version, _ := images.Version("etcd")
	w := tabwriter.NewWriter(os.Stdout, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(w, "\n\tAPI server MB\tetcd MB\twatch ms\tfailed\tlist ms\tcached list ms\tinformer ms\tkB of etcd a list\tetcd requests a minute\t")
	for _, tenants := range []int{1, 10} {
		for _, c := range []cure{
			{"etcd " + denying, older, nil},
			{"etcd " + denying + ", WatchList=false", older, []string{"--feature-gates=WatchList=false"}},
			{"etcd " + version, granting, nil},
		} {
			b.Run(fmt.Sprintf("%s/tenants=%d", strings.ReplaceAll(c.name, " ", "_"), tenants), func(b *testing.B) {
				for b.Loop() {
					measure(b, w, c, apiserver, tenants)
				}
			})
		}
	}
	check(b, w.Flush())
}

// measure prints one line.
func measure(b *testing.B, w *tabwriter.Writer, c cure, apiserver string, n int) {
	b.Helper()
	s := startEtcd(b, c.etcd)
	tenants := make([]*tenant, n)
	for i := range tenants {
		tenants[i] = s.startTenant(b, apiserver, i, c.args)
	}
	for _, t := range tenants {
		t.fill(b)
	}
	first := tenants[0]
	watch, failed := first.watches(b)
	before := s.sent(b)
	list := median(b, func() { first.list(b, "") })
	kB := (s.sent(b) - before) / samples / 1000
	cached := median(b, func() { first.list(b, "0") })
	informer := median(b, func() { first.sync(b) })
	before = s.requests(b)
	pause(b, resting)
	rest := (s.requests(b) - before) / float64(n) / resting.Minutes()
	mb := 0.0
	for _, t := range tenants {
		mb += used(b, t.process)
	}
	fmt.Fprintf(w, "%s, %d tenants\t%.0f\t%.0f\t%.1f\t%d of %d\t%.1f\t%.1f\t%.1f\t%.0f\t%.0f\t\n", c.name, n, mb/float64(n), used(b, s.process), watch, failed, samples,
		list, cached, informer, kB, rest)
	for _, t := range tenants {
		end(t.process)
	}
	end(s.process)
}

// olderEtcd builds the etcd that denies.
func olderEtcd(b *testing.B) string {
	b.Helper()
	from, dir := filepath.Join("..", "..", "..", "local", "images", "etcd"), b.TempDir()
	for _, f := range []string{"go.mod", "go.sum", "main.go"} {
		data, err := os.ReadFile(filepath.Join(from, f))
		check(b, err)
		check(b, os.WriteFile(filepath.Join(dir, f), data, 0o600))
	}
	for _, args := range [][]string{{"get", "go.etcd.io/etcd/server/v3@" + denying}, {"mod", "tidy"}, {"build", "-o", "etcd", "."}} {
		cmd := exec.CommandContext(b.Context(), "go", args...)
		cmd.Dir, cmd.Env = dir, append(os.Environ(), "GOWORK=off", "CGO_ENABLED=0", "GOFLAGS=-mod=mod")
		if out, err := cmd.CombinedOutput(); err != nil {
			b.Fatalf("go %s: %v\n%s", strings.Join(args, " "), err, out)
		}
	}
	return filepath.Join(dir, "etcd")
}

// server is an etcd whose users are the common names of their certificates.
type server struct {
	ca       *pki.Authority
	endpoint string // host:port
	metrics  string
	root     *clientv3.Client
	process  *exec.Cmd
}

func startEtcd(b *testing.B, program string) *server {
	b.Helper()
	dir := b.TempDir()
	ca, err := pki.OpenAuthority(filepath.Join(dir, "ca"), "etcd")
	check(b, err)
	serving, err := ca.Issue(pki.Leaf{File: "server", Name: "etcd", Hosts: []string{"127.0.0.1"}})
	check(b, err)
	root, err := ca.Issue(pki.Leaf{File: "root", Name: "root"})
	check(b, err)
	at := []string{port.Address(b, "127.0.0.1"), port.Address(b, "127.0.0.1"), port.Address(b, "127.0.0.1")}
	s := &server{ca: ca, endpoint: at[0], metrics: "http://" + at[2]}
	s.process = start(b, program, "--data-dir="+filepath.Join(dir, "data"), "--unsafe-no-fsync", "--client-cert-auth",
		"--trusted-ca-file="+ca.CertFile, "--cert-file="+serving.CertFile, "--key-file="+serving.KeyFile,
		"--listen-client-urls=https://"+at[0], "--advertise-client-urls=https://"+at[0], "--listen-metrics-urls="+s.metrics,
		"--listen-peer-urls=http://"+at[1], "--initial-advertise-peer-urls=http://"+at[1], "--initial-cluster=default=http://"+at[1])
	cert, err := root.TLS()
	check(b, err)
	s.root, err = clientv3.New(clientv3.Config{
		Endpoints: []string{"https://" + s.endpoint}, Logger: zap.NewNop(), DialTimeout: 5 * time.Second,
		TLS: &tls.Config{MinVersion: tls.VersionTLS12, Certificates: []tls.Certificate{cert}, RootCAs: ca.Pool()},
	})
	check(b, err)
	b.Cleanup(func() { _ = s.root.Close() })
	env.Eventually(b, "etcd to know its users", func() error {
		ctx, cancel := context.WithTimeout(b.Context(), 3*time.Second)
		defer cancel()
		return etcdauth.Enable(ctx, s.root)
	})
	return s
}

// sent is how many bytes clients were sent so far, requests how many requests they made.
func (s *server) sent(b *testing.B) float64 {
	return s.sum(b, "etcd_network_client_grpc_sent_bytes_total")
}
func (s *server) requests(b *testing.B) float64 { return s.sum(b, "grpc_server_started_total") }

// sum is that of a counter's series.
func (s *server) sum(b *testing.B, counter string) float64 {
	b.Helper()
	resp, err := http.Get(s.metrics + "/metrics")
	check(b, err)
	defer resp.Body.Close()
	parser := expfmt.NewTextParser(model.UTF8Validation)
	families, err := parser.TextToMetricFamilies(resp.Body)
	check(b, err)
	n := 0.0
	for _, m := range families[counter].GetMetric() {
		n += m.GetCounter().GetValue()
	}
	return n
}

// tenant is an API server with a user and a prefix of its own.
type tenant struct {
	client  *kubernetes.Clientset
	process *exec.Cmd
}

func (s *server) startTenant(b *testing.B, program string, number int, args []string) *tenant {
	b.Helper()
	user := fmt.Sprintf("tenant-%d", number)
	prefix, ctx := "/"+user+"/", b.Context()
	_, err := s.root.RoleAdd(ctx, user)
	check(b, err)
	_, err = s.root.RoleGrantPermission(ctx, user, prefix, clientv3.GetPrefixRangeEnd(prefix), clientv3.PermissionType(clientv3.PermReadWrite))
	check(b, err)
	_, err = s.root.UserAddWithOptions(ctx, user, "", &clientv3.UserAddOptions{NoPassword: true})
	check(b, err)
	_, err = s.root.UserGrantRole(ctx, user, user)
	check(b, err)
	store, err := s.ca.Issue(pki.Leaf{File: user, Name: user})
	check(b, err)

	dir := b.TempDir()
	ca, err := pki.OpenAuthority(filepath.Join(dir, "ca"), user)
	check(b, err)
	serving, err := ca.Issue(pki.Leaf{File: "server", Name: "kube-apiserver", Hosts: []string{"127.0.0.1"}})
	check(b, err)
	admin, err := ca.Issue(pki.Leaf{File: "admin", Name: "admin", Organization: []string{"system:masters"}})
	check(b, err)
	private, public, err := pki.SigningKey(filepath.Join(dir, "sa"))
	check(b, err)
	at := port.Address(b, "127.0.0.1")
	_, port, _ := net.SplitHostPort(at)
	t := &tenant{process: start(b, program, append([]string{
		"--etcd-servers=https://" + s.endpoint, "--etcd-cafile=" + s.ca.CertFile, "--etcd-certfile=" + store.CertFile, "--etcd-keyfile=" + store.KeyFile,
		"--etcd-prefix=" + strings.TrimSuffix(prefix, "/"), "--etcd-compaction-interval=0", "--bind-address=127.0.0.1", "--secure-port=" + port,
		"--advertise-address=192.0.2.1", "--service-cluster-ip-range=10.96.0.0/16", "--authorization-mode=RBAC", "--client-ca-file=" + ca.CertFile,
		"--tls-cert-file=" + serving.CertFile, "--tls-private-key-file=" + serving.KeyFile,
		"--service-account-issuer=https://kubernetes.default.svc", "--service-account-key-file=" + public,
		"--service-account-signing-key-file=" + private, "--shutdown-delay-duration=0s",
	}, args...)...)}
	t.client, err = kubernetes.NewForConfig(&rest.Config{
		Host: "https://" + at, QPS: -1,
		TLSClientConfig: rest.TLSClientConfig{CAData: ca.Cert, CertData: admin.Cert, KeyData: admin.Key},
	})
	check(b, err)
	env.Eventually(b, user+" to answer", func() error {
		return t.client.Discovery().RESTClient().Get().AbsPath("/readyz").Do(b.Context()).Error()
	})
	return t
}

// fill makes the tenant's objects.
func (t *tenant) fill(b *testing.B) {
	b.Helper()
	var g errgroup.Group
	g.SetLimit(16)
	for i := range objects {
		g.Go(func() error {
			o := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("of-2kb-%04d", i)}, Data: map[string]string{"data": strings.Repeat("x", 1800)}}
			_, err := t.client.CoreV1().ConfigMaps(metav1.NamespaceDefault).Create(b.Context(), o, metav1.CreateOptions{})
			return err
		})
	}
	check(b, g.Wait())
}

// watches begins watches without a resource version of what nobody writes, one after the other, and returns the median milliseconds until
// one is answered, and how many failed.
func (t *tenant) watches(b *testing.B) (milliseconds float64, failed int) {
	b.Helper()
	var took []time.Duration
	var mu sync.Mutex
	var all sync.WaitGroup
	for range samples {
		all.Go(func() {
			began := time.Now()
			var seconds int64 = 4 // longer than an API server waits for progress
			w, err := t.client.CoreV1().LimitRanges("").Watch(b.Context(), metav1.ListOptions{TimeoutSeconds: &seconds})
			after := time.Since(began)
			broken := err != nil
			if err == nil {
				for e := range w.ResultChan() {
					broken = broken || e.Type == "ERROR"
				}
			}
			mu.Lock()
			defer mu.Unlock()
			if took = append(took, after); broken {
				failed++
			}
		})
	}
	all.Wait()
	return middle(took), failed
}

// list lists the tenant's objects, from the API server's cache as it is with version "0".
func (t *tenant) list(b *testing.B, version string) {
	got, err := t.client.CoreV1().ConfigMaps(metav1.NamespaceDefault).List(b.Context(), metav1.ListOptions{ResourceVersion: version})
	check(b, err)
	if len(got.Items) < objects {
		b.Fatalf("%d objects", len(got.Items))
	}
}

// sync begins an informer of the tenant's objects and waits until it knows all of them.
func (t *tenant) sync(b *testing.B) {
	factory := informers.NewSharedInformerFactoryWithOptions(t.client, 0, informers.WithNamespace(metav1.NamespaceDefault))
	informer := factory.Core().V1().ConfigMaps().Informer()
	ctx, cancel := context.WithCancel(klog.NewContext(b.Context(), klog.Logger{})) // that the watch ends is no error here
	defer factory.Shutdown()
	defer cancel()
	factory.StartWithContext(ctx)
	for !informer.HasSynced() {
		pause(b, time.Millisecond)
	}
}

// median is that of the milliseconds do takes.
func median(b *testing.B, do func()) float64 {
	b.Helper()
	took := make([]time.Duration, samples)
	for i := range took {
		began := time.Now()
		do()
		took[i] = time.Since(began)
	}
	return middle(took)
}

func middle(took []time.Duration) float64 {
	slices.Sort(took)
	return took[len(took)/2].Seconds() * 1000
}

func used(b *testing.B, p *exec.Cmd) float64 {
	b.Helper()
	u, err := env.UsageOf(p.Process.Pid)
	check(b, err)
	return u.MB
}

// start runs a program until the benchmark ends. What it says is shown if it ends before.
func start(b *testing.B, program string, args ...string) *exec.Cmd {
	b.Helper()
	var log bytes.Buffer
	cmd := exec.Command(program, args...)
	cmd.Stdout, cmd.Stderr = &log, &log
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	check(b, cmd.Start())
	b.Cleanup(func() {
		if end(cmd); b.Failed() {
			b.Logf("%s: %s", filepath.Base(program), log.Bytes()[max(0, log.Len()-4000):])
		}
	})
	return cmd
}

func end(p *exec.Cmd) {
	_ = p.Process.Kill()
	_ = p.Wait()
}

func pause(b *testing.B, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-b.Context().Done():
		b.Fatal(b.Context().Err())
	}
}

func check(b *testing.B, err error) {
	b.Helper()
	if err != nil {
		b.Fatal(err)
	}
}
