package gate

import (
	"context"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
)

// kvServer is etcd's KV service.
type kvServer struct {
	pb.UnimplementedKVServer
	g *Gate
}

// tooOld reports whether a revision that a client names is of the former store.
func (g *Gate) tooOld(revision int64) bool { return revision > 0 && revision < g.lowest() }

func (s *kvServer) Range(ctx context.Context, r *pb.RangeRequest) (*pb.RangeResponse, error) {
	return read(ctx, s.g, func(ctx context.Context, to *store) (*pb.RangeResponse, error) {
		if s.g.tooOld(r.Revision) {
			return nil, rpctypes.ErrGRPCCompacted
		}
		answer, err := to.kv.Range(ctx, to.keys.outRange(r))
		if err == nil {
			to.keys.inKVs(answer.Kvs)
			s.g.usage.seeRange(r, answer)
		}
		return answer, err
	})
}

func (s *kvServer) Put(ctx context.Context, r *pb.PutRequest) (*pb.PutResponse, error) {
	txn := &pb.TxnRequest{Success: []*pb.RequestOp{{Request: &pb.RequestOp_RequestPut{RequestPut: r}}}}
	done, err := s.g.usage.admitTxn(ctx, txn)
	if err != nil {
		return nil, err
	}
	defer done()
	return write(ctx, s.g, func(ctx context.Context, to *store) (*pb.PutResponse, error) {
		asked := to.keys.outPut(r)
		if err := s.g.translateLease(ctx, to, asked); err != nil {
			return nil, err
		}
		answer, err := to.kv.Put(ctx, asked)
		if err == nil {
			to.keys.inKV(answer.PrevKv)
			s.g.usage.seeTxn(txn, &pb.TxnResponse{Header: answer.Header, Succeeded: true})
		}
		return answer, err
	})
}

func (s *kvServer) DeleteRange(ctx context.Context, r *pb.DeleteRangeRequest) (*pb.DeleteRangeResponse, error) {
	return write(ctx, s.g, func(ctx context.Context, to *store) (*pb.DeleteRangeResponse, error) {
		answer, err := to.kv.DeleteRange(ctx, to.keys.outDelete(r))
		if err == nil {
			to.keys.inKVs(answer.PrevKvs)
		}
		return answer, err
	})
}

func (s *kvServer) Txn(ctx context.Context, r *pb.TxnRequest) (*pb.TxnResponse, error) {
	do := func(ctx context.Context, to *store) (*pb.TxnResponse, error) {
		asked := to.keys.outTxn(r)
		if err := s.g.translateLeases(ctx, to, asked); err != nil {
			return nil, err
		}
		answer, err := to.kv.Txn(ctx, asked)
		if err == nil {
			to.keys.inTxn(answer)
			s.g.usage.seeTxn(r, answer)
		}
		return answer, err
	}
	if readsOnly(r) {
		return read(ctx, s.g, do)
	}
	done, err := s.g.usage.admitTxn(ctx, r)
	if err != nil {
		return nil, err
	}
	defer done()
	return write(ctx, s.g, do)
}

// Compact is the stores' own business: that of the datastore service, or of the kine.
func (s *kvServer) Compact(context.Context, *pb.CompactionRequest) (*pb.CompactionResponse, error) {
	return nil, rpctypes.ErrGRPCPermissionDenied
}

// readsOnly reports whether a transaction writes nothing, whatever its conditions come to.
func readsOnly(r *pb.TxnRequest) bool {
	for _, ops := range [][]*pb.RequestOp{r.Success, r.Failure} {
		for _, op := range ops {
			if _, reads := op.Request.(*pb.RequestOp_RequestRange); !reads {
				return false
			}
		}
	}
	return true
}
