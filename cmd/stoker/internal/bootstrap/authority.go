package bootstrap

import (
	"bytes"
	"cmp"
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/stoker-k8s/stoker/pkg/kube"
	"github.com/stoker-k8s/stoker/pkg/pki"
)

// An authority is replaced without an outage in three steps, each of which begins when the one before is everywhere:
//
//  1. the Secret holds the next authority beside the one that signs, and ca.crt has both;
//  2. the next one signs: the servers get certificates of it. Of the former one the certificate is left, in the Secret and in ca.crt;
//  3. the former one is gone.
//
// What the Secret holds says which step it is, and a step is one write of the Secret. All else is made of that, again at each run, so
// that a run that ends in between is made good by the next.
//
// NATS servers and their clients read the files again by themselves, so that each step takes an hour. etcd servers and tenants' API servers
// have to begin anew, which only a person knows to be done: for etcd [Config.Step] allows each step.

// Keys of the Secret <name>-authority beside the pair that signs.
const (
	keyNextCert, keyNextKey = "next.crt", "next.key"
	keyFormerCert           = "former.crt"
)

const (
	// annotationAuthority of the Secret is the [Config.Authority] that the authority which signs was made for.
	annotationAuthority = "stoker.dev/authority"
	// annotationStep of the ConfigMap says to people which step it is, if any.
	annotationStep = "stoker.dev/step"
)

// noticed is how long ca.crt has both authorities at least when nobody asked for another one: time for people to see it and to
// bring the file to clients that are not on the cluster.
const noticed = 30 * 24 * time.Hour

// authorities are what a Secret <name>-authority holds.
type authorities struct {
	secret *corev1.Secret
	signs  *x509.Certificate
}

// certificates keeps an authority, and certificates by it, each in the Secret of its name.
func (b bootstrap) certificates(ctx context.Context, leaves ...pki.Leaf) error {
	for {
		held, err := b.authorities(ctx)
		if err != nil {
			return err
		}
		changed, err := b.issue(ctx, held, leaves)
		if err != nil {
			return err
		}
		next, what, err := b.step(held, changed, time.Now())
		if err != nil || next == nil {
			return err
		}
		if err := b.replace(ctx, next); err != nil {
			return err
		}
		b.say(what)
	}
}

// authorities reads the Secret, or makes it.
func (b bootstrap) authorities(ctx context.Context) (*authorities, error) {
	name, there := b.cfg.Name+"-authority", &corev1.Secret{}
	err := b.kube.Get(ctx, kube.Secrets, b.cfg.Namespace, name, there)
	if apierrors.IsNotFound(err) {
		made, err := b.newAuthority()
		if err != nil {
			return nil, err
		}
		there = b.secret(name, corev1.SecretTypeTLS, map[string][]byte{corev1.TLSCertKey: made.Cert, corev1.TLSPrivateKeyKey: made.Key})
		there.Annotations = map[string]string{annotationAuthority: b.wanted()}
		b.say("made Secret " + name)
		if err := b.kube.Create(ctx, kube.Secrets, there); err != nil {
			return nil, err
		}
	} else if err != nil {
		return nil, err
	}
	signs, err := b.pair(there, corev1.TLSCertKey, corev1.TLSPrivateKeyKey, "the Secret")
	return &authorities{secret: there, signs: signs}, err
}

// wanted is which authority there is to be.
func (b bootstrap) wanted() string { return cmp.Or(b.cfg.Authority, "1") }

// newAuthority makes one that is nowhere yet.
func (b bootstrap) newAuthority() (pki.Pair, error) {
	dir, err := os.MkdirTemp(b.dir, "authority-")
	if err != nil {
		return pki.Pair{}, err
	}
	ca, err := pki.OpenAuthority(dir, b.cfg.Name)
	if err != nil {
		return pki.Pair{}, err
	}
	return ca.Pair, nil
}

