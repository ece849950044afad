package nats

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"sync"
	"time"
	"unicode/utf8"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	kineserver "github.com/k3s-io/kine/pkg/server"

	"github.com/stoker-k8s/stoker/services/datastore/driver"
	"github.com/stoker-k8s/stoker/services/datastore/driver/internal/authority"
	"github.com/stoker-k8s/stoker/services/datastore/driver/internal/data"
	"github.com/stoker-k8s/stoker/services/datastore/driver/internal/limit"
)

var _ driver.DataAccess = (*server)(nil)

// tenant reads and writes the bucket of one, in kine's form and by the rights that its kine has. No kine runs for that, as one does for SQL
// databases: kine v0.16.4 keeps an index of the whole bucket in memory, which it looks keys up in while it changes it, leaves keys out
// of an export that were written ten times meanwhile, and panics when a server is lost in the moment in which it starts.
type tenant struct {
	s       *server
	account driver.Account
	access  driver.Access
	nc      *nats.Conn
	js      jetstream.JetStream
	bucket  jetstream.Stream

	compressors sync.Pool // of *s2.Writer
}

var _ driver.Data = (*tenant)(nil)

// Data connects as the kine beside the tenant's API server does.
func (s *server) Data(ctx context.Context, a driver.Account, access driver.Access) (driver.Data, error) {
	t, err := s.data(ctx, a, access)
	if err != nil {
		return nil, err
	}
	return t, nil
}

func (s *server) data(ctx context.Context, a driver.Account, access driver.Access) (*tenant, error) {
	if err := s.Validate(a); err != nil {
		return nil, err
	}
	// It is told soon when the servers are away.
	if err := s.Check(ctx); err != nil {
		return nil, err
	}
	t := &tenant{s: s, account: a, access: access}
	opening, cancel := context.WithTimeout(ctx, 2*limit.Step)
	defer cancel()
	err := s.heard(opening, func() error { return t.open(opening) })
	if err != nil {
		_ = t.Close()
		return nil, t.failed(ctx, "open the tenant's data", err)
	}
	return t, nil
}

// open connects, for as long as t is open: like kine's, its requests wait for a server that restarts.
func (t *tenant) open(ctx context.Context) (err error) {
	if t.nc == nil {
		t.nc, err = t.enter(ctx, func(o *nats.Options) error {
			o.AllowReconnect, o.MaxReconnect = true, -1
			return nil
		})
		if err != nil {
			return err
		}
	}
	if t.js, err = jetstream.New(t.nc); err != nil {
		return err
	}
	t.bucket, err = t.js.Stream(ctx, streamOf(t.account.Schema))
	return err
}

// enter connects as the tenant's kine does.
func (t *tenant) enter(ctx context.Context, more ...nats.Option) (*nats.Conn, error) {
	var c natsContext
	if err := json.Unmarshal(t.access.Credentials, &c); err != nil {
		return nil, errors.New("the access holds no credentials of NATS")
	}
	own := driver.Config{CA: t.access.CA, ClientCert: t.access.Cert, ClientKey: t.access.Key}
	ca, err := authority.New(own)
	if err != nil {
		return nil, err
	}
	config, _, err := ca.TLS(own)
	if err != nil {
		return nil, err
	}
	if config != nil {
		more = append(more, nats.Secure(config))
	}
	return t.s.connect(ctx, login{user: c.User, password: c.Password, token: c.Token, seed: c.Seed}, more...)
}

// messages begins to read the bucket's stream.
func (t *tenant) messages(ctx context.Context, nc *nats.Conn, c jetstream.OrderedConsumerConfig) (jetstream.MessagesContext, error) {
	js, err := jetstream.New(nc)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, limit.Step)
	defer cancel()
	consumer, err := ordered(ctx, js, t.account.Schema, c)
	if err != nil {
		return nil, err
	}
	return consumer.Messages()
}

// ordered makes a consumer of a bucket that is gone soon after it is read no more, and ends with an error when it can't be made anew: unless
// it is told how often to try, it tries for ever (nats.go: orderedSubscription.reset), and asks no context.
func ordered(ctx context.Context, js jetstream.JetStream, schema string, c jetstream.OrderedConsumerConfig) (jetstream.Consumer, error) {
	c.MaxResetAttempts, c.InactiveThreshold = 2, 30*time.Second
	return js.OrderedConsumer(ctx, streamOf(schema), c)
}

