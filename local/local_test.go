package local_test

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	"k8s.io/utils/ptr"

	"github.com/stoker-k8s/stoker/internal/testing/poll"
	"github.com/stoker-k8s/stoker/local"
	"github.com/stoker-k8s/stoker/pkg/pki"
)

const (
	tenant    = "demo"
	namespace = "default"
)

func startStack(t *testing.T, dir string) *local.Stack {
	t.Helper()
	start := time.Now()
	stack, err := local.Start(t.Context(), local.Config{
		Dir: dir, Source: "..", Progress: func(line string, _ bool) { t.Log(line) },
		Log: slog.New(slog.NewTextHandler(testWriter{t}, &slog.HandlerOptions{Level: slog.LevelInfo})),
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("started in %s", time.Since(start).Round(time.Millisecond))
	return stack
}

// testWriter logs to a test for as long as it runs.
type testWriter struct{ t *testing.T }

func (w testWriter) Write(p []byte) (int, error) {
	if w.t.Context().Err() == nil {
		w.t.Log(strings.TrimSpace(string(p)))
	}
	return len(p), nil
}

// eventually waits until there is no error.
func eventually(t *testing.T, what string, try func(ctx context.Context) error) {
	t.Helper()
	poll.Nil(t, what, func() error { return try(t.Context()) })
}

// TestStack starts a real stack and runs on it a tenant's control plane as Stoker makes it: a Deployment of
// kube-apiserver, scheduler and controller manager on the shared etcd, behind a load balancer address.
func TestStack(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "stoker")
	stack := startStack(t, dir)
	defer func() { _ = stack.Stop(context.Background()) }()
	client := kubernetes.NewForConfigOrDie(stack.AdminConfig())

	t.Run("a second start on the directory names the first", func(t *testing.T) {
		_, err := local.Start(t.Context(), local.Config{Dir: dir, Source: ".."})
		var running *local.RunningError
		if !errors.As(err, &running) || running.PID != os.Getpid() {
			t.Errorf("got %v", err)
		}
		if pid := local.Running(dir); pid != os.Getpid() {
			t.Errorf("Running tells %d", pid)
		}
	})
	t.Run("nobody else can read what it keeps", func(t *testing.T) { private(t, dir) })
	t.Run("every service has its own kubeconfig", func(t *testing.T) { identities(t, stack) })

	x := &tenantFixture{t: t, stack: stack, client: client}
	x.prepare()
	t.Run("a tenant's etcd user reads its own prefix only", x.prefixOnly)
	t.Run("a tenant's control plane becomes ready behind its address", x.becomesReady)
	if t.Failed() {
		x.dump()
		t.FailNow()
	}
	t.Run("kubectl logs shows what a container printed", x.logs)
	t.Run("a killed container is started again", x.killed)
	t.Run("a rollout is never missed at the address", x.rollout)
	t.Run("an image nobody has says which there are", x.unknownImage)
	t.Run("a pod waits for its Secret", x.lateSecret)
	t.Run("a stopped API server is missed by nobody", x.apiServerAway)
	t.Run("a component that is killed is started again", x.componentKilled)
	t.Run("a pod that is deleted leaves nothing", x.deleted)

	t.Run("stopped, nothing is left running or listening", func(t *testing.T) {
		start := time.Now()
		if err := stack.Stop(t.Context()); err != nil || stack.Err() != nil {
			t.Fatal(err, stack.Err())
		}
		t.Logf("stopped in %s", time.Since(start).Round(time.Millisecond))
		if left := children(t); len(left) > 0 {
			t.Errorf("still running: %q", left)
		}
		for _, address := range []string{x.address, strings.TrimPrefix(stack.API(), "https://"), stack.Block().Management().String() + ":10250"} {
			if conn, err := net.Dial("tcp", address); err == nil {
				conn.Close()
				t.Errorf("%s is still served", address)
			}
		}
	})
	t.Run("started again, it is the same stack", func(t *testing.T) {
		again := startStack(t, dir)
		defer func() { _ = again.Stop(context.Background()) }()
		if again.API() != stack.API() || !bytes.Equal(again.AdminConfig().CAData, stack.AdminConfig().CAData) {
			t.Error("it has another address or another CA")
		}
		x.stack = again
		eventually(t, "the tenant answers at its old address", x.answers)
	})
	if left := children(t); len(left) > 0 {
		t.Errorf("still running: %q", left)
	}
}

func private(t *testing.T, dir string) {
	err := filepath.WalkDir(dir, func(path string, entry fs.DirEntry, err error) error {
		if err != nil {
			return nil //nolint:nilerr // etcd removes files under our feet
		}
		info, err := entry.Info()
		if err == nil && info.Mode().Perm()&0o077 != 0 && strings.Contains(path, "/pki/") || err == nil && entry.IsDir() && info.Mode().Perm() != 0o700 {
			t.Errorf("%s has mode %o", path, info.Mode().Perm())
		}
		return nil
	})
	if err != nil {
		t.Error(err)
	}
}

func identities(t *testing.T, stack *local.Stack) {
	for _, service := range local.Services {
		info, err := os.Stat(stack.Kubeconfig(service))
		if err != nil || info.Mode().Perm() != 0o600 {
			t.Errorf("%s: %v, %v", service, info, err)
		}
		config, err := clientcmd.BuildConfigFromFlags("", stack.Kubeconfig(service))
		if err != nil {
			t.Fatal(err)
		}
		if _, err := kubernetes.NewForConfigOrDie(config).Discovery().ServerVersion(); err != nil {
			t.Errorf("%s: %v", service, err)
		}
		_, err = kubernetes.NewForConfigOrDie(config).CoreV1().Nodes().List(t.Context(), metav1.ListOptions{})
		if !apierrors.IsForbidden(err) {
			t.Errorf("%s may list nodes: %v", service, err)
		}
	}
}

// children are the command lines of this process's children.
func children(t *testing.T) []string {
	t.Helper()
	var out []string
	stats, _ := filepath.Glob("/proc/[0-9]*/stat")
	for _, path := range stats {
		data, err := os.ReadFile(path)
		if err != nil {
			continue
		}
		fields := strings.Fields(string(data[bytes.LastIndexByte(data, ')')+1:]))
		if ppid, _ := strconv.Atoi(fields[1]); ppid == os.Getpid() {
			line, _ := os.ReadFile(filepath.Join(filepath.Dir(path), "cmdline"))
			out = append(out, strings.ReplaceAll(string(line), "\x00", " "))
		}
	}
	return out
}

// A tenantFixture is a tenant's control plane without Stoker's services.
type tenantFixture struct {
	t       *testing.T
	stack   *local.Stack
	client  kubernetes.Interface
	ca      *pki.Authority
	admin   pki.Pair
	etcdTLS *tls.Config
	etcd    string // endpoint
	address string // host:port of the load balancer
}

func must[T any](v T, err error) func(*testing.T) T {
	return func(t *testing.T) T {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
}

func (x *tenantFixture) prepare() {
	t, ctx := x.t, x.t.Context()
	services := x.client.CoreV1().Services(namespace)
	must(services.Create(ctx, &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Name: tenant},
		Spec: corev1.ServiceSpec{
			Type: corev1.ServiceTypeLoadBalancer, Selector: map[string]string{"kamaji.clastix.io/name": tenant},
			Ports: []corev1.ServicePort{{Name: "kube-apiserver", Port: 6443, TargetPort: intstr.FromInt32(6443)}},
		},
	}, metav1.CreateOptions{}))(t)
	eventually(t, "the service has an address", func(ctx context.Context) error {
		service, err := services.Get(ctx, tenant, metav1.GetOptions{})
		if err != nil {
			return err
		}
		if len(service.Status.LoadBalancer.Ingress) == 0 {
			return errors.New("none")
		}
		x.address = net.JoinHostPort(service.Status.LoadBalancer.Ingress[0].IP, "6443")
		return nil
	})
	x.prepareEtcd()
	x.prepareSecrets()
}

