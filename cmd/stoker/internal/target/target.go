// Package target finds the installation that a command talks to and connects to it.
package target

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/stoker-k8s/stoker/pkg/events"
	"github.com/stoker-k8s/stoker/pkg/kube"
)

// LocalDir is where a local stack keeps its data.
const LocalDir = ".stoker"

// Environment variables.
const (
	EnvNATS = "NATS_URL"
	EnvSeed = "STOKER_NATS_SEED"
	EnvCA   = "STOKER_NATS_CA"
)

// fieldManager of what the command line writes through the API; it writes nothing today.
const fieldManager = "stoker-cli"

// Target is an installation.
type Target struct {
	// NATS is the URL of the servers; Seed the file with the nkey seed, CA with the servers' CA; both may be empty.
	NATS, Seed, CA string
	// Kubeconfig of the management cluster; empty for kubectl's default.
	Kubeconfig string
	// Local is the directory of the local stack, empty when it isn't one.
	Local string
}

// Find fills what flags left open: from the environment when NATS_URL is set or no local stack is found, else from the
// nearest .stoker directory at or above dir.
func Find(flags Target, dir string, env func(string) string) Target {
	t := flags
	fill := func(field *string, value string) {
		if *field == "" {
			*field = value
		}
	}
	if t.NATS == "" && env(EnvNATS) == "" {
		if t.Local = nearest(dir); t.Local != "" {
			fill(&t.NATS, firstLine(filepath.Join(t.Local, "nats", "url")))
			fill(&t.Seed, filepath.Join(t.Local, "nats", events.UserOperator+".nk"))
			fill(&t.Kubeconfig, filepath.Join(t.Local, "kubeconfigs", "admin.kubeconfig"))
		}
	}
	fill(&t.NATS, env(EnvNATS))
	fill(&t.NATS, nats.DefaultURL)
	fill(&t.Seed, env(EnvSeed))
	fill(&t.CA, env(EnvCA))
	return t
}

// nearest returns the .stoker directory at or above dir that holds a stack, empty when there is none.
func nearest(dir string) string {
	for {
		candidate := filepath.Join(dir, LocalDir)
		if _, err := os.Stat(filepath.Join(candidate, "nats", "url")); err == nil {
			return candidate
		}
		parent := filepath.Dir(dir)
		if parent == dir {
			return ""
		}
		dir = parent
	}
}

func firstLine(file string) string {
	data, err := os.ReadFile(file)
	if err != nil {
		return ""
	}
	line, _, _ := strings.Cut(string(data), "\n")
	return strings.TrimSpace(line)
}

// connectTimeout is how long a person waits to hear that nobody is there.
const connectTimeout = 3 * time.Second

// Bus connects to NATS as the operator and waits until it is connected.
func (t Target) Bus(ctx context.Context) (*events.Bus, error) {
	bus, err := events.Connect(events.Config{URL: t.NATS, User: events.UserOperator, SeedFile: t.Seed, CAFile: t.CA})
	if err != nil {
		return nil, fmt.Errorf("%w%s", err, t.hint())
	}
	ctx, cancel := context.WithTimeout(ctx, connectTimeout)
	defer cancel()
	connected := bus.Conn().StatusChanged(nats.CONNECTED)
	for !bus.Conn().IsConnected() {
		select {
		case <-connected:
		case <-ctx.Done():
			err := bus.Conn().LastError()
			bus.Close()
			if errors.Is(err, nats.ErrAuthorization) {
				return nil, fmt.Errorf("nats %s refuses user %s: give its nkey seed with --nkey FILE or $%s", t.NATS, events.UserOperator, EnvSeed)
			}
			if err == nil {
				err = fmt.Errorf("no connection within %s", connectTimeout)
			}
			return nil, fmt.Errorf("nats %s does not answer: %w%s", t.NATS, err, t.hint())
		}
	}
	return bus, nil
}

func (t Target) hint() string {
	if t.Local != "" {
		return "\nThe local stack in " + t.Local + " is not running: start it with `stoker up`."
	}
	return "\nStart a local stack with `stoker up`, or name the servers with --nats URL or $" + EnvNATS + "."
}

// Kube connects to the management cluster.
func (t Target) Kube() (*kube.Client, error) {
	rules := clientcmd.NewDefaultClientConfigLoadingRules()
	rules.ExplicitPath = t.Kubeconfig
	cfg, err := clientcmd.NewNonInteractiveDeferredLoadingClientConfig(rules, nil).ClientConfig()
	if err != nil {
		return nil, fmt.Errorf("kubeconfig of the management cluster: %w\nName it with --kubeconfig FILE or $KUBECONFIG", err)
	}
	return kube.New(cfg, kube.Options{FieldManager: fieldManager})
}
