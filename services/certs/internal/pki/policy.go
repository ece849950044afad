// Whether the content of a Secret may stay, and if not, why: a chain of pure functions. What may stay stays byte by byte.

package pki

import (
	"bytes"
	"crypto"
	"crypto/x509"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/stoker-k8s/stoker/pkg/api/name"
	"github.com/stoker-k8s/stoker/pkg/events"
	"github.com/stoker-k8s/stoker/pkg/pki"
)

// Reason says why the content of a Secret was made anew or put right.
type Reason string

// Reasons.
const (
	// Missing: there is no such Secret.
	Missing Reason = "Missing"
	// RotationRequested: the rotate annotation was there, without a value.
	RotationRequested Reason = "RotationRequested"
	// Unreadable: a key of the data is missing, is no PEM or kubeconfig, or private key and certificate don't belong
	// together.
	Unreadable Reason = "Unreadable"
	// SignedByAnother: the certificate isn't of the tenant's current CA.
	SignedByAnother Reason = "SignedByAnother"
	// SubjectChanged: common name or organization differ.
	SubjectChanged Reason = "SubjectChanged"
	// UsageChanged: the certificate isn't for the use it has.
	UsageChanged Reason = "UsageChanged"
	// NameMissing: the API server is reached under a name that its certificate lacks.
	NameMissing Reason = "NameMissing"
	// ServerChanged: the kubeconfig leads elsewhere, or trusts another CA.
	ServerChanged Reason = "ServerChanged"
	// Expiring: the certificate has to be renewed.
	Expiring Reason = "Expiring"
	// Restored: content could be put right with the keys that are there.
	Restored Reason = "Restored"
)

// When certificates are renewed.
const (
	// A leaf is renewed when a third of its life is left (four of twelve months), unless the operator says how long before its end; of its
	// life it has the most then, half. Kamaji's 24 hours leave a renewal that
	// fails a single day to be noticed in, and leave a kubeconfig that somebody downloaded before it no longer.
	leafRenewPart   = 3
	leafRenewAtMost = 2
	// Leaves that are due within a day of each other are renewed in one go, so that pods roll out once: those that
	// needed the endpoint were issued a moment later than the others. For short-lived ones it is a twelfth of their life.
	renewTogether     = 24 * time.Hour
	renewTogetherPart = 12
	// A CA is replaced by itself only when it would otherwise expire: workers have to join again.
	caRenewBefore = 30 * 24 * time.Hour
	// What Kamaji issued is left until shortly before its end, as it would leave it: pods of tenants that are adopted stay.
	kamajiRenewBefore = 7 * 24 * time.Hour
)

// renewAt returns when a certificate is to be renewed: as long before its end as said, 0 for what is usual. A CA's is its own.
func renewAt(cert *x509.Certificate, said time.Duration) time.Time {
	life := cert.NotAfter.Sub(cert.NotBefore)
	before := life / leafRenewPart
	switch {
	case cert.IsCA:
		before = min(before, caRenewBefore)
	case said > 0:
		before = min(said, life/leafRenewAtMost)
	}
	return cert.NotAfter.Add(-before).UTC()
}

// due reports whether a certificate is renewed if something is renewed now.
func due(cert *x509.Certificate, said time.Duration, now time.Time) bool {
	window := time.Duration(0)
	if !cert.IsCA {
		window = min(renewTogether, cert.NotAfter.Sub(cert.NotBefore)/renewTogetherPart)
	}
	return !now.Add(window).Before(renewAt(cert, said))
}

// decision is what is to be done with a Secret.
type decision struct {
	// Reason is empty when the content may stay.
	Reason Reason
	// Detail is for people, and holds no key.
	Detail string
	// Data is the content to have: what is there, or what can be restored from it. nil: it has to be issued.
	Data map[string][]byte
	// NotAfter is the first expiry, RenewAt when the first renewal is due; zero for none.
	NotAfter, RenewAt time.Time
	// IssuedAt is when the content was made, as far as it tells.
	IssuedAt time.Time
	// Signer is the CA in it, of a Secret of the kind Authority.
	Signer *Signer
}

