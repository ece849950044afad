package e2e

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"

	"k8s.io/client-go/tools/clientcmd"

	"github.com/stoker-k8s/stoker/internal/testing/port"
	"github.com/stoker-k8s/stoker/pkg/pki"
	"github.com/stoker-k8s/stoker/test/env"
)

// bucket is one of an S3 server, as flags of stoker backup-location.
func bucket(t *testing.T) []string {
	t.Helper()
	images := exec.CommandContext(t.Context(), "go", "run", "-trimpath", "./local/cmd/images", "versitygw")
	images.Dir, images.Stderr = env.Root(), os.Stderr
	program, err := images.Output()
	must(t, err)
	address := port.Address(t, "127.0.0.1")
	dir := t.TempDir()
	authority, err := pki.OpenAuthority(dir, "ca")
	must(t, err)
	server, err := authority.Issue(pki.Leaf{File: "server", Name: "s3", Hosts: []string{"127.0.0.1"}})
	must(t, err)
	secret := filepath.Join(dir, "s3.key")
	must(t, errors.Join(
		os.WriteFile(secret, []byte("s3-secret\n"), 0o600),
		os.MkdirAll(filepath.Join(dir, "buckets", "backups"), 0o700), os.Mkdir(filepath.Join(dir, "known"), 0o700),
	))
	s3 := exec.Command(filepath.Join(strings.TrimSpace(string(program)), "versitygw"), "--port", address, "--cert", server.CertFile,
		"--key", server.KeyFile, "--sidecar", filepath.Join(dir, "known"), filepath.Join(dir, "buckets"))
	s3.Env = append(os.Environ(), "ROOT_ACCESS_KEY=stoker", "ROOT_SECRET_KEY=s3-secret")
	s3.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	must(t, s3.Start())
	t.Cleanup(func() { _ = s3.Process.Kill(); _ = s3.Wait() })
	return []string{
		"--url", "s3://backups/eu-1?endpoint=https://" + address + "&region=us-east-1&path-style=true",
		"--access-key-id", "stoker", "--secret-access-key", secret, "--ca", authority.CertFile,
	}
}

// TestTheManagementClusterIsLost goes the way of docs/backup.md: of a management cluster with its databases nothing is left but the backups and
// what opens them.
func TestTheManagementClusterIsLost(t *testing.T) {
	env.Long(t, "TestBackup restores a tenant from a backup; this test restores each tenant of a management cluster in another one")
	place := t.TempDir()
	identity, offsite := filepath.Join(place, "backups.key"), bucket(t)
	stoker := func(args ...string) string {
		t.Helper()
		cmd := exec.CommandContext(context.WithoutCancel(t.Context()), e.StokerBin(), args...)
		cmd.Dir = place
		out, err := cmd.CombinedOutput()
		if err != nil {
			t.Fatalf("stoker %s: %v\n%s", strings.Join(args, " "), err, out)
		}
		return string(out)
	}
	t.Cleanup(func() { stoker("down") })
	up := []string{"up", "-d", "--source", env.Root()}

	stoker(append(up, "--apply", filepath.Join(env.Root(), "examples", "tenant.yaml"))...)
	before := filepath.Join(place, "demo.kubeconfig")
	must(t, os.WriteFile(before, []byte(stoker("kubeconfig", "demo")), 0o600))
	e.Kubectl(t, before, "create", "configmap", "kept", "--from-literal=a=b")
	who := func(args ...string) string {
		t.Helper()
		return e.Kubectl(t, before, append(args, "get", "configmap", "kept", "-o", "jsonpath={.metadata.uid} {.data}")...)
	}
	was := who()
	stoker(append([]string{"backup-location", "offsite", "--new-identity", identity}, offsite...)...)
	stoker("backup", "demo", "--to", "offsite", "--wait")

	stoker("down")
	must(t, os.RemoveAll(filepath.Join(place, ".stoker")))
	stoker(up...)
	recipient := regexp.MustCompile(`age1[0-9a-z]+`).FindString(string(readFile(t, identity)))
	stoker(append([]string{"backup-location", "offsite", "--recipient", recipient}, offsite...)...)
	all := strings.Fields(stoker("backups", "--location", "offsite", "-o", "name"))
	if len(all) != 1 || !strings.HasPrefix(all[0], "offsite/default/demo/") {
		t.Fatalf("backups %q", all)
	}
	stoker("restore", all[0], "--identity", identity, "--wait")

	// The endpoint leads to the new cluster, which has another address here; what the kubeconfig of before trusts, and is trusted by, is the same.
	now, err := clientcmd.Load([]byte(stoker("kubeconfig", "demo")))
	must(t, err)
	server := now.Clusters[now.Contexts[now.CurrentContext].Cluster].Server
	if is := who("--server", server); is == "" || is != was {
		t.Errorf("the tenant has %q, and had %q", is, was)
	}
	stoker("backup", "demo", "--wait") // the location is its own still
}
