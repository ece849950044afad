package main

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"
)

const root = "../../.."

func TestGeneratedFilesAreFresh(t *testing.T) {
	files, err := generate(root)
	if err != nil {
		t.Fatal(err)
	}
	for path, want := range files {
		got, err := os.ReadFile(filepath.Join(root, path))
		if err != nil || !bytes.Equal(got, want) {
			t.Errorf("%s is stale: run `make generate` (%v)", path, err)
		}
	}
	there, err := filepath.Glob(filepath.Join(root, schemaDir, "*.json"))
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range there {
		if files[schemaDir+"/"+filepath.Base(file)] == nil {
			t.Errorf("%s is of no type in the catalogue: remove it", file)
		}
	}
}
