// Package natsserver runs a real NATS server with JetStream for tests, as a DataStore wants it: in operator mode, where
// accounts are made while it runs, or with users and passwords in its configuration. Its program is the one that
// $STOKER_TEST_NATS names, the one of the local stack, or one in a container (testserver.Program.Contained): a process of its own, for the
// race detector would end the tests by a race of the server's (v2.15.3: accountDetail reads what updateAccountClaimsWithRefresh writes).
package natsserver

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/nats-io/jwt/v2"
	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nkeys"

	"github.com/stoker-k8s/stoker/internal/testing/built"
	"github.com/stoker-k8s/stoker/internal/testing/port"
	"github.com/stoker-k8s/stoker/internal/testing/testserver"
	"github.com/stoker-k8s/stoker/services/datastore/driver"
)

// The administrator of a server without an operator.
const (
	Admin = "admin"
	// Password has what a URL would take for something else.
	Password = "p@ss/w:rd $HOME %41?&#"
)

// Users is Options.Users with one administrator.
var Users = fmt.Sprintf("users: [{user: %q, password: %q}]", Admin, Password)

// Options of a server; the zero value is one in operator mode that takes clients with TLS and without.
type Options struct {
	// Users is the block authorization of a server without an operator.
	Users string
	// TLS is lines more in the block tls ("verify: true"); with any, nobody comes in without TLS.
	TLS string
	// Resolver is the block resolver in place of one that obeys the operator.
	Resolver string
	// MaxFile is how many bytes JetStream may keep on disk; 0 means as many as there are.
	MaxFile int64
	// NoJetStream leaves JetStream out.
	NoJetStream bool
	// Signing are signing keys of the operator beside its own.
	Signing []nkeys.KeyPair
}

// Server is a NATS server on a free port of the loopback, stopped at the end of the test.
type Server struct {
	// Endpoint as host:port.
	Endpoint string
	// CA signs server and clients.
	CA *testserver.Authority
	// Signing is a signing key of the operator.
	Signing nkeys.KeyPair
	// Accounts is the directory of the accounts' JWTs.
	Accounts string

	system        string // public key of the system account
	systemSigning nkeys.KeyPair
	config        string
	dir           *testserver.Dir
	monitor       string // host:port
	program       testserver.Program
	process       *testserver.Process
}

// Start runs a server.
func Start(t testing.TB, o Options) *Server {
	t.Helper()
	return start(t, o, []int{0})[0]
}

// StartCluster runs three servers of one cluster.
func StartCluster(t testing.TB, o Options) []*Server {
	t.Helper()
	return start(t, o, []int{port.Free(t), port.Free(t), port.Free(t)})
}

// start runs servers that know each other by their ports in the cluster.
func start(t testing.TB, o Options, ports []int) (servers []*Server) {
	t.Helper()
	first := &Server{
		CA:      testserver.NewAuthority(t, testserver.EC(t)),
		program: testserver.Program{Path: built.Program(t, "nats-server", "nats-server", "STOKER_TEST_NATS")},
	}
	var accounts string
	if o.Users == "" {
		operator, system := first.operate(t, o.Signing)
		accounts = fmt.Sprintf("operator: %s\nsystem_account: %s\nresolver_preload { %s: %s }\n", operator, first.system, first.system, system)
	} else {
		accounts = fmt.Sprintf("authorization {\n%s\n}\n", o.Users)
	}
	var routes []string
	for _, route := range ports {
		routes = append(routes, fmt.Sprintf("nats://127.0.0.1:%d", route))
	}
	for i, route := range ports {
		s := *first
		s.dir = testserver.OwnDir(t, "nats")
		s.Accounts = filepath.Join(s.dir.Path, "accounts")
		s.Endpoint, s.monitor = port.Address(t, "127.0.0.1"), port.Address(t, "127.0.0.1")
		text := &strings.Builder{}
		line := func(format string, args ...any) { fmt.Fprintf(text, format+"\n", args...) }
		cert, key := s.CA.Issue(t, "nats")
		line("server_name: n%d\nmax_payload: 8MB\nlisten: %q\nhttp: %q\nallow_non_tls: %t", i, s.Endpoint, s.monitor, o.TLS == "")
		line("tls { cert_file: %q, key_file: %q, ca_file: %q\n%s\n}",
			s.dir.Write(t, "server.crt", cert), s.dir.Write(t, "server.key", key), s.dir.Write(t, "ca.crt", s.CA.PEM), o.TLS)
		line("%s", accounts)
		switch {
		case o.Users != "":
		case o.Resolver != "":
			line("resolver { %s }", o.Resolver)
		default:
			line("resolver { type: full, dir: %q, allow_delete: true, hard_delete: true }", s.Accounts)
		}
		if !o.NoJetStream {
			limit := ""
			if o.MaxFile > 0 {
				limit = fmt.Sprintf(", max_file: %d", o.MaxFile)
			}
			line("jetstream { store_dir: %q%s }", filepath.Join(s.dir.Path, "jetstream"), limit)
		}
		if len(ports) > 1 {
			line("cluster { name: test, listen: \"127.0.0.1:%d\", routes: [%s] }", route, strings.Join(routes, ", "))
		}
		s.config = s.dir.Write(t, "server.conf", []byte(text.String()))
		s.Run(t)
		t.Cleanup(s.Stop)
		servers = append(servers, &s)
	}
	return servers
}

