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

	"github.com/stoker-k8s/stoker/internal/testing/poll"
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
		exempt := ref.Namespace == "kube-system" || ref.Name == name.WritePermissions || ref.Name == name.KeptEndpoints
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

func post(path, body string) request { return request{method: http.MethodPost, path: path, body: body} }
func patch(path, body string) request {
	return request{method: http.MethodPatch, path: path, body: body}
}
func remove(path string) request { return request{method: http.MethodDelete, path: path} }

// by is the request of another user, after a comma with a group.
func (r request) by(user string) request { r.as = user; return r }

// object is a small one; more are its fields beside the metadata.
func object(apiVersion, kind, name, more string) string {
	return fmt.Sprintf(`{"apiVersion":%q,"kind":%q,"metadata":{"name":%q}%s}`, apiVersion, kind, name, more)
}

// Where the requests go, and who else makes them.
const (
	namespaces = "/api/v1/namespaces"
	configMaps = namespaces + "/default/configmaps"
	nodes      = "/api/v1/nodes"
	leases     = "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases"
	webhooks   = "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations"
	jobs       = "/apis/batch/v1/namespaces/default/jobs"
	token      = namespaces + "/default/serviceaccounts/web/token"
	authn      = "/apis/authentication.k8s.io/v1"
	authz      = "/apis/authorization.k8s.io/v1"

	oldKubelet  = "system:node:old,system:nodes"
	accounts    = "system:serviceaccount:kube-system:"
	controllers = ",system:serviceaccounts:kube-system"
)

// What the requests carry.
var (
	otherData    = `{"data":{"a":"c"}}`
	noFinalizers = `{"metadata":{"finalizers":null}}`
	someName     = `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"generateName":"a-"}}`

	newMap       = object("v1", "ConfigMap", "new", "")
	newInfo      = object("v1", "ConfigMap", "cluster-info", "")
	newNamespace = object("v1", "Namespace", "new", "")
	newNode      = object("v1", "Node", "new", "")
	newLease     = object("coordination.k8s.io/v1", "Lease", "new", "")
	newRole      = object("rbac.authorization.k8s.io/v1", "ClusterRole", "system:new", "")
	newClass     = object("storage.k8s.io/v1", "StorageClass", "new", `,"provisioner":"a"`)
	newBinding   = object("admissionregistration.k8s.io/v1", "ValidatingAdmissionPolicyBinding", "new",
		`,"spec":{"policyName":"a","validationActions":["Deny"]}`)
	newWebhook = object("admissionregistration.k8s.io/v1", "ValidatingWebhookConfiguration", "new", "")
	newJob     = object("batch/v1", "Job", "new",
		`,"spec":{"template":{"spec":{"restartPolicy":"Never","containers":[{"name":"a","image":"a"}]}}}`)
	newToken   = object("authentication.k8s.io/v1", "TokenRequest", "", `,"spec":{}`)
	askToken   = object("authentication.k8s.io/v1", "TokenReview", "", `,"spec":{"token":"x"}`)
	askAccess  = object("authorization.k8s.io/v1", "SubjectAccessReview", "", `,"spec":{"user":"x","resourceAttributes":{"verb":"get"}}`)
	askOneself = object("authorization.k8s.io/v1", "SelfSubjectAccessReview", "", `,"spec":{"resourceAttributes":{"verb":"get"}}`)
)

