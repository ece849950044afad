package helm

import (
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"

	"github.com/stoker-k8s/stoker/test/env"
)

// What clusterctl installs of capi is what the chart does: in a Deployment instead of a StatefulSet, in a container called manager.
func TestWhatClusterctlInstallsIsTheCharts(t *testing.T) {
	t.Parallel()
	file, err := os.ReadFile(filepath.Join(env.Root(), "deployments", "cluster-api", "provider", "manager.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	manifest := regexp.MustCompile(`\$\{[A-Z_]+:=([^}]*)\}`).ReplaceAllString(string(file), "$1") // variables have their defaults
	charts := render(t, "stoker", "--set", "clusterAPI.enabled=true,image.tag=latest")
	charts["Deployment/stoker-capi"] = charts["StatefulSet/stoker-capi"]
	for _, document := range strings.Split(manifest, "\n---\n") {
		var o map[string]any
		if err := yaml.Unmarshal([]byte(document), &o); err != nil {
			t.Fatal(err)
		}
		key := o["kind"].(string) + "/stoker-capi"
		t.Run(key, func(t *testing.T) {
			t.Parallel()
			if got, want := alike(t, o), alike(t, charts[key]); !reflect.DeepEqual(got, want) {
				t.Errorf("clusterctl installs\n%s\nthe chart\n%s", text(t, got), text(t, want))
			}
		})
	}
}

// alike is an object without what clusterctl and the chart name differently, and without what only one of their kinds has.
func alike(t *testing.T, o map[string]any) map[string]any {
	t.Helper()
	spec := o["spec"].(map[string]any)
	delete(spec, "serviceName")
	delete(spec, "podManagementPolicy")
	if template, is := spec["template"].(map[string]any); is {
		delete(template, "metadata") // the chart labels what it is of; both are selected by the same
	}
	names := strings.NewReplacer("app.kubernetes.io/instance: stoker-capi", "app.kubernetes.io/instance: stoker", "name: manager\n", "name: capi\n")
	out := map[string]any{}
	if err := yaml.Unmarshal([]byte(names.Replace(text(t, spec))), &out); err != nil {
		t.Fatal(err)
	}
	return out
}

// Cluster API's bootstrap provider may read control planes, under the account that values say, where capi is.
func TestTheBootstrapProviderMayReadControlPlanes(t *testing.T) {
	t.Parallel()
	const binding = "ClusterRoleBinding/stoker-capi-bootstrap"
	for set, want := range map[string]string{
		"clusterAPI.enabled=true":                           "name: system:serviceaccount:capi-kubeadm-bootstrap-system:capi-kubeadm-bootstrap-manager\n",
		"clusterAPI.enabled=true,clusterAPI.bootstrap=a:b":  "name: system:serviceaccount:a:b\n",
		"clusterAPI.enabled=false,clusterAPI.bootstrap=a:b": "",
	} {
		t.Run(set, func(t *testing.T) {
			t.Parallel()
			o := render(t, "stoker", "--set", set)[binding]
			if got := text(t, o); (o != nil) != (want != "") || !strings.Contains(got, want) {
				t.Errorf("it is\n%s", got)
			}
		})
	}
}
