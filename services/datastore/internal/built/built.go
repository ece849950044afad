// Package built finds the real servers that tests run.
package built

import (
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
)

// Program returns a program of an image of the local stack (deployments/local/images), which is built when it isn't in
// the cache; its progress goes to stderr. The variable, if set, names a program to take instead.
func Program(t testing.TB, image, program, variable string) string {
	t.Helper()
	if path := os.Getenv(variable); path != "" {
		return path
	}
	if _, err := exec.LookPath("go"); err != nil {
		t.Skipf("needs %s, and there is no Go to build it with; set %s to one", program, variable)
	}
	_, file, _, _ := runtime.Caller(0)
	cmd := exec.Command("go", "run", "./cmd/images", image)
	cmd.Dir = filepath.Join(filepath.Dir(file), "..", "..", "..", "..", "deployments", "local")
	cmd.Stderr = os.Stderr
	dir, err := cmd.Output()
	if err != nil {
		t.Fatalf("build image %s: %v", image, err)
	}
	return filepath.Join(strings.TrimSpace(string(dir)), program)
}
