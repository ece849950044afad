// The step of a turn that has connections to a tenant that sleeps held, if its annotation says that they wake it: an EndpointSlice beside
// those that Kubernetes makes for its Service leads to the activator. The Service's own selector stays: while no pod is ready, the activator
// is all there is behind it, and once one is, both are, until the slice is gone. So there is no moment at which a connection is refused.

package workload

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"strconv"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/stoker-k8s/stoker/pkg/api/event"
	"github.com/stoker-k8s/stoker/pkg/api/name"
	"github.com/stoker-k8s/stoker/pkg/api/v1alpha1"
	"github.com/stoker-k8s/stoker/pkg/kube"
	"github.com/stoker-k8s/stoker/pkg/loop"
)

// ActivatorSlice returns the EndpointSlice that has the tenant's Service lead to the activator.
func ActivatorSlice(s Subject, at netip.AddrPort) *discoveryv1.EndpointSlice {
	o := &discoveryv1.EndpointSlice{
		TypeMeta:    kube.EndpointSlices.TypeMeta(),
		ObjectMeta:  s.meta(name.Activator(s.Tenant.Name), name.ComponentActivator, v1alpha1.AdditionalMetadata{}),
		AddressType: discoveryv1.AddressTypeIPv4,
		Ports: []discoveryv1.EndpointPort{{
			Name: new(name.PortAPIServer), Protocol: new(corev1.ProtocolTCP), Port: new(int32(at.Port())),
		}},
	}
	o.Labels[discoveryv1.LabelServiceName] = name.Service(s.Tenant.Name)
	o.Labels[discoveryv1.LabelManagedBy] = name.ManagerActivator
	address := at.Addr()
	if address.Is6() {
		o.AddressType = discoveryv1.AddressTypeIPv6
	}
	if address.IsLoopback() { // a local stack, whose forwarder reads the annotation: a slice may hold no such address
		o.Annotations = map[string]string{name.AnnotationLoopback: address.String()}
		address = netip.MustParseAddr(documentationIPv4)
		if o.AddressType == discoveryv1.AddressTypeIPv6 {
			address = netip.MustParseAddr(documentationIPv6)
		}
	}
	o.Endpoints = []discoveryv1.Endpoint{{
		Addresses: []string{address.String()}, Conditions: discoveryv1.EndpointConditions{Ready: new(true)},
	}}
	return o
}

// wakesByConnection reports whether connections to the tenant are to wake it, and this installation has them do so.
func (t *turn) wakesByConnection() bool {
	return t.s.activator.Address.IsValid() && t.Tenant.Annotations[name.AnnotationWakeOn] == name.WakeOnConnection
}

// holdConnections has connections held while the tenant sleeps, and then until a pod is ready.
func (t *turn) holdConnections(ctx context.Context) error {
	waking := t.hasSlice() && t.data.ReadyReplicas == 0
	if !t.wakesByConnection() || !t.Tenant.Sleeps() && !waking {
		return nil
	}
	err := t.openDoor(ctx)
	if err != nil && !t.Tenant.Sleeps() { // it wakes, which doesn't depend on that
		t.s.log.Warn("connections to a tenant that wakes are not held", "tenant", t.Key.String(), "error", err)
		return nil
	}
	return err
}

// openDoor opens the tenant's door and has its Service lead there.
func (t *turn) openDoor(ctx context.Context) error {
	at, err := t.s.activator.Open(t.Key)
	if err != nil {
		return err
	}
	want := ActivatorSlice(t.subject, at)
	inputs, seen := hash(want), t.s.observed.get(t.Key, kindActivator, "")
	if t.data.Hashes.Activator == inputs && seen.known != "" && !seen.changed() && !t.Due() {
		return nil
	}
	if err := t.apply(ctx, kube.EndpointSlices, kindActivator, want); err != nil {
		return refused(err, t.spec, want, kube.EndpointSlices.Kind)
	}
	t.s.observed.setKnown(t.Key, kindActivator, want.ResourceVersion, 0)
	t.data.Hashes.Activator = inputs
	return nil
}

// letThrough ends what holdConnections has begun: once a pod is ready that takes the connections, or where they aren't to be held any more.
func (t *turn) letThrough(ctx context.Context) error {
	held := t.wakesByConnection()
	if !t.hasSlice() || held && (t.Tenant.Sleeps() || t.data.ReadyReplicas == 0) {
		return nil
	}
	if held {
		pods, listed := t.pods(ctx)
		if !listed {
			return errors.New("the pods are not known to which connections are to go that were held")
		}
		ready := readyAt(pods, t.spec.NetworkProfile.Port)
		if len(ready) == 0 {
			return nil // it was; the Deployment says so when one is again
		}
		t.s.activator.Lead(t.Key, ready)
	} else {
		t.s.activator.Close(t.Key)
	}
	t.s.observed.setKnown(t.Key, kindActivator, "", 0)
	if _, err := t.delete(ctx, kube.EndpointSlices, name.Activator(t.Key.Name), metav1.DeleteOptions{}); err != nil {
		return err
	}
	t.data.Hashes.Activator = ""
	return nil
}

// hasSlice reports whether there is an EndpointSlice to the activator: as was noted, or as was seen, should what was noted be lost.
func (t *turn) hasSlice() bool {
	return t.data.Hashes.Activator != "" || t.s.observed.sees(t.Key, kindActivator)
}

// readyAt are the addresses of the pods that are ready.
func readyAt(pods []corev1.Pod, port int32) (all []string) {
	for i := range pods {
		p := &pods[i]
		for _, c := range p.Status.Conditions {
			if c.Type == corev1.PodReady && c.Status == corev1.ConditionTrue && p.DeletionTimestamp == nil && p.Status.PodIP != "" {
				all = append(all, net.JoinHostPort(p.Status.PodIP, strconv.Itoa(int(port))))
			}
		}
	}
	return all
}

// callIfWaiting tells that somebody waits for the tenant to wake, once its pods are gone: whoever is there before that may be one of those
// who were connected, and gives up by then, such as addons.
func (t *turn) callIfWaiting() {
	slept := t.step == event.Slept && (t.Own() == nil || t.Own().Step != event.Slept)
	if t.step == event.Slept && t.Tenant.Sleeps() && (slept || t.Woken(wakeCall)) && t.s.activator.Waiting(t.Key) {
		t.facts = append(t.facts, loop.Tell{What: event.Called, Data: event.WorkloadCalled{About: t.About()}})
	}
}
