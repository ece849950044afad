package source

import (
	"context"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"sync"
	"testing"

	"golang.org/x/net/dns/dnsmessage"

	"github.com/stoker-k8s/stoker/pkg/api/tenantaddon"
)

func byURL(url string) *tenantaddon.TenantAddonSpec {
	return manifestsSpec(tenantaddon.Manifests{URL: url, Origin: secret()})
}

func TestAddressesThatAreRefused(t *testing.T) {
	for addr, want := range map[string]bool{
		"169.254.169.254": true, "169.254.0.1": true,
		"fe80::1": true, "fe80::1%eth0": true, "fd00:ec2::254": true, "::ffff:169.254.169.254": true,
		"64:ff9b::a9fe:a9fe": true, "100.100.100.200": true, "168.63.129.16": true, "0.0.0.0": true, "224.0.0.1": true,
		"10.0.0.1": false, "127.0.0.1": false, "1.1.1.1": false, "fd00::1": false, "64:ff9b::101:101": false,
	} {
		if got := checkAddr(netip.MustParseAddr(addr)) != nil; got != want {
			t.Errorf("%s refused: %t", addr, got)
		}
	}
	if err := control("tcp", "169.254.169.254:80", nil); err == nil {
		t.Error("a refused address is dialled")
	}
	redirects := serve(t, http.RedirectHandler("https://169.254.169.254/latest/meta-data", http.StatusFound))
	for _, spec := range []*tenantaddon.TenantAddonSpec{
		byURL("http://169.254.169.254/latest"), byURL("https://[fe80::1]/x"), byURL("oci://169.254.169.254/x:v1"),
		chartSpec(tenantaddon.Chart{Repository: "https://[fd00:ec2::254]/x", Name: "x", Version: "1.0.0", Origin: secret()}),
		byURL(redirects.URL),
	} {
		_, err := resolve(t, spec, Inputs{Credentials: redirects.trust()}, "")
		mustFail(t, err, tenantaddon.ReasonSourceInvalid, "it leads to the address")
	}
}

// resolveTo has all names resolved to one IPv4 address, by a DNS server, until the test ends.
func resolveTo(t *testing.T, addr netip.Addr) {
	t.Helper()
	conn, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var serving sync.WaitGroup
	serving.Go(func() {
		for buf := make([]byte, 4096); ; {
			n, from, err := conn.ReadFrom(buf)
			if err != nil {
				return // closed
			}
			var m dnsmessage.Message
			if err := m.Unpack(buf[:n]); err != nil || len(m.Questions) != 1 {
				continue
			}
			m.Response, m.Additionals = true, nil
			if q := m.Questions[0]; q.Type == dnsmessage.TypeA {
				m.Answers = []dnsmessage.Resource{{
					Header: dnsmessage.ResourceHeader{Name: q.Name, Type: q.Type, Class: q.Class, TTL: 1}, Body: &dnsmessage.AResource{A: addr.As4()},
				}}
			}
			if answer, err := m.Pack(); err == nil {
				_, _ = conn.WriteTo(answer, from)
			}
		}
	})
	before := net.DefaultResolver
	net.DefaultResolver = &net.Resolver{PreferGo: true, Dial: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, "udp", conn.LocalAddr().String())
	}}
	t.Cleanup(func() {
		net.DefaultResolver = before
		_ = conn.Close()
		serving.Wait()
	})
}

func TestNamesOfAddressesThatAreRefused(t *testing.T) {
	resolveTo(t, netip.MustParseAddr("169.254.169.254"))
	in := Inputs{Credentials: map[string][]byte{"username": []byte(user), "password": []byte(password)}}
	_, err := resolve(t, byURL("https://metadata.example.com/x.yaml"), in, "")
	mustFail(t, err, tenantaddon.ReasonSourceInvalid, "metadata.example.com", "it leads to the address 169.254.169.254")
}

