package rules

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"

	"github.com/stoker-k8s/stoker/pkg/api/name"
	"github.com/stoker-k8s/stoker/pkg/api/v1alpha1"
	"github.com/stoker-k8s/stoker/pkg/testing/ruletest"
	"github.com/stoker-k8s/stoker/test/env"
)

// earlier are objects that break rules, as they may have been stored before there were any.
var earlier = map[string]struct {
	object string
	// keeps changes what breaks no rule, breaks what does.
	keeps, breaks string
}{
	v1alpha1.TenantControlPlaneKind: {
		object: `
metadata:
  name: earlier
  annotations: {kamaji.clastix.io/kubeconfig-secret-key: nope, stoker.dev/paused-until: whenever}
  finalizers: [test.stoker.dev/hold]
spec:
  dataStore: gone
  kubernetes: {version: v1.20.0}
  controlPlane:
    deployment: {replicas: 1, nodeSelector: {"a b": c}, additionalContainers: [{name: kube-apiserver}]}
    service: {serviceType: NodePort}
`,
		keeps:  `{"spec":{"addons":{"coreDNS":{}},"kubernetes":{"admissionControllers":["PodSecurity"]}}}`,
		breaks: `{"spec":{"kubernetes":{"version":"v1.20.1"}}}`,
	},
	v1alpha1.DataStoreKind: {
		object: `{metadata: {name: earlier, finalizers: [test.stoker.dev/hold]}, spec: {endpoints: [nowhere], tlsConfig: null}}`,
		keeps:  `{"metadata":{"annotations":{"note":"b"}}}`,
		breaks: `{"spec":{"endpoints":["elsewhere"]}}`,
	},
	v1alpha1.KubeconfigGeneratorKind: {
		object: `{metadata: {name: earlier-ca, finalizers: [test.stoker.dev/hold]}, spec: {user: {stringValue: null}, namespaceSelector: {matchLabels: {"a b": c}}}}`,
		keeps:  `{"metadata":{"annotations":{"note":"b"}}}`,
		breaks: `{"spec":{"user":{"fromDefinition":"nothing"}}}`,
	},
}

// TestWhatWasStoredEarlierIsLeftAlone stores objects while there are no rules. Afterwards all but what breaks a rule can be
// changed, and nothing keeps them from being deleted.
func TestWhatWasStoredEarlierIsLeftAlone(t *testing.T) {
	cfg, _ := admin(t)
	d, err := dynamic.NewForConfig(cfg)
	if err != nil {
		t.Fatal(err)
	}
	putBack := dropRules(t, d)
	for kind, e := range earlier {
		o := &unstructured.Unstructured{Object: ruletest.Object(kind, e.object)}
		env.Eventually(t, "the rules of "+kind+" to be gone", func() error {
			_, err := resource(d, kind).Create(t.Context(), o, metav1.CreateOptions{})
			return err
		})
	}
	putBack()
	for kind, e := range earlier {
		t.Run(kind, func(t *testing.T) {
			n := ruletest.Object(kind, e.object)["metadata"].(map[string]any)["name"].(string)
			definesAgain(t, d, kind, e.object)
			patch := func(what, data string, sub ...string) error {
				_, err := resource(d, kind).Patch(t.Context(), n, types.MergePatchType, []byte(data), metav1.PatchOptions{}, sub...)
				if err != nil {
					return fmt.Errorf("%s: %w", what, err)
				}
				return nil
			}
			for _, err := range []error{
				patch("a label", `{"metadata":{"labels":{"a":"b"}}}`),
				patch("the status", `{"status":{"observedGeneration":1}}`, "status"),
				patch("something else", e.keeps),
			} {
				if err != nil {
					t.Error(err)
				}
			}
			if err := patch("what breaks a rule", e.breaks); !apierrors.IsInvalid(err) {
				t.Errorf("what breaks a rule was changed: %v", err)
			}
			if err := resource(d, kind).Delete(t.Context(), n, metav1.DeleteOptions{}); err != nil {
				t.Error(err)
			}
			o, err := resource(d, kind).Get(t.Context(), n, metav1.GetOptions{})
			if err != nil {
				t.Fatal(err)
			}
			o.SetFinalizers(nil)
			if _, err := resource(d, kind).Update(t.Context(), o, metav1.UpdateOptions{}); err != nil {
				t.Errorf("its finalizers can't be removed: %v", err)
			}
			if _, err := resource(d, kind).Get(t.Context(), n, metav1.GetOptions{}); !apierrors.IsNotFound(err) {
				t.Errorf("it is still there: %v", err)
			}
		})
	}
}

