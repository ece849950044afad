// Package event is the catalogue of everything that flows: every command and fact with its CloudEvents type, payload and
// JSON Schema. Subjects are built in pkg/events.
package event

import (
	"encoding/json"
	"time"

	"github.com/stoker-k8s/stoker/pkg/api/v1alpha1"
)

// TypePrefix starts every CloudEvents type of Stoker (reverse DNS of stoker.dev).
const TypePrefix = "dev.stoker."

// SchemaBase is the URI under which the JSON Schemas of the payloads are published (attribute dataschema).
const SchemaBase = "https://stoker.dev/schemas/"

// Kinds as they appear in subjects: the plural resource names.
const (
	TenantControlPlanes = "tenantcontrolplanes"
	DataStores          = "datastores"
)

// Types of commands.
const (
	TenantApply     = TypePrefix + "tenantcontrolplane.apply.v1"
	TenantDelete    = TypePrefix + "tenantcontrolplane.delete.v1"
	DataStoreApply  = TypePrefix + "datastore.apply.v1"
	DataStoreDelete = TypePrefix + "datastore.delete.v1"
)

// What happened: the last token of a fact's subject, after the service that tells it.
const (
	Accepted    = "accepted"
	Rejected    = "rejected"
	Deleting    = "deleting"
	Provisioned = "provisioned"
	Checked     = "checked"
	Issued      = "issued"
	Rotated     = "rotated"
	Exposed     = "exposed"
	Available   = "available"
	Degraded    = "degraded"
	Upgraded    = "upgraded"
	Slept       = "slept"
	Applied     = "applied"
	Repaired    = "repaired"
	Removed     = "removed"
	Changed     = "changed"
	Deleted     = "deleted"
	Failed      = "failed"
	Due         = "due"
)

// FactType is the CloudEvents type of a fact ("dev.stoker.certs.issued.v1").
func FactType(service, what string) string { return TypePrefix + service + "." + what + ".v1" }

// About says which object a fact is about; every payload of a fact starts with it.
type About struct {
	// Namespace of the object, empty for cluster-scoped kinds.
	Namespace string `json:"namespace,omitempty"`
	// Name of the object.
	Name string `json:"name"`
	// UID of the object, empty when there is none (a rejected command).
	UID string `json:"uid,omitempty"`
	// Generation of the object's metadata the fact belongs to.
	Generation int64 `json:"generation,omitempty"`
}

// DeleteCommand asks for the deletion of the object its subject names.
type DeleteCommand struct {
	// UID, when given, must be the object's: a command meant for an earlier object of that name is refused.
	UID string `json:"uid,omitempty"`
}

// TenantApplyCommand is a whole TenantControlPlane, as kubectl would apply it. Status is ignored.
type TenantApplyCommand = v1alpha1.TenantControlPlane

// DataStoreApplyCommand is a whole DataStore, as kubectl would apply it. Status is ignored.
type DataStoreApplyCommand = v1alpha1.DataStore

// IntakeAccepted says: this generation is now the desired state.
type IntakeAccepted struct {
	About
	Version   string `json:"version,omitempty"`
	DataStore string `json:"dataStore,omitempty"`
	// Command is the id of the command that led to it, empty when the object was written by other means.
	Command string `json:"command,omitempty"`
}

// IntakeRejected says: a command was refused and changed nothing.
type IntakeRejected struct {
	About
	Kind string `json:"kind"`
	// Command is the id of the refused command.
	Command string `json:"command,omitempty"`
	// Errors, at least one.
	Errors []FieldError `json:"errors"`
}

// FieldError says what is wrong with one field.
type FieldError struct {
	// Field is the path of the field ("spec.kubernetes.version"), or of the event attribute ("event.type").
	Field string `json:"field"`
	// Rule that was broken, CamelCase ("Invalid", "Required", "Unknown", "TooLarge", "Deleting").
	Rule string `json:"rule"`
	// Value at fault, shortened to 256 bytes.
	Value string `json:"value,omitempty"`
	// Message for people: what is wrong and what would be right.
	Message string `json:"message"`
}

