package postgres

import (
	"context"
	"crypto/hmac"
	"crypto/pbkdf2"
	"crypto/rand"
	"crypto/sha256"
	"crypto/tls"
	"encoding/base64"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/stoker-k8s/stoker/services/datastore/driver"
	"github.com/stoker-k8s/stoker/services/datastore/driver/internal/limit"
	"github.com/stoker-k8s/stoker/services/datastore/driver/internal/owner"
	"github.com/stoker-k8s/stoker/services/datastore/driver/internal/sqlpool"
	"github.com/stoker-k8s/stoker/services/datastore/driver/internal/step"
)

// Claim takes schema and user for the account's owner.
func (p *postgres) Claim(ctx context.Context, a driver.Account) error {
	if err := p.validate(a); err != nil {
		return err
	}
	return p.do(ctx, func(ctx context.Context, s *sqlpool.Session) error {
		have, err := lock(ctx, s, a)
		if err != nil {
			return err
		}
		return p.claim(ctx, s, step.New(ctx, p.held), a, have)
	})
}

// PassOn puts another owner on record, for both schema and user or for neither.
func (p *postgres) PassOn(ctx context.Context, a driver.Account, to string) error {
	if err := p.validate(a); err != nil {
		return err
	}
	return p.do(ctx, func(ctx context.Context, s *sqlpool.Session) error {
		have, err := lock(ctx, s, a)
		if err != nil {
			return err
		}
		return owners.PassOn(s, step.New(ctx, p.held), a, have.owners(), to)
	})
}

// validate is Validate and looks that there is an owner.
func (p *postgres) validate(a driver.Account) error {
	if err := owner.Without(a); err != nil {
		return err
	}
	return p.Validate(a)
}

// Provision takes the account for its owner, then makes role and database what they should be. When all is right, that
// is one query of the administrator and one of the tenant, whose login shows that its password is the right one.
func (p *postgres) Provision(ctx context.Context, a driver.Account) ([]string, error) {
	if err := p.validate(a); err != nil {
		return nil, err
	}
	if err := owner.WithoutPassword(a); err != nil {
		return nil, err
	}
	steps := step.New(ctx, p.held)
	err := p.do(ctx, func(ctx context.Context, s *sqlpool.Session) error {
		have, err := lock(ctx, s, a)
		if err != nil {
			return err
		}
		if err := p.claim(ctx, s, steps, a, have); err != nil {
			return err
		}
		ensureRole(s, steps, a, have)
		ensureDatabase(s, steps, a, have)
		if err := steps.Err(); err != nil {
			return err
		}
		if have.Role == nil && have.Database == nil && !a.ReadOnly {
			return nil // just made
		}
		return p.enter(ctx, s, steps, a)
	})
	return steps.Changed(), err
}

// ensureRole makes the role, or takes from it what a tenant's doesn't have.
func ensureRole(s *sqlpool.Session, steps *step.Steps, a driver.Account, have found) {
	do := func(what, statement string) {
		steps.Do(what, func(ctx context.Context) error { return s.Exec(ctx, statement) })
	}
	role, plain := quote(a.User), "LOGIN NOCREATEDB NOCREATEROLE"
	if have.Super {
		plain += " NOSUPERUSER NOREPLICATION NOBYPASSRLS" // others may not even take these away
	}
	r := have.Role
	if r == nil {
		do("role made", "CREATE ROLE "+role+" WITH "+plain+" PASSWORD "+verifier(a.Password))
	} else {
		if !r.Login || r.Mighty || r.Expires {
			do("attributes of the role set", "ALTER ROLE "+role+" WITH "+plain+" VALID UNTIL 'infinity'")
		}
		for _, group := range r.Groups {
			do("role "+group+" taken from the role", "REVOKE "+quote(group)+" FROM "+role)
		}
		for _, other := range r.Granted {
			do("rights on database "+other+" taken from the role", "REVOKE ALL ON DATABASE "+quote(other)+" FROM "+role)
		}
	}
	if !have.Super && !have.Member {
		// Who isn't a superuser gives a database only to whom he may act as.
		do("role granted to the administrator", "GRANT "+role+" TO CURRENT_USER")
	}
}

