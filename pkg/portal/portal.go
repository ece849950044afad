// Package portal is for programs that order tenants. It publishes commands, hands back what intake answers, and follows a
// tenant's status.
//
// It does with NATS what a portal may (`stoker portal add`) and no more: it publishes on stoker.intake, listens on stoker.status and
// stoker.answer, asks on stoker.plan and stoker.join, and reads the last status of a tenant. A lost connection comes back by itself; what was
// asked for meanwhile is asked again.
package portal

import (
	"cmp"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// DefaultSource is what commands come from when nothing else is said.
const DefaultSource = "/portal"

// Config says how to reach NATS and as whom. For what it doesn't cover, connect yourself and use New.
type Config struct {
	// URL of the servers, comma-separated. Default: nats://127.0.0.1:4222.
	URL string
	// Source says who sends the commands, a URI reference. A command is known by its source and id, so that two portals need
	// two sources. Default: DefaultSource.
	Source string
	// SeedFile holds an nkey seed, CredsFile a JWT with its seed; at most one of them.
	SeedFile, CredsFile string
	// CAFile verifies the servers' certificate, when not signed by a CA of the system.
	CAFile string
}

// Client sends commands and follows statuses. It is safe for concurrent use; commands for one object are carried out in the
// order in which their methods were called if one returned before the next was called.
type Client struct {
	nc     *nats.Conn
	js     jetstream.JetStream
	source string
	// patience is how long an answer is waited for before the command is sent again.
	patience time.Duration
}

// requestTimeout bounds every single question to NATS.
const requestTimeout = 3 * time.Second

// Connect connects to NATS. It fails when no server answers or takes the credentials; a connection that was made is kept
// through any outage. Close the client.
func Connect(cfg Config) (*Client, error) {
	source := cmp.Or(cfg.Source, DefaultSource)
	options := []nats.Option{
		nats.Name("portal " + source),
		nats.MaxReconnects(-1),
		nats.ReconnectWait(250 * time.Millisecond), nats.ReconnectJitter(250*time.Millisecond, time.Second),
		nats.PingInterval(10 * time.Second), nats.MaxPingsOutstanding(2),
		// Else the second refusal in a row, as by a server that has not read its users yet, is the end of the connection.
		nats.IgnoreAuthErrorAbort(),
		// Nothing is buffered while away: what could not be published is published again, by the method that waits for it.
		nats.ReconnectBufSize(-1),
		// What is refused is found with the request that it fails; the default prints to standard error.
		nats.ErrorHandler(func(*nats.Conn, *nats.Subscription, error) {}),
	}
	if cfg.SeedFile != "" && cfg.CredsFile != "" {
		return nil, errors.New("Config.SeedFile and Config.CredsFile are both set; a user has one of them")
	}
	if cfg.SeedFile != "" {
		nkey, err := nats.NkeyOptionFromSeed(cfg.SeedFile)
		if err != nil {
			return nil, fmt.Errorf("nkey seed in %s: %w", cfg.SeedFile, err)
		}
		options = append(options, nkey)
	}
	if cfg.CredsFile != "" {
		options = append(options, nats.UserCredentials(cfg.CredsFile))
	}
	if cfg.CAFile != "" {
		options = append(options, nats.RootCAs(cfg.CAFile))
	}
	url := cmp.Or(cfg.URL, nats.DefaultURL)
	nc, err := nats.Connect(url, options...)
	if err != nil {
		return nil, fmt.Errorf("nats %s: %w", url, err)
	}
	c, err := New(nc, source)
	if err != nil {
		nc.Close()
	}
	return c, err
}

// New makes a client of a connection, for all that Config can't say (NATS contexts, client certificates, websockets). The
// connection should reconnect without end (nats.MaxReconnects(-1)). source as in Config.
func New(nc *nats.Conn, source string) (*Client, error) {
	js, err := jetstream.New(nc, jetstream.WithDefaultTimeout(requestTimeout))
	if err != nil {
		return nil, err
	}
	return &Client{nc: nc, js: js, source: cmp.Or(source, DefaultSource), patience: firstRepeat}, nil
}

// Close ends the connection, also one that New was given.
func (c *Client) Close() { c.nc.Close() }

// reconnects returns a channel that gets something whenever the connection came back, and a function that ends this.
func (c *Client) reconnects() (<-chan nats.Status, func()) {
	ch := c.nc.StatusChanged(nats.CONNECTED)
	return ch, func() { c.nc.RemoveStatusListener(ch) }
}

// denied makes an error of NATS' refusal to let this user use a subject, or inboxes: the server doesn't answer what it
// refuses, it only says so beside.
func (c *Client) denied(subject string) error {
	err := c.nc.LastError()
	if !errors.Is(err, nats.ErrPermissionViolation) {
		return nil
	}
	said := strings.ToLower(err.Error()) // as the client library gives it, anyway
	inboxes := strings.TrimSuffix(cmp.Or(c.nc.Opts.InboxPrefix, nats.InboxPrefix), ".") + "."
	for _, used := range []string{subject + `"`, inboxes} {
		if strings.Contains(said, `"`+strings.ToLower(used)) {
			return &DeniedError{Subject: strings.TrimSuffix(used, `"`), Err: err}
		}
	}
	return nil
}