// prepareEtcd makes the tenant's user, whose role is limited to its prefix.
func (x *tenantFixture) prepareEtcd() {
	t, ctx := x.t, x.t.Context()
	root := secretTLS(t, x.client)
	x.etcd = "https://" + x.stack.Block().DataStore(0).String() + ":2379"
	client := must(clientv3.New(clientv3.Config{Endpoints: []string{x.etcd}, TLS: root, Logger: zap.NewNop()}))(t)
	defer client.Close()
	must(client.RoleAdd(ctx, tenant))(t)
	must(client.RoleGrantPermission(ctx, tenant, "/"+tenant+"/", "/"+tenant+"0", clientv3.PermissionType(clientv3.PermReadWrite)))(t)
	must(client.UserAddWithOptions(ctx, tenant, "", &clientv3.UserAddOptions{NoPassword: true}))(t)
	must(client.UserGrantRole(ctx, tenant, tenant))(t)
	must(client.Put(ctx, "/other/key", "secret"))(t)
}

// secretTLS is how root reaches the DataStore, from the Secrets its object names.
func secretTLS(t *testing.T, client kubernetes.Interface) *tls.Config {
	certs := must(client.CoreV1().Secrets(local.Namespace).Get(t.Context(), "etcd-default-certs", metav1.GetOptions{}))(t)
	user := must(client.CoreV1().Secrets(local.Namespace).Get(t.Context(), "etcd-default-client", metav1.GetOptions{}))(t)
	pool := x509.NewCertPool()
	pool.AppendCertsFromPEM(certs.Data["ca.crt"])
	return &tls.Config{
		RootCAs:      pool,
		Certificates: []tls.Certificate{must(tls.X509KeyPair(user.Data["tls.crt"], user.Data["tls.key"]))(t)},
	}
}

