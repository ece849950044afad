package robustness

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/stoker-k8s/stoker/local"
	"github.com/stoker-k8s/stoker/local/images"
	"github.com/stoker-k8s/stoker/local/process"
	"github.com/stoker-k8s/stoker/local/progress"
	"github.com/stoker-k8s/stoker/pkg/api/name"
	"github.com/stoker-k8s/stoker/pkg/events"
	"github.com/stoker-k8s/stoker/pkg/kube"
	"github.com/stoker-k8s/stoker/pkg/portal"
	"github.com/stoker-k8s/stoker/test/standin"
)

// replicasEach is how many replicas of each service there are.
const replicasEach = 2

// replicaName is the name of a service's replica.
func replicaName(i int) string { return string(rune('a' + i)) }

// DataStores that tenants are on: the one for those that name none, and one that some choose. Each is an etcd of its own.
const (
	dataStore  = "default"
	otherStore = "other"
)

// Site is an installation of processes, with a link on every way between them that a fault can strike.
type Site struct {
	Local    *local.Stack
	NATS     *NATS
	Replicas []*Replica
	// Admin of the management cluster and Operator on NATS see everything, through no link.
	Admin    *kube.Client
	Operator *events.Bus
	// StandIns run the programs of tenants' pods; nil when those are processes.
	StandIns *standin.Programs

	// NoDisks is why no disk can be full, nil if one can.
	NoDisks error

	dir, bins string
	disks     map[string]*Disk // by NATS server and component
}

// Replica is a replica of a service: a process, its way to the API server and those to the NATS servers.
type Replica struct {
	Service, Name string
	// Address is where its requests to the API server come from.
	Address string
	API     *Gate
	NATS    [servers]*Link

	site *Site
	mu   sync.Mutex // guards proc: faults overlap
	proc *process.Process
}

func (r *Replica) String() string { return r.Service + "-" + r.Name }

// NewSite starts an installation in a directory, from the repository at source. The programs of tenants' pods are real ones if
// standIns is nil.
func NewSite(ctx context.Context, dir, source string, standIns *standin.Programs) (*Site, error) {
	s := &Site{StandIns: standIns, dir: dir, bins: filepath.Join(source, "bin", "robustness")}
	if err := s.build(ctx, source); err != nil {
		return nil, err
	}
	s.mount()
	log, err := os.Create(filepath.Join(dir, "stack.log"))
	if err != nil {
		return nil, err
	}
	config := local.Config{
		Dir: filepath.Join(dir, "data"), Source: source, Audit: s.AuditLog(), Log: slog.New(slog.NewTextHandler(log, nil)),
		DataStores: []local.DataStore{{Name: dataStore, Driver: local.DriverEtcd}, {Name: otherStore, Driver: local.DriverEtcd}},
		Progress:   progress.Lines(os.Stderr, false, func() string { return "   " }),
	}
	if standIns != nil {
		config.Start = standIns.Start
	}
	s.Local, err = local.Start(ctx, config)
	if err != nil {
		return nil, err
	}
	if err := s.start(ctx); err != nil {
		return nil, errors.Join(err, s.Stop(context.WithoutCancel(ctx)))
	}
	return s, nil
}

// AuditLog is the API server's.
func (s *Site) AuditLog() string { return filepath.Join(s.dir, "audit.log") }

// build makes the services' binaries.
func (s *Site) build(ctx context.Context, source string) error {
	overlay, err := clockOverlay(ctx, filepath.Join(s.bins, "clock"), source)
	if err != nil {
		return err
	}
	args := []string{"build", "-overlay", overlay, "-o", s.bins + "/"}
	for _, service := range name.Services() {
		args = append(args, "./services/"+service+"/cmd/stoker-"+service)
	}
	cmd := exec.CommandContext(ctx, "go", args...)
	cmd.Dir = source
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("go %s: %w\n%s", strings.Join(args, " "), err, out)
	}
	return nil
}

// start starts NATS and the services.
func (s *Site) start(ctx context.Context) error {
	host := s.host()
	bin, err := s.Local.Images().Build(ctx, images.NATS, progress.None)
	if err != nil {
		return err
	}
	if s.NATS, err = NewNATS(filepath.Join(s.dir, "nats"), filepath.Join(bin, "nats-server"), host); err != nil {
		return err
	}
	for i := range servers {
		if err := s.NATS.Start(i); err != nil {
			return err
		}
	}
	if s.Admin, err = kube.Connect(s.Local.Kubeconfig("admin"), kube.Options{FieldManager: "robustness"}); err != nil {
		return err
	}
	s.Operator, err = events.Connect(events.Config{
		URL: s.NATS.URL(), User: events.UserOperator, SeedFile: s.NATS.Seed(events.UserOperator), StreamReplicas: servers,
		RequestTimeout: 30 * time.Second,
	})
	if err != nil {
		return err
	}
	for i, service := range name.Services() {
		for j := range replicasEach {
			r, err := s.replica(service, replicaName(j), i*replicasEach+j)
			if err != nil {
				return err
			}
			s.Replicas = append(s.Replicas, r)
			if err := r.Start(); err != nil {
				return err
			}
		}
	}
	return s.awaitStreams(ctx)
}

