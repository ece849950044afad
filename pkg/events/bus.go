package events

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	ce "github.com/cloudevents/sdk-go/v2/event"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/nats-io/nkeys"

	"github.com/stoker-k8s/stoker/pkg/api/event"
	"github.com/stoker-k8s/stoker/pkg/api/name"
	"github.com/stoker-k8s/stoker/pkg/api/reason"
	"github.com/stoker-k8s/stoker/pkg/api/state"
	"github.com/stoker-k8s/stoker/pkg/fence"
	"github.com/stoker-k8s/stoker/pkg/health"
	"github.com/stoker-k8s/stoker/pkg/intent"
)

// RequestTimeout bounds every single question to NATS, unless [Config.RequestTimeout] does.
const RequestTimeout = 3 * time.Second

// Config says how to reach NATS and as whom.
type Config struct {
	// URL of the servers, comma-separated.
	URL string
	// User is the NATS user: one of [Users], or the name of a portal. It names the connection and its inboxes.
	User string
	// SeedFile holds the user's nkey seed (NATS nkeys); empty for a server without authentication.
	SeedFile string
	// CAFile verifies the server's TLS certificate, when not signed by a CA of the system.
	CAFile string
	// Replica names this process among its like, unique and stable over restarts (a pod's or host's name).
	Replica string
	// StreamReplicas is how many servers hold each stream; 1, 3 or 5.
	StreamReplicas int
	// RequestTimeout bounds every single question to NATS. Zero means [RequestTimeout], and 2 s for a question about a state. An attempt
	// to connect may take as long, and 2 s in any case.
	RequestTimeout time.Duration
	// Log and Health may be nil.
	Log    *slog.Logger
	Health *health.Health
}

// Bus is a connection to NATS with Stoker's rules on it. It is safe for concurrent use.
type Bus struct {
	cfg    Config
	nc     *nats.Conn
	js     jetstream.JetStream
	log    *slog.Logger
	health *health.Health
	counts counts
}

// Connect opens a connection that survives any outage of the servers. While they are away at the start it returns at once
// all the same and goes on trying; Config.Health tells.
func Connect(cfg Config) (*Bus, error) {
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.DiscardHandler)
	}
	if cfg.Health == nil {
		cfg.Health = health.New(cfg.Log)
	}
	b := &Bus{cfg: cfg, log: cfg.Log, health: cfg.Health}
	options, err := b.options()
	if err != nil {
		return nil, err
	}
	nc, err := nats.Connect(cfg.URL, options...)
	if err != nil {
		return nil, fmt.Errorf("nats %s: %w", cfg.URL, err)
	}
	if !nc.IsConnected() {
		b.health.Down(Dependency, fmt.Errorf("no server answers at %s", cfg.URL))
	}
	js, err := jetstream.New(nc, jetstream.WithDefaultTimeout(b.requestTimeout()))
	if err != nil {
		nc.Close()
		return nil, err
	}
	b.nc, b.js = nc, js
	return b, nil
}

// requestTimeout bounds one question to NATS.
func (b *Bus) requestTimeout() time.Duration { return cmp.Or(b.cfg.RequestTimeout, RequestTimeout) }

// stateTimeout bounds one question about a state. A question asked while the connection broke is never answered, so it
// is short; the lane asks again.
func (b *Bus) stateTimeout() time.Duration { return cmp.Or(b.cfg.RequestTimeout, stateTimeout) }

