package intake

import (
	"encoding/json"
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
	causes := func(causes ...metav1.StatusCause) error {
		return &apierrors.StatusError{ErrStatus: metav1.Status{Reason: metav1.StatusReasonInvalid, Code: 422, Details: &metav1.StatusDetails{Causes: causes}}}
	}
	policy := func(message string) error {
		return causes(metav1.StatusCause{Message: "ValidatingAdmissionPolicy 'stoker-tenants' with binding 'stoker-tenants' denied request: " + message})
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
		{"a value that is named", causes(cause(invalid, "spec.networkProfile.port", `Invalid value: 99999: must be at most 65535`)),
			refuse("spec.networkProfile.port", event.RuleInvalid, "99999", "must be at most 65535")},
		{"a value with quotes and colons in it", causes(cause(invalid, "spec.x", `Invalid value: "a\": \"b": must be: this`)),
			refuse("spec.x", event.RuleInvalid, `a": "b`, "must be: this")},
		{"a missing field", causes(cause(metav1.CauseTypeFieldValueRequired, "spec.kubernetes.version", "Required value"), unchecked),
			refuse("spec.kubernetes.version", event.RuleRequired, "", "is required")},
		{"one of the wrong type, whose value isn't named", causes(cause(wrongType, "spec.networkProfile.port", `Invalid value: "string": must be of type integer`), unchecked),
			refuse("spec.networkProfile.port", "TypeInvalid", "http", "must be of type integer")},
		{"a rule about an object, which isn't named", causes(cause(invalid, "spec.controlPlane", `Invalid value: using both: ingress and gateway`)),
			refuse("spec.controlPlane", event.RuleInvalid, `{"ingress":{"hostname":"a"}}`, "using both: ingress and gateway")},
		{"a rule about a list", causes(cause(invalid, "spec.networkProfile.podCidrs", `Invalid value: must be CIDRs`)),
			refuse("spec.networkProfile.podCidrs", event.RuleInvalid, `["10.0.0.0/16","x"]`, "must be CIDRs")},
		{"an enumeration", causes(cause(metav1.CauseTypeFieldValueNotSupported, "spec.x", `Unsupported value: "X": supported values: "A", "B"`)),
			refuse("spec.x", "NotSupported", "X", `supported values: "A", "B"`)},
		{"what is said three times", causes(cause(invalid, "metadata.labels", `Invalid value: "!": no`), cause(invalid, "metadata.labels", `Invalid value: "!": no`)),
			refuse("metadata.labels", event.RuleInvalid, "!", "no")},
		{"a path with a dot before it", causes(cause(invalid, ".spec.replicas", `Invalid value: -1: no`)), refuse("spec.replicas", event.RuleInvalid, "-1", "no")},
		{"nothing but what can't be placed", causes(unchecked),
			refuse("spec", event.RuleInvalid, "null", "some validation rules were not checked because the object was invalid")},
		{"a policy", policy(`spec.dataStore: Invalid value: "x": no DataStore has this name: create it, or name another one`),
			refuse("spec.dataStore", event.RuleInvalid, "x", "no DataStore has this name: create it, or name another one")},
		{"a policy about an item", policy(`spec.dataStoreOverrides[1].dataStore: Forbidden: only etcd`),
			refuse("spec.dataStoreOverrides[1].dataStore", event.RuleForbidden, "", "only etcd")},
		{"a policy that says the path only", policy(`spec.networkProfile.port: can't be this`),
			refuse("spec.networkProfile.port", event.RuleInvalid, "http", "can't be this")},
		{"a policy that names no field", policy(`not today`), refuse("spec", event.RuleInvalid, "", "not today")},
		{"unknown fields of a patch", message(metav1.StatusReasonInvalid, 422, `patch: Invalid value: "{…}": strict decoding error: unknown field "spec.colour", duplicate field "spec.networkProfile.port"`),
			refusal{{Field: "spec.colour", Rule: event.RuleUnknown, Message: "unknown field; `kubectl explain` lists the fields there are"},
				{Field: "spec.networkProfile.port", Rule: event.RuleDuplicate, Value: "http", Message: "the field is given twice"}}},
		{"what can't be merged", message("", 500, "failed to create typed patch object (default/t1; kamaji.clastix.io/v1alpha1, Kind=TenantControlPlane): errors:\n  .spec.colour: field not declared in schema\n  .spec.a: duplicate entries for key [name=\"a\"]"),
			refusal{{Field: "spec.colour", Rule: event.RuleUnknown, Message: "field not declared in schema"},
				{Field: "spec.a", Rule: event.RuleDuplicate, Value: `[name="a"]`, Message: `duplicate entries for key [name="a"]`}}},
		{"a namespace that isn't there", &apierrors.StatusError{ErrStatus: metav1.Status{Reason: metav1.StatusReasonNotFound, Code: 404, Details: &metav1.StatusDetails{Kind: "namespaces", Name: "nope"}}},
			refuse("metadata.namespace", event.RuleNotFound, "nope", "there is no such namespace; create it first")},
		{"an object that isn't there", message(metav1.StatusReasonNotFound, 404, "no tenant"), refuse("object", event.RuleNotFound, "", "no tenant")},
		{"one that isn't there, of a kind", &apierrors.StatusError{ErrStatus: metav1.Status{Reason: metav1.StatusReasonNotFound, Code: 404, Message: "no tenant", Details: &metav1.StatusDetails{Kind: "tenantcontrolplanes", Name: "a"}}},
			refuse("object", event.RuleNotFound, "", "no tenant")},
		{"no right to a namespace", &apierrors.StatusError{ErrStatus: metav1.Status{Reason: metav1.StatusReasonForbidden, Code: 403, Message: "not in this one", Details: &metav1.StatusDetails{Kind: "namespaces", Name: "a"}}},
			refuse("object", event.RuleForbidden, "", "not in this one")},
		{"one of the wrong type that wasn't sent", causes(cause(wrongType, "spec.colour", `Invalid value: "string": must be of type integer`)),
			refuse("spec.colour", "TypeInvalid", "", "must be of type integer")},
		{"what can't be merged, with its value", message("", 500, "failed to create typed patch object (default/t1; kamaji.clastix.io/v1alpha1, Kind=TenantControlPlane): .spec.networkProfile.port: expected numeric (int or float), got string"),
			refuse("spec.networkProfile.port", event.RuleInvalid, "http", "expected numeric (int or float), got string")},
		{"what is no object at all", message("", 500, "failed to create typed patch object (default/t1; kamaji.clastix.io/v1alpha1, Kind=TenantControlPlane): .: expected map"),
			refuse("object", event.RuleInvalid, `{"spec":{"controlPlane":{"ingress":{"hostname":"a"}},"networkProfile":{"podCidrs":["10.0.0.0/16","x"],"port":"http"}}}`, "expected map")},
		{"what can't be merged, of no field", message("", 500, "failed to create typed patch object (default/t1; kamaji.clastix.io/v1alpha1, Kind=TenantControlPlane): \nschema: not there"),
			refuse("spec", event.RuleInvalid, "", "schema: not there")},
		{"an unknown field without a name", message(metav1.StatusReasonBadRequest, 400, `strict decoding error: unknown field "", something else`),
			refusal{{Field: "event.data", Rule: event.RuleUnknown, Message: "unknown field; `kubectl explain` lists the fields there are"},
				{Field: "event.data", Rule: event.RuleUnknown, Message: "unknown field; `kubectl explain` lists the fields there are"}}},
		{"no right to do it", message(metav1.StatusReasonForbidden, 403, "you may not"), refuse("object", event.RuleForbidden, "", "you may not")},
	} {
		t.Run(c.name, func(t *testing.T) {
			var found refusal
			if !errors.As(refused(c.err, sent), &found) || len(found) != len(c.want) {
				t.Fatalf("%+v, want %+v", found, c.want)
			}
			for i := range found {
				if found[i] != c.want[i] {
					t.Errorf("%+v, want %+v", found[i], c.want[i])
				}
			}
		})
	}
	for what, err := range map[string]error{
		"a conflict is tried again":                 message(metav1.StatusReasonConflict, http.StatusConflict, ""),
		"a server that can't answer is waited for":  &intent.Unavailable{Dependency: kube.Dependency, Err: errors.New("refused")},
		"an error inside the server is tried again": message(metav1.StatusReasonInternalError, 500, "boom"),
	} {
		if got := refused(err, nil); got != err { //nolint:errorlint // the very same
			t.Errorf("%s: %v", what, got)
		}
	}
}

