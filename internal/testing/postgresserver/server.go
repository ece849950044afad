// Package postgresserver runs a real PostgreSQL for tests, with TLS and passwords, as a DataStore wants it. The server
// is Debian's: the one installed, or one unpacked from its package; or one in a container (testserver.Program.Contained).
package postgresserver

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"net"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/stoker-k8s/stoker/internal/testing/port"
	"github.com/stoker-k8s/stoker/internal/testing/testserver"
	"github.com/stoker-k8s/stoker/services/datastore/driver"
)

// Admin is the superuser, Password his.
const (
	Admin    = "postgres"
	Password = "the administrator's password: @/?#%"
)

// HBA is how clients prove who they are, unless a test says otherwise: with their password, over TLS or not.
const HBA = "local all all scram-sha-256\nhost all all 127.0.0.1/32 scram-sha-256\n"

// Server is a PostgreSQL on a free port of the loopback, stopped at the end of the test.
type Server struct {
	// Host and Port, and both as Endpoint.
	Host     string
	Port     int
	Endpoint string
	// CA signs server and clients.
	CA *testserver.Authority
	// Data is the directory of the databases.
	Data string

	dir     *testserver.Dir
	program testserver.Program
	options []string
	process *testserver.Process
}

// Start runs a server; options are settings, as max_connections=20.
func Start(t testing.TB, options ...string) *Server {
	t.Helper()
	return StartSmall(t, 0, options...)
}

// StartSmall is [Start] with a file system of so many bytes for the data in [Server.Data]; 0 means as many as there are. The write-ahead log is
// elsewhere: without room for that, the server ends.
func StartSmall(t testing.TB, bytes int64, options ...string) *Server {
	t.Helper()
	s := &Server{
		Host: "127.0.0.1", Port: port.Free(t), CA: testserver.NewAuthority(t, testserver.EC(t)), options: options,
		program: testserver.Find(t, "STOKER_TEST_POSTGRES", "postgresql", "usr/lib/postgresql/*/bin/postgres"),
		dir:     testserver.NewDir(t, "postgres"),
	}
	s.Endpoint = net.JoinHostPort(s.Host, strconv.Itoa(s.Port))
	s.Data = filepath.Join(s.dir.Path, "data")
	var how []string
	if bytes > 0 {
		s.dir.Limit(t, s.dir.Mkdir(t, "data"), bytes)
		how = append(how, "--waldir="+filepath.Join(s.dir.Path, "wal"))
	}
	cert, key := s.CA.Issue(t, "postgres-server")
	for file, data := range map[string][]byte{"ca.crt": s.CA.PEM, "server.crt": cert, "server.key": key, "password": []byte(Password), "hba": []byte(HBA)} {
		s.dir.Write(t, file, data)
	}
	s.install(t, how...)
	s.Run(t)
	t.Cleanup(func() {
		if s.process != nil {
			s.process.End(syscall.SIGQUIT) // at once, and waits for its children
		}
	})
	s.Await(t)
	return s
}

// install makes the data directory. The image does that when it starts with none.
func (s *Server) install(t testing.TB, how ...string) {
	t.Helper()
	how = append(how, "--auth=scram-sha-256", "--encoding=UTF8", "--locale=C", "--no-sync")
	if s.program.Contained() {
		s.program.Env = []string{
			"PGDATA=" + s.Data, "POSTGRES_USER=" + Admin, "POSTGRES_PASSWORD=" + Password, "POSTGRES_INITDB_ARGS=" + strings.Join(how, " "),
		}
		return
	}
	initdb := s.program
	initdb.Path = filepath.Join(filepath.Dir(initdb.Path), "initdb")
	cmd := s.dir.Command(t.Context(), initdb, append(how, "-D", s.Data, "-U", Admin, "--pwfile=password")...)
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%s: %v\n%s", initdb.Path, err, out)
	}
}

// Run starts the process, with the data it had before.
func (s *Server) Run(t testing.TB) {
	t.Helper()
	args := []string{"-D", s.Data}
	if !s.program.Contained() { // the image makes its data by the socket, in a place that is its own
		args = append(args, "-c", "unix_socket_directories=")
	}
	for _, option := range append([]string{
		"listen_addresses=" + s.Host + ",127.0.0.3", "port=" + strconv.Itoa(s.Port), "hba_file=" + filepath.Join(s.dir.Path, "hba"),
		"ssl=on", "ssl_ca_file=" + filepath.Join(s.dir.Path, "ca.crt"), "ssl_cert_file=" + filepath.Join(s.dir.Path, "server.crt"),
		"ssl_key_file=" + filepath.Join(s.dir.Path, "server.key"), "shared_buffers=32MB",
		// Only the machine's own crash would tell the difference.
		"fsync=off", "wal_init_zero=off",
	}, s.options...) {
		args = append(args, "-c", option)
	}
	s.process = s.dir.Run(t, s.program, args...)
}

// Kill ends the server at once, as a crash would.
func (s *Server) Kill() {
	if s.process != nil {
		s.process.Kill()
		s.process = nil
	}
}

// Stop has the server shut down as an operator would: it refuses new connections and ends when the last one has gone.
func (s *Server) Stop(t testing.TB) { t.Helper(); s.process.Signal(t, syscall.SIGTERM) }

// Pause has the server hang, Resume go on.
func (s *Server) Pause() { s.process.Pause() }

// Resume has a server go on that was paused.
func (s *Server) Resume() { s.process.Resume() }

// Await waits until the server answers.
func (s *Server) Await(t testing.TB) {
	t.Helper()
	s.process.Await(t, func(ctx context.Context) error {
		conn, err := s.Dial(ctx, Admin, Password, "postgres")
		if err == nil {
			err = conn.Close(ctx)
		}
		return err
	})
}

// Authenticate changes how clients prove who they are; lines are those of pg_hba.conf.
func (s *Server) Authenticate(t testing.TB, lines ...string) {
	t.Helper()
	s.dir.Write(t, "hba", []byte(strings.Join(lines, "\n")+"\n"))
	s.process.Signal(t, syscall.SIGHUP)
}

// Config is what a DataStore object of this server would say: TLS and a password.
func (s *Server) Config() driver.Config {
	return driver.Config{Name: "test", Endpoints: []string{s.Endpoint}, CA: s.CA.PEM, Username: []byte(Admin), Password: []byte(Password)}
}

// Dial connects over TLS.
func (s *Server) Dial(ctx context.Context, user, password, database string, certs ...tls.Certificate) (*pgx.Conn, error) {
	config, err := pgx.ParseConfig("sslmode=disable user=x password=x dbname=x host=" + s.Host + " port=" + strconv.Itoa(s.Port))
	if err != nil {
		return nil, err
	}
	pool := x509.NewCertPool()
	pool.AppendCertsFromPEM(s.CA.PEM)
	config.User, config.Password, config.Database = user, password, database
	config.TLSConfig = &tls.Config{RootCAs: pool, ServerName: s.Host, Certificates: certs, MinVersion: tls.VersionTLS12}
	return pgx.ConnectConfig(ctx, config)
}

// Connect connects over TLS for the rest of the test, or ends it.
func (s *Server) Connect(t testing.TB, user, password, database string) *pgx.Conn {
	t.Helper()
	conn, err := s.Dial(t.Context(), user, password, database)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close(context.WithoutCancel(t.Context())) })
	return conn
}
