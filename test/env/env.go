// Package env starts what the tests of more than one service need: the local stack with a real management cluster, a NATS
// server, and the services as processes of their own, each with its own identities.
package env

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"sigs.k8s.io/yaml"

	"github.com/stoker-k8s/stoker/internal/testing/apiserver"
	"github.com/stoker-k8s/stoker/internal/testing/checkout"
	"github.com/stoker-k8s/stoker/internal/testing/poll"
	"github.com/stoker-k8s/stoker/local/progress"
	"github.com/stoker-k8s/stoker/local/stack"
	"github.com/stoker-k8s/stoker/pkg/api/event"
	"github.com/stoker-k8s/stoker/pkg/api/name"
	"github.com/stoker-k8s/stoker/pkg/api/state"
	"github.com/stoker-k8s/stoker/pkg/api/v1alpha1"
	"github.com/stoker-k8s/stoker/pkg/events"
	"github.com/stoker-k8s/stoker/pkg/intent"
	"github.com/stoker-k8s/stoker/pkg/kube"
	"github.com/stoker-k8s/stoker/test/standin"
)

// Env is a running installation under test.
type Env struct {
	*stack.Stack
	// Admin of the management cluster.
	Admin *kube.Client
	// Operator and Portal are connections of those NATS users.
	Operator, Portal *events.Bus

	servers   *Servers // of a test's own; nil for the installation's
	dir, bins string
	mu        sync.Mutex
	procs     map[string]*Process
	commands  []*nats.Msg // that were published
}

// Root of the repository.
func Root() string { return checkout.Root() }

// Option of Main.
type Option func(*options)

type options struct {
	apiOnly  bool
	command  bool
	standIns func(tenant string) bool // nil for none
	services []string                 // to build
}

// APIOnly starts an API server and NATS, nothing that acts on objects, and makes intake's binary only: what events and
// kubectl are answered needs no more.
func APIOnly(o *options) { o.apiOnly, o.services = true, []string{name.ServiceIntake} }

// Command makes the binary of the command line ([Env.StokerBin]) also with [APIOnly].
func Command(o *options) { o.command = true }

// StandIns has stand-ins take the place of the programs in the pods of some tenants, which are named as namespace/name. Such a tenant starts in no
// time and costs nothing at rest. Its API has no schemas, no authorization and no controllers.
func StandIns(of func(tenant string) bool) Option { return func(o *options) { o.standIns = of } }

// Main starts an installation without services, runs a package's tests with it, and takes it down: for TestMain.
func Main(m *testing.M, set func(*Env), opts ...Option) {
	o := options{services: name.Services()}
	for _, opt := range opts {
		opt(&o)
	}
	flag.Parse()
	if testing.Short() && os.Getenv("GOMAXPROCS") == "" {
		// An installation has fifty processes, and each wakes threads on all cores for work that one does as fast: a tenth of the CPU time.
		// Without -short they run as a user runs them.
		_ = os.Setenv("GOMAXPROCS", "1")
	}
	os.Exit(func() int {
		dir, err := os.MkdirTemp("", "stoker-test-")
		if err != nil {
			panic(err)
		}
		e, err := start(dir, o)
		if err != nil {
			fmt.Fprintln(os.Stderr, "installation under test:", err)
			return 1
		}
		set(e)
		code := m.Run()
		check, cancel := context.WithTimeout(context.Background(), 5*time.Minute)
		defer cancel()
		if err := e.checkEvents(check); err != nil {
			fmt.Fprintln(os.Stderr, "events that are not as the catalogue says:", err)
			code = 1
		}
		if err := e.close(); err != nil {
			fmt.Fprintln(os.Stderr, "installation under test:", err)
			code = 1
		}
		if code == 0 || os.Getenv("STOKER_TEST_KEEP") == "" {
			_ = os.RemoveAll(dir)
		} else {
			fmt.Fprintln(os.Stderr, "kept", dir)
		}
		return code
	}())
}

