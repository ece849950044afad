package controlplane

// Types of the conditions in a KamajiControlPlane's status. Cluster API reads ConditionAvailable; the others are those of Kamaji's
// provider, each of which tells of one step and is absent until that step was tried.
const (
	// ConditionAvailable says whether the tenant's API can be used. Cluster API shows it as ControlPlaneAvailable of the Cluster.
	ConditionAvailable = "Available"
	// ConditionPaused says whether the object is left alone, because it or its Cluster is paused.
	ConditionPaused = "Paused"
	// ConditionExternalClientFound says whether the cluster of externalClusterReference can be reached and knows TenantControlPlanes. Only
	// with externalClusterReference.
	ConditionExternalClientFound = "FoundExternalReferenceClient"
	// ConditionTenantCreated says whether the TenantControlPlane was made as the spec asks.
	ConditionTenantCreated = "TenantControlPlaneCreated"
	// ConditionAddressReady says whether the TenantControlPlane has an endpoint.
	ConditionAddressReady = "TenantControlPlaneAddressReady"
	// ConditionEndpointPatched says whether spec.controlPlaneEndpoint is that endpoint.
	ConditionEndpointPatched = "ControlPlaneEndpointPatched"
	// ConditionInfrastructurePatched says whether the infrastructure cluster has that endpoint.
	ConditionInfrastructurePatched = "InfrastructureClusterPatched"
	// ConditionInitialized says whether the tenant's API has answered once, and the status says so.
	ConditionInitialized = "KamajiControlPlaneIsInitialized"
	// ConditionKubeadmResourcesCreated says whether the Secrets that Cluster API wants were written: the kubeconfig and the certificate
	// authority.
	ConditionKubeadmResourcesCreated = "KubeadmResourcesCreated"
	// ConditionReady says whether the TenantControlPlane is ready, or is being upgraded while it works.
	ConditionReady = "KamajiControlPlaneIsReady"
)

// Reasons of the conditions.
const (
	// ReasonSucceeded is that of each step that was done.
	ReasonSucceeded = "Succeeded"
	// ReasonFailed is that of a step that can't be done as things are; the message says what is in the way. It is tried again when that
	// changes.
	ReasonFailed = "Failed"
	// ReasonClusterUnreachable means that the cluster of externalClusterReference can't be asked now. The rest of the status is as it was when
	// that last answered.
	ReasonClusterUnreachable = "ClusterUnreachable"
	// ReasonWaitingForCluster means that no Cluster refers to the control plane yet.
	ReasonWaitingForCluster = "WaitingForCluster"
	// ReasonWaitingForAddress means that the tenant has no endpoint yet: its Service waits for an address.
	ReasonWaitingForAddress = "WaitingForAddress"
	// ReasonWaitingForAPI means that the tenant's API has not answered yet.
	ReasonWaitingForAPI = "WaitingForAPI"
	// ReasonWaitingForTenant means that the tenant isn't as far yet; the message says how far it is.
	ReasonWaitingForTenant = "WaitingForTenant"
	// ReasonAvailable and ReasonNotAvailable are those of ConditionAvailable.
	ReasonAvailable    = "Available"
	ReasonNotAvailable = "NotAvailable"
	// ReasonDeleting means that the control plane is being deleted, and its tenant with it.
	ReasonDeleting = "Deleting"
	// ReasonPaused and ReasonNotPaused are those of ConditionPaused.
	ReasonPaused    = "Paused"
	ReasonNotPaused = "NotPaused"
)
