package addons

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/stoker-k8s/stoker/pkg/api/name"
	"github.com/stoker-k8s/stoker/pkg/api/v1alpha1"
	"github.com/stoker-k8s/stoker/pkg/events"
	"github.com/stoker-k8s/stoker/pkg/kube"
)

// TestKeptObjects holds what is written in the policy against what this service writes.
func TestKeptObjects(t *testing.T) {
	kept := map[Ref]bool{}
	for _, ref := range keptObjects {
		if _, err := ref.kind(); err != nil {
			t.Error(err)
		}
		kept[ref] = true
	}
	written := map[Ref]bool{}
	in := withTunnel()
	in.WritePermissions.BlockCreation = true
	objects, err := Render(in)
	if err != nil {
		t.Fatal(err)
	}
	for _, o := range objects {
		written[RefOf(o)] = true
	}
	for _, ref := range Removed(Input{}) {
		written[ref] = true
	}
	for ref := range written {
		exempt := ref.Namespace == "kube-system" || ref.Name == name.WritePermissions
		if kept[ref] == exempt {
			t.Errorf("%s is written by Stoker; it is among those that nobody is kept from: %v", ref, kept[ref])
		}
		delete(kept, ref)
	}
	for ref := range kept {
		t.Errorf("%s is none of Stoker's", ref)
	}
}

// request is a write by somebody, as the API server sees it.
type request struct {
	method, path, body string
	as                 string // "" is the administrator; after a comma, a group
}

// try makes a request without effect.
func (tn *tenant) try(t testing.TB, r request) error {
	t.Helper()
	content := "application/json"
	if r.method == http.MethodPatch {
		content = merge
	}
	q := tn.rest.Verb(r.method).AbsPath(r.path).Param("dryRun", "All").SetHeader("Content-Type", content)
	if r.as != "" {
		user, group, _ := strings.Cut(r.as, ",")
		q = q.SetHeader("Impersonate-User", user).SetHeader("Impersonate-Group", cmp.Or(group, "system:authenticated"), "system:masters")
	}
	if r.body != "" {
		q = q.Body([]byte(r.body))
	}
	return q.Do(t.Context()).Error()
}

// limited reports whether a request was refused by the policy, and fails the test when it was for another reason.
func limited(t testing.TB, r request, err error) bool {
	t.Helper()
	if err == nil {
		return false
	}
	if !apierrors.IsForbidden(err) || !strings.Contains(err.Error(), messageLimited) {
		t.Fatalf("%+v: %v", r, err)
	}
	return true
}

const (
	configMaps = "/api/v1/namespaces/default/configmaps"
	leases     = "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases"
	gc         = "system:serviceaccount:kube-system:generic-garbage-collector"
	controller = ",system:serviceaccounts:kube-system"
)

func object(apiVersion, kind, name, more string) string {
	return fmt.Sprintf(`{"apiVersion":%q,"kind":%q,"metadata":{"name":%q}%s}`, apiVersion, kind, name, more)
}

