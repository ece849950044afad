package main

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestSurvivors mutates a file of a module of its own: what its test notices is killed, what it doesn't is printed, and what is
// explained is neither.
func TestSurvivors(t *testing.T) {
	t.Setenv("GOWORK", "off")
	root := t.TempDir()
	for name, text := range map[string]string{
		"go.mod": "module example.com/a\n\ngo 1.26\n",
		"a/a.go": `package a

import "errors"

// Fits reports whether n fits.
func Fits(n, most int) (bool, error) {
	if n < 0 {
		return false, errors.New("negative")
	}
	return n <= most && most != 7, nil
}

func unused() bool { return true }
`,
		"a/a_test.go": `package a

import "testing"

func TestFits(t *testing.T) {
	if _, err := Fits(-1, 1); err == nil {
		t.Error("negative")
	}
	for n, want := range map[int]bool{0: true, 2: true, 3: false} {
		if got, err := Fits(n, 2); got != want || err != nil {
			t.Error(n, got, err)
		}
	}
}
`,
		"b/b_test.go": `package b

import (
	"testing"

	"example.com/a/a"
)

func TestSeven(t *testing.T) {
	if fits, _ := a.Fits(7, 7); fits {
		t.Error(7)
	}
}
`,
		"test/mutation/explained.yaml": `[{file: a/a.go, in: Fits, change: "most != 7 → most == 7", why: "it is killed, and explained all the same"}]`,
	} {
		to := filepath.Join(root, name)
		if err := os.MkdirAll(filepath.Dir(to), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(to, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	var out bytes.Buffer
	r := runner{root: root, tests: ".", atOnce: 2, out: &out}
	survived, err := r.run(t.Context(), []string{"a/a.go"})
	if err != nil {
		t.Fatal(err)
	}
	if !survived {
		t.Error("nothing survived")
	}
	for _, want := range []string{
		"survived 1 tests: a/a.go:10: Fits: n <= most && most != 7 → n <= most\n",
		"survived 1 tests: a/a.go:8: Fits: false → true\n",
		"no test reaches a/a.go:13: unused: true → false\n",
	} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("not said: %s", want)
		}
	}
	if fields := strings.Fields(out.String()[strings.LastIndex(out.String(), "a/a.go"):]); strings.Join(fields, " ") != "a/a.go 11 7 1 3" {
		t.Errorf("counted %v in\n%s", fields, &out)
	}
	out.Reset()
	r.by = "b" // tests of another package, which reach what is exported
	if _, err := r.run(t.Context(), []string{"a/a.go"}); err != nil {
		t.Fatal(err)
	}
	if fields := strings.Fields(out.String()[strings.LastIndex(out.String(), "a/a.go"):]); strings.Join(fields, " ") != "a/a.go 11 2 1 8" {
		t.Errorf("of another package's tests, counted %v in\n%s", fields, &out)
	}
	r.by = ""
	if err := os.WriteFile(filepath.Join(root, "test/mutation/explained.yaml"), []byte(`[{file: a/a.go, in: Fits, change: "x → y", why: long gone}]`), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := r.run(t.Context(), []string{"a/a.go"}); err == nil || !strings.Contains(err.Error(), "x → y") {
		t.Errorf("an explanation of nothing is accepted: %v", err)
	}
}
