package main

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// The glossary is in order, and the files it names are there.
func TestGlossary(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile(filepath.Join(root, "docs/glossary.md"))
	if err != nil {
		t.Fatal(err)
	}
	_, table, _ := strings.Cut(string(page), "|---|---|---|\n")
	var words []string
	paths := regexp.MustCompile("`((?:pkg|services|cmd|deployments)/[^`]+)`")
	for line := range strings.Lines(table) {
		cells := strings.Split(line, "|")
		if len(cells) != 5 {
			t.Fatalf("no row of three cells: %s", line)
		}
		words = append(words, strings.ToLower(strings.TrimSpace(cells[1])))
		for _, path := range paths.FindAllStringSubmatch(cells[3], -1) {
			if _, err := os.Stat(filepath.Join(root, path[1])); err != nil {
				t.Errorf("%s: %v", words[len(words)-1], err)
			}
		}
	}
	if len(words) < 50 || !slices.IsSorted(words) {
		t.Errorf("not in order: %q", words)
	}
	if unique := slices.Compact(slices.Clone(words)); len(unique) != len(words) {
		t.Error("a word is there twice")
	}
}
