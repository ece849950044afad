// Package mysqlserver runs a real MariaDB (or MySQL, where $STOKER_TEST_MYSQL names one) for tests, with TLS and
// passwords, as a DataStore wants it. MariaDB is Debian's: the one installed, or one unpacked from its package; or either is in a
// container (testserver.Program.Contained).
package mysqlserver

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"database/sql"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/go-sql-driver/mysql"

	"github.com/stoker-k8s/stoker/internal/testing/port"
	"github.com/stoker-k8s/stoker/internal/testing/testserver"
	"github.com/stoker-k8s/stoker/services/datastore/driver"
)

// Admin may do everything, Password is his.
const (
	Admin    = "admin"
	Password = "the administrator's password: @/?#%"
)

// Server is a MariaDB or MySQL on a free port of the loopback, stopped at the end of the test.
type Server struct {
	Host     string
	Port     int
	Endpoint string
	// CA signs server and clients.
	CA *testserver.Authority
	// MariaDB says that it is no MySQL.
	MariaDB bool
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

// StartSmall is [Start] with a file system of so many bytes for the data in [Server.Data]; 0 means as many as there are.
func StartSmall(t testing.TB, bytes int64, options ...string) *Server {
	t.Helper()
	s := &Server{
		Host: "127.0.0.1", Port: port.Free(t), CA: testserver.NewAuthority(t, testserver.EC(t)), options: options,
		program: testserver.Find(t, "STOKER_TEST_MYSQL", "mariadb-server-core", "usr/sbin/mariadbd"), dir: testserver.NewDir(t, "mysql"),
	}
	s.Endpoint = net.JoinHostPort(s.Host, strconv.Itoa(s.Port))
	s.Data = s.dir.Mkdir(t, "data")
	if bytes > 0 {
		s.dir.Limit(t, s.Data, bytes)
	}
	s.dir.Mkdir(t, "tmp")
	cert, key := s.CA.Issue(t, "mysql-server")
	s.MariaDB = strings.Contains(s.version(t), "MariaDB")
	for file, data := range map[string][]byte{
		"ca.crt": s.CA.PEM, "server.crt": cert, "server.key": key, "init": []byte(strings.Join(s.administrator(), ";\n") + ";\n"),
	} {
		s.dir.Write(t, file, data)
	}
	if !s.program.Contained() {
		s.install(t)
	}
	s.Run(t)
	t.Cleanup(func() {
		if s.process != nil {
			s.process.End(syscall.SIGTERM)
		}
	})
	if s.program.Contained() {
		s.admit(t)
	}
	s.Await(t)
	return s
}

// version is what the program says it is.
func (s *Server) version(t testing.TB) string {
	t.Helper()
	if s.program.Contained() { // the URL ends with the database's name
		return s.program.Path
	}
	version, err := s.dir.Command(t.Context(), s.program, "--version").CombinedOutput()
	if err != nil {
		t.Fatalf("%s: %v\n%s", s.program.Path, err, version)
	}
	return string(version)
}

// administrator is the statements that make the administrator, whenever the server starts.
func (s *Server) administrator() []string {
	made := []string{
		"CREATE USER IF NOT EXISTS '" + Admin + "'@'%' IDENTIFIED BY '" + strings.ReplaceAll(Password, "'", "''") + "'",
		"GRANT ALL ON *.* TO '" + Admin + "'@'%' WITH GRANT OPTION",
	}
	// To let others act as somebody takes more than ALL. MariaDB doesn't take this statement from a file.
	if !s.MariaDB || s.program.Contained() {
		made = append(made, "GRANT PROXY ON ''@'' TO '"+Admin+"'@'%' WITH GRANT OPTION")
	}
	return made
}

// rootPassword is of those that the scripts of both images take: they put it into statements as it is.
const rootPassword = "simple"

// admit makes the administrator of a server in a container. Its image makes root, who may all of that when he comes by the socket.
func (s *Server) admit(t testing.TB) {
	t.Helper()
	s.await(t, "root", rootPassword)
	config := mysql.NewConfig()
	config.User, config.Passwd, config.Net, config.Addr = "root", rootPassword, "unix", s.socket()
	connector, err := mysql.NewConnector(config)
	if err != nil {
		t.Fatal(err)
	}
	db := sql.OpenDB(connector)
	defer db.Close()
	for _, statement := range s.administrator() {
		if _, err := db.ExecContext(t.Context(), statement); err != nil {
			t.Fatalf("%s: %v", statement, err)
		}
	}
}

func (s *Server) socket() string { return filepath.Join(s.dir.Path, "socket") }

// install makes the server's own tables.
func (s *Server) install(t testing.TB) {
	t.Helper()
	args := append(s.args(), "--initialize-insecure")
	for _, option := range s.options {
		if strings.HasPrefix(option, "lower-case-table-names=") { // MySQL has it for good
			args = append(args, "--"+option)
		}
	}
	var statements bytes.Buffer
	if s.MariaDB {
		args = append(s.args(), "--bootstrap")
		// Each statement ends with its line.
		statements.WriteString("CREATE DATABASE mysql;\nUSE mysql;\nSET @auth_root_socket=NULL;\n")
		for _, file := range []string{"mysql_system_tables.sql", "mysql_performance_tables.sql", "mysql_system_tables_data.sql"} {
			data, err := os.ReadFile(filepath.Join(s.program.Root, "usr/share/mysql", file))
			if err != nil {
				t.Fatal(err)
			}
			statements.Write(data)
		}
		statements.WriteString("INSERT INTO mysql.proxies_priv VALUES ('%', '" + Admin + "', '', '', 1, '', now());\n")
	}
	cmd := s.dir.Command(t.Context(), s.program, args...)
	cmd.Stdin = &statements
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%s: %v\n%s", s.program.Path, err, out[max(0, len(out)-4000):])
	}
}

