package events

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/stoker-k8s/stoker/pkg/api/state"
	"github.com/stoker-k8s/stoker/pkg/intent"
)

// KeySpec is intake's key in a tenant's bucket; every other service's key is its name.
const KeySpec = "spec"

// historyOfState is how many revisions of each state a bucket keeps.
const historyOfState = 16

// stateTimeout bounds one question about a state, unless [Config.RequestTimeout] does.
const stateTimeout = 2 * time.Second

// ReadState reads one key of a tenant's bucket: [KeySpec], or the name of a service. [ErrNotFound] when the bucket or the key
// isn't there, [ErrUnreadable] when the key holds no state. The revision is the one to update, also with these errors.
func (b *Bus) ReadState(ctx context.Context, key Key, of string) (*state.State, uint64, error) {
	s, revision, err := b.askState(ctx, key, of)
	if errors.Is(err, nats.ErrNoResponders) {
		// Either the bucket isn't there or JetStream isn't; only the server's word for the former counts.
		err = b.missing(ctx, key.Bucket())
	}
	if errors.Is(err, errSilent) {
		// The bucket exists but did not answer: it may have been created just now. Ask once more.
		s, revision, err = b.askState(ctx, key, of)
		if errors.Is(err, nats.ErrNoResponders) {
			err = &intent.Unavailable{Dependency: Dependency, Err: errSilent}
		}
	}
	return s, revision, err
}

// errSilent means that a bucket is there, and nobody answered for it.
var errSilent = errors.New("the tenant's bucket does not answer yet")

// PeekState is ReadState by one direct get and no second question: [ErrNotFound] also when a bucket is there and nobody
// answers for it, as after a restart of the server. It is for turns whose writes are refused as stale if there was a state.
func (b *Bus) PeekState(ctx context.Context, key Key, of string) (*state.State, uint64, error) {
	s, revision, err := b.askState(ctx, key, of)
	if errors.Is(err, nats.ErrNoResponders) {
		err = ErrNotFound
	}
	return s, revision, err
}

// ReadStateOfLeader is [Bus.ReadState] from the stream's leader, which has the last revision, where any server that answers ReadState may
// lag: more work for the servers, for when it matters.
func (b *Bus) ReadStateOfLeader(ctx context.Context, key Key, of string) (*state.State, uint64, error) {
	bucket := key.Bucket()
	msg, err := b.LastOfLeader(ctx, "KV_"+bucket, "$KV."+bucket+"."+of)
	switch {
	case errors.Is(err, jetstream.ErrStreamNotFound):
		return nil, 0, ErrNotFound
	case err != nil:
		return nil, 0, err
	}
	return decodeState(key, of, msg.Sequence, msg.Header, msg.Data)
}

// LastOfLeader asks a stream's leader for the last message on a subject, for any other server that holds the stream may lag:
// [ErrNotFound] when there is none, [jetstream.ErrStreamNotFound] when there is no such stream.
func (b *Bus) LastOfLeader(ctx context.Context, stream, subject string) (*jetstream.RawStreamMsg, error) {
	msg, err := b.getOfLeader(ctx, stream, messageRequest{LastOn: subject})
	if err != nil && !errors.Is(err, ErrNotFound) && !errors.Is(err, jetstream.ErrStreamNotFound) {
		return nil, fmt.Errorf("last message on %s: %w", subject, err)
	}
	return msg, err
}

// messageRequest asks for one message of a stream: the last on a subject, or the first from a sequence on, of those on a subject if one is
// given.
type messageRequest struct {
	LastOn string `json:"last_by_subj,omitempty"`
	From   uint64 `json:"seq,omitempty"`
	NextOn string `json:"next_by_subj,omitempty"`
}

// getOfLeader asks a stream's leader for a message. Errors are those of [Bus.LastOfLeader].
func (b *Bus) getOfLeader(ctx context.Context, stream string, of messageRequest) (*jetstream.RawStreamMsg, error) {
	ask, cancel := context.WithTimeout(ctx, b.stateTimeout())
	defer cancel()
	request, err := json.Marshal(of)
	if err != nil {
		return nil, err
	}
	reply, err := b.nc.RequestWithContext(ask, leaderGet+stream, request)
	if err != nil {
		return nil, classifyRequest(ctx, err)
	}
	var got struct {
		Error   *jetstream.APIError `json:"error"`
		Message struct {
			Subject  string    `json:"subject"`
			Sequence uint64    `json:"seq"`
			Time     time.Time `json:"time"`
			Header   []byte    `json:"hdrs"`
			Data     []byte    `json:"data"`
		} `json:"message"`
	}
	if err := json.Unmarshal(reply.Data, &got); err != nil {
		return nil, err
	}
	switch {
	case got.Error != nil && got.Error.ErrorCode == jetstream.JSErrCodeMessageNotFound:
		return nil, ErrNotFound
	case got.Error != nil:
		return nil, Classify(got.Error)
	}
	m := got.Message
	msg := &jetstream.RawStreamMsg{Subject: m.Subject, Sequence: m.Sequence, Time: m.Time, Data: m.Data}
	if len(m.Header) > 0 {
		if msg.Header, err = nats.DecodeHeadersMsg(m.Header); err != nil {
			return nil, err
		}
	}
	return msg, nil
}

