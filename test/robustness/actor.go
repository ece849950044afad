package robustness

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/stoker-k8s/stoker/pkg/api/event"
	"github.com/stoker-k8s/stoker/pkg/api/name"
	"github.com/stoker-k8s/stoker/pkg/api/v1alpha1"
	"github.com/stoker-k8s/stoker/pkg/events"
	"github.com/stoker-k8s/stoker/pkg/kube"
	"github.com/stoker-k8s/stoker/pkg/portal"
)

// namespace of all tenants.
const namespace = "default"

// markLabel is put on a tenant's Deployment through its spec; its value tells from which change the Deployment comes.
const markLabel = "robustness.stoker.dev/mark"

// Kubernetes versions of tenants, in the order in which they can be upgraded.
var versions = []string{"v1.35.4", "v1.36.3"}

// answerWithin is after how long a change counts as unanswered; no fault lasts so long.
const answerWithin = 15 * time.Minute

// way is how an actor changes objects: a portal's commands or kubectl's requests. Its methods return when the change is known to be
// carried out or refused, whatever is away meanwhile, or when ctx ends.
type way interface {
	// change asks for a verb; spec is the tenant as it shall be, for verbs that need it. refused says why the change was refused.
	change(ctx context.Context, id, verb string, tenant *v1alpha1.TenantControlPlane, uid string) (after event.About, refused string, err error)
}

// Actor changes its own tenants, one change after the other, as its seed says. Nobody else changes them, so that it knows what they
// must come to.
type Actor struct {
	name    string
	way     way
	random  *rand.Rand
	history *History
	tenants []*tenant
	changes int
	// verbs are what it does with a tenant that is there and not paused; all that fit if empty.
	verbs []string
	// within is after how long a change counts as unanswered; answerWithin if 0.
	within time.Duration
	// seldomProbed has the pods of its tenants be probed less often, where there are hundreds of them.
	seldomProbed bool
}

// tenant is what an actor knows of one of its tenants.
type tenant struct {
	name    string
	exists  bool
	uid     string
	mark    string // of the last change that was carried out
	version int    // index into versions
	store   string // the DataStore that it chose; empty for none
	only    string // the one that it always chooses; empty for any
	asleep  bool
	paused  bool
	images  string // where CoreDNS's image comes from
	broken  bool   // what it shall hold can't be made
}

func newActor(name string, w way, seed uint64, tenants int, h *History) *Actor {
	a := &Actor{name: name, way: w, random: rand.New(rand.NewPCG(seed, uint64(len(name)))), history: h}
	for i := range tenants {
		a.tenants = append(a.tenants, &tenant{name: fmt.Sprintf("%s-%d", name, i)})
	}
	return a
}

// Run changes tenants until ctx ends, and then brings each to an end that can be checked: not paused.
func (a *Actor) Run(ctx context.Context, pause time.Duration) {
	for ctx.Err() == nil {
		t := a.tenants[a.random.IntN(len(a.tenants))]
		wait := time.Duration(a.random.Int64N(int64(2 * pause)))
		select {
		case <-ctx.Done():
		case <-time.After(wait):
			a.step(context.WithoutCancel(ctx), t, a.next(t))
		}
	}
}

// Finish ends pauses and notes what every tenant must come to.
func (a *Actor) Finish(ctx context.Context) {
	for _, t := range a.tenants {
		if t.exists && t.paused {
			a.step(ctx, t, event.Resume)
		}
		expected := Record{Kind: Expected, By: a.name, Tenant: namespace + "/" + t.name, UID: t.uid, Mark: t.mark}
		switch {
		case !t.exists:
			expected.What = "Deleted"
		case t.asleep:
			expected.What = "Sleeping"
		default:
			expected.What = "Ready"
		}
		a.history.Add(expected)
	}
}

// Verbs beside those of commands.
const (
	verbUpgrade = "upgrade"
	// verbSpoil asks for what must be refused.
	verbSpoil = "spoil"
	// verbAddons changes what the tenant holds, and nothing of its pods.
	verbAddons = "addons"
	// verbPoison asks for what is accepted and can't be made, verbCure ends that.
	verbPoison = "poison"
	verbCure   = "cure"
)

