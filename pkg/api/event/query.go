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
