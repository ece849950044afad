package controlplane

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// KamajiControlPlane is the control plane of a Cluster of Cluster API, made as a TenantControlPlane.
//
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:subresource:scale:specpath=.spec.replicas,statuspath=.status.replicas,selectorpath=.status.selector
// +kubebuilder:resource:path=kamajicontrolplanes,shortName=ktcp,categories=cluster-api;kamaji
// +kubebuilder:metadata:labels="cluster.x-k8s.io/v1beta1=v1alpha1"
// +kubebuilder:metadata:labels="cluster.x-k8s.io/v1beta2=v1alpha2"
// +kubebuilder:printcolumn:name="Version",type="string",JSONPath=".spec.version",description="Kubernetes version asked for"
// +kubebuilder:printcolumn:name="Initialized",type="boolean",JSONPath=".status['initialization.controlPlaneInitialized','initialized']",description="True once the API has answered"
// +kubebuilder:printcolumn:name="Ready",type="boolean",JSONPath=".status.ready",description="True while the API can be used"
// +kubebuilder:printcolumn:name="Age",type="date",JSONPath=".metadata.creationTimestamp",description="Age"
type KamajiControlPlane struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// Spec is what the control plane must be.
	// +required
	Spec KamajiControlPlaneSpec `json:"spec"`
	// Status is what was last observed.
	// +optional
	Status KamajiControlPlaneStatus `json:"status,omitzero"`
}

// KamajiControlPlaneList is a list of KamajiControlPlane objects.
//
// +kubebuilder:object:root=true
type KamajiControlPlaneList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []KamajiControlPlane `json:"items"`
}

// KamajiControlPlaneSpec is what a control plane must be.
type KamajiControlPlaneSpec struct {
	Settings `json:",inline"`

	// ControlPlaneEndpoint is where nodes and Cluster API reach the API server. The provider sets it; Cluster API copies it to the Cluster.
	// Default: the endpoint of the TenantControlPlane, once it has one.
	// +optional
	ControlPlaneEndpoint APIEndpoint `json:"controlPlaneEndpoint,omitzero"`
	// Replicas is the number of pods. 0 puts the tenant to sleep: its data and certificates stay, its API is away. Default: 2.
	// +kubebuilder:default=2
	// +kubebuilder:validation:Minimum=0
	// +optional
	Replicas *int32 `json:"replicas,omitempty"`
	// Version of Kubernetes, with or without a leading v, such as v1.36.3.
	// +required
	Version string `json:"version"`
}

// APIEndpoint is the address of an API server. An empty host and port 0 say that it isn't known yet, as do absent ones: clients of
// v1alpha1 write them.
//
// +kubebuilder:validation:MinProperties=1
type APIEndpoint struct {
	// Host is an IP address or DNS name. Default: not known yet.
	// +kubebuilder:validation:MaxLength=512
	// +optional
	Host string `json:"host,omitempty"`
	// Port of the API server. Default: not known yet.
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=65535
	// +optional
	Port int32 `json:"port,omitempty"`
}
