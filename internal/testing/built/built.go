// Package built finds the real servers that tests run, by the commands of the local stack, which services don't import.
package built

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/stoker-k8s/stoker/internal/testing/checkout"
)

// Program returns a program of an image of the local stack (local/images), which is built when it isn't in
// the cache. The variable, if set, names a program to take instead.
func Program(t testing.TB, image, program, variable string) string {
	t.Helper()
	if path := os.Getenv(variable); path != "" {
		return path
	}
	found.Lock()
	defer found.Unlock()
	if found.dirs[image] == "" {
		found.dirs[image] = strings.TrimSpace(string(Run(t, variable, "./cmd/images", image)))
	}
	return filepath.Join(found.dirs[image], program)
}

// found are the directories of the images that were asked for.
var found = struct {
	sync.Mutex
	dirs map[string]string
}{dirs: map[string]string{}}

// Run returns what a command of the local stack prints; its progress goes to stderr. variable is what spares it.
func Run(t testing.TB, variable, command string, args ...string) []byte {
	t.Helper()
	if _, err := exec.LookPath("go"); err != nil {
		t.Skipf("set-up: needs Go to find %s; set %s to a program", strings.Join(args, " "), variable)
	}
	cmd := exec.Command("go", append([]string{"run", "-trimpath", command}, args...)...)
	cmd.Dir, cmd.Stderr = filepath.Join(checkout.Root(), "local"), os.Stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("%s %s: %v; or set %s to a program", command, strings.Join(args, " "), err, variable)
	}
	return out
}
