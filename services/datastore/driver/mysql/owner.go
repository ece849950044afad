package mysql

import (
	"context"
	"database/sql"
	"encoding/hex"
	"errors"
	"fmt"
	"hash/fnv"
	"slices"
	"strings"

	"github.com/stoker-k8s/stoker/services/datastore/driver"
	"github.com/stoker-k8s/stoker/services/datastore/driver/internal/owner"
	"github.com/stoker-k8s/stoker/services/datastore/driver/internal/sqlpool"
	"github.com/stoker-k8s/stoker/services/datastore/driver/internal/step"
)

// own is the administrator's own database; no tenant has rights on it.
const own = "stoker"

// owners is the table of whose schemas and users are.
var owners = owner.Table{Name: own + ".owners", Parameter: func(int) string { return "?" }}

// prepare makes our own database.
func (d *database) prepare(ctx context.Context, s *sqlpool.Session) error {
	var exists bool
	const query = "SELECT count(*) > 0 FROM information_schema.tables WHERE table_schema = ? AND table_name = 'owners'"
	err := s.Row(ctx, query, []any{own}, &exists)
	if err != nil || exists {
		return err
	}
	if err := d.held(ctx); err != nil {
		return err
	}
	if err := s.Exec(ctx, "CREATE DATABASE IF NOT EXISTS "+own); err != nil {
		return err
	}
	return s.Exec(ctx, `CREATE TABLE IF NOT EXISTS `+own+`.owners (
		kind varchar(16) NOT NULL, name varchar(128) NOT NULL, owner varchar(255) NOT NULL, PRIMARY KEY (kind, name)
		) ENGINE=InnoDB DEFAULT CHARACTER SET ascii COLLATE ascii_bin`)
}

// found is what there is of an account.
type found struct {
	owners   owner.Records
	database bool
	// hosts of the users of that name, and what kind of TLS each must use; a tenant's has the host %.
	hosts map[string]string
	// open says that one of them has no password. So it is with MySQL 8's roles, which are users that nobody logs in as.
	open   bool
	grants grants
}

// user reports whether there is the tenant's user.
func (f found) user() bool { _, there := f.hosts[anyHost]; return there }

// anyHost is the host of tenants' users: pods come from anywhere.
const anyHost = "%"

// lock keeps others away from an account's schema and user until the session ends its use, and reads what there is. So
// what was read stays true, and neither a second tenant of the same names nor a replica that was overtaken changes it.
// Servers of a Galera cluster don't know each other's locks; there, the records' primary key alone decides.
func (d *database) lock(ctx context.Context, s *sqlpool.Session, a driver.Account) (have found, err error) {
	if err := getLocks(ctx, s, a); err != nil {
		return have, err
	}
	var schemaOwner, userOwner sql.NullString
	var lowered, public, readOnly bool
	// Names of databases are compared here, for how MySQL compares them depends on the server.
	var schema sql.NullString
	if err := s.Row(ctx, `SELECT (SELECT owner FROM `+own+`.owners WHERE kind = 'schema' AND name = ?),
		(SELECT owner FROM `+own+`.owners WHERE kind = 'user' AND name = ?),
		(SELECT schema_name FROM information_schema.schemata WHERE schema_name = ?),
		@@lower_case_table_names <> 0, @@global.read_only <> 0,
		EXISTS(SELECT 1 FROM mysql.db WHERE User IN ('', 'PUBLIC') AND ? LIKE Db)`,
		[]any{a.Schema, a.User, a.Schema, a.Schema}, &schemaOwner, &userOwner, &schema, &lowered, &readOnly, &public); err != nil {
		return have, err
	}
	switch {
	case readOnly: // which doesn't keep an administrator from writing
		return have, d.readOnly()
	case lowered && a.Schema != strings.ToLower(a.Schema):
		return have, &driver.NameError{
			Field: driver.FieldSchema, Value: a.Schema, Message: "must be in lower case, as this server keeps all names of databases",
		}
	case public:
		return have, &driver.NameError{
			Field: driver.FieldSchema, Value: a.Schema,
			Message: "is a name of databases that this server lets everybody use (table mysql.db)",
		}
	}
	have.owners = owner.Records{
		Schema: owner.Record{Value: schemaOwner.String, Recorded: schemaOwner.Valid},
		User:   owner.Record{Value: userOwner.String, Recorded: userOwner.Valid},
	}
	have.database = schema.String == a.Schema
	have.hosts = map[string]string{}
	const users = "SELECT Host, ssl_type, authentication_string = '' FROM mysql.user WHERE User = ?"
	if err := s.Rows(ctx, users, []any{a.User}, func(scan func(...any) error) error {
		var host, tls string
		var open bool
		err := scan(&host, &tls, &open)
		have.hosts[host], have.open = tls, have.open || open
		return err
	}); err != nil {
		return have, err
	}
	if !have.user() {
		return have, nil
	}
	err = s.Rows(ctx, "SHOW GRANTS FOR "+user(a.User, anyHost), nil, func(scan func(...any) error) error {
		var line string
		err := scan(&line)
		have.grants = append(have.grants, parseGrant(line, a.User)...)
		return err
	})
	return have, err
}