// Another is an installation in another management cluster, with a NATS of its own, until the end of the test.
func Another(t testing.TB) *Env {
	t.Helper()
	e, err := start(t.TempDir(), options{services: name.Services()})
	if err != nil {
		t.Fatal("another installation:", err)
	}
	t.Cleanup(func() {
		if err := e.close(); err != nil {
			t.Error("another installation:", err)
		}
	})
	return e
}

func start(dir string, o options) (*Env, error) {
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Minute)
	defer cancel()
	logFile, err := os.Create(filepath.Join(dir, "stack.log"))
	if err != nil {
		return nil, err
	}
	e := &Env{dir: dir, bins: bins(), procs: map[string]*Process{}}
	built := make(chan error, 1)
	go func() { built <- e.build(o) }()
	config := stack.Config{
		Dir: filepath.Join(dir, "data"), Source: Root(), APIOnly: o.apiOnly, Portal: Portal(),
		Log:      slog.New(slog.NewTextHandler(logFile, &slog.HandlerOptions{Level: slog.LevelDebug})),
		Progress: progress.Lines(os.Stderr, false, func() string { return "   " }),
	}
	if o.standIns != nil {
		config.Start = standin.New(o.standIns).Start
	}
	e.Stack, err = stack.Start(ctx, config)
	if err := errors.Join(err, <-built); err != nil {
		return nil, err
	}
	if e.Admin, err = kube.Connect(e.Local.Kubeconfig("admin"), kube.Options{FieldManager: "test", Timeout: apiserver.Patience}); err != nil {
		return nil, err
	}
	if e.Operator, err = e.Bus(events.UserOperator); err != nil {
		return nil, err
	}
	if _, err := e.Operator.Conn().Subscribe("stoker.intake.*.*.*", e.noteCommand); err != nil {
		return nil, err
	}
	e.Portal, err = e.Bus(events.UserPortal)
	return e, err
}

// Bus connects a user of NATS, with more patience than a service has, and waits until it is connected: a connection of Stoker's is there
// before that, and refuses to publish.
func (e *Env) Bus(user string) (*events.Bus, error) {
	cfg := e.Stack.Bus(user)
	cfg.RequestTimeout = patience
	b, err := events.Connect(cfg)
	if err != nil {
		return nil, err
	}
	for deadline := time.Now().Add(patience); !b.Conn().IsConnected(); <-time.After(10 * time.Millisecond) {
		if time.Now().After(deadline) {
			b.Close()
			return nil, fmt.Errorf("%s is not connected: %w", user, b.Conn().LastError())
		}
	}
	return b, nil
}

// JetStream is the operator's.
func (e *Env) JetStream() jetstream.JetStream { return e.Operator.JetStream() }

func (e *Env) noteCommand(m *nats.Msg) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.commands = append(e.commands, m)
}

// Commands are those that were published so far, in order. The stream keeps none that was carried out.
func (e *Env) Commands() []*nats.Msg {
	e.mu.Lock()
	defer e.mu.Unlock()
	return slices.Clone(e.commands)
}

// Portal is the portal of tests, which orders everything.
func Portal() events.Portal {
	return events.Portal{
		Name: events.UserPortal, Namespaces: []string{events.AllNamespaces}, Kinds: []string{event.DataStores, event.KubeconfigGenerators},
		Join: true,
	}
}

// race is whether the services under test are built with the race detector, which makes them three times slower: STOKER_TEST_RACE=1.
func race() bool { return os.Getenv("STOKER_TEST_RACE") == "1" }

// bins is the directory of the services' binaries.
func bins() string {
	if race() {
		return filepath.Join(Root(), "bin", "test", "race")
	}
	return filepath.Join(Root(), "bin", "test")
}

