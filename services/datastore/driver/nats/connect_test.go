package nats_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/url"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	gonats "github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/nats-io/nkeys"

	"github.com/stoker-k8s/stoker/internal/testing/drivertest"
	"github.com/stoker-k8s/stoker/internal/testing/natsserver"
	"github.com/stoker-k8s/stoker/internal/testing/testserver"
	"github.com/stoker-k8s/stoker/services/datastore/driver"
	"github.com/stoker-k8s/stoker/services/datastore/driver/nats"
)

func TestConnections(t *testing.T) { // not side by side with others: NoFiles sets $TMPDIR
	server := natsserver.Start(t, natsserver.Options{})
	strict := natsserver.Start(t, natsserver.Options{TLS: "verify: true"})
	as := func(server *natsserver.Server, changes ...func(*driver.Config)) driver.Config {
		c := server.Config(t)
		for _, change := range changes {
			change(&c)
		}
		return c
	}
	certificate := func(c *driver.Config) { c.ClientCert, c.ClientKey = strict.CA.Issue(t, "stoker") }
	all := map[string]drivertest.Combination{
		"creds without TLS":                                    {Config: as(server, func(c *driver.Config) { c.CA = nil })},
		"creds over TLS":                                       {Config: as(server)},
		"creds over TLS, with the authority's key":             {Config: as(server, func(c *driver.Config) { c.CAKey = server.CA.KeyPEM(t) }), Certificate: true},
		"creds and a certificate that the server demands":      {Config: as(strict, certificate, func(c *driver.Config) { c.CAKey = strict.CA.KeyPEM(t) }), Certificate: true},
		"creds and a certificate, without the authority's key": {Config: as(strict, certificate)},
	}
	for form, key := range testserver.Keys(t) {
		all["creds and a certificate, its key "+form] = drivertest.Combination{Config: as(strict, func(c *driver.Config) {
			c.ClientCert, c.ClientKey = strict.CA.Sign(t, "stoker", key.Key), key.PEM
		})}
	}
	drivertest.Combinations(t, nats.Open, all)

	t.Run("to a tenant's data with credentials and a certificate that lie on no disk", func(t *testing.T) {
		drivertest.NoFiles(t, open(t, as(strict, certificate, func(c *driver.Config) { c.CAKey = strict.CA.KeyPEM(t) })), false)
	})

	plain := natsserver.Start(t, natsserver.Options{Users: natsserver.Users})
	other := testserver.NewAuthority(t, testserver.EC(t))
	cert, key := other.Issue(t, natsserver.Admin)
	drivertest.Faults(t, nats.Open, plain.Config(t), other.PEM, cert, key)

	t.Run("a server that hangs", func(t *testing.T) {
		p := newProxy(t, server.Endpoint)
		drivertest.Hangs(t, open(t, as(server, func(c *driver.Config) { c.Endpoints = []string{p.endpoint} })), p.pause, p.resume)
	})
	t.Run("one of several endpoints is enough", func(t *testing.T) {
		d := open(t, as(server, func(c *driver.Config) { c.Endpoints = []string{"127.0.0.1:1", server.Endpoint, "none.invalid:1"} }))
		drivertest.Eventually(t, func() error { return d.Check(t.Context()) })
	})
}

// proxy passes bytes on until it is paused.
type proxy struct {
	endpoint string
	mu       sync.RWMutex
}

func newProxy(t *testing.T, to string) *proxy {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	check(t, err)
	t.Cleanup(func() { _ = l.Close() })
	p := &proxy{endpoint: l.Addr().String()}
	pass := func(from, to net.Conn) {
		defer from.Close()
		defer to.Close()
		buffer := make([]byte, 32<<10)
		for {
			n, err := from.Read(buffer)
			p.mu.RLock()
			_, werr := to.Write(buffer[:n])
			p.mu.RUnlock()
			if err != nil || werr != nil {
				return
			}
		}
	}
	go func() {
		for {
			client, err := l.Accept()
			if err != nil {
				return
			}
			server, err := net.Dial("tcp", to)
			if err != nil {
				_ = client.Close()
				continue
			}
			go pass(client, server)
			go pass(server, client)
		}
	}()
	return p
}