// options of the connection. They have it survive any outage and buffer nothing.
func (b *Bus) options() ([]nats.Option, error) {
	options := []nats.Option{
		nats.Name("stoker-" + b.cfg.User),
		nats.MaxReconnects(-1),
		nats.ReconnectWait(250 * time.Millisecond), nats.ReconnectJitter(250*time.Millisecond, time.Second),
		nats.RetryOnFailedConnect(true),
		nats.Timeout(max(nats.DefaultTimeout, b.cfg.RequestTimeout)),
		nats.PingInterval(b.pingInterval()), nats.MaxPingsOutstanding(2),
		// Else the second refusal in a row, as by a server that has not read its users yet, is the end of the connection.
		nats.IgnoreAuthErrorAbort(),
		// Nothing is buffered while away: what could not be published is done again by whoever holds the tenant then.
		nats.ReconnectBufSize(-1),
		nats.ConnectHandler(func(*nats.Conn) { b.health.Up(Dependency) }),
		nats.ReconnectHandler(func(*nats.Conn) { b.health.Up(Dependency) }),
		nats.DisconnectErrHandler(func(nc *nats.Conn, err error) {
			if nc.IsClosed() {
				return
			}
			b.counts.disconnects.Add(1)
			if err == nil {
				err = errors.New("disconnected")
			}
			b.health.Down(Dependency, err)
		}),
		nats.ErrorHandler(func(_ *nats.Conn, _ *nats.Subscription, err error) {
			b.counts.noteError(err)
			b.log.Error("nats refused", "error", err)
		}),
	}
	if slices.Contains(Users(), b.cfg.User) && b.cfg.User != UserSystem {
		options = append(options, nats.CustomInboxPrefix("_INBOX_"+b.cfg.User))
	}
	if b.cfg.SeedFile != "" {
		nkey, err := nkeyFrom(b.cfg.SeedFile)
		if err != nil {
			return nil, fmt.Errorf("nkey seed of user %s in %s: %w", b.cfg.User, b.cfg.SeedFile, err)
		}
		options = append(options, nkey)
	}
	if b.cfg.CAFile != "" {
		options = append(options, nats.RootCAs(b.cfg.CAFile))
	}
	return options, nil
}

// nkeyFrom is the nkey whose seed a file has, read once: while nkeys are changed the file has another one, and that of before counts as
// long as this process runs.
func nkeyFrom(file string) (nats.Option, error) {
	seed, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	pair, err := nkeys.ParseDecoratedNKey(seed)
	if err != nil {
		return nil, err
	}
	public, err := pair.PublicKey()
	if err != nil {
		return nil, err
	}
	return nats.Nkey(public, pair.Sign), nil
}

// pingInterval is long for services, whose signs of life find out what pings would ([Bus.LeaveSilentServer]).
func (b *Bus) pingInterval() time.Duration {
	if slices.Contains(name.Services(), b.cfg.User) {
		return 30 * time.Second
	}
	return 10 * time.Second
}

// LeaveSilentServer looks whether the server that the connection is to still answers; if it doesn't until ctx ends, it has the
// connection go to another one at once and returns true. A server that is stopped, or that the network lost, keeps its connections, and
// pings alone find that out after more than a minute.
func (b *Bus) LeaveSilentServer(ctx context.Context) bool {
	silent := b.nc.Status() == nats.CONNECTED
	if silent {
		err := b.nc.FlushWithContext(ctx)
		silent = errors.Is(err, context.DeadlineExceeded)
	}
	if silent {
		b.log.Warn("the NATS server is silent, going to another one", "server", b.nc.ConnectedServerName())
		_ = b.nc.ForceReconnect() // else it is closed
	}
	return silent
}

// Close ends the connection.
func (b *Bus) Close() { b.nc.Close() }

// JetStream is the JetStream context of the connection.
func (b *Bus) JetStream() jetstream.JetStream { return b.js }

// Conn is the connection itself, for subscriptions and micro endpoints.
func (b *Bus) Conn() *nats.Conn { return b.nc }

// Config is what the connection was made with; Log and Health are set.
func (b *Bus) Config() Config { return b.cfg }

// Provision brings streams, consumers and the buckets that are no tenant's to what they should be.
func (b *Bus) Provision(ctx context.Context) error {
	return Provision(ctx, b.js, b.cfg.StreamReplicas)
}

// Publish stores an event on its stream and waits for the server's word. A repeat of an id is dropped by the server and
// is no error; duplicate tells.
func (b *Bus) Publish(ctx context.Context, subject string, e ce.Event) (duplicate bool, err error) {
	if len(e.Data()) > MaxPayload {
		return false, &intent.Permanent{Reason: reason.TooLarge, Message: fmt.Sprintf("data of event %s has %d bytes, more than %d", e.ID(), len(e.Data()), MaxPayload)}
	}
	return b.PublishMsg(ctx, Encode(subject, e))
}

