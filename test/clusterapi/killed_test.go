package clusterapi

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/stoker-k8s/stoker/pkg/api/event"
	"github.com/stoker-k8s/stoker/pkg/api/name"
	"github.com/stoker-k8s/stoker/test/env"
)

// TestKilledAtEachStep kills capi (SIGKILL) before and after each write that it makes for a Cluster, to the API server and to NATS: those that a tap on
// its connections saw in the life of a Cluster that was left alone.
func TestKilledAtEachStep(t *testing.T) {
	for _, service := range name.Services() {
		if service != name.ServiceCAPI {
			e.Service(t, service, "a")
		}
	}
	p, tap := e.Tapped(t, name.ServiceCAPI, "a")
	core(t)
	nobody := named("kill-nobody")
	nobody.make(t, "v1.36.3")
	nobody.available(t, "v1.36.3", 1)
	quiet(t, tap)
	want := picture(t, nobody)
	messages := tap.Messages(0)
	made := env.Steps(messages, nobody.name)
	nobody.gone(t)
	removed := env.Steps(tap.Messages(len(messages)), nobody.name)
	t.Logf("made by %v, removed by %v", made, removed)
	if len(made) < 8 || len(removed) < 2 {
		t.Fatal("the tap saw too little")
	}
	told := name.ServiceCAPI + "." + event.Initialized // which is the last
	for i, s := range made {
		for _, after := range []bool{true, false} {
			t.Run(fmt.Sprintf("killed %s %s", when(after), s), func(t *testing.T) {
				if !after || s.Nth > 1 || !strings.HasPrefix(s.What, "PATCH") || !strings.Contains(s.What, "tenantcontrolplanes") {
					env.Long(t, "one write of the creation is run: every write is followed by the same recovery, another turn that must be harmless")
				}
				c := named(fmt.Sprintf("kill-%d-%s", i, when(after)))
				s.Kill(t, p, after, c.name, func() { c.make(t, "v1.36.3") }, func() bool { return slices.Contains(e.Facts(t, c.key()), told) })
				c.available(t, "v1.36.3", 1)
				quiet(t, tap)
				if got := picture(t, c); !maps.Equal(got, want) {
					t.Errorf("the end is another:\n%v\nnot\n%v", got, want)
				}
				c.gone(t)
			})
		}
	}
	for i, s := range removed {
		for _, after := range []bool{true, false} {
			t.Run(fmt.Sprintf("deleted, killed %s %s", when(after), s), func(t *testing.T) {
				env.Long(t, "a kill during the creation is shown; a deletion resumes by the same turn")
				c := named(fmt.Sprintf("kill-del-%d-%s", i, when(after)))
				c.make(t, "v1.36.3")
				c.available(t, "v1.36.3", 1)
				s.Kill(t, p, after, c.name, func() {
					_, err := e.Admin.Delete(t.Context(), clusters, namespace, c.name, metav1.DeleteOptions{})
					must(t, err)
				}, func() bool { return missing(t, clusters, c.name) })
				c.away(t)
			})
		}
	}
}

// named is a Cluster whose parts are named after it.
func named(n string) cluster {
	return cluster{name: n, controlPlane: n + "-cp", infrastructure: n + "-infra"}
}

func when(after bool) string {
	if after {
		return "after"
	}
	return "before"
}

// picture is what there is of a Cluster in the end, but for what differs from Cluster to Cluster.
func picture(t *testing.T, c cluster) map[string]string {
	t.Helper()
	o, all := controlPlane(t, c), map[string]string{}
	all["finalizers"], all["annotations"] = fmt.Sprint(o.Finalizers), fmt.Sprint(slices.Sorted(maps.Keys(o.Annotations)))
	for _, condition := range o.Status.Conditions {
		all[condition.Type] = fmt.Sprint(condition.Status, condition.Reason)
	}
	if o.Spec.ControlPlaneEndpoint.Host == "" || read(t, infrastructures, c.infrastructure).Spec.ControlPlaneEndpoint.Host != o.Spec.ControlPlaneEndpoint.Host {
		all["endpoint"] = "not the infrastructure's"
	}
	of := tenant(t, c)
	all["tenant"] = fmt.Sprint(of.Generation, slices.Sorted(maps.Keys(of.Labels)), of.Spec.Kubernetes.Version, of.Spec.NetworkProfile.PodCIDR)
	for _, purpose := range []string{"kubeconfig", "ca"} {
		s := secret(t, c.name+"-"+purpose)
		all[purpose] = fmt.Sprint(s.Type, slices.Sorted(maps.Keys(s.Labels)), slices.Sorted(maps.Keys(s.Data)), len(s.OwnerReferences))
	}
	return all
}
