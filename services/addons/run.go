package addons

// Wakes on workload.available, on a changed desired state, on rotated certificates and on drift inside a tenant. Makes
// kubeadm's objects, CoreDNS and kube-proxy so inside the tenant. Tells addons.applied, addons.repaired, addons.removed.

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/stoker-k8s/stoker/pkg/api/event"
	"github.com/stoker-k8s/stoker/pkg/api/name"
	"github.com/stoker-k8s/stoker/pkg/api/reason"
	"github.com/stoker-k8s/stoker/pkg/api/state"
	"github.com/stoker-k8s/stoker/pkg/events"
	"github.com/stoker-k8s/stoker/pkg/fence"
	"github.com/stoker-k8s/stoker/pkg/intent"
	"github.com/stoker-k8s/stoker/pkg/kube"
	"github.com/stoker-k8s/stoker/pkg/loop"
	"github.com/stoker-k8s/stoker/pkg/service"
)

// Run runs the service until ctx ends.
func Run(ctx context.Context, cfg service.Config) error {
	var s *addons
	err := service.Run(ctx, cfg, func(c *service.Clients) (*loop.Loop, error) {
		s = &addons{clients: c, tenants: map[events.Key]*connection{}}
		return &loop.Loop{
			// Nothing is watched during a pause. What drifts meanwhile is told when the watch starts again, from the versions
			// that are in the state.
			Bus: c.Bus, Service: name.ServiceAddons, Handle: s.handle, Paused: s.drop, Watch: s.watch,
		}, nil
	})
	if s != nil {
		s.keep(nil)
	}
	return err
}

type addons struct {
	clients *service.Clients

	mu      sync.Mutex
	wake    loop.Waker
	tenants map[events.Key]*connection
}

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

	mu    sync.Mutex
	known map[string]string // versions as they should be, by Ref.String()
}

// watch holds the partitions' tenants: those that were looked after by another replica are looked at once.
func (s *addons) watch(ctx context.Context, partitions []int, wake loop.Waker) error {
	s.mu.Lock()
	s.wake = wake
	s.mu.Unlock()
	s.keep(partitions)
	objects, err := s.clients.Kube.Metadata(ctx, kube.TenantControlPlanes, kube.InPartitions(partitions))
	if err != nil {
		return err
	}
	for _, o := range objects {
		wake(events.Tenant(o.Namespace, o.Name), loop.Wake{Kind: claimed})
	}
	<-ctx.Done()
	return nil
}

// Kinds of wakes.
const (
	// claimed: this replica has the tenant's partition now, or its watch has ended.
	claimed = "claimed"
	// drifted: an object inside the tenant, named by its Ref, isn't what it should be.
	drifted = "drifted"
)

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

func (s *addons) handle(ctx context.Context, t *loop.Turn) error {
	switch {
	case t.Tenant == nil:
		s.drop(t.Key)
		return nil
	case t.Tenant.Deleting:
		return s.remove(ctx, t)
	}
	var certs state.Certs
	var workload state.Workload
	certsState, err := t.Read(ctx, name.ServiceCerts, &certs)
	if err != nil {
		return err
	}
	workloadState, err := t.Read(ctx, name.ServiceWorkload, &workload)
	if err != nil {
		return err
	}
	if replicas := t.Tenant.Spec.ControlPlane.Deployment.Replicas; replicas != nil && *replicas == 0 {
		s.drop(t.Key)
		return t.Wait(ctx, state.Wait{
			On: kube.TenantControlPlanes.Kind, Reason: reason.Asleep, Text: "the tenant to be woken (spec.controlPlane.deployment.replicas is 0)",
		})
	}
	access := certs.Secrets[name.ComponentAdminKubeconfig].Checksum
	if certsState == nil || access == "" || workloadState == nil || workload.Endpoint == "" || workload.ReadyReplicas == 0 ||
		workload.Version != t.Tenant.Spec.Kubernetes.Version {
		return t.Wait(ctx, state.Wait{
			On: name.ServiceWorkload, Reason: reason.ControlPlaneNotReady, Text: "the control plane's pods to be ready (workload.available)",
		})
	}
	input := inputOf(t.Tenant, certs, workload)
	inputs := hashOf(input, access)
	w, err := s.connect(ctx, t, access)
	if err != nil {
		return err
	}
	var before state.Addons
	if err := t.OwnData(&before); err != nil {
		return err
	}
	own := t.Own()
	same := own != nil && own.Step == event.Applied && own.Inputs == inputs && own.Failure == nil
	drift := drifts(t.Wakes)
	if same && len(drift) == 0 {
		s.follow(t.Key, w, before.Versions) //nolint:contextcheck // the watch outlives the turn
		if own.Generation == t.Generation && !own.Waits() {
			return nil
		}
		return s.done(ctx, t, inputs, before, loop.Tell{What: event.Applied, Data: event.AddonsApplied{About: t.About(), Objects: before.Objects}})
	}
	return s.apply(ctx, t, w, input, inputs, before, same, drift)
}

