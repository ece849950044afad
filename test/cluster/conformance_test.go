package cluster

import (
	"encoding/xml"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stoker-k8s/stoker/test/env"
)

// Parts of Kubernetes' conformance suite, as Ginkgo takes them.
const (
	wholeSuite = `\[Conformance\]`
	// sample has of each kind of thing that a control plane elsewhere and a tunnel could break some tests that are quick.
	sample = `(Watchers should .*` +
		`|Kubectl logs should be able to retrieve and filter logs` +
		`|Kubectl version should check is all data is printed` +
		`|AdmissionWebhook .* should (mutate pod and apply defaults after mutation|be able to deny custom resource creation, update and deletion)` +
		`|Aggregator Should be able to support the 1.17 Sample API Server using the current Aggregator` +
		`|CustomResourceConversionWebhook .* should be able to convert from CR v1 to CR v2` +
		`|DNS should provide DNS for (the cluster|services)` +
		`|Services should (provide secure master service|serve a basic endpoint from pods)` +
		`|Pods should support (remote command execution over websockets|retrieving logs from the container over websockets)` +
		`|Variable Expansion should allow composing env vars into new env vars` +
		`|ConfigMap should be consumable from pods in volume ` +
		`|Projected downwardAPI should provide podname only` +
		`|ServiceAccounts should mount an API token into pods` +
		`|Garbage collector should delete pods created by rc when not orphaning` +
		`|ResourceQuota should create a ResourceQuota and capture the life of a pod` +
		`|Deployment deployment should support rollover` +
		`|Namespaces .* should ensure that all pods are removed when a namespace is deleted).*` + wholeSuite
)

// junit is what the suite reports.
type junit struct {
	Suites []struct {
		Cases []struct {
			Name   string `xml:"name,attr"`
			Status string `xml:"status,attr"`
		} `xml:"testcase"`
	} `xml:"testsuite"`
}

// conformance runs Kubernetes' conformance suite, or a sample of it, in the tenant.
func (x *tunnelled) conformance(t *testing.T) {
	focus, known := map[string]string{"sample": sample, "full": wholeSuite}[x.suite]
	switch {
	case x.suite == "":
		t.Skip("the conformance suite isn't asked for: make test-cluster CONFORMANCE=sample, or full, which takes hours")
	case !known:
		t.Fatalf("CONFORMANCE=%q: it is sample or full", x.suite)
	}
	dir := t.TempDir()
	program, reports := filepath.Join(dir, "e2e.test"), filepath.Join(dir, "reports")
	build := exec.CommandContext(t.Context(), "go", "test", "-c", "-ldflags", "-s -w", "-o", program, "k8s.io/kubernetes/test/e2e")
	build.Dir, build.Env = filepath.Join(env.Root(), "test", "cluster", "conformance"), append(os.Environ(), "GOWORK=off", "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%s: %v: %s", build, err, out)
	}
	kubeconfig := filepath.Join(dir, "kubeconfig")
	if err := os.WriteFile(kubeconfig, x.kubeconfigOf(t), 0o600); err != nil {
		t.Fatal(err)
	}
	begun := time.Now()
	run := exec.CommandContext(t.Context(), program, "--kubeconfig", kubeconfig, "--provider", "skeleton", "--ginkgo.focus", focus,
		"--ginkgo.timeout", "6h", "--ginkgo.no-color", "--report-dir", reports, "--disable-log-dump")
	out, failed := run.CombinedOutput()
	passed, wrong := x.read(t, filepath.Join(reports, "junit_01.xml"))
	x.report.took(t, begun, "conformance (%s): %d passed, %d failed", x.suite, passed, len(wrong))
	for _, n := range wrong {
		x.report.line(t, "    failed: "+n)
	}
	if failed != nil || passed == 0 {
		t.Errorf("%v: %s", failed, out[max(0, len(out)-10_000):])
	}
}

// read counts the tests that passed, and names those that failed.
func (x *tunnelled) read(t *testing.T, file string) (passed int, failed []string) {
	t.Helper()
	data, err := os.ReadFile(file)
	if err != nil {
		t.Error(err)
		return 0, nil
	}
	var all junit
	if err := xml.Unmarshal(data, &all); err != nil {
		t.Error(fmt.Errorf("%s: %w", file, err))
	}
	for _, s := range all.Suites {
		for _, c := range s.Cases {
			switch {
			case c.Status == "passed" && strings.Contains(c.Name, "[Conformance]"): // others prepare the suite
				passed++
			case c.Status != "passed" && c.Status != "skipped":
				failed = append(failed, c.Name)
			}
		}
	}
	return passed, failed
}
