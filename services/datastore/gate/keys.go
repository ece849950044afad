package gate

import (
	"bytes"

	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
)

// keys translates between the API server's prefix and a store's. Keys outside of it, as that of compactions, stay as they are.
type keys struct{ client, store string }

func (k keys) same() bool { return k.client == k.store }

func translate(key []byte, from, to string) []byte {
	if rest, ok := bytes.CutPrefix(key, []byte(from)); ok {
		return append([]byte(to), rest...)
	}
	if string(key) == clientv3.GetPrefixRangeEnd(from) {
		return []byte(clientv3.GetPrefixRangeEnd(to))
	}
	return key
}

// out is a key as the store knows it, in is one as the API server does.
func (k keys) out(key []byte) []byte { return translate(key, k.client, k.store) }
func (k keys) in(key []byte) []byte  { return translate(key, k.store, k.client) }

// What goes to a store is a copy, for it may go to the other one as well. Values, which nobody changes, aren't copied.

func (k keys) outRange(r *pb.RangeRequest) *pb.RangeRequest {
	c := *r
	c.Key, c.RangeEnd = k.out(c.Key), k.out(c.RangeEnd)
	return &c
}

func (k keys) outPut(r *pb.PutRequest) *pb.PutRequest {
	c := *r
	c.Key = k.out(c.Key)
	return &c
}

func (k keys) outDelete(r *pb.DeleteRangeRequest) *pb.DeleteRangeRequest {
	c := *r
	c.Key, c.RangeEnd = k.out(c.Key), k.out(c.RangeEnd)
	return &c
}

func (k keys) outTxn(r *pb.TxnRequest) *pb.TxnRequest {
	c := &pb.TxnRequest{Compare: make([]*pb.Compare, len(r.Compare)), Success: k.outOps(r.Success), Failure: k.outOps(r.Failure)}
	for i, compare := range r.Compare {
		one := *compare
		one.Key, one.RangeEnd = k.out(one.Key), k.out(one.RangeEnd)
		c.Compare[i] = &one
	}
	return c
}

func (k keys) outOps(ops []*pb.RequestOp) []*pb.RequestOp {
	all := make([]*pb.RequestOp, len(ops))
	for i, op := range ops {
		switch o := op.Request.(type) {
		case *pb.RequestOp_RequestRange:
			all[i] = &pb.RequestOp{Request: &pb.RequestOp_RequestRange{RequestRange: k.outRange(o.RequestRange)}}
		case *pb.RequestOp_RequestPut:
			all[i] = &pb.RequestOp{Request: &pb.RequestOp_RequestPut{RequestPut: k.outPut(o.RequestPut)}}
		case *pb.RequestOp_RequestDeleteRange:
			all[i] = &pb.RequestOp{Request: &pb.RequestOp_RequestDeleteRange{RequestDeleteRange: k.outDelete(o.RequestDeleteRange)}}
		case *pb.RequestOp_RequestTxn:
			all[i] = &pb.RequestOp{Request: &pb.RequestOp_RequestTxn{RequestTxn: k.outTxn(o.RequestTxn)}}
		default:
			all[i] = op
		}
	}
	return all
}

func (k keys) inKV(kv *mvccpb.KeyValue) {
	if kv != nil {
		kv.Key = k.in(kv.Key)
	}
}

func (k keys) inKVs(kvs []*mvccpb.KeyValue) {
	if k.same() {
		return
	}
	for _, kv := range kvs {
		k.inKV(kv)
	}
}

func (k keys) inTxn(r *pb.TxnResponse) {
	if r == nil || k.same() {
		return
	}
	for _, op := range r.Responses {
		switch o := op.Response.(type) {
		case *pb.ResponseOp_ResponseRange:
			k.inKVs(o.ResponseRange.GetKvs())
		case *pb.ResponseOp_ResponsePut:
			k.inKV(o.ResponsePut.GetPrevKv())
		case *pb.ResponseOp_ResponseDeleteRange:
			k.inKVs(o.ResponseDeleteRange.GetPrevKvs())
		case *pb.ResponseOp_ResponseTxn:
			k.inTxn(o.ResponseTxn)
		}
	}
}

func (k keys) inEvents(r *pb.WatchResponse) {
	if k.same() {
		return
	}
	for _, e := range r.Events {
		k.inKV(e.Kv)
		k.inKV(e.PrevKv)
	}
}
