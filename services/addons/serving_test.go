package addons

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"testing"

	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/stoker-k8s/stoker/internal/testing/poll"
	"github.com/stoker-k8s/stoker/pkg/api/event"
	"github.com/stoker-k8s/stoker/pkg/api/name"
	"github.com/stoker-k8s/stoker/pkg/api/state"
	"github.com/stoker-k8s/stoker/pkg/api/v1alpha1"
	"github.com/stoker-k8s/stoker/pkg/events"
)

// csr is what the kubelet of node n1 asks for, as change makes it.
func csr(t *testing.T, change func(*certificatesv1.CertificateSigningRequestSpec, *x509.CertificateRequest)) certificatesv1.CertificateSigningRequestSpec {
	t.Helper()
	spec := certificatesv1.CertificateSigningRequestSpec{
		SignerName: certificatesv1.KubeletServingSignerName, Username: "system:node:n1", Groups: []string{"system:nodes", "system:authenticated"},
		Usages: []certificatesv1.KeyUsage{certificatesv1.UsageDigitalSignature, certificatesv1.UsageServerAuth},
	}
	asked := &x509.CertificateRequest{
		Subject:  pkix.Name{CommonName: "system:node:n1", Organization: []string{"system:nodes"}},
		DNSNames: []string{"n1"}, IPAddresses: []net.IP{net.ParseIP("10.0.0.1")},
	}
	if change != nil {
		change(&spec, asked)
	}
	if spec.Request == nil {
		key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
		if err != nil {
			t.Fatal(err)
		}
		der, err := x509.CreateCertificateRequest(rand.Reader, asked, key)
		if err != nil {
			t.Fatal(err)
		}
		spec.Request = pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE REQUEST", Bytes: der})
	}
	return spec
}

func TestServingRequests(t *testing.T) {
	type spec = certificatesv1.CertificateSigningRequestSpec
	type asks = x509.CertificateRequest
	addresses := []corev1.NodeAddress{
		{Type: corev1.NodeHostName, Address: "n1"}, {Type: corev1.NodeInternalIP, Address: "10.0.0.1"}, {Type: corev1.NodeInternalIP, Address: "fd00::1"},
		{Type: corev1.NodeExternalDNS, Address: "N1.example.org"},
	}
	for name, c := range map[string]struct {
		change func(*spec, *asks)
		why    string // "" for one that is right
	}{
		"a kubelet's own": {nil, ""},
		"with an RSA key's usages": {func(s *spec, _ *asks) {
			s.Usages = []certificatesv1.KeyUsage{certificatesv1.UsageServerAuth, certificatesv1.UsageKeyEncipherment, certificatesv1.UsageDigitalSignature}
		}, ""},
		"with all of its addresses": {func(_ *spec, a *asks) {
			a.DNSNames, a.IPAddresses = []string{"n1", "n1.example.org"}, append(a.IPAddresses, net.ParseIP("fd00:0::1"))
		}, ""},
		"with an address alone":      {func(_ *spec, a *asks) { a.DNSNames = nil }, ""},
		"a person's":                 {func(s *spec, _ *asks) { s.Username = "admin" }, "is no node"},
		"of a node without a name":   {func(s *spec, _ *asks) { s.Username = "system:node:" }, "is no node"},
		"of a node that can't be":    {func(s *spec, _ *asks) { s.Username = "system:node:a/b" }, "is no node"},
		"of who isn't in the group":  {func(s *spec, _ *asks) { s.Groups = []string{"system:authenticated"} }, "is no node"},
		"of another node":            {func(s *spec, _ *asks) { s.Username = "system:node:n2" }, `for "system:node:n1"`},
		"for another node":           {func(_ *spec, a *asks) { a.Subject.CommonName = "system:node:n2" }, `for "system:node:n2"`},
		"for no organization":        {func(_ *spec, a *asks) { a.Subject.Organization = nil }, "organizations"},
		"for a further organization": {func(_ *spec, a *asks) { a.Subject.Organization = []string{"system:nodes", "system:masters"} }, "organizations"},
		"for another signer":         {func(s *spec, _ *asks) { s.SignerName = certificatesv1.KubeAPIServerClientSignerName }, "signer"},
		"as a client": {func(s *spec, _ *asks) {
			s.Usages = []certificatesv1.KeyUsage{certificatesv1.UsageDigitalSignature, certificatesv1.UsageClientAuth}
		}, "usages"},
		"as a client, too": {func(s *spec, _ *asks) { s.Usages = append(s.Usages, certificatesv1.UsageClientAuth) }, "usages"},
		"without a usage":  {func(s *spec, _ *asks) { s.Usages = s.Usages[:1] }, "usages"},
		"with an e-mail address": {
			func(_ *spec, a *asks) { a.EmailAddresses = []string{"a@example.org"} }, "e-mail",
		},
		"with a URI":             {func(_ *spec, a *asks) { a.URIs = []*url.URL{{Scheme: "spiffe", Host: "n1"}} }, "URIs"},
		"with no name at all":    {func(_ *spec, a *asks) { a.DNSNames, a.IPAddresses = nil, nil }, "no name and no address"},
		"with somebody's name":   {func(_ *spec, a *asks) { a.DNSNames = append(a.DNSNames, "kubernetes.default") }, `no address "kubernetes.default"`},
		"with a wildcard":        {func(_ *spec, a *asks) { a.DNSNames = []string{"*"} }, `no address "*"`},
		"with an address as DNS": {func(_ *spec, a *asks) { a.DNSNames = []string{"10.0.0.1"} }, `no address "10.0.0.1"`},
		"with another address":   {func(_ *spec, a *asks) { a.IPAddresses = []net.IP{net.ParseIP("10.0.0.2")} }, "no address 10.0.0.2"},
		"that is none":           {func(s *spec, _ *asks) { s.Request = []byte("x") }, "PEM"},
		"that was tampered with": {func(s *spec, _ *asks) {
			s.Request = csr(t, nil).Request
			block, _ := pem.Decode(s.Request)
			block.Bytes[len(block.Bytes)-1] ^= 1
			s.Request = pem.EncodeToMemory(block)
		}, "verif"},
		"of two": {func(s *spec, _ *asks) { s.Request = slices.Concat(csr(t, nil).Request, csr(t, nil).Request) }, "PEM"},
	} {
		t.Run(name, func(t *testing.T) {
			r := csr(t, c.change)
			node, asked, err := servingOf(&r)
			if err == nil {
				err = foreign(asked, addresses)
			}
			switch {
			case c.why == "" && (err != nil || node != "n1"):
				t.Errorf("of %q: %v", node, err)
			case c.why != "" && (err == nil || !strings.Contains(err.Error(), c.why)):
				t.Errorf("%v, want %s", err, c.why)
			}
		})
	}
}

