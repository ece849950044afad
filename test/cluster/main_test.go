// Package cluster installs Stoker by Helm on a Kubernetes cluster of its user's, and tries there what a process node can't show: kubelets,
// images, nodes, Services. `make test-cluster KUBECONFIG=… REGISTRY=…` pushes the images and runs it. It takes the whole installation, and
// removes all that it made.
package cluster

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"regexp"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/client-go/tools/portforward"
	"k8s.io/client-go/transport/spdy"

	"github.com/stoker-k8s/stoker/pkg/api/name"
	"github.com/stoker-k8s/stoker/pkg/kube"
	"github.com/stoker-k8s/stoker/test/env"
)

// What `make test-cluster` sets. They have names of their own so that no other test run touches the cluster that a shell happens to name.
const (
	envKubeconfig = "STOKER_TEST_CLUSTER"
	envRegistry   = "STOKER_TEST_REGISTRY"
	envTag        = "STOKER_TEST_TAG"
	envNode       = "STOKER_TEST_NODE"
	envJoin       = "STOKER_TEST_JOIN"
	envE2E        = "STOKER_TEST_E2E"
	envConform    = "STOKER_TEST_CONFORMANCE"
)

// installation is Stoker on the cluster.
type installation struct {
	kubeconfig, registry, tag string
	config                    *rest.Config
	core                      *kubernetes.Clientset
	objects                   *kube.Client
	// volumes says that the cluster gives volumes by default.
	volumes bool
	// address of a node, for tenants by NodePort.
	address string
	// node is a program that takes a node from the network (`node down NAME`) and gives it back (`node up NAME`); none if empty.
	node string
	// join is a program that has a machine, which is none of the cluster's, join a tenant (`join NAME kubeadm join …`, with the tenant's
	// kubeconfig as KUBECONFIG); none if empty.
	join string
	// e2e is Kubernetes' program of end to end tests, none if empty; conformance is "all" for all of its conformance tests, or matches the
	// names of some.
	e2e, conformance string
	// helm is the program, home its directory for what it keeps.
	helm, home string
	report     *report
}

