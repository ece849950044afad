package portal

import (
	"errors"
	"testing"

	"github.com/stoker-k8s/stoker/pkg/api/event"
	"github.com/stoker-k8s/stoker/pkg/api/name"
	"github.com/stoker-k8s/stoker/pkg/events"
	"github.com/stoker-k8s/stoker/pkg/internal/testing/natstest"
	"github.com/stoker-k8s/stoker/pkg/loop"
)

func TestAPortalOfOneNamespace(t *testing.T) {
	t.Parallel()
	srv := natstest.Start(t, events.Portal{Name: "acme", Namespaces: []string{"acme"}})
	w := &world{Server: srv, intake: srv.Connect(t, name.ServiceIntake, ""), status: srv.Connect(t, name.ServiceStatus, "")}
	theirs := about
	theirs.Namespace = "acme"
	w.answering(t, func(loop.Event) (string, any) { return event.Accepted, event.IntakeAccepted{About: theirs} })
	c, err := Connect(Config{URL: srv.URL(), Source: "/acme", SeedFile: srv.SeedFile("acme")})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()

	tenant := demo()
	tenant.Namespace = "acme"
	accepted, err := c.Apply(t.Context(), tenant)
	if err != nil {
		t.Fatal(err)
	}
	ready := statusOf("Ready", 3)
	ready.Namespace = "acme"
	w.say(t, ready, statusOf("Ready", 3))
	if s, err := c.WaitReady(t.Context(), accepted); err != nil || s.Namespace != "acme" {
		t.Errorf("%+v, %v", s, err)
	}
	var denied *DeniedError
	for sentence, do := range map[string]func() error{
		"a tenant of others is commanded": func() error { _, err := c.Apply(t.Context(), demo()); return err },
		"a DataStore is commanded":        func() error { _, err := c.Delete(t.Context(), events.DataStore("etcd")); return err },
		"a token is asked for":            func() error { _, err := c.Join(t.Context(), "acme", "demo", 0); return err },
		"a status of others is read":      func() error { _, err := c.Status(t.Context(), "default", "demo"); return err },
		"others' answers are listened to": func() error {
			sub, err := c.nc.SubscribeSync("stoker.answer.default.*")
			if err == nil {
				err = errors.Join(c.nc.Flush(), c.denied(sub.Subject))
			}
			return err
		},
	} {
		if err := do(); !errors.As(err, &denied) {
			t.Errorf("%s: %v", sentence, err)
		}
	}
}
