// Objects are applied and deleted in one way: only if they are the tenant's, or not there yet. See pkg/kube, owned.go.

package workload

import (
	"context"
	"maps"
	"slices"
	"sync"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/stoker-k8s/stoker/pkg/events"
	"github.com/stoker-k8s/stoker/pkg/kube"
)

// uids are those of the tenants' objects that this replica has applied, so that the next time they needn't be looked at. One that is
// missing or outdated costs two requests. The zero value is ready to use; it is safe for concurrent use.
type uids struct {
	mu sync.Mutex
	m  map[events.Key]*[kinds]types.UID
}

func (s *uids) get(key events.Key, k kind) types.UID {
	s.mu.Lock()
	defer s.mu.Unlock()
	if of := s.m[key]; of != nil {
		return of[k]
	}
	return ""
}

func (s *uids) set(key events.Key, k kind, uid types.UID) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.m == nil {
		s.m = map[events.Key]*[kinds]types.UID{}
	}
	if s.m[key] == nil {
		s.m[key] = &[kinds]types.UID{}
	}
	s.m[key][k] = uid
}

// forget drops a tenant.
func (s *uids) forget(key events.Key) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.m, key)
}

// keep drops the tenants of partitions other than these.
func (s *uids) keep(partitions []int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	maps.DeleteFunc(s.m, func(key events.Key, _ *[kinds]types.UID) bool { return !slices.Contains(partitions, key.Partition()) })
}

func (t *turn) owner() kube.Owner { return kube.Owner{Name: t.Key.Name, UID: t.UID} }

// apply makes an object so and decodes the result into it. Errors are those of [kube.Client.ApplyOwned].
func (t *turn) apply(ctx context.Context, r kube.Resource, k kind, o metav1.Object) error {
	known, seen := t.s.uids.get(t.Key, k), t.s.observed.get(t.Key, k, "")
	if seen.gone {
		known = ""
	}
	if err := t.s.kube.ApplyOwned(ctx, r, o, t.owner(), known); err != nil {
		return err
	}
	t.s.uids.set(t.Key, k, o.GetUID())
	if len(t.Events) == 0 && seen.known != "" && (seen.gone || o.GetResourceVersion() != seen.version) {
		t.Drifted(r.Kind + "/" + o.GetName())
	}
	return nil
}

// delete removes the tenant's object of a name and reports whether there was one.
func (t *turn) delete(ctx context.Context, r kube.Resource, object string, o metav1.DeleteOptions) (found bool, err error) {
	return t.s.kube.DeleteOwned(ctx, r, t.Key.Namespace, object, t.owner(), o)
}
