package main

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// TestWhatTheRaceDetectorLeavesOutIsRun finds what is built without the race detector only, and looks for it in the
// Makefile. All of test is run without it.
func TestWhatTheRaceDetectorLeavesOutIsRun(t *testing.T) {
	const root = "../.."
	makefile, err := os.ReadFile(filepath.Join(root, "Makefile"))
	if err != nil {
		t.Fatal(err)
	}
	groups := regexp.MustCompile(`(?s)\nTEST = .*?-- test -- \$\(GO_TEST\) -- (.*?) -- \$\(GO_TEST\) -run `).FindSubmatch(makefile)
	flags := regexp.MustCompile(`(?m)^GO_TEST = .*$`).Find(makefile)
	if groups == nil || flags == nil || strings.Contains(strings.ToLower(string(flags)), "race") {
		t.Fatal("the Makefile's TEST no longer ends with test, and what is run once more, both without the race detector")
	}
	listed := strings.Fields(string(groups[1]))
	var found []string
	err = filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() && (strings.HasPrefix(d.Name(), ".") && len(d.Name()) > 2 || d.Name() == "node_modules" || d.Name() == "bin") {
			return filepath.SkipDir
		}
		if !strings.HasSuffix(path, "_test.go") {
			return nil
		}
		text, err := os.ReadFile(path)
		if strings.HasPrefix(string(text), "//go:build !race\n") {
			dir, _ := filepath.Rel(root, filepath.Dir(path))
			if !strings.HasPrefix(dir, "test/") {
				found = append(found, dir)
			}
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	slices.Sort(found)
	if len(found) == 0 || !slices.Equal(found, slices.Sorted(slices.Values(listed))) {
		t.Errorf("built without the race detector only: %v; run without it: %v", found, listed)
	}
}
