package postgres

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/stoker-k8s/stoker/services/datastore/driver"
	"github.com/stoker-k8s/stoker/services/datastore/driver/internal/sqlpool"
	"github.com/stoker-k8s/stoker/services/datastore/driver/internal/step"
)

// A tenant that may only read has no right to write its tables, though it owns them. Nor has it any on tables that it makes from then on
// (default privileges), for a kine that starts on an empty database makes its table first. To make that, and to go on reading after a
// restart, kine needs CREATE on the schema, which stays.

// content is what there is in a tenant's database.
type content struct {
	// foreign says that some of it is another's. schema says that the role may use schema public.
	foreign, schema bool
	// writes says that the role may write some table, or one that it will make; reads, that it may not write some.
	writes, reads bool
	// making are the transactions that have just made or removed something, or are about to. Nobody else sees yet what they made, nor
	// whether the right to write it was taken from the role before.
	making []string
}

// right reports whether the role may write what it should.
func (c content) right(a driver.Account) bool {
	if a.ReadOnly {
		return !c.writes
	}
	return !c.reads
}

// writing are the rights to write a table.
const writing = "INSERT, UPDATE, DELETE, TRUNCATE"

// Conditions on a relation r, and the number of rights to write, of four, that the role $1 has on tables that it makes.
const (
	mayWrite = "(has_table_privilege($1::name, r.oid, '" + writing + "') OR has_any_column_privilege($1::name, r.oid, 'INSERT, UPDATE'))"
	mayAll   = "(SELECT bool_and(has_table_privilege($1::name, r.oid, w)) FROM unnest(string_to_array('" + writing + "', ', ')) w)"
	ofNew    = `(SELECT count(DISTINCT x.privilege_type) FROM pg_roles m, aclexplode(coalesce(
		(SELECT d.defaclacl FROM pg_default_acl d WHERE d.defaclrole = m.oid AND d.defaclnamespace = 0 AND d.defaclobjtype = 'r'),
		acldefault('r', m.oid))) x
		WHERE m.rolname = $1::name AND x.grantee IN (m.oid, 0) AND x.privilege_type = ANY(string_to_array('` + writing + `', ', ')))`
)

// look reads what there is in the database of a connection, the tenant's or the administrator's.
func look(ctx context.Context, conn *pgx.Conn, a driver.Account) (c content, err error) {
	err = conn.QueryRow(ctx, `WITH r AS (`+relations+`), own AS (SELECT * FROM r WHERE owner = $1::name AND plain)
		SELECT EXISTS(SELECT FROM r WHERE owner <> $1::name),
		coalesce(has_schema_privilege($1::name, to_regnamespace('public')::oid, 'CREATE')
			AND has_schema_privilege($1::name, to_regnamespace('public')::oid, 'USAGE'), false),
		`+ofNew+` > 0 OR EXISTS(SELECT FROM own r WHERE `+mayWrite+`), `+ofNew+` < 4 OR EXISTS(SELECT FROM own r WHERE NOT `+mayAll+`),
		ARRAY(SELECT DISTINCT l.virtualtransaction FROM pg_locks l JOIN pg_database d ON d.oid = l.database
			WHERE d.datname = current_database() AND l.locktype = 'object' AND l.classid = 'pg_namespace'::regclass AND l.pid <> pg_backend_pid())`,
		a.User).Scan(&c.foreign, &c.schema, &c.writes, &c.reads, &c.making)
	return c, err
}

// seal lets the role write, or read only. When it returns, no transaction is under way any more that may write all the same: those that
// write a table are waited for with its lock, and those that may have made one by what they lock.
func (p *postgres) seal(ctx context.Context, steps *step.Steps, a driver.Account, seen content) error {
	if seen.right(a) && (!a.ReadOnly || len(seen.making) == 0) {
		return nil
	}
	what, change := "right to write given to the role", giveWrites
	if a.ReadOnly {
		what, change = "right to write taken from the role", takeWrites
	}
	return p.inside(ctx, p.admin, a.Schema, func(ctx context.Context, conn *pgx.Conn) (err error) {
		for {
			if !seen.right(a) {
				steps.Do(what, func(context.Context) error { return change(ctx, conn, a) })
			}
			if steps.Err() != nil || !a.ReadOnly {
				return steps.Err()
			}
			if seen, err = look(ctx, conn, a); err != nil {
				return err
			}
			if err = ended(ctx, conn, seen.making); err != nil {
				return err
			}
			if seen, err = look(ctx, conn, a); err != nil || seen.right(a) {
				return err
			}
		}
	})
}

