package datastore_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/stoker-k8s/stoker/internal/testing/drivertest"
	"github.com/stoker-k8s/stoker/pkg/api/event"
	"github.com/stoker-k8s/stoker/pkg/api/name"
	"github.com/stoker-k8s/stoker/services/datastore/driver"
	"github.com/stoker-k8s/stoker/services/datastore/store"
)

// lanes is how many services are killed at once on each database: most of the time each waits for the event to come
// again that it was killed over.
const lanes = 3

// TestKilled kills the service's own program (SIGKILL) at each message it sends for a tenant, to the database, the management
// API server or NATS, before the message gets there: at the first, at the second, and so on until it is done before it is
// killed. Then it is started again, by nobody told what it was at.
func TestKilled(t *testing.T) {
	t.Parallel()
	for kind, start := range databases {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			d := start(t)
			if kind != "etcd" {
				d.config.CA = nil // what the service says at once is seen better without TLS
			}
			admin, err := store.Drivers()[d.kind].Open(d.config)
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = admin.Close() })
			if err := admin.Check(t.Context()); err != nil { // makes what is the administrator's
				t.Fatal(err)
			}
			before := d.holds(t)
			var messages [2]atomic.Int32
			t.Run("lanes", func(t *testing.T) {
				for i := range lanes {
					t.Run(fmt.Sprint(i), func(t *testing.T) {
						t.Parallel()
						l := newLane(t, fmt.Sprint("killed-", kind, "-", i), d, admin)
						provisions, drops := true, true
						for n := i + 1; provisions || drops; n += lanes {
							x := l.tenant(fmt.Sprint("t", n))
							x.t.Spec.DataStore = l.dataStore
							provisions = l.killed(x, "provisioning", n, provisions, x.accept, event.Provisioned, &messages[0]) && provisions
							l.provisioned(x)
							drops = l.killed(x, "deletion", n, drops, x.remove, event.Removed, &messages[1]) && drops
							l.gone(x)
						}
						for what, server := range l.servers {
							if l.tap.counted(server) == 0 {
								t.Errorf("the tap has seen nothing that was sent to %s", what)
							}
						}
					})
				}
			})
			if after := d.holds(t); !slices.Equal(before, after) {
				t.Errorf("the server held %q, holds %q", before, after)
			}
			if messages[0].Load() < fewest || messages[1].Load() < fewest {
				t.Errorf("killed at %d messages of provisioning and %d of deletion only", messages[0].Load(), messages[1].Load())
			}
			t.Logf("killed at each of %d messages of provisioning and %d of deletion", messages[0].Load(), messages[1].Load())
		})
	}
}

// fewest are the messages without which neither provisioning nor deletion is possible: to each server one, a state and a fact.
const fewest = 4

// lane is an installation whose service is a process of its own.
type lane struct {
	*installation
	tap       tap
	servers   map[string]string // that the process reaches through the tap, by what they are
	dataStore string
	admin     driver.Driver
	args      []string
	process   *exec.Cmd
	log       *os.File
}

func newLane(t *testing.T, n string, d database, admin driver.Driver) *lane {
	t.Helper()
	l := &lane{installation: install(t), dataStore: n, admin: admin}
	l.tap.end = func() { _ = l.process.Process.Kill() }
	var err error
	l.log, err = os.Create(filepath.Join(l.dir, "log"))
	l.must(err)
	l.servers = map[string]string{"the API server": l.address, "NATS": strings.TrimPrefix(l.nats.URL(), "nats://"), "the database": d.config.Endpoints[0]}
	kubeFile := filepath.Join(l.dir, "kubeconfig")
	l.must(os.WriteFile(kubeFile, l.through(l.tap.wire(t, l.address, everything)), 0o600))
	// Of what goes to NATS all the time, what is about tenants.
	about := regexp.MustCompile(`PUB (\$KV\.tenant_|stoker\.)`)
	bus := l.tap.wire(t, strings.TrimPrefix(l.nats.URL(), "nats://"), about.Match)
	l.args = []string{
		"--nats=nats://" + bus, "--nats-seed=" + l.nats.SeedFile(name.ServiceDatastore), "--kubeconfig=" + kubeFile,
		"--namespace=" + l.namespace, "--watch-filter=" + l.namespace, "--replica=killed", "--http=", "--secret-namespaces=" + l.namespace,
	}
	d.config.Endpoints = []string{l.tap.wire(t, d.config.Endpoints[0], everything)}
	l.object(n, d)
	l.start()
	t.Cleanup(func() {
		_ = l.process.Process.Kill()
		_ = l.process.Wait()
		if said, _ := os.ReadFile(l.log.Name()); t.Failed() {
			t.Logf("%s", said[max(0, len(said)-10000):])
		}
	})
	return l
}

