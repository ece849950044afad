package workload

import (
	"slices"
	"strings"
	"testing"

	"github.com/stoker-k8s/stoker/pkg/api/name"
	"github.com/stoker-k8s/stoker/pkg/api/state"
	"github.com/stoker-k8s/stoker/pkg/api/v1alpha1"
)

func TestDocumentsAreOfTheVersionThatTheAPIServerKnows(t *testing.T) {
	in := load(t, "settings")
	for version, want := range map[string]struct{ authentication, authorization string }{
		"v1.30.14":     {"v1beta1", "v1beta1"},
		"v1.31.0":      {"v1beta1", "v1beta1"},
		"v1.32.1":      {"v1beta1", "v1"},
		"v1.33.9":      {"v1beta1", "v1"},
		"v1.34.4":      {"v1", "v1"},
		"v1.36.3":      {"v1", "v1"},
		"v1.34.0-rc.1": {"v1", "v1"},
	} {
		in.Tenant.Spec.Kubernetes.Version = version
		documents := in.documents()
		for annotation, v := range map[string]string{name.AnnotationAuthentication: want.authentication, name.AnnotationAuthorization: want.authorization} {
			if begin := "apiVersion: apiserver.config.k8s.io/" + v + "\n"; !strings.HasPrefix(documents[annotation], begin) {
				t.Errorf("%s of %s begins otherwise than %q", annotation, version, begin)
			}
		}
	}
}

func TestSettingsInTheConfigHash(t *testing.T) {
	config := func(in Input) string { return Deployment(in).Spec.Template.Annotations[name.AnnotationConfigHash] }
	before := config(load(t, "settings"))
	for sentence, change := range map[string]func(*v1alpha1.APIServerSpec, *state.Certs){
		"a document": func(s *v1alpha1.APIServerSpec, _ *state.Certs) {
			s.Authentication.JWT[0].Issuer.Audiences = []string{"b"}
		},
		"the content of a Secret": func(_ *v1alpha1.APIServerSpec, c *state.Certs) {
			c.Referenced["quota"] = state.Secret{Checksum: "other"}
		},
		"another Secret": func(s *v1alpha1.APIServerSpec, c *state.Certs) {
			s.Audit.Webhook.KubeconfigSecret.Name, c.Referenced["other"] = "other", c.Referenced["audit"]
		},
		"a flag": func(s *v1alpha1.APIServerSpec, _ *state.Certs) { s.EventTTL = "2h" },
	} {
		in := load(t, "settings")
		change(in.settings(), &in.Certs)
		if config(in) == before {
			t.Errorf("%s: the hash is the same", sentence)
		}
	}
}

func TestAuditEventsGoWhereTheSpecSays(t *testing.T) {
	for sentence, test := range map[string]struct {
		log  *v1alpha1.AuditLog
		want []string
	}{
		"to the output":            {&v1alpha1.AuditLog{}, []string{"--audit-log-path=-"}},
		"to nowhere but a webhook": {nil, nil},
		"to a file, which is bounded unless it says how": {
			&v1alpha1.AuditLog{File: &v1alpha1.AuditLogFile{}},
			[]string{"--audit-log-maxbackup=1", "--audit-log-maxsize=100", "--audit-log-path=/var/log/kubernetes/audit.log"},
		},
	} {
		in := load(t, "settings")
		in.Tenant.Spec.ControlPlane.Deployment.ExtraArgs = nil
		in.settings().Audit.Log = test.log
		got := slices.DeleteFunc(in.apiServerArgs(), func(arg string) bool { return !strings.HasPrefix(arg, "--audit-log") })
		if !slices.Equal(got, test.want) {
			t.Errorf("%s: %q", sentence, got)
		}
	}
}

func TestUseIsCountedWhereIdlenessPutsToSleep(t *testing.T) {
	plain := load(t, "minimal")
	before := hash(Deployment(plain))
	idle := load(t, "minimal")
	idle.Tenant.Annotations = map[string]string{name.AnnotationSleepWhenIdle: "30m"}
	args := strings.Join(idle.apiServerArgs(), " ")
	for _, want := range []string{
		"--audit-policy-file=/etc/kubernetes/apiserver/audit-policy.yaml", "--audit-log-path=/var/log/kubernetes/audit.log", "--audit-log-maxsize=1",
	} {
		if !strings.Contains(args, want) {
			t.Errorf("%s is not in %s", want, args)
		}
	}
	if policy := Deployment(idle).Spec.Template.Annotations[name.AnnotationAuditPolicy]; !strings.Contains(policy, "kubernetes-super-admin") {
		t.Errorf("the policy is %q", policy)
	}
	if idle.Tenant.Spec.Kubernetes.APIServer != nil {
		t.Error("the tenant's spec is another")
	}
	idle.Tenant.Annotations[name.AnnotationSleepWhenIdle] = "1m"
	if hash(Deployment(idle)) != before {
		t.Error("a time that can't be had changes the pods")
	}
}
