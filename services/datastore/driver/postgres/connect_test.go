package postgres_test

import (
	"fmt"
	"net/url"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/stoker-k8s/stoker/internal/testing/drivertest"
	"github.com/stoker-k8s/stoker/internal/testing/postgresserver"
	"github.com/stoker-k8s/stoker/internal/testing/testserver"
	"github.com/stoker-k8s/stoker/services/datastore/driver"
	"github.com/stoker-k8s/stoker/services/datastore/driver/postgres"
)

func TestConnections(t *testing.T) {
	server := postgresserver.Start(t)
	hba := func(lines ...string) func(t *testing.T) {
		return func(t *testing.T) { t.Helper(); server.Authenticate(t, lines...) }
	}
	const password, anybody = "host all all 127.0.0.1/32 scram-sha-256", "hostssl all all 127.0.0.1/32 scram-sha-256"
	const adminByCertificate = "hostssl all postgres 127.0.0.1/32 cert"
	with := func(change func(*driver.Config)) driver.Config { c := server.Config(); change(&c); return c }
	certificate := func(c *driver.Config) { c.ClientCert, c.ClientKey = server.CA.Issue(t, postgresserver.Admin) }
	noPassword := func(c *driver.Config) { certificate(c); c.Username, c.Password = nil, nil }
	signs := func(c *driver.Config) { c.CAKey = server.CA.KeyPEM(t) }
	all := map[string]drivertest.Combination{
		"a password without TLS":                        {Prepare: hba("hostnossl all all 127.0.0.1/32 scram-sha-256"), Config: with(func(c *driver.Config) { c.CA = nil })},
		"a password in clear text, as for LDAP":         {Prepare: hba("hostssl all all 127.0.0.1/32 password"), Config: server.Config()},
		"a password over TLS":                           {Prepare: hba(anybody), Config: server.Config()},
		"a password, and a certificate nobody asks for": {Prepare: hba(anybody), Config: with(certificate)},
		"a password and a certificate":                  {Prepare: hba("hostssl all postgres 127.0.0.1/32 scram-sha-256 clientcert=verify-full", anybody), Config: with(certificate)},
		"a certificate in place of a password":          {Prepare: hba(adminByCertificate, anybody), Config: with(noPassword)},
		"certificates of all, with the authority's key": {Prepare: hba(anybody + " clientcert=verify-full"), Config: with(func(c *driver.Config) { certificate(c); signs(c) }), Certificate: true},
		"certificates of the authority, with any name":  {Prepare: hba(anybody + " clientcert=verify-ca"), Config: with(func(c *driver.Config) { certificate(c); signs(c) }), Certificate: true},
		"certificates in place of all passwords":        {Prepare: hba("hostssl all all 127.0.0.1/32 cert"), Config: with(func(c *driver.Config) { noPassword(c); signs(c) }), Certificate: true},
		"an administrator who may make roles and databases": {Prepare: func(t *testing.T) {
			server.Authenticate(t, password)
			w := world{server, map[string]*pgx.Conn{}}
			drivertest.Eventually(t, func() error {
				conn, err := server.Dial(t.Context(), postgresserver.Admin, postgresserver.Password, "postgres")
				if err == nil {
					err = conn.Close(t.Context())
				}
				return err
			})
			w.do(t, "CREATE ROLE lesser LOGIN CREATEROLE CREATEDB PASSWORD 'x'", "DROP DATABASE IF EXISTS stoker WITH (FORCE)")
		}, Config: with(func(c *driver.Config) { c.Username, c.Password = []byte("lesser"), []byte("x") })},
	}
	for form, key := range testserver.Keys(t) {
		all["a certificate in place of a password, its key "+form] = drivertest.Combination{Prepare: hba(adminByCertificate, anybody), Config: with(func(c *driver.Config) {
			noPassword(c)
			c.ClientCert, c.ClientKey = server.CA.Sign(t, postgresserver.Admin, key.Key), key.PEM
		})}
	}
	drivertest.Combinations(t, postgres.Open, all)

	t.Run("a server that demands certificates of tenants, of which they get none, says what helps", func(t *testing.T) {
		server.Authenticate(t, adminByCertificate, anybody+" clientcert=verify-full")
		d := open(t, with(noPassword))
		a := driver.Account{Owner: "uid", Schema: "without", User: "without", Password: "password"}
		_, err := d.Provision(t.Context(), a)
		check(t, err)
		if _, err := d.Provision(t.Context(), a); err == nil || !strings.Contains(err.Error(), "spec.tlsConfig.certificateAuthority.privateKey") {
			t.Error(err)
		}
		_, err = d.Drop(t.Context(), a)
		check(t, err)
	})
	t.Run("to a tenant's data with a certificate that lies on no disk", func(t *testing.T) {
		server.Authenticate(t, anybody+" clientcert=verify-full")
		d := open(t, with(func(c *driver.Config) { certificate(c); signs(c) }))
		drivertest.Eventually(t, func() error { return d.Check(t.Context()) })
		drivertest.NoFiles(t, d, true)
	})
	server.Authenticate(t, password)
	other := testserver.NewAuthority(t, testserver.EC(t))
	cert, key := other.Issue(t, postgresserver.Admin)
	drivertest.Faults(t, postgres.Open, server.Config(), other.PEM, cert, key)
	t.Run("a server that hangs counts as away", func(t *testing.T) {
		drivertest.Hangs(t, open(t, server.Config()), server.Pause, server.Resume)
	})
}

