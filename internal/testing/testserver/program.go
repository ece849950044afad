// Package testserver finds, starts and ends the real database servers that tests run.
package testserver

import (
	"encoding/json"
	"os"
	"testing"

	"github.com/stoker-k8s/stoker/internal/testing/built"
)

// Program is a program of a Debian package, installed or just unpacked.
type Program struct {
	// Path of the program, or what runs it (Contained); Root of the tree it is in: / if it is installed.
	Path, Root string
	// Env is what it needs beside the environment to find its libraries; of a container, all it has beside the image's.
	Env []string
}

// Find returns a program of a package as the local stack finds it (local/debian), by its path below the root,
// a pattern. variable, if set, names the program to take, or who runs containers of it. The test fails if it can't be had.
func Find(t testing.TB, variable, pkg, pattern string) (p Program) {
	t.Helper()
	if path := os.Getenv(variable); path != "" {
		return Program{Path: path, Root: "/"}
	}
	if err := json.Unmarshal(built.Run(t, variable, "./cmd/debian", pkg, pattern), &p); err != nil {
		t.Fatal(err)
	}
	return p
}