// elsewhere are changes that concern no rule of the policies, although the policies look at what is changed so.
var elsewhere = map[string]string{
	v1alpha1.TenantControlPlaneKind: `{"metadata":{"annotations":{"stoker.dev/other":"a"}},"spec":{` +
		`"kubernetes":{"admissionControllers":["PodSecurity"]},"controlPlane":{"deployment":{"replicas":3}}}}`,
	v1alpha1.DataStoreKind:           `{"metadata":{"annotations":{"stoker.dev/other":"a"}}}`,
	v1alpha1.KubeconfigGeneratorKind: `{"metadata":{"annotations":{"stoker.dev/other":"a"}},"spec":{"user":{"stringValue":"other"}}}`,
}

// besides are changes of tenants that refer to what there isn't, or not together, beside what does.
var besides = []struct{ what, object, patch string }{
	{
		"an override beside a DataStore that is gone", `spec: {dataStore: gone}`,
		`{"spec":{"dataStoreOverrides":[{"resource":"/events","dataStore":"b"}]}}`,
	},
	{
		"a DataStore beside an override that is gone", `spec: {dataStore: a, dataStoreOverrides: [{resource: /events, dataStore: gone}]}`,
		`{"spec":{"dataStore":"b"}}`,
	},
	{
		"a gateway beside an override and a DataStore of another driver than etcd",
		`spec: {dataStore: sql, dataStoreOverrides: [{resource: /events, dataStore: b}]}`,
		`{"spec":{"controlPlane":{"gateway":{"hostname":"a.b","parentRefs":[{"name":"edge"}]}}}}`,
	},
}

// unreadable are tenants with addresses and networks that are none, as they may have been stored before the definition had rules.
var unreadable = []string{
	`spec: {networkProfile: {dnsServiceIPs: [nowhere]}}`,
	`spec: {networkProfile: {advertiseAddress: nowhere}}`,
	`spec: {networkProfile: {serviceCidrs: [nowhere], podCidrs: [10.244.0.0/16], dnsServiceIPs: [10.96.0.53], advertiseAddress: 192.0.2.1}}`,
	`spec: {networkProfile: {serviceCidrs: [10.96.0.0/16], podCidrs: [nowhere]}}`,
}

// goes are changes that policies refuse, made to what is being deleted.
var goes = map[string]string{
	v1alpha1.TenantControlPlaneKind: `{"metadata":{"annotations":{"stoker.dev/paused-until":"never"}},` +
		`"spec":{"dataStore":"nowhere","networkProfile":{"dnsServiceIPs":["192.0.2.1"]}}}`,
	v1alpha1.DataStoreKind:           `{"metadata":{"annotations":{"stoker.dev/max-bytes":"many"}}}`,
	v1alpha1.KubeconfigGeneratorKind: `{"spec":{"namespaceSelector":{"matchLabels":{"/a":"b"}}}}`,
}

// untouched is an object that breaks a rule of a policy, or is being deleted, and a change of it that is accepted all the same.
type untouched struct {
	what, kind, name, patch string
}

func (u untouched) change(ctx context.Context, d dynamic.Interface) error {
	_, err := resource(d, u.kind).Patch(ctx, u.name, types.MergePatchType, []byte(u.patch), metav1.PatchOptions{DryRun: dry})
	return err
}

