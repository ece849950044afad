package env

import (
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"testing"

	"github.com/stoker-k8s/stoker/internal/testing/port"
	"github.com/stoker-k8s/stoker/local"
	"github.com/stoker-k8s/stoker/local/images"
	"github.com/stoker-k8s/stoker/local/progress"
	"github.com/stoker-k8s/stoker/pkg/pki"
)

// Built is the directory of an image's programs and manifests, built if need be.
func Built(t testing.TB, image string) string {
	t.Helper()
	store, err := images.Open(Root())
	if err != nil {
		t.Fatal(err)
	}
	dir, err := store.Build(t.Context(), image, progress.Lines(os.Stderr, false, func() string { return "   " }))
	if err != nil {
		t.Fatal(err)
	}
	return dir
}

// Manifests applies the manifests of directories to the management cluster.
func (e *Env) Manifests(t testing.TB, dirs ...string) {
	t.Helper()
	if err := local.ApplyManifests(t.Context(), e.Local.AdminConfig(), dirs...); err != nil {
		t.Fatal(err)
	}
}

// ClusterAPI starts Cluster API's core controllers, with ClusterClasses, and defines its kinds and those of Stoker's control plane provider.
func (e *Env) ClusterAPI(t testing.TB) *Process {
	t.Helper()
	return e.core(t, images.ClusterAPI, "core")
}

// ClusterAPIBefore is [Env.ClusterAPI] with Cluster API's minor before.
func (e *Env) ClusterAPIBefore(t testing.TB) *Process {
	t.Helper()
	return e.core(t, images.ClusterAPIBefore, "")
}

// core starts the core controllers of an image, whose manifests are in a directory among those of the image.
func (e *Env) core(t testing.TB, image, manifests string) *Process {
	t.Helper()
	dir := Built(t, image)
	e.Manifests(t, filepath.Join(Root(), "deployments", "cluster-api", "crds"), filepath.Join(dir, images.Manifests, manifests, "config", "crd", "bases"))
	return e.Core(t, image, e.Local.Kubeconfig("admin"))
}

// Core starts the core controllers of an image, whose kinds are defined.
func (e *Env) Core(t testing.TB, image, kubeconfig string) *Process {
	t.Helper()
	return e.Controller(t, filepath.Join(Built(t, image), "cluster-api-core"), kubeconfig, append(WebhookFlags(t), "--feature-gates=ClusterTopology=true",
		"--skip-crd-migration-phases=StorageVersionMigration,CleanupManagedFields")...)
}

// Controller starts a controller of Cluster API or of a provider for it.
func (e *Env) Controller(t testing.TB, program, kubeconfig string, flags ...string) *Process {
	t.Helper()
	cmd := exec.Command(program, append(flags, "--diagnostics-address=127.0.0.1:0", "--insecure-diagnostics")...)
	cmd.Env = append(os.Environ(), "KUBECONFIG="+kubeconfig)
	return e.Program(t, filepath.Base(program), cmd)
}

// WebhookFlags are the flags of Cluster API's own controllers for webhooks that nobody calls, and for their health.
func WebhookFlags(t testing.TB) []string {
	t.Helper()
	dir := t.TempDir()
	authority, err := pki.OpenAuthority(dir, "ca")
	if err == nil {
		_, err = authority.Issue(pki.Leaf{File: "tls", Name: "webhooks", Hosts: []string{"localhost"}})
	}
	if err != nil {
		t.Fatal(err)
	}
	return []string{"--webhook-cert-dir=" + dir, "--webhook-port=" + strconv.Itoa(port.Free(t)), "--health-addr=127.0.0.1:0"}
}
