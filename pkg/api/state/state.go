// Package state is what the services keep about a tenant: one key per service in the tenant's KV bucket
// (pkg/events writes and reads them). A state says what was last done, for which generation, what is waited for, and what
// went wrong. It never holds key material: fingerprints, checksums and dates only.
package state

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/stoker-k8s/stoker/pkg/api/name"
	"github.com/stoker-k8s/stoker/pkg/api/reason"
	"github.com/stoker-k8s/stoker/pkg/api/v1alpha1"
)

// State is the envelope every service writes under its key; Data is the service's own part (Tenant, Certs, …).
type State struct {
	// UID of the TenantControlPlane this state is about: a tenant created again under the same name has another.
	UID string `json:"uid"`
	// Generation of the object's metadata this state was made for.
	Generation int64 `json:"generation"`
	// Step is the last step that was done, named like the fact that announced it ("issued", "exposed").
	Step string `json:"step,omitempty"`
	// Inputs is the hash of everything the step was computed from; equal inputs mean there is nothing to do.
	Inputs string `json:"inputs,omitempty"`
	// Wait is what is missing before the next step, zero when nothing is.
	Wait
	// Failure is the last error, nil after a success.
	Failure *Failure `json:"failure,omitempty"`
	// UpdatedAt is when this revision was written (UTC).
	UpdatedAt time.Time `json:"updatedAt"`
	// Facts are the facts this write announced. They are stored with the state so that a crash between the write and
	// the publish can be made good: whoever works on the tenant next publishes what is missing.
	Facts []Fact `json:"facts,omitempty"`
	// Data is the service's own part.
	Data json.RawMessage `json:"data,omitempty"`
}

// Wait is what somebody waits for. Programs decide by Reason; the zero Wait is none.
type Wait struct {
	// On is what has to act: a service (name.Service…), or the kind of object that has to change ("Deployment").
	On string `json:"waitingOn,omitempty"`
	// Reason is a constant of pkg/api/reason. It is empty in states written before 2026-12, which noted the text alone.
	Reason string `json:"waitingReason,omitempty"`
	// Text is for people: what is missing, without "waits for".
	Text string `json:"waiting,omitempty"`
}

// Waits reports whether anything is waited for.
func (w Wait) Waits() bool { return w != Wait{} }

// Fact is a fact owed by a state: its id is deterministic, so that publishing it twice is publishing it once.
type Fact struct {
	// ID is the CloudEvent id and Nats-Msg-Id.
	ID string `json:"id"`
	// What happened, the last token of its subject ("issued").
	What string `json:"what"`
	// Time of the fact (UTC).
	Time time.Time `json:"time"`
	// Data is the payload, one of pkg/api/event.
	Data json.RawMessage `json:"data"`
}

// Failure is an error as told to people.
type Failure struct {
	// Reason is CamelCase, for programs and conditions ("DataStoreUnavailable").
	Reason string `json:"reason"`
	// Message is for people; it names the thing and the value at fault, and never holds a secret.
	Message string `json:"message"`
	// Since is when it was first seen (UTC).
	Since time.Time `json:"since"`
	// Attempts is how many times the step was tried.
	Attempts int `json:"attempts"`
	// Permanent is true when a change of the object or of the world is needed, or a step has failed too often: it isn't tried again
	// until something changes, or RetryAt.
	Permanent bool `json:"permanent,omitempty"`
	// RetryAt is when a step that was given up is tried again all the same (UTC, about), zero when it wasn't given up.
	RetryAt time.Time `json:"retryAt,omitzero"`
}

// Failed reports whether the last turn has failed. What keeps drifting is noted as a failure, but is put right each time.
func (s *State) Failed() bool { return s.Failure != nil && s.Failure.Reason != reason.KeepsDrifting }

// Tenant is intake's part (key "spec"): the desired state, every default resolved. All services work from it and none
// reads the TenantControlPlane object.
type Tenant struct {
	Namespace string `json:"namespace"`
	Name      string `json:"name"`
	// Annotations of the object that change what services do (name.SpecAnnotations).
	Annotations map[string]string `json:"annotations,omitempty"`
	// Labels of the object: KubeconfigGenerators select tenants by them.
	Labels map[string]string `json:"labels,omitempty"`
	// AcceptedAt is when this generation was accepted (UTC).
	AcceptedAt time.Time `json:"acceptedAt"`
	// Deleting is true once the object has a deletion timestamp.
	Deleting bool `json:"deleting,omitempty"`
	// Paused is true while the object carries the paused annotation; no service changes anything meanwhile.
	Paused bool `json:"paused,omitempty"`
	// PausedUntil is when the pause ends by itself (UTC), zero when it doesn't.
	PausedUntil time.Time `json:"pausedUntil,omitzero"`
	// Transfer is the fingerprint of what has another management cluster take the tenant over (name.AnnotationTransfer), empty while none may.
	// No service but datastore changes anything meanwhile.
	Transfer string `json:"transfer,omitempty"`
	// Sleep is what the schedule in the tenant's annotations says, zero without one.
	Sleep Sleep `json:"sleep,omitzero"`
	// Backups is what its annotations say of its backups, zero without any.
	Backups Backups `json:"backups,omitzero"`
	// Quota is how much it may keep, zero without a bound.
	Quota Quota `json:"quota,omitzero"`
	// InPlace is the restore in place that its annotation asks for, zero without one.
	InPlace InPlace `json:"inPlace,omitzero"`
	// Unplaced says which DataStore is missing while Spec.DataStore is empty.
	Unplaced string `json:"unplaced,omitempty"`
	// Seen is the fingerprint of the object's metadata this was made from: a watch event that shows the same is known.
	Seen string `json:"seen,omitempty"`
	// TraceParent is the W3C trace context of the command, empty when the object was written by other means.
	TraceParent string `json:"traceparent,omitempty"`
	// Setup is where the tenant's data are, with which schema and user, by the object's status (status.storage), as it was when this was
	// written; zero when it has none yet.
	Setup Account `json:"setup,omitzero"`
	// Overridden are the resources that are in other DataStores, by the object's status, too; nil where that doesn't say.
	Overridden []v1alpha1.DataStoreOverride `json:"overridden,omitzero"`
	// Spec is the effective spec (v1alpha1.Default applied, DataStore chosen; no replicas while it sleeps by its schedule).
	Spec v1alpha1.TenantControlPlaneSpec `json:"spec"`
}

