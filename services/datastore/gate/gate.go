// Package gate stands between a tenant's API server and its data while these move from one DataStore to another. It serves
// etcd's API on a socket in the pod, passes requests on to the store that holds the data, holds writes back for the moment in
// which that becomes another one, and then passes everything on to the other: the API server runs on.
//
// Which store holds the data is said by a record in the stores themselves ([driver.Move]), which the datastore service writes
// and the gate reads; pods need to reach nothing else. docs/design/0014-moving.md says what follows what, and why.
//
// What an API server relies on holds across the change:
//   - A write that was answered is in the store that holds the data afterwards. Writes wait for the change; a store that was
//     sealed refuses them, and then they wait, too.
//   - Revisions only grow. Those of before the change are told to be compacted: lists that page through one, and watches from
//     one, end with "too old", by which clients read anew.
//   - Leases of the former store are made anew in the other when they are used.
//
// Files: gate.go (which store, and who waits), record.go (what the records say), kv.go, watch.go, lease.go (etcd's API), keys.go
// (one prefix for the API server, whichever a store has).
package gate

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"net"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// Prefix is what stands before all keys of the API server: its own default.
const Prefix = "/registry/"

// patience is how long a write waits for the change at most. The hold of one attempt ends by then as well, for whoever began it may be
// gone: a store that was sealed meanwhile refuses writes, and one that wasn't takes them.
const patience = 5 * time.Second

// refused is what a write hears that has waited in vain.
var refused = status.Error(codes.Unavailable, "the tenant's data move to another DataStore, and nothing can be written meanwhile: try again in some seconds")

// errDoubt is what a read hears meanwhile.
var errDoubt = status.Error(codes.Unavailable, "the tenant's data may have moved to another DataStore, which doesn't answer")

// Store is one of the two that a gate leads to.
type Store struct {
	// Endpoints as URLs: https://host:port of an etcd, unix:///path of a kine.
	Endpoints []string
	// TLS of an etcd; nil without.
	TLS *tls.Config
	// Prefix of the tenant's keys, with a slash at its end.
	Prefix string
}

// Config of a gate.
type Config struct {
	// Listen is the path of the socket.
	Listen string
	// Move is the ID of the move, Name that of the pod, by which the gate signs what it says of itself.
	Move, Name string
	// From holds the data until the records say that To does. Without a move there is From alone.
	From, To Store
	// Through are further sockets, by path, and the URLs of other etcds that what is asked there goes to, with From's TLS and prefix. No quota
	// is about what they hold.
	Through map[string][]string
	// Moving is the one of Through whose etcd's data move to To; empty for the data of From.
	Moving string
	// Quota bounds what the tenant keeps.
	Quota Quota
	Log   *slog.Logger
}

// Gate is one that runs.
type Gate struct {
	cfg      Config
	from, to *store // to is nil without a move
	usage    *usage // nil without a quota

	mu sync.Mutex
	// held is closed when writes go on, nil while they do; attempt is whose hold that is, expired up to whose a hold has lasted too long.
	held             chan struct{}
	attempt, expired int
	writing          int
	idle             chan struct{} // closed when nothing is being written to From; nil when nobody asks
	// doubt says that From may not have the data any more: writes were held for longer than that takes, and To doesn't answer.
	doubt bool
	// moved says that To holds the data, since floor, its revision then.
	moved    bool
	floor    int64
	switched chan struct{} // closed once moved
	leases   leases
}

// store is a connection to one.
type store struct {
	Store
	client *clientv3.Client
	kv     pb.KVClient
	watch  pb.WatchClient
	lease  pb.LeaseClient
	keys   keys
}

func open(s Store) (*store, error) {
	client, err := clientv3.New(clientv3.Config{
		Endpoints: s.Endpoints, TLS: s.TLS, Logger: zap.NewNop(), DialKeepAliveTime: 10 * time.Second, DialKeepAliveTimeout: 10 * time.Second,
		MaxCallSendMsgSize: maxMessage, MaxCallRecvMsgSize: maxMessage,
	})
	if err != nil {
		return nil, err
	}
	c := client.ActiveConnection()
	return &store{s, client, pb.NewKVClient(c), pb.NewWatchClient(c), pb.NewLeaseClient(c), keys{Prefix, s.Prefix}}, nil
}

