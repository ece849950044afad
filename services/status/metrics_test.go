package status

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	ce "github.com/cloudevents/sdk-go/v2/event"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/stoker-k8s/stoker/pkg/api/event"
	"github.com/stoker-k8s/stoker/pkg/api/name"
	"github.com/stoker-k8s/stoker/pkg/api/state"
	"github.com/stoker-k8s/stoker/pkg/api/v1alpha1"
	"github.com/stoker-k8s/stoker/pkg/events"
	"github.com/stoker-k8s/stoker/pkg/loop"
)

func TestTenantsAreCountedAsTheyAre(t *testing.T) {
	t.Parallel()
	tenants := []string{"kamaji_tenant_control_planes_current", "kamaji_tenant_control_plane_info", "kamaji_tenant_control_plane_status", "stoker_tenants"}
	shows := func(t *testing.T, perTenant bool, want string, of ...func(*metrics)) {
		t.Helper()
		r := prometheus.NewPedanticRegistry()
		m := newMetrics(r, r, perTenant)
		for _, f := range of {
			f(m)
		}
		if err := testutil.GatherAndCompare(r, strings.NewReader(want), tenants...); err != nil {
			t.Error(err)
		}
	}
	ready := func(m *metrics) {
		api, s := Compute(demo(), complete(), clock)
		m.note(events.Tenant("default", "demo"), tenantOf(demo(), api, s))
	}
	begun := func(m *metrics) {
		tenant := demo()
		tenant.Spec.ControlPlane.Gateway = &v1alpha1.GatewaySpec{}
		api, s := Compute(tenant, States{UID: "u2", Generation: 1}, clock)
		m.note(events.Tenant("default", "new"), tenantOf(tenant, api, s))
	}
	counts := `# HELP kamaji_tenant_control_planes_current Tenants of the partitions this replica holds, by whether they are Ready.
# TYPE kamaji_tenant_control_planes_current gauge
kamaji_tenant_control_planes_current{ready="false"} 1
kamaji_tenant_control_planes_current{ready="true"} 1
# HELP stoker_tenants Tenants of the partitions this replica holds.
# TYPE stoker_tenants gauge
stoker_tenants{phase="Provisioning"} 1
stoker_tenants{phase="Ready"} 1
`
	named := `# HELP kamaji_tenant_control_plane_info What a tenant is; always 1.
# TYPE kamaji_tenant_control_plane_info gauge
kamaji_tenant_control_plane_info{address="127.50.0.2:6443",datastore_driver="etcd",exposure_strategy="service",` +
		`kubernetes_version="v1.36.3",tcp_name="demo",tcp_namespace="default"} 1
kamaji_tenant_control_plane_info{address="",datastore_driver="",exposure_strategy="gateway",` +
		`kubernetes_version="v1.36.3",tcp_name="new",tcp_namespace="default"} 1
# HELP kamaji_tenant_control_plane_status How a tenant is, by status.kubernetesResources.version.status; always 1.
# TYPE kamaji_tenant_control_plane_status gauge
kamaji_tenant_control_plane_status{ready="true",status="Ready",tcp_name="demo",tcp_namespace="default"} 1
kamaji_tenant_control_plane_status{ready="false",status="Provisioning",tcp_name="new",tcp_namespace="default"} 1
`
	t.Run("without names", func(t *testing.T) { shows(t, false, counts, ready, begun) })
	t.Run("with the names that the flag asks for", func(t *testing.T) { shows(t, true, counts+named, ready, begun) })
	t.Run("paused, it keeps what is not known anew", func(t *testing.T) {
		shows(t, true, `# HELP kamaji_tenant_control_plane_info What a tenant is; always 1.
# TYPE kamaji_tenant_control_plane_info gauge
kamaji_tenant_control_plane_info{address="127.50.0.2:6443",datastore_driver="etcd",exposure_strategy="service",`+
			`kubernetes_version="v1.36.3",tcp_name="demo",tcp_namespace="default"} 1
# HELP kamaji_tenant_control_plane_status How a tenant is, by status.kubernetesResources.version.status; always 1.
# TYPE kamaji_tenant_control_plane_status gauge
kamaji_tenant_control_plane_status{ready="true",status="Ready",tcp_name="demo",tcp_namespace="default"} 1
# HELP kamaji_tenant_control_planes_current Tenants of the partitions this replica holds, by whether they are Ready.
# TYPE kamaji_tenant_control_planes_current gauge
kamaji_tenant_control_planes_current{ready="false"} 0
kamaji_tenant_control_planes_current{ready="true"} 1
# HELP stoker_tenants Tenants of the partitions this replica holds.
# TYPE stoker_tenants gauge
stoker_tenants{phase="Paused"} 1
`, ready, func(m *metrics) {
			_, s := Compute(demo(), complete(), clock)
			s.Phase = PhasePaused
			m.note(events.Tenant("default", "demo"), tenantOf(demo(), v1alpha1.TenantControlPlaneStatus{}, s))
		})
	})
	none := `# HELP kamaji_tenant_control_planes_current Tenants of the partitions this replica holds, by whether they are Ready.
# TYPE kamaji_tenant_control_planes_current gauge
kamaji_tenant_control_planes_current{ready="false"} 0
kamaji_tenant_control_planes_current{ready="true"} 0
`
	t.Run("gone, it isn't counted", func(t *testing.T) {
		shows(t, true, none, ready, func(m *metrics) { m.forget(events.Tenant("default", "demo")) })
	})
	t.Run("nor when another replica has it", func(t *testing.T) {
		shows(t, true, none, ready, func(m *metrics) { m.keep(nil) })
	})
}

