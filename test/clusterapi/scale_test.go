package clusterapi

import (
	"testing"

	"github.com/stoker-k8s/stoker/pkg/api/controlplane"
)

// scaled has replicas set by the subresource scale, as autoscalers do, while the Cluster's topology leaves them to others: they stay, also when
// Cluster API writes the control plane the next time. The control plane has one replica before, which the topology says.
func scaled(t *testing.T, c cluster) {
	change(t, clusters, c.name, `{"spec":{"topology":{"controlPlane":{"replicas":null,"metadata":{"labels":{"tier":"silver"}}}}}}`)
	awaitControlPlane(t, c, "the default", func(o *controlplane.KamajiControlPlane) bool { return *o.Spec.Replicas == 2 })
	c.available(t, "v1.36.3", 2)
	e.Kubectl(t, e.Local.Kubeconfig("admin"), "scale", "ktcp", c.controlPlane, "-n", namespace, "--replicas=3")
	c.available(t, "v1.36.3", 3)
	change(t, clusters, c.name, `{"spec":{"topology":{"controlPlane":{"metadata":{"labels":{"tier":"gold"}}}}}}`)
	awaitControlPlane(t, c, "a label of the topology", func(o *controlplane.KamajiControlPlane) bool { return o.Labels["tier"] == "gold" })
	c.available(t, "v1.36.3", 3)
}
