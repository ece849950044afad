package pki

import (
	"bytes"
	"crypto/x509"
	"os"
	"path/filepath"
	"testing"
)

func TestIssue(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "pki")
	open := func() *Authority {
		t.Helper()
		a, err := OpenAuthority(dir, "test")
		if err != nil {
			t.Fatal(err)
		}
		return a
	}
	issue := func(a *Authority, leaf Leaf) Pair {
		t.Helper()
		pair, err := a.Issue(leaf)
		if err != nil {
			t.Fatal(err)
		}
		return pair
	}
	a := open()
	leaf := Leaf{File: "server", Name: "x", Organization: []string{"o"}, Hosts: []string{"127.20.0.1", "example.org"}}
	first := issue(a, leaf)

	t.Run("it serves its hosts and no others", func(t *testing.T) {
		pair, err := first.TLS()
		if err != nil {
			t.Fatal(err)
		}
		for host, ok := range map[string]bool{"127.20.0.1": true, "example.org": true, "127.20.0.2": false} {
			_, err := pair.Leaf.Verify(x509.VerifyOptions{Roots: a.Pool(), DNSName: host})
			if (err == nil) != ok {
				t.Errorf("%s: %v", host, err)
			}
		}
	})
	t.Run("a client's is no server's", func(t *testing.T) {
		pair, err := issue(a, Leaf{File: "client", Name: "y"}).TLS()
		if err != nil {
			t.Fatal(err)
		}
		for usage, ok := range map[x509.ExtKeyUsage]bool{x509.ExtKeyUsageClientAuth: true, x509.ExtKeyUsageServerAuth: false} {
			_, err := pair.Leaf.Verify(x509.VerifyOptions{Roots: a.Pool(), KeyUsages: []x509.ExtKeyUsage{usage}})
			if (err == nil) != ok {
				t.Errorf("usage %d: %v", usage, err)
			}
		}
	})
	t.Run("the next start finds the same CA and certificate", func(t *testing.T) {
		again := open()
		if !bytes.Equal(again.Cert, a.Cert) || !bytes.Equal(issue(again, leaf).Cert, first.Cert) {
			t.Error("it is another")
		}
	})
	t.Run("what should say something else is issued anew", func(t *testing.T) {
		other := leaf
		other.Hosts = []string{"127.20.0.9"}
		if bytes.Equal(issue(open(), other).Cert, first.Cert) {
			t.Error("it is the old one")
		}
	})
	t.Run("nobody else can read the keys", func(t *testing.T) {
		entries, err := os.ReadDir(dir)
		if err != nil {
			t.Fatal(err)
		}
		for _, entry := range entries {
			if info, _ := entry.Info(); info.Mode().Perm() != 0o600 {
				t.Errorf("%s has mode %o", entry.Name(), info.Mode().Perm())
			}
		}
		if info, _ := os.Stat(dir); info.Mode().Perm() != 0o700 {
			t.Errorf("the directory has mode %o", info.Mode().Perm())
		}
	})
}
