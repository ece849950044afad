package robustness

import (
	"context"
	"fmt"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/stoker-k8s/stoker/deployments/local/images"
	"github.com/stoker-k8s/stoker/deployments/local/progress"
	"github.com/stoker-k8s/stoker/pkg/api/name"
	"github.com/stoker-k8s/stoker/pkg/events"
	"github.com/stoker-k8s/stoker/pkg/loop"
	"github.com/stoker-k8s/stoker/pkg/partition"
	"github.com/stoker-k8s/stoker/test/env"
)

// The connection of a replica to a server that is stopped lasts until pings find out, unless the replica looks.
func TestAReplicaLeavesAServerThatIsStopped(t *testing.T) {
	n := startNATS(t)
	connect := func(user string, urls ...string) *events.Bus {
		b, err := events.Connect(events.Config{
			URL: strings.Join(urls, ","), User: user, SeedFile: n.Seed(user), StreamReplicas: servers, Replica: "a",
		})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(b.Close)
		return b
	}
	var urls []string
	for _, address := range n.clients {
		urls = append(urls, "nats://"+address)
	}
	intake := connect(name.ServiceIntake, urls...)
	env.Eventually(t, "streams are provisioned", func() error { return intake.Provision(t.Context()) })

	certs := connect(name.ServiceCerts, urls...)
	works := make(chan struct{}, 1)
	l := &loop.Loop{
		Bus: certs, Service: name.ServiceCerts, Handle: func(context.Context, *loop.Turn) error { return nil },
		Watch: func(ctx context.Context, _ *partition.Held, _ loop.Waker) error {
			works <- struct{}{}
			<-ctx.Done()
			return nil
		},
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- l.Run(ctx) }()
	defer func() { cancel(); <-done }()
	<-works
	at := -1
	for i := range n.clients {
		if fmt.Sprintf("n%d", i) == certs.Conn().ConnectedServerName() {
			at = i
		}
	}
	if at < 0 {
		t.Fatalf("connected to %q, no server of the test", certs.Conn().ConnectedServerName())
	}

	// It pings more often than the replica's connection, and so finds out earlier than the replica would by pings.
	found := make(chan struct{})
	key, err := nats.NkeyOptionFromSeed(n.Seed(events.UserOperator))
	if err != nil {
		t.Fatal(err)
	}
	pinging, err := nats.Connect(urls[at], key, nats.PingInterval(10*time.Second), nats.MaxPingsOutstanding(1),
		nats.DisconnectErrHandler(func(*nats.Conn, error) { close(found) }), nats.NoReconnect())
	if err != nil {
		t.Fatal(err)
	}
	defer pinging.Close()
	moved := certs.Conn().StatusChanged(nats.CONNECTED)
	if err := n.procs[at].Signal(syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = n.procs[at].Signal(syscall.SIGCONT) }()
	select {
	case <-moved:
		if to := certs.Conn().ConnectedServerName(); to == fmt.Sprintf("n%d", at) {
			t.Errorf("it is connected to %s again, which is stopped", to)
		}
	case <-found:
		t.Error("a connection that pings found out earlier than the replica")
	}
}

func startNATS(t *testing.T) *NATS {
	t.Helper()
	store, err := images.Open(env.Root())
	if err != nil {
		t.Fatal(err)
	}
	bin, err := store.Build(t.Context(), images.NATS, progress.None)
	if err != nil {
		t.Fatal(err)
	}
	n, err := NewNATS(t.TempDir(), filepath.Join(bin, "nats-server"), "127.0.0.1")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { n.Stop(context.Background()) })
	for i := range servers {
		if err := n.Start(i); err != nil {
			t.Fatal(err)
		}
	}
	return n
}
