// Package checkout finds the files of the repository, for tests that start programs which are built from it.
package checkout

import (
	"os"
	"path/filepath"
)

// Root is the repository's root, above the current directory: tests run in the directory of their package. It panics outside a checkout.
func Root() string {
	at, err := os.Getwd()
	if err != nil {
		panic(err)
	}
	for dir := at; ; dir = filepath.Dir(dir) {
		if _, err := os.Stat(filepath.Join(dir, "go.work")); err == nil {
			return dir
		}
		if dir == filepath.Dir(dir) {
			panic("no go.work in or above " + at)
		}
	}
}