// IntakeDeleting says: the object has a deletion timestamp; the services take down what they made, one after the other.
type IntakeDeleting struct{ About }

// Removals is told by each service of a deletion in turn: what it removed, after what those before it removed.
type Removals struct {
	About
	// Removed counts objects by service and kind ("workload/Deployment": 1).
	Removed map[string]int `json:"removed"`
	// Left says what could not be removed and where it is.
	Left []string `json:"left,omitempty"`
}

// DatastoreProvisioned says: user, schema and grants of the tenant exist.
type DatastoreProvisioned struct {
	About
	DataStore string `json:"dataStore"`
	Driver    string `json:"driver"`
	Schema    string `json:"schema"`
	User      string `json:"user"`
}

// DatastoreChecked says: a DataStore was reached, or not.
type DatastoreChecked struct {
	About
	Driver  string `json:"driver"`
	Ready   bool   `json:"ready"`
	Reason  string `json:"reason"`
	Message string `json:"message,omitempty"`
	// UsedBy lists the tenants on it as namespace/name.
	UsedBy []string `json:"usedBy,omitempty"`
}

// CertsIssued says: every Secret of keys and kubeconfigs exists for this generation. Rotated has the same payload.
type CertsIssued struct {
	About
	// Checksums by component: a change of one rolls out the pods that mount it.
	Checksums map[string]string `json:"checksums"`
	// NotAfter is the first expiry of a certificate (UTC).
	NotAfter time.Time `json:"notAfter,omitzero"`
	// Reasons by component say why its content was made anew ("Missing: …", "Expiring: …"), empty when all of it stayed.
	Reasons map[string]string `json:"reasons,omitempty"`
}

// WorkloadExposed says: the tenant's endpoint is known.
type WorkloadExposed struct {
	About
	// Endpoint as host:port.
	Endpoint string `json:"endpoint"`
}

// WorkloadAvailable says: the control plane's pods run this generation and are ready. Degraded and Slept share the payload.
type WorkloadAvailable struct {
	About
	Version       string `json:"version"`
	Replicas      int32  `json:"replicas"`
	ReadyReplicas int32  `json:"readyReplicas"`
	ConfigHash    string `json:"configHash,omitempty"`
}

// WorkloadUpgraded says: every pod runs the new version.
type WorkloadUpgraded struct {
	About
	From string `json:"from"`
	To   string `json:"to"`
}

// AddonsApplied says: what must exist inside the tenant does.
type AddonsApplied struct {
	About
	// Objects is how many there are.
	Objects int `json:"objects"`
}

// AddonsRepaired says: objects inside the tenant were put right.
type AddonsRepaired struct {
	About
	// Objects as Kind/namespace/name.
	Objects []string `json:"objects"`
}

// StatusChanged is what portals subscribe to.
type StatusChanged struct {
	About
	// Phase: Provisioning, Ready, NotReady, Upgrading, Sleeping, Paused, Deleting, Deleted, Failed, …
	Phase string `json:"phase"`
	Ready bool   `json:"ready"`
	// Reason and Message of the Ready condition.
	Reason  string `json:"reason,omitempty"`
	Message string `json:"message,omitempty"`
	// Version that runs, empty before the first rollout is complete.
	Version string `json:"version,omitempty"`
	// Endpoint as host:port.
	Endpoint string `json:"endpoint,omitempty"`
	// Kubeconfig is the Secret with the administrator's kubeconfig (key admin.conf), in the tenant's namespace.
	Kubeconfig string `json:"kubeconfig,omitempty"`
	// SecondsToReady from acceptance of this generation, set once Ready.
	SecondsToReady float64 `json:"secondsToReady,omitempty"`
	// Removed counts what each service removed, set when Deleted.
	Removed map[string]int `json:"removed,omitempty"`
	// Left says what could not be removed, set when Deleted.
	Left []string `json:"left,omitempty"`
}