// Close ends all connections.
func (t *tenant) Close() error {
	if t.nc != nil {
		t.nc.Close()
	}
	return nil
}

// failed says what failed, and whether the servers are away.
func (t *tenant) failed(ctx context.Context, what string, err error) error {
	return data.Failed(ctx, what, err, func(_ context.Context, err error) error { return classify(err) })
}

// fits refuses what isn't text to kine, which keeps a key within JSON.
func fits(key string) error {
	if !utf8.ValidString(key) {
		return errors.New("kine's keys in NATS are UTF-8; delete or rename the object in the source")
	}
	return nil
}

// Revision is a new one.
func (t *tenant) Revision(ctx context.Context) (int64, error) { return t.Mark(ctx) }

// Mark writes kine's own key and returns its revision, which then shows in the stream.
func (t *tenant) Mark(ctx context.Context) (int64, error) {
	key := kinePrefix + driver.HealthKey
	revision, err := data.Step(ctx, func(ctx context.Context) (uint64, error) {
		for {
			have, err := t.last(ctx, key)
			if err != nil {
				return 0, err
			}
			revision, err := t.write(ctx, key, driver.Change{Value: []byte(kineserver.HealthVal)}, have)
			if !conflicts(err) { // somebody else wrote it as well
				return revision, err
			}
		}
	})
	return int64(revision), t.failed(ctx, "ask for the revision", err)
}

// Last is the last revision as the leader of the bucket's stream knows it.
func (t *tenant) Last(ctx context.Context) (int64, error) {
	info, err := data.Step(ctx, t.info)
	if err != nil {
		return 0, t.failed(ctx, "ask for the last revision", err)
	}
	return int64(info.State.LastSeq), nil
}

func (t *tenant) info(ctx context.Context) (*jetstream.StreamInfo, error) { return t.bucket.Info(ctx) }

// writers is how many keys of an import are written at once. More gain nothing.
const writers = 16

// Import hands each key's changes to one writer, which writes them in their order.
func (t *tenant) Import(ctx context.Context, changes iter.Seq2[driver.Change, error]) error {
	return data.Each(ctx, changes, writers, t.put, t.failed)
}

// put writes or deletes a key, unless it is so already. Whoever else wrote it is overwritten.
func (t *tenant) put(ctx context.Context, c driver.Change) error {
	if c.Key == driver.HealthKey {
		return nil
	}
	if err := fits(c.Key); err != nil {
		return &driver.KeyError{Key: c.Key, Err: err}
	}
	key, have := kinePrefix+c.Key, last{}
	for read := c.Deleted; ; read = true {
		if read {
			var err error
			if have, err = data.Step(ctx, func(ctx context.Context) (last, error) { return t.last(ctx, key) }); err != nil {
				return err
			}
			if have.is(c) {
				return t.finish(ctx, key, have)
			}
		}
		_, err := data.Step(ctx, func(ctx context.Context) (uint64, error) { return t.write(ctx, key, c, have) })
		if errors.Is(err, nats.ErrMaxPayload) {
			return &driver.KeyError{Key: c.Key, Err: fmt.Errorf("has %d bytes, and max_payload of the NATS is %d: raise that, or delete the object in the source",
				len(c.Value), t.nc.MaxPayload())}
		}
		if !conflicts(err) {
			return err
		}
	}
}

// Clear deletes what there is, again until there is nothing.
func (t *tenant) Clear(ctx context.Context) error {
	for {
		at, err := t.Revision(ctx)
		if err != nil {
			return err
		}
		n := 0
		err = data.Each(ctx, func(yield func(driver.Change, error) bool) {
			for c, err := range t.Export(ctx, at) {
				n++
				if !yield(driver.Change{Key: c.Key, Deleted: true}, err) {
					return
				}
			}
		}, writers, t.put, t.failed)
		if err != nil || n == 0 {
			return err
		}
	}
}