// subject is what a policy decides about.
type subject struct {
	want   *Want
	secret *corev1.Secret
	// ca that signs the want's certificates, nil unless its kind is Issued.
	ca  *Signer
	now time.Time
	// kamajis says that the Secret holds what Kamaji put there.
	kamajis bool
	// cred and found are one certificate of the Secret, as it must be and as it is.
	cred  *Credential
	found *found
}

// found is a certificate as it is in a Secret.
type found struct {
	key  string // in the data
	cert *x509.Certificate
	// server and ca are those of a kubeconfig; redirects is true when it has settings that change where it leads.
	server    string
	ca        []byte
	redirects bool
	err       error
}

// policy returns why the content may not stay, or "".
type policy func(s *subject) (Reason, string)

// secretPolicies are about a Secret as a whole, before anything in it is read.
var secretPolicies = []policy{secretMissing, rotationRequested}

// certificatePolicies are about each certificate of a Secret of the kind Issued. What is broken comes first: that reason is the most
// useful to whoever reads it.
var certificatePolicies = []policy{
	unreadable, signedByAnother, subjectChanged, usageChanged, nameMissing, serverChanged, expiring,
}

// secretMissing ensures that the Secret exists.
func secretMissing(s *subject) (Reason, string) {
	if s.secret == nil {
		return Missing, "there is no Secret " + s.want.Secret
	}
	return "", ""
}

// rotationRequested ensures that a rotation that somebody requests is done, once.
func rotationRequested(s *subject) (Reason, string) {
	if value, ok := s.secret.Annotations[name.AnnotationRotate]; ok && value == "" {
		return RotationRequested, "annotation " + name.AnnotationRotate
	}
	return "", ""
}

// unreadable ensures that certificate and key are there and belong together.
func unreadable(s *subject) (Reason, string) {
	if s.found.err != nil {
		return Unreadable, s.found.key + ": " + s.found.err.Error()
	}
	return "", ""
}

// signedByAnother ensures that the tenant's current CA vouches for the certificate.
func signedByAnother(s *subject) (Reason, string) {
	if !bytes.Equal(s.found.cert.RawIssuer, s.ca.Cert.RawSubject) || s.found.cert.CheckSignatureFrom(s.ca.Cert) != nil {
		return SignedByAnother, s.found.key + " is not signed by the tenant's current CA"
	}
	return "", ""
}

// subjectChanged ensures that the certificate stands for the user or server it must.
func subjectChanged(s *subject) (Reason, string) {
	have := s.found.cert.Subject
	// Organizations are a set: a certificate doesn't keep their order.
	if have.CommonName != s.cred.CommonName || !slices.Equal(sorted(have.Organization), sorted(s.cred.Organizations)) {
		return SubjectChanged, fmt.Sprintf("%s is for %q, organizations %q", s.found.key, events.Clip(have.CommonName), have.Organization)
	}
	return "", ""
}

func sorted(list []string) []string { return slices.Sorted(slices.Values(list)) }

// usageChanged ensures that peers accept the certificate for what it is used for.
func usageChanged(s *subject) (Reason, string) {
	if s.found.cert.IsCA || !slices.Contains(s.found.cert.ExtKeyUsage, s.cred.Usage) {
		return UsageChanged, s.found.key + " has not the extended key usage it needs"
	}
	return "", ""
}

// nameMissing ensures that the certificate has every name it must. Names it has beyond are no reason: a certificate that
// Kamaji issued stays, and taking a name away starts no rollout.
func nameMissing(s *subject) (Reason, string) {
	for _, want := range s.cred.DNSNames {
		if !slices.Contains(s.found.cert.DNSNames, want) {
			return NameMissing, s.found.key + " lacks " + want
		}
	}
	for _, want := range s.cred.IPs {
		spare := s.kamajis && slices.ContainsFunc(s.cred.Spare, want.Equal)
		if !spare && !slices.ContainsFunc(s.found.cert.IPAddresses, want.Equal) {
			return NameMissing, s.found.key + " lacks " + want.String()
		}
	}
	return "", ""
}

