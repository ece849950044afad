package v1alpha1

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// TenantControlPlane is a tenant.
type TenantControlPlane struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	Spec   TenantControlPlaneSpec   `json:"spec,omitempty"`
	Status TenantControlPlaneStatus `json:"status,omitempty"`
}

// TenantControlPlaneList is a list of tenants.
type TenantControlPlaneList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`

	Items []TenantControlPlane `json:"items"`
}

// ServiceType is the type of a Service.
type ServiceType string

// AdmissionControllers are those that are on.
type AdmissionControllers []AdmissionController

// AdmissionController is the name of one.
type AdmissionController string

// KubernetesVersionStatus is how a control plane fares, in a word.
type KubernetesVersionStatus string

// The words that the provider knows.
const (
	VersionReady     KubernetesVersionStatus = "Ready"
	VersionUpgrading KubernetesVersionStatus = "Upgrading"
)
