package main

import (
	"os"
	"path/filepath"
	"testing"
)

func TestWhatTheRaceDetectorIsFor(t *testing.T) {
	for code, want := range map[string]bool{
		"func f() { go f() }":                        true,
		"type t struct{ c chan int }":                true,
		"import \"sync\"\nvar m sync.Mutex":          true,
		"import \"sync/atomic\"\nvar n atomic.Int64": true,
		"func f() int { return 1 }":                  false,
	} {
		dir := t.TempDir()
		if err := os.WriteFile(filepath.Join(dir, "x.go"), []byte("package x\n"+code), 0o600); err != nil {
			t.Fatal(err)
		}
		if have, err := (pkg{Dir: dir, GoFiles: []string{"x.go"}}).concurrent(); err != nil || have != want {
			t.Errorf("%q is concurrent: %t, %v", code, have, err)
		}
	}
}

func TestFilesOfAPackage(t *testing.T) {
	for _, c := range []struct {
		file, pkg string
		want      bool
	}{
		{"pkg/loop/lease.go", "pkg/loop", true},
		{"pkg/loop/testdata/x.yaml", "pkg/loop", true},
		{"pkg/loop/testdata/x/y.go", "pkg/loop", true},
		{"services/datastore/driver/nats/nats.go", "services/datastore", false},
		{"pkg/loop.go", "pkg/loop", false},
		{"pkg/looped/x.go", "pkg/loop", false},
	} {
		if have := belongs(c.file, c.pkg); have != c.want {
			t.Errorf("%s belongs to %s: %t", c.file, c.pkg, have)
		}
	}
}