func (p *proxy) pause()  { p.mu.Lock() }
func (p *proxy) resume() { p.mu.Unlock() }

func TestCheckSaysWhatTheServerLacks(t *testing.T) { // its cases side by side, but with no other test: they don't try again
	type fault struct {
		options natsserver.Options
		change  func(t *testing.T, server *natsserver.Server, c *driver.Config)
		says    string
	}
	for sentence, f := range map[string]fault{
		"accounts can't be deleted": {
			natsserver.Options{Resolver: fmt.Sprintf("type: full, dir: %q", filepath.Join(t.TempDir(), "accounts"))}, nil, "allow_delete",
		},
		"accounts can't be made": {natsserver.Options{Resolver: "type: memory"}, nil, "type full"},
		"the operator is another": {natsserver.Options{}, func(t *testing.T, server *natsserver.Server, c *driver.Config) {
			other, err := nkeys.CreateOperator()
			check(t, err)
			c.Password = []byte(server.Creds(t) + natsserver.Seed(t, other))
		}, "signing seed of the servers' operator"},
		"it has no JetStream":                  {natsserver.Options{NoJetStream: true}, nil, "JetStream"},
		"it has no JetStream, nor an operator": {natsserver.Options{NoJetStream: true, Users: natsserver.Users}, nil, "JetStream"},
		"the user is of another server": {natsserver.Options{}, func(t *testing.T, server *natsserver.Server, c *driver.Config) {
			c.Password = natsserver.Start(t, natsserver.Options{}).Config(t).Password
		}, "Authorization"},
	} {
		t.Run(sentence, func(t *testing.T) {
			t.Parallel()
			server := natsserver.Start(t, f.options)
			c := server.Config(t)
			if f.change != nil {
				f.change(t, server, &c)
			}
			err := open(t, c).Check(t.Context())
			if !errors.Is(err, driver.ErrAway) || !strings.Contains(err.Error(), f.says) {
				t.Error(err)
			}
		})
	}
}

func TestOpenSaysWhatIsWrongWithThePassword(t *testing.T) {
	t.Parallel()
	account, err := nkeys.CreateAccount()
	check(t, err)
	operator, err := nkeys.CreateOperator()
	check(t, err)
	server := natsserver.Start(t, natsserver.Options{})
	_, otherUser := server.User(t)
	creds := server.Creds(t)
	token := strings.Split(creds, "\n")[1]
	for sentence, password := range map[string]string{
		"an account's seed":                   natsserver.Seed(t, account),
		"an operator's seed alone":            natsserver.Seed(t, operator),
		"a user's seed alone":                 natsserver.Seed(t, otherUser),
		"a JWT alone":                         token,
		"a JWT with another user's seed":      token + "\n" + natsserver.Seed(t, otherUser),
		"a JWT that is cut off":               token[:len(token)/2] + "\n" + natsserver.Seed(t, otherUser),
		"an account's seed behind creds":      creds + natsserver.Seed(t, account),
		"an account's seed and an operator's": natsserver.Seed(t, account) + " " + natsserver.Seed(t, operator),
	} {
		c := driver.Config{Name: "one", Endpoints: []string{"127.0.0.1:1"}, Username: []byte("x"), Password: []byte(password)}
		_, err := nats.Open(c)
		var bad *driver.ConfigError
		if !errors.As(err, &bad) || bad.Part != driver.PartBasicAuth || bad.Field != "basicAuth.password" {
			t.Errorf("%s: %v", sentence, err)
			continue
		}
		for _, word := range strings.Fields(password) {
			if len(word) > 50 && strings.Contains(fmt.Sprintf("%v %+v", err, c), word) {
				t.Errorf("%s: it is in the message", sentence)
			}
		}
	}
}

func FuzzNames(f *testing.F) {
	d, err := nats.Open(driver.Config{Name: "offline", Endpoints: []string{"127.0.0.1:1"}, Username: []byte("boss"), Password: []byte("x")})
	if err != nil {
		f.Fatal(err)
	}
	f.Cleanup(func() { _ = d.Close() })
	drivertest.FuzzNames(f, d, func(schema, user string) error {
		for _, name := range []string{schema, user} {
			if strings.ContainsAny(name, ".*> \t\r\n$/\\") || len(name) > 128 || schema == "stoker_owners" {
				return fmt.Errorf("%q is more than one token of a subject", name)
			}
		}
		u, err := url.Parse("nats://?contextFile=/certs/nats.json&bucket=" + schema + "&replicas=1&noEmbed")
		if err == nil && (u.Query().Get("bucket") != schema || u.Query().Get("contextFile") != "/certs/nats.json" || len(u.Query()) != 4) {
			err = fmt.Errorf("kine reads %s", u.Query())
		}
		return err
	})
}

