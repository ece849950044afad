package event

import (
	"encoding/json"
	"time"
)

// Subjects of the questions about backups, which the datastore service answers.
const (
	QueryBackups = "stoker.datastore.backups"
	QueryBackup  = "stoker.datastore.backup"
)

// MaxBackups is how many backups a reply has at most.
const MaxBackups = 500

// BackupsQuery asks which backups there are in a location, of one tenant or of all.
type BackupsQuery struct {
	// Location is the Secret that says where it is.
	Location  string `json:"location"`
	Namespace string `json:"namespace,omitempty"`
	Name      string `json:"name,omitempty"`
}

// BackupsReply answers QueryBackups.
type BackupsReply struct {
	// Backups, the newest first.
	Backups []BackupThere `json:"backups"`
	// More is how many there are beside these.
	More int `json:"more,omitempty"`
	// Unreadable says which can't be read, and why.
	Unreadable []string `json:"unreadable,omitempty"`
}

// BackupThere is a backup in a location.
type BackupThere struct {
	// Location is the Secret that says where it is; Namespace and Name are the tenant's, ID is the backup's.
	Location  string `json:"location"`
	Namespace string `json:"namespace"`
	Name      string `json:"name"`
	ID        string `json:"id"`
	// UID of the tenant's object.
	UID string `json:"uid,omitempty"`
	// Kubernetes is the version of the tenant; DataStore and Driver are where its data were.
	Kubernetes string `json:"kubernetes,omitempty"`
	DataStore  string `json:"dataStore,omitempty"`
	Driver     string `json:"driver,omitempty"`
	// Revision of the database at which the data are, Keys and Bytes of them, Size in the location.
	Revision int64 `json:"revision"`
	Keys     int64 `json:"keys"`
	Bytes    int64 `json:"bytes"`
	Size     int64 `json:"size"`
	// Scheduled says that it was made by the schedule.
	Scheduled bool `json:"scheduled,omitempty"`
	// Began and Ended are when it was made (UTC).
	Began time.Time `json:"began"`
	Ended time.Time `json:"ended"`
	// Recipients (age) can open it.
	Recipients []string `json:"recipients"`
}

// BackupQuery asks for one backup.
type BackupQuery struct {
	Location  string `json:"location"`
	Namespace string `json:"namespace"`
	Name      string `json:"name"`
	ID        string `json:"id"`
}

// BackupReply answers QueryBackup.
type BackupReply struct {
	Backup BackupThere `json:"backup"`
	// Object is the tenant's TenantControlPlane.
	Object json.RawMessage `json:"object"`
	// Keys are its Secrets and what opens its data, encrypted to the recipients (age).
	Keys []byte `json:"keys"`
}
