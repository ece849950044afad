package helm

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/nats-io/nats.go"

	"github.com/stoker-k8s/stoker/internal/testing/port"
	"github.com/stoker-k8s/stoker/pkg/events"
	"github.com/stoker-k8s/stoker/pkg/kube"
	"github.com/stoker-k8s/stoker/test/env"
)

// install applies what a chart gives its bootstrap (account, roles, configuration) and returns the configuration as a file, with
// 127.0.0.1 among the hosts.
func install(t *testing.T, name string, args ...string) (config string) {
	t.Helper()
	objects := render(t, name, args...)
	account := name + "-bootstrap"
	for _, kind := range []string{"ServiceAccount", "Role", "RoleBinding", "ClusterRole", "ClusterRoleBinding"} {
		if o := objects[kind+"/"+account]; o != nil {
			kubectl(t, text(t, o), "apply", "--server-side", "--force-conflicts", "-f", "-")
		}
	}
	data, _ := objects["ConfigMap/"+account]["data"].(map[string]any)
	yaml, _ := data["bootstrap.yaml"].(string)
	return write(t, filepath.Join(t.TempDir(), "bootstrap.yaml"), strings.Replace(yaml, "hosts:\n", "hosts:\n  - 127.0.0.1\n", 1))
}

// bootstrap runs a bootstrap until the account has its rights, and returns what it made.
func bootstrap(t *testing.T, kind, account, config string) (out string) {
	t.Helper()
	kubeconfig := as(t, account)
	env.Eventually(t, "bootstrap "+kind, func() error {
		more, err := stoker(t.Context(), t, kubeconfig, "bootstrap", kind, "--config", config)
		out += more
		if err != nil {
			return fmt.Errorf("%w: %s", err, more)
		}
		return nil
	})
	return out
}

// secret is a Secret's data.
func secret(t *testing.T, name string) map[string][]byte {
	t.Helper()
	var s corev1.Secret
	e.Get(t, kube.Secrets, "stoker-system", name, &s)
	return s.Data
}

// configMap writes a ConfigMap's data to a directory as a kubelet would.
func configMap(t *testing.T, name, dir string) {
	t.Helper()
	var m corev1.ConfigMap
	e.Get(t, kube.ConfigMaps, "stoker-system", name, &m)
	for key, value := range m.Data {
		next := write(t, filepath.Join(dir, "."+key), value)
		if err := os.Rename(next, filepath.Join(dir, key)); err != nil {
			t.Fatal(err)
		}
	}
}

// files writes a Secret's data to a directory.
func files(t *testing.T, name, dir string) {
	t.Helper()
	for key, value := range secret(t, name) {
		write(t, filepath.Join(dir, key), string(value))
	}
}

// start runs a program until the test ends or it is stopped; it returns the file of what it says.
func start(t *testing.T, program string, args ...string) (file string, stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	cmd := exec.CommandContext(ctx, program, args...)
	cmd.Env = append(os.Environ(), "POD_NAME=stoker-nats-0")
	cmd.Cancel = func() error { return cmd.Process.Signal(os.Interrupt) }
	cmd.WaitDelay = 10 * time.Second
	log, err := os.Create(filepath.Join(t.TempDir(), "log"))
	if err != nil {
		t.Fatal(err)
	}
	cmd.Stdout, cmd.Stderr = log, log
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	stop = sync.OnceFunc(func() {
		cancel()
		_ = cmd.Wait()
		_ = log.Close()
	})
	t.Cleanup(func() {
		stop()
		if text, err := os.ReadFile(log.Name()); err == nil && t.Failed() {
			t.Logf("%s:\n%s", program, text)
		}
	})
	return log.Name(), stop
}

