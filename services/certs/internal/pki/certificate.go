// How keys, certificates and kubeconfigs are made: ECDSA P-256, PEM as kubeadm writes it.

package pki

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"math/big"
	"time"

	"github.com/stoker-k8s/stoker/pkg/kube"
)

// Validity, as kubeadm has it, but for backdate.
const (
	caLife   = 10 * 365 * 24 * time.Hour
	leafLife = 365 * 24 * time.Hour
	// backdate lets certificates be valid on machines whose clock is up to a day behind, or is not while that of whoever makes them is
	// up to a day ahead.
	backdate = 25 * time.Hour
)

// Types of PEM blocks.
const (
	pemCertificate = "CERTIFICATE"
	pemECKey       = "EC PRIVATE KEY"
	pemRSAKey      = "RSA PRIVATE KEY"
	pemKey         = "PRIVATE KEY"
	pemPublicKey   = "PUBLIC KEY"
)

// Signer is a CA that is in use.
type Signer struct {
	cert *x509.Certificate
	key  crypto.Signer
	pem  []byte // of cert
}

// NewSigner reads a CA from PEM.
func NewSigner(certPEM, keyPEM []byte) (*Signer, error) {
	cert, key, err := parsePair(certPEM, keyPEM)
	if err != nil {
		return nil, err
	}
	return &Signer{cert, key, certPEM}, nil
}

// Issue makes the content of a Secret anew. ca is nil unless Kind is Issued.
func (w *Want) Issue(ca *Signer, now time.Time) (map[string][]byte, error) {
	switch w.Kind {
	case Authority:
		cert, key, err := newAuthority(w.CommonName, now)
		if err != nil {
			return nil, fmt.Errorf("issue %s: %w", w.Secret, err)
		}
		return repeat(w.Keys, cert, key), nil
	case KeyPair:
		key, private, err := newKey()
		if err != nil {
			return nil, fmt.Errorf("issue %s: %w", w.Secret, err)
		}
		public, err := publicPEM(key.Public())
		if err != nil {
			return nil, fmt.Errorf("issue %s: %w", w.Secret, err)
		}
		return repeat(w.Keys, public, private), nil
	}
	data := map[string][]byte{}
	for i := range w.Credentials {
		c := &w.Credentials[i]
		cert, key, err := c.Issue(ca, now)
		if err != nil {
			return nil, fmt.Errorf("issue %s: %w", w.Secret, err)
		}
		if c.CertKey != "" {
			data[c.CertKey], data[c.KeyKey] = cert, key
		}
		for _, k := range c.Kubeconfigs {
			data[k.Key], err = kube.Kubeconfig{
				Server: k.Server, CA: ca.pem, Cluster: k.Cluster, User: c.CommonName, Certificate: cert, Key: key,
			}.Marshal()
			if err != nil {
				return nil, fmt.Errorf("issue %s: %w", w.Secret, err)
			}
		}
	}
	return data, nil
}

// repeat puts a pair under each pair of keys.
func repeat(keys [][2]string, first, second []byte) map[string][]byte {
	data := map[string][]byte{}
	for _, pair := range keys {
		data[pair[0]], data[pair[1]] = first, second
	}
	return data
}

// newAuthority makes a CA that signs itself.
func newAuthority(commonName string, now time.Time) (certPEM, keyPEM []byte, err error) {
	from := now.Add(-backdate).UTC()
	return certify(&x509.Certificate{
		Subject: pkix.Name{CommonName: commonName}, DNSNames: []string{commonName}, NotBefore: from, NotAfter: from.Add(caLife),
		KeyUsage: x509.KeyUsageKeyEncipherment | x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign, IsCA: true,
	}, nil)
}

// Issue makes a key and a certificate of it, signed by ca, as PEM. A certificate never outlives its CA, nor is it older.
func (c *Credential) Issue(ca *Signer, now time.Time) (certPEM, keyPEM []byte, err error) {
	from := now.Add(-backdate).UTC()
	if from.Before(ca.cert.NotBefore) {
		from = ca.cert.NotBefore
	}
	to := from.Add(leafLife)
	if to.After(ca.cert.NotAfter) {
		to = ca.cert.NotAfter
	}
	return certify(&x509.Certificate{
		Subject: pkix.Name{CommonName: c.CommonName, Organization: c.Organizations}, DNSNames: c.DNSNames, IPAddresses: c.IPs,
		NotBefore: from, NotAfter: to,
		KeyUsage: x509.KeyUsageKeyEncipherment | x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{c.Usage},
	}, ca)
}

