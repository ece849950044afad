// Package mysql is the driver for MySQL 8 and MariaDB 10.5, and later ones of both. A tenant has a database named like
// its schema and a user who may do with that database what kine needs, and nothing else. Whose schema and user are is on
// record in a database of the administrator (owner.go). kine sits between the tenant's API server and the database, so
// that names must be such as kine's URL can say.
package mysql

import (
	"context"
	"crypto/sha256"
	"crypto/tls"
	sqldriver "database/sql/driver"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"net"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/go-sql-driver/mysql"

	"github.com/stoker-k8s/stoker/pkg/fence"
	"github.com/stoker-k8s/stoker/services/datastore/driver"
	"github.com/stoker-k8s/stoker/services/datastore/driver/internal/authority"
	"github.com/stoker-k8s/stoker/services/datastore/driver/internal/limit"
	"github.com/stoker-k8s/stoker/services/datastore/driver/internal/sqlpool"
)

// database is the connection to one server.
type database struct {
	endpoint, admin string
	ca              *authority.Authority
	pool            *sqlpool.Pool
	held            func(context.Context) error // asked before each change

	prepared atomic.Bool // our own database is what it must be
}

var (
	_ driver.Open  = Open
	_ driver.Sizer = (*database)(nil)
)

// Open makes a driver of a DataStore of kind MySQL. It needs a user name with a password, or a client certificate, or
// both; without a user name, the certificate's is it. Of several endpoints the first is used, for kine knows no more.
func Open(c driver.Config) (driver.Driver, error) {
	// MySQL demands certificates of single users, never of all. Its tenants have a password instead of one.
	c.CAKey = nil
	admin, err := sqlpool.AdministratorOf(c)
	if err != nil {
		return nil, err
	}
	connector, err := connect(admin.Endpoint, admin.User, admin.Password, "", admin.TLS)
	if err != nil {
		return nil, sqlpool.EndpointError(err)
	}
	return &database{
		endpoint: admin.Endpoint, admin: admin.User, ca: admin.CA, held: fence.Check,
		pool: sqlpool.New(connector, "DO RELEASE_ALL_LOCKS()", classify),
	}, nil
}

// connect is how one user connects to one database.
func connect(endpoint, user, password, database string, tlsConfig *tls.Config) (sqldriver.Connector, error) {
	host, _, err := sqlpool.HostPort(endpoint)
	if err != nil {
		return nil, err
	}
	config := mysql.NewConfig()
	config.User, config.Passwd, config.DBName, config.Net, config.Addr = user, password, database, "tcp", endpoint
	config.Timeout = limit.Dial
	if tlsConfig != nil {
		config.TLS = tlsConfig.Clone()
		config.TLS.ServerName = host
	}
	// One way to the server and back per statement, not two.
	config.InterpolateParams = true
	// What matters comes back as an error.
	config.Logger = &mysql.NopLogger{}
	if database == "" {
		seconds := strconv.Itoa(int(sqlpool.LockTimeout.Seconds()))
		config.Params = map[string]string{
			// How quotes and backslashes are read must not depend on the server.
			"sql_mode": "'TRADITIONAL'", "sql_quote_show_create": "1", "lock_wait_timeout": seconds, "innodb_lock_wait_timeout": seconds,
			// A session whose other end is gone without a word, with its machine, keeps its locks no longer. Ours are ended
			// sooner when nobody uses them.
			"wait_timeout": strconv.Itoa(int(2 * sqlpool.IdleTime.Seconds())),
		}
	}
	return mysql.NewConnector(config)
}

// Close ends the connections.
func (d *database) Close() error { return d.pool.Close() }

// Endpoint is where kine connects.
func (d *database) Endpoint() string { return d.endpoint }

// Access is the authority that verifies the server.
func (d *database) Access(a driver.Account, have driver.Access, now time.Time) (driver.Access, error) {
	if err := d.Validate(a); err != nil {
		return driver.Access{}, err
	}
	return d.ca.Access(a, have, now)
}

// Names are the UID, which is too long for a user unless its hyphens are left out.
func (d *database) Names(uid string) (schema, user string) {
	schema = shorten(uid, maxSchema)
	if len(uid) > maxUser {
		uid = strings.ReplaceAll(uid, "-", "")
	}
	return schema, shorten(uid, maxUser)
}

// shorten replaces what is too long by its hash.
func shorten(name string, limit int) string {
	if len(name) <= limit {
		return name
	}
	sum := sha256.Sum256([]byte(name))
	return hex.EncodeToString(sum[:])[:min(limit, 2*len(sum))]
}

// Check asks whether the server answers, takes writes and lets its administrator see users.
func (d *database) Check(ctx context.Context) error {
	return d.do(ctx, func(ctx context.Context, s *sqlpool.Session) error {
		var readOnly bool
		var users int
		err := s.Row(ctx, "SELECT @@global.read_only <> 0, (SELECT count(*) FROM mysql.user WHERE User = '')", nil, &readOnly, &users)
		switch {
		case number(err) == tableAccessDenied:
			return fmt.Errorf("%w to its administrator: user %q must have ALL PRIVILEGES with GRANT OPTION: %w", driver.ErrAway, d.admin, err)
		case err != nil:
			return err
		case readOnly:
			return d.readOnly()
		}
		return nil
	})
}

