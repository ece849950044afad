package pki

import (
	"bytes"
	"crypto/x509"
	"net"
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/stoker-k8s/stoker/pkg/api/name"
	"github.com/stoker-k8s/stoker/pkg/pki"
)

func TestCertificatesServe(t *testing.T) {
	t.Parallel()
	in, x := demo(), world{}
	x.turn(t, in, nil, now)
	pool := func(component, key string) *x509.CertPool {
		p := x509.NewCertPool()
		if !p.AppendCertsFromPEM(x[component].Data[key]) {
			t.Fatalf("%s holds no certificate", component)
		}
		return p
	}
	ca, frontProxy := pool(name.ComponentCA, name.KeyCACert), pool(name.ComponentFrontProxyCA, name.KeyFrontProxyCACert)
	verify := func(t *testing.T, certPEM, keyPEM []byte, roots *x509.CertPool, usage x509.ExtKeyUsage, cn string, o []string) *x509.Certificate {
		t.Helper()
		cert, _, err := parsePair(certPEM, keyPEM)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := cert.Verify(x509.VerifyOptions{Roots: roots, CurrentTime: now, KeyUsages: []x509.ExtKeyUsage{usage}}); err != nil {
			t.Error(err)
		}
		if cert.Subject.CommonName != cn || !slices.Equal(cert.Subject.Organization, o) {
			t.Errorf("subject %s", cert.Subject)
		}
		if len(cert.ExtKeyUsage) != 1 || cert.IsCA || cert.SerialNumber.BitLen() > 129 || !bytes.HasPrefix(keyPEM, []byte("-----BEGIN EC PRIVATE KEY-----")) {
			t.Error("not as kubeadm makes it")
		}
		if life := cert.NotAfter.Sub(cert.NotBefore); life != leafLife {
			t.Errorf("life %s", life)
		}
		return cert
	}
	masters, admins := []string{"system:masters"}, []string{"kubeadm:cluster-admins"}

	t.Run("the API server's certificate holds for every name it is reached by", func(t *testing.T) {
		d := x[name.ComponentAPIServerCertificate].Data
		cert := verify(t, d[name.KeyAPIServerCert], d[name.KeyAPIServerKey], ca, x509.ExtKeyUsageServerAuth, "kube-apiserver", nil)
		for _, host := range []string{
			"127.0.0.1", "localhost", "demo", "demo.default.svc", "demo.default.svc.cluster.local", "kubernetes",
			"kubernetes.default", "kubernetes.default.svc", "kubernetes.default.svc.cluster.local", "10.96.0.1", "fd00::1",
			"192.0.2.7", "192.0.2.8", "192.0.2.9", "10.0.0.8", "api.example.org",
		} {
			if err := cert.VerifyHostname(host); err != nil {
				t.Error(err)
			}
		}
	})
	t.Run("client certificates are the users kubeadm makes", func(t *testing.T) {
		d := x[name.ComponentAPIServerKubeletClientCertificate].Data
		verify(t, d[name.KeyAPIServerKubeletClientCert], d[name.KeyAPIServerKubeletClientKey], ca, x509.ExtKeyUsageClientAuth, "kube-apiserver-kubelet-client", admins)
		d = x[name.ComponentFrontProxyClientCertificate].Data
		verify(t, d[name.KeyFrontProxyClientCert], d[name.KeyFrontProxyClientKey], frontProxy, x509.ExtKeyUsageClientAuth, "front-proxy-client", nil)
	})
	for _, k := range []struct {
		component, key, server, user string
		organizations                []string
	}{
		{name.ComponentAdminKubeconfig, name.KeyAdminConf, "https://192.0.2.7:6443", "kubernetes-admin", admins},
		{name.ComponentAdminKubeconfig, name.KeyAdminSvc, "https://demo.default.svc:6443", "kubernetes-admin", admins},
		{name.ComponentAdminKubeconfig, name.KeySuperAdminConf, "https://192.0.2.7:6443", "kubernetes-super-admin", masters},
		{name.ComponentAdminKubeconfig, name.KeySuperAdminSvc, "https://demo.default.svc:6443", "kubernetes-super-admin", masters},
		{name.ComponentControllerManagerKubeconfig, name.KeyControllerManagerConf, "https://127.0.0.1:6443", "system:kube-controller-manager", nil},
		{name.ComponentSchedulerKubeconfig, name.KeySchedulerConf, "https://127.0.0.1:6443", "system:kube-scheduler", nil},
	} {
		t.Run(k.key+" opens the API as its user", func(t *testing.T) {
			config, err := clientcmd.RESTConfigFromKubeConfig(x[k.component].Data[k.key])
			if err != nil {
				t.Fatal(err)
			}
			if config.Host != k.server || !bytes.Equal(config.CAData, x[name.ComponentCA].Data[name.KeyCACert]) {
				t.Errorf("leads to %s", config.Host)
			}
			verify(t, config.CertData, config.KeyData, ca, x509.ExtKeyUsageClientAuth, k.user, k.organizations)
			raw, err := clientcmd.Load(x[k.component].Data[k.key])
			if err != nil || raw.CurrentContext != k.user+"@demo" {
				t.Errorf("context %q, %v", raw.CurrentContext, err)
			}
		})
	}
	t.Run("a CA has kubeadm's name and ten years, and its Secret Cluster API's copies", func(t *testing.T) {
		d := x[name.ComponentCA].Data
		cert, _, err := parsePair(d[name.KeyTLSCert], d[name.KeyTLSKey])
		if err != nil {
			t.Fatal(err)
		}
		if cert.Subject.CommonName != "kubernetes" || cert.NotAfter.Sub(cert.NotBefore) != caLife || !bytes.Equal(d[name.KeyCACert], d[name.KeyTLSCert]) {
			t.Errorf("CA %s until %s", cert.Subject, cert.NotAfter)
		}
	})
	t.Run("of the tunnel, the server's client certificate is in two Secrets, and is no administrator's", func(t *testing.T) {
		in := demo()
		in.Konnectivity, in.Exposed.Konnectivity = true, "tunnel.example.org:8132"
		x := world{}
		if got := x.turn(t, in, nil, now); len(got) != len(Components("demo")) {
			t.Fatalf("%d Secrets: %v", len(got), got)
		}
		certificate, kubeconfig := x[name.ComponentKonnectivityCertificate], x[name.ComponentKonnectivityKubeconfig]
		cert, _, err := parsePair(certificate.Data[name.KeyTLSCert], certificate.Data[name.KeyTLSKey])
		if err != nil || certificate.Type != corev1.SecretTypeTLS {
			t.Fatal(certificate.Type, err)
		}
		inside := readKubeconfig(name.KeyKonnectivityConf, kubeconfig.Data[name.KeyKonnectivityConf])
		if inside.err != nil || inside.server != "https://localhost:6443" || kubeconfig.Labels[name.LabelCertificateLifecycle] != "kubeconfig" {
			t.Fatal(inside.server, inside.err)
		}
		for _, c := range []*x509.Certificate{cert, inside.cert} {
			if c.Subject.CommonName != "system:konnectivity-server" || len(c.Subject.Organization) != 0 {
				t.Errorf("%s", c.Subject)
			}
		}
		server, _, err := parsePair(x[name.ComponentAPIServerCertificate].Data[name.KeyAPIServerCert], x[name.ComponentAPIServerCertificate].Data[name.KeyAPIServerKey])
		if err != nil || server.VerifyHostname("tunnel.example.org") != nil {
			t.Errorf("agents don't find their server's name among %v: %v", server.DNSNames, err)
		}
	})
	t.Run("labels, annotations, owner and keys are Kamaji's", func(t *testing.T) {
		lifecycle := map[string]string{
			name.ComponentCA: "", name.ComponentFrontProxyCA: "", name.ComponentServiceAccountKeys: "",
			name.ComponentAdminKubeconfig: "kubeconfig", name.ComponentControllerManagerKubeconfig: "kubeconfig", name.ComponentSchedulerKubeconfig: "kubeconfig",
			name.ComponentAPIServerCertificate: "x509", name.ComponentAPIServerKubeletClientCertificate: "x509", name.ComponentFrontProxyClientCertificate: "x509",
		}
		for component, secret := range x {
			if secret.Name != Components("demo")[component] || secret.Labels[name.LabelCertificateLifecycle] != lifecycle[component] ||
				secret.Labels[name.LabelComponent] != component || secret.Labels[name.LabelPartition] == "" {
				t.Errorf("%s: %s %v", component, secret.Name, secret.Labels)
			}
			if owner := metav1.GetControllerOf(secret); owner == nil || owner.UID != "u-1" || owner.Kind != "TenantControlPlane" {
				t.Errorf("%s: owner %v", component, owner)
			}
			if secret.Annotations[name.AnnotationChecksum] != name.Checksum(secret.Data) {
				t.Errorf("%s: checksum", component)
			}
		}
	})
}

