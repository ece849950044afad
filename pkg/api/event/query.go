package event

import (
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/stoker-k8s/stoker/pkg/api/state"
)

// Subjects of the questions that the status service answers (NATS micro service stoker-status), and its name there.
const (
	StatusService = "stoker-status"
	QueryStatus   = "stoker.status.get"
	QueryWhy      = "stoker.status.why"
)

// Query asks about one tenant.
type Query struct {
	Namespace string `json:"namespace"`
	Name      string `json:"name"`
}

// StatusReply answers QueryStatus: what was published last about the tenant, and its conditions.
type StatusReply struct {
	StatusChanged
	Conditions []metav1.Condition `json:"conditions,omitempty"`
}

// WhyReply answers QueryWhy: where each service stands with the tenant.
type WhyReply struct {
	About
	// Phase, Ready, Reason and Message as last published.
	Phase   string `json:"phase,omitempty"`
	Ready   bool   `json:"ready"`
	Reason  string `json:"reason,omitempty"`
	Message string `json:"message,omitempty"`
	// AcceptedAt is when this generation was accepted (UTC).
	AcceptedAt time.Time `json:"acceptedAt,omitzero"`
	Deleting   bool      `json:"deleting,omitempty"`
	Paused     bool      `json:"paused,omitempty"`
	// PausedUntil is when the pause ends by itself (UTC), absent when it doesn't.
	PausedUntil time.Time `json:"pausedUntil,omitzero"`
	// Services in the order in which a tenant meets them.
	Services []ServiceState `json:"services"`
	// DataStores that the tenant uses and of which something should be put right, its own first.
	DataStores []DataStoreState `json:"dataStores,omitempty"`
	// Backup is what became of the tenant's backups, absent before the first was due.
	Backup *state.Backup `json:"backup,omitempty"`
	// Usage is how near the tenant is to its quota, absent without one.
	Usage *state.Usage `json:"usage,omitempty"`
	// TenantAddons are those for the tenant that aren't as they must be in it, by namespace and name.
	TenantAddons []TenantAddonState `json:"tenantAddons,omitempty"`
	// ArgoCD says why Argo CD doesn't know the tenant as it must; absent when it does, or needn't.
	ArgoCD *ArgoCDState `json:"argoCD,omitempty"`
}

// ArgoCDState is Reason and Message of a tenant's condition ArgoCDRegistered, and since when it is so (UTC).
type ArgoCDState struct {
	Reason  string    `json:"reason"`
	Message string    `json:"message,omitempty"`
	Since   time.Time `json:"since,omitzero"`
}

// TenantAddonState says where a TenantAddon stands in a tenant.
type TenantAddonState struct {
	// Namespace and Name of the TenantAddon.
	Namespace string `json:"namespace"`
	Name      string `json:"name"`
	// Reason is that of the condition Ready of its AddonRelease, which says more.
	Reason string `json:"reason"`
}

// DataStoreState says what should be put right about a DataStore.
type DataStoreState struct {
	Name string `json:"name"`
	// Ready is whether it can be used all the same.
	Ready bool `json:"ready"`
	// Reason and Message of its condition kamaji.clastix.io/DataStoreValidation, or DataStoreMissing.
	Reason  string `json:"reason"`
	Message string `json:"message,omitempty"`
}

// ServiceState says where one service stands with a tenant.
type ServiceState struct {
	Service string `json:"service"`
	// Step done last, empty when the service has not come to the tenant yet; Generation it was for.
	Step       string `json:"step,omitempty"`
	Generation int64  `json:"generation,omitempty"`
	// Wait is what is missing, Failure what went wrong last.
	state.Wait
	Failure *state.Failure `json:"failure,omitempty"`
	// Since is when the service last wrote its state (UTC).
	Since time.Time `json:"since,omitzero"`
}

// Subjects of the questions that the datastore service answers (NATS micro service stoker-datastore), and its name there.
const (
	DatastoreService = "stoker-datastore"
	QueryOrphans     = "stoker.datastore.orphans"
	QueryDrop        = "stoker.datastore.drop"
)

// MaxOrphans is how many orphans an answer names, and a request to drop may name.
const MaxOrphans = 1000

// OrphansQuery asks for what DataStores keep for owners that are no tenant.
type OrphansQuery struct {
	// DataStore to look into, empty for all.
	DataStore string `json:"dataStore,omitempty"`
}

