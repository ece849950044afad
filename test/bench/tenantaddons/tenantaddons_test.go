// Package tenantaddons measures what a TenantAddon costs in many tenants.
package tenantaddons

import (
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"regexp"
	"strconv"
	"testing"
	"text/tabwriter"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"

	"github.com/stoker-k8s/stoker/pkg/api/name"
	"github.com/stoker-k8s/stoker/pkg/api/tenantaddon"
	"github.com/stoker-k8s/stoker/pkg/api/v1alpha1"
	"github.com/stoker-k8s/stoker/pkg/events"
	"github.com/stoker-k8s/stoker/pkg/kube"
	"github.com/stoker-k8s/stoker/test/env"
)

var e *env.Env

func TestMain(m *testing.M) {
	flag.Parse()
	if flag.Lookup("test.bench").Value.String() == "" {
		os.Exit(m.Run()) // no benchmark is asked for, so nothing need run for it
	}
	env.Main(m, func(started *env.Env) { e = started })
}

const (
	// variable says how many tenants there are; 20 if it isn't set. Each takes some 300 MB, and two cores bear 40 of them, if GOMAXPROCS is 1.
	variable = "STOKER_BENCH_TENANTS"
	rest     = 30 * time.Second
	// atOnce is how many tenants are started side by side: with more, pods on two cores don't answer their probes in time and are started anew.
	atOnce = 3
)

// idle is a tenant that takes as little as it can while nobody uses it: no pod waits for a node, leaders are elected once, the controller manager has
// the controllers alone that the objects need, and probes are rare and patient.
func idle(n string) *v1alpha1.TenantControlPlane {
	o := env.Tenant(n, "v1.36.3")
	o.Spec.Addons = v1alpha1.AddonsSpec{}
	patient := &v1alpha1.ProbeSpec{PeriodSeconds: new(int32(20)), TimeoutSeconds: new(int32(20)), FailureThreshold: new(int32(10))}
	o.Spec.ControlPlane.Deployment.ExtraArgs = &v1alpha1.ControlPlaneExtraArgs{
		ControllerManager: []string{"--leader-elect=false", "--controllers=root-ca-certificate-publisher-controller,deployment-controller,replicaset-controller"},
		Scheduler:         []string{"--leader-elect-retry-period=1h", "--leader-elect-renew-deadline=2h", "--leader-elect-lease-duration=3h"},
	}
	o.Spec.ControlPlane.Deployment.Probes = &v1alpha1.ControlPlaneProbes{Liveness: patient, Readiness: patient}
	return o
}

