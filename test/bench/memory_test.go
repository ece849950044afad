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

// remembered is how many tenants BenchmarkMemory has; fewer is how many it has first: a service that has had tenants keeps some memory for good,
// so that a further tenant's is the difference between these.
const fewer, remembered = 5, 20

// BenchmarkMemory is the anonymous memory of each service beside no tenants, beside a few and many that are at rest, and beside many that are at
// rest and have konnectivity.
func BenchmarkMemory(b *testing.B) {
	procs := e.Services(b)
	sleep(b.Context(), time.Minute) // they have started
	for b.Loop() {
		tenants := make([]*v1alpha1.TenantControlPlane, remembered)
		have := []usage{measure(b, procs)}
		for i := range tenants {
			tenants[i] = env.Tenant(fmt.Sprintf("remembered-%d", i), "v1.36.3")
		}
		for _, step := range []struct {
			tenants      []*v1alpha1.TenantControlPlane
			konnectivity *v1alpha1.KonnectivitySpec
		}{{tenants: tenants[:fewer]}, {tenants: tenants}, {tenants, &v1alpha1.KonnectivitySpec{}}} {
			for _, o := range step.tenants {
				o.Spec.Addons.Konnectivity = step.konnectivity
				e.Apply(b, o)
			}
			for _, o := range step.tenants {
				e.Ready(b, events.Tenant(o.Namespace, o.Name))
			}
			sleep(b.Context(), 30*time.Second) // second looks are over
			have = append(have, measure(b, procs))
		}
		w := tabwriter.NewWriter(os.Stdout, 0, 0, 2, ' ', tabwriter.AlignRight)
		fmt.Fprintf(w, "\nMB\tno tenants\t%d tenants\t%d tenants\ta further tenant\t%[2]d with konnectivity\t\n", fewer, remembered)
		for _, s := range name.Services() {
			few, many := have[1][s].MB, have[2][s].MB
			fmt.Fprintf(w, "%s\t%.1f\t%.1f\t%.1f\t%.2f\t%.1f\t\n", s, have[0][s].MB, few, many, (many-few)/(remembered-fewer), have[3][s].MB)
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
