// Encryption of what a tenant stores (spec.kubernetes.apiServer.encryption): the Secret of its configurations, one after the other. The
// next one is written once workload says that all pods have the one before and, where keys are to be forgotten, addons that all objects
// were written anew; package encryption decides which it is. certs.rotated tells workload of another configuration, and addons that it is
// their turn.

package certs

import (
	"context"
	"fmt"
	"strconv"

	corev1 "k8s.io/api/core/v1"

	"github.com/stoker-k8s/stoker/pkg/api/name"
	"github.com/stoker-k8s/stoker/pkg/api/reason"
	"github.com/stoker-k8s/stoker/pkg/api/state"
	"github.com/stoker-k8s/stoker/pkg/kube"
	"github.com/stoker-k8s/stoker/pkg/loop"
	"github.com/stoker-k8s/stoker/services/certs/internal/encryption"
	"github.com/stoker-k8s/stoker/services/certs/internal/pki"
)

// seen is what a turn knows of a tenant's encryption.
type seen struct {
	target encryption.Target
	// before is the own state's, nil for none; secret the Secret, nil when it isn't there.
	before *state.Encryption
	secret *corev1.Secret
	// pods is the configuration that all pods have, rewritten the one under which all objects were written, 0 for none.
	pods, rewritten int64
	// running says that there may be pods, or have been.
	running bool
}

// encrypting is what is to become of it.
type encrypting struct {
	// after is for the state, nil when nothing is encrypted any more; the Secret is then removed.
	after *state.Encryption
	// data and rewritten are what the Secret must be; rotated says that this begins a rotation that was asked for.
	data      map[string][]byte
	rewritten string
	rotated   bool
	failure   *state.Failure
}

// targetOf is what the spec asks for.
func targetOf(t *state.Tenant) encryption.Target {
	resources, provider := t.Spec.Kubernetes.APIServer.Encrypted()
	return encryption.Target{Resources: resources, Provider: provider}
}

// encrypt brings a tenant's encryption on by a step, if one can be done, and notes in r how it stands.
func (s *svc) encrypt(
	ctx context.Context, t *loop.Turn, in pki.Input, own *state.Certs, w *state.Workload, r *pki.Result,
) (*state.Failure, error) {
	target, secret := targetOf(t.Tenant), r.Found[name.Encryption(t.Key.Name)]
	if own.Encryption == nil && secret == nil && len(target.Resources) == 0 {
		return nil, nil
	}
	was, had := own.Secrets[name.ComponentEncryption]
	if in.Exposed == nil { // it isn't known whether there are pods
		if r.Data.Encryption = own.Encryption; had {
			r.Data.Secrets[name.ComponentEncryption] = was
		}
		return nil, nil
	}
	if secret == nil {
		var err error
		if secret, err = s.secrets.Get(ctx, t.Key.Namespace, name.Encryption(t.Key.Name)); err != nil {
			return nil, err
		}
	}
	owner := kube.Owner{Name: t.Key.Name, UID: t.UID}
	if secret != nil && owner.Of(secret) == kube.Foreign {
		return nil, owner.Taken(kube.Secrets.Kind, secret)
	}
	var a state.Addons
	if _, err := t.Read(ctx, name.ServiceAddons, &a); err != nil {
		return nil, err
	}
	e := nextEncryption(seen{
		target: target, before: own.Encryption, secret: secret, pods: w.Encryption, rewritten: a.Rewritten,
		running: w.ConfigHash != "" || t.Tenant.Setup != (state.Account{}),
	})
	switch {
	case e.failure != nil:
		if r.Data.Encryption = own.Encryption; had {
			r.Data.Secrets[name.ComponentEncryption] = was
		}
		return e.failure, nil
	case e.after == nil:
		if secret == nil {
			return nil, nil
		}
		return nil, s.secrets.Remove(ctx, owner, t.Key.Namespace, secret.Name)
	}
	written, err := s.secrets.WriteEncryption(ctx, in, secret, e.data, e.rewritten, e.rotated, s.now())
	if err != nil {
		return nil, err
	}
	is := state.Secret{Name: written.Name, Checksum: e.after.Checksum, ResourceVersion: written.ResourceVersion, LastUpdate: was.LastUpdate}
	if was.Checksum != is.Checksum {
		is.LastUpdate, r.Reasons[name.ComponentEncryption] = s.now().UTC(), e.after.Phase
	}
	r.Data.Encryption, r.Data.Secrets[name.ComponentEncryption] = e.after, is
	return nil, nil
}