// Sleep is what a tenant's schedule says.
type Sleep struct {
	// Asleep is true while the tenant is to have no pods, whatever replicas its object asks for.
	Asleep bool `json:"asleep,omitempty"`
	// Since is when it was put to sleep (UTC), By what for, in a clause for people; both are zero of one that is awake.
	Since time.Time `json:"since,omitzero"`
	By    string    `json:"by,omitempty"`
	// Until is when the schedule wakes it, or puts it to sleep next (UTC); zero when it doesn't.
	Until time.Time `json:"until,omitzero"`
}

// LeftAlone reports whether the tenant is paused, or another management cluster may take it over.
func (t *Tenant) LeftAlone() bool { return t.Paused || t.Transfer != "" }

// Sleeps reports whether the tenant is to have no pods: by its schedule, or because its object asks for none.
func (t *Tenant) Sleeps() bool {
	return t.Spec.Sleeps()
}

// Quota is how much a tenant may keep in its DataStore.
type Quota struct {
	// Bytes of keys and values, Objects in number; 0 for no bound.
	Bytes   int64 `json:"bytes,omitempty"`
	Objects int64 `json:"objects,omitempty"`
}

// InPlace is the restore of a backup into a tenant that works.
type InPlace struct {
	// Request is the value of the annotation (name.AnnotationRestoreInPlace).
	Request string `json:"request,omitempty"`
	// Stage is how far it is: while it is empty, the tenant works and its backup is read; then InPlaceStopped and InPlaceOver.
	Stage string `json:"stage,omitempty"`
	// StoppedAt is when the tenant was to have no pods for it (UTC).
	StoppedAt time.Time `json:"stoppedAt,omitzero"`
}

// Stages of a restore in place.
const (
	// InPlaceStopped: the backup was found whole, and the tenant has no pods until it has its data.
	InPlaceStopped = "Stopped"
	// InPlaceOver: the tenant has the backup's data, or can't get them and keeps its own.
	InPlaceOver = "Over"
)

// Backups is what a tenant's annotations say of its backups.
type Backups struct {
	// Location is the Secret that says where they go.
	Location string `json:"location,omitempty"`
	// Due is when one was due last (UTC), zero for never; Scheduled says that it was by the schedule, and not because somebody asked.
	Due       time.Time `json:"due,omitzero"`
	Scheduled bool      `json:"scheduled,omitempty"`
	// Next is when the next one is due (UTC), zero for never.
	Next time.Time `json:"next,omitzero"`
	// Keep is how many of the scheduled ones stay, KeepSeconds for how long; 0 means that this is no reason to remove one.
	Keep        int   `json:"keep,omitempty"`
	KeepSeconds int64 `json:"keepSeconds,omitempty"`
}

// Account is a schema and a user in a DataStore.
type Account struct {
	DataStore string `json:"dataStore,omitempty"`
	Schema    string `json:"schema"`
	User      string `json:"user"`
}

// Certs is certs' part.
type Certs struct {
	// Secrets by component (name.Component…), each with the checksum of what it holds.
	Secrets map[string]Secret `json:"secrets"`
	// Generated are the kubeconfigs that KubeconfigGenerators ask for, by generator; absent when none does.
	Generated map[string]Generated `json:"generated,omitempty"`
	// Referenced are the Secrets that the spec refers to (spec.kubernetes.apiServer), by name, as they were last seen: those alone that
	// the tenant may have.
	Referenced map[string]Secret `json:"referenced,omitempty"`
	// Encryption is how what the tenant stores is encrypted; absent when it isn't.
	Encryption *Encryption `json:"encryption,omitempty"`
	// ArgoCD is what became of the tenant's Secret in the namespace of Argo CD; absent when none is asked for.
	ArgoCD *ArgoCD `json:"argoCD,omitempty"`
	// CA is the PEM of the tenant's certificate authority (the certificate, never the key).
	CA string `json:"ca,omitempty"`
	// RenewAt is when the first certificate is to be renewed (UTC).
	RenewAt time.Time `json:"renewAt,omitzero"`
	// IssuedFor is the generation for which everything exists; 0 before the first. A state's Generation is also that of a turn
	// that failed or waits. States written before 2026-12 lack it; see [IssuedFor].
	IssuedFor int64 `json:"issuedFor,omitempty"`
	// Endpoint is where kubeconfigs lead, host:port: while pods get a certificate for another one, the former. States written before 2026-12
	// lack it.
	Endpoint string `json:"endpoint,omitempty"`
}