func TestRequestsAreBounded(t *testing.T) {
	r := requests{}
	for i := range maxRequests {
		if !r.seen(fmt.Sprint("r", i), false) {
			t.Fatal(i)
		}
	}
	if r.seen("one more", false) || len(r) != maxRequests {
		t.Errorf("%d requests are remembered", len(r))
	}
	if !r.seen("r7", false) {
		t.Error("one that is remembered isn't looked at again")
	}
	if some, more := r.next(); len(some) != requestsATurn || !more {
		t.Errorf("%d at once, more: %v", len(some), more)
	}
	if r.seen("r7", true) || len(r) != maxRequests-1 {
		t.Error("one that is gone is remembered")
	}
}

// ask makes a request as the node's kubelet would.
func (tn *tenant) ask(t *testing.T, request, node string, change func(*certificatesv1.CertificateSigningRequestSpec, *x509.CertificateRequest)) {
	t.Helper()
	o := &certificatesv1.CertificateSigningRequest{
		TypeMeta:   metav1.TypeMeta{APIVersion: "certificates.k8s.io/v1", Kind: "CertificateSigningRequest"},
		ObjectMeta: metav1.ObjectMeta{Name: request}, Spec: csr(t, change),
	}
	o.Spec.Username, o.Spec.Groups = "", nil // the server's word
	body, err := json.Marshal(o)
	if err != nil {
		t.Fatal(err)
	}
	err = tn.rest.Post().AbsPath("/apis/certificates.k8s.io/v1/certificatesigningrequests").SetHeader("Content-Type", "application/json").
		SetHeader("Impersonate-User", "system:node:"+node).SetHeader("Impersonate-Group", "system:nodes").Body(body).Do(t.Context()).Error()
	if err != nil {
		t.Fatal(err)
	}
}

func (tn *tenant) conditions(t *testing.T, request string) []certificatesv1.CertificateSigningRequestCondition {
	t.Helper()
	o := &certificatesv1.CertificateSigningRequest{}
	if err := tn.rest.Get().AbsPath("/apis/certificates.k8s.io/v1/certificatesigningrequests/" + request).Do(t.Context()).Into(o); err != nil {
		t.Fatal(err)
	}
	return o.Status.Conditions
}

