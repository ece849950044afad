package main

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"
)

func TestGeneratedFileIsFresh(t *testing.T) {
	want, err := generate("../..")
	if err != nil {
		t.Fatal(err)
	}
	got, err := os.ReadFile(filepath.Join("../..", output))
	if err != nil || !bytes.Equal(got, want) {
		t.Errorf("%s is stale: run `make generate` (%v)", output, err)
	}
}
