package nats

import (
	"context"
	"errors"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/stoker-k8s/stoker/services/datastore/driver"
	"github.com/stoker-k8s/stoker/services/datastore/driver/internal/limit"
	"github.com/stoker-k8s/stoker/services/datastore/driver/internal/step"
)

// Claim takes schema and user for the account's owner.
func (s *server) Claim(ctx context.Context, a driver.Account) error {
	if err := s.validate(a); err != nil {
		return err
	}
	return s.do(ctx, func(ctx context.Context, p place) error {
		_, err := s.claim(ctx, p, a)
		return err
	})
}

// PassOn puts another owner on record, for all that an account has or for nothing.
func (s *server) PassOn(ctx context.Context, a driver.Account, to string) error {
	if err := s.validate(a); err != nil {
		return err
	}
	return s.do(ctx, func(ctx context.Context, p place) error {
		for {
			have, err := s.read(ctx, p, a)
			if err != nil {
				return err
			}
			needed, err := have.owners().PassOn(a, to)
			if err != nil || !needed {
				return err
			}
			next := a
			next.Owner = to
			steps := step.New(ctx, s.held)
			if take(steps, p, next, s.all(have)); !errors.Is(steps.Err(), errRaced) {
				return steps.Err()
			}
		}
	})
}

// do calls f with the administrator's place, again with a new one when the records were gone.
func (s *server) do(parent context.Context, f func(context.Context, place) error) error {
	call := func() error {
		ctx, cancel := context.WithTimeout(parent, limit.Step)
		defer cancel()
		p, err := s.at(ctx)
		if err != nil {
			return err
		}
		err = f(ctx, p)
		if errors.Is(err, errNoRecords) {
			s.forget(p)
		}
		return err
	}
	return s.gate.Do(parent, func() error {
		err := call()
		if errors.Is(err, errNoRecords) {
			err = call()
		}
		return err
	})
}

// Provision takes the account for its owner, then makes NATS' account and the bucket what they should be. When all is
// right, that is three questions, and a connection to the account to ask for its bucket.
func (s *server) Provision(ctx context.Context, a driver.Account) (changed []string, err error) {
	if err := s.validate(a); err != nil {
		return nil, err
	}
	err = s.do(ctx, func(ctx context.Context, p place) error {
		claimed, err := s.claim(ctx, p, a)
		if changed = claimed; err != nil {
			return err
		}
		done := func(what []string, err error) error {
			changed = append(changed, what...)
			return err
		}
		if s.login.operator == nil {
			return done(s.bucket(ctx, p.js, a, p.replicas))
		}
		if err := done(s.account(ctx, p, a)); err != nil {
			return err
		}
		return s.inAccount(ctx, a.Schema, answerTimeout, func(ctx context.Context, js jetstream.JetStream) error {
			return done(s.bucket(ctx, js, a, p.replicas))
		})
	})
	return changed, err
}

// account makes the tenant's account what it must be.
func (s *server) account(ctx context.Context, p place, a driver.Account) (changed []string, err error) {
	have, err := p.account(ctx, accountOf(a.Schema))
	if err != nil {
		return nil, err
	}
	want, err := s.login.operator.claimsFor(a, have, s.now())
	if err != nil {
		return nil, err
	}
	token, err := s.login.operator.change(have, want)
	if err != nil || token == "" {
		return nil, err
	}
	what := "account made"
	if have != nil {
		what = "account set"
	}
	steps := step.New(ctx, s.held)
	steps.Do(what, func(ctx context.Context) error { return p.push(ctx, token) })
	return steps.Changed(), steps.Err()
}

// bucket makes the tenant's bucket what it must be.
func (s *server) bucket(ctx context.Context, js jetstream.JetStream, a driver.Account, replicas int) (changed []string, err error) {
	have, err := bucketIn(ctx, js, a.Schema)
	if err != nil {
		return nil, err
	}
	steps := step.New(ctx, s.held)
	mend(steps.Do, js, have, streamFor(a, replicas))
	if err = steps.Err(); err == nil && a.ReadOnly {
		err = settle(ctx, js, a.Schema)
	}
	return steps.Changed(), err
}

