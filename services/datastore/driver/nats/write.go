package nats

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/klauspost/compress/s2"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/shengdoushi/base58"

	kineserver "github.com/k3s-io/kine/pkg/server"

	"github.com/stoker-k8s/stoker/services/datastore/driver"
)

// entry is what kine keeps of a key, compressed.
type entry struct {
	KV           *kineserver.KeyValue
	PrevRevision int64
	Create       bool
	Delete       bool
}

// last is the last that there is of a key: of which message, and what that says; nil for a key that isn't there, or is deleted. unmarked says
// that the mark is missing which follows a deletion: without it, no kine can ever create the key again.
type last struct {
	sequence uint64
	kv       *kineserver.KeyValue
	unmarked bool
}

// is reports whether a key is what a change makes of it.
func (l last) is(c driver.Change) bool {
	if c.Deleted || l.kv == nil {
		return c.Deleted && l.kv == nil
	}
	return bytes.Equal(l.kv.Value, c.Value) && (l.kv.Lease != 0) == (c.Seconds > 0)
}

// message is one as the stream's leader has it: another replica may not have yet what was just written.
type message struct {
	Subject  string `json:"subject"`
	Sequence uint64 `json:"seq"`
	Header   []byte `json:"hdrs"`
	Data     []byte `json:"data"`
}

func (m *message) header() (nats.Header, error) {
	if len(m.Header) == 0 {
		return nil, nil //nolint:nilnil // it has none
	}
	return nats.DecodeHeadersMsg(m.Header)
}

// wanted is which message to get: one by its sequence; the last of a subject; or the first of a subject from a sequence on.
type wanted struct {
	Sequence uint64 `json:"seq,omitempty"`
	LastOf   string `json:"last_by_subj,omitempty"`
	NextOf   string `json:"next_by_subj,omitempty"`
}

func getSubject(bucket string) string { return "$JS.API.STREAM.MSG.GET." + streamOf(bucket) }

// get asks the leader for a message, nil for one that isn't there (NATS ADR-8: $JS.API.STREAM.MSG.GET).
func (t *tenant) get(ctx context.Context, w wanted) (*message, error) {
	request, err := json.Marshal(w)
	if err != nil {
		return nil, err
	}
	answer, err := t.nc.RequestWithContext(ctx, getSubject(t.account.Schema), request)
	if err != nil {
		return nil, err
	}
	var said struct {
		Message *message            `json:"message"`
		Error   *jetstream.APIError `json:"error"`
	}
	switch err := json.Unmarshal(answer.Data, &said); {
	case err != nil:
		return nil, fmt.Errorf("the server's answer on %s: %w", getSubject(t.account.Schema), err)
	case said.Error == nil:
		return said.Message, nil
	case said.Error.ErrorCode == codeNoSuchMessage:
		return nil, nil //nolint:nilnil // there is none
	}
	return nil, said.Error
}

// last asks the leader what a key is.
func (t *tenant) last(ctx context.Context, key string) (last, error) {
	m, err := t.get(ctx, wanted{LastOf: subjects(t.account.Schema) + nameOf(key)})
	if err != nil || m == nil {
		return last{}, err
	}
	l := last{sequence: m.Sequence}
	header, err := m.header()
	if err != nil || header.Get(operation) != "" { // the mark of a deletion
		return l, err
	}
	e, err := entryOf(m.Sequence, m.Data)
	if l.unmarked = e.Delete; err == nil && !e.Delete {
		l.kv = e.KV
	}
	return l, err
}

// write writes or deletes a key of which there is what have says. conflicts reports whether it fails because there is something else.
func (t *tenant) write(ctx context.Context, key string, c driver.Change, have last) (revision uint64, err error) {
	e := entry{Create: have.kv == nil, PrevRevision: int64(have.sequence), Delete: c.Deleted, KV: have.kv}
	if !c.Deleted {
		// A message can't say its own revision, which a created key begins with.
		e.KV = &kineserver.KeyValue{Key: key, Value: c.Value, Lease: c.Seconds}
		if have.kv != nil {
			e.KV.CreateRevision = have.kv.CreateRevision
		}
	}
	text, err := t.encode(e)
	if err != nil {
		return 0, err
	}
	m := &nats.Msg{Subject: subjects(t.account.Schema) + nameOf(key), Data: text}
	done, err := t.js.PublishMsg(ctx, m, jetstream.WithExpectLastSequencePerSubject(have.sequence))
	if err != nil {
		return 0, err
	}
	if !c.Deleted {
		return done.Sequence, nil
	}
	return done.Sequence, t.mark(ctx, key, done.Sequence)
}

