package cluster

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/stoker-k8s/stoker/internal/testing/poll"
	"github.com/stoker-k8s/stoker/pkg/api/name"
	"github.com/stoker-k8s/stoker/pkg/api/v1alpha1"
	"github.com/stoker-k8s/stoker/pkg/events"
	"github.com/stoker-k8s/stoker/pkg/kube"
	"github.com/stoker-k8s/stoker/pkg/portal"
	"github.com/stoker-k8s/stoker/test/env"
)

func (i *installation) makeNamespace(t *testing.T) {
	t.Helper()
	o := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace}}
	if _, err := i.core.CoreV1().Namespaces().Create(t.Context(), o, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
}

func (i *installation) chart(n string) string {
	return filepath.Join(env.Root(), "deployments", "helm", n)
}

// charts installs or upgrades both charts.
func (i *installation) charts(t *testing.T, args ...string) {
	t.Helper()
	stoker := []string{
		"upgrade", "--install", "stoker", i.chart("stoker"), "--create-namespace", "--wait", "--timeout", "10m",
		"--set", "image.registry=" + i.registry + ",image.tag=" + i.tag + ",nats.image.repository=" + i.registry + "/nats",
		"--set", fmt.Sprintf("nats.persistence.enabled=%t,clusterAPI.enabled=true,tenantAddons.enabled=true", i.volumes),
		"--set", "portals[0].name=shop,portals[0].join=true,portals[0].namespaces[0]=" + namespace,
	}
	for _, command := range [][]string{append(stoker, args...), i.etcd("stoker-etcd")} {
		if err := i.runHelm(t.Context(), command...); err != nil {
			t.Fatal(err)
		}
	}
}

// etcd is how a release of the chart stoker-etcd is installed.
func (i *installation) etcd(release string, args ...string) []string {
	return append([]string{
		"upgrade", "--install", release, i.chart("stoker-etcd"), "--wait", "--timeout", "10m",
		"--set", "image.repository=" + i.registry + "/etcd,stoker.repository=" + i.registry + "/stoker,stoker.tag=" + i.tag,
		"--set", fmt.Sprintf("persistence.enabled=%t,backup.enabled=%t,persistence.size=1Gi,backup.size=1Gi", i.volumes, i.volumes),
	}, args...)
}

func (i *installation) install(t *testing.T) {
	begun := time.Now()
	i.charts(t)
	if err := i.runHelm(t.Context(), "test", "stoker"); err != nil {
		t.Fatal(err)
	}
	i.report.took(t, begun, "both charts installed, `helm test` passed")
	// What neither a portal nor Cluster API may name by itself: the registry.
	_, err := i.core.RbacV1().ClusterRoleBindings().Create(t.Context(), &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: namespace},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "stoker-privileged-fields"},
		Subjects: []rbacv1.Subject{
			{Kind: rbacv1.ServiceAccountKind, Namespace: name.SystemNamespace, Name: "stoker-intake"},
			{Kind: rbacv1.ServiceAccountKind, Namespace: name.SystemNamespace, Name: "stoker-capi"},
		},
	}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
}

// portal is who orders tenants by event, through a server's pod.
func (i *installation) portal(t *testing.T) *portal.Client {
	t.Helper()
	return i.portalBy(t, "stoker-nats-0")
}

