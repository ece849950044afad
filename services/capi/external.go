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
	"regexp"
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

// source is where the kubeconfig of an external cluster is: a key of a Secret.
type source struct{ namespace, secret, key string }

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
	// held are the partitions that this replica holds, visits how many turns ask any cluster now.
	held   []int
	visits int
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
	uid       types.UID // of the namespace
	// up is nil until the cluster has answered, and ended, by down, once it doesn't any more. err says why not.
	up    context.Context
	since time.Time // when up began
	down  context.CancelCauseFunc
	err   error
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

// errPending means that a cluster can't be visited yet: it isn't known whether it answers, or enough turns visit clusters now. The control
// plane is woken when that changes.
var errPending = errors.New("the cluster can't be visited yet")

// visit is a turn that may ask a cluster.
type visit struct {
	x      *externals
	e      *external
	client *kube.Client
	up     context.Context // ends when the cluster turns out not to answer
	uid    types.UID       // of the namespace
	member *member
}

// enter has a control plane be of a cluster, with its tenant at a place there, and begins a visit, which must be left. [heldError] while
// that isn't possible: the control plane is woken when it may be; errPending.
func (x *externals) enter(key events.Key, of source, tenant types.NamespacedName) (*visit, error) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.start == nil || !slices.Contains(x.held, key.Partition()) {
		return nil, errPending
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
		return nil, errPending
	case !e.usable(key): // whether there is such a Secret is no business of that namespace then
		return nil, cannot("Secret %s/%s may not be used from namespace %s: its annotation %s must name that namespace",
			of.namespace, of.secret, key.Namespace, name.AnnotationUsableFrom)
	case e.err != nil:
		return nil, cannot("%s", e.err)
	}
	r := e.conn.rooms[tenant.Namespace]
	switch {
	case r.up == nil && r.err == nil:
		return nil, errPending
	case r.up == nil:
		return nil, unreached("%s", r.err)
	case r.up.Err() != nil: // whether it answers again is found out now
		return nil, errPending
	case e.visits >= maxVisits || x.visits >= maxVisitsInAll:
		if !slices.Contains(e.queued, key) {
			e.queued = append(e.queued, key)
		}
		return nil, errPending
	}
	e.visits++
	x.visits++
	return &visit{x: x, e: e, client: e.conn.client, up: r.up, uid: r.uid, member: m}, nil
}

func unreached(message string, args ...any) error {
	return &heldError{controlplane.ReasonClusterUnreachable, "the cluster can't be asked now: " + state.ClipMessage(fmt.Sprintf(message, args...))}
}

// leave ends a visit, and has the next control plane have its turn: one of the same cluster, or of another.
func (v *visit) leave() {
	x := v.x
	x.mu.Lock()
	defer x.mu.Unlock()
	v.e.visits--
	x.visits--
	if x.next(v.e) {
		return
	}
	for _, e := range x.all {
		if e.visits < maxVisits && x.next(e) {
			return
		}
	}
}

