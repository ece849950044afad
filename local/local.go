// Package local runs a management cluster on one machine as child processes: etcd, a real kube-apiserver, controller
// manager and scheduler, a database per DataStore, a node that runs pods as processes, and load balancer addresses. It
// takes Linux, Go and the module proxy, and neither root nor a container engine.
//
// What it runs are programs of package images; how pods run is told in package node.
package local

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"time"

	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/stoker-k8s/stoker/local/address"
	"github.com/stoker-k8s/stoker/local/balancer"
	"github.com/stoker-k8s/stoker/local/images"
	"github.com/stoker-k8s/stoker/local/node"
	"github.com/stoker-k8s/stoker/local/process"
	"github.com/stoker-k8s/stoker/local/progress"
)

// NodeName is the name of the node that runs the pods.
const NodeName = "stoker-local"

// Namespace is where the stack keeps the DataStores' Secrets and the services' accounts.
const Namespace = "stoker-system"

// Services are the names of Stoker's services; each has the service account stoker-<name> and a kubeconfig.
var Services = []string{"intake", "certs", "datastore", "workload", "addons", "status", "capi", "tenantaddons"}

// Config says what to run and where to keep it.
type Config struct {
	// Dir keeps everything of the stack: data, keys, logs, kubeconfigs. Another Start on it resumes. Default .stoker.
	Dir string
	// Source is the root of the repository, which has the images to build and the manifests to apply. Default ".".
	Source string
	// Log takes what happens while the stack runs. Default: nothing is logged.
	Log *slog.Logger
	// Progress gets what Start is doing, a line at a time. Default: nobody does.
	Progress progress.Func
	// Block is the N of the stack's addresses, 127.N.0.0/16; 0 chooses one, which Dir remembers.
	Block int
	// DataStores to run, beside those that Dir remembers. Default: one named default, on etcd.
	DataStores []DataStore
	// APIOnly runs the API server and its etcd, and nothing that acts on objects: no controllers, no scheduler, no node, no
	// balancer, no DataStores. For tests of what the API server itself decides.
	APIOnly bool
	// Audit is a file that takes the API server's audit log: every write, one JSON object a line, with the object that was asked for
	// and the one that came of it, but for Secrets, of which it has no content. Empty for none. For tests.
	Audit string
	// Start starts the programs of pods' containers. Default: as child processes. For tests with more pods than this machine can run.
	Start func(process.Spec) (node.Process, error)
}

// RunningError tells that another process runs a stack on the same directory.
type RunningError struct {
	PID int // 0 if it isn't known
	Dir string
}

func (e *RunningError) Error() string {
	return fmt.Sprintf("a local stack is running on %s already, as process %d", e.Dir, e.PID)
}

// A Stack is a local stack that runs. Its methods are safe for concurrent use.
type Stack struct {
	cfg    Config
	log    *slog.Logger
	store  *images.Store
	state  state
	block  address.Block
	keys   keys
	admin  *rest.Config
	client kubernetes.Interface
	node   *node.Node

	adding     sync.Mutex // guards stores and state once the stack runs
	stores     []*dataStore
	components []*Component
	bins       string // directory of the Kubernetes programs
	etcd       string // the etcd program
	shortDir   string

	releases []func() // what was claimed, given back last
	work     sync.WaitGroup
	ctx      context.Context // ends with the stack: components
	cancel   context.CancelFunc
	workCtx  context.Context // ends before components do: node, balancer
	endWork  context.CancelFunc

	stop sync.Once
	done chan struct{}
	mu   sync.Mutex
	err  error
}

// state is what Dir remembers.
type state struct {
	Block      int            `json:"block"`
	DataStores map[string]int `json:"dataStores"` // name → which address
	// Drivers of the DataStores; one that is missing is on etcd.
	Drivers map[string]string `json:"drivers,omitempty"`
}

// Start starts a stack, or resumes the one Dir holds, and returns when it is of use: the API answers, manifests are
// applied, the DataStores are there, the node is ready and kubeconfigs are written. Ending ctx ends Start, not the
// stack. The error is a *RunningError if another process runs a stack on Dir.
func Start(ctx context.Context, cfg Config) (*Stack, error) {
	if runtime.GOOS != "linux" {
		return nil, fmt.Errorf("the local stack needs Linux, not %s: elsewhere 127.0.0.0/8 is one address, and processes outlive their parent", runtime.GOOS)
	}
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.DiscardHandler)
	}
	if cfg.Progress == nil {
		cfg.Progress = progress.None
	}
	if cfg.Dir == "" {
		cfg.Dir = ".stoker"
	}
	if cfg.Source == "" {
		cfg.Source = "."
	}
	if cfg.Start == nil {
		cfg.Start = node.StartProcess
	}
	if cfg.APIOnly {
		cfg.DataStores = nil
	} else if len(cfg.DataStores) == 0 {
		cfg.DataStores = []DataStore{{Name: "default", Driver: DriverEtcd}}
	}
	var err error
	if cfg.Dir, err = filepath.Abs(cfg.Dir); err != nil {
		return nil, err
	}
	s := &Stack{cfg: cfg, log: cfg.Log, done: make(chan struct{})}
	s.ctx, s.cancel = context.WithCancel(context.Background())
	s.workCtx, s.endWork = context.WithCancel(s.ctx)
	if err := s.start(ctx); err != nil {
		stopping, cancel := context.WithTimeout(context.WithoutCancel(ctx), 15*time.Second)
		defer cancel()
		_ = s.Stop(stopping)
		return nil, err
	}
	return s, nil
}

