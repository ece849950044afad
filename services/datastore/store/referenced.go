package store

// The Secrets that DataStores refer to are watched one by one, by name, so that new credentials and authorities are used at
// once: the DataStore is read again, which wakes whom it concerns.

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"strings"
	"sync"

	"k8s.io/apimachinery/pkg/types"

	"github.com/stoker-k8s/stoker/pkg/api/v1alpha1"
	"github.com/stoker-k8s/stoker/pkg/kube"
)

// references are the watches of Secrets. It is safe for concurrent use.
type references struct {
	watch   func(ctx context.Context, secret types.NamespacedName, changed func()) error
	changed func(ctx context.Context, dataStore string)

	mu  sync.Mutex
	ctx context.Context //nolint:containedctx // of the watches that run; nil while none may
	of  map[string][]types.NamespacedName
	end map[types.NamespacedName]context.CancelFunc
	wg  sync.WaitGroup
}

func newReferences(k *kube.Client, changed func(context.Context, string)) *references {
	return &references{
		watch: func(ctx context.Context, secret types.NamespacedName, changed func()) error {
			return k.WatchNamed(ctx, kube.Secrets, secret.Namespace, secret.Name, func(kube.Change) { changed() })
		},
		changed: changed, of: map[string][]types.NamespacedName{}, end: map[types.NamespacedName]context.CancelFunc{},
	}
}

// run watches until ctx ends.
func (r *references) run(ctx context.Context) {
	r.mu.Lock()
	r.ctx = ctx
	r.adjust(ctx)
	r.mu.Unlock()
	<-ctx.Done()
	r.mu.Lock()
	r.ctx = nil
	clear(r.end)
	r.mu.Unlock()
	r.wg.Wait()
}

// set notes what a DataStore refers to; with no Secrets, its watches end.
func (r *references) set(dataStore string, secrets []types.NamespacedName) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if slices.Equal(r.of[dataStore], secrets) {
		return
	}
	r.of[dataStore] = secrets
	if len(secrets) == 0 {
		delete(r.of, dataStore)
	}
	r.adjust(r.ctx)
}

// adjust starts the watches that are missing, until ctx ends, and ends those that nobody needs any more; with a nil ctx none may run.
// r.mu is held.
func (r *references) adjust(ctx context.Context) {
	if ctx == nil {
		return
	}
	wanted := map[types.NamespacedName]bool{}
	for secrets := range maps.Values(r.of) {
		for _, s := range secrets {
			wanted[s] = true
		}
	}
	for s, end := range r.end {
		if !wanted[s] {
			end()
			delete(r.end, s)
		}
	}
	for s := range wanted {
		if r.end[s] != nil {
			continue
		}
		ctx, cancel := context.WithCancel(ctx)
		r.end[s] = cancel
		r.wg.Go(func() {
			defer cancel()
			// Without the right to watch it, it is read now and then all the same.
			_ = r.watch(ctx, s, func() { r.secretChanged(ctx, s) })
		})
	}
}

// secretChanged calls changed for the DataStores that refer to a Secret, and doesn't wait for what follows.
func (r *references) secretChanged(ctx context.Context, secret types.NamespacedName) {
	r.mu.Lock()
	var users []string
	for dataStore, secrets := range r.of {
		if slices.Contains(secrets, secret) {
			users = append(users, dataStore)
		}
	}
	r.mu.Unlock()
	for _, dataStore := range users {
		r.wg.Go(func() { r.changed(ctx, dataStore) })
	}
}

// secretsOf are the Secrets a DataStore refers to, sorted.
func secretsOf(o *v1alpha1.DataStore) []types.NamespacedName {
	if o == nil {
		return nil
	}
	var secrets []types.NamespacedName
	add := func(refs ...*v1alpha1.ContentRef) {
		for _, ref := range refs {
			if ref != nil && len(ref.Content) == 0 && ref.SecretReference != nil {
				secrets = append(secrets, types.NamespacedName{Namespace: ref.SecretReference.Namespace, Name: ref.SecretReference.Name})
			}
		}
	}
	if b := o.Spec.BasicAuth; b != nil {
		add(&b.Username, &b.Password)
	}
	if t := o.Spec.TLSConfig; t != nil {
		add(&t.CertificateAuthority.Certificate, t.CertificateAuthority.PrivateKey)
		if c := t.ClientCertificate; c != nil {
			add(&c.Certificate, &c.PrivateKey)
		}
	}
	slices.SortFunc(secrets, func(a, b types.NamespacedName) int {
		return cmp.Or(strings.Compare(a.Namespace, b.Namespace), strings.Compare(a.Name, b.Name))
	})
	return slices.Compact(secrets)
}