func TestAnAccountThatAServerHasNotHeardOfIsWaitedFor(t *testing.T) {
	refused := fmt.Errorf("connect: %w", gonats.ErrAuthorization)
	without := fmt.Errorf("bucket: %w", &jetstream.APIError{Code: 503, ErrorCode: 10039})
	another := errors.New("another")
	lost := fmt.Errorf("bucket: %w", context.DeadlineExceeded)
	for what, of := range map[string]struct {
		ends            int // the call during which the time ends, if any
		withoutOperator bool
		answers         []error // the last one to all that come after
		calls           int
		err             error
	}{
		"its user is refused, then not":             {answers: []error{refused, refused, nil}, calls: 3},
		"it has no JetStream, then it has":          {answers: []error{without, nil}, calls: 2},
		"nobody answers about JetStream":            {answers: []error{fmt.Errorf("bucket: %w", gonats.ErrNoResponders), nil}, calls: 2},
		"a server knows no such account":            {answers: []error{&jetstream.APIError{Code: 503, ErrorCode: 10035}, nil}, calls: 2},
		"a server can't create the bucket":          {answers: []error{&jetstream.APIError{Code: 500, ErrorCode: 10049}, nil}, calls: 2},
		"an answer is lost":                         {answers: []error{lost, nil}, calls: 2},
		"refused, then without JetStream":           {answers: []error{refused, without, nil}, calls: 3},
		"it is never heard of":                      {answers: []error{without}, calls: 6, err: without},
		"something else":                            {answers: []error{refused, another}, calls: 2, err: another},
		"the time ends":                             {answers: []error{refused}, ends: 1, calls: 1, err: refused},
		"the time ends, and that is said last":      {answers: []error{without, lost}, ends: 2, calls: 2, err: without},
		"it is heard of as the time ends":           {answers: []error{without, nil}, ends: 2, calls: 2},
		"without an operator nobody makes accounts": {withoutOperator: true, answers: []error{without}, calls: 1, err: without},
	} {
		t.Run(what, func(t *testing.T) {
			ctx, end := context.WithCancel(t.Context())
			defer end()
			calls := 0
			answer := func() error {
				if calls++; calls == of.ends {
					end()
				}
				return of.answers[min(calls, len(of.answers))-1]
			}
			if err := nats.Heard(ctx, !of.withoutOperator, answer); !errors.Is(err, of.err) || calls != of.calls {
				t.Errorf("%d calls, not %d: %v", calls, of.calls, err)
			}
		})
	}
}

// A server that is to keep a bucket refuses it, or drops the question, while it has not heard of the account: it is asked again.
func TestABucketIsMadeThoughAServerHadNotHeardOfTheAccount(t *testing.T) {
	t.Parallel()
	server := natsserver.Start(t, natsserver.Options{})
	for name, unheard := range map[string]func(context.Context) error{
		"refused": func(context.Context) error { return &jetstream.APIError{Code: 503, ErrorCode: 10039} },
		"nobody":  func(context.Context) error { return gonats.ErrNoResponders },
		"dropped": func(ctx context.Context) error { <-ctx.Done(); return ctx.Err() },
	} {
		t.Run(name, func(t *testing.T) {
			d := open(t, server.Config(t))
			check(t, d.Check(t.Context()))
			changes := 0
			nats.SetHeld(d, func(ctx context.Context) error {
				if changes++; changes == 3 { // after its owner and its account, its bucket
					return unheard(ctx)
				}
				return nil
			})
			changed, err := d.Provision(t.Context(), account(name))
			check(t, err)
			if changes != 4 || !slices.Contains(changed, "bucket made") {
				t.Errorf("%d changes began, and it changed %q", changes, changed)
			}
		})
	}
}
