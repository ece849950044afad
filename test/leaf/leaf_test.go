// Package leaf tries an installation whose NATS servers connect out to one elsewhere, where its portal is. Both are set up as
// docs/portal.md says.
package leaf

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	natsd "github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/nats-io/nkeys"
	"github.com/nats-io/nuid"

	"github.com/stoker-k8s/stoker/internal/natsusers"
	"github.com/stoker-k8s/stoker/internal/testing/poll"
	"github.com/stoker-k8s/stoker/internal/testing/port"
	"github.com/stoker-k8s/stoker/pkg/api/event"
	"github.com/stoker-k8s/stoker/pkg/api/name"
	"github.com/stoker-k8s/stoker/pkg/events"
	"github.com/stoker-k8s/stoker/pkg/pki"
	"github.com/stoker-k8s/stoker/pkg/portal"
	"github.com/stoker-k8s/stoker/pkg/service"
	"github.com/stoker-k8s/stoker/services/intake"
	"github.com/stoker-k8s/stoker/services/status"
	"github.com/stoker-k8s/stoker/test/env"
)

var e *env.Env

func TestMain(m *testing.M) { env.Main(m, func(started *env.Env) { e = started }, env.APIOnly) }

// world is a hub, and an installation's NATS servers that connect out to it through a link.
type world struct {
	dir      string // has the seeds of all, the authority of the hub, and portals.conf
	hub      *natsd.Server
	stranger string // the seed of a user of the hub who may do anything in the account of the portal
	servers  []*natsd.Server
	link     *env.Link
	operator *events.Bus
}

// page is the text of docs/portal.md.
func page(t *testing.T) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(env.Root(), "docs", "portal.md"))
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// snippet is the block of the page that begins with a comment of a file's name, with replacements, each of which must be of something.
func snippet(t *testing.T, file string, replace ...string) string {
	t.Helper()
	_, text, ok := strings.Cut(page(t), "```\n# "+file+"\n")
	if !ok {
		t.Fatalf("docs/portal.md has no block of %s", file)
	}
	text, _, _ = strings.Cut(text, "```")
	for i := 0; i < len(replace); i += 2 {
		if !strings.Contains(text, replace[i]) {
			t.Fatalf("%s on the page has no %q", file, replace[i])
		}
		text = strings.ReplaceAll(text, replace[i], replace[i+1])
	}
	return text
}

// run starts a server of a configuration until the test ends.
func run(t *testing.T, file, text string) *natsd.Server {
	t.Helper()
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	opts, err := natsd.ProcessConfigFile(file)
	if err != nil {
		t.Fatal(err)
	}
	opts.NoSigs = true
	srv, err := natsd.NewServer(opts)
	if err != nil {
		t.Fatal(err)
	}
	srv.Start()
	t.Cleanup(func() { srv.Shutdown(); srv.WaitForShutdown() })
	return srv
}

// start a hub and an installation of so many servers. more is of the hub's configuration.
func start(t *testing.T, servers int, more string) *world {
	t.Helper()
	w := &world{dir: t.TempDir()}
	portals := natsusers.Portals{Dir: w.dir}
	if _, err := portals.Add(events.Portal{Name: "shop", Namespaces: []string{"default"}}); err != nil {
		t.Fatal(err)
	}
	if _, err := portals.Add(events.Portal{Name: "other", Namespaces: []string{"globex"}}); err != nil {
		t.Fatal(err)
	}
	w.startHub(t, more)
	w.startInstallation(t, servers)
	w.operator = w.bus(t, events.UserOperator)
	w.services(t)
	return w
}

