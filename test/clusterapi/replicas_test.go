package clusterapi

import (
	"fmt"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/stoker-k8s/stoker/pkg/api/controlplane"
	"github.com/stoker-k8s/stoker/pkg/api/name"
	"github.com/stoker-k8s/stoker/pkg/api/v1alpha1"
	"github.com/stoker-k8s/stoker/pkg/kube"
	"github.com/stoker-k8s/stoker/test/env"
)

// TestTwoReplicas has two replicas of capi share control planes, each of which one works on, until one is killed. Nothing but capi works on their
// tenants.
func TestTwoReplicas(t *testing.T) {
	e.NoServices(t)
	core(t)
	a, ofA := e.Tapped(t, name.ServiceCAPI, "a")
	b, ofB := e.Tapped(t, name.ServiceCAPI, "b")
	env.Eventually(t, "a part for each", func() error {
		if ofA, ofB := len(a.Held(t)), len(b.Held(t)); ofA == 0 || ofB == 0 || ofA+ofB != name.Partitions {
			return fmt.Errorf("%d and %d partitions", ofA, ofB)
		}
		return nil
	})
	var all []cluster
	for i := range 12 {
		c := cluster{name: fmt.Sprintf("shared-%d", i), controlPlane: fmt.Sprintf("shared-%d", i)}
		put(t, controlPlanes, c.controlPlane, "spec: {version: v1.36.3, replicas: 0}")
		put(t, clusters, c.name, "spec: {controlPlaneRef: {apiGroup: controlplane.cluster.x-k8s.io, kind: KamajiControlPlane, name: "+c.controlPlane+"}}")
		all = append(all, c)
	}
	for _, c := range all {
		awaitControlPlane(t, c, "its tenant", func(o *controlplane.KamajiControlPlane) bool { return is(o, controlplane.ConditionTenantCreated) })
	}
	quiet(t, ofA, ofB)
	byA, byB := 0, 0
	for _, c := range all {
		wroteA, wroteB := len(env.Steps(ofA.Messages(0), c.name)), len(env.Steps(ofB.Messages(0), c.name))
		switch {
		case wroteA > 0 && wroteB > 0:
			t.Errorf("both work on %s: %d and %d writes", c.name, wroteA, wroteB)
		case wroteA > 0:
			byA++
		case wroteB > 0:
			byB++
		}
	}
	if byA == 0 || byB == 0 || byA+byB != len(all) {
		t.Errorf("%d and %d of %d", byA, byB, len(all))
	}

	ask := func(tier string) {
		for _, c := range all {
			change(t, controlPlanes, c.controlPlane, `{"metadata":{"labels":{"tier":"`+tier+`"}}}`)
		}
	}
	ask("gold")
	a.Kill()
	ask("platinum")
	for _, c := range all {
		awaitTenant(t, c, "what was asked for after one was killed", func(o *v1alpha1.TenantControlPlane) bool { return o.Labels["tier"] == "platinum" })
	}
	quiet(t, ofB)
	a.Restart(t)
	for _, c := range all {
		_, err := e.Admin.Delete(t.Context(), clusters, namespace, c.name, metav1.DeleteOptions{})
		must(t, err)
	}
	for _, c := range all {
		awaitGone(t, controlPlanes, namespace, c.controlPlane)
		awaitGone(t, kube.TenantControlPlanes, namespace, c.controlPlane)
	}
}
