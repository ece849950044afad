package intake

import (
	"errors"
	"net/http"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/stoker-k8s/stoker/pkg/api/event"
	"github.com/stoker-k8s/stoker/pkg/intent"
	"github.com/stoker-k8s/stoker/pkg/kube"
)

func TestRefused(t *testing.T) {
	const invalid, wrongType = metav1.CauseTypeFieldValueInvalid, metav1.CauseTypeTypeInvalid
	sent := map[string]any{"spec": map[string]any{
		"networkProfile": map[string]any{"port": "http", "podCidrs": []any{"10.0.0.0/16", "x"}},
		"controlPlane":   map[string]any{"ingress": map[string]any{"hostname": "a"}},
	}}
	cause := func(typ metav1.CauseType, field, message string) metav1.StatusCause {
		return metav1.StatusCause{Type: typ, Field: field, Message: message}
	}
	said := func(causes ...metav1.StatusCause) error {
		return &apierrors.StatusError{ErrStatus: metav1.Status{Reason: metav1.StatusReasonInvalid, Code: 422, Details: &metav1.StatusDetails{Causes: causes}}}
	}
	policy := func(message string) error {
		return said(metav1.StatusCause{Message: "ValidatingAdmissionPolicy 'stoker-tenants' with binding 'stoker-tenants' denied request: " + message})
	}
	message := func(reason metav1.StatusReason, code int32, message string) error {
		return &apierrors.StatusError{ErrStatus: metav1.Status{Reason: reason, Code: code, Message: message}}
	}
	unchecked := cause(invalid, "<nil>", "Invalid value: null: some validation rules were not checked because the object was invalid")
	for _, c := range []struct {
		name string
		err  error
		want refusal
	}{
		{"a value that is named", said(cause(invalid, "spec.networkProfile.port", `Invalid value: 99999: must be at most 65535`)),
			refuse("spec.networkProfile.port", ruleInvalid, "99999", "must be at most 65535")},
		{"a value with quotes and colons in it", said(cause(invalid, "spec.x", `Invalid value: "a\": \"b": must be: this`)),
			refuse("spec.x", ruleInvalid, `a": "b`, "must be: this")},
		{"a missing field", said(cause(metav1.CauseTypeFieldValueRequired, "spec.kubernetes.version", "Required value"), unchecked),
			refuse("spec.kubernetes.version", ruleRequired, "", "is required")},
		{"one of the wrong type, whose value isn't named", said(cause(wrongType, "spec.networkProfile.port", `Invalid value: "string": must be of type integer`), unchecked),
			refuse("spec.networkProfile.port", "TypeInvalid", "http", "must be of type integer")},
		{"a rule about an object, which isn't named", said(cause(invalid, "spec.controlPlane", `Invalid value: using both: ingress and gateway`)),
			refuse("spec.controlPlane", ruleInvalid, `{"ingress":{"hostname":"a"}}`, "using both: ingress and gateway")},
		{"a rule about a list", said(cause(invalid, "spec.networkProfile.podCidrs", `Invalid value: must be CIDRs`)),
			refuse("spec.networkProfile.podCidrs", ruleInvalid, `["10.0.0.0/16","x"]`, "must be CIDRs")},
		{"an enumeration", said(cause(metav1.CauseTypeFieldValueNotSupported, "spec.x", `Unsupported value: "X": supported values: "A", "B"`)),
			refuse("spec.x", "NotSupported", "X", `supported values: "A", "B"`)},
		{"what is said three times", said(cause(invalid, "metadata.labels", `Invalid value: "!": no`), cause(invalid, "metadata.labels", `Invalid value: "!": no`)),
			refuse("metadata.labels", ruleInvalid, "!", "no")},
		{"a path with a dot before it", said(cause(invalid, ".spec.replicas", `Invalid value: -1: no`)), refuse("spec.replicas", ruleInvalid, "-1", "no")},
		{"nothing but what can't be placed", said(unchecked),
			refuse("spec", ruleInvalid, "null", "some validation rules were not checked because the object was invalid")},
		{"a policy", policy(`spec.dataStore: Invalid value: "x": x DataStore does not exist`),
			refuse("spec.dataStore", ruleInvalid, "x", "x DataStore does not exist")},
		{"a policy about an item", policy(`spec.dataStoreOverrides[1].dataStore: Forbidden: only etcd`),
			refuse("spec.dataStoreOverrides[1].dataStore", ruleForbidden, "", "only etcd")},
		{"a policy that says the path only", policy(`spec.networkProfile.port: can't be this`),
			refuse("spec.networkProfile.port", ruleInvalid, "http", "can't be this")},
		{"a policy that names no field", policy(`not today`), refuse("spec", ruleInvalid, "", "not today")},
		{"unknown fields of a patch", message(metav1.StatusReasonInvalid, 422, `patch: Invalid value: "{…}": strict decoding error: unknown field "spec.colour", duplicate field "spec.networkProfile.port"`),
			refusal{{Field: "spec.colour", Rule: ruleUnknown, Message: "unknown field; `kubectl explain` lists the fields there are"},
				{Field: "spec.networkProfile.port", Rule: ruleDuplicate, Value: "http", Message: "the field is given twice"}}},
		{"what can't be merged", message("", 500, "failed to create typed patch object (default/t1; kamaji.clastix.io/v1alpha1, Kind=TenantControlPlane): errors:\n  .spec.colour: field not declared in schema\n  .spec.a: duplicate entries for key [name=\"a\"]"),
			refusal{{Field: "spec.colour", Rule: ruleUnknown, Message: "field not declared in schema"},
				{Field: "spec.a", Rule: ruleDuplicate, Value: `[name="a"]`, Message: `duplicate entries for key [name="a"]`}}},
		{"a namespace that isn't there", &apierrors.StatusError{ErrStatus: metav1.Status{Reason: metav1.StatusReasonNotFound, Code: 404, Details: &metav1.StatusDetails{Kind: "namespaces", Name: "nope"}}},
			refuse("metadata.namespace", ruleNotFound, "nope", "there is no such namespace; create it first")},
		{"no right to do it", message(metav1.StatusReasonForbidden, 403, "you may not"), refuse("object", ruleForbidden, "", "you may not")},
	} {
		t.Run(c.name, func(t *testing.T) {
			var no refusal
			if !errors.As(refused(c.err, sent), &no) || len(no) != len(c.want) {
				t.Fatalf("%+v, want %+v", no, c.want)
			}
			for i := range no {
				if no[i] != c.want[i] {
					t.Errorf("%+v, want %+v", no[i], c.want[i])
				}
			}
		})
	}
	for what, err := range map[string]error{
		"a conflict is tried again":                 message(metav1.StatusReasonConflict, http.StatusConflict, ""),
		"a server that can't answer is waited for":  &intent.Unavailable{Dependency: kube.Dependency, Err: errors.New("refused")},
		"an error inside the server is tried again": message(metav1.StatusReasonInternalError, 500, "boom"),
	} {
		var no refusal
		if errors.As(refused(err, nil), &no) {
			t.Errorf("%s: %v", what, no)
		}
	}
}

