package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestTestsHaveTheirFilesInMemory(t *testing.T) {
	if os.Getenv(builtVariable) == "" {
		t.Skip("test/run, which chooses the directory, did not start this test")
	}
	dir, has := os.Getenv("TMPDIR"), t.TempDir()
	if os.Getenv(diskVariable) == "" && !strings.HasPrefix(dir, filepath.Join(shm, prefix)) {
		t.Errorf("TMPDIR is %q, and test/run did not say that memory has no room", dir)
	}
	if !strings.HasPrefix(has, dir+"/") {
		t.Errorf("t.TempDir is %s, and TMPDIR %s", has, dir)
	}
}