// Encryption is the configuration by which API servers encrypt what they store, and how far it is carried out.
type Encryption struct {
	// Revision of the configuration, higher than those before; a key of the Secret (name.KeyEncryption).
	Revision int64 `json:"revision"`
	// Checksum of the configuration.
	Checksum string `json:"checksum"`
	// Phase is what is being done, a constant Encryption….
	Phase string `json:"phase"`
	// Off says that the configuration encrypts nothing and reads nothing that is encrypted: API servers are to have none.
	Off bool `json:"off,omitempty"`
	// Resources that the configuration is about, as it names them ("secrets", "deployments.apps").
	Resources []string `json:"resources,omitempty"`
	// Wanted are the resources and the provider of the spec that this was made for, with commas between them; empty for none.
	Wanted string `json:"wanted,omitempty"`
}

// Phases of encryption. In each but the two that aren't about pods, all pods are to have the configuration before the next begins.
const (
	// EncryptionIntroducing: API servers learn to read what is written by a new key.
	EncryptionIntroducing = "Introducing"
	// EncryptionSwitching: API servers write by the key, or nothing encrypted, and read what was written before.
	EncryptionSwitching = "Switching"
	// EncryptionRewriting: objects inside the tenant are written anew.
	EncryptionRewriting = "Rewriting"
	// EncryptionRetiring: API servers forget keys by which nothing is written any more.
	EncryptionRetiring = "Retiring"
	// EncryptionSettled: nothing is left to do.
	EncryptionSettled = "Settled"
)

// Secret is a Secret as it was last written or seen.
type Secret struct {
	Name string `json:"name"`
	// Checksum of its data (name.Checksum).
	Checksum string `json:"checksum"`
	// ResourceVersion last written or verified: a watch event that carries it is our own echo.
	ResourceVersion string `json:"resourceVersion,omitempty"`
	// NotAfter is the expiry of the certificate in it, zero where there is none (UTC).
	NotAfter time.Time `json:"notAfter,omitzero"`
	// LastUpdate is when its content last changed (UTC).
	LastUpdate time.Time `json:"lastUpdate,omitzero"`
	// Keys of its data, sorted, where those who mount it must know which there are.
	Keys []string `json:"keys,omitempty"`
}

// Generated is a tenant's kubeconfig of one KubeconfigGenerator, or why there is none.
type Generated struct {
	// Secret that holds it; its name is empty when there is none.
	Secret
	// Inputs are the fingerprints of what the generator's spec asks for and of the values this comes to for the tenant, a
	// hyphen between them; empty while the tenant's endpoint isn't known.
	Inputs string `json:"inputs,omitempty"`
	// Error says why it could not be made, or not be brought up to date; Since is when that was first seen (UTC).
	Error string    `json:"error,omitempty"`
	Since time.Time `json:"since,omitzero"`
}

// ArgoCD is the Secret by which Argo CD knows a tenant (name.ArgoCDCluster), or why there is none.
type ArgoCD struct {
	// Secret as it was last written; its name is empty when there is none. Namespace is where it is.
	Secret
	Namespace string `json:"namespace,omitempty"`
	// Inputs is the fingerprint of what it was made from, or should have been.
	Inputs string `json:"inputs,omitempty"`
	// Server is the URL in it.
	Server string `json:"server,omitempty"`
	// Reason, a constant of pkg/api/reason, says why there is none or why it isn't up to date; Message says it for people, and Since is when
	// that was first seen (UTC). All are zero when it is as it must be.
	Reason  string    `json:"reason,omitempty"`
	Message string    `json:"message,omitempty"`
	Since   time.Time `json:"since,omitzero"`
}

// Datastore is datastore's part.
type Datastore struct {
	// DataStore is the name of the DataStore object that holds the tenant's data.
	DataStore string `json:"dataStore"`
	// Driver is etcd, MySQL, PostgreSQL or NATS.
	Driver string `json:"driver"`
	// Endpoints as host:port.
	Endpoints []string `json:"endpoints"`
	// Schema is the database, prefix (without slashes) or bucket; User the user of the tenant.
	Schema string `json:"schema"`
	User   string `json:"user"`
	// Account is a fingerprint of what the database said of schema and user when they were right; empty when the driver
	// can't tell.
	Account string `json:"account,omitempty"`
	// Bytes and Keys are what the tenant held at MeasuredAt (UTC), the last time it was notably more or less than before; all
	// are zero before the first time.
	Bytes      int64     `json:"bytes,omitempty"`
	Keys       int64     `json:"keys,omitempty"`
	MeasuredAt time.Time `json:"measuredAt,omitzero"`
	// Config and Certificate are the Secrets <t>-datastore-config and <t>-datastore-certificate.
	Config      Secret `json:"config"`
	Certificate Secret `json:"certificate"`
	// Former says that credentials of before Certificate may get in still, for pods that have them.
	Former bool `json:"former,omitempty"`
	// Overrides are the other DataStores that hold something of the tenant, by name.
	Overrides []Override `json:"overrides,omitempty"`
	// Move is the move of the data to another DataStore that is under way, nil without one. Until it is done, all above is of the former.
	Move *Move `json:"move,omitempty"`
	// Kept are the data that the tenant had before moves, until they are removed.
	Kept []Kept `json:"kept,omitempty"`
	// PassedOn is the value of Tenant.Transfer for which schema and user belong to whoever has the token in Config; empty while they are the
	// tenant's.
	PassedOn string `json:"passedOn,omitempty"`
	// Backup is what became of the tenant's backups, nil before the first was due.
	Backup *Backup `json:"backup,omitempty"`
	// Usage is how near the tenant is to its quota, nil without one and before it is known.
	Usage *Usage `json:"usage,omitempty"`
	// Restored is the backup (name.AnnotationRestoreFrom) or tenant (name.AnnotationCloneOf) that the tenant's data come from; Restoring is
	// how far that is until it is done.
	Restored  string     `json:"restored,omitempty"`
	Restoring *Restoring `json:"restoring,omitempty"`
	// InPlace is how far the last restore in place is that was asked for, nil when none is.
	InPlace *Replacing `json:"inPlace,omitempty"`
	// Removed counts what a deletion has removed that isn't done yet, by kind.
	Removed map[string]int `json:"removed,omitempty"`
	// Left says what could not be removed when the tenant was deleted.
	Left []string `json:"left,omitempty"`
}

