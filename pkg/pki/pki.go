// Package pki makes keys and certificates as PEM: ECDSA on P-256, in the forms that kubeadm writes. The caller's template decides the names,
// the validity and the usages of a certificate. [OpenAuthority] keeps an authority and its certificates in a directory.
package pki

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"math/big"
)

// Types of PEM blocks (RFC 7468; RFC 5915 for EC PRIVATE KEY).
const (
	TypeCertificate = "CERTIFICATE"
	TypeECKey       = "EC PRIVATE KEY"
	TypeRSAKey      = "RSA PRIVATE KEY"
	TypeKey         = "PRIVATE KEY"
	TypePublicKey   = "PUBLIC KEY"
)

// Pair is a certificate and its private key: as PEM, and the files that hold them (mode 0600) if a directory keeps the pair.
type Pair struct {
	Cert, Key         []byte
	CertFile, KeyFile string
}

// TLS returns the pair in the form of crypto/tls.
func (p Pair) TLS() (tls.Certificate, error) { return tls.X509KeyPair(p.Cert, p.Key) }

// Pool returns a pool that trusts the pair's certificate alone.
func (p Pair) Pool() (*x509.CertPool, error) {
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(p.Cert) {
		return nil, errors.New("no certificate in PEM")
	}
	return pool, nil
}

// Signer is an authority that signs certificates.
type Signer struct {
	Cert *x509.Certificate
	Key  crypto.Signer
}

// Signer reads the pair; the key may be of any algorithm and form that crypto/tls reads. It checks that certificate and key belong
// together. Its errors never contain the input.
func (p Pair) Signer() (*Signer, error) {
	pair, err := p.TLS()
	if err != nil {
		return nil, err
	}
	key, ok := pair.PrivateKey.(crypto.Signer)
	if !ok {
		return nil, errors.New("private key cannot sign")
	}
	if pair.Leaf == nil { // only with GODEBUG=x509keypairleaf=0
		if pair.Leaf, err = x509.ParseCertificate(pair.Certificate[0]); err != nil {
			return nil, err
		}
	}
	return &Signer{pair.Leaf, key}, nil
}

// Issue makes a key and the certificate of it that the template describes. by signs it, or the key itself if by is nil. The template needs
// no serial number.
func Issue(template *x509.Certificate, by *Signer) (Pair, error) {
	key, keyPEM, err := NewKey()
	if err != nil {
		return Pair{}, err
	}
	cert, err := Sign(template, key, by)
	return Pair{Cert: cert, Key: keyPEM}, err
}

// Sign makes the certificate of a key that the template describes, as PEM. by signs it, or the key itself if by is nil. The template needs
// no serial number.
func Sign(template *x509.Certificate, key crypto.Signer, by *Signer) ([]byte, error) {
	serial, err := newSerial()
	if err != nil {
		return nil, err
	}
	cert := *template
	cert.SerialNumber, cert.BasicConstraintsValid = serial, true
	if by == nil {
		by = &Signer{&cert, key}
	}
	der, err := x509.CreateCertificate(rand.Reader, &cert, by.Cert, key.Public(), by.Key)
	if err != nil {
		return nil, err
	}
	return encode(TypeCertificate, der), nil
}

// NewKey makes a private key; its PEM has the SEC 1 form.
func NewKey() (*ecdsa.PrivateKey, []byte, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, nil, err
	}
	der, err := x509.MarshalECPrivateKey(key)
	if err != nil {
		return nil, nil, err
	}
	return key, encode(TypeECKey, der), nil
}

// PublicPEM is the public key of a key in PKIX form.
func PublicPEM(key crypto.Signer) ([]byte, error) {
	der, err := x509.MarshalPKIXPublicKey(key.Public())
	if err != nil {
		return nil, err
	}
	return encode(TypePublicKey, der), nil
}

// newSerial returns a positive number of 128 random bits (RFC 5280, section 4.1.2.2, allows 20 octets).
func newSerial() (*big.Int, error) {
	serial, err := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 128))
	if err != nil {
		return nil, err
	}
	return serial.Add(serial, big.NewInt(1)), nil
}

func encode(kind string, der []byte) []byte {
	return pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der})
}
