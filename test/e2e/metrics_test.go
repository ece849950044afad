package e2e

import (
	"errors"
	"fmt"
	"maps"
	"net/http"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/stoker-k8s/stoker/local/stack"
	"github.com/stoker-k8s/stoker/pkg/api/event"
	"github.com/stoker-k8s/stoker/pkg/api/name"
	"github.com/stoker-k8s/stoker/pkg/api/v1alpha1"
	"github.com/stoker-k8s/stoker/pkg/events"
	"github.com/stoker-k8s/stoker/pkg/kube"
	"github.com/stoker-k8s/stoker/pkg/metric"
	"github.com/stoker-k8s/stoker/test/env"
)

// documented is a metric as docs/metrics.md has it.
type documented struct {
	typ       string
	labels    []string
	service   string // empty for every service
	perTenant bool
}

// rowOfMetric is a line of the page's tables; only Kamaji's end in the service.
var rowOfMetric = regexp.MustCompile("^\\| `([a-z_]+)`( \\\\\\*)? \\| ([a-z]+) \\| ([^|]*) \\|(.*)\\|$")

// page reads docs/metrics.md.
func page(t *testing.T) map[string]documented {
	t.Helper()
	all, section := map[string]documented{}, ""
	for line := range strings.Lines(string(readFile(t, filepath.Join(env.Root(), "docs", "metrics.md")))) {
		line = strings.TrimSpace(line)
		if title, is := strings.CutPrefix(line, "## "); is {
			section = strings.ToLower(title)
		}
		row := rowOfMetric.FindStringSubmatch(line)
		if row == nil {
			continue
		}
		m := documented{typ: row[3], service: section, perTenant: row[2] != ""}
		if section == "kamaji's" {
			cells := strings.Split(row[5], " | ")
			m.service = strings.TrimSpace(cells[len(cells)-1])
		} else {
			m.labels = append(m.labels, "service")
		}
		if m.service == "every service" {
			m.service = ""
		}
		for l := range strings.SplitSeq(row[4], ",") {
			if l = strings.Trim(l, " `"); l != "" {
				m.labels = append(m.labels, l)
			}
		}
		slices.Sort(m.labels)
		all[row[1]] = m
	}
	if len(all) < 40 {
		t.Fatalf("the page has %d metrics: %v", len(all), all)
	}
	return all
}

// of are the metrics of the page that a service has.
func of(service string, all map[string]documented) map[string]documented {
	own := maps.Clone(all)
	maps.DeleteFunc(own, func(_ string, m documented) bool { return m.service != "" && m.service != service })
	return own
}

// scrape asks a service for what it measures, as Prometheus does, and returns what is Stoker's or Kamaji's.
func scrape(t *testing.T, p *env.Process) (map[string]*dto.MetricFamily, error) {
	t.Helper()
	text, err := p.Metrics(t.Context())
	if err != nil {
		return nil, err
	}
	parser := expfmt.NewTextParser(model.UTF8Validation)
	families, err := parser.TextToMetricFamilies(strings.NewReader(text))
	maps.DeleteFunc(families, func(n string, _ *dto.MetricFamily) bool {
		return !strings.HasPrefix(n, "stoker_") && !strings.HasPrefix(n, "kamaji_")
	})
	return families, err
}

// differs says how what a service serves is another than the page says, apart from what is lacking.
func differs(served map[string]*dto.MetricFamily, want map[string]documented) error {
	var all error
	for n, f := range served {
		m, is := want[n]
		if !is {
			all = errors.Join(all, fmt.Errorf("%s is not on the page", n))
			continue
		}
		if typ := strings.ToLower(f.GetType().String()); typ != m.typ {
			all = errors.Join(all, fmt.Errorf("%s is a %s, by the page a %s", n, typ, m.typ))
		}
		for _, s := range f.GetMetric() {
			var labels []string
			for _, l := range s.GetLabel() {
				labels = append(labels, l.GetName())
			}
			if slices.Sort(labels); !slices.Equal(labels, m.labels) {
				all = errors.Join(all, fmt.Errorf("%s has the labels %q, by the page %q", n, labels, m.labels))
			}
		}
	}
	return all
}