// PublishMsg is Publish for a message as it is.
func (b *Bus) PublishMsg(ctx context.Context, msg *nats.Msg) (duplicate bool, err error) {
	if err := fence.Check(ctx); err != nil {
		return false, err
	}
	ask, cancel := context.WithTimeout(ctx, b.stateTimeout())
	defer cancel()
	ack, err := b.publish(ask, msg)
	if err != nil {
		return false, classifyRequest(ctx, fmt.Errorf("publish %s: %w", msg.Subject, err))
	}
	return ack.Duplicate, nil
}

// PublishFirst is Publish for a subject that has no message: if it has one, nothing is stored, which is no error.
func (b *Bus) PublishFirst(ctx context.Context, subject string, e ce.Event) (stored bool, err error) {
	ask, cancel := context.WithTimeout(ctx, b.stateTimeout())
	defer cancel()
	if err := fence.Check(ctx); err != nil {
		return false, err
	}
	ack, err := b.publish(ask, Encode(subject, e), jetstream.WithExpectLastSequencePerSubject(0))
	switch {
	case isWrongLast(err):
		return false, nil
	case err != nil:
		return false, classifyRequest(ctx, fmt.Errorf("publish %s: %w", subject, err))
	}
	return !ack.Duplicate, nil
}

// Unpin lifts the pin of a consumer, so that the next replica to ask is served.
func (b *Bus) Unpin(ctx context.Context, stream, consumer string) error {
	_, err := b.nc.RequestWithContext(ctx, "$JS.API.CONSUMER.UNPIN."+stream+"."+consumer, []byte(`{"group":"`+PriorityGroup+`"}`))
	return err
}

// AwaitRequestsSeen waits until the server has looked at the requests for events that this connection sent a consumer before. An inbox
// must not go earlier: server 2.15.2 doesn't see then, between accounts, that nobody listens any more, and delivers to nobody until the
// request expires.
func (b *Bus) AwaitRequestsSeen(ctx context.Context, stream, consumer string) error {
	// What is no request is refused in its turn, after those before it.
	_, err := b.nc.RequestWithContext(ctx, nextSubject(stream, consumer), []byte("{"))
	return err
}

// nextSubject is where a consumer is asked for events.
func nextSubject(stream, consumer string) string {
	return "$JS.API.CONSUMER.MSG.NEXT." + stream + "." + consumer
}

// NewEvent makes an event about an object, as the connection's user tells it.
func (b *Bus) NewEvent(key Key, id, typ string, data any, at time.Time) ce.Event {
	e := ce.New()
	e.SetID(id)
	e.SetSource("/stoker/" + b.cfg.User)
	e.SetType(typ)
	e.SetSubject(key.String())
	e.SetTime(at.UTC())
	e.SetDataSchema(event.SchemaURI(typ))
	e.SetDataContentType(jsonMedia)
	e.DataEncoded = event.Marshal(data)
	return e
}

// FactEvent makes the CloudEvent of a fact that a state announces. trace is the W3C trace context, empty for none.
func (b *Bus) FactEvent(key Key, generation int64, trace string, f state.Fact) ce.Event {
	e := b.NewEvent(key, f.ID, event.FactType(b.cfg.User, f.What), f.Data, f.Time)
	e.SetExtension(ExtSequence, strconv.FormatInt(generation, 10))
	if trace != "" {
		e.SetExtension(ExtTraceParent, trace)
	}
	return e
}

// LastFact reads the last fact on a subject, nil when there is none that is a CloudEvent. Its time is zero when it says none.
func (b *Bus) LastFact(ctx context.Context, subject string) (*ce.Event, error) {
	ctx, cancel := context.WithTimeout(ctx, b.stateTimeout())
	defer cancel()
	msg, err := b.nc.RequestWithContext(ctx, "$JS.API.DIRECT.GET."+StreamFacts+"."+subject, nil)
	switch {
	case errors.Is(err, context.DeadlineExceeded):
		return nil, &intent.Unavailable{Dependency: Dependency, Err: err}
	case err != nil:
		return nil, Classify(err)
	case msg.Header.Get("Status") == "404":
		return nil, nil
	}
	e, err := Decode(msg.Header, msg.Data)
	if err != nil {
		return nil, nil
	}
	return &e, nil
}

