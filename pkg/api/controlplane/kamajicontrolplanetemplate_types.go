package controlplane

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// KamajiControlPlaneTemplate is what a ClusterClass makes KamajiControlPlanes of. By Cluster API's convention it isn't changed: a
// ClusterClass is pointed to another one instead.
//
// +kubebuilder:object:root=true
// +kubebuilder:resource:path=kamajicontrolplanetemplates,shortName=ktcpt,categories=cluster-api;kamaji
// +kubebuilder:metadata:labels="cluster.x-k8s.io/v1beta1=v1alpha1"
// +kubebuilder:metadata:labels="cluster.x-k8s.io/v1beta2=v1alpha2"
type KamajiControlPlaneTemplate struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// Spec holds the template.
	// +required
	Spec KamajiControlPlaneTemplateSpec `json:"spec"`
}

// KamajiControlPlaneTemplateList is a list of KamajiControlPlaneTemplate objects.
//
// +kubebuilder:object:root=true
type KamajiControlPlaneTemplateList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []KamajiControlPlaneTemplate `json:"items"`
}

// KamajiControlPlaneTemplateSpec holds the template.
type KamajiControlPlaneTemplateSpec struct {
	// Template is what KamajiControlPlanes are made of.
	// +required
	Template KamajiControlPlaneTemplateObject `json:"template"`
}

// KamajiControlPlaneTemplateObject is a KamajiControlPlane without what each Cluster has of its own: version, replicas and endpoint.
type KamajiControlPlaneTemplateObject struct {
	// Metadata is labels and annotations that KamajiControlPlanes get. Default: none.
	// +optional
	Metadata TemplateMetadata `json:"metadata,omitzero"`
	// Spec is settings that KamajiControlPlanes get.
	// +required
	Spec Settings `json:"spec"`
}

// TemplateMetadata is labels and annotations.
type TemplateMetadata struct {
	// Labels that KamajiControlPlanes get. Default: none.
	// +optional
	Labels map[string]string `json:"labels,omitempty"`
	// Annotations that KamajiControlPlanes get. Default: none.
	// +optional
	Annotations map[string]string `json:"annotations,omitempty"`
}