// Move is a move of a tenant's data to another DataStore, while it is under way.
type Move struct {
	// ID is another one for each move of a tenant.
	ID string `json:"id"`
	// DataStore is where the data go, Driver its kind.
	DataStore string `json:"dataStore"`
	Driver    string `json:"driver"`
	// Resources are those that move, as kube-apiserver spells them ("/secrets"), sorted; none for all that no override names. From is the
	// DataStore that they are in.
	Resources []string `json:"resources,omitempty"`
	From      string   `json:"from,omitempty"`
	// Phase is what is being done, a constant Move….
	Phase string `json:"phase"`
	// Since is when the move was begun (UTC).
	Since time.Time `json:"since"`
	// Endpoints, Schema, User and Account are there what those of Datastore are.
	Endpoints []string `json:"endpoints,omitempty"`
	Schema    string   `json:"schema,omitempty"`
	User      string   `json:"user,omitempty"`
	Account   string   `json:"account,omitempty"`
	// Config and Certificate are the Secrets by which pods reach the DataStore meanwhile.
	Config      Secret `json:"config,omitzero"`
	Certificate Secret `json:"certificate,omitzero"`
	// Keys and Bytes are what was copied, of about so many keys in all.
	Keys  int64 `json:"keys,omitempty"`
	Bytes int64 `json:"bytes,omitempty"`
	Of    int64 `json:"of,omitempty"`
	// KeysPerSecond is how fast keys are copied, SecondsLeft about how long that takes still; zero where it isn't known, and in other phases.
	KeysPerSecond int64 `json:"keysPerSecond,omitempty"`
	SecondsLeft   int64 `json:"secondsLeft,omitempty"`
	// Apart says that the two DataStores are known not to be one database.
	Apart bool `json:"apart,omitempty"`
	// HeldMilliseconds is for how long writes were held, once the data have moved.
	HeldMilliseconds int64 `json:"heldMilliseconds,omitempty"`
	// Why is why the last try to go over was undone, empty for none.
	Why string `json:"why,omitempty"`
}

// Phases of a move, in the order in which they follow each other.
const (
	// MovePreparing: the tenant gets an account in the other DataStore.
	MovePreparing = "Preparing"
	// MoveCopying: the data are copied, and pods get gates.
	MoveCopying = "Copying"
	// MoveFollowing: all is copied, and changes are brought over until all pods have gates.
	MoveFollowing = "Following"
	// MoveGoingOver: writes are held for a moment, and then go on in the other DataStore.
	MoveGoingOver = "GoingOver"
	// MoveDone: the data have moved, and pods lose their gates.
	MoveDone = "Done"
)

// Progress says in words how much is copied, and how fast: "1,200 keys, 3.1MiB of about 9,000 keys, 600 a second, some 13 s left".
func (m *Move) Progress() string {
	text := name.Count(m.Keys) + " keys, " + name.Bytes(m.Bytes) + "B"
	if m.Of > 0 {
		text += " of about " + name.Count(m.Of) + " keys"
	}
	if m.KeysPerSecond > 0 {
		text += ", " + name.Count(m.KeysPerSecond) + " a second"
	}
	switch left := time.Duration(m.SecondsLeft) * time.Second; {
	case left >= 2*time.Minute:
		text += fmt.Sprintf(", some %.0f min left", left.Minutes())
	case left > 0:
		text += fmt.Sprintf(", some %.0f s left", left.Seconds())
	}
	return text
}

// Gated reports whether pods are to have gates: m is nil where no data move.
func (m *Move) Gated() bool { return m != nil && m.Phase != MovePreparing && m.Phase != MoveDone }

// Kept are data that a tenant had in a DataStore before they moved, which it can't reach any more.
type Kept struct {
	DataStore string `json:"dataStore"`
	Driver    string `json:"driver"`
	Schema    string `json:"schema"`
	User      string `json:"user"`
	// Until is when they are removed (UTC).
	Until time.Time `json:"until"`
}

// Levels say how near to its quota a tenant is.
const (
	QuotaWithin = "Within"
	// QuotaNear: four fifths of a bound are used.
	QuotaNear = "Near"
	// QuotaFull: a bound was reached, and what would grow the tenant is refused.
	QuotaFull = "Full"
)