// SetTimer has the server publish the fact <service>.due of the connection's service at a time, in place of an earlier timer
// of that service about the object. Whole seconds, and never before its time. The server keeps it; it outlives every replica.
func (b *Bus) SetTimer(ctx context.Context, key Key, due ce.Event, at time.Time) error {
	return b.TellAt(ctx, key, event.Due, due, at)
}

// TellAt is [Bus.SetTimer] for another fact of the connection's service.
func (b *Bus) TellAt(ctx context.Context, key Key, what string, fact ce.Event, at time.Time) error {
	service := b.cfg.User
	msg := Encode(key.TimerSubject(service, what), fact)
	// A timer replaces the one before, so that a repeat is harmless; by its id the server would drop a timer that is set again.
	msg.Header.Del(nats.MsgIdHdr)
	msg.Header.Set("Nats-Schedule", "@at "+at.UTC().Add(time.Second-1).Format(time.RFC3339))
	msg.Header.Set("Nats-Schedule-Target", key.FactSubject(service, what))
	_, err := b.PublishMsg(ctx, msg)
	return err
}

// Tell publishes a fact that is not written with a state. The id makes repeats harmless.
func (b *Bus) Tell(ctx context.Context, key Key, generation int64, id, what string, data any) error {
	f := state.Fact{ID: id, What: what, Time: time.Now(), Data: event.Marshal(data)}
	_, err := b.Publish(ctx, key.FactSubject(b.cfg.User, what), b.FactEvent(key, generation, "", f))
	return err
}

// Answer tells the sender of a command what became of it, on the subject it named. Nobody may be listening any more, so it
// is sent once and not waited for. *[intent.Permanent] when that is no subject for answers about the object ([Key.IsAnswer]): the
// sender has no say in what this user publishes elsewhere.
func (b *Bus) Answer(subject string, key Key, id, what string, data any) error {
	if !key.IsAnswer(subject) {
		message := fmt.Sprintf("the answer can't be sent to %q, which is not %s", Clip(subject), key.AnswerSubject("<token>"))
		return &intent.Permanent{Reason: reason.InvalidInbox, Message: message}
	}
	return b.nc.PublishMsg(Encode(subject, b.NewEvent(key, id, event.FactType(b.cfg.User, what), data, time.Now())))
}

// CreateBucket makes the tenant's bucket; it is no error when it is there.
func (b *Bus) CreateBucket(ctx context.Context, key Key) error {
	if err := fence.Check(ctx); err != nil {
		return err
	}
	return b.createBucket(ctx, key)
}

// Forget removes what NATS holds for a tenant beside the history: its timers, then its bucket. Without the bucket nobody would know that
// timers are left, should the process end in between.
func (b *Bus) Forget(ctx context.Context, key Key) error {
	if err := fence.Check(ctx); err != nil {
		return err
	}
	if err := b.purgeTimers(ctx, key); err != nil {
		return err
	}
	return b.deleteBucket(ctx, key)
}

func (b *Bus) purgeTimers(ctx context.Context, key Key) error {
	ask, cancel := context.WithTimeout(ctx, b.requestTimeout())
	defer cancel()
	s, err := b.js.Stream(ask, StreamFacts)
	if err != nil {
		return classifyRequest(ctx, err)
	}
	return classifyRequest(ctx, s.Purge(ask, jetstream.WithPurgeSubject("stoker.timer."+key.place()+".>")))
}

// ID derives an event id from what the event is about: equal parts give equal ids, whoever computes them.
func ID(parts ...string) string {
	h := sha256.New()
	for _, p := range parts {
		fmt.Fprintf(h, "%d:%s", len(p), p)
	}
	return hex.EncodeToString(h.Sum(nil)[:16])
}

// DefaultReplica is a name for this process that survives restarts: STOKER_REPLICA or the host's name.
func DefaultReplica() string {
	if r := os.Getenv("STOKER_REPLICA"); r != "" {
		return r
	}
	h, err := os.Hostname()
	if err != nil || h == "" {
		return "replica"
	}
	return h
}

// Token makes a name fit for one token of a subject.
func Token(s string) string {
	return strings.Map(func(r rune) rune {
		if r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || r == '-' || r == '_' {
			return r
		}
		return '_'
	}, s)
}