// askState asks by a direct get: one round trip, no handle per tenant. When there is no bucket, nobody answers.
func (b *Bus) askState(ctx context.Context, key Key, of string) (*state.State, uint64, error) {
	ctx, cancel := context.WithTimeout(ctx, b.stateTimeout())
	defer cancel()
	bucket := key.Bucket()
	subject := "$JS.API.DIRECT.GET.KV_" + bucket + ".$KV." + bucket + "." + of
	msg, err := b.nc.RequestWithContext(ctx, subject, nil)
	switch {
	case errors.Is(err, nats.ErrNoResponders):
		return nil, 0, err
	case errors.Is(err, context.DeadlineExceeded):
		return nil, 0, &intent.Unavailable{Dependency: Dependency, Err: err}
	case err != nil:
		return nil, 0, Classify(err)
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
	return decodeState(key, of, revision, msg.Header, msg.Data)
}

// decodeState reads what a key holds.
func decodeState(key Key, of string, revision uint64, header nats.Header, data []byte) (*state.State, uint64, error) {
	if op := header.Get("KV-Operation"); op == "DEL" || op == "PURGE" {
		return nil, revision, ErrNotFound
	}
	s := &state.State{}
	err := json.Unmarshal(data, s)
	if err == nil && of == KeySpec && s.UID == "" { // some other JSON, such as an acknowledgement of the server
		err = errors.New("it names no UID")
	}
	if err != nil {
		return nil, revision, fmt.Errorf("%w: %s of %s: %w", ErrUnreadable, of, key, err)
	}
	return s, revision, nil
}

// State reads what a service keeps about a tenant, for questions; what a service works from it reads with Turn.Read.
// ErrNotFound when there is no such tenant or the service has not come to it yet.
func (b *Bus) State(ctx context.Context, key Key, service string) (*state.State, error) {
	s, _, err := b.ReadState(ctx, key, StateKey(service))
	return s, err
}

// missing tells a bucket that isn't there from a JetStream that isn't.
func (b *Bus) missing(ctx context.Context, bucket string) error {
	ctx, cancel := context.WithTimeout(ctx, b.stateTimeout())
	defer cancel()
	_, err := b.js.KeyValue(ctx, bucket)
	if errors.Is(err, jetstream.ErrBucketNotFound) || errors.Is(err, jetstream.ErrStreamNotFound) {
		return ErrNotFound
	}
	if err == nil {
		return &intent.Unavailable{Dependency: Dependency, Err: fmt.Errorf("%w: %s", errSilent, bucket)}
	}
	if errors.Is(err, context.DeadlineExceeded) {
		return &intent.Unavailable{Dependency: Dependency, Err: err}
	}
	return Classify(err)
}

// isWrongLast reports whether a message was refused because the last one on its subject isn't the expected one.
func isWrongLast(err error) bool {
	var api *jetstream.APIError
	// The code differs between one replica (10071) and three (10164).
	return errors.As(err, &api) && (api.ErrorCode == jetstream.JSErrCodeStreamWrongLastSequence || api.ErrorCode == 10164)
}

// WriteState writes a key if its revision is still the one that was read (0: there was none). intent.ErrStale when it isn't.
func (b *Bus) WriteState(ctx context.Context, key Key, of string, s *state.State, revision uint64) (uint64, error) {
	ctx, cancel := context.WithTimeout(ctx, b.stateTimeout())
	defer cancel()
	data, err := json.Marshal(s)
	if err != nil {
		return 0, fmt.Errorf("state %s of %s: %w", of, key, err)
	}
	msg := nats.NewMsg("$KV." + key.Bucket() + "." + of)
	msg.Data = data
	ack, err := b.publish(ctx, msg, jetstream.WithExpectLastSequencePerSubject(revision))
	switch {
	case isWrongLast(err):
		return 0, fmt.Errorf("%w: %s of %s", intent.ErrStale, of, key)
	case errors.Is(err, jetstream.ErrNoStreamResponse):
		if missing := b.missing(ctx, key.Bucket()); errors.Is(missing, ErrNotFound) {
			return 0, ErrNotFound
		}
		return 0, Classify(err)
	case errors.Is(err, context.DeadlineExceeded):
		return 0, &intent.Unavailable{Dependency: Dependency, Err: err}
	case err != nil:
		return 0, Classify(err)
	}
	return ack.Sequence, nil
}

// createBucket makes a tenant's bucket; it exists already when a repeat comes by.
func (b *Bus) createBucket(ctx context.Context, key Key) error {
	ask, cancel := context.WithTimeout(ctx, b.requestTimeout())
	defer cancel()
	// What CreateKeyValue makes, without its question about the account before, and without rollups (see buckets). MaxBytes isn't set,
	// since the server sets it aside: with history and size of each key, it is bounded anyway.
	_, err := b.js.CreateStream(ask, jetstream.StreamConfig{
		Name: "KV_" + key.Bucket(), Description: "state of tenant " + key.String(), Subjects: []string{"$KV." + key.Bucket() + ".>"},
		MaxMsgsPerSubject: historyOfState, Discard: jetstream.DiscardNew, Duplicates: 2 * time.Minute,
		Storage: jetstream.FileStorage, Replicas: max(b.cfg.StreamReplicas, 1), AllowDirect: true, DenyDelete: true,
		MaxMsgs: -1, MaxBytes: -1, MaxMsgSize: maxState, MaxConsumers: -1,
	})
	if err != nil && !errors.Is(err, jetstream.ErrStreamNameAlreadyInUse) {
		return classifyRequest(ctx, err)
	}
	return nil
}

// deleteBucket removes a tenant's bucket and everything in it.
func (b *Bus) deleteBucket(ctx context.Context, key Key) error {
	ask, cancel := context.WithTimeout(ctx, b.requestTimeout())
	defer cancel()
	err := b.js.DeleteKeyValue(ask, key.Bucket())
	if err != nil && !errors.Is(err, jetstream.ErrBucketNotFound) && !errors.Is(err, jetstream.ErrStreamNotFound) {
		return classifyRequest(ctx, err)
	}
	return nil
}
