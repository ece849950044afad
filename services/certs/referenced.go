// Secrets that somebody else made and that a tenant's spec refers to (spec.kubernetes.apiServer). Pods mount them, and are started
// anew when one changes; this service alone reads Secrets, so it says in its state what is in them, by checksum. A tenant has those
// alone that name it in the label stoker.dev/used-by, and none of Stoker's own: who may write tenants, but not Secrets, gains nothing.

package certs

import (
	"context"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/stoker-k8s/stoker/pkg/api/name"
	"github.com/stoker-k8s/stoker/pkg/api/state"
	"github.com/stoker-k8s/stoker/pkg/events"
	"github.com/stoker-k8s/stoker/pkg/kube"
	"github.com/stoker-k8s/stoker/pkg/loop"
	"github.com/stoker-k8s/stoker/pkg/partition"
)

// wakeReferenced is the wake of a Secret that names the tenant; its Object is the Secret's name.
const wakeReferenced = "Referenced"

// watchReferenced wakes tenants of which a Secret that names them changed. Such Secrets are few and have no label with a partition, so
// every replica sees them all; what it lists is listed anew when its partitions change, for wakes of others are dropped.
func (s *svc) watchReferenced(ctx context.Context, held *partition.Held, wake loop.Waker) error {
	moves := held.Follow()
	for ctx.Err() == nil {
		moves.Next()
		within, end := context.WithCancel(ctx)
		go func() {
			defer end()
			select {
			case <-within.Done():
			case <-moves.Changed():
			}
		}()
		err := s.kube.Watch(within, kube.Secrets, "", name.LabelUsedBy, wakeNamed(wake))
		end()
		if err != nil {
			return err
		}
	}
	return nil
}

// wakeNamed wakes the tenant that a Secret names, and the one that it named before.
func wakeNamed(wake loop.Waker) func(kube.Change) {
	named := map[types.NamespacedName]events.Key{}
	return func(c kube.Change) {
		secret := types.NamespacedName{Namespace: c.Object.Namespace, Name: c.Object.Name}
		before, key := named[secret], events.Tenant(c.Object.Namespace, c.Object.Labels[name.LabelUsedBy])
		if before != (events.Key{}) && before != key {
			wake(before, loop.Wake{Kind: wakeReferenced, Object: secret.Name, Gone: true})
		}
		delete(named, secret)
		if !key.Valid() {
			return
		}
		gone := c.Type == watch.Deleted
		if !gone {
			named[secret] = key
		}
		wake(key, loop.Wake{Kind: wakeReferenced, Object: secret.Name, Version: c.Object.ResourceVersion, Gone: gone})
	}
}

// referencedChanged reports whether watches saw a Secret that the spec refers to and that isn't as the state has it.
func referencedChanged(t *loop.Turn, own *state.Certs) bool {
	secrets := t.Tenant.Spec.Kubernetes.APIServer.Secrets()
	return slices.ContainsFunc(t.Wakes, func(w loop.Wake) bool {
		have := own.Referenced[w.Object].ResourceVersion
		return w.Kind == wakeReferenced && slices.Contains(secrets, w.Object) && (w.Gone && have != "" || !w.Gone && w.Version != have)
	})
}

// referenced reads the Secrets that the spec refers to and returns those that the tenant has; nil for none.
func (s *svc) referenced(ctx context.Context, t *loop.Turn, before *state.Certs) (map[string]state.Secret, error) {
	var all map[string]state.Secret
	for _, secret := range t.Tenant.Spec.Kubernetes.APIServer.Secrets() {
		if _, read := all[secret]; read {
			continue
		}
		o, err := s.secrets.Get(ctx, t.Key.Namespace, secret)
		if err != nil {
			return nil, err
		}
		if !mayHave(t.Key.Name, o) {
			continue
		}
		if all == nil {
			all = map[string]state.Secret{}
		}
		is := state.Secret{Name: secret, Checksum: checksumOf(o), ResourceVersion: o.ResourceVersion}
		if was := before.Referenced[secret]; was.Checksum == is.Checksum {
			is.LastUpdate = was.LastUpdate
		} else {
			is.LastUpdate = s.now().UTC()
		}
		all[secret] = is
	}
	return all, nil
}

// mayHave reports whether a tenant may have a Secret, nil for one that isn't there, and finds in it what it is to have.
func mayHave(tenant string, o *corev1.Secret) bool {
	return o != nil && o.Labels[name.LabelUsedBy] == tenant && o.Labels[name.LabelProject] != name.Project &&
		len(o.Data[name.KeySettingsKubeconfig]) > 0
}

// checksumOf is that of what pods have of a Secret.
func checksumOf(o *corev1.Secret) string {
	return name.Checksum(map[string][]byte{name.KeySettingsKubeconfig: o.Data[name.KeySettingsKubeconfig]})
}
