// Package workload exposes each tenant's control plane and rolls out its pods.
//
// It wakes on intake.accepted (the Service, and with it the endpoint), certs.issued, certs.rotated and
// datastore.provisioned (the Deployment), changes of its Services, Deployments, Ingresses and TLSRoutes, a freed rollout
// slot, pods that have not become ready and objects that have been denied after a while, intake.deleting and
// addons.removed. It tells workload.exposed, .available, .upgraded, .degraded, .slept, .failed and .removed.
//
// Files: render.go, kine.go, args.go and probes.go say what the objects must be, endpoint.go where a tenant is reached, route.go what
// leads there, rollout.go how a rollout stands, reason.go why it doesn't get on, refused.go why the API server doesn't take
// an object; watch.go and sight.go tell drift from echoes, slots.go paces rollouts, remove.go takes everything away.
package workload

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/sync/errgroup"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/stoker-k8s/stoker/pkg/api/event"
	"github.com/stoker-k8s/stoker/pkg/api/name"
	"github.com/stoker-k8s/stoker/pkg/api/state"
	"github.com/stoker-k8s/stoker/pkg/api/v1alpha1"
	"github.com/stoker-k8s/stoker/pkg/events"
	"github.com/stoker-k8s/stoker/pkg/kube"
	"github.com/stoker-k8s/stoker/pkg/loop"
	common "github.com/stoker-k8s/stoker/pkg/service"
)

// Config of the service.
type Config struct {
	common.Config
	// MaxRollouts is how many tenants may start pods at once per replica, a number of at least 1. Empty means 1.5 per core,
	// at least 2. On a cluster whose nodes have room for more it can be more: the pods start there, not here.
	MaxRollouts string
	// KineImage is the image of kine, which runs beside the API server on other databases than etcd; empty for
	// DefaultKineImage. Another one rolls out the tenants that run kine and don't say an image themselves.
	KineImage string
}

// Reasons for wakes.
const (
	wakeObject = "object"
	wakeSlot   = "slot"
	wakeLook   = "look"
	// wakeAsk is for another try of an object that was denied, wakeGone for a tenant whose objects are missing.
	wakeAsk  = "ask"
	wakeGone = "gone"
)

// Pods that aren't ready are asked why once they have been waited for this long, and then each time this has passed.
const (
	lookAfter = 8 * time.Second
	lookEvery = 15 * time.Second
)

type svc struct {
	kube   *kube.Client
	log    *slog.Logger
	now    func() time.Time
	sights sights
	slots  *slots
	// kineImage is that of Config.
	kineImage string
	wake      atomic.Pointer[loop.Waker]
	// askAgain is when an object that was denied is applied again.
	askAgain time.Duration
	// routed is closed when the first TLSRoute is there: before that there may be no such kind to watch.
	routed    chan struct{}
	closeOnce sync.Once
}

// Run works until ctx ends. It returns early only with an error that no waiting helps. Safe to run several times in a
// process.
func Run(ctx context.Context, cfg Config) error {
	rollouts := defaultRollouts()
	if cfg.MaxRollouts != "" {
		n, err := strconv.Atoi(cfg.MaxRollouts)
		if err != nil || n < 1 {
			return fmt.Errorf("max-rollouts %q: must be a number of at least 1", cfg.MaxRollouts)
		}
		rollouts = n
	}
	return common.Run(ctx, cfg.Config, func(c *common.Clients) (*loop.Loop, error) {
		s := newService(c.Kube, c.Log, rollouts)
		s.kineImage = cfg.KineImage
		c.Metrics.MustRegister(
			prometheus.NewGaugeFunc(prometheus.GaugeOpts{
				Name: "stoker_workload_rollouts", Help: "Tenants whose pods are being rolled out.",
			}, func() float64 { held, _ := s.slots.count(); return float64(held) }),
			prometheus.NewGaugeFunc(prometheus.GaugeOpts{
				Name: "stoker_workload_rollouts_waiting", Help: "Tenants that wait for a rollout slot.",
			}, func() float64 { _, waiting := s.slots.count(); return float64(waiting) }),
		)
		return s.loop(c.Bus), nil
	})
}

func newService(client *kube.Client, log *slog.Logger, rollouts int) *svc {
	s := &svc{kube: client, log: log, now: time.Now, askAgain: askAgain, routed: make(chan struct{})}
	s.slots = newSlots(rollouts, func(key events.Key) {
		if wake := s.wake.Load(); wake != nil {
			(*wake)(key, wakeSlot)
		}
	})
	return s
}

