package capi

// Clusters other than the management cluster, in which control planes have their tenants. For each there is one client and, for each
// namespace with tenants, one watch, however many control planes are there; they end with the last. A kubeconfig that changes is followed.
//
// Requests go to a cluster that answers alone: once one fails, the others that are under way end, and nobody asks until the cluster's own
// goroutine has listed again, which wakes all. So a cluster that is away costs the others nothing.

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"

	"github.com/stoker-k8s/stoker/pkg/api/controlplane"
	"github.com/stoker-k8s/stoker/pkg/api/name"
	"github.com/stoker-k8s/stoker/pkg/api/state"
	"github.com/stoker-k8s/stoker/pkg/events"
	"github.com/stoker-k8s/stoker/pkg/kube"
	"github.com/stoker-k8s/stoker/pkg/loop"
)

const (
	// maxVisits is how many turns ask one external cluster side by side: a part of those that a replica has.
	maxVisits = 4
	// steadyAfter is how long a cluster must have answered for its next failure to count as the first.
	steadyAfter = 10 * time.Second
)

// source is where the kubeconfig of an external cluster is: a key of a Secret.
type source struct{ namespace, secret, key string }

func (s source) String() string { return s.namespace + "/" + s.secret + "/" + s.key }

// externals are the external clusters of the control planes of this replica's partitions. It is safe for concurrent use.
type externals struct {
	kube     *kube.Client
	log      *slog.Logger
	requests kube.RequestFunc

	mu    sync.Mutex
	start func(*external) // has a cluster be followed; nil while nothing runs
	wake  loop.Waker
	wg    sync.WaitGroup
	all   map[source]*external
}

// external is one cluster. It is guarded by the mutex of its externals.
type external struct {
	of      source
	end     context.CancelFunc
	members map[events.Key]*member
	// usableFrom are the namespaces, besides the Secret's own, whose control planes may use it.
	usableFrom []string
	// conn is nil while there is no usable kubeconfig; err says why, and is nil until that was looked for.
	conn *connection
	err  error
	// visits is how many turns ask the cluster now; queued are those that are woken when one of these ends.
	visits int
	queued []events.Key
}

// member is a control plane, and where its tenant is.
type member struct {
	tenant types.NamespacedName
	own    state.CAPI // what its last turn did; turns of a control plane don't overlap
}

// connection is what works by one kubeconfig.
type connection struct {
	client *kube.Client
	hash   [sha256.Size]byte // of the kubeconfig
	watch  func(*room)       // begins to watch a namespace
	end    context.CancelFunc
	wg     sync.WaitGroup
	rooms  map[string]*room
}

// room is a namespace of a cluster.
type room struct {
	namespace string
	end       context.CancelFunc
	uid       types.UID // of the namespace; empty where it may not be read
	// up is nil until the cluster has answered, and ended, by down, once it doesn't any more. err says why not.
	up   context.Context
	down context.CancelCauseFunc
	err  error
}

// begin has clusters be reached from now on; the function that it returns ends that, and waits.
func (x *externals) begin(ctx context.Context, wake loop.Waker) func() {
	ctx, cancel := context.WithCancel(ctx)
	x.mu.Lock()
	x.wake, x.all = wake, map[source]*external{}
	x.start = func(e *external) {
		ctx, end := context.WithCancel(ctx)
		e.end = end
		x.wg.Go(func() { x.follow(ctx, e) })
	}
	x.mu.Unlock()
	return func() {
		cancel()
		x.mu.Lock()
		x.start = nil
		x.mu.Unlock()
		x.wg.Wait()
	}
}

// errQueued means that enough turns ask the cluster now: this one's control plane is woken when one of them ends.
var errQueued = errors.New("enough turns ask the cluster now")

// visit is a turn that may ask a cluster.
type visit struct {
	x      *externals
	e      *external
	client *kube.Client
	room   *room
	up     context.Context
	uid    types.UID
	member *member
	key    events.Key
}

