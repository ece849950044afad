// Package helm tries the Helm charts on a real API server: what they render is accepted, installs, upgrades and goes; and what
// `stoker bootstrap` makes, with the rights that the charts give it, runs real NATS and etcd servers.
package helm

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"

	"github.com/stoker-k8s/stoker/local/images"
	"github.com/stoker-k8s/stoker/test/env"
)

var e *env.Env

func TestMain(m *testing.M) {
	env.Main(m, func(started *env.Env) { e = started }, env.APIOnly, env.Command)
}

// chart is the directory of a chart.
func chart(name string) string { return filepath.Join(env.Root(), "deployments", "helm", name) }

// admin is the kubeconfig of who may do everything.
func admin() string { return e.Local.Kubeconfig("admin") }

// tryHelm runs Helm and returns what it prints.
func tryHelm(t *testing.T, args ...string) (string, error) {
	t.Helper()
	bin, err := env.Helm()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), bin, args...)
	home := t.TempDir()
	cmd.Env = append(os.Environ(), "KUBECONFIG="+admin(), "HELM_CACHE_HOME="+home, "HELM_CONFIG_HOME="+home, "HELM_DATA_HOME="+home)
	var out, log bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &log
	if err := cmd.Run(); err != nil {
		return "", fmt.Errorf("helm %s: %w: %s", strings.Join(args, " "), err, log.String())
	}
	return out.String(), nil
}

func helm(t *testing.T, args ...string) string {
	t.Helper()
	out, err := tryHelm(t, args...)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// render returns the objects of a chart, by kind and name.
func render(t *testing.T, name string, args ...string) map[string]map[string]any {
	t.Helper()
	return parse(t, helm(t, append([]string{"template", name, chart(name), "--namespace", "stoker-system"}, args...)...))
}

func parse(t *testing.T, text string) map[string]map[string]any {
	t.Helper()
	all := map[string]map[string]any{}
	for document := range strings.SplitSeq(text, "\n---\n") {
		var o map[string]any
		if err := yaml.Unmarshal([]byte(document), &o); err != nil {
			t.Fatalf("%v:\n%s", err, document)
		}
		if o == nil {
			continue
		}
		meta, _ := o["metadata"].(map[string]any)
		all[fmt.Sprintf("%s/%s", o["kind"], meta["name"])] = o
	}
	return all
}

// text is objects as a stream of YAML documents.
func text(t *testing.T, objects ...map[string]any) string {
	t.Helper()
	var b strings.Builder
	for _, o := range objects {
		document, err := yaml.Marshal(o)
		if err != nil {
			t.Fatal(err)
		}
		fmt.Fprintf(&b, "---\n%s", document)
	}
	return b.String()
}

// kubectl runs kubectl as the administrator.
func kubectl(t *testing.T, stdin string, args ...string) string {
	t.Helper()
	out, err := e.TryKubectl(t.Context(), admin(), strings.NewReader(stdin), args...)
	if err != nil {
		t.Fatalf("kubectl %s: %v\n%s", strings.Join(args, " "), err, out[max(0, len(out)-1000):])
	}
	return out
}

// stoker runs the command line with a kubeconfig, and returns what it prints.
func stoker(ctx context.Context, t *testing.T, kubeconfig string, args ...string) (string, error) {
	t.Helper()
	cmd := exec.CommandContext(ctx, e.StokerBin(), args...)
	cmd.Env = append(os.Environ(), "KUBECONFIG="+kubeconfig)
	cmd.Dir = t.TempDir() // in this repository, a local stack of `make up` would be found
	out, err := cmd.CombinedOutput()
	return string(out), err
}

// as writes a kubeconfig of the administrator who acts as an account of the namespace stoker-system.
func as(t *testing.T, account string) string {
	t.Helper()
	data, err := os.ReadFile(admin())
	if err != nil {
		t.Fatal(err)
	}
	var config map[string]any
	if err := yaml.Unmarshal(data, &config); err != nil {
		t.Fatal(err)
	}
	users, _ := config["users"].([]any)
	for _, entry := range users {
		named, _ := entry.(map[string]any)
		user, _ := named["user"].(map[string]any)
		user["as"] = "system:serviceaccount:stoker-system:" + account
		user["as-groups"] = []string{"system:serviceaccounts", "system:serviceaccounts:stoker-system", "system:authenticated"}
	}
	if data, err = yaml.Marshal(config); err != nil {
		t.Fatal(err)
	}
	return write(t, filepath.Join(t.TempDir(), "kubeconfig"), string(data))
}

// write writes a file and returns its path.
func write(t *testing.T, file, content string) string {
	t.Helper()
	if err := os.WriteFile(file, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}

// component is a program of another project, built here.
func component(t *testing.T, image, program string) string {
	t.Helper()
	store, err := images.Open(env.Root())
	if err != nil {
		t.Fatal(err)
	}
	dir, err := store.Build(t.Context(), image, nil)
	if err != nil {
		t.Fatal(err)
	}
	return filepath.Join(dir, program)
}
