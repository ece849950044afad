// Package bootstrap makes what an installation on a cluster needs before it starts and no chart can hold: the nkeys of NATS users,
// authorities and certificates of NATS and etcd servers. All is made once and kept in Secrets; what is there is used, and certificates
// are renewed in time. It runs before each installation and upgrade, and daily.
package bootstrap

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/stoker-k8s/stoker/internal/natsusers"
	"github.com/stoker-k8s/stoker/pkg/events"
	"github.com/stoker-k8s/stoker/pkg/kube"
	"github.com/stoker-k8s/stoker/pkg/pki"
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
	// Authority is which authority the servers have: with another value than before it is replaced, in three steps. Empty is "1".
	Authority string `json:"authority,omitempty"`
	// Step is which of the three may be taken, 1 to 3, for etcd servers; none is 1. With NATS servers each is taken an hour after the one
	// before, by the run after that.
	Step int `json:"step,omitempty"`
	// Portals of NATS that there are to be; others are removed, with their credentials.
	Portals []events.Portal `json:"portals,omitempty"`
	// PodSecurity is the Pod Security level that the namespace is labelled with; empty for none.
	PodSecurity string `json:"podSecurity,omitempty"`
	// Backup is the volume that an etcd's snapshots are written to, if they are.
	Backup *Volume `json:"backup,omitempty"`
}

// Volume is one that is asked for once. What is there stays as it is.
type Volume struct {
	Size         resource.Quantity `json:"size"`
	StorageClass string            `json:"storageClass,omitempty"`
}

// Keys of what is made. Servers of both kinds have, where <name> is [Config.Name],
//
//	Secret <name>-authority                         tls.crt, tls.key; next.crt, next.key; former.crt
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
//	Secret <name>-root                              tls.crt, tls.key, ca.crt
//	PersistentVolumeClaim <name>-backup
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
	if cfg.Step != 0 || cfg.Backup != nil {
		return errors.New("step and backup are for etcd: leave them out")
	}
	b := bootstrap{kube: k, cfg: cfg, dir: dir, say: say, former: map[string]string{}}
	servers := pki.Leaf{File: "tls", Name: cfg.Name, Hosts: cfg.Hosts}
	return b.run(ctx, b.label, b.users, b.portals, b.accounts, func(ctx context.Context) error { return b.certificates(ctx, servers) })
}

// Etcd makes what etcd servers need: the certificate of all members, for clients and for each other, that of their user root, and the
// claim of the volume for snapshots. The rest is as with [NATS].
func Etcd(ctx context.Context, k *kube.Client, cfg Config, dir string, say func(string)) error {
	if len(cfg.Portals) > 0 || cfg.Keys != "" || cfg.PodSecurity != "" {
		return errors.New("portals, keys and podSecurity are for NATS: leave them out")
	}
	if cfg.Step < 0 || cfg.Step > 3 {
		return fmt.Errorf("step: is %d, and there are steps 1 to 3", cfg.Step)
	}
	b := bootstrap{kube: k, cfg: cfg, dir: dir, say: say, byHand: true}
	servers, root := pki.Leaf{File: "tls", Name: cfg.Name, Hosts: cfg.Hosts}, pki.Leaf{File: "root", Name: "root"}
	return b.run(ctx, func(ctx context.Context) error { return b.certificates(ctx, servers, root) }, b.backup)
}

// backup claims the volume for snapshots, unless it is there. It isn't the chart that does: Helm waits for the claims that a chart has, and one
// whose class binds it to its first consumer's node (WaitForFirstConsumer) waits for the first snapshot.
func (b bootstrap) backup(ctx context.Context) error {
	v := b.cfg.Backup
	if v == nil {
		return nil
	}
	claim := &corev1.PersistentVolumeClaim{TypeMeta: kube.PersistentVolumeClaims.TypeMeta(), ObjectMeta: b.meta(b.cfg.Name + "-backup")}
	err := b.kube.Get(ctx, kube.PersistentVolumeClaims, claim.Namespace, claim.Name, &corev1.PersistentVolumeClaim{})
	if !apierrors.IsNotFound(err) {
		return err
	}
	claim.Spec.AccessModes = []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce}
	claim.Spec.Resources.Requests = corev1.ResourceList{corev1.ResourceStorage: v.Size}
	if v.StorageClass != "" {
		claim.Spec.StorageClassName = &v.StorageClass
	}
	if err := b.kube.Create(ctx, kube.PersistentVolumeClaims, claim); err != nil {
		return err
	}
	b.say("made PersistentVolumeClaim " + claim.Name)
	return nil
}

type bootstrap struct {
	kube *kube.Client
	cfg  Config
	dir  string
	say  func(string)

	byHand bool              // steps of another authority are taken when Config.Step says so
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
	if _, err := natsusers.CheckPortals(b.cfg.Portals); err != nil { // a name that is none is no file's either
		return err
	}
	of := natsusers.Portals{Dir: b.nats()}
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
		if _, err := b.keep(ctx, secret(p.Name), map[string]string{KeySeed: of.SeedFile(p.Name)}); err != nil {
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
	public, err := natsusers.EnsureKeys(b.nats())
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

// keep stores files in a Secret, and returns when it was changed. One that is missing is made, and never over one that somebody else made
// meanwhile; one that differs is a certificate that was renewed.
func (b bootstrap) keep(ctx context.Context, name string, files map[string]string) (changed time.Time, err error) {
	made := b.secret(name, corev1.SecretTypeOpaque, map[string][]byte{})
	for key, file := range files {
		if made.Data[key], err = os.ReadFile(file); err != nil {
			return changed, err
		}
	}
	if _, tls := files[corev1.TLSCertKey]; tls {
		made.Type = corev1.SecretTypeTLS
	}
	made.Annotations = map[string]string{annotationChanged: now()}
	there := &corev1.Secret{}
	err = b.kube.Get(ctx, kube.Secrets, b.cfg.Namespace, name, there)
	switch {
	case apierrors.IsNotFound(err):
		b.say("made Secret " + name)
		return changedAt(made), b.kube.Create(ctx, kube.Secrets, made)
	case err != nil:
		return changed, err
	case has(there.Data, made.Data):
		return changedAt(there), nil
	}
	b.say("changed Secret " + name)
	made.ResourceVersion = there.ResourceVersion
	return changedAt(made), b.replace(ctx, made)
}

// replace makes a Secret so that has the resourceVersion of the one that was read: somebody else who does the same meanwhile wins or
// loses as a whole.
func (b bootstrap) replace(ctx context.Context, made *corev1.Secret) error {
	body, err := json.Marshal(made)
	if err != nil {
		return err
	}
	return b.kube.ApplyRaw(ctx, kube.Secrets, made.Namespace, made.Name, body, nil)
}

func (b bootstrap) secret(name string, kind corev1.SecretType, data map[string][]byte) *corev1.Secret {
	return &corev1.Secret{TypeMeta: kube.Secrets.TypeMeta(), ObjectMeta: b.meta(name), Type: kind, Data: data}
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
