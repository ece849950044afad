package certs

import (
	"errors"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/stoker-k8s/stoker/pkg/api/name"
	"github.com/stoker-k8s/stoker/pkg/api/state"
	"github.com/stoker-k8s/stoker/pkg/api/v1alpha1"
)

// viewer is a generator for a fixed user.
func viewer() *v1alpha1.KubeconfigGenerator {
	return &v1alpha1.KubeconfigGenerator{
		ObjectMeta: metav1.ObjectMeta{Name: "viewer", UID: "g-1", Generation: 3},
		Spec: v1alpha1.KubeconfigGeneratorSpec{
			User: v1alpha1.CompoundValue{StringValue: "jane"}, Groups: []v1alpha1.CompoundValue{{StringValue: "viewers"}},
			ControlPlaneEndpointFrom: name.KeyAdminConf,
		},
	}
}

func changed(change func(*v1alpha1.KubeconfigGenerator)) *generator {
	o := viewer()
	change(o)
	return newGenerator(o)
}

// tenantDemo is a tenant as generators see it; its object has what a test says.
func tenantDemo(object map[string]any) *definition {
	tcp := &v1alpha1.TenantControlPlane{}
	tcp.Spec.DataStore = "main"
	v1alpha1.Default(tcp)
	return &definition{
		tenant: &state.Tenant{
			Namespace: "default", Name: "demo", Labels: map[string]string{"team": "red", "example.org/owner": "jo", "empty": ""}, Spec: tcp.Spec,
		},
		uid:  "u-1",
		read: func() (map[string]any, error) { return object, nil },
	}
}

func TestWhichGeneratorsCanBeUsed(t *testing.T) {
	t.Parallel()
	type kg = v1alpha1.KubeconfigGenerator
	for sentence, test := range map[string]struct {
		change func(*kg)
		says   string // in the problem, empty for none
	}{
		"one with a user":                             {func(*kg) {}, ""},
		"one without groups":                          {func(o *kg) { o.Spec.Groups = nil }, ""},
		"one without an endpoint has the default":     {func(o *kg) { o.Spec.ControlPlaneEndpointFrom = "" }, ""},
		"one for a member of system:masters":          {func(o *kg) { o.Spec.Groups[0].StringValue = "system:masters" }, ""},
		"one that selects":                            {func(o *kg) { o.Spec.NamespaceSelector.MatchLabels = map[string]string{"a": "b"} }, ""},
		"not one without a user":                      {func(o *kg) { o.Spec.User = v1alpha1.CompoundValue{} }, "spec.user: exactly one of"},
		"not one with two users":                      {func(o *kg) { o.Spec.User.FromDefinition = "metadata.name" }, "spec.user: exactly one of"},
		"not one with an empty group":                 {func(o *kg) { o.Spec.Groups[0].StringValue = "" }, "spec.groups[0]: exactly one of"},
		"not one for a user of spaces":                {func(o *kg) { o.Spec.User.StringValue = "  " }, "spec.user.stringValue is empty"},
		"not one for a user with a line break":        {func(o *kg) { o.Spec.User.StringValue = "a\nb" }, "spec.user.stringValue"},
		"not one for a user nobody can read":          {func(o *kg) { o.Spec.User.StringValue = strings.Repeat("x", maxText+1) }, "more than 253"},
		"not one with an unknown endpoint":            {func(o *kg) { o.Spec.ControlPlaneEndpointFrom = "x.conf" }, `spec.controlPlaneEndpointFrom "x.conf"`},
		"not one whose selector can't be read":        {func(o *kg) { o.Spec.TenantControlPlaneSelector.MatchLabels = map[string]string{"a": "_"} }, "spec.tenantControlPlaneSelector"},
		"not one whose other selector can't, either":  {func(o *kg) { o.Spec.NamespaceSelector.MatchLabels = map[string]string{"a": "_"} }, "spec.namespaceSelector"},
		"one with a dot in its name":                  {func(o *kg) { o.Name = "a.b" }, ""},
		"not one whose name is no value of a label":   {func(o *kg) { o.Name = strings.Repeat("x", 64) }, "at most 63 characters"},
		"not one that would take a tenant's CA":       {func(o *kg) { o.Name = "ca" }, "-ca are those of tenants"},
		"not one that would take the CA of another":   {func(o *kg) { o.Name = "x-ca" }, "-ca are those of tenants"},
		"not one that would take datastore's Secrets": {func(o *kg) { o.Name = "datastore-config" }, "-datastore-config are those of tenants"},
	} {
		t.Run(sentence, func(t *testing.T) {
			t.Parallel()
			g := changed(test.change)
			if test.says == "" && g.problem != "" || !strings.Contains(g.problem, test.says) {
				t.Errorf("got %q", g.problem)
			}
			if g.resting(now) != (test.says != "") {
				t.Error("one that can't be used is left alone, and no other")
			}
		})
	}
}

