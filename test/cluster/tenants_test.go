package cluster

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"net"
	"net/url"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/stoker-k8s/stoker/internal/testing/poll"
	"github.com/stoker-k8s/stoker/pkg/api/name"
	"github.com/stoker-k8s/stoker/pkg/api/v1alpha1"
	"github.com/stoker-k8s/stoker/pkg/kube"
	"github.com/stoker-k8s/stoker/test/env"
)

// Versions of Kubernetes that tenants run.
const (
	older   = "v1.35.4"
	current = "v1.36.3"
)

// namespace of the tenants. It is the test's own.
var namespace = "stoker-test-" + strings.ToLower(rand.Text()[:6])

// tenant is a small tenant of the type of Service that is given, with images from the registry.
func (i *installation) tenant(n string, service v1alpha1.ServiceType, version string) *v1alpha1.TenantControlPlane {
	o := env.Tenant(n, version)
	o.Namespace = namespace
	o.Spec.ControlPlane.Service.ServiceType = service
	o.Spec.ControlPlane.Deployment.RegistrySettings.Registry = i.registry
	return o
}

// nodePorts counts the node ports that tests took.
var nodePorts int32 = 31800

// byNodePort has a tenant reached at a node's address, each at a port of its own.
func (i *installation) byNodePort(n string) *v1alpha1.TenantControlPlane {
	o := i.tenant(n, v1alpha1.ServiceTypeNodePort, current)
	nodePorts++
	o.Spec.NetworkProfile.Address, o.Spec.NetworkProfile.Port = i.address, nodePorts
	return o
}

// apply is `kubectl apply`.
func (i *installation) apply(t *testing.T, o *v1alpha1.TenantControlPlane) {
	t.Helper()
	o = o.DeepCopy()
	o.TypeMeta = kube.TenantControlPlanes.TypeMeta()
	if err := i.objects.Apply(t.Context(), kube.TenantControlPlanes, o); err != nil {
		t.Fatal(err)
	}
}

// get reads a tenant.
func (i *installation) get(ctx context.Context, n string) (*v1alpha1.TenantControlPlane, error) {
	o := &v1alpha1.TenantControlPlane{}
	return o, i.objects.Get(ctx, kube.TenantControlPlanes, namespace, n, o)
}

// ready waits until a tenant's generation is Ready.
func (i *installation) ready(t *testing.T, n string) {
	t.Helper()
	poll.Nil(t, n+" to be Ready", func() error {
		o, err := i.get(t.Context(), n)
		if err != nil {
			return err
		}
		for _, c := range o.Status.Conditions {
			if c.Type == "Ready" && c.Status == metav1.ConditionTrue && c.ObservedGeneration == o.Generation {
				return nil
			}
		}
		return fmt.Errorf("conditions: %+v", o.Status.Conditions)
	})
}

// says waits until a condition of a tenant says what is wanted, and returns its message.
func (i *installation) says(t *testing.T, n, want string) (message string) {
	t.Helper()
	poll.Nil(t, fmt.Sprintf("%s to say %q", n, want), func() error {
		o, err := i.get(t.Context(), n)
		if err != nil {
			return err
		}
		for _, c := range o.Status.Conditions {
			if c.Type == "Ready" && strings.Contains(c.Message, want) {
				message = c.Message
				return nil
			}
		}
		return fmt.Errorf("conditions: %+v", o.Status.Conditions)
	})
	return message
}