// Usage is what a tenant with a quota keeps, as it was when Level or the quota changed last.
type Usage struct {
	Bytes   int64  `json:"bytes"`
	Objects int64  `json:"objects"`
	Level   string `json:"level"`
	// Quota is the one that Level is about; Since is when it became so (UTC).
	Quota Quota     `json:"quota"`
	Since time.Time `json:"since"`
}

// Words say how much of the quota was used: "4.1MiB of 5MiB and 812 of 1,000 objects".
func (u Usage) Words() string {
	var bounds []string
	if u.Quota.Bytes > 0 {
		bounds = append(bounds, name.Bytes(u.Bytes)+"B of "+name.Bytes(u.Quota.Bytes)+"B")
	}
	if u.Quota.Objects > 0 {
		bounds = append(bounds, name.Count(u.Objects)+" of "+name.Count(u.Quota.Objects)+" objects")
	}
	return strings.Join(bounds, " and ")
}

// Backup is what became of a tenant's backups.
type Backup struct {
	// Done is Backups.Due of the last one that was made.
	Done time.Time `json:"done,omitzero"`
	// Making is the one that is being made, nil for none.
	Making *Making `json:"making,omitempty"`
	// Last is the last one that was made, nil before the first.
	Last *Made `json:"last,omitempty"`
	// Failure says why the one that is due isn't made, nil when nothing is in its way.
	Failure *BackupFailure `json:"failure,omitempty"`
}

// Making is a backup that is being made.
type Making struct {
	// Due is Backups.Due of the one that is made; Since is when it was begun (UTC).
	Due   time.Time `json:"due"`
	Since time.Time `json:"since"`
	// Keys and Bytes are what was read, of about so many keys in all.
	Keys  int64 `json:"keys,omitempty"`
	Bytes int64 `json:"bytes,omitempty"`
	Of    int64 `json:"of,omitempty"`
}

// Made is a backup that was made.
type Made struct {
	// ID is unique in the location among the tenant's backups.
	ID       string `json:"id"`
	Location string `json:"location"`
	// At is when it was finished (UTC).
	At time.Time `json:"at"`
	// Revision of the database at which the data are, Keys and Bytes of them, Size in the location.
	Revision int64 `json:"revision"`
	Keys     int64 `json:"keys"`
	Bytes    int64 `json:"bytes"`
	Size     int64 `json:"size"`
}

// BackupFailure says why a backup isn't made.
type BackupFailure struct {
	// Due is Backups.Due of the one that isn't made.
	Due     time.Time `json:"due"`
	Message string    `json:"message"`
	// Since is when a backup failed first after the last one that was made, Next when this one is tried again (UTC). Tries are this one's.
	Since time.Time `json:"since"`
	Tries int       `json:"tries"`
	Next  time.Time `json:"next"`
}

// WantsInPlace reports whether a restore in place is under way that has not touched the tenant's data yet.
func (d *Datastore) WantsInPlace(t *Tenant) bool {
	asked := t.InPlace
	over := d.InPlace != nil && d.InPlace.Request == asked.Request && d.InPlace.Over
	return asked.Request != "" && asked.Stage != InPlaceOver && d.Move == nil && !over
}

// Untransferable says why another management cluster can't take a tenant over now, empty when it can: all of its data must be in one place, and
// stay there.
func (d *Datastore) Untransferable(t *Tenant) string {
	switch {
	case d.Move != nil:
		return "its data are being moved to DataStore " + d.Move.DataStore
	case len(d.Kept) > 0:
		return "data of before a move are kept in DataStore " + d.Kept[0].DataStore + " still"
	case d.Restoring != nil:
		return "it gets the data of " + d.Restoring.From
	case d.WantsInPlace(t):
		return "its data are to be replaced by those of a backup"
	case len(t.Spec.DataStoreOverrides)+len(d.Overrides) > 0:
		return "some of its data are in other DataStores (spec.dataStoreOverrides)"
	}
	return ""
}

// Replacing is a restore in place before the tenant's data are touched, and what it came to.
type Replacing struct {
	// Request is InPlace.Request of the spec.
	Request string `json:"request"`
	// Since is when it was begun (UTC).
	Since time.Time `json:"since"`
	// Whole says that the backup was read to its end and that nothing is wrong with it.
	Whole bool `json:"whole,omitempty"`
	// Over says that nothing is left to do: the tenant has the backup's data, or, with a Failure, can't get them.
	Over bool `json:"over,omitempty"`
	// Failure is what was in the way of reading the backup the last time, Next when it is tried again after so many Tries (UTC).
	Failure string    `json:"failure,omitempty"`
	Tries   int       `json:"tries,omitempty"`
	Next    time.Time `json:"next,omitzero"`
}

// Restoring is how far a tenant has the data that it gets from elsewhere. It has no pods meanwhile.
type Restoring struct {
	// From is the backup, location/namespace/name/ID, or the name of the tenant.
	From string `json:"from"`
	// InPlace is the request (InPlace.Request of the spec) by which the data replace those that the tenant has; empty for one that is made
	// anew. Begun says that some of these may be gone.
	InPlace string `json:"inPlace,omitempty"`
	Begun   bool   `json:"begun,omitempty"`
	// Since is when it was begun (UTC).
	Since time.Time `json:"since"`
	// Keys and Bytes are what was written, of so many keys in all.
	Keys  int64 `json:"keys,omitempty"`
	Bytes int64 `json:"bytes,omitempty"`
	Of    int64 `json:"of,omitempty"`
	// Failure says what was in the way at the last try, empty for nothing; Tries are those that failed, Next is when there is another one (UTC).
	Failure string    `json:"failure,omitempty"`
	Tries   int       `json:"tries,omitempty"`
	Next    time.Time `json:"next,omitzero"`
}

