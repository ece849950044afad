package cluster

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/stoker-k8s/stoker/internal/testing/poll"
	"github.com/stoker-k8s/stoker/pkg/api/name"
	"github.com/stoker-k8s/stoker/pkg/api/v1alpha1"
)

// loseNode takes a node from the network, with all that runs there, and gives it back later.
func loseNode(t *testing.T, i *installation) {
	if i.node == "" {
		t.Skip("no program is named that takes a node from the network: make test-cluster NODE=…")
	}
	lost := i.nodeToLose(t)
	two, one := movesSoon(i.byNodePort("two"), lost), movesSoon(i.byNodePort("one"), lost)
	replicas := int32(2)
	two.Spec.ControlPlane.Deployment.Replicas = &replicas
	for _, o := range []*v1alpha1.TenantControlPlane{two, one} {
		i.apply(t, o)
		i.ready(t, o.Name)
	}
	i.allReady(t)
	servers := slices.DeleteFunc(i.pods(t, "stoker-nats"), func(p corev1.Pod) bool { return p.Spec.NodeName == lost })
	if len(servers) == 0 {
		t.Fatalf("all NATS servers are on %s", lost)
	}
	client := i.portalBy(t, servers[0].Name)

	other, asked := i.keepAsking(t, stays), i.keepAsking(t, two.Name)
	begun := time.Now()
	i.cut(t.Context(), t, "down", lost)
	t.Cleanup(func() {
		ctx := context.WithoutCancel(t.Context())
		i.cut(ctx, t, "up", lost)
		i.outOfService(ctx, t, lost, false)
	})
	i.order(t, client, movesSoon(i.byNodePort("just-after-the-loss"), ""))
	i.readyPods(t, two.Name, func(ready int32) bool { return ready < replicas })
	i.report.took(t, begun, "Kubernetes knows that the node is lost")
	t.Log(i.says(t, one.Name, lost))
	i.report.took(t, begun, "a tenant of one replica there says that its node is lost")
	i.readyPods(t, two.Name, func(ready int32) bool { return ready == replicas })
	i.report.took(t, begun, "a tenant of two replicas has two again")
	i.ready(t, one.Name)
	i.report.took(t, begun, "a tenant of one replica is Ready on another node")
	asked.endDisturbed(t, i.report, "the loss of a node, of a tenant with one of two replicas there")
	other.endDisturbed(t, i.report, "the loss of a node, of a tenant on another one")

	asked = i.keepAsking(t, two.Name)
	i.order(t, client, i.byNodePort("without-a-node"))
	begun = time.Now()
	i.outOfService(t.Context(), t, lost, true)
	i.allReady(t, name.Services()...)
	i.report.took(t, begun, "the node is given up, until all services have all their pods again")
	asked.end(t, i.report, "the time without the node")
	asked = i.keepAsking(t, two.Name)
	i.cut(t.Context(), t, "up", lost)
	begun = time.Now()
	i.outOfService(t.Context(), t, lost, false)
	i.allReady(t)
	i.report.took(t, begun, "the node is back, until all pods of the installation are ready")
	i.order(t, i.reconnected(t, client), i.byNodePort("with-the-node-again"))
	i.onlyPods(t, two.Name, int(replicas))
	i.onlyPods(t, one.Name, 1)
	// The etcd member that ran there all the time is found, and ends once more: its pod was given up.
	asked.endDisturbed(t, i.report, "the return of the node")
	i.remove(t, two.Name, one.Name)
}

