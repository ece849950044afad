package containers

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	neturl "net/url"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/nats-io/nats.go"
	tc "github.com/testcontainers/testcontainers-go/modules/compose"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/stoker-k8s/stoker/internal/testing/port"
	"github.com/stoker-k8s/stoker/pkg/api/event"
	"github.com/stoker-k8s/stoker/pkg/api/name"
	"github.com/stoker-k8s/stoker/pkg/api/v1alpha1"
	"github.com/stoker-k8s/stoker/pkg/events"
	"github.com/stoker-k8s/stoker/pkg/portal"
)

// installation is a project of docker-compose.yaml.
type installation struct {
	project string
	files   []string
	env     map[string]string
	dir     string // has the files of the volume for operators
}

// TestCompose is docker-compose.yaml as its users have it: `docker compose up` ends with a tenant whose API answers, portals order tenants
// by event, a container of each service is killed, services are scaled, everything is restarted, and nothing is left after `down -v`.
func TestCompose(t *testing.T) {
	needEngine(t)
	build(t)
	build(t, "nats", "etcd", "kube-apiserver", "kube-controller-manager", "kube-scheduler")
	free := func() string { return strconv.Itoa(port.Free(t)) }
	p := free()
	i := &installation{project: "stoker-test-" + strings.ToLower(rand.Text()[:8]), files: []string{filepath.Join(root, "docker-compose.yaml")}, dir: t.TempDir()}
	i.env = environment(t, map[string]string{
		"STOKER_VERSION": tag, "STOKER_SUBNET": "172.30.98.0/24", "STOKER_SUBNET_RANGE": "172.30.98.128/25", "STOKER_NODE_ADDRESS": "172.30.98.10",
		"API_PORT": free(), "NATS_PORT": free(), "PROMETHEUS_PORT": free(), "GRAFANA_PORT": free(),
		"TENANT_PORT": "30443", "TENANT_PORTS": "30443",
	}, "deployments/compose/built.env")
	// The first tenant is reached at a port of this machine, others within the network of containers alone.
	i.override(t, "services: {node: {ports: !override [\"127.0.0.1:"+p+":30443\"]}}\n")
	if !there(t, i.env["PROMETHEUS_IMAGE"]) {
		i.env["PROMETHEUS_IMAGE"] = "localhost/stoker/prometheus:debian"
		standIn(t, i.env["PROMETHEUS_IMAGE"])
		t.Log("Prometheus is Debian's")
	}
	if !there(t, i.env["GRAFANA_IMAGE"]) {
		i.override(t, "services: {grafana: {profiles: [never]}}\n")
		t.Log("Grafana is left out")
	}
	t.Cleanup(func() { i.down(t) })
	i.up(t)
	i.keys(t)

	tenant := i.tenant(t, "demo", "https://127.0.0.1:"+p)
	eventually(t, "the tenant's API to answer", answers(tenant))
	t.Run("Prometheus scrapes all, and no alert fires", func(t *testing.T) {
		eventually(t, "Prometheus to have all", func(ctx context.Context) error { return scraped(ctx, "http://127.0.0.1:"+i.env["PROMETHEUS_PORT"]) })
	})
	t.Run("a portal orders a tenant by event", func(t *testing.T) { i.order(t, "ordered", 30501) })
	for n, service := range name.Services() {
		t.Run(service+" is killed", func(t *testing.T) {
			if testing.Short() && service != name.ServiceWorkload {
				t.Skip("long: each service resumes by the same loop; workload shows it")
			}
			i.kill(t, service)
			i.order(t, "after-"+service, 30510+int32(n))
		})
	}
	t.Run("a second replica takes its share", func(t *testing.T) {
		i.override(t, "services: {certs: {scale: 2}}\n")
		i.up(t)
		eventually(t, "the replicas of certs to share the partitions", i.shared(t, name.ServiceCerts, 2))
	})
	t.Run("everything is restarted", func(t *testing.T) {
		i.restart(t)
		eventually(t, "the tenant's API to answer with the keys of before", answers(tenant))
		i.order(t, "after-restart", 30530)
	})
	i.down(t)
	i.checkGone(t)
}

// override adds a file to the project.
func (i *installation) override(t *testing.T, text string) {
	t.Helper()
	file := filepath.Join(i.dir, fmt.Sprintf("override-%d.yaml", len(i.files)))
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	i.files = append(i.files, file)
}

// stack is the project as the files say it is.
func (i *installation) stack(t *testing.T) tc.ComposeStack {
	t.Helper()
	stack, err := tc.NewDockerComposeWith(tc.StackIdentifier(i.project), tc.WithStackFiles(i.files...))
	if err != nil {
		t.Fatal(err)
	}
	return stack.WithEnv(i.env)
}