func TestARefusalIsLoggedWithAllItsFields(t *testing.T) {
	r := refusal{{Field: "spec.a", Message: "is missing"}, {Field: "spec.b", Message: "is too long"}}
	if r.Error() != "spec.a: is missing; spec.b: is too long" {
		t.Error(r)
	}
}

func TestLookup(t *testing.T) {
	in := map[string]any{"a": map[string]any{"x/y.z": "slash", "list": []any{"zero", map[string]any{"b": int64(1)}}}, "n": nil}
	for path, want := range map[string]string{
		"a[x/y.z]": "slash", "a.list[0]": "zero", "a.list[1].b": "1", "a.list[1]": `{"b":1}`,
		"a.list[2]": "", "a.list[-1]": "", "a.list.b": "", "a[x": "", "n": "", "n.x": "", "none": "", "": `{"a":{"list":["zero",{"b":1}],"x/y.z":"slash"},"n":null}`,
	} {
		if got := lookup(in, path); got != want {
			t.Errorf("%s is %q, want %q", path, got, want)
		}
	}
}

// said reports what is missing of a refusal, empty when it says all it must.
func said(err error) string {
	var found refusal
	if !errors.As(err, &found) || len(found) == 0 {
		return "no refusal"
	}
	for _, e := range found {
		switch {
		case e.Field == "" || e.Rule == "" || e.Message == "":
			return "field, rule or message is missing"
		case len(e.Value) > 512 || len(e.Message) > 2048:
			return "value or message is long"
		}
	}
	return ""
}

