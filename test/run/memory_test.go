package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestTestsHaveTheirFilesInMemory(t *testing.T) {
	dir := os.Getenv("TMPDIR")
	if !strings.HasPrefix(dir, filepath.Join(shm, prefix)) {
		t.Skipf("TMPDIR is %q: this isn't a test of make test, or memory had no room", dir)
	}
	if has := t.TempDir(); !strings.HasPrefix(has, dir+"/") {
		t.Errorf("t.TempDir is %s", has)
	}
}
