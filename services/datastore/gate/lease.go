package gate

import (
	"context"
	"sync"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
)

// leases are those that the former store granted, by their IDs there, with what became of them in the other one. A kine's IDs are
// seconds to live. They are forgotten when they have ended.
type leases struct {
	mu    sync.Mutex
	ends  map[int64]time.Time
	again map[int64]int64
}

// note remembers a lease of the former store.
func (l *leases) note(id, seconds int64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	now := time.Now()
	if l.ends == nil {
		l.ends, l.again = map[int64]time.Time{}, map[int64]int64{}
	}
	for old, end := range l.ends {
		if end.Before(now) {
			delete(l.ends, old)
			delete(l.again, old)
		}
	}
	l.ends[id] = now.Add(time.Duration(seconds) * time.Second)
}

// forget forgets a lease whose ID is one of the other store's now: kines have the same for the same seconds.
func (l *leases) forget(id int64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.ends, id)
	delete(l.again, id)
}

// translate is the lease of the other store that stands for one of the former; one that isn't known stays what it is.
func (l *leases) translate(ctx context.Context, to *store, id int64) (int64, error) {
	l.mu.Lock()
	defer l.mu.Unlock() // also while one is made, which others are likely to want
	end, former := l.ends[id]
	if !former {
		return id, nil
	}
	if made, ok := l.again[id]; ok {
		return made, nil
	}
	granted, err := to.lease.LeaseGrant(ctx, &pb.LeaseGrantRequest{TTL: max(int64(time.Until(end)/time.Second), 1)})
	if err != nil {
		return 0, err
	}
	l.again[id] = granted.ID
	return granted.ID, nil
}

func (g *Gate) translateLease(ctx context.Context, to *store, r *pb.PutRequest) (err error) {
	if to == g.to && r.Lease != 0 {
		r.Lease, err = g.leases.translate(ctx, to, r.Lease)
	}
	return err
}

func (g *Gate) translateLeases(ctx context.Context, to *store, r *pb.TxnRequest) error {
	for _, ops := range [][]*pb.RequestOp{r.Success, r.Failure} {
		for _, op := range ops {
			if put := op.GetRequestPut(); put != nil {
				if err := g.translateLease(ctx, to, put); err != nil {
					return err
				}
			}
		}
	}
	return nil
}

// leaseServer is what of etcd's Lease service API servers use.
type leaseServer struct {
	pb.UnimplementedLeaseServer
	g *Gate
}

func (s *leaseServer) LeaseGrant(ctx context.Context, r *pb.LeaseGrantRequest) (*pb.LeaseGrantResponse, error) {
	return write(ctx, s.g, func(ctx context.Context, to *store) (*pb.LeaseGrantResponse, error) {
		answer, err := to.lease.LeaseGrant(ctx, r)
		switch {
		case err != nil:
		case to == s.g.from:
			s.g.leases.note(answer.ID, answer.TTL)
		default:
			s.g.leases.forget(answer.ID)
		}
		return answer, err
	})
}

func (s *leaseServer) LeaseRevoke(ctx context.Context, r *pb.LeaseRevokeRequest) (*pb.LeaseRevokeResponse, error) {
	return write(ctx, s.g, func(ctx context.Context, to *store) (*pb.LeaseRevokeResponse, error) {
		return to.lease.LeaseRevoke(ctx, r)
	})
}

func (s *leaseServer) LeaseTimeToLive(ctx context.Context, r *pb.LeaseTimeToLiveRequest) (*pb.LeaseTimeToLiveResponse, error) {
	return read(ctx, s.g, func(ctx context.Context, to *store) (*pb.LeaseTimeToLiveResponse, error) {
		return to.lease.LeaseTimeToLive(ctx, r)
	})
}

// maintenanceServer is what of etcd's Maintenance service API servers ask: version and size.
type maintenanceServer struct {
	pb.UnimplementedMaintenanceServer
	g *Gate
}

func (s *maintenanceServer) Status(ctx context.Context, r *pb.StatusRequest) (*pb.StatusResponse, error) {
	return read(ctx, s.g, func(ctx context.Context, to *store) (*pb.StatusResponse, error) {
		return pb.NewMaintenanceClient(to.client.ActiveConnection()).Status(ctx, r)
	})
}
