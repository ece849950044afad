package cluster

import (
	"bytes"
	"context"
	"crypto/rand"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/remotecommand"

	"github.com/stoker-k8s/stoker/internal/testing/poll"
	"github.com/stoker-k8s/stoker/pkg/api/name"
	"github.com/stoker-k8s/stoker/pkg/api/v1alpha1"
	"github.com/stoker-k8s/stoker/pkg/events"
	"github.com/stoker-k8s/stoker/test/inside"
)

// tunnelled is a tenant with a node, which its API server reaches through konnectivity alone.
type tunnelled struct {
	*installation
	name   string
	config *rest.Config          // of the tenant
	api    *kubernetes.Clientset // of the tenant
}

// joinNode has a machine join a tenant with a tunnel, and reaches through it what is on that node.
func joinNode(t *testing.T, i *installation) {
	if i.join == "" {
		t.Skip("no program is named that has a machine join a tenant: make test-cluster JOIN=…")
	}
	begun := time.Now()
	x := i.tunnelled(t, "joined")
	x.report.took(t, begun, "a tenant with a tunnel, Ready")
	x.joins(t, begun)
	x.runInside(t)
	for _, c := range []struct {
		what string
		does func(t *testing.T)
	}{
		{"logs", x.logs},
		{"exec, and names of the tenant's DNS in a pod", x.exec},
		{"port-forward", x.portForward},
		{"a webhook and an aggregated API", x.webhook},
		{"the agent is ended", x.endAgent},
		{"the server is ended", x.endServer},
		{"no pod is evicted after an outage", x.outage},
	} {
		t.Run(c.what, c.does)
	}
	i.remove(t, x.name)
}

// tunnelled makes a tenant with konnectivity, CoreDNS and kube-proxy, and waits until it is Ready.
func (i *installation) tunnelled(t *testing.T, n string) *tunnelled {
	t.Helper()
	o := i.byNodePort(n)
	nodePorts++
	o.Spec.Addons = v1alpha1.AddonsSpec{CoreDNS: &v1alpha1.AddonSpec{}, KubeProxy: &v1alpha1.AddonSpec{}, Konnectivity: &v1alpha1.KonnectivitySpec{
		Server: v1alpha1.KonnectivityServerSpec{Port: nodePorts, Image: i.registry + "/proxy-server"},
		Agent:  v1alpha1.KonnectivityAgentSpec{Image: i.registry + "/proxy-agent"},
	}}
	i.apply(t, o)
	i.ready(t, n)
	x := &tunnelled{installation: i, name: n, config: i.client(t, n)}
	x.config.QPS = -1 // what is measured waits for nothing
	var err error
	if x.api, err = kubernetes.NewForConfig(x.config); err != nil {
		t.Fatal(err)
	}
	return x
}

// joins runs `kubeadm join` on a machine, and waits until its node is Ready and the tunnel is there.
func (x *tunnelled) joins(t *testing.T, begun time.Time) {
	t.Helper()
	n := strings.ToLower("joined-" + rand.Text()[:5])
	how, err := x.portal(t).Join(t.Context(), namespace, x.name, time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), x.join, append([]string{n}, strings.Fields(how.Command)...)...)
	cmd.Env = append(os.Environ(), "KUBECONFIG="+x.kubeconfigFile(t))
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%s: %v: %s", cmd, err, out)
	}
	poll.Nil(t, "the node to be Ready", func() error {
		node, err := x.api.CoreV1().Nodes().Get(t.Context(), n, metav1.GetOptions{})
		if err != nil {
			return err
		}
		ready := slices.ContainsFunc(node.Status.Conditions, func(c corev1.NodeCondition) bool {
			return c.Type == corev1.NodeReady && c.Status == corev1.ConditionTrue
		})
		if !ready {
			return fmt.Errorf("%+v", node.Status.Conditions)
		}
		return nil
	})
	x.report.took(t, begun, "a node is Ready")
	x.connected(t)
	x.report.took(t, begun, "the tunnel is connected")
}

// connected waits until the tenant says that its tunnel is.
func (x *tunnelled) connected(t *testing.T) {
	t.Helper()
	poll.Nil(t, "the tunnel to be connected", func() error {
		o, err := x.get(t.Context(), x.name)
		if err != nil {
			return err
		}
		if c := meta.FindStatusCondition(o.Status.Conditions, "TunnelConnected"); c == nil || c.Status != metav1.ConditionTrue {
			return fmt.Errorf("%+v", c)
		}
		return nil
	})
}

