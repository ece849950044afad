package owner

import (
	"context"
	"database/sql"
	"strings"

	"github.com/stoker-k8s/stoker/services/datastore/driver"
	"github.com/stoker-k8s/stoker/services/datastore/driver/internal/sqlpool"
	"github.com/stoker-k8s/stoker/services/datastore/driver/internal/step"
)

// Kinds of records in a Table.
const (
	KindSchema = "schema"
	KindUser   = "user"
)

// Table is where an SQL database has on record whose schemas and users are. Its columns are kind, name and owner, the first two
// its primary key.
type Table struct {
	// Name of the table, as statements write it.
	Name string
	// Parameter is how statements write their parameters, from 1 on.
	Parameter func(n int) string
}

// Claim takes those of an account's schema and user that have no owner on record, both or neither. Whoever calls it has refused
// what is another's.
func (t Table) Claim(s *sqlpool.Session, steps *step.Steps, a driver.Account, have Records) error {
	_, err := t.take(s, steps, a, have, true, true)
	return err
}

// ClaimLeft is Claim for an account that is to be dropped: schema and user say which of them, without an owner on record, may be
// taken. It returns the records as they are then.
func (t Table) ClaimLeft(s *sqlpool.Session, steps *step.Steps, a driver.Account, have Records, schema, user bool) (Records, error) {
	return t.take(s, steps, a, have, schema, user)
}

func (t Table) take(s *sqlpool.Session, steps *step.Steps, a driver.Account, have Records, schema, user bool) (Records, error) {
	var rows [][]any
	if schema && !have.Schema.Recorded {
		rows = append(rows, []any{KindSchema, a.Schema, a.Owner})
		have.Schema = Record{Value: a.Owner, Recorded: true}
	}
	if user && !have.User.Recorded {
		rows = append(rows, []any{KindUser, a.User, a.Owner})
		have.User = Record{Value: a.Owner, Recorded: true}
	}
	if len(rows) > 0 {
		insert := t.statement("INSERT INTO " + t.Name + " (kind, name, owner) VALUES (?, ?, ?)")
		steps.Do("owner recorded", func(ctx context.Context) error {
			return s.Transaction(ctx, func(ctx context.Context, tx *sql.Tx) error {
				for _, row := range rows {
					if _, err := tx.ExecContext(ctx, insert, row...); err != nil {
						return err
					}
				}
				return nil
			})
		})
	}
	return have, steps.Err()
}

// PassOn puts another owner into the records of an account, which are locked and were read.
func (t Table) PassOn(s *sqlpool.Session, steps *step.Steps, a driver.Account, have Records, to string) error {
	needed, err := have.PassOn(a, to)
	if err != nil || !needed {
		return err
	}
	update := t.statement("UPDATE " + t.Name + " SET owner = ? WHERE owner = ? AND (kind = '" + KindSchema + "' AND name = ? OR kind = '" + KindUser + "' AND name = ?)")
	steps.Do("owner recorded", func(ctx context.Context) error {
		_, err := s.Affect(ctx, update, to, a.Owner, a.Schema, a.User)
		return err
	})
	return steps.Err()
}

// Release deletes the records that name the account's owner and counts them in removed.
func (t Table) Release(ctx context.Context, s *sqlpool.Session, a driver.Account, removed driver.Removed) error {
	where := "owner = ? AND (kind = '" + KindSchema + "' AND name = ? OR kind = '" + KindUser + "' AND name = ?)"
	n, err := s.Affect(ctx, t.statement("DELETE FROM "+t.Name+" WHERE "+where), a.Owner, a.Schema, a.User)
	if n > 0 {
		removed[driver.RemovedOwner] += int(n)
	}
	return err
}

// Accounts makes accounts of all records.
func (t Table) Accounts(ctx context.Context, s *sqlpool.Session) ([]driver.Account, error) {
	records := map[string]map[string]string{KindSchema: {}, KindUser: {}}
	query := "SELECT kind, name, owner FROM " + t.Name + " WHERE kind IN ('" + KindSchema + "', '" + KindUser + "')"
	err := s.Rows(ctx, query, nil, func(scan func(...any) error) error {
		var kind, name, owner string
		err := scan(&kind, &name, &owner)
		if err == nil {
			records[kind][name] = owner
		}
		return err
	})
	return List(records[KindSchema], records[KindUser]), err
}

// statement writes parameters as the database wants them.
func (t Table) statement(s string) string {
	parts := strings.Split(s, "?")
	var b strings.Builder
	for i, part := range parts {
		if i > 0 {
			b.WriteString(t.Parameter(i))
		}
		b.WriteString(part)
	}
	return b.String()
}
