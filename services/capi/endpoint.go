package capi

// Where a control plane is reached: which address is published, and who is told.

import (
	"context"
	"net"
	"strconv"

	"github.com/stoker-k8s/stoker/pkg/api/controlplane"
	"github.com/stoker-k8s/stoker/pkg/kube"
)

// httpsPort is the port of an Ingress or Gateway whose host name has none.
const httpsPort = 443

// endpointOf is where nodes and Cluster API reach a control plane: the host of its Ingress or Gateway, else the tenant's endpoint, which is
// host:port.
func endpointOf(n controlplane.NetworkSpec, tenant string) (controlplane.APIEndpoint, error) {
	of := tenant
	if host := front(n); host != "" {
		of = host
		if _, _, err := net.SplitHostPort(host); err != nil {
			of = net.JoinHostPort(host, strconv.Itoa(httpsPort))
		}
	}
	host, port, err := net.SplitHostPort(of)
	if err != nil {
		return controlplane.APIEndpoint{}, cannot("endpoint %q: must be host:port", of)
	}
	number, err := strconv.ParseUint(port, 10, 16)
	if err != nil || number == 0 || host == "" {
		return controlplane.APIEndpoint{}, cannot("endpoint %q: must be host:port, with a port from 1 to 65535", of)
	}
	return controlplane.APIEndpoint{Host: host, Port: int32(number)}, nil
}

// publish writes the endpoint into the control plane's spec, where Cluster API reads it.
func (s *svc) publish(ctx context.Context, o *controlplane.KamajiControlPlane, at controlplane.APIEndpoint) error {
	if o.Spec.ControlPlaneEndpoint == at {
		return nil
	}
	patch := map[string]any{
		"metadata": map[string]any{"uid": o.UID}, // not of another object that has the name by now
		"spec":     map[string]any{"controlPlaneEndpoint": map[string]any{"host": at.Host, "port": at.Port}},
	}
	return s.kube.MergePatch(ctx, kube.KamajiControlPlanes, o.Namespace, o.Name, patch, o)
}
