// Package stack is an installation of Stoker on one machine: the local management cluster, a NATS server, and the eight
// services. `stoker up` runs it all in one process; tests run the services as processes of their own.
package stack

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/util/retry"

	"github.com/stoker-k8s/stoker/local"
	"github.com/stoker-k8s/stoker/local/natsserver"
	"github.com/stoker-k8s/stoker/local/node"
	"github.com/stoker-k8s/stoker/local/process"
	"github.com/stoker-k8s/stoker/local/progress"
	"github.com/stoker-k8s/stoker/pkg/api/name"
	"github.com/stoker-k8s/stoker/pkg/events"
	"github.com/stoker-k8s/stoker/pkg/service"
	"github.com/stoker-k8s/stoker/pkg/token"
	"github.com/stoker-k8s/stoker/services/addons"
	"github.com/stoker-k8s/stoker/services/capi"
	"github.com/stoker-k8s/stoker/services/certs"
	"github.com/stoker-k8s/stoker/services/datastore"
	"github.com/stoker-k8s/stoker/services/intake"
	"github.com/stoker-k8s/stoker/services/status"
	"github.com/stoker-k8s/stoker/services/tenantaddons"
	"github.com/stoker-k8s/stoker/services/workload"
)

// DefaultDataStore is the DataStore on etcd, and that of tenants that name none unless Config.Drivers says otherwise.
const DefaultDataStore = "default"

// Config of an installation; see local.Config.
type Config struct {
	Dir, Source string
	Log         *slog.Logger
	Progress    progress.Func
	// Drivers are the databases that the stack has a DataStore on, of local.Drivers; none means etcd. The first one's
	// DataStore is that of tenants that name none.
	Drivers []string
	// APIOnly starts an API server and NATS only; see local.Config.
	APIOnly bool
	// Start starts the programs of pods' containers; see local.Config. For tests.
	Start func(process.Spec) (node.Process, error)
	// Portal that is there from the start; one without a name means events.UserPortal for the tenants of the namespace default.
	Portal events.Portal
}

// portal is the one that is there from the start.
func (c Config) portal() events.Portal {
	if c.Portal.Name == "" {
		return events.Portal{Name: events.UserPortal, Namespaces: []string{metav1.NamespaceDefault}}
	}
	return c.Portal
}

// DataStore is the DataStore on a database: etcd's is the default one, others are named for the database.
func DataStore(driver string) string {
	if driver == local.DriverEtcd {
		return DefaultDataStore
	}
	return driver
}

// dataStores are those on the databases asked for, and the default one.
func (c Config) dataStores() []local.DataStore {
	drivers := c.Drivers
	if !slices.Contains(drivers, local.DriverEtcd) {
		drivers = append(slices.Clone(drivers), local.DriverEtcd)
	}
	var all []local.DataStore
	for _, d := range drivers {
		all = append(all, local.DataStore{Name: DataStore(d), Driver: d})
	}
	return all
}

// first is the DataStore of tenants that name none.
func (c Config) first() string {
	if len(c.Drivers) == 0 {
		return DefaultDataStore
	}
	return DataStore(c.Drivers[0])
}

// Stack is a running installation without its services; see Run.
type Stack struct {
	Local *local.Stack
	NATS  *natsserver.Server
	cfg   Config
}

// Start starts the management cluster and NATS. The error is a *local.RunningError when there is one on Dir already.
func Start(ctx context.Context, cfg Config) (*Stack, error) {
	l, err := local.Start(ctx, local.Config{
		Dir: cfg.Dir, Source: cfg.Source, Log: cfg.Log, Progress: cfg.Progress, APIOnly: cfg.APIOnly, DataStores: cfg.dataStores(),
		Start: cfg.Start,
	})
	if err != nil {
		return nil, err
	}
	s := &Stack{Local: l, cfg: cfg}
	dir := filepath.Join(l.Dir(), "nats")
	s.NATS, err = natsserver.Start(ctx, dir, l.Block().Management().String()+":4222", cfg.Log, cfg.portal())
	if err == nil {
		err = os.WriteFile(filepath.Join(dir, "url"), []byte(s.NATS.URL()+"\n"), 0o600)
	}
	if err != nil {
		return nil, errors.Join(err, s.Stop(context.WithoutCancel(ctx)))
	}
	if err := s.provision(ctx); err != nil {
		return nil, errors.Join(err, s.Stop(context.WithoutCancel(ctx)))
	}
	cfg.Progress("NATS is ready: "+s.NATS.URL(), false)
	if err := s.keepHTTP(); err != nil {
		return nil, errors.Join(err, s.Stop(context.WithoutCancel(ctx)))
	}
	return s, nil
}

