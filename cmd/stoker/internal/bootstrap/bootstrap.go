// Package bootstrap makes what an installation on a cluster needs before it starts and no chart can hold: the nkeys of NATS users,
// authorities and certificates of NATS and etcd servers. All is made once and kept in Secrets; what is there is used, and certificates
// are renewed in time. It runs before each installation and upgrade, and daily.
package bootstrap

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/stoker-k8s/stoker/deployments/local/pki"
	"github.com/stoker-k8s/stoker/deployments/natsserver"
	"github.com/stoker-k8s/stoker/pkg/events"
	"github.com/stoker-k8s/stoker/pkg/kube"
)

// Config says what to make for servers of one kind.
type Config struct {
	// Namespace of the Secrets and ConfigMaps.
	Namespace string `json:"namespace"`
	// Name that theirs begin with: that of the servers' Service.
	Name string `json:"name"`
	// Hosts that the servers' certificate is for.
	Hosts []string `json:"hosts"`
	// Keys is which nkeys the NATS users but system have: with another value than before they are made anew. Those of before count for an hour
	// more, until the run after that. Empty is "1".
	Keys string `json:"keys,omitempty"`
	// Portals of NATS that there are to be; others are removed, with their credentials.
	Portals []events.Portal `json:"portals,omitempty"`
	// PodSecurity is the Pod Security level that the namespace is labelled with; empty for none.
	PodSecurity string `json:"podSecurity,omitempty"`
}

// Keys of what is made. Servers of both kinds have, where <name> is [Config.Name],
//
//	Secret <name>-authority                         tls.crt, tls.key
//	Secret <name>-tls                               tls.crt, tls.key
//	ConfigMap <name>-ca                             ca.crt
//
// NATS servers also
//
//	Secret <name>-<user>, <name>-portal-<portal>   seed
//	ConfigMap <name>-accounts                       authorization.conf, portals.conf
//
// and etcd servers
//
//	Secret <name>-root                              tls.crt, tls.key
const (
	KeySeed          = "seed"
	KeyAuthority     = "ca.crt"
	KeyAuthorization = "authorization.conf"
)

// Labels of what is made.
func labels() map[string]string {
	return map[string]string{"app.kubernetes.io/part-of": "stoker", "app.kubernetes.io/managed-by": "stoker-bootstrap"}
}

// NATS makes what NATS servers need. dir is an empty directory that nobody else can read, in memory best, for private keys are in it
// meanwhile. Each change is said by say. Errors are those of [kube.Client], and of a portal that can't be, by field; running it
// again goes on.
func NATS(ctx context.Context, k *kube.Client, cfg Config, dir string, say func(string)) error {
	b := bootstrap{kube: k, cfg: cfg, dir: dir, say: say, former: map[string]string{}}
	servers := pki.Leaf{File: "tls", Name: cfg.Name, Hosts: cfg.Hosts}
	return b.run(ctx, b.label, b.users, b.portals, b.accounts, func(ctx context.Context) error { return b.certificates(ctx, servers) })
}

// Etcd makes what etcd servers need: the certificate of all members, for clients and for each other, and that of their user root. The
// rest is as with [NATS].
func Etcd(ctx context.Context, k *kube.Client, cfg Config, dir string, say func(string)) error {
	if len(cfg.Portals) > 0 || cfg.Keys != "" || cfg.PodSecurity != "" {
		return errors.New("portals, keys and podSecurity are for NATS: leave them out")
	}
	b := bootstrap{kube: k, cfg: cfg, dir: dir, say: say}
	servers, root := pki.Leaf{File: "tls", Name: cfg.Name, Hosts: cfg.Hosts}, pki.Leaf{File: "root", Name: "root"}
	return b.certificates(ctx, servers, root)
}

type bootstrap struct {
	kube *kube.Client
	cfg  Config
	dir  string
	say  func(string)

	former map[string]string // public nkeys that still count, by user
}

func (b bootstrap) run(ctx context.Context, steps ...func(context.Context) error) error {
	for _, step := range steps {
		if err := step(ctx); err != nil {
			return err
		}
	}
	return nil
}

func (b bootstrap) nats() string { return filepath.Join(b.dir, "nats") }

// label says which pods the namespace takes.
func (b bootstrap) label(ctx context.Context) error {
	if b.cfg.PodSecurity == "" {
		return nil
	}
	return b.kube.Apply(ctx, kube.Namespaces, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{
		Name: b.cfg.Namespace, Labels: map[string]string{"pod-security.kubernetes.io/enforce": b.cfg.PodSecurity},
	}})
}

// portals does the same for portals, and removes the credentials of those that are no more.
func (b bootstrap) portals(ctx context.Context) error {
	if _, err := natsserver.CheckPortals(b.cfg.Portals); err != nil { // a name that is none is no file's either
		return err
	}
	of := natsserver.Portals{Dir: b.nats()}
	secret := func(portal string) string { return b.cfg.Name + "-portal-" + portal }
	for _, p := range b.cfg.Portals {
		if err := b.fetch(ctx, secret(p.Name), map[string]string{KeySeed: of.SeedFile(p.Name)}); err != nil {
			return err
		}
	}
	if err := of.Set(b.cfg.Portals); err != nil {
		return err
	}
	for _, p := range b.cfg.Portals {
		if err := b.keep(ctx, secret(p.Name), map[string]string{KeySeed: of.SeedFile(p.Name)}); err != nil {
			return err
		}
	}
	return b.removePortals(ctx, secret)
}

