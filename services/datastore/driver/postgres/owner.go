package postgres

import (
	"context"
	"encoding/json"
	"fmt"
	"hash/fnv"
	"strconv"

	"github.com/jackc/pgx/v5"

	"github.com/stoker-k8s/stoker/services/datastore/driver"
	"github.com/stoker-k8s/stoker/services/datastore/driver/internal/owner"
	"github.com/stoker-k8s/stoker/services/datastore/driver/internal/sqlpool"
	"github.com/stoker-k8s/stoker/services/datastore/driver/internal/step"
)

// database is the administrator's own; no tenant may connect to it.
const database = "stoker"

// owners is the table of whose schemas and users are.
var owners = owner.Table{Name: "public.owners", Parameter: func(n int) string { return "$" + strconv.Itoa(n) }}

const makeOwners = `CREATE TABLE IF NOT EXISTS public.owners (
	kind text NOT NULL, name text NOT NULL, owner text NOT NULL, PRIMARY KEY (kind, name))`

// ownLock is held by who makes our own database, or its table.
const ownLock = 0x73746f6b6572

// prepare makes what is in our own database what it must be, and closes that to others.
func (p *postgres) prepare(ctx context.Context, s *sqlpool.Session) error {
	s.Locked()
	if err := s.Exec(ctx, "SELECT pg_advisory_lock($1)", ownLock); err != nil {
		return err
	}
	var exists, public bool
	err := s.Row(ctx, `SELECT to_regclass('public.owners') IS NOT NULL,
		EXISTS(SELECT FROM pg_database d, aclexplode(coalesce(d.datacl, acldefault('d', d.datdba))) x WHERE d.datname = current_database() AND x.grantee = 0)`,
		nil, &exists, &public)
	if err == nil && (public || !exists) {
		err = p.held(ctx)
	}
	if err == nil && public {
		err = s.Exec(ctx, "REVOKE ALL ON DATABASE "+database+" FROM PUBLIC")
	}
	if err == nil && !exists {
		err = s.Exec(ctx, makeOwners)
	}
	if err == nil {
		err = s.Exec(ctx, "SELECT pg_advisory_unlock($1)", ownLock)
	}
	return err
}

// makeDatabase makes our own database, by way of one that every server has.
func (p *postgres) makeDatabase(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, sqlpool.SlowTimeout)
	defer cancel()
	var conn *pgx.Conn
	var err error
	for _, other := range []string{"postgres", "template1"} {
		config := p.admin.Copy()
		config.Database = other
		if conn, err = pgx.ConnectConfig(ctx, config); code(err) != undefinedDatabase {
			break
		}
	}
	if err == nil {
		defer func() { _ = conn.Close(context.WithoutCancel(ctx)) }()
		_, err = conn.Exec(ctx, "SELECT pg_advisory_lock($1)", ownLock) // until the connection ends
	}
	exists := false
	if err == nil {
		err = conn.QueryRow(ctx, "SELECT EXISTS(SELECT FROM pg_database WHERE datname = $1)", database).Scan(&exists)
	}
	if err == nil && !exists {
		if err = p.held(ctx); err == nil {
			_, err = conn.Exec(ctx, createDatabase(database, ""))
		}
	}
	if err == nil { // also after a crash between the two
		_, err = conn.Exec(ctx, openDatabase(database), pgx.QueryExecModeSimpleProtocol)
	}
	if err != nil {
		err = fmt.Errorf("database %s for the records of owners: %w", database, classify(err))
	}
	return err
}

// found is what there is of an account.
type found struct {
	// Super says that the administrator is a superuser, Member that he may act as the role.
	Super, Member bool
	// SchemaOwner and UserOwner are on record, nil when there is none.
	SchemaOwner, UserOwner *string
	Role                   *role
	Database               *db
}

// role is what there is of a role.
type role struct {
	Login   bool
	Mighty  bool     // has an attribute beyond LOGIN
	Groups  []string // it is a member of
	Granted []string // databases beside its own that it has rights on
	// Elsewhere says that it owns, or has rights on, something that isn't in its database.
	Elsewhere bool
	Expires   bool
}

// db is what there is of a database.
type db struct {
	Owner    string
	Open     bool // takes connections
	Template bool
	// Broken says that the server crashed while it removed it: it can be nothing but removed.
	Broken bool
	Public bool // everybody has rights
	Rights int  // of the owner, of three
}

const readAccount = `SELECT to_json(account) FROM (SELECT
	me.rolsuper AS "Super", coalesce(pg_has_role(me.oid, r.oid, 'USAGE'), false) AS "Member",
	(SELECT owner FROM public.owners WHERE kind = 'schema' AND name = $1::text) AS "SchemaOwner",
	(SELECT owner FROM public.owners WHERE kind = 'user' AND name = $2::text) AS "UserOwner",
	CASE WHEN r.oid IS NOT NULL THEN json_build_object(
		'Login', r.rolcanlogin,
		'Mighty', r.rolsuper OR r.rolcreatedb OR r.rolcreaterole OR r.rolreplication OR r.rolbypassrls,
		'Expires', coalesce(r.rolvaliduntil < 'infinity', false),
		'Groups', ARRAY(SELECT g.rolname FROM pg_auth_members m JOIN pg_roles g ON g.oid = m.roleid WHERE m.member = r.oid ORDER BY 1),
		'Granted', ARRAY(SELECT DISTINCT o.datname FROM pg_database o, aclexplode(o.datacl) x WHERE x.grantee = r.oid AND o.oid IS DISTINCT FROM d.oid ORDER BY 1),
		'Elsewhere', EXISTS(SELECT FROM pg_shdepend s WHERE s.refclassid = 'pg_authid'::regclass AND s.refobjid = r.oid
			AND (s.dbid = d.oid OR s.dbid = 0 AND s.classid = 'pg_database'::regclass AND s.objid = d.oid) IS NOT TRUE)
	) END AS "Role",
	CASE WHEN d.oid IS NOT NULL THEN json_build_object(
		'Owner', pg_get_userbyid(d.datdba), 'Open', d.datallowconn, 'Template', d.datistemplate, 'Broken', d.datconnlimit = -2,
		'Public', EXISTS(SELECT FROM aclexplode(coalesce(d.datacl, acldefault('d', d.datdba))) x WHERE x.grantee = 0),
		'Rights', (SELECT count(*) FROM aclexplode(coalesce(d.datacl, acldefault('d', d.datdba))) x WHERE x.grantee = d.datdba)
	) END AS "Database"
	FROM pg_roles me
	LEFT JOIN pg_roles r ON r.rolname = $2::text
	LEFT JOIN pg_database d ON d.datname = $1::text
	WHERE me.rolname = current_user) account`