// inAccount calls f in an account as its administrator; again when a server has not heard of the account yet. f has no longer than
// patience each time.
func (s *server) inAccount(
	ctx context.Context, name string, patience time.Duration, f func(context.Context, jetstream.JetStream) error,
) error {
	l, err := s.login.operator.administrator(name)
	if err != nil {
		return err
	}
	return s.heard(ctx, func() error {
		nc, err := s.connect(ctx, l)
		if err != nil {
			return err
		}
		defer nc.Close()
		js, err := jetstream.New(nc)
		if err != nil {
			return err
		}
		asking, cancel := context.WithTimeout(ctx, patience)
		defer cancel()
		return f(asking, js)
	})
}

// Drop closes the account to the tenant's user and throws him out, so that a process of the tenant that still runs
// somewhere can't write again what is being deleted, then deletes the bucket and the account; if they are the owner's.
// Until all is gone the record keeps others away.
func (s *server) Drop(ctx context.Context, a driver.Account) (driver.Removed, error) {
	removed := driver.Removed{}
	if err := s.validate(a); err != nil {
		return removed, err
	}
	parent := ctx
	err := s.do(ctx, func(ctx context.Context, p place) error {
		have, err := s.claimLeft(ctx, p, a)
		if err != nil {
			return err
		}
		// Each step has its own time, for buckets may be large.
		steps := step.New(parent, s.held)
		do := func(what string, change func(context.Context) error) {
			steps.Do(what, func(ctx context.Context) error {
				ctx, cancel := context.WithTimeout(ctx, slowTimeout)
				defer cancel()
				return change(ctx)
			})
		}
		switch {
		case !have.schema.Is(a):
		case s.login.operator != nil:
			s.dropAccount(do, p, a, removed)
		default:
			do("delete the bucket", func(ctx context.Context) error {
				err := p.js.DeleteStream(ctx, streamOf(a.Schema))
				return count(removed, "Bucket", 1, err)
			})
		}
		if have.schema.Is(a) || have.user.Is(a) || have.only.Is(a) {
			do("delete the owner", func(ctx context.Context) error { return s.release(ctx, p, a, have, removed) })
		}
		return steps.Err()
	})
	return removed, err
}

// dropAccount removes NATS' account and all in it. Without one there may be data all the same, if somebody removed just
// the account: that is made again for a moment.
func (s *server) dropAccount(do func(what string, change func(context.Context) error), p place, a driver.Account, removed driver.Removed) {
	o, id := s.login.operator, accountOf(a.Schema)
	there := 0
	do("close the account", func(ctx context.Context) error {
		have, err := p.account(ctx, id)
		if err != nil {
			return err
		}
		closed, err := o.claimsOf(a.Schema)
		if err != nil {
			return err
		}
		token, err := o.change(have, closed)
		if err == nil && token != "" {
			err = p.push(ctx, token)
		}
		if err == nil && have != nil {
			there = 1
			if len(have.SigningKeys) > len(closed.SigningKeys) {
				removed["User"]++
			}
		}
		return err
	})
	do("delete the bucket", func(ctx context.Context) error {
		return s.inAccount(ctx, a.Schema, slowTimeout, func(ctx context.Context, js jetstream.JetStream) error {
			n, err := empty(ctx, js)
			return count(removed, "Bucket", n, err)
		})
	})
	do("delete the account", func(ctx context.Context) error {
		return count(removed, "Account", there, p.remove(ctx, o, id))
	})
}

// count notes things of a kind as removed, unless they were not there.
func count(removed driver.Removed, kind string, n int, err error) error {
	if errors.Is(err, jetstream.ErrStreamNotFound) {
		return nil
	}
	if n > 0 && err == nil {
		removed[kind] += n
	}
	return err
}
