package addons

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/stoker-k8s/stoker/internal/testing/port"
	"github.com/stoker-k8s/stoker/pkg/kube"
)

// reaching is a client of a tenant with an authority, by ways.
func reaching(t testing.TB, of *authority, ways ...kube.Way) (*Cluster, *kube.Route) {
	t.Helper()
	pair := of.issue(t, x509.ExtKeyUsageClientAuth, nil)
	kubeconfig, err := kube.Kubeconfig{
		Server: "https://192.0.2.1:6443", CA: of.pem, Cluster: "demo", User: "admin", Certificate: pair.Cert, Key: pair.Key,
	}.Marshal()
	if err != nil {
		t.Fatal(err)
	}
	r := kube.NewRoute(ways, "", "", nil)
	c, err := newCluster(kubeconfig, kube.Options{Ways: r.Ways()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	return c, r
}

func way(name, address, serverName string) kube.Way {
	return kube.Way{Name: name, Address: address, ServerName: serverName}
}

func TestTheWayThatWorksIsTaken(t *testing.T) {
	t.Parallel()
	tenants, others := newAuthority(t), newAuthority(t)
	foreign, askedForeign := others.server(t, nil)
	hole, _ := blackHole(t)
	second, _ := blackHole(t)
	elsewhere := tenants.serves(t, func(leaf *x509.Certificate) { leaf.DNSNames = []string{"another.default.svc"} })
	const host = "demo.default.svc"
	for sentence, before := range map[string][]kube.Way{
		"past a host name that doesn't resolve":                     {way("a", "demo.default.invalid:6443", host)},
		"past an address that is another authority's":               {way("a", foreign.Listener.Addr().String(), "127.0.0.1")},
		"past one that nobody listens at":                           {way("a", port.Address(t, "127.0.0.1"), host)},
		"past a black hole":                                         {way("a", hole, host)},
		"past two":                                                  {way("a", hole, host), way("b", second, host)},
		"past a server of the tenant's authority with another name": {way("a", elsewhere, host)},
		"past all of them": {
			way("a", "demo.default.invalid:6443", host), way("b", foreign.Listener.Addr().String(), "127.0.0.1"), way("c", hole, host),
			way("d", port.Address(t, "127.0.0.1"), host),
		},
	} {
		t.Run(sentence, func(t *testing.T) {
			t.Parallel()
			own, asked := tenants.server(t, nil)
			c, r := reaching(t, tenants, append(before, way("own", own.Listener.Addr().String(), host))...)
			if err := c.Probe(t.Context()); err != nil || asked.Load() != 1 || r.Taken() != "own" {
				t.Errorf("%v, asked %d times, by %q", err, asked.Load(), r.Taken())
			}
		})
	}
	t.Cleanup(func() {
		if n := askedForeign.Load(); n > 0 {
			t.Errorf("a foreign server was asked %d times", n)
		}
	})
}

func TestAWayIsTakenUntilItEnds(t *testing.T) {
	t.Parallel()
	tenants := newAuthority(t)
	one, _ := tenants.server(t, nil)
	two, _ := tenants.server(t, nil)
	servers, other := map[string]*httptest.Server{"one": one, "two": two}, map[string]string{"one": "two", "two": "one"}
	const host = "demo.default.svc"
	hole, _ := blackHole(t)
	c, r := reaching(t, tenants,
		way("hole", hole, host), way("one", one.Listener.Addr().String(), host), way("two", two.Listener.Addr().String(), host))
	if err := c.Probe(t.Context()); err != nil {
		t.Fatal(err)
	}
	first := r.Taken() // the first one, unless this machine is so busy that the other was asked beside it
	if order := r.Ways().Order(); other[first] == "" || order[0].Name != first {
		t.Fatalf("taken %q, next is %v", first, order)
	}
	servers[first].CloseClientConnections()
	servers[first].Close()
	if err := c.Probe(t.Context()); err != nil || r.Taken() != other[first] {
		t.Errorf("%v; taken %q after %q", err, r.Taken(), first)
	}
}

func TestNoWayLeadsToTheTenant(t *testing.T) {
	t.Parallel()
	tenants, others := newAuthority(t), newAuthority(t)
	foreign, nobody := others.serves(t, nil), port.Address(t, "127.0.0.1")
	for sentence, test := range map[string]struct {
		ways      []kube.Way
		untrusted bool // another kubeconfig may help
		says      string
	}{
		"for somebody else is there": {
			[]kube.Way{way("service", "demo.default.invalid:6443", "demo.default.svc"), way("endpoint", foreign, "127.0.0.1")}, true,
			"endpoint " + foreign + ": tls: failed to verify certificate",
		},
		"for it starts, while somebody else is at its endpoint": {
			[]kube.Way{way("service", nobody, "demo.default.svc"), way("endpoint", foreign, "127.0.0.1")}, false, "service " + nobody + ": ",
		},
	} {
		t.Run(sentence, func(t *testing.T) {
			t.Parallel()
			c, r := reaching(t, tenants, test.ways...)
			err := c.kube.Get(t.Context(), kube.Namespaces, "", "kube-system", &struct{}{})
			var unreached *kube.UnreachedError
			var untrusted *tls.CertificateVerificationError
			if !errors.As(err, &unreached) || errors.As(err, &untrusted) != test.untrusted || passing(err) == test.untrusted ||
				!strings.Contains(err.Error(), test.says) || r.Taken() != "" {
				t.Errorf("%v; taken %q", err, r.Taken())
			}
		})
	}
}