func (x *tenantFixture) prepareSecrets() {
	t, ctx := x.t, x.t.Context()
	host, _, _ := net.SplitHostPort(x.address)
	dir := t.TempDir()
	x.ca = must(pki.OpenAuthority(filepath.Join(dir, "ca"), "kubernetes"))(t)
	proxyCA := must(pki.OpenAuthority(filepath.Join(dir, "proxy"), "front-proxy-ca"))(t)
	issue := func(from *pki.Authority, leaf pki.Leaf) pki.Pair { return must(from.Issue(leaf))(t) }
	server := issue(x.ca, pki.Leaf{File: "apiserver", Name: "kube-apiserver", Hosts: []string{"127.0.0.1", "localhost", host, tenant + "." + namespace + ".svc"}})
	x.admin = issue(x.ca, pki.Leaf{File: "admin", Name: "kubernetes-super-admin", Organization: []string{"system:masters"}})
	proxy := issue(proxyCA, pki.Leaf{File: "proxy", Name: "front-proxy-client"})
	private, public, err := pki.SigningKey(dir)
	if err != nil {
		t.Fatal(err)
	}
	// The etcd's own CA, from the Secret: that is how the datastore service gets to a tenant's certificate.
	certs := must(x.client.CoreV1().Secrets(local.Namespace).Get(ctx, "etcd-default-certs", metav1.GetOptions{}))(t)
	etcdDir := filepath.Join(dir, "etcd")
	for name, key := range map[string]string{"ca.crt": "ca.crt", "ca.key": "ca.key"} {
		if err := errors.Join(os.MkdirAll(etcdDir, 0o700), os.WriteFile(filepath.Join(etcdDir, name), certs.Data[key], 0o600)); err != nil {
			t.Fatal(err)
		}
	}
	etcdCA := must(pki.OpenAuthority(etcdDir, ""))(t)
	etcd := issue(etcdCA, pki.Leaf{File: "client", Name: tenant})
	x.etcdTLS = &tls.Config{RootCAs: etcdCA.Pool(), Certificates: []tls.Certificate{must(etcd.TLS())(t)}}

	kubeconfig := func(user string) []byte {
		pair := issue(x.ca, pki.Leaf{File: user, Name: user, Organization: []string{"system:masters"}})
		config := clientcmdapi.NewConfig()
		config.Clusters[tenant] = &clientcmdapi.Cluster{Server: "https://127.0.0.1:6443", CertificateAuthorityData: x.ca.Cert}
		config.AuthInfos[user] = &clientcmdapi.AuthInfo{ClientCertificateData: pair.Cert, ClientKeyData: pair.Key}
		config.Contexts[tenant] = &clientcmdapi.Context{Cluster: tenant, AuthInfo: user}
		config.CurrentContext = tenant
		return must(clientcmd.Write(*config))(t)
	}
	for name, data := range map[string]map[string][]byte{
		"ca":                             {"ca.crt": x.ca.Cert, "ca.key": x.ca.Key},
		"api-server-certificate":         {"apiserver.crt": server.Cert, "apiserver.key": server.Key},
		"front-proxy-ca-certificate":     {"front-proxy-ca.crt": proxyCA.Cert},
		"front-proxy-client-certificate": {"front-proxy-client.crt": proxy.Cert, "front-proxy-client.key": proxy.Key},
		"sa-certificate":                 {"sa.pub": must(os.ReadFile(public))(t), "sa.key": must(os.ReadFile(private))(t)},
		"datastore-certificate":          {"ca.crt": etcdCA.Cert, "server.crt": etcd.Cert, "server.key": etcd.Key},
		"scheduler-kubeconfig":           {"scheduler.conf": kubeconfig("system:kube-scheduler")},
		"controller-manager-kubeconfig":  {"controller-manager.conf": kubeconfig("system:kube-controller-manager")},
	} {
		must(x.client.CoreV1().Secrets(namespace).Create(ctx, &corev1.Secret{
			ObjectMeta: metav1.ObjectMeta{Name: tenant + "-" + name}, Data: data,
		}, metav1.CreateOptions{}))(t)
	}
}