// takeWrites waits for those who write, keeps others from it, and takes the right away: whoever gets his turn then is refused.
func takeWrites(ctx context.Context, conn *pgx.Conn, a driver.Account) error {
	return change(ctx, conn, a, mayWrite, func(tx pgx.Tx, tables string) error {
		var super bool
		if err := tx.QueryRow(ctx, "SELECT rolsuper FROM pg_roles WHERE rolname = current_user").Scan(&super); err != nil {
			return err
		}
		var statements []string
		if super {
			// An autovacuum makes room for a lock that has been waited for so long; a second, unless somebody says otherwise.
			statements = append(statements, "SET LOCAL deadlock_timeout = '20ms'")
		}
		statements = append(statements,
			"ALTER DEFAULT PRIVILEGES FOR ROLE "+quote(a.User)+" REVOKE "+writing+" ON TABLES FROM PUBLIC, "+quote(a.User))
		if tables != "" {
			statements = append(statements, "LOCK TABLE "+tables+" IN SHARE MODE",
				"REVOKE "+writing+" ON "+tables+" FROM PUBLIC, "+quote(a.User))
		}
		return execute(ctx, tx, statements)
	})
}

// giveWrites gives the right back.
func giveWrites(ctx context.Context, conn *pgx.Conn, a driver.Account) error {
	return change(ctx, conn, a, "NOT "+mayAll, func(tx pgx.Tx, tables string) error {
		statements := []string{"ALTER DEFAULT PRIVILEGES FOR ROLE " + quote(a.User) + " GRANT " + writing + " ON TABLES TO " + quote(a.User)}
		if tables != "" {
			statements = append(statements, "GRANT "+writing+" ON "+tables+" TO "+quote(a.User))
		}
		return execute(ctx, tx, statements)
	})
}

// change calls do in a transaction, with the role's own tables that meet a condition, as a list for a statement.
func change(ctx context.Context, conn *pgx.Conn, a driver.Account, condition string, do func(tx pgx.Tx, tables string) error) error {
	// Each statement sees what was written until then, whatever the database's owner has set.
	return pgx.BeginTxFunc(ctx, conn, pgx.TxOptions{IsoLevel: pgx.ReadCommitted, AccessMode: pgx.ReadWrite}, func(tx pgx.Tx) error {
		var tables string
		if err := tx.QueryRow(ctx, `SELECT coalesce(string_agg(format('%I.%I', r.schema, r.name), ', ' ORDER BY r.oid), '')
			FROM (`+relations+`) r WHERE r.plain AND r.owner = $1::name AND `+condition, a.User).Scan(&tables); err != nil {
			return err
		}
		return do(tx, tables)
	})
}

func execute(ctx context.Context, tx pgx.Tx, statements []string) error {
	for _, statement := range statements {
		if _, err := tx.Exec(ctx, statement, pgx.QueryExecModeSimpleProtocol); err != nil {
			return err
		}
	}
	return nil
}

// ended waits until transactions have ended.
func ended(ctx context.Context, conn *pgx.Conn, transactions []string) error {
	ctx, cancel := context.WithTimeout(ctx, sqlpool.LockTimeout)
	defer cancel()
	const query = "SELECT count(DISTINCT virtualtransaction) FROM pg_locks WHERE virtualtransaction = ANY($1::text[])"
	for pause := time.Millisecond; len(transactions) > 0; pause = min(2*pause, 50*time.Millisecond) {
		left := 0
		if err := conn.QueryRow(ctx, query, transactions).Scan(&left); err != nil || left == 0 {
			return err
		}
		select {
		case <-ctx.Done():
			if errors.Is(ctx.Err(), context.Canceled) {
				return ctx.Err()
			}
			return fmt.Errorf("%d transactions that make something have not ended within %s", left, sqlpool.LockTimeout)
		case <-time.After(pause):
		}
	}
	return nil
}
