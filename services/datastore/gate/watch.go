package gate

import (
	"context"
	"sync"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// watchServer is etcd's Watch service. Each stream of the API server has one of the store's behind it. When the data have moved, the
// stream ends; etcd's client then begins its watches anew, and hears that their revisions are too old.
type watchServer struct {
	pb.UnimplementedWatchServer
	g *Gate
}

// errMoved ends the streams of the former store.
var errMoved = status.Error(codes.Unavailable, "the tenant's data have moved to another DataStore")

func (s *watchServer) Watch(client pb.Watch_WatchServer) error {
	ctx, cancel := context.WithCancel(client.Context())
	defer cancel()
	to, sure := s.g.current()
	if !sure {
		return errDoubt
	}
	upstream, err := to.watch.Watch(ctx)
	if err != nil {
		return err
	}
	p := &pump{to: to, client: client, upstream: upstream, floor: s.g.lowest(), usage: s.g.usage}
	ended := make(chan error, 2)
	// Both end when this method has returned, with the client's stream and with ctx, and send the client nothing then.
	go func() { ended <- p.requests() }()
	go func() { ended <- p.responses() }()
	defer p.close()
	var switched chan struct{}
	if to == s.g.from {
		switched = s.g.switched
	}
	select {
	case err = <-ended:
	case <-switched:
		err = errMoved
	}
	return err
}

// pump passes on both directions of one stream.
type pump struct {
	to       *store
	client   pb.Watch_WatchServer
	upstream pb.Watch_WatchClient
	floor    int64
	usage    *usage

	sending sync.Mutex
	closed  bool // guarded by sending
	// ended counts the watches that were told to be too old; it belongs to requests.
	ended int64
}

func (p *pump) send(r *pb.WatchResponse) error {
	p.sending.Lock()
	defer p.sending.Unlock()
	if p.closed {
		return errMoved
	}
	return p.client.Send(r)
}

// close has nothing be sent any more.
func (p *pump) close() {
	p.sending.Lock()
	defer p.sending.Unlock()
	p.closed = true
}

func (p *pump) requests() error {
	for {
		r, err := p.client.Recv()
		if err != nil {
			return err
		}
		if c := r.GetCreateRequest(); c != nil {
			if c.StartRevision > 0 && c.StartRevision <= p.floor {
				if err := p.compacted(); err != nil {
					return err
				}
				continue
			}
			c.Key, c.RangeEnd = p.to.keys.out(c.Key), p.to.keys.out(c.RangeEnd)
		}
		if c := r.GetCancelRequest(); c != nil && c.WatchId > endedWatches {
			continue
		}
		if err := p.upstream.Send(r); err != nil {
			return err
		}
	}
}

// endedWatches is where the IDs of watches begin that were told to be too old. Stores count theirs from 0.
const endedWatches = 1 << 40

// compacted answers a request for a watch that is to begin before there is history, as etcd does.
func (p *pump) compacted() error {
	p.ended++
	id := endedWatches + p.ended
	head := &pb.ResponseHeader{Revision: p.floor}
	if err := p.send(&pb.WatchResponse{Header: head, WatchId: id, Created: true}); err != nil {
		return err
	}
	return p.send(&pb.WatchResponse{Header: head, WatchId: id, Canceled: true, CompactRevision: p.floor})
}

func (p *pump) responses() error {
	for {
		r, err := p.upstream.Recv()
		if err != nil {
			return err
		}
		p.to.keys.inEvents(r)
		p.usage.seeEvents(r.Events)
		if err := p.send(r); err != nil {
			return err
		}
	}
}