// ensureDatabase makes the database, or gives it back to its owner alone.
func ensureDatabase(s *sqlpool.Session, steps *step.Steps, a driver.Account, have found) {
	do := func(what, statement string) {
		steps.Do(what, func(ctx context.Context) error { return s.Exec(ctx, statement, pgx.QueryExecModeSimpleProtocol) })
	}
	name, role := quote(a.Schema), quote(a.User)
	d := have.Database
	if d != nil && d.Broken {
		steps.Do("broken database removed", func(ctx context.Context) error { return s.Slow(ctx, "DROP DATABASE "+name) })
		d = nil
	}
	if d == nil {
		steps.Do("database made", func(ctx context.Context) error { return s.Slow(ctx, createDatabase(a.Schema, a.User)) })
		do("database opened to its owner", openDatabase(a.Schema))
		return
	}
	if d.Owner != a.User {
		do("owner of the database set", "ALTER DATABASE "+name+" OWNER TO "+role)
	}
	if d.Owner != a.User || d.Rights < 3 {
		do("rights on the database given to its owner", "GRANT ALL ON DATABASE "+name+" TO "+role)
	}
	if d.Public || !d.Open || d.Template {
		do("database closed to others", openDatabase(a.Schema))
	}
}

// createDatabase is the statement that makes a database nobody can connect to yet: everybody may connect to a new one,
// and whoever is in stays in. template0 has nobody connected and nothing in it.
func createDatabase(name, role string) string {
	owner := ""
	if role != "" {
		owner = " OWNER " + quote(role)
	}
	return "CREATE DATABASE " + quote(name) + owner + " TEMPLATE template0 ENCODING 'UTF8' LC_COLLATE 'C' LC_CTYPE 'C' ALLOW_CONNECTIONS false"
}

// openDatabase are the statements, of one transaction, that let nobody but the owner connect, and him.
func openDatabase(name string) string {
	return "REVOKE ALL ON DATABASE " + quote(name) + " FROM PUBLIC; ALTER DATABASE " + quote(name) + " WITH ALLOW_CONNECTIONS true IS_TEMPLATE false"
}

// enter logs in as the tenant and looks that what is in the database is its own, as it isn't after a restore, or when
// somebody deleted the role and had to put its tables elsewhere; and that it may write there, or may not.
func (p *postgres) enter(ctx context.Context, s *sqlpool.Session, steps *step.Steps, a driver.Account) error {
	config, err := p.tenantConfig(a, driver.Access{})
	if err != nil {
		return err
	}
	var seen content
	look := func() error {
		return p.inside(ctx, config, a.Schema, func(ctx context.Context, conn *pgx.Conn) (err error) {
			seen, err = look(ctx, conn, a)
			return err
		})
	}
	err = look()
	if code(err) == invalidPassword {
		steps.Do("password set", func(ctx context.Context) error {
			return s.Exec(ctx, "ALTER ROLE "+quote(a.User)+" PASSWORD "+verifier(a.Password))
		})
		if steps.Err() != nil {
			return steps.Err()
		}
		err = look()
	}
	switch code(err) {
	case tooManyConnections:
		if a.ReadOnly {
			return err // for whether it is so can't wait
		}
		return steps.Err() // it was let in, or nobody is: whether a table is another's can wait
	case invalidAuth, invalidPassword:
		// Not an outage: the administrator gets in.
		return fmt.Errorf("role %s can't log in, though it is right: pg_hba.conf must let tenants in with a password (scram-sha-256)%s: %s", a.User, p.demand(), message(err))
	}
	if err != nil {
		return err
	}
	p.giveTables(steps, a, seen)
	if steps.Err() == nil && seen.foreign {
		err = look()
	}
	if err == nil {
		err = steps.Err()
	}
	if err != nil {
		return err
	}
	return p.seal(ctx, steps, a, seen)
}