// up is `docker compose up`, and waits for the first tenant.
func (i *installation) up(t *testing.T) {
	t.Helper()
	if err := i.stack(t).Up(t.Context()); err != nil {
		t.Fatalf("%v\n%s", err, i.states(t.Context()))
	}
	eventually(t, "the container tenant to end", func(ctx context.Context) error {
		state, err := docker(ctx, "inspect", "--format", "{{.State.Status}} {{.State.ExitCode}}", i.container(t, "tenant")[0])
		if err == nil && state != "exited 0" {
			log, _ := docker(ctx, "logs", "--tail", "3", i.container(t, "tenant")[0])
			err = fmt.Errorf("it is %s: %s", state, log)
		}
		return err
	})
}

func (i *installation) states(ctx context.Context) string {
	out, _ := docker(ctx, "ps", "--all", "--filter", "label=com.docker.compose.project="+i.project, "--format", "{{.Names}} {{.Status}}")
	return out
}

// container returns the ids of a service's containers.
func (i *installation) container(t *testing.T, service string) []string {
	t.Helper()
	out, err := docker(t.Context(), "ps", "--all", "--quiet", "--filter", "label=com.docker.compose.project="+i.project,
		"--filter", "label=com.docker.compose.service="+service)
	if err != nil || out == "" {
		t.Fatalf("no container of %s: %v", service, err)
	}
	return strings.Fields(out)
}

// keys copies what operators and portals need, as docs/compose.md says.
func (i *installation) keys(t *testing.T) {
	t.Helper()
	if _, err := docker(t.Context(), "cp", i.container(t, "keys")[0]+":/volumes/operator/.", i.dir); err != nil {
		t.Fatal(err)
	}
}

func (i *installation) nats() string { return "tls://127.0.0.1:" + i.env["NATS_PORT"] }

