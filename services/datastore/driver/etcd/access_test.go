package etcd_test

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/stoker-k8s/stoker/internal/testing/etcdserver"
	"github.com/stoker-k8s/stoker/internal/testing/testserver"
	"github.com/stoker-k8s/stoker/services/datastore/driver"
	"github.com/stoker-k8s/stoker/services/datastore/driver/etcd"
)

// offline is a configuration of a server that isn't there: nothing here asks it.
func offline(t *testing.T, key crypto.Signer) (driver.Config, *etcdserver.Authority) {
	t.Helper()
	ca := etcdserver.NewAuthority(t, key)
	cfg := driver.Config{Name: "one", Endpoints: []string{"127.0.0.1:1"}, CA: ca.PEM, CAKey: ca.KeyPEM(t)}
	cfg.ClientCert, cfg.ClientKey = ca.Issue(t, "root")
	return cfg, ca
}

func open(t *testing.T, cfg driver.Config) driver.Driver {
	t.Helper()
	d, err := etcd.Open(cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = d.Close() })
	return d
}

func ec(t *testing.T) *ecdsa.PrivateKey { t.Helper(); return testserver.EC(t) }

func TestAuthorityKeys(t *testing.T) {
	for sentence, test := range testserver.Keys(t) {
		t.Run(sentence, func(t *testing.T) {
			cfg, ca := offline(t, test.Key)
			cfg.CAKey = test.PEM
			access, err := open(t, cfg).Access(driver.Account{Schema: "s", User: "u"}, driver.Access{}, time.Now())
			if err != nil {
				t.Fatal(err)
			}
			block, _ := pem.Decode(access.Cert)
			cert, err := x509.ParseCertificate(block.Bytes)
			if err != nil {
				t.Fatal(err)
			}
			pool := x509.NewCertPool()
			pool.AppendCertsFromPEM(ca.PEM)
			if _, err := cert.Verify(x509.VerifyOptions{Roots: pool, KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}}); err != nil {
				t.Error(err)
			}
			if cert.Subject.String() != "CN=u" || cert.PublicKeyAlgorithm != x509.ECDSA || !cert.NotAfter.Equal(access.NotAfter) {
				t.Errorf("%s, %s, until %s and %s", cert.Subject, cert.PublicKeyAlgorithm, cert.NotAfter, access.NotAfter)
			}
		})
	}
}

const day = 24 * time.Hour