// readOnly is the error of a server that is so.
func (d *database) readOnly() error {
	return fmt.Errorf("%w to writes: the server at %s is read-only; spec.endpoints must name the primary first", driver.ErrAway, d.endpoint)
}

// do calls f with a session of the administrator. His own database is made when it isn't there, at first or because
// somebody removed it.
func (d *database) do(ctx context.Context, f func(context.Context, *sqlpool.Session) error) error {
	call := func() error {
		return d.pool.Do(ctx, func(ctx context.Context, s *sqlpool.Session) error {
			if !d.prepared.Load() {
				if err := d.prepare(ctx, s); err != nil {
					return err
				}
				d.prepared.Store(true)
			}
			return f(ctx, s)
		})
	}
	err := call()
	if n := number(err); n == unknownDatabase || n == unknownTable {
		d.prepared.Store(false)
		err = call()
	}
	return err
}

// fitting is what MySQL, URLs and certificates' common names all can hold as it is.
var fitting = regexp.MustCompile(`^[A-Za-z0-9_][A-Za-z0-9_.-]*$`)

// The longest names. MariaDB's users may be longer.
const (
	maxSchema = 64
	maxUser   = 32
)

// Names of databases and users of the administration, in lower case, and how those begin.
var (
	reservedSchemas = []string{"mysql", "information_schema", "performance_schema", "sys", own}
	reservedUsers   = []string{"root", "public", "none", "current_user", "current_role"}
	reservedPrefix  = []string{"mysql.", "mariadb."}
)

// Validate refuses names that MySQL or kine would take for another, and those of the administration.
func (d *database) Validate(a driver.Account) error {
	for _, n := range []struct {
		field, value string
		limit        int
		reserved     []string
	}{
		{driver.FieldSchema, a.Schema, maxSchema, reservedSchemas},
		{driver.FieldUser, a.User, maxUser, append(reservedUsers, strings.ToLower(d.admin))},
	} {
		message, lower := "", strings.ToLower(n.value)
		switch {
		case !fitting.MatchString(n.value):
			message = "must be letters, digits, '_', '-' and '.', not starting with '-' or '.'"
		case len(n.value) > n.limit:
			message = fmt.Sprintf("has %d characters, such a name of MySQL's at most %d", len(n.value), n.limit)
		case slices.Contains(n.reserved, lower), slices.ContainsFunc(reservedPrefix, func(p string) bool { return strings.HasPrefix(lower, p) }):
			message = "is a name of MySQL's administration"
		}
		if message != "" {
			return &driver.NameError{Field: n.field, Value: n.value, Message: message}
		}
	}
	return nil
}

// Numbers of errors that are told apart. MySQL and MariaDB share those below 1900.
const (
	unknownDatabase    = 1049
	unknownTable       = 1146
	tableAccessDenied  = 1142
	accessDenied       = 1045
	noSuchGrant        = 1141
	cannotUser         = 1396 // CREATE USER and DROP USER: it is there, or isn't
	unknownThread      = 1094
	killDenied         = 1095
	privilegeMissing   = 1227
	noDatabaseToDrop   = 1008
	tooManyConnections = 1040
	tooManyOfAll       = 1203 // connections of one user, by the server's limit
	tooManyOfUser      = 1226 // by the user's own
	mustChange         = 1820 // an expired password
	expired            = 1862
	mandatoryRole      = 3628 // MySQL: it can't be taken away
	lockedMySQL        = 3118
	lockedMariaDB      = 4151
)

// away are the numbers of a server that refuses everybody, or its administrator.
var away = []uint16{
	tooManyConnections, tooManyOfAll, tooManyOfUser, accessDenied, 1698, lockedMySQL, lockedMariaDB, mustChange, expired,
	1037, 1038, 1041, // out of memory
	1047, 1053, 1077, 1078, 1079, // not yet, or no longer, in service
	1129, 1130, // refuses this host
	1158, 1159, 1160, 1161, // the network's
	1290, 1792, 1836, // takes no writes
}

// full are the numbers of a server that is out of disk, or of what it may use of it.
var full = []uint16{1021, 1114}

func number(err error) uint16 {
	var answer *mysql.MySQLError
	if errors.As(err, &answer) {
		return answer.Number
	}
	return 0
}

// classify tells a server that is away from one that refuses just this.
func classify(err error) error {
	if errors.Is(err, driver.ErrAway) {
		return err
	}
	gone := false
	if n := number(err); slices.Contains(full, n) {
		return fmt.Errorf("%w: %w", driver.ErrFull, err)
	} else if n != 0 {
		gone = slices.Contains(away, n)
	} else {
		var connect *sqlpool.ConnectError
		var network net.Error
		gone = errors.As(err, &connect) || errors.As(err, &network) || errors.Is(err, mysql.ErrInvalidConn) ||
			errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, net.ErrClosed) || errors.Is(err, sqldriver.ErrBadConn)
	}
	if gone {
		return fmt.Errorf("%w: %w", driver.ErrAway, err)
	}
	return err
}