// leftAlone stores an object of each failure of the policies' rules while they deny nothing, and one of each kind that is being deleted.
func leftAlone(t *testing.T, d dynamic.Interface) (all []untouched) {
	t.Helper()
	asAuthor(t) // what is looked at from then on is what the policies say
	deny(t, d, false)
	store := func(u untouched, patch string, finalizers ...string) {
		o := &unstructured.Unstructured{Object: ruletest.Object(u.kind, patch)}
		o.SetName(u.name)
		o.SetFinalizers(finalizers)
		env.Eventually(t, "policies to deny nothing", func() error {
			_, err := resource(d, u.kind).Create(t.Context(), o.DeepCopy(), metav1.CreateOptions{})
			return err
		})
		all = append(all, u)
	}
	for i, rule := range ruletest.Rules() {
		for j, fails := range rule.Fails {
			if rule.Policy && rule.From == "" {
				store(untouched{
					what: "changed elsewhere: " + fails.Object, kind: rule.Kind, name: fmt.Sprintf("stays-%d-%d", i, j), patch: elsewhere[rule.Kind],
				}, fails.Object)
			}
		}
	}
	for i, r := range besides {
		store(untouched{what: r.what, kind: v1alpha1.TenantControlPlaneKind, name: fmt.Sprint("stays-references-", i), patch: r.patch}, r.object)
	}
	putBack := dropRules(t, d)
	for i, patch := range unreadable {
		const kind = v1alpha1.TenantControlPlaneKind
		store(untouched{what: "changed elsewhere: " + patch, kind: kind, name: fmt.Sprint("unreadable-", i), patch: elsewhere[kind]}, patch)
	}
	putBack()
	definesAgain(t, d, v1alpha1.TenantControlPlaneKind, unreadable[0])
	for kind, patch := range goes {
		u := untouched{what: "a " + kind + " that goes", kind: kind, name: "goes", patch: patch}
		store(u, `{}`, "test.stoker.dev/hold")
		if err := resource(d, kind).Delete(t.Context(), u.name, metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			ctx, none := context.WithoutCancel(t.Context()), []byte(`{"metadata":{"finalizers":null}}`)
			if _, err := resource(d, kind).Patch(ctx, u.name, types.MergePatchType, none, metav1.PatchOptions{}); err != nil {
				t.Error(err)
			}
		})
	}
	asAuthor(t)
	return all
}

// TestWhatPoliciesRefuseIsLeftAloneUntilItChanges: a policy of a new version must not keep anybody from changing something else, nor from
// whatever a deletion takes.
func TestWhatPoliciesRefuseIsLeftAloneUntilItChanges(t *testing.T) {
	e.Service(t, name.ServiceIntake, "a")
	cluster(t)
	cfg, _ := admin(t)
	d := dynamic.NewForConfigOrDie(cfg)
	for _, u := range leftAlone(t, d) {
		if err := u.change(t.Context(), d); err != nil {
			t.Errorf("%s: %v", u.what, err)
		}
	}
}