// enter has a control plane be of a cluster, with its tenant at a place there, and begins a visit, which must be left. [heldError] while
// that isn't possible: the control plane is woken when it may be; errQueued.
func (x *externals) enter(key events.Key, of source, tenant types.NamespacedName) (*visit, error) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.start == nil {
		return nil, unreached("it is not yet known: this replica is starting")
	}
	for _, other := range x.all {
		if other.of != of {
			x.leave(other, key)
		}
	}
	e := x.all[of]
	if e == nil {
		e = &external{of: of, members: map[events.Key]*member{}}
		x.all[of] = e
		x.start(e)
	}
	m := e.members[key]
	if m == nil || m.tenant != tenant {
		m = &member{tenant: tenant}
		e.members[key] = m
		x.furnish(e)
	}
	switch {
	case e.err == nil && e.conn == nil:
		return nil, unreached("Secret %s/%s has not been read yet", of.namespace, of.secret)
	case !e.usable(key): // whether there is such a Secret is no business of that namespace then
		return nil, cannot("Secret %s/%s may not be used from namespace %s: its annotation %s must name that namespace",
			of.namespace, of.secret, key.Namespace, name.AnnotationUsableFrom)
	case e.err != nil:
		return nil, cannot("%s", e.err)
	}
	r := e.conn.rooms[tenant.Namespace]
	switch {
	case r.up == nil && r.err == nil:
		return nil, unreached("it has not answered yet")
	case r.up == nil:
		return nil, unreached("%s", r.err)
	case r.up.Err() != nil:
		return nil, unreached("%s", context.Cause(r.up))
	case e.visits >= maxVisits:
		if !slices.Contains(e.queued, key) {
			e.queued = append(e.queued, key)
		}
		return nil, errQueued
	}
	e.visits++
	return &visit{x: x, e: e, client: e.conn.client, room: r, up: r.up, uid: r.uid, member: m, key: key}, nil
}

func unreached(message string, args ...any) error {
	return &heldError{controlplane.ReasonClusterUnreachable, "the cluster can't be asked now: " + state.ClipMessage(fmt.Sprintf(message, args...))}
}

// leave ends a visit, and has the next control plane have its turn.
func (v *visit) leave() {
	v.x.mu.Lock()
	defer v.x.mu.Unlock()
	v.e.visits--
	if len(v.e.queued) > 0 {
		next := v.e.queued[0]
		v.e.queued = v.e.queued[1:]
		v.x.wake(next, loop.Wake{Kind: wakeSeen})
	}
}

// do asks the cluster. When that turns out not to answer, here or elsewhere, the request ends, with a [heldError].
func (v *visit) do(ctx context.Context, ask func(context.Context) error) error {
	asking, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(v.up, cancel)() //nolint:contextcheck // it ends ctx
	err := ask(asking)
	if gone := v.gone(); err != nil && ctx.Err() == nil && gone != nil {
		return gone
	}
	return err
}

// gone is the [heldError] for a cluster that has turned out not to answer since the visit began; nil while it does.
func (v *visit) gone() error {
	if v.up.Err() == nil {
		return nil
	}
	return unreached("%s", context.Cause(v.up))
}

// drop has a control plane be of no cluster.
func (x *externals) drop(key events.Key) {
	x.mu.Lock()
	defer x.mu.Unlock()
	for _, e := range x.all {
		x.leave(e, key)
	}
}

// keep drops the control planes of all partitions but these.
func (x *externals) keep(partitions []int) {
	x.mu.Lock()
	defer x.mu.Unlock()
	for _, e := range x.all {
		for key := range e.members {
			if !slices.Contains(partitions, key.Partition()) {
				x.leave(e, key)
			}
		}
	}
}

// leave takes a control plane away from a cluster, and ends that with the last.
func (x *externals) leave(e *external, key events.Key) {
	if e.members[key] == nil {
		return
	}
	delete(e.members, key)
	x.furnish(e)
	if len(e.members) == 0 {
		delete(x.all, e.of)
		e.end()
	}
}

// usable reports whether a control plane may use the cluster's Secret.
func (e *external) usable(key events.Key) bool {
	return key.Namespace == e.of.namespace || slices.Contains(e.usableFrom, key.Namespace) || slices.Contains(e.usableFrom, "*")
}

