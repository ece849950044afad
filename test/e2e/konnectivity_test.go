package e2e

import (
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	"github.com/stoker-k8s/stoker/internal/testing/port"
	"github.com/stoker-k8s/stoker/local/images"
	"github.com/stoker-k8s/stoker/pkg/api/name"
	"github.com/stoker-k8s/stoker/pkg/api/v1alpha1"
	"github.com/stoker-k8s/stoker/pkg/events"
	"github.com/stoker-k8s/stoker/pkg/kube"
	"github.com/stoker-k8s/stoker/test/env"
	"github.com/stoker-k8s/stoker/test/inside"
)

// TestKonnectivity has a tenant reach servers of its own through the tunnel: the konnectivity server beside its API server, and a real
// agent, with the flags that the tenant's DaemonSet gives it, in the place of the node that the process node's tenants don't have. What
// needs a kubelet (logs, exec, port-forward) is in test/cluster.
func TestKonnectivity(t *testing.T) {
	e.Services(t)
	key := events.Tenant("default", "tunnel")
	o := env.Tenant(key.Name, "v1.36.3")
	e.Apply(t, o)
	before := e.Ready(t, key)
	o.Spec.Addons.Konnectivity = &v1alpha1.KonnectivitySpec{}
	e.Apply(t, o)
	x := &tunnelled{whole: t, key: key}
	x.becomes(t, metav1.ConditionFalse, "NoAgents")
	e.Ready(t, key)
	x.kubeconfig = e.Kubeconfig(t, key)

	t.Run("switched on, it is one rollout", func(t *testing.T) { x.revision(t, "2") })
	t.Run("a webhook inside the tenant can't be called without an agent, and is called through one", func(t *testing.T) {
		x.serve(t)
		if err := x.admit(t); err == nil {
			t.Fatal("the webhook was called without a tunnel")
		}
		x.startAgent(t)
		env.Eventually(t, "the webhook to be called", func() error { return x.admit(t) })
	})
	t.Run("an aggregated API inside the tenant answers through the tunnel", func(t *testing.T) {
		env.Eventually(t, "the APIService to be available", func() error {
			out, err := e.TryKubectl(t.Context(), x.kubeconfig, nil, "get", "--raw", inside.Answer)
			if err == nil && !strings.Contains(out, inside.Says) {
				err = errors.New(out)
			}
			return err
		})
	})
	t.Run("the agent killed, another one takes its place", func(t *testing.T) {
		x.killAgent(t)
		x.startAgent(t)
		env.Eventually(t, "the webhook to be called again", func() error { return x.admit(t) })
	})
	t.Run("the server killed, the agent connects to the next", func(t *testing.T) {
		pod := podOf(t, key)
		pid := e.Local.ContainerPID(key.Namespace, pod, name.ContainerKonnectivity)
		if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
			t.Fatal(pid, err)
		}
		env.Eventually(t, "another server", func() error {
			if now := e.Local.ContainerPID(key.Namespace, pod, name.ContainerKonnectivity); now == 0 || now == pid {
				return fmt.Errorf("process %d", now)
			}
			return nil
		})
		env.Eventually(t, "the webhook to be called again", func() error { return x.admit(t) })
	})
	t.Run("a deleted agent's workload, account or binding comes back", func(t *testing.T) {
		for _, what := range []string{"ds/konnectivity-agent", "sa/konnectivity-agent"} {
			e.Kubectl(t, x.kubeconfig, "-n", "kube-system", "delete", what)
			env.Eventually(t, what+" again", func() error {
				_, err := e.TryKubectl(t.Context(), x.kubeconfig, nil, "-n", "kube-system", "get", what)
				return err
			})
		}
		e.Kubectl(t, x.kubeconfig, "delete", "clusterrolebinding", "system:konnectivity-server")
		env.Eventually(t, "the binding again", func() error {
			_, err := e.TryKubectl(t.Context(), x.kubeconfig, nil, "get", "clusterrolebinding", "system:konnectivity-server")
			return err
		})
	})
	t.Run("the egress configuration comes back, and rolls out nothing", func(t *testing.T) {
		admin := e.Local.Kubeconfig("admin")
		e.Kubectl(t, admin, "-n", key.Namespace, "delete", "cm", name.KonnectivityEgressSelector(key.Name))
		env.Eventually(t, "the ConfigMap again", func() error {
			_, err := e.TryKubectl(t.Context(), admin, nil, "-n", key.Namespace, "get", "cm", name.KonnectivityEgressSelector(key.Name))
			return err
		})
		x.revision(t, "2")
	})
	t.Run("as a Deployment, the DaemonSet goes", func(t *testing.T) {
		o.Spec.Addons.Konnectivity.Agent = v1alpha1.KonnectivityAgentSpec{Mode: v1alpha1.KonnectivityAgentModeDeployment, Replicas: new(int32(3))}
		e.Apply(t, o)
		env.Eventually(t, "a Deployment and no DaemonSet", func() error {
			out, err := e.TryKubectl(t.Context(), x.kubeconfig, nil, "-n", "kube-system", "get", "ds,deploy", "-l", "k8s-app=konnectivity-agent", "-o", "name")
			if err == nil && strings.TrimSpace(out) != "deployment.apps/konnectivity-agent" {
				err = errors.New(out)
			}
			return err
		})
		x.becomes(t, metav1.ConditionFalse, "AgentsNotConnected")
		x.revision(t, "2") // inside the tenant alone
	})
	t.Run("switched off, nothing is left on either side, in one rollout", func(t *testing.T) {
		x.killAgent(t)
		o.Spec.Addons.Konnectivity = nil
		e.Apply(t, o)
		env.Eventually(t, "nothing of konnectivity", func() error { return x.nothing(t) })
		after := e.Ready(t, key)
		if after.Status.Addons.Konnectivity.Enabled || meta.FindStatusCondition(after.Status.Conditions, "TunnelConnected") != nil {
			t.Errorf("the status still has it: %+v", after.Status.Addons.Konnectivity)
		}
		x.revision(t, "3")
		if was := before.Status.Kubernetes.Service; was == nil || after.Status.ControlPlaneEndpoint != before.Status.ControlPlaneEndpoint {
			t.Errorf("endpoint %s, before %s", after.Status.ControlPlaneEndpoint, before.Status.ControlPlaneEndpoint)
		}
	})
	e.Delete(t, key)
	e.Gone(t, key)
	nothingLeft(t, key)
}