// build makes the services' binaries, unless test/run has built them already.
func (e *Env) build(o options) error {
	if os.Getenv("STOKER_TEST_BUILT") != "" && !race() {
		return nil
	}
	args := []string{"build", "-trimpath", "-ldflags=-s -w", "-o", e.bins + "/"}
	if race() {
		args = append(args, "-race", "-gcflags=all=-dwarf=false", "-gcflags=github.com/k3s-io/kine/pkg/ttl=-race=false") // test/run/build.go says why
	}
	for _, s := range o.services {
		args = append(args, "./services/"+s+"/cmd/stoker-"+s)
	}
	if !o.apiOnly || o.command {
		args = append(args, "./cmd/stoker")
	}
	if err := os.MkdirAll(e.bins, 0o755); err != nil {
		return err
	}
	unlock, err := lock(filepath.Join(e.bins, ".lock"))
	if err != nil {
		return err
	}
	defer unlock()
	cmd := exec.Command("go", args...)
	cmd.Dir = Root()
	if race() {
		cmd.Env = append(os.Environ(), "CGO_ENABLED=1") // the detector is a C library
	}
	out, err := cmd.CombinedOutput()
	if err != nil {
		return fmt.Errorf("go %s: %w\n%s", strings.Join(args, " "), err, out)
	}
	return nil
}

// lock waits until no other package's tests, which may run at the same time, build the same files.
func lock(path string) (unlock func(), err error) {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, err
	}
	if err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX); err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return func() { _ = f.Close() }, nil
}

func (e *Env) close() error {
	all := e.endServices()
	e.Operator.Close()
	e.Portal.Close()
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Minute)
	defer cancel()
	return errors.Join(all, e.Stack.Stop(ctx))
}

// endServices stops all that run, at once, and says what was wrong with them.
func (e *Env) endServices() error {
	e.mu.Lock()
	procs := slices.Collect(maps.Values(e.procs))
	e.procs = map[string]*Process{}
	e.mu.Unlock()
	wrong := make([]error, len(procs))
	var wg sync.WaitGroup
	for i, p := range procs {
		wg.Go(func() { wrong[i] = p.Stop() })
	}
	wg.Wait()
	return errors.Join(wrong...)
}

// Service starts a replica of a service, or returns the one that runs.
func (e *Env) Service(t testing.TB, service, replica string) *Process {
	t.Helper()
	e.mu.Lock()
	defer e.mu.Unlock()
	if p := e.procs[service+"/"+replica]; p != nil {
		if !p.runs() {
			p.Restart(t) // and says why it had to
		}
		return p
	}
	p := &Process{Name: service, Replica: replica, env: e}
	if err := p.start(); err != nil {
		t.Fatal(err)
	}
	e.procs[service+"/"+replica] = p
	return p
}

// Servers are NATS servers that a test has besides the installation's.
type Servers struct {
	URL      string
	Seed     func(user string) (file string)
	Replicas int // of each stream
}

// On has services that are started from now on use other NATS servers than the installation's, until the test ends.
func (e *Env) On(t testing.TB, s Servers) {
	t.Helper()
	e.NoServices(t)
	e.servers = &s
	t.Cleanup(func() {
		e.NoServices(t)
		e.servers = nil
	})
}

// Services starts one replica of each service.
func (e *Env) Services(t testing.TB) map[string]*Process {
	t.Helper()
	all := map[string]*Process{}
	for _, s := range name.Services() {
		all[s] = e.Service(t, s, "a")
	}
	return all
}

// NoServices stops all that run, for a test that runs its own.
func (e *Env) NoServices(t testing.TB) {
	t.Helper()
	if err := e.endServices(); err != nil {
		t.Error(err)
	}
}

// Long skips a test with -short, because it takes long. why names what shows the same or most of it in `make test`, or else what the test
// costs.
func Long(t testing.TB, why string) {
	t.Helper()
	if testing.Short() {
		t.Skip("long: " + why)
	}
}

// Eventually waits for a condition, as [poll.Nil] does.
func Eventually(t testing.TB, what string, is func() error) {
	t.Helper()
	poll.Nil(t, what, is)
}