// maxMessage is what may be said at once. The stores are what limits it.
const maxMessage = math.MaxInt32

// Run serves until ctx ends. ready is called once the socket is there; its error ends the gate.
func Run(ctx context.Context, cfg Config, ready func() error) error {
	g := &Gate{cfg: cfg, switched: make(chan struct{})}
	var err error
	if g.from, err = open(cfg.From); err != nil {
		return fmt.Errorf("the DataStore that the data are in: %w", err)
	}
	defer g.from.client.Close()
	ctx, cancel := context.WithCancel(ctx)
	var running sync.WaitGroup
	defer running.Wait()
	defer cancel()
	if cfg.Quota.bounded() {
		g.usage = newUsage(cfg.Quota)
	}
	gates := map[string]*Gate{cfg.Listen: g}
	for socket, endpoints := range cfg.Through {
		other := cfg.From
		other.Endpoints = endpoints
		s, err := open(other)
		if err != nil {
			return fmt.Errorf("the DataStore of --through %s: %w", socket, err)
		}
		defer s.client.Close()
		gates[socket] = &Gate{cfg: cfg, from: s, switched: make(chan struct{})}
	}
	if cfg.Move != "" {
		moving := gates[cmp.Or(cfg.Moving, cfg.Listen)]
		if moving == nil {
			return fmt.Errorf("--moving %s: must be one of --through", cfg.Moving)
		}
		if moving.to, err = open(cfg.To); err != nil {
			return fmt.Errorf("the DataStore that the data go to: %w", err)
		}
		defer moving.to.client.Close()
		if err := moving.begin(ctx); err != nil {
			return err
		}
		running.Go(func() { moving.follow(ctx) })
	}
	if g.usage != nil {
		running.Go(func() { g.report(ctx) })
	}
	failed := make(chan error, len(gates))
	for socket, one := range gates {
		listener, err := listen(ctx, socket)
		if err != nil {
			return err
		}
		server := one.server()
		running.Go(func() { failed <- server.Serve(listener) })
		defer server.Stop()
	}
	if err := ready(); err != nil {
		return err
	}
	select {
	case <-ctx.Done():
		return nil
	case err := <-failed:
		return err
	}
}

// listen makes a socket, in place of what an earlier gate has left there.
func listen(ctx context.Context, socket string) (net.Listener, error) {
	if err := os.Remove(socket); err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, err
	}
	return (&net.ListenConfig{}).Listen(ctx, "unix", socket)
}

// server is what serves etcd's API.
func (g *Gate) server() *grpc.Server {
	server := grpc.NewServer(grpc.MaxRecvMsgSize(maxMessage), grpc.MaxSendMsgSize(maxMessage))
	pb.RegisterKVServer(server, &kvServer{g: g})
	pb.RegisterWatchServer(server, &watchServer{g: g})
	pb.RegisterLeaseServer(server, &leaseServer{g: g})
	pb.RegisterMaintenanceServer(server, &maintenanceServer{g: g})
	return server
}

// current is the store that reads go to; sure says that it has the data.
func (g *Gate) current() (s *store, sure bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.moved {
		return g.to, true
	}
	return g.from, !g.doubt
}

// setDoubt notes whether From may not have the data any more.
func (g *Gate) setDoubt(doubt bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.doubt = doubt
}

// lowest is the revision from which on there is history: 0 for all of it.
func (g *Gate) lowest() int64 {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.floor
}

// read passes a question on. One that the former store fails to answer while writes are held is asked again, of the other.
func read[T any](ctx context.Context, g *Gate, ask func(context.Context, *store) (T, error)) (T, error) {
	for {
		s, sure := g.current()
		if !sure {
			if g.awaitSwitch(ctx) {
				continue
			}
			var none T
			return none, errDoubt
		}
		answer, err := ask(ctx, s)
		if err == nil || s == g.to || !g.ending(err) || !g.awaitSwitch(ctx) {
			return answer, err
		}
	}
}

