package e2e

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"database/sql"
	"encoding/json"
	"fmt"
	"os"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/go-sql-driver/mysql"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/stdlib"
	"github.com/nats-io/nats.go"
	corev1 "k8s.io/api/core/v1"

	"github.com/stoker-k8s/stoker/local"
	"github.com/stoker-k8s/stoker/pkg/api/name"
	"github.com/stoker-k8s/stoker/pkg/api/v1alpha1"
	"github.com/stoker-k8s/stoker/pkg/events"
	"github.com/stoker-k8s/stoker/pkg/kube"
	"github.com/stoker-k8s/stoker/test/env"
)

// TestDrivers puts a tenant on each database that needs kine; etcd is what all other tests run on.
func TestDrivers(t *testing.T) {
	env.Long(t, "TestMigration has a tenant on kine with PostgreSQL; services/datastore/driver shows each driver on its database")
	e.Services(t)
	for driver, open := range map[string]func(testing.TB, *v1alpha1.DataStore) database{
		local.DriverPostgres: openPostgres,
		local.DriverMySQL:    openMySQL,
		local.DriverNATS:     openNATS,
	} {
		t.Run(driver, func(t *testing.T) {
			must(t, e.Local.AddDataStore(t.Context(), local.DataStore{Name: driver, Driver: driver}))
			db := open(t, readStore(t, driver))
			key := events.Tenant("default", "on-"+driver)
			o := env.Tenant(key.Name, "v1.36.3")
			o.Spec.DataStore = driver
			var before []string
			env.Eventually(t, "the database to be checked", func() error {
				if !readStore(t, driver).Status.Ready {
					return errNotYet
				}
				return nil
			})
			before = db.held(t)
			e.Apply(t, o)
			e.Ready(t, key)
			kubeconfig := e.Kubeconfig(t, key)
			now := db.held(t)
			t.Logf("held for a tenant: %v", without(now, before))

			t.Run("objects are written and read", func(t *testing.T) {
				e.Kubectl(t, kubeconfig, "create", "configmap", "kept", "--from-literal=a=b")
				read := e.Kubectl(t, kubeconfig, "get", "configmap", "kept", "-o", "jsonpath={.data.a}")
				if read != "b" {
					t.Errorf("read %q", read)
				}
				e.Kubectl(t, kubeconfig, "create", "deployment", "web", "--image=nginx")
				env.Eventually(t, "a watch to make Pods of it", func() error {
					if out := e.Kubectl(t, kubeconfig, "get", "pods", "-o", "name", "-l", "app=web"); !strings.Contains(out, "pod/web") {
						return fmt.Errorf("pods: %q", out)
					}
					return nil
				})
			})
			t.Run("the tenant's password is not in the process list", func(t *testing.T) {
				var config corev1.Secret
				get(t, kube.Secrets, key.Namespace, name.DatastoreConfig(key.Name), &config)
				pid := e.Local.ContainerPID(key.Namespace, podOf(t, key), name.ContainerKine)
				args, err := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid))
				must(t, err)
				password := config.Data[name.KeyDBPassword]
				if len(password) == 0 || !bytes.Contains(args, []byte("--listen-address")) || bytes.Contains(args, password) {
					t.Errorf("with a password of %d bytes, kine runs as %q", len(password), bytes.ReplaceAll(args, password, []byte("PASSWORD")))
				}
			})
			t.Run("a kine that is killed comes back, and the API with it", func(t *testing.T) {
				pod := podOf(t, key)
				pid := e.Local.ContainerPID(key.Namespace, pod, name.ContainerKine)
				if pid == 0 {
					t.Fatalf("pod %s runs no kine", pod)
				}
				must(t, syscall.Kill(pid, syscall.SIGKILL))
				env.Eventually(t, "another kine", func() error {
					if now := e.Local.ContainerPID(key.Namespace, pod, name.ContainerKine); now == 0 || now == pid {
						return fmt.Errorf("process %d", now)
					}
					return nil
				})
				kept(t, kubeconfig)
			})
			t.Run("so does one whose database was away", func(t *testing.T) {
				c := e.Local.Component(driver + "-" + driver)
				must(t, c.Stop(t.Context()))
				if _, err := e.TryKubectl(t.Context(), kubeconfig, nil, "create", "configmap", "lost", "--request-timeout=2s"); err == nil {
					t.Error("something is written without a database")
				}
				must(t, c.Start(t.Context()))
				kept(t, kubeconfig)
			})
			t.Run("another pod finds what the first one wrote", func(t *testing.T) {
				pod := podOf(t, key)
				e.Kubectl(t, e.Local.Kubeconfig("admin"), "delete", "pod", "-n", key.Namespace, pod, "--wait=true")
				env.Eventually(t, "another pod", func() error {
					if podOf(t, key) == pod {
						return errNotYet
					}
					return nil
				})
				kept(t, kubeconfig)
			})
			t.Run("deletion leaves nothing, in the database neither", func(t *testing.T) {
				e.Ready(t, key)
				e.Delete(t, key)
				s := e.Gone(t, key)
				t.Logf("removed: %v", s.Removed)
				nothingLeft(t, key)
				if after := db.held(t); !slices.Equal(after, before) {
					t.Errorf("left: %v", without(after, before))
				}
				if len(s.Left) > 0 {
					t.Errorf("left behind: %v", s.Left)
				}
			})
		})
	}
}

// kept waits until what was written is read again.
func kept(t *testing.T, kubeconfig string) {
	t.Helper()
	env.Eventually(t, "the API with what was written", func() error {
		out, err := e.TryKubectl(t.Context(), kubeconfig, nil, "get", "configmap", "kept", "-o", "jsonpath={.data.a}", "--request-timeout=3s")
		if err == nil && out != "b" {
			err = fmt.Errorf("read %q", out)
		}
		return err
	})
}