// Tenant is a small tenant of one replica on a LoadBalancer address.
func Tenant(n, version string) *v1alpha1.TenantControlPlane {
	o := &v1alpha1.TenantControlPlane{}
	data := fmt.Sprintf(`
apiVersion: kamaji.clastix.io/v1alpha1
kind: TenantControlPlane
metadata: {name: %s, namespace: default}
spec:
  controlPlane:
    deployment: {replicas: 1}
    service: {serviceType: LoadBalancer}
  kubernetes: {version: %s, kubelet: {}}
  networkProfile: {port: 6443}
  addons: {coreDNS: {}, kubeProxy: {}}
`, n, version)
	if err := yaml.UnmarshalStrict([]byte(data), o); err != nil {
		panic(err)
	}
	return o
}

// JSON of an object as a portal would send it.
func JSON(t testing.TB, o any) map[string]any {
	t.Helper()
	data, err := json.Marshal(o)
	if err != nil {
		t.Fatal(err)
	}
	var m map[string]any
	if err := json.Unmarshal(data, &m); err != nil {
		t.Fatal(err)
	}
	delete(m, "status")
	return m
}

// Apply publishes the command that a portal would, with the portal's identity.
func (e *Env) Apply(t testing.TB, o *v1alpha1.TenantControlPlane) {
	t.Helper()
	e.Command(t, events.Tenant(o.Namespace, o.Name), event.TenantApply, JSON(t, o))
}

// ApplySpec is `kubectl apply` of an object, whose spec is YAML.
func ApplySpec(ctx context.Context, c *kube.Client, r kube.Resource, namespace, n, spec string) error {
	var of any
	if err := yaml.Unmarshal([]byte(spec), &of); err != nil {
		return err
	}
	body, err := json.Marshal(map[string]any{
		"apiVersion": r.GroupVersion.String(), "kind": r.Kind, "metadata": map[string]any{"name": n, "namespace": namespace}, "spec": of,
	})
	if err != nil {
		return err
	}
	return c.ApplyRaw(ctx, r, namespace, n, body, nil)
}

// Delete publishes the command to delete a tenant.
func (e *Env) Delete(t testing.TB, key events.Key) {
	t.Helper()
	e.Command(t, key, event.TenantDelete, map[string]any{})
}

// Command publishes a command with a fresh id, which it keeps when it is sent again: one whose receipt came late is carried out once.
func (e *Env) Command(t testing.TB, key events.Key, typ string, data any) {
	t.Helper()
	command := e.Portal.NewEvent(key, fmt.Sprintf("test-%d", time.Now().UnixNano()), typ, data, time.Now())
	Eventually(t, "publish "+typ, func() error {
		_, err := e.Portal.Publish(t.Context(), key.CommandSubject(), command)
		return err
	})
}

// Publish has a user publish a message into a stream, once, and waits longer for the receipt than the user's own work would.
func Publish(t testing.TB, user *events.Bus, m *nats.Msg) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	if _, err := user.JetStream().PublishMsg(ctx, m); err != nil {
		t.Fatalf("%s: %v", m.Subject, err)
	}
}

// Status is the last status a portal was sent; an error when there is none.
func (e *Env) Status(ctx context.Context, key events.Key) (event.StatusChanged, error) {
	var status event.StatusChanged
	s, err := e.JetStream().Stream(ctx, events.StreamStatus)
	if err != nil {
		return status, err
	}
	m, err := s.GetLastMsgForSubject(ctx, key.StatusSubject())
	if err != nil {
		return status, err
	}
	return status, json.Unmarshal(m.Data, &status)
}

// Ready waits until the tenant's current generation is Ready by word of the status message and of the object.
func (e *Env) Ready(t testing.TB, key events.Key) *v1alpha1.TenantControlPlane {
	t.Helper()
	o := &v1alpha1.TenantControlPlane{}
	defer func() {
		if t.Failed() {
			e.Explain(t, key)
		}
	}()
	Eventually(t, key.String()+" to be Ready", func() error {
		s, err := e.Status(t.Context(), key)
		if err != nil {
			return err
		}
		if err := e.Admin.Get(t.Context(), kube.TenantControlPlanes, key.Namespace, key.Name, o); err != nil {
			return err
		}
		if !s.Ready || s.UID != string(o.UID) || s.Generation != o.Generation {
			return fmt.Errorf("status %s generation %d of %d: %s %s", s.Phase, s.Generation, o.Generation, s.Reason, s.Message)
		}
		for _, c := range o.Status.Conditions {
			if c.Type == "Ready" && c.Status == "True" && c.ObservedGeneration == o.Generation {
				return nil
			}
		}
		return fmt.Errorf("object's conditions: %+v", o.Status.Conditions)
	})
	return o
}

