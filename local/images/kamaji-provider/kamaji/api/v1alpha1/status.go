package v1alpha1

import appsv1 "k8s.io/api/apps/v1"

// TenantControlPlaneStatus is what the provider reads of a status.
type TenantControlPlaneStatus struct {
	ControlPlaneEndpoint string             `json:"controlPlaneEndpoint,omitempty"`
	Certificates         CertificatesStatus `json:"certificates,omitempty"`
	KubeConfig           KubeconfigsStatus  `json:"kubeconfig,omitempty"`
	Kubernetes           KubernetesStatus   `json:"kubernetesResources,omitempty"`
}

// CertificatesStatus says where the tenant's CA is.
type CertificatesStatus struct {
	CA SecretStatus `json:"ca,omitempty"`
}

// KubeconfigsStatus says where the administrator's kubeconfig is.
type KubeconfigsStatus struct {
	Admin SecretStatus `json:"admin,omitempty"`
}

// SecretStatus names a Secret.
type SecretStatus struct {
	SecretName string `json:"secretName,omitempty"`
}

// KubernetesStatus is what runs.
type KubernetesStatus struct {
	Version    KubernetesVersion          `json:"version,omitempty"`
	Deployment KubernetesDeploymentStatus `json:"deployment,omitempty"`
}

// KubernetesVersion is the version that runs, and how it fares.
type KubernetesVersion struct {
	Version string                   `json:"version,omitempty"`
	Status  *KubernetesVersionStatus `json:"status,omitempty"`
}

// KubernetesVersionStatus is how a control plane fares, in a word.
type KubernetesVersionStatus string

// The words that the provider knows.
const (
	VersionReady     KubernetesVersionStatus = "Ready"
	VersionUpgrading KubernetesVersionStatus = "Upgrading"
)

// KubernetesDeploymentStatus is the Deployment that runs the control plane.
type KubernetesDeploymentStatus struct {
	appsv1.DeploymentStatus `json:",inline"`

	Selector string `json:"selector"`
}