func TestLookup(t *testing.T) {
	in := map[string]any{"a": map[string]any{"x/y.z": "slash", "list": []any{"zero", map[string]any{"b": int64(1)}}}, "n": nil}
	for path, want := range map[string]string{
		"a[x/y.z]": "slash", "a.list[0]": "zero", "a.list[1].b": "1", "a.list[1]": `{"b":1}`,
		"a.list[2]": "", "a.list[-1]": "", "a.list.b": "", "a[x": "", "n": "", "n.x": "", "none": "", "": `{"a":{"list":["zero",{"b":1}],"x/y.z":"slash"},"n":null}`,
	} {
		if got, _ := lookup(in, path); got != want {
			t.Errorf("%s is %q, want %q", path, got, want)
		}
	}
}

func FuzzRefused(f *testing.F) {
	f.Add(`Invalid value: "a": b`, "spec.x")
	f.Add(`ValidatingAdmissionPolicy 'a' with binding 'b' denied request: spec.x[0]: Forbidden: no`, "")
	f.Fuzz(func(t *testing.T, message, field string) {
		e := fromCause(metav1.StatusCause{Field: field, Message: message}, map[string]any{"spec": map[string]any{"x": []any{"a"}}})
		if e == (event.FieldError{}) || e.Rule == "" || e.Message == "" {
			t.Errorf("%q %q: %+v", field, message, e)
		}
	})
}
