package cluster

import (
	"context"
	"encoding/xml"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"sigs.k8s.io/yaml"
)

// sample names tests of Kubernetes' conformance suite that need control plane, nodes, their network and the tunnel to work together.
var sample = []string{
	"[sig-api-machinery] AdmissionWebhook [Privileged:ClusterAdmin] should be able to deny pod and configmap creation [Conformance]",
	"[sig-api-machinery] AdmissionWebhook [Privileged:ClusterAdmin] should be able to deny attaching pod [Conformance]",
	"[sig-api-machinery] CustomResourceConversionWebhook [Privileged:ClusterAdmin] should be able to convert from CR v1 to CR v2 [Conformance]",
	"[sig-api-machinery] Garbage collector should delete RS created by deployment when not orphaning [Conformance]",
	"[sig-api-machinery] ResourceQuota should create a ResourceQuota and capture the life of a pod. [Conformance]",
	"[sig-api-machinery] ValidatingAdmissionPolicy [Privileged:ClusterAdmin] should validate against a Deployment [Conformance]",
	"[sig-api-machinery] Watchers should be able to restart watching from the last resource version observed by the previous watch [Conformance]",
	"[sig-api-machinery] Watchers should be able to start watching from a specific resource version [Conformance]",
	"[sig-api-machinery] Watchers should observe add, update, and delete watch notifications on configmaps [Conformance]",
	"[sig-api-machinery] Watchers should observe an object deletion if it stops meeting the requirements of the selector [Conformance]",
	"[sig-api-machinery] Watchers should receive events on concurrent watches in same order [Conformance]",
	"[sig-apps] Deployment RollingUpdateDeployment should delete old pods and create new ones [Conformance]",
	"[sig-apps] Job should run a job to completion when tasks sometimes fail and are locally restarted [Conformance]",
	"[sig-architecture] Conformance Tests should have at least two untainted nodes [Conformance]",
	"[sig-auth] ServiceAccounts ServiceAccountIssuerDiscovery should support OIDC discovery of service account issuer [Conformance]",
	"[sig-auth] ServiceAccounts should mount an API token into pods [Conformance]",
	"[sig-cli] Kubectl logs logs should be able to retrieve and filter logs [Conformance]",
	"[sig-network] API Server should have Endpoints and EndpointSlices pointing to API Server [Conformance]",
	"[sig-network] DNS should provide DNS for the cluster [Conformance]",
	"[sig-network] EndpointSlice should create Endpoints and EndpointSlices for Pods matching a Service [Conformance]",
	"[sig-network] Networking Granular Checks: Pods should function for intra-pod communication: http [NodeConformance] [Conformance]",
	"[sig-network] Proxy version v1 should proxy through a service and a pod [Conformance]",
	"[sig-network] Services should be able to create a functioning NodePort service [Conformance]",
	"[sig-network] Services should serve a basic endpoint from pods [Conformance]",
	"[sig-node] Container Lifecycle Hook when create a pod with lifecycle hook should execute prestop http hook properly [NodeConformance] [Conformance]",
	"[sig-node] Pods should run through the lifecycle of Pods and PodStatus [Conformance]",
	"[sig-node] Pods should support remote command execution over websockets [NodeConformance] [Conformance]",
	"[sig-node] Pods should support retrieving logs from the container over websockets [NodeConformance] [Conformance]",
	"[sig-node] Probing container should be restarted with a /healthz http liveness probe [NodeConformance] [Conformance]",
	"[sig-storage] Projected combined should project all components that make up the projection API [Projection] [NodeConformance] [Conformance]",
}

// atOnce is how many processes of the suite run at the same time.
const atOnce = 4

// conformance runs Kubernetes' conformance suite, or the sample of it, against a tenant with two nodes.
func conformance(t *testing.T, i *installation) {
	if i.join == "" || i.e2e == "" {
		t.Skip("no programs are named that have a machine join a tenant, and that test it: make test-cluster JOIN=… E2E=…")
	}
	s, err := newSuite(t.Context(), i.e2e)
	if err != nil {
		t.Fatal(err)
	}
	tests := sample
	switch i.conformance {
	case "":
	case "all":
		tests = s.names
	default:
		tests = s.matching(regexp.MustCompile(i.conformance))
		if len(tests) == 0 {
			t.Fatalf("CONFORMANCE=%s: the name of no test matches", i.conformance)
		}
	}
	for _, n := range tests {
		if !slices.Contains(s.names, n) {
			t.Fatalf("%s has no test %q: it is of another version of Kubernetes than %s, or the sample is out of date", i.e2e, n, current)
		}
	}
	x := i.tunnelled(t, "conformant")
	for range 2 {
		x.joins(t, time.Now())
	}
	s.kubeconfig = x.kubeconfigFile(t)
	t.Logf("what the suite prints and reports is in %s", s.dir)

	begun := time.Now()
	found, err := s.run(t.Context(), tests)
	counts := map[string]int{}
	for _, n := range tests {
		c, ok := found[n]
		if !ok {
			c.Status = "not run"
		}
		counts[c.Status]++
		t.Run(n, c.show)
	}
	i.report.took(t, begun, "conformance: %d tests, %v", len(tests), counts)
	if err != nil {
		t.Error(err)
	}
	i.remove(t, x.name)
}

