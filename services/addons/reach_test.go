package addons

import (
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/json"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"strconv"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stoker-k8s/stoker/internal/testing/poll"
	"github.com/stoker-k8s/stoker/internal/testing/port"
	"github.com/stoker-k8s/stoker/pkg/api/event"
	"github.com/stoker-k8s/stoker/pkg/api/name"
	"github.com/stoker-k8s/stoker/pkg/api/reason"
	"github.com/stoker-k8s/stoker/pkg/api/state"
	"github.com/stoker-k8s/stoker/pkg/events"
	"github.com/stoker-k8s/stoker/pkg/loop"
	"github.com/stoker-k8s/stoker/pkg/pki"
)

// authority is a certificate authority.
type authority struct {
	*pki.Signer
	pem []byte
}

func newAuthority(t testing.TB) *authority {
	t.Helper()
	now := time.Now()
	pair, err := pki.Issue(&x509.Certificate{
		Subject: pkix.Name{CommonName: "kubernetes"}, NotBefore: now.Add(-48 * time.Hour), NotAfter: now.Add(time.Hour),
		IsCA: true, KeyUsage: x509.KeyUsageCertSign,
	}, nil)
	if err != nil {
		t.Fatal(err)
	}
	signer, err := pair.Signer()
	if err != nil {
		t.Fatal(err)
	}
	return &authority{signer, pair.Cert}
}

// issue makes a certificate and its key.
func (a *authority) issue(t testing.TB, usage x509.ExtKeyUsage, change func(*x509.Certificate)) pki.Pair {
	t.Helper()
	now := time.Now()
	leaf := &x509.Certificate{
		Subject: pkix.Name{CommonName: "kube-apiserver"}, NotBefore: now.Add(-24 * time.Hour), NotAfter: now.Add(time.Hour),
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, DNSNames: []string{"demo.default.svc"}, ExtKeyUsage: []x509.ExtKeyUsage{usage},
	}
	if change != nil {
		change(leaf)
	}
	pair, err := pki.Issue(leaf, a.Signer)
	if err != nil {
		t.Fatal(err)
	}
	return pair
}

// server starts a TLS server with a certificate of the authority; change may change what the certificate says. asked counts requests.
func (a *authority) server(t testing.TB, change func(*x509.Certificate)) (s *httptest.Server, asked *atomic.Int32) {
	t.Helper()
	asked = &atomic.Int32{}
	s = httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		asked.Add(1)
		_, _ = w.Write([]byte(`{}`))
	}))
	s.EnableHTTP2, s.Config.ErrorLog = true, log.New(io.Discard, "", 0)
	pair, err := a.issue(t, x509.ExtKeyUsageServerAuth, change).TLS()
	if err != nil {
		t.Fatal(err)
	}
	s.TLS = &tls.Config{Certificates: []tls.Certificate{pair}, MinVersion: tls.VersionTLS12}
	s.StartTLS()
	t.Cleanup(s.Close)
	return s, asked
}

// serves is where such a server listens.
func (a *authority) serves(t testing.TB, change func(*x509.Certificate)) (endpoint string) {
	t.Helper()
	s, _ := a.server(t, change)
	return s.Listener.Addr().String()
}

// blackHole is an address that takes connections and never says a word. taken counts them.
func blackHole(t testing.TB) (address string, taken *atomic.Int32) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	taken = &atomic.Int32{}
	var held []net.Conn
	done := make(chan struct{})
	go func() {
		defer close(done)
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			taken.Add(1)
			held = append(held, c)
		}
	}()
	t.Cleanup(func() {
		_ = l.Close()
		<-done
		for _, c := range held {
			_ = c.Close()
		}
	})
	return l.Addr().String(), taken
}

// gate is an address that is a black hole until it is opened, and then leads to another address.
func gate(t testing.TB, to string) (address string, open *atomic.Bool) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	open = &atomic.Bool{}
	var conns []net.Conn
	done := make(chan struct{})
	go func() {
		defer close(done)
		for {
			in, err := l.Accept()
			if err != nil {
				return
			}
			conns = append(conns, in)
			if !open.Load() {
				continue
			}
			out, err := net.Dial("tcp", to)
			if err != nil {
				continue
			}
			conns = append(conns, out)
			go func() { _, _ = io.Copy(out, in) }()
			go func() { _, _ = io.Copy(in, out) }()
		}
	}()
	t.Cleanup(func() {
		_ = l.Close()
		<-done
		for _, c := range conns {
			_ = c.Close()
		}
	})
	return l.Addr().String(), open
}

