package robustness

import (
	"net"
	"sync"
	"time"
)

// Link is the way between two parts of the installation: a TCP proxy that can delay, hold up or cut what goes through it. It is safe
// for concurrent use.
type Link struct {
	target   string
	listener net.Listener

	mu    sync.Mutex
	delay time.Duration
	held  chan struct{} // closed when what is held up may go on; nil when nothing is held up
	conns map[net.Conn]struct{}
}

// NewLink listens on an address (host:0 for any port) and forwards to target.
func NewLink(listen, target string) (*Link, error) {
	l, err := net.Listen("tcp", listen)
	if err != nil {
		return nil, err
	}
	link := &Link{target: target, listener: l, conns: map[net.Conn]struct{}{}}
	go link.accept()
	return link, nil
}

// Address that the link listens on.
func (l *Link) Address() string { return l.listener.Addr().String() }

// Delay has everything take so much longer, in both directions; 0 ends it.
func (l *Link) Delay(d time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.delay = d
}

// Hold has nothing come through: connections stay open and silent, new ones are taken and get no answer.
func (l *Link) Hold() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.held == nil {
		l.held = make(chan struct{})
	}
}

// Release lets go what Hold held up.
func (l *Link) Release() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.held != nil {
		close(l.held)
		l.held = nil
	}
}

// Reset cuts every connection, so that both ends see a reset.
func (l *Link) Reset() {
	l.mu.Lock()
	defer l.mu.Unlock()
	for c := range l.conns {
		if tcp, ok := c.(*net.TCPConn); ok {
			_ = tcp.SetLinger(0)
		}
		_ = c.Close()
	}
}

// Close ends the link.
func (l *Link) Close() {
	_ = l.listener.Close()
	l.Release()
	l.Reset()
}

func (l *Link) accept() {
	for {
		c, err := l.listener.Accept()
		if err != nil {
			return
		}
		go l.carry(c)
	}
}

// carry forwards one connection until either end closes it.
func (l *Link) carry(near net.Conn) {
	defer l.track(near)()
	l.pass()
	far, err := net.DialTimeout("tcp", l.target, 5*time.Second)
	if err != nil {
		return
	}
	defer l.track(far)()
	var both sync.WaitGroup
	both.Go(func() { l.copy(far, near) })
	both.Go(func() { l.copy(near, far) })
	both.Wait()
}

// track notes an open connection; the returned function closes and forgets it.
func (l *Link) track(c net.Conn) func() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.conns[c] = struct{}{}
	return func() {
		_ = c.Close()
		l.mu.Lock()
		defer l.mu.Unlock()
		delete(l.conns, c)
	}
}

// copy forwards one direction. What comes together is delayed together.
func (l *Link) copy(to, from net.Conn) {
	defer func() { _ = to.Close(); _ = from.Close() }()
	buffer := make([]byte, 64<<10)
	for {
		n, err := from.Read(buffer)
		if n > 0 {
			l.pass()
			if _, err := to.Write(buffer[:n]); err != nil {
				return
			}
		}
		if err != nil {
			return // io.EOF among others
		}
	}
}

// pass returns when something may go through.
func (l *Link) pass() {
	l.mu.Lock()
	delay, held := l.delay, l.held
	l.mu.Unlock()
	if held != nil {
		<-held
	}
	if delay > 0 {
		<-time.After(delay)
	}
}