func (s *svc) loop(bus *events.Bus) *loop.Loop {
	return &loop.Loop{
		// Who is paused rolls out nothing; its slot is for others.
		Bus: bus, Service: name.ServiceWorkload, Handle: s.handle, Paused: s.slots.free, Watch: s.watch,
	}
}

// inputs are the hashes of what each object was last made from, the Inputs of the own state.
type inputs struct{ service, ingress, deployment, route string }

func (i inputs) String() string {
	return strings.Join([]string{i.service, i.ingress, i.deployment, i.route}, "/")
}

func parseInputs(o *state.State) inputs {
	if o == nil {
		return inputs{}
	}
	parts := append(strings.Split(o.Inputs, "/"), "") // before there were routes, there were three
	if len(parts) < 4 {
		return inputs{}
	}
	return inputs{parts[0], parts[1], parts[2], parts[3]}
}

// turn is one pass for one tenant.
type turn struct {
	*loop.Turn
	s       *svc
	subject Subject
	spec    *v1alpha1.TenantControlPlaneSpec
	// before is the own data as it was read, data as it is to be.
	before, data state.Workload
	in           inputs
	step         string
	tell         []loop.Tell
	// failure is what the rollout suffers from, if that has lasted.
	failure *state.Failure
}

// handle is the one loop of a tenant.
func (s *svc) handle(ctx context.Context, et *loop.Turn) error {
	if !et.Key.IsTenant() {
		return nil
	}
	if et.Tenant == nil {
		et.NoAlarm()
		s.slots.free(et.Key)
		s.sights.forget(et.Key)
		return nil
	}
	t := &turn{Turn: et, s: s, subject: Subject{UID: et.UID, Tenant: et.Tenant}, spec: &et.Tenant.Spec, in: parseInputs(et.Own())}
	if err := et.OwnData(&t.before); err != nil {
		return fmt.Errorf("own state: %w", err)
	}
	t.data = t.before
	if et.Own() != nil {
		t.step = et.Own().Step
	}
	if et.Tenant.Deleting {
		t.NoAlarm()
		return s.remove(ctx, t)
	}

	waiting, err := t.expose(ctx)
	if err == nil && waiting == "" {
		err = t.lead(ctx)
	}
	if err == nil && waiting == "" {
		waiting, err = t.rollOut(ctx)
	}
	return t.end(ctx, waiting, err)
}

// end writes what the turn has come to, unless nothing has changed but versions of objects. After an error it writes what
// is owed to others, without whom it may not pass.
func (t *turn) end(ctx context.Context, waiting string, err error) error {
	if no := (*denied)(nil); errors.As(err, &no) {
		waiting, t.failure, err = no.kind+" to be allowed", &state.Failure{Reason: no.reason, Message: no.message}, nil
		if t.step = event.Exposed; t.data.Endpoint == "" {
			t.step = ""
			t.provisioning()
		}
		t.Alarm(t.s.askAgain, wakeAsk)
	}
	if err != nil {
		if len(t.tell) == 0 {
			return err
		}
		t.step = event.Exposed
	}
	if o := t.Own(); o != nil && len(t.tell) == 0 && o.Generation == t.Generation && o.Step == t.step && o.Waiting == waiting &&
		sameFailure(o.Failure, t.failure) && parseInputs(o) == t.in && sameButVersions(t.before, t.data) {
		return nil
	}
	return errors.Join(t.Done(ctx, loop.Outcome{
		Step: t.step, Inputs: t.in.String(), Waiting: waiting, Data: t.data, Facts: t.tell, Failure: t.failure,
	}), err)
}

func sameFailure(noted, f *state.Failure) bool {
	if noted == nil || f == nil {
		return noted == f
	}
	return noted.Reason == f.Reason && noted.Message == f.Message && noted.Permanent == f.Permanent
}

// sameButVersions reports whether there is nothing new worth a write: resourceVersions alone change with every look of the
// Deployment's controller at it.
func sameButVersions(a, b state.Workload) bool {
	b.ServiceVersion, b.DeploymentVersion = a.ServiceVersion, a.DeploymentVersion
	return hash(a) == hash(b)
}

