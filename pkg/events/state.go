package events

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/stoker-k8s/stoker/pkg/api/name"
	"github.com/stoker-k8s/stoker/pkg/api/state"
)

// KeySpec is intake's key in a tenant's bucket; every other service's key is its name.
const KeySpec = "spec"

// stateTimeout bounds one question about a state. A question asked while the connection broke is never answered, so it
// is short; the lane asks again.
const stateTimeout = 2 * time.Second

// readState reads one key of a tenant's bucket. ErrNotFound when the bucket or the key isn't there. The revision is the one
// to update.
func (b *Bus) readState(ctx context.Context, key Key, of string) (*state.State, uint64, error) {
	s, revision, err := b.askState(ctx, key, of)
	if errors.Is(err, nats.ErrNoResponders) {
		// Either the bucket isn't there or JetStream isn't; only the server's word for the former counts.
		err = b.missing(ctx, key.Bucket())
	}
	if errors.Is(err, errSilent) { // it was made between the two questions, unless it is only about to answer
		s, revision, err = b.askState(ctx, key, of)
		if errors.Is(err, nats.ErrNoResponders) {
			err = &Unavailable{Dependency: "nats", Err: errSilent}
		}
	}
	return s, revision, err
}

// errSilent means that a bucket is there, and nobody answered for it.
var errSilent = errors.New("the tenant's bucket does not answer yet")

// askState is readState with a direct get: one round trip, no handle per tenant. When there is no bucket, nobody answers.
func (b *Bus) askState(ctx context.Context, key Key, of string) (*state.State, uint64, error) {
	ctx, cancel := context.WithTimeout(ctx, stateTimeout)
	defer cancel()
	bucket := key.Bucket()
	subject := "$JS.API.DIRECT.GET.KV_" + bucket + ".$KV." + bucket + "." + of
	msg, err := b.nc.RequestWithContext(ctx, subject, nil)
	switch {
	case errors.Is(err, nats.ErrNoResponders):
		return nil, 0, err
	case errors.Is(err, context.DeadlineExceeded):
		return nil, 0, &Unavailable{Dependency: "nats", Err: err}
	case err != nil:
		return nil, 0, classify(err)
	}
	switch msg.Header.Get("Status") {
	case "404":
		return nil, 0, ErrNotFound
	case "":
	default:
		return nil, 0, fmt.Errorf("state %s of %s: server answered %s %s", of, key, msg.Header.Get("Status"), msg.Header.Get("Description"))
	}
	revision, err := strconv.ParseUint(msg.Header.Get(jetstream.SequenceHeader), 10, 64)
	if err != nil {
		return nil, 0, fmt.Errorf("state %s of %s: revision: %w", of, key, err)
	}
	if op := msg.Header.Get("KV-Operation"); op == "DEL" || op == "PURGE" {
		return nil, revision, ErrNotFound
	}
	s := &state.State{}
	if err := json.Unmarshal(msg.Data, s); err != nil {
		return nil, revision, fmt.Errorf("state %s of %s is not JSON: %w", of, key, err)
	}
	return s, revision, nil
}

// State reads what a service keeps about a tenant, for questions; what a service works from it reads with Turn.Read.
// ErrNotFound when there is no such tenant or the service has not come to it yet.
func (b *Bus) State(ctx context.Context, key Key, service string) (*state.State, error) {
	if service == name.ServiceIntake {
		service = KeySpec
	}
	s, _, err := b.readState(ctx, key, service)
	return s, err
}

// missing tells a bucket that isn't there from a JetStream that isn't.
func (b *Bus) missing(ctx context.Context, bucket string) error {
	ctx, cancel := context.WithTimeout(ctx, stateTimeout)
	defer cancel()
	_, err := b.js.KeyValue(ctx, bucket)
	if errors.Is(err, jetstream.ErrBucketNotFound) || errors.Is(err, jetstream.ErrStreamNotFound) {
		return ErrNotFound
	}
	if err == nil {
		return &Unavailable{Dependency: "nats", Err: fmt.Errorf("%w: %s", errSilent, bucket)}
	}
	if errors.Is(err, context.DeadlineExceeded) {
		return &Unavailable{Dependency: "nats", Err: err}
	}
	return classify(err)
}

// writeState writes a key if its revision is still the one that was read (0: there was none). ErrStale when it isn't.
func (b *Bus) writeState(ctx context.Context, key Key, of string, s *state.State, revision uint64) (uint64, error) {
	ctx, cancel := context.WithTimeout(ctx, stateTimeout)
	defer cancel()
	data, err := json.Marshal(s)
	if err != nil {
		return 0, fmt.Errorf("state %s of %s: %w", of, key, err)
	}
	msg := nats.NewMsg("$KV." + key.Bucket() + "." + of)
	msg.Data = data
	ack, err := b.js.PublishMsg(ctx, msg, jetstream.WithExpectLastSequencePerSubject(revision))
	var api *jetstream.APIError
	switch {
	case errors.As(err, &api) && (api.ErrorCode == jetstream.JSErrCodeStreamWrongLastSequence || api.ErrorCode == 10164):
		// The code differs between one replica (10071) and three (10164).
		b.metrics.conflicts.Inc()
		return 0, fmt.Errorf("%w: %s of %s", ErrStale, of, key)
	case errors.Is(err, jetstream.ErrNoStreamResponse):
		if missing := b.missing(ctx, key.Bucket()); errors.Is(missing, ErrNotFound) {
			return 0, ErrNotFound
		}
		return 0, classify(err)
	case errors.Is(err, context.DeadlineExceeded):
		return 0, &Unavailable{Dependency: "nats", Err: err}
	case err != nil:
		return 0, classify(err)
	}
	return ack.Sequence, nil
}

// sameState reports whether two states differ in nothing but when they were written.
func sameState(a, b *state.State) bool {
	if a == nil || b == nil {
		return a == b
	}
	x, y := *a, *b
	x.UpdatedAt, y.UpdatedAt = time.Time{}, time.Time{}
	if x.Failure != nil && y.Failure != nil {
		fx, fy := *x.Failure, *y.Failure
		x.Failure, y.Failure = &fx, &fy
	}
	p, errP := json.Marshal(x)
	q, errQ := json.Marshal(y)
	return errP == nil && errQ == nil && bytes.Equal(p, q)
}