func (s *Stack) start(ctx context.Context) error {
	if err := os.MkdirAll(s.cfg.Dir, 0o700); err != nil {
		return err
	}
	unlock, err := lockDir(s.cfg.Dir)
	if err != nil {
		return err
	}
	s.releases = append(s.releases, unlock)
	if err := s.load(); err != nil {
		return err
	}
	kubelet, err := s.claim()
	if err != nil {
		return err
	}
	if err := s.pull(ctx); err != nil {
		return err
	}
	if s.keys, err = openKeys(filepath.Join(s.cfg.Dir, "pki"), s.block); err != nil {
		return err
	}
	if err := s.writeClientConfigs(); err != nil {
		return err
	}
	if s.client, err = kubernetes.NewForConfig(s.admin); err != nil {
		return err
	}

	s.cfg.Progress("starting etcd and the API server at "+s.API(), false)
	var stores sync.WaitGroup
	storeErrors := make([]error, len(s.cfg.DataStores))
	for i, want := range s.cfg.DataStores {
		store, err := s.openDataStore(ctx, want)
		if err != nil {
			stores.Wait()
			return err
		}
		s.add(store.component)
		stores.Go(func() { storeErrors[i] = store.ready(ctx) })
	}
	// One that can't be had, for its package is missing, is not remembered.
	if err := s.save(); err != nil {
		return err
	}
	if err := s.startControlPlane(ctx); err != nil {
		stores.Wait()
		return err
	}
	if !s.cfg.APIOnly {
		if err := s.startNode(kubelet); err != nil {
			stores.Wait()
			return err
		}
	}
	s.cfg.Progress("applying manifests", false)
	if err := s.bootstrap(ctx); err != nil {
		stores.Wait()
		return err
	}
	stores.Wait()
	if err := errors.Join(storeErrors...); err != nil {
		return err
	}
	if !s.cfg.APIOnly {
		if err := s.waitNode(ctx); err != nil {
			return err
		}
	}
	s.cfg.Progress("management cluster is ready: "+s.Kubeconfig("admin"), false)
	return nil
}

// load reads what Dir remembers, and with it which DataStores to run.
func (s *Stack) load() error {
	path := filepath.Join(s.cfg.Dir, "state.json")
	data, err := os.ReadFile(path)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if err == nil {
		if err := json.Unmarshal(data, &s.state); err != nil {
			return fmt.Errorf("%s: %w", path, err)
		}
	}
	if s.state.DataStores == nil {
		s.state.DataStores = map[string]int{}
	}
	if s.state.Drivers == nil {
		s.state.Drivers = map[string]string{}
	}
	if s.cfg.APIOnly {
		return nil
	}
	if s.cfg.DataStores, err = s.state.want(s.cfg.DataStores); err != nil {
		return err
	}
	return nil
}

// save writes what Dir is to remember.
func (s *Stack) save() error {
	data, err := json.MarshalIndent(s.state, "", "  ")
	if err != nil {
		return err
	}
	return writeFile(filepath.Join(s.cfg.Dir, "state.json"), append(data, '\n'))
}

// claim takes the address block, and remembers it.
func (s *Stack) claim() (net.Listener, error) {
	want := s.state.Block
	if want == 0 {
		want = s.cfg.Block
	} else if s.cfg.Block != 0 && s.cfg.Block != want {
		return nil, fmt.Errorf("the stack in %s has the addresses %s, not those of block %d: they are in its certificates",
			s.cfg.Dir, address.Block(want), s.cfg.Block)
	}
	block, listener, err := address.Claim(address.Block(want), s.cfg.Dir)
	if err != nil {
		if errors.Is(err, address.ErrTaken) && s.state.Block != 0 {
			return nil, fmt.Errorf("%w: another stack runs with the addresses of the one in %s; stop it, or begin a new directory",
				err, s.cfg.Dir)
		}
		return nil, err
	}
	s.releases = append(s.releases, func() { listener.Close() })
	s.block, s.state.Block = block, int(block)
	if err := s.save(); err != nil {
		return nil, err
	}
	if s.shortDir, err = shortDir(block); err != nil {
		return nil, err
	}
	s.releases = append(s.releases, func() { _ = os.Remove(s.shortDir) }) // unless pods keep something there
	return listener, nil
}