func (s *Server) args() []string {
	args := []string{
		// In a place for all, another server that starts takes its temporary tables for its own of before, and removes them.
		"--datadir=" + s.Data, "--tmpdir=" + filepath.Join(s.dir.Path, "tmp"), "--innodb-buffer-pool-size=32M",
		// Only the machine's own crash would tell the difference.
		"--innodb-flush-log-at-trx-commit=2",
	}
	if s.program.Contained() {
		return args
	}
	args = append([]string{"--no-defaults"}, args...)
	if s.MariaDB {
		args = append(args, "--lc-messages-dir="+filepath.Join(s.program.Root, "usr/share/mysql"), "--character-sets-dir="+filepath.Join(s.program.Root, "usr/share/mysql/charsets"),
			"--innodb-log-file-size=16M")
	}
	return args
}

// Run starts the process, with the data it had before.
func (s *Server) Run(t testing.TB) {
	t.Helper()
	args := append(s.args(), "--bind-address="+s.Host+",127.0.0.3", "--port="+strconv.Itoa(s.Port), "--socket="+s.socket(),
		"--pid-file="+filepath.Join(s.dir.Path, "pid"), "--skip-name-resolve", "--skip-log-bin",
		"--ssl-ca="+filepath.Join(s.dir.Path, "ca.crt"), "--ssl-cert="+filepath.Join(s.dir.Path, "server.crt"), "--ssl-key="+filepath.Join(s.dir.Path, "server.key"))
	if s.program.Contained() {
		s.program.Env = []string{"MYSQL_ROOT_PASSWORD=" + rootPassword, "MYSQL_INITDB_SKIP_TZINFO=1"} // MariaDB's takes them, too
	} else {
		args = append(args, "--init-file="+filepath.Join(s.dir.Path, "init"))
	}
	if !s.MariaDB {
		// Packages of MySQL name a directory that only their installation makes.
		args = append(args, "--mysqlx=OFF", "--secure-file-priv=NULL")
	}
	for _, option := range s.options {
		args = append(args, "--"+option)
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

// Pause has the server hang, Resume go on.
func (s *Server) Pause() { s.process.Pause() }

// Resume has a server go on that was paused.
func (s *Server) Resume() { s.process.Resume() }

// Await waits until the server answers.
func (s *Server) Await(t testing.TB) { t.Helper(); s.await(t, Admin, Password) }

func (s *Server) await(t testing.TB, user, password string) {
	t.Helper()
	s.process.Await(t, func(ctx context.Context) error {
		db, err := s.DB(user, password, "")
		if err == nil {
			err = db.PingContext(ctx)
			_ = db.Close()
		}
		return err
	})
}

// Config is what a DataStore object of this server would say: TLS and a password.
func (s *Server) Config() driver.Config {
	return driver.Config{Name: "test", Endpoints: []string{s.Endpoint}, CA: s.CA.PEM, Username: []byte(Admin), Password: []byte(Password)}
}

// DB connects over TLS when it is used.
func (s *Server) DB(user, password, database string) (*sql.DB, error) {
	pool := x509.NewCertPool()
	pool.AppendCertsFromPEM(s.CA.PEM)
	config := mysql.NewConfig()
	config.User, config.Passwd, config.Net, config.Addr, config.DBName = user, password, "tcp", s.Endpoint, database
	config.TLS = &tls.Config{RootCAs: pool, ServerName: s.Host, MinVersion: tls.VersionTLS12}
	config.Logger = &mysql.NopLogger{}
	connector, err := mysql.NewConnector(config)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", s.Endpoint, err)
	}
	return sql.OpenDB(connector), nil
}