func (x *tenantFixture) prefixOnly(t *testing.T) {
	client := must(clientv3.New(clientv3.Config{Endpoints: []string{x.etcd}, TLS: x.etcdTLS, Logger: zap.NewNop()}))(t)
	defer client.Close()
	must(client.Put(t.Context(), "/"+tenant+"/probe", "1"))(t)
	if _, err := client.Get(t.Context(), "/other/key"); err == nil || !strings.Contains(err.Error(), "permission denied") {
		t.Errorf("reading another prefix: %v", err)
	}
	anonymous := must(clientv3.New(clientv3.Config{Endpoints: []string{x.etcd}, TLS: &tls.Config{RootCAs: x.etcdTLS.RootCAs}, Logger: zap.NewNop()}))(t)
	defer anonymous.Close()
	ctx, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	if _, err := anonymous.Get(ctx, "/other/key"); err == nil {
		t.Error("without a certificate, everything can be read")
	}
}

func (x *tenantFixture) becomesReady(t *testing.T) {
	start := time.Now()
	must(x.client.AppsV1().Deployments(namespace).Create(t.Context(), x.deployment(), metav1.CreateOptions{}))(t)
	eventually(t, "the deployment is available", x.available)
	t.Logf("available after %s", time.Since(start).Round(10*time.Millisecond))
	eventually(t, "the tenant answers at its address", x.answers)
	// A controller manager that works shows in what it makes.
	tenantClient := kubernetes.NewForConfigOrDie(x.tenantConfig())
	eventually(t, "the tenant's controller manager makes service accounts", func(ctx context.Context) error {
		_, err := tenantClient.CoreV1().ServiceAccounts("default").Get(ctx, "default", metav1.GetOptions{})
		return err
	})
}

func (x *tenantFixture) available(ctx context.Context) error {
	d, err := x.client.AppsV1().Deployments(namespace).Get(ctx, tenant, metav1.GetOptions{})
	if err != nil {
		return err
	}
	if d.Status.AvailableReplicas != 1 || d.Status.ObservedGeneration != d.Generation {
		return fmt.Errorf("%d available", d.Status.AvailableReplicas)
	}
	return nil
}

// tenantConfig trusts the tenant's CA only.
func (x *tenantFixture) tenantConfig() *rest.Config {
	return &rest.Config{Host: "https://" + x.address, TLSClientConfig: rest.TLSClientConfig{
		CAData: x.ca.Cert, CertData: x.admin.Cert, KeyData: x.admin.Key,
	}}
}

func (x *tenantFixture) answers(ctx context.Context) error {
	client, err := kubernetes.NewForConfig(x.tenantConfig())
	if err != nil {
		return err
	}
	version, err := client.Discovery().ServerVersion()
	if err != nil {
		return err
	}
	if version.GitVersion != "v1.36.3" || version.Minor != "36" {
		return fmt.Errorf("it says it is %s", version)
	}
	return nil
}

func (x *tenantFixture) pod(t *testing.T) *corev1.Pod {
	t.Helper()
	pods := must(x.client.CoreV1().Pods(namespace).List(t.Context(), metav1.ListOptions{LabelSelector: "kamaji.clastix.io/name=" + tenant}))(t)
	if len(pods.Items) != 1 {
		t.Fatalf("%d pods", len(pods.Items))
	}
	return &pods.Items[0]
}

func (x *tenantFixture) logs(t *testing.T) {
	var out []byte
	eventually(t, "there are logs", func(ctx context.Context) error {
		var err error
		out, err = x.client.CoreV1().Pods(namespace).GetLogs(x.pod(t).Name, &corev1.PodLogOptions{
			Container: "kube-apiserver", TailLines: ptr.To(int64(3)),
		}).DoRaw(ctx)
		return err
	})
	if lines := bytes.Count(out, []byte("\n")); lines != 3 {
		t.Errorf("%d lines: %q", lines, out)
	}
	t.Run("and to nobody who isn't the API server", func(t *testing.T) {
		plain := &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}}}
		for _, config := range []*http.Client{plain, must(rest.HTTPClientFor(insecure(x.stack.AdminConfig())))(t)} {
			url := "https://" + x.stack.Block().Management().String() + ":10250/containerLogs/" + namespace + "/" + x.pod(t).Name + "/kube-apiserver"
			if response, err := config.Get(url); err == nil {
				response.Body.Close()
				t.Errorf("got %s", response.Status)
			}
		}
	})
}

func insecure(config *rest.Config) *rest.Config {
	config.Insecure, config.CAData = true, nil
	return config
}

