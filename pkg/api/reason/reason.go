// Package reason is the table of all words by which programs decide: why a service waits, why a step failed, why pods aren't
// ready. Services write a reason beside a sentence for people; `stoker why`, the API status and other services look at the reason
// alone. docs/reasons.md is generated from [Table].
package reason

// Reasons to wait (state.Wait). They end by themselves once what is waited for is there.
const (
	// DataStoreNotChosen: the tenant names no DataStore and none could be chosen yet.
	DataStoreNotChosen = "DataStoreNotChosen"
	// PauseUnreadable: the end of the pause in the tenant's annotation is no time.
	PauseUnreadable = "PauseUnreadable"
	// ScheduleUnreadable: what the tenant's annotations say of its sleep or its backups can't be read.
	ScheduleUnreadable = "ScheduleUnreadable"
	// QuotaUnreadable: what the tenant's annotations say of its quota can't be read.
	QuotaUnreadable = "QuotaUnreadable"
	// RestoreUnreadable: what an annotation of the tenant asks for of a restore in place can't be read, or can't be done.
	RestoreUnreadable = "RestoreUnreadable"
	// KeysNotIssued: certs has not made all keys and certificates of this generation.
	KeysNotIssued = "KeysNotIssued"
	// AccountNotProvisioned: datastore has not made user and schema.
	AccountNotProvisioned = "AccountNotProvisioned"
	// EndpointUnknown: workload does not know yet where the tenant's API is reached.
	EndpointUnknown = "EndpointUnknown"
	// EndpointMoving: the tenant has another endpoint, and its pods get a certificate for it.
	EndpointMoving = "EndpointMoving"
	// AddressPending: the Service, Ingress or route has no address yet.
	AddressPending = "AddressPending"
	// RolloutSlot: other tenants' pods are being rolled out; this one's turn comes.
	RolloutSlot = "RolloutSlot"
	// ObjectDenied: the management cluster denies an object; it is applied again now and then.
	ObjectDenied = "ObjectDenied"
	// PodsNotReady: the control plane's pods are starting. Also the reason of a failure, once that has lasted.
	PodsNotReady = "PodsNotReady"
	// PodsEnding: the control plane's pods are to end.
	PodsEnding = "PodsEnding"
	// PodsNotDeleted: the Deployment was deleted, but its pods have not been asked to end, or its ReplicaSets are left.
	PodsNotDeleted = "PodsNotDeleted"
	// PodsOnLostNode: a pod has not ended, and its node doesn't report.
	PodsOnLostNode = "PodsOnLostNode"
	// PodsNotEnding: containers run for longer than a pod has to end.
	PodsNotEnding = "PodsNotEnding"
	// PodsNotCleanedUp: the containers of a pod have ended, and its node has not given its volumes and network back.
	PodsNotCleanedUp = "PodsNotCleanedUp"
	// PodsHeld: a pod has ended, and somebody's finalizer keeps it.
	PodsHeld = "PodsHeld"
	// ObjectHeld: an object was deleted, and somebody's finalizer keeps it.
	ObjectHeld = "ObjectHeld"
	// ControlPlaneNotReady: no pod of the control plane runs this generation and is ready.
	ControlPlaneNotReady = "ControlPlaneNotReady"
	// EncryptionRollout: pods don't have the configuration of the encryption yet, or some still have another.
	EncryptionRollout = "EncryptionRollout"
	// EncryptionRewrite: objects inside the tenant have yet to be written anew, by the key that is now used or by none.
	EncryptionRewrite = "EncryptionRewrite"
	// Asleep: the tenant sleeps; nothing is done inside it.
	Asleep = "Asleep"
	// EarlierRemoval: a deletion goes on once the service before has removed its part (event.RemovalOrder).
	EarlierRemoval = "EarlierRemoval"
	// NotAdopted: Kamaji made the tenant, and nobody has said that Stoker is to work on it.
	NotAdopted = "NotAdopted"
	// StatesLost: what the services knew is lost; they look at the tenant again.
	StatesLost = "StatesLost"
)

