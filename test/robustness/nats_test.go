package robustness

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/stoker-k8s/stoker/local/address"
	"github.com/stoker-k8s/stoker/local/images"
	"github.com/stoker-k8s/stoker/local/progress"
	"github.com/stoker-k8s/stoker/pkg/api/event"
	"github.com/stoker-k8s/stoker/pkg/api/name"
	"github.com/stoker-k8s/stoker/pkg/events"
	"github.com/stoker-k8s/stoker/pkg/fence"
	"github.com/stoker-k8s/stoker/pkg/loop"
	"github.com/stoker-k8s/stoker/pkg/partition"
	"github.com/stoker-k8s/stoker/test/env"
)

// The connection of a replica to a server that is stopped lasts until pings find out, unless the replica looks.
func TestAReplicaLeavesAServerThatIsStopped(t *testing.T) {
	n := startNATS(t)
	intake := n.connect(t, name.ServiceIntake, 0, 1, 2)
	env.Eventually(t, "streams are provisioned", func() error { return intake.Provision(t.Context()) })

	said := &record{}
	certs := n.connectAs(t, events.Config{User: name.ServiceCerts, Log: slog.New(slog.NewTextHandler(said, nil))}, 0, 1, 2)
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

	moved := certs.Conn().StatusChanged(nats.CONNECTED)
	n.stall(t, at)
	<-moved
	if to := certs.Conn().ConnectedServerName(); to == fmt.Sprintf("n%d", at) {
		t.Errorf("it is connected to %s again, which is stopped", to)
	}
	// If pings had found out, the connection would have moved without these words.
	if want := fmt.Sprintf("the NATS server is silent, going to another one\" server=n%d\n", at); !strings.Contains(said.String(), want) {
		t.Errorf("the replica didn't look whether n%d answers:\n%s", at, said)
	}
}

// record is a log that can be read while it is written.
type record struct {
	mu   sync.Mutex
	text strings.Builder
}

func (r *record) Write(b []byte) (int, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.text.Write(b)
}

func (r *record) String() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.text.String()
}

// While the leader of the leases and another server stand still, no lease can be renewed, and it ends: what a turn writes then is
// refused. Once there is a new leader, the same replica goes on: the turn is done again, nothing is looked at anew, alarms and wakes are
// kept.
func TestALeaseGoesOnAfterAnElection(t *testing.T) {
	n := startNATS(t)
	intake := n.connect(t, name.ServiceIntake, 0, 1, 2)
	env.Eventually(t, "streams are provisioned", func() error { return intake.Provision(t.Context()) })
	leader := leaderOf(t, intake, "KV_"+events.BucketLeases, "")
	other, mine := (leader+1)%servers, (leader+2)%servers

	key, began, over, first := events.DataStore("one"), make(chan struct{}), make(chan struct{}), true
	certs := n.connect(t, name.ServiceCerts, mine)
	w := works(t, certs, func(ctx context.Context, turn *loop.Turn) error {
		if !first {
			return nil
		}
		first = false
		turn.Alarm(time.Millisecond, loop.Wake{Kind: "alarm"})
		close(began)
		env.Eventually(t, "the lease is over", func() error {
			if fence.Check(ctx) == nil {
				return errors.New("it is held")
			}
			return nil
		})
		close(over)
		return fence.Check(ctx)
	})
	tellLook(t, intake, key)
	<-began
	for _, i := range []int{leader, other} {
		n.stall(t, i)
	}
	<-over
	w.wake(key, loop.Wake{Kind: "seen"})
	if err := n.process(other).Signal(syscall.SIGCONT); err != nil {
		t.Fatal(err)
	}
	for missing := []string{"alarm", "event", "seen"}; len(missing) > 0; {
		turn := <-w.turns
		missing = slices.DeleteFunc(missing, func(what string) bool { return strings.Contains(turn, what) })
	}
	w.acknowledged(t, certs, key)
}

// When the server that leads a consumer stands still, the replica hears of the next leader and asks that one: events go on, and one whose
// turn goes on all the while is acknowledged to the new leader, without another turn, however often it was delivered.
func TestEventsGoOnAfterAnElection(t *testing.T) {
	n := startNATS(t)
	provisioning := n.connect(t, name.ServiceIntake, 0, 1, 2)
	env.Eventually(t, "streams are provisioned", func() error { return provisioning.Provision(t.Context()) })
	one, two := events.DataStore("one"), events.DataStore("two")
	for i := 3; two.Partition() != one.Partition(); i++ {
		two = events.DataStore(fmt.Sprint("d", i))
	}
	consumer := events.Consumer(name.ServiceCerts, one.Partition())
	leader := leaderOf(t, n.connect(t, name.ServiceCerts, 0, 1, 2), events.StreamFacts, consumer)
	others := []int{(leader + 1) % servers, (leader + 2) % servers}

	intake, certs := n.connect(t, name.ServiceIntake, others...), n.connect(t, name.ServiceCerts, others...)
	began, end := make(chan struct{}), make(chan struct{})
	w := works(t, certs, func(_ context.Context, turn *loop.Turn) error {
		if turn.Key == one {
			close(began) // a second turn would end the test
			<-end
		}
		return nil
	})
	tellLook(t, intake, one)
	<-began
	elected, err := certs.Conn().SubscribeSync("$JS.EVENT.ADVISORY.CONSUMER.LEADER_ELECTED." + events.StreamFacts + "." + consumer)
	if err != nil {
		t.Fatal(err)
	}
	if err := certs.Conn().Flush(); err != nil {
		t.Fatal(err)
	}
	n.stall(t, leader)
	if _, err := elected.NextMsgWithContext(t.Context()); err != nil {
		t.Fatalf("the replica doesn't hear of another leader: %v", err)
	}
	tellLook(t, intake, two)
	if got := <-w.turns; got != two.Name+" event" {
		t.Errorf("turn after the election: %s", got)
	}
	close(end)
	if got := <-w.turns; got != one.Name+" event" {
		t.Errorf("turn that went on meanwhile: %s", got)
	}
	w.acknowledged(t, certs, one)
	if len(w.turns) > 0 {
		t.Errorf("there was another turn: %s", <-w.turns)
	}
}