// FuzzStatus makes refusals of what API servers and policies may answer.
func FuzzStatus(f *testing.F) {
	f.Add([]byte(`{"reason":"Invalid","code":422,"message":"x","details":{"causes":[{"reason":"FieldValueInvalid","field":"spec.networkProfile.port","message":"Invalid value: 99999: must be at most 65535"}]}}`))
	f.Add([]byte(`{"reason":"Invalid","code":422,"details":{"causes":[{"field":"<nil>","message":"Invalid value: null: some validation rules were not checked"}]}}`))
	f.Add([]byte(`{"reason":"BadRequest","code":400,"message":"strict decoding error: unknown field \"spec.x\", duplicate field \"spec.y\""}`))
	f.Add([]byte(`{"code":500,"message":"failed to create typed patch object (default/a; kamaji.clastix.io/v1alpha1, Kind=DataStore): .spec: duplicate entries for key [name=\"a\"]\nerrors:\n  .spec.a: expected map, got x"}`))
	f.Add([]byte(`{"reason":"NotFound","code":404,"details":{"kind":"namespaces","name":"x"}}`))
	f.Add([]byte(`{"reason":"Forbidden","code":403,"message":"ValidatingAdmissionPolicy 'a' with binding 'b' denied request: spec.a[0]: Required value"}`))
	f.Add([]byte(`{"reason":"Conflict","code":409}`))
	sent := map[string]any{"spec": map[string]any{"a": []any{"x"}, "networkProfile": map[string]any{"port": int64(99999)}}}
	f.Fuzz(func(t *testing.T, data []byte) {
		s := metav1.Status{}
		if json.Unmarshal(data, &s) != nil {
			return
		}
		err := refused(&apierrors.StatusError{ErrStatus: s}, sent)
		var found refusal
		if errors.As(err, &found) {
			if missing := said(err); missing != "" {
				t.Errorf("%s: %s: %+v", data, missing, found)
			}
		} else if err == nil {
			t.Errorf("%s is no error", data)
		}
	})
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