// elsewhere are the metrics of what no installation of this test has, and the tests that have it.
var elsewhere = map[string]string{
	"stoker_capi_external_cluster_up": "test/clusterapi", "stoker_capi_external_cluster_control_planes": "test/clusterapi",
	"stoker_mirror_up": "test/intake", "stoker_mirror_contact_timestamp_seconds": "test/intake", "stoker_mirror_objects": "test/intake",
	"stoker_mirror_writes_total": "test/intake", "stoker_mirror_errors_total": "test/intake",
	"stoker_tenantaddons_tenants": "test/tenantaddons", "stoker_tenantaddons_rollout_stopped": "test/tenantaddons", "stoker_tenantaddons_valid": "test/tenantaddons",
}

// TestMetrics holds docs/metrics.md to what services serve: after a tenant has become Ready and a DataStore has been found to be away,
// each metric of the page is served by the services it is said to be of, and no other is.
func TestMetrics(t *testing.T) {
	documented := page(t)
	// Events by HTTP are measured where there is that way in.
	t.Setenv("STOKER_EVENTS_HTTP", e.HTTP().Address)
	t.Setenv("STOKER_EVENTS_TOKEN", e.HTTP().Tokens)
	t.Setenv("STOKER_TENANT_METRICS", "true")
	e.NoServices(t)
	services := e.Services(t)
	defer e.NoServices(t) // those of other tests have none of these settings

	key := events.Tenant("default", "measured")
	tenant := env.Tenant(key.Name, "v1.36.3")
	tenant.Spec.Addons.Konnectivity = &v1alpha1.KonnectivitySpec{} // which some of the handlers are for
	e.Apply(t, tenant)
	e.Ready(t, key)
	defer func() {
		e.Delete(t, key)
		vanished(t, kube.TenantControlPlanes, key.Namespace, key.Name)
	}()
	away := awayStore(t, "measured-away")
	defer func() {
		erase(t, kube.DataStores, "", away)
		vanished(t, kube.DataStores, "", away)
	}()
	request(t, "http://"+e.HTTP().Address+"/events")
	// Else capi, which works on Cluster API's tenants alone, would have no turn.
	_, err := e.Operator.Conn().Request(event.QueryResync, event.Marshal(event.ResyncQuery{Namespace: key.Namespace, Name: key.Name}), time.Minute)
	must(t, err)

	for _, service := range name.Services() {
		t.Run(service, func(t *testing.T) {
			want := of(service, documented)
			env.Eventually(t, "all metrics of "+service, func() error {
				served, err := scrape(t, services[service])
				if err != nil {
					return err
				}
				if err := differs(served, want); err != nil {
					t.Fatal(err)
				}
				for n := range want {
					if served[n] == nil && elsewhere[n] == "" {
						err = errors.Join(err, fmt.Errorf("%s is not served", n))
					}
				}
				return err
			})
		})
	}
	t.Run("what is shown is what is", func(t *testing.T) {
		for _, want := range []struct {
			service, series string
		}{
			{name.ServiceStatus, `kamaji_tenant_control_plane_status{ready="true",status="Ready",tcp_name="measured",tcp_namespace="default"} 1`},
			{name.ServiceStatus, `stoker_time_to_step_seconds_count{service="status",step="certs.issued"}`},
			{name.ServiceStatus, `stoker_lease_held{service="status"} 1`},
			{name.ServiceCerts, `kamaji_certificates_current{status="valid",strategy="kubeconfig",tcp_name="measured",tcp_namespace="default"} 4`},
			{name.ServiceCerts, `stoker_facts_owed{service="certs"} 0`},
			{name.ServiceDatastore, `kamaji_datastore_status{datastore_name="default",ready="true",status="True"} 1`},
			{name.ServiceDatastore, `kamaji_datastore_status{datastore_name="` + away + `",ready="false",status="False"} 1`},
			{name.ServiceDatastore, `stoker_datastore_breaker_open{datastore="` + away + `",service="datastore"} 1`},
			{name.ServiceWorkload, `stoker_partitions_held{service="workload"} 16`},
			{name.ServiceAddons, `stoker_nats_connected{service="addons"} 1`},
			{name.ServiceIntake, `stoker_http_events_duration_seconds_count{code="401",service="intake"}`},
		} {
			env.Eventually(t, want.series, func() error {
				text, err := services[want.service].Metrics(t.Context())
				if err == nil && !strings.Contains(text, "\n"+want.series) {
					err = fmt.Errorf("%s does not serve it", want.service)
				}
				return err
			})
		}
	})
	for service, want := range handlers(t) {
		t.Run("handlers of "+service, func(t *testing.T) { measured(t, services[service], want) })
	}
	t.Run("without the flag, no tenant has series", func(t *testing.T) {
		t.Setenv("STOKER_TENANT_METRICS", "")
		for _, service := range []string{name.ServiceStatus, name.ServiceCerts} {
			must(t, services[service].Stop())
			services[service].Restart(t)
			env.Eventually(t, service+" counts the tenant", func() error {
				served, err := scrape(t, services[service])
				if err != nil {
					return err
				}
				for n := range served {
					if documented[n].perTenant {
						t.Fatalf("%s serves %s", service, n)
					}
				}
				if service == name.ServiceStatus && served["stoker_tenants"] == nil ||
					service == name.ServiceCerts && served["stoker_certificate_soonest_expiry_timestamp_seconds"] == nil {
					return errNotYet
				}
				return nil
			})
		}
	})
}