// getLocks locks the account's schema and user for the session.
func getLocks(ctx context.Context, s *sqlpool.Session, a driver.Account) error {
	s.Locked()
	// Always the schema first, so that no two wait for each other.
	for _, name := range []string{owner.KindSchema + "/" + a.Schema, owner.KindUser + "/" + a.User} {
		h := fnv.New128a()
		_, _ = h.Write([]byte(name))
		var got sql.NullBool
		args := []any{own + "/" + hex.EncodeToString(h.Sum(nil)), sqlpool.LockTimeout.Seconds()}
		if err := s.Row(ctx, "SELECT GET_LOCK(?, ?)", args, &got); err != nil {
			return err
		}
		if !got.Bool {
			return fmt.Errorf("%s is locked by another caller for longer than %s", name, sqlpool.LockTimeout)
		}
	}
	return nil
}

// claim records the account's owner for both schema and user, or for neither. Nothing may be made, and nothing of what
// there is given out, before.
func (d *database) claim(ctx context.Context, s *sqlpool.Session, steps *step.Steps, a driver.Account, have found) error {
	if err := d.refuse(ctx, s, a, have); err != nil {
		return err
	}
	return owners.Claim(s, steps, a, have.owners)
}

// claimLeft is claim for an account that is to be dropped: it refuses nothing, and what has no owner it takes only when
// it is sure to be the account's. It returns whose it is then.
func (d *database) claimLeft(s *sqlpool.Session, steps *step.Steps, a driver.Account, have found) (owner.Records, error) {
	ofSchema, ofUser := owner.Certain(a, d.Names)
	return owners.ClaimLeft(s, steps, a, have.owners, have.database && ofSchema, len(have.hosts) > 0 && ofUser)
}

// refuse returns a *driver.TakenError for what is another's. Tenants of before there were records, and of Kamaji, have
// no owner and go to the account that adopts them. What the server's operator has for another use looks
// differently, and must, for with the last of its tenant it would be dropped: a database that isn't the user's or holds
// more than kine's table; a user who has more rights, another host or no password.
func (d *database) refuse(ctx context.Context, s *sqlpool.Session, a driver.Account, have found) error {
	if err := have.owners.Refuse(a); err != nil {
		return err
	}
	ofSchema, ofUser := owner.Certain(a, d.Names)
	if have.database && !have.owners.Schema.Recorded && !ofSchema {
		others := 0
		const count = "SELECT count(*) FROM information_schema.tables WHERE table_schema = ? AND table_name NOT IN ('kine', 'key_value')"
		if err := s.Row(ctx, count, []any{a.Schema}, &others); err != nil {
			return err
		}
		if others > 0 || !slices.ContainsFunc(have.grants, func(g grant) bool { return g.isOn(a.Schema) }) {
			return owner.TakenSchema(a, driver.TakenByOthers)
		}
		if !a.Adopts {
			return owner.TakenSchema(a, driver.TakenUnrecorded)
		}
	}
	if len(have.hosts) > 0 && !have.owners.User.Recorded && !ofUser {
		more := slices.ContainsFunc(have.grants, func(g grant) bool { return !g.login() && !g.isOn(a.Schema) })
		if len(have.hosts) > 1 || !have.user() || have.open || more {
			return owner.TakenUser(a, driver.TakenByOthers)
		}
		if !a.Adopts {
			return owner.TakenUser(a, driver.TakenUnrecorded)
		}
	}
	return nil
}

// Describe says what an account is in MySQL, for whoever has to remove it by hand.
func Describe(a driver.Account) string {
	return fmt.Sprintf("database %s, if table %s.owners says that schema %s is %s's; user %s, if it says so of user %s; and these two records",
		a.Schema, own, a.Schema, a.Owner, user(a.User, anyHost), a.User)
}

// validate is Validate and looks that there is an owner.
func (d *database) validate(a driver.Account) error {
	if err := owner.Without(a); err != nil {
		return err
	}
	return d.Validate(a)
}

var errNoLogin = errors.New("it can't log in")
