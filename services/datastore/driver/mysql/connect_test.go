package mysql_test

import (
	"fmt"
	"strings"
	"testing"

	gomysql "github.com/go-sql-driver/mysql"

	"github.com/stoker-k8s/stoker/internal/testing/drivertest"
	"github.com/stoker-k8s/stoker/internal/testing/mysqlserver"
	"github.com/stoker-k8s/stoker/internal/testing/testserver"
	"github.com/stoker-k8s/stoker/services/datastore/driver"
	"github.com/stoker-k8s/stoker/services/datastore/driver/mysql"
)

func TestConnections(t *testing.T) {
	t.Parallel()
	server := mysqlserver.Start(t)
	newWorld(t, server).do(t,
		"CREATE USER overtls IDENTIFIED BY 'x' REQUIRE SSL", "GRANT ALL ON *.* TO overtls WITH GRANT OPTION",
		"CREATE USER certified IDENTIFIED BY 'x' REQUIRE X509", "GRANT ALL ON *.* TO certified WITH GRANT OPTION",
		"CREATE USER bare REQUIRE SUBJECT '/CN=bare'", "GRANT ALL ON *.* TO bare WITH GRANT OPTION",
	)
	as := func(user, password string, changes ...func(*driver.Config)) driver.Config {
		c := server.Config()
		c.Username, c.Password = []byte(user), []byte(password)
		for _, change := range changes {
			change(&c)
		}
		return c
	}
	certificate := func(c *driver.Config) { c.ClientCert, c.ClientKey = server.CA.Issue(t, string(c.Username)) }
	noPassword := func(c *driver.Config) { certificate(c); c.Username, c.Password = nil, nil }
	all := map[string]drivertest.Combination{
		"a password without TLS":                        {Config: as(mysqlserver.Admin, mysqlserver.Password, func(c *driver.Config) { c.CA = nil })},
		"a password over TLS":                           {Config: as("overtls", "x")},
		"a password, and a certificate nobody asks for": {Config: as("overtls", "x", certificate)},
		"a password and a certificate":                  {Config: as("certified", "x", certificate)},
		"a certificate in place of a password":          {Config: as("bare", "", noPassword)},
		"an authority's key, of which MySQL has no use": {Config: as("overtls", "x", func(c *driver.Config) { c.CAKey = server.CA.KeyPEM(t) })},
	}
	for form, key := range testserver.Keys(t) {
		all["a certificate in place of a password, its key "+form] = drivertest.Combination{Config: as("bare", "", noPassword, func(c *driver.Config) {
			c.ClientCert, c.ClientKey = server.CA.Sign(t, "bare", key.Key), key.PEM
		})}
	}
	drivertest.Combinations(t, mysql.Open, all)
	other := testserver.NewAuthority(t, testserver.EC(t))
	cert, key := other.Issue(t, mysqlserver.Admin)
	drivertest.Faults(t, mysql.Open, server.Config(), other.PEM, cert, key)
	t.Run("a server that hangs counts as away", func(t *testing.T) {
		drivertest.Hangs(t, open(t, server.Config()), server.Pause, server.Resume)
	})

	t.Run("a DataStore that gets TLS, and loses it, has its tenants follow", func(t *testing.T) {
		a := driver.Account{Owner: "uid", Schema: "follows", User: "follows", Password: "password"}
		withTLS, without := open(t, server.Config()), open(t, as(mysqlserver.Admin, mysqlserver.Password, func(c *driver.Config) { c.CA = nil }))
		for _, d := range []driver.Driver{without, withTLS, without} {
			changed, err := d.Provision(t.Context(), a)
			if err != nil || len(changed) == 0 {
				t.Errorf("changed %q: %v", changed, err)
			}
			if changed, err = d.Provision(t.Context(), a); err != nil || len(changed) > 0 {
				t.Errorf("changed %q again: %v", changed, err)
			}
		}
		_, err := withTLS.Drop(t.Context(), a)
		check(t, err)
	})
}