func TestBootstrapOfNATS(t *testing.T) {
	t.Parallel()
	set := func(portal string) []string {
		return []string{"--set", "nats.replicas=1,portals[0].name=" + portal + ",portals[0].namespaces[0]=default"}
	}
	out := bootstrap(t, "nats", "stoker-bootstrap", install(t, "stoker", set("shop")...))
	for _, want := range []string{"stoker-nats-intake", "stoker-nats-portal-shop", "stoker-nats-authority", "stoker-nats-tls", "stoker-nats-accounts"} {
		if !strings.Contains(out, want+"\n") {
			t.Errorf("%s isn't made: %s", want, out)
		}
	}
	if level := kubectl(t, "", "get", "namespace", "stoker-system", "-o", `jsonpath={.metadata.labels.pod-security\.kubernetes\.io/enforce}`); level != "restricted" {
		t.Errorf("Pod Security level %q", level)
	}
	if again := bootstrap(t, "nats", "stoker-bootstrap", install(t, "stoker", set("shop")...)); again != "" {
		t.Errorf("a second run changed something: %s", again)
	}

	// A server with the chart's configuration, and what reloads it.
	dir, tls := t.TempDir(), t.TempDir()
	files(t, "stoker-nats-tls", tls)
	configMap(t, "stoker-nats-ca", tls)
	configMap(t, "stoker-nats-accounts", dir)
	data, _ := render(t, "stoker", set("shop")...)["ConfigMap/stoker-nats"]["data"].(map[string]any)
	conf, _ := data["nats.conf"].(string)
	client := port.Address(t, "127.0.0.1")
	url := "tls://" + client
	conf = strings.NewReplacer("/etc/nats-tls", tls, "/etc/nats-ca", tls, "/data", t.TempDir(),
		"listen: 0.0.0.0:4222", "listen: "+client, "http: 0.0.0.0:8222", "http: "+port.Address(t, "127.0.0.1")).Replace(conf)
	start(t, component(t, "nats-server", "nats-server"), "--config", write(t, filepath.Join(dir, "nats.conf"), conf))
	system := write(t, filepath.Join(t.TempDir(), "seed"), string(secret(t, "stoker-nats-system")["seed"]))
	start(t, e.StokerBin(), "nats-reload", "--watch", dir, "--watch", tls, "--nats", url, "--nats-ca", filepath.Join(tls, "ca.crt"), "--nkey", system)

	with := func(seed []byte) error {
		option, err := nats.NkeyOptionFromSeed(write(t, filepath.Join(t.TempDir(), "seed"), string(seed)))
		if err != nil {
			return err
		}
		conn, err := nats.Connect(url, option, nats.RootCAs(filepath.Join(tls, "ca.crt")), nats.Timeout(10*time.Second))
		if err == nil {
			conn.Close()
		}
		return err
	}
	// Each is tried until it holds: a server that reloads closes connections that are being made.
	connects := func(user string) error { return with(secret(t, "stoker-nats-"+user)["seed"]) }
	refused := func(who string, seed []byte) {
		t.Helper()
		env.Eventually(t, who+" to be refused", func() error {
			if err := with(seed); !errors.Is(err, nats.ErrAuthorization) {
				return fmt.Errorf("it says %w", err)
			}
			return nil
		})
	}
	for _, user := range append(events.Users(), "portal-shop") {
		env.Eventually(t, user+" to connect", func() error { return connects(user) })
	}

	// Another portal in its place: the server hears of it, and the former one's credentials are gone.
	shop := secret(t, "stoker-nats-portal-shop")["seed"]
	bootstrap(t, "nats", "stoker-bootstrap", install(t, "stoker", set("bank")...))
	configMap(t, "stoker-nats-accounts", dir)
	env.Eventually(t, "the new portal to connect", func() error { return connects("portal-bank") })
	refused("the former portal", shop)
	if got := kubectl(t, "", "-n", "stoker-system", "get", "secrets", "-o", "name"); strings.Contains(got, "portal-shop") || !strings.Contains(got, "portal-bank") {
		t.Errorf("Secrets: %s", got)
	}

	// A certificate that is missing is made anew by the same authority, and the server takes it.
	before := secret(t, "stoker-nats-tls")["tls.crt"]
	kubectl(t, "", "-n", "stoker-system", "delete", "secret", "stoker-nats-tls")
	if out := bootstrap(t, "nats", "stoker-bootstrap", install(t, "stoker", set("bank")...)); strings.TrimSpace(out) != "made Secret stoker-nats-tls" {
		t.Errorf("made %s", out)
	}
	files(t, "stoker-nats-tls", tls)
	if string(before) == string(secret(t, "stoker-nats-tls")["tls.crt"]) {
		t.Error("it is the same certificate")
	}
	env.Eventually(t, "certs to connect", func() error { return connects("certs") })

	// Other nkeys: those of before count until a run an hour later, so that no service is without one that counts.
	former := secret(t, "stoker-nats-certs")["seed"]
	other := install(t, "stoker", append(set("bank"), "--set", "nats.keys=other")...)
	if out := bootstrap(t, "nats", "stoker-bootstrap", other); !strings.Contains(out, "changed Secret stoker-nats-certs;") || strings.Contains(out, "portal") {
		t.Errorf("other keys: %s", out)
	}
	// The kubelet brings the new seed to who reloads the server before the server knows of it.
	write(t, system, string(secret(t, "stoker-nats-system")["seed"]))
	configMap(t, "stoker-nats-accounts", dir)
	env.Eventually(t, "certs to connect with its new nkey", func() error { return connects("certs") })
	env.Eventually(t, "the former nkey to count still", func() error { return with(former) })
	if out := bootstrap(t, "nats", "stoker-bootstrap", other); out != "" {
		t.Errorf("a run right after it changed something: %s", out)
	}
	// By names: etcd's Secrets have the same labels, and another test's bootstrap may write them at this moment.
	annotate := []string{"-n", "stoker-system", "annotate", "--overwrite"}
	for n := range strings.FieldsSeq(kubectl(t, "", "-n", "stoker-system", "get", "secrets", "-l", "app.kubernetes.io/managed-by=stoker-bootstrap", "-o", "name")) {
		if strings.HasPrefix(n, "secret/stoker-nats-") {
			annotate = append(annotate, n)
		}
	}
	kubectl(t, "", append(annotate, "stoker.dev/changed="+time.Now().Add(-2*time.Hour).UTC().Format(time.RFC3339))...)
	if out := bootstrap(t, "nats", "stoker-bootstrap", other); !strings.Contains(out, "stoker-nats-certs doesn't count any more") {
		t.Errorf("two hours later: %s", out)
	}
	configMap(t, "stoker-nats-accounts", dir)
	refused("the former nkey", former)
	env.Eventually(t, "certs to connect with its new nkey only", func() error { return connects("certs") })
}

