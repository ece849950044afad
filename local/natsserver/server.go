// Package natsserver runs a NATS server inside the process, with Stoker's users and streams' storage on disk: for
// `stoker up` and for tests. Production runs its own servers with the same authorization (deployments/nats).
package natsserver

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"time"

	natsd "github.com/nats-io/nats-server/v2/server"

	"github.com/stoker-k8s/stoker/internal/natsusers"
	"github.com/stoker-k8s/stoker/pkg/events"
)

const (
	// DefaultPort is that of NATS servers.
	DefaultPort = 4222
	// MonitorPort is where a server at DefaultPort says by HTTP how it is.
	MonitorPort = 8222
)

// Server is a running NATS server.
type Server struct {
	dir  string
	addr string
	srv  *natsd.Server
	log  *slog.Logger
}

// Start runs a server on addr (host:port) that keeps JetStream and the users' nkeys under dir. Nkeys are made once: dir/<user>.nk, mode 0600;
// contexts of the NATS command line are in dir/context. Portals that dir/portals.conf ([natsusers.Portals]) doesn't know yet are added to it.
func Start(ctx context.Context, dir, addr string, log *slog.Logger, portals ...events.Portal) (*Server, error) {
	if log == nil {
		log = slog.New(slog.DiscardHandler)
	}
	s := &Server{dir: dir, addr: addr, log: log}
	if err := s.Portals().AddMissing(portals); err != nil {
		return nil, err
	}
	return s, s.Restart(ctx)
}

// Portals of the server.
func (s *Server) Portals() natsusers.Portals { return natsusers.Portals{Dir: s.dir} }

// configure writes the configuration file. Everything is in it, so that the server can read it again while it runs.
func (s *Server) configure() (file string, err error) {
	keys, err := natsusers.EnsureKeys(s.dir)
	if err != nil {
		return "", err
	}
	host, port, err := net.SplitHostPort(s.addr)
	if err != nil {
		return "", fmt.Errorf("nats address %q: %w", s.addr, err)
	}
	n, err := strconv.Atoi(port)
	if err != nil {
		return "", fmt.Errorf("nats port %q: %w", port, err)
	}
	monitor := 0 // none
	if n == DefaultPort {
		monitor = MonitorPort
	}
	if n == 0 {
		if n, err = freePort(host); err != nil {
			return "", err
		}
	}
	file = filepath.Join(s.dir, "nats.conf")
	text := fmt.Sprintf("server_name: stoker\nhost: %q\nport: %d\nhttp_port: %d\njetstream { store_dir: %q }\n", host, n, monitor, s.dir) +
		events.Authorization(keys, nil)
	return file, os.WriteFile(file, []byte(text), 0o600)
}

// freePort is a port that nobody listens on, of those that a kernel gives to nobody who asks for any: it is free still when the server, stopped, is
// to be started again.
func freePort(host string) (int, error) {
	for tries := 0; ; tries++ {
		port := 10000 + rand.IntN(20000) //nolint:gosec // no secret
		l, err := net.Listen("tcp", net.JoinHostPort(host, strconv.Itoa(port)))
		if err == nil {
			return port, l.Close()
		}
		if tries >= 100 {
			return 0, fmt.Errorf("nats address %s: no port is free: %w", host, err)
		}
	}
}

// moveStreams gives Stoker's account the streams of a server from before there were accounts.
func (s *Server) moveStreams() error {
	before, now := filepath.Join(s.JetStreamDir(), natsd.DEFAULT_GLOBAL_ACCOUNT), filepath.Join(s.JetStreamDir(), events.AccountStoker)
	if _, err := os.Stat(now); !errors.Is(err, os.ErrNotExist) {
		return err
	}
	if err := os.Rename(before, now); !errors.Is(err, os.ErrNotExist) {
		return err
	}
	return nil
}