// removePortals removes the credentials of portals that the accounts of before have and that are no more.
func (b bootstrap) removePortals(ctx context.Context, secret func(portal string) string) error {
	accounts := &corev1.ConfigMap{}
	if err := b.kube.Get(ctx, kube.ConfigMaps, b.cfg.Namespace, b.accountsName(), accounts); err != nil {
		if apierrors.IsNotFound(err) {
			return nil
		}
		return err
	}
	before, err := events.ParsePortals([]byte(accounts.Data[events.PortalsFile]))
	if err != nil {
		return fmt.Errorf("ConfigMap %s/%s: %s: %w", b.cfg.Namespace, b.accountsName(), events.PortalsFile, err)
	}
	for _, p := range before {
		if slices.ContainsFunc(b.cfg.Portals, func(o events.Portal) bool { return o.Name == p.Name }) {
			continue
		}
		found, err := b.kube.Delete(ctx, kube.Secrets, b.cfg.Namespace, secret(p.Name), metav1.DeleteOptions{})
		if err != nil {
			return err
		}
		if found {
			b.say("removed Secret " + secret(p.Name))
		}
	}
	return nil
}

func (b bootstrap) accountsName() string { return b.cfg.Name + "-accounts" }

// accounts writes what the NATS servers' configuration includes.
func (b bootstrap) accounts(ctx context.Context) error {
	public, err := natsserver.EnsureKeys(b.nats())
	if err != nil {
		return err
	}
	portals, err := os.ReadFile(filepath.Join(b.nats(), events.PortalsFile))
	if err != nil {
		return err
	}
	return b.configMap(ctx, b.accountsName(), map[string]string{
		KeyAuthorization: events.Authorization(public, b.former), events.PortalsFile: string(portals),
	})
}

// certificates keeps an authority, and certificates by it, each in the Secret of its name.
func (b bootstrap) certificates(ctx context.Context, leaves ...pki.Leaf) error {
	dir := filepath.Join(b.dir, "pki")
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	files := func(file string) map[string]string {
		at := filepath.Join(dir, file)
		return map[string]string{corev1.TLSCertKey: at + ".crt", corev1.TLSPrivateKeyKey: at + ".key"}
	}
	authority := b.cfg.Name + "-authority"
	if err := b.fetch(ctx, authority, files("ca")); err != nil {
		return err
	}
	ca, err := pki.OpenAuthority(dir, b.cfg.Name)
	if err != nil {
		return err
	}
	if err := b.keep(ctx, authority, files("ca")); err != nil {
		return err
	}
	for _, leaf := range leaves {
		secret := b.cfg.Name + "-" + leaf.File
		if err := b.fetch(ctx, secret, files(leaf.File)); err != nil {
			return err
		}
		if _, err := ca.Issue(leaf); err != nil {
			return err
		}
		if err := b.keep(ctx, secret, files(leaf.File)); err != nil {
			return err
		}
	}
	return b.configMap(ctx, b.cfg.Name+"-ca", map[string]string{KeyAuthority: string(ca.Cert)})
}

// fetch writes the keys of a Secret to files, if there is that Secret.
func (b bootstrap) fetch(ctx context.Context, name string, files map[string]string) error {
	s := &corev1.Secret{}
	if err := b.kube.Get(ctx, kube.Secrets, b.cfg.Namespace, name, s); err != nil {
		if apierrors.IsNotFound(err) {
			return nil
		}
		return err
	}
	for key, file := range files {
		if len(s.Data[key]) == 0 {
			return fmt.Errorf("secret %s/%s has no key %s: put it back, or delete the Secret to have a new one made", b.cfg.Namespace, name, key)
		}
		if err := os.WriteFile(file, s.Data[key], 0o600); err != nil {
			return err
		}
	}
	return nil
}

// keep stores files in a Secret. One that is missing is made, and never over one that somebody else made meanwhile; one that differs is
// a certificate that was renewed.
func (b bootstrap) keep(ctx context.Context, name string, files map[string]string) error {
	made := &corev1.Secret{TypeMeta: kube.Secrets.TypeMeta(), ObjectMeta: b.meta(name), Type: corev1.SecretTypeOpaque, Data: map[string][]byte{}}
	for key, file := range files {
		data, err := os.ReadFile(file)
		if err != nil {
			return err
		}
		made.Data[key] = data
	}
	if _, tls := files[corev1.TLSCertKey]; tls {
		made.Type = corev1.SecretTypeTLS
	}
	there := &corev1.Secret{}
	err := b.kube.Get(ctx, kube.Secrets, b.cfg.Namespace, name, there)
	switch {
	case apierrors.IsNotFound(err):
		b.say("made Secret " + name)
		return b.kube.Create(ctx, kube.Secrets, made)
	case err != nil:
		return err
	case has(there.Data, made.Data):
		return nil
	}
	b.say("changed Secret " + name)
	made.ResourceVersion = there.ResourceVersion // somebody else who does the same wins or loses as a whole
	return b.kube.Apply(ctx, kube.Secrets, made)
}

// has reports whether a Secret has these keys with these values, whatever else somebody put there.
func has(there, want map[string][]byte) bool {
	for key, value := range want {
		if !bytes.Equal(there[key], value) {
			return false
		}
	}
	return true
}

func (b bootstrap) configMap(ctx context.Context, name string, data map[string]string) error {
	there := &corev1.ConfigMap{}
	err := b.kube.Get(ctx, kube.ConfigMaps, b.cfg.Namespace, name, there)
	if err != nil && !apierrors.IsNotFound(err) {
		return err
	}
	if err == nil && maps.Equal(there.Data, data) {
		return nil
	}
	b.say("wrote ConfigMap " + name)
	return b.kube.Apply(ctx, kube.ConfigMaps, &corev1.ConfigMap{ObjectMeta: b.meta(name), Data: data})
}

func (b bootstrap) meta(name string) metav1.ObjectMeta {
	return metav1.ObjectMeta{Name: name, Namespace: b.cfg.Namespace, Labels: labels()}
}