// writeTests are requests and what blocks them: the letters c, u, d for creation, update, deletion, a for any of these, "" for nothing.
var writeTests = map[string]struct {
	request
	blockedBy string
}{
	"a person creates":                {request{method: http.MethodPost, path: configMaps, body: object("v1", "ConfigMap", "new", "")}, "c"},
	"a person creates a namespace":    {request{method: http.MethodPost, path: "/api/v1/namespaces", body: object("v1", "Namespace", "new", "")}, "c"},
	"a person updates":                {request{method: http.MethodPatch, path: configMaps + "/old", body: `{"data":{"a":"c"}}`}, "u"},
	"a person deletes":                {request{method: http.MethodDelete, path: configMaps + "/old"}, "d"},
	"a person deletes a collection":   {request{method: http.MethodDelete, path: configMaps}, "d"},
	"a person deletes a namespace":    {request{method: http.MethodDelete, path: "/api/v1/namespaces/empty"}, "d"},
	"a person creates in kube-system": {request{method: http.MethodPost, path: "/api/v1/namespaces/kube-system/configmaps", body: object("v1", "ConfigMap", "new", "")}, ""},
	"a person deletes in kube-system": {request{method: http.MethodDelete, path: "/api/v1/namespaces/kube-system/configmaps/kubelet-config"}, ""},
	"super-admin is a person":         {request{method: http.MethodPatch, path: configMaps + "/old", body: `{"data":{"a":"c"}}`, as: "kubernetes-super-admin,system:masters"}, "u"},

	"a Lease of a node is created": {request{method: http.MethodPost, path: leases, body: object("coordination.k8s.io/v1", "Lease", "new", ""), as: "system:node:n,system:nodes"}, "a"},
	"a Lease of a node is renewed": {request{method: http.MethodPatch, path: leases + "/old", body: `{"spec":{"holderIdentity":"n"}}`, as: "system:node:n,system:nodes"}, ""},
	"a Lease of a node is deleted": {request{method: http.MethodDelete, path: leases + "/old"}, "a"},

	"a token is made":                   {request{method: http.MethodPost, path: "/api/v1/namespaces/default/serviceaccounts/web/token", body: `{"apiVersion":"authentication.k8s.io/v1","kind":"TokenRequest","spec":{}}`}, ""},
	"a token is reviewed":               {request{method: http.MethodPost, path: "/apis/authentication.k8s.io/v1/tokenreviews", body: `{"apiVersion":"authentication.k8s.io/v1","kind":"TokenReview","spec":{"token":"x"}}`}, ""},
	"access is reviewed":                {request{method: http.MethodPost, path: "/apis/authorization.k8s.io/v1/subjectaccessreviews", body: `{"apiVersion":"authorization.k8s.io/v1","kind":"SubjectAccessReview","spec":{"user":"x","resourceAttributes":{"verb":"get"}}}`}, ""},
	"a person asks what it may":         {request{method: http.MethodPost, path: "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews", body: `{"apiVersion":"authorization.k8s.io/v1","kind":"SelfSubjectAccessReview","spec":{"resourceAttributes":{"verb":"get"}}}`}, ""},
	"a status is written":               {request{method: http.MethodPatch, path: "/api/v1/nodes/old/status", body: `{"status":{"phase":"Running"}}`, as: "system:node:old,system:nodes"}, ""},
	"a kubelet registers":               {request{method: http.MethodPost, path: "/api/v1/nodes", body: object("v1", "Node", "new", ""), as: "system:node:new,system:nodes"}, ""},
	"a person makes a node":             {request{method: http.MethodPost, path: "/api/v1/nodes", body: object("v1", "Node", "new", "")}, "c"},
	"the API server has a new role":     {request{method: http.MethodPost, path: "/apis/rbac.authorization.k8s.io/v1/clusterroles", body: object("rbac.authorization.k8s.io/v1", "ClusterRole", "system:new", ""), as: "system:apiserver"}, ""},
	"somebody as the API server writes": {request{method: http.MethodPatch, path: configMaps + "/old", body: `{"data":{"a":"c"}}`, as: "system:apiserver"}, "u"},
	"Endpoints follow pods":             {request{method: http.MethodPatch, path: "/api/v1/namespaces/default/endpoints/old", body: `{"subsets":[]}`, as: "system:serviceaccount:kube-system:endpoint-controller" + controller}, ""},
	"an authority is published":         {request{method: http.MethodPatch, path: configMaps + "/kube-root-ca.crt", body: `{"data":{"ca.crt":"c"}}`, as: "system:serviceaccount:kube-system:root-ca-cert-publisher" + controller}, ""},
	"a person changes the authority":    {request{method: http.MethodPatch, path: configMaps + "/kube-root-ca.crt", body: `{"data":{"ca.crt":"c"}}`}, "u"},
	"a controller makes pods":           {request{method: http.MethodPost, path: "/apis/batch/v1/namespaces/default/jobs", body: object("batch/v1", "Job", "new", `,"spec":{"template":{"spec":{"restartPolicy":"Never","containers":[{"name":"a","image":"a"}]}}}`), as: "system:serviceaccount:kube-system:cronjob-controller" + controller}, "c"},
	"garbage is collected":              {request{method: http.MethodDelete, path: configMaps + "/owned", as: gc + controller}, ""},
	"a person deletes what is owned":    {request{method: http.MethodDelete, path: configMaps + "/owned"}, "d"},
	"what has no owner is no garbage":   {request{method: http.MethodDelete, path: configMaps + "/old", as: gc + controller}, "d"},

	"what is being deleted is let go":          {request{method: http.MethodPatch, path: configMaps + "/ending", body: `{"metadata":{"finalizers":null}}`}, ""},
	"what is being deleted is changed":         {request{method: http.MethodPatch, path: configMaps + "/ending", body: `{"data":{"a":"c"}}`}, "u"},
	"what is being deleted is deleted":         {request{method: http.MethodDelete, path: configMaps + "/ending"}, ""},
	"a namespace that is deleted loses all":    {request{method: http.MethodDelete, path: "/api/v1/namespaces/ending/configmaps/old"}, ""},
	"what has a finalizer is not let go of":    {request{method: http.MethodPatch, path: configMaps + "/held", body: `{"metadata":{"finalizers":null}}`}, "u"},
	"Stoker's own in kube-public is written":   {request{method: http.MethodPatch, path: "/api/v1/namespaces/kube-public/configmaps/cluster-info", body: `{"data":{"a":"c"}}`}, ""},
	"another in kube-public is made":           {request{method: http.MethodPost, path: "/api/v1/namespaces/kube-public/configmaps", body: object("v1", "ConfigMap", "new", "")}, "c"},
	"one of that name elsewhere is made":       {request{method: http.MethodPost, path: configMaps, body: object("v1", "ConfigMap", "cluster-info", "")}, "c"},
	"a binding of Stoker's is deleted":         {request{method: http.MethodDelete, path: "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings/kubeadm:cluster-admins"}, ""},
	"a policy, to which no policy applies":     {request{method: http.MethodPost, path: kube.ValidatingAdmissionPolicyBindings.Path("", ""), body: object("admissionregistration.k8s.io/v1", "ValidatingAdmissionPolicyBinding", "new", `,"spec":{"policyName":"a","validationActions":["Deny"]}`)}, ""},
	"a name that the server shall make up":     {request{method: http.MethodPost, path: configMaps, body: `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"generateName":"a-"}}`}, "c"},
	"a cluster's own resource of another kind": {request{method: http.MethodPost, path: "/apis/storage.k8s.io/v1/storageclasses", body: object("storage.k8s.io/v1", "StorageClass", "new", `,"provisioner":"a"`)}, "c"},
}

