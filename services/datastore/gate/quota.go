package gate

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"hash/maphash"
	"slices"
	"strings"
	"sync"
	"time"

	"go.etcd.io/etcd/api/v3/mvccpb"
	"golang.org/x/time/rate"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/protowire"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"

	"github.com/stoker-k8s/stoker/services/datastore/driver"
)

// Quota bounds what a tenant keeps. What it keeps is counted by all that its API server reads, watches and writes: API servers read all
// objects when they begin, and watch what others write. So the count needs no question of its own, and it is the same in every replica.
//
// A tenant that has reached a bound is full until it holds less than nineteen twentieths of it. Until then
//   - deletes go on, as do updates that don't grow an object,
//   - what the control plane needs goes on within a reserve, a tenth of the bound: leases, nodes, and updates that grow an object by a
//     kibibyte at most, as a status does,
//   - updates of leases, nodes and objects that are being deleted have another tenth of their own: a lease's size changes by some bytes
//     with the time in it, and to mark an object as being deleted makes it larger,
//   - all else is refused.
//
// What was overwritten stays in a database until it is compacted. So a tenant may write as much as its bound, and no more, in the time
// that this takes; writes wait their turn then, for [patience] at most.
type Quota struct {
	// Bytes of keys and values, Objects in number; 0 for no bound.
	Bytes, Objects int64
}

// bounded reports whether there is any bound.
func (q Quota) bounded() bool { return q.Bytes > 0 || q.Objects > 0 }

// holds reports whether so much is within the bounds.
func (q Quota) holds(is Quota) bool {
	return (q.Bytes == 0 || is.Bytes <= q.Bytes) && (q.Objects == 0 || is.Objects <= q.Objects)
}

// of is a share of the bounds, in twentieths.
func (q Quota) of(twentieths int64) Quota {
	return Quota{q.Bytes / 20 * twentieths, q.Objects / 20 * twentieths}
}

func (q Quota) plus(other Quota) Quota {
	return Quota{q.Bytes + other.Bytes, q.Objects + other.Objects}
}

const (
	// smallGrowth is by how much an update may grow an object of a tenant that is full: a status, a finalizer.
	smallGrowth = 1 << 10
	// compacted is after how long no database keeps what was overwritten: twice the interval of API servers, kine and the datastore service.
	compacted = 10 * time.Minute
	// leastBurst is what a tenant may write at once, leastRate what it may write a second, however small its quota is: its own control plane's.
	leastBurst, leastRate = 4 << 20, 64 << 10
	// settled is after how long a gate has seen all that its API server reads when it begins.
	settled = 30 * time.Second
)

// usage counts what a tenant keeps.
type usage struct {
	quota Quota
	seed  maphash.Seed
	churn *rate.Limiter // bytes; nil without a bound of bytes
	began time.Time

	mu sync.Mutex
	// known are the keys that have come by, by their hashes. Those that are gone stay until history that has them is, for a page of an
	// older list may come by later.
	known map[uint64]seen
	gone  []gone
	is    Quota
	// coming is what writes that are under way add.
	coming Quota
	// full says that a bound was reached; reserve is what the control plane's writes may fill then.
	full    bool
	reserve Quota
	// events are the bytes of Events that were written in an hour, by minutes.
	events hour
}

// seen is what is known of a key: the revision of its last change and how many bytes it has, with its key; 0 once it is gone.
type seen struct{ revision, bytes int64 }

func (s seen) count() int64 {
	if s.bytes == 0 {
		return 0
	}
	return 1
}

type gone struct {
	key uint64
	at  time.Time
}

func newUsage(q Quota) *usage {
	u := &usage{quota: q, seed: maphash.MakeSeed(), began: time.Now(), known: map[uint64]seen{}}
	if q.Bytes > 0 {
		u.churn = rate.NewLimiter(rate.Limit(max(float64(q.Bytes)/compacted.Seconds(), leastRate)), int(max(q.Bytes/2, leastBurst)))
	}
	return u
}

// controlPlane begins keys of the control plane's own, without the prefix of all: leases and nodes. What else it writes for itself has a lease
// of the database's, and ends by itself.
var controlPlane = []string{"leases/", "minions/"}

// eventsPrefix begins the keys of Events, of all that have a lease the only ones that anybody may write.
const eventsPrefix = "events/"