func TestEveryOwnSecretOfATenantIsReserved(t *testing.T) {
	t.Parallel()
	for _, secret := range components("demo") {
		if n := generatorIn("demo", secret); n != "" {
			t.Errorf("%s would be generator %s", secret, n)
		}
	}
	for secret, n := range map[string]string{"demo-viewer": "viewer", "demo-a-b": "a-b", "demo": "", "other-viewer": "", name.DatastoreConfig("demo"): ""} {
		if got := generatorIn("demo", secret); got != n {
			t.Errorf("%s: got %q", secret, got)
		}
	}
	if generatorIn("", "-viewer") != "" {
		t.Error("no tenant has no generators")
	}
}

func TestValuesOfATenant(t *testing.T) {
	t.Parallel()
	object := map[string]any{
		"metadata": map[string]any{"name": "changed", "annotations": map[string]any{"contact": "ann", "example.org/desk": "7"}},
		"status":   map[string]any{"controlPlaneEndpoint": "192.0.2.7:6443"},
		"spec":     map[string]any{"dataStore": "as written"},
	}
	for path, want := range map[string]string{
		"metadata.name":                         "demo",
		"metadata.namespace":                    "default",
		"metadata.uid":                          "u-1",
		"metadata.labels.team":                  "red",
		"metadata.labels.example.org/owner":     "jo",
		"metadata.annotations.contact":          "ann",
		"metadata.annotations.example.org/desk": "7",
		"spec.dataStore":                        "main",
		"spec.networkProfile.clusterDomain":     "cluster.local",
		"status.controlPlaneEndpoint":           "192.0.2.7:6443",
		"kind":                                  "TenantControlPlane",
	} {
		t.Run("field "+path, func(t *testing.T) {
			t.Parallel()
			a, err := changed(func(o *v1alpha1.KubeconfigGenerator) { o.Spec.User = v1alpha1.CompoundValue{FromDefinition: path} }).ask(tenantDemo(object))
			if err != nil || a.failure != "" || a.user != want {
				t.Errorf("got %q %q %v", a.user, a.failure, err)
			}
		})
	}
	for path, says := range map[string]string{
		"metadata.labels.nothing":     "metadata.labels.nothing of the tenant is not there",
		"metadata.labels":             "is not a text",
		"metadata.labels.empty":       "is empty",
		"metadata.name.first":         "is not there",
		"spec.networkProfile.port":    "is not a text",
		"spec.kubernetes":             "is not a text",
		"spec.networkProfile.address": "is not there",
		"status.storage.driver":       "is not there",
		"status.controlPlaneEndpoint": "",
	} {
		t.Run("no field "+path, func(t *testing.T) {
			t.Parallel()
			g := changed(func(o *v1alpha1.KubeconfigGenerator) {
				o.Spec.Groups = append(o.Spec.Groups, v1alpha1.CompoundValue{FromDefinition: path})
			})
			a, err := g.ask(tenantDemo(object))
			if err != nil || !strings.Contains(a.failure, says) || says != "" && !strings.HasPrefix(a.failure, "spec.groups[1].fromDefinition: field "+path) {
				t.Errorf("got %q, %v", a.failure, err)
			}
		})
	}
	t.Run("the object is read for what the state doesn't have, and once", func(t *testing.T) {
		t.Parallel()
		d, reads := tenantDemo(nil), 0
		d.read = func() (map[string]any, error) { reads++; return object, nil }
		g := changed(func(o *v1alpha1.KubeconfigGenerator) {
			o.Spec.User = v1alpha1.CompoundValue{FromDefinition: "metadata.name"}
		})
		if _, err := g.ask(d); err != nil || reads != 0 {
			t.Errorf("%v, %d reads", err, reads)
		}
		g = changed(func(o *v1alpha1.KubeconfigGenerator) {
			o.Spec.User = v1alpha1.CompoundValue{FromDefinition: "status.controlPlaneEndpoint"}
			o.Spec.Groups[0] = v1alpha1.CompoundValue{FromDefinition: "metadata.annotations.contact"}
		})
		if _, err := g.ask(d); err != nil || reads != 1 {
			t.Errorf("%v, %d reads", err, reads)
		}
	})
	t.Run("an object that can't be read now is no failure of the generator", func(t *testing.T) {
		t.Parallel()
		d, away := tenantDemo(nil), errors.New("away")
		d.read = func() (map[string]any, error) { return nil, away }
		g := changed(func(o *v1alpha1.KubeconfigGenerator) {
			o.Spec.User = v1alpha1.CompoundValue{FromDefinition: "status.x"}
		})
		if a, err := g.ask(d); !errors.Is(err, away) || a.failure != "" {
			t.Errorf("got %q, %v", a.failure, err)
		}
	})
	t.Run("a group that comes twice counts once", func(t *testing.T) {
		t.Parallel()
		g := changed(func(o *v1alpha1.KubeconfigGenerator) {
			o.Spec.Groups = []v1alpha1.CompoundValue{{StringValue: "red"}, {FromDefinition: "metadata.labels.team"}, {StringValue: "a"}}
		})
		if a, err := g.ask(tenantDemo(nil)); err != nil || !slices.Equal(a.groups, []string{"red", "a"}) {
			t.Errorf("got %v, %v", a.groups, err)
		}
	})
}

