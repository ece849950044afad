package nats

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/nats-io/jwt/v2"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/stoker-k8s/stoker/services/datastore/driver"
)

// home is where the administrator is: connections that are kept, and made anew when they are lost.
type home struct {
	lock   chan struct{} // held by whoever makes them; guards what follows
	closed bool
	place
}

// place is an account the administrator is in.
type place struct {
	nc *nats.Conn
	js jetstream.JetStream
	// system is a connection to the system account, where accounts are made; nil without an operator.
	system *nats.Conn
	// owners holds the records.
	owners jetstream.Stream
	// replicas is how many servers keep each bucket.
	replicas int
}

func (p *place) close() {
	for _, nc := range []*nats.Conn{p.nc, p.system} {
		if nc != nil {
			nc.Close()
		}
	}
	*p = place{}
}

// connect opens a connection. Its own time-outs are not those of ctx, so that one that comes too late is closed again.
func (s *server) connect(ctx context.Context, l login, more ...nats.Option) (*nats.Conn, error) {
	type result struct {
		nc  *nats.Conn
		err error
	}
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	got := make(chan result, 1)
	go func() {
		nc, err := nats.Connect(s.url(), append(slices.Concat(s.options, more), l.option())...)
		got <- result{nc, err}
	}()
	select {
	case r := <-got:
		if r.err != nil {
			return nil, &connectError{r.err}
		}
		return r.nc, nil
	case <-ctx.Done():
		go func() {
			if r := <-got; r.nc != nil {
				r.nc.Close()
			}
		}()
		return nil, &connectError{ctx.Err()}
	}
}

// at returns the administrator's place, with what he needs there.
func (s *server) at(ctx context.Context) (place, error) {
	select {
	case s.home.lock <- struct{}{}:
		defer func() { <-s.home.lock }()
	case <-ctx.Done():
		return place{}, ctx.Err()
	}
	h := &s.home
	if h.owners != nil && h.nc.IsConnected() && (h.system == nil || h.system.IsConnected()) {
		return h.place, nil
	}
	h.close()
	if h.closed {
		return place{}, &connectError{nats.ErrConnectionClosed}
	}
	p, err := s.prepare(ctx)
	if err != nil {
		p.close()
		return place{}, err
	}
	h.place = p
	return p, nil
}

// forget has the next caller prepare the place anew, unless somebody did so since it was given out.
func (s *server) forget(p place) {
	s.home.lock <- struct{}{}
	defer func() { <-s.home.lock }()
	if s.home.nc == p.nc {
		s.home.close()
	}
}

// prepare connects, and makes the account and the bucket of the records when they aren't there.
func (s *server) prepare(ctx context.Context) (p place, err error) {
	l := s.login
	if o := s.login.operator; o != nil {
		if p.system, err = s.connect(ctx, l); err != nil {
			return p, err
		}
		// First, for servers keep what anybody signs, and only then look whom they trust.
		if err := s.obeys(ctx, p); err != nil {
			return p, err
		}
		if err := s.prepareAccount(ctx, p); err != nil {
			return p, err
		}
		if l, err = o.administrator(homeName); err != nil {
			return p, err
		}
	}
	err = s.heard(ctx, func() (err error) {
		if p.nc == nil {
			if p.nc, err = s.connect(ctx, l); err != nil {
				return err
			}
		}
		if p.js, err = jetstream.New(p.nc); err != nil {
			return err
		}
		p.owners, err = s.ownersIn(ctx, p.js)
		return err
	})
	if err == nil {
		p.replicas = p.owners.CachedInfo().Config.Replicas
		s.replicas.Store(int64(p.replicas))
	}
	return p, err
}

// prepareAccount makes the account of the records.
func (s *server) prepareAccount(ctx context.Context, p place) error {
	want, err := s.login.operator.claimsOf(homeName)
	if err != nil {
		return err
	}
	have, err := p.account(ctx, want.Subject)
	if err != nil {
		return err
	}
	token, err := s.login.operator.change(have, want)
	if err != nil || token == "" {
		return err
	}
	if err := s.held(ctx); err != nil {
		return err
	}
	return p.push(ctx, token)
}

