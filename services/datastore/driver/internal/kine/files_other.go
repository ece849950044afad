//go:build !linux

package kine

import (
	"os"
	"path/filepath"
)

// files are what kine reads by path, also when it connects again: the directory that holds them, empty before the first. A
// process that is killed leaves it behind.
type files string

// write makes a file that only this user may read, and returns its path.
func (f *files) write(name string, content []byte) (string, error) {
	if *f == "" {
		dir, err := os.MkdirTemp("", "stoker-data-")
		if err != nil {
			return "", err
		}
		*f = files(dir)
	}
	path := filepath.Join(string(*f), name)
	return path, os.WriteFile(path, content, 0o600)
}

// remove removes all.
func (f *files) remove() error {
	if *f == "" {
		return nil
	}
	return os.RemoveAll(string(*f))
}
