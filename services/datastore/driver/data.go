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
	// Raise has the next revision of an account's data be above one, and all revisions up to that one be compacted, so that
	// who names one of those hears so, also who asks for what follows it. The account is provisioned and holds no data yet, and
	// its data are not open. Where it is so already, it does nothing. A *BehindError means that the database is too far behind,
	// ErrHoldsData, of a NATS, that raising it would delete the data.
	Raise(ctx context.Context, a Account, access Access, above int64) error
}

// Compacted is up to where Raise compacts: who asks for what follows the revision that Raise is given names the next one to the database,
// which has to refuse that, too.
func Compacted(above int64) int64 { return above + 2 }

// Data is what one account holds, in whatever kind of database: keys relative to the tenant, and values as its API
// server wrote them. All methods but Close may be called at the same time. They return ErrAway as those of Driver do.
//
// A copy, of a tenant that goes on writing, is made so:
//
//  1. Revision of the source: all that was written before is in an export at it, and nothing that is written after.
//  2. Import of the source's Base at that revision.
//  3. Import of the source's Follow after that revision, up to its present Revision; and again from there, as often as
//     the copy shall come nearer, or of pieces of its Watch. The last time is when the tenant may not write any more (Account.ReadOnly).
//
// Each Import may be cut off at any point and begun again by the same call: it leads to the same end. When that fails
// with ErrCompacted, Clear the copy and begin anew.
type Data interface {
	// Revision is the present one. On SQL databases it takes up to two seconds, in which writes under way come to an end.
	Revision(ctx context.Context) (int64, error)
	// Last is the revision up to which to follow data that nobody may write any more, not even this tenant: unlike Revision, it writes
	// nothing.
	Last(ctx context.Context) (int64, error)
	// Export yields all keys as they were at a revision, in an order of the database's, and ends, or yields an error as
	// the last. No more than a page is in memory. It waits for a revision that this connection hasn't heard of yet, for 30 seconds.
	// ErrCompacted means that the revision is gone.
	Export(ctx context.Context, at int64) iter.Seq2[Change, error]
	// Base is an Export for who then follows from its revision on: what was written since may be missing, for the follow has it. Where a
	// database forgets what a busy key was, an Export fails, and this doesn't.
	Base(ctx context.Context, at int64) iter.Seq2[Change, error]
	// Value returns what a key holds now, nil for one that isn't there.
	Value(ctx context.Context, key string) ([]byte, error)
	// Follow yields the changes after one revision and up to another, in the order in which they were made; up to 0
	// means without end. ErrCompacted means that some of them are gone.
	Follow(ctx context.Context, after, to int64) iter.Seq2[Change, error]
	// Watch is Follow without an end, to be read piece by piece, which spares the beginning of another Follow for each.
	Watch(ctx context.Context, after int64) Stream
	// Mark is a revision at which all is written that was acknowledged before the call. It is Revision for who follows: it doesn't wait for
	// what an Export would lack.
	Mark(ctx context.Context) (int64, error)
	// Import writes what an Export or a Follow yields, several keys at once but each key's changes in their order. When
	// it returns nil, all is written. A *KeyError means that this database can't hold a key.
	Import(ctx context.Context, changes iter.Seq2[Change, error]) error
	// Clear deletes all keys, but for the records of a move.
	Clear(ctx context.Context) error
	Records
	// Close ends the connection and waits until all is released.
	Close() error
}

// Stream is a watch that goes on. One goroutine uses it at a time.
type Stream interface {
	// UpTo yields the changes up to a revision, in their order, that weren't yielded before. After an error the stream is of no more use.
	UpTo(ctx context.Context, to int64) iter.Seq2[Change, error]
	// Close ends the watch.
	Close()
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

// BehindError says that a database's revisions, which grow by writes alone, are too far below those that data had elsewhere.
type BehindError struct {
	// Above is the revision that they must get above, Now the present one.
	Above, Now int64
}

func (e *BehindError) Error() string {
	missing := e.Above - e.Now
	return fmt.Sprintf("the database is at revision %d, %d behind %d, which is too many to write: raise it while it is down, for etcd by "+
		"etcdutl snapshot restore --bump-revision %d --mark-compacted, or choose another DataStore", e.Now, missing, e.Above, missing)
}

// ErrHoldsData means that an account whose revisions are to be raised holds data already. Clear them.
var ErrHoldsData = errors.New("the account holds data already")

// KeyError says which key a database can't hold, and why. No retry helps.
type KeyError struct {
	Key string
	Err error
}

func (e *KeyError) Error() string { return fmt.Sprintf("key %.200q: %v", e.Key, e.Err) }
func (e *KeyError) Unwrap() error { return e.Err }