// pair is the certificate of a pair that a Secret holds; wayOut is what may be deleted to have another one made.
func (b bootstrap) pair(s *corev1.Secret, cert, key, wayOut string) (*x509.Certificate, error) {
	pair, err := tls.X509KeyPair(s.Data[cert], s.Data[key])
	if err != nil {
		return nil, fmt.Errorf("secret %s/%s: keys %s and %s: %w: put them back, or delete %s to have a new pair made",
			s.Namespace, s.Name, cert, key, err, wayOut)
	}
	return pair.Leaf, nil
}

// issue makes ca.crt and the certificates what the Secret says they are, and returns when the last of them was changed.
func (b bootstrap) issue(ctx context.Context, held *authorities, leaves []pki.Leaf) (changed time.Time, err error) {
	if changed, err = b.bundle(ctx, held); err != nil {
		return changed, err
	}
	dir := filepath.Join(b.dir, "pki")
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return changed, err
	}
	files := func(file string) map[string]string {
		at := filepath.Join(dir, file)
		return map[string]string{corev1.TLSCertKey: at + ".crt", corev1.TLSPrivateKeyKey: at + ".key"}
	}
	for key, file := range files("ca") {
		if err := os.WriteFile(file, held.secret.Data[key], 0o600); err != nil {
			return changed, err
		}
	}
	trusted := filepath.Join(dir, "trusted.crt")
	if err := os.WriteFile(trusted, held.trusted(), 0o600); err != nil {
		return changed, err
	}
	ca, err := pki.OpenAuthority(dir, b.cfg.Name)
	if err != nil {
		return changed, err
	}
	for _, leaf := range leaves {
		secret := b.cfg.Name + "-" + leaf.File
		if err := b.fetch(ctx, secret, files(leaf.File)); err != nil {
			return changed, err
		}
		if _, err := ca.Issue(leaf); err != nil {
			return changed, err
		}
		kept := files(leaf.File)
		if len(leaf.Hosts) == 0 {
			kept[KeyAuthority] = trusted // who has a client's certificate needs this, too
		}
		at, err := b.keep(ctx, secret, kept)
		if err != nil {
			return changed, err
		}
		if at.After(changed) {
			changed = at
		}
	}
	return changed, nil
}

// trusted is what ca.crt has, by age, so that it stays as it is when the next one begins to sign.
func (a *authorities) trusted() []byte {
	in := a.secret.Data
	return bytes.Join([][]byte{in[keyFormerCert], in[corev1.TLSCertKey], in[keyNextCert]}, nil)
}

// bundle makes ca.crt so, and returns when it was changed.
func (b bootstrap) bundle(ctx context.Context, held *authorities) (changed time.Time, err error) {
	name, there := b.cfg.Name+"-ca", &corev1.ConfigMap{}
	if err := b.kube.Get(ctx, kube.ConfigMaps, b.cfg.Namespace, name, there); err != nil && !apierrors.IsNotFound(err) {
		return changed, err
	}
	data := map[string]string{KeyAuthority: string(held.trusted())}
	since, step := there.Annotations[annotationChanged], b.stepOf(held)
	same := maps.Equal(there.Data, data)
	if same && there.Annotations[annotationStep] == step {
		return changedAt(there), nil
	}
	if !same {
		since = now()
	}
	made := &corev1.ConfigMap{ObjectMeta: b.meta(name), Data: data}
	made.Annotations = map[string]string{annotationChanged: since}
	if step != "" {
		made.Annotations[annotationStep] = step
	}
	b.say("wrote ConfigMap " + name)
	return changedAt(made), b.kube.Apply(ctx, kube.ConfigMaps, made)
}

// stepOf says which step it is.
func (b bootstrap) stepOf(held *authorities) string {
	first := "the first run that is " + b.wait(held).String() + " later or more"
	second := "the first run that is " + formerCounts.String() + " later or more"
	if b.byHand {
		first, second = "authority.step 2", "authority.step 3"
	}
	switch {
	case held.hasNext():
		return "1 of 3: ca.crt has the next authority, too, and is for all clients. Servers get certificates of it by " + first
	case held.hasFormer():
		return "2 of 3: servers have certificates of the new authority. ca.crt loses the former one by " + second
	}
	return ""
}

