package clusterapi

import (
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/stoker-k8s/stoker/pkg/api/controlplane"
	"github.com/stoker-k8s/stoker/pkg/api/name"
	"github.com/stoker-k8s/stoker/pkg/api/v1alpha1"
	"github.com/stoker-k8s/stoker/pkg/kube"
	"github.com/stoker-k8s/stoker/test/env"
)

// TestExternalClusters has a hundred control planes in ten other clusters, with -short eighteen in six, of which one is a black hole. Nothing but
// capi works on them.
func TestExternalClusters(t *testing.T) {
	whole := t // what is started in a part of the test goes on after it
	t.Setenv("STOKER_FEATURE_GATES", env.ExternalGates)
	e.NoServices(t)
	core(t)
	capi, _ := e.Tapped(t, name.ServiceCAPI, "a")
	clusters, each := 10, 10
	if testing.Short() {
		clusters, each = 6, 3
	}
	var all []env.Elsewhere
	for i := range clusters {
		x := e.Elsewhere(t, fmt.Sprintf("cluster-%d", i))
		x.Secret(t, e, namespace, x.Namespace)
		all = append(all, x)
	}
	before := settled(t, capi)
	all[0].Link.Hole(true)
	of := func(i, j int) cluster { n := fmt.Sprintf("far-%d-%d", i, j); return cluster{name: n, controlPlane: n} }
	for j := range each {
		for i, x := range all {
			place(t, of(i, j).name, x.Reference(x.Namespace), 0)
		}
	}
	found := func(status metav1.ConditionStatus) func(o *controlplane.KamajiControlPlane) bool {
		return func(o *controlplane.KamajiControlPlane) bool {
			is := meta.FindStatusCondition(o.Status.Conditions, controlplane.ConditionExternalClientFound)
			return is != nil && is.Status == status
		}
	}
	for j := range each {
		awaitControlPlane(t, of(0, j), "the black hole", found(metav1.ConditionFalse))
		for i := 1; i < clusters; i++ {
			awaitControlPlane(t, of(i, j), "the tenant", func(o *controlplane.KamajiControlPlane) bool { return is(o, controlplane.ConditionTenantCreated) })
		}
	}

	t.Run("each cluster has one connection", func(t *testing.T) {
		for _, x := range all[1:] {
			env.Eventually(t, "one connection to "+x.Namespace, func() error { // one that broke on a busy machine is made again
				if n := x.Link.Open(); n != 1 {
					return fmt.Errorf("%d are open, %d were made", n, x.Link.Taken())
				}
				return nil
			})
		}
	})
	t.Run("it is measured which of them answer", func(t *testing.T) {
		text, err := capi.Metrics(t.Context())
		must(t, err)
		for i, x := range all {
			for _, series := range []string{
				fmt.Sprintf(`stoker_capi_external_cluster_up{key="value",secret="default/%s",service="capi"} %d`, x.Namespace, min(i, 1)),
				fmt.Sprintf(`stoker_capi_external_cluster_control_planes{key="value",secret="default/%s",service="capi"} %d`, x.Namespace, each),
			} {
				if !strings.Contains(text, series+"\n") {
					t.Errorf("no %s", series)
				}
			}
		}
	})
	t.Run("at rest nothing is asked of them", func(t *testing.T) {
		// The black hole is tried again and again, without an answer, which doesn't count.
		asked := func() (requests, connections int) {
			for _, x := range all[1:] {
				connections += x.Link.Taken()
			}
			return external(t, capi), connections
		}
		requests, connections := asked()
		for deadline := time.Now().Add(2 * time.Minute); ; {
			time.Sleep(quietFor) //nolint:forbidigo // nothing may happen meanwhile
			r, c := asked()
			if r == requests && c == connections {
				return
			}
			if time.Now().After(deadline) {
				t.Fatalf("%d requests and %d connections in %s", r-requests, c-connections, quietFor)
			}
			requests, connections = r, c
		}
	})
	t.Run("what changes there is noticed", func(t *testing.T) { noticed(t, all[3], of(3, 0), "192.0.2.3") })
	t.Run("a kubeconfig that changes is followed", func(t *testing.T) {
		x := all[4]
		token := strings.TrimSpace(e.Kubectl(t, e.Local.Kubeconfig("admin"), "create", "token", "placer", "-n", x.Namespace))
		taken := x.Link.Taken()
		x.Kubeconfig = regexp.MustCompile(`token: .*`).ReplaceAll(x.Kubeconfig, []byte("token: "+token))
		x.Secret(t, e, namespace, x.Namespace)
		env.Eventually(t, "another connection", func() error {
			if x.Link.Taken() == taken {
				return errNotYet
			}
			return nil
		})
		noticed(t, x, of(4, 0), "192.0.2.4")
	})
	t.Run("the black hole is used once it is none", func(t *testing.T) {
		all[0].Link.Hole(false)
		for j := range each {
			awaitControlPlane(t, of(0, j), "the tenant", func(o *controlplane.KamajiControlPlane) bool { return is(o, controlplane.ConditionTenantCreated) })
		}
		noticed(t, all[0], of(0, 0), "192.0.2.10")
	})
	t.Run("another replica takes its part, and all of it once the first is killed", func(t *testing.T) {
		b, _ := e.Tapped(whole, name.ServiceCAPI, "b")
		env.Eventually(t, "its part", func() error {
			if len(b.Held(t)) == 0 {
				return errNotYet
			}
			return nil
		})
		for i := 5; i < clusters; i++ {
			noticed(t, all[i], of(i, 1), fmt.Sprintf("192.0.2.%d", 20+i))
		}
		capi.Kill()
		capi = b
		for i := 5; i < clusters; i++ {
			noticed(t, all[i], of(i, 1), fmt.Sprintf("192.0.2.%d", 30+i))
		}
		var tenants v1alpha1.TenantControlPlaneList
		must(t, e.Admin.List(t.Context(), kube.TenantControlPlanes, "", "", &tenants))
		if len(tenants.Items) != clusters*each {
			t.Errorf("%d tenants", len(tenants.Items))
		}
	})
	t.Run("clusters end with their last control plane", func(t *testing.T) {
		for j := range each {
			for i := range all {
				_, err := e.Admin.Delete(t.Context(), kube.Clusters, namespace, of(i, j).name, metav1.DeleteOptions{})
				must(t, err)
			}
		}
		for j := range each {
			for i := range all {
				awaitGone(t, controlPlanes, namespace, of(i, j).name)
			}
		}
		env.Eventually(t, "no cluster", func() error {
			text, err := capi.Metrics(t.Context())
			if err != nil || strings.Contains(text, "stoker_capi_external_cluster_up{") {
				return fmt.Errorf("%w, %s", err, text)
			}
			return nil
		})
		// A cluster has several goroutines while it is there.
		env.Eventually(t, "the end of what it was followed by", func() error {
			if now := goroutines(t, capi); now > before+clusters {
				return fmt.Errorf("%d goroutines, not %d", now, before)
			}
			return nil
		})
	})
}

