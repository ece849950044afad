package authority

import (
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"errors"
	"fmt"
	"time"

	"github.com/stoker-k8s/stoker/pkg/pki"
	"github.com/stoker-k8s/stoker/services/datastore/driver"
)

// Life of the tenants' client certificates. As certs does with the others, one is renewed when a third of it is left; a new one
// restarts the tenant's API server.
const (
	life       = 365 * 24 * time.Hour
	renewAfter = life * 2 / 3
	// backdate is for clocks that disagree by up to a day.
	backdate = 25 * time.Hour
	// longest is the life of a certificate, by its dates.
	longest = life + backdate + time.Second
)

// renewalOf is when a certificate is to be renewed, which may be made for longer than life: as long before its end as said, if that is said,
// but not before half of it is over.
func renewalOf(notBefore, notAfter time.Time, said time.Duration) time.Time {
	valid := notAfter.Sub(notBefore)
	if said > 0 {
		usual := min(valid, longest)
		return notBefore.Add(max(usual-said, usual/2)).UTC()
	}
	return notBefore.Add(min(valid/3*2, renewAfter)).UTC()
}

// Access returns the authority's certificates and the client certificate of the account's user: the one it has while it is good, else
// a new one with a new key. Without the authority's key there is no client certificate. The administrator's is never
// given out in its place, as Kamaji does: where the database takes certificates for users, every tenant that has it is
// an administrator.
func (a *Authority) Access(of driver.Account, have driver.Access, now time.Time) (driver.Access, error) {
	if a == nil {
		return driver.Access{}, nil
	}
	if a.issuer == nil {
		return driver.Access{CA: a.pem}, nil
	}
	if !now.Before(a.issuer.NotAfter) {
		return driver.Access{}, fmt.Errorf("%w to new certificates: its certificate authority expired at %s", driver.ErrAway, a.issuer.NotAfter.UTC().Format(time.RFC3339))
	}
	end := now.Add(life)
	if end.After(a.issuer.NotAfter) {
		// The chain ends with the authority, so that a longer life would be a lie.
		end = a.issuer.NotAfter
	}
	if cert := a.valid(of.User, have, now); cert != nil {
		renewAt := renewalOf(cert.NotBefore, cert.NotAfter, of.RenewBefore)
		// Near the authority's own end another certificate would live no longer, and to live less is what those of ten years are
		// renewed for, which Kamaji makes and Stoker made.
		if of.Kept || now.Before(renewAt) || cert.NotAfter.Sub(cert.NotBefore) <= longest && !end.After(cert.NotAfter) {
			return driver.Access{CA: have.CA, Cert: have.Cert, Key: have.Key, NotAfter: cert.NotAfter.UTC(), RenewAt: renewAt}, nil
		}
	}
	access, err := a.issue(of, now, end)
	if err == nil && a.valid(of.User, access, now) == nil {
		// Without this look, an authority that may not sign for clients would be asked again and again.
		err = fault("certificateAuthority.certificate", errors.New("may not sign certificates of clients"))
	}
	return access, err
}

// valid returns the certificate of an Access when a server of this authority would take it for the user.
func (a *Authority) valid(user string, have driver.Access, now time.Time) *x509.Certificate {
	if !bytes.Equal(have.CA, a.pem) {
		return nil
	}
	pair, err := tls.X509KeyPair(have.Cert, have.Key)
	if err != nil || pair.Leaf.Subject.CommonName != user {
		return nil
	}
	if _, err := pair.Leaf.Verify(x509.VerifyOptions{
		Roots: a.pool, CurrentTime: now, KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
	}); err != nil {
		return nil
	}
	// One of another authority of the bundle still works, but is to go before that authority does.
	if pair.Leaf.CheckSignatureFrom(a.issuer) != nil {
		return nil
	}
	return pair.Leaf
}

// issue makes a certificate whose only name is the user's. Kamaji adds the organization system:masters; databases read
// common names alone, and a certificate that names Kubernetes' administrators is a risk wherever its authority is trusted.
func (a *Authority) issue(of driver.Account, now, end time.Time) (driver.Access, error) {
	begin := now.Add(-backdate)
	if begin.Before(a.issuer.NotBefore) {
		begin = a.issuer.NotBefore
	}
	pair, err := pki.Issue(&x509.Certificate{
		Subject:   pkix.Name{CommonName: of.User},
		NotBefore: begin, NotAfter: end,
		KeyUsage:    x509.KeyUsageDigitalSignature,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
	}, &pki.Signer{Cert: a.issuer, Key: a.key})
	if err != nil {
		return driver.Access{}, fmt.Errorf("client certificate of user %s: %w", of.User, err)
	}
	end = end.Truncate(time.Second).UTC() // a certificate has no fractions
	return driver.Access{
		CA:       a.pem,
		Cert:     pair.Cert,
		Key:      pair.Key,
		NotAfter: end, RenewAt: renewalOf(begin.Truncate(time.Second), end, of.RenewBefore),
	}, nil
}
