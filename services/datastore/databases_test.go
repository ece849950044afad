package datastore_test

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strconv"
	"testing"

	"github.com/go-sql-driver/mysql"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/stoker-k8s/stoker/internal/testing/drivertest"
	"github.com/stoker-k8s/stoker/internal/testing/etcdserver"
	"github.com/stoker-k8s/stoker/internal/testing/mysqlserver"
	"github.com/stoker-k8s/stoker/internal/testing/natsserver"
	"github.com/stoker-k8s/stoker/internal/testing/postgresserver"
	"github.com/stoker-k8s/stoker/pkg/api/v1alpha1"
	"github.com/stoker-k8s/stoker/pkg/kube"
	"github.com/stoker-k8s/stoker/services/datastore/driver"
)

// database is a server, as its administrator and its tenants see it.
type database struct {
	kind   v1alpha1.Driver
	config driver.Config
	// holds is all that was made there for tenants, their owners included.
	holds func(t *testing.T) []string
	// readOnly has the server take no writes, as far as it can be had to; left says that tenants can't be deleted then.
	readOnly func(t *testing.T, yes bool)
	left     bool
	// removal begins the message by which a tenant's data goes, where that can be seen.
	removal string

	// Of SQL only. enter logs in as a user.
	enter func(ctx context.Context, user, password, schema string) error
	// wrongPassword and notTheirs are the codes of errors that say so of a password and of a database.
	wrongPassword, notTheirs string
	// do executes a statement of the administrator's.
	do func(t *testing.T, statement string)
	// drifts are statements that change an account by hand, by what they do.
	drifts    func(a driver.Account) map[string]string
	kill, run func(t *testing.T)
}

// databases start a server of each kind.
var databases = map[string]func(*testing.T) database{"etcd": onEtcd, "postgres": func(t *testing.T) database { t.Helper(); return onPostgres(t) }, "mysql": onMySQL, "nats": onNATS}

func onEtcd(t *testing.T) database {
	t.Helper()
	server := etcdserver.Start(t)
	return database{kind: v1alpha1.DriverEtcd, config: server.Config(t), holds: func(t *testing.T) []string { return etcdHolds(t, server) },
		readOnly: func(t *testing.T, yes bool) {
			t.Helper()
			// Out of room, etcd takes no new keys, but those that are there may go.
			status, err := server.Root.Status(t.Context(), server.Endpoint)
			if err == nil {
				action := etcdserverpb.AlarmRequest_DEACTIVATE
				if yes {
					action = etcdserverpb.AlarmRequest_ACTIVATE
				}
				_, err = etcdserverpb.NewMaintenanceClient(server.Root.ActiveConnection()).Alarm(t.Context(),
					&etcdserverpb.AlarmRequest{Action: action, MemberID: status.Header.MemberId, Alarm: etcdserverpb.AlarmType_NOSPACE})
			}
			if err != nil {
				t.Fatal(err)
			}
		}}
}