// nextEncryption decides what comes next. Pure, but for the keys that it makes.
func nextEncryption(x seen) encrypting {
	if x.secret == nil && x.before == nil {
		if len(x.target.Resources) == 0 {
			return encrypting{}
		}
		c, phase := encryption.Start(x.target, max(x.pods, x.rewritten)+1, x.running)
		return x.with(c, phase, nil, "")
	}
	c, failure := x.current()
	if failure != nil {
		return encrypting{failure: failure}
	}
	mark := x.secret.Annotations[name.AnnotationRewritten]
	if x.pods != c.Revision { // the next one has to wait
		phase := state.EncryptionSwitching
		if x.before != nil && x.before.Revision == c.Revision {
			phase = x.before.Phase
		}
		return x.with(c, phase, x.secret.Data, mark)
	}
	this := strconv.FormatInt(c.Revision, 10)
	rewritten := mark == this || x.rewritten == c.Revision
	next, phase := c.Next(x.target, rewritten)
	rotate, asked := x.secret.Annotations[name.AnnotationRotate]
	if phase == state.EncryptionSettled && asked && rotate == "" && !c.Off() {
		x.target.Rotate = true
		next, phase = c.Next(x.target, rewritten)
	}
	switch phase {
	case state.EncryptionRewriting:
		return x.with(c, phase, x.secret.Data, mark)
	case state.EncryptionSettled:
		if c.Off() {
			return encrypting{}
		}
		return x.with(c, phase, nil, this)
	case state.EncryptionRetiring:
		mark = strconv.FormatInt(next.Revision, 10)
	}
	// Pods that are there keep the configuration that they have, also when they start again.
	key := name.KeyEncryption(c.Revision)
	return x.with(next, phase, map[string][]byte{key: x.secret.Data[key]}, mark)
}

// with is a configuration in a phase, beside what the Secret has besides.
func (x seen) with(c encryption.Config, phase string, beside map[string][]byte, rewritten string) encrypting {
	e := encrypting{data: map[string][]byte{}, rewritten: rewritten, rotated: x.target.Rotate}
	for key, value := range beside {
		e.data[key] = value
	}
	key := name.KeyEncryption(c.Revision)
	if _, there := e.data[key]; !there {
		e.data[key] = c.Marshal()
	}
	e.after = &state.Encryption{
		Revision: c.Revision, Checksum: checksumOfConfig(key, e.data[key]), Phase: phase, Off: c.Off(), Resources: c.Resources(),
		Wanted: x.target.Wanted(),
	}
	return e
}

func checksumOfConfig(key string, data []byte) string {
	return name.Checksum(map[string][]byte{key: data})
}

// current is the configuration that pods are to have. The keys in it are nowhere else: one that is gone, or another than this service has
// written, isn't made anew, for what is stored can't be read by others.
func (x seen) current() (encryption.Config, *state.Failure) {
	lost := func(what string) *state.Failure {
		return &state.Failure{
			Reason: reason.EncryptionKeysLost, Permanent: true,
			Message: "the Secret of the encryption's keys " + what + ": what is stored can't be read without them. Restore it from a backup; " +
				"until then nothing is changed, and pods that run go on",
		}
	}
	if x.secret == nil {
		return encryption.Config{}, lost("is gone")
	}
	newest := int64(0)
	for key := range x.secret.Data {
		newest = max(newest, name.EncryptionRevision(key))
	}
	key := name.KeyEncryption(newest)
	switch {
	case newest == 0, x.before != nil && newest < x.before.Revision:
		return encryption.Config{}, lost(fmt.Sprintf("%s lacks the configuration that pods have", x.secret.Name))
	case x.before != nil && newest == x.before.Revision && checksumOfConfig(key, x.secret.Data[key]) != x.before.Checksum:
		return encryption.Config{}, lost(fmt.Sprintf("%s was changed by somebody (%s)", x.secret.Name, key))
	}
	c, err := encryption.Parse(newest, x.secret.Data[key])
	if err != nil {
		return c, lost(fmt.Sprintf("%s was changed by somebody (%s %v)", x.secret.Name, key, err))
	}
	return c, nil
}

// waitForEncryption is what a step of the encryption waits for, the zero Wait for nothing.
func waitForEncryption(e *state.Encryption) state.Wait {
	switch {
	case e == nil || e.Phase == state.EncryptionSettled:
		return state.Wait{}
	case e.Phase == state.EncryptionRewriting:
		return state.Wait{
			On: name.ServiceAddons, Reason: reason.EncryptionRewrite,
			Text: fmt.Sprintf("all objects to be written by configuration %d of the encryption (%s)", e.Revision, e.Phase),
		}
	}
	return state.Wait{
		On: name.ServiceWorkload, Reason: reason.EncryptionRollout,
		Text: fmt.Sprintf("all pods to have configuration %d of the encryption, and none another (%s)", e.Revision, e.Phase),
	}
}
