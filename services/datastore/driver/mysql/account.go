package mysql

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/stoker-k8s/stoker/services/datastore/driver"
	"github.com/stoker-k8s/stoker/services/datastore/driver/internal/limit"
	"github.com/stoker-k8s/stoker/services/datastore/driver/internal/owner"
	"github.com/stoker-k8s/stoker/services/datastore/driver/internal/sqlpool"
	"github.com/stoker-k8s/stoker/services/datastore/driver/internal/step"
)

// Claim takes schema and user for the account's owner.
func (d *database) Claim(ctx context.Context, a driver.Account) error {
	if err := d.validate(a); err != nil {
		return err
	}
	return d.do(ctx, func(ctx context.Context, s *sqlpool.Session) error {
		have, err := d.lock(ctx, s, a)
		if err != nil {
			return err
		}
		return d.claim(ctx, s, step.New(ctx, d.held), a, have)
	})
}

// PassOn puts another owner on record, for both schema and user or for neither.
func (d *database) PassOn(ctx context.Context, a driver.Account, to string) error {
	if err := d.validate(a); err != nil {
		return err
	}
	return d.do(ctx, func(ctx context.Context, s *sqlpool.Session) error {
		have, err := d.lock(ctx, s, a)
		if err != nil {
			return err
		}
		return owners.PassOn(s, step.New(ctx, d.held), a, have.owners, to)
	})
}

// Provision takes the account for its owner, then makes user and database what they should be. When all is right, that
// is three queries of the administrator and a login of the tenant, which shows that its password is the right one.
func (d *database) Provision(ctx context.Context, a driver.Account) ([]string, error) {
	if err := d.validate(a); err != nil {
		return nil, err
	}
	if err := owner.WithoutPassword(a); err != nil {
		return nil, err
	}
	steps := step.New(ctx, d.held)
	err := d.do(ctx, func(ctx context.Context, s *sqlpool.Session) error {
		have, err := d.lock(ctx, s, a)
		if err != nil {
			return err
		}
		if err := d.claim(ctx, s, steps, a, have); err != nil {
			return err
		}
		do := func(what, statement string) {
			steps.Do(what, func(ctx context.Context) error { return s.Exec(ctx, statement) })
		}
		for _, host := range slices.Sorted(maps.Keys(have.hosts)) {
			if host != anyHost { // it would be taken for who comes from there, with another password and other rights
				do("user of host "+host+" removed", "DROP USER IF EXISTS "+user(a.User, host))
			}
		}
		if !have.user() {
			do("user made", "CREATE USER "+user(a.User, anyHost)+d.login(a))
		} else if have.hosts[anyHost] != d.tls() {
			do("TLS of the user set", "ALTER USER "+user(a.User, anyHost)+" REQUIRE "+d.require())
		}
		if !have.database {
			steps.Do("database made", func(ctx context.Context) error { return s.Slow(ctx, "CREATE DATABASE IF NOT EXISTS "+quote(a.Schema)) })
		}
		wanted := rightsOf(a)
		outdated := have.user() && have.grants.outdates(a)
		if outdated {
			wanted = without(wanted, lastRight)
		}
		for _, change := range have.grants.repair(a.Schema, a.User, wanted) {
			steps.Do(change[0], func(ctx context.Context) error { return except(s.Exec(ctx, change[1]), mandatoryRole) })
		}
		if steps.Err() != nil || !have.user() {
			return steps.Err()
		}
		err = d.enter(ctx, a)
		if errors.Is(err, errNoLogin) {
			do("login of the user set", "ALTER USER "+user(a.User, anyHost)+d.login(a))
			if err = steps.Err(); err == nil {
				err = d.enter(ctx, a)
			}
		}
		if err == nil && outdated {
			err = d.seal(s, steps, a)
		}
		return err
	})
	return steps.Changed(), err
}

// login is how the tenant proves who it is. Its password is plain by then, and is made anew by nobody but the service.
func (d *database) login(a driver.Account) string {
	return " IDENTIFIED BY '" + a.Password + "' REQUIRE " + d.require() + " PASSWORD EXPIRE NEVER ACCOUNT UNLOCK"
}