// fixtures is what the requests are about.
func (tn *tenant) fixtures(t *testing.T) {
	t.Helper()
	create := func(path, body string) { t.Helper(); tn.raw(t, http.MethodPost, path, "application/json", body) }
	for _, namespace := range []string{"empty", "ending"} {
		create("/api/v1/namespaces", object("v1", "Namespace", namespace, ""))
	}
	create("/api/v1/namespaces/ending/configmaps", object("v1", "ConfigMap", "old", ""))
	tn.raw(t, http.MethodDelete, "/api/v1/namespaces/ending", "", "")
	for _, name := range []string{"old", "owned", "kube-root-ca.crt", "held", "ending"} {
		create(configMaps, object("v1", "ConfigMap", name, ""))
	}
	for _, name := range []string{"held", "ending"} {
		tn.raw(t, http.MethodPatch, configMaps+"/"+name, merge, `{"metadata":{"finalizers":["example.org/holds"]}}`)
	}
	tn.raw(t, http.MethodDelete, configMaps+"/ending", "", "")
	tn.raw(t, http.MethodPatch, configMaps+"/owned", merge,
		`{"metadata":{"ownerReferences":[{"apiVersion":"v1","kind":"ConfigMap","name":"gone","uid":"u"}]}}`)
	create(leases, object("coordination.k8s.io/v1", "Lease", "old", ""))
	create("/api/v1/nodes", object("v1", "Node", "old", ""))
	create("/api/v1/namespaces/default/serviceaccounts", object("v1", "ServiceAccount", "web", ""))
	create("/api/v1/namespaces/default/endpoints", object("v1", "Endpoints", "old", ""))
}

func TestWritePermissions(t *testing.T) {
	tn := startTenant(t)
	tn.in.CoreDNS, tn.in.KubeProxy = nil, nil
	objects := tn.apply(t)
	tn.fixtures(t)
	for sentence, test := range writeTests {
		if err := tn.try(t, test.request); err != nil {
			t.Fatalf("without limits, %s: %v", sentence, err)
		}
	}
	for n := range 8 {
		limits := v1alpha1.Permissions{BlockCreation: n&1 > 0, BlockUpdate: n&2 > 0, BlockDeletion: n&4 > 0}
		blocks := map[string]bool{"c": limits.BlockCreation, "u": limits.BlockUpdate, "d": limits.BlockDeletion, "a": limits.Any()}
		t.Run("blocked are: "+cmp.Or(limits.Blocked(), "none"), func(t *testing.T) {
			tn.in.WritePermissions = limits
			objects = tn.apply(t)
			until(t, "the API server goes by the policy", func() bool {
				for _, sentence := range []string{"a person creates", "a person updates", "a person deletes", "a Lease of a node is deleted"} {
					test := writeTests[sentence]
					err := tn.try(t, test.request)
					if limited(t, test.request, err) != blocks[test.blockedBy] || err != nil && test.blockedBy != "a" && !strings.Contains(err.Error(), limits.Blocked()) {
						return false
					}
				}
				return true
			})
			for sentence, test := range writeTests {
				if is := limited(t, test.request, tn.try(t, test.request)); is != blocks[test.blockedBy] {
					t.Errorf("%s: is blocked: %v", sentence, is)
				}
			}
		})
	}
	t.Run("what is added to the policy or its binding is taken away", func(t *testing.T) { tn.tamper(t, objects) })
	t.Run("without limits, both are gone, though a webhook of the tenant's is broken", func(t *testing.T) {
		tn.raw(t, http.MethodPost, "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations", "application/json",
			`{"apiVersion":"admissionregistration.k8s.io/v1","kind":"ValidatingWebhookConfiguration","metadata":{"name":"broken"},"webhooks":[{
			"name":"broken.example.com","admissionReviewVersions":["v1"],"sideEffects":"None","failurePolicy":"Fail",
			"clientConfig":{"url":"https://127.0.0.1:1/nobody"},
			"rules":[{"apiGroups":["*"],"apiVersions":["*"],"operations":["*"],"resources":["*"]}]}]}`)
		until(t, "the webhook is in force", func() bool {
			_, err := tn.Apply(t.Context(), objects)
			return err != nil
		})
		tn.in.WritePermissions = v1alpha1.Permissions{}
		without, err := Render(tn.in)
		if err != nil {
			t.Fatal(err)
		}
		s, w := &addons{}, &connection{cluster: tn.Cluster, known: map[string]string{}, drift: map[string]string{}}
		_, err = s.write(t.Context(), events.Tenant("default", "demo"), w, application{input: tn.in}, without)
		if broken := (*ObjectError)(nil); !errors.As(err, &broken) || broken.Webhook == "" {
			t.Errorf("the rest is applied: %v", err)
		}
		for _, r := range []kube.Resource{kube.ValidatingAdmissionPolicies, kube.ValidatingAdmissionPolicyBindings} {
			if err := tn.rest.Get().AbsPath(r.Path("", name.WritePermissions)).Do(t.Context()).Error(); !apierrors.IsNotFound(err) {
				t.Errorf("%s: %v", r.Kind, err)
			}
		}
	})
}

