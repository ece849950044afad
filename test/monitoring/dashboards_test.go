package monitoring

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	promv1 "github.com/prometheus/client_golang/api/prometheus/v1"
	"github.com/prometheus/common/model"

	"github.com/stoker-k8s/stoker/test/env"
	"github.com/stoker-k8s/stoker/tools/monitoring"
)

func monitoringDir() string { return filepath.Join(env.Root(), "deployments", "monitoring") }

// dashboards are the files as Grafana reads them.
func dashboards(t *testing.T) (all []*monitoring.Dashboard) {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(monitoringDir(), "dashboards", "*.json"))
	if err != nil || len(files) == 0 {
		t.Fatalf("no dashboards: %v", err)
	}
	for _, file := range files {
		data, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		d := &monitoring.Dashboard{}
		if err := json.Unmarshal(data, d); err != nil {
			t.Fatalf("%s: %v", file, err)
		}
		all = append(all, d)
	}
	return all
}

// rateInterval is what Grafana would take, or a bit more, for an interval of a second.
const rateInterval = "20s"

// fill puts values in the place of a query's variables, as Grafana does.
func fill(expr string) string {
	values := []string{"$__rate_interval", rateInterval, "$namespace", "default", "$tenant", "busy-0", "$service", ".*", "$datastore", ".*"}
	return strings.NewReplacer(values...).Replace(expr)
}

// ask asks Prometheus what a panel asks: for one moment, or for the time since the installation was started.
func (m *monitored) ask(ctx context.Context, target monitoring.Target) (model.Value, error) {
	expr := fill(target.Expr)
	var value model.Value
	var warnings promv1.Warnings
	var err error
	if target.Instant {
		value, warnings, err = m.Query(ctx, expr, time.Now())
	} else {
		value, warnings, err = m.QueryRange(ctx, expr, promv1.Range{Start: m.since, End: time.Now(), Step: interval})
	}
	if err == nil && len(warnings) > 0 {
		err = fmt.Errorf("warnings: %v", warnings)
	}
	return value, err
}

var errEmpty = errors.New("no number is answered")

// numbers returns an error unless there is a number in what Prometheus answers.
func numbers(value model.Value) error {
	finite := func(v model.SampleValue) bool { return !math.IsNaN(float64(v)) && !math.IsInf(float64(v), 0) }
	switch v := value.(type) {
	case model.Vector:
		for _, s := range v {
			if finite(s.Value) {
				return nil
			}
		}
	case model.Matrix:
		for _, s := range v {
			for _, p := range s.Values {
				if finite(p.Value) {
					return nil
				}
			}
		}
	}
	return errEmpty
}

// TestDashboards asks a real Prometheus, which scrapes a busy installation, each query of each panel of each dashboard: none may fail, and
// none may be answered by nothing.
func TestDashboards(t *testing.T) {
	m := start(t, filepath.Join(monitoringDir(), "rules", "stoker.yaml"), e.NATS.MonitorURL())
	defer busy(t)()
	asked, waiting := 0, map[string]monitoring.Target{}
	for _, d := range dashboards(t) {
		for _, p := range d.Panels {
			for _, target := range p.Targets {
				waiting[d.UID+": "+p.Title+": "+target.Expr] = target
			}
		}
	}
	// All are asked each time: what a panel shows of the last seconds may be over while others are waited for.
	env.Eventually(t, "panels to show something", func() error {
		for panel, target := range waiting {
			value, err := m.ask(t.Context(), target)
			if err != nil {
				t.Fatalf("%s: %v", panel, err)
			}
			if numbers(value) == nil {
				delete(waiting, panel)
				asked++
			}
		}
		if len(waiting) > 0 {
			return fmt.Errorf("nothing of %q", slices.Sorted(maps.Keys(waiting)))
		}
		return nil
	})
	for _, d := range dashboards(t) {
		for _, v := range d.Templating.List {
			if v.Type == "query" {
				m.choices(t, v)
			}
		}
	}
	t.Logf("%d queries", asked)
}

var labelValues = regexp.MustCompile(`^label_values\((.+), (\w+)\)$`)

// choices fails the test unless there are values to choose from for a variable.
func (m *monitored) choices(t *testing.T, v monitoring.Variable) {
	t.Helper()
	query := labelValues.FindStringSubmatch(v.Query)
	if query == nil {
		t.Fatalf("variable %s: %q is no label_values(…)", v.Name, v.Query)
	}
	values, _, err := m.LabelValues(t.Context(), query[2], []string{fill(query[1])}, m.since, time.Now())
	if err != nil || len(values) == 0 {
		t.Errorf("variable %s: %s: %v, %v", v.Name, v.Query, values, err)
	}
}