// Restart starts the server again after Stop, on the same address.
func (s *Server) Restart(ctx context.Context) error {
	_, port, _ := net.SplitHostPort(s.addr)
	for tries := 1; ; tries++ {
		err := s.begin(ctx)
		if port != "0" || tries == 3 || !errors.Is(err, errFatal) {
			return err
		}
		// Somebody else may have taken the port that was free.
	}
}

// errFatal is that of a server that can't work, such as without its port.
var errFatal = errors.New("nats server did not start")

// begin starts the server once.
func (s *Server) begin(ctx context.Context) error {
	conf, err := s.configure()
	if err != nil {
		return err
	}
	if err := s.moveStreams(); err != nil {
		return err
	}
	opts, err := natsd.ProcessConfigFile(conf)
	if err != nil {
		return fmt.Errorf("nats configuration %s: %w", conf, err)
	}
	opts.NoSigs, opts.NoLog = true, true
	srv, err := natsd.NewServer(opts)
	if err != nil {
		return err
	}
	fatal := make(chan string, 1)
	srv.SetLoggerV2(logger{s.log, fatal}, false, false, false)
	srv.Start()
	deadline, ok := ctx.Deadline()
	if !ok {
		deadline = time.Now().Add(30 * time.Second)
	}
	for !srv.ReadyForConnections(100 * time.Millisecond) {
		select {
		case why := <-fatal:
			srv.Shutdown()
			return fmt.Errorf("%w: %s", errFatal, why)
		default:
		}
		if time.Now().After(deadline) {
			srv.Shutdown()
			return errors.New("nats server on " + s.addr + " did not start in time")
		}
	}
	s.srv, s.addr = srv, srv.Addr().String()
	return s.writeContexts()
}

// writeContexts writes the contexts of the operator, the administrator and the portals.
func (s *Server) writeContexts() error {
	for user, description := range map[string]string{
		events.UserOperator: "Stoker's operator: reads everything, publishes commands, asks questions",
		events.UserSystem:   "the administrator of the NATS servers",
	} {
		if err := natsusers.WriteContext(s.dir, user, s.URL(), description); err != nil {
			return err
		}
	}
	portals, err := s.Portals().List()
	if err != nil {
		return err
	}
	for _, p := range portals {
		if err := s.Portals().WriteContext(p.Name, s.URL()); err != nil {
			return err
		}
	}
	return nil
}

// URL for clients.
func (s *Server) URL() string { return "nats://" + s.addr }

// MonitorURL is where a server at [DefaultPort] says how it is.
func (s *Server) MonitorURL() string {
	host, _, _ := net.SplitHostPort(s.addr)
	return "http://" + net.JoinHostPort(host, strconv.Itoa(MonitorPort))
}

// SeedFile of a user's nkey.
func (s *Server) SeedFile(user string) string { return natsusers.SeedFile(s.dir, user) }

// JetStreamDir holds everything JetStream stores.
func (s *Server) JetStreamDir() string { return filepath.Join(s.dir, "jetstream") }

// Stop ends the server and waits for it.
func (s *Server) Stop() {
	if s.srv != nil {
		s.srv.Shutdown()
		s.srv.WaitForShutdown()
	}
}

// logger passes the server's warnings and errors on.
type logger struct {
	log   *slog.Logger
	fatal chan<- string // gets the first thing for which the server can't work
}

func (l logger) Noticef(f string, v ...any) { l.log.Debug("nats: " + fmt.Sprintf(f, v...)) }
func (l logger) Warnf(f string, v ...any)   { l.log.Warn("nats: " + fmt.Sprintf(f, v...)) }
func (l logger) Fatalf(f string, v ...any) {
	why := fmt.Sprintf(f, v...)
	l.log.Error("nats: " + why)
	select {
	case l.fatal <- why:
	default:
	}
}
func (l logger) Errorf(f string, v ...any) { l.log.Error("nats: " + fmt.Sprintf(f, v...)) }
func (l logger) Debugf(string, ...any)     {}
func (l logger) Tracef(string, ...any)     {}
