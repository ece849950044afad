package addons

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/stoker-k8s/stoker/pkg/api/name"
	"github.com/stoker-k8s/stoker/pkg/events"
	"github.com/stoker-k8s/stoker/pkg/kube"
	"github.com/stoker-k8s/stoker/pkg/loop"
)

// refusedPause is how long a tenant's API that doesn't know us, or that we don't know, is left alone: until its pods have the
// keys of the kubeconfig, as in a rotation.
const refusedPause = 30 * time.Second

// connection is a tenant whose API this replica is connected to and watches. It ends with its partition, its kubeconfig, or
// the tenant.
type connection struct {
	cluster *Cluster
	// access is the checksum of the Secret the kubeconfig is from.
	access string
	// end ends the watch and waits for it; nil while there is none. watched is what it was started for. Both belong to
	// the tenant's turns, which don't overlap.
	end     func()
	watched map[string]string
	// ended is true once the watch has ended by itself.
	ended atomic.Bool

	mu    sync.Mutex
	known map[string]string // versions as they should be, by Ref.String()
}

// keep ends the watches of tenants in other partitions.
func (s *addons) keep(partitions []int) {
	s.mu.Lock()
	var gone []*connection
	for key, w := range s.tenants {
		if !slices.Contains(partitions, key.Partition()) {
			gone = append(gone, w)
			delete(s.tenants, key)
		}
	}
	s.mu.Unlock()
	for _, w := range gone {
		w.close()
	}
}

// drop ends the connection to a tenant, if there is one.
func (s *addons) drop(key events.Key) {
	s.mu.Lock()
	w := s.tenants[key]
	delete(s.tenants, key)
	s.mu.Unlock()
	if w != nil {
		w.close()
	}
}

func (w *connection) close() {
	if w.end != nil {
		w.end()
	}
	w.cluster.Close()
}

// connect returns the connection to the tenant, a new one when its kubeconfig changed.
func (s *addons) connect(ctx context.Context, t *loop.Turn, access string) (*connection, error) {
	s.mu.Lock()
	w := s.tenants[t.Key]
	s.mu.Unlock()
	if w != nil && w.access == access {
		return w, nil
	}
	s.drop(t.Key)
	secret := &corev1.Secret{}
	secretName := name.AdminKubeconfig(t.Key.Name)
	if err := s.clients.Kube.Get(ctx, kube.Secrets, t.Key.Namespace, secretName, secret); err != nil {
		return nil, fmt.Errorf("secret %s: %w", secretName, err)
	}
	field := name.KeySuperAdminConf
	if f := t.Tenant.Annotations[name.AnnotationKubeconfigSecretKey]; f != "" {
		field = f
	}
	if len(secret.Data[field]) == 0 {
		return nil, fmt.Errorf("secret %s has no key %q (annotation %s)", secretName, field, name.AnnotationKubeconfigSecretKey)
	}
	cluster, err := NewCluster(secret.Data[field])
	if err != nil {
		return nil, fmt.Errorf("secret %s, key %s: %w", secretName, field, err)
	}
	w = &connection{cluster: cluster, access: access, known: map[string]string{}}
	s.mu.Lock()
	s.tenants[t.Key] = w
	s.mu.Unlock()
	return w, nil
}

// follow watches the tenant for drift, if it isn't watched already for these objects.
func (s *addons) follow(key events.Key, w *connection, versions map[string]string) {
	w.learn(versions)
	if w.end != nil {
		if len(w.watched) == len(versions) && !w.ended.Load() {
			return
		}
		w.end()
	}
	s.mu.Lock()
	wake := s.wake
	s.mu.Unlock()
	if wake == nil {
		return
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	w.end = func() { cancel(); <-done }
	w.watched = versions
	w.ended.Store(false)
	go func() {
		defer close(done)
		err := w.cluster.Watch(ctx, versions, func(e Event) {
			w.mu.Lock()
			ours := w.known[e.Ref.String()] == e.Version
			w.mu.Unlock()
			if !ours {
				wake(key, loop.Wake{Kind: drifted, Object: e.Ref.String(), Version: e.Version, Gone: e.Type == watch.Deleted})
			}
		})
		if ctx.Err() == nil && err != nil {
			s.clients.Log.Warn("watch inside the tenant ended", "tenant", key.String(), "error", err)
			if sleep(ctx, refusedPause) {
				w.ended.Store(true)
				wake(key, loop.Wake{Kind: claimed})
			}
		}
	}()
}

// learn notes versions as those that should be.
func (w *connection) learn(versions map[string]string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	maps.Copy(w.known, versions)
}
