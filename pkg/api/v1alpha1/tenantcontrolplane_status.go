package v1alpha1

import (
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"
)

// TenantControlPlaneStatus is what was last observed of a tenant's control plane.
type TenantControlPlaneStatus struct {
	// ObservedGeneration is the metadata.generation this status speaks of.
	// +optional
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`
	// Conditions in the manner of kstatus: Ready, Reconciling and Stalled say where the tenant stands as a whole; the
	// others, which step it is at.
	// +listType=map
	// +listMapKey=type
	// +optional
	Conditions []metav1.Condition `json:"conditions,omitempty"`
	// Storage is where the tenant's data lives.
	// +optional
	Storage StorageStatus `json:"storage,omitzero"`
	// Certificates are the Secrets with the tenant's keys and certificates.
	// +optional
	Certificates CertificatesStatus `json:"certificates,omitzero"`
	// KubeConfig is the Secrets with kubeconfigs.
	// +optional
	KubeConfig KubeconfigsStatus `json:"kubeconfig,omitzero"`
	// Kubernetes is the version that runs and the objects in the management cluster.
	// +optional
	Kubernetes KubernetesStatus `json:"kubernetesResources,omitzero"`
	// KubeadmConfig is the ConfigMap with the tenant's kubeadm configuration.
	// +optional
	KubeadmConfig KubeadmConfigStatus `json:"kubeadmconfig,omitzero"`
	// KubeadmPhase is the kubeadm phases that were run inside the tenant.
	// +optional
	KubeadmPhase KubeadmPhasesStatus `json:"kubeadmPhase,omitzero"`
	// ControlPlaneEndpoint is where the API server is reached, as host:port.
	// +optional
	ControlPlaneEndpoint string `json:"controlPlaneEndpoint,omitempty"`
	// Addons is what is installed inside the tenant.
	// +optional
	Addons AddonsStatus `json:"addons,omitzero"`
	// Bootstrap is kept for compatibility and not written.
	// +optional
	Bootstrap *BootstrapStatus `json:"bootstrap,omitempty"`
}

// BootstrapStatus is kept for compatibility and not written.
type BootstrapStatus struct {
	// RBAC is the roles that bootstrapping tenants takes.
	// +optional
	RBAC *RBACBootstrapStatus `json:"rbac,omitempty"`
}

// RBACBootstrapStatus is kept for compatibility and not written.
type RBACBootstrapStatus struct {
	// ClusterRoleBinding is the binding of the tenant's administrators.
	// +optional
	ClusterRoleBinding ExternalKubernetesObjectStatus `json:"clusterRoleBinding,omitzero"`
}

// StorageStatus is where a tenant's data lives.
type StorageStatus struct {
	// Driver of the DataStore.
	// +optional
	Driver string `json:"driver,omitempty"`
	// DataStoreName is the DataStore in use.
	// +optional
	DataStoreName string `json:"dataStoreName,omitempty"`
	// Overrides are the resources that other DataStores hold; empty for none, and absent while that isn't known.
	// +optional
	// +listType=atomic
	Overrides []DataStoreOverride `json:"overrides,omitzero"`
	// Config is the Secret with the connection's settings.
	// +optional
	Config DataStoreConfigStatus `json:"config,omitzero"`
	// Setup is the tenant's user and schema in the DataStore.
	// +optional
	Setup DataStoreSetupStatus `json:"setup,omitzero"`
	// Certificate is the Secret with the tenant's client certificate of the DataStore.
	// +optional
	Certificate DataStoreCertificateStatus `json:"certificate,omitzero"`
	// Usage is how much the tenant holds in the DataStore; absent until it was measured.
	// +optional
	Usage *StorageUsage `json:"usage,omitempty"`
}

// StorageUsage is how much was held in a DataStore when that last changed notably.
type StorageUsage struct {
	// Bytes on the database's disk, estimated from its own statistics.
	// +optional
	Bytes int64 `json:"bytes"`
	// Keys is how many there are, estimated as bytes are.
	// +optional
	Keys int64 `json:"keys"`
	// MeasuredAt is when this was measured.
	// +optional
	MeasuredAt metav1.Time `json:"measuredAt,omitzero"`
}

// DataStoreConfigStatus is the Secret with the settings of the connection to the DataStore.
type DataStoreConfigStatus struct {
	// SecretName is the Secret's name.
	// +optional
	SecretName string `json:"secretName,omitempty"`
	// Checksum of the Secret's data.
	// +optional
	Checksum string `json:"checksum,omitempty"`
}

// DataStoreSetupStatus is a tenant's user and schema in the DataStore.
type DataStoreSetupStatus struct {
	// Schema is the database, key prefix or bucket.
	// +optional
	Schema string `json:"schema,omitempty"`
	// User is the user's name.
	// +optional
	User string `json:"user,omitempty"`
	// LastUpdate is when user, schema or grants last changed.
	// +optional
	LastUpdate metav1.Time `json:"lastUpdate,omitzero"`
	// Checksum of the settings that were applied.
	// +optional
	Checksum string `json:"checksum,omitempty"`
}

// DataStoreCertificateStatus is the Secret with a tenant's client certificate of the DataStore.
type DataStoreCertificateStatus struct {
	// SecretName is the Secret's name.
	// +optional
	SecretName string `json:"secretName,omitempty"`
	// Checksum of the Secret's data.
	// +optional
	Checksum string `json:"checksum,omitempty"`
	// LastUpdate is when the Secret last changed.
	// +optional
	LastUpdate metav1.Time `json:"lastUpdate,omitzero"`
}

// CertificatesStatus is the Secrets with a tenant's keys and certificates.
type CertificatesStatus struct {
	// CA is the tenant's certificate authority.
	// +optional
	CA CertificatePrivateKeyPairStatus `json:"ca,omitzero"`
	// APIServer is the serving certificate of the API server.
	// +optional
	APIServer CertificatePrivateKeyPairStatus `json:"apiServer,omitzero"`
	// APIServerKubeletClient is the API server's client certificate for kubelets.
	// +optional
	APIServerKubeletClient CertificatePrivateKeyPairStatus `json:"apiServerKubeletClient,omitzero"`
	// FrontProxyCA is the certificate authority of API aggregation.
	// +optional
	FrontProxyCA CertificatePrivateKeyPairStatus `json:"frontProxyCA,omitzero"`
	// FrontProxyClient is the API server's client certificate for aggregated APIs.
	// +optional
	FrontProxyClient CertificatePrivateKeyPairStatus `json:"frontProxyClient,omitzero"`
	// SA is the key pair that signs ServiceAccount tokens.
	// +optional
	SA PublicKeyPrivateKeyPairStatus `json:"sa,omitzero"`
	// ETCD is kept for compatibility and not written.
	// +optional
	ETCD *ETCDCertificatesStatus `json:"etcd,omitempty"`
}

// CertificatePrivateKeyPairStatus is the Secret with a certificate and its key.
type CertificatePrivateKeyPairStatus struct {
	// SecretName is the Secret's name.
	// +optional
	SecretName string `json:"secretName,omitempty"`
	// LastUpdate is when the Secret last changed.
	// +optional
	LastUpdate metav1.Time `json:"lastUpdate,omitzero"`
	// Checksum of the Secret's data.
	// +optional
	Checksum string `json:"checksum,omitempty"`
}

// PublicKeyPrivateKeyPairStatus is the Secret with a key pair.
type PublicKeyPrivateKeyPairStatus struct {
	// SecretName is the Secret's name.
	// +optional
	SecretName string `json:"secretName,omitempty"`
	// LastUpdate is when the Secret last changed.
	// +optional
	LastUpdate metav1.Time `json:"lastUpdate,omitzero"`
	// Checksum of the Secret's data.
	// +optional
	Checksum string `json:"checksum,omitempty"`
}

// ETCDCertificatesStatus is kept for compatibility and not written.
type ETCDCertificatesStatus struct {
	// APIServer is the API server's client certificate for etcd.
	// +optional
	APIServer CertificatePrivateKeyPairStatus `json:"apiServer,omitzero"`
	// CA is the certificate authority of etcd.
	// +optional
	CA CertificatePrivateKeyPairStatus `json:"ca,omitzero"`
}

// KubeconfigsStatus is the Secrets with kubeconfigs.
type KubeconfigsStatus struct {
	// Admin is the kubeconfigs of the tenant's administrators.
	// +optional
	Admin KubeconfigStatus `json:"admin,omitzero"`
	// ControllerManager is the kubeconfig of kube-controller-manager.
	// +optional
	ControllerManager KubeconfigStatus `json:"controllerManager,omitzero"`
	// Scheduler is the kubeconfig of kube-scheduler.
	// +optional
	Scheduler KubeconfigStatus `json:"scheduler,omitzero"`
}

// KubeconfigStatus is the Secret with a kubeconfig.
type KubeconfigStatus struct {
	// SecretName is the Secret's name.
	// +optional
	SecretName string `json:"secretName,omitempty"`
	// LastUpdate is when the Secret last changed.
	// +optional
	LastUpdate metav1.Time `json:"lastUpdate,omitzero"`
	// Checksum of the Secret's data.
	// +optional
	Checksum string `json:"checksum,omitempty"`
}

// KubernetesStatus is the version that runs and the objects in the management cluster.
type KubernetesStatus struct {
	// Version is the Kubernetes version that runs, and what is happening to it.
	// +optional
	Version KubernetesVersion `json:"version,omitzero"`
	// Deployment is the pods that run the control plane.
	// +optional
	Deployment *KubernetesDeploymentStatus `json:"deployment,omitempty"`
	// Service is how the control plane is reached.
	// +optional
	Service *KubernetesServiceStatus `json:"service,omitempty"`
	// Ingress is the Ingress, if there is one.
	// +optional
	Ingress *KubernetesIngressStatus `json:"ingress,omitempty"`
	// Gateway is the route of the API server, if there is one.
	// +optional
	Gateway *KubernetesGatewayStatus `json:"gateway,omitempty"`
}

// KubernetesVersionStatus says where a tenant's control plane stands.
//
// +kubebuilder:validation:Enum=Unknown;Provisioning;CertificateAuthorityRotating;Upgrading;Migrating;Ready;NotReady;Sleeping;WriteLimited
type KubernetesVersionStatus string

// Where a tenant's control plane can stand.
const (
	// VersionUnknown means that a rollout that is no upgrade is in progress.
	VersionUnknown KubernetesVersionStatus = "Unknown"
	// VersionProvisioning means that the tenant has not been ready yet.
	VersionProvisioning KubernetesVersionStatus = "Provisioning"
	// VersionCARotating means that a new certificate authority is being rolled out.
	VersionCARotating KubernetesVersionStatus = "CertificateAuthorityRotating"
	// VersionUpgrading means that another Kubernetes version is being rolled out.
	VersionUpgrading KubernetesVersionStatus = "Upgrading"
	// VersionMigrating means that the data moves to another DataStore.
	VersionMigrating KubernetesVersionStatus = "Migrating"
	// VersionReady means that the API answers and all pods are up to date.
	VersionReady KubernetesVersionStatus = "Ready"
	// VersionNotReady means that no pod is ready.
	VersionNotReady KubernetesVersionStatus = "NotReady"
	// VersionSleeping means that there are no pods because none are asked for.
	VersionSleeping KubernetesVersionStatus = "Sleeping"
	// VersionWriteLimited means that some writes are blocked by spec.writePermissions.
	VersionWriteLimited KubernetesVersionStatus = "WriteLimited"
)

// KubernetesVersion is the Kubernetes version that runs, and what is happening to it.
type KubernetesVersion struct {
	// Version that was last rolled out completely.
	// +optional
	Version string `json:"version,omitempty"`
	// Status of the control plane. Default: Provisioning.
	// +kubebuilder:default=Provisioning
	// +optional
	Status *KubernetesVersionStatus `json:"status,omitempty"`
}

// KubernetesDeploymentStatus is the status of a control plane's Deployment.
type KubernetesDeploymentStatus struct {
	appsv1.DeploymentStatus `json:",inline"`
	// Selector of the pods, as a string, for the scale subresource.
	// +required
	Selector string `json:"selector"`
	// Name of the Deployment.
	// +required
	Name string `json:"name"`
	// Namespace of the Deployment.
	// +required
	Namespace string `json:"namespace"`
	// LastUpdate is when the Deployment last changed.
	// +optional
	LastUpdate metav1.Time `json:"lastUpdate,omitzero"`
}

// KubernetesServiceStatus is the status of a control plane's Service.
type KubernetesServiceStatus struct {
	corev1.ServiceStatus `json:",inline"`
	// Name of the Service.
	// +required
	Name string `json:"name"`
	// Namespace of the Service.
	// +required
	Namespace string `json:"namespace"`
	// Port of the Service.
	// +required
	Port int32 `json:"port"`
}

// KubernetesIngressStatus is the status of a control plane's Ingress.
type KubernetesIngressStatus struct {
	networkingv1.IngressStatus `json:",inline"`
	// Name of the Ingress.
	// +required
	Name string `json:"name"`
	// Namespace of the Ingress.
	// +required
	Namespace string `json:"namespace"`
}

// KubernetesGatewayStatus is the status of a TLSRoute of a control plane.
type KubernetesGatewayStatus struct {
	gatewayv1.RouteStatus `json:",inline"`
	// RouteRef is the TLSRoute.
	// +optional
	RouteRef corev1.LocalObjectReference `json:"routeRef,omitzero"`
	// AccessPoints are the addresses under which the route can be reached.
	// +optional
	AccessPoints []GatewayAccessPoint `json:"accessPoints,omitempty"`
}

// GatewayAccessPoint is an address under which a route can be reached.
type GatewayAccessPoint struct {
	// Type of the address.
	// +required
	Type *gatewayv1.AddressType `json:"type"`
	// Value is the address, as https://host:port.
	// +required
	Value string `json:"value"`
	// Port of the listener.
	// +required
	Port int32 `json:"port"`
	// URLs of the access point.
	// +optional
	URLs []string `json:"urls,omitempty"`
}

// KubeadmConfigStatus is the ConfigMap with a tenant's kubeadm configuration.
type KubeadmConfigStatus struct {
	// ConfigmapName is the ConfigMap's name.
	// +optional
	ConfigmapName string `json:"configmapName,omitempty"`
	// LastUpdate is when the ConfigMap last changed.
	// +optional
	LastUpdate metav1.Time `json:"lastUpdate,omitzero"`
	// Checksum of the ConfigMap's data.
	// +optional
	Checksum string `json:"checksum,omitempty"`
}

// KubeadmPhasesStatus is the kubeadm phases that were run inside a tenant.
type KubeadmPhasesStatus struct {
	// BootstrapToken is the phase that lets nodes join.
	// +required
	BootstrapToken KubeadmPhaseStatus `json:"bootstrapToken"`
}

// KubeadmPhaseStatus is one kubeadm phase.
type KubeadmPhaseStatus struct {
	// Checksum of what the phase applied.
	// +optional
	Checksum string `json:"checksum,omitempty"`
	// LastUpdate is when the phase last applied something.
	// +optional
	LastUpdate metav1.Time `json:"lastUpdate,omitzero"`
}

// AddonsStatus is what is installed inside a tenant.
type AddonsStatus struct {
	// CoreDNS is the status of CoreDNS.
	// +optional
	CoreDNS *AddonStatus `json:"coreDNS,omitempty"`
	// KubeProxy is the status of kube-proxy.
	// +optional
	KubeProxy *AddonStatus `json:"kubeProxy,omitempty"`
	// Konnectivity is the status of the konnectivity tunnel.
	// +optional
	Konnectivity *KonnectivityStatus `json:"konnectivity,omitempty"`
}

// AddonStatus is the status of CoreDNS or kube-proxy.
type AddonStatus struct {
	// Enabled says whether the addon is installed.
	// +required
	Enabled bool `json:"enabled"`
	// LastUpdate is when the addon's objects last changed.
	// +optional
	LastUpdate metav1.Time `json:"lastUpdate,omitzero"`
}

// KonnectivityStatus is the status of the konnectivity tunnel.
type KonnectivityStatus struct {
	// Enabled says whether the tunnel is installed.
	// +required
	Enabled bool `json:"enabled"`
	// ConfigMap is the API server's egress selector configuration.
	// +optional
	ConfigMap KonnectivityConfigMap `json:"configMap,omitzero"`
	// Certificate is the server's client certificate.
	// +optional
	Certificate CertificatePrivateKeyPairStatus `json:"certificate,omitzero"`
	// Kubeconfig is the server's kubeconfig.
	// +optional
	Kubeconfig KubeconfigStatus `json:"kubeconfig,omitzero"`
	// ServiceAccount is the agent's ServiceAccount in the tenant.
	// +optional
	ServiceAccount ExternalKubernetesObjectStatus `json:"sa,omitzero"`
	// ClusterRoleBinding lets the server check agents' tokens in the tenant.
	// +optional
	ClusterRoleBinding ExternalKubernetesObjectStatus `json:"clusterrolebinding,omitzero"`
	// Agent is the agent's workload in the tenant.
	// +optional
	Agent KonnectivityAgentStatus `json:"agent,omitzero"`
	// Service is how agents reach the server.
	// +optional
	Service *KubernetesServiceStatus `json:"service,omitempty"`
	// Gateway is the route of the server, if there is one.
	// +optional
	Gateway *KubernetesGatewayStatus `json:"gateway,omitempty"`
}

// KonnectivityConfigMap is the API server's egress selector configuration.
type KonnectivityConfigMap struct {
	// Name of the ConfigMap.
	// +optional
	Name string `json:"name,omitempty"`
	// Checksum of the ConfigMap's data.
	// +optional
	Checksum string `json:"checksum,omitempty"`
}

// ExternalKubernetesObjectStatus is an object inside a tenant.
type ExternalKubernetesObjectStatus struct {
	// Name of the object.
	// +optional
	Name string `json:"name,omitempty"`
	// Namespace of the object.
	// +optional
	Namespace string `json:"namespace,omitempty"`
	// LastUpdate is when the object last changed.
	// +optional
	LastUpdate metav1.Time `json:"lastUpdate,omitzero"`
}

// KonnectivityAgentStatus is the agent's workload in a tenant.
type KonnectivityAgentStatus struct {
	ExternalKubernetesObjectStatus `json:",inline"`
	// Mode is the kind of workload.
	// +optional
	Mode KonnectivityAgentMode `json:"mode,omitempty"`
}
