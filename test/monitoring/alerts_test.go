package monitoring

import (
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/common/model"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/stoker-k8s/stoker/internal/testing/port"
	"github.com/stoker-k8s/stoker/pkg/api/event"
	"github.com/stoker-k8s/stoker/pkg/api/name"
	"github.com/stoker-k8s/stoker/pkg/events"
	"github.com/stoker-k8s/stoker/pkg/kube"
	"github.com/stoker-k8s/stoker/pkg/pki"
	"github.com/stoker-k8s/stoker/test/env"
)

// hurried writes the file of rules with shorter times, so that faults needn't last for minutes: pauses before an alert fires are 2 s,
// windows 30 s, a tenant is late after 15 s, provisioning slow from 10 s on, and an event old from 10 s on. Nothing else is changed.
func hurried(t *testing.T) string {
	t.Helper()
	data, err := os.ReadFile(filepath.Join(monitoringDir(), "rules", "stoker.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	text := string(data)
	for _, r := range []struct {
		from, to string
		times    int
	}{
		{`for: [0-9]+[mh]`, "for: 2s", 23}, {`\[[13]0m\]`, "[30s]", 5}, {`_not_ready_seconds\) > 600`, "_not_ready_seconds) > 15", 1},
		{`\)\)\) > 180`, "))) > 10", 1}, {`\)\)\) > 60`, "))) > 10", 1},
	} {
		pattern := regexp.MustCompile(r.from)
		if n := len(pattern.FindAllString(text, -1)); n != r.times {
			t.Fatalf("the rules have %q %d times, not %d: what is shortened here?", r.from, n, r.times)
		}
		text = pattern.ReplaceAllString(text, r.to)
	}
	file := filepath.Join(t.TempDir(), "rules.yaml")
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}

// alert is one with the label sign, if its rule has one.
type alert struct{ name, sign string }

func (a alert) String() string { return strings.TrimSuffix(a.name+" "+a.sign, " ") }

// fires reports whether Prometheus has the alert fire.
func (m *monitored) fires(t *testing.T, a alert) bool {
	t.Helper()
	value, _, err := m.Query(t.Context(), fmt.Sprintf(`ALERTS{alertstate="firing",alertname=%q,sign=%q}`, a.name, a.sign), time.Now())
	if err != nil {
		t.Fatal(err)
	}
	v, _ := value.(model.Vector)
	return len(v) > 0
}

// see causes a fault and waits until the alert fires, then undoes it and waits until it doesn't.
func (m *monitored) see(t *testing.T, a alert, fault string, cause func(t *testing.T) (undo func())) {
	t.Run(a.String(), func(t *testing.T) {
		m.quiet(t, a)
		began := time.Now()
		undo := cause(t)
		env.Eventually(t, a.String()+" to fire", func() error {
			if !m.fires(t, a) {
				return errNotYet
			}
			return nil
		})
		t.Logf("| `%s` | %s | %.0f s |", a, fault, time.Since(began).Seconds())
		if undo == nil {
			return // what comes next undoes it
		}
		undo()
		m.quiet(t, a)
	})
}

// quiet waits until an alert doesn't fire.
func (m *monitored) quiet(t *testing.T, a alert) {
	t.Helper()
	env.Eventually(t, a.String()+" not to fire", func() error {
		if m.fires(t, a) {
			return errors.New("it fires")
		}
		return nil
	})
}

// nothing to undo.
func nothing() {}

// TestAlerts causes, one after the other, the fault that each alert is about, and sees it fire and end on a running installation.
func TestAlerts(t *testing.T) {
	env.Long(t, "TestEachAlertIsUnitTested in tools/monitoring evaluates each rule on series; this test waits for each to fire and to end")
	m := start(t, hurried(t), e.NATS.MonitorURL())
	first := create(t, "alerted")
	e.Ready(t, first)
	defer remove(t, first)
	admin := e.Local.Kubeconfig("admin")

	m.see(t, alert{"StokerDeadLetters", ""}, "a command that is refused, without `replyto`; the letter is dropped", func(t *testing.T) func() {
		refused(t, "refused")
		return func() { drop(t) }
	})
	m.see(t, alert{"StokerDataStoreFull", "tenants"}, "`stoker.dev/max-tenants: \"1\"` on a DataStore with a tenant",
		func(t *testing.T) func() { return limit(t, name.AnnotationMaxTenants, "1") })
	m.see(t, alert{"StokerDataStoreFull", "bytes"}, "`stoker.dev/max-bytes: 1Ki` on a DataStore with a tenant", func(t *testing.T) func() {
		return limit(t, name.AnnotationMaxBytes, "1Ki")
	})
	m.see(t, alert{"StokerDataStoreAway", ""}, "the etcd of the DataStore is stopped", func(t *testing.T) func() {
		etcd := e.Local.Component("etcd-default")
		must(t, etcd.Stop(t.Context()))
		return func() { must(t, etcd.Start(t.Context())) }
	})
	m.see(t, alert{"StokerBackupsFailing", ""}, "a backup to a location that isn't there; it ends when none is asked for any more",
		func(t *testing.T) func() {
			now := time.Now().UTC().Format(time.RFC3339)
			e.Kubectl(t, admin, "annotate", "tcp", first.Name, name.AnnotationBackupLocation+"=nowhere", name.AnnotationBackupAt+"="+now)
			return func() {
				e.Kubectl(t, admin, "annotate", "tcp", first.Name, name.AnnotationBackupLocation+"-", name.AnnotationBackupAt+"-")
			}
		})
	m.see(t, alert{"StokerCertificateExpiring", ""}, "a tenant whose authority, which somebody brought, ends in 10 days",
		func(t *testing.T) func() {
			bring(t, "brought", 10*24*time.Hour)
			key := create(t, "brought")
			return func() { remove(t, key) }
		})
	pending := events.Tenant(metav1.NamespaceDefault, "pending")
	m.see(t, alert{"StokerTenantNotReady", ""}, "a tenant whose pods fit on no node", func(t *testing.T) func() {
		o := env.Tenant(pending.Name, "v1.36.3")
		o.Spec.ControlPlane.Deployment.NodeSelector = map[string]string{"room": "yes"}
		must(t, e.Admin.Create(t.Context(), kube.TenantControlPlanes, o)) // nodeSelector is not for portals
		return func() { e.Kubectl(t, admin, "label", "nodes", "--all", "room=yes") }
	})
	t.Run("the same tenant took too long", func(t *testing.T) { m.provisionedLate(t, pending) })
	remove(t, pending)
	m.replicas(t)
	m.see(t, alert{"StokerEventsOld", "age"}, "certs is started again after a quarter of a minute", func(t *testing.T) func() {
		until(t, time.Now().Add(15*time.Second)) // so that the events are old
		m.services[name.ServiceCerts].Restart(t)
		return nothing
	})
	waiting := events.Tenant(metav1.NamespaceDefault, "waiting")
	e.Ready(t, waiting)
	remove(t, waiting)
	m.see(t, alert{"StokerNATSWithoutQuorum", ""}, "the NATS server is stopped", func(t *testing.T) func() {
		e.NATS.Stop()
		return func() { must(t, e.NATS.Restart(t.Context())) }
	})
	m.see(t, alert{"StokerAPIErrors", ""}, "the API server of the management cluster is stopped", func(t *testing.T) func() {
		api := e.Local.Component("kube-apiserver")
		must(t, api.Stop(t.Context()))
		return func() { must(t, api.Start(t.Context())) }
	})
	env.Eventually(t, "everything to be as before", func() error {
		value, _, err := m.Query(t.Context(), `ALERTS{alertstate="firing"}`, time.Now())
		if v, _ := value.(model.Vector); err == nil && len(v) > 0 {
			err = errors.New(v.String())
		}
		return err
	})
}

// provisionedLate sees that a tenant which became Ready late raises StokerProvisioningSlow.
func (m *monitored) provisionedLate(t *testing.T, key events.Key) {
	e.Ready(t, key)
	began, a := time.Now(), alert{"StokerProvisioningSlow", ""}
	env.Eventually(t, a.String()+" to fire", func() error {
		if !m.fires(t, a) {
			return errNotYet
		}
		return nil
	})
	t.Logf("| `%s` | a tenant for whose pods there is a node only after a while | %.0f s after it was Ready |", a, time.Since(began).Seconds())
	m.quiet(t, a)
}

// replicas sees the alerts about replicas and about events that wait for them.
func (m *monitored) replicas(t *testing.T) {
	certs := m.services[name.ServiceCerts]
	m.see(t, alert{"StokerReplicaWithoutLease", "idle"}, "a second replica of certs under the name of the first", func(t *testing.T) func() {
		return m.twin(t, name.ServiceCerts)
	})
	m.see(t, alert{"StokerReplicaWithoutLease", "partitions"}, "one of two replicas of certs is killed; it ends when the other takes over",
		func(t *testing.T) func() {
			other := e.Service(t, name.ServiceCerts, "b")
			m.scrape(t, other.Address())
			env.Eventually(t, "the replicas to share", func() error {
				if len(certs.Held(t)) != name.Partitions/2 {
					return errNotYet
				}
				return nil
			})
			m.number(t, "sum(stoker_partitions_held{service=\"certs\"})", name.Partitions)
			other.Kill()
			return func() { other.Remove(t); m.scrape(t) }
		})
	m.see(t, alert{"StokerReplicaWithoutLease", "missing"}, "the only replica of certs is stopped", func(t *testing.T) func() {
		must(t, certs.Stop())
		return func() { certs.Restart(t) }
	})
	m.see(t, alert{"StokerEventsOld", "unprocessed"}, "certs is stopped, and a tenant is ordered", func(t *testing.T) func() {
		must(t, certs.Stop())
		e.Apply(t, env.Tenant("waiting", "v1.36.3"))
		return nil
	})
}

// number waits until a query is answered by a number.
func (m *monitored) number(t *testing.T, query string, want float64) {
	t.Helper()
	env.Eventually(t, fmt.Sprintf("%s to be %v", query, want), func() error {
		value, _, err := m.Query(t.Context(), query, time.Now())
		if err != nil {
			return err
		}
		if v, _ := value.(model.Vector); len(v) != 1 || float64(v[0].Value) != want {
			return fmt.Errorf("it is %v", value)
		}
		return nil
	})
}

// twin starts another process with the name and the identity of a service's first replica.
func (m *monitored) twin(t *testing.T, service string) (undo func()) {
	t.Helper()
	cfg, address := e.Stack.Service(service, "a"), port.Address(t, e.Local.Block().Management().String())
	cmd := exec.Command(filepath.Join(filepath.Dir(e.StokerBin()), "stoker-"+service))
	cmd.Env = append(os.Environ(), "STOKER_NATS="+cfg.NATS, "STOKER_NATS_SEED="+cfg.NATSSeed, "STOKER_KUBECONFIG="+cfg.Kubeconfig,
		"STOKER_REPLICA=a", "STOKER_HTTP="+address)
	stop := run(t, cmd)
	m.scrape(t, address)
	return func() { stop(); m.scrape(t) }
}

// drop drops all dead letters.
func drop(t *testing.T) {
	t.Helper()
	query, err := json.Marshal(event.DeadDropQuery{All: true})
	must(t, err)
	env.Eventually(t, "the dead letters to be dropped", func() error {
		_, err := e.Operator.Conn().RequestWithContext(t.Context(), event.QueryDeadDrop, query)
		return err
	})
}

// bring makes an authority of one's own for a tenant, which ends after a time.
func bring(t *testing.T, tenant string, life time.Duration) {
	t.Helper()
	ca, err := pki.Issue(&x509.Certificate{
		Subject: pkix.Name{CommonName: "brought"}, NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(life),
		IsCA: true, KeyUsage: x509.KeyUsageCertSign | x509.KeyUsageDigitalSignature,
	}, nil)
	must(t, err)
	must(t, e.Admin.Create(t.Context(), kube.Secrets, &corev1.Secret{
		TypeMeta: kube.Secrets.TypeMeta(), ObjectMeta: metav1.ObjectMeta{Namespace: metav1.NamespaceDefault, Name: name.CA(tenant)},
		Data: map[string][]byte{name.KeyCACert: ca.Cert, name.KeyCAKey: ca.Key},
	}))
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