// giveTables makes what is in the database the tenant's own.
func (p *postgres) giveTables(steps *step.Steps, a driver.Account, seen content) {
	if !seen.schema {
		steps.Do("schema public given to the role", func(ctx context.Context) error {
			return p.inside(ctx, p.admin, a.Schema, func(ctx context.Context, conn *pgx.Conn) error {
				_, err := conn.Exec(ctx, "CREATE SCHEMA IF NOT EXISTS public; ALTER SCHEMA public OWNER TO "+quote(a.User), pgx.QueryExecModeSimpleProtocol)
				return err
			})
		})
	}
	if seen.foreign {
		steps.Do("tables given to the role", func(ctx context.Context) error {
			return p.inside(ctx, p.admin, a.Schema, func(ctx context.Context, conn *pgx.Conn) error {
				var statements *string
				err := conn.QueryRow(ctx, `SELECT string_agg(format('ALTER TABLE %I.%I OWNER TO %I', r.schema, r.name, $1::text), '; ')
					FROM (`+relations+`) r WHERE r.owner <> $1::text`, a.User).Scan(&statements)
				if err == nil && statements != nil {
					_, err = conn.Exec(ctx, *statements, pgx.QueryExecModeSimpleProtocol)
				}
				return err
			})
		})
	}
}

// relations are those in a database that somebody made there, but the sequences of columns, which go with their table.
const relations = `SELECT n.nspname AS schema, c.relname AS name, pg_get_userbyid(c.relowner) AS owner, c.oid, c.relkind IN ('r', 'p') AS plain
	FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
	WHERE n.nspname !~ '^pg_' AND n.nspname <> 'information_schema' AND c.relkind IN ('r', 'p', 'v', 'm', 'f', 'S')
	AND NOT EXISTS(SELECT FROM pg_depend x WHERE x.classid = 'pg_class'::regclass AND x.objid = c.oid AND x.deptype IN ('a', 'i', 'e'))`

// tenantConfig is what the tenant connects with: its password, and its certificate if tenants have one, which is the one it has while that
// is good.
func (p *postgres) tenantConfig(a driver.Account, have driver.Access) (*pgx.ConnConfig, error) {
	tlsConfig := p.ca.Verify()
	if p.ca.Signs() {
		access, err := p.ca.Access(a, have, time.Now())
		if err != nil {
			return nil, err
		}
		pair, err := tls.X509KeyPair(access.Cert, access.Key)
		if err != nil {
			return nil, err
		}
		tlsConfig.Certificates = []tls.Certificate{pair}
	}
	return connConfig(p.endpoint, a.User, a.Password, a.Schema, tlsConfig)
}

// demand says what helps when the server wants certificates.
func (p *postgres) demand() string {
	if p.ca.Signs() {
		return ""
	}
	return "; if it demands client certificates, set spec.tlsConfig.certificateAuthority.privateKey, so that each tenant gets its own"
}

// inside connects to one database and calls f.
func (p *postgres) inside(ctx context.Context, config *pgx.ConnConfig, database string, f func(context.Context, *pgx.Conn) error) error {
	parent := ctx
	ctx, cancel := context.WithTimeout(ctx, limit.Step)
	defer cancel()
	config = config.Copy()
	config.Database = database
	// Its owner may have set otherwise, for whoever connects. That the whole server takes no writes shows elsewhere.
	config.RuntimeParams["default_transaction_read_only"] = "off"
	conn, err := pgx.ConnectConfig(ctx, config)
	if err == nil {
		err = f(ctx, conn)
		_ = conn.Close(ctx)
	} else if code(err) == "" && parent.Err() == nil {
		return fmt.Errorf("%w: %w", driver.ErrAway, err)
	}
	if err != nil && ctx.Err() != nil && parent.Err() == nil {
		return fmt.Errorf("%w within %s: %w", driver.ErrAway, limit.Step, err)
	}
	return err
}