// serverChanged ensures that a kubeconfig leads to the tenant's API server and trusts the tenant's CA alone.
func serverChanged(s *subject) (Reason, string) {
	i := slices.IndexFunc(s.cred.Kubeconfigs, func(k Kubeconfig) bool { return k.Key == s.found.key })
	switch {
	case i < 0: // not in a kubeconfig
		return "", ""
	case s.found.server != s.cred.Kubeconfigs[i].Server:
		return ServerChanged, fmt.Sprintf("%s leads to %q", s.found.key, events.Clip(s.found.server))
	case s.found.redirects:
		return ServerChanged, s.found.key + " has settings of its own for its cluster"
	case !bytes.Equal(bytes.TrimSpace(s.found.ca), bytes.TrimSpace(s.ca.pem)):
		return ServerChanged, s.found.key + " trusts another CA"
	}
	return "", ""
}

// expiring ensures that certificates are renewed in time, unless their Secret is paused.
func expiring(s *subject) (Reason, string) {
	if !paused(s.secret) && due(s.found.cert, s.want.RenewBefore, s.now) {
		return Expiring, s.found.key + " expires at " + s.found.cert.NotAfter.UTC().Format(time.RFC3339)
	}
	return "", ""
}

// paused reports whether a Secret is left out of renewal.
func paused(secret *corev1.Secret) bool {
	_, ok := secret.Annotations[name.AnnotationPaused]
	return ok
}

// decide says what is to be done with a Secret, nil for one that isn't there. ca is the signer of a want of the kind Issued;
// published is the PEM of the tenant's CA certificate as state has it, which can help to restore the CA's Secret.
func decide(w *Want, secret *corev1.Secret, ca *Signer, published []byte, now time.Time) decision {
	s := &subject{want: w, secret: secret, ca: ca, now: now}
	for _, p := range secretPolicies {
		if reason, detail := p(s); reason != "" {
			return decision{Reason: reason, Detail: detail}
		}
	}
	s.kamajis = name.ChecksumOf(secret, secret.Data, secret.Data) == name.KamajiChecksum(secret.Data)
	if s.kamajis && w.RenewBefore == 0 {
		kept := *w
		kept.RenewBefore = kamajiRenewBefore
		s.want = &kept
	}
	var d decision
	switch w.Kind {
	case Authority:
		d = decideAuthority(s, published)
	case KeyPair:
		d = decideKeyPair(s)
	default:
		d = decideIssued(s)
	}
	if d.Reason == "" && !sameData(d.Data, secret.Data) {
		d.Reason, d.Detail = Restored, w.Secret+" was changed by somebody else"
	}
	if paused(secret) {
		d.RenewAt = time.Time{}
	}
	return d
}

// decideAuthority looks for the CA in every place where it may have survived: losing it costs the tenant all its nodes.
func decideAuthority(s *subject, published []byte) decision {
	if s.want.Component != name.ComponentCA {
		published = nil
	}
	var certs, keys [][]byte
	for _, pair := range s.want.Keys {
		certs, keys = append(certs, s.secret.Data[pair[0]]), append(keys, s.secret.Data[pair[1]])
	}
	type candidate struct{ cert, key []byte }
	var candidates []candidate
	for i := range certs {
		candidates = append(candidates, candidate{certs[i], keys[i]})
	}
	for _, cert := range append(certs, published) {
		for _, key := range keys {
			candidates = append(candidates, candidate{cert, key})
		}
	}
	for _, c := range candidates {
		if len(c.cert) == 0 || len(c.key) == 0 {
			continue
		}
		ca, err := NewSigner(c.cert, c.key)
		if err != nil {
			continue
		}
		cert := ca.Cert
		if !cert.BasicConstraintsValid || !cert.IsCA || cert.KeyUsage != 0 && cert.KeyUsage&x509.KeyUsageCertSign == 0 {
			continue
		}
		d := decision{
			Data: repeat(s.want.Keys, c.cert, c.key), NotAfter: cert.NotAfter.UTC(), RenewAt: renewAt(cert, 0),
			IssuedAt: cert.NotBefore.Add(backdate).UTC(), Signer: ca,
		}
		if !paused(s.secret) && due(cert, 0, s.now) {
			return decision{Reason: Expiring, Detail: s.want.Secret + " expires at " + d.NotAfter.Format(time.RFC3339)}
		}
		return d
	}
	return decision{Reason: Unreadable, Detail: s.want.Secret + " holds no CA certificate with its key"}
}

