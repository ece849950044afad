package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// KubeconfigGenerator makes a kubeconfig for each tenant it selects: a Secret <tenant>-<generator> in the tenant's
// namespace, whose key "value" is the kubeconfig. It is kept valid, made anew when the tenant's CA, endpoint or the
// generator changes, and deleted with the generator or the tenant.
//
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:path=kubeconfiggenerators,scope=Cluster,shortName=kc,categories=kamaji
// +kubebuilder:printcolumn:name="Tenants",type="integer",priority=1,JSONPath=".status.resources",description="How many tenants it selects"
// +kubebuilder:printcolumn:name="Available",type="integer",priority=1,JSONPath=".status.availableResources",description="How many of them have their kubeconfig"
// +kubebuilder:printcolumn:name="Age",type="date",JSONPath=".metadata.creationTimestamp",description="Age"
type KubeconfigGenerator struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// Spec is for which tenants, and for whom, kubeconfigs are made.
	// +required
	Spec KubeconfigGeneratorSpec `json:"spec"`
	// Status is what was last observed.
	// +optional
	Status KubeconfigGeneratorStatus `json:"status,omitzero"`
}

// KubeconfigGeneratorList is a list of KubeconfigGenerator objects.
//
// +kubebuilder:object:root=true
type KubeconfigGeneratorList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []KubeconfigGenerator `json:"items"`
}

// KubeconfigGeneratorSpec is for which tenants, and for whom, kubeconfigs are made.
type KubeconfigGeneratorSpec struct {
	// NamespaceSelector selects the namespaces of tenants by their labels. Default: all namespaces.
	// +optional
	NamespaceSelector metav1.LabelSelector `json:"namespaceSelector,omitempty"`
	// TenantControlPlaneSelector selects tenants by their labels. Default: all tenants of the namespaces.
	// +optional
	TenantControlPlaneSelector metav1.LabelSelector `json:"tenantControlPlaneSelector,omitempty"`
	// Groups are the groups of the user inside the tenant: the organizations (O) of the client certificate. Default: none.
	// +kubebuilder:validation:MaxItems=64
	// +optional
	Groups []CompoundValue `json:"groups,omitempty"`
	// User is the user's name inside the tenant: the common name (CN) of the client certificate.
	// +required
	User CompoundValue `json:"user"`
	// ControlPlaneEndpointFrom is the key of the Secret <tenant>-admin-kubeconfig whose kubeconfig says how the tenant is
	// reached: admin.conf for the published endpoint, admin.svc for the Service's name inside the management cluster; with
	// super-admin.conf and super-admin.svc it is the same. Default: admin.svc.
	// +kubebuilder:default="admin.svc"
	// +kubebuilder:validation:Enum=admin.conf;admin.svc;super-admin.conf;super-admin.svc
	// +optional
	ControlPlaneEndpointFrom string `json:"controlPlaneEndpointFrom,omitempty"`
}

// CompoundValue is a text given in place or taken from the tenant's object; exactly one of both.
//
// +kubebuilder:validation:XValidation:rule="(has(self.stringValue) && size(self.stringValue) > 0) != (has(self.fromDefinition) && size(self.fromDefinition) > 0)",message="set stringValue or fromDefinition, and not both"
type CompoundValue struct {
	// StringValue is the text itself. Default: none.
	// +kubebuilder:validation:MaxLength=253
	// +optional
	StringValue string `json:"stringValue,omitempty"`
	// FromDefinition is the path of a text field of the TenantControlPlane object, its parts joined by dots, such as
	// metadata.name or spec.dataStore. Default: none.
	// +kubebuilder:validation:MaxLength=1024
	// +kubebuilder:validation:Pattern=`^((apiVersion|kind|(metadata|spec|status)([.][^.[:space:]]+)+))?$`
	// +optional
	FromDefinition string `json:"fromDefinition,omitempty"`
}

// KubeconfigGeneratorStatus is what was last observed of a KubeconfigGenerator.
type KubeconfigGeneratorStatus struct {
	// Resources is how many tenants the generator selects.
	// +optional
	Resources int `json:"resources"`
	// AvailableResources is how many of them have their kubeconfig.
	// +optional
	AvailableResources int `json:"availableResources"`
	// Errors are the tenants whose kubeconfig could not be made, and why; the first 100 by name.
	// +optional
	Errors []KubeconfigGeneratorStatusError `json:"errors,omitempty"`
	// ObservedGeneration is the metadata.generation this status speaks of.
	// +optional
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`
	// Conditions: Ready says whether every selected tenant has its kubeconfig; Paused, when true, that nothing is done.
	// +listType=map
	// +listMapKey=type
	// +optional
	Conditions []metav1.Condition `json:"conditions,omitempty"`
}

// KubeconfigGeneratorStatusError is a tenant whose kubeconfig could not be made.
type KubeconfigGeneratorStatusError struct {
	// Resource is the tenant as namespace/name.
	// +required
	Resource string `json:"resource"`
	// Message says why.
	// +required
	Message string `json:"message"`
}