// order applies a tenant by event, and waits until it is Ready.
func (i *installation) order(t *testing.T, tenant string, port int32) {
	t.Helper()
	var client *portal.Client
	eventually(t, "NATS to take the portal", func(context.Context) (err error) {
		client, err = portal.Connect(portal.Config{
			URL: i.nats(), SeedFile: filepath.Join(i.dir, "portal.nk"), CAFile: filepath.Join(i.dir, "nats-ca.crt"), Source: "/test/containers",
		})
		return err
	})
	defer client.Close()
	replicas := int32(1)
	accepted, err := client.Apply(t.Context(), &v1alpha1.TenantControlPlane{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: tenant},
		Spec: v1alpha1.TenantControlPlaneSpec{
			ControlPlane: v1alpha1.ControlPlane{
				Deployment: v1alpha1.DeploymentSpec{Replicas: &replicas},
				Service:    v1alpha1.ServiceSpec{ServiceType: v1alpha1.ServiceTypeNodePort},
			},
			Kubernetes:     v1alpha1.KubernetesSpec{Version: i.env["KUBERNETES_VERSION"]},
			NetworkProfile: v1alpha1.NetworkProfileSpec{Address: i.env["STOKER_NODE_ADDRESS"], Port: port},
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := client.WaitReady(t.Context(), accepted); err != nil {
		t.Fatalf("%v\n%s", err, i.states(t.Context()))
	}
	// Its pod makes room for the next.
	gone, err := client.Delete(t.Context(), events.Tenant("default", tenant))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := client.WaitDeleted(t.Context(), gone); err != nil {
		t.Fatal(err)
	}
}

// kill ends a service's container as an out-of-memory kill does, and has it start again as the engine does by itself then; it does not after a
// kill by command.
func (i *installation) kill(t *testing.T, service string) {
	t.Helper()
	for _, args := range [][]string{{"kill"}, {"start"}} {
		if _, err := docker(t.Context(), append(args, i.container(t, service)...)...); err != nil {
			t.Fatal(err)
		}
	}
}

// restart stops all containers and starts them.
func (i *installation) restart(t *testing.T) {
	t.Helper()
	out, err := docker(t.Context(), "ps", "--quiet", "--filter", "label=com.docker.compose.project="+i.project)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := docker(t.Context(), append([]string{"restart"}, strings.Fields(out)...)...); err != nil {
		t.Fatal(err)
	}
}

// shared tells whether so many replicas of a service have partitions, all of them together.
func (i *installation) shared(t *testing.T, service string, replicas int) func(context.Context) error {
	t.Helper()
	key, err := nats.NkeyOptionFromSeed(filepath.Join(i.dir, "operator.nk"))
	if err != nil {
		t.Fatal(err)
	}
	conn, err := nats.Connect(i.nats(), key, nats.RootCAs(filepath.Join(i.dir, "nats-ca.crt")))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(conn.Close)
	return func(ctx context.Context) error {
		m, err := conn.RequestWithContext(ctx, event.QueryReplicas, []byte(`{}`))
		if err != nil {
			return err
		}
		var answer event.ReplicasReply
		if err := json.Unmarshal(m.Data, &answer); err != nil {
			return err
		}
		with, partitions := 0, 0
		for _, r := range answer.Replicas {
			if r.Service == service && len(r.Partitions) > 0 {
				with++
				partitions += len(r.Partitions)
			}
		}
		if with != replicas || partitions != 16 {
			return fmt.Errorf("%d replicas have %d partitions: %s", with, partitions, m.Data)
		}
		return nil
	}
}

// tenant reaches a tenant's API at a URL, with its administrator's kubeconfig.
func (i *installation) tenant(t *testing.T, tenant, url string) kubernetes.Interface {
	t.Helper()
	management, err := clientcmd.BuildConfigFromFlags("", filepath.Join(i.dir, "host.kubeconfig"))
	if err != nil {
		t.Fatal(err)
	}
	secret, err := client(t, management).CoreV1().Secrets("default").Get(t.Context(), tenant+"-admin-kubeconfig", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	config, err := clientcmd.RESTConfigFromKubeConfig(secret.Data["admin.conf"])
	if err != nil {
		t.Fatal(err)
	}
	config.Host = url
	return client(t, config)
}

func client(t *testing.T, config *rest.Config) kubernetes.Interface {
	t.Helper()
	c, err := kubernetes.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func answers(tenant kubernetes.Interface) func(context.Context) error {
	return func(ctx context.Context) error {
		_, err := tenant.CoreV1().Namespaces().Get(ctx, "kube-system", metav1.GetOptions{})
		return err
	}
}

// scraped tells whether a Prometheus has metrics of each service, NATS and the databases, and rules, none of which fires.
func scraped(ctx context.Context, url string) error {
	services := len(name.Services())
	for query, want := range map[string]string{
		"count(up == 1)":              strconv.Itoa(services + 3), // NATS' exporter, and two etcd
		"count(up == 0) or vector(0)": "0", "count(count by (service) (stoker_lease_held == 1))": strconv.Itoa(services),
		"sum(stoker_nats_server_up)": "1", "sum(stoker_tenants)": "1", `count(ALERTS{alertstate="firing"}) or vector(0)`: "0",
	} {
		var answer struct {
			Data struct {
				Result []struct{ Value [2]any }
			}
		}
		if err := get(ctx, url+"/api/v1/query?query="+neturl.QueryEscape(query), &answer); err != nil {
			return err
		}
		if r := answer.Data.Result; len(r) != 1 || r[0].Value[1] != want {
			return fmt.Errorf("%s is %v, want %s", query, r, want)
		}
	}
	var rules struct {
		Data struct {
			Groups []struct{ Rules []struct{ Health string } }
		}
	}
	if err := get(ctx, url+"/api/v1/rules", &rules); err != nil {
		return err
	}
	for _, g := range rules.Data.Groups {
		for _, r := range g.Rules {
			if r.Health != "ok" {
				return fmt.Errorf("a rule is %s", r.Health)
			}
		}
	}
	if len(rules.Data.Groups) == 0 {
		return errors.New("no rules")
	}
	return nil
}

func get(ctx context.Context, url string, into any) error {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return err
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	return json.NewDecoder(response.Body).Decode(into)
}

// down is `docker compose down -v`.
func (i *installation) down(t *testing.T) {
	t.Helper()
	if t.Failed() {
		t.Log(i.states(context.WithoutCancel(t.Context())))
	}
	if err := i.stack(t).Down(context.WithoutCancel(t.Context()), tc.RemoveOrphans(true), tc.RemoveVolumes(true)); err != nil {
		t.Error(err)
	}
}

// checkGone says what of the project is left.
func (i *installation) checkGone(t *testing.T) {
	t.Helper()
	for _, what := range [][]string{{"ps", "--all"}, {"volume", "ls"}, {"network", "ls"}} {
		out, err := docker(t.Context(), append(what, "--quiet", "--filter", "label=com.docker.compose.project="+i.project)...)
		if err != nil || out != "" {
			t.Errorf("docker %s: %s, %v", strings.Join(what, " "), out, err)
		}
	}
}