// next wakes the control plane that has waited longest to visit a cluster; false for none.
func (x *externals) next(e *external) bool {
	if len(e.queued) == 0 {
		return false
	}
	x.wake(e.queued[0], loop.Wake{Kind: wakeSeen})
	e.queued = e.queued[1:]
	return true
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
	x.held = partitions
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
	e.queued = slices.DeleteFunc(e.queued, func(k events.Key) bool { return k == key })
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
			if err := x.kube.WatchNamed(ctx, kube.Secrets, e.of.namespace, e.of.secret, func(kube.Change) { signal() }); err != nil {
				x.log.Warn("Secret of an external cluster not watched", "secret", e.of.namespace+"/"+e.of.secret, "error", err)
				signal()
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

// connect makes the connection of a cluster so: by a kubeconfig, or none because of an error. It is called by the goroutine that follows
// the cluster.
func (x *externals) connect(ctx context.Context, e *external, secret *corev1.Secret, kubeconfig []byte, err error) {
	hash := sha256.Sum256(kubeconfig)
	if secret != nil {
		x.mu.Lock()
		e.usableFrom = strings.FieldsFunc(secret.Annotations[name.AnnotationUsableFrom], func(r rune) bool { return r == ',' || r == ' ' })
		same := err == nil && e.conn != nil && e.conn.hash == hash
		if same {
			x.furnish(e)
			x.wakeAll(e, "")
		}
		x.mu.Unlock()
		if same {
			return
		}
	}
	var c *connection
	if err == nil {
		if c, err = x.connection(ctx, e, kubeconfig); err != nil {
			err = fmt.Errorf("key %s of Secret %s/%s: %w", e.of.key, e.of.namespace, e.of.secret, err)
		}
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	if old := e.conn; old != nil {
		old.end()
		x.wg.Go(func() { old.wg.Wait(); old.client.Close() })
	}
	e.conn, e.err = c, err
	if ctx.Err() == nil {
		x.furnish(e)
		x.wakeAll(e, "")
	}
}

// connection is one by a kubeconfig, of which nothing is watched yet.
func (x *externals) connection(ctx context.Context, e *external, kubeconfig []byte) (*connection, error) {
	c := &connection{hash: sha256.Sum256(kubeconfig), rooms: map[string]*room{}}
	client, err := kube.ForCluster(kubeconfig, kube.Options{FieldManager: name.FieldManagerCAPI, Requests: x.requests})
	if err != nil {
		return nil, err
	}
	c.client = client.Observed(func(away error) {
		if away != nil && !busy(away) {
			x.away(c, away)
		}
	})
	ctx, c.end = context.WithCancel(ctx)
	c.watch = func(r *room) {
		ctx, end := context.WithCancel(ctx)
		r.end = end
		c.wg.Go(func() { x.watchRoom(ctx, e, c, r) })
	}
	return c, nil
}

// busy reports an error by which a server that is there answers to one request, and which may be that one's own doing.
func busy(err error) bool {
	return apierrors.IsTooManyRequests(err) || apierrors.IsTimeout(err) || apierrors.IsServerTimeout(err)
}

// away hears that a cluster doesn't answer.
func (x *externals) away(c *connection, err error) {
	x.mu.Lock()
	defer x.mu.Unlock()
	for _, r := range c.rooms {
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
		uid, err := look(up, c.client, r.namespace)
		if err == nil {
			err = c.client.WatchListed(up, kube.TenantControlPlanes, r.namespace, name.LabelComponent+"="+name.ComponentCAPI,
				func(k kube.Change) { x.seen(e, k.Object.Namespace, k.Object.Name) },
				func() { x.opened(up, e, r, uid) })
		}
		if cause := context.Cause(up); cause != nil {
			err = cause
		}
		down(err)
		if ctx.Err() != nil {
			return
		}
		if x.closed(e, r, err) {
			again = patience()
		}
		sleep(ctx, again.Step())
	}
}

// look asks a cluster for the UID of a namespace, by which it is told from others, and for whether it knows tenants.
func look(ctx context.Context, c *kube.Client, namespace string) (types.UID, error) {
	var o metav1.PartialObjectMetadata
	err := c.Get(ctx, kube.Namespaces, "", namespace, &o)
	switch {
	case apierrors.IsNotFound(err):
		return "", fmt.Errorf("namespace %s is not there: make it, or change spec.deployment.externalClusterReference.deploymentNamespace", namespace)
	case apierrors.IsForbidden(err):
		return "", fmt.Errorf("the kubeconfig's user must be allowed to get namespace %s, by which the cluster is told from others: %w", namespace, err)
	case err != nil:
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
	r.up, r.since, r.uid, r.err = up, time.Now(), uid, nil
	x.log.Info("external cluster answers", "secret", e.of.namespace+"/"+e.of.secret, "key", e.of.key, "namespace", r.namespace)
	x.wakeAll(e, r.namespace)
}

// closed notes that a cluster doesn't answer, and has the control planes there say so, and say it again when it has another cause. It
// returns whether the cluster had answered for long.
func (x *externals) closed(e *external, r *room, err error) (steady bool) {
	x.mu.Lock()
	defer x.mu.Unlock()
	steady = r.up != nil && time.Since(r.since) > steadyAfter
	same := r.up == nil && r.err != nil && numbers.ReplaceAllString(r.err.Error(), "") == numbers.ReplaceAllString(err.Error(), "")
	if r.up, r.err = nil, err; !same {
		x.log.Warn("external cluster doesn't answer", "secret", e.of.namespace+"/"+e.of.secret, "key", e.of.key, "namespace", r.namespace, "error", err)
		x.wakeAll(e, r.namespace)
	}
	return steady
}

// numbers in an error, such as ports, make it no other one.
var numbers = regexp.MustCompile(`[0-9]+`)

// seen wakes the control planes that a tenant is, or claims to be, the one of.
func (x *externals) seen(e *external, namespace, tenant string) {
	x.mu.Lock()
	defer x.mu.Unlock()
	for key, m := range e.members {
		if m.tenant == (types.NamespacedName{Namespace: namespace, Name: tenant}) {
			x.wake(key, loop.Wake{Kind: wakeSeen})
		}
	}
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