// noticed gives a control plane's tenant an endpoint, as whoever works on it there would, and waits until the control plane has it.
func noticed(t *testing.T, x env.Elsewhere, c cluster, host string) {
	t.Helper()
	tenant := remote(t, x, "kcp-"+string(controlPlane(t, c).UID))
	must(t, e.Admin.ApplyStatus(t.Context(), kube.TenantControlPlanes, &tenant.ObjectMeta, map[string]any{"controlPlaneEndpoint": host + ":6443"}))
	awaitControlPlane(t, c, "the endpoint", func(o *controlplane.KamajiControlPlane) bool {
		return o.Spec.ControlPlaneEndpoint == controlplane.APIEndpoint{Host: host, Port: 6443}
	})
}

// goroutines is how many a process has.
func goroutines(t *testing.T, p *env.Process) int {
	t.Helper()
	text, err := p.Metrics(t.Context())
	must(t, err)
	n, err := strconv.Atoi(regexp.MustCompile(`(?m)^go_goroutines (\d+)$`).FindStringSubmatch(text)[1])
	must(t, err)
	return n
}

// settled is how many goroutines a process has that holds all partitions, once ten looks in a row find about the same number.
func settled(t *testing.T, p *env.Process) (n int) {
	t.Helper()
	const looks = 10
	alike := 0
	env.Eventually(t, "all its goroutines", func() error {
		was := n
		n = goroutines(t, p)
		if held := len(p.Held(t)); held < name.Partitions || n > was+2 || n < was-2 {
			alike = 0
			return fmt.Errorf("%d partitions, %d goroutines, and %d before", held, n, was)
		}
		if alike++; alike < looks {
			return errNotYet
		}
		return nil
	})
	return n
}

// external is how many requests to other clusters were answered.
func external(t *testing.T, p *env.Process) (n int) {
	t.Helper()
	text, err := p.Metrics(t.Context())
	must(t, err)
	for _, m := range regexp.MustCompile(`stoker_api_requests_total\{cluster="external",code="[1-9][0-9]*",[^}]*\} (\d+)`).FindAllStringSubmatch(text, -1) {
		one, err := strconv.Atoi(m[1])
		must(t, err)
		n += one
	}
	return n
}