// nodeToLose is a node that takes all pods, other than those through which and on which the tenant that stays is reached.
func (i *installation) nodeToLose(t *testing.T) string {
	t.Helper()
	nodes, err := i.core.CoreV1().Nodes().List(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if len(nodes.Items) < 3 {
		t.Skipf("%d nodes: three are needed, so that two of three servers are left when one is lost", len(nodes.Items))
	}
	tenants, err := i.core.CoreV1().Pods(namespace).List(t.Context(), metav1.ListOptions{LabelSelector: labels.FormatLabels(name.Selector(stays))})
	if err != nil || len(tenants.Items) == 0 {
		t.Fatalf("no pod of %s: %v", stays, err)
	}
	for _, n := range nodes.Items {
		is := func(a corev1.NodeAddress) bool { return a.Address == i.address }
		if len(n.Spec.Taints) == 0 && n.Name != tenants.Items[0].Spec.NodeName && !slices.ContainsFunc(n.Status.Addresses, is) {
			return n.Name
		}
	}
	t.Fatalf("each node without taints is at %s or has the pod of %s", i.address, stays)
	return ""
}

// movesSoon has the pods of a tenant on different nodes, one of them on a certain one, and has them replaced soon after a node is lost.
func movesSoon(o *v1alpha1.TenantControlPlane, node string) *v1alpha1.TenantControlPlane {
	d := &o.Spec.ControlPlane.Deployment
	soon := int64(30)
	for _, key := range []string{corev1.TaintNodeNotReady, corev1.TaintNodeUnreachable} {
		d.Tolerations = append(d.Tolerations, corev1.Toleration{
			Key: key, Operator: corev1.TolerationOpExists, Effect: corev1.TaintEffectNoExecute, TolerationSeconds: &soon,
		})
	}
	d.Affinity = &corev1.Affinity{PodAntiAffinity: &corev1.PodAntiAffinity{RequiredDuringSchedulingIgnoredDuringExecution: []corev1.PodAffinityTerm{{
		TopologyKey: corev1.LabelHostname, LabelSelector: &metav1.LabelSelector{MatchLabels: name.Selector(o.Name)},
	}}}}
	if node != "" {
		d.Affinity.NodeAffinity = &corev1.NodeAffinity{PreferredDuringSchedulingIgnoredDuringExecution: []corev1.PreferredSchedulingTerm{{
			Weight: 100, Preference: corev1.NodeSelectorTerm{MatchFields: []corev1.NodeSelectorRequirement{{
				Key: metav1.ObjectNameField, Operator: corev1.NodeSelectorOpIn, Values: []string{node},
			}}},
		}}}
	}
	return o
}

// cut runs the program that takes a node from the network and gives it back.
func (i *installation) cut(ctx context.Context, t *testing.T, state, node string) {
	t.Helper()
	if out, err := exec.CommandContext(ctx, i.node, state, node).CombinedOutput(); err != nil {
		t.Fatalf("%s %s %s: %v: %s", i.node, state, node, err, out)
	}
}

// readyPods waits until so many pods of a tenant are ready.
func (i *installation) readyPods(t *testing.T, n string, is func(ready int32) bool) {
	t.Helper()
	poll.Nil(t, "the number of ready pods to change", func() error {
		d, err := i.core.AppsV1().Deployments(namespace).Get(t.Context(), name.Deployment(n), metav1.GetOptions{})
		if err == nil && !is(d.Status.ReadyReplicas) {
			err = fmt.Errorf("%d are ready", d.Status.ReadyReplicas)
		}
		return err
	})
}

// outOfService says that what a node runs won't come back, as docs/operations.md does, and takes that back.
func (i *installation) outOfService(ctx context.Context, t *testing.T, node string, is bool) {
	t.Helper()
	until(ctx, t, "the node to be marked", func() error {
		n, err := i.core.CoreV1().Nodes().Get(ctx, node, metav1.GetOptions{})
		if err != nil {
			return err
		}
		n.Spec.Taints = slices.DeleteFunc(n.Spec.Taints, func(taint corev1.Taint) bool { return taint.Key == corev1.TaintNodeOutOfService })
		if is {
			n.Spec.Taints = append(n.Spec.Taints, corev1.Taint{Key: corev1.TaintNodeOutOfService, Value: "nodeshutdown", Effect: corev1.TaintEffectNoExecute})
		}
		_, err = i.core.CoreV1().Nodes().Update(ctx, n, metav1.UpdateOptions{})
		return err
	})
}

// allReady waits until all pods of the installation are ready, or those of parts of it, which are named without "stoker-".
func (i *installation) allReady(t *testing.T, parts ...string) {
	t.Helper()
	poll.Nil(t, "all pods of the installation to be ready", func() error {
		sets, err := i.core.AppsV1().StatefulSets(name.SystemNamespace).List(t.Context(), metav1.ListOptions{})
		if err != nil {
			return err
		}
		for _, s := range sets.Items {
			if len(parts) > 0 && !slices.Contains(parts, strings.TrimPrefix(s.Name, "stoker-")) {
				continue
			}
			if s.Status.ReadyReplicas != *s.Spec.Replicas {
				err = errors.Join(err, fmt.Errorf("%s: %d of %d", s.Name, s.Status.ReadyReplicas, *s.Spec.Replicas))
			}
		}
		return err
	})
}
