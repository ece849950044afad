// Package postgres is the driver for PostgreSQL 13 and later. A tenant has a database named like its schema, and a role
// that owns it, may log in with a password and may nothing else. Nobody else may connect to that database. Whose schema
// and user are is on record in a database of the administrator (owner.go). kine sits between the tenant's API server and
// the database, so that names must be such as kine's URL can say.
package postgres

import (
	"context"
	"crypto/tls"
	sqldriver "database/sql/driver"
	"errors"
	"fmt"
	"io"
	"net"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/stdlib"
	"golang.org/x/sync/singleflight"

	"github.com/stoker-k8s/stoker/pkg/fence"
	"github.com/stoker-k8s/stoker/services/datastore/driver"
	"github.com/stoker-k8s/stoker/services/datastore/driver/internal/authority"
	"github.com/stoker-k8s/stoker/services/datastore/driver/internal/limit"
	"github.com/stoker-k8s/stoker/services/datastore/driver/internal/sqlpool"
)

// postgres is the connection to one server.
type postgres struct {
	endpoint string
	admin    *pgx.ConnConfig // of the administrator; the database is ours
	ca       *authority.Authority
	pool     *sqlpool.Pool
	held     func(ctx context.Context) error // asked before each change

	prepared atomic.Bool // our own database is what it must be
	making   singleflight.Group

	counting sync.Mutex
	counted  map[string]count // by schema
}

var (
	_ driver.Open  = Open
	_ driver.Sizer = (*postgres)(nil)
)

// Open makes a driver of a DataStore of kind PostgreSQL. It needs a user name with a password, or a client certificate,
// or both; without a user name, the certificate's is it. Of several endpoints the first is used, for kine knows no more.
func Open(c driver.Config) (driver.Driver, error) {
	admin, err := sqlpool.AdministratorOf(c)
	if err != nil {
		return nil, err
	}
	config, err := connConfig(admin.Endpoint, admin.User, admin.Password, database, admin.TLS)
	if err != nil {
		return nil, sqlpool.EndpointError(err)
	}
	return &postgres{
		endpoint: admin.Endpoint, admin: config, ca: admin.CA, held: fence.Check, counted: map[string]count{},
		pool: sqlpool.New(stdlib.GetConnector(*config), "SELECT pg_advisory_unlock_all()", classify),
	}, nil
}

// connConfig is of one user's connection to one database. What PostgreSQL's own clients would take from the environment
// and the home directory is overwritten.
func connConfig(endpoint, user, password, database string, tlsConfig *tls.Config) (*pgx.ConnConfig, error) {
	host, port, err := sqlpool.HostPort(endpoint)
	if err != nil {
		return nil, err
	}
	config, err := pgx.ParseConfig("host=127.0.0.1 port=1 user=x password=x dbname=x sslmode=disable target_session_attrs=any")
	if err != nil {
		return nil, err
	}
	config.Host, config.Port, config.User, config.Password, config.Database = host, port, user, password, database
	config.Fallbacks = nil
	if tlsConfig != nil {
		config.TLSConfig = tlsConfig.Clone()
		config.TLSConfig.ServerName = host
	}
	config.ConnectTimeout = limit.Dial
	config.RuntimeParams = map[string]string{
		"application_name": "stoker",
		// A tenant may make functions and tables named like PostgreSQL's own in its database. Whoever looks for names
		// there as well would call them, with the administrator's rights. It may also set these for whoever connects.
		"search_path":  "pg_catalog",
		"role":         "none",
		"lock_timeout": strconv.FormatInt(sqlpool.LockTimeout.Milliseconds(), 10),
		// A session whose other end is gone without a word, with its machine, keeps its locks no longer than half a minute.
		"tcp_keepalives_idle": "15", "tcp_keepalives_interval": "5", "tcp_keepalives_count": "3",
	}
	// Nothing is asked often enough to be prepared.
	config.DefaultQueryExecMode = pgx.QueryExecModeExec
	return config, nil
}

// Close ends the connections.
func (p *postgres) Close() error { return p.pool.Close() }

// Endpoint is where kine connects.
func (p *postgres) Endpoint() string { return p.endpoint }

// Access is the authority that verifies the server, and the tenant's own client certificate if the DataStore has the
// authority's key; that is for servers that demand one (pg_hba.conf: clientcert).
func (p *postgres) Access(a driver.Account, have driver.Access, now time.Time) (driver.Access, error) {
	if err := p.Validate(a); err != nil {
		return driver.Access{}, err
	}
	return p.ca.Access(a, have, now)
}

// Names are the UID as it is.
func (p *postgres) Names(uid string) (schema, user string) { return uid, uid }

