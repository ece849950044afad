package natsserver

// Contexts of the NATS command line: who is at the server, and with which key, so that nobody types either.

import (
	"encoding/json"
	"os"
	"path/filepath"

	"github.com/stoker-k8s/stoker/pkg/events"
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
	return writeContext(p.Dir, name, url, "a portal: commands, answers and statuses of its namespaces")
}

// writeContexts writes the contexts of the operator, the administrator and the portals.
func (s *Server) writeContexts() error {
	for user, description := range map[string]string{
		events.UserOperator: "Stoker's operator: reads everything, publishes commands, asks questions",
		events.UserSystem:   "the administrator of the NATS servers",
	} {
		if err := writeContext(s.dir, user, s.URL(), description); err != nil {
			return err
		}
	}
	portals, err := s.Portals().List()
	if err != nil {
		return err
	}
	for _, p := range portals {
		if err := s.Portals().WriteContext(p.Name, s.URL()); err != nil {
			return err
		}
	}
	return nil
}

func writeContext(dir, user, url, description string) error {
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