// keyOf is a key without the prefix of all; not ok for what isn't the tenant's.
func keyOf(key []byte) (rest string, ok bool) {
	rest, ok = strings.CutPrefix(string(key), Prefix)
	return rest, ok && !driver.IsRecord(rest)
}

// see notes that a key has a value; was says that it had it before the gate began.
func (u *usage) see(kv *mvccpb.KeyValue, was bool) {
	if kv.Lease == 0 {
		u.note(kv.Key, seen{kv.ModRevision, int64(len(kv.Key) + len(kv.Value))}, was)
	}
}

// seeRange notes what a read brought.
func (u *usage) seeRange(r *pb.RangeRequest, answer *pb.RangeResponse) {
	if u == nil || r.GetKeysOnly() || answer == nil {
		return
	}
	for _, kv := range answer.Kvs {
		u.see(kv, time.Since(u.began) < settled)
	}
}

// seeEvents notes what a watch told.
func (u *usage) seeEvents(events []*mvccpb.Event) {
	if u == nil {
		return
	}
	for _, e := range events {
		if e.Type == mvccpb.DELETE {
			u.delete(e.Kv.Key, e.Kv.ModRevision)
		} else {
			u.see(e.Kv, false)
		}
	}
}

// admitTxn is admit for what a transaction writes.
func (u *usage) admitTxn(ctx context.Context, r *pb.TxnRequest) (done func(), err error) {
	done = func() {}
	if u == nil {
		return done, nil
	}
	create := len(r.Compare) == 1 && r.Compare[0].Target == pb.Compare_MOD && r.Compare[0].Result == pb.Compare_EQUAL && r.Compare[0].GetModRevision() == 0
	for _, op := range slices.Concat(r.Success, r.Failure) {
		put := op.GetRequestPut()
		if put == nil {
			continue
		}
		one, err := u.admit(ctx, put, create)
		if err != nil {
			done()
			return nil, err
		}
		before := done
		done = func() { one(); before() }
	}
	return done, nil
}

// seeTxn notes what a transaction did.
func (u *usage) seeTxn(r *pb.TxnRequest, answer *pb.TxnResponse) {
	if u == nil || answer == nil {
		return
	}
	ops := r.Success
	if !answer.Succeeded {
		ops = r.Failure
	}
	for i, op := range ops {
		switch o := op.Request.(type) {
		case *pb.RequestOp_RequestRange:
			if i < len(answer.Responses) {
				u.seeRange(o.RequestRange, answer.Responses[i].GetResponseRange())
			}
		case *pb.RequestOp_RequestPut:
			put := o.RequestPut
			u.see(&mvccpb.KeyValue{Key: put.Key, Value: put.Value, Lease: put.Lease, ModRevision: answer.GetHeader().GetRevision()}, false)
		case *pb.RequestOp_RequestDeleteRange:
			if len(o.RequestDeleteRange.RangeEnd) == 0 {
				u.delete(o.RequestDeleteRange.Key, answer.GetHeader().GetRevision())
			}
		}
	}
}

// delete notes that a key is gone since a revision.
func (u *usage) delete(key []byte, revision int64) {
	u.note(key, seen{revision: revision}, false)
}

func (u *usage) note(key []byte, is seen, before bool) {
	if _, ok := keyOf(key); !ok {
		return
	}
	hash := maphash.Bytes(u.seed, key)
	u.mu.Lock()
	defer u.mu.Unlock()
	was := u.known[hash]
	if is.revision <= was.revision {
		return
	}
	u.known[hash] = is
	u.is.Bytes += is.bytes - was.bytes
	u.is.Objects += is.count() - was.count()
	now := time.Now()
	if is.bytes == 0 {
		u.gone = append(u.gone, gone{hash, now})
	}
	for len(u.gone) > 0 && now.Sub(u.gone[0].at) > 2*compacted {
		if u.known[u.gone[0].key].bytes == 0 {
			delete(u.known, u.gone[0].key)
		}
		u.gone = u.gone[1:]
	}
	u.weigh(before)
}

// weigh finds out whether the tenant is full. before says that what was counted was there before the gate began, as all is of a tenant whose
// quota was made smaller. u.mu is held.
func (u *usage) weigh(before bool) {
	switch {
	case u.full && u.quota.of(nearly).holds(u.is):
		u.full = false
	case !u.quota.holds(u.is) && (before || !u.full):
		u.fill()
	}
}