// The accounts of bootstraps write their own Secrets, and none that would give them another account's rights.
// It comes before those that run at once, for TestBootstrapOfNATS gives the account other rights.
func TestABootstrapWritesItsOwnSecretsOnly(t *testing.T) {
	install(t, "stoker")
	defer kubectl(t, "", "delete", "clusterrole,clusterrolebinding", "stoker-bootstrap")
	kubeconfig := as(t, "stoker-bootstrap")
	manifest := func(name, more string) string {
		return "apiVersion: v1\nkind: Secret\nmetadata:\n  name: " + name + "\n  namespace: stoker-system\n" + more
	}
	const label = "  labels: {app.kubernetes.io/managed-by: stoker-bootstrap}\n"
	kubectl(t, manifest("of-another", ""), "create", "-f", "-")
	token := "  annotations: {kubernetes.io/service-account.name: stoker-certs}\ntype: kubernetes.io/service-account-token\n"
	for _, c := range []struct{ name, stdin, want string }{
		{"a token", manifest("stoker-nats-token", label+token), "is of type kubernetes.io/service-account-token"},
		{"one without its label", manifest("stoker-nats-unlabelled", ""), "does not carry the label"},
	} {
		env.Eventually(t, c.name+" to be refused by the policy", func() error {
			out, err := e.TryKubectl(t.Context(), kubeconfig, strings.NewReader(c.stdin), "create", "--validate=false", "-f", "-")
			if err == nil || !strings.Contains(out, c.want) {
				return fmt.Errorf("%w: %s", err, out)
			}
			return nil
		})
	}
	if out, err := e.TryKubectl(t.Context(), kubeconfig, nil, "-n", "stoker-system", "delete", "secret", "of-another"); err == nil || !strings.Contains(out, "somebody else's") {
		t.Errorf("deleted another's: %v: %s", err, out)
	}
}

func TestBootstrapInput(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	for file, c := range map[string]struct{ content, want string }{
		"unknown":   {"namespace: a\nname: b\nhosts: [c]\nport: 1\n", `unknown field "port"`},
		"missing":   {"namespace: a\nhosts: [c]\n", "field name"},
		"portal":    {"namespace: stoker-system\nname: b\nhosts: [c]\nportals: [{name: ../up, namespaces: [d]}]\n", `"../up"`},
		"forbidden": {"namespace: stoker-system\nname: b\nhosts: [c]\nportals: [{name: shop, namespaces: [kube-system]}]\n", `"kube-system"`},
	} {
		out, err := stoker(t.Context(), t, admin(), "bootstrap", "nats", "--config", write(t, filepath.Join(dir, file), c.content))
		if err == nil || !strings.Contains(out, c.want) {
			t.Errorf("%s: %v, %s", file, err, out)
		}
	}
	if out, err := stoker(t.Context(), t, admin(), "bootstrap", "nats", "--config", filepath.Join(dir, "none")); err == nil || !strings.Contains(out, "none") {
		t.Errorf("no file: %v, %s", err, out)
	}
}

