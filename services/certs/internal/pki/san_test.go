package pki

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/stoker-k8s/stoker/pkg/api/name"
	"github.com/stoker-k8s/stoker/pkg/api/reason"
	"github.com/stoker-k8s/stoker/pkg/intent"
)

func TestBadInputIsRefusedByName(t *testing.T) {
	t.Parallel()
	for sentence, test := range map[string]struct {
		change       func(*Input)
		reason, says string
	}{
		"a SAN with a port":            {func(in *Input) { in.CertSANs = []string{"a.b:6443"} }, reason.InvalidCertSAN, `"a.b:6443"`},
		"a SAN with a zone":            {func(in *Input) { in.CertSANs = []string{"fe80::1%eth0"} }, reason.InvalidCertSAN, "fe80"},
		"a service network without /":  {func(in *Input) { in.ServiceCIDRs = []string{"10.0.0.1"} }, reason.InvalidServiceCIDR, "10.0.0.1"},
		"an endpoint without a port":   {func(in *Input) { in.Exposed.Endpoint = "a.b" }, reason.InvalidEndpoint, `"a.b"`},
		"an address that is none":      {func(in *Input) { in.Exposed.Address = "a b" }, reason.InvalidEndpoint, `"a b"`},
		"an advertise address of dots": {func(in *Input) { in.AdvertiseAddress = ".." }, reason.InvalidAdvertiseAddress, `".."`},
	} {
		t.Run(sentence, func(t *testing.T) {
			t.Parallel()
			in := demo()
			test.change(&in)
			_, _, err := Required(in)
			var p *intent.Permanent
			if !errors.As(err, &p) || p.Reason != test.reason || !strings.Contains(p.Message, test.says) {
				t.Errorf("got %v", err)
			}
		})
	}
	t.Run("a long one is cut between characters", func(t *testing.T) {
		t.Parallel()
		in := demo()
		in.CertSANs = []string{"x" + strings.Repeat("é", 200)}
		_, _, err := Required(in)
		var p *intent.Permanent
		if !errors.As(err, &p) || strings.Contains(p.Message, `\x`) || len(p.Message) > 400 {
			t.Errorf("got %v", err)
		}
	})
	t.Run("while kubeconfigs lead to a former endpoint, its name is in the certificate, too", func(t *testing.T) {
		t.Parallel()
		in := demo()
		in.Exposed.Endpoint, in.Exposed.Address, in.Former = "next.example.org:443", "next.example.org", "former.example.org:6443"
		dns, _, err := in.altNames()
		if err != nil || !slices.Contains(dns, "next.example.org") || !slices.Contains(dns, "former.example.org") {
			t.Errorf("%v %v", dns, err)
		}
		if got := in.server(name.KeyAdminConf); got != "https://former.example.org:6443" {
			t.Errorf("kubeconfigs lead to %s", got)
		}
	})
	t.Run("a bad SAN is refused before the endpoint is known", func(t *testing.T) {
		t.Parallel()
		in := demo()
		in.Exposed, in.CertSANs = nil, []string{"_"}
		if _, _, err := Required(in); err == nil {
			t.Error("it isn't")
		}
	})
}

func FuzzAltNames(f *testing.F) {
	f.Add("*.example.org", "10.96.0.0/16", "[::1]:6443")
	f.Add("::ffff:1.2.3.4", "::/0", "a:b:c")
	f.Add("xn--", "255.255.255.255/32", ":0")
	f.Fuzz(func(t *testing.T, san, cidr, endpoint string) {
		in := demo()
		in.CertSANs, in.ServiceCIDRs, in.Exposed.Endpoint = []string{san}, []string{cidr}, endpoint
		_, leaves, err := Required(in)
		var p *intent.Permanent
		if err != nil {
			if !errors.As(err, &p) {
				t.Fatalf("%v has no intent", err)
			}
			return
		}
		certPEM, keyPEM, err := newAuthority("kubernetes", now)
		if err != nil {
			t.Fatal(err)
		}
		ca, err := NewSigner(certPEM, keyPEM)
		if err != nil {
			t.Fatal(err)
		}
		for _, w := range leaves {
			if w.Component != name.ComponentAPIServerCertificate {
				continue
			}
			if _, err := w.Issue(ca, now); err != nil {
				t.Errorf("accepted %q, %q, %q, and then: %v", san, cidr, endpoint, err)
			}
		}
	})
}
