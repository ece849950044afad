package portal

import (
	"errors"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	natsd "github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nkeys"

	"github.com/stoker-k8s/stoker/pkg/api/event"
	"github.com/stoker-k8s/stoker/pkg/api/name"
	"github.com/stoker-k8s/stoker/pkg/events"
	"github.com/stoker-k8s/stoker/pkg/events/server"
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
	page, err := os.ReadFile("../../../docs/portal.md")
	if err != nil {
		t.Fatal(err)
	}
	shown := regexp.MustCompile("(?s)```nats\n(.*?)```").FindSubmatch(page)
	if shown == nil {
		t.Fatal("docs/portal.md shows no user")
	}
	user := strings.ReplaceAll(string(shown[1]), "$STOKER_NKEY_ACME", public["acme"])
	conf := filepath.Join(dir, "nats.conf")
	if err := os.WriteFile(conf, []byte(strings.Replace(events.Authorization(public), "users = [\n", "users = [\n"+user, 1)), 0o600); err != nil {
		t.Fatal(err)
	}
	opts, err := natsd.ProcessConfigFile(conf)
	if err != nil {
		t.Fatal(err)
	}
	opts.Host, opts.Port, opts.JetStream, opts.StoreDir, opts.NoSigs, opts.NoLog = "127.0.0.1", natsd.RANDOM_PORT, true, dir, true, true
	srv, err := natsd.NewServer(opts)
	if err != nil {
		t.Fatal(err)
	}
	srv.Start()
	t.Cleanup(func() { srv.Shutdown(); srv.WaitForShutdown() })
	if !srv.ReadyForConnections(30 * time.Second) {
		t.Fatal("the server does not start")
	}

	bus := func(user string) *events.Bus {
		b, err := events.Connect(events.Config{URL: srv.ClientURL(), User: user, SeedFile: seed(user), Replica: "test"})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(b.Close)
		return b
	}
	w := &world{Server: &server.Server{}, intake: bus(name.ServiceIntake), status: bus(name.ServiceStatus)}
	if err := w.intake.Provision(t.Context()); err != nil {
		t.Fatal(err)
	}
	theirs := about
	theirs.Namespace = "acme"
	w.answering(t, func(events.Event) (string, any) { return event.Accepted, event.IntakeAccepted{About: theirs} })
	c, err := Connect(Config{URL: srv.ClientURL(), Source: "/acme", SeedFile: seed("acme"), InboxPrefix: "_INBOX.acme"})
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
