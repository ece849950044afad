package clusterapi

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"testing"
	"text/tabwriter"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/stoker-k8s/stoker/local/images"
	"github.com/stoker-k8s/stoker/pkg/api/controlplane"
	"github.com/stoker-k8s/stoker/pkg/api/name"
	"github.com/stoker-k8s/stoker/pkg/kube"
	"github.com/stoker-k8s/stoker/test/env"
)

// BenchmarkExternal has 500 control planes in 10 other clusters, on which nothing but capi works: what they cost it, what is asked of the
// clusters at rest, and how soon a change there is in the control plane.
func BenchmarkExternal(b *testing.B) {
	const clusters, each, changes = 10, 50, 20
	b.Setenv("STOKER_FEATURE_GATES", env.ExternalGates)
	e.NoServices(b)
	e.Manifests(b, filepath.Join(env.Root(), "deployments", "cluster-api", "crds"),
		filepath.Join(env.Built(b, images.ClusterAPI), images.Manifests, "core", "config", "crd", "bases"))
	capi := e.Service(b, name.ServiceCAPI, "a")
	var all []env.Elsewhere
	for i := range clusters {
		x := e.Elsewhere(b, fmt.Sprintf("cluster-%d", i))
		x.Secret(b, e, namespace, x.Namespace)
		all = append(all, x)
	}
	w := tabwriter.NewWriter(os.Stdout, 0, 0, 2, ' ', tabwriter.AlignRight)
	for b.Loop() {
		before, began := usage(b, capi), time.Now()
		for j := range each {
			for i := range all {
				n := fmt.Sprintf("far-%d-%d", i, j)
				applyLabelled(b, n, all[i])
			}
		}
		for j := range each {
			for i := range all {
				awaitPlaced(b, fmt.Sprintf("far-%d-%d", i, j))
			}
		}
		took, after := time.Since(began), usage(b, capi)
		connections := 0
		for _, x := range all {
			connections += x.Link.Taken()
		}
		asked := requests(b, capi, "")
		time.Sleep(30 * time.Second) //nolint:forbidigo // nothing happens meanwhile
		rest, quiet := requests(b, capi, "")-asked, usage(b, capi)
		var noticed []float64
		for i := range changes {
			noticed = append(noticed, notice(b, all[i%clusters], fmt.Sprintf("far-%d-%d", i%clusters, i), i).Seconds()*1000)
		}
		slices.Sort(noticed)
		fmt.Fprintf(w, "\n%d control planes in %d clusters\t%.1f s\t\n", clusters*each, clusters, took.Seconds())
		fmt.Fprintf(w, "CPU of capi\t%.2f s\t\nmemory of capi, more than before\t%.1f MB\t\n", after.CPU-before.CPU, after.MB-before.MB)
		fmt.Fprintf(w, "connections\t%d\t\nwatches\t%d\t\nrequests\t%d\t\n", connections, requests(b, capi, "watch"), asked)
		fmt.Fprintf(w, "requests in 30 s of rest\t%d\t\nCPU of capi in that time\t%.3f s\t\n", rest, quiet.CPU-after.CPU)
		fmt.Fprintf(w, "a change there is here, median of %d\t%.0f ms\t\nmost\t%.0f ms\t\n", changes, noticed[changes/2], noticed[changes-1])
		b.ReportMetric(after.MB-before.MB, "MB-more")
	}
	if err := w.Flush(); err != nil {
		b.Fatal(err)
	}
}

func usage(b *testing.B, p *env.Process) env.Usage {
	b.Helper()
	u, err := p.Usage()
	if err != nil {
		b.Fatal(err)
	}
	return u
}

// applyLabelled makes a control plane in another cluster, and its Cluster, which nobody of Cluster API works on.
func applyLabelled(b *testing.B, n string, x env.Elsewhere) {
	b.Helper()
	apply(b, kube.Clusters, n, map[string]any{"spec": map[string]any{"controlPlaneRef": map[string]any{
		"apiGroup": kube.KamajiControlPlanes.GroupVersion.Group, "kind": kube.KamajiControlPlanes.Kind, "name": n,
	}}})
	o := &controlplane.KamajiControlPlane{
		TypeMeta: kube.KamajiControlPlanes.TypeMeta(), ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: n, Labels: map[string]string{name.LabelClusterName: n}},
	}
	replicas := int32(0)
	o.Spec.Version, o.Spec.Replicas = "v1.36.3", &replicas
	o.Spec.Deployment.ExternalClusterReference = &controlplane.ExternalClusterReference{
		KubeconfigSecretName: x.Namespace, KubeconfigSecretKey: "value", DeploymentNamespace: x.Namespace,
	}
	if err := e.Admin.Create(b.Context(), kube.KamajiControlPlanes, o); err != nil {
		b.Fatal(err)
	}
}

func awaitPlaced(b *testing.B, n string) {
	b.Helper()
	env.Eventually(b, "the tenant of "+n, func() error {
		if o := controlPlane(b, n); !meta.IsStatusConditionTrue(o.Status.Conditions, controlplane.ConditionTenantCreated) {
			return fmt.Errorf("%+v", o.Status.Conditions)
		}
		return nil
	})
}

func controlPlane(b *testing.B, n string) *controlplane.KamajiControlPlane {
	b.Helper()
	var o controlplane.KamajiControlPlane
	if err := e.Admin.Get(b.Context(), kube.KamajiControlPlanes, namespace, n, &o); err != nil {
		b.Fatal(err)
	}
	return &o
}

// notice gives a tenant an endpoint, and returns how long it takes until its control plane has it.
func notice(b *testing.B, x env.Elsewhere, n string, i int) time.Duration {
	b.Helper()
	host := fmt.Sprintf("192.0.2.%d", i)
	at := metav1.ObjectMeta{Namespace: x.Namespace, Name: "kcp-" + string(controlPlane(b, n).UID)}
	began := time.Now()
	if err := e.Admin.ApplyStatus(b.Context(), kube.TenantControlPlanes, &at, map[string]any{"controlPlaneEndpoint": host + ":6443"}); err != nil {
		b.Fatal(err)
	}
	for controlPlane(b, n).Spec.ControlPlaneEndpoint.Host != host {
		time.Sleep(time.Millisecond) //nolint:forbidigo // between two looks
	}
	return time.Since(began)
}

// requests counts those of a verb, or of all, that other clusters answered.
func requests(b *testing.B, p *env.Process, verb string) (n int) {
	b.Helper()
	text, err := p.Metrics(b.Context())
	if err != nil {
		b.Fatal(err)
	}
	for _, m := range regexp.MustCompile(`stoker_api_requests_total\{cluster="external",code="[1-9][0-9]*",[^}]*verb="(\w+)"\} (\d+)`).FindAllStringSubmatch(text, -1) {
		if one, err := strconv.Atoi(m[2]); err == nil && (verb == "" || verb == m[1]) {
			n += one
		}
	}
	return n
}
