package driver

import (
	"context"
	"encoding/json"
	"errors"
	"strings"
)

// MoveKey is the key, beside a tenant's data, of the record of a move to another DataStore: in the store that the data come from it says
// whether writes are held, in the one that they go to whether it holds the data. What begins with it and a slash are the records of gates,
// by pod. None of them is exported or imported. No object of a tenant has such a key: resources of Kubernetes' own have other
// names, and others begin with a group, which has a dot.
const MoveKey = "stoker-move"

// GateKey is the key of the record of the gate in a pod.
func GateKey(pod string) string { return GateKeys + pod }

// GateKeys begins the keys of the records of gates.
const GateKeys = MoveKey + "/"

// QuotaKey is the key, beside a tenant's data, of the record of what the tenant keeps, as the gates of a tenant with a quota count it.
const QuotaKey = "stoker-quota"

// RestoredKey is the key, beside a tenant's data, of the request by which a backup's have replaced them (name.AnnotationRestoreInPlace): that
// they don't once more, should everything else that says so be lost.
const RestoredKey = "stoker-restored"

// IsRecord reports whether a key, without what stands before all keys of a tenant, is one of the records beside its data.
func IsRecord(key string) bool {
	return key == MoveKey || strings.HasPrefix(key, GateKeys) || key == QuotaKey || key == RestoredKey
}

// MovePhase says how far a move is, or a gate.
type MovePhase string

// Phases of a move in the order in which they follow each other, the first three in the store that the data come from, and of gates.
const (
	// MoveOpen: writes go on.
	MoveOpen MovePhase = "open"
	// MoveSoon: they will be held in a moment; gates look out for it.
	MoveSoon MovePhase = "soon"
	// MoveHeld: writes are held; in a gate's record, and none is under way.
	MoveHeld MovePhase = "held"
	// MoveDone: the data have moved; a store that has this record of a move holds them.
	MoveDone MovePhase = "done"
	// MoveThawed: they have, and nobody reads from the former store any more, so that writes go on.
	MoveThawed MovePhase = "thawed"
)

// Move is the record of a move.
type Move struct {
	// ID is another one for each move of a tenant.
	ID string `json:"id"`
	// What says which data move from where; empty in records of gates.
	What  string    `json:"what,omitempty"`
	Phase MovePhase `json:"phase"`
	// Attempt counts the tries to hold writes and go over. Only the last one counts.
	Attempt int `json:"attempt,omitempty"`
}

// Encode is the value of a record.
func (m Move) Encode() []byte { return encode(m) }

func encode(record any) []byte {
	b, err := json.Marshal(record)
	if err != nil {
		panic(err) // strings, numbers and flags
	}
	return b
}

// DecodeMove reads a record; the zero one of what isn't a record.
func DecodeMove(value []byte) (m Move) {
	if json.Unmarshal(value, &m) != nil {
		return Move{}
	}
	return m
}

// Records are the keys beside a tenant's data that say how a move stands.
type Records interface {
	// Record returns the value of a key, MoveKey or a GateKey, and the revision of its last change; 0 when it isn't there.
	Record(ctx context.Context, key string) (value []byte, revision int64, err error)
	// SetRecord writes it if its last change is of that revision, 0 for none, and returns the new one. ErrRaced means that it isn't.
	SetRecord(ctx context.Context, key string, value []byte, revision int64) (int64, error)
	// Guard has Import and Clear of an etcd end with ErrRaced once the last change of MoveKey isn't of that revision; 0 for no condition.
	// Other databases take just a key's own revision as a condition; for them, nothing.
	Guard(revision int64)
	// DeleteRecord deletes it, if it is there.
	DeleteRecord(ctx context.Context, key string) error
	// GateRecords are the values of all records of gates, by their GateKey.
	GateRecords(ctx context.Context) (map[string][]byte, error)
}

// ErrRaced means that somebody else has changed a record.
var ErrRaced = errors.New("the record was changed by another")

// Usage is what a tenant keeps.
type Usage struct {
	// Bytes of keys and values, and how many Objects.
	Bytes   int64 `json:"bytes"`
	Objects int64 `json:"objects"`
	// Full says that its quota is used up.
	Full bool `json:"full,omitempty"`
}

// Encode is the value of a record.
func (u Usage) Encode() []byte { return encode(u) }

// DecodeUsage reads a record; ok says that it is one.
func DecodeUsage(value []byte) (u Usage, ok bool) {
	err := json.Unmarshal(value, &u)
	return u, err == nil
}

// Recorder is a driver that reads a record without opening all that an account holds.
type Recorder interface {
	// Record returns the value of a record, nil when it isn't there.
	Record(ctx context.Context, a Account, access Access, key string) ([]byte, error)
}

// RecordOf returns the value of a record of an account, nil when it isn't there.
func RecordOf(ctx context.Context, d Driver, a Account, access Access, key string) (value []byte, err error) {
	if r, ok := d.(Recorder); ok {
		return r.Record(ctx, a, access, key)
	}
	accesses, ok := d.(DataAccess)
	if !ok {
		return nil, errors.New("the driver doesn't read what an account holds")
	}
	data, err := accesses.Data(ctx, a, access)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, data.Close()) }()
	value, _, err = data.Record(ctx, key)
	return value, err
}
