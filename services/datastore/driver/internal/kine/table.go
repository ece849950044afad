package kine

import (
	"context"
	"database/sql"
	sqldriver "database/sql/driver"
	"time"

	"go.etcd.io/etcd/api/v3/mvccpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/stoker-k8s/stoker/services/datastore/driver"
	"github.com/stoker-k8s/stoker/services/datastore/driver/internal/data"
)

// An export of an SQL database reads kine's table. By etcd's API kine finds the last row of each key that is left, for each page, and
// counts them a second time, so that the time for n keys grows with n².
//
// Each page is a statement of its own. A transaction that goes on between pages would keep the database from removing old rows for as
// long as whoever reads the export takes, and isn't needed: a row never changes, and none comes up to a revision that is settled
// (process.settle); only a compaction takes rows away, which moves its mark in the same transaction. A page was whole if the mark is not
// beyond the revision afterwards, for the mark never goes back.

// Table is kine's in an SQL database.
type Table struct {
	// Connector connects as the tenant.
	Connector sqldriver.Connector
	// Name of the table.
	Name string
	// First is a query for the last row up to a revision of each key from one on, Next for those of the keys after one. Their parameters are
	// that key, the first one that isn't the tenant's, the revision, and how many keys to look at. Their columns are the key by which the
	// keys are ordered, the key, its revision, whether it is deleted, its lease and its value.
	First, Next string
}

const (
	// mostBytes is when a page ends before it is full: after values of twice the size that is aimed at.
	mostBytes = 8 << 20
	// askAgain is how often a database is asked for a revision that isn't there yet.
	askAgain = 20 * time.Millisecond
)

// table is a Table that is connected to while it is read. Its methods may be called at the same time.
type table struct {
	Table
	db       *sql.DB
	classify func(error) error
}

func openTable(o Options) *table {
	t := &table{Table: *o.Table, db: sql.OpenDB(o.Table.Connector), classify: o.classify}
	t.db.SetMaxOpenConns(maxReading)
	t.db.SetConnMaxIdleTime(readingTime)
	return t
}

// close may be called of none.
func (t *table) close() error {
	if t == nil {
		return nil
	}
	return t.db.Close()
}

// page is that of data.Tenant.
func (t *table) page(ctx context.Context, after string, at int64, limit int) (data.Page, error) {
	query := t.Next
	if after == "" {
		if err := t.await(ctx, at); err != nil {
			return data.Page{}, err
		}
		query, after = t.First, prefix
	}
	page, err := t.read(ctx, query, after, at, limit)
	if err != nil {
		return data.Page{}, t.classify(err)
	}
	switch _, compacted, err := t.revisions(ctx); {
	case err != nil:
		return data.Page{}, err
	case compacted > at:
		return data.Page{}, driver.ErrCompacted
	}
	return page, nil
}

// read is a page, whether it was compacted or not.
func (t *table) read(ctx context.Context, query, after string, at int64, limit int) (page data.Page, err error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	rows, err := t.db.QueryContext(ctx, query, after, clientv3.GetPrefixRangeEnd(prefix), at, limit)
	if err != nil {
		return page, err
	}
	defer rows.Close()
	for bytes := 0; rows.Next(); page.From++ {
		if bytes > mostBytes {
			// The connection ends with this, for what it was told to send would have to be read.
			cancel()
			page.More = true
			return page, nil
		}
		kv, deleted := &mvccpb.KeyValue{}, false
		if err := rows.Scan(&page.Last, &kv.Key, &kv.ModRevision, &deleted, &kv.Lease, &kv.Value); err != nil {
			return page, err
		}
		if !deleted {
			page.Keys = append(page.Keys, kv)
			bytes += len(kv.Value)
		}
	}
	page.More = page.From == limit
	return page, rows.Err()
}

// await waits for a revision.
func (t *table) await(ctx context.Context, at int64) error {
	for {
		last, _, err := t.revisions(ctx)
		if err != nil || last >= at {
			return err
		}
		select {
		case <-ctx.Done():
			return rpctypes.ErrFutureRev
		case <-time.After(askAgain):
		}
	}
}

// revisions are the last one and the one up to which it is compacted.
func (t *table) revisions(ctx context.Context) (last, compacted int64, err error) {
	err = t.db.QueryRowContext(ctx, `SELECT coalesce(max(id), 0),
		coalesce((SELECT max(prev_revision) FROM `+t.Name+` WHERE name = 'compact_rev_key'), 0) FROM `+t.Name).Scan(&last, &compacted)
	return last, compacted, t.classify(err)
}