func (x *tenantFixture) killed(t *testing.T) {
	pod := x.pod(t)
	pid := x.stack.ContainerPID(namespace, pod.Name, "kube-scheduler")
	if err := syscall.Kill(pid, syscall.SIGKILL); pid == 0 || err != nil {
		t.Fatal(pid, err)
	}
	eventually(t, "the scheduler runs again, and the pod is ready", func(ctx context.Context) error {
		now, err := x.client.CoreV1().Pods(namespace).Get(ctx, pod.Name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		for _, c := range now.Status.ContainerStatuses {
			switch {
			case c.Name != "kube-scheduler":
				if !c.Ready {
					return fmt.Errorf("%s isn't ready", c.Name)
				}
			case c.RestartCount <= restarts(pod, c.Name) || c.State.Running == nil || !c.Ready:
				return fmt.Errorf("it is %+v", c)
			case c.LastTerminationState.Terminated == nil || c.LastTerminationState.Terminated.ExitCode != 137:
				return fmt.Errorf("it says it ended by %+v", c.LastTerminationState.Terminated)
			}
		}
		return nil
	})
}

func restarts(pod *corev1.Pod, container string) int32 {
	i := slices.IndexFunc(pod.Status.ContainerStatuses, func(c corev1.ContainerStatus) bool { return c.Name == container })
	return pod.Status.ContainerStatuses[i].RestartCount
}

// rollout replaces the pod while every new connection is expected to be served.
func (x *tenantFixture) rollout(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	type count struct {
		asked  int
		failed []error
	}
	result := make(chan count)
	go func() {
		var c count
		defer func() { result <- c }()
		config := x.tenantConfig()
		config.TLSClientConfig.NextProtos = []string{"http/1.1"}
		client, err := rest.HTTPClientFor(config)
		if err != nil {
			c.failed = append(c.failed, err)
			return
		}
		tick := time.NewTicker(20 * time.Millisecond)
		defer tick.Stop()
		for ctx.Err() == nil {
			response, err := client.Get("https://" + x.address + "/version")
			if err == nil {
				_, err = io.Copy(io.Discard, response.Body)
				response.Body.Close()
			}
			c.asked++
			if err != nil {
				c.failed = append(c.failed, err)
			}
			client.CloseIdleConnections()
			<-tick.C
		}
	}()
	old := x.pod(t).UID
	patch := `{"spec":{"template":{"metadata":{"annotations":{"rollout":"1"}}}}}`
	must(x.client.AppsV1().Deployments(namespace).Patch(t.Context(), tenant, types.MergePatchType, []byte(patch), metav1.PatchOptions{}))(t)
	eventually(t, "the old pod is gone, the new one ready", func(ctx context.Context) error {
		pods, err := x.client.CoreV1().Pods(namespace).List(ctx, metav1.ListOptions{LabelSelector: "kamaji.clastix.io/name=" + tenant})
		if err != nil || len(pods.Items) != 1 || pods.Items[0].UID == old {
			return fmt.Errorf("not yet: %w", err)
		}
		return x.available(ctx)
	})
	cancel()
	c := <-result
	t.Logf("%d new connections", c.asked)
	if c.asked < 10 || len(c.failed) > 0 {
		t.Errorf("%d failed, as by %v", len(c.failed), errors.Join(c.failed...))
	}
}

func (x *tenantFixture) create(t *testing.T, pod *corev1.Pod) {
	t.Helper()
	eventually(t, "the pod can be made", func(ctx context.Context) error {
		_, err := x.client.CoreV1().Pods(namespace).Create(ctx, pod, metav1.CreateOptions{})
		return err // the namespace's service account may still be to come
	})
	t.Cleanup(func() {
		_ = x.client.CoreV1().Pods(namespace).Delete(context.Background(), pod.Name, metav1.DeleteOptions{})
	})
}

// state waits until a pod's first container is in a state.
func (x *tenantFixture) state(t *testing.T, name, what string, ok func(corev1.ContainerStatus) bool) {
	t.Helper()
	eventually(t, what, func(ctx context.Context) error {
		pod, err := x.client.CoreV1().Pods(namespace).Get(ctx, name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		if len(pod.Status.ContainerStatuses) == 0 || !ok(pod.Status.ContainerStatuses[0]) {
			return fmt.Errorf("status is %+v", pod.Status)
		}
		return nil
	})
}

func (x *tenantFixture) unknownImage(t *testing.T) {
	x.create(t, &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "old"}, Spec: corev1.PodSpec{
		Containers: []corev1.Container{{Name: "c", Image: "registry.k8s.io/kube-apiserver:v1.30.0"}},
	}})
	x.state(t, "old", "the pod says why it waits", func(c corev1.ContainerStatus) bool {
		return c.State.Waiting != nil && c.State.Waiting.Reason == "ErrImagePull" && strings.Contains(c.State.Waiting.Message, "v1.35.4")
	})
}