func (w *world) startHub(t *testing.T, more string) {
	t.Helper()
	authority, err := pki.OpenAuthority(filepath.Join(w.dir, "authority"), "hub")
	if err != nil {
		t.Fatal(err)
	}
	pair, err := authority.Issue(pki.Leaf{File: "hub", Name: "hub", Hosts: []string{"127.0.0.1", "localhost"}})
	if err != nil {
		t.Fatal(err)
	}
	seed, public := user(t)
	stranger, strangers := user(t)
	w.stranger = filepath.Join(w.dir, "stranger.nk")
	if err := os.WriteFile(w.stranger, []byte(stranger), 0o600); err != nil {
		t.Fatal(err)
	}
	client, leafs := port.Address(t, "127.0.0.1"), port.Address(t, "127.0.0.1")
	w.link = env.NewLink(t, leafs)
	w.hub = run(t, filepath.Join(w.dir, "hub.conf"), more+snippet(t, "hub.conf",
		"0.0.0.0:4222", client, "0.0.0.0:7422", leafs, "hub.example.com:7422", w.link.Address(), "/etc/nats/tls.crt", pair.CertFile, "/etc/nats/tls.key", pair.KeyFile,
		"10s", "1s", "UINSTALLATION", public, ".acme.", ".default.", "USER_OF_SHOP", w.user(t, "shop")+"\n{ nkey: "+strangers+" }"))
	text := snippet(t, "leaf.conf", "hub.example.com:7422", w.link.Address(), "/etc/nats/hub-ca.crt", authority.CertFile, "SUINSTALLATION", seed, "10s", "1s")
	if err := os.WriteFile(filepath.Join(w.dir, "leaf.conf"), []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

// user makes one.
func user(t *testing.T) (seed, public string) {
	t.Helper()
	pair, err := nkeys.CreateUser()
	if err != nil {
		t.Fatal(err)
	}
	secret, err := pair.Seed()
	if err != nil {
		t.Fatal(err)
	}
	if public, err = pair.PublicKey(); err != nil {
		t.Fatal(err)
	}
	return string(secret), public
}

// user is what portals.conf has of a portal's user.
func (w *world) user(t *testing.T, portal string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(w.dir, events.PortalsFile))
	if err != nil {
		t.Fatal(err)
	}
	_, account, _ := strings.Cut(string(text), "\nportal-"+portal+" {")
	_, users, ok := strings.Cut(account, "  users = [ ")
	users, _, _ = strings.Cut(users, " ]\n}")
	if !ok {
		t.Fatal("portals.conf has no user of ", portal)
	}
	return users
}

func (w *world) startInstallation(t *testing.T, servers int) {
	t.Helper()
	public, err := natsusers.EnsureKeys(w.dir)
	if err != nil {
		t.Fatal(err)
	}
	var routes []string
	for range servers {
		routes = append(routes, port.Address(t, "127.0.0.1"))
	}
	for i, route := range routes {
		text := fmt.Sprintf("server_name: n%d\nlisten: 127.0.0.1:-1\njetstream { store_dir: %q }\n", i, filepath.Join(w.dir, "n"+strconv.Itoa(i)))
		if servers > 1 {
			text += fmt.Sprintf("cluster { name: stoker, listen: %q, routes: [\"nats-route://%s\"] }\n", route, strings.Join(routes, `", "nats-route://`))
		}
		text += "include leaf.conf\n" + events.Authorization(public, nil)
		w.servers = append(w.servers, run(t, filepath.Join(w.dir, fmt.Sprintf("n%d.conf", i)), text))
	}
	for _, srv := range w.servers {
		poll.True(t, "a server of the installation is ready", func() bool {
			return srv.ReadyForConnections(time.Second) && (servers == 1 || srv.JetStreamIsCurrent()) && srv.NumLeafNodes() == 1
		})
	}
}

func (w *world) bus(t *testing.T, user string) *events.Bus {
	t.Helper()
	b, err := events.Connect(events.Config{
		URL: w.servers[0].ClientURL(), User: user, SeedFile: natsusers.SeedFile(w.dir, user), Replica: "test", Log: slog.New(slog.DiscardHandler),
		StreamReplicas: len(w.servers), RequestTimeout: 30 * time.Second,
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(b.Close)
	return b
}

// portal connects to the hub as shop.
func (w *world) portal(t *testing.T) *portal.Client {
	t.Helper()
	c, err := portal.Connect(portal.Config{
		URL: w.hub.ClientURL(), Source: "/shop", SeedFile: natsusers.SeedFile(w.dir, "shop"), CAFile: filepath.Join(w.dir, "authority", "ca.crt"),
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	return c
}

// service runs a service of the installation until the test ends.
func (w *world) service(t *testing.T, cfg service.Config, run func(context.Context, service.Config) error) {
	t.Helper()
	cfg.NATS, cfg.NATSSeed, cfg.StreamReplicas = w.servers[0].ClientURL(), natsusers.SeedFile(w.dir, cfg.Name), len(w.servers)
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	done := make(chan error, 1)
	go func() { done <- run(ctx, cfg) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Errorf("%s: %v", cfg.Name, err)
		}
	})
}

// services are those that answer commands and tell statuses.
func (w *world) services(t *testing.T) {
	t.Helper()
	w.service(t, e.Stack.Service(name.ServiceIntake, "leaf"), func(ctx context.Context, cfg service.Config) error {
		return intake.Run(ctx, intake.Config{Config: cfg, DataStore: "default"})
	})
	w.service(t, e.Stack.Service(name.ServiceStatus, "leaf"), status.Run)
}

// carriedOut fails unless a tenant was changed by so many commands: of each there is a fact.
func (w *world) carriedOut(t *testing.T, key events.Key, commands uint64) {
	t.Helper()
	s, err := w.operator.JetStream().Stream(t.Context(), events.StreamFacts)
	if err != nil {
		t.Fatal(err)
	}
	var facts uint64
	env.Eventually(t, "facts of the commands", func() error {
		info, err := s.Info(t.Context(), jetstream.WithSubjectFilter("stoker.fact.*."+key.Namespace+"."+key.Name+".intake.accepted"))
		if err != nil {
			return err
		}
		facts = 0
		for _, n := range info.State.Subjects {
			facts += n
		}
		if facts < commands {
			return fmt.Errorf("%d facts", facts)
		}
		return nil
	})
	if facts > commands {
		t.Errorf("%d commands were carried out %d times", commands, facts)
	}
}

// patience is how long a test waits for an event on a busy machine.
const patience = 3 * time.Minute

// raw is a connection to the hub, as the user of a seed.
func (w *world) raw(t *testing.T, seedFile string) *nats.Conn {
	t.Helper()
	nkey, err := nats.NkeyOptionFromSeed(seedFile)
	if err != nil {
		t.Fatal(err)
	}
	nc, err := nats.Connect(w.hub.ClientURL(), nkey, nats.RootCAs(filepath.Join(w.dir, "authority", "ca.crt")), nats.Timeout(time.Minute))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(nc.Close)
	return nc
}

// TestAPortalElsewhere orders, is answered and reads statuses at the hub, with whatever JetStream that has, once each.
func TestAPortalElsewhere(t *testing.T) {
	for sentence, c := range map[string]struct {
		servers int
		hub     string
	}{
		"at a hub without JetStream":          {1, ""},
		"at a hub with JetStream":             {1, "jetstream { store_dir: %q }\n"},
		"at a hub with JetStream of a domain": {1, "jetstream { store_dir: %q, domain: hub }\n"},
		"of an installation of three servers": {3, "jetstream { store_dir: %q }\n"},
	} {
		t.Run(sentence, func(t *testing.T) {
			if c.hub != "" {
				c.hub = fmt.Sprintf(c.hub, t.TempDir())
			}
			w := start(t, c.servers, c.hub)
			key := events.Tenant("default", fmt.Sprint("elsewhere-", time.Now().UnixNano()))
			shop, hears := w.portal(t), w.raw(t, natsusers.SeedFile(w.dir, "shop"))
			answers, err := hears.SubscribeSync("stoker.answer.default.*")
			if err != nil {
				t.Fatal(err)
			}
			ctx, cancel := context.WithTimeout(t.Context(), 3*patience)
			defer cancel()
			told := make(chan event.StatusChanged, 1)
			go func() {
				for s, err := range shop.Follow(ctx, key.Namespace, key.Name) {
					if err == nil && s.Generation == 1 {
						told <- s
					}
					return
				}
			}()
			accepted, err := shop.Apply(ctx, env.Tenant(key.Name, "v1.36.3"), portal.ID("order-1"))
			if err != nil {
				t.Fatal(err)
			}
			select {
			case s := <-told:
				if s.UID != accepted.UID || s.Phase == "" {
					t.Errorf("told %+v of %+v", s, accepted)
				}
			case <-ctx.Done():
				t.Error("the portal is told no status")
			}
			env.Eventually(t, "the last status is read", func() error { // one of three servers may lag
				s, err := shop.Status(ctx, key.Namespace, key.Name)
				if err == nil && s.UID != accepted.UID {
					err = fmt.Errorf("%+v", s)
				}
				return err
			})
			if _, err := shop.Plan(ctx, key.Namespace, key.Name, event.PlanQuery{Spec: json.RawMessage(`{"kubernetes":{"version":"v1.36.3"}}`)}); err != nil {
				t.Errorf("plan: %v", err)
			}
			again, err := shop.Apply(ctx, env.Tenant(key.Name, "v1.36.3"), portal.ID("order-1"))
			if err != nil || again.About != accepted.About {
				t.Errorf("the same order again: %+v, %v", again, err)
			}
			w.carriedOut(t, key, 1)
			commands, err := w.operator.JetStream().Stream(ctx, events.StreamIntake)
			if err != nil {
				t.Fatal(err)
			}
			env.Eventually(t, "each stored command has one answer at the hub", func() error {
				n, _, err := answers.Pending()
				if stored := commands.CachedInfo().State.LastSeq; err == nil && (n < 2 || uint64(n) != stored) {
					err = fmt.Errorf("%d commands and %d answers", stored, n)
				}
				return err
			})
		})
	}
}

// TestWhoIsAtTheHubReachesThePortalsPartAlone tries with a user who may do anything in the hub's account.
func TestWhoIsAtTheHubReachesThePortalsPartAlone(t *testing.T) {
	w := start(t, 1, "")
	var denied *portal.DeniedError
	theirs := env.Tenant("theirs", "v1.36.3")
	theirs.Namespace = "globex"
	if _, err := w.portal(t).Apply(t.Context(), theirs); !errors.As(err, &denied) {
		t.Errorf("a tenant of others is commanded: %v", err)
	}
	if _, err := w.portal(t).Status(t.Context(), "globex", "theirs"); !errors.As(err, &denied) {
		t.Errorf("a status of others is read: %v", err)
	}
	stranger := w.raw(t, w.stranger)
	env.Eventually(t, "streams in the installation", func() error {
		_, err := stranger.Request("stoker.last.default.none", nil, 10*time.Second)
		return err
	})
	own, other := events.Tenant("default", "demo"), events.Tenant("globex", "theirs")
	for _, subject := range []string{
		other.CommandSubject(), events.DataStore("default").CommandSubject(), events.Generator("ops").CommandSubject(),
		other.LastStatusSubject(), "stoker.last.globex.theirs", event.QueryPlan + ".globex.theirs", event.QueryJoin + ".default.demo",
		"$JS.API.INFO", "$JS.API.STREAM.NAMES", "$JS.API.STREAM.DELETE." + events.StreamFacts, own.StatusSubject(),
		"stoker.answer.default.x", "$KV.tenant_default_demo.spec", "stoker.status.why", event.QueryDeadList, "$SRV.PING", "$SYS.REQ.SERVER.PING",
	} {
		// "No responders" is an answer, too.
		if m, err := stranger.Request(subject, []byte("{}"), patience); !errors.Is(err, nats.ErrNoResponders) {
			t.Errorf("a request on %s: %+v, %v", subject, m, err)
		}
	}
	all, err := stranger.SubscribeSync(">")
	if err != nil {
		t.Fatal(err)
	}
	if err := stranger.Flush(); err != nil {
		t.Fatal(err)
	}
	as := w.bus(t, name.ServiceStatus)
	heard := false
	env.Eventually(t, "the portal's statuses are heard", func() error { // the hub asks the installation for them a moment later
		for _, key := range []events.Key{other, own} { // so what is delivered of the second is after what isn't of the first
			told := as.NewEvent(key, nuid.Next(), event.FactType(name.ServiceStatus, event.Changed), nil, time.Now())
			if _, err := as.Publish(t.Context(), key.StatusSubject(), told); err != nil {
				return err
			}
		}
		for !heard {
			m, err := all.NextMsg(time.Second)
			if err != nil {
				return err
			}
			heard = m.Subject == own.StatusSubject()
			if !heard && !strings.HasPrefix(m.Subject, "$SYS.") && !strings.HasPrefix(m.Subject, "_INBOX.") {
				t.Errorf("heard %s", m.Subject)
			}
		}
		return nil
	})
}

// TestAPortalIsNoLeafNode has a server come as a leaf node with the key of a portal.
func TestAPortalIsNoLeafNode(t *testing.T) {
	w := start(t, 1, "")
	seed, err := os.ReadFile(natsusers.SeedFile(w.dir, "shop"))
	if err != nil {
		t.Fatal(err)
	}
	said := make(refusals, 1)
	srv := run(t, filepath.Join(w.dir, "intruder.conf"), fmt.Sprintf("listen: 127.0.0.1:-1\nleafnodes { remotes: [{ url: %q, nkey: %s, tls { ca_file: %q } }] }\n",
		"tls://"+w.link.Address(), seed, filepath.Join(w.dir, "authority", "ca.crt")))
	srv.SetLoggerV2(said, false, false, false)
	select {
	case <-said:
	case <-time.After(patience):
		t.Error("it isn't refused")
	}
	env.Eventually(t, "the hub to have the installation's leaf node and no other", func() error { // which connects again after a stall
		if n := w.hub.NumLeafNodes(); n != 1 {
			return fmt.Errorf("%d leaf nodes", n)
		}
		return nil
	})
}

// refusals gets something when a server says that it was refused.
type refusals chan struct{}

func (r refusals) Errorf(f string, v ...any) {
	if strings.Contains(fmt.Sprintf(f, v...), "Authorization Violation") {
		select {
		case r <- struct{}{}:
		default:
		}
	}
}
func (r refusals) Noticef(string, ...any) {}
func (r refusals) Warnf(string, ...any)   {}
func (r refusals) Fatalf(string, ...any)  {}
func (r refusals) Debugf(string, ...any)  {}
func (r refusals) Tracef(string, ...any)  {}

// TestWhileTheWayIsCut orders at a hub whose way to the installation is a black hole.
func TestWhileTheWayIsCut(t *testing.T) {
	w := start(t, 1, "")
	shop := w.portal(t)
	ctx, cancel := context.WithTimeout(t.Context(), 3*patience)
	defer cancel()
	key := events.Tenant("default", fmt.Sprint("cut-", time.Now().UnixNano()))
	before, err := shop.Apply(ctx, env.Tenant(key.Name, "v1.35.4"), portal.ID("before"))
	if err != nil {
		t.Fatal(err)
	}

	w.link.Hole(true)
	var unanswered *portal.UnansweredError
	for range 2 { // before the hub has noticed, and after
		short, stop := context.WithTimeout(ctx, time.Second)
		_, err = shop.Patch(short, key, map[string]any{"kubernetes": map[string]any{"version": "v1.36.3"}}, portal.ID("upgrade"))
		stop()
		if !errors.As(err, &unanswered) || unanswered.Stored || unanswered.Command != "upgrade" {
			t.Errorf("an order that reaches nobody: %v", err)
		}
		poll.True(t, "the hub notices", func() bool { return w.hub.NumLeafNodes() == 0 })
	}
	if _, err := w.raw(t, w.stranger).Request(key.CommandSubject(), nil, patience); !errors.Is(err, nats.ErrNoResponders) {
		t.Errorf("the hub says %v of a command that it can't hand on", err)
	}
	poll.True(t, "the installation notices", func() bool { return w.servers[0].NumLeafNodes() == 0 })

	// One waits on, as the library does.
	type answer struct {
		portal.Accepted
		error
	}
	waiting := make(chan answer, 1)
	go func() {
		a, err := shop.Patch(ctx, key, map[string]any{"kubernetes": map[string]any{"version": "v1.36.3"}}, portal.ID("upgrade"))
		waiting <- answer{a, err}
	}()
	w.link.Hole(false)
	got := <-waiting
	if got.error != nil || got.Generation != before.Generation+1 {
		t.Fatalf("after the way is back: %+v, before %+v", got, before)
	}
	w.carriedOut(t, key, 2)
	for s, err := range shop.Follow(ctx, key.Namespace, key.Name) {
		if err != nil {
			t.Fatal(err)
		}
		if s.Generation == got.Generation {
			break
		}
	}
}