// podOf is the name of a tenant's pod that is not being deleted, empty when there is none.
func podOf(t testing.TB, key events.Key) string {
	t.Helper()
	var pods corev1.PodList
	e.List(t, kube.Pods, key.Namespace, name.LabelName+"="+key.Name, &pods)
	for i := range pods.Items {
		if pods.Items[i].DeletionTimestamp == nil {
			return pods.Items[i].Name
		}
	}
	return ""
}

// without are the lines of a list that another doesn't have.
func without(all, others []string) []string {
	return slices.DeleteFunc(slices.Clone(all), func(s string) bool { return slices.Contains(others, s) })
}

// database lists what a DataStore's holds for tenants, as its administrator sees it.
type database func(context.Context) ([]string, error)

// held is that list, sorted.
func (d database) held(t testing.TB) (all []string) {
	t.Helper()
	// A server that was away is back a moment before it answers.
	env.Eventually(t, "the database to answer", func() (err error) {
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
		defer cancel()
		all, err = d(ctx)
		slices.Sort(all)
		return err
	})
	return all
}

// answers are those of a SQL database to queries of one column.
func answers(t testing.TB, db *sql.DB, queries ...string) database {
	t.Cleanup(func() { _ = db.Close() })
	return func(ctx context.Context) (all []string, err error) {
		for _, query := range queries {
			rows, err := db.QueryContext(ctx, query)
			if err != nil {
				return nil, err
			}
			for rows.Next() {
				var what string
				if err := rows.Scan(&what); err != nil {
					return nil, err
				}
				all = append(all, what)
			}
			if err := rows.Err(); err != nil {
				return nil, err
			}
		}
		return all, nil
	}
}

// credentials are what a DataStore of the local stack says about its administrator.
func credentials(t testing.TB, o *v1alpha1.DataStore) (user, password string, config *tls.Config) {
	t.Helper()
	value := func(r v1alpha1.ContentRef) []byte {
		var secret corev1.Secret
		get(t, kube.Secrets, r.SecretReference.Namespace, r.SecretReference.Name, &secret)
		return secret.Data[r.SecretReference.KeyPath]
	}
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(value(o.Spec.TLSConfig.CertificateAuthority.Certificate))
	host, _, _ := strings.Cut(o.Spec.Endpoints[0], ":")
	return string(value(o.Spec.BasicAuth.Username)), string(value(o.Spec.BasicAuth.Password)),
		&tls.Config{RootCAs: roots, ServerName: host, MinVersion: tls.VersionTLS12}
}

func openPostgres(t testing.TB, o *v1alpha1.DataStore) database {
	t.Helper()
	config, err := pgx.ParseConfig("postgres://" + o.Spec.Endpoints[0] + "/postgres?sslmode=require")
	must(t, err)
	config.User, config.Password, config.TLSConfig = credentials(t, o)
	config.Fallbacks = nil
	return answers(t, stdlib.OpenDB(*config),
		"SELECT 'database ' || datname FROM pg_database WHERE datname <> 'stoker'", "SELECT 'role ' || rolname FROM pg_roles")
}

func openMySQL(t testing.TB, o *v1alpha1.DataStore) database {
	t.Helper()
	config := mysql.NewConfig()
	config.Logger = &mysql.NopLogger{}
	config.Net, config.Addr, config.Timeout = "tcp", o.Spec.Endpoints[0], 5*time.Second
	config.User, config.Passwd, config.TLS = credentials(t, o)
	connector, err := mysql.NewConnector(config)
	must(t, err)
	return answers(t, sql.OpenDB(connector),
		"SELECT concat('database ', schema_name) FROM information_schema.schemata WHERE schema_name <> 'stoker'",
		"SELECT concat('user ', User, '@', Host) FROM mysql.user", "SELECT concat('rights of ', User, ' on ', Db) FROM mysql.db")
}

// openNATS lists the accounts there are, and the streams in them.
func openNATS(t testing.TB, o *v1alpha1.DataStore) database {
	t.Helper()
	_, password, config := credentials(t, o)
	c, err := nats.Connect("nats://"+o.Spec.Endpoints[0], nats.Secure(config), nats.Timeout(time.Minute), nats.MaxReconnects(-1),
		nats.ReconnectWait(100*time.Millisecond), nats.UserCredentialBytes([]byte(password)))
	must(t, err)
	t.Cleanup(c.Close)
	return func(ctx context.Context) (all []string, err error) {
		var accounts struct {
			Data []string `json:"data"`
		}
		if err := askNATS(ctx, c, "$SYS.REQ.CLAIMS.LIST", &accounts); err != nil {
			return nil, err
		}
		for _, a := range accounts.Data {
			all = append(all, "account "+a)
		}
		var streams struct {
			Data struct {
				Accounts []struct {
					ID      string `json:"id"`
					Streams []struct {
						Name string `json:"name"`
					} `json:"stream_detail"`
				} `json:"account_details"`
			} `json:"data"`
		}
		if err := askNATS(ctx, c, "$SYS.REQ.SERVER.PING.JSZ", &streams); err != nil {
			return nil, err
		}
		for _, a := range streams.Data.Accounts {
			for _, s := range a.Streams {
				all = append(all, "stream "+s.Name+" of "+a.ID)
			}
		}
		return all, nil
	}
}

// askNATS asks a NATS server's system account.
func askNATS(ctx context.Context, c *nats.Conn, subject string, answer any) error {
	m, err := c.RequestWithContext(ctx, subject, []byte(`{"accounts":true,"streams":true}`))
	if err != nil {
		return err
	}
	return json.Unmarshal(m.Data, answer)
}