func (x *tenantFixture) lateSecret(t *testing.T) {
	x.create(t, &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "late"}, Spec: corev1.PodSpec{
		RestartPolicy: corev1.RestartPolicyNever,
		Containers: []corev1.Container{{
			Name: "c", Image: "etcd:v3.6.16", Args: []string{"--version"},
			VolumeMounts: []corev1.VolumeMount{{Name: "s", MountPath: "/s"}},
		}},
		Volumes: []corev1.Volume{{Name: "s", VolumeSource: corev1.VolumeSource{Secret: &corev1.SecretVolumeSource{SecretName: "late"}}}},
	}})
	x.state(t, "late", "the pod says what it waits for", func(c corev1.ContainerStatus) bool {
		return c.State.Waiting != nil && c.State.Waiting.Reason == "ContainerCreating" && strings.Contains(c.State.Waiting.Message, `"late"`)
	})
	must(x.client.CoreV1().Secrets(namespace).Create(t.Context(), &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: "late"}}, metav1.CreateOptions{}))(t)
	x.state(t, "late", "the pod runs to its end", func(c corev1.ContainerStatus) bool {
		return c.State.Terminated != nil && c.State.Terminated.ExitCode == 0
	})
	pod := must(x.client.CoreV1().Pods(namespace).Get(t.Context(), "late", metav1.GetOptions{}))(t)
	if pod.Status.Phase != corev1.PodSucceeded {
		t.Errorf("phase is %s", pod.Status.Phase)
	}
}

func (x *tenantFixture) apiServerAway(t *testing.T) {
	pod := x.pod(t)
	pids := map[string]int{}
	for _, c := range pod.Spec.Containers {
		pids[c.Name] = x.stack.ContainerPID(namespace, pod.Name, c.Name)
	}
	api := x.stack.Component("kube-apiserver")
	if err := api.Stop(t.Context()); err != nil || api.PID() != 0 {
		t.Fatal(err, api.PID())
	}
	eventually(t, "the tenant answers without the management cluster", x.answers)
	if err := api.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the management cluster is back", x.available)
	for name, pid := range pids {
		if now := x.stack.ContainerPID(namespace, pod.Name, name); now != pid {
			t.Errorf("%s was process %d and is %d", name, pid, now)
		}
	}
	// The node sees what is new, too.
	x.create(t, &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "after"}, Spec: corev1.PodSpec{
		RestartPolicy: corev1.RestartPolicyNever,
		Containers:    []corev1.Container{{Name: "c", Image: "etcd:v3.6.16", Args: []string{"--version"}}},
	}})
	x.state(t, "after", "a new pod runs", func(c corev1.ContainerStatus) bool { return c.State.Terminated != nil })
}

func (x *tenantFixture) componentKilled(t *testing.T) {
	for _, name := range []string{"etcd-management", "etcd-default", "kube-controller-manager"} {
		c := x.stack.Component(name)
		pid := c.PID()
		if err := c.Kill(); err != nil {
			t.Fatal(err)
		}
		eventually(t, name+" runs again", func(context.Context) error {
			if now := c.PID(); now == 0 || now == pid {
				return fmt.Errorf("its process is %d and was %d", now, pid)
			}
			return nil
		})
	}
	etcd := x.stack.Component("etcd-management")
	if err := etcd.Pause(); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	if err := x.available(ctx); err == nil {
		t.Error("the management cluster answers without its etcd")
	}
	if err := etcd.Resume(); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the management cluster is back", x.available)
	eventually(t, "the tenant is back", x.answers)
}

