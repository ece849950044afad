package driver

import "context"

// What a driver can tell of a move of data before it is begun. None of it writes anything.

// Roomer is a driver of databases with a quota.
type Roomer interface {
	// Room is how many bytes are in use, and how many may be; a quota of 0 is one that the database doesn't tell.
	Room(ctx context.Context) (used, quota int64, err error)
}

// Revisioner is a driver that knows the revision of an account's data without opening them.
type Revisioner interface {
	// Revision is that of the last write, or a later one; 0 where it can't be told.
	Revision(ctx context.Context, a Account) (int64, error)
}

// ByWrites is a driver of databases whose revisions grow by writes alone, so that Raise takes one write for each.
type ByWrites interface {
	Revisioner
	// RaiseMost is how many revisions Raise makes up for, and about how many it does a second.
	RaiseMost() (revisions, perSecond int64)
}

// Single is a driver of databases that may hold one tenant only.
type Single interface {
	// Single reports whether this one does.
	Single() bool
}