// Orphan is an account in a DataStore whose owner is no tenant of the management cluster.
type Orphan struct {
	DataStore string `json:"dataStore"`
	// Schema and User on record; one of them may be empty.
	Schema string `json:"schema,omitempty"`
	User   string `json:"user,omitempty"`
	// Owner is the UID of the tenant it was made for.
	Owner string `json:"owner"`
	// Bytes and Keys it holds, estimated; absent when the DataStore doesn't say.
	Bytes int64 `json:"bytes,omitempty"`
	Keys  int64 `json:"keys,omitempty"`
}

// OrphansReply answers QueryOrphans.
type OrphansReply struct {
	// Orphans by DataStore, schema and user, MaxOrphans at most.
	Orphans []Orphan `json:"orphans"`
	// More is how many there are besides.
	More int `json:"more,omitempty"`
	// Failed says why a DataStore could not be looked into, by its name.
	Failed map[string]string `json:"failed,omitempty"`
}

// DropQuery asks to remove orphans of one DataStore with all their data. Who is a tenant's meanwhile is left alone.
type DropQuery struct {
	DataStore string   `json:"dataStore"`
	Orphans   []Orphan `json:"orphans"`
}

// DropReply answers QueryDrop.
type DropReply struct {
	// Dropped are the orphans that were asked for, in that order.
	Dropped []Dropped `json:"dropped"`
}

// Dropped says what became of an orphan.
type Dropped struct {
	Orphan
	// Removed counts what was removed, by kind ("User": 1).
	Removed map[string]int `json:"removed,omitempty"`
	// Error says why it, or what is left of it, was not removed.
	Error string `json:"error,omitempty"`
}

// Subjects of the questions that the intake service answers (NATS micro service stoker-intake), and its name there.
const (
	IntakeService   = "stoker-intake"
	QueryDeadList   = "stoker.dead.list"
	QueryDeadReplay = "stoker.dead.replay"
	QueryDeadDrop   = "stoker.dead.drop"
	QueryReplicas   = "stoker.replicas.list"
	QueryPartitions = "stoker.replicas.partitions"
	QueryResync     = "stoker.tenants.resync"
)

// MaxDeadLetters is how many dead letters an answer names, and a request replays or drops.
const MaxDeadLetters = 100

// DeadFilter picks dead letters. What is empty picks all.
type DeadFilter struct {
	// Service that gave the event up.
	Service string `json:"service,omitempty"`
	// Namespace and Name of the object the event is about. DataStores have the namespace "-", KubeconfigGenerators
	// "-kubeconfiggenerators".
	Namespace string `json:"namespace,omitempty"`
	Name      string `json:"name,omitempty"`
}

// DeadListQuery asks for dead letters.
type DeadListQuery struct {
	DeadFilter
	// Before is the sequence before which they are wanted, for the next page; 0 for the newest.
	Before uint64 `json:"before,omitempty"`
	// Limit is how many are wanted, 1 to MaxDeadLetters; 0 for 20.
	Limit int `json:"limit,omitempty"`
}

// DeadLetter says what is known of a dead letter, but not what the event holds.
type DeadLetter struct {
	// Sequence in the stream STOKER_DEAD, by which the letter is replayed or dropped.
	Sequence uint64 `json:"sequence"`
	// Time it was given up (UTC).
	Time time.Time `json:"time"`
	// Service that gave it up.
	Service   string `json:"service"`
	Namespace string `json:"namespace"`
	Name      string `json:"name"`
	// Subject on which it was delivered.
	Subject string `json:"subject,omitempty"`
	// Type, ID and Source of the event, as its sender wrote them; empty for what is no CloudEvent.
	Type   string `json:"type,omitempty"`
	ID     string `json:"id,omitempty"`
	Source string `json:"source,omitempty"`
	// Reason is one of pkg/api/reason, Cause is for people.
	Reason string `json:"reason"`
	Cause  string `json:"cause"`
	// Deliveries counts how often the server had delivered it; 0 when that isn't known.
	Deliveries int `json:"deliveries,omitempty"`
	// Truncated is the size in bytes of data that was cut off, 0 when all is there.
	Truncated int `json:"truncated,omitempty"`
}