// Reasons of failures that any service may have (state.Failure, intent.Permanent).
const (
	// Unavailable: a dependency doesn't answer; the step is tried again until it does.
	Unavailable = "Unavailable"
	// StepFailed: a step failed for no known reason and is tried again.
	StepFailed = "StepFailed"
	// RetriesExhausted: a step failed for no known reason too often.
	RetriesExhausted = "RetriesExhausted"
	// TooManyDeliveries: the replicas that worked on an event ended, each of them, before it was done.
	TooManyDeliveries = "TooManyDeliveries"
	// Panic: the service's code panicked; a defect of Stoker.
	Panic = "Panic"
	// InvalidState: a state in the tenant's bucket can't be read.
	InvalidState = "InvalidState"
	// InvalidFact: a fact's payload can't be read.
	InvalidFact = "InvalidFact"
	// TooLarge: an event is larger than what may be published.
	TooLarge = "TooLarge"
	// InvalidInbox: a command wants its answer sent to a subject that is none for answers in its namespace.
	InvalidInbox = "InvalidInbox"
	// Rejected: a command was refused, and its sender could not be told.
	Rejected = "Rejected"
	// KeepsDrifting: somebody else changes objects again and again, which are put right at a bounded rate.
	KeepsDrifting = "KeepsDrifting"
)

// Reasons why pods aren't ready: Kubernetes' own words where it has them. Those of the table are the ones with advice; a container
// may have others.
const (
	ImagePull            = "ErrImagePull"
	ImageName            = "InvalidImageName"
	ImageNeverPull       = "ErrImageNeverPull"
	Unschedulable        = "Unschedulable"
	OutOfMemory          = "OOMKilled"
	CrashLoop            = "CrashLoopBackOff"
	Crashes              = "Crashes"
	ProbesFail           = "ProbesFail"
	NoPods               = "NoPods"
	ContainerCreating    = "ContainerCreating"
	PodInitializing      = "PodInitializing"
	PodPending           = "Pending"
	PodFailed            = "PodFailed"
	NodeLost             = "NodeLost"
	DeadlineExceeded     = "ProgressDeadlineExceeded"
	ReplicaCreationError = "FailedCreate"
)

// Reasons of workload.
const (
	// OverridesNotProvisioned: the tenant has no account yet in the DataStores of its dataStoreOverrides. It is waited for.
	OverridesNotProvisioned = "OverridesNotProvisioned"
	// UpgradeUndone: pods of another version did not become ready in time; the version of before runs.
	UpgradeUndone = "UpgradeUndone"
	// SecretUnusable: a Secret that the spec refers to isn't there, or the tenant may not have it. It is waited for.
	SecretUnusable = "SecretUnusable"
	// AddressRequired: a Service of type NodePort needs an address in the spec.
	AddressRequired = "AddressRequired"
	// InvalidHostname: the port of the Ingress' host name is none.
	InvalidHostname = "InvalidHostname"
	// …Refused: the management cluster says that the object isn't valid.
	ServiceRefused       = "ServiceRefused"
	DeploymentRefused    = "DeploymentRefused"
	IngressRefused       = "IngressRefused"
	TLSRouteRefused      = "TLSRouteRefused"
	ConfigMapRefused     = "ConfigMapRefused"
	EndpointSliceRefused = "EndpointSliceRefused"
	// …Conflict: a port or an address that the object needs is another's.
	ServiceConflict       = "ServiceConflict"
	DeploymentConflict    = "DeploymentConflict"
	IngressConflict       = "IngressConflict"
	TLSRouteConflict      = "TLSRouteConflict"
	ConfigMapConflict     = "ConfigMapConflict"
	EndpointSliceConflict = "EndpointSliceConflict"
	// …Forbidden: the management cluster doesn't allow the object: a quota, a webhook, the service's rights.
	ServiceForbidden       = "ServiceForbidden"
	DeploymentForbidden    = "DeploymentForbidden"
	IngressForbidden       = "IngressForbidden"
	TLSRouteForbidden      = "TLSRouteForbidden"
	ConfigMapForbidden     = "ConfigMapForbidden"
	EndpointSliceForbidden = "EndpointSliceForbidden"
	// …NotServed: the management cluster doesn't have the object's kind or namespace.
	ServiceNotServed       = "ServiceNotServed"
	DeploymentNotServed    = "DeploymentNotServed"
	IngressNotServed       = "IngressNotServed"
	TLSRouteNotServed      = "TLSRouteNotServed"
	ConfigMapNotServed     = "ConfigMapNotServed"
	EndpointSliceNotServed = "EndpointSliceNotServed"
)