// apply does what a turn does.
func (tn *tenant) apply(t *testing.T) []*unstructured.Unstructured {
	t.Helper()
	objects, err := Render(tn.in)
	if err == nil {
		_, err = tn.Apply(t.Context(), objects)
	}
	if err == nil {
		_, err = tn.Delete(t.Context(), Removed(tn.in))
	}
	if err != nil {
		t.Fatal(err)
	}
	return objects
}

// tamper changes the policy and its binding as somebody does who wants them without effect.
func (tn *tenant) tamper(t *testing.T, objects []*unstructured.Unstructured) {
	spec := func(r kube.Resource) string {
		t.Helper()
		o := &unstructured.Unstructured{}
		data, err := tn.rest.Get().AbsPath(r.Path("", name.WritePermissions)).Do(t.Context()).Raw()
		if err == nil {
			err = json.Unmarshal(data, o)
		}
		if err != nil {
			t.Fatal(err)
		}
		return fmt.Sprint(o.Object["spec"])
	}
	policy, binding := kube.ValidatingAdmissionPolicies, kube.ValidatingAdmissionPolicyBindings
	wanted := map[string]string{policy.Kind: spec(policy), binding.Kind: spec(binding)}
	for sentence, change := range map[string]struct {
		of   kube.Resource
		spec string
	}{
		"a condition that never holds":       {policy, `{"matchConditions":[{"name":"never","expression":"false"}]}`},
		"resources that are left out":        {policy, `{"matchConstraints":{"excludeResourceRules":[{"apiGroups":["*"],"apiVersions":["*"],"operations":["*"],"resources":["*"]}]}}`},
		"a selector of objects":              {policy, `{"matchConstraints":{"objectSelector":{"matchLabels":{"a":"b"}}}}`},
		"another expression":                 {policy, `{"validations":[{"expression":"true"}]}`},
		"a binding that only warns":          {binding, `{"validationActions":["Warn"]}`},
		"a binding for some namespaces only": {binding, `{"matchResources":{"namespaceSelector":{"matchLabels":{"a":"b"}}}}`},
		"another policy's binding":           {binding, `{"policyName":"another"}`},
	} {
		tn.raw(t, http.MethodPatch, change.of.Path("", name.WritePermissions), merge, `{"spec":`+change.spec+`}`)
		if spec(change.of) == wanted[change.of.Kind] {
			t.Errorf("%s: changes nothing", sentence)
		}
		versions, err := tn.Apply(t.Context(), objects)
		if err != nil {
			t.Fatal(sentence, err)
		}
		if got := spec(change.of); got != wanted[change.of.Kind] {
			t.Errorf("%s: stays: %s", sentence, got)
		}
		again, err := tn.Apply(t.Context(), objects)
		if ref := (Ref{change.of.Kind, "", name.WritePermissions}).String(); err != nil || again[ref] != versions[ref] || versions[ref] == "" {
			t.Errorf("%s: applied again, version %q is %q: %v", sentence, versions[ref], again[ref], err)
		}
	}
}