// BenchmarkTenantAddon has a TenantAddon of five objects installed in many tenants, changed, and removed.
func BenchmarkTenantAddon(b *testing.B) {
	count := 20
	if s := os.Getenv(variable); s != "" {
		var err error
		if count, err = strconv.Atoi(s); err != nil {
			b.Fatalf("%s: %v", variable, err)
		}
	}
	e.Services(b)
	p := e.Service(b, name.ServiceTenantAddons, "a")
	for from := 0; from < count; from += atOnce {
		for i := from; i < min(from+atOnce, count); i++ {
			e.Apply(b, idle(fmt.Sprintf("t%d", i)))
		}
		for i := from; i < min(from+atOnce, count); i++ {
			e.Ready(b, events.Tenant("default", fmt.Sprintf("t%d", i)))
		}
	}
	w := tabwriter.NewWriter(os.Stdout, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintf(w, "\n%d tenants\tseconds\tCPU\tMB more\trequests to each tenant\tto the management cluster, each\t\n", count)
	line := func(what string, do func()) {
		m := measure(b, p)
		do()
		m.row(w, what, count)
	}
	for b.Loop() {
		line("installed in all", func() { put(b, "first"); ready(b, count) })
		line("30 s of rest", func() { time.Sleep(rest) }) //nolint:forbidigo // nothing happens meanwhile
		line("changed in all", func() { put(b, "second"); ready(b, count) })
		line("removed from all", func() { remove(b) })
	}
	if err := w.Flush(); err != nil {
		b.Fatal(err)
	}
}

// measurement is what there was at its beginning.
type measurement struct {
	b     *testing.B
	p     *env.Process
	began time.Time
	used  env.Usage
	asked map[string]int
}

func measure(b *testing.B, p *env.Process) measurement {
	b.Helper()
	used, err := p.Usage()
	if err != nil {
		b.Fatal(err)
	}
	return measurement{b, p, time.Now(), used, requests(b, p)}
}

// row writes what there was since.
func (m measurement) row(w *tabwriter.Writer, what string, count int) {
	now := measure(m.b, m.p)
	each := func(cluster string) float64 { return float64(now.asked[cluster]-m.asked[cluster]) / float64(count) }
	fmt.Fprintf(w, "%s\t%.1f\t%.2f\t%.1f\t%.1f\t%.1f\t\n", what, now.began.Sub(m.began).Seconds(), now.used.CPU-m.used.CPU, now.used.MB-m.used.MB,
		each("tenant"), each("management"))
}

var counted = regexp.MustCompile(`stoker_api_requests_total\{cluster="(\w+)",[^}]*\} (\d+)`)

// requests counts those of the service, by the cluster that was asked.
func requests(b *testing.B, p *env.Process) map[string]int {
	b.Helper()
	text, err := p.Metrics(b.Context())
	if err != nil {
		b.Fatal(err)
	}
	n := map[string]int{}
	for _, m := range counted.FindAllStringSubmatch(text, -1) {
		if one, err := strconv.Atoi(m[2]); err == nil {
			n[m[1]] += one
		}
	}
	return n
}

const objects = `
apiVersion: v1
kind: ServiceAccount
metadata: {name: agent}
---
apiVersion: v1
kind: ConfigMap
metadata: {name: agent}
data: {word: %s}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: agent}
rules: [{apiGroups: [""], resources: [nodes], verbs: [get, list, watch]}]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: agent}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: agent}
subjects: [{kind: ServiceAccount, name: agent, namespace: kube-system}]
---
apiVersion: apps/v1
kind: Deployment
metadata: {name: agent}
spec:
  replicas: 0
  selector: {matchLabels: {app: agent}}
  template:
    metadata: {labels: {app: agent}}
    spec: {serviceAccountName: agent, containers: [{name: agent, image: example.com/agent}]}
`

func put(b *testing.B, word string) {
	b.Helper()
	body, err := json.Marshal(map[string]any{
		"apiVersion": tenantaddon.GroupVersion.String(), "kind": kube.TenantAddons.Kind, "metadata": map[string]any{"name": "agent", "namespace": "default"},
		"spec": map[string]any{"selector": map[string]any{}, "manifests": map[string]any{"inline": fmt.Sprintf(objects, word)}},
	})
	if err == nil {
		err = e.Admin.ApplyRaw(b.Context(), kube.TenantAddons, "default", "agent", body, nil)
	}
	if err != nil {
		b.Fatal(err)
	}
}

// ready waits until all tenants have it.
func ready(b *testing.B, count int) {
	b.Helper()
	env.Eventually(b, "the TenantAddon to be ready in all tenants", func() error {
		var o tenantaddon.TenantAddon
		e.Get(b, kube.TenantAddons, "default", "agent", &o)
		if o.Status.ObservedGeneration != o.Generation || int(o.Status.Tenants.Ready) != count ||
			!meta.IsStatusConditionTrue(o.Status.Conditions, tenantaddon.ConditionReady) {
			return fmt.Errorf("%+v", o.Status)
		}
		return nil
	})
}

func remove(b *testing.B) {
	b.Helper()
	e.Kubectl(b, e.Local.Kubeconfig("admin"), "delete", "tenantaddon", "agent", "--timeout=5m")
}
