package manifest

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

const two = `# a tenant and its DataStore
---
apiVersion: kamaji.clastix.io/v1alpha1
kind: TenantControlPlane
metadata: {name: demo}
spec: {b: 1, a: 2}
---
{"apiVersion":"kamaji.clastix.io/v1alpha1","kind":"DataStore","metadata":{"name":"etcd","namespace":"stray"}}
`

func TestRead(t *testing.T) {
	t.Parallel()
	t.Run("several documents, YAML and JSON, and namespaces where they belong", func(t *testing.T) {
		t.Parallel()
		objects, err := Read([]string{"-"}, strings.NewReader(two), "team")
		if err != nil {
			t.Fatal(err)
		}
		if len(objects) != 2 || objects[0].Key.String() != "team/demo" || objects[1].Key.String() != "etcd" {
			t.Fatalf("%+v", objects)
		}
		if got := string(objects[0].Data); !strings.Contains(got, `"metadata":{"name":"demo","namespace":"team"}`) {
			t.Error(got)
		}
		if got := string(objects[1].Data); strings.Contains(got, "stray") {
			t.Error(got)
		}
	})
	t.Run("the files of a directory, in order, and a List", func(t *testing.T) {
		t.Parallel()
		dir := t.TempDir()
		for file, content := range map[string]string{
			"b.yaml": "apiVersion: kamaji.clastix.io/v1alpha1\nkind: DataStore\nmetadata: {name: b}\n",
			"a.json": `{"apiVersion":"v1","kind":"List","items":[{"apiVersion":"kamaji.clastix.io/v1alpha1","kind":"DataStore","metadata":{"name":"a"}}]}`,
			"README": "not a manifest",
		} {
			if err := os.WriteFile(filepath.Join(dir, file), []byte(content), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		objects, err := Read([]string{dir}, nil, "default")
		if err != nil {
			t.Fatal(err)
		}
		if len(objects) != 2 || objects[0].Key.Name != "a" || objects[1].Key.Name != "b" {
			t.Errorf("%+v", objects)
		}
	})
}

func TestNamed(t *testing.T) {
	t.Parallel()
	for arg, want := range map[string]string{
		"demo": "tenantcontrolplane/demo", "tcp/demo": "tenantcontrolplane/demo", "TenantControlPlane/demo": "tenantcontrolplane/demo",
		"datastore/etcd": "datastore/etcd", "ds/main.eu": "datastore/main.eu", "kc/ops": "kubeconfiggenerator/ops",
	} {
		if o, err := Named(arg, "default"); err != nil || o.String() != want {
			t.Errorf("%s is %s, %v", arg, o, err)
		}
	}
	for _, arg := range []string{"pod/x", "tcp/", "a b", "datastore/*"} {
		if o, err := Named(arg, "default"); err == nil {
			t.Errorf("%q is taken for %s", arg, o)
		}
	}
}
