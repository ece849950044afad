// Package clusterapi measures control planes of Cluster API beside bare tenants: `make bench BENCH=./bench/clusterapi`.
package clusterapi

import (
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"text/tabwriter"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/stoker-k8s/stoker/pkg/api/name"
	"github.com/stoker-k8s/stoker/pkg/api/reason"
	"github.com/stoker-k8s/stoker/pkg/api/v1alpha1"
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

const namespace = "default"

var errNotYet = errors.New("not yet")

// BenchmarkAvailable makes tenants one after the other, bare ones and those of Clusters, in turns: seconds from the write to the conditions that users
// wait for, and what services and Cluster API take of the processor for each. A Cluster is Available once Cluster API has a connection to it, too, which
// it first tries when the infrastructure is there, here at once, and for the second time 30 s later.
func BenchmarkAvailable(b *testing.B) {
	services := e.Services(b)
	services["cluster-api-core"] = e.ClusterAPI(b)
	e.Manifests(b, filepath.Join(env.Root(), "test", "clusterapi", "testdata", "infrastructure"))
	kinds := []struct {
		name string
		make func(b *testing.B, n string)
		r    kube.Resource
		are  []string
	}{
		{"bare tenant", bare, kube.TenantControlPlanes, []string{reason.Ready}},
		{"Cluster", ofCluster, kube.Clusters, []string{"ControlPlaneAvailable", "Available"}},
	}
	const rounds = 5
	seconds, cpu := map[string][]float64{}, map[string]map[string]float64{}
	for b.Loop() {
		for round := range rounds + 1 {
			for i, k := range kinds {
				n := fmt.Sprintf("bench-%d-%d", i, round)
				before, began := used(b, services), time.Now()
				k.make(b, n)
				for _, is := range k.are {
					await(b, k.r, n, is)
					if round > 0 { // what happens once isn't measured
						seconds[is] = append(seconds[is], time.Since(began).Seconds())
					}
				}
				after := used(b, services)
				gone(b, k.r, n)
				if round == 0 {
					continue
				}
				for s := range services {
					if cpu[s] == nil {
						cpu[s] = map[string]float64{}
					}
					cpu[s][k.name] += (after[s] - before[s]) / rounds
				}
			}
		}
	}
	w := tabwriter.NewWriter(os.Stdout, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprint(w, "\n\tmedian s\tmost s\t\n")
	for _, k := range kinds {
		for _, is := range k.are {
			slices.Sort(seconds[is])
			fmt.Fprintf(w, "%s %s\t%.2f\t%.2f\t\n", k.name, is, seconds[is][rounds/2], seconds[is][rounds-1])
		}
	}
	fmt.Fprintf(w, "\nCPU s\t%s\t%s\t\n", kinds[0].name, kinds[1].name)
	for _, s := range append(name.Services(), "cluster-api-core") {
		fmt.Fprintf(w, "%s\t%.3f\t%.3f\t\n", s, cpu[s][kinds[0].name], cpu[s][kinds[1].name])
	}
	if err := w.Flush(); err != nil {
		b.Fatal(err)
	}
}

// used is what each process has used of the processor so far, in seconds.
func used(b *testing.B, processes map[string]*env.Process) map[string]float64 {
	b.Helper()
	all := map[string]float64{}
	for n, p := range processes {
		u, err := p.Usage()
		if err != nil {
			b.Fatal(err)
		}
		all[n] = u.CPU
	}
	return all
}

func bare(b *testing.B, n string) {
	b.Helper()
	apply(b, kube.TenantControlPlanes, n, env.JSON(b, env.Tenant(n, "v1.36.3")))
}

// infrastructures are of a provider of which the benchmark plays the part.
var infrastructures = kube.Resource{
	GroupVersion: schema.GroupVersion{Group: "infrastructure.cluster.x-k8s.io", Version: "v1alpha1"}, Plural: "kubevirtclusters", Kind: "KubevirtCluster", Namespaced: true,
}

// ofCluster makes a Cluster whose infrastructure is there at once, and whose control plane is as a bare tenant.
func ofCluster(b *testing.B, n string) {
	b.Helper()
	apply(b, infrastructures, n, map[string]any{"spec": map[string]any{}})
	provisioned := map[string]any{"status": map[string]any{"initialization": map[string]any{"provisioned": true}}}
	if err := e.Admin.MergePatch(b.Context(), infrastructures, namespace, n, provisioned, nil, "status"); err != nil {
		b.Fatal(err)
	}
	apply(b, kube.KamajiControlPlanes, n, map[string]any{"spec": map[string]any{
		"version": "v1.36.3", "replicas": 1, "addons": map[string]any{"coreDNS": map[string]any{}, "kubeProxy": map[string]any{}},
	}})
	ref := func(r kube.Resource) map[string]any {
		return map[string]any{"apiGroup": r.GroupVersion.Group, "kind": r.Kind, "name": n}
	}
	apply(b, kube.Clusters, n, map[string]any{"spec": map[string]any{
		"controlPlaneRef": ref(kube.KamajiControlPlanes), "infrastructureRef": ref(infrastructures),
	}})
}

func apply(b *testing.B, r kube.Resource, n string, o map[string]any) {
	b.Helper()
	o["apiVersion"], o["kind"] = r.GroupVersion.String(), r.Kind
	o["metadata"] = map[string]any{"namespace": namespace, "name": n}
	body, err := json.Marshal(o)
	if err == nil {
		err = e.Admin.ApplyRaw(b.Context(), r, namespace, n, body, nil)
	}
	if err != nil {
		b.Fatal(err)
	}
}

// await waits until a condition of an object is True.
func await(b *testing.B, r kube.Resource, n, condition string) {
	b.Helper()
	env.Eventually(b, condition+" of "+n, func() error {
		var o struct {
			Status v1alpha1.TenantControlPlaneStatus `json:"status"` // of which all have the conditions
		}
		if err := e.Admin.Get(b.Context(), r, namespace, n, &o); err != nil {
			return err
		}
		if !meta.IsStatusConditionTrue(o.Status.Conditions, condition) {
			return errNotYet
		}
		return nil
	})
}

func gone(b *testing.B, r kube.Resource, n string) {
	b.Helper()
	if _, err := e.Admin.Delete(b.Context(), r, namespace, n, metav1.DeleteOptions{}); err != nil {
		b.Fatal(err)
	}
	env.Eventually(b, "the end of "+n, func() error {
		err := e.Admin.Get(b.Context(), kube.TenantControlPlanes, namespace, n, &metav1.PartialObjectMetadata{})
		if apierrors.IsNotFound(err) {
			return nil
		}
		return errors.Join(errNotYet, err)
	})
}
