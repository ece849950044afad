package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestLettingDown(t *testing.T) {
	file := schemaFile("certs.issued.v1")
	was := map[string][]byte{file: []byte(`{"properties":{"a":{}}}`)}
	for sentence, test := range map[string]struct {
		is   map[string][]byte
		want string
	}{
		"a type that stays lets nobody down":    {was, ""},
		"a new type lets nobody down":           {map[string][]byte{file: was[file], schemaFile("certs.issued.v2"): []byte(`{}`)}, ""},
		"a type that is gone does":              {map[string][]byte{}, "certs.issued.v1: was published and is gone"},
		"a change is told with type and field":  {map[string][]byte{file: []byte(`{}`)}, "certs.issued.v1: a: was removed"},
		"what is no JSON is told with its type": {map[string][]byte{file: []byte(`{`)}, "certs.issued.v1: unexpected end"},
	} {
		got := strings.Join(letDown(was, test.is), "\n")
		if !strings.HasPrefix(got, test.want) || (test.want == "") != (got == "") {
			t.Errorf("%s: %q", sentence, got)
		}
	}
}

func TestCompatibleSchemas(t *testing.T) {
	// A copy of what the schemas are made of, with few schemas.
	dir := t.TempDir()
	for _, d := range []string{"pkg/api/event", "pkg/api/state", "deployments/crds"} {
		if err := os.CopyFS(filepath.Join(dir, d), os.DirFS(filepath.Join(root, d))); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.RemoveAll(filepath.Join(dir, schemaDir)); err != nil {
		t.Fatal(err)
	}
	lay := func(short, schema string) {
		t.Helper()
		file := filepath.Join(dir, schemaDir, short+".json")
		if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, []byte(schema), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	t.Run("a compatible change is taken", func(t *testing.T) {
		lay("intake.due.v1", `{"type":"object","properties":{"name":{"type":"string"}},"required":["name"]}`)
		files, err := compatibleSchemas(dir)
		if err != nil {
			t.Fatal(err)
		}
		if file := schemaFile("intake.due.v1"); len(files[file]) < 100 {
			t.Errorf("the new schema is %s", files[file])
		}
	})
	t.Run("an incompatible one is not", func(t *testing.T) {
		lay("intake.due.v1", `{"properties":{"gone":{}}}`)
		if files, err := compatibleSchemas(dir); err == nil || !strings.Contains(err.Error(), "intake.due.v1: gone: was removed") || files != nil {
			t.Errorf("%v", err)
		}
	})
	t.Run("nor is a narrower command", func(t *testing.T) {
		lay("intake.due.v1", `{}`)
		lay("tenantcontrolplane.wake.v1", `{"type":"object"}`)
		if _, err := compatibleSchemas(dir); err == nil || !strings.Contains(err.Error(), "tenantcontrolplane.wake.v1: the whole: other fields") {
			t.Errorf("%v", err)
		}
	})
}