// apply applies everything, or, when only something drifted, that.
func (s *addons) apply(ctx context.Context, t *loop.Turn, w *connection, input Input, inputs string, before state.Addons, same bool, drift map[string]string) error {
	objects, err := Render(input)
	if err != nil {
		var in *InputError
		if errors.As(err, &in) {
			return &intent.Permanent{Reason: "InvalidAddons", Message: "the tenant's objects can't be rendered: " + err.Error(), Err: err}
		}
		return err
	}
	wanted := objects
	if same {
		wanted = slices.DeleteFunc(slices.Clone(objects), func(o *unstructured.Unstructured) bool {
			_, is := drift[RefOf(o).String()]
			return !is
		})
	}
	versions, err := w.cluster.Apply(ctx, wanted)
	w.learn(versions)
	if err != nil {
		return tenantAway(t.Key, err)
	}
	off := Removed(input)
	if !same && len(off) > 0 && (t.Own() == nil || before.CoreDNS != (input.CoreDNS != nil) || before.KubeProxy != (input.KubeProxy != nil)) {
		if _, err := w.cluster.Delete(ctx, off); err != nil {
			return tenantAway(t.Key, err)
		}
	}
	after := state.Addons{
		Objects: len(objects), CoreDNS: input.CoreDNS != nil, KubeProxy: input.KubeProxy != nil,
		LastUpdate: time.Now().UTC().Truncate(time.Second), Versions: versions,
	}
	if after.Hash, err = Hash(objects); err != nil {
		return err
	}
	tell := loop.Tell{What: event.Applied, Data: event.AddonsApplied{About: t.About(), Objects: len(objects)}}
	if same {
		var repaired []string
		after.Versions = maps.Clone(before.Versions)
		for ref, version := range versions {
			if drift[ref] != version { // else it is as we want it, as when the bootstrap signer adds its signatures
				repaired = append(repaired, ref)
			}
			after.Versions[ref] = version
		}
		slices.Sort(repaired)
		tell = loop.Tell{What: event.Repaired, Data: event.AddonsRepaired{About: t.About(), Objects: repaired}}
		if len(repaired) == 0 {
			after.LastUpdate = before.LastUpdate
			if err := s.done(ctx, t, inputs, after); err != nil {
				return err
			}
			s.follow(t.Key, w, after.Versions) //nolint:contextcheck // the watch outlives the turn
			return nil
		}
	} else if after.Hash == before.Hash {
		after.LastUpdate = before.LastUpdate
	}
	if err := s.done(ctx, t, inputs, after, tell); err != nil {
		return err
	}
	s.follow(t.Key, w, after.Versions) //nolint:contextcheck // the watch outlives the turn
	return nil
}

func (s *addons) done(ctx context.Context, t *loop.Turn, inputs string, data state.Addons, facts ...loop.Tell) error {
	return t.Done(ctx, loop.Outcome{Step: event.Applied, Inputs: inputs, Data: data, Facts: facts})
}