// expose makes the Service so and decides the endpoint. It returns what is missing for it.
func (t *turn) expose(ctx context.Context) (waiting string, err error) {
	want := Service(t.subject)
	profile := &t.spec.NetworkProfile
	inputs := hash([]any{want, profile.Address, profile.AdvertiseAddress, profile.ServiceCIDRs, publicHostname(&t.spec.ControlPlane)})
	sight := t.s.sights.get(t.Key, service, t.before.ServiceVersion)
	if t.in.service == inputs && !sight.news() {
		t.s.sights.know(t.Key, service, sight.known, 0)
		return "", nil
	}
	live := want.DeepCopy()
	// The API server gives the cluster IP free a moment after it has told that the Service is gone; later it is somebody
	// else's.
	keep := (sight.gone || sight.seen == "") && t.Attempt() < keepAttempts && t.before.ClusterIP != ""
	if keep {
		keepAddresses(live, t.before)
	}
	if err := t.s.kube.Apply(ctx, kube.Services, live); err != nil {
		if keep && apierrors.IsInvalid(err) {
			return "", fmt.Errorf("service asks for the addresses it had: %w", err)
		}
		return "", refused(err, t.spec, want, kube.Services.Kind)
	}
	t.s.sights.know(t.Key, service, live.ResourceVersion, 0)
	t.in.service, t.data.ServiceVersion = inputs, live.ResourceVersion

	e, waiting, err := expose(t.Tenant, live)
	if err != nil {
		return "", err
	}
	if waiting != "" {
		t.in.service, t.step = "", "" // look again when it changes, and at every event
		t.provisioning()
		return waiting, nil
	}
	old := exposure{t.before.Endpoint, t.before.Address, t.before.Port, t.before.ClusterIP, t.before.AdvertiseAddress}
	if e == old {
		return "", nil
	}
	t.data.Endpoint, t.data.Address, t.data.Port, t.data.ClusterIP, t.data.AdvertiseAddress = e.Endpoint, e.Address, e.Port, e.ClusterIP, e.Advertise
	t.provisioning()
	// Certificates are made for it, so it is told before anything else is done.
	t.tell = []loop.Tell{{What: event.Exposed, Data: event.WorkloadExposed{About: t.About(), Endpoint: e.Endpoint}}}
	return "", nil
}

// keepAttempts is how often that is tried, within half a second or so.
const keepAttempts = 3

// keepAddresses has a Service that somebody deleted ask for the addresses it had, so that clients find the tenant where it
// was and its certificate stays good. The next time that the Service is applied the fields go again: what is allocated
// stays, and a load balancer that doesn't know the field, or holds on to it in vain, is free to choose.
func keepAddresses(service *corev1.Service, before state.Workload) {
	service.Spec.ClusterIP = before.ClusterIP
	if _, err := netip.ParseAddr(before.Address); err == nil && service.Spec.Type == corev1.ServiceTypeLoadBalancer {
		service.Spec.LoadBalancerIP = before.Address
	}
}

// provisioning is the phase of a tenant that has none yet.
func (t *turn) provisioning() {
	if t.data.Phase == "" {
		t.data.Phase = string(v1alpha1.VersionProvisioning)
	}
}

// rollOut makes the Deployment so and looks how far it is. It returns what is missing.
func (t *turn) rollOut(ctx context.Context) (waiting string, err error) {
	in := Input{Subject: t.subject, Advertise: t.data.AdvertiseAddress, KineImage: t.s.kineImage}
	waiting, err = t.read(ctx, &in)
	if err != nil || waiting != "" {
		t.step = event.Exposed // of this generation no more is done
		return waiting, err
	}
	want := Deployment(in)
	inputs, config := hash(want), want.Spec.Template.Annotations[name.AnnotationConfigHash]
	sight := t.s.sights.get(t.Key, deployment, t.before.DeploymentVersion)
	// A failure is noted for a generation under the step of an earlier one.
	told := t.Own() != nil && t.Own().Generation == t.Generation && t.Own().Failure == nil

	live := &appsv1.Deployment{}
	apply, repair := t.in.deployment != inputs, false
	if !apply {
		if !sight.news() && told && !t.Woken(wakeLook) && (t.Own().Waiting == "" || strings.HasPrefix(t.Own().Waiting, waitDeployment)) {
			t.s.sights.know(t.Key, deployment, sight.known, sight.generation)
			t.pace()
			if !t.data.WaitingSince.IsZero() {
				t.lookAgain()
			}
			return t.Own().Waiting, nil
		}
		err := t.s.kube.Get(ctx, kube.Deployments, t.Key.Namespace, name.Deployment(t.Key.Name), live)
		if err != nil && !apierrors.IsNotFound(err) {
			return "", err
		}
		// The generation changes with the spec alone, and not with what the Deployment's own controller writes.
		repair = err != nil
		apply = repair || live.Generation != sight.generation || live.DeletionTimestamp == nil && !contains(live, want)
	}
	if apply {
		// What somebody deleted comes back at once, whoever else is rolling out.
		if config != t.before.ConfigHash && desired(want) > 0 && !t.s.slots.take(t.Key) {
			t.step = event.Exposed
			return "a rollout slot", nil
		}
		if repair || t.in.deployment != inputs {
			t.data.LastUpdate = t.s.now().UTC().Truncate(time.Second)
			t.data.WaitingSince = time.Time{} // for other pods
		}
		live = want.DeepCopy()
		if err := t.s.kube.Apply(ctx, kube.Deployments, live); err != nil {
			t.s.slots.free(t.Key)
			return "", refused(err, t.spec, want, kube.Deployments.Kind)
		}
		t.in.deployment = inputs
	}
	t.s.sights.know(t.Key, deployment, live.ResourceVersion, live.Generation)

	v := judge(t.spec, t.data, t.step, told, live)
	t.step, t.data = v.Step, v.Data
	t.data.Overrides = usedBy(v.Step, t.before.Overrides, &in.Datastore)
	t.data.Credentials = inUse(v.Step, t.before.Credentials, []string{in.Datastore.Certificate.Checksum})
	for _, what := range v.Tell {
		t.tell = append(t.tell, loop.Tell{What: what, Data: t.payload(what, v)})
	}
	t.pace()
	return t.look(ctx, v), nil
}