// StepFailed says: a step of a service failed; told when it is first worth telling and when it is given up.
type StepFailed struct {
	About
	// Reason is CamelCase, Message for people.
	Reason   string `json:"reason"`
	Message  string `json:"message"`
	Attempts int    `json:"attempts"`
	// Retrying is false when no retry can help; the event is then in the dead letters.
	Retrying bool `json:"retrying"`
}

// TimerDue wakes a service at a time it asked for.
type TimerDue struct{ About }

// Entry is a row of the catalogue.
type Entry struct {
	// Type is the CloudEvents type.
	Type string
	// Command is true for what portals send, false for facts.
	Command bool
	// Service that receives the command or tells the fact, and What it is.
	Service, What string
	// Payload is a value of the Go type of the data.
	Payload any
	// Doc is one sentence for the documentation.
	Doc string
}

// Catalogue lists every command and every fact.
func Catalogue() []Entry {
	fact := func(service, what string, payload any, doc string) Entry {
		return Entry{Type: FactType(service, what), Service: service, What: what, Payload: payload, Doc: doc}
	}
	entries := []Entry{
		{TenantApply, true, "intake", "apply", TenantApplyCommand{}, "create the tenant or change it"},
		{TenantDelete, true, "intake", "delete", DeleteCommand{}, "delete the tenant and everything of it"},
		{DataStoreApply, true, "intake", "apply", DataStoreApplyCommand{}, "create the DataStore or change it"},
		{DataStoreDelete, true, "intake", "delete", DeleteCommand{}, "delete the DataStore"},
		fact("intake", Accepted, IntakeAccepted{}, "a generation is now the desired state"),
		fact("intake", Rejected, IntakeRejected{}, "a command was refused and changed nothing"),
		fact("intake", Deleting, IntakeDeleting{}, "deletion has begun"),
		fact("intake", Removed, Removals{}, "the object, its bucket and its timers are gone"),
		fact("datastore", Provisioned, DatastoreProvisioned{}, "user, schema and grants exist"),
		fact("datastore", Checked, DatastoreChecked{}, "a DataStore was reached, or not"),
		fact("datastore", Removed, Removals{}, "user, schema and data are gone"),
		fact("datastore", Due, TimerDue{}, "a tenant's access to its DataStore is looked at again"),
		fact("certs", Issued, CertsIssued{}, "every key, certificate and kubeconfig exists"),
		fact("certs", Rotated, CertsIssued{}, "some keys or certificates were replaced"),
		fact("certs", Due, TimerDue{}, "a certificate is about to expire"),
		fact("certs", Removed, Removals{}, "keys, certificates and kubeconfigs are gone"),
		fact("workload", Exposed, WorkloadExposed{}, "the endpoint is known"),
		fact("workload", Available, WorkloadAvailable{}, "the pods run this generation and are ready"),
		fact("workload", Degraded, WorkloadAvailable{}, "no pod is ready any more"),
		fact("workload", Slept, WorkloadAvailable{}, "no pods are asked for and none runs"),
		fact("workload", Upgraded, WorkloadUpgraded{}, "every pod runs the new version"),
		fact("workload", Removed, Removals{}, "Deployment, pods and Service are gone"),
		fact("addons", Applied, AddonsApplied{}, "what must exist inside the tenant does"),
		fact("addons", Repaired, AddonsRepaired{}, "objects inside the tenant were put right"),
		fact("addons", Removed, Removals{}, "the tenant's inside is no longer looked after"),
		fact("status", Changed, StatusChanged{}, "the tenant's status, for portals"),
		fact("status", Deleted, StatusChanged{}, "nothing of the tenant is left, or what is"),
	}
	for _, service := range []string{"intake", "datastore", "certs", "workload", "addons", "status"} {
		entries = append(entries, fact(service, Failed, StepFailed{}, "a step failed"))
	}
	return entries
}

// Marshal encodes a payload; payloads are plain data, so it can't fail.
func Marshal(payload any) json.RawMessage {
	data, err := json.Marshal(payload)
	if err != nil {
		panic("event payload is not plain data: " + err.Error())
	}
	return data
}
