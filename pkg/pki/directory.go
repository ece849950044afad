package pki

import (
	"crypto/x509"
	"crypto/x509/pkix"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"slices"
	"time"
)

const (
	authorityLife = 10 * 365 * 24 * time.Hour
	leafLife      = 365 * 24 * time.Hour
	renewBefore   = 90 * 24 * time.Hour
)

// Authority is a CA that a directory keeps, with the certificates that it issued. Not safe for concurrent use.
type Authority struct {
	Pair
	dir    string
	signer *Signer
}

// Pool returns a pool that trusts this authority alone.
func (a *Authority) Pool() *x509.CertPool {
	pool := x509.NewCertPool()
	pool.AddCert(a.signer.Cert)
	return pool
}

// Leaf describes a certificate. Without Hosts it is for clients only, with Hosts for servers and clients.
type Leaf struct {
	File         string // name of its files, without .crt or .key
	Name         string // common name; a client's user name
	Organization []string
	Hosts        []string // DNS names and IP addresses it serves
}

// OpenAuthority returns the CA that dir keeps. If there is none, it makes the directory and a CA that is valid for ten years.
func OpenAuthority(dir, name string) (*Authority, error) {
	a := &Authority{dir: dir}
	err := os.MkdirAll(dir, 0o700)
	if err != nil {
		return nil, err
	}
	a.Pair, err = read(dir, "ca")
	if errors.Is(err, fs.ErrNotExist) {
		a.Pair, err = issue(dir, "ca", &x509.Certificate{
			Subject: pkix.Name{CommonName: name}, NotAfter: time.Now().Add(authorityLife),
			IsCA: true, KeyUsage: x509.KeyUsageCertSign | x509.KeyUsageDigitalSignature,
		}, nil)
	}
	if err == nil {
		a.signer, err = a.Signer()
	}
	if err != nil {
		return nil, fmt.Errorf("certificate authority in %s: %w", dir, err)
	}
	return a, nil
}

// Issue returns the certificate that a leaf describes, valid for a year. It returns the one that the directory keeps, as long as that matches
// the leaf, is signed by this authority and is valid for 90 more days.
func (a *Authority) Issue(leaf Leaf) (Pair, error) {
	if pair, err := read(a.dir, leaf.File); err == nil && a.matches(pair, leaf) {
		return pair, nil
	}
	template := &x509.Certificate{
		Subject: pkix.Name{CommonName: leaf.Name, Organization: leaf.Organization}, NotAfter: time.Now().Add(leafLife),
		KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
	}
	if len(leaf.Hosts) > 0 {
		template.ExtKeyUsage = append(template.ExtKeyUsage, x509.ExtKeyUsageServerAuth)
		template.DNSNames, template.IPAddresses = hosts(leaf.Hosts)
	}
	pair, err := issue(a.dir, leaf.File, template, a.signer)
	if err != nil {
		return Pair{}, fmt.Errorf("certificate %s: %w", leaf.File, err)
	}
	return pair, nil
}

func (a *Authority) matches(pair Pair, leaf Leaf) bool {
	s, err := pair.Signer()
	if err != nil || s.Cert.CheckSignatureFrom(a.signer.Cert) != nil || time.Until(s.Cert.NotAfter) < renewBefore {
		return false
	}
	names, addresses := hosts(leaf.Hosts)
	return s.Cert.Subject.CommonName == leaf.Name &&
		slices.Equal(s.Cert.Subject.Organization, leaf.Organization) &&
		slices.Equal(s.Cert.DNSNames, names) &&
		slices.EqualFunc(s.Cert.IPAddresses, addresses, net.IP.Equal)
}

// SigningKey returns the files of a key pair for service account tokens. If there is none, it makes one.
func SigningKey(dir string) (private, public string, err error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return "", "", err
	}
	private, public = filepath.Join(dir, "sa.key"), filepath.Join(dir, "sa.pub")
	if _, err := os.Stat(public); err == nil {
		return private, public, nil
	}
	key, keyPEM, err := NewKey()
	if err != nil {
		return "", "", err
	}
	publicPEM, err := PublicPEM(key)
	if err != nil {
		return "", "", err
	}
	if err := save(private, keyPEM); err != nil {
		return "", "", err
	}
	return private, public, save(public, publicPEM)
}

func hosts(names []string) (dns []string, ips []net.IP) {
	for _, name := range names {
		if ip := net.ParseIP(name); ip != nil {
			ips = append(ips, ip)
		} else {
			dns = append(dns, name)
		}
	}
	return dns, ips
}

// issue makes a pair and keeps it. It writes the certificate's file last, so that a pair is complete or absent.
func issue(dir, file string, template *x509.Certificate, by *Signer) (Pair, error) {
	template.NotBefore = time.Now().Add(-5 * time.Minute) // for clocks that are behind
	pair, err := Issue(template, by)
	if err != nil {
		return Pair{}, err
	}
	pair.CertFile, pair.KeyFile = files(dir, file)
	if err := save(pair.KeyFile, pair.Key); err != nil {
		return Pair{}, err
	}
	return pair, save(pair.CertFile, pair.Cert)
}

func read(dir, file string) (pair Pair, err error) {
	pair.CertFile, pair.KeyFile = files(dir, file)
	if pair.Cert, err = os.ReadFile(pair.CertFile); err != nil {
		return Pair{}, err
	}
	if pair.Key, err = os.ReadFile(pair.KeyFile); err != nil {
		return Pair{}, err
	}
	return pair, nil
}

func files(dir, file string) (cert, key string) {
	return filepath.Join(dir, file+".crt"), filepath.Join(dir, file+".key")
}

// save replaces a file in one step, so that a crash leaves the old content or the new one.
func save(path string, data []byte) error {
	temporary := path + ".new"
	if err := os.WriteFile(temporary, data, 0o600); err != nil {
		return err
	}
	return os.Rename(temporary, path)
}