// lock keeps others away from an account's schema and user until the session ends its use, and reads what there is. So
// what was read stays true, and neither a second tenant of the same names nor a replica that was overtaken changes it.
func lock(ctx context.Context, s *sqlpool.Session, a driver.Account) (have found, err error) {
	key := func(kind, name string) int64 {
		h := fnv.New64a()
		_, _ = h.Write([]byte(kind + "/" + name))
		return int64(h.Sum64())
	}
	s.Locked()
	// Always the schema first, so that no two wait for each other.
	if err := s.Exec(ctx, "SELECT pg_advisory_lock($1)", key(owner.KindSchema, a.Schema)); err != nil {
		return have, fmt.Errorf("lock schema %s: %w", a.Schema, err)
	}
	if err := s.Exec(ctx, "SELECT pg_advisory_lock($1)", key(owner.KindUser, a.User)); err != nil {
		return have, fmt.Errorf("lock user %s: %w", a.User, err)
	}
	var row []byte
	if err := s.Row(ctx, readAccount, []any{a.Schema, a.User}, &row); err != nil {
		return have, err
	}
	return have, json.Unmarshal(row, &have)
}

func (f found) owners() owner.Records {
	of := func(value *string) owner.Record {
		if value == nil {
			return owner.Record{}
		}
		return owner.Record{Value: *value, Recorded: true}
	}
	return owner.Records{Schema: of(f.SchemaOwner), User: of(f.UserOwner)}
}

// claim records the account's owner for both schema and user, or for neither. Nothing may be made, and nothing of what
// there is given out, before.
func (p *postgres) claim(ctx context.Context, s *sqlpool.Session, steps *step.Steps, a driver.Account, have found) error {
	if err := p.refuse(ctx, a, have); err != nil {
		return err
	}
	return owners.Claim(s, steps, a, have.owners())
}

// claimLeft is claim for an account that is to be dropped: it refuses nothing, and what has no owner it takes only when
// it is sure to be the account's. It returns whose it is then.
func (p *postgres) claimLeft(s *sqlpool.Session, steps *step.Steps, a driver.Account, have found) (owner.Records, error) {
	ofSchema, ofUser := owner.Certain(a, p.Names)
	return owners.ClaimLeft(s, steps, a, have.owners(), have.Database != nil && ofSchema, have.Role != nil && ofUser)
}

// refuse returns a *driver.TakenError for what is another's. Tenants of before there were records, and of Kamaji, have
// no owner and go to the account that adopts them. What the server's operator has for another use looks
// differently, and must, for with the last of its tenant it would be dropped: a database that somebody else owns or that
// holds more than kine's table; a role that may more than a tenant's, or has to do with another database.
func (p *postgres) refuse(ctx context.Context, a driver.Account, have found) error {
	if err := have.owners().Refuse(a); err != nil {
		return err
	}
	ofSchema, ofUser := owner.Certain(a, p.Names)
	if d := have.Database; d != nil && have.SchemaOwner == nil && !ofSchema {
		if d.Owner != a.User || !d.Open || d.Template || d.Broken {
			return owner.TakenSchema(a, driver.TakenByOthers)
		}
		others := 0
		if err := p.inside(ctx, p.admin, a.Schema, func(ctx context.Context, conn *pgx.Conn) error {
			return conn.QueryRow(ctx, `SELECT count(*) FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
				WHERE n.nspname !~ '^pg_' AND n.nspname <> 'information_schema' AND c.relname !~ '^(kine|key_value)(_|$)'`).Scan(&others)
		}); err != nil {
			return err
		}
		if others > 0 {
			return owner.TakenSchema(a, driver.TakenByOthers)
		}
		if !a.Adopts {
			return owner.TakenSchema(a, driver.TakenUnrecorded)
		}
	}
	if r := have.Role; r != nil && have.UserOwner == nil && !ofUser {
		if r.Mighty || len(r.Groups) > 0 || r.Elsewhere {
			return owner.TakenUser(a, driver.TakenByOthers)
		}
		if !a.Adopts {
			return owner.TakenUser(a, driver.TakenUnrecorded)
		}
	}
	return nil
}

// Describe says what an account is in PostgreSQL, for whoever has to remove it by hand.
func Describe(a driver.Account) string {
	return fmt.Sprintf("database %s, if table owners of database %s says that schema %s is %s's; role %s, if it says so of user %s; and these two records",
		a.Schema, database, a.Schema, a.Owner, a.User, a.User)
}
