package addons

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/stoker-k8s/stoker/pkg/api/name"
	"github.com/stoker-k8s/stoker/pkg/api/state"
	"github.com/stoker-k8s/stoker/pkg/events"
	"github.com/stoker-k8s/stoker/pkg/kube"
	"github.com/stoker-k8s/stoker/pkg/loop"
)

// connection is a tenant whose API this replica is connected to and watches. It ends with its partition, its kubeconfig, or
// the tenant. It is safe for concurrent use, but for follow and rewriting, which belong to the tenant's turns; they don't overlap.
type connection struct {
	// access is the checksum of the Secret the kubeconfig is from, field the key in it. route is how the tenant is reached, whatever
	// address is in the kubeconfig.
	access, field string
	route         *kube.Route

	rewriting *rewriting // nil while nothing is written anew

	mu      sync.Mutex
	cluster *Cluster
	known   map[string]string // versions as they should be, by Ref.String()
	// drift has the version that was seen last of each object that isn't as it should be, until a turn has applied it: the wake for it is
	// lost when the lease lapses at that moment.
	drift map[string]string
	// end ends the watch and waits for it; nil while there is none. watched says which objects it was started for.
	end     func()
	watched string
	closed  bool
	// requests are those for serving certificates of kubelets, nil while none are approved: see serving.go.
	requests requests
}

