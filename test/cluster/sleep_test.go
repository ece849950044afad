package cluster

import (
	"context"
	"encoding/base64"
	"fmt"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	"github.com/stoker-k8s/stoker/internal/testing/poll"
	"github.com/stoker-k8s/stoker/pkg/api/name"
	"github.com/stoker-k8s/stoker/pkg/api/v1alpha1"
	"github.com/stoker-k8s/stoker/pkg/events"
	"github.com/stoker-k8s/stoker/test/inside"
)

// wakeByConnection asks tenants from pods of the cluster, and one from this machine: while they are awake, and while they sleep, which wakes them.
func wakeByConnection(t *testing.T, i *installation) {
	client := i.portal(t)
	external := i.tenant("external-ip", v1alpha1.ServiceTypeClusterIP, current)
	external.Spec.NetworkProfile.Address, external.Spec.NetworkProfile.AllowAddressAsExternalIP = "203.0.113.7", true
	port := i.byNodePort("port-of-nodes")
	for _, c := range []struct {
		how     string
		o       *v1alpha1.TenantControlPlane
		outside bool
	}{
		{"ClusterIP", i.tenant("cluster-ip", v1alpha1.ServiceTypeClusterIP, current), false},
		{"external IP of a ClusterIP", external, false},
		{"NodePort", port, false},
		{"NodePort, from outside", port, true},
	} {
		t.Run(c.how, func(t *testing.T) {
			n := c.o.Name
			c.o.Annotations = map[string]string{name.AnnotationWakeOn: name.WakeOnConnection}
			i.apply(t, c.o)
			i.ready(t, n)
			config := i.client(t, n)
			ask := i.askFromPod
			if c.outside {
				ask = askFromHere
			}
			ask(t, config)
			if _, err := client.Sleep(t.Context(), events.Tenant(namespace, n)); err != nil {
				t.Fatal(err)
			}
			t.Log(i.says(t, n, "the first connection wakes it"))
			i.onlyPods(t, n, 0)
			took := ask(t, config)
			i.report.line(t, fmt.Sprintf("%-64s %6.1f s", "asleep, by "+c.how+", from the connection to the answer", took.Seconds()))
			i.ready(t, n)
		})
	}
	i.remove(t, "cluster-ip", external.Name, port.Name)
}

// askFromHere asks a tenant for its version on a new connection, and tells how long the answer took.
func askFromHere(t *testing.T, config *rest.Config) time.Duration {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	begun := time.Now()
	if err := inside.Get(ctx, config.Host+"/version", config.CAData); err != nil {
		t.Fatal(err)
	}
	return time.Since(begun)
}

// askFromPod has a pod do that.
func (i *installation) askFromPod(t *testing.T, config *rest.Config) (took time.Duration) {
	t.Helper()
	pods, pod := i.core.CoreV1().Pods(namespace), i.runInside(t, "get", config)
	poll.Nil(t, "a pod to have asked "+config.Host, func() error {
		p, err := pods.Get(t.Context(), pod, metav1.GetOptions{})
		if err == nil && p.Status.Phase != corev1.PodSucceeded && p.Status.Phase != corev1.PodFailed {
			err = fmt.Errorf("it is %s: %+v", p.Status.Phase, p.Status.ContainerStatuses)
		}
		return err
	})
	log, err := pods.GetLogs(pod, &corev1.PodLogOptions{}).DoRaw(t.Context())
	if err == nil {
		took, err = time.ParseDuration(strings.TrimSpace(string(log)))
	}
	if err != nil {
		t.Fatalf("a pod asks %s: %v: %s", config.Host, err, log)
	}
	if err := pods.Delete(t.Context(), pod, metav1.DeleteOptions{}); err != nil {
		t.Error(err)
	}
	return took
}

// runInside runs a command of the program for pods against a tenant, and returns the pod's name.
func (i *installation) runInside(t *testing.T, command string, config *rest.Config) string {
	t.Helper()
	pod, err := i.core.CoreV1().Pods(namespace).Create(t.Context(), &corev1.Pod{ObjectMeta: metav1.ObjectMeta{GenerateName: "asks-"}, Spec: corev1.PodSpec{
		RestartPolicy: corev1.RestartPolicyNever,
		Containers: []corev1.Container{{
			Name: "asks", Image: i.registry + "/stoker-test-inside:" + i.tag,
			Args: []string{command, config.Host + "/version", base64.StdEncoding.EncodeToString(config.CAData)},
		}},
	}}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return pod.Name
}