// DeadListReply answers QueryDeadList.
type DeadListReply struct {
	// Letters, newest first.
	Letters []DeadLetter `json:"letters"`
	// More is true when there are older ones: ask again, before the sequence of the last.
	More bool `json:"more,omitempty"`
}

// DeadReplayQuery asks to hand dead letters once more to the service that gave them up: one by its sequence, or all that a filter
// picks.
type DeadReplayQuery struct {
	Sequence uint64 `json:"sequence,omitempty"`
	DeadFilter
	// All must be true for those of a filter.
	All bool `json:"all,omitempty"`
	// Force replays a command also when its object was changed after it was given up: that change is undone.
	Force bool `json:"force,omitempty"`
}

// DeadReplayReply answers QueryDeadReplay.
type DeadReplayReply struct {
	// Replayed are gone from the dead letters, in the order in which they had been given up.
	Replayed []DeadLetter `json:"replayed"`
	// Left are still there.
	Left []DeadLeft `json:"left,omitempty"`
	// More is true when the filter picks more than were looked at: ask again.
	More bool `json:"more,omitempty"`
}

// DeadLeft says why a dead letter was left.
type DeadLeft struct {
	DeadLetter
	Error string `json:"error"`
}

// DeadDropQuery asks to remove dead letters for good: one by its sequence, or all that a filter picks.
type DeadDropQuery struct {
	Sequence uint64 `json:"sequence,omitempty"`
	DeadFilter
	// All must be true for those of a filter.
	All bool `json:"all,omitempty"`
}

// DeadDropReply answers QueryDeadDrop.
type DeadDropReply struct {
	// Dropped are gone, newest first.
	Dropped []DeadLetter `json:"dropped"`
	// More is true when the filter picks more: ask again.
	More bool `json:"more,omitempty"`
}

// ReplicasQuery asks for the replicas, or for who holds which partition.
type ReplicasQuery struct {
	// Service it is about, empty for all.
	Service string `json:"service,omitempty"`
}

// ReplicasReply answers QueryReplicas.
type ReplicasReply struct {
	// Replicas by service and name.
	Replicas []Replica `json:"replicas"`
	// Missing are the services of which no replica answers.
	Missing []string `json:"missing,omitempty"`
}

// Replica is what a replica says of itself.
type Replica struct {
	Service string `json:"service"`
	Replica string `json:"replica"`
	// Silent is true for one that is known and doesn't answer: of it, only what it holds is said.
	Silent  bool   `json:"silent,omitempty"`
	Version string `json:"version,omitempty"`
	// Ready is false while something is away that it depends on; Away names that.
	Ready bool     `json:"ready"`
	Away  []string `json:"away,omitempty"`
	// Heartbeat is when NATS stored its last one (UTC, by its own clock); absent while it has no lease.
	Heartbeat time.Time `json:"heartbeat,omitzero"`
	// Partitions it holds.
	Partitions []Holding `json:"partitions"`
}

// Holding is a partition that a replica holds.
type Holding struct {
	Partition int `json:"partition"`
	// Since when (UTC, by the replica's clock); absent when that isn't known.
	Since time.Time `json:"since,omitzero"`
}

// PartitionsReply answers QueryPartitions.
type PartitionsReply struct {
	Services []ServicePartitions `json:"services"`
}

// ServicePartitions says who holds the partitions of a service.
type ServicePartitions struct {
	Service string `json:"service"`
	// Held by replicas, by partition.
	Held []HeldPartition `json:"held"`
	// Nobody holds these: tenants in them wait.
	Nobody []int `json:"nobody,omitempty"`
}

// HeldPartition says which replica holds a partition.
type HeldPartition struct {
	Holding
	Replica string `json:"replica"`
	// Silent is true when that replica doesn't answer: others take over when they have not heard it for seconds.
	Silent bool `json:"silent,omitempty"`
}

// ResyncQuery asks that every service looks at tenants anew, as it does once a day: one, those of a namespace, or all.
type ResyncQuery struct {
	Namespace string `json:"namespace,omitempty"`
	Name      string `json:"name,omitempty"`
	// All must be true for all tenants.
	All bool `json:"all,omitempty"`
}

// ResyncReply answers QueryResync.
type ResyncReply struct {
	// Asked is how many tenants will be looked at.
	Asked int `json:"asked"`
	// Until is when the last of them is (UTC): many are looked at one after the other.
	Until time.Time `json:"until"`
}