func TestWhomGeneratorsAsk(t *testing.T) {
	t.Parallel()
	type kg = v1alpha1.KubeconfigGenerator
	for sentence, test := range map[string]struct {
		change func(*kg)
		places *places
		asks   bool
		rests  bool
	}{
		"one that selects nothing selects all":           {func(*kg) {}, nil, true, false},
		"labels of the tenant":                           {func(o *kg) { o.Spec.TenantControlPlaneSelector.MatchLabels = map[string]string{"team": "red"} }, nil, true, false},
		"other labels":                                   {func(o *kg) { o.Spec.TenantControlPlaneSelector.MatchLabels = map[string]string{"team": "blue"} }, nil, false, false},
		"labels of the namespace":                        {func(o *kg) { o.Spec.NamespaceSelector.MatchLabels = map[string]string{"a": "b"} }, &places{map[string]labels.Set{"default": {"a": "b"}}}, true, false},
		"other labels of the namespace":                  {func(o *kg) { o.Spec.NamespaceSelector.MatchLabels = map[string]string{"a": "c"} }, &places{map[string]labels.Set{"default": {"a": "b"}}}, false, false},
		"a namespace nobody knows":                       {func(o *kg) { o.Spec.NamespaceSelector.MatchLabels = map[string]string{"a": "b"} }, &places{}, false, false},
		"namespaces that aren't known yet: it is let be": {func(o *kg) { o.Spec.NamespaceSelector.MatchLabels = map[string]string{"a": "b"} }, nil, false, true},
		"a paused one is let be":                         {func(o *kg) { o.Annotations = map[string]string{name.AnnotationPaused: ""} }, nil, false, true},
		"one that is paused for a while, too": {func(o *kg) {
			o.Annotations = map[string]string{name.AnnotationPausedUntil: now.Add(time.Minute).Format(time.RFC3339)}
		}, nil, false, true},
		"one whose pause is over asks again": {func(o *kg) {
			o.Annotations = map[string]string{name.AnnotationPausedUntil: now.Format(time.RFC3339)}
		}, nil, true, false},
		"one that can't be used is let be": {func(o *kg) { o.Name = "ca" }, nil, false, true},
	} {
		t.Run(sentence, func(t *testing.T) {
			t.Parallel()
			g := changed(test.change)
			s := newGenerators(nil, testLog(), func() time.Time { return now })
			s.all, s.places = map[string]*generator{g.name: g}, test.places
			a, err := s.asks(tenantDemo(nil))
			if _, asks := a.asks[g.name]; err != nil || !a.known || asks != test.asks || a.resting[g.name] != test.rests {
				t.Errorf("%+v %v", a, err)
			}
		})
	}
	t.Run("until all are known, nothing is", func(t *testing.T) {
		t.Parallel()
		a, err := newGenerators(nil, testLog(), time.Now).asks(tenantDemo(nil))
		if err != nil || a.known || !a.settled(map[string]state.Generated{"viewer": {}}, true) {
			t.Errorf("%+v %v", a, err)
		}
	})
}

