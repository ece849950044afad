// Package data reads and writes a tenant's keys by etcd's API. etcd speaks it, and kine for SQL databases; the few things in which they
// differ are fields of Tenant. What a driver needs that reads and writes by itself is exported: Step, Failed, Each.
package data

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/stoker-k8s/stoker/pkg/fence"
	"github.com/stoker-k8s/stoker/services/datastore/driver"
)

// stepTimeout bounds each request. It is long, for a page of an export may be of many megabytes.
const stepTimeout = 30 * time.Second

// Tenant is one account's data. It implements driver.Data.
type Tenant struct {
	Client *clientv3.Client
	// Prefix is what stands before all keys; it ends in a slash.
	Prefix string
	// Kine says that this is no etcd. kine's revisions are this tenant's alone, so that each shows in a watch of all its
	// keys; it doesn't tell how far a watch has got; and its leases are their own seconds.
	Kine bool
	// Writers is how many keys of an import a kine is to write at once.
	Writers int
	// Settle waits until all writes up to a revision are visible; nil where they are.
	Settle func(ctx context.Context, revision int64) error
	// Page reads a part of an export: what follows a key at a revision, or with none begins with the first one, from no more than so many
	// keys. driver.ErrCompacted means that the revision is gone, rpctypes.ErrFutureRev that it hasn't come before ctx ended. It is nil where
	// etcd's API is what to read from.
	Page func(ctx context.Context, after string, at int64, limit int) (Page, error)
	// Fits says why the database can't hold a key, nil where it holds any.
	Fits func(key string) error
	// Classify wraps driver.ErrAway around errors that mean so; it may be nil.
	Classify func(context.Context, error) error
	// Shut releases what the client is connected to; it may be nil.
	Shut func() error

	guard  atomic.Int64 // that of Guard
	leases leases
	once   sync.Once
	closed error
}

var _ driver.Data = (*Tenant)(nil)

// Close ends the connection.
func (t *Tenant) Close() error {
	t.once.Do(func() {
		t.closed = t.Client.Close()
		if t.Shut != nil {
			t.closed = errors.Join(t.closed, t.Shut())
		}
	})
	return t.closed
}

// Etcd is the client, for tests.
func (t *Tenant) Etcd() *clientv3.Client { return t.Client }

// end is the first key that isn't the tenant's.
func (t *Tenant) end() string { return clientv3.GetPrefixRangeEnd(t.Prefix) }

// relative is the key without its prefix; false for what isn't the tenant's data.
func (t *Tenant) relative(key []byte) (string, bool) {
	name, ok := strings.CutPrefix(string(key), t.Prefix)
	return name, ok && name != driver.HealthKey && !driver.IsRecord(name)
}

// Revision is the present one.
func (t *Tenant) Revision(ctx context.Context) (int64, error) {
	revision, err := t.Mark(ctx)
	if err == nil && t.Settle != nil {
		err = t.failed(ctx, "ask for the revision", t.Settle(ctx, revision))
	}
	return revision, err
}

// Mark is the present revision, or on a kine a new one.
func (t *Tenant) Mark(ctx context.Context) (int64, error) {
	var revision int64
	var err error
	if t.Kine {
		revision, err = t.mark(ctx)
	} else {
		revision, err = Step(ctx, func(ctx context.Context) (int64, error) {
			got, err := t.Client.Get(ctx, t.Prefix, clientv3.WithRange(t.end()), clientv3.WithKeysOnly(), clientv3.WithLimit(1))
			if err != nil {
				return 0, err
			}
			return got.Header.Revision, nil
		})
	}
	return revision, t.failed(ctx, "ask for the revision", err)
}

// Last is the revision of the last change of data that nobody may write any more, or of one after it.
func (t *Tenant) Last(ctx context.Context) (int64, error) {
	got, err := Step(ctx, func(ctx context.Context) (*clientv3.GetResponse, error) {
		return t.Client.Get(ctx, t.Prefix+driver.HealthKey)
	})
	if err != nil {
		return 0, t.failed(ctx, "ask for the last revision", err)
	}
	return got.Header.Revision, nil
}

// mark writes kine's own key and returns its revision, which then shows in a watch of all keys.
func (t *Tenant) mark(ctx context.Context) (int64, error) {
	key := t.Prefix + driver.HealthKey
	for {
		revision, err := Step(ctx, func(ctx context.Context) (int64, error) {
			at := int64(0)
			got, err := t.Client.Get(ctx, key)
			if err != nil {
				return 0, err
			}
			if len(got.Kvs) > 0 {
				at = got.Kvs[0].ModRevision
			}
			done, err := t.Client.Txn(ctx).If(clientv3.Compare(clientv3.ModRevision(key), "=", at)).
				Then(clientv3.OpPut(key, `{"health":"true"}`)).Else(clientv3.OpGet(key)).Commit()
			if err != nil || !done.Succeeded {
				return 0, err // somebody else's kine wrote it as well
			}
			return done.Header.Revision, nil
		})
		if err != nil || revision > 0 {
			return revision, err
		}
	}
}

// failed is Failed with the tenant's Classify.
func (t *Tenant) failed(ctx context.Context, what string, err error) error {
	return Failed(ctx, what, err, t.Classify)
}

// Failed says what failed, and whether the database is away, for which classify, which may be nil, wraps driver.ErrAway around an error.
func Failed(ctx context.Context, what string, err error, classify func(context.Context, error) error) error {
	if err == nil {
		return nil
	}
	var key *driver.KeyError
	switch {
	case ctx.Err() != nil:
		return ctx.Err()
	case errors.As(err, &key), errors.Is(err, fence.ErrFenced):
		return err
	case errors.Is(err, driver.ErrAway), errors.Is(err, driver.ErrCompacted):
		return fmt.Errorf("%s: %w", what, err)
	case errors.Is(rpctypes.Error(err), rpctypes.ErrCompacted):
		return fmt.Errorf("%s: %w", what, driver.ErrCompacted)
	}
	if classify != nil {
		err = classify(ctx, err)
	}
	gone := errors.Is(err, context.DeadlineExceeded) || status.Code(err) == codes.Unavailable || status.Code(err) == codes.DeadlineExceeded
	if gone && !errors.Is(err, driver.ErrAway) {
		err = fmt.Errorf("%w: %w", driver.ErrAway, err)
	}
	return fmt.Errorf("%s: %w", what, err)
}

// Step gives a request its time-out, if this replica may still work on the tenant.
func Step[T any](ctx context.Context, do func(context.Context) (T, error)) (none T, err error) {
	if err := fence.Check(ctx); err != nil {
		return none, err
	}
	ctx, cancel := context.WithTimeout(ctx, stepTimeout)
	defer cancel()
	return do(ctx)
}