// markTime is how long a deletion waits for its mark, also when it was called off meanwhile.
const markTime = 5 * time.Second

// mark has a mark follow a deletion, unless the key has been written since.
func (t *tenant) mark(ctx context.Context, key string, deletion uint64) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), markTime)
	defer cancel()
	for {
		m := &nats.Msg{Subject: subjects(t.account.Schema) + nameOf(key), Header: nats.Header{operation: {"DEL"}}}
		_, err := t.js.PublishMsg(ctx, m, jetstream.WithExpectLastSequencePerSubject(deletion))
		if !conflicts(err) {
			return err
		}
		// Somebody has written it, or just tries to.
		have, err := t.last(ctx, key)
		if err != nil || have.sequence != deletion {
			return err
		}
	}
}

// finish has a mark follow a deletion that was cut off before.
func (t *tenant) finish(ctx context.Context, key string, have last) error {
	if !have.unmarked {
		return nil
	}
	return t.mark(ctx, key, have.sequence)
}

// operation is the header of messages that mark a key as deleted, or its history as purged.
const operation = "KV-Operation"

// conflicts reports whether a key's last message was another than the one expected, or may become another, for in a cluster somebody's is under
// way.
func conflicts(err error) bool {
	code := codeOf(err)
	return code == codeWrongSequence || code == codeWrongInBatch
}

// compressBlock is how much a compressor takes at once. Readers take blocks of any size.
const compressBlock = 64 << 10

// encode is what decode reads. kine makes a compressor of 2 MiB for each write (pkg/drivers/nats/codec.go: valueCodec.Encode); these are
// small, and used again.
func (t *tenant) encode(e entry) ([]byte, error) {
	text, err := json.Marshal(e)
	if err != nil {
		return nil, err
	}
	c, ok := t.compressors.Get().(*s2.Writer)
	if !ok {
		c = s2.NewWriter(nil, s2.WriterConcurrency(1), s2.WriterBlockSize(compressBlock))
	}
	var message bytes.Buffer
	c.Reset(&message)
	if _, err = c.Write(text); err == nil {
		err = c.Close()
	}
	c.Reset(nil)
	t.compressors.Put(c)
	return message.Bytes(), err
}

// entryOf is what a message says, of which the revisions are filled in that it can't say itself.
func entryOf(sequence uint64, message []byte) (e entry, err error) {
	if e, err = decode(message); err == nil && e.KV == nil {
		err = errors.New("it is of no key")
	}
	if err != nil {
		return e, fmt.Errorf("message %d of the bucket is not kine's: %w", sequence, err)
	}
	if !e.Delete {
		e.KV.ModRevision = int64(sequence)
		if e.KV.CreateRevision == 0 {
			e.KV.CreateRevision = int64(sequence)
		}
	}
	return e, nil
}

// decode reads a message of kine's.
func decode(message []byte) (e entry, err error) {
	text, err := io.ReadAll(s2.NewReader(bytes.NewReader(message), s2.ReaderAllocBlock(1<<10)))
	if err != nil {
		return e, err
	}
	return e, json.Unmarshal(text, &e)
}

// nameOf is how kine names a key in a bucket.
func nameOf(key string) string {
	relative, ok := strings.CutPrefix(key, "/")
	parts := strings.Split(relative, "/")
	for i, part := range parts {
		if part == "" {
			part = "/"
		}
		parts[i] = base58.Encode([]byte(part), base58.BitcoinAlphabet)
	}
	if !ok {
		parts = append([]string{"meta"}, parts...)
	}
	return strings.Join(parts, ".")
}
