package cluster

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/stoker-k8s/stoker/internal/testing/poll"
	"github.com/stoker-k8s/stoker/pkg/api/event"
	"github.com/stoker-k8s/stoker/pkg/api/name"
	"github.com/stoker-k8s/stoker/test/env"
)

// backups are the volume that tenants' backups go to, its claim, and the name of the location.
const backups = "backups"

// backupTenant has a tenant's backup made in a volume, and the tenant set back to it, as docs/backup.md says.
func backupTenant(t *testing.T, i *installation) {
	i.makeVolume(t)
	begun := time.Now()
	i.charts(t,
		"--set", "services.datastore.volumes[0].name=backups,services.datastore.volumes[0].persistentVolumeClaim.claimName="+backups,
		"--set", "services.datastore.volumeMounts[0].name=backups,services.datastore.volumeMounts[0].mountPath=/backups")
	i.report.took(t, begun, "a volume for backups, by `helm upgrade`")
	stoker, identity := i.stoker(t), filepath.Join(t.TempDir(), "identity")
	stoker("backup-location", backups, "--url", "file:///backups", "--new-identity", identity)

	const n = "backed-up"
	i.apply(t, i.byNodePort(n))
	i.ready(t, n)
	c, err := kubernetes.NewForConfig(i.client(t, n))
	if err != nil {
		t.Fatal(err)
	}
	maps := c.CoreV1().ConfigMaps("default")
	for _, m := range []string{"stays", "goes"} {
		if _, err := maps.Create(t.Context(), &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: m}}, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	begun = time.Now()
	stoker("backup", n, "-n", namespace, "--to", backups, "--wait")
	i.report.took(t, begun, "a backup")
	if err := maps.Delete(t.Context(), "goes", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	if _, err := maps.Create(t.Context(), &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "came"}}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	var there []event.BackupThere
	if err := json.Unmarshal(stoker("backups", n, "-n", namespace, "-o", "json"), &there); err != nil || len(there) != 1 {
		t.Fatalf("there are %+v: %v", there, err)
	}
	begun = time.Now()
	stoker("restore", fmt.Sprintf("%s/%s/%s/%s", backups, namespace, n, there[0].ID), "-n", namespace, "--identity", identity, "--in-place", "--wait")
	i.report.took(t, begun, "restored in place")
	for m, want := range map[string]bool{"stays": true, "goes": true, "came": false} {
		_, err := maps.Get(t.Context(), m, metav1.GetOptions{})
		if err != nil && !apierrors.IsNotFound(err) || want != (err == nil) {
			t.Errorf("%s is there: %t, %v", m, err == nil, err)
		}
	}
	i.remove(t, n)
	i.charts(t) // without the volume
}

// makeVolume makes a claim of a directory of one node: by a pod that makes the directory, since of a local volume Kubernetes has the fsGroup own
// it, as of others, and of a hostPath it doesn't.
func (i *installation) makeVolume(t *testing.T) {
	t.Helper()
	const path = "/var/lib/stoker-test-backups"
	nodes, err := i.core.CoreV1().Nodes().List(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	node, kind := nodes.Items[0].Labels[corev1.LabelHostname], corev1.HostPathDirectoryOrCreate
	prepares := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: "prepares"},
		Spec: corev1.PodSpec{
			NodeName: nodes.Items[0].Name, RestartPolicy: corev1.RestartPolicyNever,
			Volumes:    []corev1.Volume{{Name: "d", VolumeSource: corev1.VolumeSource{HostPath: &corev1.HostPathVolumeSource{Path: path, Type: &kind}}}},
			Containers: []corev1.Container{{Name: "c", Image: i.registry + "/stoker:" + i.tag, Args: []string{"--help"}, VolumeMounts: []corev1.VolumeMount{{Name: "d", MountPath: "/d"}}}},
		},
	}
	pods := i.core.CoreV1().Pods(namespace)
	if _, err := pods.Create(t.Context(), prepares, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	poll.Nil(t, "the volume's directory", func() error {
		p, err := pods.Get(t.Context(), prepares.Name, metav1.GetOptions{})
		if err == nil && p.Status.Phase != corev1.PodSucceeded {
			err = fmt.Errorf("the pod is %s: %+v", p.Status.Phase, p.Status.ContainerStatuses)
		}
		return err
	})
	size := corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("1Gi")}
	class := "stoker-test"
	_, err = i.core.CoreV1().PersistentVolumes().Create(t.Context(), &corev1.PersistentVolume{
		ObjectMeta: metav1.ObjectMeta{Name: "stoker-test-" + backups},
		Spec: corev1.PersistentVolumeSpec{
			Capacity: size, AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteMany}, StorageClassName: class,
			PersistentVolumeReclaimPolicy: corev1.PersistentVolumeReclaimRetain,
			PersistentVolumeSource:        corev1.PersistentVolumeSource{Local: &corev1.LocalVolumeSource{Path: path}},
			NodeAffinity: &corev1.VolumeNodeAffinity{Required: &corev1.NodeSelector{NodeSelectorTerms: []corev1.NodeSelectorTerm{{
				MatchExpressions: []corev1.NodeSelectorRequirement{{Key: corev1.LabelHostname, Operator: corev1.NodeSelectorOpIn, Values: []string{node}}},
			}}}},
		},
	}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	claims := i.core.CoreV1().PersistentVolumeClaims(name.SystemNamespace)
	_, err = claims.Create(t.Context(), &corev1.PersistentVolumeClaim{
		ObjectMeta: metav1.ObjectMeta{Name: backups},
		Spec: corev1.PersistentVolumeClaimSpec{
			AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteMany}, StorageClassName: &class, VolumeName: "stoker-test-" + backups,
			Resources: corev1.VolumeResourceRequirements{Requests: size},
		},
	}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	ctx := context.WithoutCancel(t.Context())
	t.Cleanup(func() {
		err := errors.Join(
			pods.Delete(ctx, prepares.Name, metav1.DeleteOptions{}), claims.Delete(ctx, backups, metav1.DeleteOptions{}),
			i.core.CoreV1().PersistentVolumes().Delete(ctx, "stoker-test-"+backups, metav1.DeleteOptions{}),
		)
		if err != nil {
			t.Error(err)
		}
	})
}

// stoker runs the command line as the operator, through a server's pod, and returns what it prints.
func (i *installation) stoker(t *testing.T) func(args ...string) []byte {
	t.Helper()
	dir := t.TempDir()
	program := filepath.Join(dir, "stoker")
	build := exec.CommandContext(t.Context(), "go", "build", "-o", program, "./cmd/stoker")
	build.Dir = env.Root()
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	seed, authority := i.credentials(t, "operator")
	port, err := i.forward(t, name.SystemNamespace, "stoker-nats-0", 4222)
	if err != nil {
		t.Fatal(err)
	}
	return func(args ...string) []byte {
		t.Helper()
		cmd := exec.CommandContext(t.Context(), program, append(args,
			"--kubeconfig", i.kubeconfig, "--nats", fmt.Sprintf("tls://localhost:%d", port), "--nkey", seed, "--nats-ca", authority)...)
		cmd.Stderr = os.Stderr
		out, err := cmd.Output()
		if err != nil {
			t.Fatalf("stoker %q: %v: %s", args, err, out)
		}
		return out
	}
}
