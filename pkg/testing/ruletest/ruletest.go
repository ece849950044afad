// Package ruletest is the list of the API's rules, each with objects that pass and objects that fail, and what is said of
// the latter: field, rule, value and message. The tests of the definitions go through it, and test/rules does with a real
// API server, by kubectl's path and by commands.
package ruletest

import (
	"fmt"
	"strconv"
	"strings"

	"k8s.io/apimachinery/pkg/util/json"
	"sigs.k8s.io/yaml"

	"github.com/stoker-k8s/stoker/pkg/api/v1alpha1"
)

// Rule is one rule.
type Rule struct {
	// Name is what the rule asks, as a sentence; unique.
	Name string
	// Kind of the objects.
	Kind string
	// Policy is true for rules of ValidatingAdmissionPolicies, which the definition doesn't know.
	Policy bool
	// From makes the object that is stored before, as a merge patch of the smallest object; empty: there is none.
	From string
	// Passes make objects that are accepted, as merge patches of the smallest object.
	Passes []string
	// Fails make objects that are refused.
	Fails []Failure
}

// Failure is an object that a rule refuses.
type Failure struct {
	// Object as a merge patch of the smallest object.
	Object string
	// Field at fault, as a path.
	Field string
	// Rule is the kind of the error, one of the constants below.
	Rule string
	// Value at fault, without quotes; empty where none is named.
	Value string
	// Message is everything after the value.
	Message string
}

// Kinds of errors, as events name them. The API server's causes have "FieldValue" before them.
const (
	Invalid      = "Invalid"
	NotSupported = "NotSupported"
	Required     = "Required"
	Forbidden    = "Forbidden"
	Duplicate    = "Duplicate"
	TooLong      = "TooLong"
	TooMany      = "TooMany"
)

// words are how errors begin in the API server's messages.
var words = map[string]string{
	Invalid: "Invalid value", NotSupported: "Unsupported value", Required: "Required value", Forbidden: "Forbidden",
	Duplicate: "Duplicate value", TooLong: "Too long", TooMany: "Too many",
}

// Is reports whether an error of the API server ("Invalid value: …") is this one.
func (f Failure) Is(body string) bool {
	begin, end := words[f.Rule], ""
	if f.Message != "" {
		end = ": " + f.Message
	}
	if f.Value == "" {
		return body == begin+end || body == begin+`: ""`+end
	}
	return body == begin+": "+strconv.Quote(f.Value)+end || body == begin+": "+f.Value+end
}

func (f Failure) String() string {
	return fmt.Sprintf("%s: %s: %q: %s", f.Field, words[f.Rule], f.Value, f.Message)
}

// Rules returns the list.
func Rules() []Rule {
	var all []Rule
	for _, some := range []struct {
		kind  string
		rules []Rule
	}{
		{v1alpha1.TenantControlPlaneKind, tenants()},
		{v1alpha1.TenantControlPlaneKind, pods()},
		{v1alpha1.TenantControlPlaneKind, kubernetes()},
		{v1alpha1.TenantControlPlaneKind, settings()},
		{v1alpha1.DataStoreKind, dataStores()},
		{v1alpha1.KubeconfigGeneratorKind, generators()},
	} {
		for _, r := range some.rules {
			r.Kind = some.kind
			all = append(all, r)
		}
	}
	for _, kind := range []string{v1alpha1.TenantControlPlaneKind, v1alpha1.DataStoreKind, v1alpha1.KubeconfigGeneratorKind} {
		for _, r := range annotations() {
			r.Kind, r.Name = kind, r.Name+" of a "+kind
			all = append(all, r)
		}
	}
	return all
}

// Smallest returns an object of a kind that sets nothing but what it must.
func Smallest(kind string) map[string]any { return decode(smallest[kind]) }

// Object is the smallest object of a kind with a merge patch (RFC 7386, as YAML) applied.
func Object(kind, patch string) map[string]any { return Merge(Smallest(kind), decode(patch)) }

// Merge applies a merge patch (RFC 7386) to a decoded object, in place.
func Merge(object, patch map[string]any) map[string]any {
	for key, value := range patch {
		inner, isMap := value.(map[string]any)
		outer, wasMap := object[key].(map[string]any)
		switch {
		case value == nil:
			delete(object, key)
		case isMap && wasMap:
			object[key] = Merge(outer, inner)
		case isMap:
			object[key] = Merge(map[string]any{}, inner)
		default:
			object[key] = value
		}
	}
	return object
}

// decode keeps whole numbers whole, as CEL rules need them. What it decodes is in this package.
func decode(text string) map[string]any {
	asJSON, err := yaml.YAMLToJSON([]byte(text))
	if err != nil {
		panic(err.Error() + ":\n" + text)
	}
	object := map[string]any{}
	if err := json.Unmarshal(asJSON, &object); err != nil {
		panic(err.Error() + ":\n" + text)
	}
	return object
}

var smallest = map[string]string{
	v1alpha1.TenantControlPlaneKind: `
apiVersion: kamaji.clastix.io/v1alpha1
kind: TenantControlPlane
metadata: {name: demo, namespace: default}
spec:
  controlPlane: {service: {serviceType: LoadBalancer}}
  kubernetes: {version: v1.35.4}
  addons: {konnectivity: {}}
`,
	v1alpha1.DataStoreKind: `
apiVersion: kamaji.clastix.io/v1alpha1
kind: DataStore
metadata: {name: main}
spec:
  driver: etcd
  endpoints: ["etcd.example.com:2379"]
  tlsConfig:
    certificateAuthority: {certificate: {content: YQ==}, privateKey: {content: YQ==}}
    clientCertificate: {certificate: {content: YQ==}, privateKey: {content: YQ==}}
`,
	v1alpha1.KubeconfigGeneratorKind: `
apiVersion: kamaji.clastix.io/v1alpha1
kind: KubeconfigGenerator
metadata: {name: viewers}
spec:
  user: {stringValue: viewer}
`,
}

// repeat joins what a function makes of 0 to n-1 with commas.
func repeat(n int, of func(i int) string) string {
	parts := make([]string, n)
	for i := range n {
		parts[i] = of(i)
	}
	return strings.Join(parts, ", ")
}
