package cluster

import (
	"fmt"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/stoker-k8s/stoker/internal/testing/poll"
	"github.com/stoker-k8s/stoker/pkg/api/tenantaddon"
	"github.com/stoker-k8s/stoker/pkg/api/v1alpha1"
	"github.com/stoker-k8s/stoker/pkg/kube"
)

// everyTenantRuns has software put into all tenants by a TenantAddon, put back when it is deleted in one, and removed from them.
func everyTenantRuns(t *testing.T, i *installation) {
	const n, inside = "baseline", "inside"
	i.apply(t, i.tenant(inside, v1alpha1.ServiceTypeClusterIP, current)) // reached by the service's pod, and by nobody outside of the cluster
	i.ready(t, inside)
	all, err := i.objects.Metadata(t.Context(), kube.TenantControlPlanes, "") // of this test's namespace, for there are no others
	if err != nil {
		t.Fatal(err)
	}
	begun := time.Now()
	i.put(t, kube.TenantAddons, n, `{selector: {}, manifests: {inline: '{apiVersion: v1, kind: ConfigMap, metadata: {name: baseline}, data: {word: first}}'}}`)
	poll.Nil(t, "the TenantAddon to be ready", func() error {
		var o tenantaddon.TenantAddon
		if err := i.objects.Get(t.Context(), kube.TenantAddons, namespace, n, &o); err != nil || int(o.Status.Tenants.Ready) != len(all) {
			return fmt.Errorf("of %d tenants: %w, %+v", len(all), err, o.Status)
		}
		return nil
	})
	i.report.took(t, begun, "a TenantAddon, from apply until it is ready in %d tenants", len(all))
	tenants := map[string]*kubernetes.Clientset{}
	for _, o := range all {
		if tenants[o.Name], err = kubernetes.NewForConfig(i.client(t, o.Name)); err != nil {
			t.Fatal(err)
		}
		runs(t, tenants[o.Name], o.Name)
	}
	if err := tenants[inside].CoreV1().ConfigMaps(metav1.NamespaceSystem).Delete(t.Context(), n, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	runs(t, tenants[inside], inside)
	begun = time.Now()
	i.deleted(t, kube.TenantAddons, n)
	i.report.took(t, begun, "it is removed from them")
	for tenant, c := range tenants {
		if _, err := c.CoreV1().ConfigMaps(metav1.NamespaceSystem).Get(t.Context(), n, metav1.GetOptions{}); !apierrors.IsNotFound(err) {
			t.Errorf("%s still has it: %v", tenant, err)
		}
	}
	i.remove(t, inside)
}

// runs waits until a tenant has what the TenantAddon brings.
func runs(t *testing.T, c *kubernetes.Clientset, tenant string) {
	t.Helper()
	poll.Nil(t, "the ConfigMap in "+tenant, func() error {
		m, err := c.CoreV1().ConfigMaps(metav1.NamespaceSystem).Get(t.Context(), "baseline", metav1.GetOptions{})
		if err == nil && m.Data["word"] != "first" {
			err = fmt.Errorf("it says %v", m.Data)
		}
		return err
	})
}
