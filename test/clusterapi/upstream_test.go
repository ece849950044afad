package clusterapi

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	"sigs.k8s.io/yaml"

	"github.com/stoker-k8s/stoker/local/images"
	"github.com/stoker-k8s/stoker/test/env"
)

// components are the objects of a provider that Cluster API publishes, as its own kustomization makes them, but for what asks somebody's
// webhook: nobody answers here. overlay is the kustomization's directory among the manifests of the image.
func components(t testing.TB, image, overlay string) (all []map[string]any) {
	t.Helper()
	built := e.Kubectl(t, e.Local.Kubeconfig("admin"), "kustomize", filepath.Join(env.Built(t, image), images.Manifests, overlay))
	for _, document := range strings.Split(built, "\n---\n") {
		o := map[string]any{}
		must(t, yaml.Unmarshal([]byte(document), &o))
		switch o["kind"] {
		case "MutatingWebhookConfiguration", "ValidatingWebhookConfiguration":
			continue
		case "CustomResourceDefinition":
			delete(o["spec"].(map[string]any), "conversion")
		}
		all = append(all, o)
	}
	return all
}

// writeObjects writes a manifest.
func writeObjects(t testing.TB, path string, all []map[string]any) {
	t.Helper()
	var text strings.Builder
	for _, o := range all {
		document, err := yaml.Marshal(o)
		must(t, err)
		text.WriteString("---\n" + string(document))
	}
	must(t, os.MkdirAll(filepath.Dir(path), 0o700))
	writeFile(t, path, []byte(text.String()))
}

// as is the kubeconfig of a service account.
func as(t testing.TB, namespace, account string) (file string) {
	t.Helper()
	admin := e.Local.Kubeconfig("admin")
	cfg, err := clientcmd.LoadFromFile(admin)
	must(t, err)
	token := strings.TrimSpace(e.Kubectl(t, admin, "create", "token", account, "-n", namespace, "--duration=2h"))
	cfg.AuthInfos[cfg.Contexts[cfg.CurrentContext].AuthInfo] = &clientcmdapi.AuthInfo{Token: token}
	file = filepath.Join(t.TempDir(), account)
	must(t, clientcmd.WriteToFile(*cfg, file))
	return file
}
