// Package address divides a block of loopback addresses, 127.N.0.0/16, among the parts of one local stack.
//
//	127.N.0.1                    the management cluster: API server, its etcd, node
//	127.N.0.2 … 127.N.0.254      one etcd per DataStore
//	127.N.1.1 … 127.N.127.254    pods
//	127.N.128.1 … 127.N.254.254  Services of type LoadBalancer
//
// On Linux all of 127.0.0.0/8 is local to the machine without any configuration.
package address

import (
	"errors"
	"fmt"
	"hash/fnv"
	"net"
	"net/netip"
	"sync"
	"syscall"
)

// First and Last are the bounds of N.
const (
	First = 16
	Last  = 250
)

// ClaimPort is the port of a block's node whose listener is the claim on the block. It is the kubelet's.
const ClaimPort = 10250

// A Block is the N of 127.N.0.0/16.
type Block int

// Management is the address of the management cluster's own processes and of its node.
func (b Block) Management() netip.Addr { return b.at(0, 1) }

// DataStore is the address of the i-th DataStore's etcd, counted from 0.
func (b Block) DataStore(i int) netip.Addr { return b.at(0, byte(2+i)) }

// Pods returns the allocator of pod addresses.
func (b Block) Pods() *Pool { return newPool(b, 1, 127) }

// LoadBalancers returns the allocator of Service addresses.
func (b Block) LoadBalancers() *Pool { return newPool(b, 128, 254) }

func (b Block) String() string { return fmt.Sprintf("127.%d.0.0/16", int(b)) }

func (b Block) at(third, fourth byte) netip.Addr {
	return netip.AddrFrom4([4]byte{127, byte(b), third, fourth})
}

// ErrTaken tells that another stack, or something else that listens on the claim's port, has the block.
var ErrTaken = errors.New("address block is taken")

// Claim takes a block for this process, for as long as the listener it returns is open. A want of 0 means any: the
// search begins at a number made of seed, so that stacks that run by turns seldom meet in one block.
func Claim(want Block, seed string) (Block, net.Listener, error) {
	if want != 0 {
		if want < First || want > Last {
			return 0, nil, fmt.Errorf("address block %d: must be from %d to %d", int(want), First, Last)
		}
		l, err := claim(want)
		return want, l, err
	}
	h := fnv.New32a()
	h.Write([]byte(seed))
	const count = Last - First + 1
	start := int(h.Sum32() % count)
	for i := range count {
		b := Block(First + (start+i)%count)
		l, err := claim(b)
		if err == nil {
			return b, l, nil
		}
		if !errors.Is(err, ErrTaken) {
			return 0, nil, err
		}
	}
	return 0, nil, fmt.Errorf("all of 127.%d.0.0/16 to 127.%d.0.0/16: %w (does something listen on port %d of every address?)",
		First, Last, ErrTaken, ClaimPort)
}

func claim(b Block) (net.Listener, error) {
	l, err := net.Listen("tcp", netip.AddrPortFrom(b.Management(), ClaimPort).String())
	if errors.Is(err, syscall.EADDRINUSE) {
		return nil, fmt.Errorf("%s: %w", b, ErrTaken)
	}
	return l, err
}

// A Pool hands out addresses of one range; what was given back last is handed out again last. It is safe for
// concurrent use.
type Pool struct {
	block       Block
	first, last byte // third byte of the range's bounds; the fourth runs from 1 to 254

	mu   sync.Mutex
	next int
	used map[netip.Addr]bool
}

func newPool(b Block, first, last byte) *Pool {
	return &Pool{block: b, first: first, last: last, used: map[netip.Addr]bool{}}
}

func (p *Pool) size() int { return (int(p.last) - int(p.first) + 1) * 254 }

func (p *Pool) nth(i int) netip.Addr { return p.block.at(p.first+byte(i/254), byte(1+i%254)) }

// Contains tells whether an address is of the range.
func (p *Pool) Contains(a netip.Addr) bool {
	if !a.Is4() {
		return false
	}
	b := a.As4()
	return b[0] == 127 && b[1] == byte(p.block) && b[2] >= p.first && b[2] <= p.last && b[3] >= 1 && b[3] <= 254
}

// Take reserves one given address and reports whether it was free and of the range.
func (p *Pool) Take(a netip.Addr) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.Contains(a) || p.used[a] {
		return false
	}
	p.used[a] = true
	return true
}

// Next reserves an address that is free. It fails when there is none.
func (p *Pool) Next() (netip.Addr, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for range p.size() {
		a := p.nth(p.next)
		p.next = (p.next + 1) % p.size()
		if !p.used[a] {
			p.used[a] = true
			return a, nil
		}
	}
	return netip.Addr{}, fmt.Errorf("all %d addresses from %s to %s are in use", p.size(), p.nth(0), p.nth(p.size()-1))
}

// Release gives an address back.
func (p *Pool) Release(a netip.Addr) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.used, a)
}
