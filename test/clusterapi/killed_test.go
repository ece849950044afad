package clusterapi

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/stoker-k8s/stoker/pkg/api/controlplane"
	"github.com/stoker-k8s/stoker/pkg/api/event"
	"github.com/stoker-k8s/stoker/pkg/api/name"
	"github.com/stoker-k8s/stoker/pkg/api/v1alpha1"
	"github.com/stoker-k8s/stoker/pkg/kube"
	"github.com/stoker-k8s/stoker/test/env"
)

// TestKilledAtEachStep kills capi (SIGKILL) before and after each write that it makes for a Cluster, to the API server and to NATS: a tap on its
// connections saw these writes in the life of an undisturbed Cluster. Each replica is killed for the Clusters that it holds, while the other
// replicas go on. Capi is killed several times in the life of one Cluster.
func TestKilledAtEachStep(t *testing.T) {
	e.NoServices(t)
	for _, service := range name.Services() {
		if service != name.ServiceCAPI {
			e.Service(t, service, "a")
		}
	}
	core(t)
	replicas := e.Replicas(t, name.ServiceCAPI, "a", "b", "c")
	env.Shared(t, replicas)
	l := undisturbed(t, replicas)
	left := env.NewKills(l.made, l.removed)
	t.Run("replicas", func(t *testing.T) {
		for _, r := range replicas {
			t.Run(r.Process.Replica, func(t *testing.T) {
				t.Parallel()
				l.killed(t, r, left)
			})
		}
	})
	if err := left.Left(); err != nil && !t.Failed() {
		t.Error(err)
	}
}

// life records capi's writes while a Cluster is made and deleted, and the Cluster's objects between the two.
type life struct {
	made, removed []env.Step
	picture       map[string]string
}

// undisturbed records the life of a Cluster without kills.
func undisturbed(t *testing.T, replicas []env.Replica) (l life) {
	t.Helper()
	c := named("kill-none")
	c.make(t, "v1.36.3")
	c.available(t, "v1.36.3", 1)
	quiet(t, taps(replicas)...)
	l.picture = picture(t, c)
	marks := make([]int, len(replicas))
	steps := func() (all []env.Step) {
		var messages []env.Message
		for i, r := range replicas {
			sent := r.Tap.Messages(marks[i])
			marks[i] += len(sent)
			messages = append(messages, sent...)
		}
		return env.Steps(messages, c.name)
	}
	l.made = steps()
	c.gone(t)
	quiet(t, taps(replicas)...)
	l.removed = steps()
	t.Logf("made by %v, removed by %v", l.made, l.removed)
	if len(l.made) < 8 || len(l.removed) < 2 {
		t.Fatal("the taps saw too little")
	}
	return l
}

func taps(replicas []env.Replica) (all []*env.Tap) {
	for _, r := range replicas {
		all = append(all, r.Tap)
	}
	return all
}

// killed kills a replica, until no kill is left.
func (l life) killed(t *testing.T, r env.Replica, left *env.Kills) {
	t.Helper()
	for n := 0; ; n++ {
		creation, deletion := left.Targets(r, false, nil), left.Targets(r, true, nil)
		if len(creation)+len(deletion) == 0 {
			return
		}
		ok := t.Run(fmt.Sprint(n), func(t *testing.T) {
			key := env.TenantOf(t, []env.Replica{r}, fmt.Sprintf("kill-%s-%d", r.Process.Replica, n), "-cp")
			c := named(strings.TrimSuffix(key.Name, "-cp"))
			env.KillAll(t, c.name, creation, func() { c.make(t, "v1.36.3") }, func() bool {
				return slices.Contains(e.Facts(t, key), name.ServiceCAPI+"."+event.Initialized)
			})
			same := func() error {
				if got := picture(t, c); !maps.Equal(got, l.picture) {
					return fmt.Errorf("it is\n%v\nnot\n%v", got, l.picture)
				}
				return nil
			}
			env.Eventually(t, "the same end as without kills", same)
			quiet(t, r.Tap)
			must(t, same())
			env.KillAll(t, c.name, deletion, func() {
				_, err := e.Admin.Delete(t.Context(), clusters, namespace, c.name, metav1.DeleteOptions{})
				must(t, err)
			}, func() bool { return !exists(t, clusters, c.name, &object{}) })
			c.away(t)
		})
		if !ok {
			return
		}
	}
}

// named is a Cluster whose parts are named after it.
func named(n string) cluster {
	return cluster{name: n, controlPlane: n + "-cp", infrastructure: n + "-infra"}
}

// picture describes a Cluster's objects. It omits missing objects, and values that differ between Clusters.
func picture(t *testing.T, c cluster) map[string]string {
	t.Helper()
	all := map[string]string{}
	var o controlplane.KamajiControlPlane
	if exists(t, controlPlanes, c.controlPlane, &o) {
		all["finalizers"], all["annotations"] = fmt.Sprint(o.Finalizers), fmt.Sprint(slices.Sorted(maps.Keys(o.Annotations)))
		for _, condition := range o.Status.Conditions {
			all[condition.Type] = fmt.Sprint(condition.Status, condition.Reason)
		}
	}
	var infrastructure object
	if !exists(t, infrastructures, c.infrastructure, &infrastructure) || o.Spec.ControlPlaneEndpoint.Host == "" ||
		infrastructure.Spec.ControlPlaneEndpoint.Host != o.Spec.ControlPlaneEndpoint.Host {
		all["endpoint"] = "not the infrastructure's"
	}
	var of v1alpha1.TenantControlPlane
	if exists(t, kube.TenantControlPlanes, c.controlPlane, &of) {
		all["tenant"] = fmt.Sprint(of.Generation, slices.Sorted(maps.Keys(of.Labels)), of.Spec.Kubernetes.Version, of.Spec.NetworkProfile.PodCIDR)
	}
	for _, purpose := range []string{"kubeconfig", "ca"} {
		var s corev1.Secret
		if exists(t, kube.Secrets, c.name+"-"+purpose, &s) {
			all[purpose] = fmt.Sprint(s.Type, slices.Sorted(maps.Keys(s.Labels)), slices.Sorted(maps.Keys(s.Data)), len(s.OwnerReferences))
		}
	}
	return all
}