func TestWhatIsAskedAndWhatIsThere(t *testing.T) {
	t.Parallel()
	there := func(inputs, failure string) map[string]state.Generated {
		return map[string]state.Generated{"viewer": {Inputs: inputs, Error: failure}}
	}
	x := asked{known: true, asks: map[string]ask{"viewer": {inputs: "a-1"}}}
	for sentence, test := range map[string]struct {
		a       asked
		have    map[string]state.Generated
		exposed bool
		settled bool
	}{
		"nothing asked, nothing there":                              {asked{known: true}, nil, true, true},
		"asked and there":                                           {x, there("a-1", ""), true, true},
		"asked and missing":                                         {x, nil, true, false},
		"asked and made for another":                                {x, there("a-2", ""), true, false},
		"without an endpoint it stays as it is":                     {x, there("a-2", ""), false, true},
		"without an endpoint it is noted all the same":              {x, nil, false, false},
		"what failed is tried again":                                {x, there("a-1", "taken"), true, false},
		"what can't be asked is said again":                         {asked{known: true, asks: map[string]ask{"viewer": {inputs: "a-1", failure: "no field"}}}, there("a-1", ""), true, false},
		"what nobody asks for goes":                                 {asked{known: true}, there("a-1", ""), true, false},
		"what nobody asks for goes without an endpoint, too":        {asked{known: true}, there("a-1", ""), false, false},
		"what a generator has that is let be stays":                 {asked{known: true, resting: map[string]bool{"viewer": true}}, there("a-0", ""), true, true},
		"and is not missed":                                         {asked{known: true, resting: map[string]bool{"viewer": true}}, nil, true, true},
		"while generators aren't known, what is there is all right": {asked{}, there("a-0", ""), true, true},
	} {
		t.Run(sentence, func(t *testing.T) {
			t.Parallel()
			if got := test.a.settled(test.have, test.exposed); got != test.settled {
				t.Errorf("got %t", got)
			}
		})
	}
}

func TestWhoseSecretItIs(t *testing.T) {
	t.Parallel()
	labelled := func(by, of string) map[string]string {
		return map[string]string{name.LabelManagedBy: by, name.LabelManagedFor: of}
	}
	owned := func(kind, owner string) []metav1.OwnerReference {
		return []metav1.OwnerReference{{Kind: kind, Name: owner, UID: "u-0", Controller: new(true)}}
	}
	for sentence, test := range map[string]struct {
		meta  metav1.ObjectMeta
		ofA   string // the generator for tenant a
		ofAB  string // the generator for tenant a-b
		takes string // the generator that may write it for tenant a
	}{
		"of a's generator b-c":               {metav1.ObjectMeta{Name: "a-b-c", Labels: labelled("b-c", "a"), OwnerReferences: owned("TenantControlPlane", "a")}, "b-c", "", "b-c"},
		"of a-b's generator c":               {metav1.ObjectMeta{Name: "a-b-c", Labels: labelled("c", "a-b"), OwnerReferences: owned("TenantControlPlane", "a-b")}, "", "c", ""},
		"with edited labels, by its owner":   {metav1.ObjectMeta{Name: "a-b-c", Labels: labelled("x", "y"), OwnerReferences: owned("TenantControlPlane", "a")}, "b-c", "", "b-c"},
		"without an owner, by its labels":    {metav1.ObjectMeta{Name: "a-b-c", Labels: labelled("c", "a-b")}, "", "c", ""},
		"a user's own is nobody's":           {metav1.ObjectMeta{Name: "a-b-c"}, "", "", ""},
		"another controller's is nobody's":   {metav1.ObjectMeta{Name: "a-b-c", Labels: labelled("b-c", "a"), OwnerReferences: owned("Certificate", "a")}, "", "", ""},
		"a tenant's own Secret is nobody's":  {metav1.ObjectMeta{Name: "a-ca", OwnerReferences: owned("TenantControlPlane", "a")}, "", "", ""},
		"another tenant's CA is never taken": {metav1.ObjectMeta{Name: "a-b-ca", Labels: labelled("b-ca", "a"), OwnerReferences: owned("TenantControlPlane", "a")}, "", "", ""},
	} {
		t.Run(sentence, func(t *testing.T) {
			t.Parallel()
			if got := generatorOf("a", &test.meta); got != test.ofA {
				t.Errorf("of a: %q", got)
			}
			if got := generatorOf("a-b", &test.meta); got != test.ofAB {
				t.Errorf("of a-b: %q", got)
			}
			in := input{Namespace: "default", Name: "a"}
			for _, g := range []string{"b-c", "ca"} {
				err := mine(in, &want{Generator: g}, &corev1.Secret{ObjectMeta: test.meta})
				if (err == nil) != (g == test.takes) {
					t.Errorf("generator %s takes it: %v", g, err)
				}
			}
		})
	}
}