// tunnelled is a tenant with konnectivity.
type tunnelled struct {
	whole      *testing.T // as long as which servers and agents live
	key        events.Key
	kubeconfig string
	agent      *exec.Cmd
}

// becomes waits until the condition of the tunnel is so.
func (x *tunnelled) becomes(t *testing.T, status metav1.ConditionStatus, reason string) {
	t.Helper()
	env.Eventually(t, "TunnelConnected "+reason, func() error {
		var o v1alpha1.TenantControlPlane
		get(t, kube.TenantControlPlanes, x.key.Namespace, x.key.Name, &o)
		c := meta.FindStatusCondition(o.Status.Conditions, "TunnelConnected")
		if c == nil || c.Status != status || c.Reason != reason {
			return fmt.Errorf("%+v", c)
		}
		return nil
	})
}

// revision checks how often the Deployment has been rolled out.
func (x *tunnelled) revision(t *testing.T, want string) {
	t.Helper()
	var d appsv1.Deployment
	get(t, kube.Deployments, x.key.Namespace, name.Deployment(x.key.Name), &d)
	if got := d.Annotations["deployment.kubernetes.io/revision"]; got != want {
		t.Errorf("revision %s of the Deployment, not %s", got, want)
	}
}

// startAgent runs the agent as the tenant's DaemonSet says, and waits until it is connected.
func (x *tunnelled) startAgent(t *testing.T) {
	t.Helper()
	var o appsv1.DaemonSet
	out := e.Kubectl(t, x.kubeconfig, "-n", "kube-system", "get", "ds", name.KonnectivityAgent, "-o", "yaml")
	if err := yaml.Unmarshal([]byte(out), &o); err != nil {
		t.Fatal(err)
	}
	dir := x.whole.TempDir()
	token := strings.TrimSpace(e.Kubectl(t, x.kubeconfig, "-n", "kube-system", "create", "token", name.KonnectivityAgent, "--audience", name.KonnectivityUser))
	var ca corev1.Secret
	get(t, kube.Secrets, x.key.Namespace, name.CA(x.key.Name), &ca)
	files := map[string][]byte{"token": []byte(token), "ca.crt": ca.Data[name.KeyCACert]}
	for file, data := range files {
		if err := os.WriteFile(filepath.Join(dir, file), data, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	store, err := images.Open(env.Root())
	if err != nil {
		t.Fatal(err)
	}
	program, err := store.Pull(t.Context(), o.Spec.Template.Spec.Containers[0].Image, nil)
	if err != nil {
		t.Fatal(err)
	}
	health, admin := strconv.Itoa(port.Free(t)), strconv.Itoa(port.Free(t))
	args := slices.Clone(o.Spec.Template.Spec.Containers[0].Args)
	for i, arg := range args {
		switch flag, _, _ := strings.Cut(arg, "="); flag {
		case "--ca-cert":
			args[i] = flag + "=" + filepath.Join(dir, "ca.crt")
		case "--service-account-token-path":
			args[i] = flag + "=" + filepath.Join(dir, "token")
		case "--health-server-port":
			args[i] = flag + "=" + health
		case "--admin-server-port":
			args[i] = flag + "=" + admin
		}
	}
	log, err := os.Create(filepath.Join(dir, "log"))
	if err != nil {
		t.Fatal(err)
	}
	x.agent = exec.Command(program.Path, append(args, "--health-server-host=127.0.0.1", "--admin-bind-address=127.0.0.1")...)
	x.agent.Stdout, x.agent.Stderr = log, log
	x.agent.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := x.agent.Start(); err != nil {
		t.Fatal(err)
	}
	agent := x.agent
	x.whole.Cleanup(func() { _ = agent.Process.Kill() }) // no error if it has ended
	env.Eventually(t, "the agent to be connected", func() error {
		r, err := http.Get("http://127.0.0.1:" + health + "/readyz")
		if err != nil {
			return err
		}
		defer func() { _ = r.Body.Close() }()
		if r.StatusCode != http.StatusOK {
			text, _ := os.ReadFile(log.Name())
			return fmt.Errorf("%s: %s", r.Status, text)
		}
		return nil
	})
}

func (x *tunnelled) killAgent(t *testing.T) {
	t.Helper()
	if x.agent == nil {
		return
	}
	if err := x.agent.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = x.agent.Wait()
	x.agent = nil
	env.Eventually(t, "the webhook not to be reached", func() error {
		if x.admit(t) == nil {
			return errors.New("it was called")
		}
		return nil
	})
}

// admit has the API server ask the webhook, which changes what it is asked about.
func (x *tunnelled) admit(t *testing.T) error {
	t.Helper()
	const object = `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"generateName":"asked-","namespace":"default","labels":{"ask":"me"}}}`
	out, err := e.TryKubectl(t.Context(), x.kubeconfig, strings.NewReader(object), "create", "-f", "-", "-o", "yaml")
	if err == nil && !strings.Contains(out, inside.Came) {
		err = errors.New("the webhook was not asked: " + out)
	}
	return err
}

// serve runs a webhook and an aggregated API on this machine, where the agent is, and makes them known to the tenant as Services: by
// name, for there is no network in which they could have an address of their own.
func (x *tunnelled) serve(t *testing.T) {
	t.Helper()
	certificate, key, err := inside.SelfSigned()
	if err != nil {
		t.Fatal(err)
	}
	pair, err := tls.X509KeyPair(certificate, key)
	if err != nil {
		t.Fatal(err)
	}
	server := httptest.NewUnstartedServer(inside.Handler())
	server.TLS = &tls.Config{Certificates: []tls.Certificate{pair}, MinVersion: tls.VersionTLS12}
	server.StartTLS()
	x.whole.Cleanup(server.Close)
	_, port, _ := net.SplitHostPort(server.Listener.Addr().String())
	objects := fmt.Sprintf(`
apiVersion: v1
kind: Service
metadata: {name: %s, namespace: default}
spec: {type: ExternalName, externalName: localhost, ports: [{port: %s}]}
---`, inside.Name, port) + inside.Registration(port, certificate)
	if out, err := e.TryKubectl(t.Context(), x.kubeconfig, strings.NewReader(objects), "apply", "-f", "-"); err != nil {
		t.Fatal(out, err)
	}
}

// nothing tells what is left of konnectivity.
func (x *tunnelled) nothing(t *testing.T) error {
	t.Helper()
	var left []string
	for _, o := range []struct {
		r kube.Resource
		n string
	}{
		{kube.Secrets, name.KonnectivityCertificate(x.key.Name)}, {kube.Secrets, name.KonnectivityKubeconfig(x.key.Name)},
		{kube.ConfigMaps, name.KonnectivityEgressSelector(x.key.Name)},
	} {
		err := e.Admin.Get(t.Context(), o.r, x.key.Namespace, o.n, &metav1.PartialObjectMetadata{})
		if !apierrors.IsNotFound(err) {
			left = append(left, fmt.Sprintf("%s %s: %v", o.r.Kind, o.n, err))
		}
	}
	var service corev1.Service
	get(t, kube.Services, x.key.Namespace, name.Service(x.key.Name), &service)
	if len(service.Spec.Ports) != 1 {
		left = append(left, fmt.Sprintf("ports %v", service.Spec.Ports))
	}
	out, err := e.TryKubectl(t.Context(), x.kubeconfig, nil, "-n", "kube-system", "get", "ds,deploy,sa,clusterrolebinding", "-o", "name")
	if err != nil || strings.Contains(out, "konnectivity") {
		left = append(left, fmt.Sprint(out, err))
	}
	if len(left) > 0 {
		return errors.New(strings.Join(left, "; "))
	}
	return nil
}
