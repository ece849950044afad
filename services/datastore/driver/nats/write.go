package nats

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"strings"
	"sync"

	"github.com/klauspost/compress/s2"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/shengdoushi/base58"
	"go.etcd.io/etcd/api/v3/mvccpb"

	kineserver "github.com/k3s-io/kine/pkg/server"

	"github.com/stoker-k8s/stoker/services/datastore/driver"
)

// compressBlock is how much a compressor takes at once. Readers take blocks of any size.
const compressBlock = 64 << 10

// writer writes keys into a tenant's bucket in kine's form. kine makes a compressor of 2 MiB for each write
// (pkg/drivers/nats/codec.go: valueCodec.Encode), and each has a sync.Pool, which keeps it through one garbage collection more: an import
// by kine takes hundreds of megabytes. The writer's compressors are small, and used again.
type writer struct {
	enter func(context.Context, ...nats.Option) (*nats.Conn, error)
	// indexed waits until kine, which reads what others write, has come to a revision.
	indexed func(ctx context.Context, revision int64) error
	name    string // of the bucket

	compressors sync.Pool // of *s2.Writer

	lock   sync.Mutex // guards what follows
	nc     *nats.Conn // nil until something is written
	bucket jetstream.KeyValue
}

// write writes or deletes a key of which old is what there is, nil for nothing, and returns when kine shows it. It reports false, and
// writes nothing, if there is something else.
func (w *writer) write(ctx context.Context, key string, c driver.Change, old *mvccpb.KeyValue) (done bool, err error) {
	bucket, err := w.open(ctx)
	if err != nil {
		return false, classify(err)
	}
	message, err := w.encode(entryOf(key, c, old))
	if err != nil {
		return false, err
	}
	var revision uint64
	if name := nameOf(key); old == nil {
		revision, err = bucket.Create(ctx, name, message)
	} else {
		revision, err = bucket.Update(ctx, name, message, uint64(old.ModRevision))
		if err == nil && c.Deleted {
			// A mark follows a deletion. If it conflicts, the key has been written since.
			if err := bucket.Delete(ctx, name, jetstream.LastRevision(revision)); err != nil && !conflicts(err) {
				return false, classify(err)
			}
		}
	}
	switch {
	case err == nil:
		return true, w.indexed(ctx, int64(revision))
	case conflicts(err):
		return false, nil
	}
	return false, classify(err)
}

// entryOf is what kine keeps of a change. A message can't say its own revision, which a created key begins with.
func entryOf(key string, c driver.Change, old *mvccpb.KeyValue) entry {
	e := entry{Create: old == nil, Delete: c.Deleted, KV: &kineserver.KeyValue{Key: key, Value: c.Value}}
	if old != nil {
		e.PrevRevision, e.KV.CreateRevision = old.ModRevision, old.CreateRevision
	}
	if c.Deleted {
		e.KV.Value, e.KV.Lease, e.KV.ModRevision = old.Value, old.Lease, old.ModRevision
	}
	return e
}

// conflicts reports whether a key's last message was another than the one expected.
func conflicts(err error) bool {
	return errors.Is(err, jetstream.ErrKeyExists) || errors.Is(err, jetstream.ErrKeyRevisionMismatch) ||
		codeOf(err) == jetstream.JSErrCodeStreamWrongLastSequenceConstant
}

// open connects, unless it is connected.
func (w *writer) open(ctx context.Context) (jetstream.KeyValue, error) {
	w.lock.Lock()
	defer w.lock.Unlock()
	if w.nc != nil && !w.nc.IsClosed() {
		return w.bucket, nil
	}
	nc, err := w.enter(ctx, func(o *nats.Options) error {
		o.AllowReconnect, o.MaxReconnect = true, -1 // as kine does: writes wait for a server that restarts
		return nil
	})
	if err != nil {
		return nil, err
	}
	js, err := jetstream.New(nc)
	if err == nil {
		w.bucket, err = js.KeyValue(ctx, w.name)
	}
	if err != nil {
		nc.Close()
		return nil, err
	}
	w.nc = nc
	return w.bucket, nil
}

func (w *writer) close() {
	w.lock.Lock()
	defer w.lock.Unlock()
	if w.nc != nil {
		w.nc.Close()
	}
}

// encode is what decode reads.
func (w *writer) encode(e entry) ([]byte, error) {
	text, err := json.Marshal(e)
	if err != nil {
		return nil, err
	}
	c, ok := w.compressors.Get().(*s2.Writer)
	if !ok {
		c = s2.NewWriter(nil, s2.WriterConcurrency(1), s2.WriterBlockSize(compressBlock))
	}
	var message bytes.Buffer
	c.Reset(&message)
	if _, err = c.Write(text); err == nil {
		err = c.Close()
	}
	c.Reset(nil)
	w.compressors.Put(c)
	return message.Bytes(), err
}

// decode reads a message of kine's.
func decode(message []byte) (e entry, err error) {
	text, err := io.ReadAll(s2.NewReader(bytes.NewReader(message), s2.ReaderAllocBlock(1<<10)))
	if err != nil {
		return e, err
	}
	return e, json.Unmarshal(text, &e)
}

// nameOf is how kine names a key, which begins with a slash, in a bucket.
func nameOf(key string) string {
	parts := strings.Split(strings.TrimPrefix(key, "/"), "/")
	for i, part := range parts {
		if part == "" {
			part = "/"
		}
		parts[i] = base58.Encode([]byte(part), base58.BitcoinAlphabet)
	}
	return strings.Join(parts, ".")
}
