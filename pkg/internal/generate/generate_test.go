package main

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"
)

func TestGeneratedFilesAreFresh(t *testing.T) {
	files, err := generate("../../..")
	if err != nil {
		t.Fatal(err)
	}
	for path, want := range files {
		got, err := os.ReadFile(filepath.Join("../../..", path))
		if err != nil || !bytes.Equal(got, want) {
			t.Errorf("%s is stale: run `make generate` (%v)", path, err)
		}
	}
}