// handlers are the values of the label handler of each service, by docs/metrics.md.
func handlers(t *testing.T) map[string][]string {
	t.Helper()
	all := map[string][]string{}
	_, text, _ := strings.Cut(string(readFile(t, filepath.Join(env.Root(), "docs", "metrics.md"))), "\n| service | `handler` |\n")
	for _, row := range regexp.MustCompile("(?m)^\\| ([a-z]+) \\| (`[^|]+`) \\|$").FindAllStringSubmatch(text, -1) {
		all[row[1]] = strings.Split(strings.ReplaceAll(row[2], "`", ""), ", ")
	}
	if len(all) != len(name.Services()) {
		t.Fatalf("the page has handlers of %d services: %v", len(all), all)
	}
	return all
}

// measured checks which of Kamaji's handlers a service shows, and that each has been at work that a tenant needs which is reached by its
// Service alone.
func measured(t *testing.T, p *env.Process, want []string) {
	t.Helper()
	env.Eventually(t, "each handler to have been at work", func() error {
		served, err := scrape(t, p)
		if err != nil {
			return err
		}
		var shown []string
		for _, s := range served["kamaji_handler_time_seconds"].GetMetric() {
			handler := s.GetLabel()[0].GetValue()
			shown = append(shown, handler)
			needed := handler != name.ComponentIngress && handler != metric.HandlerRoute
			if worked := s.GetHistogram().GetSampleCount() > 0; worked != needed {
				err = errors.Join(err, fmt.Errorf("%s has been at work %d times", handler, s.GetHistogram().GetSampleCount()))
			}
		}
		if !slices.Equal(slices.Sorted(slices.Values(shown)), slices.Sorted(slices.Values(want))) {
			t.Fatalf("%s shows %v, by the page %v", p.Name, shown, want)
		}
		return err
	})
}

// awayStore makes a DataStore whose database nobody answers for, and waits until that is known.
func awayStore(t *testing.T, n string) string {
	t.Helper()
	o := &v1alpha1.DataStore{TypeMeta: kube.DataStores.TypeMeta()}
	get(t, kube.DataStores, "", stack.DefaultDataStore, o)
	o.ObjectMeta = metav1.ObjectMeta{Name: n}
	o.Spec.Endpoints = []string{"127.0.0.3:1"}
	must(t, e.Admin.Create(t.Context(), kube.DataStores, o))
	env.Eventually(t, n+" to be found away", func() error {
		if readStore(t, n).Status.ObservedGeneration == 0 {
			return errNotYet
		}
		return nil
	})
	return n
}

// request sends something that is no event and has no token.
func request(t *testing.T, url string) {
	t.Helper()
	env.Eventually(t, "intake to refuse by HTTP what has no token", func() error {
		req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, url, strings.NewReader("{}"))
		if err != nil {
			return err
		}
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			return err
		}
		_ = resp.Body.Close()
		if resp.StatusCode != http.StatusUnauthorized {
			return errors.New(resp.Status)
		}
		return nil
	})
}