// writeTests are requests and what blocks them: the letters c, u, d for creation, update, deletion, a for any of these, "" for nothing.
var writeTests = map[string]struct {
	request
	blockedBy string
}{
	"a person creates":                {post(configMaps, newMap), "c"},
	"a name is left to the server":    {post(configMaps, someName), "c"},
	"a person creates a namespace":    {post(namespaces, newNamespace), "c"},
	"a person creates what has none":  {post("/apis/storage.k8s.io/v1/storageclasses", newClass), "c"},
	"a person updates":                {patch(configMaps+"/old", otherData), "u"},
	"a person deletes":                {remove(configMaps + "/old"), "d"},
	"a person deletes a collection":   {remove(configMaps), "d"},
	"a person deletes a namespace":    {remove(namespaces + "/empty"), "d"},
	"a person creates in kube-system": {post(namespaces+"/kube-system/configmaps", newMap), ""},
	"a person deletes in kube-system": {remove(namespaces + "/kube-system/configmaps/kubelet-config"), ""},
	"super-admin is a person":         {patch(configMaps+"/old", otherData).by("kubernetes-super-admin,system:masters"), "u"},

	"a Lease of a node is created": {post(leases, newLease).by(oldKubelet), "a"},
	"a Lease of a node is renewed": {patch(leases+"/old", `{"spec":{"holderIdentity":"n"}}`).by(oldKubelet), ""},
	"a Lease of a node is deleted": {remove(leases + "/old"), "a"},

	"a token is made":                 {post(token, newToken), ""},
	"a token is reviewed":             {post(authn+"/tokenreviews", askToken), ""},
	"access is reviewed":              {post(authz+"/subjectaccessreviews", askAccess), ""},
	"a person asks what it may":       {post(authz+"/selfsubjectaccessreviews", askOneself), ""},
	"no policy applies to policies":   {post(kube.ValidatingAdmissionPolicyBindings.Path("", ""), newBinding), ""},
	"a webhook is registered":         {post(webhooks, newWebhook), ""},
	"a kubelet reports":               {patch(nodes+"/old/status", `{"status":{"phase":"Running"}}`).by(oldKubelet), ""},
	"a kubelet registers":             {post(nodes, newNode).by("system:node:new,system:nodes"), ""},
	"a person makes a node":           {post(nodes, newNode), "c"},
	"the API server has a new role":   {post("/apis/rbac.authorization.k8s.io/v1/clusterroles", newRole).by("system:apiserver"), ""},
	"a person has a new role":         {post("/apis/rbac.authorization.k8s.io/v1/clusterroles", newRole), "c"},
	"somebody poses as the server":    {patch(configMaps+"/old", otherData).by("system:apiserver"), "u"},
	"Endpoints follow pods":           {patch(namespaces+"/default/endpoints/old", `{"subsets":[]}`).by(accounts + "endpoint-controller" + controllers), ""},
	"an authority is published":       {patch(configMaps+"/kube-root-ca.crt", otherData).by(accounts + "root-ca-cert-publisher" + controllers), ""},
	"a person publishes one":          {patch(configMaps+"/kube-root-ca.crt", otherData), "u"},
	"a controller makes a Job":        {post(jobs, newJob).by(accounts + "cronjob-controller" + controllers), "c"},
	"garbage is collected":            {remove(configMaps + "/owned").by(accounts + "generic-garbage-collector" + controllers), ""},
	"a person deletes what is owned":  {remove(configMaps + "/owned"), "d"},
	"what has no owner is no garbage": {remove(configMaps + "/old").by(accounts + "generic-garbage-collector" + controllers), "d"},

	"what is being deleted is let go":       {patch(configMaps+"/ending", noFinalizers), ""},
	"what is being deleted is changed":      {patch(configMaps+"/ending", otherData), "u"},
	"what is being deleted is deleted":      {remove(configMaps + "/ending"), ""},
	"a namespace that is deleted loses all": {remove(namespaces + "/ending/configmaps/old"), ""},
	"what has a finalizer is let go":        {patch(configMaps+"/held", noFinalizers), "u"},

	"one of Stoker's is changed":       {patch(namespaces+"/kube-public/configmaps/cluster-info", otherData), ""},
	"one of Stoker's is deleted":       {remove("/apis/rbac.authorization.k8s.io/v1/clusterrolebindings/kubeadm:cluster-admins"), ""},
	"another in kube-public is made":   {post(namespaces+"/kube-public/configmaps", newMap), "c"},
	"one of that name elsewhere is so": {post(configMaps, newInfo), "c"},
}