// next chooses a change that fits a tenant.
func (a *Actor) next(t *tenant) string {
	if !t.exists {
		return event.Apply
	}
	choose := func(verbs ...string) string { return verbs[a.random.IntN(len(verbs))] }
	if t.paused {
		return choose(event.Resume, event.Resume, event.Apply, verbSpoil)
	}
	if len(a.verbs) > 0 {
		return choose(a.verbs...)
	}
	verbs := []string{event.Apply, event.Apply, event.Apply, verbSpoil, event.Pause, event.Delete, event.Delete}
	if t.asleep {
		return choose(append(verbs, event.Wake, event.Wake, event.Wake)...)
	}
	if t.version+1 < len(versions) {
		verbs = append(verbs, verbUpgrade)
	}
	return choose(append(verbs, event.Sleep)...)
}

// choose chooses a DataStore for a tenant that is to be made.
func (a *Actor) choose(t *tenant) string {
	if t.only != "" {
		return t.only
	}
	return []string{"", otherStore}[a.random.IntN(2)]
}

// step asks for a change and notes what became of it.
func (a *Actor) step(ctx context.Context, t *tenant, verb string) {
	a.changes++
	id := fmt.Sprintf("%s-%d", a.name, a.changes)
	want := *t
	asked := verb
	switch verb {
	case event.Apply:
		if !t.exists {
			want = tenant{name: t.name, version: a.random.IntN(len(versions)), store: a.choose(t), only: t.only}
		}
		want.exists, want.mark = true, id
	case verbUpgrade:
		want.version, want.mark, verb = t.version+1, id, event.Apply
	case verbSpoil:
		want.mark, verb = id, event.Apply
	case verbAddons:
		want.images, verb = "registry.example/"+id, event.Apply
	case verbPoison, verbCure:
		want.broken, want.mark, verb = asked == verbPoison, id, event.Apply
	case event.Delete:
		want = tenant{name: t.name, only: t.only}
	case event.Sleep:
		want.asleep = true
	case event.Wake:
		want.asleep = false
	case event.Pause:
		want.paused = true
	case event.Resume:
		want.paused = false
	}
	object := want.object()
	if a.seldomProbed {
		object.Spec.ControlPlane.Deployment.Probes = &v1alpha1.ControlPlaneProbes{
			Readiness: &v1alpha1.ProbeSpec{PeriodSeconds: new(int32(20))}, Liveness: &v1alpha1.ProbeSpec{PeriodSeconds: new(int32(60))},
		}
	}
	if asked == verbSpoil {
		object.Spec.NetworkProfile.Port = 70000
	}
	record := Record{Kind: Asked, By: a.name, Tenant: namespace + "/" + t.name, UID: t.uid, What: asked, Mark: object.mark(), ID: id}
	a.history.Add(record)
	ctx, cancel := context.WithTimeout(ctx, cmp.Or(a.within, answerWithin))
	defer cancel()
	after, refused, err := a.way.change(ctx, id, verb, &object.TenantControlPlane, t.uid)
	record.UID, record.Generation, record.At = after.UID, after.Generation, time.Time{}
	switch {
	case err != nil:
		record.Kind, record.Detail = Unanswered, err.Error()
	case refused != "":
		record.Kind, record.Detail = Refused, refused
	default:
		record.Kind = Answered
		*t = want
		if t.exists {
			t.uid = after.UID
		}
	}
	a.history.Add(record)
}

// tenantObject is a TenantControlPlane with a mark.
type tenantObject struct{ v1alpha1.TenantControlPlane }

func (o *tenantObject) mark() string {
	return o.Spec.ControlPlane.Deployment.AdditionalMetadata.Labels[markLabel]
}

// object of a tenant as it shall be.
func (t *tenant) object() *tenantObject {
	o := &tenantObject{}
	data := fmt.Sprintf(`{"apiVersion":"kamaji.clastix.io/v1alpha1","kind":"TenantControlPlane",
		"metadata":{"name":%q,"namespace":%q},
		"spec":{"controlPlane":{"deployment":{"additionalMetadata":{"labels":{%q:%q}}},"service":{"serviceType":"LoadBalancer"}},
		"kubernetes":{"version":%q,"kubelet":{}},"networkProfile":{"port":6443},"addons":{"coreDNS":{}}}}`,
		t.name, namespace, markLabel, t.mark, versions[t.version])
	if err := json.Unmarshal([]byte(data), o); err != nil {
		panic(err)
	}
	o.Spec.Addons.CoreDNS.ImageRepository = t.images
	if t.broken { // which no rule sees
		o.Spec.Kubernetes.Kubelet.ConfigurationJSONPatches = []v1alpha1.JSONPatch{{Op: "remove", Path: "/there/is/none"}}
	}
	o.Spec.DataStore = t.store
	return o
}

