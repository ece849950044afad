// Package natstest gives tests of this module a real NATS server, with Stoker's users, as a process of its own: the
// server's program (local/natsserver) is built when the first test asks for it, so that this module's go.mod has no server.
package natstest

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	ce "github.com/cloudevents/sdk-go/v2/event"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nkeys"
	"go.uber.org/goleak"

	"github.com/stoker-k8s/stoker/pkg/api/event"
	"github.com/stoker-k8s/stoker/pkg/api/name"
	"github.com/stoker-k8s/stoker/pkg/events"
	"github.com/stoker-k8s/stoker/pkg/intent"
	"github.com/stoker-k8s/stoker/pkg/internal/testing/checkout"
)

// Server is a running NATS server. It is safe for concurrent use.
type Server struct {
	dir string

	mu    sync.Mutex
	addr  string
	cmd   *exec.Cmd // nil while it is stopped
	stdin io.Closer
}

// Start runs a server for the test's time and provisions Stoker's streams on it. Portal events.UserPortal may order everything;
// others may be given, whose nkeys are made.
func Start(t testing.TB, portals ...events.Portal) *Server {
	t.Helper()
	s := &Server{dir: t.TempDir(), addr: "127.0.0.1:0"}
	all := append(portals, events.Portal{
		Name: events.UserPortal, Namespaces: []string{events.AllNamespaces}, Kinds: []string{event.DataStores, event.KubeconfigGenerators},
	})
	if err := s.writePortals(all); err != nil {
		t.Fatal(err)
	}
	if err := s.Restart(t.Context()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.kill)
	if err := s.Connect(t, name.ServiceIntake, "").Provision(t.Context()); err != nil {
		t.Fatal(err)
	}
	return s
}

func (s *Server) writePortals(all []events.Portal) error {
	for i := range all {
		pair, err := nkeys.CreateUser()
		if err != nil {
			return err
		}
		seed, err := pair.Seed()
		if err != nil {
			return err
		}
		if err := os.WriteFile(s.SeedFile(all[i].Name), seed, 0o600); err != nil {
			return err
		}
		if all[i].NKey, err = pair.PublicKey(); err != nil {
			return err
		}
		if err := all[i].Validate(); err != nil {
			return err
		}
	}
	return os.WriteFile(filepath.Join(s.dir, events.PortalsFile), []byte(events.Portals(all)), 0o600)
}

// built is the server's binary, which test/run has built before it starts any test.
var built = sync.OnceValues(func() (string, error) {
	root, err := checkout.Root()
	if err != nil {
		return "", err
	}
	bin := filepath.Join(root, "bin", "test", "natsserver")
	if os.Getenv("STOKER_TEST_BUILT") != "" {
		return bin, nil
	}
	build := exec.Command("go", "build", "-trimpath", "-o", bin, "./local/natsserver/cmd/natsserver")
	build.Dir, build.Stderr = root, os.Stderr
	return bin, build.Run()
})

// Restart starts the server again after Stop, on the same address.
func (s *Server) Restart(ctx context.Context) error {
	bin, err := built()
	if err != nil {
		return fmt.Errorf("build natsserver: %w", err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	// It ends with its standard input, not with ctx.
	cmd := exec.CommandContext(context.WithoutCancel(ctx), bin, s.dir, s.addr)
	var said bytes.Buffer
	cmd.Stderr = io.MultiWriter(os.Stderr, &said)
	stdin, err := cmd.StdinPipe()
	if err != nil {
		return err
	}
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		return err
	}
	if err := cmd.Start(); err != nil {
		return err
	}
	line, err := bufio.NewReader(stdout).ReadString('\n')
	if err != nil {
		err = errors.Join(err, cmd.Wait())
		return fmt.Errorf("natsserver did not start: %w: %s", err, said.String())
	}
	s.cmd, s.stdin, s.addr = cmd, stdin, strings.TrimPrefix(strings.TrimSpace(line), "nats://")
	return nil
}

// Stop ends the server and waits for it.
func (s *Server) Stop() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.cmd == nil {
		return
	}
	_ = s.stdin.Close()
	_ = s.cmd.Wait()
	s.cmd = nil
}

// kill is Stop for a server whose storage nobody reads again: to write that, a server waits some 10 ms for each consumer.
func (s *Server) kill() {
	s.mu.Lock()
	if s.cmd != nil {
		_ = s.cmd.Process.Kill()
	}
	s.mu.Unlock()
	s.Stop()
}

// URL for clients.
func (s *Server) URL() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return "nats://" + s.addr
}

// SeedFile of a user's nkey.
func (s *Server) SeedFile(user string) string { return filepath.Join(s.dir, user+".nk") }

// JetStreamDir holds everything JetStream stores.
func (s *Server) JetStreamDir() string { return filepath.Join(s.dir, "jetstream") }

// Config is how a user of Stoker connects, with Stoker's own limits. An empty replica is "test".
func (s *Server) Config(user, replica string) events.Config {
	if replica == "" {
		replica = "test"
	}
	return events.Config{URL: s.URL(), User: user, SeedFile: s.SeedFile(user), Replica: replica, Log: Log()}
}

// requestTimeout is how long a test waits for an answer from NATS. Stoker's own limits are for services, which ask again; a test asks once,
// and on a busy machine a server takes seconds to answer.
const requestTimeout = 30 * time.Second