// keep ends the watches of tenants in other partitions.
func (s *svc) keep(partitions []int) {
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
func (s *svc) drop(key events.Key) {
	s.mu.Lock()
	w := s.tenants[key]
	delete(s.tenants, key)
	s.mu.Unlock()
	if w != nil {
		w.close()
	}
}

func (w *connection) close() {
	w.mu.Lock()
	w.closed = true
	end := w.end
	w.end = nil
	w.mu.Unlock()
	if end != nil {
		end()
	}
	w.api().Close()
}

// api is the tenant's API as it is reached now.
func (w *connection) api() *Cluster {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.cluster
}

// way is the one by which the tenant is reached, the one before while it wasn't yet.
func (w *connection) way(before state.Addons) string { return cmp.Or(w.route.Taken(), before.Way) }

// connect returns the connection to the tenant, a new one when its kubeconfig changed. last is the way by which the tenant was reached
// before this replica met it.
func (s *svc) connect(ctx context.Context, t *loop.Turn, access string, ways []kube.Way, last string) (*connection, error) {
	s.mu.Lock()
	w := s.tenants[t.Key]
	s.mu.Unlock()
	wanted := t.Tenant.Annotations[name.AnnotationKubeconfigSecretKey]
	field := kubeconfigField(t.Tenant)
	if w != nil && w.access == access && w.field == field && w.route.Wanted() == kube.WantedWay(wanted) {
		w.route.Lead(ways)
		return w, nil
	}
	s.drop(t.Key)
	way := kube.NewRoute(ways, kube.WantedWay(wanted), last, s.rerouted(t.Key))
	cluster, err := s.dial(ctx, t.Key, field, way)
	if err != nil {
		return nil, err
	}
	w = &connection{cluster: cluster, access: access, field: field, route: way, known: map[string]string{}, drift: map[string]string{}}
	s.mu.Lock()
	s.tenants[t.Key] = w
	s.mu.Unlock()
	return w, nil
}

// kubeconfigField is the key of the tenant's kubeconfig in its Secret.
func kubeconfigField(tenant *state.Tenant) string {
	return cmp.Or(tenant.Annotations[name.AnnotationKubeconfigSecretKey], name.KeySuperAdminConf)
}

// rerouted returns what has the tenant looked at when it is reached by another way than before: its endpoint may not answer any more.
func (s *svc) rerouted(key events.Key) func() {
	return func() {
		s.mu.Lock()
		wake := s.wake
		s.mu.Unlock()
		if wake != nil {
			wake(key, loop.Wake{Kind: rerouted})
		}
	}
}

// dial reads the tenant's kubeconfig and makes a Cluster of it, to be reached by a route.
func (s *svc) dial(ctx context.Context, key events.Key, field string, by *kube.Route) (*Cluster, error) {
	secret := &corev1.Secret{}
	secretName := name.AdminKubeconfig(key.Name)
	if err := s.clients.Kube.Get(ctx, kube.Secrets, key.Namespace, secretName, secret); err != nil {
		return nil, fmt.Errorf("secret %s: %w", secretName, err)
	}
	if len(secret.Data[field]) == 0 {
		return nil, fmt.Errorf("secret %s has no key %q (annotation %s)", secretName, field, name.AnnotationKubeconfigSecretKey)
	}
	cluster, err := newCluster(secret.Data[field], kube.Options{Requests: s.clients.TenantRequests, Ways: by.Ways()})
	if err != nil {
		return nil, fmt.Errorf("secret %s, key %s: %w", secretName, field, err)
	}
	cluster.handlers = s.clients.Handlers
	return cluster, nil
}

// follow watches the tenant for drift of these objects, which are all that there are, if it isn't watched already for them.
func (s *svc) follow(key events.Key, w *connection, versions map[string]string) {
	w.learn(versions)
	objects := slices.Sorted(maps.Keys(versions))
	w.mu.Lock()
	if w.requests != nil {
		objects = append(objects, requested)
	}
	watched := events.ID(objects...)
	// What is none of ours any more, as an add-on's that is off.
	gone := func(ref, _ string) bool { _, ours := versions[ref]; return !ours }
	maps.DeleteFunc(w.known, gone)
	maps.DeleteFunc(w.drift, gone)
	end := w.end
	if w.closed || end != nil && w.watched == watched {
		w.mu.Unlock()
		return
	}
	w.end = nil
	w.mu.Unlock()
	if end != nil {
		end()
	}
	s.mu.Lock()
	wake := s.wake
	s.mu.Unlock()
	if wake == nil {
		return
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.closed { // meanwhile
		cancel()
		return
	}
	w.end, w.watched = func() { cancel(); <-done }, watched
	go func() {
		defer close(done)
		s.watchOn(ctx, key, w, func(e Event) {
			if w.drifts(e) {
				wake(key, loop.Wake{Kind: drifted, Object: e.Ref.String(), Version: e.Version, Gone: e.Type == watch.Deleted})
			}
		}, func() { wake(key, loop.Wake{Kind: counted}) }, func() { wake(key, loop.Wake{Kind: requested}) })
	}()
}

// watchOn watches until ctx ends. Whatever ends a watch before, it is begun again, with the kubeconfig as it is by then.
func (s *svc) watchOn(ctx context.Context, key events.Key, w *connection, drift func(Event), count, request func()) {
	for pause := watchPause; ; pause = min(2*pause, longestWatchPause) {
		began := time.Now()
		err := w.watch(ctx, drift, count, request)
		if ctx.Err() != nil {
			return
		}
		if time.Since(began) > longestWatchPause {
			pause = watchPause
		}
		s.clients.Log.Warn("watch inside the tenant ended, beginning again", "tenant", key.String(), "in", pause, "error", err)
		if !sleep(ctx, pause) {
			return
		}
		cluster, err := s.dial(ctx, key, w.field, w.route)
		if err != nil {
			s.clients.Log.Warn("could not read the tenant's kubeconfig anew", "tenant", key.String(), "error", err)
			continue
		}
		w.redial(cluster)
	}
}

// redial goes on over another connection.
func (w *connection) redial(cluster *Cluster) {
	w.mu.Lock()
	former := w.cluster
	w.cluster = cluster
	w.mu.Unlock()
	former.Close()
}

// versions are those of all objects as they should be.
func (w *connection) versions() map[string]string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return maps.Clone(w.known)
}

// drifts notes what a watch saw, and reports whether the object isn't as it should be.
func (w *connection) drifts(e Event) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	ref := e.Ref.String()
	if w.known[ref] == e.Version {
		return false
	}
	w.drift[ref] = e.Version
	return true
}

// drifted returns the version that was seen last of each object that isn't as it should be, "" for one that was gone.
func (w *connection) drifted() map[string]string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return maps.Clone(w.drift)
}

// repaired forgets the drift that was applied over; what was seen since stays.
func (w *connection) repaired(drift map[string]string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	maps.DeleteFunc(w.drift, func(ref, version string) bool {
		applied, over := drift[ref]
		return over && version == applied
	})
}

// learn notes versions as those that should be. What the watch saw of them before was no drift.
func (w *connection) learn(versions map[string]string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	maps.Copy(w.known, versions)
	maps.DeleteFunc(w.drift, func(ref, seen string) bool {
		version, applied := versions[ref]
		return applied && version == seen
	})
}