// furnish has each namespace be watched that a control plane has its tenant in, and no other.
func (x *externals) furnish(e *external) {
	c := e.conn
	if c == nil {
		return
	}
	used := map[string]struct{}{}
	for key, m := range e.members {
		if e.usable(key) {
			used[m.tenant.Namespace] = struct{}{}
		}
	}
	for namespace, r := range c.rooms {
		if _, still := used[namespace]; !still {
			delete(c.rooms, namespace)
			r.end()
		}
	}
	for namespace := range used {
		if c.rooms[namespace] != nil {
			continue
		}
		c.rooms[namespace] = &room{namespace: namespace, down: func(error) {}}
		c.watch(c.rooms[namespace])
	}
}

// wakeAll wakes the control planes of a cluster, of one of its namespaces or of all for an empty one.
func (x *externals) wakeAll(e *external, namespace string) {
	for key, m := range e.members {
		if namespace == "" || m.tenant.Namespace == namespace {
			x.wake(key, loop.Wake{Kind: wakeSeen})
		}
	}
}

// follow reads a cluster's Secret whenever it changes, until ctx ends.
func (x *externals) follow(ctx context.Context, e *external) {
	changed := make(chan struct{}, 1)
	signal := func() {
		select {
		case changed <- struct{}{}:
		default:
		}
	}
	signal() // a Secret that isn't there is seen by no watch
	x.wg.Go(func() {
		for again := patience(); ctx.Err() == nil; sleep(ctx, again.Step()) {
			err := x.kube.WatchNamed(ctx, kube.Secrets, e.of.namespace, e.of.secret, func(kube.Change) { signal() })
			if err != nil {
				x.connect(ctx, e, nil, nil, fmt.Errorf("watch of Secret %s/%s: %w", e.of.namespace, e.of.secret, err))
			}
		}
	})
	defer x.connect(ctx, e, nil, nil, context.Canceled)
	for {
		select {
		case <-ctx.Done():
			return
		case <-changed:
		}
		for again := patience(); !x.read(ctx, e) && sleep(ctx, again.Step()); {
		}
	}
}

// read reads a cluster's Secret; false when the management cluster doesn't answer.
func (x *externals) read(ctx context.Context, e *external) bool {
	var secret corev1.Secret
	err := x.kube.Get(ctx, kube.Secrets, e.of.namespace, e.of.secret, &secret)
	at := fmt.Sprintf("Secret %s/%s", e.of.namespace, e.of.secret)
	data := secret.Data[e.of.key]
	switch {
	case kube.IsAway(err) || ctx.Err() != nil:
		return false
	case apierrors.IsNotFound(err):
		err = fmt.Errorf("%s is not there: make it, with a kubeconfig under the key %s", at, e.of.key)
	case err != nil:
		err = fmt.Errorf("%s: %w", at, err)
	case len(data) == 0:
		err = fmt.Errorf("%s has no key %s, or nothing in it: put a kubeconfig there", at, e.of.key)
	}
	x.connect(ctx, e, &secret, data, err)
	return true
}

// connect makes the connection of a cluster so: by a kubeconfig, or none because of an error.
func (x *externals) connect(ctx context.Context, e *external, secret *corev1.Secret, kubeconfig []byte, err error) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if secret != nil {
		e.usableFrom = strings.FieldsFunc(secret.Annotations[name.AnnotationUsableFrom], func(r rune) bool { return r == ',' || r == ' ' })
	}
	hash := sha256.Sum256(kubeconfig)
	if err == nil && e.conn != nil && e.conn.hash == hash {
		x.furnish(e)
		x.wakeAll(e, "")
		return
	}
	if old := e.conn; old != nil {
		e.conn = nil
		old.end()
		x.wg.Go(func() { old.wg.Wait(); old.client.Close() })
	}
	var client *kube.Client
	if err == nil && ctx.Err() == nil {
		client, err = kube.ForCluster(kubeconfig, kube.Options{FieldManager: name.FieldManagerCAPI, Requests: x.requests, Away: func(err error) { x.away(e, err) }})
		if err != nil {
			err = fmt.Errorf("key %s of Secret %s/%s: %w", e.of.key, e.of.namespace, e.of.secret, err)
		}
	}
	if ctx.Err() != nil {
		return
	}
	if e.err = err; err == nil {
		ctx, end := context.WithCancel(ctx)
		c := &connection{client: client, hash: hash, end: end, rooms: map[string]*room{}}
		c.watch = func(r *room) {
			ctx, end := context.WithCancel(ctx)
			r.end = end
			c.wg.Go(func() { x.watchRoom(ctx, e, c, r) })
		}
		e.conn = c
		x.furnish(e)
	}
	x.wakeAll(e, "")
}

