package tenantaddons

import (
	"fmt"
	"maps"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/stoker-k8s/stoker/pkg/api/name"
	"github.com/stoker-k8s/stoker/pkg/api/tenantaddon"
	"github.com/stoker-k8s/stoker/pkg/kube"
	"github.com/stoker-k8s/stoker/test/env"
)

// killedAtEachStep kills tenantaddons (SIGKILL) before and after each write that it makes for a TenantAddon, to the API server and to NATS: a tap
// on its connections saw these writes in the life of an undisturbed TenantAddon. It is killed several times in the life of one TenantAddon.
// The TenantAddons select one tenant.
func killedAtEachStep(t *testing.T, tenant string, in *kube.Client, selector string) {
	e.Service(t, name.ServiceTenantAddons, "a").Remove(t)
	p, tap := e.Tapped(t, name.ServiceTenantAddons, "a")
	const undisturbed = "kill-none"
	put(t, undisturbed, selector+words(undisturbed, "x"))
	ready(t, undisturbed)
	quiet(t, tap)
	want := picture(t, tenant, in, undisturbed)
	messages := tap.Messages(0)
	made := env.Steps(messages, undisturbed)
	gone(t, undisturbed)
	quiet(t, tap)
	removed := env.Steps(tap.Messages(len(messages)), undisturbed)
	t.Logf("made by %v, removed by %v", made, removed)
	if len(made) < 4 || len(removed) < 2 {
		t.Fatal("the tap saw too little")
	}
	left := env.NewKills(made, removed)
	r := env.Replica{Process: p, Tap: tap}
	for i := 0; ; i++ {
		creation, deletion := left.Targets(r, false, nil), left.Targets(r, true, nil)
		if len(creation)+len(deletion) == 0 {
			return
		}
		ok := t.Run(fmt.Sprint(i), func(t *testing.T) {
			n := fmt.Sprint("kill-", i)
			env.KillAll(t, n, creation, func() { put(t, n, selector+words(n, "x")) }, func() bool { return isReady(t, n) })
			same := func() error {
				if got := picture(t, tenant, in, n); !maps.Equal(got, want) {
					return fmt.Errorf("it is\n%v\nnot\n%v", got, want)
				}
				return nil
			}
			env.Eventually(t, "the same end as without kills", same)
			quiet(t, tap)
			must(t, same())
			missing := func() bool {
				return apierrors.IsNotFound(e.Admin.Get(t.Context(), kube.TenantAddons, namespace, n, &metav1.PartialObjectMetadata{}))
			}
			env.KillAll(t, n, deletion, func() {
				_, err := e.Admin.Delete(t.Context(), kube.TenantAddons, namespace, n, metav1.DeleteOptions{})
				must(t, err)
			}, missing)
			env.Eventually(t, "nothing to be left", func() error {
				if left, history := picture(t, tenant, in, n), revisions(t, in, n); len(left)+len(history) > 0 {
					return fmt.Errorf("%v and %v are left", left, history)
				}
				return nil
			})
		})
		if !ok {
			return
		}
	}
}

func isReady(t *testing.T, n string) bool {
	t.Helper()
	ready := meta.FindStatusCondition(addon(t, n).Status.Conditions, tenantaddon.ConditionReady)
	return ready != nil && ready.Status == metav1.ConditionTrue
}

// picture describes the objects of a TenantAddon and of its release in a tenant. It omits missing objects, and values that differ between
// TenantAddons.
func picture(t *testing.T, tenant string, in *kube.Client, n string) map[string]string {
	t.Helper()
	all := map[string]string{}
	conditions := func(of string, conditions []metav1.Condition) {
		for _, c := range conditions {
			all[of+" is "+c.Type] = fmt.Sprint(c.Status, " ", c.Reason)
		}
	}
	var o tenantaddon.TenantAddon
	err := e.Admin.Get(t.Context(), kube.TenantAddons, namespace, n, &o)
	if err == nil {
		conditions("it", o.Status.Conditions)
		all["it"] = fmt.Sprint(o.Finalizers, o.Status.Tenants, o.Status.Failing, o.Status.ObservedGeneration)
	} else if !apierrors.IsNotFound(err) {
		t.Fatal(err)
	}
	r, err := release(t, tenant, n)
	if err == nil {
		conditions("its release", r.Status.Conditions)
		all["its release"] = fmt.Sprint(r.Finalizers, r.Status.Objects, r.Status.Failed, r.Status.Revision == o.Status.Revision)
	} else if !apierrors.IsNotFound(err) {
		t.Fatal(err)
	}
	if is := word(t, in, "kube-system", n); is != "" {
		all["inside"] = is
	}
	deployed := 0
	for _, status := range revisions(t, in, n) {
		if status == "deployed" {
			deployed++
		} else if strings.HasPrefix(status, "pending") {
			all["pending"] = status
		}
	}
	if deployed != 0 {
		all["deployed revisions"] = fmt.Sprint(deployed)
	}
	return all
}

// revisions are the statuses of the revisions that Helm's release has in a tenant.
func revisions(t *testing.T, in *kube.Client, n string) (statuses []string) {
	t.Helper()
	var secrets corev1.SecretList
	must(t, in.List(t.Context(), kube.Secrets, "kube-system", "owner=helm,name="+n, &secrets))
	for i := range secrets.Items {
		statuses = append(statuses, secrets.Items[i].Labels["status"])
	}
	return statuses
}
