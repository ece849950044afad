// Package pki keeps the local stack's certificates in a directory: made once, used again at the next start.
package pki

import (
	"bytes"
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"io/fs"
	"math/big"
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

// A Pair is a certificate and its key: in PEM, and the files they are kept in (mode 0600).
type Pair struct {
	CertFile, KeyFile string
	Cert, Key         []byte
}

// TLS returns the pair in the form crypto/tls takes.
func (p Pair) TLS() (tls.Certificate, error) { return tls.X509KeyPair(p.Cert, p.Key) }

// Pool returns a pool that trusts this certificate alone.
func (p Pair) Pool() (*x509.CertPool, error) {
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(p.Cert) {
		return nil, errors.New("no certificate in PEM")
	}
	return pool, nil
}

// An Authority is a CA of which certificates can be had. Not safe for concurrent use.
type Authority struct {
	Pair
	dir  string
	cert *x509.Certificate
	key  crypto.Signer
}

// Pool returns a pool that trusts this authority alone.
func (a *Authority) Pool() *x509.CertPool {
	pool := x509.NewCertPool()
	pool.AddCert(a.cert)
	return pool
}

// A Leaf describes a certificate to have. Without Hosts it is for clients only, with Hosts for both sides.
type Leaf struct {
	File         string // name of its files, without .crt or .key
	Name         string // common name: the user, for a client
	Organization []string
	Hosts        []string // DNS names and IP addresses it serves
}

// OpenAuthority returns the CA kept in dir, which it makes, with the CA, if there is none.
func OpenAuthority(dir, name string) (*Authority, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, err
	}
	pair, err := read(dir, "ca")
	if errors.Is(err, fs.ErrNotExist) {
		pair, err = makeAuthority(dir, name)
	}
	if err != nil {
		return nil, fmt.Errorf("certificate authority in %s: %w", dir, err)
	}
	a := &Authority{Pair: pair, dir: dir}
	if a.cert, a.key, err = parse(pair); err != nil {
		return nil, fmt.Errorf("certificate authority in %s: %w", dir, err)
	}
	return a, nil
}

func makeAuthority(dir, name string) (Pair, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return Pair{}, err
	}
	template, err := template(pkix.Name{CommonName: name}, authorityLife)
	if err != nil {
		return Pair{}, err
	}
	template.IsCA = true
	template.BasicConstraintsValid = true
	template.KeyUsage = x509.KeyUsageCertSign | x509.KeyUsageDigitalSignature
	return write(dir, "ca", template, template, key, key)
}

// Issue returns the certificate a leaf describes. One that is kept already is used as long as it still says the same,
// is of this authority and is not close to its end.
func (a *Authority) Issue(leaf Leaf) (Pair, error) {
	if pair, err := read(a.dir, leaf.File); err == nil && a.holds(pair, leaf) {
		return pair, nil
	}
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return Pair{}, err
	}
	template, err := template(pkix.Name{CommonName: leaf.Name, Organization: leaf.Organization}, leafLife)
	if err != nil {
		return Pair{}, err
	}
	template.KeyUsage = x509.KeyUsageDigitalSignature
	template.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}
	if len(leaf.Hosts) > 0 {
		template.ExtKeyUsage = append(template.ExtKeyUsage, x509.ExtKeyUsageServerAuth)
		template.DNSNames, template.IPAddresses = hosts(leaf.Hosts)
	}
	pair, err := write(a.dir, leaf.File, template, a.cert, key, a.key)
	if err != nil {
		return Pair{}, fmt.Errorf("certificate %s: %w", leaf.File, err)
	}
	return pair, nil
}

func (a *Authority) holds(pair Pair, leaf Leaf) bool {
	cert, _, err := parse(pair)
	if err != nil || cert.CheckSignatureFrom(a.cert) != nil || time.Until(cert.NotAfter) < renewBefore {
		return false
	}
	names, addresses := hosts(leaf.Hosts)
	return cert.Subject.CommonName == leaf.Name &&
		slices.Equal(cert.Subject.Organization, leaf.Organization) &&
		slices.Equal(cert.DNSNames, names) &&
		slices.EqualFunc(cert.IPAddresses, addresses, net.IP.Equal)
}

// SigningKey returns the files of a key pair for service account tokens, which it makes if there is none.
func SigningKey(dir string) (private, public string, err error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return "", "", err
	}
	private, public = filepath.Join(dir, "sa.key"), filepath.Join(dir, "sa.pub")
	if _, err := os.Stat(public); err == nil {
		return private, public, nil
	}
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return "", "", err
	}
	der, err := x509.MarshalECPrivateKey(key)
	if err != nil {
		return "", "", err
	}
	if err := save(private, encode("EC PRIVATE KEY", der)); err != nil {
		return "", "", err
	}
	if der, err = x509.MarshalPKIXPublicKey(key.Public()); err != nil {
		return "", "", err
	}
	return private, public, save(public, encode("PUBLIC KEY", der))
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

func template(subject pkix.Name, life time.Duration) (*x509.Certificate, error) {
	serial, err := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 120))
	if err != nil {
		return nil, err
	}
	now := time.Now()
	return &x509.Certificate{
		SerialNumber: serial, Subject: subject,
		NotBefore: now.Add(-5 * time.Minute), NotAfter: now.Add(life),
	}, nil
}

// write makes a certificate and keeps it; the certificate's file comes last, so that a pair is whole or not there.
func write(dir, file string, template, parent *x509.Certificate, key *ecdsa.PrivateKey, signer crypto.Signer) (Pair, error) {
	der, err := x509.CreateCertificate(rand.Reader, template, parent, key.Public(), signer)
	if err != nil {
		return Pair{}, err
	}
	keyDER, err := x509.MarshalECPrivateKey(key)
	if err != nil {
		return Pair{}, err
	}
	pair := Pair{
		CertFile: filepath.Join(dir, file+".crt"), KeyFile: filepath.Join(dir, file+".key"),
		Cert: encode("CERTIFICATE", der), Key: encode("EC PRIVATE KEY", keyDER),
	}
	if err := save(pair.KeyFile, pair.Key); err != nil {
		return Pair{}, err
	}
	return pair, save(pair.CertFile, pair.Cert)
}

func read(dir, file string) (Pair, error) {
	pair := Pair{CertFile: filepath.Join(dir, file+".crt"), KeyFile: filepath.Join(dir, file+".key")}
	var err error
	if pair.Cert, err = os.ReadFile(pair.CertFile); err != nil {
		return Pair{}, err
	}
	if pair.Key, err = os.ReadFile(pair.KeyFile); err != nil {
		return Pair{}, err
	}
	return pair, nil
}

// parse also checks that key and certificate belong together.
func parse(pair Pair) (*x509.Certificate, crypto.Signer, error) {
	both, err := pair.TLS()
	if err != nil {
		return nil, nil, err
	}
	signer, ok := both.PrivateKey.(crypto.Signer)
	if !ok {
		return nil, nil, errors.New("key can't sign")
	}
	return both.Leaf, signer, nil
}

func encode(kind string, der []byte) []byte {
	var b bytes.Buffer
	_ = pem.Encode(&b, &pem.Block{Type: kind, Bytes: der})
	return b.Bytes()
}

// save replaces a file in one step, so that a crash leaves the old one or the new one.
func save(path string, data []byte) error {
	temporary := path + ".new"
	if err := os.WriteFile(temporary, data, 0o600); err != nil {
		return err
	}
	return os.Rename(temporary, path)
}