func TestBootstrapOfEtcd(t *testing.T) {
	t.Parallel()
	config := install(t, "stoker-etcd", "--set", "backup.enabled=true")
	out := bootstrap(t, "etcd", "stoker-etcd-bootstrap", config)
	for _, want := range []string{
		"Secret stoker-etcd-authority", "Secret stoker-etcd-tls", "Secret stoker-etcd-root", "ConfigMap stoker-etcd-ca",
		"PersistentVolumeClaim stoker-etcd-backup",
	} {
		if !strings.Contains(out, want+"\n") {
			t.Errorf("no %s: %s", want, out)
		}
	}
	if again := bootstrap(t, "etcd", "stoker-etcd-bootstrap", config); again != "" {
		t.Errorf("a second run changed something: %s", again)
	}
	server, root := t.TempDir(), t.TempDir()
	files(t, "stoker-etcd-tls", server)
	files(t, "stoker-etcd-root", root)
	configMap(t, "stoker-etcd-ca", server)
	ca := filepath.Join(server, "ca.crt")
	client, peer := fmt.Sprintf("https://127.0.0.1:%d", port.Free(t)), fmt.Sprintf("https://127.0.0.1:%d", port.Free(t))
	start(t, component(t, "etcd", "etcd"), "--name=a", "--data-dir="+filepath.Join(t.TempDir(), "data"),
		"--listen-client-urls="+client, "--advertise-client-urls="+client, "--listen-peer-urls="+peer, "--initial-advertise-peer-urls="+peer,
		"--initial-cluster=a="+peer, "--client-cert-auth", "--trusted-ca-file="+ca, "--cert-file="+filepath.Join(server, "tls.crt"),
		"--key-file="+filepath.Join(server, "tls.key"), "--peer-client-cert-auth", "--peer-trusted-ca-file="+ca,
		"--peer-cert-file="+filepath.Join(server, "tls.crt"), "--peer-key-file="+filepath.Join(server, "tls.key"))
	reach := []string{"--endpoints", client, "--cacert", ca, "--cert", filepath.Join(root, "tls.crt"), "--key", filepath.Join(root, "tls.key")}
	for range 2 {
		if out, err := stoker(t.Context(), t, admin(), append([]string{"bootstrap", "etcd-authentication"}, reach...)...); err != nil || !strings.Contains(out, "authentication is on") {
			t.Fatalf("%v: %s", err, out)
		}
	}
	dir := t.TempDir()
	old := write(t, filepath.Join(dir, "etcd-20200101T000000Z.db"), "old")
	mine := write(t, filepath.Join(dir, "notes.txt"), "mine")
	file, err := stoker(t.Context(), t, admin(), append([]string{"bootstrap", "etcd-snapshot", "--directory", dir, "--keep", "1"}, reach...)...)
	if err != nil {
		t.Fatalf("%v: %s", err, file)
	}
	data, err := os.ReadFile(strings.TrimSpace(file))
	if err != nil || len(data) <= sha256.Size {
		t.Fatalf("a snapshot of %d bytes: %v", len(data), err)
	}
	// etcd ends a snapshot with the sum of all before.
	if sum := sha256.Sum256(data[:len(data)-sha256.Size]); string(sum[:]) != string(data[len(data)-sha256.Size:]) {
		t.Error("the snapshot is not what etcd sent")
	}
	if _, err := os.Stat(old); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the old snapshot: %v", err)
	}
	if _, err := os.Stat(mine); err != nil {
		t.Errorf("a file that is no snapshot: %v", err)
	}
	if out, err := stoker(t.Context(), t, admin(), "bootstrap", "etcd-snapshot", "--directory", filepath.Join(dir, "none"), "--endpoints", client,
		"--cacert", ca, "--cert", filepath.Join(root, "tls.crt"), "--key", filepath.Join(root, "tls.key")); err == nil || !strings.Contains(out, "none") {
		t.Errorf("a directory that isn't there: %v: %s", err, out)
	}
}