// nearly is the share, in twentieths, below which a tenant that was full isn't any more.
const nearly = 19

// fill notes that a bound was reached. u.mu is held.
func (u *usage) fill() {
	u.full = true
	beyond := func(is, bound int64) int64 {
		if bound == 0 {
			return 0
		}
		return max(is, bound) + bound/10
	}
	u.reserve = Quota{beyond(u.is.Bytes, u.quota.Bytes), beyond(u.is.Objects, u.quota.Objects)}
}

// admit says whether a put goes on; create, that it makes the key. What is returned is to be called when it has been done.
func (u *usage) admit(ctx context.Context, put *pb.PutRequest, create bool) (done func(), err error) {
	key, ok := keyOf(put.Key)
	if !ok {
		return func() {}, nil
	}
	size := int64(len(put.Key) + len(put.Value))
	if put.Lease != 0 {
		if strings.HasPrefix(key, eventsPrefix) {
			err = u.admitEvent(size)
		}
		return func() {}, err
	}
	own := slices.ContainsFunc(controlPlane, func(p string) bool { return strings.HasPrefix(key, p) })
	adds, err := u.room(put, create, own, size)
	if err != nil {
		return nil, err
	}
	done = func() {
		u.mu.Lock()
		defer u.mu.Unlock()
		u.coming = Quota{u.coming.Bytes - adds.Bytes, u.coming.Objects - adds.Objects}
	}
	if err := u.pace(ctx, size, own); err != nil {
		done()
		return nil, err
	}
	return done, nil
}

// room says whether there is room for a put, and takes it.
func (u *usage) room(put *pb.PutRequest, create, own bool, size int64) (adds Quota, err error) {
	u.mu.Lock()
	defer u.mu.Unlock()
	was := u.known[maphash.Bytes(u.seed, put.Key)]
	if was.bytes == 0 && !create { // whoever changes what is there has read it; but it may be gone just now
		return Quota{}, nil
	}
	adds = Quota{max(size-was.bytes, 0), 1 - was.count()}
	if adds == (Quota{}) {
		return adds, nil
	}
	after := u.is.plus(u.coming).plus(adds)
	fits := !u.full && u.quota.holds(after)
	if !fits && !u.full && !u.quota.of(nearly).holds(u.is) {
		u.fill()
	}
	update := adds.Objects == 0
	switch {
	case fits:
	case u.full && u.reserve.holds(after) && (own || update && adds.Bytes <= smallGrowth):
	case u.full && update && u.reserve.plus(u.quota.of(2)).holds(after) && (own || isBeingDeleted(put.Value, adds.Bytes)):
	default:
		return Quota{}, u.exceeded()
	}
	u.coming = u.coming.plus(adds)
	return adds, nil
}

// exceeded is what hears who finds no room. u.mu is held.
func (u *usage) exceeded() error {
	var bounds []string
	if u.quota.Bytes > 0 {
		bounds = append(bounds, fmt.Sprintf("%d of %d bytes", u.is.Bytes, u.quota.Bytes))
	}
	if u.quota.Objects > 0 {
		bounds = append(bounds, fmt.Sprintf("%d of %d objects", u.is.Objects, u.quota.Objects))
	}
	return status.Errorf(codes.ResourceExhausted, "the quota of this cluster leaves no room for it: %s are used. Deletes go on; delete something, or ask for a larger quota",
		strings.Join(bounds, " and "))
}

// admitEvent says whether an Event may be written: those of an hour may have a quarter of the bound beside it.
func (u *usage) admitEvent(size int64) error {
	u.mu.Lock()
	defer u.mu.Unlock()
	if now := time.Now(); u.quota.Bytes > 0 && !u.events.add(now, size, max(u.quota.Bytes/4, leastBurst)) {
		return status.Error(codes.ResourceExhausted, "the quota of this cluster leaves no room for more Events in this hour")
	}
	return nil
}

// hour sums what came within the last one, by minutes.
type hour struct {
	minutes [60]int64
	last    int64
	sum     int64
}

