package local

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/stoker-k8s/stoker/local/debian"
	"github.com/stoker-k8s/stoker/local/process"
	"github.com/stoker-k8s/stoker/pkg/pki"
)

// postgresAdmin is the superuser of a DataStore's PostgreSQL.
const postgresAdmin = "postgres"

// openPostgres makes a DataStore of a PostgreSQL that takes passwords over TLS only.
func (s *Stack) openPostgres(ctx context.Context, d *dataStore, component string, at netip.Addr, server pki.Pair) error {
	program, err := debian.Find(ctx, "postgresql", "usr/lib/postgresql/*/bin/postgres", s.cfg.Progress)
	if err != nil {
		return err
	}
	passwordFile, password, err := s.password(component)
	if err != nil {
		return err
	}
	dir := filepath.Join(s.cfg.Dir, "databases", component)
	data, hba := filepath.Join(dir, "data"), filepath.Join(dir, "pg_hba.conf")
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	if err := writeFile(hba, []byte("hostssl all all 127.0.0.0/8 scram-sha-256\n")); err != nil {
		return err
	}
	spec := process.Spec{Env: append(hostEnv(), append(program.Env, "LC_ALL=C")...), Dir: dir, Log: s.logFile(component), NotRoot: true}
	if _, err := os.Stat(data); errors.Is(err, os.ErrNotExist) {
		s.cfg.Progress(component+": making a database cluster", false)
		half := data + ".new"
		if err := os.RemoveAll(half); err != nil {
			return err
		}
		initdb := spec
		initdb.Path = filepath.Join(filepath.Dir(program.Path), "initdb")
		initdb.Args = []string{
			"initdb", "-D", half, "-U", postgresAdmin, "--pwfile=" + passwordFile, "--auth=scram-sha-256", "--encoding=UTF8", "--locale=C", "--no-sync",
		}
		if err := process.Run(ctx, initdb); err != nil {
			return err
		}
		if err := os.Rename(half, data); err != nil {
			return err
		}
	}
	spec.Path = program.Path
	spec.StopSignal = syscall.SIGINT // without waiting for clients to leave
	spec.Args = []string{"postgres", "-D", data}
	for _, setting := range []string{
		"listen_addresses=" + at.String(), "port=5432", "unix_socket_directories=", "hba_file=" + hba,
		"ssl=on", "ssl_cert_file=" + server.CertFile, "ssl_key_file=" + server.KeyFile, "ssl_min_protocol_version=TLSv1.2",
		"shared_buffers=64MB", "max_connections=500",
	} {
		spec.Args = append(spec.Args, "-c", setting)
	}
	d.component = newComponent(component, spec, 10*time.Second, s.log)
	d.ready = func(ctx context.Context) error {
		return wait(ctx, 50*time.Millisecond, "datastore "+d.name, func(context.Context) error {
			if err := d.component.giveUp(); err != nil {
				return stopWaiting{err}
			}
			return postgresReady(data, d.component.PID())
		})
	}
	d.objects = PasswordObjects("PostgreSQL", d.name, component, net.JoinHostPort(at.String(), "5432"), d.ca.Cert, postgresAdmin, password)
	return nil
}

// postgresReady reads what the server says about itself: its process id in the first line of its file, its state in the
// eighth.
func postgresReady(data string, pid int) error {
	text, err := os.ReadFile(filepath.Join(data, "postmaster.pid"))
	if err != nil {
		return err
	}
	lines := strings.Split(string(text), "\n")
	if lines[0] != strconv.Itoa(pid) || len(lines) < 8 || strings.TrimSpace(lines[7]) != "ready" {
		return errors.New("PostgreSQL isn't ready")
	}
	return nil
}
