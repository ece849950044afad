package source

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"syscall"
	"time"
)

const userAgent = "stoker-tenantaddons"

// metadata are addresses at which clouds give machines their credentials, other than link-local ones: whoever writes a TenantAddon mustn't read
// them through us.
var metadata = map[netip.Addr]bool{
	netip.MustParseAddr("fd00:ec2::254"):   true,
	netip.MustParseAddr("fd20:ce::254"):    true,
	netip.MustParseAddr("100.100.100.200"): true,
	netip.MustParseAddr("168.63.129.16"):   true,
	netip.MustParseAddr("192.0.0.192"):     true,
}

// nat64 is the prefix behind which a network may have all IPv4 addresses.
var nat64 = netip.MustParsePrefix("64:ff9b::/96")

// checkAddr refuses link-local addresses and metadata.
func checkAddr(addr netip.Addr) error {
	addr = addr.Unmap().WithZone("")
	if nat64.Contains(addr) {
		b := addr.As16()
		addr = netip.AddrFrom4([4]byte(b[12:]))
	}
	if addr.IsLinkLocalUnicast() || addr.IsMulticast() || addr.IsUnspecified() || metadata[addr] {
		return refusal(fmt.Sprintf("it leads to the address %s, from which nothing is fetched", addr))
	}
	return nil
}

// control looks at addresses when they are dialled, after names were resolved.
func control(_, address string, _ syscall.RawConn) error {
	to, err := netip.ParseAddrPort(address)
	if err != nil {
		return fmt.Errorf("address %q: %w", address, err)
	}
	return checkAddr(to.Addr())
}

// guard refuses requests that must not be made, redirected ones too.
type guard struct {
	next *http.Transport
	// secure is whether all requests must be by TLS.
	secure bool
}

// RoundTrip looks at addresses also here, as a proxy would dial them elsewhere.
func (g guard) RoundTrip(req *http.Request) (*http.Response, error) {
	if g.secure && req.URL.Scheme != "https" {
		return nil, refusal("it leads from https to " + req.URL.Scheme)
	}
	if req.URL.Scheme != "https" && req.Header.Get("Authorization") != "" {
		return nil, refusal("it leads to where credentials would be sent without TLS")
	}
	if addr, err := netip.ParseAddr(req.URL.Hostname()); err == nil {
		if err := checkAddr(addr); err != nil {
			return nil, err
		}
	}
	req = req.Clone(req.Context())
	req.Header.Set("User-Agent", userAgent)
	return g.next.RoundTrip(req)
}

// client makes a client for one fetch of s. Its connections must be closed after that.
func (s *source) client() (*http.Client, error) {
	roots, err := x509.SystemCertPool()
	if err != nil {
		return nil, fmt.Errorf("the system's certificate authorities: %w", err)
	}
	roots.AppendCertsFromPEM(s.credentials.ca)
	dialer := &net.Dialer{Timeout: 10 * time.Second, Control: control}
	transport := &http.Transport{
		Proxy:               http.ProxyFromEnvironment,
		DialContext:         dialer.DialContext,
		TLSClientConfig:     &tls.Config{RootCAs: roots, MinVersion: tls.VersionTLS12},
		TLSHandshakeTimeout: 10 * time.Second,
		ForceAttemptHTTP2:   true,
		// Some servers say of a tar.gz that it is encoded: its digest is that of what is sent.
		DisableCompression: true,
	}
	return &http.Client{Transport: guard{next: transport, secure: s.url.Scheme != "http"}, CheckRedirect: checkRedirect}, nil
}

// checkRedirect bounds redirects. net/http hands credentials on to subdomains; here they stay with the host.
func checkRedirect(req *http.Request, via []*http.Request) error {
	if len(via) > maxRedirects {
		return refusal(fmt.Sprintf("it redirects more than %d times", maxRedirects))
	}
	if via[len(via)-1].URL.Scheme == "https" && req.URL.Scheme != "https" {
		return refusal("it redirects from https to " + req.URL.Scheme)
	}
	if req.URL.Host != via[0].URL.Host {
		req.Header.Del("Authorization")
	}
	return nil
}

// get reads what is at u, which may be elsewhere than the source itself: then no credentials are sent.
func (s *source) get(ctx context.Context, client *http.Client, u *url.URL, limit int64) ([]byte, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, u.String(), nil)
	if err != nil {
		return nil, err
	}
	if s.credentials.named && u.Scheme == "https" && u.Host == s.url.Host {
		req.SetBasicAuth(s.credentials.login.Username, s.credentials.login.Password)
	}
	resp, err := client.Do(req)
	if err != nil {
		return nil, err
	}
	defer func() { _ = resp.Body.Close() }()
	if resp.StatusCode != http.StatusOK {
		return nil, statusError(resp.StatusCode)
	}
	return readAll(resp.Body, limit)
}

// readAll refuses more than limit.
func readAll(r io.Reader, limit int64) ([]byte, error) {
	data, err := io.ReadAll(io.LimitReader(r, limit+1))
	if err != nil {
		return nil, err
	}
	if int64(len(data)) > limit {
		return nil, refusal(fmt.Sprintf("it is larger than %d MiB", limit>>20))
	}
	return data, nil
}