// Override is another DataStore that holds some of a tenant's resources, below the same schema for the same user.
type Override struct {
	DataStore string `json:"dataStore"`
	// Resources as kube-apiserver spells them ("/events"), sorted; none when the spec names the DataStore no more: what is
	// there goes once no pod uses it.
	Resources []string `json:"resources,omitempty"`
	// Endpoints as host:port.
	Endpoints []string `json:"endpoints,omitempty"`
	// Account is what Datastore.Account is, there.
	Account string `json:"account,omitempty"`
}

// Workload is workload's part.
type Workload struct {
	// Endpoint is where the tenant's API is reached from outside, host:port.
	Endpoint string `json:"endpoint,omitempty"`
	// Address is the host of Endpoint, Port its port.
	Address string `json:"address,omitempty"`
	Port    int32  `json:"port,omitempty"`
	// ClusterIP of the Service.
	ClusterIP string `json:"clusterIP,omitempty"`
	// LoadBalancer is the address of the Service's load balancer, an IP address or a host name, where Address is another one.
	LoadBalancer string `json:"loadBalancer,omitempty"`
	// AdvertiseAddress is what the API server announces inside the tenant; never a loopback address.
	AdvertiseAddress string `json:"advertiseAddress,omitempty"`
	// ConfigHash is the hash on the pod template of the Deployment that was applied last.
	ConfigHash string `json:"configHash,omitempty"`
	// Adopted says that the pods are still those that Kamaji made, which are as good as those that ConfigHash stands for.
	Adopted bool `json:"adopted,omitempty"`
	// Version runs in every pod of the last complete rollout. While the tenant sleeps it is the one that the spec asks for.
	Version string `json:"version,omitempty"`
	// Upgrade is a change of the version that has not ended well; nil when there is none.
	Upgrade *Upgrade `json:"upgrade,omitempty"`
	// CA is the checksum of the certificate authority's Secret that every pod of the last complete rollout has.
	CA string `json:"ca,omitempty"`
	// Serving is the checksum of the Secret of the API server's certificate that every pod of the last complete rollout has. States written
	// before 2026-12 lack it.
	Serving string `json:"serving,omitempty"`
	// Konnectivity says that pods have the konnectivity server: those of the last complete rollout, or of one that was begun since.
	Konnectivity bool `json:"konnectivity,omitempty"`
	// Overrides are the DataStores beside the tenant's own that its pods use: those of the last complete rollout, and of all
	// that were begun since.
	Overrides []string `json:"overrides,omitempty"`
	// Credentials are the checksums of <t>-datastore-certificate that its pods may have started with: that of the last
	// complete rollout, and of all that were begun since.
	Credentials []string `json:"credentials,omitempty"`
	// Gate is the ID of the move that every pod of the last complete rollout has a gate for; empty for pods without.
	Gate string `json:"gate,omitempty"`
	// StoppedAt is InPlace.StoppedAt of the spec for which no pod was left; zero for none.
	StoppedAt time.Time `json:"stoppedAt,omitzero"`
	// Encryption is the revision of the encryption's configuration (Encryption.Revision) that all pods have had since none was left with
	// another; 0 before the first.
	Encryption int64 `json:"encryption,omitempty"`
	// Pods are the addresses (host:port) of the API servers that were ready last, where idleness puts the tenant to sleep; empty elsewhere.
	Pods []string `json:"pods,omitempty"`
	// Phase is the value of status.kubernetesResources.version.status (Provisioning, Ready, Upgrading, …).
	Phase string `json:"phase,omitempty"`
	// Replicas as the Deployment reports them.
	Replicas            int32 `json:"replicas,omitempty"`
	ReadyReplicas       int32 `json:"readyReplicas,omitempty"`
	UpdatedReplicas     int32 `json:"updatedReplicas,omitempty"`
	AvailableReplicas   int32 `json:"availableReplicas,omitempty"`
	UnavailableReplicas int32 `json:"unavailableReplicas,omitempty"`
	// ObservedGeneration of the Deployment's status.
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`
	// Conditions of the Deployment, and the status of Service and Ingress, as they are shown in the tenant's.
	Conditions []appsv1.DeploymentCondition `json:"conditions,omitempty"`
	Service    corev1.ServiceStatus         `json:"service,omitzero"`
	Ingress    networkingv1.IngressStatus   `json:"ingress,omitzero"`
	// KubeadmConfig is the ConfigMap <t>-kubeadmconfig.
	KubeadmConfig ConfigMap `json:"kubeadmConfig,omitzero"`
	// Gateway says how the TLSRoute stands, nil when the spec asks for none.
	Gateway *v1alpha1.KubernetesGatewayStatus `json:"gateway,omitempty"`
	// KonnectivityEndpoint is where agents reach the konnectivity server, host:port, empty for a tenant without the tunnel;
	// KonnectivityGateway says how the TLSRoute to it stands, and EgressChecksum is that of the ConfigMap's data that has the API server
	// use it.
	KonnectivityEndpoint string                            `json:"konnectivityEndpoint,omitempty"`
	KonnectivityGateway  *v1alpha1.KubernetesGatewayStatus `json:"konnectivityGateway,omitempty"`
	EgressChecksum       string                            `json:"egressChecksum,omitempty"`
	// ServiceVersion and DeploymentVersion are the resourceVersions last seen: a watch event that carries one is known.
	ServiceVersion    string `json:"serviceVersion,omitempty"`
	DeploymentVersion string `json:"deploymentVersion,omitempty"`
	// LastUpdate is when the Deployment was last changed by us (UTC).
	LastUpdate time.Time `json:"lastUpdate,omitzero"`
	// WaitingSince is since when its pods are waited for, zero while they are ready or none is asked for (UTC).
	WaitingSince time.Time `json:"waitingSince,omitzero"`
	// Hashes say what its objects were last made from. States written before 2026-12 have them in State.Inputs.
	Hashes ObjectHashes `json:"hashes,omitzero"`
}

// Upgrade is a change of a tenant's version that is under way, waits for the tenant to wake, or was undone.
type Upgrade struct {
	// From is the version that every pod ran, being ready, before the step that is under way: an undo goes back to it.
	From string `json:"from"`
	// To is the version that the spec asks for, Generation the last generation in which it did.
	To         string `json:"to"`
	Generation int64  `json:"generation"`
	// Through are the versions to be run before To, in order: what is between From and To, one of each minor version.
	Through []string `json:"through,omitempty"`
	// Since is when pods of the step that is under way could start, zero before; Until is when the step is undone, zero for never (UTC).
	Since time.Time `json:"since,omitzero"`
	Until time.Time `json:"until,omitzero"`
	// UndoneAt is when the step was undone, zero before (UTC). Reason and Message are then what its pods said last.
	UndoneAt time.Time `json:"undoneAt,omitzero"`
	Reason   string    `json:"reason,omitempty"`
	Message  string    `json:"message,omitempty"`
}

// Step is the version that pods are brought to first: the first of Through, or To.
func (u *Upgrade) Step() string {
	if len(u.Through) > 0 {
		return u.Through[0]
	}
	return u.To
}

// Undone reports whether the upgrade that a generation asks for was undone: pods of that generation are to run From. u may be nil.
func (u *Upgrade) Undone(generation int64) bool {
	return u != nil && !u.UndoneAt.IsZero() && u.Generation == generation
}

// ConfigMap is a ConfigMap as it was last written.
type ConfigMap struct {
	// Checksum of its data (name.ChecksumStrings).
	Checksum string `json:"checksum,omitempty"`
	// ResourceVersion last written or seen.
	ResourceVersion string `json:"resourceVersion,omitempty"`
	// LastUpdate is when its content last changed (UTC).
	LastUpdate time.Time `json:"lastUpdate,omitzero"`
}

// ObjectHashes are the hashes of what a control plane's objects were made from; empty for an object that isn't there.
type ObjectHashes struct {
	Service    string `json:"service,omitempty"`
	Ingress    string `json:"ingress,omitempty"`
	Deployment string `json:"deployment,omitempty"`
	Route      string `json:"route,omitempty"`
	// Egress and KonnectivityRoute are those of the konnectivity server's.
	Egress            string `json:"egress,omitempty"`
	KonnectivityRoute string `json:"konnectivityRoute,omitempty"`
	KubeadmConfig     string `json:"kubeadmConfig,omitempty"`
	// Activator is that of the EndpointSlice that has connections held while the tenant sleeps.
	Activator string `json:"activator,omitempty"`
}

// Addons is addons' part.
type Addons struct {
	// Hash of the objects that were applied.
	Hash string `json:"hash,omitempty"`
	// Objects is how many there are.
	Objects int `json:"objects,omitempty"`
	// CoreDNS and KubeProxy say which add-ons are on.
	CoreDNS   bool `json:"coreDNS,omitempty"`
	KubeProxy bool `json:"kubeProxy,omitempty"`
	// Konnectivity is the kind of the konnectivity agents' workload, empty without the tunnel; Agents is how it stands.
	Konnectivity string `json:"konnectivity,omitempty"`
	Agents       Agents `json:"agents,omitzero"`
	// Way is the one by which the tenant's API was reached last, WayService or another; empty before the first time.
	Way string `json:"way,omitempty"`
	// Endpoint is what came of looking at the tenant's endpoint.
	Endpoint Reach `json:"endpoint,omitzero"`
	// WritePermissions says which writes are blocked inside the tenant.
	WritePermissions v1alpha1.Permissions `json:"writePermissions,omitzero"`
	// Rewritten is the revision of the encryption's configuration (Encryption.Revision) under which all its objects were written last; 0
	// before the first time.
	Rewritten int64 `json:"rewritten,omitempty"`
	// Use is what was seen last of the tenant's use, where idleness puts it to sleep; nil elsewhere.
	Use *Use `json:"use,omitempty"`
	// Versions of the objects as they should be, by Kind/namespace/name: after a restart, a watch that starts from them
	// sees what changed meanwhile.
	Versions map[string]string `json:"versions,omitempty"`
	// LastUpdate is when they were last applied (UTC).
	LastUpdate time.Time `json:"lastUpdate,omitzero"`
}

// Use of a tenant's API, as its API servers count it.
type Use struct {
	// Seen stands for what the API servers had counted: another value, for another count, or for other servers, is use.
	Seen string `json:"seen,omitempty"`
	// Since is when that was first seen (UTC): nobody has used the tenant since, as far as it was looked at.
	Since time.Time `json:"since"`
}

// Ways to a tenant's API.
const (
	// WayService is the Service's name in the management cluster.
	WayService = "service"
	// WayEndpoint is the tenant's endpoint, where clients reach it.
	WayEndpoint = "endpoint"
	// WayLoadBalancer is the address of the Service's load balancer, where the endpoint is another.
	WayLoadBalancer = "loadBalancer"
)

// Reach says whether a tenant's API answers at its endpoint, as seen from addons.
type Reach struct {
	// Endpoint is the host:port that was looked at, empty before the first time.
	Endpoint string `json:"endpoint,omitempty"`
	// Reason is reason.Reached, or why it doesn't answer; Cause says the latter in a clause for people.
	Reason string `json:"reason,omitempty"`
	Cause  string `json:"cause,omitempty"`
	// Since is when it was first seen that it doesn't answer, zero while it does (UTC).
	Since time.Time `json:"since,omitzero"`
}

// Agents are konnectivity's inside a tenant.
type Agents struct {
	// Wanted is how many there are to be: one per node that may run one, or the replicas of a Deployment.
	Wanted int32 `json:"wanted,omitempty"`
	// Connected is how many are connected to a konnectivity server.
	Connected int32 `json:"connected,omitempty"`
}

// Status is status' part.
type Status struct {
	// Phase as in status.kubernetesResources.version.status, plus Deleting, Deleted, Failed, Paused.
	Phase string `json:"phase"`
	// Ready is the Ready condition.
	Ready bool `json:"ready"`
	// Reason and Message of the Ready condition, while paused of the pause.
	Reason  string `json:"reason,omitempty"`
	Message string `json:"message,omitempty"`
	// ReadyAt is when the generation ReadyGeneration became Ready (UTC). It stays when the tenant is not Ready for a while.
	ReadyAt time.Time `json:"readyAt,omitzero"`
	// ReadyGeneration is the last generation that became Ready, 0 before the first.
	ReadyGeneration int64 `json:"readyGeneration,omitempty"`
	// ObservedGeneration is the one in the API status: the last generation that was carried out completely.
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`
	// Version that runs, and Endpoint as host:port.
	Version  string `json:"version,omitempty"`
	Endpoint string `json:"endpoint,omitempty"`
	// Conditions of the API status, kept here for their transition times.
	Conditions []metav1.Condition `json:"conditions,omitempty"`
	// Applied is the checksum of the API status that was written last.
	Applied string `json:"applied,omitempty"`
}