// Drop keeps the role out, so that a process of the tenant that still runs somewhere can't come back, removes the
// database, whoever is in it, then the role; each only if it is the owner's. Until all is gone the record keeps others
// away.
func (p *postgres) Drop(ctx context.Context, a driver.Account) (driver.Removed, error) {
	removed := driver.Removed{}
	if err := p.validate(a); err != nil {
		return removed, err
	}
	err := p.do(ctx, func(ctx context.Context, s *sqlpool.Session) error {
		have, err := lock(ctx, s, a)
		if err != nil {
			return err
		}
		steps := step.New(ctx, p.held)
		recorded, err := p.claimLeft(s, steps, a, have)
		if err != nil {
			return err
		}
		role, database := recorded.User.Is(a) && have.Role != nil, recorded.Schema.Is(a) && have.Database != nil
		if role {
			steps.Do("lock the role out", func(ctx context.Context) error { return lockOut(ctx, s, a, have) })
		}
		if database {
			steps.Do("delete the database", func(ctx context.Context) error {
				if have.Database.Template {
					if err := s.Exec(ctx, "ALTER DATABASE "+quote(a.Schema)+" WITH IS_TEMPLATE false"); err != nil {
						return err
					}
				}
				if err := s.Slow(ctx, "DROP DATABASE IF EXISTS "+quote(a.Schema)+" WITH (FORCE)"); err != nil {
					return err
				}
				removed["Database"]++
				return nil
			})
		}
		if role {
			steps.Do("delete the role", func(ctx context.Context) error {
				if err := p.dropRole(ctx, s, a); err != nil {
					return err
				}
				removed["User"]++
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

func lockOut(ctx context.Context, s *sqlpool.Session, a driver.Account, have found) error {
	if !have.Super && !have.Member {
		if err := s.Exec(ctx, "GRANT "+quote(a.User)+" TO CURRENT_USER"); err != nil {
			return err
		}
	}
	if err := s.Exec(ctx, "ALTER ROLE "+quote(a.User)+" NOLOGIN"); err != nil {
		return err
	}
	return s.Exec(ctx, "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE usename = $1", a.User)
}

// dropRole removes a role and whatever it left in databases that everybody may connect to.
func (p *postgres) dropRole(ctx context.Context, s *sqlpool.Session, a driver.Account) error {
	drop, disown := "DROP ROLE IF EXISTS "+quote(a.User), "DROP OWNED BY "+quote(a.User)
	err := s.Exec(ctx, drop)
	if code(err) != dependentObjects {
		return err
	}
	var others []string
	if err := s.Rows(ctx, `SELECT DISTINCT d.datname FROM pg_shdepend s JOIN pg_database d ON d.oid = s.dbid
		WHERE s.refclassid = 'pg_authid'::regclass AND s.refobjid = (SELECT oid FROM pg_roles WHERE rolname = $1)`,
		[]any{a.User}, func(scan func(...any) error) error {
			others = append(others, "")
			return scan(&others[len(others)-1])
		}); err != nil {
		return err
	}
	for _, other := range append(others, database) { // rights on databases go wherever one is
		if err := p.inside(ctx, p.admin, other, func(ctx context.Context, conn *pgx.Conn) error {
			_, err := conn.Exec(ctx, disown)
			return err
		}); err != nil {
			return fmt.Errorf("in database %s: %w", other, err)
		}
	}
	return s.Exec(ctx, drop)
}

// quote makes a name one identifier.
func quote(name string) string { return pgx.Identifier{name}.Sanitize() }

// verifier is what PostgreSQL keeps of a password (RFC 5803), as a literal. The password itself would be in the server's
// log.
func verifier(password string) string {
	const iterations = 4096
	salt := make([]byte, 16)
	_, _ = rand.Read(salt)
	salted, err := pbkdf2.Key(sha256.New, password, salt, iterations, sha256.Size)
	if err != nil {
		panic(err) // only for lengths that can't be
	}
	sum := func(key []byte, data string) []byte {
		h := hmac.New(sha256.New, key)
		_, _ = h.Write([]byte(data))
		return h.Sum(nil)
	}
	stored := sha256.Sum256(sum(salted, "Client Key"))
	encode := base64.StdEncoding.EncodeToString
	return fmt.Sprintf("'SCRAM-SHA-256$%d:%s$%s:%s'", iterations, encode(salt), encode(stored[:]), encode(sum(salted, "Server Key")))
}

// message is what the server said.
func message(err error) string {
	var answer *pgconn.PgError
	if errors.As(err, &answer) {
		return answer.Message
	}
	return err.Error()
}
