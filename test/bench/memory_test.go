package bench

import (
	"fmt"
	"os"
	"testing"
	"text/tabwriter"
	"time"

	"github.com/stoker-k8s/stoker/pkg/api/name"
	"github.com/stoker-k8s/stoker/pkg/api/v1alpha1"
	"github.com/stoker-k8s/stoker/pkg/events"
	"github.com/stoker-k8s/stoker/test/env"
)

// remembered is how many tenants BenchmarkMemory has.
const remembered = 10

// BenchmarkMemory is the anonymous memory of each service beside no tenants, beside ten that are at rest, and beside ten that are at rest
// and have konnectivity.
func BenchmarkMemory(b *testing.B) {
	procs := e.Services(b)
	sleep(b.Context(), time.Minute) // they have started
	for b.Loop() {
		tenants := make([]*v1alpha1.TenantControlPlane, remembered)
		have := []usage{measure(b, procs)}
		for i := range tenants {
			tenants[i] = env.Tenant(fmt.Sprintf("remembered-%d", i), "v1.36.3")
		}
		for _, konnectivity := range []*v1alpha1.KonnectivitySpec{nil, {}} {
			for _, o := range tenants {
				o.Spec.Addons.Konnectivity = konnectivity
				e.Apply(b, o)
			}
			for _, o := range tenants {
				e.Ready(b, events.Tenant(o.Namespace, o.Name))
			}
			sleep(b.Context(), 30*time.Second) // second looks are over
			have = append(have, measure(b, procs))
		}
		w := tabwriter.NewWriter(os.Stdout, 0, 0, 2, ' ', tabwriter.AlignRight)
		fmt.Fprintf(w, "\nMB\tno tenants\t%d tenants\ta tenant\t%[1]d with konnectivity\ta tenant\t\n", remembered)
		for _, s := range name.Services() {
			none, plain, tunnel := have[0][s].MB, have[1][s].MB, have[2][s].MB
			fmt.Fprintf(w, "%s\t%.1f\t%.1f\t%.2f\t%.1f\t%.2f\t\n", s, none, plain, (plain-none)/remembered, tunnel, (tunnel-none)/remembered)
		}
		if err := w.Flush(); err != nil {
			b.Fatal(err)
		}
		for _, o := range tenants {
			e.Delete(b, events.Tenant(o.Namespace, o.Name))
		}
		for _, o := range tenants {
			e.Gone(b, events.Tenant(o.Namespace, o.Name))
		}
	}
}
