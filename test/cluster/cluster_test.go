package cluster

import (
	"context"
	"fmt"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"

	"github.com/stoker-k8s/stoker/internal/testing/poll"
	"github.com/stoker-k8s/stoker/pkg/api/name"
	"github.com/stoker-k8s/stoker/pkg/api/v1alpha1"
)

// stays is a tenant that is there all the time, reached at a node's address, and asked while the installation is disturbed.
const stays = "stays"

// TestCluster is what somebody does with Stoker on a cluster, from `helm install` until nothing is left.
func TestCluster(t *testing.T) {
	i := open(t)
	i.makeNamespace(t)
	t.Cleanup(func() { i.report.log(t) })
	step := func(what string, do func(t *testing.T, i *installation)) {
		if !t.Run(what, func(t *testing.T) { do(t, i) }) {
			i.explain(t)
		}
	}
	t.Cleanup(func() { i.removeAll(t) })
	if !t.Run("install", func(t *testing.T) { i.install(t) }) {
		return
	}
	i.giveAddresses(t)
	begun := time.Now()
	i.apply(t, i.byNodePort(stays))
	i.ready(t, stays)
	i.report.took(t, begun, "the first tenant, its images pulled")
	step("tenants by each type of Service", eachType)
	step("a tenant by event", byEvent)
	step("a control plane by Cluster API", byClusterAPI)
	step("what every tenant runs", everyTenantRuns)
	step("tenants that sleep are woken by a connection", wakeByConnection)
	step("a tenant that can't come up says why", saysWhy)
	step("upgrade of a tenant", upgradeTenant)
	step("data move", moveData)
	step("a tenant's backup in a volume", backupTenant)
	step("drift", drift)
	step("pods of each service killed", kill)
	step("drain", drain)
	step("a NATS server lost", loseNATS)
	step("a node lost", loseNode)
	step("a machine joins a tenant", joinNode)
	step("conformance", conformance)
	step("backup", backup)
	step("upgrade and rollback of the installation", upgrade)
	step("ten tenants at once", ten)
	step("uninstalled with tenants left running, and installed again", reinstall)
}

func eachType(t *testing.T, i *installation) {
	waits := i.tenant("waits", v1alpha1.ServiceTypeLoadBalancer, current)
	begun := time.Now()
	i.apply(t, waits)
	t.Log(i.says(t, "waits", "address"))
	i.ready(t, "waits")
	i.report.took(t, begun, "LoadBalancer, the first, with the wait for an address")
	i.answers(t, "waits", current)
	for _, o := range []*v1alpha1.TenantControlPlane{
		i.tenant("cluster-ip", v1alpha1.ServiceTypeClusterIP, current), i.byNodePort("node-port"),
		i.tenant("load-balancer", v1alpha1.ServiceTypeLoadBalancer, current),
	} {
		seen := i.follow(t, o.Name)
		begun := time.Now()
		i.apply(t, o)
		i.ready(t, o.Name)
		i.report.took(t, begun, "%s, from apply to Ready", o.Spec.ControlPlane.Service.ServiceType)
		seen.report(t, i.report)
		i.answers(t, o.Name, current)
	}
	begun = time.Now()
	i.remove(t, "waits", "cluster-ip", "node-port", "load-balancer")
	i.report.took(t, begun, "four deleted")
}

func byEvent(t *testing.T, i *installation) {
	i.order(t, i.portal(t), i.byNodePort("ordered"))
}

// saysWhy has tenants whose pods kubelet or scheduler can't run. Each says so, and is well once it is put right.
func saysWhy(t *testing.T, i *installation) {
	right := func(o *v1alpha1.TenantControlPlane) *v1alpha1.TenantControlPlane {
		return i.tenant(o.Name, v1alpha1.ServiceTypeClusterIP, current)
	}
	limited := func(r corev1.ResourceRequirements) *v1alpha1.ControlPlaneComponentsResources {
		return &v1alpha1.ControlPlaneComponentsResources{APIServer: &r}
	}
	image := i.tenant("no-image", v1alpha1.ServiceTypeClusterIP, current)
	image.Spec.ControlPlane.Deployment.RegistrySettings.TagSuffix = "-that-is-not"
	room := i.tenant("no-room", v1alpha1.ServiceTypeClusterIP, current)
	room.Spec.ControlPlane.Deployment.Resources = limited(corev1.ResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("10k")}})
	memory := i.tenant("no-memory", v1alpha1.ServiceTypeClusterIP, current)
	memory.Spec.ControlPlane.Deployment.Resources = limited(corev1.ResourceRequirements{Limits: corev1.ResourceList{corev1.ResourceMemory: resource.MustParse("40Mi")}})
	for _, c := range []struct {
		o    *v1alpha1.TenantControlPlane
		says string
	}{{image, "-that-is-not"}, {room, "cpu"}, {memory, "OOMKilled"}} {
		begun := time.Now()
		i.apply(t, c.o)
		message := i.says(t, c.o.Name, c.says)
		i.report.took(t, begun, "%s says why", c.o.Name)
		t.Log(message)
		i.apply(t, right(c.o))
		i.ready(t, c.o.Name)
	}
	i.remove(t, image.Name, room.Name, memory.Name)
}