func (x *tenantFixture) deleted(t *testing.T) {
	// A pod of its own: the tenant is wanted once more.
	const name = "doomed"
	x.create(t, &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{"app": name}}, Spec: corev1.PodSpec{
		Containers: []corev1.Container{{
			Name: "etcd", Image: "etcd:v3.6.16",
			Args: []string{
				"--data-dir=/data", "--listen-client-urls=http://0.0.0.0:2379", "--advertise-client-urls=http://localhost:2379",
				"--listen-peer-urls=http://localhost:2380",
			},
			VolumeMounts:   []corev1.VolumeMount{{Name: "data", MountPath: "/data"}},
			ReadinessProbe: &corev1.Probe{PeriodSeconds: 1, ProbeHandler: corev1.ProbeHandler{HTTPGet: &corev1.HTTPGetAction{Path: "/readyz", Port: intstr.FromInt32(2379)}}},
		}},
		Volumes: []corev1.Volume{{Name: "data", VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}}}},
	}})
	must(x.client.CoreV1().Services(namespace).Create(t.Context(), &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: corev1.ServiceSpec{
			Type: corev1.ServiceTypeLoadBalancer, Selector: map[string]string{"app": name},
			Ports: []corev1.ServicePort{{Port: 80, TargetPort: intstr.FromInt32(2379)}},
		},
	}, metav1.CreateOptions{}))(t)
	var at string
	eventually(t, "it answers at its address", func(ctx context.Context) error {
		service, err := x.client.CoreV1().Services(namespace).Get(ctx, name, metav1.GetOptions{})
		if err != nil || len(service.Status.LoadBalancer.Ingress) == 0 {
			return fmt.Errorf("no address yet: %w", err)
		}
		at = service.Status.LoadBalancer.Ingress[0].IP + ":80"
		response, err := http.Get("http://" + at + "/version")
		if err != nil {
			return err
		}
		return response.Body.Close()
	})
	pid := x.stack.ContainerPID(namespace, name, "etcd")
	if err := errors.Join(
		x.client.CoreV1().Pods(namespace).Delete(t.Context(), name, metav1.DeleteOptions{}),
		x.client.CoreV1().Services(namespace).Delete(t.Context(), name, metav1.DeleteOptions{}),
	); err != nil {
		t.Fatal(err)
	}
	eventually(t, "nothing is left of it", func(ctx context.Context) error {
		if _, err := x.client.CoreV1().Pods(namespace).Get(ctx, name, metav1.GetOptions{}); !apierrors.IsNotFound(err) {
			return errors.Join(errors.New("the pod is still there"), err)
		}
		if err := syscall.Kill(pid, 0); !errors.Is(err, syscall.ESRCH) {
			return errors.Join(fmt.Errorf("process %d is still there", pid), err)
		}
		if dirs, _ := filepath.Glob(filepath.Join(x.stack.Dir(), "pods", namespace+"_"+name+"_*")); len(dirs) > 0 {
			return fmt.Errorf("still there: %v", dirs)
		}
		if conn, err := net.Dial("tcp", at); err == nil {
			conn.Close()
			return fmt.Errorf("%s still listens", at)
		}
		return nil
	})
}

// dump tells what there is to tell about a tenant that isn't ready.
func (x *tenantFixture) dump() {
	pods, err := x.client.CoreV1().Pods(namespace).List(x.t.Context(), metav1.ListOptions{})
	if err != nil {
		x.t.Log(err)
		return
	}
	for _, pod := range pods.Items {
		x.t.Logf("%s: %+v", pod.Name, pod.Status)
	}
	logs, _ := filepath.Glob(filepath.Join(x.stack.Dir(), "pods", "*", "*.log"))
	for _, path := range logs {
		data, _ := os.ReadFile(path)
		x.t.Logf("%s:\n%s", path, data[max(0, len(data)-1500):])
	}
}

