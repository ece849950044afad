package certs

import (
	"bytes"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"maps"
	"net"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/stoker-k8s/stoker/pkg/api/name"
	"github.com/stoker-k8s/stoker/pkg/intent"
)

var now = time.Date(2026, 11, 20, 8, 0, 0, 0, time.UTC)

func demo() input {
	return input{
		Namespace: "default", Name: "demo", UID: "u-1", Port: 6443, ClusterDomain: "cluster.local",
		ServiceCIDRs: []string{"10.96.0.0/16", "fd00::/108"}, CertSANs: []string{"Api.Example.org", "192.0.2.9"},
		Exposed: &exposed{Endpoint: "192.0.2.7:6443", Address: "192.0.2.7", ClusterIP: "10.0.0.8", AdvertiseAddress: "192.0.2.8"},
	}
}

// world is a tenant's Secrets by component, as they would be in the management cluster.
type world map[string]*corev1.Secret

// turn makes one turn of the pure part: judge, issue, patch. It returns the reasons of what changed.
func (x world) turn(tb testing.TB, in input, published []byte, at time.Time) map[string]Reason {
	tb.Helper()
	roots, leaves, err := wants(in)
	if err != nil {
		tb.Fatal(err)
	}
	reasons := map[string]Reason{}
	signers := map[string]*signer{}
	for _, w := range append(roots, leaves...) {
		v := judge(&w, x[w.Component], signers[w.Signer], published, at)
		if v.Reason != "" {
			reasons[w.Component] = v.Reason
		}
		data := v.Data
		if data == nil {
			if data, err = w.issue(signers[w.Signer], at); err != nil {
				tb.Fatal(err)
			}
		}
		if x[w.Component] == nil {
			x[w.Component] = newSecret(in, &w, data)
			x[w.Component].CreationTimestamp = metav1.NewTime(at)
		} else if patch := patchOf(in, &w, x[w.Component], data, v.Data == nil, at); patch != nil {
			secret := x[w.Component]
			secret.Data = data
			maps.Copy(secret.Labels, labelsOf(in, &w))
			if _, ok := secret.Annotations[name.AnnotationRotate]; ok && v.Data == nil {
				secret.Annotations[name.AnnotationRotate] = at.Format(time.RFC3339)
			}
			secret.Annotations[name.AnnotationChecksum] = name.Checksum(data)
			secret.OwnerReferences = []metav1.OwnerReference{ownerOf(in)}
		} else if v.Reason != "" {
			tb.Errorf("%s: %s changes nothing", w.Component, v.describe())
		}
		v = judge(&w, x[w.Component], signers[w.Signer], nil, at)
		if v.Reason != "" {
			tb.Errorf("%s is not settled: %s", w.Component, v.describe())
		}
		if w.Kind == authority {
			signers[w.Component] = v.Signer
		}
	}
	return reasons
}

func (x world) copy() world {
	c := world{}
	for component, secret := range x {
		c[component] = secret.DeepCopy()
	}
	return c
}

var leavesOfCA = []string{
	name.ComponentAPIServerCertificate, name.ComponentAPIServerKubeletClientCertificate, name.ComponentAdminKubeconfig,
	name.ComponentControllerManagerKubeconfig, name.ComponentSchedulerKubeconfig,
}