// worker is a loop of certs that a test runs.
type worker struct {
	wake   loop.Waker
	gained chan []int
	turns  chan string // what each was for that was done, when it has ended
}

// works runs a loop of certs until the test ends, once it watches all partitions.
func works(t *testing.T, bus *events.Bus, handle loop.Handler) *worker {
	t.Helper()
	w := &worker{gained: make(chan []int, 100), turns: make(chan string, 100)}
	l := &loop.Loop{
		Bus: bus, Service: name.ServiceCerts, Handle: func(ctx context.Context, turn *loop.Turn) error {
			if err := handle(ctx, turn); err != nil {
				return err
			}
			what := []string{turn.Key.Name}
			if len(turn.Events) > 0 {
				what = append(what, "event")
			}
			for _, w := range turn.Wakes {
				what = append(what, w.Kind)
			}
			slices.Sort(what[1:])
			w.turns <- strings.Join(what, " ")
			return nil
		},
		Watch: func(ctx context.Context, held *partition.Held, wake loop.Waker) error {
			w.wake = wake
			for m := range held.Moves(ctx) {
				w.gained <- m.Gained
			}
			return nil
		},
	}
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	done := make(chan error, 1)
	go func() { done <- l.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	for held := 0; held < name.Partitions; {
		held += len(<-w.gained)
	}
	return w
}

// acknowledged waits until all events of a key's partition are, and checks that no partition was gained anew.
func (w *worker) acknowledged(t *testing.T, certs *events.Bus, key events.Key) {
	t.Helper()
	env.Eventually(t, "all is acknowledged", func() error {
		c, err := certs.JetStream().Consumer(t.Context(), events.StreamFacts, events.Consumer(name.ServiceCerts, key.Partition()))
		if err != nil {
			return err
		}
		if info := c.CachedInfo(); info.NumAckPending+int(info.NumPending) > 0 {
			return fmt.Errorf("%d events are not acknowledged, %d not delivered", info.NumAckPending, info.NumPending)
		}
		return nil
	})
	if len(w.gained) > 0 {
		t.Errorf("partitions %v are looked at anew", <-w.gained)
	}
}

// tellLook tells that a DataStore was looked at, of which no state needs to be read.
func tellLook(t *testing.T, intake *events.Bus, key events.Key) {
	t.Helper()
	env.Eventually(t, "a fact is told", func() error {
		return intake.Tell(t.Context(), key, 0, "look at "+key.Name, event.Checked, event.IntakeChecked{About: event.About{Name: key.Name}})
	})
}

// leaderOf finds the server that leads a stream, or a consumer of it.
func leaderOf(t *testing.T, bus *events.Bus, stream, consumer string) (leader int) {
	t.Helper()
	env.Eventually(t, "a leader of "+stream+" "+consumer, func() error {
		s, err := bus.JetStream().Stream(t.Context(), stream)
		if err != nil {
			return err
		}
		cluster := s.CachedInfo().Cluster
		if consumer != "" {
			c, err := s.Consumer(t.Context(), consumer)
			if err != nil {
				return err
			}
			cluster = c.CachedInfo().Cluster
		}
		if cluster == nil {
			return errors.New("there is no cluster")
		}
		_, err = fmt.Sscanf(cluster.Leader, "n%d", &leader)
		return err
	})
	return leader
}

// connect connects a user to some of the servers, until the test ends.
func (n *NATS) connect(t *testing.T, user string, to ...int) *events.Bus {
	t.Helper()
	return n.connectAs(t, events.Config{User: user}, to...)
}

// connectAs is connect for a configuration with a user.
func (n *NATS) connectAs(t *testing.T, cfg events.Config, to ...int) *events.Bus {
	t.Helper()
	var urls []string
	for _, i := range to {
		urls = append(urls, "nats://"+n.clients[i])
	}
	cfg.URL, cfg.SeedFile, cfg.StreamReplicas, cfg.Replica = strings.Join(urls, ","), n.Seed(cfg.User), servers, "a"
	b, err := events.Connect(cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(b.Close)
	return b
}

// stall stops a server as a machine stops that hangs; at the test's end it goes on.
func (n *NATS) stall(t *testing.T, i int) {
	t.Helper()
	p := n.process(i)
	if err := p.Signal(syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = p.Signal(syscall.SIGCONT) })
}

// ownHost is an address of this machine that is nobody else's until the test ends: of 127.0.0.1, every connection takes a port for a while,
// which a server could not listen on then.
func ownHost(t *testing.T) string {
	t.Helper()
	block, held, err := address.Claim(0, t.Name())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = held.Close() })
	return block.Management().String()
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
	n, err := NewNATS(t.TempDir(), filepath.Join(bin, "nats-server"), ownHost(t))
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
