// Package clusterapi tries Stoker behind Cluster API: its core controllers as they are published, on a real management cluster, with control
// plane providers in front of all of Stoker's services.
package clusterapi

import (
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/stoker-k8s/stoker/deployments/local"
	"github.com/stoker-k8s/stoker/deployments/local/images"
	"github.com/stoker-k8s/stoker/deployments/local/pki"
	"github.com/stoker-k8s/stoker/deployments/local/progress"
	"github.com/stoker-k8s/stoker/test/env"
)

var e *env.Env

func TestMain(m *testing.M) { env.Main(m, func(started *env.Env) { e = started }) }

// built is the directory of an image's programs and manifests.
func built(t testing.TB, image string) string {
	t.Helper()
	store, err := images.Open(env.Root())
	if err != nil {
		t.Fatal(err)
	}
	dir, err := store.Build(t.Context(), image, progress.Lines(os.Stderr, false, func() string { return "   " }))
	if err != nil {
		t.Fatal(err)
	}
	return dir
}

// apply applies the manifests of directories.
func apply(t testing.TB, dirs ...string) {
	t.Helper()
	if err := local.ApplyManifests(t.Context(), e.Local.AdminConfig(), dirs...); err != nil {
		t.Fatal(err)
	}
}

// core starts Cluster API's core controllers, with ClusterClasses, and defines its kinds and those of infrastructure that tests have.
func core(t testing.TB) *env.Process {
	t.Helper()
	dir := built(t, images.ClusterAPI)
	apply(t, filepath.Join(dir, images.Manifests, "core", "config", "crd", "bases"), filepath.Join("testdata", "infrastructure"))
	return program(t, filepath.Join(dir, "cluster-api-core"), e.Local.Kubeconfig("admin"), "--feature-gates=ClusterTopology=true",
		"--skip-crd-migration-phases=StorageVersionMigration,CleanupManagedFields", "--webhook-cert-dir="+webhookCertificate(t),
		"--webhook-port="+freePort(t), "--health-addr=127.0.0.1:0")
}

// kamajisProvider starts Kamaji's provider; what it sends to the API server is recorded.
func kamajisProvider(t testing.TB) (*env.Process, *env.Tap) {
	t.Helper()
	dir := built(t, images.KamajiProvider)
	tap, kubeconfig := env.APITap(t, e.Local.Kubeconfig("admin"))
	return program(t, filepath.Join(dir, "kamaji-provider"), kubeconfig, "--health-probe-bind-address=0"), tap
}

// program starts a controller of Cluster API or of a provider.
func program(t testing.TB, path, kubeconfig string, flags ...string) *env.Process {
	t.Helper()
	cmd := exec.Command(path, append(flags, "--diagnostics-address=127.0.0.1:0", "--insecure-diagnostics")...)
	cmd.Env = append(os.Environ(), "KUBECONFIG="+kubeconfig)
	return e.Program(t, filepath.Base(path), cmd)
}

// webhookCertificate is a directory with a certificate for a server that nobody calls.
func webhookCertificate(t testing.TB) string {
	t.Helper()
	dir := t.TempDir()
	authority, err := pki.OpenAuthority(dir, "ca")
	if err == nil {
		_, err = authority.Issue(pki.Leaf{File: "tls", Name: "webhooks", Hosts: []string{"localhost"}})
	}
	if err != nil {
		t.Fatal(err)
	}
	return dir
}

func freePort(t testing.TB) string {
	t.Helper()
	address, err := env.FreeAddress("127.0.0.1")
	if err != nil {
		t.Fatal(err)
	}
	_, port, _ := net.SplitHostPort(address)
	return port
}
