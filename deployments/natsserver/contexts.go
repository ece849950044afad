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

// ContextFile is a user's context for the NATS command line: `nats --context <file>`. The directory is where that looks by itself, below
// $XDG_CONFIG_HOME.
func (s *Server) ContextFile(user string) string {
	return filepath.Join(s.dir, "context", user+".json")
}

// writeContexts writes the contexts of the operator, the administrator and the portals.
func (s *Server) writeContexts() error {
	users := map[string]string{
		events.UserOperator: "Stoker's operator: reads everything, publishes commands, asks questions",
		events.UserSystem:   "the administrator of the NATS servers",
	}
	portals, err := s.Portals().List()
	if err != nil {
		return err
	}
	for _, p := range portals {
		users[p.Name] = "a portal: commands, answers and statuses of its namespaces"
	}
	if err := os.MkdirAll(filepath.Dir(s.ContextFile("")), 0o700); err != nil {
		return err
	}
	for user, description := range users {
		if err := s.writeContext(user, description); err != nil {
			return err
		}
	}
	return nil
}

func (s *Server) writeContext(user, description string) error {
	seed, err := filepath.Abs(s.SeedFile(user))
	if err != nil {
		return err
	}
	data, err := json.MarshalIndent(natsContext{Description: description, URL: s.URL(), NKey: seed}, "", "  ")
	if err != nil {
		return err
	}
	return os.WriteFile(s.ContextFile(user), append(data, '\n'), 0o600)
}
