package testserver

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"net"
	"testing"
	"time"

	"github.com/stoker-k8s/stoker/pkg/pki"
)

// Authority is a certificate authority in memory.
type Authority struct {
	// PEM of the certificate, and its key.
	PEM  []byte
	Key  crypto.Signer
	cert *x509.Certificate
}

// NewAuthority makes an authority that lives for ten years, of any key.
func NewAuthority(t testing.TB, key crypto.Signer) *Authority {
	t.Helper()
	certificate, err := pki.Sign(&x509.Certificate{
		Subject: pkix.Name{CommonName: "ca"}, IsCA: true,
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(10 * 365 * 24 * time.Hour),
		KeyUsage: x509.KeyUsageCertSign | x509.KeyUsageDigitalSignature,
	}, key, nil)
	if err != nil {
		t.Fatal(err)
	}
	block, _ := pem.Decode(certificate)
	cert, err := x509.ParseCertificate(block.Bytes)
	if err != nil {
		t.Fatal(err)
	}
	return &Authority{PEM: certificate, Key: key, cert: cert}
}

// KeyPEM is the authority's key in PKCS#8 form.
func (a *Authority) KeyPEM(t testing.TB) []byte {
	t.Helper()
	der, err := x509.MarshalPKCS8PrivateKey(a.Key)
	if err != nil {
		t.Fatal(err)
	}
	return pem.EncodeToMemory(&pem.Block{Type: pki.TypeKey, Bytes: der})
}

// Issue signs a certificate for both sides of a connection that is good for a day, with an EC key in SEC 1 form.
func (a *Authority) Issue(t testing.TB, name string) (cert, key []byte) {
	t.Helper()
	return a.IssueFor(t, name, day)
}

const day = 24 * time.Hour

// IssueFor is Issue for another time than a day.
func (a *Authority) IssueFor(t testing.TB, name string, life time.Duration) (cert, key []byte) {
	t.Helper()
	private, keyPEM, err := pki.NewKey()
	if err != nil {
		t.Fatal(err)
	}
	return a.sign(t, name, private, life), keyPEM
}

// Sign signs a certificate of a key for both sides of a connection that is good for a day.
func (a *Authority) Sign(t testing.TB, name string, key crypto.Signer) []byte {
	t.Helper()
	return a.sign(t, name, key, day)
}

func (a *Authority) sign(t testing.TB, name string, key crypto.Signer, life time.Duration) []byte {
	t.Helper()
	certificate, err := pki.Sign(&x509.Certificate{
		Subject:   pkix.Name{CommonName: name},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(life),
		KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth, x509.ExtKeyUsageServerAuth},
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1), net.IPv4(127, 0, 0, 2)}, DNSNames: []string{"localhost"},
	}, key, &pki.Signer{Cert: a.cert, Key: a.Key})
	if err != nil {
		t.Fatal(err)
	}
	return certificate
}

// EC makes a key on P-256.
func EC(t testing.TB) *ecdsa.PrivateKey {
	t.Helper()
	key, _, err := pki.NewKey()
	if err != nil {
		t.Fatal(err)
	}
	return key
}

// Keys are private keys in every form a DataStore may hold, by a sentence.
func Keys(t testing.TB) map[string]Key {
	t.Helper()
	rsaKey, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		t.Fatal(err)
	}
	ecKey, sec1, err := pki.NewKey()
	if err != nil {
		t.Fatal(err)
	}
	pkcs8 := func(key crypto.Signer) []byte {
		der, err := x509.MarshalPKCS8PrivateKey(key)
		if err != nil {
			t.Fatal(err)
		}
		return pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der})
	}
	parameters := []byte("-----BEGIN EC PARAMETERS-----\nBggqhkjOPQMBBw==\n-----END EC PARAMETERS-----\n")
	return map[string]Key{
		"RSA in PKCS#8 form":                        {rsaKey, pkcs8(rsaKey)},
		"RSA in PKCS#1 form":                        {rsaKey, pem.EncodeToMemory(&pem.Block{Type: "RSA PRIVATE KEY", Bytes: x509.MarshalPKCS1PrivateKey(rsaKey)})},
		"EC in PKCS#8 form":                         {ecKey, pkcs8(ecKey)},
		"EC in SEC 1 form":                          {ecKey, sec1},
		"EC in SEC 1 form behind its EC PARAMETERS": {ecKey, append(parameters, sec1...)},
	}
}

// Key is a private key and its PEM.
type Key struct {
	Key crypto.Signer
	PEM []byte
}
