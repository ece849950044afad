// Package checkout finds the files of the repository, for tests that start programs of other modules.
package checkout

import (
	"fmt"
	"os"
	"path/filepath"
)

// Root is the repository's root, above the current directory. Tests run in the directory of their package; the paths that the compiler notes
// don't help, because tests are compiled without them (-trimpath) so that every checkout shares the build cache.
func Root() (string, error) {
	at, err := os.Getwd()
	if err != nil {
		return "", err
	}
	for dir := at; ; dir = filepath.Dir(dir) {
		if _, err := os.Stat(filepath.Join(dir, "go.work")); err == nil {
			return dir, nil
		}
		if dir == filepath.Dir(dir) {
			return "", fmt.Errorf("no go.work in or above %s", at)
		}
	}
}