// Gone waits until nothing is left of a tenant's object, and returns the last status.
func (e *Env) Gone(t testing.TB, key events.Key) event.StatusChanged {
	t.Helper()
	var s event.StatusChanged
	defer func() {
		if t.Failed() {
			e.Explain(t, key)
		}
	}()
	Eventually(t, key.String()+" to be Deleted", func() (err error) {
		if s, err = e.Status(t.Context(), key); err != nil {
			return err
		}
		if s.Phase != "Deleted" {
			return fmt.Errorf("status %s: %s", s.Phase, s.Message)
		}
		return nil
	})
	return s
}

// State reads what a service knows of a tenant; nil when there is none, and when nobody says so until ctx ends, or for a minute.
func (e *Env) State(ctx context.Context, key events.Key, of string) *state.State {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	var s *state.State
	err := answered(ctx, func() (err error) {
		s, err = e.Operator.State(ctx, key, of)
		return err
	})
	if err != nil {
		return nil
	}
	return s
}

// patience is how long a server is asked that is too busy to answer in time.
const patience = time.Minute

// answered asks a server until it answers, yes or no; the error is that of the last try.
func answered(ctx context.Context, ask func() error) error {
	for {
		err := ask()
		var away *intent.Unavailable
		if !errors.As(err, &away) {
			return err
		}
		select {
		case <-ctx.Done():
			return err
		case <-time.After(50 * time.Millisecond):
		}
	}
}

// Get reads an object of the management cluster, also while its API server is too busy to answer in time.
func (e *Env) Get(t testing.TB, r kube.Resource, namespace, n string, out any) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	if err := answered(ctx, func() error { return e.Admin.Get(ctx, r, namespace, n, out) }); err != nil {
		t.Fatal(err)
	}
}

// List lists objects of the management cluster as Get reads one.
func (e *Env) List(t testing.TB, r kube.Resource, namespace, selector string, out any) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	if err := answered(ctx, func() error { return e.Admin.List(ctx, r, namespace, selector, out) }); err != nil {
		t.Fatal(err)
	}
}

// Explain logs the states of a tenant, for a test that failed.
func (e *Env) Explain(t testing.TB, key events.Key) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	for _, of := range append([]string{events.KeySpec}, name.Services()[1:]...) {
		if s := e.State(ctx, key, of); s != nil {
			t.Logf("%-10s generation %d step %q waiting %q failure %+v", of, s.Generation, s.Step, s.Wait.Text, s.Failure)
		} else {
			t.Logf("%-10s no state", of)
		}
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, p := range e.procs {
		data, _ := os.ReadFile(p.Log())
		lines := bytes.Split(data, []byte("\n"))
		for _, l := range lines[max(0, len(lines)-6):] {
			t.Logf("%s %s: %s", p.Name, p.Replica, l)
		}
	}
}

// Facts lists the facts about a tenant so far, oldest first, as service.what.
func (e *Env) Facts(t testing.TB, key events.Key) []string {
	t.Helper()
	var facts []string
	for _, m := range e.Messages(t, events.StreamFacts, key.FactSubject("*", "*")) {
		parts := strings.Split(m.Subject(), ".")
		facts = append(facts, parts[5]+"."+parts[6])
	}
	return facts
}