func TestTheTenantThatHasNotBeenReadyForTheLongest(t *testing.T) {
	t.Parallel()
	for what, c := range map[string]struct {
		change func(*state.Status)
		want   float64
	}{
		"one that waits counts from when it stopped being Ready": {func(*state.Status) {}, 60},
		"one that is paused need not be Ready":                   {func(s *state.Status) { s.Phase = PhasePaused }, 0},
		"one that sleeps need not be Ready":                      {func(s *state.Status) { s.Phase = string(v1alpha1.VersionSleeping) }, 0},
		"one that is deleted won't be Ready":                     {func(s *state.Status) { s.Phase = PhaseDeleting }, 0},
		"one that failed counts":                                 {func(s *state.Status) { s.Phase = PhaseFailed }, 60},
		"one that is Ready again doesn't count":                  {func(s *state.Status) { s.Ready = true }, 0},
	} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			r := prometheus.NewPedanticRegistry()
			m := newMetrics(r, r, false)
			m.now = func() time.Time { return clock.Truncate(time.Second).Add(time.Minute) } // as conditions have it
			for n, since := range map[string]time.Time{"first": clock, "second": clock.Add(time.Second)} {
				api, s := Compute(demo(), States{UID: "u", Generation: 1}, since)
				c.change(&s)
				m.note(events.Tenant("default", n), tenantOf(demo(), api, s))
			}
			want := fmt.Sprintf("# HELP stoker_tenant_longest_not_ready_seconds How long the tenant has not been Ready that has not been for the longest; "+
				"0 without one. Paused, sleeping and deleted ones don't count.\n"+
				"# TYPE stoker_tenant_longest_not_ready_seconds gauge\nstoker_tenant_longest_not_ready_seconds %v\n", c.want)
			if err := testutil.GatherAndCompare(r, strings.NewReader(want), "stoker_tenant_longest_not_ready_seconds"); err != nil {
				t.Error(err)
			}
		})
	}
}

func TestStepsAreMeasuredUntilReady(t *testing.T) {
	t.Parallel()
	tenant := demo()
	fact := func(service, what, uid string, generation int64, after time.Duration) loop.Event {
		e := ce.New()
		e.SetTime(tenant.AcceptedAt.Add(after))
		e.DataEncoded = event.Marshal(event.About{UID: uid, Generation: generation})
		return loop.Event{Event: e, Service: service, What: what}
	}
	r := prometheus.NewPedanticRegistry()
	m := newMetrics(r, r, false)
	turn := &loop.Turn{Key: events.Tenant("default", "demo"), Tenant: tenant, UID: "u1", Generation: 2, Events: []loop.Event{
		fact(name.ServiceCerts, event.Issued, "u1", 2, 2*time.Second),
		fact(name.ServiceCerts, event.Issued, "u1", 1, time.Second),    // of the generation before
		fact(name.ServiceCerts, event.Issued, "u0", 2, time.Second),    // of the tenant before
		fact(name.ServiceCerts, event.Rotated, "u1", 2, time.Second),   // no step to Ready
		fact(name.ServiceAddons, event.Applied, "u1", 2, -time.Second), // by a clock that is behind
	}}
	m.noteSteps(turn, state.Status{})
	turn.Events = []loop.Event{
		fact(name.ServiceWorkload, event.Available, "u1", 2, 3*time.Second), // heard of after the states said so
		fact(name.ServiceWorkload, event.Available, "u1", 2, time.Hour),     // its pods were away
	}
	m.noteSteps(turn, state.Status{ReadyGeneration: 2, ReadyAt: tenant.AcceptedAt.Add(4 * time.Second)})
	families, err := r.Gather()
	if err != nil {
		t.Fatal(err)
	}
	got := map[string]string{}
	for _, f := range families {
		if f.GetName() == "stoker_time_to_step_seconds" {
			for _, s := range f.GetMetric() {
				if s.GetHistogram().GetSampleCount() == 0 {
					continue
				}
				got[s.GetLabel()[0].GetValue()] = fmt.Sprint(s.GetHistogram().GetSampleCount(), " in ", s.GetHistogram().GetSampleSum())
			}
		}
	}
	want := map[string]string{"certs.issued": "1 in 2", "addons.applied": "1 in 0", "workload.available": "1 in 3"}
	if fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("measured %v, want %v", got, want)
	}
}

// BenchmarkScrape is what Prometheus costs a replica that has a thousand tenants, with and without their names.
func BenchmarkScrape(b *testing.B) {
	for _, perTenant := range []bool{false, true} {
		b.Run(fmt.Sprintf("tenant-metrics=%v", perTenant), func(b *testing.B) {
			r := prometheus.NewRegistry()
			m := newMetrics(r, r, perTenant)
			api, s := Compute(demo(), complete(), clock)
			for n := range 1000 {
				m.note(events.Tenant("default", fmt.Sprintf("tenant-%d", n)), tenantOf(demo(), api, s))
			}
			server := promhttp.HandlerFor(r, promhttp.HandlerOpts{})
			for b.Loop() {
				w := httptest.NewRecorder()
				server.ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/metrics", nil))
				if n, _ := io.Copy(io.Discard, w.Body); n == 0 || w.Code != http.StatusOK {
					b.Fatal(w.Code)
				}
			}
		})
	}
}