// start starts the service and waits until it has looked at its DataStore.
func (l *lane) start() {
	l.t.Helper()
	l.tap.open()
	l.quiet()
	l.process = exec.Command(program(l.t), l.args...)
	l.process.Stdout, l.process.Stderr = l.log, l.log
	l.process.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	l.must(l.process.Start())
	for checked := (event.DatastoreChecked{}); !checked.Ready; { // on a busy machine, the database may not answer in time at first
		l.await("-/"+l.dataStore, event.Checked, &checked)
	}
}

var theProgram struct {
	once      sync.Once
	dir, path string
}

// program is the service's own, as it is in its image.
func program(t *testing.T) string {
	theProgram.once.Do(func() {
		dir, err := os.MkdirTemp("", "stoker-datastore-") // where programs may be run
		if err != nil {
			t.Fatal(err)
		}
		theProgram.dir = dir
		path := filepath.Join(dir, "stoker-datastore")
		if out, err := exec.Command("go", "build", "-o", path, "./cmd/stoker-datastore").CombinedOutput(); err != nil {
			t.Fatalf("go build: %v\n%s", err, out)
		}
		theProgram.path = path
	})
	return theProgram.path
}

// killed has the service begin something, kills it at its n-th message, if it is to be killed, starts it again, and waits
// for the fact that ends what was begun. It reports whether the service was killed.
func (l *lane) killed(x *tenant, what string, n int, kill bool, begin func(), fact string, most *atomic.Int32) bool {
	l.t.Helper()
	if !kill {
		n = 1 << 30
	}
	ended, was := l.tap.arm(n), false
	begin()
	drivertest.Eventually(l.t, func() error {
		select {
		case <-ended:
			if !was {
				was = true
				_ = l.process.Wait()
				l.start()
			}
		default:
		}
		if _, err := x.told(fact, nil); err != nil {
			return fmt.Errorf("%s, killed at message %d: %w", what, n, err)
		}
		return nil
	})
	l.tap.disarm()
	select {
	case <-ended:
		if !was { // as it was done
			_ = l.process.Wait()
			l.start()
		}
		was = true
	default:
	}
	if was && int32(n) > most.Load() {
		most.Store(int32(n))
	}
	return was
}

// provisioned looks that all of a tenant is there, that nothing is half made, and that it is its own.
func (l *lane) provisioned(x *tenant) {
	l.t.Helper()
	ctx := l.t.Context()
	if s, _ := x.state(); s.Step != event.Provisioned || s.Failure != nil || s.Wait.Waits() {
		l.t.Errorf("%s: its state is %+v", x.key, s)
	}
	a := x.account()
	data, _ := x.credentials()
	a.Password = string(data[name.KeyDBPassword])
	// Logs in with the password, where there is one.
	if changed, err := reprovision(ctx, l.admin, a); err != nil || len(changed) > 0 {
		l.t.Errorf("%s: undone were %q: %v", x.key, changed, err)
	}
	cert, err := x.secret(name.DatastoreCertificate(x.key.Name))
	l.must(err)
	have := driver.Access{CA: cert.Data[name.KeyDatastoreCACert], Cert: cert.Data[name.KeyDatastoreCert], Key: cert.Data[name.KeyDatastoreKey],
		Credentials: cert.Data[name.KeyDatastoreContext]}
	if access, err := l.admin.Access(a, have, time.Now()); err != nil || string(access.Cert) != string(have.Cert) {
		l.t.Errorf("%s: its certificate is not good: %v", x.key, err)
	}
	a.Owner = "another"
	var taken *driver.TakenError
	if err := drivertest.Persist(func() error { return l.admin.Claim(ctx, a) }); !errors.As(err, &taken) {
		l.t.Errorf("%s: another tenant gets what it has: %v", x.key, err)
	}
}

// reprovision provisions an account, and again if a busy server does not answer in time. It returns the changes of all tries.
func reprovision(ctx context.Context, d driver.Driver, a driver.Account) (changed []string, err error) {
	err = drivertest.Persist(func() error {
		more, err := d.Provision(ctx, a)
		changed = append(changed, more...)
		return err
	})
	return changed, err
}

// gone looks that nothing of a tenant is left, and that nothing was said to be.
func (l *lane) gone(x *tenant) {
	l.t.Helper()
	removed := event.Removals{}
	_, err := x.told(event.Removed, &removed)
	l.must(err)
	if len(removed.Left) > 0 {
		l.t.Errorf("%s: %+v", x.key, removed)
	}
	a := x.account()
	a.Remembered = true
	left := driver.Removed{}
	err = drivertest.Persist(func() error {
		removed, err := l.admin.Drop(context.WithoutCancel(l.t.Context()), a)
		maps.Copy(left, removed)
		return err
	})
	if err != nil || len(left) > 0 {
		l.t.Errorf("%s: left were %v: %v", x.key, left, err)
	}
	for _, secret := range []string{name.DatastoreConfig(x.key.Name), name.DatastoreCertificate(x.key.Name)} {
		if _, err := x.secret(secret); !apierrors.IsNotFound(err) {
			l.t.Errorf("%s: Secret %s: %v", x.key, secret, err)
		}
	}
}