// certify makes a key and the certificate of it that a template describes, signed by ca, or by the key itself when ca is nil.
func certify(template *x509.Certificate, ca *Signer) (certPEM, keyPEM []byte, err error) {
	key, keyPEM, err := newKey()
	if err != nil {
		return nil, nil, err
	}
	if template.SerialNumber, err = newSerial(); err != nil {
		return nil, nil, err
	}
	template.BasicConstraintsValid = true
	parent, signer := template, key
	if ca != nil {
		parent, signer = ca.cert, ca.key
	}
	der, err := x509.CreateCertificate(rand.Reader, template, parent, key.Public(), signer)
	if err != nil {
		return nil, nil, err
	}
	return pem.EncodeToMemory(&pem.Block{Type: pemCertificate, Bytes: der}), keyPEM, nil
}

func newKey() (crypto.Signer, []byte, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, nil, err
	}
	der, err := x509.MarshalECPrivateKey(key)
	if err != nil {
		return nil, nil, err
	}
	return key, pem.EncodeToMemory(&pem.Block{Type: pemECKey, Bytes: der}), nil
}

// newSerial returns 128 random bits; zero would be no serial number.
func newSerial() (*big.Int, error) {
	serial, err := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 128))
	if err != nil {
		return nil, err
	}
	return serial.Add(serial, big.NewInt(1)), nil
}

func publicPEM(key crypto.PublicKey) ([]byte, error) {
	der, err := x509.MarshalPKIXPublicKey(key)
	if err != nil {
		return nil, err
	}
	return pem.EncodeToMemory(&pem.Block{Type: pemPublicKey, Bytes: der}), nil
}

// parsePair reads a certificate and its private key, of any algorithm and form that kubeadm or a user may have written.
// Its errors say what is wrong and never repeat the input.
func parsePair(certPEM, keyPEM []byte) (*x509.Certificate, crypto.Signer, error) {
	pair, err := tls.X509KeyPair(certPEM, keyPEM)
	if err != nil {
		return nil, nil, err
	}
	key, ok := pair.PrivateKey.(crypto.Signer)
	if !ok {
		return nil, nil, errors.New("private key cannot sign")
	}
	if pair.Leaf == nil { // only with GODEBUG=x509keypairleaf=0
		if pair.Leaf, err = x509.ParseCertificate(pair.Certificate[0]); err != nil {
			return nil, nil, err
		}
	}
	return pair.Leaf, key, nil
}

// parseKey reads a private key for ServiceAccount tokens: RSA (Kamaji's) or ECDSA (ours).
func parseKey(data []byte) (crypto.Signer, error) {
	block, _ := pem.Decode(data)
	if block == nil {
		return nil, errUnreadable
	}
	var key any
	var err error
	switch block.Type {
	case pemECKey:
		key, err = x509.ParseECPrivateKey(block.Bytes)
	case pemRSAKey:
		key, err = x509.ParsePKCS1PrivateKey(block.Bytes)
	case pemKey:
		key, err = x509.ParsePKCS8PrivateKey(block.Bytes)
	default:
		return nil, errors.New("PEM block is no private key")
	}
	if err != nil {
		return nil, err
	}
	switch k := key.(type) {
	case *ecdsa.PrivateKey:
		return k, nil
	case *rsa.PrivateKey:
		return k, nil
	}
	return nil, errors.New("private key is neither RSA nor ECDSA")
}

func parsePublic(data []byte) (crypto.PublicKey, error) {
	block, _ := pem.Decode(data)
	if block == nil || block.Type != pemPublicKey {
		return nil, errUnreadable
	}
	return x509.ParsePKIXPublicKey(block.Bytes)
}

// errUnreadable repeats nothing of what was read.
var errUnreadable = errors.New("cannot be read")
