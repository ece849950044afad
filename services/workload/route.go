// What leads to the Service from outside: an Ingress, or TLSRoutes of the Gateway API.

package workload

import (
	"cmp"
	"context"
	"errors"
	"net"
	"slices"
	"strconv"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"

	"github.com/stoker-k8s/stoker/pkg/api/name"
	"github.com/stoker-k8s/stoker/pkg/api/state"
	"github.com/stoker-k8s/stoker/pkg/api/v1alpha1"
	"github.com/stoker-k8s/stoker/pkg/kube"
)

// route makes the Ingress and TLSRoutes so that the spec asks for.
func (t *turn) route(ctx context.Context) error {
	if err := t.routeByIngress(ctx); err != nil {
		return err
	}
	var err error
	t.data.Gateway, err = t.routeByGateway(ctx, kindRoute, Route(t.subject), t.data.Gateway, &t.data.Hashes.Route)
	if err != nil {
		return err
	}
	t.data.KonnectivityGateway, err = t.routeByGateway(
		ctx, kindKonnectivityRoute, KonnectivityRoute(t.subject), t.data.KonnectivityGateway, &t.data.Hashes.KonnectivityRoute)
	return err
}

// unroute removes the Ingress and TLSRoutes that the spec no longer asks for, once kubeconfigs lead elsewhere. Certs whose state doesn't say
// where they lead is of the version before.
func (t *turn) unroute(ctx context.Context, certs *state.Certs) error {
	if certs.Endpoint != "" && certs.Endpoint != t.data.Endpoint {
		return nil
	}
	var failed []error
	if Ingress(t.subject) == nil {
		t.data.Ingress = networkingv1.IngressStatus{}
		failed = append(failed, t.removeMade(ctx, kube.Ingresses, name.Ingress(t.Key.Name), &t.data.Hashes.Ingress))
	}
	if Route(t.subject) == nil {
		t.data.Gateway = nil
		failed = append(failed, t.removeMade(ctx, kube.TLSRoutes, name.Route(t.Key.Name), &t.data.Hashes.Route))
	}
	if KonnectivityRoute(t.subject) == nil {
		t.data.KonnectivityGateway = nil
		failed = append(failed, t.removeMade(ctx, kube.TLSRoutes, name.KonnectivityRoute(t.Key.Name), &t.data.Hashes.KonnectivityRoute))
	}
	return errors.Join(failed...)
}

func (t *turn) routeByIngress(ctx context.Context) error {
	want := Ingress(t.subject)
	if want == nil {
		return nil
	}
	inputs := hash(want)
	if t.data.Hashes.Ingress == inputs && !t.s.observed.get(t.Key, kindIngress, "").changed() && !t.Due() {
		return nil
	}
	if err := t.apply(ctx, kube.Ingresses, kindIngress, want); err != nil {
		return refused(err, t.spec, want, kube.Ingresses.Kind)
	}
	t.s.observed.setKnown(t.Key, kindIngress, want.ResourceVersion, 0)
	t.data.Hashes.Ingress, t.data.Ingress = inputs, want.Status
	return nil
}

// routeByGateway makes a TLSRoute so, if one is wanted, and returns how it stands. before is how it stood, made the hash of what it was made
// from.
func (t *turn) routeByGateway(
	ctx context.Context, k kind, want *gatewayv1.TLSRoute, before *v1alpha1.KubernetesGatewayStatus, made *string,
) (*v1alpha1.KubernetesGatewayStatus, error) {
	if want == nil {
		return before, nil
	}
	inputs := hash(want)
	if *made == inputs && !t.s.observed.get(t.Key, k, "").changed() && !t.Due() {
		return before, nil
	}
	live := want.DeepCopy()
	if err := t.apply(ctx, kube.TLSRoutes, k, live); err != nil {
		return before, refused(err, t.spec, want, kube.TLSRoutes.Kind)
	}
	t.s.observed.setKnown(t.Key, k, live.ResourceVersion, 0)
	*made = inputs
	t.s.closeOnce.Do(func() { close(t.s.routed) }) // the kind is served, so it can be watched
	gateways, err := t.gateways(ctx, live)
	if err != nil {
		return before, err
	}
	return gatewayStatus(live, gateways), nil
}

// removeMade removes an object that was made when the spec asked for it, and its hash.
func (t *turn) removeMade(ctx context.Context, r kube.Resource, object string, hash *string) error {
	if *hash == "" {
		return nil
	}
	if _, err := t.delete(ctx, r, object, metav1.DeleteOptions{}); err != nil {
		return err
	}
	*hash = ""
	return nil
}