// remove ends the care for a tenant that is being deleted. What is inside it goes with its data.
func (s *addons) remove(ctx context.Context, t *loop.Turn) error {
	s.drop(t.Key)
	if own := t.Own(); own != nil && own.Step == event.Removed {
		return nil
	}
	return t.Done(ctx, loop.Outcome{Step: event.Removed, Facts: []loop.Tell{{
		What: event.Removed, Data: event.Removals{About: t.About(), Removed: map[string]int{}},
	}}})
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
		if len(w.watched) == len(versions) {
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
	go func() {
		defer close(done)
		err := w.cluster.Watch(ctx, versions, func(e Event) {
			w.mu.Lock()
			ours := w.known[e.Ref.String()] == e.Version
			w.mu.Unlock()
			if !ours {
				wake(key, loop.Wake{Kind: drifted, Object: e.Ref.String(), Version: e.Version, Gone: e.Type == Deleted})
			}
		})
		if ctx.Err() == nil && err != nil {
			s.clients.Log.Warn("watch inside the tenant ended", "tenant", key.String(), "error", err)
			wake(key, loop.Wake{Kind: claimed})
		}
	}()
}

// learn notes versions as those that should be.
func (w *connection) learn(versions map[string]string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	maps.Copy(w.known, versions)
}

// drifts returns the version of each object that drifted, empty for one that is gone.
func drifts(wakes []loop.Wake) map[string]string {
	found := map[string]string{}
	for _, w := range wakes {
		if w.Kind == drifted {
			found[w.Object] = w.Version
		}
	}
	return found
}

// tenantAway gives errors of a tenant's API their intent: one that doesn't answer is waited for, and is no reason for this
// service not to be ready.
func tenantAway(key events.Key, err error) error {
	var answered apierrors.APIStatus
	var object *ObjectError
	if errors.As(err, &object) && object.Webhook != "" || errors.Is(err, fence.ErrFenced) {
		return err
	}
	if errors.As(err, &answered) && answered.Status().Code < 500 {
		return err
	}
	return &intent.Unavailable{Err: fmt.Errorf("API of tenant %s: %w", key, err)}
}

// inputOf maps the tenant's states to what is rendered.
func inputOf(t *state.Tenant, certs state.Certs, w state.Workload) Input {
	spec := t.Spec
	in := Input{
		Name: t.Name, Namespace: t.Namespace, Endpoint: w.Endpoint, AdvertiseAddress: w.AdvertiseAddress, Port: w.Port,
		Version: spec.Kubernetes.Version, ClusterDomain: spec.NetworkProfile.ClusterDomain,
		ServiceCIDRs: spec.NetworkProfile.ServiceCIDRs, PodCIDRs: spec.NetworkProfile.PodCIDRs,
		DNSServiceIPs: spec.NetworkProfile.DNSServiceIPs, CertSANs: spec.NetworkProfile.CertSANs,
		CACertPEM: []byte(certs.CA), KeyAlgorithm: "ECDSA-P256", CgroupDriver: string(spec.Kubernetes.Kubelet.CGroupFS),
	}
	for _, p := range spec.Kubernetes.Kubelet.ConfigurationJSONPatches {
		in.KubeletPatches = append(in.KubeletPatches, JSONPatch{Op: p.Op, Path: p.Path, From: p.From, Value: value(p.Value)})
	}
	if a := spec.Addons.CoreDNS; a != nil {
		in.CoreDNS = &Addon{ImageRepository: a.ImageRepository, ImageTag: a.ImageTag}
	}
	if a := spec.Addons.KubeProxy; a != nil {
		in.KubeProxy = &Addon{ImageRepository: a.ImageRepository, ImageTag: a.ImageTag}
	}
	return in
}

func hashOf(in Input, access string) string {
	data, err := json.Marshal(in)
	if err != nil {
		panic("an input is plain data: " + err.Error())
	}
	return events.ID(string(data), access)
}

func value(v *runtime.RawExtension) json.RawMessage {
	if v == nil {
		return nil
	}
	return v.Raw
}
