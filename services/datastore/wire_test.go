package datastore_test

import (
	"io"
	"net"
	"sync"
	"testing"
)

// tap is on all connections of a process. It counts what the process sends, and ends it at a message. The zero value lets everything through.
type tap struct {
	end func() // the process
	// hangs has connections go silent where the process isn't ended.
	hangs bool

	mu    sync.Mutex
	count int            // of messages since the tap was armed
	seen  map[string]int // messages that counted, by server
	at    int            // the message that doesn't get through, nor any after it; 0 for none
	ended chan struct{}
	conns map[net.Conn]struct{}
}

// open lets everything through.
func (p *tap) open() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.count, p.at, p.ended, p.conns = 0, 0, nil, nil
}

// arm ends the process at its n-th message from now on; the channel is closed then.
func (p *tap) arm(n int) <-chan struct{} {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.count, p.at, p.ended = 0, n, make(chan struct{})
	return p.ended
}

// disarm counts no more and returns how many messages there were.
func (p *tap) disarm() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.count < p.at {
		p.at = 0
	}
	return p.count
}

// passes reports whether a message to a server gets through.
func (p *tap) passes(server string, counts bool) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if counts {
		if p.seen == nil {
			p.seen = map[string]int{}
		}
		p.seen[server]++
	}
	if p.at == 0 {
		return true
	}
	if p.count < p.at && counts {
		if p.count++; p.count == p.at {
			if p.end != nil {
				p.end()
			}
			p.close()
			close(p.ended)
		}
	}
	return p.count < p.at
}

// counted is how many messages to a server counted so far.
func (p *tap) counted(server string) int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.seen[server]
}

// cut lets nothing through any more.
func (p *tap) cut() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.count, p.at = 1, 1
	p.close()
}

// close ends all connections. p.mu is held.
func (p *tap) close() {
	for c := range p.conns {
		if !p.hangs {
			_ = c.Close()
		}
	}
}

// add notes a connection, and reports whether the process isn't at its end.
func (p *tap) add(c net.Conn) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.conns == nil {
		p.conns = map[net.Conn]struct{}{}
	}
	p.conns[c] = struct{}{}
	return p.at == 0 || p.count < p.at
}

func (p *tap) remove(c net.Conn) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.conns, c)
}

// wire returns an address at which the process reaches a server through the tap. What the process sends at once is a
// message, if counts says so.
func (p *tap) wire(t testing.TB, server string, counts func([]byte) bool) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go p.carry(c, server, counts)
		}
	}()
	return l.Addr().String()
}

func (p *tap) carry(c net.Conn, server string, counts func([]byte) bool) {
	defer c.Close()
	s, err := net.Dial("tcp", server)
	if err != nil {
		return
	}
	defer s.Close()
	defer p.remove(c)
	ends := func() {
		if p.hangs {
			_, _ = io.Copy(io.Discard, c)
		}
	}
	if !p.add(c) {
		ends()
		return
	}
	go func() { _, _ = io.Copy(c, s); _ = c.Close() }()
	buffer := make([]byte, 64<<10)
	for {
		n, err := c.Read(buffer)
		if n > 0 {
			if !p.passes(server, counts(buffer[:n])) {
				ends()
				return
			}
			if _, err := s.Write(buffer[:n]); err != nil {
				return
			}
		}
		if err != nil {
			return
		}
	}
}

func everything([]byte) bool { return true }
