package drivertest

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stoker-k8s/stoker/internal/testing/port"
	"github.com/stoker-k8s/stoker/services/datastore/driver"
)

// Combination is one way in which a DataStore says how its administrator connects.
type Combination struct {
	// Prepare has the server demand it, if it doesn't anyway.
	Prepare func(t *testing.T)
	Config  driver.Config
	// Certificate says that tenants get one of their own.
	Certificate bool
}

// Combinations shows that a driver lives through an account's life by each of them. That the tenant gets in is shown by
// its second provisioning, which logs in as the tenant.
func Combinations(t *testing.T, open driver.Open, all map[string]Combination) {
	for sentence, c := range all {
		t.Run(sentence, func(t *testing.T) {
			if c.Prepare != nil {
				c.Prepare(t)
			}
			d, err := open(c.Config)
			if err != nil {
				t.Fatal(err)
			}
			defer d.Close()
			a := of("uid", "combined", "combined")
			// The server may need a moment to notice that it demands something else.
			Eventually(t, func() error { return d.Check(t.Context()) })
			Eventually(t, func() error { _, err := d.Provision(t.Context(), a); return err })
			changed, err := d.Provision(t.Context(), a)
			if err != nil || len(changed) > 0 {
				t.Errorf("changed %q: %v", changed, err)
			}
			if sizer, ok := d.(driver.Sizer); ok {
				if sizes, err := sizer.Sizes(t.Context()); err != nil || len(sizes) != 1 {
					t.Errorf("sizes are %v: %v", sizes, err)
				}
			}
			access, err := d.Access(a, driver.Access{}, time.Now())
			if err != nil || string(access.CA) != string(c.Config.CA) || len(access.Cert) > 0 != c.Certificate || len(access.Key) > 0 != c.Certificate {
				t.Errorf("access has CA %t, certificate %t, key %t: %v", len(access.CA) > 0, len(access.Cert) > 0, len(access.Key) > 0, err)
			}
			if len(c.Config.ClientCert) > 0 && (string(access.Cert) == string(c.Config.ClientCert) || string(access.Key) == string(c.Config.ClientKey)) {
				t.Error("the tenant has the administrator's certificate")
			}
			if removed, err := d.Drop(t.Context(), a); err != nil || removed["User"] != 1 {
				t.Errorf("removed %v: %v", removed, err)
			}
		})
	}
}

// soon is when whoever asks a database that is away must have been told, however many they are: several times what a driver waits, and
// far less than if one waited after the other.
const soon = 2 * time.Minute

// Faults shows what becomes of a DataStore that says something wrong: what Open refuses, and by which field, and what
// counts as a database that is away. good has TLS and a password; other is an authority, a certificate and its key that
// the server doesn't know.
func Faults(t *testing.T, open driver.Open, good driver.Config, otherCA, otherCert, otherKey []byte) {
	type fault struct {
		field  string // of the *driver.ConfigError, empty for a database that is away
		change func(*driver.Config)
	}
	silent, err := net.Listen("tcp", "127.0.0.1:0") // takes connections and never says anything
	if err != nil {
		t.Fatal(err)
	}
	defer silent.Close()
	refused := net.JoinHostPort("127.0.0.1", strconv.Itoa(port.Free(t)))
	_, at, err := net.SplitHostPort(good.Endpoints[0])
	if err != nil {
		t.Fatal(err)
	}
	for sentence, f := range map[string]fault{
		"nobody says who the administrator is": {"basicAuth", func(c *driver.Config) { c.Username, c.Password = nil, nil }},
		"the authority is no PEM":              {"tlsConfig.certificateAuthority.certificate", func(c *driver.Config) { c.CA = []byte("no PEM") }},
		"a certificate without an authority": {"tlsConfig.certificateAuthority", func(c *driver.Config) {
			c.CA, c.ClientCert, c.ClientKey = nil, otherCert, otherKey
		}},
		"a certificate without its key": {"tlsConfig.clientCertificate", func(c *driver.Config) { c.ClientCert = otherCert }},
		"no endpoint":                   {"endpoints", func(c *driver.Config) { c.Endpoints = nil }},
		"an endpoint without a port":    {"endpoints", func(c *driver.Config) { c.Endpoints = []string{"127.0.0.1"} }},
		"an endpoint of another port":   {"endpoints", func(c *driver.Config) { c.Endpoints = []string{"127.0.0.1:99999"} }},
		"another password":              {"", func(c *driver.Config) { c.Password = []byte("another") }},
		"another user":                  {"", func(c *driver.Config) { c.Username = []byte("nobody") }},
		"another authority":             {"", func(c *driver.Config) { c.CA = otherCA }},
		"a server of another name":      {"", func(c *driver.Config) { c.Endpoints = []string{"127.0.0.3:" + at} }},
		"a server that refuses":         {"", func(c *driver.Config) { c.Endpoints = []string{refused} }},
		"a server that is silent":       {"", func(c *driver.Config) { c.Endpoints = []string{silent.Addr().String()} }},
		"a server that has no address":  {"", func(c *driver.Config) { c.Endpoints = []string{"none.invalid:1"} }},
	} {
		t.Run(sentence, func(t *testing.T) {
			cfg := good
			f.change(&cfg)
			d, err := open(cfg)
			if err == nil {
				defer d.Close()
			}
			var bad *driver.ConfigError
			if f.field != "" {
				if !errors.As(err, &bad) || bad.Field != f.field || !strings.HasPrefix(bad.Field, bad.Part) && bad.Field != "endpoints" {
					t.Errorf("error is %v", err)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			// As many as there are tenants: all are told as soon as one is.
			began := time.Now()
			errs := make(chan error)
			for i := range 20 {
				go func() {
					var err error
					if i%2 == 0 {
						err = d.Check(t.Context())
					} else {
						_, err = d.Provision(t.Context(), of("uid", "faulty", "faulty"))
					}
					errs <- err
				}()
			}
			for range 20 {
				if err := <-errs; !errors.Is(err, driver.ErrAway) || strings.Contains(fmt.Sprint(err), string(good.Password)) {
					t.Errorf("error is %v", err)
				}
			}
			if took := time.Since(began); took > soon {
				t.Errorf("took %s", took)
			}
			ctx, cancel := context.WithCancel(t.Context())
			cancel()
			if err := d.Check(ctx); !errors.Is(err, context.Canceled) || errors.Is(err, driver.ErrAway) {
				t.Errorf("called off: %v", err)
			}
		})
	}
}

// Hangs shows that a server that hangs, with connections open, is noticed soon, and used again when it goes on.
func Hangs(t *testing.T, d driver.Driver, pause, resume func()) {
	a := of("uid", "hangs", "hangs")
	if _, err := d.Provision(t.Context(), a); err != nil {
		t.Fatal(err)
	}
	pause()
	began := time.Now()
	errs := make(chan error)
	for range 20 {
		go func() { _, err := d.Provision(t.Context(), a); errs <- err }()
	}
	for range 20 {
		if err := <-errs; !errors.Is(err, driver.ErrAway) {
			t.Error(err)
		}
	}
	if took := time.Since(began); took > soon {
		t.Errorf("took %s", took)
	}
	resume()
	Eventually(t, func() error { return d.Check(t.Context()) })
	if changed, err := d.Provision(t.Context(), a); err != nil || len(changed) > 0 {
		t.Errorf("changed %q: %v", changed, err)
	}
	if _, err := d.Drop(t.Context(), a); err != nil {
		t.Error(err)
	}
}