// fixtures is what the requests are about.
func (tn *tenant) fixtures(t *testing.T) {
	t.Helper()
	create := func(path, body string) { t.Helper(); tn.raw(t, http.MethodPost, path, "application/json", body) }
	for _, namespace := range []string{"empty", "ending"} {
		create(namespaces, object("v1", "Namespace", namespace, ""))
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
			poll.True(t, "the API server goes by the policy", func() bool {
				for _, sentence := range []string{"a person creates", "a person updates", "a person deletes", "a Lease of a node is deleted"} {
					test := writeTests[sentence]
					err := tn.try(t, test.request)
					if limited(t, test.request, err) != blocks[test.blockedBy] {
						return false
					}
					if err != nil && test.blockedBy != "a" && !strings.Contains(err.Error(), messageLimited+limits.Blocked()+" (") {
						return false // of the limits before
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
		tn.raw(t, http.MethodPost, webhooks, "application/json",
			`{"apiVersion":"admissionregistration.k8s.io/v1","kind":"ValidatingWebhookConfiguration","metadata":{"name":"broken"},"webhooks":[{
			"name":"broken.example.com","admissionReviewVersions":["v1"],"sideEffects":"None","failurePolicy":"Fail",
			"clientConfig":{"url":"https://127.0.0.1:1/nobody"},
			"rules":[{"apiGroups":["*"],"apiVersions":["*"],"operations":["*"],"resources":["*"]}]}]}`)
		poll.True(t, "the webhook is in force", func() bool {
			_, err := tn.Apply(t.Context(), objects)
			return err != nil
		})
		tn.in.WritePermissions = v1alpha1.Permissions{}
		without, err := Render(tn.in)
		if err != nil {
			t.Fatal(err)
		}
		s, w := &svc{}, &connection{cluster: tn.Cluster, known: map[string]string{}, drift: map[string]string{}}
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
	content := func(r kube.Resource) string {
		t.Helper()
		o := &unstructured.Unstructured{}
		data, err := tn.rest.Get().AbsPath(r.Path("", name.WritePermissions)).Do(t.Context()).Raw()
		if err == nil {
			err = json.Unmarshal(data, o)
		}
		if err != nil {
			t.Fatal(err)
		}
		return fmt.Sprint(o.Object["spec"], o.GetLabels(), o.GetFinalizers())
	}
	const everything = `{"apiGroups":["*"],"apiVersions":["*"],"operations":["*"],"resources":["*"]}`
	policy, binding := kube.ValidatingAdmissionPolicies, kube.ValidatingAdmissionPolicyBindings
	wanted := map[string]string{policy.Kind: content(policy), binding.Kind: content(binding)}
	for sentence, change := range map[string]struct {
		of    kube.Resource
		patch string
	}{
		"a condition that never holds":       {policy, `{"spec":{"matchConditions":[{"name":"never","expression":"false"}]}}`},
		"one that is held by a finalizer":    {policy, `{"metadata":{"finalizers":["a.b/c"]},"spec":{"matchConditions":[{"name":"never","expression":"false"}]}}`},
		"resources that are left out":        {policy, `{"spec":{"matchConstraints":{"excludeResourceRules":[` + everything + `]}}}`},
		"a selector of objects":              {policy, `{"spec":{"matchConstraints":{"objectSelector":{"matchLabels":{"a":"b"}}}}}`},
		"another expression":                 {policy, `{"spec":{"validations":[{"expression":"true"}]}}`},
		"a binding that only warns":          {binding, `{"spec":{"validationActions":["Warn"]}}`},
		"one without our label":              {binding, `{"metadata":{"labels":null},"spec":{"validationActions":["Warn"]}}`},
		"a binding for some namespaces only": {binding, `{"spec":{"matchResources":{"namespaceSelector":{"matchLabels":{"a":"b"}}}}}`},
		"another policy's binding":           {binding, `{"spec":{"policyName":"another"}}`},
	} {
		tn.raw(t, http.MethodPatch, change.of.Path("", name.WritePermissions), merge, change.patch)
		if content(change.of) == wanted[change.of.Kind] {
			t.Errorf("%s: changes nothing", sentence)
		}
		versions, err := tn.Apply(t.Context(), objects)
		if err != nil {
			t.Fatal(sentence, err)
		}
		if got := content(change.of); got != wanted[change.of.Kind] {
			t.Errorf("%s: stays: %s", sentence, got)
		}
		again, err := tn.Apply(t.Context(), objects)
		if ref := (Ref{change.of.Kind, "", name.WritePermissions}).String(); err != nil || again[ref] != versions[ref] || versions[ref] == "" {
			t.Errorf("%s: applied again, version %q is %q: %v", sentence, versions[ref], again[ref], err)
		}
	}
}
