package address

import (
	"errors"
	"net/netip"
	"testing"
)

func TestPool(t *testing.T) {
	b := Block(20)
	t.Run("hands out the whole range, each address once", func(t *testing.T) {
		p := b.LoadBalancers()
		seen := map[netip.Addr]bool{}
		for range p.size() {
			a, err := p.Next()
			if err != nil {
				t.Fatal(err)
			}
			if seen[a] || !p.Contains(a) || b.Pods().Contains(a) {
				t.Fatalf("%s: seen before %v, of the range %v, a pod's %v", a, seen[a], p.Contains(a), b.Pods().Contains(a))
			}
			seen[a] = true
		}
		if _, err := p.Next(); err == nil {
			t.Error("there was one more")
		}
		for _, edge := range []string{"127.20.128.1", "127.20.254.254"} {
			if !seen[netip.MustParseAddr(edge)] {
				t.Errorf("%s was never handed out", edge)
			}
		}
	})
	t.Run("what was given back isn't handed out next", func(t *testing.T) {
		p := b.Pods()
		first, _ := p.Next()
		p.Release(first)
		if second, _ := p.Next(); second == first {
			t.Errorf("%s twice", first)
		}
	})
	t.Run("an address can be taken once, and only if it is of the range", func(t *testing.T) {
		p := b.LoadBalancers()
		a := netip.MustParseAddr("127.20.128.1")
		if !p.Take(a) || p.Take(a) {
			t.Error("not exactly once")
		}
		if next, _ := p.Next(); next == a {
			t.Error("and handed out again")
		}
		for _, other := range []string{"127.20.127.1", "127.21.128.1", "127.20.128.0", "127.20.128.255", "10.0.0.1", "::1"} {
			if p.Take(netip.MustParseAddr(other)) {
				t.Errorf("%s was taken", other)
			}
		}
	})
}

func TestClaim(t *testing.T) {
	first, held, err := Claim(0, "a directory")
	if err != nil {
		t.Fatal(err)
	}
	defer held.Close()
	t.Run("a block is had once", func(t *testing.T) {
		if _, _, err := Claim(first, ""); !errors.Is(err, ErrTaken) {
			t.Errorf("got %v", err)
		}
	})
	t.Run("who comes second gets another", func(t *testing.T) {
		second, l, err := Claim(0, "a directory")
		if err != nil {
			t.Fatal(err)
		}
		defer l.Close()
		if second == first {
			t.Errorf("%s twice", first)
		}
	})
	t.Run("a block outside the bounds is refused", func(t *testing.T) {
		for _, b := range []Block{1, First - 1, Last + 1} {
			if _, _, err := Claim(b, ""); err == nil {
				t.Errorf("block %d was claimed", int(b))
			}
		}
	})
}