// look says what the rollout waits for, and once it has waited for a while asks the pods why. Their answer is for people
// alone: nothing else waits for it.
func (t *turn) look(ctx context.Context, v verdict) (waiting string) {
	if !v.Starting {
		t.data.WaitingSince = time.Time{}
		t.NoAlarm()
		return v.Waiting
	}
	now := t.s.now().UTC()
	if t.data.WaitingSince.IsZero() {
		t.data.WaitingSince = now.Truncate(time.Second)
	}
	waited := now.Sub(t.data.WaitingSince)
	t.lookAgain()
	var said cause
	if waited >= lookAfter {
		var pods corev1.PodList
		err := t.s.kube.List(ctx, kube.Pods, t.Key.Namespace, labels.FormatLabels(name.Selector(t.Key.Name)), &pods)
		if err == nil {
			said = why(pods.Items, t.data.ConfigHash)
		} else if !kube.IsAway(err) && ctx.Err() == nil {
			t.s.log.Warn("could not list pods to see why they aren't ready", "tenant", t.Key.String(), "generation", t.Generation, "error", err)
		}
	}
	waiting, t.failure = blame(v, said, waited)
	return waiting
}

// lookAgain sees to it that pods that aren't ready are looked at again though no watch tells anything.
func (t *turn) lookAgain() {
	if left := lookAfter - t.s.now().Sub(t.data.WaitingSince); left > 0 {
		t.Alarm(left, wakeLook)
		return
	}
	t.Alarm(lookEvery, wakeLook)
}

// read collects what the other services have made, or says what is missing.
func (t *turn) read(ctx context.Context, in *Input) (waiting string, err error) {
	var certs, datastore *state.State
	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() (err error) {
		certs, err = t.Read(ctx, name.ServiceCerts, &in.Certs)
		return err
	})
	g.Go(func() (err error) {
		datastore, err = t.Read(ctx, name.ServiceDatastore, &in.Datastore)
		return err
	})
	if err := g.Wait(); err != nil {
		return "", err
	}
	if waiting = missing(t.Generation, certs, &in.Certs, datastore, &in.Datastore); waiting == "" && !overridden(t.spec, &in.Datastore) {
		waiting = "datastore: the DataStores of dataStoreOverrides"
	}
	return waiting, nil
}

// payload of a fact about the rollout.
func (t *turn) payload(what string, v verdict) any {
	if what == event.Upgraded {
		return event.WorkloadUpgraded{About: t.About(), From: v.From, To: t.data.Version}
	}
	return event.WorkloadAvailable{
		About: t.About(), Version: t.data.Version, Replicas: t.data.Replicas, ReadyReplicas: t.data.ReadyReplicas,
		ConfigHash: t.data.ConfigHash,
	}
}

// pace holds the tenant's slot while its pods start, for as long as slotTime, and else gives it back.
func (t *turn) pace() {
	starting := t.step != event.Available && t.step != event.Slept && t.data.ConfigHash != "" && !sleeps(t.spec)
	if left := slotTime - t.s.now().Sub(t.data.LastUpdate); starting && left > 0 {
		t.s.slots.keep(t.Key, left)
		return
	}
	t.s.slots.free(t.Key)
}

// contains reports whether an object still has the labels, annotations and owner that it must have.
func contains(live, want metav1.Object) bool {
	for key, value := range want.GetLabels() {
		if live.GetLabels()[key] != value {
			return false
		}
	}
	for key, value := range want.GetAnnotations() {
		if live.GetAnnotations()[key] != value {
			return false
		}
	}
	owner := metav1.GetControllerOf(live)
	return owner != nil && owner.UID == metav1.GetControllerOf(want).UID
}