// awaitStreams waits until intake has made the streams.
func (s *Site) awaitStreams(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, 2*time.Minute)
	defer cancel()
	for {
		_, err := s.leader(ctx)
		if err == nil {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("stream %s: %w", events.StreamFacts, err)
		case <-time.After(200 * time.Millisecond):
		}
	}
}

// only is the site with those replicas alone whose names begin so.
func (s *Site) only(of string) *Site {
	some := *s
	some.Replicas = nil
	for _, r := range s.Replicas {
		if strings.HasPrefix(r.String(), of) {
			some.Replicas = append(some.Replicas, r)
		}
	}
	return &some
}

// host is the address on which everything listens.
func (s *Site) host() string { return s.Local.Block().Management().String() }

// replica opens the ways of a replica; index tells it from all others.
func (s *Site) replica(service, replica string, index int) (*Replica, error) {
	prefix, _, _ := strings.Cut(s.host(), ".0.1")
	r := &Replica{Service: service, Name: replica, Address: fmt.Sprintf("%s.0.%d", prefix, 200+index), site: s}
	gate, err := NewGate(net.JoinHostPort(s.host(), "0"), r.Address, s.Local.Kubeconfig(service))
	if err != nil {
		return nil, err
	}
	r.API = gate
	if err := gate.Kubeconfig(r.kubeconfig()); err != nil {
		return nil, err
	}
	if err := r.SetClock(0); err != nil {
		return nil, err
	}
	r.NATS, err = s.natsLinks()
	return r, err
}

// natsLinks opens a link to each NATS server.
func (s *Site) natsLinks() (links [servers]*Link, err error) {
	for i := range servers {
		if links[i], err = NewLink(net.JoinHostPort(s.host(), "0"), s.NATS.clients[i]); err != nil {
			return links, err
		}
	}
	return links, nil
}

// urls of links to the NATS servers.
func urls(links [servers]*Link) string {
	var all []string
	for _, l := range links {
		all = append(all, "nats://"+l.Address())
	}
	return strings.Join(all, ",")
}

// Portal connects as a portal, and returns the links that it does so through.
func (s *Site) Portal(source string) (*portal.Client, [servers]*Link, error) {
	links, err := s.natsLinks()
	if err != nil {
		return nil, links, err
	}
	c, err := portal.Connect(portal.Config{URL: urls(links), Source: source, SeedFile: s.NATS.Seed(events.UserPortal)})
	return c, links, err
}

func (r *Replica) kubeconfig() string { return filepath.Join(r.site.dir, r.String()+".kubeconfig") }

// Log is the path of the replica's log.
func (r *Replica) Log() string { return filepath.Join(r.site.dir, r.String()+".log") }

// Start starts the replica's process, unless it runs.
func (r *Replica) Start() (err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.proc != nil && r.proc.Running() {
		return nil
	}
	bin := filepath.Join(r.site.bins, "stoker-"+r.Service)
	env := []string{
		"STOKER_NATS=" + urls(r.NATS), "STOKER_NATS_SEED=" + r.site.NATS.Seed(r.Service), "STOKER_KUBECONFIG=" + r.kubeconfig(),
		"STOKER_REPLICA=" + r.Name, "STOKER_DATASTORE=" + dataStore, fmt.Sprintf("STOKER_STREAM_REPLICAS=%d", servers),
		clockVariable + "=" + r.clock(),
	}
	r.proc, err = process.Start(process.Spec{Path: bin, Args: []string{bin, "--http=", "--log-level=debug"}, Env: append(os.Environ(), env...), Dir: r.site.dir, Log: r.Log()})
	return err
}

// process is the one that was started last.
func (r *Replica) process() *process.Process {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.proc
}

// Kill ends the process as the kernel would.
func (r *Replica) Kill() {
	p := r.process()
	_ = p.Signal(syscall.SIGKILL)
	<-p.Done()
}

// Leave ends the process as an operator would. It is an error when it doesn't end by itself, or badly.
func (r *Replica) Leave(ctx context.Context) error {
	p := r.process()
	if p == nil || !p.Running() {
		return nil
	}
	p.Stop(ctx, 30*time.Second)
	if code := p.Exit().Code; code != 0 {
		return fmt.Errorf("%s was asked to end and ended with code %d: see %s", r, code, r.Log())
	}
	return nil
}

// Signal sends a signal to the process (SIGSTOP, SIGCONT).
func (r *Replica) Signal(sig syscall.Signal) { _ = r.process().Signal(sig) }

// Stop ends everything.
func (s *Site) Stop(ctx context.Context) error {
	var all error
	for _, r := range s.Replicas {
		all = errors.Join(all, r.Leave(ctx))
		r.API.Close()
		for _, l := range r.NATS {
			l.Close()
		}
	}
	if s.Operator != nil {
		s.Operator.Close()
	}
	if s.NATS != nil {
		s.NATS.Stop(ctx)
	}
	return errors.Join(all, s.Local.Stop(ctx))
}

// Crashes are the replicas' own: what their logs say of a panic or a race.
func (s *Site) Crashes() []string {
	var found []string
	for _, r := range s.Replicas {
		data, _ := os.ReadFile(r.Log())
		for _, sign := range []string{"\npanic: ", "\nfatal error: ", "WARNING: DATA RACE"} {
			if i := strings.Index(string(data), sign); i >= 0 {
				found = append(found, fmt.Sprintf("%s: %s", r, data[i:min(len(data), i+2000)]))
			}
		}
	}
	return slices.Clip(found)
}
