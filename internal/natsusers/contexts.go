package natsusers

// Contexts of the NATS command line: who is at the server, and with which key, so that nobody types either.

import (
	"encoding/json"
	"os"
	"path/filepath"
)

// natsContext is a context as the NATS command line keeps it.
type natsContext struct {
	Description string `json:"description"`
	URL         string `json:"url"`
	NKey        string `json:"nkey"`
}

// ContextFile is a user's context for the NATS command line, beside the seeds in a directory: `nats --context <file>`. The file's own
// directory is where that looks by itself, below $XDG_CONFIG_HOME.
func ContextFile(dir, user string) string { return filepath.Join(dir, "context", user+".json") }

// WriteContext writes the context of a portal at the servers with this URL.
func (p Portals) WriteContext(name, url string) error {
	return WriteContext(p.Dir, name, url, "a portal: commands, answers and statuses of its namespaces")
}

// WriteContext writes the context of a user, whose seed is in the directory, at the servers with this URL.
func WriteContext(dir, user, url, description string) error {
	seed, err := filepath.Abs(SeedFile(dir, user))
	if err != nil {
		return err
	}
	data, err := json.MarshalIndent(natsContext{Description: description, URL: url, NKey: seed}, "", "  ")
	if err != nil {
		return err
	}
	file := ContextFile(dir, user)
	if err := os.MkdirAll(filepath.Dir(file), 0o700); err != nil {
		return err
	}
	return os.WriteFile(file, append(data, '\n'), 0o600)
}
