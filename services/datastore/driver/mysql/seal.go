package mysql

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/stoker-k8s/stoker/services/datastore/driver"
	"github.com/stoker-k8s/stoker/services/datastore/driver/internal/limit"
	"github.com/stoker-k8s/stoker/services/datastore/driver/internal/sqlpool"
	"github.com/stoker-k8s/stoker/services/datastore/driver/internal/step"
)

// seal ends connections whose rights are those of before: a connection keeps the rights on its database with which it began. Then it
// gives the user its last right, whose lack tells the next Provision, if this one ends before, that there may be such connections yet.
func (d *database) seal(s *sqlpool.Session, steps *step.Steps, a driver.Account) error {
	steps.Do("connections of the user ended", func(ctx context.Context) error {
		if a.ReadOnly {
			return d.endConnections(ctx, s, a)
		}
		return throwOut(ctx, s, a)
	})
	last := give(a.Schema, a.User, lastRight)
	steps.Do(last[0], func(ctx context.Context) error { return s.Exec(ctx, last[1]) })
	return steps.Err()
}

// endConnections returns when all connections that the user has now are gone, and what they had begun is written or undone. Those that
// begin meanwhile have the rights of now. It is an error when the administrator may not end, or not even see, others' connections.
func (d *database) endConnections(ctx context.Context, s *sqlpool.Session, a driver.Account) error {
	ctx, cancel := context.WithTimeout(ctx, limit.Step)
	defer cancel()
	// Whoever lacks PROCESS is told of no connection and of no error, so one that is there must be among them.
	connector, err := connect(d.endpoint, a.User, a.Password, "", d.ca.Verify())
	if err != nil {
		return err
	}
	witness := sql.OpenDB(connector)
	defer witness.Close()
	var known int64
	if err := witness.QueryRowContext(ctx, "SELECT CONNECTION_ID()").Scan(&known); err != nil {
		return err
	}
	ids, err := connections(ctx, s, a)
	if err != nil {
		return err
	}
	if !slices.Contains(ids, known) {
		return fmt.Errorf("administrator %q must have the right PROCESS, to see connections of user %s", d.admin, a.User)
	}
	for _, id := range ids {
		if err := except(s.Exec(ctx, fmt.Sprintf("KILL %d", id)), unknownThread); err != nil {
			return fmt.Errorf("administrator %q must be able to end connections of user %s: %w", d.admin, a.User, err)
		}
	}
	return gone(ctx, s, ids)
}

// gone waits until there are no such connections any more. One that is told to end does so when it has undone what it didn't finish.
func gone(ctx context.Context, s *sqlpool.Session, ids []int64) error {
	list := strings.ReplaceAll(strings.Trim(fmt.Sprint(ids), "[]"), " ", ", ")
	query := "SELECT count(*) FROM information_schema.processlist WHERE id IN (" + list + ")"
	for pause := time.Millisecond; ; pause = min(2*pause, 50*time.Millisecond) {
		left := 0
		if err := s.Row(ctx, query, nil, &left); err != nil || left == 0 {
			return err
		}
		select {
		case <-ctx.Done():
			if errors.Is(ctx.Err(), context.Canceled) {
				return ctx.Err()
			}
			return fmt.Errorf("%d connections have not ended within %s", left, limit.Step) // which is no outage
		case <-time.After(pause):
		}
	}
}
