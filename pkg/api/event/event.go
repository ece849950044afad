// Package event is the catalogue of everything that flows: every command and fact with its CloudEvents type, payload and
// JSON Schema. Subjects are built in pkg/events.
package event

import (
	"encoding/json"
	"strings"
	"time"

	"github.com/stoker-k8s/stoker/pkg/api/v1alpha1"
)

// TypePrefix starts every CloudEvents type of Stoker (reverse DNS of stoker.dev).
const TypePrefix = "dev.stoker."

// SchemaBase is the URI under which the JSON Schemas of the payloads are published (attribute dataschema).
const SchemaBase = "https://stoker.dev/schemas/"

// Kinds as they appear in subjects: the plural resource names.
const (
	TenantControlPlanes  = "tenantcontrolplanes"
	DataStores           = "datastores"
	KubeconfigGenerators = "kubeconfiggenerators"
	// TenantAddons have no commands: they are objects of the management cluster alone.
	TenantAddons = "tenantaddons"
)

// Verbs of commands: what they ask for. Sleep, Wake, Backup and Restore are for tenants only.
const (
	Apply   = "apply"
	Patch   = "patch"
	Delete  = "delete"
	Pause   = "pause"
	Resume  = "resume"
	Sleep   = "sleep"
	Wake    = "wake"
	Backup  = "backup"
	Restore = "restore"
)

// CommandType is the CloudEvents type of a command ("dev.stoker.tenantcontrolplane.apply.v1"). kind is a plural resource
// name.
func CommandType(kind, verb string) string {
	return TypePrefix + strings.TrimSuffix(kind, "s") + "." + verb + ".v1"
}

// Types of the commands most used.
const (
	TenantApply     = TypePrefix + "tenantcontrolplane.apply.v1"
	TenantDelete    = TypePrefix + "tenantcontrolplane.delete.v1"
	DataStoreApply  = TypePrefix + "datastore.apply.v1"
	DataStoreDelete = TypePrefix + "datastore.delete.v1"
)

