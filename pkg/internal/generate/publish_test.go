package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// CI refuses a change of a published schema that lets down who relies on it, and one that was not published.
func TestPublishedSchemas(t *testing.T) {
	current, err := schemas(root)
	if err != nil {
		t.Fatal(err)
	}
	published, err := readPublished(root)
	if err != nil {
		t.Fatal(err)
	}
	if problems := letDown(published, current); len(problems) > 0 {
		t.Fatalf("incompatible with what was published; leave the type as it is and make a new one (….v2). If no release has carried it yet, "+
			"remove its file from %s and run `make publish`:\n%s", publishedDir, strings.Join(problems, "\n"))
	}
	if differ := unpublished(published, current); len(differ) > 0 {
		t.Errorf("not as published, but compatible; if that is meant, run `make publish`: %s", strings.Join(differ, ", "))
	}
}

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

func TestPublishing(t *testing.T) {
	// A copy of what publish reads, with little published.
	dir := t.TempDir()
	for _, d := range []string{"pkg/api/event", "pkg/api/state", "deployments/crds"} {
		if err := os.CopyFS(filepath.Join(dir, d), os.DirFS(filepath.Join(root, d))); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.RemoveAll(filepath.Join(dir, publishedDir)); err != nil {
		t.Fatal(err)
	}
	lay := func(short, schema string) {
		t.Helper()
		file := filepath.Join(dir, publishedDir, short+".json")
		if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, []byte(schema), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	t.Run("a compatible change is taken", func(t *testing.T) {
		lay("intake.due.v1", `{"type":"object","properties":{"name":{"type":"string"}},"required":["name"]}`)
		files, err := publish(dir)
		if err != nil {
			t.Fatal(err)
		}
		if err := write(dir, files); err != nil {
			t.Fatal(err)
		}
		current, err := schemas(dir)
		if err != nil {
			t.Fatal(err)
		}
		published, err := readPublished(dir)
		if err != nil {
			t.Fatal(err)
		}
		if differ := unpublished(published, current); len(differ) > 0 {
			t.Errorf("still not as published: %v", differ)
		}
	})
	t.Run("an incompatible one is not", func(t *testing.T) {
		lay("intake.due.v1", `{"properties":{"gone":{}}}`)
		if files, err := publish(dir); err == nil || !strings.Contains(err.Error(), "intake.due.v1: gone: was removed") || files != nil {
			t.Errorf("%v", err)
		}
	})
	t.Run("nor is a narrower command", func(t *testing.T) {
		lay("intake.due.v1", `{}`)
		lay("tenantcontrolplane.wake.v1", `{"type":"object"}`)
		if _, err := publish(dir); err == nil || !strings.Contains(err.Error(), "tenantcontrolplane.wake.v1: the whole: other fields") {
			t.Errorf("%v", err)
		}
	})
}
