package addons

import (
	"encoding/base64"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/stoker-k8s/stoker/internal/testing/poll"
	"github.com/stoker-k8s/stoker/pkg/kube"
)

// encrypting is an API server on the tenant's data that encrypts Secrets; without identity, it reads what is encrypted alone.
func (tn *tenant) encrypting(t *testing.T, identity bool) *tenant {
	t.Helper()
	document := "kind: EncryptionConfiguration\napiVersion: apiserver.config.k8s.io/v1\n" + `resources: [{resources: [secrets], providers: [
  {secretbox: {keys: [{name: key1, secret: ` + base64.StdEncoding.EncodeToString([]byte(strings.Repeat("k", 32))) + `}]}}`
	if identity {
		document += `, {identity: {}}`
	}
	file := filepath.Join(t.TempDir(), "encryption.yaml")
	if err := os.WriteFile(file, []byte(document+"]}]\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	return tn.another(t, map[string]string{"encryption-provider-config": file})
}

func TestObjectsAreWrittenAnew(t *testing.T) {
	t.Parallel()
	tn := startTenant(t)
	const many = pageSizeOfLists + 20
	secrets := make([]int, many)
	for i := range secrets {
		secrets[i] = i
	}
	each(secrets, func(i int) {
		s := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: fmt.Sprintf("s-%04d", i)}}
		if err := tn.kube.Create(t.Context(), kube.Secrets, s); err != nil {
			t.Error(err)
		}
	})
	server := tn.encrypting(t, true)
	versions := func() map[string]string {
		all := map[string]string{}
		var list metav1.PartialObjectMetadataList
		if err := server.kube.List(t.Context(), kube.Secrets, "default", "", &list); err != nil {
			t.Fatal(err)
		}
		for _, s := range list.Items {
			all[s.Name] = s.ResourceVersion
		}
		return all
	}
	resources := []string{"configmaps", "secrets", "nothing.example.com", "nothing"}

	t.Run("what is refused is counted, and all others are written", func(t *testing.T) {
		server.raw(t, "POST", "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicies", "application/json", `{
"apiVersion":"admissionregistration.k8s.io/v1","kind":"ValidatingAdmissionPolicy","metadata":{"name":"keep"},"spec":{
"matchConstraints":{"resourceRules":[{"apiGroups":[""],"apiVersions":["v1"],"operations":["UPDATE"],"resources":["secrets"],"resourceNames":["s-0007"]}]},
"validations":[{"expression":"false","message":"nobody changes this one"}]}}`)
		server.raw(t, "POST", "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicybindings", "application/json", `{
"apiVersion":"admissionregistration.k8s.io/v1","kind":"ValidatingAdmissionPolicyBinding","metadata":{"name":"keep"},
"spec":{"policyName":"keep","validationActions":["Deny"]}}`)
		poll.True(t, "the policy", func() bool {
			label := map[string]any{"metadata": map[string]any{"labels": map[string]string{"a": "b"}}}
			return server.kube.MergePatch(t.Context(), kube.Secrets, "default", "s-0007", label, nil) != nil
		})
		before, r := versions(), &rewriting{}
		if more, err := server.rewrite(t.Context(), resources, r, time.Now().Add(time.Minute)); more || err != nil {
			t.Fatal(more, err)
		}
		if r.refused != 1 || !strings.Contains(r.first, "secrets default/s-0007") || !strings.Contains(r.first, "nobody changes this one") {
			t.Errorf("%d, %s", r.refused, r.first)
		}
		if r.objects < many {
			t.Errorf("%d objects", r.objects)
		}
		for secret, version := range versions() {
			if written := before[secret] != version; written == (secret == "s-0007") {
				t.Errorf("%s: written is %t", secret, written)
			}
		}
	})
	t.Run("in slices, each of which goes on where the one before ended", func(t *testing.T) {
		server.raw(t, "DELETE", "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicybindings/keep", "", "")
		poll.True(t, "the policy to go", func() bool {
			label := map[string]any{"metadata": map[string]any{"labels": map[string]string{"a": "c"}}}
			return server.kube.MergePatch(t.Context(), kube.Secrets, "default", "s-0007", label, nil) == nil
		})
		r := &rewriting{}
		if more, err := server.rewrite(t.Context(), resources, r, time.Now()); !more || err != nil || r.objects != 0 {
			t.Fatal(more, err, r.objects)
		}
		if more, err := server.rewrite(t.Context(), resources, r, time.Now().Add(time.Minute)); more || err != nil || r.objects < many || r.refused != 0 {
			t.Fatal(more, err, r.objects, r.first)
		}
		tn.encrypting(t, false) // reads all Secrets before it is ready
	})
	t.Run("what is written as it would be now is no write", func(t *testing.T) {
		before := versions()
		if _, err := server.rewrite(t.Context(), resources, &rewriting{}, time.Now().Add(time.Minute)); err != nil {
			t.Fatal(err)
		}
		for secret, version := range versions() {
			if before[secret] != version {
				t.Errorf("%s was written", secret)
			}
		}
	})
}

// pageSizeOfLists is how many objects pkg/kube lists at a time.
const pageSizeOfLists = 500
