package monitoring

import (
	"context"
	"errors"
	"path/filepath"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/stoker-k8s/stoker/local/images"
	"github.com/stoker-k8s/stoker/local/progress"
	"github.com/stoker-k8s/stoker/pkg/api/name"
	"github.com/stoker-k8s/stoker/pkg/events"
	"github.com/stoker-k8s/stoker/pkg/kube"
	"github.com/stoker-k8s/stoker/test/env"
	"github.com/stoker-k8s/stoker/test/robustness"
)

// TestQuorum kills servers of a NATS cluster of three, each a process. Of one that is lost no alert tells that NATS has no quorum; of two,
// StokerNATSWithoutQuorum tells, alone, until they are back. Meanwhile every metric about it says what is so, and the tenant's API answers.
func TestQuorum(t *testing.T) {
	env.Long(t, "TestEachAlertIsUnitTested in tools/monitoring evaluates the rule on series; this test waits for it to fire and to end")
	n := cluster(t)
	servers := len(n.Monitors())
	e.On(t, env.Servers{URL: n.URL(), Seed: n.Seed, Replicas: servers})
	m := start(t, hurried(t), n.Monitors()...)
	admin, quorum := e.Local.Kubeconfig("admin"), alert{"StokerNATSWithoutQuorum", ""}
	services := float64(len(name.Services()))
	whole := func(t *testing.T) {
		t.Helper()
		m.number(t, "sum(stoker_lease_held)", services)
		m.number(t, "sum(stoker_nats_server_up)", float64(servers))
		m.number(t, "sum(stoker_nats_server_leader_known)", float64(servers))
		m.number(t, "sum(stoker_nats_server_stream_replicas_lagging)", 0)
		m.number(t, `count(ALERTS{alertstate="firing"}) or vector(0)`, 0)
		m.ready(t, "[+]nats lease ok")
	}
	whole(t)
	must(t, e.Admin.Create(t.Context(), kube.TenantControlPlanes, env.Tenant("counted", "v1.36.3")))
	e.Kubectl(t, admin, "wait", "--for=condition=Ready", "tcp/counted", "--timeout=5m")

	t.Run("one of three servers is killed, and nothing is lost", func(t *testing.T) {
		must(t, n.Kill(0))
		m.number(t, "sum(stoker_nats_server_up)", float64(servers-1))
		m.number(t, "sum(stoker_nats_server_leader_known)", float64(servers-1))
		m.number(t, `count(stoker_nats_server_stream_messages{stream=~"STOKER_.+"})`, 4) // each has a leader
		m.number(t, "sum(stoker_nats_server_stream_replicas_lagging) == bool count(stoker_nats_server_stream_messages)", 1)
		m.number(t, "sum(stoker_lease_held)", services)
		m.number(t, "sum(stoker_nats_connected)", services)
		m.number(t, `count(ALERTS{alertstate="firing"}) or vector(0)`, 0)
		must(t, n.Start(0))
		whole(t)
	})
	m.see(t, quorum, "two of three NATS servers are killed; it ends when they are back", func(t *testing.T) func() {
		must(t, errors.Join(n.Kill(0), n.Kill(1)))
		return func() {
			m.withoutQuorum(t)
			must(t, errors.Join(n.Start(0), n.Start(1)))
			began := time.Now()
			whole(t)
			t.Logf("all is as before %.0f s after they were started", time.Since(began).Seconds())
		}
	})
	e.Kubectl(t, admin, "delete", "tcp", "counted", "--timeout=5m")
}

// withoutQuorum checks what is said while one of three NATS servers is left.
func (m *monitored) withoutQuorum(t *testing.T) {
	t.Helper()
	m.number(t, "sum(stoker_nats_server_up)", 1)
	m.number(t, "sum(stoker_nats_server_leader_known)", 0)
	m.number(t, "count(stoker_nats_server_stream_messages) or vector(0)", 0) // nobody leads a stream
	m.number(t, "sum(stoker_nats_server_tenant_buckets)", 0)
	m.number(t, "sum(stoker_lease_held)", 0)
	m.number(t, "sum(stoker_nats_connected)", float64(len(m.services))) // to the server that is left
	m.ready(t, "[-]nats lease is away")
	m.number(t, `count(ALERTS{alertstate="firing"})`, 1)
	e.Kubectl(t, e.Kubeconfig(t, events.Tenant(metav1.NamespaceDefault, "counted")), "get", "namespaces")
}

// ready waits until every service says this of itself.
func (m *monitored) ready(t *testing.T, want string) {
	t.Helper()
	for _, p := range m.services {
		env.Eventually(t, p.Name+" to say: "+want, func() error {
			says, err := p.Readyz(t.Context())
			if err == nil && !strings.Contains(says, want) {
				err = errors.New(says)
			}
			return err
		})
	}
}

// cluster starts three NATS servers, which end with the test.
func cluster(t *testing.T) *robustness.NATS {
	t.Helper()
	bin, err := e.Local.Images().Build(t.Context(), images.NATS, progress.None)
	must(t, err)
	n, err := robustness.NewNATS(t.TempDir(), filepath.Join(bin, "nats-server"), e.Local.Block().Management().String())
	must(t, err)
	t.Cleanup(func() { n.Stop(context.Background()) })
	for i := range n.Monitors() {
		must(t, n.Start(i))
	}
	return n
}
