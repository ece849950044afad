package e2e

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"k8s.io/client-go/tools/clientcmd"

	"github.com/stoker-k8s/stoker/test/env"
)

// TestTheManagementClusterIsLost goes the way of docs/backup.md: of a management cluster with its databases nothing is left but the backups and
// what opens them.
func TestTheManagementClusterIsLost(t *testing.T) {
	env.Long(t)
	place := t.TempDir()
	kept, identity := filepath.Join(place, "offsite"), filepath.Join(place, "backups.key")
	must(t, os.Mkdir(kept, 0o700))
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
	stoker("backup-location", "offsite", "--url", "file://"+kept, "--new-identity", identity)
	stoker("backup", "demo", "--to", "offsite", "--wait")

	stoker("down")
	must(t, os.RemoveAll(filepath.Join(place, ".stoker")))
	stoker(up...)
	recipient := regexp.MustCompile(`age1[0-9a-z]+`).FindString(string(readFile(t, identity)))
	stoker("backup-location", "offsite", "--url", "file://"+kept, "--recipient", recipient)
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
