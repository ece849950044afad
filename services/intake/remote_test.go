package intake

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/stoker-k8s/stoker/pkg/api/name"
)

func TestRemoteThatCanNotBe(t *testing.T) {
	for want, r := range map[string]Remote{
		`--remote-namespaces "yes"`:                   {Namespaces: "yes"},
		`--remote-grace "1"`:                          {Grace: "1"},
		`--remote-grace "-1s"`:                        {Grace: "-1s"},
		`"delete" is neither create nor watch`:        {SecretRights: "create, delete"},
		`"TenantControlPlane" is no Kind.version`:     {Kinds: "TenantControlPlane"},
		`"a.b" is no Kind.version.group, as Tenant`:   {Kinds: "TenantControlPlane.v1alpha1.kamaji.clastix.io,a.b"},
		`--remote-kubeconfig can't be used with --na`: {Source: "with a namespace"},
	} {
		namespace := ""
		if r.Source != "" {
			namespace = "a"
		}
		if _, _, err := r.config(namespace); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("want %q, got %v", want, err)
		}
	}
	cfg, kinds, err := (&Remote{Kinds: "TenantControlPlane.v1alpha1.kamaji.clastix.io", Grace: "5m", Namespaces: "true"}).config("")
	if err != nil || cfg.Grace != 5*time.Minute || !cfg.Namespaces || len(kinds) != 1 || kinds[0].Kind != "TenantControlPlane" || kinds[0].Version != "v1alpha1" {
		t.Errorf("%v, %v, %v", cfg, kinds, err)
	}
}

func TestWithoutRecords(t *testing.T) {
	o := &unstructured.Unstructured{Object: map[string]any{}}
	o.SetAnnotations(map[string]string{name.AnnotationDataStore: "a", "note": "b"})
	o.SetLabels(map[string]string{name.LabelDataStore: "a"})
	withoutRecords(o)
	if len(o.GetAnnotations()) != 1 || len(o.GetLabels()) != 0 {
		t.Errorf("left: %v", o.Object)
	}
	withoutRecords(&unstructured.Unstructured{Object: map[string]any{}})
}

func TestWatchedFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "file")
	write := func(text string) {
		t.Helper()
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write("a")
	f := &watchedFile{path: path}
	if data, err := f.read(); err != nil || string(data) != "a" || f.changed() {
		t.Errorf("%q, %v", data, err)
	}
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	if f.changed() {
		t.Error("a file that is being replaced isn't another one yet")
	}
	write("longer")
	if !f.changed() {
		t.Error("it has changed")
	}
}
