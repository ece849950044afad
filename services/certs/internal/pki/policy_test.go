package pki

import (
	"bytes"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"encoding/pem"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/stoker-k8s/stoker/pkg/api/name"
	"github.com/stoker-k8s/stoker/pkg/pki"
)

var now = time.Date(2026, 11, 20, 8, 0, 0, 0, time.UTC)

func demo() Input {
	return Input{
		Namespace: "default", Name: "demo", UID: "u-1", Port: 6443, ClusterDomain: "cluster.local",
		ServiceCIDRs: []string{"10.96.0.0/16", "fd00::/108"}, CertSANs: []string{"Api.Example.org", "192.0.2.9"},
		Exposed: &Exposed{Endpoint: "192.0.2.7:6443", Address: "192.0.2.7", ClusterIP: "10.0.0.8", AdvertiseAddress: "192.0.2.8"},
	}
}

// world is a tenant's Secrets by component, as they would be in the management cluster.
type world map[string]*corev1.Secret

// turn makes one turn of the pure part: decide, issue, patch. It returns the reasons of what changed.
func (x world) turn(tb testing.TB, in Input, published []byte, at time.Time) map[string]Reason {
	tb.Helper()
	roots, leaves, err := Required(in)
	if err != nil {
		tb.Fatal(err)
	}
	reasons := map[string]Reason{}
	signers := map[string]*Signer{}
	for _, w := range append(roots, leaves...) {
		v := decide(&w, x[w.Component], signers[w.Signer], published, at)
		if v.Reason != "" {
			reasons[w.Component] = v.Reason
		}
		data := v.Data
		if data == nil {
			if data, err = w.Issue(signers[w.Signer], at); err != nil {
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
		v = decide(&w, x[w.Component], signers[w.Signer], nil, at)
		if v.Reason != "" {
			tb.Errorf("%s is not as it must be: %s", w.Component, v.describe())
		}
		if w.Kind == Authority {
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
	if got := base.turn(t, demo(), nil, now); len(got) != len(Components("demo"))-len(Konnectivity()) {
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
		change    func(x world, in *Input)
		published []byte
		after     time.Duration
		want      map[string]Reason
	}{
		"when nothing differs, every byte stays": {change: func(world, *Input) {}},
		"when the state was lost, every byte stays too": {
			change: func(x world, _ *Input) {
				for _, secret := range x {
					secret.ResourceVersion = "77"
				}
			},
		},
		"half a year later, every byte stays": {change: func(world, *Input) {}, after: 180 * 24 * time.Hour},
		"when four months are left, all leaves are renewed in one go and no CA is": {
			change: func(world, *Input) {}, after: 244 * 24 * time.Hour,
			want: all(Expiring, append(slices.Clone(leavesOfCA), name.ComponentFrontProxyClientCertificate)...),
		},
		"a paused Secret is not renewed": {
			change: func(x world, _ *Input) {
				for _, component := range leavesOfCA[1:] {
					x[component].Annotations[name.AnnotationPaused] = ""
				}
			},
			after: 300 * 24 * time.Hour,
			want:  all(Expiring, leavesOfCA[0], name.ComponentFrontProxyClientCertificate),
		},
		"a CA is replaced a month before its end, and its leaves with it": {
			change: func(world, *Input) {}, after: 10*365*24*time.Hour - 29*24*time.Hour,
			want: and(all(Expiring, name.ComponentCA, name.ComponentFrontProxyCA),
				all(SignedByAnother, append(slices.Clone(leavesOfCA), name.ComponentFrontProxyClientCertificate)...)),
		},
		"a deleted leaf is issued again from the same CA": {
			change: func(x world, _ *Input) { delete(x, name.ComponentSchedulerKubeconfig) },
			want:   all(Missing, name.ComponentSchedulerKubeconfig),
		},
		"a deleted CA is a rotation": {
			change:    func(x world, _ *Input) { delete(x, name.ComponentCA) },
			published: published,
			want:      and(all(Missing, name.ComponentCA), all(SignedByAnother, leavesOfCA...)),
		},
		"rotating the CA issues all its leaves anew and those of the front proxy stay": {
			change: func(x world, _ *Input) { x[name.ComponentCA].Annotations[name.AnnotationRotate] = "" },
			want:   and(all(RotationRequested, name.ComponentCA), all(SignedByAnother, leavesOfCA...)),
		},
		"rotating the front proxy's CA issues only its client anew": {
			change: func(x world, _ *Input) { x[name.ComponentFrontProxyCA].Annotations[name.AnnotationRotate] = "" },
			want: and(all(RotationRequested, name.ComponentFrontProxyCA),
				all(SignedByAnother, name.ComponentFrontProxyClientCertificate)),
		},
		"rotating the ServiceAccount keys touches nothing else": {
			change: func(x world, _ *Input) { x[name.ComponentServiceAccountKeys].Annotations[name.AnnotationRotate] = "" },
			want:   all(RotationRequested, name.ComponentServiceAccountKeys),
		},
		"a rotation that was done isn't done again": {
			change: func(x world, _ *Input) {
				x[name.ComponentServiceAccountKeys].Annotations[name.AnnotationRotate] = now.Format(time.RFC3339)
			},
		},
		"an edited CA certificate comes back from its copy": {
			change: func(x world, _ *Input) { data(x, name.ComponentCA)[name.KeyCACert] = []byte("x") },
			want:   all(Restored, name.ComponentCA),
		},
		"a CA key that went comes back from its copy": {
			change: func(x world, _ *Input) { delete(data(x, name.ComponentCA), name.KeyCAKey) },
			want:   all(Restored, name.ComponentCA),
		},
		"both copies of the CA certificate gone, it comes back from the state": {
			change: func(x world, _ *Input) {
				data(x, name.ComponentCA)[name.KeyCACert], data(x, name.ComponentCA)[name.KeyTLSCert] = nil, nil
			},
			published: published,
			want:      all(Restored, name.ComponentCA),
		},
		"both copies of the CA key gone, a new CA is made": {
			change: func(x world, _ *Input) {
				data(x, name.ComponentCA)[name.KeyCAKey], data(x, name.ComponentCA)[name.KeyTLSKey] = nil, nil
			},
			published: published,
			want:      and(all(Unreadable, name.ComponentCA), all(SignedByAnother, leavesOfCA...)),
		},
		"a CA that a user brings is taken, and the leaves follow": {
			change: func(x world, _ *Input) {
				mine := other[name.ComponentCA].Data
				data(x, name.ComponentCA)[name.KeyCACert], data(x, name.ComponentCA)[name.KeyCAKey] = mine[name.KeyCACert], mine[name.KeyCAKey]
			},
			published: published,
			want:      and(all(Restored, name.ComponentCA), all(SignedByAnother, leavesOfCA...)),
		},
		"a key that belongs to another certificate": {
			change: func(x world, _ *Input) {
				data(x, name.ComponentAPIServerCertificate)[name.KeyAPIServerKey] = other[name.ComponentAPIServerCertificate].Data[name.KeyAPIServerKey]
			},
			want: all(Unreadable, name.ComponentAPIServerCertificate),
		},
		"a leaf of another CA": {
			change: func(x world, _ *Input) {
				x[name.ComponentAPIServerCertificate].Data = other[name.ComponentAPIServerCertificate].Data
			},
			want: all(SignedByAnother, name.ComponentAPIServerCertificate),
		},
		"a certificate of another user": {
			change: func(x world, _ *Input) {
				d := data(x, name.ComponentAPIServerKubeletClientCertificate)
				d[name.KeyAPIServerKubeletClientCert] = data(x, name.ComponentAPIServerCertificate)[name.KeyAPIServerCert]
				d[name.KeyAPIServerKubeletClientKey] = data(x, name.ComponentAPIServerCertificate)[name.KeyAPIServerKey]
			},
			want: all(SubjectChanged, name.ComponentAPIServerKubeletClientCertificate),
		},
		"a new entry of certSANs": {
			change: func(_ world, in *Input) { in.CertSANs = append(in.CertSANs, "new.example.org") },
			want:   all(NameMissing, name.ComponentAPIServerCertificate),
		},
		"an entry of certSANs taken away rolls nothing out": {
			change: func(_ world, in *Input) { in.CertSANs = nil },
		},
		"a new endpoint": {
			change: func(_ world, in *Input) { in.Exposed.Endpoint, in.Exposed.Address = "192.0.2.70:443", "192.0.2.70" },
			want: and(all(NameMissing, name.ComponentAPIServerCertificate),
				all(ServerChanged, name.ComponentAdminKubeconfig)),
		},
		"a new port": {
			change: func(_ world, in *Input) { in.Port = 7443 },
			want: all(ServerChanged, name.ComponentAdminKubeconfig, name.ComponentControllerManagerKubeconfig,
				name.ComponentSchedulerKubeconfig),
		},
		"a kubeconfig that leads elsewhere": {
			change: func(x world, _ *Input) {
				d := data(x, name.ComponentAdminKubeconfig)
				d[name.KeyAdminConf] = bytes.ReplaceAll(d[name.KeyAdminConf], []byte("https://192.0.2.7:6443"), []byte("https://192.0.2.66:6443"))
			},
			want: all(ServerChanged, name.ComponentAdminKubeconfig),
		},
		"a kubeconfig that trusts anybody": {
			change: func(x world, _ *Input) {
				d := data(x, name.ComponentSchedulerKubeconfig)
				d[name.KeySchedulerConf] = bytes.ReplaceAll(d[name.KeySchedulerConf], []byte("    server:"), []byte("    tls-server-name: x\n    server:"))
			},
			want: all(ServerChanged, name.ComponentSchedulerKubeconfig),
		},
		"a kubeconfig that is none": {
			change: func(x world, _ *Input) { data(x, name.ComponentAdminKubeconfig)[name.KeySuperAdminSvc] = []byte("{") },
			want:   all(Unreadable, name.ComponentAdminKubeconfig),
		},
		"a key that is none of ours goes": {
			change: func(x world, _ *Input) { data(x, name.ComponentSchedulerKubeconfig)["more"] = []byte("x") },
			want:   all(Restored, name.ComponentSchedulerKubeconfig),
		},
		"a public ServiceAccount key follows from the private one": {
			change: func(x world, _ *Input) {
				data(x, name.ComponentServiceAccountKeys)[name.KeyServiceAccountPublic] = other[name.ComponentServiceAccountKeys].Data[name.KeyServiceAccountPublic]
			},
			want: all(Restored, name.ComponentServiceAccountKeys),
		},
		"Kamaji's RSA keys of ServiceAccounts stay": {
			change: func(x world, _ *Input) {
				key, err := rsa.GenerateKey(rand.Reader, 2048)
				if err != nil {
					t.Error(err)
					return
				}
				public, err := pki.PublicPEM(key)
				if err != nil {
					t.Error(err)
					return
				}
				x[name.ComponentServiceAccountKeys].Data = map[string][]byte{
					name.KeyServiceAccountPublic:  public,
					name.KeyServiceAccountPrivate: pem.EncodeToMemory(&pem.Block{Type: pki.TypeRSAKey, Bytes: x509.MarshalPKCS1PrivateKey(key)}),
				}
			},
		},
		"while the endpoint isn't known, what needs it is left alone": {
			change: func(x world, in *Input) { in.Exposed = nil; delete(x, name.ComponentAdminKubeconfig) },
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
			after := x.copy()
			if again := x.turn(t, in, test.published, now.Add(test.after)); len(again) != 0 {
				t.Errorf("the next turn has reasons: %v", again)
			}
			for component, secret := range after {
				if !sameData(secret.Data, x[component].Data) {
					t.Errorf("%s changes at the next turn", component)
				}
			}
		})
	}
}

func BenchmarkKeepAll(b *testing.B) {
	x := world{}
	x.turn(b, demo(), nil, now)
	for b.Loop() {
		x.turn(b, demo(), nil, now)
	}
}
func TestGeneratedKubeconfigsFollowTheSamePolicies(t *testing.T) {
	t.Parallel()
	in, x := demo(), world{}
	x.turn(t, in, nil, now)
	signerOf := func(x world) *Signer {
		ca, err := NewSigner(x[name.ComponentCA].Data[name.KeyCACert], x[name.ComponentCA].Data[name.KeyCAKey])
		if err != nil {
			t.Fatal(err)
		}
		return ca
	}
	ca := signerOf(x)
	type request struct {
		generator, endpoint, user string
		groups                    []string
	}
	base := request{generator: "viewer", endpoint: name.KeyAdminSvc, user: "jane", groups: []string{"zebras", "ants", "a much longer one"}}
	w := in.Generated(base.generator, base.user, base.groups, base.endpoint)
	data, err := w.Issue(ca, now)
	if err != nil {
		t.Fatal(err)
	}
	made := newSecret(in, &w, data)
	t.Run("made as it must be", func(t *testing.T) {
		t.Parallel()
		for key, value := range map[string]string{
			name.LabelManagedBy: "viewer", name.LabelManagedFor: "demo", name.LabelCertificateLifecycle: name.LifecycleKubeconfig,
			name.LabelName: "demo", name.LabelProject: name.Project, name.LabelComponent: name.ComponentGeneratedKubeconfig,
		} {
			if made.Labels[key] != value {
				t.Errorf("label %s is %q", key, made.Labels[key])
			}
		}
		if made.Name != "demo-viewer" || len(made.Data) != 1 || metav1.GetControllerOf(made) == nil {
			t.Errorf("%s %v", made.Name, slices.Collect(maps.Keys(made.Data)))
		}
		f := readKubeconfig(name.KeyGeneratedKubeconfig, made.Data[name.KeyGeneratedKubeconfig])
		if f.err != nil || f.cert.Subject.CommonName != "jane" || len(f.cert.Subject.Organization) != 3 || f.server != "https://demo.default.svc:6443" {
			t.Errorf("%+v", f)
		}
		if life := f.cert.NotAfter.Sub(f.cert.NotBefore); life != leafLife {
			t.Errorf("valid for %s", life)
		}
	})
	other := world{}
	other.turn(t, in, nil, now)
	moved := in
	moved.Exposed = &Exposed{Endpoint: "192.0.2.200:443"}
	paused := func(s *corev1.Secret) { s.Annotations[name.AnnotationPaused] = "" }
	for sentence, test := range map[string]struct {
		change func(*request)
		in     Input
		secret func(*corev1.Secret)
		ca     *Signer
		after  time.Duration
		before time.Duration // its end, as the operator says
		reason Reason
	}{
		"nothing changed":                             {},
		"the order of groups means nothing":           {change: func(a *request) { slices.Reverse(a.groups) }},
		"another user":                                {change: func(a *request) { a.user = "joe" }, reason: SubjectChanged},
		"one group less":                              {change: func(a *request) { a.groups = a.groups[1:] }, reason: SubjectChanged},
		"the published endpoint":                      {change: func(a *request) { a.endpoint = name.KeyAdminConf }, reason: ServerChanged},
		"the same endpoint by another key":            {change: func(a *request) { a.endpoint = name.KeySuperAdminSvc }},
		"the published endpoint moved":                {in: moved, change: func(a *request) { a.endpoint = name.KeySuperAdminConf }, reason: ServerChanged},
		"the inner one doesn't move with it":          {in: moved},
		"a new CA":                                    {ca: signerOf(other), reason: SignedByAnother},
		"soon to expire":                              {after: leafLife * 2 / 3, reason: Expiring},
		"soon to expire, but paused":                  {after: leafLife * 2 / 3, secret: paused},
		"a third is left, of which less is asked for": {after: leafLife * 2 / 3, before: 24 * time.Hour},
		"a day is left, which is asked for":           {after: leafLife - 24*time.Hour, before: 24 * time.Hour, reason: Expiring},
		"two days are left, of which one is asked for, and others are renewed": {
			after: leafLife - 48*time.Hour, before: 24 * time.Hour, reason: Expiring,
		},
		"more is asked for than the usual third": {after: leafLife / 2, before: leafLife / 2, reason: Expiring},
		"more is asked for than it lives":        {before: 2 * leafLife},
		"paused, and another user":               {change: func(a *request) { a.user = "joe" }, secret: paused, reason: SubjectChanged},
		"a rotation that was asked for":          {secret: func(s *corev1.Secret) { s.Annotations[name.AnnotationRotate] = "" }, reason: RotationRequested},
		"a rotation that was done":               {secret: func(s *corev1.Secret) { s.Annotations[name.AnnotationRotate] = "2026-01-01T00:00:00Z" }},
		"edited":                                 {secret: func(s *corev1.Secret) { s.Data["value"] = []byte("x") }, reason: Unreadable},
		"one key too many":                       {secret: func(s *corev1.Secret) { s.Data["more"] = []byte("x") }, reason: Restored},
		"a token in it": {secret: func(s *corev1.Secret) {
			s.Data["value"] = []byte(strings.Replace(string(s.Data["value"]), "  user:\n", "  user:\n    token: x\n", 1))
		}, reason: ServerChanged},
	} {
		t.Run(sentence, func(t *testing.T) {
			t.Parallel()
			a, secret, at := base, made.DeepCopy(), now.Add(test.after)
			a.groups = slices.Clone(a.groups)
			if test.change != nil {
				test.change(&a)
			}
			if test.secret != nil {
				test.secret(secret)
			}
			if test.in.Name == "" {
				test.in = in
			}
			if test.ca == nil {
				test.ca = ca
			}
			w := test.in.Generated(a.generator, a.user, a.groups, a.endpoint)
			w.RenewBefore = test.before
			if v := decide(&w, secret, test.ca, nil, at); v.Reason != test.reason {
				t.Errorf("got %q", v.describe())
			}
		})
	}
}
