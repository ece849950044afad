package tenantaddon

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// AddonRelease is one TenantAddon in one tenant. It lies in the tenant's namespace and is made from the TenantAddon: nobody writes it by hand.
//
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:path=addonreleases,shortName=adr,categories=stoker
// +kubebuilder:printcolumn:name="Tenant",type="string",JSONPath=".spec.tenant",description="Tenant in which it is"
// +kubebuilder:printcolumn:name="Addon",type="string",JSONPath=".spec.addon.name",description="TenantAddon that it is"
// +kubebuilder:printcolumn:name="Version",type="string",JSONPath=".status.version",description="Version that is installed"
// +kubebuilder:printcolumn:name="Ready",type="string",JSONPath=".status.conditions[?(@.type=='Ready')].status",description="Whether it works"
// +kubebuilder:printcolumn:name="Status",type="string",JSONPath=".status.conditions[?(@.type=='Ready')].reason",description="Why it works or doesn't"
// +kubebuilder:printcolumn:name="Message",type="string",JSONPath=".status.conditions[?(@.type=='Ready')].message",priority=1,description="In words"
// +kubebuilder:printcolumn:name="Age",type="date",JSONPath=".metadata.creationTimestamp",description="Age"
type AddonRelease struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// Spec is what must be in the tenant.
	// +required
	Spec AddonReleaseSpec `json:"spec"`
	// Status is what was last observed.
	// +optional
	Status AddonReleaseStatus `json:"status,omitzero"`
}

// AddonReleaseList is a list of AddonRelease objects.
//
// +kubebuilder:object:root=true
type AddonReleaseList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []AddonRelease `json:"items"`
}

// AddonReleaseSpec is what must be in the tenant.
type AddonReleaseSpec struct {
	// Addon is the TenantAddon.
	// +required
	Addon AddonRef `json:"addon"`
	// Tenant is the name of the TenantControlPlane in the same namespace.
	// +kubebuilder:validation:MaxLength=63
	// +required
	Tenant string `json:"tenant"`
	// Revision of the TenantAddon that the tenant may get; empty while its wave hasn't begun. Default: empty.
	// +kubebuilder:validation:MaxLength=64
	// +optional
	Revision string `json:"revision,omitempty"`
	// Waiting says why the tenant may not get the latest revision yet; empty when it may. Default: empty.
	// +kubebuilder:validation:MaxLength=1024
	// +optional
	Waiting string `json:"waiting,omitempty"`
	// ReleaseName is the name of the Helm release.
	// +kubebuilder:validation:MaxLength=53
	// +required
	ReleaseName string `json:"releaseName"`
	// TargetNamespace is the namespace of the Helm release.
	// +kubebuilder:validation:MaxLength=63
	// +required
	TargetNamespace string `json:"targetNamespace"`
	// OnRemoval says what becomes of the software when the AddonRelease is deleted: Delete or Keep.
	// +kubebuilder:validation:Enum=Delete;Keep
	// +required
	OnRemoval string `json:"onRemoval"`
	// After are TenantAddons in addon's namespace that come before this one. Default: none.
	// +kubebuilder:validation:MaxItems=16
	// +listType=set
	// +optional
	After []string `json:"after,omitempty"`
	// ReadyWhen says when the software is ready: Applied or Healthy. Default: Healthy.
	// +kubebuilder:validation:Enum=Applied;Healthy
	// +optional
	ReadyWhen string `json:"readyWhen,omitempty"`
	// Timeout is how long an installation may take until it is ready, and each hook. Default: 5m.
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:MaxLength=32
	// +kubebuilder:validation:Pattern=`^([0-9]+([.][0-9]+)?(ms|s|m|h))+$`
	// +optional
	Timeout *metav1.Duration `json:"timeout,omitempty"`
	// Paused leaves everything as it is. Default: false.
	// +optional
	Paused bool `json:"paused,omitempty"`
}

// AddonRef names a TenantAddon.
type AddonRef struct {
	// Namespace of the TenantAddon.
	// +kubebuilder:validation:MaxLength=63
	Namespace string `json:"namespace"`
	// Name of the TenantAddon.
	// +kubebuilder:validation:MaxLength=53
	Name string `json:"name"`
}

// AddonReleaseStatus is what was last observed in the tenant.
type AddonReleaseStatus struct {
	// Revision of the TenantAddon that was tried last.
	// +optional
	Revision string `json:"revision,omitempty"`
	// Version of it: the chart's, or the beginning of the digest.
	// +optional
	Version string `json:"version,omitempty"`
	// Inputs is the hash of all that went into the installation, the tenant's own values included.
	// +optional
	Inputs string `json:"inputs,omitempty"`
	// HelmRevision is the number of the Helm release, as helm list shows it in the tenant.
	// +optional
	HelmRevision int32 `json:"helmRevision,omitempty"`
	// Objects is how many objects it has in the tenant.
	// +optional
	Objects int32 `json:"objects,omitempty"`
	// TriedAt is when that revision was begun to be installed.
	// +optional
	TriedAt *metav1.Time `json:"triedAt,omitempty"`
	// Failed says that the revision that was tried last has failed; it is tried again, less and less often.
	// +optional
	Failed bool `json:"failed,omitempty"`
	// UnremovableSince is since when the software, which is to be removed, can't be: the tenant is away or refuses it.
	// +optional
	UnremovableSince *metav1.Time `json:"unremovableSince,omitempty"`
	// Conditions are Installed and Ready.
	// +listType=map
	// +listMapKey=type
	// +optional
	Conditions []metav1.Condition `json:"conditions,omitempty"`
}