// A tenant whose endpoint is a black hole is looked after by another way. What is known of the endpoint comes after that, and is put right
// once it answers.
func TestATenantWhoseEndpointDoesNotAnswer(t *testing.T) {
	tn, key := sharedTenant(t), events.Tenant("default", "demo")
	host, port, _ := net.SplitHostPort(tn.in.Endpoint)
	number, err := strconv.ParseInt(port, 10, 32)
	if err != nil {
		t.Fatal(err)
	}
	endpoint, open := gate(t, tn.in.Endpoint)
	operator, turns := tn.serve(t, key, func(desired *state.Tenant, workload *state.Workload) {
		desired.Spec.NetworkProfile.Port = int32(number)
		workload.Endpoint, workload.LoadBalancer = endpoint, host
	})
	own := func() (step string, a state.Addons) {
		st, err := operator.State(t.Context(), key, name.ServiceAddons)
		if err != nil {
			return "", a
		}
		if err := json.Unmarshal(st.Data, &a); err != nil {
			t.Fatal(err)
		}
		return st.Step, a
	}
	poll.True(t, "everything is applied, by the load balancer", func() bool {
		step, a := own()
		return step == event.Applied && a.Way == state.WayLoadBalancer && a.Objects > 0
	})
	poll.True(t, "it is known that the endpoint doesn't answer", func() bool {
		_, a := own()
		return a.Endpoint.Reason == reason.EndpointTimeout && a.Endpoint.Endpoint == endpoint && !a.Endpoint.Since.IsZero()
	})
	before := turns.Load()
	open.Store(true)
	want := state.Reach{Endpoint: endpoint, Reason: reason.Reached}
	poll.True(t, "it is known that the endpoint answers", func() bool { _, a := own(); return a.Endpoint == want })
	if n := turns.Load() - before; n > 3 {
		t.Errorf("%d turns to find out", n)
	}
	if _, a := own(); a.Way != state.WayLoadBalancer {
		t.Errorf("the way that works was left for %q", a.Way)
	}
}

func TestLookAtAnEndpoint(t *testing.T) {
	t.Parallel()
	tenants, others := newAuthority(t), newAuthority(t)
	plain := httptest.NewServer(http.NotFoundHandler())
	t.Cleanup(plain.Close)
	hole, _ := blackHole(t)
	other := func(leaf *x509.Certificate) { leaf.IPAddresses = []net.IP{net.IPv4(192, 0, 2, 1)} }
	expired := func(leaf *x509.Certificate) { leaf.NotAfter = time.Now().Add(-time.Minute) }
	for sentence, test := range map[string]struct{ endpoint, reason, cause string }{
		"the tenant's own": {tenants.serves(t, nil), reason.Reached, ""},
		"another authority's, of the same name": {
			others.serves(t, nil), reason.EndpointForeign, "answers with a certificate of another authority than the tenant's",
		},
		"another authority's for another host": {
			others.serves(t, other), reason.EndpointForeign, "answers with a certificate of another authority than the tenant's",
		},
		"another authority's that has expired": {
			others.serves(t, expired), reason.EndpointForeign, "answers with a certificate of another authority than the tenant's",
		},
		"the tenant's for another host": {
			tenants.serves(t, other), reason.EndpointCertificate, "answers with a certificate of the tenant's authority that doesn't name this host",
		},
		"the tenant's that has expired": {
			tenants.serves(t, expired), reason.EndpointCertificate,
			"answers with a certificate of the tenant's authority that has expired, or isn't valid yet",
		},
		"a client's certificate of the tenant's authority": {
			tenants.serves(t, func(leaf *x509.Certificate) { leaf.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth} }),
			reason.EndpointCertificate, "answers with a certificate of the tenant's authority that isn't one for servers",
		},
		"a server without TLS":            {plain.Listener.Addr().String(), reason.EndpointForeign, "answers, but not by TLS"},
		"nobody":                          {port.Address(t, "127.0.0.1"), reason.EndpointRefused, "the connection is refused"},
		"a black hole":                    {hole, reason.EndpointTimeout, "nothing answers within 2s"},
		"a name that leads nowhere":       {"demo.invalid:6443", reason.EndpointUnresolved, ""},
		"an address that can't be dialed": {"255.255.255.255:6443", reason.EndpointUnreachable, ""},
	} {
		t.Run(sentence, func(t *testing.T) {
			t.Parallel()
			got := reachAfter(state.Reach{}, test.endpoint, <-look(t.Context(), test.endpoint, string(tenants.pem)), time.Now())
			if got.Endpoint != test.endpoint || got.Reason != test.reason || test.cause != "" && got.Cause != test.cause ||
				got.Since.IsZero() != (got.Reason == reason.Reached) || (got.Cause == "") != (got.Reason == reason.Reached) {
				t.Errorf("%+v", got)
			}
		})
	}
}

