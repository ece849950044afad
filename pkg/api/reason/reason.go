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
	// KeysNotIssued: certs has not made all keys and certificates of this generation.
	KeysNotIssued = "KeysNotIssued"
	// AccountNotProvisioned: datastore has not made user and schema.
	AccountNotProvisioned = "AccountNotProvisioned"
	// EndpointUnknown: workload does not know yet where the tenant's API is reached.
	EndpointUnknown = "EndpointUnknown"
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
	// ControlPlaneNotReady: no pod of the control plane runs this generation and is ready.
	ControlPlaneNotReady = "ControlPlaneNotReady"
	// Asleep: the tenant sleeps; nothing is done inside it.
	Asleep = "Asleep"
	// EarlierRemoval: a deletion goes on once the service before has removed its part (event.RemovalOrder).
	EarlierRemoval = "EarlierRemoval"
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
	// InvalidInbox: a command wants its answer sent to a subject that is no inbox.
	InvalidInbox = "InvalidInbox"
	// Rejected: a command was refused, and its sender could not be told.
	Rejected = "Rejected"
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
	DeadlineExceeded     = "ProgressDeadlineExceeded"
	ReplicaCreationError = "FailedCreate"
)

// Reasons of addons.
const (
	// InvalidAddons: the objects inside the tenant can't be rendered from its spec.
	InvalidAddons = "InvalidAddons"
)