// open connects to the cluster, and skips the test where there is none.
func open(t *testing.T) *installation {
	t.Helper()
	i := &installation{
		kubeconfig: os.Getenv(envKubeconfig), registry: os.Getenv(envRegistry), tag: os.Getenv(envTag), node: os.Getenv(envNode), join: os.Getenv(envJoin),
		e2e: os.Getenv(envE2E), conformance: os.Getenv(envConform), report: &report{},
	}
	if i.kubeconfig == "" || i.registry == "" {
		t.Skip("there is no cluster to install on: make test-cluster KUBECONFIG=… REGISTRY=…")
	}
	if _, err := regexp.Compile(i.conformance); err != nil {
		t.Fatalf("CONFORMANCE: it is \"all\", a regular expression that names of tests match, or empty for a sample: %v", err)
	}
	var err error
	if i.config, err = clientcmd.BuildConfigFromFlags("", i.kubeconfig); err != nil {
		t.Fatal(err)
	}
	i.config.QPS, i.config.Burst = -1, -1
	if i.core, err = kubernetes.NewForConfig(i.config); err != nil {
		t.Fatal(err)
	}
	if i.objects, err = kube.New(i.config, kube.Options{FieldManager: "test-cluster"}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(i.objects.Close)
	i.refuse(t)
	classes, err := i.core.StorageV1().StorageClasses().List(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range classes.Items {
		i.volumes = i.volumes || c.Annotations["storageclass.kubernetes.io/is-default-class"] == "true"
	}
	if !i.volumes {
		t.Log("no StorageClass is the default: NATS and etcd keep their data in their pods, and no snapshot of etcd is tried")
	}
	i.address = i.nodeAddress(t)
	if i.helm, err = env.Helm(); err != nil {
		t.Fatal(err)
	}
	i.home = t.TempDir()
	return i
}

// refuse ends the test on a cluster that has Stoker, Kamaji, whose tenants are of the same kind, or a control plane provider of theirs: at its
// end the test removes everything.
func (i *installation) refuse(t *testing.T) {
	t.Helper()
	if _, err := i.core.CoreV1().Namespaces().Get(t.Context(), name.SystemNamespace, metav1.GetOptions{}); !apierrors.IsNotFound(err) {
		t.Fatalf("the namespace %s is there already, or can't be looked for (%v): this test is for a cluster without Stoker", name.SystemNamespace, err)
	}
	if _, err := i.objects.Metadata(t.Context(), kube.TenantControlPlanes, ""); !apierrors.IsNotFound(err) {
		t.Fatalf("the cluster has TenantControlPlanes already, or they can't be looked for (%v): this test is for one without Stoker and Kamaji", err)
	}
	if _, err := i.objects.Metadata(t.Context(), controlPlanes, ""); !apierrors.IsNotFound(err) {
		t.Fatalf("the cluster has KamajiControlPlanes already, or they can't be looked for (%v): this test is for one without their provider", err)
	}
}

// nodeAddress is the internal address of some node.
func (i *installation) nodeAddress(t *testing.T) string {
	t.Helper()
	nodes, err := i.core.CoreV1().Nodes().List(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	for _, n := range nodes.Items {
		for _, a := range n.Status.Addresses {
			if a.Type == corev1.NodeInternalIP {
				return a.Address
			}
		}
	}
	t.Fatal("no node has an internal address")
	return ""
}

// runHelm runs Helm.
func (i *installation) runHelm(ctx context.Context, args ...string) error {
	cmd := exec.CommandContext(ctx, i.helm, append(args, "--namespace", name.SystemNamespace)...)
	cmd.Env = append(os.Environ(), "KUBECONFIG="+i.kubeconfig, "HELM_CACHE_HOME="+i.home, "HELM_CONFIG_HOME="+i.home, "HELM_DATA_HOME="+i.home)
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("helm %s: %w: %s", strings.Join(args, " "), err, out)
	}
	return nil
}

// forward makes a port of a pod one of this machine, until the test ends.
func (i *installation) forward(t *testing.T, namespace, pod string, port int) (local uint16, err error) {
	t.Helper()
	return forwardTo(t, i.config, i.core, namespace, pod, port)
}

// forwardTo is forward in any cluster.
func forwardTo(t *testing.T, config *rest.Config, core *kubernetes.Clientset, namespace, pod string, port int) (local uint16, err error) {
	t.Helper()
	transport, upgrader, err := spdy.RoundTripperFor(config)
	if err != nil {
		return 0, err
	}
	url := core.CoreV1().RESTClient().Post().Resource("pods").Namespace(namespace).Name(pod).SubResource("portforward").URL()
	dialer := spdy.NewDialer(upgrader, &http.Client{Transport: transport}, http.MethodPost, url)
	stop, ready := make(chan struct{}), make(chan struct{})
	var log bytes.Buffer
	f, err := portforward.New(dialer, []string{fmt.Sprintf("0:%d", port)}, stop, ready, nil, &log)
	if err != nil {
		return 0, err
	}
	ended := make(chan error, 1)
	go func() { ended <- f.ForwardPorts() }()
	select {
	case err := <-ended:
		return 0, errors.Join(err, errors.New(log.String()))
	case <-ready:
	}
	t.Cleanup(func() { close(stop); <-ended })
	ports, err := f.GetPorts()
	if err != nil {
		return 0, err
	}
	return ports[0].Local, nil
}

// reached tells whether something listens at an address as seen from this machine.
func reached(ctx context.Context, address string) bool {
	ctx, cancel := context.WithTimeout(ctx, 2*time.Second)
	defer cancel()
	conn, err := new(net.Dialer).DialContext(ctx, "tcp", address)
	if err == nil {
		_ = conn.Close()
	}
	return err == nil
}
