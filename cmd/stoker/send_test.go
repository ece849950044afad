package main

import (
	"strings"
	"testing"
	"time"

	"github.com/stoker-k8s/stoker/cmd/stoker/internal/manifest"
	"github.com/stoker-k8s/stoker/local/natsserver"
	"github.com/stoker-k8s/stoker/pkg/api/event"
	"github.com/stoker-k8s/stoker/pkg/api/name"
	"github.com/stoker-k8s/stoker/pkg/events"
	"github.com/stoker-k8s/stoker/pkg/kube"
	"github.com/stoker-k8s/stoker/pkg/portal"
)

func TestAnswerLimit(t *testing.T) {
	for what, c := range map[string]struct {
		wait       bool
		left, want time.Duration
	}{
		"a command that doesn't wait":           {false, 5 * time.Minute, answerTimeout},
		"a command that waits for the tenant":   {true, 5 * time.Minute, 5 * time.Minute},
		"one of many, when the time is used up": {true, -time.Second, answerTimeout},
	} {
		if limit := answerLimit(c.wait, c.left); limit != c.want {
			t.Errorf("%s: %s, want %s", what, limit, c.want)
		}
	}
}

func TestSendWithoutIntake(t *testing.T) {
	t.Parallel()
	srv, err := natsserver.Start(t.Context(), t.TempDir(), "127.0.0.1:-1", nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(srv.Stop)
	connect := func(user string) *events.Bus {
		b, err := events.Connect(events.Config{
			URL: srv.URL(), User: user, SeedFile: srv.SeedFile(user), Replica: "test", StreamReplicas: 1, RequestTimeout: 30 * time.Second,
		})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(b.Close)
		return b
	}
	if err := connect(name.ServiceIntake).Provision(t.Context()); err != nil {
		t.Fatal(err)
	}
	client, err := portal.New(connect(events.UserOperator).Conn(), "/stoker/test")
	if err != nil {
		t.Fatal(err)
	}
	o := manifest.Object{Key: events.Tenant("default", "demo"), Kind: kube.TenantControlPlanes.Kind}
	_, err = send(t.Context(), client, o, command{verb: event.Resume, expected: anyGeneration, answer: 5 * time.Second})
	if err == nil || !strings.Contains(err.Error(), "has not answered within 5s; the command is stored") {
		t.Errorf("got %v", err)
	}
}