// remove deletes tenants and waits until nothing is left of them.
func (i *installation) remove(t *testing.T, names ...string) {
	t.Helper()
	for _, n := range names {
		if _, err := i.objects.Delete(t.Context(), kube.TenantControlPlanes, namespace, n, metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	for _, n := range names {
		i.gone(t, n)
	}
}

// gone waits until nothing is left of a tenant.
func (i *installation) gone(t *testing.T, n string) {
	t.Helper()
	poll.Nil(t, n+" to be gone", func() error {
		if o, err := i.get(t.Context(), n); !apierrors.IsNotFound(err) {
			return fmt.Errorf("it is there: %w: %+v", err, o.Status.Conditions)
		}
		return nil
	})
	selector := metav1.ListOptions{LabelSelector: labels.FormatLabels(name.Selector(n))}
	secrets, err := i.core.CoreV1().Secrets(namespace).List(t.Context(), selector)
	left := err
	for _, s := range secrets.Items {
		left = errors.Join(left, errors.New("Secret "+s.Name))
	}
	pods, err := i.core.CoreV1().Pods(namespace).List(t.Context(), selector)
	left = errors.Join(left, err)
	for _, p := range pods.Items {
		left = errors.Join(left, errors.New("pod "+p.Name))
	}
	if _, err := i.core.CoreV1().Services(namespace).Get(t.Context(), name.Service(n), metav1.GetOptions{}); !apierrors.IsNotFound(err) {
		left = errors.Join(left, fmt.Errorf("its Service: %w", err))
	}
	if left != nil {
		t.Errorf("left of %s: %v", n, left)
	}
}

// client of a tenant's API, with its administrator's kubeconfig: at its endpoint, or through its pod where that isn't reached from here.
func (i *installation) client(t *testing.T, n string) *rest.Config {
	t.Helper()
	secret, err := i.core.CoreV1().Secrets(namespace).Get(t.Context(), name.AdminKubeconfig(n), metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	config, err := clientcmd.RESTConfigFromKubeConfig(secret.Data[name.KeyAdminConf])
	if err != nil {
		t.Fatal(err)
	}
	endpoint, err := url.Parse(config.Host)
	if err != nil {
		t.Fatal(err)
	}
	if reached(t.Context(), endpoint.Host) {
		return config
	}
	t.Logf("%s isn't reached from here at %s: through its pod", n, endpoint.Host)
	pods, err := i.core.CoreV1().Pods(namespace).List(t.Context(), metav1.ListOptions{LabelSelector: labels.FormatLabels(name.Selector(n))})
	if err != nil || len(pods.Items) == 0 {
		t.Fatalf("pods of %s: %v", n, err)
	}
	port, err := i.forward(t, namespace, pods.Items[0].Name, 6443)
	if err != nil {
		t.Fatal(err)
	}
	config.Dial = func(ctx context.Context, network, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, network, fmt.Sprintf("127.0.0.1:%d", port))
	}
	return config
}

// answers checks that a tenant's API is that of its kubeconfig and has what each cluster has.
func (i *installation) answers(t *testing.T, n, version string) {
	t.Helper()
	c, err := kubernetes.NewForConfig(i.client(t, n))
	if err != nil {
		t.Fatal(err)
	}
	said, err := c.Discovery().ServerVersion()
	if err != nil || said.GitVersion != version {
		t.Errorf("%s has the version %v, want %s: %v", n, said, version, err)
	}
	if _, err := c.CoreV1().ConfigMaps("kube-system").Get(t.Context(), "kubeadm-config", metav1.GetOptions{}); err != nil {
		t.Errorf("%s: %v", n, err)
	}
}

// steps notes when what a tenant's pod goes through was first seen.
type steps struct {
	mu    sync.Mutex
	begun time.Time
	seen  map[string]time.Duration
	order []string
	stop  func()
}

// follow watches the pods of a tenant until stop.
func (i *installation) follow(t *testing.T, n string) *steps {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	s := &steps{begun: time.Now(), seen: map[string]time.Duration{}}
	pods, err := i.core.CoreV1().Pods(namespace).Watch(ctx, metav1.ListOptions{LabelSelector: labels.FormatLabels(name.Selector(n))})
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		for e := range pods.ResultChan() {
			if p, ok := e.Object.(*corev1.Pod); ok {
				s.look(p)
			}
		}
	}()
	s.stop = func() { cancel(); <-done }
	t.Cleanup(s.stop)
	return s
}

// look notes what a pod says of itself.
func (s *steps) look(p *corev1.Pod) {
	s.note("pod created")
	for _, condition := range p.Status.Conditions {
		if condition.Status != corev1.ConditionTrue {
			continue
		}
		switch condition.Type {
		case corev1.PodScheduled:
			s.note("scheduled")
		case corev1.PodReadyToStartContainers:
			s.note("sandbox and network")
		case corev1.PodReady:
			s.note("pod ready")
		}
	}
	for _, container := range p.Status.ContainerStatuses {
		if container.State.Running != nil {
			s.note(container.Name + " runs")
		}
		if container.Started != nil && *container.Started {
			s.note(container.Name + " serves")
		}
		if container.Ready {
			s.note(container.Name + " ready")
		}
	}
}

func (s *steps) note(what string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if _, ok := s.seen[what]; !ok {
		s.seen[what] = time.Since(s.begun)
		s.order = append(s.order, what)
	}
}

// report prints the steps, in seconds since the tenant was asked for.
func (s *steps) report(t *testing.T, r *report) {
	t.Helper()
	s.stop()
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, what := range s.order {
		r.line(t, fmt.Sprintf("    %-60s %6.2f s", what, s.seen[what].Seconds()))
	}
}