func (a *authorities) hasNext() bool   { return len(a.secret.Data[keyNextCert]) > 0 }
func (a *authorities) hasFormer() bool { return len(a.secret.Data[keyFormerCert]) > 0 }

// endsSoon reports whether a fifth of the authority's life is left, two years of ten: more than that of any certificate by it.
func (a *authorities) endsSoon(at time.Time) bool {
	return a.signs.NotAfter.Sub(at) < a.signs.NotAfter.Sub(a.signs.NotBefore)/5
}

// asked reports whether another authority is asked for.
func (b bootstrap) asked(held *authorities) bool {
	return cmp.Or(held.secret.Annotations[annotationAuthority], "1") != b.wanted()
}

// wait is how long the step that it is takes at least.
func (b bootstrap) wait(held *authorities) time.Duration {
	if held.hasNext() && !b.asked(held) {
		return noticed
	}
	return formerCounts
}

// step returns the Secret of the next step, and what it is; nil while it isn't time for it.
func (b bootstrap) step(held *authorities, changed, at time.Time) (next *corev1.Secret, what string, err error) {
	due := b.asked(held) || held.endsSoon(at) && !b.byHand
	over := at.Sub(changed) >= b.wait(held) // what the step before made has been as it is for so long
	number, take := 0, b.trustBoth
	switch {
	case held.hasNext() && !due: // nothing is signed by it
		return b.alone(held), "the next authority of Secret " + held.secret.Name + " isn't asked for any more", nil
	case held.hasNext():
		number, take = 2, b.signByNext
	case held.hasFormer():
		number, take = 3, b.dropFormer
	case due:
		number, over = 1, true
	default:
		return nil, "", nil
	}
	if b.byHand {
		if b.cfg.Step > number {
			return nil, "", fmt.Errorf("authority.step: is %d, and authority %q comes to step %d next: set it to %d first",
				b.cfg.Step, b.wanted(), number, number)
		}
		over = max(b.cfg.Step, 1) == number
	}
	if !over {
		return nil, "", nil
	}
	return take(held)
}

// trustBoth is the first step.
func (b bootstrap) trustBoth(held *authorities) (next *corev1.Secret, what string, err error) {
	made, err := b.newAuthority()
	if err != nil {
		return nil, "", err
	}
	next = b.alone(held)
	next.Data[keyNextCert], next.Data[keyNextKey] = made.Cert, made.Key
	return next, "made the next authority of Secret " + next.Name + "; clients need the ca.crt of ConfigMap " + b.cfg.Name + "-ca", nil
}

// signByNext is the second step.
func (b bootstrap) signByNext(held *authorities) (next *corev1.Secret, what string, err error) {
	if _, err := b.pair(held.secret, keyNextCert, keyNextKey, "both keys"); err != nil {
		return nil, "", err
	}
	next, in := b.alone(held), held.secret.Data
	next.Data = map[string][]byte{
		corev1.TLSCertKey: in[keyNextCert], corev1.TLSPrivateKeyKey: in[keyNextKey], keyFormerCert: in[corev1.TLSCertKey],
	}
	next.Annotations[annotationAuthority] = b.wanted()
	return next, "the next authority of Secret " + next.Name + " signs from now on", nil
}

// dropFormer is the third step.
func (b bootstrap) dropFormer(held *authorities) (next *corev1.Secret, what string, err error) {
	next = b.alone(held)
	return next, "the former authority of Secret " + next.Name + " isn't trusted any more", nil
}

// alone is the Secret with nothing but the authority that signs.
func (b bootstrap) alone(held *authorities) *corev1.Secret {
	in := held.secret.Data
	next := b.secret(held.secret.Name, held.secret.Type, map[string][]byte{
		corev1.TLSCertKey: in[corev1.TLSCertKey], corev1.TLSPrivateKeyKey: in[corev1.TLSPrivateKeyKey],
	})
	next.ResourceVersion = held.secret.ResourceVersion
	next.Annotations = map[string]string{annotationAuthority: cmp.Or(held.secret.Annotations[annotationAuthority], "1")}
	return next
}
