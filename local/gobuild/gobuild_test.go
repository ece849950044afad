package gobuild

import (
	"crypto/rand"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stoker-k8s/stoker/local/progress"
)

// program is a module with one program in two packages, which no cache has.
func program(t *testing.T, body string) Build {
	t.Helper()
	dir := t.TempDir()
	for file, text := range map[string]string{
		"go.mod":       "module example.org/program\n\ngo 1.26.0\n",
		"word/word.go": "package word\n\nconst Word = \"" + t.Name() + "\" // " + rand.Text() + "\n",
		"main.go":      "package main\n\nimport \"example.org/program/word\"\n\nvar stamp string\n\nfunc main() {\n" + body + "\n}\n",
	} {
		file = filepath.Join(dir, file)
		if err := os.MkdirAll(filepath.Dir(file), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return Build{
		Name: "program", Dir: dir, Packages: []string{"."}, Output: filepath.Join(dir, "out"), LDFlags: "-X main.stamp=stamped",
		Env: append(os.Environ(), "GOWORK=off"),
	}
}

func TestMakeAndContributorsHaveTheFlags(t *testing.T) {
	for _, file := range []string{"Makefile", "CONTRIBUTING.md"} {
		text, err := os.ReadFile(filepath.Join("..", "..", file))
		if err != nil {
			t.Fatal(err)
		}
		if want := strings.Join(Flags, " "); !strings.Contains(string(text), want) {
			t.Errorf("%s lacks %q: packages would be compiled twice", file, want)
		}
	}
}

func TestRun(t *testing.T) {
	t.Run("it builds, stamps, and says when it begins and ends", func(t *testing.T) {
		b := program(t, "print(word.Word, stamp)")
		var lines []string
		err := b.Run(t.Context(), func(line string, passing bool) {
			if !passing {
				lines = append(lines, line)
			}
		})
		if err != nil {
			t.Fatal(err)
		}
		if !slices.Equal(lines[:1], []string{"program: building"}) || len(lines) != 2 || !strings.HasPrefix(lines[1], "program: built in ") {
			t.Errorf("it says %q", lines)
		}
		if out, err := exec.Command(b.Output).CombinedOutput(); err != nil || string(out) != t.Name()+"stamped" {
			t.Errorf("%q, %v", out, err)
		}
	})
	t.Run("what is compiled once isn't counted again", func(t *testing.T) {
		b := program(t, "print(word.Word, stamp)")
		before, err := b.stale(t.Context(), newOutput(time.Now()))
		if err != nil {
			t.Fatal(err)
		}
		if err := b.Run(t.Context(), progress.None); err != nil {
			t.Fatal(err)
		}
		after, err := b.stale(t.Context(), newOutput(time.Now()))
		if err != nil {
			t.Fatal(err)
		}
		if before != 2 || after > 1 { // the program itself is linked anew
			t.Errorf("to compile before: %d, after: %d", before, after)
		}
	})
	t.Run("what doesn't compile says why", func(t *testing.T) {
		if err := program(t, "print(word.Word, nonsense)").Run(t.Context(), progress.None); err == nil || !strings.Contains(err.Error(), "nonsense") {
			t.Errorf("got %v", err)
		}
	})
}