func TestWhatIsKnownOfAnEndpoint(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 11, 5, 12, 0, 0, 0, time.UTC)
	refused := state.Reach{Endpoint: "a:1", Reason: reason.EndpointRefused, Cause: "the connection is refused", Since: now.Add(-time.Hour)}
	timeout := error(&net.OpError{Op: "dial", Err: timeoutError{}})
	for sentence, test := range map[string]struct {
		before   state.Reach
		endpoint string
		err      error
		want     state.Reach
	}{
		"what answers has no history": {refused, "a:1", nil, state.Reach{Endpoint: "a:1", Reason: reason.Reached}},
		"what fails first does so from now on": {
			state.Reach{Endpoint: "a:1", Reason: reason.Reached}, "a:1", timeout,
			state.Reach{Endpoint: "a:1", Reason: reason.EndpointTimeout, Cause: "nothing answers within 2s", Since: now},
		},
		"what fails for another reason has failed for as long": {
			refused, "a:1", timeout,
			state.Reach{Endpoint: "a:1", Reason: reason.EndpointTimeout, Cause: "nothing answers within 2s", Since: refused.Since},
		},
		"another endpoint fails from now on": {
			refused, "b:1", timeout,
			state.Reach{Endpoint: "b:1", Reason: reason.EndpointTimeout, Cause: "nothing answers within 2s", Since: now},
		},
		"what fails in the same way stays as it is, byte for byte": {
			state.Reach{Endpoint: "a:1", Reason: reason.EndpointTimeout, Cause: "in other words", Since: refused.Since}, "a:1", timeout,
			state.Reach{Endpoint: "a:1", Reason: reason.EndpointTimeout, Cause: "in other words", Since: refused.Since},
		},
	} {
		t.Run(sentence, func(t *testing.T) {
			t.Parallel()
			if got := reachAfter(test.before, test.endpoint, test.err, now); got != test.want {
				t.Errorf("got  %+v\nwant %+v", got, test.want)
			}
		})
	}
}

// timeoutError is what net says when time is over.
type timeoutError struct{}

func (timeoutError) Error() string   { return "i/o timeout" }
func (timeoutError) Timeout() bool   { return true }
func (timeoutError) Temporary() bool { return true }

func TestWhenAnEndpointIsLookedAt(t *testing.T) {
	t.Parallel()
	reached := state.Reach{Endpoint: "a:1", Reason: reason.Reached}
	told := func(service, what string) *loop.Turn {
		return &loop.Turn{Events: []loop.Event{{Service: service, What: what}}}
	}
	woken := func(kind string) *loop.Turn { return &loop.Turn{Wakes: []loop.Wake{{Kind: kind}}} }
	for sentence, test := range map[string]struct {
		turn   *loop.Turn
		before state.Reach
		want   bool
	}{
		"the first time":                        {woken(claimed), state.Reach{}, true},
		"when it is another":                    {woken(claimed), state.Reach{Endpoint: "b:1", Reason: reason.Reached}, true},
		"after a rollout":                       {told(name.ServiceWorkload, event.Available), reached, true},
		"with new certificates":                 {told(name.ServiceCerts, event.Rotated), reached, true},
		"when it is time to":                    {woken(unreached), reached, true},
		"when Stoker takes another way":         {woken(rerouted), reached, true},
		"not for drift inside the tenant":       {woken(drifted), reached, false},
		"not because a replica took it over":    {woken(claimed), reached, false},
		"not for a change of the desired state": {told(name.ServiceIntake, event.Accepted), reached, false},
	} {
		t.Run(sentence, func(t *testing.T) {
			t.Parallel()
			if got := looksAt(test.turn.Events, test.turn.Wakes, test.before, "a:1"); got != test.want {
				t.Errorf("looks at it: %t", got)
			}
		})
	}
}

func TestAnEndpointIsLookedAtEverMoreRarely(t *testing.T) {
	t.Parallel()
	now := time.Now()
	for since, around := range map[time.Duration]time.Duration{
		0: soonestLook, time.Minute: time.Minute, time.Hour: latestLook, -time.Hour: soonestLook,
	} {
		if got := lookAgainAfter(now.Add(-since), now); got < around*9/10 || got > around*11/10 {
			t.Errorf("after %s: in %s, want about %s", since, got, around)
		}
	}
}