// What happened: the last token of a fact's subject, after the service that tells it.
const (
	Accepted     = "accepted"
	Rejected     = "rejected"
	Deleting     = "deleting"
	Provisioned  = "provisioned"
	Checked      = "checked"
	Asked        = "asked"
	Measured     = "measured"
	Issued       = "issued"
	Rotated      = "rotated"
	Exposed      = "exposed"
	Available    = "available"
	Degraded     = "degraded"
	Upgraded     = "upgraded"
	Slept        = "slept"
	Called       = "called"
	Idle         = "idle"
	Applied      = "applied"
	Repaired     = "repaired"
	Rewritten    = "rewritten"
	Removed      = "removed"
	Released     = "released"
	Changed      = "changed"
	Deleted      = "deleted"
	Failed       = "failed"
	Due          = "due"
	Generated    = "generated"
	Registered   = "registered"
	Withdrawn    = "withdrawn"
	Migrating    = "migrating"
	Migrated     = "migrated"
	BackedUp     = "backedup"
	NotBackedUp  = "notbackedup"
	Restoring    = "restoring"
	Restored     = "restored"
	NotRestored  = "notrestored"
	PassedOn     = "passedon"
	Quota        = "quota"
	Initialized  = "initialized"
	Abandoned    = "abandoned"
	Installed    = "installed"
	Uninstalled  = "uninstalled"
	NotInstalled = "notinstalled"
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

// Target narrows a command to one object of the name in its subject.
type Target struct {
	// UID, when given, must be the object's: a command meant for an earlier object of that name is refused.
	UID string `json:"uid,omitempty"`
}

// DeleteCommand asks for the deletion of the object its subject names.
type DeleteCommand struct{ Target }

// PatchCommand changes parts of the spec of the object its subject names.
type PatchCommand struct {
	Target
	// Spec is a JSON merge patch of the object's spec (RFC 7386): what it doesn't mention stays, null removes.
	Spec json.RawMessage `json:"spec"`
}

// PauseCommand stops all services for the object its subject names; its deletion waits, too.
type PauseCommand struct {
	Target
	// Until is when they go on by themselves (RFC 3339); absent: when the command resume says so.
	Until time.Time `json:"until,omitzero"`
}

// ResumeCommand ends a pause.
type ResumeCommand struct{ Target }

// BackupCommand asks for a backup of a tenant, beside its schedule.
type BackupCommand struct {
	Target
	// Location is the Secret that says where it goes, which is the tenant's from then on; empty for the one it has.
	Location string `json:"location,omitempty"`
}

// RestoreCommand sets a tenant back to a backup of its own. The Secret <tenant>-restore has what opens it.
type RestoreCommand struct {
	Target
	// Backup is location/namespace/name/ID.
	Backup string `json:"backup"`
}

// SleepCommand brings a tenant's replicas to 0; its data and keys stay.
type SleepCommand struct{ Target }

// WakeCommand brings a sleeping tenant's replicas back to what they were.
type WakeCommand struct{ Target }

// TenantApplyCommand is a whole TenantControlPlane, as kubectl would apply it. Status is ignored.
type TenantApplyCommand = v1alpha1.TenantControlPlane

// GeneratorApplyCommand is a whole KubeconfigGenerator, as kubectl would apply it. Status is ignored.
type GeneratorApplyCommand = v1alpha1.KubeconfigGenerator

// DataStoreApplyCommand is a whole DataStore, as kubectl would apply it. Status is ignored.
type DataStoreApplyCommand = v1alpha1.DataStore

// IntakeAccepted says: this generation is now the desired state.
type IntakeAccepted struct {
	About
	Version   string `json:"version,omitempty"`
	DataStore string `json:"dataStore,omitempty"`
	// Replicas the spec asks for; 0: the tenant sleeps. Absent for other kinds.
	Replicas *int32 `json:"replicas,omitempty"`
	// Paused is true while all services leave the object alone.
	Paused bool `json:"paused,omitempty"`
	// Resumed is true when this ends a pause: every service then looks at everything, as when its timer is due.
	Resumed bool `json:"resumed,omitempty"`
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

// IntakeChecked tells that intake has looked at the object of a tenant or of a DataStore, as it does once a day, and that a tenant's
// desired state says what the object says. Every service then looks at all of its part and sets its timers again. Of a DataStore it has
// the name alone.
type IntakeChecked struct{ About }

// IntakeAsked tells that the operator asked for a look at a tenant; IntakeChecked follows. It has the tenant's names alone.
type IntakeAsked struct{ About }

// IntakeDeleting says: the object has a deletion timestamp; the services take down what they made, one after the other.
type IntakeDeleting struct{ About }

// IntakeReleased says: the object is another installation's now. What was made for it stays; this installation forgets it.
type IntakeReleased struct{ About }

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
	// Overrides are the other DataStores that hold resources of the tenant.
	Overrides []string `json:"overrides,omitempty"`
}

// DatastoreWithdrawn says: DataStores that overrides named hold nothing of the tenant any more.
type DatastoreWithdrawn struct {
	About
	DataStores []string `json:"dataStores"`
	// Removed counts what was removed there, by kind ("Key": 12).
	Removed map[string]int `json:"removed"`
	// Left says what could not be removed.
	Left []string `json:"left,omitempty"`
}

// DatastoreMigrating says how far a move of a tenant's data to another DataStore is: told for each stage, and now and then while data are
// copied.
type DatastoreMigrating struct {
	About
	// From and To are the DataStores, Stage is "Copying", "Following", "GoingOver" or, when the data are where they were and stay there, "Undone".
	From  string `json:"from"`
	To    string `json:"to"`
	Stage string `json:"stage"`
	// Resources are those that move ("/secrets"); none for all that no override names.
	Resources []string `json:"resources,omitempty"`
	// Keys and Bytes are what was copied, of about so many keys in all; Of is absent where that isn't known.
	Keys  int64 `json:"keys,omitempty"`
	Bytes int64 `json:"bytes,omitempty"`
	Of    int64 `json:"of,omitempty"`
	// KeysPerSecond is how fast keys are copied, SecondsLeft about how long that takes still; absent where it isn't known, and in other stages.
	KeysPerSecond int64 `json:"keysPerSecond,omitempty"`
	SecondsLeft   int64 `json:"secondsLeft,omitempty"`
	// Reason says why the data stay; empty but in the stage "Undone".
	Reason string `json:"reason,omitempty"`
}

// StageUndone is the stage of a move whose data are where they were and stay there; the others are those of state.Move.
const StageUndone = "Undone"

// DatastoreMigrated says: a tenant's data are in another DataStore now.
type DatastoreMigrated struct {
	About
	From string `json:"from"`
	To   string `json:"to"`
	// Resources are those that have moved; none for all that no override names.
	Resources []string `json:"resources,omitempty"`
	// Keys and Bytes are what was copied.
	Keys  int64 `json:"keys"`
	Bytes int64 `json:"bytes"`
	// HeldMilliseconds is for how long writes were held.
	HeldMilliseconds int64 `json:"heldMilliseconds"`
	// KeptUntil is when what the former DataStore holds is removed (UTC); resources are, as soon as all pods know where they are.
	KeptUntil time.Time `json:"keptUntil"`
}

// DatastoreBackedUp says: a backup of the tenant was made.
type DatastoreBackedUp struct {
	About
	// Location is the Secret that says where it is, ID its name among the tenant's.
	Location string `json:"location"`
	ID       string `json:"id"`
	// Scheduled says that it was made by the schedule, and not because somebody asked.
	Scheduled bool `json:"scheduled,omitempty"`
	// Revision of the database at which the data are, Keys and Bytes of them, Size in the location.
	Revision int64 `json:"revision"`
	Keys     int64 `json:"keys"`
	Bytes    int64 `json:"bytes"`
	Size     int64 `json:"size"`
	// Milliseconds are how long it took.
	Milliseconds int64 `json:"milliseconds"`
	// Expired is how many older ones were removed for it, as the tenant's annotations say.
	Expired int `json:"expired,omitempty"`
}

// DatastoreNotBackedUp says: a backup that is due could not be made. It is tried again.
type DatastoreNotBackedUp struct {
	About
	Location string `json:"location"`
	// Due is when it was due, Next when it is tried again (UTC); Scheduled is false if somebody asked for it.
	Due       time.Time `json:"due"`
	Scheduled bool      `json:"scheduled"`
	Next      time.Time `json:"next"`
	Message   string    `json:"message"`
}

// DatastoreRestoring says: a backup that is to replace the data of a tenant which works was read, and nothing is wrong with it. The tenant is
// stopped, and then gets its data.
type DatastoreRestoring struct {
	About
	// From is the backup, as location/namespace/name/ID; InPlace is the request: From, @ and the time of the request.
	From    string `json:"from"`
	InPlace string `json:"inPlace"`
}

// DatastoreNotRestored says: a backup can't replace the data of a tenant which works. The tenant keeps those that it has.
type DatastoreNotRestored struct {
	About
	// From is the backup, as location/namespace/name/ID; InPlace is the request: From, @ and the time of the request.
	From    string `json:"from"`
	InPlace string `json:"inPlace"`
	Message string `json:"message"`
}

// DatastoreRestored says: the tenant has the data of a backup or of another tenant, and begins its work with them.
type DatastoreRestored struct {
	About
	// From is the backup, as location/namespace/name/ID, or the name of the tenant, which is in the same namespace.
	From string `json:"from"`
	// InPlace is the request by which they replace those that the tenant had: From, @ and the time of the request; missing for a tenant that
	// was made anew.
	InPlace string `json:"inPlace,omitempty"`
	Keys    int64  `json:"keys"`
	Bytes   int64  `json:"bytes"`
	// Milliseconds are how long it took.
	Milliseconds int64 `json:"milliseconds"`
}

// DatastorePassedOn says: another management cluster may take the tenant over, with its data; whoever has the token in its Secret does.
type DatastorePassedOn struct {
	About
	DataStore string `json:"dataStore"`
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

// DatastoreMeasured says: what a tenant holds, or all tenants of a DataStore, is notably more or less than what was told
// last.
type DatastoreMeasured struct {
	About
	// DataStore that was measured.
	DataStore string `json:"dataStore"`
	// Bytes on its disk, and Keys, estimated from the database's statistics.
	Bytes int64 `json:"bytes"`
	Keys  int64 `json:"keys"`
	// LatencyMilliseconds is how long the database took to answer a check; absent when the fact is about a tenant.
	LatencyMilliseconds int64 `json:"latencyMilliseconds,omitempty"`
	// MeasuredAt is when (UTC).
	MeasuredAt time.Time `json:"measuredAt"`
}

// DatastoreQuota says: a tenant has come nearer to its quota, has reached it, or uses less of it again.
type DatastoreQuota struct {
	About
	// Level is "Within", "Near" (from four fifths of a bound on) or "Full": what would grow the tenant is refused.
	Level string `json:"level"`
	// Bytes of keys and values and Objects that the tenant keeps, and how many it may keep; absent for no bound.
	Bytes      int64 `json:"bytes"`
	Objects    int64 `json:"objects"`
	MaxBytes   int64 `json:"maxBytes,omitempty"`
	MaxObjects int64 `json:"maxObjects,omitempty"`
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

// KubeconfigGenerated says: a generator's kubeconfig for a tenant was made, changed, removed, or could not be made. It is
// about the KubeconfigGenerator.
type KubeconfigGenerated struct {
	About
	// Tenant as namespace/name.
	Tenant string `json:"tenant"`
	// Secret that holds it, in the tenant's namespace; empty when there is none.
	Secret string `json:"secret,omitempty"`
	// Message says why it could not be made.
	Message string `json:"message,omitempty"`
}

// CertsRegistered says: Argo CD knows the tenant as a cluster, or no longer, or can't.
type CertsRegistered struct {
	About
	// Secret by which it knows it, as namespace/name; empty when there is none.
	Secret string `json:"secret,omitempty"`
	// Reason, and Message for people, say why there is none or why it isn't up to date.
	Reason  string `json:"reason,omitempty"`
	Message string `json:"message,omitempty"`
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

// WorkloadCalled says: a client has connected to the tenant, which sleeps, and waits for it to wake.
type WorkloadCalled struct{ About }

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

// AddonsIdle says: nobody has used the tenant's API for as long as has it put to sleep.
type AddonsIdle struct {
	About
	// Since is since when (UTC).
	Since time.Time `json:"since"`
}

// AddonsRepaired says: objects inside the tenant were put right.
type AddonsRepaired struct {
	About
	// Objects as Kind/namespace/name.
	Objects []string `json:"objects"`
}

// AddonsRewritten says: all objects that a configuration of the tenant's encryption is about were written anew, by the key that it writes
// by, or by none.
type AddonsRewritten struct {
	About
	// Revision of the configuration.
	Revision int64 `json:"revision"`
	// Objects is how many there are.
	Objects int `json:"objects"`
}

// CAPIInitialized says: Cluster API may use the tenant: its API has answered, kubeconfig and authority are in the Secrets that Cluster API
// reads.
type CAPIInitialized struct {
	About
	// ControlPlane is the name of the KamajiControlPlane, Cluster that of the Cluster; both are in the tenant's namespace.
	ControlPlane string `json:"controlPlane"`
	Cluster      string `json:"cluster"`
}

// CAPIAbandoned says: a control plane was deleted, and its tenant, in another cluster that couldn't be asked for too long, is left there. It
// is about the control plane: UID is that one's.
type CAPIAbandoned struct {
	About
	// ControlPlane is the name of the KamajiControlPlane.
	ControlPlane string `json:"controlPlane"`
	// Secret has the kubeconfig of the other cluster under Key; Tenant is the TenantControlPlane there. Both are namespace/name.
	Secret string `json:"secret"`
	Key    string `json:"key"`
	Tenant string `json:"tenant"`
	// Message says why the cluster couldn't be asked.
	Message string `json:"message"`
}

// TenantAddon names a TenantAddon in facts of the service tenantaddons.
type TenantAddon struct {
	// Namespace and Name of the TenantAddon.
	Namespace string `json:"namespace"`
	Name      string `json:"name"`
	// Revision of it, as in its status; Version that of the chart, or the beginning of the content's digest.
	Revision string `json:"revision,omitempty"`
	Version  string `json:"version,omitempty"`
}

// TenantAddonInstalled says: a TenantAddon was installed or upgraded in the tenant, and its objects are applied.
type TenantAddonInstalled struct {
	About
	Addon TenantAddon `json:"addon"`
	// HelmRevision is the number of the Helm release.
	HelmRevision int `json:"helmRevision"`
	// Objects is how many objects it has.
	Objects int `json:"objects"`
}

// TenantAddonNotInstalled says: a revision of a TenantAddon has failed in the tenant, with a new reason; or it is installed and has stopped
// working. It is tried again.
type TenantAddonNotInstalled struct {
	About
	Addon TenantAddon `json:"addon"`
	// Reason and Message are those of the condition Ready of the AddonRelease.
	Reason  string `json:"reason"`
	Message string `json:"message"`
}

// TenantAddonRepaired says: objects of a TenantAddon weren't in the tenant as they must be, and were put right.
type TenantAddonRepaired struct {
	About
	Addon TenantAddon `json:"addon"`
	// Objects are some of them, as <kind> <namespace>/<name>; Count is how many there were.
	Objects []string `json:"objects"`
	Count   int      `json:"count"`
}

// TenantAddonUninstalled says: a TenantAddon is no longer in the tenant, or no longer looked after there.
type TenantAddonUninstalled struct {
	About
	Addon TenantAddon `json:"addon"`
	// Kept says that its objects were left as they were, as onRemoval asks.
	Kept bool `json:"kept,omitempty"`
}

// TenantAddonAbandoned says: a TenantAddon was to be removed from the tenant, which couldn't be reached for too long or refused it; what of it is
// in the tenant is left.
type TenantAddonAbandoned struct {
	About
	Addon TenantAddon `json:"addon"`
	// Message says why.
	Message string `json:"message"`
}

// StatusChanged is what portals subscribe to.
type StatusChanged struct {
	About
	// Phase is one of Phases; an unknown one means not ready.
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

// Marshal encodes a payload; payloads are plain data, so it can't fail.
func Marshal(payload any) json.RawMessage {
	data, err := json.Marshal(payload)
	if err != nil {
		panic("event payload is not plain data: " + err.Error())
	}
	return data
}