// deployment is a tenant's control plane as Kamaji's users know it.
func (x *tenantFixture) deployment() *appsv1.Deployment {
	labels := map[string]string{"kamaji.clastix.io/name": tenant}
	probe := func(path string, port int32, failures int32) *corev1.Probe {
		return &corev1.Probe{PeriodSeconds: 1, FailureThreshold: failures, ProbeHandler: corev1.ProbeHandler{HTTPGet: &corev1.HTTPGetAction{
			Path: path, Port: intstr.FromInt32(port), Scheme: corev1.URISchemeHTTPS,
		}}}
	}
	secret := func(name string, items ...string) corev1.VolumeProjection {
		p := &corev1.SecretProjection{LocalObjectReference: corev1.LocalObjectReference{Name: tenant + "-" + name}}
		for i := 0; i < len(items); i += 2 {
			p.Items = append(p.Items, corev1.KeyToPath{Key: items[i], Path: items[i+1]})
		}
		return corev1.VolumeProjection{Secret: p}
	}
	volume := func(name, secretName string) corev1.Volume {
		return corev1.Volume{Name: name, VolumeSource: corev1.VolumeSource{Secret: &corev1.SecretVolumeSource{SecretName: tenant + "-" + secretName}}}
	}
	pkiMount := corev1.VolumeMount{Name: "etc-kubernetes-pki", MountPath: "/etc/kubernetes/pki", ReadOnly: true}
	container := func(name, live, ready string, port int32, mounts []corev1.VolumeMount, args ...string) corev1.Container {
		return corev1.Container{
			Name: name, Image: "registry.k8s.io/" + name + ":v1.36.3", Command: []string{name}, Args: args, VolumeMounts: mounts,
			// On a busy machine some probes in a row may have no answer within their second; nothing here is about that.
			StartupProbe: probe(live, port, 300), LivenessProbe: probe(live, port, 60), ReadinessProbe: probe(ready, port, 60),
		}
	}
	strategy := appsv1.DeploymentStrategy{RollingUpdate: &appsv1.RollingUpdateDeployment{
		MaxUnavailable: ptr.To(intstr.FromInt32(0)), MaxSurge: ptr.To(intstr.FromString("100%")),
	}}
	return &appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{Name: tenant},
		Spec: appsv1.DeploymentSpec{
			Replicas: ptr.To(int32(1)), Strategy: strategy, Selector: &metav1.LabelSelector{MatchLabels: labels},
			Template: corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: labels}, Spec: corev1.PodSpec{
				Containers: []corev1.Container{
					container("kube-apiserver", "/livez", "/readyz", 6443, []corev1.VolumeMount{
						pkiMount, {Name: "etc-ca-certificates", MountPath: "/etc/ca-certificates", ReadOnly: true},
					},
						"--secure-port=6443", "--advertise-address=192.0.2.10", "--endpoint-reconciler-type=none",
						"--authorization-mode=Node,RBAC", "--allow-privileged=true", "--service-cluster-ip-range=10.96.0.0/16",
						"--client-ca-file=/etc/kubernetes/pki/ca.crt",
						"--tls-cert-file=/etc/kubernetes/pki/apiserver.crt", "--tls-private-key-file=/etc/kubernetes/pki/apiserver.key",
						"--proxy-client-cert-file=/etc/kubernetes/pki/front-proxy-client.crt", "--proxy-client-key-file=/etc/kubernetes/pki/front-proxy-client.key",
						"--requestheader-client-ca-file=/etc/kubernetes/pki/front-proxy-ca.crt", "--requestheader-allowed-names=front-proxy-client",
						"--requestheader-username-headers=X-Remote-User", "--requestheader-group-headers=X-Remote-Group",
						"--requestheader-extra-headers-prefix=X-Remote-Extra-",
						"--service-account-issuer=https://kubernetes.default.svc.cluster.local",
						"--service-account-key-file=/etc/kubernetes/pki/sa.pub", "--service-account-signing-key-file=/etc/kubernetes/pki/sa.key",
						"--etcd-servers="+x.etcd, "--etcd-prefix=/"+tenant, "--etcd-compaction-interval=0",
						"--etcd-cafile=/etc/kubernetes/pki/etcd/ca.crt", "--etcd-certfile=/etc/kubernetes/pki/etcd/server.crt",
						"--etcd-keyfile=/etc/kubernetes/pki/etcd/server.key"),
					container("kube-scheduler", "/livez", "/readyz", 10259, []corev1.VolumeMount{{Name: "scheduler-kubeconfig", MountPath: "/etc/kubernetes"}},
						"--bind-address=0.0.0.0", "--kubeconfig=/etc/kubernetes/scheduler.conf", "--authentication-kubeconfig=/etc/kubernetes/scheduler.conf",
						"--authorization-kubeconfig=/etc/kubernetes/scheduler.conf", "--leader-elect=true"),
					container("kube-controller-manager", "/healthz", "/healthz", 10257,
						[]corev1.VolumeMount{{Name: "controller-manager-kubeconfig", MountPath: "/etc/kubernetes"}, pkiMount},
						"--bind-address=0.0.0.0", "--kubeconfig=/etc/kubernetes/controller-manager.conf", "--leader-elect=true",
						"--authentication-kubeconfig=/etc/kubernetes/controller-manager.conf", "--authorization-kubeconfig=/etc/kubernetes/controller-manager.conf",
						"--service-account-private-key-file=/etc/kubernetes/pki/sa.key", "--root-ca-file=/etc/kubernetes/pki/ca.crt",
						"--use-service-account-credentials=true", "--controllers=*,bootstrapsigner,tokencleaner"),
				},
				Volumes: []corev1.Volume{
					{Name: "etc-kubernetes-pki", VolumeSource: corev1.VolumeSource{Projected: &corev1.ProjectedVolumeSource{Sources: []corev1.VolumeProjection{
						secret("api-server-certificate"), secret("ca"), secret("sa-certificate"),
						secret("front-proxy-ca-certificate"), secret("front-proxy-client-certificate"),
						secret("datastore-certificate", "ca.crt", "etcd/ca.crt", "server.crt", "etcd/server.crt", "server.key", "etcd/server.key"),
					}}}},
					{Name: "etc-ca-certificates", VolumeSource: corev1.VolumeSource{HostPath: &corev1.HostPathVolumeSource{
						Path: "/etc/ca-certificates", Type: ptr.To(corev1.HostPathDirectoryOrCreate),
					}}},
					volume("scheduler-kubeconfig", "scheduler-kubeconfig"),
					volume("controller-manager-kubeconfig", "controller-manager-kubeconfig"),
				},
			}},
		},
	}
}