// suite is Kubernetes' program of end to end tests.
type suite struct {
	program, kubeconfig string
	// dir has for each process what it printed, and its report.
	dir string
	// names of the conformance tests.
	names []string
}

// newSuite asks the program for its conformance tests, and empties the directory for reports.
func newSuite(ctx context.Context, program string) (*suite, error) {
	dir, err := filepath.Abs("../../bin/conformance")
	if err == nil {
		err = os.RemoveAll(dir)
	}
	if err != nil {
		return nil, err
	}
	out, err := exec.CommandContext(ctx, program, "--list-conformance-tests").Output()
	if err != nil {
		return nil, fmt.Errorf("%s --list-conformance-tests: %w", program, err)
	}
	var tests []struct {
		Codename string `json:"codename"`
	}
	if err := yaml.Unmarshal(out, &tests); err != nil {
		return nil, err
	}
	s := &suite{program: program, dir: dir}
	for _, c := range tests {
		s.names = append(s.names, c.Codename)
	}
	return s, nil
}

func (s *suite) matching(e *regexp.Regexp) (tests []string) {
	for _, n := range s.names {
		if e.MatchString(n) {
			tests = append(tests, n)
		}
	}
	return tests
}

// run runs tests in several processes, then those alone that Kubernetes marks as disturbing others, and returns what was reported by name.
func (s *suite) run(ctx context.Context, tests []string) (map[string]testCase, error) {
	var serial []string
	shares := make([][]string, atOnce)
	for n, c := range tests {
		if strings.Contains(c, "[Serial]") {
			serial = append(serial, c)
		} else {
			shares[n%atOnce] = append(shares[n%atOnce], c)
		}
	}
	var processes sync.WaitGroup
	failed := make([]error, atOnce+1)
	for n, share := range shares {
		processes.Go(func() { failed[n] = s.process(ctx, fmt.Sprint(n+1), share) })
	}
	processes.Wait()
	failed[atOnce] = s.process(ctx, "serial", serial)
	found := map[string]testCase{}
	err := errors.Join(append(failed, s.read(found))...)
	return found, err
}

// process runs tests, and returns no error if some fail but all are reported.
func (s *suite) process(ctx context.Context, id string, tests []string) error {
	if len(tests) == 0 {
		return nil
	}
	dir := filepath.Join(s.dir, id)
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	log, err := os.Create(filepath.Join(dir, "log"))
	if err != nil {
		return err
	}
	defer func() { _ = log.Close() }()
	var focus []string
	for _, c := range tests {
		focus = append(focus, regexp.QuoteMeta(c))
	}
	cmd := exec.CommandContext(ctx, s.program, "--kubeconfig", s.kubeconfig, "--provider", "skeleton", "--disable-log-dump", "--report-dir", dir,
		"--ginkgo.no-color", "--ginkgo.silence-skips", "--ginkgo.timeout", "6h", "--ginkgo.focus", "("+strings.Join(focus, "|")+")$")
	cmd.Dir, cmd.Stdout, cmd.Stderr = dir, log, log
	// Of the same version, kubectl is where the program is, as in Kubernetes' releases.
	cmd.Env = append(os.Environ(), "PATH="+filepath.Dir(s.program)+string(os.PathListSeparator)+os.Getenv("PATH"))
	if err := cmd.Run(); err != nil {
		if _, missing := os.Stat(filepath.Join(dir, "junit_01.xml")); missing != nil {
			return fmt.Errorf("%w: %s", err, log.Name())
		}
	}
	return nil
}

// testCase is what the suite reports of a test, as JUnit does.
type testCase struct {
	Name   string `xml:"name,attr"`
	Status string `xml:"status,attr"` // passed, skipped, or how it failed
	// Failure and Error are why it failed.
	Failure string `xml:"failure"`
	Error   string `xml:"error"`
	Skipped struct {
		Message string `xml:"message,attr"`
	} `xml:"skipped"`
}

// show has a test of the suite be one of Go's.
func (c testCase) show(t *testing.T) {
	switch c.Status {
	case "passed":
	case "skipped":
		t.Skip(c.Skipped.Message)
	default:
		said := strings.TrimSpace(c.Failure + c.Error)
		t.Errorf("%s: %.2000s", c.Status, said)
	}
}

// read adds what processes reported of tests that they ran. What comes before and after all tests is reported, too, and is an error if it failed.
func (s *suite) read(found map[string]testCase) error {
	reports, err := filepath.Glob(filepath.Join(s.dir, "*", "junit_01.xml"))
	for _, path := range reports {
		data, failed := os.ReadFile(path)
		var all struct {
			Cases []testCase `xml:"testsuite>testcase"`
		}
		if failed == nil {
			failed = xml.Unmarshal(data, &all)
		}
		err = errors.Join(err, failed)
		for _, c := range all.Cases {
			n, test := strings.CutPrefix(c.Name, "[It] ")
			switch {
			case test && (c.Status != "skipped" || c.Skipped.Message != "skipped"): // without a reason, it is another process's
				found[n] = c
			case !test && c.Status != "passed" && c.Status != "skipped":
				err = errors.Join(err, fmt.Errorf("%s: %s: %.2000s", c.Name, c.Status, c.Failure+c.Error))
			}
		}
	}
	return err
}
