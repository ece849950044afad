// Package controlplane holds the API kinds of Stoker's control plane provider for Cluster API: KamajiControlPlane and its
// template, under the group, versions and JSON names of Kamaji's provider, so that Clusters, ClusterClasses and clients written
// for that one work unchanged.
//
// Both served versions, v1alpha2 and v1alpha1, are one Go type, and one schema that has the fields of both: an object is the same in
// either, and needs no conversion. v1alpha2 is what Cluster API's contract v1beta2 reads and what is stored, v1alpha1 what its contract
// v1beta1 reads; labels on the CustomResourceDefinitions say so. Only the status has fields that say the same twice.
//
// The definitions in deployments/cluster-api/crds refuse what Kamaji's provider refuses, and what could never become pods: for the types of
// Kubernetes among the fields, pkg/api/internal/constrain adds the rules that a TenantControlPlane has for them. It also adds the second
// version. All else is judged when a TenantControlPlane is made of the object, and told as a condition.
//
// Struct fields whose zero value means "not set" are tagged omitzero: an object that was read and is written again does not claim
// fields its writer never spoke of.
//
// +kubebuilder:object:generate=true
// +groupName=controlplane.cluster.x-k8s.io
// +versionName=v1alpha2
package controlplane

//go:generate go run ../internal/constrain ../../../deployments/cluster-api/crds controlplane.cluster.x-k8s.io
