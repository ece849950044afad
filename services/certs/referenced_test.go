package certs

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/stoker-k8s/stoker/pkg/api/event"
	"github.com/stoker-k8s/stoker/pkg/api/name"
	"github.com/stoker-k8s/stoker/pkg/api/state"
	"github.com/stoker-k8s/stoker/pkg/api/v1alpha1"
	"github.com/stoker-k8s/stoker/pkg/kube"
	"github.com/stoker-k8s/stoker/pkg/loop"
)

// secretOf is a Secret that somebody made, for a tenant or for none.
func secretOf(secret, usedBy, kubeconfig string) *corev1.Secret {
	o := &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Namespace: key.Namespace, Name: secret}, Data: map[string][]byte{"kubeconfig": []byte(kubeconfig)},
	}
	if usedBy != "" {
		o.Labels = map[string]string{name.LabelUsedBy: usedBy}
	}
	return o
}

func TestSecretsThatASpecRefersTo(t *testing.T) {
	admin, limited, _ := cluster(t)
	write := func(o *corev1.Secret) string {
		t.Helper()
		if err := admin.Apply(t.Context(), kube.Secrets, o); err != nil {
			t.Fatal(err)
		}
		return name.Checksum(map[string][]byte{"kubeconfig": o.Data["kubeconfig"]})
	}
	first := write(secretOf("audit", "demo", "one"))
	write(secretOf("quota", "", "not labelled"))

	r := newRig(t, limited)
	r.certs()
	spec := &v1alpha1.TenantControlPlane{}
	authorizer := func(secret string) v1alpha1.Authorizer {
		return v1alpha1.Authorizer{Webhook: &v1alpha1.AuthorizationWebhook{KubeconfigSecret: v1alpha1.SettingsSecret{Name: secret}}}
	}
	spec.Spec.Kubernetes.APIServer = &v1alpha1.APIServerSpec{
		Audit: &v1alpha1.AuditSpec{Webhook: &v1alpha1.AuditWebhook{KubeconfigSecret: v1alpha1.SettingsSecret{Name: "audit"}}},
		Authorization: &v1alpha1.AuthorizationSpec{
			Authorizers: []v1alpha1.Authorizer{authorizer("quota"), authorizer("demo-ca"), authorizer("missing"), {Type: "RBAC"}},
		},
	}
	v1alpha1.Default(spec)
	r.do("intake", r.intake, loop.Outcome{
		Step: event.Accepted, Data: generation{1, state.Tenant{Namespace: key.Namespace, Name: key.Name, Spec: spec.Spec}},
		Facts: []loop.Tell{{What: event.Accepted}},
	})
	r.expose("192.0.2.7:6443")
	var told event.CertsIssued
	r.fact(event.Issued, &told)
	has := func(what string, want map[string]string) {
		t.Helper()
		have := r.state().Referenced
		for secret, checksum := range want {
			if have[secret].Checksum != checksum {
				t.Errorf("%s: Secret %s: %+v", what, secret, have[secret])
			}
		}
		if len(have) != len(want) {
			t.Errorf("%s: %+v, want %d", what, have, len(want))
		}
	}
	has("of four, the one that is there and labelled", map[string]string{"audit": first})

	second := write(secretOf("audit", "demo", "two"))
	r.fact(event.Rotated, &told)
	has("another content", map[string]string{"audit": second})

	quota := write(secretOf("quota", "demo", "labelled now"))
	r.fact(event.Rotated, &told)
	has("a label that comes", map[string]string{"audit": second, "quota": quota})

	write(secretOf("quota", "other", "labelled now"))
	r.fact(event.Rotated, &told)
	has("a label that names another tenant", map[string]string{"audit": second})

	patch := map[string]any{"metadata": map[string]any{"labels": map[string]any{name.LabelUsedBy: "demo"}}}
	if err := admin.MergePatch(t.Context(), kube.Secrets, key.Namespace, "demo-ca", patch, nil); err != nil {
		t.Fatal(err)
	}
	if _, err := admin.Delete(t.Context(), kube.Secrets, key.Namespace, "audit", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	r.fact(event.Rotated, &told)
	has("one that is deleted, and a label on one of Stoker's own", nil)
}

func TestASecretThatATenantMayHave(t *testing.T) {
	t.Parallel()
	own := secretOf("demo-ca", "demo", "x")
	own.Labels[name.LabelProject] = name.Project
	empty := secretOf("a", "demo", "")
	for sentence, test := range map[string]struct {
		o   *corev1.Secret
		may bool
	}{
		"one that names it":                      {secretOf("a", "demo", "x"), true},
		"none that isn't there":                  {nil, false},
		"none that names nobody":                 {secretOf("a", "", "x"), false},
		"none that names another tenant":         {secretOf("a", "other", "x"), false},
		"none of Stoker's own, however labelled": {own, false},
		"none without the key":                   {empty, false},
	} {
		t.Run(sentence, func(t *testing.T) {
			t.Parallel()
			if got := mayHave("demo", test.o); got != test.may {
				t.Errorf("got %t", got)
			}
		})
	}
}