// pull builds what the stack itself runs, which is also all that a tenant on etcd takes. Other versions of Kubernetes and
// the other databases are built when something runs them.
func (s *Stack) pull(ctx context.Context) error {
	var err error
	if s.store, err = images.Open(s.cfg.Source); err != nil {
		return err
	}
	// While etcd is compiled, Kubernetes is downloaded. What goes wrong with that its build says.
	fetching, cancel := context.WithCancel(ctx)
	var fetch sync.WaitGroup
	fetch.Go(func() { _ = s.store.Fetch(fetching, images.Default) })
	defer fetch.Wait()
	defer cancel()
	dir, err := s.store.Build(ctx, images.Etcd, s.cfg.Progress)
	if err != nil {
		return err
	}
	s.etcd = filepath.Join(dir, "etcd")
	s.bins, err = s.store.Build(ctx, images.Default, s.cfg.Progress)
	return err
}

// startNode starts the node and, on its watch of pods, the balancer.
func (s *Stack) startNode(kubelet net.Listener) error {
	client, err := kubernetes.NewForConfig(s.clientConfig(s.keys.node))
	if err != nil {
		return err
	}
	tlsConfig, err := KubeletTLS(s.keys.kubelet, s.keys.ca.Pool())
	if err != nil {
		return err
	}
	s.node = node.New(node.Config{
		Name: NodeName, Version: strings.TrimPrefix(images.Default, "kubernetes-"), Client: client, Dir: filepath.Join(s.cfg.Dir, "pods"), ShortDir: s.shortDir,
		Address: s.block.Management(), Pods: s.block.Pods(), Listener: kubelet, TLS: tlsConfig,
		Pull: s.store.Pull, Start: s.cfg.Start, Log: s.log.With("component", "node"),
	})
	pods := s.node.Lister()
	s.work.Go(func() {
		if err := s.node.Run(s.workCtx); err != nil && s.workCtx.Err() == nil {
			s.fail(err)
		}
	})
	b := balancer.New(balancer.Config{
		Client: s.client, Pods: pods, Addresses: s.block.LoadBalancers(), Node: s.block.Management(), Activator: true,
		Log: s.log.With("component", "balancer"),
	})
	s.work.Go(func() {
		if err := b.Run(s.workCtx); err != nil && s.workCtx.Err() == nil {
			s.fail(err)
		}
	})
	return nil
}

// Stop ends everything: first pods and load balancers, then the control plane, then the databases. It returns when no
// process is left. When ctx ends, what hasn't ended yet is killed.
func (s *Stack) Stop(ctx context.Context) error {
	s.stop.Do(func() {
		s.endWork()
		worked := make(chan struct{})
		go func() { s.work.Wait(); close(worked) }()
		select {
		case <-worked:
		case <-ctx.Done():
		}
		// The other way round than they were started: the API server before its etcd.
		for _, c := range slices.Backward(s.components) {
			_ = c.Stop(ctx)
		}
		s.cancel()
		for _, c := range s.components {
			<-c.ended
		}
		<-worked
		for _, release := range slices.Backward(s.releases) {
			release()
		}
		close(s.done)
	})
	<-s.done
	return nil
}

// fail notes why the stack doesn't do its work any more; the first cause counts.
func (s *Stack) fail(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.err == nil {
		s.err = err
		s.log.Error("local stack failed", "error", err)
	}
}

// Done is closed when the stack has stopped.
func (s *Stack) Done() <-chan struct{} { return s.done }

// Err tells what broke, or nil.
func (s *Stack) Err() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.err
}

// Wait waits until the stack has stopped, and returns Err.
func (s *Stack) Wait() error {
	<-s.done
	return s.Err()
}

// Dir is the directory everything is kept in, as an absolute path.
func (s *Stack) Dir() string { return s.cfg.Dir }

// Block is the stack's address block.
func (s *Stack) Block() address.Block { return s.block }

// API is the URL of the management cluster.
func (s *Stack) API() string {
	return "https://" + net.JoinHostPort(s.block.Management().String(), "6443")
}

// AdminConfig returns a client configuration for the management cluster that may do everything.
func (s *Stack) AdminConfig() *rest.Config { return rest.CopyConfig(s.admin) }

// Kubeconfig returns the path of a kubeconfig: "admin" or the name of a service.
func (s *Stack) Kubeconfig(name string) string {
	return filepath.Join(s.cfg.Dir, "kubeconfigs", name+".kubeconfig")
}

// Kubectl returns the path of a kubectl.
func (s *Stack) Kubectl() string { return filepath.Join(s.bins, "kubectl") }

// Kubeadm returns the path of a kubeadm.
func (s *Stack) Kubeadm() string { return filepath.Join(s.bins, "kubeadm") }

// Images returns the store that images come from.
func (s *Stack) Images() *images.Store { return s.store }

// ContainerPID returns the process id of a pod's container in the management cluster, or 0 if it isn't running.
func (s *Stack) ContainerPID(namespace, pod, container string) int {
	if s.node == nil {
		return 0
	}
	return s.node.ContainerPID(namespace, pod, container)
}
