package tenantaddons

// The connection to a tenant, and what is known of the releases in it. It ends with the partition, the kubeconfig, or the last AddonRelease.

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"maps"
	"net"
	"reflect"
	"slices"
	"strconv"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"

	"github.com/stoker-k8s/stoker/pkg/api/event"
	"github.com/stoker-k8s/stoker/pkg/api/name"
	"github.com/stoker-k8s/stoker/pkg/api/state"
	"github.com/stoker-k8s/stoker/pkg/api/tenantaddon"
	"github.com/stoker-k8s/stoker/pkg/events"
	"github.com/stoker-k8s/stoker/pkg/fence"
	"github.com/stoker-k8s/stoker/pkg/kube"
	"github.com/stoker-k8s/stoker/pkg/loop"
	"github.com/stoker-k8s/stoker/services/tenantaddons/internal/release"
	"github.com/stoker-k8s/stoker/services/tenantaddons/internal/source"
)

// tenant is the connection to a tenant. It is safe for concurrent use.
type tenant struct {
	cluster *release.Cluster
	route   *kube.Route
	// access is the checksum of the Secret that the kubeconfig is from, field the key in it, at where the API is reached from outside.
	access, field, at string

	mu sync.Mutex
	// job is what is being installed or removed, nil for nothing; done what came of those that nobody has asked for since, by AddonReleases.
	job  *job
	done map[types.NamespacedName]*job
	// attempts are the last ones of what AddonReleases ask, by their names; in is what is installed.
	attempts map[types.NamespacedName]attempt
	in       map[types.NamespacedName]*release.Installed
	// values are the inputs that came of rendering values.
	values map[types.NamespacedName]rendering
	// end ends the watch and waits for it, nil while there is none; watched is what it was begun for.
	end     func()
	watched []*release.Installed
	closed  bool
	// broken says that the watch can't go on with this kubeconfig; pause is how long the next connection waits before it says so.
	broken bool
	pause  time.Duration
}

// rendering is what the inputs of an installation came of.
type rendering struct {
	of     *prepared
	tenant source.Tenant
	inputs string
}

// attempt is one to install something.
type attempt struct {
	inputs string
	at     time.Time
	err    error // nil for one that was successful
}

// reach connects to the tenant, or notes why nothing can be done in it.
func (w *work) reach(ctx context.Context) error {
	t := w.turn
	if t.Tenant == nil { // intake writes it, and tells
		w.away = &badError{tenantaddon.ReasonTenantUnavailable, "the tenant isn't accepted yet"}
		return nil
	}
	if t.Tenant.Sleeps() {
		w.drop(t.Key)
		w.away = &badError{tenantaddon.ReasonTenantAsleep, "the tenant sleeps"}
		return nil
	}
	var certs state.Certs
	var workload state.Workload
	if _, err := t.Read(ctx, name.ServiceCerts, &certs); err != nil {
		return err
	}
	if _, err := t.Read(ctx, name.ServiceWorkload, &workload); err != nil {
		return err
	}
	inside, err := t.Read(ctx, name.ServiceAddons, nil)
	if err != nil {
		return err
	}
	access := certs.Secrets[name.ComponentAdminKubeconfig].Checksum
	if access == "" || workload.Endpoint == "" || workload.ReadyReplicas == 0 || inside == nil || inside.Step != event.Applied {
		w.away = &badError{tenantaddon.ReasonTenantUnavailable, "the tenant's control plane isn't ready yet"}
		return nil
	}
	w.in, err = w.connect(ctx, t.Tenant, workload, access)
	if no := (*badError)(nil); errors.As(err, &no) {
		w.in, w.away = nil, no
		return nil
	}
	return err
}

// connect returns the connection to the tenant, a new one when its kubeconfig is another.
func (s *svc) connect(ctx context.Context, t *state.Tenant, workload state.Workload, access string) (*tenant, error) {
	key := events.Tenant(t.Namespace, t.Name)
	chosen := t.Annotations[name.AnnotationKubeconfigSecretKey]
	field, wanted := cmp.Or(chosen, name.KeySuperAdminConf), kube.WantedWay(chosen)
	ways := kube.WaysTo(t, workload)
	s.mu.Lock()
	c := s.tenants[key]
	s.mu.Unlock()
	pause := watchPause
	if c != nil && c.isBroken() {
		pause = min(2*c.pause, longestWatchPause)
	} else if c != nil && c.access == access && c.field == field && c.at == workload.Endpoint && c.route.Wanted() == wanted {
		c.route.Lead(ways)
		return c, nil
	}
	s.drop(key)
	secret, of := &corev1.Secret{}, name.AdminKubeconfig(t.Name)
	err := s.kube.Get(ctx, kube.Secrets, t.Namespace, of, secret)
	if apierrors.IsNotFound(err) || err == nil && len(secret.Data[field]) == 0 {
		return nil, bad(tenantaddon.ReasonTenantUnavailable, "Secret %s has no key %s yet", of, field)
	}
	if err != nil {
		return nil, err
	}
	route := kube.NewRoute(ways, wanted, "", nil)
	cluster, err := release.Open(secret.Data[field], kube.Options{Requests: s.requests, Ways: route.Ways()})
	if err != nil {
		return nil, bad(tenantaddon.ReasonTenantUnavailable, "Secret %s, key %s: %s", of, field, err)
	}
	c = &tenant{
		cluster: cluster, route: route, access: access, field: field, at: workload.Endpoint, pause: pause, attempts: map[types.NamespacedName]attempt{},
		in: map[types.NamespacedName]*release.Installed{}, values: map[types.NamespacedName]rendering{}, done: map[types.NamespacedName]*job{},
	}
	s.mu.Lock()
	held := slices.Contains(s.held, key.Partition())
	if held {
		s.tenants[key] = c
	}
	s.mu.Unlock()
	if !held { // the partition went meanwhile: nobody would end the connection
		cluster.Close()
		return nil, fence.ErrFenced
	}
	return c, nil
}