func TestHostileNamesAreOneIdentifier(t *testing.T) {
	t.Parallel()
	w := newWorld(t, mysqlserver.Start(t))
	before := w.list(t, "SELECT User FROM mysql.user ORDER BY 1")
	databases := w.list(t, "SHOW DATABASES")
	for _, name := range drivertest.HostileNames() {
		want := strings.ReplaceAll(name, "\x00", "")
		if want == "" || len(want) > 64 || strings.HasSuffix(want, " ") || !isASCII(want) {
			continue
		}
		made := w.list(t, "SELECT count(*) FROM information_schema.schemata WHERE schema_name = ?", want)
		if made[0] == "1" {
			continue
		}
		_, err := w.db.ExecContext(t.Context(), "CREATE DATABASE "+mysql.Quote(name))
		if err != nil {
			if !strings.Contains(err.Error(), "Incorrect database name") {
				t.Errorf("%q: %v", name, err)
			}
			continue
		}
		if made := w.list(t, "SELECT count(*) FROM information_schema.schemata WHERE schema_name = ?", want); made[0] != "1" {
			t.Errorf("%q made another database", name)
		}
		w.do(t, "DROP DATABASE "+mysql.Quote(name))
	}
	if after := w.list(t, "SELECT User FROM mysql.user ORDER BY 1"); fmt.Sprint(after) != fmt.Sprint(before) {
		t.Errorf("users are %q", after)
	}
	if after := w.list(t, "SHOW DATABASES"); fmt.Sprint(after) != fmt.Sprint(databases) {
		t.Errorf("databases are %q", after)
	}
}

func isASCII(s string) bool {
	return !strings.ContainsFunc(s, func(r rune) bool { return r > 126 })
}

func TestNamesOfUIDs(t *testing.T) {
	d := open(t, driver.Config{Endpoints: []string{"127.0.0.1:1"}, Username: []byte("boss")})
	for uid, want := range map[string][2]string{
		"0b5e0f0c-7d1e-4f7b-9f34-9a3b6a8f3a3e": {"0b5e0f0c-7d1e-4f7b-9f34-9a3b6a8f3a3e", "0b5e0f0c7d1e4f7b9f349a3b6a8f3a3e"},
		"short-uid":                            {"short-uid", "short-uid"},
		strings.Repeat("long", 20):             {}, // hashed
	} {
		schema, user := d.Names(uid)
		if want[1] != "" && (schema != want[0] || user != want[1]) || len(schema) > 64 || len(user) > 32 {
			t.Errorf("%s: %s, %s", uid, schema, user)
		}
		check(t, d.Validate(driver.Account{Owner: uid, Schema: schema, User: user}))
	}
}

func FuzzNames(f *testing.F) {
	d, err := mysql.Open(driver.Config{Name: "offline", Endpoints: []string{"127.0.0.1:1"}, Username: []byte("boss"), Password: []byte("x")})
	if err != nil {
		f.Fatal(err)
	}
	f.Cleanup(func() { _ = d.Close() })
	drivertest.FuzzNames(f, d, func(schema, user string) error {
		for _, name := range []string{schema, user} {
			if mysql.Quote(name) != "`"+name+"`" || len(schema) > 64 || len(user) > 32 {
				return fmt.Errorf("%q is no name of MySQL", name)
			}
		}
		if mysql.Repair([]string{"GRANT USAGE ON *.* TO `" + user + "`@`%`"}, driver.Account{Schema: schema, User: user})[0] == "" {
			return fmt.Errorf("no rights for %q", user)
		}
		c, err := gomysql.ParseDSN(user + ":password@tcp(127.0.0.1:3306)/" + schema)
		if err == nil && (c.User != user || c.DBName != schema || c.Passwd != "password" || c.Addr != "127.0.0.1:3306" || user == "boss") {
			err = fmt.Errorf("kine reads %+v", c)
		}
		return err
	})
}