// operate makes an operator and the system account. As strict as can be: both sign with signing keys only.
func (s *Server) operate(t testing.TB, more []nkeys.KeyPair) (operator, system string) {
	t.Helper()
	identity, err := nkeys.CreateOperator()
	check(t, err)
	s.Signing, err = nkeys.CreateOperator()
	check(t, err)
	account, err := nkeys.CreateAccount()
	check(t, err)
	s.system = Public(t, account)
	s.systemSigning, err = nkeys.CreateAccount()
	check(t, err)
	claims := jwt.NewOperatorClaims(Public(t, identity))
	claims.Name, claims.SystemAccount, claims.StrictSigningKeyUsage = "test", s.system, true
	for _, key := range append([]nkeys.KeyPair{s.Signing}, more...) {
		claims.SigningKeys.Add(Public(t, key))
	}
	operator, err = claims.Encode(identity)
	check(t, err)
	of := jwt.NewAccountClaims(s.system)
	of.Name = "SYS"
	of.SigningKeys.Add(Public(t, s.systemSigning))
	system, err = of.Encode(s.Signing)
	check(t, err)
	return operator, system
}

// Config is what a DataStore object of this server would say.
func (s *Server) Config(t testing.TB) driver.Config {
	t.Helper()
	c := driver.Config{Name: "test", Endpoints: []string{s.Endpoint}, CA: s.CA.PEM, Username: []byte(Admin), Password: []byte(Password)}
	if s.Signing != nil {
		c.Username, c.Password = []byte("test"), []byte(s.Creds(t)+"\n"+Seed(t, s.Signing)+"\n")
	}
	return c
}

// Creds are those of a user of the system account, as a creds file has them.
func (s *Server) Creds(t testing.TB) string {
	t.Helper()
	token, user := s.User(t)
	creds, err := jwt.FormatUserConfig(token, []byte(Seed(t, user)))
	check(t, err)
	return string(creds)
}

// User makes a user of the system account.
func (s *Server) User(t testing.TB) (token string, key nkeys.KeyPair) {
	t.Helper()
	key, err := nkeys.CreateUser()
	check(t, err)
	claims := jwt.NewUserClaims(Public(t, key))
	claims.Name, claims.IssuerAccount = "sys", s.system
	token, err = claims.Encode(s.systemSigning)
	check(t, err)
	return token, key
}

// Run starts the server, with the data it had before.
func (s *Server) Run(t testing.TB) {
	t.Helper()
	s.process = s.dir.Run(t, s.program, "--config", s.config)
	s.process.Await(t, func(ctx context.Context) error { return s.ask(ctx, "/healthz?js-server-only=true", nil) })
}

// Delete says whether the server, started again with it, deletes accounts when it is told to.
func (s *Server) Delete(t testing.TB, may bool) {
	t.Helper()
	text, err := os.ReadFile(s.config)
	check(t, err)
	const yes, no = "allow_delete: true, hard_delete: true", "allow_delete: false"
	changed := strings.ReplaceAll(string(text), yes, no)
	if may {
		changed = strings.ReplaceAll(string(text), no, yes)
	}
	s.Stop()
	check(t, os.WriteFile(s.config, []byte(changed), 0o600))
	s.Run(t)
}

// Stop ends the server.
func (s *Server) Stop() {
	s.process.End(syscall.SIGTERM)
}

// JetStream says what the server holds.
func (s *Server) JetStream(t testing.TB) *server.JSInfo {
	t.Helper()
	info := &server.JSInfo{}
	check(t, s.ask(t.Context(), "/jsz?accounts=true&streams=true&config=true", info))
	return info
}

// ask reads an answer of the server's monitoring, if there is something to read it into.
func (s *Server) ask(ctx context.Context, what string, into any) error {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+s.monitor+what, nil)
	if err != nil {
		return err
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusOK {
		return fmt.Errorf("%s: %s", request.URL, response.Status)
	}
	if into == nil {
		return nil
	}
	return json.NewDecoder(response.Body).Decode(into)
}

// Public is the public key of a pair.
func Public(t testing.TB, key nkeys.KeyPair) string {
	t.Helper()
	public, err := key.PublicKey()
	check(t, err)
	return public
}

// Seed is the seed of a pair.
func Seed(t testing.TB, key nkeys.KeyPair) string {
	t.Helper()
	seed, err := key.Seed()
	check(t, err)
	return string(seed)
}

func check(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
