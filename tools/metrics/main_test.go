package main

import (
	"bytes"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus/testutil/promlint"
	dto "github.com/prometheus/client_model/go"
)

const root = "../.."

func TestPageIsFresh(t *testing.T) {
	want, err := render()
	if err != nil {
		t.Fatal(err)
	}
	got, err := os.ReadFile(filepath.Join(root, page))
	if err != nil || !bytes.Equal(got, want) {
		t.Errorf("%s is stale: run `make generate` (%v)", page, err)
	}
}

// kamajis are Kamaji's names, with the labels that its dashboards ask for.
var kamajis = map[string][]string{
	"kamaji_build_info":           {"build_time", "commit", "dirty", "repo", "version"},
	"kamaji_certificates_current": {"status", "strategy", "tcp_name", "tcp_namespace"},
	"kamaji_datastore_info":       {"datastore_name", "driver"},
	"kamaji_datastore_status":     {"datastore_name", "ready", "status"},
	"kamaji_datastores_current":   {"datastore_name", "driver", "ready"},
	"kamaji_handler_time_seconds": {"handler"},
	"kamaji_tenant_control_plane_info": {
		"address", "datastore_driver", "exposure_strategy", "kubernetes_version", "tcp_name", "tcp_namespace",
	},
	"kamaji_tenant_control_plane_status":   {"ready", "status", "tcp_name", "tcp_namespace"},
	"kamaji_tenant_control_planes_current": {"ready"},
}

// TestDeclarations holds names, labels and help to the conventions of Prometheus and of this project.
func TestDeclarations(t *testing.T) {
	byName := map[string][]string{}
	for service, entries := range declared() {
		for _, e := range entries {
			n := e.Family.GetName()
			if _, twice := byName[n]; twice {
				t.Errorf("%s of %s: declared twice", n, service)
			}
			byName[n] = e.Labels()
			kamaji := strings.HasPrefix(n, "kamaji_")
			if !kamaji && !strings.HasPrefix(n, "stoker_") {
				t.Errorf("%s of %s: begins with neither stoker_ nor kamaji_", n, service)
			}
			if help := e.Family.GetHelp(); !strings.HasSuffix(help, ".") || strings.Contains(help, "\n") {
				t.Errorf("%s of %s: the help %q is no sentence", n, service, help)
			}
			tenants := slices.Contains(e.Labels(), "tcp_name")
			if tenants != e.PerTenant || tenants && e.Family.GetType() != dto.MetricType_GAUGE {
				t.Errorf("%s of %s: a series per tenant is for gauges that --tenant-metrics asks for, and nothing else", n, service)
			}
			problems, err := promlint.NewWithMetricFamilies([]*dto.MetricFamily{e.Family}).Lint()
			if err != nil {
				t.Fatal(err)
			}
			for _, p := range problems {
				t.Errorf("%s of %s: %s", p.Metric, service, p.Text)
			}
		}
	}
	for n, labels := range kamajis {
		if have, declared := byName[n]; !declared || !slices.Equal(have, labels) {
			t.Errorf("%s has the labels %v, in Kamaji %v", n, have, labels)
		}
	}
}
