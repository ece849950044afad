package pki

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/stoker-k8s/stoker/pkg/api/name"
)

func TestSecretsOfOthersAreNotTaken(t *testing.T) {
	t.Parallel()
	owned := func(kind, owner string) metav1.ObjectMeta {
		return metav1.ObjectMeta{OwnerReferences: []metav1.OwnerReference{{Kind: kind, Name: owner, UID: "u-0", Controller: new(true)}}}
	}
	for sentence, test := range map[string]struct {
		meta metav1.ObjectMeta
		ok   bool
	}{
		"a Secret without owner that has the tenant's labels is taken": {metav1.ObjectMeta{
			Labels: map[string]string{name.LabelProject: name.Project, name.LabelName: "demo"}}, true},
		"a Secret without owner and labels is not":                                  {metav1.ObjectMeta{}, false},
		"a Secret of the tenant's earlier object, from a backup, is taken":          {owned("TenantControlPlane", "demo"), true},
		"a Secret of another tenant is not":                                         {owned("TenantControlPlane", "demo-ca"), false},
		"a Secret of another kind's controller is not":                              {owned("Certificate", "demo"), false},
		"a Secret that bears another tenant's label is not":                         {metav1.ObjectMeta{Labels: map[string]string{name.LabelName: "x"}}, false},
		"a Secret whose label was edited is, as long as its owner says whose it is": {metav1.ObjectMeta{Labels: map[string]string{name.LabelName: "x"}, OwnerReferences: []metav1.OwnerReference{ownerOf(demo())}}, true},
	} {
		t.Run(sentence, func(t *testing.T) {
			t.Parallel()
			if err := checkOwner(demo(), &Want{}, &corev1.Secret{ObjectMeta: test.meta}); (err == nil) != test.ok {
				t.Errorf("got %v", err)
			}
		})
	}
	ca := &Want{Keys: [][2]string{{name.KeyCACert, name.KeyCAKey}, {name.KeyTLSCert, name.KeyTLSKey}}}
	pair := map[string][]byte{name.KeyCACert: []byte("c"), name.KeyCAKey: []byte("k")}
	for sentence, test := range map[string]struct {
		w      *Want
		secret *corev1.Secret
		ok     bool
	}{
		"a Secret that is nobody's and holds a CA's keys is taken, as a user's own CA is": {ca, &corev1.Secret{Data: pair}, true},
		"one that holds something else is not":                                            {ca, &corev1.Secret{Data: map[string][]byte{"password": []byte("x")}}, false},
		"nor is one that holds more": {ca,
			&corev1.Secret{Data: map[string][]byte{name.KeyCACert: []byte("c"), name.KeyCAKey: []byte("k"), "x": nil}}, false},
		"nor one that has an owner": {ca, &corev1.Secret{Data: pair, ObjectMeta: metav1.ObjectMeta{
			OwnerReferences: []metav1.OwnerReference{{Kind: "Shop", Name: "corner", UID: "f00d"}}}}, false},
		"nor one in the place of a certificate": {&Want{}, &corev1.Secret{Data: pair}, false},
	} {
		t.Run(sentence, func(t *testing.T) {
			t.Parallel()
			if err := checkOwner(demo(), test.w, test.secret); (err == nil) != test.ok {
				t.Errorf("got %v", err)
			}
		})
	}
}

func TestEveryOwnSecretOfATenantIsReserved(t *testing.T) {
	t.Parallel()
	for _, secret := range Components("demo") {
		if n := GeneratorIn("demo", secret); n != "" {
			t.Errorf("%s would be generator %s", secret, n)
		}
	}
	for secret, n := range map[string]string{"demo-viewer": "viewer", "demo-a-b": "a-b", "demo": "", "other-viewer": "", name.DatastoreConfig("demo"): ""} {
		if got := GeneratorIn("demo", secret); got != n {
			t.Errorf("%s: got %q", secret, got)
		}
	}
	if GeneratorIn("", "-viewer") != "" {
		t.Error("no tenant has no generators")
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
			if got := GeneratorOf("a", &test.meta); got != test.ofA {
				t.Errorf("of a: %q", got)
			}
			if got := GeneratorOf("a-b", &test.meta); got != test.ofAB {
				t.Errorf("of a-b: %q", got)
			}
			in := Input{Namespace: "default", Name: "a"}
			for _, g := range []string{"b-c", "ca"} {
				err := checkOwner(in, &Want{Generator: g}, &corev1.Secret{ObjectMeta: test.meta})
				if (err == nil) != (g == test.takes) {
					t.Errorf("generator %s takes it: %v", g, err)
				}
			}
		})
	}
}