// CAPI is the data of the capi service: the control plane of Cluster API that makes the tenant.
type CAPI struct {
	// Cluster is the name of the Cluster, in the tenant's namespace.
	Cluster string `json:"cluster"`
	// Applied is a hash of the tenant's object as it was applied last, AppliedGeneration the generation that it then had.
	Applied           string `json:"applied,omitempty"`
	AppliedGeneration int64  `json:"appliedGeneration,omitempty"`
	// Endpoint is what was last written into the Cluster's infrastructure, as host:port.
	Endpoint string `json:"endpoint,omitempty"`
	// Initialized is true once Cluster API was told that it may use the tenant.
	Initialized bool `json:"initialized,omitempty"`
}

// TenantAddons is the data of the tenantaddons service: what each TenantAddon has come to in the tenant, by <namespace>/<name> of it. The
// AddonReleases have more.
type TenantAddons struct {
	Addons map[string]TenantAddon `json:"addons,omitempty"`
}

// TenantAddon is what a TenantAddon has come to in a tenant.
type TenantAddon struct {
	// Revision that was tried last, Inputs all that went into it, as in the status of the AddonRelease.
	Revision string `json:"revision,omitempty"`
	Inputs   string `json:"inputs,omitempty"`
	// Reason is that of the condition Ready.
	Reason string `json:"reason,omitempty"`
}

