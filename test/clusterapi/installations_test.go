package clusterapi

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/stoker-k8s/stoker/pkg/api/controlplane"
	"github.com/stoker-k8s/stoker/pkg/api/name"
	"github.com/stoker-k8s/stoker/pkg/kube"
	"github.com/stoker-k8s/stoker/test/env"
)

// TestSeveralInstallations has the capi of an installation that is limited by a watch filter, and of one that is limited to a namespace,
// beside control planes that are others'. Nothing but capi works on them.
func TestSeveralInstallations(t *testing.T) {
	e.NoServices(t)
	core(t)
	x := e.Elsewhere(t, "colours")
	x.Secret(t, e, namespace, "colours")
	kinds := map[string]string{"": "{}", "-far": "{externalClusterReference: " + x.Reference("colours") + "}"}
	for colour, labels := range map[string]string{"blue": "{cluster.x-k8s.io/watch-filter: blue}", "green": "{cluster.x-k8s.io/watch-filter: green}", "plain": "{}"} {
		for kind, deployment := range kinds {
			put(t, controlPlanes, colour+kind, fmt.Sprintf("{metadata: {labels: %s}, spec: {version: v1.36.3, replicas: 0, deployment: %s}}", labels, deployment))
			put(t, clusters, colour+kind, "spec: {controlPlaneRef: {apiGroup: controlplane.cluster.x-k8s.io, kind: KamajiControlPlane, name: "+colour+kind+"}}")
		}
	}
	t.Setenv("STOKER_FEATURE_GATES", env.ExternalGates)

	t.Run("of another namespace nothing is touched", func(t *testing.T) {
		t.Setenv("STOKER_NAMESPACE", x.Namespace)
		_, tap := e.Tapped(t, name.ServiceCAPI, "a")
		env.Eventually(t, "a look for those of its own", func() error {
			if !slices.ContainsFunc(tap.Messages(0), func(m env.Message) bool {
				return strings.Contains(m.What, "/namespaces/"+x.Namespace+"/kamajicontrolplanes")
			}) {
				return errNotYet
			}
			return nil
		})
		quiet(t, tap)
		if all := writes(tap.Messages(0)); len(all) > 0 {
			t.Errorf("%v", all)
		}
	})
	t.Run("nor what another installation's watch filter selects", func(t *testing.T) {
		t.Setenv("STOKER_WATCH_FILTER", "blue")
		_, tap := e.Tapped(t, name.ServiceCAPI, "a")
		for kind := range kinds {
			awaitControlPlane(t, cluster{controlPlane: "blue" + kind}, "its tenant", func(o *controlplane.KamajiControlPlane) bool {
				return is(o, controlplane.ConditionTenantCreated)
			})
		}
		// What follows from the tenant has the label, too, for Cluster API sees nothing without it.
		o := tenant(t, cluster{controlPlane: "blue"})
		far := remote(t, x, "kcp-"+string(controlPlane(t, cluster{controlPlane: "blue-far"}).UID))
		if o.Labels[name.LabelWatchFilter] != "blue" || far.Labels[name.LabelWatchFilter] != "blue" {
			t.Errorf("%v, %v", o.Labels, far.Labels)
		}
		for _, s := range []*corev1.Secret{
			{ObjectMeta: metav1.ObjectMeta{Name: "blue-admin-kubeconfig"}, Data: map[string][]byte{"admin.conf": []byte("x")}},
			{ObjectMeta: metav1.ObjectMeta{Name: "blue-authority"}, Data: map[string][]byte{"ca.crt": []byte("x"), "ca.key": []byte("x")}},
		} {
			s.TypeMeta, s.Namespace = kube.Secrets.TypeMeta(), namespace
			must(t, e.Admin.Apply(t.Context(), kube.Secrets, s))
			t.Cleanup(func() {
				_, _ = e.Admin.Delete(context.WithoutCancel(t.Context()), kube.Secrets, namespace, s.Name, metav1.DeleteOptions{})
			})
		}
		must(t, e.Admin.ApplyStatus(t.Context(), kube.TenantControlPlanes, &o.ObjectMeta, map[string]any{
			"controlPlaneEndpoint": "192.0.2.1:6443", "kubeconfig": map[string]any{"admin": map[string]any{"secretName": "blue-admin-kubeconfig"}},
			"certificates": map[string]any{"ca": map[string]any{"secretName": "blue-authority"}},
		}))
		for _, n := range []string{"blue-kubeconfig", "blue-ca"} {
			env.Eventually(t, n, func() error { return e.Admin.Get(t.Context(), kube.Secrets, namespace, n, &object{}) })
			if s := secret(t, n); s.Labels[name.LabelWatchFilter] != "blue" {
				t.Errorf("%s: %v", n, s.Labels)
			}
		}
		quiet(t, tap)
		for _, m := range tap.Messages(0) {
			for _, n := range []string{"green", "green-far", "plain", "plain-far"} {
				if m.Write && env.About(n)(m) {
					t.Errorf("%s", m.What)
				}
			}
		}
	})
	t.Run("one without limits ends all", func(t *testing.T) {
		e.Tapped(t, name.ServiceCAPI, "a")
		for _, colour := range []string{"blue", "green", "plain"} {
			for kind := range kinds {
				_, err := e.Admin.Delete(t.Context(), clusters, namespace, colour+kind, metav1.DeleteOptions{})
				must(t, err)
			}
		}
		for _, colour := range []string{"blue", "green", "plain"} {
			for kind := range kinds {
				awaitGone(t, controlPlanes, namespace, colour+kind)
			}
		}
	})
}
