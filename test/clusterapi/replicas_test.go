package clusterapi

import (
	"fmt"
	"slices"
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
	var heldByA, heldByB []int
	env.Eventually(t, "a part for each", func() error {
		heldByA, heldByB = a.Held(t), b.Held(t)
		if ofA, ofB := len(heldByA), len(heldByB); ofA == 0 || ofB == 0 || ofA+ofB != name.Partitions {
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
	ask := func(tier string) {
		for _, c := range all {
			change(t, controlPlanes, c.controlPlane, `{"metadata":{"labels":{"tier":"`+tier+`"}}}`)
		}
	}
	have := func(tier string) {
		for _, c := range all {
			awaitTenant(t, c, "the tier "+tier, func(o *v1alpha1.TenantControlPlane) bool { return o.Labels["tier"] == tier })
		}
	}
	ask("bronze") // is done after what their creation took
	have("bronze")
	// On a busy machine partitions move, and both replicas work on a cluster: then another change shows it.
	for fromA, fromB, round := 0, 0, 0; ; round++ {
		wroteA, wroteB := ofA.Messages(fromA), ofB.Messages(fromB)
		if slices.Equal(a.Held(t), heldByA) && slices.Equal(b.Held(t), heldByB) {
			shared(t, all, wroteA, wroteB)
			break
		}
		heldByA, heldByB = a.Held(t), b.Held(t)
		fromA, fromB = len(ofA.Messages(0)), len(ofB.Messages(0))
		tier := fmt.Sprint("round-", round)
		ask(tier)
		have(tier)
	}

	ask("gold")
	a.Kill()
	ask("platinum")
	have("platinum")
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

// shared checks that one replica worked on each control plane, and each replica on some.
func shared(t *testing.T, all []cluster, byA, byB []env.Message) {
	t.Helper()
	ofA, ofB := 0, 0
	for _, c := range all {
		wroteA, wroteB := len(env.Steps(byA, c.name)), len(env.Steps(byB, c.name))
		switch {
		case wroteA > 0 && wroteB > 0:
			t.Errorf("both work on %s: %d and %d writes", c.name, wroteA, wroteB)
		case wroteA > 0:
			ofA++
		case wroteB > 0:
			ofB++
		}
	}
	if ofA == 0 || ofB == 0 || ofA+ofB != len(all) {
		t.Errorf("%d and %d of %d", ofA, ofB, len(all))
	}
}
