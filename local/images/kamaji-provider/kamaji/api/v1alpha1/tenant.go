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

// TenantControlPlaneSpec is what a tenant is to be.
type TenantControlPlaneSpec struct {
	WritePermissions   Permissions         `json:"writePermissions,omitempty"`
	DataStore          string              `json:"dataStore,omitempty"`
	DataStoreSchema    string              `json:"dataStoreSchema,omitempty"`
	DataStoreUsername  string              `json:"dataStoreUsername,omitempty"`
	DataStoreOverrides []DataStoreOverride `json:"dataStoreOverrides,omitempty"`
	ControlPlane       ControlPlane        `json:"controlPlane"`
	Kubernetes         KubernetesSpec      `json:"kubernetes"`
	NetworkProfile     NetworkProfileSpec  `json:"networkProfile,omitempty"`
	Addons             AddonsSpec          `json:"addons,omitempty"`
}

// Permissions are writes that are refused.
type Permissions struct {
	BlockCreate bool `json:"blockCreation,omitempty"`
	BlockUpdate bool `json:"blockUpdate,omitempty"`
	BlockDelete bool `json:"blockDeletion,omitempty"`
}

// DataStoreOverride is a resource with a DataStore of its own.
type DataStoreOverride struct {
	Resource  string `json:"resource,omitempty"`
	DataStore string `json:"dataStore,omitempty"`
}

// NetworkProfileSpec is addresses and networks.
type NetworkProfileSpec struct {
	LoadBalancerSourceRanges []string `json:"loadBalancerSourceRanges,omitempty"`
	LoadBalancerClass        *string  `json:"loadBalancerClass,omitempty"`
	Address                  string   `json:"address,omitempty"`
	AdvertiseAddress         string   `json:"advertiseAddress,omitempty"`
	ClusterDomain            string   `json:"clusterDomain,omitempty"`
	AllowAddressAsExternalIP bool     `json:"allowAddressAsExternalIP,omitempty"`
	Port                     int32    `json:"port,omitempty"`
	CertSANs                 []string `json:"certSANs,omitempty"`
	ServiceCIDR              string   `json:"serviceCidr,omitempty"`
	PodCIDR                  string   `json:"podCidr,omitempty"`
	DNSServiceIPs            []string `json:"dnsServiceIPs,omitempty"`
}
