package portal

import (
	"errors"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nkeys"

	"github.com/stoker-k8s/stoker/pkg/api/event"
	"github.com/stoker-k8s/stoker/pkg/api/name"
	"github.com/stoker-k8s/stoker/pkg/events"
	"github.com/stoker-k8s/stoker/pkg/internal/natstest"
	"github.com/stoker-k8s/stoker/pkg/loop"
)

// The user that docs/portal.md shows for a portal of its own, with its namespace and its inboxes.
func TestAPortalWithAUserOfItsOwn(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	seed := func(user string) string { return filepath.Join(dir, user+".nk") }
	public := map[string]string{}
	for _, user := range append(events.Users(), "acme") {
		pair, err := nkeys.CreateUser()
		if err != nil {
			t.Fatal(err)
		}
		data, err := pair.Seed()
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(seed(user), data, 0o600); err != nil {
			t.Fatal(err)
		}
		if public[user], err = pair.PublicKey(); err != nil {
			t.Fatal(err)
		}
	}
	page, err := os.ReadFile("../../docs/portal.md")
	if err != nil {
		t.Fatal(err)
	}
	shown := regexp.MustCompile("(?s)```nats\n(.*?)```").FindSubmatch(page)
	if shown == nil {
		t.Fatal("docs/portal.md shows no user")
	}
	user := strings.ReplaceAll(string(shown[1]), "$STOKER_NKEY_ACME", public["acme"])
	srv := natstest.StartWith(t, dir, strings.Replace(events.Authorization(public), "users = [\n", "users = [\n"+user, 1))

	w := &world{Server: srv, intake: srv.Connect(t, name.ServiceIntake, ""), status: srv.Connect(t, name.ServiceStatus, "")}
	theirs := about
	theirs.Namespace = "acme"
	w.answering(t, func(loop.Event) (string, any) { return event.Accepted, event.IntakeAccepted{About: theirs} })
	c, err := Connect(Config{URL: srv.URL(), Source: "/acme", SeedFile: seed("acme"), InboxPrefix: "_INBOX.acme"})
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
		"a status of others is read":      func() error { _, err := c.Status(t.Context(), "default", "demo"); return err },
		"others' inboxes are listened on": func() error {
			sub, err := c.nc.SubscribeSync(nats.InboxPrefix + ">")
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