// Check asks whether the server answers, takes writes and lets its administrator administer.
func (p *postgres) Check(ctx context.Context) error {
	return p.do(ctx, func(ctx context.Context, s *sqlpool.Session) error {
		var may, standby, readOnly bool
		err := s.Row(ctx, `SELECT rolsuper OR rolcreaterole AND rolcreatedb, pg_is_in_recovery(), current_setting('default_transaction_read_only')::bool
			FROM pg_roles WHERE rolname = current_user`, nil, &may, &standby, &readOnly)
		switch {
		case err != nil:
			return err
		case standby:
			return fmt.Errorf("%w to writes: the server at %s is a standby; spec.endpoints must name the primary first", driver.ErrAway, p.endpoint)
		case readOnly:
			return fmt.Errorf("%w to writes: default_transaction_read_only is on at %s", driver.ErrAway, p.endpoint)
		case !may:
			return fmt.Errorf("%w to its administrator: role %q must be a superuser, or have CREATEROLE and CREATEDB", driver.ErrAway, p.admin.User)
		}
		return nil
	})
}

// do calls f with a session of the administrator in his own database. That is made when it isn't there, at first or
// because somebody removed it, and looked after once in a driver's life.
func (p *postgres) do(ctx context.Context, f func(context.Context, *sqlpool.Session) error) error {
	call := func() error {
		return p.pool.Do(ctx, func(ctx context.Context, s *sqlpool.Session) error {
			if !p.prepared.Load() {
				if err := p.prepare(ctx, s); err != nil {
					return err
				}
				p.prepared.Store(true)
			}
			return f(ctx, s)
		})
	}
	err := call()
	missing := code(err) == undefinedDatabase || code(err) == notConnectable || code(err) == undefinedTable
	if !missing {
		return err
	}
	p.prepared.Store(false)
	if code(err) != undefinedTable {
		// One for all who found it missing: they aren't callers of the pool here, and there may be hundreds.
		_, err, _ := p.making.Do(database, func() (any, error) { return nil, p.makeDatabase(context.WithoutCancel(ctx)) })
		if errors.Is(ctx.Err(), context.Canceled) {
			return ctx.Err()
		}
		if err != nil {
			return err
		}
	}
	return call()
}

// fitting is what PostgreSQL, URLs and certificates' common names all can hold as it is.
var fitting = regexp.MustCompile(`^[A-Za-z0-9_][A-Za-z0-9_.-]*$`)

// maxName is the longest name of PostgreSQL (NAMEDATALEN); it cuts off the rest without a word.
const maxName = 63

// reserved are names of databases that are there before any tenant's, and of roles that can't be.
var reserved = map[string]bool{"postgres": true, "template0": true, "template1": true, database: true, "public": true, "none": true}

// Validate refuses names that PostgreSQL or kine would take for another, and those of the administration.
func (p *postgres) Validate(a driver.Account) error {
	for _, n := range []struct{ field, value string }{{driver.FieldSchema, a.Schema}, {driver.FieldUser, a.User}} {
		message := ""
		switch {
		case !fitting.MatchString(n.value):
			message = "must be letters, digits, '_', '-' and '.', not starting with '-' or '.'"
		case len(n.value) > maxName:
			message = fmt.Sprintf("has %d characters, PostgreSQL's names at most %d", len(n.value), maxName)
		case reserved[n.value] || n.value == p.admin.User || strings.HasPrefix(n.value, "pg_"):
			message = "is a name of PostgreSQL's administration"
		case n.field == driver.FieldSchema && n.value != strings.ToLower(n.value):
			message = "must be in lower case: kine asks PostgreSQL for no other"
		}
		if message != "" {
			return &driver.NameError{Field: n.field, Value: n.value, Message: message}
		}
	}
	return nil
}

// Codes of errors (appendix A of PostgreSQL's manual) that are told apart.
const (
	undefinedDatabase  = "3D000"
	undefinedTable     = "42P01"
	dependentObjects   = "2BP01"
	invalidPassword    = "28P01"
	invalidAuth        = "28000"
	notConnectable     = "55000"
	tooManyConnections = "53300"
	diskFull           = "53100"
)

func code(err error) string {
	var answer *pgconn.PgError
	if errors.As(err, &answer) {
		return answer.Code
	}
	return ""
}

// away begin the codes of a server that refuses everybody, or its administrator.
var away = []string{
	"08",    // connection
	"25006", // takes no writes
	invalidAuth, invalidPassword,
	"53",                            // out of connections, memory
	"57P01", "57P02", "57P03", "58", // shutting down, starting, I/O
}

// classify tells a server that is away from one that refuses just this.
func classify(err error) error {
	if errors.Is(err, driver.ErrAway) {
		return err
	}
	gone := false
	if code := code(err); code == diskFull {
		return fmt.Errorf("%w: %w", driver.ErrFull, err)
	} else if code != "" {
		gone = slices.ContainsFunc(away, func(a string) bool { return strings.HasPrefix(code, a) })
	} else {
		var pool *sqlpool.ConnectError
		var dial *pgconn.ConnectError
		var network net.Error
		gone = errors.As(err, &pool) || errors.As(err, &dial) || errors.As(err, &network) || pgconn.SafeToRetry(err) ||
			errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, net.ErrClosed) || errors.Is(err, sqldriver.ErrBadConn)
	}
	if gone {
		return fmt.Errorf("%w: %w", driver.ErrAway, err)
	}
	return err
}
