package kube

import (
	"cmp"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"net/url"
	"slices"
	"strings"
	"time"

	"k8s.io/client-go/util/cert"
)

// Way is an address at which a tenant's API server may answer.
type Way struct {
	// Name tells the ways to one server apart.
	Name string
	// Address is dialed, as host:port.
	Address string
	// ServerName is what the server's certificate must name: a DNS name or an IP address.
	ServerName string
}

// Ways say how a tenant's API server is reached. Both functions are called from several goroutines.
type Ways struct {
	// Order returns the ways in the order in which they are tried, at least one.
	Order func() []Way
	// Won is told by which one a connection was made; nil for nobody.
	Won func(Way)
}

const (
	// wayPatience is how long a way may take, from its look-up to the server's certificate.
	wayPatience = 3 * time.Second
	// headStart is how long a way is tried before the next one is tried beside it, if it hasn't failed by then: the delay that RFC 8305
	// recommends.
	headStart = 250 * time.Millisecond
)

// UnreachedError says that no way led to a server that the tenant's authority vouches for.
type UnreachedError struct {
	// Tried are the ways that were tried, in their order, Errs why they failed, at the same indices.
	Tried []Way
	Errs  []error
}

func (e *UnreachedError) Error() string {
	var b strings.Builder
	for i, w := range e.Tried {
		if i > 0 {
			b.WriteString("; ")
		}
		fmt.Fprintf(&b, "%s %s: %v", w.Name, w.Address, e.Errs[i])
	}
	return b.String()
}

// Unwrap returns why the ways failed. That a server isn't trusted is among it only when no other way may come to lead to the right one by
// itself: a foreign server at one address says nothing about the tenant's own, which may be starting at another.
func (e *UnreachedError) Unwrap() []error {
	var passing, all []error
	for _, err := range e.Errs {
		all = append(all, err)
		var untrusted *tls.CertificateVerificationError
		var unknown *net.DNSError
		if errors.As(err, &untrusted) || errors.As(err, &unknown) && unknown.IsNotFound {
			continue
		}
		passing = append(passing, err)
	}
	if len(passing) > 0 {
		return passing
	}
	return all
}

// onlyWay is the way that a kubeconfig names; serverName is empty for that of its URL.
func onlyWay(server *url.URL, serverName string) *Ways {
	host := server.Hostname()
	way := []Way{{Name: "server", Address: net.JoinHostPort(host, cmp.Or(server.Port(), "443")), ServerName: cmp.Or(serverName, host)}}
	return &Ways{Order: func() []Way { return way }}
}

// dial connects by the first way that leads to a server whose certificate config trusts. A way that fails is passed over at once; one that
// doesn't answer holds up the next one by its head start. The error is an [*UnreachedError], or that of ctx.
func (w *Ways) dial(ctx context.Context, config *tls.Config) (net.Conn, error) {
	type result struct {
		way  int
		conn *tls.Conn
		err  error
	}
	ways := w.Order()
	failed := &UnreachedError{Tried: ways, Errs: make([]error, len(ways))}
	ctx, stop := context.WithCancel(ctx)
	defer stop() // ends the attempts that are under way, but no connection
	results := make(chan result)
	try := func(i int) {
		conn, err := ways[i].connect(ctx, config)
		select {
		case results <- result{i, conn, err}:
		case <-ctx.Done():
			if conn != nil {
				_ = conn.Close()
			}
		}
	}
	next := time.NewTimer(0)
	defer next.Stop()
	started, ended := 0, 0
	for ended < len(ways) {
		select {
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-next.C:
			if started < len(ways) {
				go try(started)
				started++
				next.Reset(headStart)
			}
		case r := <-results:
			if r.err == nil {
				if w.Won != nil {
					w.Won(ways[r.way])
				}
				return r.conn, nil
			}
			failed.Errs[r.way] = r.err
			ended++
			next.Reset(0)
		}
	}
	return nil, failed
}

// connect makes a connection and has the server prove that it is the one that is meant.
func (w Way) connect(ctx context.Context, config *tls.Config) (*tls.Conn, error) {
	ctx, cancel := context.WithTimeout(ctx, wayPatience)
	defer cancel()
	config = config.Clone()
	config.ServerName = w.ServerName
	dialer := &tls.Dialer{NetDialer: &net.Dialer{KeepAlive: 30 * time.Second}, Config: config}
	conn, err := dialer.DialContext(ctx, "tcp", w.Address)
	if err != nil {
		return nil, err
	}
	return conn.(*tls.Conn), nil
}

// ErrForeign is that of [Way.Check] when the server's certificate is another authority's.
var ErrForeign = errors.New("a certificate of another authority")

// Check finds out whether a server answers there with a certificate of an authority, PEM, that names it. It sends nothing but the
// beginning of a TLS connection. The error says why not: [ErrForeign], and those of net, crypto/tls and crypto/x509.
func (w Way) Check(ctx context.Context, ca []byte) error {
	authorities, err := cert.ParseCertsPEM(ca)
	if err != nil {
		return fmt.Errorf("the authority's certificate: %w", err)
	}
	roots := x509.NewCertPool()
	for _, a := range authorities {
		roots.AddCert(a)
	}
	conn, err := w.connect(ctx, &tls.Config{RootCAs: roots, MinVersion: tls.VersionTLS12})
	if err == nil {
		return conn.Close()
	}
	// The name and the dates of a certificate are found wrong before anybody asks whose it is.
	var untrusted *tls.CertificateVerificationError
	if errors.As(err, &untrusted) && !slices.ContainsFunc(authorities, func(a *x509.Certificate) bool {
		return len(untrusted.UnverifiedCertificates) > 0 && untrusted.UnverifiedCertificates[0].CheckSignatureFrom(a) == nil
	}) {
		return fmt.Errorf("%w: %w", ErrForeign, err)
	}
	return err
}