func TestLeavesNeverOutliveTheirCA(t *testing.T) {
	t.Parallel()
	certPEM, keyPEM, err := newAuthority("kubernetes", now.Add(-caLife+40*24*time.Hour))
	if err != nil {
		t.Fatal(err)
	}
	cert, key, err := parsePair(certPEM, keyPEM)
	if err != nil {
		t.Fatal(err)
	}
	c := Credential{CommonName: "x", Usage: x509.ExtKeyUsageClientAuth, IPs: []net.IP{}}
	leafPEM, leafKey, err := c.Issue(&Signer{pki.Signer{Cert: cert, Key: key}, certPEM}, now)
	if err != nil {
		t.Fatal(err)
	}
	leaf, _, err := parsePair(leafPEM, leafKey)
	if err != nil {
		t.Fatal(err)
	}
	if leaf.NotAfter.After(cert.NotAfter) || due(leaf, 0, now) {
		t.Errorf("leaf until %s, CA until %s, due at once: %t", leaf.NotAfter, cert.NotAfter, due(leaf, 0, now))
	}
}

func BenchmarkIssueAll(b *testing.B) {
	for b.Loop() {
		world{}.turn(b, demo(), nil, now)
	}
}

// What a replica makes whose clock is a day ahead is good now: a tenant that was made by it is reached.
func TestCertificatesOfAClockThatIsADayAheadAreGoodNow(t *testing.T) {
	t.Parallel()
	ahead := now.Add(24 * time.Hour)
	certPEM, keyPEM, err := newAuthority("kubernetes", ahead)
	if err != nil {
		t.Fatal(err)
	}
	ca, err := NewSigner(certPEM, keyPEM)
	if err != nil {
		t.Fatal(err)
	}
	leaf, key, err := (&Credential{CommonName: "kube-apiserver", Usage: x509.ExtKeyUsageServerAuth}).Issue(ca, ahead)
	if err != nil {
		t.Fatal(err)
	}
	cert, _, err := parsePair(leaf, key)
	if err != nil {
		t.Fatal(err)
	}
	roots := x509.NewCertPool()
	roots.AddCert(ca.Cert)
	if _, err := cert.Verify(x509.VerifyOptions{Roots: roots, CurrentTime: now}); err != nil {
		t.Error(err)
	}
}