func TestHostileNamesAreOneIdentifier(t *testing.T) {
	server := postgresserver.Start(t)
	conn := server.Connect(t, postgresserver.Admin, postgresserver.Password, "postgres")
	for _, name := range drivertest.HostileNames() {
		want := strings.ReplaceAll(name, "\x00", "")
		if want == "" || len(want) > 63 {
			continue
		}
		_, err := conn.Exec(t.Context(), "CREATE ROLE "+postgres.Quote(name))
		if err == nil {
			var found int
			check(t, conn.QueryRow(t.Context(), "SELECT count(*) FROM pg_roles WHERE rolname = $1", want).Scan(&found))
			if found != 1 {
				t.Errorf("%q made another role", name)
			}
			_, err = conn.Exec(t.Context(), "DROP ROLE "+postgres.Quote(name))
		}
		if err != nil && !strings.Contains(err.Error(), "invalid byte sequence") && !strings.Contains(err.Error(), "reserved") && !strings.Contains(err.Error(), "already exists") {
			t.Errorf("%q: %v", name, err)
		}
	}
	var roles, databases int
	check(t, conn.QueryRow(t.Context(), "SELECT (SELECT count(*) FROM pg_roles WHERE rolname !~ '^pg_'), (SELECT count(*) FROM pg_database)").Scan(&roles, &databases))
	if roles != 1 || databases != 3 {
		t.Errorf("%d roles, %d databases", roles, databases)
	}
}

func FuzzNames(f *testing.F) {
	d, err := postgres.Open(driver.Config{Name: "offline", Endpoints: []string{"127.0.0.1:1"}, Username: []byte("boss"), Password: []byte("x")})
	if err != nil {
		f.Fatal(err)
	}
	f.Cleanup(func() { _ = d.Close() })
	drivertest.FuzzNames(f, d, func(schema, user string) error {
		for _, name := range []string{schema, user} {
			if postgres.Quote(name) != `"`+name+`"` || len(name) > 63 || strings.HasPrefix(name, "pg_") {
				return fmt.Errorf("%q is no name of PostgreSQL", name)
			}
		}
		u, err := url.Parse("postgres://" + user + ":password@127.0.0.1:5432/" + schema)
		if err == nil && (u.User.Username() != user || strings.ToLower(u.Path) != "/"+schema || u.Host != "127.0.0.1:5432" || user == "boss") {
			err = fmt.Errorf("kine reads %s", u)
		}
		return err
	})
}