// decideKeyPair keeps the private key whenever it can be read; the public one follows from it.
func decideKeyPair(s *subject) decision {
	public, private := s.want.Keys[0][0], s.want.Keys[0][1]
	key, err := parseKey(s.secret.Data[private])
	if err != nil {
		return decision{Reason: Unreadable, Detail: private + " holds no RSA or ECDSA key"}
	}
	made := s.secret.CreationTimestamp.Time
	if at, err := time.Parse(time.RFC3339, s.secret.Annotations[name.AnnotationRotate]); err == nil {
		made = at
	}
	d := decision{Data: repeat(s.want.Keys, s.secret.Data[public], s.secret.Data[private]), IssuedAt: made.UTC()}
	if have, err := parsePublic(s.secret.Data[public]); err != nil || !equalKeys(have, key.Public()) {
		pub, err := pki.PublicPEM(key)
		if err != nil {
			return decision{Reason: Unreadable, Detail: public + ": " + err.Error()}
		}
		d.Data[public] = pub
	}
	return d
}

func equalKeys(a, b crypto.PublicKey) bool {
	k, ok := a.(interface{ Equal(crypto.PublicKey) bool })
	return ok && k.Equal(b)
}

// decideIssued runs the certificate policies on every certificate; the Secret is issued as a whole.
func decideIssued(s *subject) decision {
	d := decision{Data: map[string][]byte{}}
	for i := range s.want.Credentials {
		s.cred = &s.want.Credentials[i]
		for _, f := range s.cred.read(s.secret.Data) {
			s.found = &f
			for _, p := range certificatePolicies {
				if reason, detail := p(s); reason != "" {
					return decision{Reason: reason, Detail: detail}
				}
			}
			d.NotAfter = Earliest(d.NotAfter, f.cert.NotAfter.UTC())
			d.RenewAt = Earliest(d.RenewAt, renewAt(f.cert, s.want.RenewBefore))
			if at := f.cert.NotBefore.Add(backdate).UTC(); at.After(d.IssuedAt) {
				d.IssuedAt = at
			}
		}
	}
	for _, key := range s.want.dataKeys() {
		d.Data[key] = s.secret.Data[key]
	}
	return d
}

// Earliest returns the earlier of two times; zero is none.
func Earliest(a, b time.Time) time.Time {
	if a.IsZero() || !b.IsZero() && b.Before(a) {
		return b
	}
	return a
}

// read finds the credential in a Secret's data: once, or once in each kubeconfig.
func (c *Credential) read(data map[string][]byte) []found {
	var all []found
	if c.CertKey != "" {
		f := found{key: c.CertKey}
		f.cert, _, f.err = parsePair(data[c.CertKey], data[c.KeyKey])
		all = append(all, f)
	}
	for _, k := range c.Kubeconfigs {
		all = append(all, readKubeconfig(k.Key, data[k.Key]))
	}
	return all
}

// readKubeconfig reads the current context of a kubeconfig. Its errors are constant: a parser's may repeat what it read.
func readKubeconfig(key string, data []byte) found {
	f := found{key: key, err: errUnreadable}
	config, err := clientcmd.Load(data)
	if err != nil || config.Contexts[config.CurrentContext] == nil {
		return f
	}
	context := config.Contexts[config.CurrentContext]
	cluster, user := config.Clusters[context.Cluster], config.AuthInfos[context.AuthInfo]
	if cluster == nil || user == nil {
		return f
	}
	f.server, f.ca = cluster.Server, cluster.CertificateAuthorityData
	f.redirects = cluster.InsecureSkipTLSVerify || cluster.TLSServerName != "" || cluster.ProxyURL != "" ||
		cluster.CertificateAuthority != "" || user.Impersonate != "" || user.Exec != nil || user.AuthProvider != nil ||
		user.Token != "" || user.TokenFile != "" || user.Username != ""
	f.cert, _, f.err = parsePair(user.ClientCertificateData, user.ClientKeyData)
	return f
}

// sameData reports whether a Secret holds exactly what it must.
func sameData(want, have map[string][]byte) bool {
	if len(want) != len(have) {
		return false
	}
	for key, value := range want {
		if other, ok := have[key]; !ok || !bytes.Equal(value, other) {
			return false
		}
	}
	return true
}

// describe is a reason with its detail, for facts and logs.
func (d decision) describe() string {
	return strings.TrimSuffix(string(d.Reason)+": "+d.Detail, ": ")
}
