// Package authority is the certificate authority of a DataStore as a driver uses it: it verifies the database's servers
// and, where its key is given, signs the tenants' client certificates.
package authority

import (
	"crypto"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"slices"

	"github.com/stoker-k8s/stoker/services/datastore/driver"
)

// Authority of one DataStore.
type Authority struct {
	pem    []byte // as given
	certs  []*x509.Certificate
	pool   *x509.CertPool
	issuer *x509.Certificate // nil when there is no key
	key    crypto.Signer     // of issuer
}

// New reads the authority of a DataStore, nil when it has none. The key may be missing. Errors are *driver.ConfigError.
func New(c driver.Config) (*Authority, error) {
	if len(c.CA) == 0 && len(c.CAKey) == 0 {
		return nil, nil //nolint:nilnil // without TLS there is none
	}
	a := &Authority{pem: c.CA, pool: x509.NewCertPool()}
	certs, err := certificates(c.CA)
	if err != nil {
		return nil, fault("certificateAuthority.certificate", err)
	}
	a.certs = certs
	for _, cert := range certs {
		a.pool.AddCert(cert)
	}
	if len(c.CAKey) == 0 {
		return a, nil
	}
	if a.key, err = privateKey(c.CAKey); err != nil {
		return nil, fault("certificateAuthority.privateKey", err)
	}
	// The file may hold several authorities while one replaces another; tenants' certificates are signed by the one
	// whose key this is.
	public, ok := a.key.Public().(interface{ Equal(crypto.PublicKey) bool })
	for _, cert := range certs {
		if ok && a.issuer == nil && public.Equal(cert.PublicKey) {
			a.issuer = cert
		}
	}
	if a.issuer == nil {
		return nil, fault("certificateAuthority.privateKey", errors.New("is not the key of the certificate"))
	}
	return a, nil
}

// Signs reports whether the authority's key is known, so that tenants get certificates.
func (a *Authority) Signs() bool { return a != nil && a.issuer != nil }

// Trusts reports whether what the other authority signs is good here.
func (a *Authority) Trusts(other *Authority) bool {
	return a != nil && other.Signs() && slices.ContainsFunc(a.certs, other.issuer.Equal)
}

// TLS is what the administrator connects with, and the name of his certificate; nil without an authority, and a
// certificate only if the DataStore has one. Errors are *driver.ConfigError.
func (a *Authority) TLS(c driver.Config) (*tls.Config, string, error) {
	if a == nil {
		if len(c.ClientCert)+len(c.ClientKey) > 0 {
			return nil, "", fault("certificateAuthority", errors.New("is missing, so that the server can't be verified"))
		}
		return nil, "", nil
	}
	config := a.Verify()
	if len(c.ClientCert)+len(c.ClientKey) == 0 {
		return config, "", nil
	}
	pair, err := tls.X509KeyPair(c.ClientCert, c.ClientKey)
	if err != nil {
		return nil, "", fault("clientCertificate", errors.New("certificate and privateKey are no PEM pair that belongs together"))
	}
	config.Certificates = []tls.Certificate{pair}
	return config, pair.Leaf.Subject.CommonName, nil
}

// Verify is what a client without a certificate connects with, nil without an authority.
func (a *Authority) Verify() *tls.Config {
	if a == nil {
		return nil
	}
	return &tls.Config{RootCAs: a.pool, MinVersion: tls.VersionTLS12}
}

func fault(field string, err error) error {
	return &driver.ConfigError{Part: driver.PartTLS, Field: driver.PartTLS + "." + field, Err: err}
}

// certificates reads every certificate of a PEM file.
func certificates(data []byte) ([]*x509.Certificate, error) {
	var certs []*x509.Certificate
	for {
		var block *pem.Block
		if block, data = pem.Decode(data); block == nil {
			break
		}
		if block.Type != "CERTIFICATE" {
			continue
		}
		cert, err := x509.ParseCertificate(block.Bytes)
		if err != nil {
			return nil, err
		}
		certs = append(certs, cert)
	}
	if len(certs) == 0 {
		return nil, errors.New("holds no PEM certificate")
	}
	return certs, nil
}

// privateKey reads a key in PKCS#1, PKCS#8 or SEC 1 form. Errors never hold any of it.
func privateKey(data []byte) (crypto.Signer, error) {
	for {
		var block *pem.Block
		if block, data = pem.Decode(data); block == nil {
			return nil, errors.New("holds no PEM private key (PKCS#1, PKCS#8 or SEC 1, not encrypted)")
		}
		if key, err := x509.ParsePKCS8PrivateKey(block.Bytes); err == nil {
			if signer, ok := key.(crypto.Signer); ok {
				return signer, nil
			}
		}
		if key, err := x509.ParsePKCS1PrivateKey(block.Bytes); err == nil {
			return key, nil
		}
		if key, err := x509.ParseECPrivateKey(block.Bytes); err == nil {
			return key, nil
		}
	}
}
