package capi

// The infrastructure cluster of a Cluster, which gets the control plane's endpoint: providers of infrastructure need it before they are
// provisioned, and know by it that they are to make no load balancer. Where a provider has its own way, the table says which.

import (
	"context"
	"fmt"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/stoker-k8s/stoker/pkg/api/controlplane"
	"github.com/stoker-k8s/stoker/pkg/events"
	"github.com/stoker-k8s/stoker/pkg/kube"
)

// way is how an infrastructure cluster comes by the endpoint.
type way int

const (
	// written: the endpoint is written into its spec.
	written way = iota
	// known: it is there beforehand, and must be the same.
	known
	// knownOrWritten: it is there beforehand and must be the same, or is written where there is none.
	knownOrWritten
	// fixed: it is written into the fields apiServerFixedIP and apiServerPort.
	fixed
)

// ways are the kinds of infrastructure clusters of which the endpoint isn't simply written.
var ways = map[string]way{
	"Metal3Cluster": known, "MetalStackCluster": known,
	"ProxmoxCluster": knownOrWritten, "TinkerbellCluster": knownOrWritten, "VSphereCluster": knownOrWritten,
	"OpenStackCluster": fixed,
}

// toldReady are the kinds whose status.ready is set, too, while they follow contract v1beta1: their own controllers wait for it where others
// manage the infrastructure.
var toldReady = map[string]bool{"KubevirtCluster": true, "NutanixCluster": true, "PacketCluster": true}

// infrastructure is what is read of an infrastructure cluster.
type infrastructure struct {
	metav1.ObjectMeta `json:"metadata"`
	Spec              struct {
		ControlPlaneEndpoint struct {
			Host string `json:"host"`
			Port int32  `json:"port"`
		} `json:"controlPlaneEndpoint"`
		APIServerFixedIP string `json:"apiServerFixedIP"`
		APIServerPort    int32  `json:"apiServerPort"`
	} `json:"spec"`
	Status struct {
		Ready bool `json:"ready"`
	} `json:"status"`
}

// equip gives a Cluster's infrastructure the endpoint, and reports whether it hadn't got it.
func (s *svc) equip(ctx context.Context, key events.Key, of *cluster, at controlplane.APIEndpoint) (changed bool, err error) {
	ref := of.Spec.InfrastructureRef
	r, contract, err := s.resourceOf(ctx, ref.APIGroup, ref.Kind)
	if err != nil {
		return false, err
	}
	var o infrastructure
	err = s.kube.Get(ctx, r, of.Namespace, ref.Name, &o)
	if err == nil || apierrors.IsNotFound(err) {
		s.index.noteInfrastructure(key, infrastructureRef{r, ref.Name})
	}
	if apierrors.IsNotFound(err) {
		return false, waits("%s %s is not there", ref.Kind, ref.Name)
	}
	if err != nil {
		return false, fmt.Errorf("%s %s: %w", ref.Kind, ref.Name, err)
	}
	patch, err := equipment(ref.Kind, &o, at)
	if err != nil {
		return false, err
	}
	if patch != nil {
		err := s.kube.MergePatch(ctx, r, of.Namespace, ref.Name, map[string]any{"spec": patch}, nil)
		if apierrors.IsBadRequest(err) || apierrors.IsInvalid(err) {
			return false, cannot("%s %s doesn't take the endpoint: %s", ref.Kind, ref.Name, err)
		}
		if err != nil {
			return false, fmt.Errorf("%s %s: %w", ref.Kind, ref.Name, err)
		}
	}
	if !toldReady[ref.Kind] || o.Status.Ready || contract != contractV1Beta1 {
		return patch != nil, nil
	}
	err = s.kube.ApplyStatus(ctx, r, &metav1.ObjectMeta{Namespace: of.Namespace, Name: ref.Name}, map[string]any{"ready": true})
	return patch != nil, err
}

// equipment is what is to be changed of an infrastructure cluster's spec; nil for nothing.
func equipment(kind string, o *infrastructure, at controlplane.APIEndpoint) (map[string]any, error) {
	has := o.Spec.ControlPlaneEndpoint
	same := has.Host == at.Host && has.Port == at.Port
	if ways[kind] == fixed {
		if o.Spec.APIServerFixedIP == at.Host && o.Spec.APIServerPort == at.Port {
			return nil, nil
		}
		return map[string]any{"apiServerFixedIP": at.Host, "apiServerPort": at.Port}, nil
	}
	switch {
	case same:
		return nil, nil
	case ways[kind] == written, ways[kind] == knownOrWritten && has.Host == "":
		return map[string]any{"controlPlaneEndpoint": map[string]any{"host": at.Host, "port": at.Port}}, nil
	}
	is := "not set"
	if has.Host != "" {
		is = fmt.Sprintf("host %s, port %d", has.Host, has.Port)
	}
	return nil, cannot("spec.controlPlaneEndpoint of %s %s must be host %s, port %d, as the control plane's, and is %s; "+
		"set it, or spec.network.serviceAddress of the control plane and clusterNetwork.apiServerPort of the Cluster",
		kind, o.Name, at.Host, at.Port, is)
}

// resourceOf is where the objects of a kind of infrastructure are, by its definition: its labels say which version follows which contract.
func (s *svc) resourceOf(ctx context.Context, group, kind string) (r kube.Resource, contract string, err error) {
	guess, _ := meta.UnsafeGuessKindToResource(schema.GroupVersionKind{Group: group, Kind: kind})
	var definition metav1.PartialObjectMetadata
	err = s.kube.Get(ctx, kube.CustomResourceDefinitions, "", guess.Resource+"."+group, &definition)
	if apierrors.IsNotFound(err) {
		return r, "", cannot("kind %s of group %s is not defined: install its infrastructure provider", kind, group)
	}
	if err != nil {
		return r, "", err
	}
	version, contract := contractVersion(definition.Labels)
	if version == "" {
		return r, "", cannot("definition %s has no label cluster.x-k8s.io/%s or cluster.x-k8s.io/%s, which says the versions of Cluster API's contract",
			definition.Name, contractV1Beta2, contractV1Beta1)
	}
	return kube.Resource{
		GroupVersion: schema.GroupVersion{Group: group, Version: version}, Plural: guess.Resource, Kind: kind, Namespaced: true,
	}, contract, nil
}

// Versions of Cluster API's contract.
const contractV1Beta1, contractV1Beta2 = "v1beta1", "v1beta2"

// contractVersion is the last version that the labels of a definition name for the newest contract; empty for none.
func contractVersion(labels map[string]string) (version, contract string) {
	for _, contract := range []string{contractV1Beta2, contractV1Beta1} {
		if versions := labels["cluster.x-k8s.io/"+contract]; versions != "" {
			return versions[strings.LastIndexByte(versions, '_')+1:], contract
		}
	}
	return "", ""
}
