// Where a control plane is reached, decided from its spec and its Service. Pure.

package workload

import (
	"cmp"
	"fmt"
	"net"
	"net/netip"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/stoker-k8s/stoker/pkg/api/reason"
	"github.com/stoker-k8s/stoker/pkg/api/state"
	"github.com/stoker-k8s/stoker/pkg/api/v1alpha1"
	"github.com/stoker-k8s/stoker/pkg/intent"
	"github.com/stoker-k8s/stoker/pkg/kube"
)

// Addresses from the blocks for documentation (RFC 5737, RFC 3849). An API server writes the address it advertises into the
// Endpoints of its Service "kubernetes", which may hold no loopback address. A tenant that is reached at one, on a laptop,
// advertises an address that leads nowhere: there are no nodes that would use it.
const (
	documentationIPv4 = "192.0.2.1"
	documentationIPv6 = "2001:db8::1"
)

// exposure is what the endpoint's decision says.
type exposure struct {
	// Endpoint is host:port, Address its host and Port its port.
	Endpoint, Address string
	Port              int32
	ClusterIP         string
	// Advertise is the address the API server announces inside the tenant.
	Advertise string
	// Konnectivity is where agents reach the konnectivity server, host:port; empty for a tenant without the tunnel.
	Konnectivity string
}

// endpoint decides where the tenant is reached. wait says what is missing. The error is an *intent.Permanent.
func endpoint(t *state.Tenant, service *corev1.Service) (e exposure, wait state.Wait, err error) {
	spec := &t.Spec
	reached, missing := serviceAddress(spec, service)
	if missing != "" {
		return exposure{}, state.Wait{On: kube.Services.Kind, Reason: reason.AddressPending, Text: missing}, nil
	}
	if reached == "" {
		return exposure{}, state.Wait{}, &intent.Permanent{
			Reason:  reason.AddressRequired,
			Message: "spec.networkProfile.address is needed with serviceType NodePort: the address of a node or of what stands before the nodes",
		}
	}
	e = exposure{Address: reached, Port: spec.NetworkProfile.Port, ClusterIP: clusterIP(service)}
	e.Advertise = advertise(spec, reached, e.ClusterIP)
	e.Konnectivity = konnectivityEndpoint(spec, reached)
	if hostname := publicHostname(&spec.ControlPlane); hostname != "" {
		e.Address = hostname
		if host, port, err := net.SplitHostPort(hostname); err == nil {
			number, err := strconv.ParseUint(port, 10, 16)
			if err != nil || number == 0 {
				return exposure{}, state.Wait{}, &intent.Permanent{
					Reason: reason.InvalidHostname, Message: fmt.Sprintf("spec.controlPlane.ingress.hostname %q: %q is no port", hostname, port),
				}
			}
			e.Address, e.Port = host, int32(number)
		}
	}
	e.Endpoint = net.JoinHostPort(e.Address, strconv.Itoa(int(e.Port)))
	return e, state.Wait{}, nil
}

// publicHostname is the host, or host:port, of the Ingress or Gateway in front of the Service; empty for none.
func publicHostname(c *v1alpha1.ControlPlane) string {
	switch {
	case c.Ingress != nil:
		return c.Ingress.Hostname
	case c.Gateway != nil:
		for _, parent := range c.Gateway.ParentRefs {
			if parent.Port != nil { // the listener's
				return net.JoinHostPort(string(c.Gateway.Hostname), strconv.Itoa(int(*parent.Port)))
			}
		}
		return string(c.Gateway.Hostname)
	}
	return ""
}

// serviceAddress is where the Service is reached. missing says what it has to get first. Both are empty for a NodePort without a
// declared address.
func serviceAddress(spec *v1alpha1.TenantControlPlaneSpec, service *corev1.Service) (address, missing string) {
	if spec.NetworkProfile.Address != "" {
		return spec.NetworkProfile.Address, ""
	}
	what := "Service " + service.Namespace + "/" + service.Name
	switch spec.ControlPlane.Service.ServiceType {
	case v1alpha1.ServiceTypeLoadBalancer:
		for _, ingress := range service.Status.LoadBalancer.Ingress {
			if ingress.IP != "" {
				return ingress.IP, ""
			}
			if ingress.Hostname != "" {
				return ingress.Hostname, ""
			}
		}
		return "", what + " to get a LoadBalancer address"
	case v1alpha1.ServiceTypeClusterIP:
		if ip := clusterIP(service); ip != "" {
			return ip, ""
		}
		return "", what + " to get a cluster IP"
	}
	return "", ""
}

// balancerBeside is the address of the Service's load balancer, where the tenant is reached at another one; empty for none.
func balancerBeside(service *corev1.Service, address string) string {
	for _, ingress := range service.Status.LoadBalancer.Ingress {
		if a := cmp.Or(ingress.IP, ingress.Hostname); a != "" && a != address {
			return a
		}
	}
	return ""
}

func clusterIP(service *corev1.Service) string {
	if service.Spec.ClusterIP == corev1.ClusterIPNone {
		return ""
	}
	return service.Spec.ClusterIP
}

// advertise chooses the address the API server announces inside the tenant: the declared one, else the first of the
// Service's address and cluster IP that an API server accepts. It must be of the primary service network's family.
func advertise(spec *v1alpha1.TenantControlPlaneSpec, candidates ...string) string {
	n := &spec.NetworkProfile
	if n.AdvertiseAddress != "" {
		return n.AdvertiseAddress
	}
	ipv6 := len(n.ServiceCIDRs) > 0 && strings.Contains(n.ServiceCIDRs[0], ":")
	for _, candidate := range candidates {
		addr, err := netip.ParseAddr(candidate)
		if err != nil {
			continue // a host name
		}
		addr = addr.Unmap()
		if addr.IsLoopback() {
			// A local stack. Its cluster IPs lead nowhere either, but could be somebody's.
			break
		}
		if addr.Is6() == ipv6 && addr.IsGlobalUnicast() && addr.Zone() == "" {
			return addr.String()
		}
	}
	if ipv6 {
		return documentationIPv6
	}
	return documentationIPv4
}