// etcdHolds lists users, roles and keys.
func etcdHolds(t *testing.T, server *etcdserver.Server) (held []string) {
	t.Helper()
	users, err := server.Root.UserList(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	roles, err := server.Root.RoleList(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	held = append(held, fmt.Sprint("users ", users.Users, " roles ", roles.Roles))
	all, err := server.Root.Get(t.Context(), "", clientv3.WithFromKey(), clientv3.WithKeysOnly())
	if err != nil {
		t.Fatal(err)
	}
	for _, kv := range all.Kvs {
		if key := string(kv.Key); key != "compact_rev_key" { // nobody's
			held = append(held, key)
		}
	}
	return held
}

func onNATS(t *testing.T) database {
	t.Helper()
	server := natsserver.Start(t, natsserver.Options{})
	return database{kind: v1alpha1.DriverNATS, config: server.Config(t), removal: "STREAM.DELETE",
		readOnly: func(t *testing.T, yes bool) { t.Helper(); server.Delete(t, !yes) }, left: true, holds: func(t *testing.T) (held []string) {
			t.Helper()
			for _, account := range server.JetStream(t).AccountDetails {
				for _, stream := range account.Streams {
					held = append(held, fmt.Sprint("account ", account.Name, " stream ", stream.Name, " messages ", stream.State.Msgs))
				}
			}
			tokens, err := filepath.Glob(filepath.Join(server.Accounts, "*", "*.jwt"))
			if err != nil {
				t.Fatal(err)
			}
			held = append(held, tokens...)
			slices.Sort(held)
			return held
		}}
}

func onPostgres(t *testing.T, options ...string) database {
	t.Helper()
	server := postgresserver.Start(t, options...)
	do := func(t *testing.T, statement string) {
		t.Helper()
		conn, err := server.Dial(t.Context(), postgresserver.Admin, postgresserver.Password, "postgres")
		if err == nil {
			_, err = conn.Exec(t.Context(), statement)
			_ = conn.Close(t.Context())
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	return database{
		kind: v1alpha1.DriverPostgreSQL, config: server.Config(), do: do, left: true, removal: "DROP DATABASE",
		wrongPassword: "28P01", notTheirs: "42501",
		readOnly: func(t *testing.T, yes bool) {
			t.Helper()
			do(t, fmt.Sprint("ALTER SYSTEM SET default_transaction_read_only = ", yes))
			do(t, "SELECT pg_reload_conf()")
			drivertest.Eventually(t, func() error {
				conn, err := server.Dial(t.Context(), postgresserver.Admin, postgresserver.Password, "postgres")
				if err != nil {
					return err
				}
				defer func() { _ = conn.Close(context.WithoutCancel(t.Context())) }()
				var is bool
				err = conn.QueryRow(t.Context(), "SELECT current_setting('default_transaction_read_only')::bool").Scan(&is)
				if err == nil && is != yes {
					err = fmt.Errorf("read-only is %t", is)
				}
				return err
			})
		},
		holds: func(t *testing.T) (held []string) {
			t.Helper()
			for database, query := range map[string]string{
				"postgres": "SELECT 'database ' || datname FROM pg_database UNION ALL SELECT 'role ' || rolname FROM pg_roles",
				"stoker":   "SELECT 'owner ' || kind || ' ' || name FROM owners",
			} {
				rows, err := server.Connect(t, postgresserver.Admin, postgresserver.Password, database).Query(t.Context(), query)
				if err != nil {
					t.Fatal(err)
				}
				found, err := pgx.CollectRows(rows, pgx.RowTo[string])
				if err != nil {
					t.Fatal(err)
				}
				held = append(held, found...)
			}
			slices.Sort(held)
			return held
		},
		enter: func(ctx context.Context, user, password, schema string) error {
			conn, err := server.Dial(ctx, user, password, schema)
			if err == nil {
				err = conn.Close(ctx)
			}
			return err
		},
		drifts: func(a driver.Account) map[string]string {
			return map[string]string{
				"another password":          `ALTER ROLE "` + a.User + `" PASSWORD 'another'`,
				"no right to log in":        `ALTER ROLE "` + a.User + `" NOLOGIN`,
				"no rights on the database": `ALTER DATABASE "` + a.Schema + `" OWNER TO ` + postgresserver.Admin,
			}
		},
		kill: func(*testing.T) { server.Kill() }, run: func(t *testing.T) { t.Helper(); server.Run(t); server.Await(t) },
	}
}

func onMySQL(t *testing.T) database {
	t.Helper()
	server := mysqlserver.Start(t)
	do := func(t *testing.T, statement string) {
		t.Helper()
		db, err := server.DB(mysqlserver.Admin, mysqlserver.Password, "")
		if err == nil {
			_, err = db.ExecContext(t.Context(), statement)
			_ = db.Close()
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	return database{
		kind: v1alpha1.DriverMySQL, config: server.Config(), do: do, left: true, removal: "DROP DATABASE",
		wrongPassword: "1045", notTheirs: "1044",
		readOnly: func(t *testing.T, yes bool) { t.Helper(); do(t, fmt.Sprint("SET GLOBAL read_only = ", yes)) },
		holds: func(t *testing.T) (held []string) {
			t.Helper()
			db, err := server.DB(mysqlserver.Admin, mysqlserver.Password, "")
			if err != nil {
				t.Fatal(err)
			}
			defer db.Close()
			rows, err := db.QueryContext(t.Context(), `SELECT concat('database ', schema_name) FROM information_schema.schemata
				UNION ALL SELECT concat('user ', User, ' ', Host) FROM mysql.user UNION ALL SELECT concat('owner ', kind, ' ', name) FROM stoker.owners
				UNION ALL SELECT concat('grant ', User, ' ', Db) FROM mysql.db ORDER BY 1`)
			if err != nil {
				t.Fatal(err)
			}
			defer rows.Close()
			for rows.Next() {
				var one string
				if err := rows.Scan(&one); err != nil {
					t.Fatal(err)
				}
				held = append(held, one)
			}
			if err := rows.Err(); err != nil {
				t.Fatal(err)
			}
			return held
		},
		enter: func(ctx context.Context, user, password, schema string) error {
			db, err := server.DB(user, password, schema)
			if err == nil {
				err = db.PingContext(ctx)
				_ = db.Close()
			}
			return err
		},
		drifts: func(a driver.Account) map[string]string {
			return map[string]string{
				"another password":          "ALTER USER `" + a.User + "` IDENTIFIED BY 'another'",
				"no rights on the database": "REVOKE ALL PRIVILEGES, GRANT OPTION FROM `" + a.User + "`",
				"no user":                   "DROP USER `" + a.User + "`",
			}
		},
		kill: func(*testing.T) { server.Kill() }, run: func(t *testing.T) { t.Helper(); server.Run(t); server.Await(t) },
	}
}

// errorCode is the SQLSTATE of PostgreSQL, the number of MySQL; empty for what the server didn't say.
func errorCode(err error) string {
	var ofPostgres *pgconn.PgError
	if errors.As(err, &ofPostgres) {
		return ofPostgres.Code
	}
	var ofMySQL *mysql.MySQLError
	if errors.As(err, &ofMySQL) {
		return strconv.Itoa(int(ofMySQL.Number))
	}
	return ""
}

// object is the DataStore of a server; its administrator's password is in a Secret.
func (in *installation) object(n string, d database) {
	in.t.Helper()
	in.must(in.kube.Create(in.t.Context(), kube.Secrets, &corev1.Secret{
		TypeMeta: kube.Secrets.TypeMeta(), ObjectMeta: metav1.ObjectMeta{Namespace: in.namespace, Name: n}, Data: map[string][]byte{"password": d.config.Password},
	}))
	spec := v1alpha1.DataStoreSpec{Driver: d.kind, Endpoints: d.config.Endpoints}
	if len(d.config.Password) > 0 {
		spec.BasicAuth = &v1alpha1.BasicAuth{
			Username: v1alpha1.ContentRef{Content: d.config.Username},
			Password: v1alpha1.ContentRef{SecretReference: &v1alpha1.SecretReference{SecretReference: corev1.SecretReference{Namespace: in.namespace, Name: n}, KeyPath: "password"}},
		}
	}
	if len(d.config.CA) > 0 {
		spec.TLSConfig = &v1alpha1.TLSConfig{CertificateAuthority: v1alpha1.CertKeyPair{Certificate: v1alpha1.ContentRef{Content: d.config.CA}}}
	}
	if len(d.config.ClientCert) > 0 {
		spec.TLSConfig.CertificateAuthority.PrivateKey = &v1alpha1.ContentRef{Content: d.config.CAKey}
		spec.TLSConfig.ClientCertificate = &v1alpha1.ClientCertificate{
			Certificate: v1alpha1.ContentRef{Content: d.config.ClientCert}, PrivateKey: v1alpha1.ContentRef{Content: d.config.ClientKey},
		}
	}
	in.dataStore(n, spec)
}