func TestWhatStaysAndWhatIsMadeAnew(t *testing.T) {
	t.Parallel()
	base := world{}
	if got := base.turn(t, demo(), nil, now); len(got) != len(components("demo")) {
		t.Fatalf("the first turn makes %d Secrets: %v", len(got), got)
	}
	all := func(reason Reason, components ...string) map[string]Reason {
		m := map[string]Reason{}
		for _, c := range components {
			m[c] = reason
		}
		return m
	}
	and := func(ms ...map[string]Reason) map[string]Reason {
		m := map[string]Reason{}
		for _, x := range ms {
			maps.Copy(m, x)
		}
		return m
	}
	data := func(x world, component string) map[string][]byte { return x[component].Data }
	published := base[name.ComponentCA].Data[name.KeyCACert]

	other := world{}
	other.turn(t, demo(), nil, now)

	tests := map[string]struct {
		change    func(x world, in *input)
		published []byte
		after     time.Duration
		want      map[string]Reason
	}{
		"when nothing differs, every byte stays": {change: func(world, *input) {}},
		"when the state was lost, every byte stays too": {
			change: func(x world, _ *input) {
				for _, secret := range x {
					secret.ResourceVersion = "77"
				}
			},
		},
		"half a year later, every byte stays": {change: func(world, *input) {}, after: 180 * 24 * time.Hour},
		"when four months are left, all leaves are renewed in one go and no CA is": {
			change: func(world, *input) {}, after: 244 * 24 * time.Hour,
			want: all(Expiring, append(slices.Clone(leavesOfCA), name.ComponentFrontProxyClientCertificate)...),
		},
		"a paused Secret is not renewed": {
			change: func(x world, _ *input) {
				for _, component := range leavesOfCA[1:] {
					x[component].Annotations[name.AnnotationPaused] = ""
				}
			},
			after: 300 * 24 * time.Hour,
			want:  all(Expiring, leavesOfCA[0], name.ComponentFrontProxyClientCertificate),
		},
		"a CA is replaced a month before its end, and its leaves with it": {
			change: func(world, *input) {}, after: 10*365*24*time.Hour - 29*24*time.Hour,
			want: and(all(Expiring, name.ComponentCA, name.ComponentFrontProxyCA),
				all(SignedByAnother, append(slices.Clone(leavesOfCA), name.ComponentFrontProxyClientCertificate)...)),
		},
		"a deleted leaf is issued again from the same CA": {
			change: func(x world, _ *input) { delete(x, name.ComponentSchedulerKubeconfig) },
			want:   all(Missing, name.ComponentSchedulerKubeconfig),
		},
		"a deleted CA is a rotation": {
			change:    func(x world, _ *input) { delete(x, name.ComponentCA) },
			published: published,
			want:      and(all(Missing, name.ComponentCA), all(SignedByAnother, leavesOfCA...)),
		},
		"rotating the CA issues all its leaves anew and those of the front proxy stay": {
			change: func(x world, _ *input) { x[name.ComponentCA].Annotations[name.AnnotationRotate] = "" },
			want:   and(all(Asked, name.ComponentCA), all(SignedByAnother, leavesOfCA...)),
		},
		"rotating the front proxy's CA issues only its client anew": {
			change: func(x world, _ *input) { x[name.ComponentFrontProxyCA].Annotations[name.AnnotationRotate] = "" },
			want: and(all(Asked, name.ComponentFrontProxyCA),
				all(SignedByAnother, name.ComponentFrontProxyClientCertificate)),
		},
		"rotating the ServiceAccount keys touches nothing else": {
			change: func(x world, _ *input) { x[name.ComponentServiceAccountKeys].Annotations[name.AnnotationRotate] = "" },
			want:   all(Asked, name.ComponentServiceAccountKeys),
		},
		"a rotation that was done isn't done again": {
			change: func(x world, _ *input) {
				x[name.ComponentServiceAccountKeys].Annotations[name.AnnotationRotate] = now.Format(time.RFC3339)
			},
		},
		"an edited CA certificate comes back from its copy": {
			change: func(x world, _ *input) { data(x, name.ComponentCA)[name.KeyCACert] = []byte("x") },
			want:   all(Restored, name.ComponentCA),
		},
		"a CA key that went comes back from its copy": {
			change: func(x world, _ *input) { delete(data(x, name.ComponentCA), name.KeyCAKey) },
			want:   all(Restored, name.ComponentCA),
		},
		"both copies of the CA certificate gone, it comes back from the state": {
			change: func(x world, _ *input) {
				data(x, name.ComponentCA)[name.KeyCACert], data(x, name.ComponentCA)[name.KeyTLSCert] = nil, nil
			},
			published: published,
			want:      all(Restored, name.ComponentCA),
		},
		"both copies of the CA key gone, a new CA is made": {
			change: func(x world, _ *input) {
				data(x, name.ComponentCA)[name.KeyCAKey], data(x, name.ComponentCA)[name.KeyTLSKey] = nil, nil
			},
			published: published,
			want:      and(all(Unreadable, name.ComponentCA), all(SignedByAnother, leavesOfCA...)),
		},
		"a CA that a user brings is taken, and the leaves follow": {
			change: func(x world, _ *input) {
				mine := other[name.ComponentCA].Data
				data(x, name.ComponentCA)[name.KeyCACert], data(x, name.ComponentCA)[name.KeyCAKey] = mine[name.KeyCACert], mine[name.KeyCAKey]
			},
			published: published,
			want:      and(all(Restored, name.ComponentCA), all(SignedByAnother, leavesOfCA...)),
		},
		"a key that belongs to another certificate": {
			change: func(x world, _ *input) {
				data(x, name.ComponentAPIServerCertificate)[name.KeyAPIServerKey] = other[name.ComponentAPIServerCertificate].Data[name.KeyAPIServerKey]
			},
			want: all(Unreadable, name.ComponentAPIServerCertificate),
		},
		"a leaf of another CA": {
			change: func(x world, _ *input) {
				x[name.ComponentAPIServerCertificate].Data = other[name.ComponentAPIServerCertificate].Data
			},
			want: all(SignedByAnother, name.ComponentAPIServerCertificate),
		},
		"a certificate of another user": {
			change: func(x world, _ *input) {
				d := data(x, name.ComponentAPIServerKubeletClientCertificate)
				d[name.KeyAPIServerKubeletClientCert] = data(x, name.ComponentAPIServerCertificate)[name.KeyAPIServerCert]
				d[name.KeyAPIServerKubeletClientKey] = data(x, name.ComponentAPIServerCertificate)[name.KeyAPIServerKey]
			},
			want: all(SubjectChanged, name.ComponentAPIServerKubeletClientCertificate),
		},
		"a new entry of certSANs": {
			change: func(_ world, in *input) { in.CertSANs = append(in.CertSANs, "new.example.org") },
			want:   all(NameMissing, name.ComponentAPIServerCertificate),
		},
		"an entry of certSANs taken away rolls nothing out": {
			change: func(_ world, in *input) { in.CertSANs = nil },
		},
		"a new endpoint": {
			change: func(_ world, in *input) { in.Exposed.Endpoint, in.Exposed.Address = "192.0.2.70:443", "192.0.2.70" },
			want: and(all(NameMissing, name.ComponentAPIServerCertificate),
				all(ServerChanged, name.ComponentAdminKubeconfig)),
		},
		"a new port": {
			change: func(_ world, in *input) { in.Port = 7443 },
			want: all(ServerChanged, name.ComponentAdminKubeconfig, name.ComponentControllerManagerKubeconfig,
				name.ComponentSchedulerKubeconfig),
		},
		"a kubeconfig that leads elsewhere": {
			change: func(x world, _ *input) {
				d := data(x, name.ComponentAdminKubeconfig)
				d[name.KeyAdminConf] = bytes.ReplaceAll(d[name.KeyAdminConf], []byte("https://192.0.2.7:6443"), []byte("https://192.0.2.66:6443"))
			},
			want: all(ServerChanged, name.ComponentAdminKubeconfig),
		},
		"a kubeconfig that trusts anybody": {
			change: func(x world, _ *input) {
				d := data(x, name.ComponentSchedulerKubeconfig)
				d[name.KeySchedulerConf] = bytes.ReplaceAll(d[name.KeySchedulerConf], []byte("    server:"), []byte("    tls-server-name: x\n    server:"))
			},
			want: all(ServerChanged, name.ComponentSchedulerKubeconfig),
		},
		"a kubeconfig that is none": {
			change: func(x world, _ *input) { data(x, name.ComponentAdminKubeconfig)[name.KeySuperAdminSvc] = []byte("{") },
			want:   all(Unreadable, name.ComponentAdminKubeconfig),
		},
		"a key that is none of ours goes": {
			change: func(x world, _ *input) { data(x, name.ComponentSchedulerKubeconfig)["more"] = []byte("x") },
			want:   all(Restored, name.ComponentSchedulerKubeconfig),
		},
		"a public ServiceAccount key follows from the private one": {
			change: func(x world, _ *input) {
				data(x, name.ComponentServiceAccountKeys)[name.KeyServiceAccountPublic] = other[name.ComponentServiceAccountKeys].Data[name.KeyServiceAccountPublic]
			},
			want: all(Restored, name.ComponentServiceAccountKeys),
		},
		"Kamaji's RSA keys of ServiceAccounts stay": {
			change: func(x world, _ *input) {
				key, err := rsa.GenerateKey(rand.Reader, 2048)
				if err != nil {
					t.Error(err)
					return
				}
				public, err := publicPEM(key.Public())
				if err != nil {
					t.Error(err)
					return
				}
				x[name.ComponentServiceAccountKeys].Data = map[string][]byte{
					name.KeyServiceAccountPublic:  public,
					name.KeyServiceAccountPrivate: pem.EncodeToMemory(&pem.Block{Type: pemRSAKey, Bytes: x509.MarshalPKCS1PrivateKey(key)}),
				}
			},
		},
		"while the endpoint isn't known, what needs it is left alone": {
			change: func(x world, in *input) { in.Exposed = nil; delete(x, name.ComponentAdminKubeconfig) },
		},
	}
	for sentence, test := range tests {
		t.Run(sentence, func(t *testing.T) {
			t.Parallel()
			x, in := base.copy(), demo()
			test.change(x, &in)
			before := x.copy()
			got := x.turn(t, in, test.published, now.Add(test.after))
			if !maps.Equal(got, test.want) {
				t.Fatalf("got  %v\nwant %v", got, test.want)
			}
			for component, secret := range before {
				if _, changed := got[component]; !changed && !sameData(secret.Data, x[component].Data) {
					t.Errorf("%s was changed without a reason", component)
				}
			}
			settled := x.copy()
			if again := x.turn(t, in, test.published, now.Add(test.after)); len(again) != 0 {
				t.Errorf("the next turn has reasons: %v", again)
			}
			for component, secret := range settled {
				if !sameData(secret.Data, x[component].Data) {
					t.Errorf("%s changes at the next turn", component)
				}
			}
		})
	}
}

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
	t.Run("labels, annotations, owner and keys are Kamaji's", func(t *testing.T) {
		lifecycle := map[string]string{
			name.ComponentCA: "", name.ComponentFrontProxyCA: "", name.ComponentServiceAccountKeys: "",
			name.ComponentAdminKubeconfig: "kubeconfig", name.ComponentControllerManagerKubeconfig: "kubeconfig", name.ComponentSchedulerKubeconfig: "kubeconfig",
			name.ComponentAPIServerCertificate: "x509", name.ComponentAPIServerKubeletClientCertificate: "x509", name.ComponentFrontProxyClientCertificate: "x509",
		}
		for component, secret := range x {
			if secret.Name != components("demo")[component] || secret.Labels[name.LabelCertificateLifecycle] != lifecycle[component] ||
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

func TestBadInputIsRefusedByName(t *testing.T) {
	t.Parallel()
	for sentence, test := range map[string]struct {
		change       func(*input)
		reason, says string
	}{
		"a SAN with a port":            {func(in *input) { in.CertSANs = []string{"a.b:6443"} }, "InvalidCertSAN", `"a.b:6443"`},
		"a SAN with a zone":            {func(in *input) { in.CertSANs = []string{"fe80::1%eth0"} }, "InvalidCertSAN", "fe80"},
		"a service network without /":  {func(in *input) { in.ServiceCIDRs = []string{"10.0.0.1"} }, "InvalidServiceCIDR", "10.0.0.1"},
		"an endpoint without a port":   {func(in *input) { in.Exposed.Endpoint = "a.b" }, "InvalidEndpoint", `"a.b"`},
		"an address that is none":      {func(in *input) { in.Exposed.Address = "a b" }, "InvalidEndpoint", `"a b"`},
		"an advertise address of dots": {func(in *input) { in.AdvertiseAddress = ".." }, "InvalidAdvertiseAddress", `".."`},
	} {
		t.Run(sentence, func(t *testing.T) {
			t.Parallel()
			in := demo()
			test.change(&in)
			_, _, err := wants(in)
			var p *intent.Permanent
			if !errors.As(err, &p) || p.Reason != test.reason || !strings.Contains(p.Message, test.says) {
				t.Errorf("got %v", err)
			}
		})
	}
	t.Run("a bad SAN is refused before the endpoint is known", func(t *testing.T) {
		t.Parallel()
		in := demo()
		in.Exposed, in.CertSANs = nil, []string{"_"}
		if _, _, err := wants(in); err == nil {
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
		_, leaves, err := wants(in)
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
		cert, key, err := parsePair(certPEM, keyPEM)
		if err != nil {
			t.Fatal(err)
		}
		for _, w := range leaves {
			if w.Component != name.ComponentAPIServerCertificate {
				continue
			}
			if _, err := w.issue(&signer{cert, key, certPEM}, now); err != nil {
				t.Errorf("accepted %q, %q, %q, and then: %v", san, cidr, endpoint, err)
			}
		}
	})
}

func TestSecretsOfOthersAreNotTaken(t *testing.T) {
	t.Parallel()
	owned := func(kind, owner string) metav1.ObjectMeta {
		return metav1.ObjectMeta{OwnerReferences: []metav1.OwnerReference{{Kind: kind, Name: owner, UID: "u-0", Controller: new(true)}}}
	}
	for sentence, test := range map[string]struct {
		meta metav1.ObjectMeta
		ok   bool
	}{
		"a Secret without owner or label is taken, as a user's own CA is":           {metav1.ObjectMeta{}, true},
		"a Secret of the tenant's earlier object, from a backup, is taken":          {owned("TenantControlPlane", "demo"), true},
		"a Secret of another tenant is not":                                         {owned("TenantControlPlane", "demo-ca"), false},
		"a Secret of another kind's controller is not":                              {owned("Certificate", "demo"), false},
		"a Secret that bears another tenant's label is not":                         {metav1.ObjectMeta{Labels: map[string]string{name.LabelName: "x"}}, false},
		"a Secret whose label was edited is, as long as its owner says whose it is": {metav1.ObjectMeta{Labels: map[string]string{name.LabelName: "x"}, OwnerReferences: []metav1.OwnerReference{ownerOf(demo())}}, true},
	} {
		t.Run(sentence, func(t *testing.T) {
			t.Parallel()
			if err := mine(demo(), &want{}, &corev1.Secret{ObjectMeta: test.meta}); (err == nil) != test.ok {
				t.Errorf("got %v", err)
			}
		})
	}
}

func TestPatchTouchesOnlyWhatDiffers(t *testing.T) {
	t.Parallel()
	in, x := demo(), world{}
	x.turn(t, in, nil, now)
	roots, _, err := wants(in)
	if err != nil {
		t.Fatal(err)
	}
	w := &roots[0]
	t.Run("nothing when nothing differs, whatever others added to the metadata", func(t *testing.T) {
		t.Parallel()
		s := x[w.Component].DeepCopy()
		s.Labels["team"], s.Annotations["note"] = "a", "b"
		if p := patchOf(in, w, s, s.Data, false, now); p != nil {
			t.Errorf("got %v", p)
		}
	})
	t.Run("an edited label alone is put back, on the version that was seen", func(t *testing.T) {
		t.Parallel()
		s := x[w.Component].DeepCopy()
		s.ResourceVersion = "7"
		delete(s.Labels, name.LabelPartition)
		p := patchOf(in, w, s, s.Data, false, now)
		meta, _ := p["metadata"].(map[string]any)
		if _, data := p["data"]; data || len(meta) != 2 || meta["resourceVersion"] != "7" {
			t.Errorf("got %v", p)
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
	c := credential{CommonName: "x", Usage: x509.ExtKeyUsageClientAuth, IPs: []net.IP{}}
	leafPEM, leafKey, err := c.issue(&signer{cert, key, certPEM}, now)
	if err != nil {
		t.Fatal(err)
	}
	leaf, _, err := parsePair(leafPEM, leafKey)
	if err != nil {
		t.Fatal(err)
	}
	if leaf.NotAfter.After(cert.NotAfter) || due(leaf, now) {
		t.Errorf("leaf until %s, CA until %s, due at once: %t", leaf.NotAfter, cert.NotAfter, due(leaf, now))
	}
}

func BenchmarkIssueAll(b *testing.B) {
	for b.Loop() {
		world{}.turn(b, demo(), nil, now)
	}
}

func BenchmarkKeepAll(b *testing.B) {
	x := world{}
	x.turn(b, demo(), nil, now)
	for b.Loop() {
		x.turn(b, demo(), nil, now)
	}
}
