// The first step of a turn: the Service, and the endpoint that follows from it.

package workload

import (
	"context"
	"fmt"
	"net/netip"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/stoker-k8s/stoker/pkg/api/name"
	"github.com/stoker-k8s/stoker/pkg/api/state"
	"github.com/stoker-k8s/stoker/pkg/kube"
)

// expose makes the Service so and decides the endpoint. It returns what is missing for it.
func (t *turn) expose(ctx context.Context) (state.Wait, error) {
	want := Service(t.subject)
	profile := &t.spec.NetworkProfile
	from := []any{want, profile.Address, profile.AdvertiseAddress, profile.ServiceCIDRs, publicHostname(&t.spec.ControlPlane)}
	if tunnel := konnectivityEndpoint(t.spec, ""); tunnel != "" {
		from = append(from, tunnel)
	}
	inputs := hash(from)
	seen, err := t.observeService(ctx)
	if err != nil {
		return state.Wait{}, err
	}
	if t.data.Hashes.Service == inputs && !seen.changed() && !t.Due() {
		t.s.observed.setKnown(t.Key, kindService, seen.known, 0)
		return state.Wait{}, nil
	}
	live, err := t.applyService(ctx, want, seen)
	if err != nil {
		return state.Wait{}, err
	}
	t.s.observed.setKnown(t.Key, kindService, live.ResourceVersion, 0)
	t.data.Hashes.Service, t.data.ServiceVersion, t.data.Service = inputs, live.ResourceVersion, shownService(live.Status)

	e, wait, err := endpoint(t.Tenant, live)
	if err != nil {
		return state.Wait{}, err
	}
	if wait.Waits() {
		// The hash is left out, so that the Service is read again when it changes, and at every event.
		t.data.Hashes.Service, t.step = "", ""
		t.provisioning()
		return wait, nil
	}
	t.data.LoadBalancer = balancerBeside(live, e.Address) // told to nobody: a way to the tenant beside others
	old := exposure{
		t.before.Endpoint, t.before.Address, t.before.Port, t.before.ClusterIP, t.before.AdvertiseAddress, t.before.KonnectivityEndpoint,
	}
	if e == old {
		return state.Wait{}, nil
	}
	t.data.Endpoint, t.data.Address, t.data.Port = e.Endpoint, e.Address, e.Port
	t.data.ClusterIP, t.data.AdvertiseAddress, t.data.KonnectivityEndpoint = e.ClusterIP, e.Advertise, e.Konnectivity
	t.provisioning()
	// Certificates are made for the endpoint, so this fact goes out whatever becomes of the rest of the turn.
	t.facts = t.exposed()
	return state.Wait{}, nil
}

// shownService is a Service's status as the tenant's shows it: without the ports of load balancers, as Kamaji's.
func shownService(s corev1.ServiceStatus) corev1.ServiceStatus {
	shown := *s.DeepCopy()
	for i := range shown.LoadBalancer.Ingress {
		shown.LoadBalancer.Ingress[i].Ports = nil
	}
	return shown
}

// observeService returns what is known of the Service. One that no watch has seen is read: the watches of a replica that has just
// taken the tenant over may not have listed it yet, and it is not to be written as if it were missing.
func (t *turn) observeService(ctx context.Context) (observation, error) {
	seen := t.s.observed.get(t.Key, kindService, t.before.ServiceVersion)
	if seen.version != "" || t.before.ClusterIP == "" {
		return seen, nil
	}
	var live metav1.PartialObjectMetadata
	err := t.s.kube.Get(ctx, kube.Services, t.Key.Namespace, name.Service(t.Key.Name), &live)
	if apierrors.IsNotFound(err) {
		return seen, nil
	}
	if err != nil {
		return observation{}, err
	}
	t.s.observed.see(t.Key, kindService, live.ResourceVersion, false)
	return t.s.observed.get(t.Key, kindService, t.before.ServiceVersion), nil
}

// applyService applies the Service and returns it as it then is.
func (t *turn) applyService(ctx context.Context, want *corev1.Service, seen observation) (*corev1.Service, error) {
	live := want.DeepCopy()
	// The API server releases the cluster IP a moment after it has announced that the Service is gone; later it is somebody
	// else's.
	keep := (seen.gone || seen.version == "") && t.Attempt() < keepAttempts && t.before.ClusterIP != ""
	if keep {
		keepAddresses(live, t.before)
	}
	err := t.apply(ctx, kube.Services, kindService, live)
	if keep && apierrors.IsInvalid(err) {
		return nil, fmt.Errorf("service requests the addresses it had: %w", err)
	}
	if err != nil {
		return nil, refused(err, t.spec, want, kube.Services.Kind)
	}
	if err := t.disownPorts(ctx, live); err != nil {
		return nil, err
	}
	return live, t.freeNodePorts(ctx, live)
}

// disownPorts takes the ports of an adopted tenant's Service from Kamaji's field manager, or those that are no longer asked for would stay. The
// rest stays Kamaji's: without its loadBalancerIP the Service might get another address.
func (t *turn) disownPorts(ctx context.Context, live *corev1.Service) error {
	if _, adopted := t.Tenant.Annotations[name.AnnotationAdopt]; !adopted {
		return nil
	}
	return t.s.kube.Disown(ctx, kube.Services, live, live, "spec", "ports")
}

// freeNodePorts takes the node ports off a LoadBalancer Service that is to have none. Those that it was given before the spec said so
// belong to nobody's applied configuration, so that applying it without them leaves them there.
func (t *turn) freeNodePorts(ctx context.Context, live *corev1.Service) error {
	if allocate := live.Spec.AllocateLoadBalancerNodePorts; allocate == nil || *allocate {
		return nil
	}
	var free []map[string]any
	for i, port := range live.Spec.Ports {
		if port.NodePort != 0 {
			free = append(free, map[string]any{"op": "replace", "path": fmt.Sprintf("/spec/ports/%d/nodePort", i), "value": 0})
		}
	}
	if len(free) == 0 {
		return nil
	}
	read := []map[string]any{{"op": "test", "path": "/metadata/resourceVersion", "value": live.ResourceVersion}}
	return t.s.kube.JSONPatch(ctx, kube.Services, live.Namespace, live.Name, append(read, free...), live)
}

// keepAddresses makes a Service that somebody deleted request the addresses it had, so that clients find the tenant where it
// was and its certificate stays good. The next time that the Service is applied the fields are dropped: what is allocated
// stays, and a load balancer that doesn't know the field, or holds on to it in vain, is free to choose.
func keepAddresses(service *corev1.Service, before state.Workload) {
	service.Spec.ClusterIP = before.ClusterIP
	if _, err := netip.ParseAddr(before.Address); err == nil && service.Spec.Type == corev1.ServiceTypeLoadBalancer {
		service.Spec.LoadBalancerIP = before.Address
	}
}