// write passes a write on once writes aren't held, again to the other store when the former one refuses it for being sealed. What came
// of one that ends otherwise is the store's to say, as without a gate.
func write[T any](ctx context.Context, g *Gate, do func(context.Context, *store) (T, error)) (T, error) {
	var none T
	for deadline := time.Now().Add(patience); ; {
		s, wait := g.enter()
		if wait != nil {
			select {
			case <-wait:
				continue
			case <-ctx.Done():
				return none, ctx.Err()
			case <-time.After(time.Until(deadline)):
				return none, refused
			}
		}
		answer, err := do(ctx, s)
		g.leave(s)
		switch {
		case g.to == nil || s == g.to || !sealed(err):
			return answer, err
		case !g.awaitSwitch(ctx):
			return none, refused
		}
	}
}

// enter is the store to write to, or what to wait for.
func (g *Gate) enter() (s *store, wait chan struct{}) {
	g.mu.Lock()
	defer g.mu.Unlock()
	switch {
	case g.held != nil:
		return nil, g.held
	case g.moved:
		return g.to, nil
	}
	g.writing++
	return g.from, nil
}

// leave ends what enter began.
func (g *Gate) leave(s *store) {
	if s == g.to {
		return
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.writing--; g.writing == 0 && g.idle != nil {
		close(g.idle)
		g.idle = nil
	}
}

// hold has writes wait from now on, and returns when none is under way any more; false when that took too long.
func (g *Gate) hold(ctx context.Context, attempt int) bool {
	g.mu.Lock()
	if g.held == nil {
		g.held = make(chan struct{})
	}
	if g.attempt != attempt {
		g.attempt = attempt
		time.AfterFunc(patience, func() { g.giveUp(attempt) })
	}
	idle := make(chan struct{})
	if g.writing == 0 {
		close(idle)
	} else {
		g.idle = idle
	}
	g.mu.Unlock()
	select {
	case <-idle:
		return true
	case <-ctx.Done():
	case <-time.After(patience):
	}
	return false
}

// release has writes go on that were held by an attempt, or an earlier one.
func (g *Gate) release(attempt int) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.held != nil && (g.attempt <= attempt || g.moved) {
		close(g.held)
		g.held = nil
	}
}

// giveUp ends the hold of an attempt that has taken too long.
func (g *Gate) giveUp(attempt int) {
	g.mu.Lock()
	g.expired = max(g.expired, attempt)
	g.mu.Unlock()
	g.release(attempt)
}

// turn has everything go to the other store from now on, which has no history before floor. Writes are still held.
func (g *Gate) turn(floor int64) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if !g.moved {
		g.moved, g.floor = true, floor
		close(g.switched)
	}
}

// ending reports whether an error of the former store may come of its being sealed.
func (g *Gate) ending(err error) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return (g.held != nil || g.moved) && (sealed(err) || status.Code(err) == codes.Unavailable || status.Code(err) == codes.Unknown)
}

// awaitSwitch waits until the other store holds the data, but no longer than patience.
func (g *Gate) awaitSwitch(ctx context.Context) bool {
	select {
	case <-g.switched:
		return true
	case <-ctx.Done():
	case <-time.After(patience):
	}
	return false
}

// refusals are the codes by which databases behind a kine say that a tenant may read and not write: PostgreSQL, MySQL and NATS. kine
// passes them on in its errors' texts alone.
var refusals = []string{"(SQLSTATE 42501)", "Error 1142 (", "err_code=10054 "}

// sealed reports whether an error is a store's word that it did not do what was asked, for the tenant may not.
func sealed(err error) bool {
	if err == nil {
		return false
	}
	return status.Code(err) == codes.PermissionDenied || slices.ContainsFunc(refusals, func(code string) bool { return strings.Contains(err.Error(), code) })
}