// Reasons of datastore.
const (
	// DataStoreMissing: there is no DataStore object of the name that the tenant names; a reason to wait.
	DataStoreMissing = "DataStoreMissing"
	// MigrationNotSupported: the tenant names another DataStore than the one its data is in, and they can't be moved.
	MigrationNotSupported = "MigrationNotSupported"
	// MigrationUndone: the tenant's data stay where they are, for their move was undone.
	MigrationUndone = "MigrationUndone"
	// DataMoving: the tenant's data are being moved to another DataStore; a reason to wait.
	DataMoving = "DataMoving"
	// MoveQueued: the tenant's data are to be moved, and those of other tenants are first; a reason to wait.
	MoveQueued = "MoveQueued"
	// DataRestoring: the tenant gets the data of a backup, or of another tenant; a reason to wait.
	DataRestoring = "DataRestoring"
	// RestoreImpossible: the tenant can't get the data that its annotation names.
	RestoreImpossible = "RestoreImpossible"
	// DriverNotSupported: the DataStore's driver is none that the service has.
	DriverNotSupported = "DriverNotSupported"
	// Unreachable: the DataStore's database doesn't answer, or refuses the administrator; a reason of the DataStore.
	Unreachable = "Unreachable"
	// EtcdDeniesStatus: the DataStore's etcd keeps its status from tenants; a reason of a DataStore that can be used.
	EtcdDeniesStatus = "EtcdDeniesStatus"
	// EtcdFull: the DataStore's etcd is out of room and refuses writes; a reason of a DataStore that can be read.
	EtcdFull = "EtcdFull"
	// EtcdNearlyFull: the DataStore's etcd has nearly reached its quota; a reason of a DataStore that can be used.
	EtcdNearlyFull = "EtcdNearlyFull"
	// ForeignSecret: a DataStore refers to a Secret of a namespace that the installation doesn't name; a reason of the DataStore.
	ForeignSecret = "ForeignSecret"
	// InvalidName: a schema or user has a name that the database can't have.
	InvalidName = "InvalidName"
	// SchemaTaken: the schema that the tenant names is another's.
	SchemaTaken = "SchemaTaken"
	// UserTaken: the user that the tenant names is another's.
	UserTaken = "UserTaken"
	// NotTransferable: another management cluster can't take the tenant over as it is now.
	NotTransferable = "NotTransferable"
	// TransferArriving: the Secrets of a tenant that comes from another management cluster aren't here yet; a reason to wait.
	TransferArriving = "TransferArriving"
	// TransferredElsewhere: the data of a tenant that was in another management cluster are in another DataStore than the one it was given here.
	TransferredElsewhere = "TransferredElsewhere"
	// OverrideDriver: a DataStore of an override, or the tenant's own, is no etcd.
	OverrideDriver = "OverrideDriver"
	// OverrideAuthority: a DataStore of an override has another authority than the tenant's own.
	OverrideAuthority = "OverrideAuthority"
)

// Reasons of certs' failures.
const (
	// InvalidCertSAN: an entry of spec.networkProfile.certSANs is neither an IP address nor a DNS name.
	InvalidCertSAN = "InvalidCertSAN"
	// InvalidServiceCIDR: a service network is no CIDR.
	InvalidServiceCIDR = "InvalidServiceCIDR"
	// InvalidAdvertiseAddress: the spec's advertiseAddress is neither an IP address nor a DNS name.
	InvalidAdvertiseAddress = "InvalidAdvertiseAddress"
	// InvalidEndpoint: a certificate can't name the endpoint at which the tenant's API is published.
	InvalidEndpoint = "InvalidEndpoint"
	// NameTaken: an object bears the name of one of the tenant's and isn't the tenant's.
	NameTaken = "NameTaken"
	// SecretRefused: the management cluster refuses a Secret for what is in it.
	SecretRefused = "SecretRefused"
	// EncryptionKeysLost: the keys by which the tenant's data is encrypted are gone, or were changed.
	EncryptionKeysLost = "EncryptionKeysLost"
)

// Reasons of addons.
const (
	// InvalidAddons: the objects inside the tenant can't be rendered from its spec.
	InvalidAddons = "InvalidAddons"
	// InvalidKubeletPatch: one of the spec's patches of the kubelet's configuration can't be applied, or makes what no kubelet reads.
	InvalidKubeletPatch = "InvalidKubeletPatch"
	// TenantWebhook: an admission webhook of the tenant's own keeps objects inside the tenant from being applied.
	TenantWebhook = "TenantWebhook"
	// RewriteRefused: the tenant's API refuses to write objects anew, so that the key they are encrypted by has to stay.
	RewriteRefused = "RewriteRefused"
)
