// How keys, certificates and kubeconfigs are made: ECDSA P-256, PEM as kubeadm writes it.

package pki

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/rsa"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"time"

	"github.com/stoker-k8s/stoker/pkg/kube"
	"github.com/stoker-k8s/stoker/pkg/pki"
)

// Validity, as kubeadm has it, but for backdate.
const (
	caLife   = 10 * 365 * 24 * time.Hour
	leafLife = 365 * 24 * time.Hour
	// backdate lets certificates be valid on machines whose clock is up to a day behind, or is not while that of whoever makes them is
	// up to a day ahead.
	backdate = 25 * time.Hour
)

// Signer is a CA that is in use.
type Signer struct {
	pki.Signer
	pem []byte // of the certificate
}

// NewSigner reads a CA from PEM.
func NewSigner(certPEM, keyPEM []byte) (*Signer, error) {
	signer, err := pki.Pair{Cert: certPEM, Key: keyPEM}.Signer()
	if err != nil {
		return nil, err
	}
	return &Signer{*signer, certPEM}, nil
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
		key, private, err := pki.NewKey()
		if err != nil {
			return nil, fmt.Errorf("issue %s: %w", w.Secret, err)
		}
		public, err := pki.PublicPEM(key)
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
	pair, err := pki.Issue(&x509.Certificate{
		Subject: pkix.Name{CommonName: commonName}, DNSNames: []string{commonName}, NotBefore: from, NotAfter: from.Add(caLife),
		KeyUsage: x509.KeyUsageKeyEncipherment | x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign, IsCA: true,
	}, nil)
	return pair.Cert, pair.Key, err
}

// Issue makes a key and a certificate of it, signed by ca, as PEM. A certificate never outlives its CA, nor is it older.
func (c *Credential) Issue(ca *Signer, now time.Time) (certPEM, keyPEM []byte, err error) {
	from := now.Add(-backdate).UTC()
	if from.Before(ca.Cert.NotBefore) {
		from = ca.Cert.NotBefore
	}
	to := from.Add(leafLife)
	if to.After(ca.Cert.NotAfter) {
		to = ca.Cert.NotAfter
	}
	pair, err := pki.Issue(&x509.Certificate{
		Subject: pkix.Name{CommonName: c.CommonName, Organization: c.Organizations}, DNSNames: c.DNSNames, IPAddresses: c.IPs,
		NotBefore: from, NotAfter: to,
		KeyUsage: x509.KeyUsageKeyEncipherment | x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{c.Usage},
	}, &ca.Signer)
	return pair.Cert, pair.Key, err
}

// parsePair reads a certificate and its private key, of any algorithm and form that kubeadm or a user may have written.
func parsePair(certPEM, keyPEM []byte) (*x509.Certificate, crypto.Signer, error) {
	s, err := pki.Pair{Cert: certPEM, Key: keyPEM}.Signer()
	if err != nil {
		return nil, nil, err
	}
	return s.Cert, s.Key, nil
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
	case pki.TypeECKey:
		key, err = x509.ParseECPrivateKey(block.Bytes)
	case pki.TypeRSAKey:
		key, err = x509.ParsePKCS1PrivateKey(block.Bytes)
	case pki.TypeKey:
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
	if block == nil || block.Type != pki.TypePublicKey {
		return nil, errUnreadable
	}
	return x509.ParsePKIXPublicKey(block.Bytes)
}

// errUnreadable repeats nothing of what was read.
var errUnreadable = errors.New("cannot be read")