func TestRedirects(t *testing.T) {
	target := serve(t, files{"install.yaml": []byte(configMap("a"))})
	plain := httptest.NewServer(files{"install.yaml": []byte(configMap("a"))})
	t.Cleanup(plain.Close)
	srv := serve(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/elsewhere":
			http.Redirect(w, r, target.URL+"/install.yaml", http.StatusFound)
		case "/plain":
			http.Redirect(w, r, plain.URL+"/install.yaml", http.StatusFound)
		case "/here":
			http.Redirect(w, r, "/install.yaml", http.StatusFound)
		case "/install.yaml":
			_, _ = w.Write([]byte(configMap("a")))
		case "/query":
			http.Redirect(w, r, "https://127.0.0.1:1/x?signature="+password, http.StatusFound)
		case "/500":
			http.Error(w, password, http.StatusInternalServerError)
		default: // as many as there are r
			http.Redirect(w, r, r.URL.Path[:len(r.URL.Path)-1], http.StatusFound)
		}
	}))
	in := Inputs{Credentials: srv.full()}
	in.Credentials["ca.crt"] = append(in.Credentials["ca.crt"], target.ca...)
	of := func(path string) error {
		_, err := resolve(t, byURL(srv.URL+path), in, "")
		return err
	}
	t.Run("credentials go with one on the same host, and with none to another", func(t *testing.T) {
		if err := of("/here"); err != nil {
			t.Error(err)
		}
		if got := srv.authorized(); len(got) != 2 {
			t.Errorf("with credentials: %q", got)
		}
		if err := of("/elsewhere"); err != nil {
			t.Error(err)
		}
		if got := target.authorized(); len(got) > 0 || target.count("install.yaml") != 1 {
			t.Errorf("asked %d times, with credentials for %q", target.count("install.yaml"), got)
		}
	})
	t.Run("at most five", func(t *testing.T) {
		if err := of("/install.yaml" + strings.Repeat("r", 5)); err != nil {
			t.Error(err)
		}
		mustFail(t, of("/install.yaml"+strings.Repeat("r", 6)), tenantaddon.ReasonSourceInvalid, "more than 5")
	})
	t.Run("none to http", func(t *testing.T) {
		mustFail(t, of("/plain"), tenantaddon.ReasonSourceInvalid, "from https to http")
	})
	t.Run("what servers send isn't in errors", func(t *testing.T) {
		mustFail(t, of("/query"), tenantaddon.ReasonSourceUnavailable, "refused")
		mustFail(t, of("/500"), tenantaddon.ReasonSourceUnavailable, "500")
	})
}

func TestWithoutTLS(t *testing.T) {
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Authorization") != "" {
			t.Error("credentials were sent without TLS")
		}
		if r.URL.Path == "/secret" {
			w.WriteHeader(http.StatusUnauthorized)
			return
		}
		_, _ = w.Write([]byte(configMap("a")))
	}))
	t.Cleanup(srv.Close)
	in := Inputs{Credentials: map[string][]byte{"username": []byte(user), "password": []byte(password)}}
	mustResolve(t, byURL(srv.URL+"/a.yaml"), in)
	_, err := resolve(t, byURL(srv.URL+"/secret"), in, "")
	mustFail(t, err, tenantaddon.ReasonSourceUnavailable, "401", "never sent without TLS", "https://")
}

func TestTooLarge(t *testing.T) {
	srv := serve(t, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		for range maxDownload>>20 + 1 {
			_, _ = w.Write(make([]byte, 1<<20))
		}
	}))
	_, err := resolve(t, byURL(srv.URL), Inputs{Credentials: srv.trust()}, "")
	mustFail(t, err, tenantaddon.ReasonSourceInvalid, "larger than 20 MiB")
}

func TestPlacesThatAreRefused(t *testing.T) {
	for url, says := range map[string]string{
		"https://" + user + ":" + password + "@example.com/x": "must not hold a user",
		"ftp://example.com/x":   "must begin with oci://",
		"https:///x":            "with a host",
		"https://x/y#" + "z":    "neither ? nor #",
		"https://[::1":          "must be a URL",
		"oci://ghcr.io/x:v1?a=": "neither ? nor #",
		"oci://ghcr.io":         "must be a reference",
	} {
		_, err := resolve(t, byURL(url), Inputs{}, "")
		mustFail(t, err, tenantaddon.ReasonInvalid, "spec.manifests.url", says)
	}
	_, err := resolve(t, &tenantaddon.TenantAddonSpec{}, Inputs{}, "")
	mustFail(t, err, tenantaddon.ReasonInvalid, "exactly one of")
}