func (i *installation) portalBy(t *testing.T, server string) *portal.Client {
	t.Helper()
	seed, authority := i.credentials(t, "portal-shop")
	port, err := i.forward(t, name.SystemNamespace, server, 4222)
	if err != nil {
		t.Fatal(err)
	}
	client, err := portal.Connect(portal.Config{
		URL: fmt.Sprintf("tls://localhost:%d", port), SeedFile: seed, CAFile: authority, Source: "/test/cluster",
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(client.Close)
	return client
}

// credentials are files with the seed of a NATS user and the servers' authority.
func (i *installation) credentials(t *testing.T, user string) (seed, authority string) {
	t.Helper()
	dir := t.TempDir()
	secret, err := i.core.CoreV1().Secrets(name.SystemNamespace).Get(t.Context(), "stoker-nats-"+user, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	ca, err := i.core.CoreV1().ConfigMaps(name.SystemNamespace).Get(t.Context(), "stoker-nats-ca", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	seed, authority = filepath.Join(dir, "seed"), filepath.Join(dir, "ca.crt")
	if err := errors.Join(os.WriteFile(seed, secret.Data["seed"], 0o600), os.WriteFile(authority, []byte(ca.Data["ca.crt"]), 0o600)); err != nil {
		t.Fatal(err)
	}
	return seed, authority
}

// order has a portal order a tenant, and take it away again.
func (i *installation) order(t *testing.T, client *portal.Client, o *v1alpha1.TenantControlPlane) {
	t.Helper()
	begun := time.Now()
	accepted, err := client.Apply(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := client.WaitReady(t.Context(), accepted); err != nil {
		t.Fatal(err)
	}
	i.report.took(t, begun, "%s, ordered by event, until the portal reads Ready", o.Name)
	deleted, err := client.Delete(t.Context(), events.Tenant(o.Namespace, o.Name))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := client.WaitDeleted(t.Context(), deleted); err != nil {
		t.Fatal(err)
	}
	i.gone(t, o.Name)
}

// backup runs the CronJob of stoker-etcd once.
func backup(t *testing.T, i *installation) {
	if !i.volumes {
		t.Skip("no StorageClass is the default, so there is no volume for backups")
	}
	cron, err := i.core.BatchV1().CronJobs(name.SystemNamespace).Get(t.Context(), "stoker-etcd-backup", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	jobs := i.core.BatchV1().Jobs(name.SystemNamespace)
	begun := time.Now()
	for _, n := range []string{"backup-1", "backup-2"} {
		if _, err := jobs.Create(t.Context(), &batchv1.Job{ObjectMeta: metav1.ObjectMeta{Name: n}, Spec: cron.Spec.JobTemplate.Spec}, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
		poll.Nil(t, n+" to succeed", func() error {
			job, err := jobs.Get(t.Context(), n, metav1.GetOptions{})
			if err == nil && job.Status.Succeeded != 1 {
				err = fmt.Errorf("%+v", job.Status)
			}
			return err
		})
	}
	i.report.took(t, begun, "two snapshots of the DataStore, by the backup's CronJob")
}

// upgrade gives the installation other keys and another portal, and takes the latter back by a rollback.
func upgrade(t *testing.T, i *installation) {
	asked := i.keepAsking(t, stays)
	begun := time.Now()
	i.charts(t, "--set", "nats.keys=other,portals[1].name=bank,portals[1].namespaces[0]="+namespace)
	i.report.took(t, begun, "`helm upgrade` with other keys and a further portal")
	i.order(t, i.portal(t), i.byNodePort("after-upgrade"))
	bank := func() error {
		_, err := i.core.CoreV1().Secrets(name.SystemNamespace).Get(t.Context(), "stoker-nats-portal-bank", metav1.GetOptions{})
		return err
	}
	if err := bank(); err != nil {
		t.Error(err)
	}
	begun = time.Now()
	if err := i.runHelm(t.Context(), "rollback", "stoker", "1", "--wait", "--timeout", "10m"); err != nil {
		t.Fatal(err)
	}
	i.report.took(t, begun, "`helm rollback`")
	if err := bank(); !apierrors.IsNotFound(err) {
		t.Errorf("the portal of the revision that was rolled back: %v", err)
	}
	i.order(t, i.portal(t), i.byNodePort("after-rollback"))
	asked.end(t, i.report, "upgrade and rollback of the installation")
}

// reinstall takes the chart stoker away and installs it again: tenants go on all the while, with the pods and keys that they have.
func reinstall(t *testing.T, i *installation) {
	asked := i.keepAsking(t, stays)
	pods := i.onlyPods(t, stays, 1)
	keys, err := i.core.CoreV1().Secrets(namespace).Get(t.Context(), name.CA(stays), metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if err := i.runHelm(t.Context(), "uninstall", "stoker", "--wait"); err != nil {
		t.Fatal(err)
	}
	begun := time.Now()
	i.charts(t)
	i.report.took(t, begun, "both charts installed again, over a tenant that runs")
	i.order(t, i.portal(t), i.byNodePort("after-reinstall"))
	i.ready(t, stays)
	asked.end(t, i.report, "an uninstallation and a new one")
	if again := i.onlyPods(t, stays, 1); again[0] != pods[0] {
		t.Errorf("the tenant has another pod")
	}
	if again, err := i.core.CoreV1().Secrets(namespace).Get(t.Context(), name.CA(stays), metav1.GetOptions{}); err != nil || again.UID != keys.UID {
		t.Errorf("the tenant has another CA: %v", err)
	}
}

// removeAll is what docs/helm.md says takes everything away, and looks for what is left.
func (i *installation) removeAll(t *testing.T) {
	ctx := context.WithoutCancel(t.Context())
	begun := time.Now()
	tenants, err := i.objects.Metadata(ctx, kube.TenantControlPlanes, "")
	if err != nil && !apierrors.IsNotFound(err) {
		t.Error(err)
	}
	for _, o := range tenants {
		if o.Namespace != namespace {
			t.Errorf("somebody made the tenant %s/%s: delete it, then what docs/helm.md says", o.Namespace, o.Name)
			return
		}
		if _, err := i.objects.Delete(ctx, kube.TenantControlPlanes, o.Namespace, o.Name, metav1.DeleteOptions{}); err != nil {
			t.Error(err)
		}
	}
	until(ctx, t, "all tenants to be gone", func() error {
		left, err := i.objects.Metadata(ctx, kube.TenantControlPlanes, "")
		if apierrors.IsNotFound(err) || err == nil && len(left) == 0 {
			return nil
		}
		return fmt.Errorf("%d are left: %w", len(left), err)
	})
	for _, release := range []string{"stoker-etcd-other", "stoker-etcd", "stoker"} {
		if err := i.runHelm(ctx, "uninstall", release, "--wait", "--ignore-not-found"); err != nil {
			t.Error(err)
		}
	}
	if err := i.deleteRest(ctx); err != nil {
		t.Error(err)
	}
	until(ctx, t, "the namespaces to be gone", func() error {
		for _, n := range []string{name.SystemNamespace, namespace} {
			if _, err := i.core.CoreV1().Namespaces().Get(ctx, n, metav1.GetOptions{}); !apierrors.IsNotFound(err) {
				return fmt.Errorf("%s: %w", n, err)
			}
		}
		return nil
	})
	i.report.took(t, begun, "everything removed")
	i.nothingLeft(ctx, t)
}

// deleteRest deletes what Helm keeps: definitions, roles and policies that hooks made, namespaces.
func (i *installation) deleteRest(ctx context.Context) error {
	parts := metav1.ListOptions{LabelSelector: "app.kubernetes.io/part-of=stoker"}
	now := metav1.DeleteOptions{}
	rbac := i.core.RbacV1()
	err := errors.Join(
		i.core.RESTClient().Delete().AbsPath("/apis/apiextensions.k8s.io/v1/customresourcedefinitions").VersionedParams(&parts, metav1.ParameterCodec).Do(ctx).Error(),
		rbac.ClusterRoles().DeleteCollection(ctx, now, parts), rbac.ClusterRoleBindings().DeleteCollection(ctx, now, parts),
		ignoreNotFound(rbac.ClusterRoleBindings().Delete(ctx, namespace, now)),
	)
	for _, n := range []string{name.SystemNamespace, namespace} {
		err = errors.Join(err, ignoreNotFound(i.core.CoreV1().Namespaces().Delete(ctx, n, now)))
	}
	return err
}

func ignoreNotFound(err error) error {
	if apierrors.IsNotFound(err) {
		return nil
	}
	return err
}

// nothingLeft looks for what of the installation is left outside of its namespace.
func (i *installation) nothingLeft(ctx context.Context, t *testing.T) {
	t.Helper()
	for _, path := range []string{
		"/apis/apiextensions.k8s.io/v1/customresourcedefinitions", "/apis/rbac.authorization.k8s.io/v1/clusterroles",
		"/apis/rbac.authorization.k8s.io/v1/clusterrolebindings", "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicies",
		"/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicybindings", "/api/v1/persistentvolumeclaims",
	} {
		var all metav1.PartialObjectMetadataList
		data, err := i.core.RESTClient().Get().AbsPath(path).Do(ctx).Raw()
		if err == nil {
			err = json.Unmarshal(data, &all)
		}
		if err != nil {
			t.Error(err)
		}
		for _, o := range all.Items {
			if strings.HasPrefix(o.Name, "stoker") || strings.HasSuffix(o.Name, ".kamaji.clastix.io") || o.Labels["app.kubernetes.io/part-of"] == "stoker" {
				t.Errorf("left: %s/%s", path, o.Name)
			}
		}
	}
}

// until waits for a condition, also once the test has ended.
func until(ctx context.Context, t *testing.T, what string, is func() error) {
	t.Helper()
	if err := poll.Retry(ctx, is); err != nil {
		t.Errorf("never happened: %s: %v", what, err)
	}
}

// explain prints what there is when a step fails.
func (i *installation) explain(t *testing.T) {
	t.Helper()
	tenants, err := i.objects.Metadata(t.Context(), kube.TenantControlPlanes, "")
	if err != nil {
		t.Log(err)
	}
	for _, o := range tenants {
		if tenant, err := i.get(t.Context(), o.Name); err == nil {
			t.Logf("%s: %+v", o.Name, tenant.Status.Conditions)
		}
	}
	for _, in := range []string{name.SystemNamespace, namespace} {
		pods, err := i.core.CoreV1().Pods(in).List(t.Context(), metav1.ListOptions{})
		if err != nil {
			t.Log(err)
			continue
		}
		for _, p := range pods.Items {
			t.Logf("pod %s/%s: %s", p.Namespace, p.Name, p.Status.Phase)
			for _, c := range p.Status.ContainerStatuses {
				t.Logf("    %s ready %t, restarts %d, %+v", c.Name, c.Ready, c.RestartCount, c.State)
			}
		}
	}
}