// IssuedFor returns the generation for which certs has made everything: c.IssuedFor, or what a state written before 2026-12
// says, whose Inputs end in that generation. 0 when there is none.
func IssuedFor(s *State, c *Certs) int64 {
	if s == nil || c.IssuedFor != 0 || s.Step != "issued" && s.Step != "rotated" {
		return c.IssuedFor
	}
	// 2026-11: to be removed once no installation has such states.
	generation, err := strconv.ParseInt(s.Inputs[strings.LastIndexByte(s.Inputs, '-')+1:], 10, 64)
	if err != nil {
		return 0
	}
	return generation
}

// maxMessage bounds a failure's message in bytes.
const maxMessage = 1024

// ClipMessage shortens the message of a failure at a whole character.
func ClipMessage(message string) string {
	if len(message) > maxMessage {
		return strings.ToValidUTF8(message[:maxMessage], "")
	}
	return message
}

// Same reports whether two states differ in nothing but when they were written.
func Same(a, b *State) bool {
	if a == nil || b == nil {
		return a == b
	}
	x, y := *a, *b
	x.UpdatedAt, y.UpdatedAt = time.Time{}, time.Time{}
	p, errP := json.Marshal(x)
	q, errQ := json.Marshal(y)
	return errP == nil && errQ == nil && bytes.Equal(p, q)
}
