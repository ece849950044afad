// Command metrics writes the page of all metrics, docs/metrics.md, from what the services declare. Run it by `make generate`.
package main

import (
	"bytes"
	_ "embed"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"text/template"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/stoker-k8s/stoker/pkg/api/name"
	"github.com/stoker-k8s/stoker/pkg/metric"
	"github.com/stoker-k8s/stoker/pkg/service"
	"github.com/stoker-k8s/stoker/services/capi"
	"github.com/stoker-k8s/stoker/services/certs"
	"github.com/stoker-k8s/stoker/services/datastore"
	"github.com/stoker-k8s/stoker/services/intake"
	"github.com/stoker-k8s/stoker/services/status"
	"github.com/stoker-k8s/stoker/services/tenantaddons"
	"github.com/stoker-k8s/stoker/services/workload"
)

//go:generate go run . ../..

const page = "docs/metrics.md"

//go:embed metrics.md.tmpl
var pageTemplate string

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run(args []string) error {
	if len(args) != 1 {
		return errors.New("usage: metrics ROOT")
	}
	text, err := render()
	if err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(args[0], page), text, 0o644) //nolint:gosec // a public file
}

// every is in the place of a service's name for what all services have.
const every = "every service"

// declared are the metrics that are declared, by service.
func declared() map[string][]metric.Entry {
	all := map[string][]metric.Entry{}
	for s, describe := range map[string]func(own, kamaji prometheus.Registerer){
		every:                    service.DescribeMetrics,
		name.ServiceIntake:       intake.DescribeMetrics,
		name.ServiceCerts:        certs.DescribeMetrics,
		name.ServiceDatastore:    datastore.DescribeMetrics,
		name.ServiceWorkload:     workload.DescribeMetrics,
		name.ServiceStatus:       status.DescribeMetrics,
		name.ServiceCAPI:         capi.DescribeMetrics,
		name.ServiceTenantAddons: tenantaddons.DescribeMetrics,
	} {
		c := &metric.Catalogue{}
		describe(c, c)
		slices.SortFunc(c.Entries, func(a, b metric.Entry) int { return strings.Compare(a.Family.GetName(), b.Family.GetName()) })
		all[s] = c.Entries
	}
	return all
}

// row is a line of a table.
type row struct {
	Name, Type, Help, Labels, Service string
	PerTenant                         bool
}

func rowOf(s string, e metric.Entry) row {
	labels := ""
	for _, l := range e.Labels() {
		labels += ", `" + l + "`"
	}
	return row{
		Name: e.Family.GetName(), Type: strings.ToLower(e.Family.GetType().String()), Help: strings.ReplaceAll(e.Family.GetHelp(), "|", `\|`),
		Labels: strings.TrimPrefix(labels, ", "), Service: s, PerTenant: e.PerTenant,
	}
}

// section is a table of the page.
type section struct {
	Title string
	Rows  []row
}

// handlers are the values of the label handler that a service has.
type handlers struct{ Service, Names string }

// render makes the page.
func render() ([]byte, error) {
	all := declared()
	var data struct {
		Kamaji   []row
		Own      []section
		Handlers []handlers
	}
	for _, s := range append([]string{every}, name.Services()...) {
		own := section{Title: strings.ToUpper(s[:1]) + s[1:]}
		for _, e := range all[s] {
			if r := rowOf(s, e); strings.HasPrefix(r.Name, "kamaji_") {
				data.Kamaji = append(data.Kamaji, r)
			} else {
				own.Rows = append(own.Rows, r)
			}
		}
		if len(own.Rows) > 0 {
			data.Own = append(data.Own, own)
		}
	}
	for _, s := range []string{
		name.ServiceCerts, name.ServiceDatastore, name.ServiceWorkload, name.ServiceAddons, name.ServiceIntake, name.ServiceStatus, name.ServiceCAPI,
		name.ServiceTenantAddons,
	} {
		data.Handlers = append(data.Handlers, handlers{s, "`" + strings.Join(metric.Handlers(s), "`, `") + "`"})
	}
	slices.SortFunc(data.Kamaji, func(a, b row) int { return strings.Compare(a.Name, b.Name) })
	t, err := template.New(page).Parse(pageTemplate)
	if err != nil {
		return nil, err
	}
	var b bytes.Buffer
	err = t.Execute(&b, data)
	return b.Bytes(), err
}