// keep notes which partitions are held. It ends the connections to tenants in others than those that stayed, and forgets the TenantAddons of
// these: another replica may have worked on them meanwhile.
func (s *svc) keep(held, stayed []int) {
	s.mu.Lock()
	s.held = held
	var gone []events.Key
	for key := range s.tenants {
		if !slices.Contains(stayed, key.Partition()) {
			gone = append(gone, key)
		}
	}
	lost := func(of types.NamespacedName) bool {
		return !slices.Contains(stayed, events.TenantAddon(of.Namespace, of.Name).Partition())
	}
	maps.DeleteFunc(s.told, func(of types.NamespacedName, _ tenantaddon.TenantAddonStatus) bool { return lost(of) })
	maps.DeleteFunc(s.known, func(of types.NamespacedName, _ map[types.NamespacedName]*known) bool { return lost(of) })
	maps.DeleteFunc(s.planned, func(of types.NamespacedName, _ time.Time) bool { return lost(of) })
	clear(s.prepared) // made anew for whoever needs it
	s.mu.Unlock()
	for _, key := range gone {
		s.drop(key)
	}
}

// drop ends the connection to a tenant, if there is one.
func (s *svc) drop(key events.Key) {
	s.mu.Lock()
	c := s.tenants[key]
	delete(s.tenants, key)
	s.mu.Unlock()
	if c != nil {
		c.close()
	}
}

// endpoint is where the tenant's API is reached from outside.
func (c *tenant) endpoint() (endpoint, host string, port int) {
	host, text, err := net.SplitHostPort(c.at)
	if err != nil {
		return c.at, c.at, 0
	}
	port, _ = strconv.Atoi(text)
	return c.at, host, port
}

// tries notes an attempt.
func (c *tenant) tries(of types.NamespacedName, inputs string, at time.Time, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.attempts[of] = attempt{inputs, at, err}
}

// last is the last attempt, zero for none.
func (c *tenant) last(of types.NamespacedName) attempt {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.attempts[of]
}

// rendered are the inputs that came of these before, so that no template is run while nothing changes; render notes them.
func (c *tenant) rendered(of types.NamespacedName, p *prepared, t source.Tenant) (inputs string, known bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	r := c.values[of]
	return r.inputs, r.of == p && reflect.DeepEqual(r.tenant, t)
}

func (c *tenant) render(of types.NamespacedName, p *prepared, t source.Tenant, inputs string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.values[of] = rendering{p, t, inputs}
}

// known is what is installed for an AddonRelease, as far as is known; nil for nothing.
func (c *tenant) known(of types.NamespacedName) *release.Installed {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.in[of]
}

// put notes what is installed for an AddonRelease; take forgets it.
func (c *tenant) put(of types.NamespacedName, in *release.Installed) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.in[of] = in
}

func (c *tenant) take(of types.NamespacedName) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.in, of)
	delete(c.values, of)
}

// isBroken reports whether the connection can't be used any more.
func (c *tenant) isBroken() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.broken
}

// close ends the connection and waits for its watch to end.
func (c *tenant) close() {
	c.mu.Lock()
	c.closed = true
	end, j := c.end, c.job
	c.end, c.job = nil, nil
	c.mu.Unlock()
	if end != nil {
		end()
	}
	if j != nil {
		j.cancel()
		<-j.done
	}
	c.cluster.Close()
}

// follow watches what is installed in the tenant, if that isn't watched already.
func (w *work) follow(all []*one) {
	if w.in == nil {
		return
	}
	var wanted []*release.Installed
	for _, a := range all {
		if in := w.in.known(a.of); in != nil && a.gone == nil {
			wanted = append(wanted, in)
		}
	}
	c, key := w.in, w.turn.Key
	c.mu.Lock()
	end := c.end
	if c.closed || end != nil && slices.Equal(c.watched, wanted) {
		c.mu.Unlock()
		return
	}
	c.end = nil
	c.mu.Unlock()
	if end != nil {
		end()
	}
	if len(wanted) == 0 {
		return
	}
	w.mu.Lock()
	wake := w.wake
	w.mu.Unlock()
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed || wake == nil { // meanwhile
		cancel()
		return
	}
	c.end, c.watched = func() { cancel(); <-done }, wanted
	go func() {
		defer close(done)
		c.watch(ctx, wanted, w.log, func() { wake(key, loop.Wake{Kind: wakeInside}) })
	}()
}

// watch watches until ctx ends, or the tenant's API refuses to be watched; then it notes that, and wakes.
func (c *tenant) watch(ctx context.Context, all []*release.Installed, log *slog.Logger, wake func()) {
	err := c.cluster.Watch(ctx, all, func(release.Event) { wake() })
	if ctx.Err() != nil {
		return
	}
	log.Warn("watch inside the tenant ended, beginning again", "at", c.at, "in", c.pause, "error", err)
	again := time.NewTimer(c.pause)
	defer again.Stop()
	select {
	case <-ctx.Done():
		return
	case <-again.C:
	}
	c.mu.Lock()
	c.broken = true
	c.mu.Unlock()
	wake()
}
