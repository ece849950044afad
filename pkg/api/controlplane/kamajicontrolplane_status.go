package controlplane

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// KamajiControlPlaneStatus is what was last observed of a control plane. It has the fields that both versions of Cluster API's contract
// read. Each can be absent: a status may be written in parts.
type KamajiControlPlaneStatus struct {
	// Initialization is what happens once in the life of a control plane. Contract v1beta2 reads it.
	// +optional
	Initialization Initialization `json:"initialization,omitzero"`
	// Initialized is initialization.controlPlaneInitialized for contract v1beta1.
	// +optional
	Initialized *bool `json:"initialized,omitempty"`
	// Ready is true while the tenant's API can be used, also while it is being upgraded.
	// +optional
	Ready *bool `json:"ready,omitempty"`

	// Replicas is the number of pods there are.
	// +optional
	Replicas *int32 `json:"replicas,omitempty"`
	// ReadyReplicas is the number of pods that are ready.
	// +optional
	ReadyReplicas *int32 `json:"readyReplicas,omitempty"`
	// AvailableReplicas is the number of pods that have been ready for long enough to count on.
	// +optional
	AvailableReplicas *int32 `json:"availableReplicas,omitempty"`
	// UpToDateReplicas is the number of pods that are as the spec asks.
	// +optional
	UpToDateReplicas *int32 `json:"upToDateReplicas,omitempty"`
	// UpdatedReplicas is upToDateReplicas for contract v1beta1.
	// +optional
	UpdatedReplicas *int32 `json:"updatedReplicas,omitempty"`
	// UnavailableReplicas is the number of pods that are asked for and not available. Contract v1beta1 reads it.
	// +optional
	UnavailableReplicas *int32 `json:"unavailableReplicas,omitempty"`
	// Selector selects the pods by their labels, in the form of a query. Autoscalers read it by the scale subresource.
	// +optional
	Selector string `json:"selector,omitempty"`

	// Version is the lowest version of Kubernetes that API servers of the control plane run. Absent until the first runs.
	// +optional
	Version string `json:"version,omitempty"`
	// Versions are the versions of Kubernetes that API servers of the control plane run, the lowest first: two during an upgrade. Absent
	// until the first runs.
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=100
	// +listType=map
	// +listMapKey=version
	// +optional
	Versions []RunningVersion `json:"versions,omitempty"`

	// ExternalManagedControlPlane is true: no Machines belong to the control plane, and no Nodes of the tenant are its own.
	// +kubebuilder:default=true
	// +optional
	ExternalManagedControlPlane *bool `json:"externalManagedControlPlane,omitempty"`

	// FailureReason would be a word for a failure that nobody can mend. The provider knows none: it tries again, and tells why as a
	// condition.
	// +optional
	FailureReason string `json:"failureReason,omitempty"`
	// FailureMessage would be a sentence about such a failure.
	// +optional
	FailureMessage string `json:"failureMessage,omitempty"`

	// ObservedGeneration is the metadata.generation that the rest of the status is about.
	// +optional
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`
	// Conditions are the steps of making the control plane, and whether it is available.
	// +listType=map
	// +listMapKey=type
	// +optional
	Conditions []metav1.Condition `json:"conditions,omitempty"`
}

// Initialization is what happens once in the life of a control plane.
type Initialization struct {
	// ControlPlaneInitialized is true once the tenant's API has answered, and stays so.
	// +optional
	ControlPlaneInitialized *bool `json:"controlPlaneInitialized,omitempty"`
}

// RunningVersion is a version of Kubernetes that API servers run.
type RunningVersion struct {
	// Version of Kubernetes, such as v1.36.3.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=256
	// +required
	Version string `json:"version"`
	// Replicas is how many API servers run it.
	// +kubebuilder:validation:Minimum=1
	// +optional
	Replicas *int32 `json:"replicas,omitempty"`
}