// byPortal changes tenants by commands.
type byPortal struct{ client *portal.Client }

func (p byPortal) change(ctx context.Context, id, verb string, o *v1alpha1.TenantControlPlane, _ string) (event.About, string, error) {
	key := events.Tenant(o.Namespace, o.Name)
	var accepted portal.Accepted
	var err error
	switch verb {
	case event.Apply:
		accepted, err = p.client.Apply(ctx, o, portal.ID(id))
	case event.Delete:
		accepted, err = p.client.Delete(ctx, key, portal.ID(id))
	case event.Sleep:
		accepted, err = p.client.Sleep(ctx, key, portal.ID(id))
	case event.Wake:
		accepted, err = p.client.Wake(ctx, key, portal.ID(id))
	case event.Pause:
		accepted, err = p.client.Pause(ctx, key, time.Time{}, portal.ID(id))
	case event.Resume:
		accepted, err = p.client.Resume(ctx, key, portal.ID(id))
	}
	var refused *portal.RefusedError
	if errors.As(err, &refused) {
		if verb == event.Delete && refused.Has("NotFound") {
			return refused.About, "", nil // it was carried out, and the note of it was lost with all that NATS held
		}
		return refused.About, refused.Error(), nil
	}
	return accepted.About, "", err
}

// byKubectl changes the objects themselves, as kubectl and GitOps do.
type byKubectl struct{ client *kube.Client }

func (k byKubectl) change(ctx context.Context, _, verb string, o *v1alpha1.TenantControlPlane, uid string) (event.About, string, error) {
	for {
		about, err := k.try(ctx, verb, o, uid)
		switch {
		case err == nil:
			return about, "", nil
		case apierrors.IsInvalid(err), apierrors.IsForbidden(err), apierrors.IsBadRequest(err), apierrors.IsConflict(err):
			return about, err.Error(), nil
		}
		select { // the API server is away: the same again, which changes nothing if it was carried out
		case <-ctx.Done():
			return about, "", errors.Join(ctx.Err(), err)
		case <-time.After(500 * time.Millisecond):
		}
	}
}

func (k byKubectl) try(ctx context.Context, verb string, o *v1alpha1.TenantControlPlane, uid string) (event.About, error) {
	var now metav1.PartialObjectMetadata
	var err error
	patch := func(p map[string]any) {
		err = k.client.MergePatch(ctx, kube.TenantControlPlanes, o.Namespace, o.Name, p, &now)
	}
	annotate := func(value any) {
		patch(map[string]any{"metadata": map[string]any{"annotations": map[string]any{name.AnnotationPaused: value}}})
	}
	replicas := func(n int) {
		patch(map[string]any{"spec": map[string]any{"controlPlane": map[string]any{"deployment": map[string]any{"replicas": n}}}})
	}
	switch verb {
	case event.Apply:
		if uid == "" { // one of this name that is being deleted would take the change with it
			err = k.client.Get(ctx, kube.TenantControlPlanes, o.Namespace, o.Name, &now)
			if !apierrors.IsNotFound(err) && (err != nil || now.DeletionTimestamp != nil) {
				return event.About{}, errors.Join(err, errors.New("still there"))
			}
		}
		var body []byte
		if body, err = json.Marshal(o); err == nil {
			err = k.client.ApplyRaw(ctx, kube.TenantControlPlanes, o.Namespace, o.Name, body, &now)
		}
	case event.Delete:
		id := types.UID(uid)
		_, err = k.client.Delete(ctx, kube.TenantControlPlanes, o.Namespace, o.Name, metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &id}})
		now.UID = id
	case event.Sleep:
		replicas(0)
	case event.Wake:
		replicas(1)
	case event.Pause:
		annotate("true")
	case event.Resume:
		annotate(nil)
	}
	return event.About{Namespace: o.Namespace, Name: o.Name, UID: string(now.UID), Generation: now.Generation}, err
}
