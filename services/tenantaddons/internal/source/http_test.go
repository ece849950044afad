package source

import (
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"testing"

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