func TestAccessIsRenewedWhenItMust(t *testing.T) {
	cfg, ca := offline(t, ec(t))
	a := driver.Account{Schema: "s", User: "u"}
	now := time.Now()
	d := open(t, cfg)
	first, err := d.Access(a, driver.Access{}, now)
	if err != nil {
		t.Fatal(err)
	}
	if first.NotAfter.After(now.Add(366 * day)) {
		t.Errorf("it is good until %s", first.NotAfter)
	}
	short, long := first, first
	short.Cert, short.Key = ca.IssueFor(t, "u", day)
	long.Cert, long.Key = ca.IssueFor(t, "u", 3649*day) // as Kamaji does
	autumn := now.Add(3500 * day)                       // of the authority
	last, err := d.Access(a, driver.Access{}, autumn)
	if err != nil {
		t.Fatal(err)
	}
	with := func(change func(*driver.Access)) driver.Access { x := first; change(&x); return x }
	rotated, _ := offline(t, ec(t))
	bundle := cfg
	bundle.CA = append(append([]byte{}, cfg.CA...), rotated.CA...)
	usual, late, soon := driver.Account{}, driver.Account{RenewBefore: day}, driver.Account{RenewBefore: 400 * day}
	for sentence, test := range map[string]struct {
		d    driver.Driver
		have driver.Access
		at   time.Time
		kept bool
		of   driver.Account // what is said of renewal
	}{
		"one that is good is kept": {d, first, now, true, usual},
		"one of which a third is left is kept when it is to be renewed a day before its end": {d, first, now.Add(245 * day), true, late},
		"it is renewed then": {d, first, now.Add(364*day + time.Hour), false, late},
		"one is renewed sooner when that is said, but not before half of its life": {d, first, now.Add(184 * day), false, soon},
		"one is kept for half of its life whatever is said":                        {d, first, now.Add(150 * day), true, soon},
		"one whose Secret is paused is kept":                                       {d, first, now.Add(364 * day), true, driver.Account{Kept: true}},
		"but not one that isn't good any more":                                     {open(t, rotated), first, now, false, driver.Account{Kept: true}},

		"one of which two thirds are left is kept":                     {d, first, now.Add(120 * day), true, usual},
		"one of which less than a third is left is renewed":            {d, first, now.Add(245 * day), false, usual},
		"one that lives as long as its authority is kept near the end": {d, last, last.NotAfter.Add(-time.Hour), true, usual},
		"one that is near its end is renewed":                          {d, short, now.Add(20 * time.Hour), false, usual},
		"one made for ten years is kept as long as others":             {d, long, now.Add(120 * day), true, usual},
		"one made for ten years is renewed when others would be":       {d, long, now.Add(245 * day), false, usual},
		"one without its key is renewed":                               {d, with(func(x *driver.Access) { x.Key = nil }), now, false, usual},
		"one with another's key is renewed":                            {d, with(func(x *driver.Access) { x.Key = short.Key }), now, false, usual},
		"one of another user is renewed":                               {d, with(func(x *driver.Access) { x.Cert, x.Key = ca.Issue(t, "v") }), now, false, usual},
		"one with a changed authority file is renewed":                 {d, with(func(x *driver.Access) { x.CA = append(x.CA[:len(x.CA):len(x.CA)], '\n') }), now, false, usual},
		"one of the authority that was replaced is renewed":            {open(t, rotated), first, now, false, usual},
		"one gets the whole bundle while authorities change":           {open(t, bundle), first, now, false, usual},
	} {
		t.Run(sentence, func(t *testing.T) {
			a := a
			a.RenewBefore, a.Kept = test.of.RenewBefore, test.of.Kept
			got, err := test.d.Access(a, test.have, test.at)
			if err != nil {
				t.Fatal(err)
			}
			if kept := reflect.DeepEqual(got.Cert, test.have.Cert) && reflect.DeepEqual(got.Key, test.have.Key); kept != test.kept {
				t.Errorf("kept: %t", kept)
			}
			again, err := test.d.Access(a, got, test.at)
			if err != nil || !reflect.DeepEqual(got, again) {
				t.Errorf("asked again, it is another: %v", err)
			}
		})
	}
	t.Run("an authority that has expired signs nothing more", func(t *testing.T) {
		if _, err := d.Access(a, first, now.Add(11*365*24*time.Hour)); !errors.Is(err, driver.ErrAway) {
			t.Error(err)
		}
	})
}

func TestOpenSaysWhatIsWrong(t *testing.T) {
	good, _ := offline(t, ec(t))
	other, _ := offline(t, ec(t))
	for field, change := range map[string]func(*driver.Config){
		"tlsConfig.certificateAuthority.certificate": func(c *driver.Config) { c.CA = []byte("no PEM") },
		"tlsConfig.certificateAuthority.privateKey":  func(c *driver.Config) { c.CAKey = other.CAKey },
		"tlsConfig.clientCertificate":                func(c *driver.Config) { c.ClientKey = other.ClientKey },
	} {
		cfg := good
		change(&cfg)
		_, err := etcd.Open(cfg)
		var bad *driver.ConfigError
		if !errors.As(err, &bad) || bad.Field != field || bad.Part != driver.PartTLS || strings.Contains(err.Error(), "BEGIN") {
			t.Errorf("%s: %v", field, err)
		}
	}
	cfg := good
	cfg.CAKey = []byte("-----BEGIN PRIVATE KEY-----\nAAAA\n-----END PRIVATE KEY-----\n")
	if _, err := etcd.Open(cfg); err == nil {
		t.Error("a broken key is taken")
	}
}

func FuzzNamesStayInTheirPrefix(f *testing.F) {
	for _, n := range []string{"", "root", "a/b", "ab", "a\x00", "0b5e0f0c-7d1e-4f7b-9f34-9a3b6a8f3a3e", "default_demo", "ä"} {
		f.Add(n)
	}
	ca := etcdserver.NewAuthority(f, testserver.EC(f))
	cfg := driver.Config{Name: "one", Endpoints: []string{"127.0.0.1:1"}, CA: ca.PEM, CAKey: ca.KeyPEM(f)}
	cfg.ClientCert, cfg.ClientKey = ca.Issue(f, "root")
	d, err := etcd.Open(cfg)
	if err != nil {
		f.Fatal(err)
	}
	f.Cleanup(func() { _ = d.Close() })
	f.Fuzz(func(t *testing.T, n string) {
		err := d.Validate(driver.Account{Schema: n, User: "fine"})
		if err == nil && (n == "" || n == "root" || strings.ContainsAny(n, "/\x00 \n") || n[0] == '.') {
			t.Errorf("%q is taken", n)
		}
	})
}