func TestGeneratedKubeconfigsAreJudgedLikeAllOthers(t *testing.T) {
	t.Parallel()
	in, x := demo(), world{}
	x.turn(t, in, nil, now)
	signerOf := func(x world) *signer {
		ca := x[name.ComponentCA]
		cert, key, err := parsePair(ca.Data[name.KeyCACert], ca.Data[name.KeyCAKey])
		if err != nil {
			t.Fatal(err)
		}
		return &signer{cert, key, ca.Data[name.KeyCACert]}
	}
	ca := signerOf(x)
	base := ask{generator: "viewer", endpoint: name.KeyAdminSvc, user: "jane", groups: []string{"zebras", "ants", "a much longer one"}}
	w := in.generated(base)
	data, err := w.issue(ca, now)
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
	moved.Exposed = &exposed{Endpoint: "192.0.2.200:443"}
	paused := func(s *corev1.Secret) { s.Annotations[name.AnnotationPaused] = "" }
	for sentence, test := range map[string]struct {
		ask    func(*ask)
		in     input
		secret func(*corev1.Secret)
		ca     *signer
		after  time.Duration
		reason Reason
	}{
		"nothing changed":                    {},
		"the order of groups means nothing":  {ask: func(a *ask) { slices.Reverse(a.groups) }},
		"another user":                       {ask: func(a *ask) { a.user = "joe" }, reason: SubjectChanged},
		"one group less":                     {ask: func(a *ask) { a.groups = a.groups[1:] }, reason: SubjectChanged},
		"the published endpoint":             {ask: func(a *ask) { a.endpoint = name.KeyAdminConf }, reason: ServerChanged},
		"the same endpoint by another key":   {ask: func(a *ask) { a.endpoint = name.KeySuperAdminSvc }},
		"the published endpoint moved":       {in: moved, ask: func(a *ask) { a.endpoint = name.KeySuperAdminConf }, reason: ServerChanged},
		"the inner one doesn't move with it": {in: moved},
		"a new CA":                           {ca: signerOf(other), reason: SignedByAnother},
		"soon to expire":                     {after: leafLife * 2 / 3, reason: Expiring},
		"soon to expire, but paused":         {after: leafLife * 2 / 3, secret: paused},
		"paused, and another user":           {ask: func(a *ask) { a.user = "joe" }, secret: paused, reason: SubjectChanged},
		"a rotation that was asked for":      {secret: func(s *corev1.Secret) { s.Annotations[name.AnnotationRotate] = "" }, reason: Asked},
		"a rotation that was done":           {secret: func(s *corev1.Secret) { s.Annotations[name.AnnotationRotate] = "2026-01-01T00:00:00Z" }},
		"edited":                             {secret: func(s *corev1.Secret) { s.Data["value"] = []byte("x") }, reason: Unreadable},
		"one key too many":                   {secret: func(s *corev1.Secret) { s.Data["more"] = []byte("x") }, reason: Restored},
		"a token in it": {secret: func(s *corev1.Secret) {
			s.Data["value"] = []byte(strings.Replace(string(s.Data["value"]), "  user:\n", "  user:\n    token: x\n", 1))
		}, reason: ServerChanged},
	} {
		t.Run(sentence, func(t *testing.T) {
			t.Parallel()
			a, secret, at := base, made.DeepCopy(), now.Add(test.after)
			a.groups = slices.Clone(a.groups)
			if test.ask != nil {
				test.ask(&a)
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
			w := test.in.generated(a)
			if v := judge(&w, secret, test.ca, nil, at); v.Reason != test.reason {
				t.Errorf("got %q", v.describe())
			}
		})
	}
}