// Connect connects as a user for the test's time, with a test's patience for answers.
func (s *Server) Connect(t testing.TB, user, replica string) *events.Bus {
	t.Helper()
	cfg := s.Config(user, replica)
	cfg.RequestTimeout = requestTimeout
	return ConnectWith(t, cfg)
}

// ConnectWith connects for the test's time. With [Server.Config] it has Stoker's own limits, as a loop needs while its server is stopped:
// the request is never answered.
func ConnectWith(t testing.TB, cfg events.Config) *events.Bus {
	t.Helper()
	b, err := events.Connect(cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(b.Close)
	return b
}

// SetAckWait has the server wait longer or shorter for a word about an event before it delivers it to a service again, and twice,
// five and ten times as long after that. Provision the streams before it.
func (s *Server) SetAckWait(t testing.TB, service string, wait time.Duration) {
	t.Helper()
	js := s.Connect(t, name.ServiceIntake, "").JetStream()
	for _, of := range []string{events.StreamIntake, events.StreamFacts} {
		stream, err := js.Stream(t.Context(), of)
		if err != nil {
			t.Fatal(err)
		}
		consumers := stream.ListConsumers(t.Context())
		for c := range consumers.Info() {
			if !strings.HasPrefix(c.Name, service+"-") {
				continue
			}
			cfg := c.Config
			cfg.AckWait, cfg.BackOff = wait, []time.Duration{wait, 2 * wait, 5 * wait, 10 * wait}
			if _, err := stream.CreateOrUpdateConsumer(t.Context(), cfg); err != nil {
				t.Fatal(err)
			}
		}
		if err := consumers.Err(); err != nil {
			t.Fatal(err)
		}
	}
}

// Log writes to the test's output when tests are verbose.
func Log() *slog.Logger {
	if testing.Verbose() {
		return slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelDebug}))
	}
	return slog.New(slog.DiscardHandler)
}

// LogTo hands the message of each record to f, which may be called by several goroutines.
func LogTo(f func(message string)) *slog.Logger { return slog.New(logTo(f)) }

type logTo func(message string)

func (logTo) Enabled(context.Context, slog.Level) bool { return true }
func (f logTo) Handle(_ context.Context, r slog.Record) error {
	f(r.Message)
	return nil
}
func (f logTo) WithAttrs([]slog.Attr) slog.Handler { return f }
func (f logTo) WithGroup(string) slog.Handler      { return f }

// atOnce is how many tests run side by side, each with a server of its own: most of what they do is wait.
const atOnce = "3"

// Main runs the tests of a package, and has them fail when goroutines of theirs don't end. They may take as long as they need on a
// machine that is busy: goleak.VerifyTestMain waits for half a second.
func Main(m *testing.M) {
	flag.Parse()
	if err := flag.Set("test.parallel", atOnce); err != nil {
		panic(err)
	}
	code := m.Run()
	if code == 0 {
		var left error
		for deadline := time.Now().Add(patience); ; {
			if left = goleak.Find(); left == nil || time.Now().After(deadline) {
				break
			}
		}
		if left != nil {
			fmt.Fprintln(os.Stderr, left)
			code = 1
		}
	}
	os.Exit(code)
}

// Publish has a user publish an event, again under its id while the server's receipt doesn't come, as when the server was stopped before
// and the user is not connected again yet: a portal does the same.
func Publish(t testing.TB, b *events.Bus, subject string, e ce.Event) {
	t.Helper()
	Eventually(t, "event "+e.ID()+" to be stored", func() bool {
		_, err := b.Publish(t.Context(), subject, e)
		var unavailable *intent.Unavailable
		if err != nil && !errors.As(err, &unavailable) {
			t.Fatal(err)
		}
		return err == nil
	})
}

// patience is how long a test waits for what must happen: longer than any machine takes, because only a failing test waits so long.
const patience = 3 * time.Minute

// Receive waits for a value.
func Receive[T any](t testing.TB, what string, from <-chan T) T {
	t.Helper()
	select {
	case v := <-from:
		return v
	case <-time.After(patience):
		t.Fatalf("never happened: %s", what)
		panic("not reached")
	}
}

// Next waits for a message.
func Next(t testing.TB, what string, from *nats.Subscription) *nats.Msg {
	t.Helper()
	m, err := from.NextMsg(patience)
	if err != nil {
		t.Fatalf("%s: %v", what, err)
	}
	return m
}

// Eventually waits until something is so.
func Eventually(t testing.TB, what string, is func() bool) {
	t.Helper()
	Retry(t, what, func() error {
		if !is() {
			return errors.New("it isn't so")
		}
		return nil
	})
}

// Retry calls try until it returns nil. The first pause is 5 ms. Pauses grow to a tenth of the time that has passed, and to 500 ms at most,
// because each call takes time from the work that the test waits for.
func Retry(t testing.TB, what string, try func() error) {
	t.Helper()
	for began := time.Now(); ; {
		err := try()
		if err == nil {
			return
		}
		passed := time.Since(began)
		if passed > patience {
			t.Fatalf("never happened: %s: %v", what, err)
		}
		time.Sleep(min(5*time.Millisecond+passed/10, 500*time.Millisecond)) //nolint:forbidigo // between two looks at a condition
	}
}