// kubeconfigFile is the path of the administrator's kubeconfig, until the test ends.
func (x *tunnelled) kubeconfigFile(t *testing.T) string {
	t.Helper()
	secret, err := x.core.CoreV1().Secrets(namespace).Get(t.Context(), name.AdminKubeconfig(x.name), metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "kubeconfig")
	if err := os.WriteFile(path, secret.Data[name.KeyAdminConf], 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// runInside runs the server of package inside as a pod with a Service, and has the tenant's API server ask it.
func (x *tunnelled) runInside(t *testing.T) {
	t.Helper()
	certificate, key, err := inside.SelfSigned()
	if err != nil {
		t.Fatal(err)
	}
	match := map[string]string{"app": inside.Name}
	named := metav1.ObjectMeta{Name: inside.Name, Namespace: "default"}
	core := x.api.CoreV1()
	_, err = core.Secrets("default").Create(t.Context(), &corev1.Secret{
		ObjectMeta: named, Type: corev1.SecretTypeTLS, Data: map[string][]byte{corev1.TLSCertKey: certificate, corev1.TLSPrivateKeyKey: key},
	}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	_, err = core.Services("default").Create(t.Context(), &corev1.Service{ObjectMeta: named, Spec: corev1.ServiceSpec{
		Selector: match, Ports: []corev1.ServicePort{{Port: 443, TargetPort: intstr.FromInt32(8443)}},
	}}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	_, err = x.api.AppsV1().Deployments("default").Create(t.Context(), &appsv1.Deployment{ObjectMeta: named, Spec: appsv1.DeploymentSpec{
		Selector: &metav1.LabelSelector{MatchLabels: match},
		Template: corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: match}, Spec: corev1.PodSpec{
			Tolerations: []corev1.Toleration{ // none: it is evicted at once when its node is taken for lost
				{Key: corev1.TaintNodeNotReady, Operator: corev1.TolerationOpExists, Effect: corev1.TaintEffectNoExecute, TolerationSeconds: new(int64)},
				{Key: corev1.TaintNodeUnreachable, Operator: corev1.TolerationOpExists, Effect: corev1.TaintEffectNoExecute, TolerationSeconds: new(int64)},
			},
			Containers: []corev1.Container{{
				Name: inside.Name, Image: x.registry + "/stoker-test-inside:" + x.tag, Args: []string{"serve", "/keys"},
				ReadinessProbe: &corev1.Probe{ProbeHandler: corev1.ProbeHandler{HTTPGet: &corev1.HTTPGetAction{Port: intstr.FromInt32(8080)}}},
				VolumeMounts:   []corev1.VolumeMount{{Name: "keys", MountPath: "/keys", ReadOnly: true}},
			}},
			Volumes: []corev1.Volume{{Name: "keys", VolumeSource: corev1.VolumeSource{Secret: &corev1.SecretVolumeSource{SecretName: inside.Name}}}},
		}},
	}}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	x.create(t, inside.Registration("443", certificate))
}

// create makes the objects of a document in the tenant.
func (x *tunnelled) create(t *testing.T, objects string) {
	t.Helper()
	for _, document := range strings.Split(objects, "\n---\n") {
		path := "/apis/apiregistration.k8s.io/v1/apiservices"
		if strings.Contains(document, "MutatingWebhookConfiguration") {
			path = "/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations"
		}
		request := x.api.RESTClient().Post().AbsPath(path).SetHeader("Content-Type", "application/yaml")
		if err := request.Body([]byte(document)).Do(t.Context()).Error(); err != nil {
			t.Fatal(err)
		}
	}
}

// pod is the one with a label that runs on the tenant's node.
func (x *tunnelled) pod(t *testing.T, namespace, label string) (found *corev1.Pod) {
	t.Helper()
	poll.Nil(t, "a pod with "+label+" to be ready", func() error {
		pods, err := x.api.CoreV1().Pods(namespace).List(t.Context(), metav1.ListOptions{LabelSelector: label})
		if err != nil {
			return err
		}
		for _, p := range pods.Items {
			if isReady(&p) {
				found = &p
				return nil
			}
		}
		return fmt.Errorf("%d pods, none ready", len(pods.Items))
	})
	return found
}

func isReady(p *corev1.Pod) bool {
	return p.DeletionTimestamp == nil && slices.ContainsFunc(p.Status.Conditions, func(c corev1.PodCondition) bool {
		return c.Type == corev1.PodReady && c.Status == corev1.ConditionTrue
	})
}

// readLogs reads the log of the pod inside through the API server.
func (x *tunnelled) readLogs(ctx context.Context, pod string) error {
	out, err := x.api.CoreV1().Pods("default").GetLogs(pod, &corev1.PodLogOptions{}).DoRaw(ctx)
	if err == nil && !strings.Contains(string(out), "serving") {
		err = errors.New("the log is " + string(out))
	}
	return err
}

// logs compares reading a log through the tunnel with reading it of kubelet.
func (x *tunnelled) logs(t *testing.T) {
	pod := x.pod(t, "default", "app="+inside.Name)
	poll.Nil(t, "the log to be read", func() error { return x.readLogs(t.Context(), pod.Name) })
	x.report.median(t, "a log through API server and tunnel", func() error { return x.readLogs(t.Context(), pod.Name) })
	secret, err := x.core.CoreV1().Secrets(namespace).Get(t.Context(), name.APIServerKubeletClientCertificate(x.name), metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	pair, err := tls.X509KeyPair(secret.Data[name.KeyAPIServerKubeletClientCert], secret.Data[name.KeyAPIServerKubeletClientKey])
	if err != nil {
		t.Fatal(err)
	}
	// As the API server does without --kubelet-certificate-authority: kubelet's own certificate is no authority's.
	kubelet := &http.Client{Timeout: 10 * time.Second, Transport: &http.Transport{
		TLSClientConfig: &tls.Config{Certificates: []tls.Certificate{pair}, InsecureSkipVerify: true},
	}}
	address := fmt.Sprintf("https://%s/containerLogs/default/%s/%s", net.JoinHostPort(pod.Status.HostIP, "10250"), pod.Name, inside.Name)
	if !reached(t.Context(), net.JoinHostPort(pod.Status.HostIP, "10250")) {
		t.Logf("kubelet isn't reached from here at %s, so there is nothing to compare with", pod.Status.HostIP)
		return
	}
	x.report.median(t, "a log of kubelet, directly", func() error { return readAll(t.Context(), kubelet, address) })
}

// readAll reads what is at an address.
func readAll(ctx context.Context, client *http.Client, address string) error {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, address, nil)
	if err != nil {
		return err
	}
	response, err := client.Do(request)
	if err != nil {
		return err
	}
	defer func() { _ = response.Body.Close() }()
	body, err := io.ReadAll(response.Body)
	if err == nil && response.StatusCode != http.StatusOK {
		err = fmt.Errorf("%s: %s", response.Status, body)
	}
	return err
}

// exec has the pod resolve a name, which needs the tunnel for exec, and kube-proxy and CoreDNS on the node for the answer.
func (x *tunnelled) exec(t *testing.T) {
	pod := x.pod(t, "default", "app="+inside.Name)
	x.pod(t, "kube-system", "k8s-app=kube-dns")
	poll.Nil(t, "a name to be resolved in the pod", func() error {
		out, err := x.run(t.Context(), pod.Name, "/usr/bin/stoker-test-inside", "resolve", "kubernetes.default.svc.cluster.local")
		if err == nil && strings.TrimSpace(out) == "" {
			err = errors.New("no address")
		}
		return err
	})
}

// run is `kubectl exec` in the pod inside.
func (x *tunnelled) run(ctx context.Context, pod string, command ...string) (string, error) {
	u := x.api.CoreV1().RESTClient().Post().Resource("pods").Namespace("default").Name(pod).SubResource("exec").
		VersionedParams(&corev1.PodExecOptions{Command: command, Stdout: true, Stderr: true}, scheme.ParameterCodec).URL()
	executor, err := remotecommand.NewWebSocketExecutor(x.config, http.MethodGet, u.String())
	if err != nil {
		return "", err
	}
	var out, log bytes.Buffer
	if err := executor.StreamWithContext(ctx, remotecommand.StreamOptions{Stdout: &out, Stderr: &log}); err != nil {
		return "", fmt.Errorf("%w: %s", err, log.String())
	}
	return out.String(), nil
}

func (x *tunnelled) portForward(t *testing.T) {
	pod := x.pod(t, "default", "app="+inside.Name)
	port, err := forwardTo(t, x.config, x.api, "default", pod.Name, 8080)
	if err != nil {
		t.Fatal(err)
	}
	if err := readAll(t.Context(), http.DefaultClient, fmt.Sprintf("http://127.0.0.1:%d%s", port, inside.Answer)); err != nil {
		t.Fatal(err)
	}
}

// admit has the API server ask the webhook.
func (x *tunnelled) admit(ctx context.Context) error {
	o, err := x.api.CoreV1().ConfigMaps("default").Create(ctx, &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{GenerateName: "asked-", Labels: map[string]string{"ask": "me"}},
	}, metav1.CreateOptions{})
	if err == nil && o.Labels[inside.Label] != inside.Came {
		err = errors.New("the webhook wasn't asked")
	}
	return err
}

func (x *tunnelled) webhook(t *testing.T) {
	poll.Nil(t, "the webhook to be called", func() error { return x.admit(t.Context()) })
	poll.Nil(t, "the aggregated API to answer", func() error {
		out, err := x.api.RESTClient().Get().AbsPath(inside.Answer).DoRaw(t.Context())
		if err == nil && !strings.Contains(string(out), inside.Says) {
			err = errors.New(string(out))
		}
		return err
	})
}

// works waits until everything that goes through the tunnel does again.
func (x *tunnelled) works(t *testing.T, begun time.Time, after string) {
	t.Helper()
	pod := x.pod(t, "default", "app="+inside.Name)
	poll.Nil(t, "logs again", func() error { return x.readLogs(t.Context(), pod.Name) })
	poll.Nil(t, "the webhook to be called again", func() error { return x.admit(t.Context()) })
	x.report.took(t, begun, "logs and webhook work again after %s", after)
	x.connected(t)
}

func (x *tunnelled) endAgent(t *testing.T) {
	pod := x.pod(t, name.NamespaceKonnectivityAgent, "k8s-app="+name.KonnectivityAgent)
	begun := time.Now()
	if err := x.api.CoreV1().Pods(pod.Namespace).Delete(t.Context(), pod.Name, metav1.DeleteOptions{GracePeriodSeconds: new(int64)}); err != nil {
		t.Fatal(err)
	}
	x.works(t, begun, "the agent's pod was ended without notice")
}

// endServer ends the pod of the control plane, with the konnectivity server, without notice.
func (x *tunnelled) endServer(t *testing.T) {
	pods := x.core.CoreV1().Pods(namespace)
	ended := x.onlyPods(t, x.name, 1)
	begun := time.Now()
	all := metav1.ListOptions{LabelSelector: labels.FormatLabels(name.Selector(x.name))}
	if err := pods.DeleteCollection(t.Context(), metav1.DeleteOptions{GracePeriodSeconds: new(int64)}, all); err != nil {
		t.Fatal(err)
	}
	poll.Nil(t, "the next pod to be ready", func() error {
		there, err := pods.List(t.Context(), all)
		if err != nil {
			return err
		}
		for _, p := range there.Items {
			if p.UID != ended[0] && isReady(&p) {
				return nil
			}
		}
		return fmt.Errorf("%d pods, none of them new and ready", len(there.Items))
	})
	x.works(t, begun, "the control plane's pod was ended without notice")
}

// outage takes the control plane away for longer than a controller manager waits for a sign of life of nodes, and gives it back.
func (x *tunnelled) outage(t *testing.T) {
	const grace = 50 * time.Second // kube-controller-manager --node-monitor-grace-period
	client, key := x.portal(t), events.Tenant(namespace, x.name)
	before := x.pod(t, "default", "app="+inside.Name)
	if _, err := client.Sleep(t.Context(), key); err != nil {
		t.Fatal(err)
	}
	x.onlyPods(t, x.name, 0)
	<-time.After(grace + 10*time.Second)
	if _, err := client.Wake(t.Context(), key); err != nil {
		t.Fatal(err)
	}
	x.onlyPods(t, x.name, 1)
	begun := time.Now()
	x.ready(t, x.name)
	x.works(t, begun, "an outage of a minute")
	<-time.After(grace + 10*time.Second)
	if after := x.pod(t, "default", "app="+inside.Name); after.UID != before.UID {
		t.Errorf("the pod %s was evicted: there is now %s", before.Name, after.Name)
	}
	node, err := x.api.CoreV1().Nodes().Get(t.Context(), before.Spec.NodeName, metav1.GetOptions{})
	if err != nil || len(node.Spec.Taints) > 0 {
		t.Errorf("taints of the node: %+v, %v", node.Spec.Taints, err)
	}
}