// gateways reads those that a route's status names, by namespace/name. One that can't be read is left out: where it listens is
// for people alone.
func (t *turn) gateways(ctx context.Context, o *gatewayv1.TLSRoute) (map[string]*gatewayv1.Gateway, error) {
	found := map[string]*gatewayv1.Gateway{}
	for _, p := range o.Status.Parents {
		namespace, n, ok := gatewayOf(o, p.ParentRef)
		if !ok || found[namespace+"/"+n] != nil {
			continue
		}
		g := &gatewayv1.Gateway{}
		err := t.s.kube.Get(ctx, kube.Gateways, namespace, n, g)
		if kube.IsAway(err) || ctx.Err() != nil {
			return nil, err
		}
		if err == nil {
			found[namespace+"/"+n] = g
		} else if !apierrors.IsNotFound(err) {
			t.s.log.Warn("could not read a gateway to see where it listens", "tenant", t.Key.String(), "gateway", namespace+"/"+n, "error", err)
		}
	}
	return found, nil
}

// gatewayOf returns the Gateway that a reference of a route means; ok is false when it means something else.
func gatewayOf(o *gatewayv1.TLSRoute, ref gatewayv1.ParentReference) (namespace, n string, ok bool) {
	if ref.Kind != nil && string(*ref.Kind) != kube.Gateways.Kind ||
		ref.Group != nil && string(*ref.Group) != kube.Gateways.GroupVersion.Group {
		return "", "", false
	}
	namespace = o.Namespace
	if ref.Namespace != nil {
		namespace = string(*ref.Namespace)
	}
	return namespace, string(ref.Name), true
}

// Route returns the TLSRoute of the API server, nil when the spec asks for none. The gateway finds it by the name in the
// client's TLS hello and passes TLS through to the API server.
func Route(s Subject) *gatewayv1.TLSRoute {
	t := s.Tenant
	spec := t.Spec.ControlPlane.Gateway
	if spec == nil || spec.Hostname == "" {
		return nil
	}
	backend := gatewayv1.BackendRef{BackendObjectReference: gatewayv1.BackendObjectReference{
		Name: gatewayv1.ObjectName(name.Service(t.Name)), Port: new(t.Spec.NetworkProfile.Port),
	}}
	return &gatewayv1.TLSRoute{
		TypeMeta:   kube.TLSRoutes.TypeMeta(),
		ObjectMeta: s.meta(name.Route(t.Name), name.ComponentRoute, spec.AdditionalMetadata),
		Spec: gatewayv1.TLSRouteSpec{
			CommonRouteSpec: gatewayv1.CommonRouteSpec{ParentRefs: spec.ParentRefs},
			Hostnames:       []gatewayv1.Hostname{spec.Hostname},
			Rules:           []gatewayv1.TLSRouteRule{{BackendRefs: []gatewayv1.BackendRef{backend}}},
		},
	}
}

// gatewayStatus says how a route stands with its gateways, and at which of their listeners the tenant is reached through it:
// those for TLS, of the section and port that the route names, of gateways that are programmed and have accepted it. Pure.
func gatewayStatus(o *gatewayv1.TLSRoute, gateways map[string]*gatewayv1.Gateway) *v1alpha1.KubernetesGatewayStatus {
	s := &v1alpha1.KubernetesGatewayStatus{
		RouteStatus: gatewayv1.RouteStatus{Parents: append([]gatewayv1.RouteParentStatus{}, o.Status.Parents...)},
		RouteRef:    corev1.LocalObjectReference{Name: o.Name},
	}
	for _, p := range o.Status.Parents {
		namespace, n, _ := gatewayOf(o, p.ParentRef)
		g := gateways[namespace+"/"+n]
		if g == nil || !meta.IsStatusConditionTrue(p.Conditions, string(gatewayv1.RouteConditionAccepted)) ||
			!meta.IsStatusConditionTrue(g.Status.Conditions, string(gatewayv1.GatewayConditionProgrammed)) {
			continue
		}
		for _, l := range g.Spec.Listeners {
			if l.Protocol != gatewayv1.TLSProtocolType || p.ParentRef.SectionName != nil && *p.ParentRef.SectionName != l.Name ||
				p.ParentRef.Port != nil && *p.ParentRef.Port != l.Port {
				continue
			}
			for _, host := range o.Spec.Hostnames {
				url := "https://" + net.JoinHostPort(string(host), strconv.Itoa(int(l.Port)))
				s.AccessPoints = append(s.AccessPoints, v1alpha1.GatewayAccessPoint{
					Type: new(gatewayv1.HostnameAddressType), Value: url, Port: l.Port, URLs: []string{url},
				})
			}
		}
	}
	slices.SortStableFunc(s.AccessPoints, func(a, b v1alpha1.GatewayAccessPoint) int { return cmp.Compare(a.Value, b.Value) })
	s.AccessPoints = slices.CompactFunc(s.AccessPoints, func(a, b v1alpha1.GatewayAccessPoint) bool { return a.Value == b.Value })
	return s
}
