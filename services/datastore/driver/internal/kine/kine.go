// Package kine runs kine in this process, so that a tenant's data in an SQL database are read and written by etcd's API, as the kine beside
// its API server does. It listens in memory: no port, no socket, and on Linux no file, for those of its credentials are in memory, too.
package kine

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"net"
	"sync"
	"time"

	"github.com/k3s-io/kine/pkg/drivers"
	"github.com/k3s-io/kine/pkg/drivers/generic"
	_ "github.com/k3s-io/kine/pkg/drivers/mysql" // each by the scheme of its endpoint
	_ "github.com/k3s-io/kine/pkg/drivers/pgsql"
	"github.com/k3s-io/kine/pkg/server"
	"github.com/k3s-io/kine/pkg/tls"
	"github.com/sirupsen/logrus"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/grpc/test/bufconn"

	"github.com/stoker-k8s/stoker/services/datastore/driver"
	"github.com/stoker-k8s/stoker/services/datastore/driver/internal/data"
)

// openTimeout bounds how long kine may take to reach its database and make its table.
const openTimeout = time.Minute

// maxRequest is what may be written at once. Databases take less.
const maxRequest = 16 << 20

// prefix is that of all keys: an API server's that is told no other.
const prefix = "/registry/"

// How many connections one kine has to its database.
const (
	maxConnections = 8
	maxIdle        = 4
)

// How many more there are while exports are read, and how long one stays when none is.
const (
	maxReading  = 2
	readingTime = 10 * time.Second
)

// writers is how many keys of an import are written at once: databases take twice as many a second from 64 as from 16.
const writers = 64

// Options say which database it is, and what it can't do.
type Options struct {
	// Endpoint is what kine's --endpoint says.
	Endpoint string
	// Access is the tenant's. Its certificates are left out when Plain, for then the endpoint says them.
	Access driver.Access
	Plain  bool
	// Table is kine's. Revisions there become visible in another order than they are counted.
	Table *Table
	// Fits is that of data.Tenant.
	Fits func(key string) error
	// Classify wraps driver.ErrAway around errors that mean so.
	Classify func(error) error
}

var silence sync.Once

// Open starts a kine and connects to it.
func Open(ctx context.Context, o Options) (*data.Tenant, error) {
	// It logs to the process' standard error what it also returns.
	silence.Do(func() { logrus.SetOutput(io.Discard) })
	ctx, cancel := context.WithTimeout(ctx, openTimeout)
	defer cancel()
	k := &process{}
	var running context.Context
	running, k.cancel = context.WithCancel(context.WithoutCancel(ctx))
	// Some of what it does when it starts can't be called off.
	started := make(chan error, 1)
	go func() { started <- k.start(running, o) }()
	select {
	case err := <-started:
		if err != nil {
			return nil, errors.Join(o.classify(fmt.Errorf("open the tenant's data: %w", err)), k.shut())
		}
	case <-ctx.Done():
		k.cancel()
		go func() {
			<-started
			_ = k.shut()
		}()
		if errors.Is(ctx.Err(), context.DeadlineExceeded) {
			return nil, fmt.Errorf("open the tenant's data: %w within %s", driver.ErrAway, openTimeout)
		}
		return nil, ctx.Err()
	}
	client, err := clientv3.New(clientv3.Config{
		Endpoints: []string{"http://kine"}, Logger: zap.NewNop(), MaxCallSendMsgSize: maxRequest, MaxUnaryRetries: 1,
		DialOptions: []grpc.DialOption{grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) {
			return k.listener.DialContext(ctx)
		})},
	})
	if err != nil {
		return nil, errors.Join(err, k.shut())
	}
	return &data.Tenant{
		Client: client, Prefix: prefix, Kine: true, Writers: writers, Fits: o.Fits, Settle: k.settle, Page: k.table.page, Shut: k.shut,
	}, nil
}

func (o Options) classify(err error) error {
	if o.Classify == nil {
		return err
	}
	return o.Classify(err)
}

// process is a kine that runs.
type process struct {
	cancel   context.CancelFunc
	running  sync.WaitGroup
	files    files
	table    *table
	backend  server.Backend
	settled  time.Time // from when all is visible that was under way when it started
	listener *bufconn.Listener
	server   *grpc.Server
}

func (k *process) start(ctx context.Context, o Options) (err error) {
	config := drivers.Config{
		// Only the kine beside the API server compacts.
		CompactInterval: 0, CompactBatchSize: 1000, CompactTimeout: 5 * time.Second, PollBatchSize: 500,
		ConnectionPoolConfig: generic.ConnectionPoolConfig{MaxIdle: maxIdle, MaxOpen: maxConnections},
	}
	file := func(name string, content []byte) (path string) {
		if len(content) > 0 && err == nil {
			path, err = k.files.write(name, content)
		}
		return path
	}
	config.Endpoint = o.Endpoint
	if !o.Plain {
		config.BackendTLSConfig = tls.Config{CAFile: file("ca", o.Access.CA), CertFile: file("cert", o.Access.Cert), KeyFile: file("key", o.Access.Key)}
	}
	if err != nil {
		return err
	}
	if _, k.backend, err = drivers.New(ctx, &k.running, &config); err != nil {
		return err
	}
	if err := k.backend.Start(ctx); err != nil {
		return err
	}
	k.table = openTable(o)
	k.poll(ctx)
	k.backend = ordered{k.backend}
	k.listener = bufconn.Listen(1 << 20)
	k.server = grpc.NewServer(grpc.MaxRecvMsgSize(maxRequest), grpc.MaxSendMsgSize(math.MaxInt32), grpc.UnaryInterceptor(o.translate))
	// Progress is never asked for: kine tells it before all events are sent.
	server.New(k.backend, "http", 24*time.Hour, "").Register(k.server)
	k.running.Go(func() { _ = k.server.Serve(k.listener) })
	return nil
}

// translate has errors of a database that is away arrive as such.
func (o Options) translate(ctx context.Context, request any, _ *grpc.UnaryServerInfo, handler grpc.UnaryHandler) (any, error) {
	answer, err := handler(ctx, request)
	if err != nil && ctx.Err() == nil {
		if err := o.classify(err); errors.Is(err, driver.ErrAway) {
			return nil, status.Error(codes.Unavailable, err.Error())
		}
	}
	return answer, err
}

// shut ends it and waits until its connections are closed.
func (k *process) shut() error {
	if k.server != nil {
		k.server.Stop()
	}
	k.cancel()
	k.running.Wait()
	return errors.Join(k.table.close(), k.files.remove())
}