func TestServingCertificates(t *testing.T) {
	const nodes = "/api/v1/nodes"
	tn, key := startTenant(t), events.Tenant("default", "demo")
	tn.raw(t, http.MethodPost, "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings", "application/json", `{"apiVersion":"rbac.authorization.k8s.io/v1",
		"kind":"ClusterRoleBinding","metadata":{"name":"nodes"},"roleRef":{"apiGroup":"rbac.authorization.k8s.io","kind":"ClusterRole","name":"system:node-bootstrapper"},
		"subjects":[{"apiGroup":"rbac.authorization.k8s.io","kind":"Group","name":"system:nodes"}]}`)
	operator, _ := tn.serve(t, key, nil)
	own := func() *state.State {
		st, err := operator.State(t.Context(), key, name.ServiceAddons)
		if err != nil {
			return &state.State{}
		}
		return st
	}
	config := func() string {
		cm := &corev1.ConfigMap{}
		if err := tn.rest.Get().AbsPath("/api/v1/namespaces/kube-system/configmaps/kubelet-config").Do(t.Context()).Into(cm); err != nil {
			return err.Error()
		}
		return cm.Data["kubelet"]
	}
	approved := func(request string) func() bool {
		return func() bool {
			c := tn.conditions(t, request)
			return len(c) == 1 && c[0].Type == certificatesv1.CertificateApproved
		}
	}
	poll.True(t, "everything is applied", func() bool { return own().Step == event.Applied })
	if strings.Contains(config(), "serverTLSBootstrap") {
		t.Errorf("kubelets are told to ask although it is off:\n%s", config())
	}
	tn.ask(t, "before", "n1", nil)
	tn.raw(t, http.MethodPost, nodes, "application/json", `{"apiVersion":"v1","kind":"Node","metadata":{"name":"n1"}}`)
	address := func(node, ip string) {
		t.Helper()
		tn.raw(t, http.MethodPatch, nodes+"/"+node+"/status", merge, fmt.Sprintf(
			`{"status":{"addresses":[{"type":"Hostname","address":%q},{"type":"InternalIP","address":%q}]}}`, node, ip))
	}
	address("n1", "10.0.0.1")

	tn.respec(t, key, 2, func(*v1alpha1.TenantControlPlaneSpec) {}, map[string]string{name.AnnotationKubeletServing: name.KubeletServingApprove})
	poll.True(t, "kubelets are told to ask", func() bool { return strings.Contains(config(), "serverTLSBootstrap: true") })
	poll.True(t, "the request from before the switch is approved", approved("before"))

	// Of two that come one after the other, the first was looked at when the second is approved.
	tn.ask(t, "wrong", "n1", func(_ *certificatesv1.CertificateSigningRequestSpec, a *x509.CertificateRequest) {
		a.DNSNames = []string{"kubernetes"}
	})
	tn.ask(t, "another-node", "n2", nil)
	tn.ask(t, "early", "n3", func(_ *certificatesv1.CertificateSigningRequestSpec, a *x509.CertificateRequest) {
		a.Subject.CommonName, a.DNSNames, a.IPAddresses = "system:node:n3", []string{"n3"}, []net.IP{net.ParseIP("10.0.0.3")}
	})
	tn.ask(t, "right", "n1", nil)
	poll.True(t, "the right request is approved", approved("right"))

	tn.raw(t, http.MethodPost, nodes, "application/json", `{"apiVersion":"v1","kind":"Node","metadata":{"name":"n3"}}`)
	address("n3", "10.0.0.3")
	poll.True(t, "it is approved when its node has the address", approved("early"))
	for _, request := range []string{"wrong", "another-node"} {
		if c := tn.conditions(t, request); len(c) > 0 {
			t.Errorf("%s: %v", request, c)
		}
	}

	tn.respec(t, key, 3, func(*v1alpha1.TenantControlPlaneSpec) {}, nil)
	poll.True(t, "kubelets are told no more to ask", func() bool { return own().Generation == 3 && !strings.Contains(config(), "serverTLSBootstrap") })
	tn.ask(t, "after", "n1", nil)
	tn.respec(t, key, 4, func(s *v1alpha1.TenantControlPlaneSpec) { s.Addons.CoreDNS = &v1alpha1.AddonSpec{} }, nil)
	poll.True(t, "something else is applied", func() bool { return own().Generation == 4 && own().Failure == nil })
	if c := tn.conditions(t, "after"); len(c) > 0 {
		t.Errorf("approved after it was switched off: %v", c)
	}
}
