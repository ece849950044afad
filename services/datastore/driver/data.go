package driver

import (
	"context"
	"errors"
	"fmt"
	"iter"
)

// DataAccess is a driver that reads and writes what its tenants keep.
type DataAccess interface {
	// Data opens what an account holds, with the rights that Access gave its tenant and no others. The account is
	// provisioned. ErrAway, wrapped, means that the database doesn't answer, or doesn't let the tenant in.
	Data(ctx context.Context, a Account, access Access) (Data, error)
}

// Data is what one account holds, in whatever kind of database: keys relative to the tenant, and values as its API
// server wrote them. All methods but Close may be called at the same time. They return ErrAway as those of Driver do.
//
// A copy, of a tenant that goes on writing, is made so:
//
//  1. Revision of the source: all that was written before is in an export at it, and nothing that is written after.
//  2. Import of the source's Export at that revision.
//  3. Import of the source's Follow after that revision, up to its present Revision; and again from there, as often as
//     the copy shall come nearer. The last time is after the tenant's API server has ended.
//
// Each Import may be cut off at any point and begun again by the same call: it leads to the same end. When that fails
// with ErrCompacted, Clear the copy and begin anew.
type Data interface {
	// Revision is the present one. On SQL databases it takes up to two seconds, in which writes under way come to an end.
	Revision(ctx context.Context) (int64, error)
	// Export yields all keys as they were at a revision, in the order of the database, and ends, or yields an error as
	// the last. No more than a page is in memory. It waits for a revision that this connection hasn't heard of yet, for 30 seconds.
	// ErrCompacted means that the revision is gone.
	Export(ctx context.Context, at int64) iter.Seq2[Change, error]
	// Follow yields the changes after one revision and up to another, in the order in which they were made; up to 0
	// means without end. ErrCompacted means that some of them are gone.
	Follow(ctx context.Context, after, to int64) iter.Seq2[Change, error]
	// Import writes what an Export or a Follow yields, several keys at once but each key's changes in their order. When
	// it returns nil, all is written. A *KeyError means that this database can't hold a key.
	Import(ctx context.Context, changes iter.Seq2[Change, error]) error
	// Clear deletes all keys.
	Clear(ctx context.Context) error
	// Close ends the connection and waits until all is released.
	Close() error
}

// Change is a key that was written or deleted, or one that is there.
type Change struct {
	// Revision of the database in which it was.
	Revision int64
	// Key without what stands before all keys of the tenant: configmaps/default/demo. It may hold any bytes.
	Key   string
	Value []byte
	// Seconds that the key lives from now on; 0 is for ever. kine knows how long a key was to live and not since when:
	// of its keys these are all their seconds, as when kine is started again.
	Seconds int64
	Deleted bool
}

// HealthKey is the one key that isn't a tenant's data, but kine's own. It is neither exported nor imported.
const HealthKey = "health"

// ErrCompacted means that the database has thrown away the revision asked for. Nothing but a new export helps.
var ErrCompacted = errors.New("the database has compacted this revision away: clear the copy and export anew at the present revision")

// KeyError says which key a database can't hold, and why. No retry helps.
type KeyError struct {
	Key string
	Err error
}

func (e *KeyError) Error() string { return fmt.Sprintf("key %.200q: %v", e.Key, e.Err) }
func (e *KeyError) Unwrap() error { return e.Err }
