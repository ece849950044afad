// Package natsserver runs a NATS server inside the process, with Stoker's users and streams' storage on disk: for
// `stoker up` and for tests. Production runs its own servers with the same authorization (deployments/nats).
package natsserver

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"time"

	natsd "github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nkeys"

	"github.com/stoker-k8s/stoker/pkg/events"
)

// Server is a running NATS server.
type Server struct {
	dir  string
	addr string
	srv  *natsd.Server
	log  *slog.Logger
	// authorization of the configuration; empty for Stoker's own.
	authorization string
}

// Start runs a server on addr (host:port) that keeps JetStream and the users' nkeys under dir. Nkeys are made once:
// dir/<user>.nk, mode 0600.
func Start(ctx context.Context, dir, addr string, log *slog.Logger) (*Server, error) {
	if log == nil {
		log = slog.New(slog.DiscardHandler)
	}
	s := &Server{dir: dir, addr: addr, log: log}
	return s, s.Restart(ctx)
}

// StartWith is Start with an authorization block of its own in place of Stoker's (events.Authorization).
func StartWith(ctx context.Context, dir, addr, authorization string, log *slog.Logger) (*Server, error) {
	s := &Server{dir: dir, addr: addr, log: log, authorization: authorization}
	return s, s.Restart(ctx)
}

// Restart starts the server again after Stop, on the same address.
func (s *Server) Restart(ctx context.Context) error {
	authorization := s.authorization
	if authorization == "" {
		keys, err := ensureKeys(s.dir)
		if err != nil {
			return err
		}
		authorization = events.Authorization(keys)
	}
	host, port, err := net.SplitHostPort(s.addr)
	if err != nil {
		return fmt.Errorf("nats address %q: %w", s.addr, err)
	}
	conf := filepath.Join(s.dir, "nats.conf")
	if err := os.WriteFile(conf, []byte(authorization), 0o600); err != nil {
		return err
	}
	opts, err := natsd.ProcessConfigFile(conf)
	if err != nil {
		return fmt.Errorf("nats configuration %s: %w", conf, err)
	}
	opts.ServerName, opts.Host = "stoker", host
	opts.Port, err = strconv.Atoi(port)
	if err != nil {
		return fmt.Errorf("nats port %q: %w", port, err)
	}
	if opts.Port == 0 {
		opts.Port = natsd.RANDOM_PORT
	}
	opts.JetStream, opts.StoreDir = true, filepath.Join(s.dir, "jetstream")
	opts.NoSigs, opts.NoLog = true, true
	srv, err := natsd.NewServer(opts)
	if err != nil {
		return err
	}
	srv.SetLoggerV2(logger{s.log}, false, false, false)
	srv.Start()
	deadline, ok := ctx.Deadline()
	if !ok {
		deadline = time.Now().Add(30 * time.Second)
	}
	if !srv.ReadyForConnections(time.Until(deadline)) {
		srv.Shutdown()
		return errors.New("nats server on " + s.addr + " did not start: is the port taken?")
	}
	s.srv, s.addr = srv, srv.Addr().String()
	return nil
}

// URL for clients.
func (s *Server) URL() string { return "nats://" + s.addr }

// SeedFile of a user's nkey.
func (s *Server) SeedFile(user string) string { return seedFile(s.dir, user) }

// JetStreamDir holds everything JetStream stores.
func (s *Server) JetStreamDir() string { return filepath.Join(s.dir, "jetstream") }

// Stop ends the server and waits for it.
func (s *Server) Stop() {
	if s.srv != nil {
		s.srv.Shutdown()
		s.srv.WaitForShutdown()
	}
}

func seedFile(dir, user string) string { return filepath.Join(dir, user+".nk") }

// ensureKeys makes the users' nkeys where they are missing and returns the public ones.
func ensureKeys(dir string) (map[string]string, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, err
	}
	public := map[string]string{}
	for _, user := range events.Users() {
		file := seedFile(dir, user)
		seed, err := os.ReadFile(file)
		if errors.Is(err, os.ErrNotExist) {
			pair, err := nkeys.CreateUser()
			if err != nil {
				return nil, err
			}
			if seed, err = pair.Seed(); err != nil {
				return nil, err
			}
			if err := os.WriteFile(file, seed, 0o600); err != nil {
				return nil, err
			}
		} else if err != nil {
			return nil, err
		}
		pair, err := nkeys.FromSeed(seed)
		if err != nil {
			return nil, fmt.Errorf("nkey of user %s in %s: %w", user, file, err)
		}
		if public[user], err = pair.PublicKey(); err != nil {
			return nil, err
		}
	}
	return public, nil
}

// logger passes the server's warnings and errors on.
type logger struct{ log *slog.Logger }

func (l logger) Noticef(f string, v ...any) { l.log.Debug("nats: " + fmt.Sprintf(f, v...)) }
func (l logger) Warnf(f string, v ...any)   { l.log.Warn("nats: " + fmt.Sprintf(f, v...)) }
func (l logger) Fatalf(f string, v ...any)  { l.log.Error("nats: " + fmt.Sprintf(f, v...)) }
func (l logger) Errorf(f string, v ...any)  { l.log.Error("nats: " + fmt.Sprintf(f, v...)) }
func (l logger) Debugf(string, ...any)      {}
func (l logger) Tracef(string, ...any)      {}