// HTTP is intake's way in for CloudEvents over HTTP, without TLS: the address is a loopback one.
func (s *Stack) HTTP() intake.HTTP {
	return intake.HTTP{Address: s.Local.Block().Management().String() + ":8080", Tokens: filepath.Join(s.Local.Dir(), "http", "tokens.yaml")}
}

// keepHTTP writes down where events are taken, and makes the first token they come with, for tenants of the namespace default, once.
func (s *Stack) keepHTTP() error {
	h := s.HTTP()
	dir := filepath.Dir(h.Tokens)
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	if _, err := os.Stat(h.Tokens); errors.Is(err, os.ErrNotExist) {
		if err := firstToken(filepath.Join(dir, "token"), h.Tokens); err != nil {
			return err
		}
	}
	return os.WriteFile(filepath.Join(dir, "url"), []byte("http://"+h.Address+"/events\n"), 0o600)
}

// firstToken writes the file of tokens for the token in another file, which is made unless a stack of before made it.
func firstToken(file, tokens string) error {
	kept, err := os.ReadFile(file)
	secret := strings.TrimSpace(string(kept))
	if errors.Is(err, os.ErrNotExist) {
		secret = token.New()
		err = os.WriteFile(file, []byte(secret+"\n"), 0o600)
	}
	if err != nil {
		return err
	}
	data, err := token.File{Tokens: []token.Token{{Name: "local", Hash: token.Hash(secret), Namespaces: []string{"default"}}}}.Marshal()
	if err != nil {
		return err
	}
	return os.WriteFile(tokens, data, 0o600)
}

// provision makes the streams before anybody uses them; intake would, too, but a little later.
func (s *Stack) provision(ctx context.Context) error {
	b, err := events.Connect(s.Bus(name.ServiceIntake))
	if err != nil {
		return err
	}
	defer b.Close()
	slow := func(err error) bool { return errors.Is(err, context.DeadlineExceeded) && ctx.Err() == nil } // a disk, which has hundreds of files to write
	return retry.OnError(retry.DefaultBackoff, slow, func() error { return b.Provision(ctx) })
}

// Stop ends everything; nothing is left running.
func (s *Stack) Stop(ctx context.Context) error {
	if s.NATS != nil {
		s.NATS.Stop()
	}
	return s.Local.Stop(ctx)
}

// Service is the configuration of one replica of a service on this stack, with the service's own identities.
func (s *Stack) Service(n, replica string) service.Config {
	return service.Config{
		Name: n, NATS: s.NATS.URL(), NATSSeed: s.NATS.SeedFile(n), Kubeconfig: s.Local.Kubeconfig(n),
		Replica: replica, StreamReplicas: 1, Log: s.cfg.Log,
	}
}

// Bus is how one of the NATS users connects.
func (s *Stack) Bus(user string) events.Config {
	return events.Config{URL: s.NATS.URL(), User: user, SeedFile: s.NATS.SeedFile(user), Replica: "local", Log: s.cfg.Log}
}

// Run runs the eight services until ctx ends or one of them fails for good.
func (s *Stack) Run(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var wg sync.WaitGroup
	errs := make(chan error, len(name.Services()))
	for _, n := range name.Services() {
		cfg := s.Service(n, "local")
		wg.Go(func() {
			if err := s.serve(ctx, cfg); err != nil {
				errs <- fmt.Errorf("service %s: %w", n, err)
				cancel()
			}
		})
	}
	wg.Wait()
	close(errs)
	var all error
	for err := range errs {
		all = errors.Join(all, err)
	}
	return all
}

// serve runs one service until ctx ends.
func (s *Stack) serve(ctx context.Context, cfg service.Config) error {
	switch cfg.Name {
	case name.ServiceIntake:
		return intake.Run(ctx, intake.Config{Config: cfg, DataStore: s.cfg.first(), Events: s.HTTP()})
	case name.ServiceCerts:
		return certs.Run(ctx, certs.Config{Config: cfg})
	case name.ServiceDatastore:
		return datastore.Run(ctx, datastore.Config{Config: cfg})
	case name.ServiceWorkload:
		return workload.Run(ctx, workload.Config{Config: cfg, ActivatorAddress: s.Local.Block().Management().String()})
	case name.ServiceAddons:
		return addons.Run(ctx, cfg)
	case name.ServiceStatus:
		return status.Run(ctx, cfg)
	case name.ServiceCAPI:
		return capi.Run(ctx, capi.Config{Config: cfg})
	case name.ServiceTenantAddons:
		return tenantaddons.Run(ctx, tenantaddons.Config{Config: cfg})
	}
	return fmt.Errorf("no service %q; the services are %v", cfg.Name, name.Services())
}