func upgradeTenant(t *testing.T, i *installation) {
	for _, replicas := range []int32{1, 2} {
		o := i.byNodePort(fmt.Sprintf("upgraded-%d", replicas))
		o.Spec.Kubernetes.Version = older
		o.Spec.ControlPlane.Deployment.Replicas = &replicas
		i.apply(t, o)
		i.ready(t, o.Name)
		i.answers(t, o.Name, older)
		asked := i.keepAsking(t, o.Name)
		begun := time.Now()
		o.Spec.Kubernetes.Version = current
		i.apply(t, o)
		i.ready(t, o.Name)
		i.report.took(t, begun, "upgrade from %s to %s, %d replicas", older, current, replicas)
		i.onlyPods(t, o.Name, int(replicas))
		asked.end(t, i.report, fmt.Sprintf("an upgrade with %d replicas", replicas))
		i.answers(t, o.Name, current)
		i.remove(t, o.Name)
	}
	external := i.tenant("upgraded-external-ip", v1alpha1.ServiceTypeClusterIP, older)
	external.Spec.NetworkProfile.Address, external.Spec.NetworkProfile.AllowAddressAsExternalIP = "203.0.113.8", true
	for _, c := range []struct {
		how string
		o   *v1alpha1.TenantControlPlane
	}{
		{"ClusterIP", i.tenant("upgraded-cluster-ip", v1alpha1.ServiceTypeClusterIP, older)},
		{"external IP of a ClusterIP", external},
		{"LoadBalancer", i.tenant("upgraded-load-balancer", v1alpha1.ServiceTypeLoadBalancer, older)},
	} {
		t.Run(c.how, func(t *testing.T) {
			i.apply(t, c.o)
			i.ready(t, c.o.Name)
			end := i.keepAskingFromPod(t, c.o.Name)
			c.o.Spec.Kubernetes.Version = current
			i.apply(t, c.o)
			i.ready(t, c.o.Name)
			i.onlyPods(t, c.o.Name, 1)
			end("an upgrade, asked by " + c.how)
			i.answers(t, c.o.Name, current)
			i.remove(t, c.o.Name)
		})
	}
}

// onlyPods waits until a tenant has so many pods, and none that ends.
func (i *installation) onlyPods(t *testing.T, n string, count int) (uids []types.UID) {
	t.Helper()
	poll.Nil(t, fmt.Sprintf("%s to have %d pods", n, count), func() error {
		pods, err := i.core.CoreV1().Pods(namespace).List(t.Context(), metav1.ListOptions{LabelSelector: labels.FormatLabels(name.Selector(n))})
		if err != nil || len(pods.Items) != count {
			return fmt.Errorf("%d pods: %w", len(pods.Items), err)
		}
		uids = nil
		for _, p := range pods.Items {
			uids = append(uids, p.UID)
		}
		return nil
	})
	return uids
}

// drift deletes and changes what a tenant owns; each is put right.
func drift(t *testing.T, i *installation) {
	const n = stays
	asked := i.keepAsking(t, n)
	deployments, services, secrets := i.core.AppsV1().Deployments(namespace), i.core.CoreV1().Services(namespace), i.core.CoreV1().Secrets(namespace)
	two := []byte(`{"spec":{"replicas":2}}`)
	begun := time.Now()
	if _, err := deployments.Patch(t.Context(), name.Deployment(n), types.MergePatchType, two, metav1.PatchOptions{}); err != nil {
		t.Fatal(err)
	}
	poll.Nil(t, "one replica again", func() error {
		d, err := deployments.Get(t.Context(), name.Deployment(n), metav1.GetOptions{})
		if err == nil && *d.Spec.Replicas != 1 {
			err = fmt.Errorf("it has %d", *d.Spec.Replicas)
		}
		return err
	})
	i.report.took(t, begun, "drift of a Deployment repaired")
	for _, c := range []struct {
		what   string
		delete func(ctx context.Context) error
		there  func(ctx context.Context) error
	}{
		{"Secret", func(ctx context.Context) error {
			return secrets.Delete(ctx, name.AdminKubeconfig(n), metav1.DeleteOptions{})
		}, func(ctx context.Context) error {
			_, err := secrets.Get(ctx, name.AdminKubeconfig(n), metav1.GetOptions{})
			return err
		}},
		{"Service", func(ctx context.Context) error {
			return services.Delete(ctx, name.Service(n), metav1.DeleteOptions{})
		}, func(ctx context.Context) error {
			_, err := services.Get(ctx, name.Service(n), metav1.GetOptions{})
			return err
		}},
	} {
		if c.what == "Service" { // without which nobody reaches the tenant
			asked.end(t, i.report, "drift of a Deployment and a Secret")
		}
		begun := time.Now()
		if err := c.delete(t.Context()); err != nil {
			t.Fatal(err)
		}
		poll.Nil(t, "the "+c.what+" to be there again", func() error { return c.there(t.Context()) })
		i.report.took(t, begun, "a deleted %s made again", c.what)
	}
	i.ready(t, n)
	i.answers(t, n, current)
}

func ten(t *testing.T, i *installation) {
	var names []string
	begun := time.Now()
	for n := range 10 {
		names = append(names, fmt.Sprintf("ten-%d", n))
		i.apply(t, i.tenant(names[n], v1alpha1.ServiceTypeClusterIP, current))
	}
	for _, n := range names {
		i.ready(t, n)
	}
	i.report.took(t, begun, "ten at once, from the first apply to the last Ready")
	restarts := int32(0)
	for _, n := range names {
		pods, err := i.core.CoreV1().Pods(namespace).List(t.Context(), metav1.ListOptions{LabelSelector: labels.FormatLabels(name.Selector(n))})
		if err != nil {
			t.Fatal(err)
		}
		for _, p := range pods.Items {
			for _, c := range p.Status.ContainerStatuses {
				restarts += c.RestartCount
			}
		}
		i.answers(t, n, current)
	}
	if restarts > 0 {
		t.Errorf("containers of the ten were restarted %d times", restarts)
	}
	begun = time.Now()
	i.remove(t, names...)
	i.report.took(t, begun, "ten deleted")
}