// away hears that a cluster doesn't answer.
func (x *externals) away(e *external, err error) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if e.conn == nil {
		return
	}
	for _, r := range e.conn.rooms {
		r.down(err)
	}
}

// watchRoom watches the tenants of a namespace of a cluster, through every outage, until ctx ends.
func (x *externals) watchRoom(ctx context.Context, e *external, c *connection, r *room) {
	again := patience()
	for ctx.Err() == nil {
		up, down := context.WithCancelCause(ctx)
		x.mu.Lock()
		r.down = down
		x.mu.Unlock()
		began := time.Now()
		uid, err := look(up, c.client, r.namespace)
		if err == nil {
			err = c.client.WatchListed(up, kube.TenantControlPlanes, r.namespace, name.LabelComponent+"="+name.ComponentCAPI,
				func(k kube.Change) { x.seen(e, k.Object.Namespace, k.Object.Name) },
				func() { x.opened(up, e, r, uid) })
		}
		if err == nil {
			err = context.Cause(up)
		}
		down(nil)
		if ctx.Err() != nil {
			return
		}
		x.closed(e, r, err)
		if time.Since(began) > steadyAfter {
			again = patience()
		}
		sleep(ctx, again.Step())
	}
}

// look asks a cluster for a namespace and for whether it knows tenants. The UID is empty where the namespace may not be read.
func look(ctx context.Context, c *kube.Client, namespace string) (types.UID, error) {
	var o metav1.PartialObjectMetadata
	err := c.Get(ctx, kube.Namespaces, "", namespace, &o)
	switch {
	case apierrors.IsNotFound(err):
		return "", fmt.Errorf("namespace %s is not there: make it, or change spec.deployment.externalClusterReference.deploymentNamespace", namespace)
	case err != nil && !apierrors.IsForbidden(err):
		return "", err
	}
	err = c.Document(ctx, "/apis/"+kube.TenantControlPlanes.GroupVersion.String(), &struct{}{})
	if apierrors.IsNotFound(err) {
		return "", errors.New("it doesn't know TenantControlPlanes: install Stoker or Kamaji there")
	}
	return o.UID, err
}

// opened notes that a cluster has answered, and wakes the control planes that have waited for it.
func (x *externals) opened(up context.Context, e *external, r *room, uid types.UID) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if r.up == up {
		return
	}
	r.up, r.uid, r.err = up, uid, nil
	x.log.Info("external cluster answers", "secret", e.of.namespace+"/"+e.of.secret, "key", e.of.key, "namespace", r.namespace)
	x.wakeAll(e, r.namespace)
}

// closed notes that a cluster doesn't answer, and has the control planes there say so once.
func (x *externals) closed(e *external, r *room, err error) {
	x.mu.Lock()
	defer x.mu.Unlock()
	first := r.up != nil || r.err == nil
	if r.up, r.err = nil, err; first {
		x.log.Warn("external cluster doesn't answer", "secret", e.of.namespace+"/"+e.of.secret, "key", e.of.key, "namespace", r.namespace, "error", err)
		x.wakeAll(e, r.namespace)
	}
}

// seen wakes the control plane of a tenant.
func (x *externals) seen(e *external, namespace, tenant string) {
	x.mu.Lock()
	defer x.mu.Unlock()
	for key, m := range e.members {
		if m.tenant == (types.NamespacedName{Namespace: namespace, Name: tenant}) {
			x.wake(key, loop.Wake{Kind: wakeSeen})
			return
		}
	}
}

// sources are the clusters there are, in order.
func (x *externals) sources() []source {
	return slices.SortedFunc(maps.Keys(x.all), func(a, b source) int { return strings.Compare(a.String(), b.String()) })
}

// patience is how long is waited between attempts that fail.
func patience() wait.Backoff {
	return wait.Backoff{Duration: 200 * time.Millisecond, Factor: 2, Jitter: 0.5, Steps: 20, Cap: 30 * time.Second}
}

// sleep waits; it returns false when ctx ends.
func sleep(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-t.C:
		return true
	}
}
