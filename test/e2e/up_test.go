package e2e

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/stoker-k8s/stoker/test/env"
)

// TestUp does what the README says, with the command line alone.
func TestUp(t *testing.T) {
	dir := filepath.Join(t.TempDir(), ".stoker")
	stoker := func(args ...string) (string, error) {
		// The last `down` comes when the test's context has ended.
		cmd := exec.CommandContext(context.WithoutCancel(t.Context()), e.StokerBin(), args...)
		cmd.Dir = filepath.Dir(dir)
		out, err := cmd.CombinedOutput()
		return string(out), err
	}
	must := func(want string, args ...string) string {
		t.Helper()
		out, err := stoker(args...)
		if err != nil || !strings.Contains(out, want) {
			t.Fatalf("stoker %s: %v, want %q in\n%s", strings.Join(args, " "), err, want, out)
		}
		return out
	}
	up := []string{"up", "-d", "--source", env.Root(), "--apply", filepath.Join(env.Root(), "examples", "tenant.yaml")}
	t.Cleanup(func() { _, _ = stoker("down") })

	t.Run("up ends with a kubeconfig and commands that work", func(t *testing.T) {
		out := must("stoker is up", up...)
		for _, want := range []string{"intake.accepted", "workload.available", "addons.applied", "Ready", "kubeconfig of tenant default/demo: "} {
			if !strings.Contains(out, want) {
				t.Errorf("no %q in\n%s", want, out)
			}
		}
		_, rest, _ := strings.Cut(out, "try:\n")
		tried := 0
		for _, line := range strings.Split(rest, "\n") {
			if line = strings.TrimSpace(line); line == "" || !strings.HasPrefix(line, "/") && !strings.HasPrefix(line, ".") {
				continue
			}
			cmd := exec.CommandContext(t.Context(), "sh", "-c", line)
			cmd.Dir = filepath.Dir(dir)
			if out, err := cmd.CombinedOutput(); err != nil {
				t.Errorf("%s: %v\n%s", line, err, out)
			}
			tried++
		}
		if tried != 3 {
			t.Errorf("%d commands to try in\n%s", tried, out)
		}
	})
	t.Run("a second up finds the first", func(t *testing.T) { must("is up already", up...) })
	t.Run("the commands of a person", func(t *testing.T) {
		must("demo", "get")
		must("Ready", "get", "demo", "-o", "json")
		must("Ready", "why", "demo")
		must("certificate-authority-data", "kubeconfig", "demo")
		if out, err := stoker("get", "nobody"); err == nil {
			t.Errorf("get of a tenant that isn't there: %s", out)
		}
		file := filepath.Join(t.TempDir(), "bad.yaml")
		if err := os.WriteFile(file, []byte(strings.ReplaceAll(string(readFile(t, filepath.Join(env.Root(), "examples", "tenant.yaml"))), "port: 6443", "port: 99999")), 0o600); err != nil {
			t.Fatal(err)
		}
		out, err := stoker("apply", "-f", file)
		var exit *exec.ExitError
		if !errors.As(err, &exit) || exit.ExitCode() != 1 || !strings.Contains(out, "spec.networkProfile.port") || !strings.Contains(out, "99999") {
			t.Errorf("a bad port: %v %s", err, out)
		}
	})
	t.Run("a tenant sleeps, wakes, is paused and changed by its name", func(t *testing.T) {
		must("Sleeping", "sleep", "demo", "--wait")
		must("Ready: ", "wake", "demo", "--wait")
		must("Paused: ", "pause", "demo", "--for", "1h", "--wait")
		must("stoker resume demo", "why", "demo")
		must("Ready: ", "resume", "demo", "--wait")
		must("patched", "patch", "demo", "-p", "spec: {networkProfile: {certSANs: [demo.example]}}", "--wait")
		if out, err := stoker("patch", "demo", "-p", "spec: {}", "--expected-generation", "1"); err == nil || !strings.Contains(out, "Conflict") {
			t.Errorf("a patch for an earlier generation: %v %s", err, out)
		}
	})
	t.Run("a CloudEvent comes in by HTTP, with the token", func(t *testing.T) {
		url := strings.TrimSpace(string(readFile(t, filepath.Join(dir, "http", "url"))))
		req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, url, strings.NewReader("{}"))
		if err != nil {
			t.Fatal(err)
		}
		for k, v := range map[string]string{
			"Authorization": "Bearer " + strings.TrimSpace(string(readFile(t, filepath.Join(dir, "http", "token")))), "Content-Type": "application/json",
			"ce-specversion": "1.0", "ce-id": "1", "ce-source": "/test", "ce-type": "dev.stoker.tenantcontrolplane.resume.v1", "ce-subject": "default/demo",
		} {
			req.Header.Set(k, v)
		}
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		body, err := io.ReadAll(resp.Body)
		if err != nil || resp.StatusCode != http.StatusOK || !strings.Contains(string(body), `"command":"1"`) {
			t.Errorf("%s: %v %s", resp.Status, err, body)
		}
	})
	t.Run("files with keys are the owner's alone", func(t *testing.T) {
		err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
			if err != nil || d.IsDir() || !d.Type().IsRegular() {
				return nil //nolint:nilerr // etcd and NATS remove files meanwhile
			}
			info, err := d.Info()
			if err != nil {
				return nil //nolint:nilerr // likewise
			}
			data, _ := os.ReadFile(path)
			if (strings.Contains(string(data), "PRIVATE KEY") || d.Name() == "token") && info.Mode().Perm()&0o077 != 0 {
				t.Errorf("%s has mode %v", path, info.Mode())
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	})
	// who is what tells this tenant from another in its place: its object, its authority, what a user wrote, and the keys in its etcd.
	who := func(t *testing.T) map[string]string {
		t.Helper()
		kubectl := func(kubeconfig string, args ...string) string {
			t.Helper()
			return e.Kubectl(t, kubeconfig, append([]string{"get", "-o"}, args...)...)
		}
		admin, tenant := filepath.Join(dir, "kubeconfigs", "admin.kubeconfig"), filepath.Join(t.TempDir(), "demo.kubeconfig")
		if err := os.WriteFile(tenant, []byte(must("certificate-authority-data", "kubeconfig", "demo")), 0o600); err != nil {
			t.Fatal(err)
		}
		return map[string]string{
			"tenant":        kubectl(admin, "jsonpath={.metadata.uid} {.status.storage.setup}", "tcp", "demo"),
			"authority":     kubectl(admin, "jsonpath={.metadata.uid} {.data}", "secret", "demo-ca"),
			"service keys":  kubectl(admin, "jsonpath={.metadata.uid} {.data}", "secret", "demo-sa-certificate"),
			"what is in it": kubectl(tenant, "jsonpath={.metadata.uid} {.data}", "configmap", "kept"),
			"its namespace": kubectl(tenant, "jsonpath={.metadata.uid}", "namespace", "kube-system"),
		}
	}
	kubeconfig := filepath.Join(t.TempDir(), "demo.kubeconfig")
	if err := os.WriteFile(kubeconfig, []byte(must("certificate-authority-data", "kubeconfig", "demo")), 0o600); err != nil {
		t.Fatal(err)
	}
	goesOn := func(t *testing.T, before map[string]string) {
		t.Helper()
		env.Eventually(t, "the tenant's API", func() error { // its status may still be from before the stop
			out, err := e.TryKubectl(t.Context(), kubeconfig, nil, "get", "--raw", "/readyz")
			if err != nil {
				err = fmt.Errorf("%w: %s", err, out)
			}
			return err
		})
		for what, is := range who(t) {
			if is == "" || is != before[what] {
				t.Errorf("%s: %q, was %q", what, is, before[what])
			}
		}
	}
	e.Kubectl(t, kubeconfig, "create", "configmap", "kept", "--from-literal=a=b")
	before := who(t)
	t.Run("the tenant goes on after down and up", func(t *testing.T) {
		env.Long(t, "the tenant resumes after kill -9 and up, which leaves less in order than down")
		must("ended", "down")
		nothingRuns(t, dir)
		must("stoker is up", up...)
		goesOn(t, before)
	})
	t.Run("nothing is left running, even after kill -9", func(t *testing.T) {
		pid := 0
		if _, err := fmt.Sscan(string(readFile(t, filepath.Join(dir, "lock"))), &pid); err != nil || pid == 0 {
			t.Fatal(err)
		}
		if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
			t.Fatal(err)
		}
		// A process that was killed has no command line any more a moment before it gives up the lock.
		env.Eventually(t, "all processes gone", func() error { return errors.Join(running(dir), locked(dir)) })
		must("stoker is up", up...)
		goesOn(t, before)
		must("deleted", "delete", "tcp/demo", "--wait")
		must("ended", "down")
		nothingRuns(t, dir)
		must("nothing runs", "down")
	})
}

// running finds processes that have to do with a directory.
func running(dir string) error {
	procs, err := filepath.Glob("/proc/[0-9]*/cmdline")
	if err != nil {
		return err
	}
	for _, p := range procs {
		if data, err := os.ReadFile(p); err == nil && strings.Contains(string(data), dir) {
			return fmt.Errorf("%s: %s", p, strings.ReplaceAll(string(data), "\x00", " "))
		}
	}
	return nil
}

// locked says that a stack has the lock of a directory.
func locked(dir string) error {
	f, err := os.Open(filepath.Join(dir, "lock"))
	if err != nil {
		return err
	}
	defer f.Close()
	return syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB) // given up with the file
}

func nothingRuns(t *testing.T, dir string) {
	t.Helper()
	if err := running(dir); err != nil {
		t.Error(err)
	}
}