// heard calls f again for a moment while a server of the cluster has not heard of an account that was just made or changed. A
// server that asked others too early doesn't ask again for a second (ErrAccountResolverUpdateTooSoon of nats-server).
func (s *server) heard(ctx context.Context, f func() error) error {
	const tries, pause = 6, 100 * time.Millisecond
	var said error
	for try := 1; ; try++ {
		err := f()
		if err != nil && said != nil && ctx.Err() != nil {
			return said // which tells more than that the time is over
		}
		said = err
		if s.login.operator == nil || try == tries || !unheard(err) {
			return err
		}
		select {
		case <-ctx.Done():
			return err
		case <-time.After(time.Duration(try) * pause):
		}
	}
}

// unheard reports whether an error is that of a server which has not heard of an account, or is just making it. Such a server refuses
// the account's users, or has nobody who answers them about JetStream. If it leads JetStream or is to keep a bucket, it knows no such
// account, finds no JetStream in it, can't create the bucket, or doesn't answer.
func unheard(err error) bool {
	switch codeOf(err) {
	case codeNoAccount, codeNotEnabled, codeNotCreated:
		return true
	default:
		return errors.Is(err, nats.ErrAuthorization) || errors.Is(err, nats.ErrNoResponders) || errors.Is(err, context.DeadlineExceeded)
	}
}

// Subjects of the system account.
const (
	subjectPush   = "$SYS.REQ.CLAIMS.UPDATE"
	subjectDelete = "$SYS.REQ.CLAIMS.DELETE"
	subjectDetail = "$SYS.REQ.SERVER.PING.JSZ"
)

func subjectLookup(account string) string { return "$SYS.REQ.ACCOUNT." + account + ".CLAIMS.LOOKUP" }

// token asks for the JWT of an account, empty when there is none.
func (p place) token(ctx context.Context, id string) (string, error) {
	answer, err := p.system.RequestWithContext(ctx, subjectLookup(id), nil)
	if err != nil {
		return "", asked(err)
	}
	return string(answer.Data), nil
}

// account asks what an account is, nil when there is none.
func (p place) account(ctx context.Context, id string) (*jwt.AccountClaims, error) {
	token, err := p.token(ctx, id)
	if err != nil || token == "" {
		return nil, err
	}
	claims, err := jwt.DecodeAccountClaims(token)
	if err != nil {
		return nil, fmt.Errorf("account %s: %w", id, err)
	}
	return claims, nil
}

// push tells the servers what an account is from now on.
func (p place) push(ctx context.Context, token string) error {
	return p.order(ctx, subjectPush, token)
}

// remove has the servers forget accounts, and throw out who is in.
func (p place) remove(ctx context.Context, o *operator, accounts ...string) error {
	claims := jwt.NewGenericClaims(o.public)
	claims.Data["accounts"] = append([]string{}, accounts...)
	token, err := claims.Encode(o.pair)
	if err != nil {
		return err
	}
	return p.order(ctx, subjectDelete, token)
}

// refusedError is what a server answers that doesn't obey.
type refusedError struct{ message string }

func (e *refusedError) Error() string { return e.message }

func (p place) order(ctx context.Context, subject, token string) error {
	answer, err := p.system.RequestWithContext(ctx, subject, []byte(token))
	if err != nil {
		return asked(err)
	}
	var response struct {
		Error *struct {
			Description string `json:"description"`
		} `json:"error"`
	}
	if err := json.Unmarshal(answer.Data, &response); err != nil {
		return fmt.Errorf("the server's answer on %s: %w", subject, err)
	}
	if response.Error != nil {
		return &refusedError{response.Error.Description}
	}
	return nil
}

// asked explains a server that nobody answers in.
func asked(err error) error {
	if errors.Is(err, nats.ErrNoResponders) {
		return fmt.Errorf("%w: its resolver must be of type full, and the creds in spec.basicAuth.password those of a user of the system account: %w", driver.ErrAway, err)
	}
	return err
}

// obeys asks whether the server takes orders that the operator's key has signed, by one to delete no account.
func (s *server) obeys(ctx context.Context, p place) error {
	err := p.remove(ctx, s.login.operator)
	var refused *refusedError
	if errors.As(err, &refused) {
		return fmt.Errorf("%w to its administrator: spec.basicAuth.password must hold a signing seed of the servers' operator, and their resolver have allow_delete: true: %w", driver.ErrAway, err)
	}
	return err
}