// Messages reads all that a stream holds for a subject so far, oldest first; nothing of a stream that isn't there.
func (e *Env) Messages(t testing.TB, stream, subject string) (all []jetstream.Msg) {
	t.Helper()
	from := uint64(1)
	Eventually(t, "the end of "+stream, func() error {
		for {
			have := len(all)
			left, err := e.next(t.Context(), stream, subject, &from, &all)
			switch {
			case left == 0 || err != nil:
				return err
			case len(all) == have:
				return fmt.Errorf("%d messages are to come", left)
			}
		}
	})
	return all
}

// next reads on from a place in a stream, and says how much the server has for it: the end of a batch that is not waited for may come as
// well because the server is slow.
func (e *Env) next(ctx context.Context, stream, subject string, from *uint64, all *[]jetstream.Msg) (left uint64, err error) {
	c, err := e.JetStream().CreateConsumer(ctx, stream, jetstream.ConsumerConfig{
		FilterSubject: subject, DeliverPolicy: jetstream.DeliverByStartSequencePolicy, OptStartSeq: *from,
		AckPolicy: jetstream.AckNonePolicy, MemoryStorage: true, Replicas: 1, InactiveThreshold: 10 * time.Second,
	})
	if errors.Is(err, jetstream.ErrStreamNotFound) {
		return 0, nil
	}
	if err != nil {
		return 0, err
	}
	if left = c.CachedInfo().NumPending; left == 0 {
		return 0, nil
	}
	batch, err := c.FetchNoWait(500)
	if err != nil {
		return 0, err
	}
	for m := range batch.Messages() {
		meta, err := m.Metadata()
		if err != nil {
			return 0, err
		}
		*from, *all = meta.Sequence.Stream+1, append(*all, m)
	}
	return left, batch.Error()
}

// Fact waits until a fact was told about a tenant.
func (e *Env) Fact(t testing.TB, key events.Key, service, what string) {
	t.Helper()
	Eventually(t, service+"."+what+" of "+key.String(), func() error {
		s, err := e.JetStream().Stream(t.Context(), events.StreamFacts)
		if err == nil {
			_, err = s.GetLastMsgForSubject(t.Context(), key.FactSubject(service, what))
		}
		return err
	})
}

// Kubeconfig writes the tenant's administrator kubeconfig to a file and returns its path.
func (e *Env) Kubeconfig(t testing.TB, key events.Key) string {
	t.Helper()
	var secret struct{ Data map[string][]byte }
	e.Get(t, kube.Secrets, key.Namespace, name.AdminKubeconfig(key.Name), &secret)
	file := filepath.Join(t.TempDir(), key.Name+".kubeconfig")
	if err := os.WriteFile(file, secret.Data[name.KeyAdminConf], 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}

// Kubectl runs kubectl with a kubeconfig and returns what it prints; the test fails when kubectl does.
func (e *Env) Kubectl(t testing.TB, kubeconfig string, args ...string) string {
	t.Helper()
	out, err := e.TryKubectl(t.Context(), kubeconfig, nil, args...)
	if err != nil {
		t.Fatalf("kubectl %s: %v\n%s", strings.Join(args, " "), err, out)
	}
	return out
}

// TryKubectl runs kubectl and returns what it prints, and its error.
func (e *Env) TryKubectl(ctx context.Context, kubeconfig string, stdin io.Reader, args ...string) (string, error) {
	return run(ctx, e.Local.Kubectl(), kubeconfig, stdin, args...)
}

// Kubeadm runs kubeadm.
func (e *Env) Kubeadm(t testing.TB, kubeconfig string, args ...string) string {
	t.Helper()
	out, err := run(t.Context(), e.Local.Kubeadm(), kubeconfig, nil, args...)
	if err != nil {
		t.Fatalf("kubeadm %s: %v\n%s", strings.Join(args, " "), err, out)
	}
	return out
}

func run(ctx context.Context, bin, kubeconfig string, stdin io.Reader, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, bin, args...)
	cmd.Env = append(os.Environ(), "KUBECONFIG="+kubeconfig)
	cmd.Stdin = stdin
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	err := cmd.Run()
	return out.String(), err
}

// StokerBin is the path of the command line under test.
func (e *Env) StokerBin() string { return filepath.Join(e.bins, "stoker") }
