package capi

// The Cluster of a control plane.

import (
	"context"
	"slices"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/stoker-k8s/stoker/pkg/api/controlplane"
	"github.com/stoker-k8s/stoker/pkg/api/name"
	"github.com/stoker-k8s/stoker/pkg/kube"
)

// cluster is what is read of a Cluster (cluster.x-k8s.io/v1beta2).
type cluster struct {
	metav1.ObjectMeta `json:"metadata"`
	Spec              struct {
		Paused         bool           `json:"paused"`
		ClusterNetwork clusterNetwork `json:"clusterNetwork"`
		// ControlPlaneRef and InfrastructureRef are objects in the Cluster's namespace; empty for none.
		ControlPlaneRef      reference                `json:"controlPlaneRef"`
		InfrastructureRef    reference                `json:"infrastructureRef"`
		ControlPlaneEndpoint controlplane.APIEndpoint `json:"controlPlaneEndpoint"`
	} `json:"spec"`
}

type reference struct {
	APIGroup string `json:"apiGroup"`
	Kind     string `json:"kind"`
	Name     string `json:"name"`
}

type clusterNetwork struct {
	APIServerPort int32  `json:"apiServerPort"`
	ServiceDomain string `json:"serviceDomain"`
	Services      struct {
		CIDRBlocks []string `json:"cidrBlocks"`
	} `json:"services"`
	Pods struct {
		CIDRBlocks []string `json:"cidrBlocks"`
	} `json:"pods"`
}

// clusterOf is the name of the Cluster that an object belongs to: its owner, whichever of several it is, or what its label says; empty for
// none.
func clusterOf(o metav1.Object) string {
	owners := o.GetOwnerReferences()
	at := slices.IndexFunc(owners, func(r metav1.OwnerReference) bool {
		return r.Kind == kube.Clusters.Kind && strings.HasPrefix(r.APIVersion, kube.Clusters.GroupVersion.Group+"/")
	})
	if at >= 0 {
		return owners[at].Name
	}
	return o.GetLabels()[name.LabelClusterName]
}

// cluster reads the Cluster of a control plane; nil when there is none that refers to it: whoever writes a control plane could name any.
func (s *svc) cluster(ctx context.Context, o *controlplane.KamajiControlPlane) (*cluster, error) {
	n := clusterOf(o)
	if n == "" {
		return nil, nil
	}
	c := &cluster{}
	err := s.kube.Get(ctx, kube.Clusters, o.Namespace, n, c)
	if apierrors.IsNotFound(err) || err == nil && c.Spec.ControlPlaneRef != (reference{controlplane.GroupName, kube.KamajiControlPlanes.Kind, o.Name}) {
		return nil, nil
	}
	return c, err
}

// pausedBy says what pauses a control plane; empty for nothing.
func pausedBy(o *controlplane.KamajiControlPlane, of *cluster) string {
	if _, paused := o.Annotations[name.AnnotationClusterPaused]; paused {
		return "annotation " + name.AnnotationClusterPaused
	}
	if of != nil && of.Spec.Paused {
		return "spec.paused of Cluster " + of.Name
	}
	return ""
}