// add adds unless the sum would be more than most.
func (h *hour) add(now time.Time, n, most int64) bool {
	minute := now.Unix() / 60
	for h.last = max(h.last, minute-int64(len(h.minutes))); h.last < minute; {
		h.last++
		at := &h.minutes[h.last%int64(len(h.minutes))]
		h.sum, *at = h.sum-*at, 0
	}
	if h.sum+n > most {
		return false
	}
	h.sum += n
	h.minutes[minute%int64(len(h.minutes))] += n
	return true
}

// pace has a write wait until the tenant may write so much. Those of the control plane don't wait.
func (u *usage) pace(ctx context.Context, size int64, own bool) error {
	switch {
	case u.churn == nil:
		return nil
	case own:
		u.churn.ReserveN(time.Now(), int(size))
		return nil
	}
	wait, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	if u.churn.WaitN(wait, int(size)) == nil {
		return nil
	}
	if ctx.Err() != nil {
		return ctx.Err()
	}
	return status.Errorf(codes.ResourceExhausted, "the quota of this cluster is %d bytes, and that is also what may be written to it within %s: try again later",
		u.quota.Bytes, compacted)
}

// How often a gate looks whether what the tenant keeps is news, and which share of a bound, in twentieths, makes it one.
const reportEvery, newsworthy = 10 * time.Second, 1

// report writes down what the tenant keeps, when that is news. Several gates count the same, and the last to write is right.
func (g *Gate) report(ctx context.Context) {
	tick := time.NewTicker(reportEvery)
	defer tick.Stop()
	var said *driver.Usage
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		if is, news := g.usage.news(said); news {
			to, sure := g.current()
			if !sure {
				continue
			}
			if err := setRecord(ctx, to, driver.QuotaKey, is.Encode()); err != nil {
				g.cfg.Log.Warn("what the tenant keeps can't be noted", "error", err)
				continue
			}
			said = &is
		}
	}
}

// news is what the tenant keeps, and whether that is to be told after what was said last, nil for nothing.
func (u *usage) news(said *driver.Usage) (is driver.Usage, news bool) {
	u.mu.Lock()
	defer u.mu.Unlock()
	is = driver.Usage{Bytes: u.is.Bytes, Objects: u.is.Objects, Full: u.full}
	if said == nil {
		return is, time.Since(u.began) >= settled
	}
	by := Quota{max(is.Bytes-said.Bytes, said.Bytes-is.Bytes), max(is.Objects-said.Objects, said.Objects-is.Objects)}
	return is, is.Full != said.Full || !u.quota.of(newsworthy).holds(by)
}

// Forms in which API servers store objects.
var (
	protobufForm  = []byte("k8s\x00")
	encryptedForm = []byte("k8s:enc:")
)

// encryptedGrowth is by how much an update may grow an object that can't be looked into: the note that it is being deleted.
const encryptedGrowth = 256

// Fields of Kubernetes' messages: runtime.Unknown.raw, metadata of all objects, ObjectMeta.deletionTimestamp.
const fieldRaw, fieldMetadata, fieldDeletionTimestamp = 2, 1, 9

// isBeingDeleted reports whether an object waits for its finalizers, or an encrypted one may.
func isBeingDeleted(value []byte, growth int64) bool {
	if bytes.HasPrefix(value, encryptedForm) {
		return growth <= encryptedGrowth
	}
	if message, ok := bytes.CutPrefix(value, protobufForm); ok {
		for _, field := range []protowire.Number{fieldRaw, fieldMetadata} {
			message, _ = fieldOf(message, field)
		}
		_, ok := fieldOf(message, fieldDeletionTimestamp)
		return ok
	}
	var object struct {
		Metadata struct {
			DeletionTimestamp *string `json:"deletionTimestamp"`
		} `json:"metadata"`
	}
	return json.Unmarshal(value, &object) == nil && object.Metadata.DeletionTimestamp != nil
}

// fieldOf is the value of a field of a message, that of the wire's type "bytes".
func fieldOf(message []byte, field protowire.Number) (value []byte, ok bool) {
	for len(message) > 0 {
		number, kind, n := protowire.ConsumeTag(message)
		if n < 0 {
			return nil, false
		}
		message = message[n:]
		if number == field && kind == protowire.BytesType {
			value, n = protowire.ConsumeBytes(message)
			return value, n >= 0
		}
		if n = protowire.ConsumeFieldValue(number, kind, message); n < 0 {
			return nil, false
		}
		message = message[n:]
	}
	return nil, false
}
