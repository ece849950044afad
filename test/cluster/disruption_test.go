package cluster

import (
	"errors"
	"fmt"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"

	"github.com/stoker-k8s/stoker/internal/testing/poll"
	"github.com/stoker-k8s/stoker/pkg/api/name"
	"github.com/stoker-k8s/stoker/pkg/api/v1alpha1"
	"github.com/stoker-k8s/stoker/pkg/portal"
)

// pods of the installation by name (app.kubernetes.io/name).
func (i *installation) pods(t *testing.T, n string) []corev1.Pod {
	t.Helper()
	pods, err := i.core.CoreV1().Pods(name.SystemNamespace).List(t.Context(), metav1.ListOptions{LabelSelector: "app.kubernetes.io/name=" + n})
	if err != nil || len(pods.Items) == 0 {
		t.Fatalf("no pods of %s: %v", n, err)
	}
	return pods.Items
}

// lose ends pods without giving them time to stop.
func (i *installation) lose(t *testing.T, pods ...corev1.Pod) {
	t.Helper()
	now := int64(0)
	for _, p := range pods {
		if err := i.core.CoreV1().Pods(p.Namespace).Delete(t.Context(), p.Name, metav1.DeleteOptions{GracePeriodSeconds: &now}); err != nil {
			t.Fatal(err)
		}
	}
}

func kill(t *testing.T, i *installation) {
	asked, client := i.keepAsking(t, stays), i.portal(t)
	for _, service := range name.Services() {
		i.lose(t, i.pods(t, "stoker-"+service)...)
		i.order(t, client, i.byNodePort("after-"+service))
	}
	asked.end(t, i.report, "the loss of all pods of each service")
}

// drain evicts the installation's pods, as `kubectl drain` does, one node after the other. A node is cordoned if the pods have another one to
// go to; else they come back to it.
func drain(t *testing.T, i *installation) {
	nodes, err := i.core.CoreV1().Nodes().List(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	asked, client := i.keepAsking(t, stays), i.portal(t)
	begun := time.Now()
	for _, n := range nodes.Items {
		if len(nodes.Items) > 1 {
			i.cordon(t, n.Name, true)
		}
		pods, err := i.core.CoreV1().Pods(name.SystemNamespace).List(t.Context(), metav1.ListOptions{FieldSelector: "spec.nodeName=" + n.Name + ",status.phase=Running"})
		if err != nil {
			t.Fatal(err)
		}
		for _, p := range pods.Items {
			i.evict(t, p)
		}
		if len(nodes.Items) > 1 {
			i.cordon(t, n.Name, false)
		}
	}
	i.report.took(t, begun, "the installation's pods evicted, as disruption budgets let it")
	asked.end(t, i.report, "a drain of the installation's pods")
	i.order(t, i.reconnected(t, client), i.byNodePort("after-drain"))

	// A tenant of one replica is away until its next pod is there.
	tenants, err := i.core.CoreV1().Pods(namespace).List(t.Context(), metav1.ListOptions{LabelSelector: labels.FormatLabels(name.Selector(stays))})
	if err != nil || len(tenants.Items) != 1 {
		t.Fatalf("%d pods: %v", len(tenants.Items), err)
	}
	begun = time.Now()
	i.evict(t, tenants.Items[0])
	i.onlyPods(t, stays, 1)
	i.ready(t, stays)
	poll.Nil(t, "the API to answer", func() error {
		if !reached(t.Context(), fmt.Sprintf("%s:%d", i.address, mustGet(t, i, stays).Spec.NetworkProfile.Port)) {
			return errors.New("it doesn't")
		}
		return nil
	})
	i.report.took(t, begun, "a tenant's only pod evicted, until the next one answers")
	i.answers(t, stays, current)
}

func mustGet(t *testing.T, i *installation, n string) *v1alpha1.TenantControlPlane {
	t.Helper()
	o, err := i.get(t.Context(), n)
	if err != nil {
		t.Fatal(err)
	}
	return o
}

// reconnected is a portal's client in place of one whose server's pod has gone.
func (i *installation) reconnected(t *testing.T, client *portal.Client) *portal.Client {
	t.Helper()
	client.Close()
	return i.portal(t)
}

func (i *installation) cordon(t *testing.T, node string, is bool) {
	t.Helper()
	patch := fmt.Appendf(nil, `{"spec":{"unschedulable":%t}}`, is)
	if _, err := i.core.CoreV1().Nodes().Patch(t.Context(), node, types.MergePatchType, patch, metav1.PatchOptions{}); err != nil {
		t.Fatal(err)
	}
}

// evict evicts a pod as soon as its disruption budget lets it, and waits until it is gone. It isn't evicted twice: its successor may have its
// name, and the budget would count that one.
func (i *installation) evict(t *testing.T, p corev1.Pod) {
	t.Helper()
	eviction := &policyv1.Eviction{ObjectMeta: metav1.ObjectMeta{Namespace: p.Namespace, Name: p.Name}}
	poll.Nil(t, p.Name+" to be evicted", func() error {
		return i.core.PolicyV1().Evictions(p.Namespace).Evict(t.Context(), eviction)
	})
	poll.Nil(t, p.Name+" to go", func() error {
		now, err := i.core.CoreV1().Pods(p.Namespace).Get(t.Context(), p.Name, metav1.GetOptions{})
		if apierrors.IsNotFound(err) || err == nil && now.UID != p.UID {
			return nil
		}
		return fmt.Errorf("it is there: %w", err)
	})
}

func loseNATS(t *testing.T, i *installation) {
	asked := i.keepAsking(t, stays)
	client := i.portal(t)
	servers := i.pods(t, "stoker-nats")
	i.lose(t, servers[len(servers)-1])
	i.order(t, client, i.byNodePort("without-a-server"))
	i.allReady(t, "nats")
	asked.end(t, i.report, "the loss of a NATS server")
}