// require is what the user must connect with: where the DataStore has TLS, nobody may send passwords without it. tls is
// how table mysql.user says so.
func (d *database) require() string {
	if d.ca == nil {
		return "NONE"
	}
	return "SSL"
}

func (d *database) tls() string {
	if d.ca == nil {
		return ""
	}
	return "ANY"
}

// enter logs in as the tenant. errNoLogin means that its user isn't what it should be.
func (d *database) enter(ctx context.Context, a driver.Account) error {
	connector, err := connect(d.endpoint, a.User, a.Password, a.Schema, d.ca.Verify())
	if err != nil {
		return err
	}
	parent := ctx
	ctx, cancel := context.WithTimeout(ctx, limit.Step)
	defer cancel()
	db := sql.OpenDB(connector)
	defer db.Close()
	_, err = db.ExecContext(ctx, "DO 1") // with an expired password one gets in, but no further
	if err == nil {
		return nil
	}
	switch number(err) {
	case 0:
		if parent.Err() != nil {
			return parent.Err()
		}
		return fmt.Errorf("%w to user %s: %w", driver.ErrAway, a.User, err)
	case tooManyConnections, tooManyOfAll, tooManyOfUser:
		return nil // it was let in, or nobody is
	case accessDenied, lockedMySQL, lockedMariaDB, mustChange, expired:
		// Not an outage: the administrator gets in.
		return fmt.Errorf("user %s: %w: %v", a.User, errNoLogin, err) //nolint:errorlint // not to be classified by its cause
	}
	return err
}

// Drop removes the user and ends its connections, so that a process of the tenant that still runs somewhere can't write
// again what is being deleted, then the database; each only if it is the owner's. Until all is gone the record keeps
// others away.
func (d *database) Drop(ctx context.Context, a driver.Account) (driver.Removed, error) {
	removed := driver.Removed{}
	if err := d.validate(a); err != nil {
		return removed, err
	}
	err := d.do(ctx, func(ctx context.Context, s *sqlpool.Session) error {
		have, err := d.lock(ctx, s, a)
		if err != nil {
			return err
		}
		steps := step.New(ctx, d.held)
		recorded, err := d.claimLeft(s, steps, a, have)
		if err != nil {
			return err
		}
		if recorded.User.Is(a) {
			// Also without a user: whoever removed it may have left its connections.
			steps.Do("delete the user", func(ctx context.Context) error {
				for host := range have.hosts {
					if err := s.Exec(ctx, "DROP USER IF EXISTS "+user(a.User, host)); err != nil {
						return err
					}
					removed["User"]++
				}
				return throwOut(ctx, s, a)
			})
		}
		if recorded.Schema.Is(a) && have.database {
			steps.Do("delete the database", func(ctx context.Context) error {
				if err := s.Slow(ctx, "DROP DATABASE IF EXISTS "+quote(a.Schema)); err != nil {
					return err
				}
				removed["Database"]++
				return nil
			})
		}
		if recorded.User.Is(a) || recorded.Schema.Is(a) {
			steps.Do("delete the owner", func(ctx context.Context) error { return owners.Release(ctx, s, a, removed) })
		}
		return steps.Err()
	})
	return removed, err
}

// throwOut ends the user's connections, which would outlive it, with its rights.
func throwOut(ctx context.Context, s *sqlpool.Session, a driver.Account) error {
	ids, err := connections(ctx, s, a)
	if err != nil {
		return err
	}
	for _, id := range ids {
		// Who may not end others' connections has to leave them: they find no database any more.
		if err := except(s.Exec(ctx, fmt.Sprintf("KILL %d", id)), unknownThread, killDenied, privilegeMissing); err != nil {
			return err
		}
	}
	return nil
}

// connections are the numbers of the user's, as far as the administrator sees them. No number is used twice.
func connections(ctx context.Context, s *sqlpool.Session, a driver.Account) (ids []int64, err error) {
	const query = "SELECT id FROM information_schema.processlist WHERE user = ?"
	err = s.Rows(ctx, query, []any{a.User}, func(scan func(...any) error) error {
		ids = append(ids, 0)
		return scan(&ids[len(ids)-1])
	})
	return ids, err
}

// except takes some of the server's errors for none.
func except(err error, harmless ...uint16) error {
	if n := number(err); n != 0 && slices.Contains(harmless, n) {
		return nil
	}
	return err
}
