// Package sqlpool holds the few connections of the administrator of one SQL database.
package sqlpool

import (
	"context"
	"database/sql"
	sqldriver "database/sql/driver"
	"errors"
	"fmt"
	"time"

	"github.com/stoker-k8s/stoker/services/datastore/driver"
	"github.com/stoker-k8s/stoker/services/datastore/driver/internal/gate"
	"github.com/stoker-k8s/stoker/services/datastore/driver/internal/limit"
)

// How many connections there are at most, and how long those that nobody uses stay. Servers are often set up for a
// hundred connections, which the tenants need.
const (
	MaxConnections = 4
	maxIdle        = 2
	IdleTime       = 30 * time.Second
)

// Times that bound how late a database that is away is noticed.
const (
	// SlowTimeout is for making and removing databases, which wait for the disk: PostgreSQL writes everything it has
	// not yet written before it removes one. It is below the time of a turn of the service, which would take the end of
	// its own for an outage.
	SlowTimeout = 20 * time.Second
	// LockTimeout is how long one waits for another who works on the same account. It is below limit.Step, so that it
	// isn't taken for an outage.
	LockTimeout = 4 * time.Second
)

// Pool is what callers share.
type Pool struct {
	db     *sql.DB
	gate   *gate.Gate
	unlock string
}

// New makes a pool. classify wraps driver.ErrAway around errors that mean so; unlock is the statement that releases all
// locks of a session.
func New(connector sqldriver.Connector, unlock string, classify func(error) error) *Pool {
	p := &Pool{db: sql.OpenDB(connector), gate: gate.New(MaxConnections, classify), unlock: unlock}
	p.db.SetMaxOpenConns(MaxConnections)
	p.db.SetMaxIdleConns(maxIdle)
	p.db.SetConnMaxIdleTime(IdleTime)
	return p
}

// Close ends the connections.
func (p *Pool) Close() error { return p.db.Close() }

// Do calls f with a session of its own. Errors are classified, unless ctx was cancelled: then they are its own.
func (p *Pool) Do(ctx context.Context, f func(context.Context, *Session) error) error {
	return p.gate.Do(ctx, func() error { return p.use(ctx, f) })
}

func (p *Pool) use(ctx context.Context, f func(context.Context, *Session) error) error {
	s := &Session{}
	if err := within(ctx, func(ctx context.Context) (err error) { s.conn, err = p.db.Conn(ctx); return err }); err != nil {
		return &ConnectError{err}
	}
	defer s.conn.Close()
	err := f(ctx, s)
	if !s.locked {
		return err
	}
	// Locks must not outlive their holder: a session that can't release them is ended. One with a database that hangs
	// isn't even asked to.
	if errors.Is(err, driver.ErrAway) || s.Exec(context.WithoutCancel(ctx), p.unlock) != nil {
		_ = s.conn.Raw(func(any) error { return sqldriver.ErrBadConn })
	}
	return err
}

// ConnectError means that there was no connection.
type ConnectError struct{ err error }

func (e *ConnectError) Error() string { return e.err.Error() }
func (e *ConnectError) Unwrap() error { return e.err }

// Session is one connection, for one caller. Each statement has its time-out.
type Session struct {
	conn   *sql.Conn
	locked bool
}

// Locked notes that the session holds locks that must be released.
func (s *Session) Locked() { s.locked = true }

// Exec executes a statement.
func (s *Session) Exec(ctx context.Context, statement string, args ...any) error {
	_, err := s.Affect(ctx, statement, args...)
	return err
}

// Affect executes a statement and returns how many rows it changed.
func (s *Session) Affect(ctx context.Context, statement string, args ...any) (n int64, err error) {
	err = within(ctx, func(ctx context.Context) error {
		result, err := s.conn.ExecContext(ctx, statement, args...)
		if err == nil {
			n, err = result.RowsAffected()
		}
		return err
	})
	return n, err
}

// Slow executes a statement that may take long, which is no sign of an outage.
func (s *Session) Slow(ctx context.Context, statement string) error {
	parent := ctx
	ctx, cancel := context.WithTimeout(ctx, SlowTimeout)
	defer cancel()
	_, err := s.conn.ExecContext(ctx, statement)
	if err != nil && ctx.Err() != nil && parent.Err() == nil {
		return fmt.Errorf("takes longer than %s: %v", SlowTimeout, err) //nolint:errorlint // not to be classified by its cause
	}
	return err
}

// Row scans the only row of a query.
func (s *Session) Row(ctx context.Context, query string, args []any, to ...any) error {
	return within(ctx, func(ctx context.Context) error {
		return s.conn.QueryRowContext(ctx, query, args...).Scan(to...)
	})
}

// Rows calls each for every row of a query; scan reads its columns.
func (s *Session) Rows(ctx context.Context, query string, args []any, each func(scan func(to ...any) error) error) error {
	return within(ctx, func(ctx context.Context) error {
		rows, err := s.conn.QueryContext(ctx, query, args...)
		if err != nil {
			return err
		}
		defer rows.Close()
		for rows.Next() {
			if err := each(rows.Scan); err != nil {
				return err
			}
		}
		return rows.Err()
	})
}

// Transaction calls f with a transaction, which is rolled back if it fails.
func (s *Session) Transaction(ctx context.Context, f func(context.Context, *sql.Tx) error) error {
	return within(ctx, func(ctx context.Context) error {
		tx, err := s.conn.BeginTx(ctx, nil)
		if err != nil {
			return err
		}
		defer func() { _ = tx.Rollback() }()
		if err := f(ctx, tx); err != nil {
			return err
		}
		return tx.Commit()
	})
}

// within gives a step its time-out, and an error that says so.
func within(ctx context.Context, step func(context.Context) error) error {
	parent := ctx
	ctx, cancel := context.WithTimeout(ctx, limit.Step)
	defer cancel()
	err := step(ctx)
	if err != nil && ctx.Err() != nil && parent.Err() == nil {
		return fmt.Errorf("%w within %s: %w", driver.ErrAway, limit.Step, err)
	}
	return err
}