// deny has the policies that deny do so, or say in audit logs what they would deny. The API server heeds that a moment later, of all when it does of
// the last, which is the one that asAuthor waits for.
func deny(t *testing.T, d dynamic.Interface, really bool) {
	t.Helper()
	how := map[bool]string{true: "Deny", false: "Audit"}[really]
	bindings := d.Resource(bindings)
	list, err := bindings.List(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	slices.SortFunc(list.Items, func(a, b unstructured.Unstructured) int {
		return cmp.Compare(strings.Index(a.GetName(), "tenant-parts"), strings.Index(b.GetName(), "tenant-parts"))
	})
	for _, b := range list.Items {
		if actions, _, _ := unstructured.NestedStringSlice(b.Object, "spec", "validationActions"); slices.Contains(actions, "Warn") {
			continue // which denies nothing
		}
		patch := `{"spec":{"validationActions":["` + how + `"]}}`
		if _, err := bindings.Patch(t.Context(), b.GetName(), types.MergePatchType, []byte(patch), metav1.PatchOptions{}); err != nil {
			t.Fatal(err)
		}
	}
}

// dropRules takes the rules out of the definitions and keeps policies from denying; what it returns puts them back.
func dropRules(t *testing.T, d dynamic.Interface) (putBack func()) {
	t.Helper()
	deny(t, d, false)
	change := func(definition string, spec any) (before any) {
		for {
			o, err := d.Resource(definitions).Get(t.Context(), definition, metav1.GetOptions{})
			if err != nil {
				t.Fatal(err)
			}
			before = o.Object["spec"]
			o.Object["spec"] = spec
			_, err = d.Resource(definitions).Update(t.Context(), o, metav1.UpdateOptions{})
			if apierrors.IsConflict(err) {
				continue // the API server has written to its status
			}
			if err != nil {
				t.Fatal(err)
			}
			return before
		}
	}
	before := map[string]any{}
	for _, plural := range plurals {
		definition := plural + "." + v1alpha1.GroupName
		o, err := d.Resource(definitions).Get(t.Context(), definition, metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		lax := o.DeepCopy().Object["spec"].(map[string]any)
		lax["versions"].([]any)[0].(map[string]any)["schema"] = map[string]any{"openAPIV3Schema": map[string]any{"type": "object", "x-kubernetes-preserve-unknown-fields": true}}
		before[definition] = change(definition, lax)
	}
	return func() {
		t.Helper()
		for definition, spec := range before {
			change(definition, spec)
		}
		deny(t, d, true)
	}
}

// definesAgain waits until a definition's rules, which were dropped, refuse an object.
func definesAgain(t *testing.T, d dynamic.Interface, kind, patch string) {
	t.Helper()
	env.Eventually(t, "the rules of "+kind+" to be back", func() error {
		o := &unstructured.Unstructured{Object: ruletest.Object(kind, patch)}
		o.SetName("later")
		if kind == v1alpha1.KubeconfigGeneratorKind {
			o.SetName("later-ca")
		}
		_, err := resource(d, kind).Create(t.Context(), o, metav1.CreateOptions{DryRun: dry})
		if !apierrors.IsInvalid(err) {
			return fmt.Errorf("not refused: %w", cmp.Or(err, errors.New("accepted")))
		}
		return nil
	})
}

// TestGatewayNeedsTLSRoutes asks for a gateway where TLSRoutes are not served.
func TestGatewayNeedsTLSRoutes(t *testing.T) {
	e.Service(t, name.ServiceIntake, "a")
	cfg, _ := admin(t)
	d, err := dynamic.NewForConfig(cfg)
	if err != nil {
		t.Fatal(err)
	}
	setRoutesServed(t, d, false)
	fails := ruletest.NoRoutes
	for way, write := range map[string]writer{"kubectl": clientWriter(asAuthor(t)), "event": eventWriter(t)} {
		tries := 0
		env.Eventually(t, way+" to be refused", func() error {
			tries++
			tenant := fmt.Sprint("no-gateway-by-", way, "-", tries)
			o := ruletest.Object(v1alpha1.TenantControlPlaneKind, fails.Object)
			o["metadata"].(map[string]any)["name"] = tenant
			no := write(t, v1alpha1.TenantControlPlaneKind, o)
			if len(no) != 1 || !no[0].is(fails) {
				// The policy may not have heard of it yet; then the tenant was made. It goes, which takes a while, so that the next
				// one has another name.
				_ = resource(d, v1alpha1.TenantControlPlaneKind).Delete(t.Context(), tenant, metav1.DeleteOptions{})
				return fmt.Errorf("got %v", no)
			}
			return nil
		})
		o := ruletest.Smallest(v1alpha1.TenantControlPlaneKind)
		o["metadata"].(map[string]any)["name"] = "gateway-later-by-" + way
		if no := write(t, v1alpha1.TenantControlPlaneKind, o); no != nil {
			t.Fatal(no)
		}
		o = ruletest.Object(v1alpha1.TenantControlPlaneKind, fails.Object)
		o["metadata"].(map[string]any)["name"] = "gateway-later-by-" + way
		if no := write(t, v1alpha1.TenantControlPlaneKind, o); len(no) != 1 || !no[0].is(fails) {
			t.Errorf("a gateway that comes later: %v", no)
		}
	}
}

// TestKubectlSaysWhatIsWrong runs kubectl itself for some rules of each kind of check: field, value and message are in what
// it prints.
func TestKubectlSaysWhatIsWrong(t *testing.T) {
	some := map[string]bool{
		"a version is one of those supported, with or without v": true, "a DataStore's name fits a label": true,
		"mounts of the control plane's containers are at paths that are free":       true,
		"a tenant is reached by a kubeconfig that there is of a TenantControlPlane": true,
		"a user is a text or taken from the tenant":                                 true,
	}
	asAuthor(t)
	for _, rule := range ruletest.Rules() {
		if !some[rule.Name] {
			continue
		}
		delete(some, rule.Name)
		t.Run(rule.Name, func(t *testing.T) {
			fails := rule.Fails[0]
			data, err := json.Marshal(named(rule, fails.Object, "kubectl"))
			if err != nil {
				t.Fatal(err)
			}
			out, err := e.TryKubectl(t.Context(), e.Local.Kubeconfig("admin"), bytes.NewReader(data), "apply", "--as="+author, "-f", "-")
			for _, part := range []string{fails.Field, fails.Value, fails.Message} {
				if err == nil || !strings.Contains(out, part) {
					t.Errorf("%v, %q isn't in:\n%s", err, part, out)
				}
			}
		})
	}
	for n := range some {
		t.Errorf("no rule %q", n)
	}
}
