package intake

import (
	"encoding/json"
	"errors"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/stoker-k8s/stoker/pkg/api/event"
	"github.com/stoker-k8s/stoker/pkg/api/name"
	"github.com/stoker-k8s/stoker/pkg/events"
)

const good = `{"apiVersion":"kamaji.clastix.io/v1alpha1","kind":"TenantControlPlane","metadata":{"name":"demo","namespace":"default","labels":{"team":"a"}},` +
	`"spec":{"controlPlane":{"service":{"serviceType":"LoadBalancer"}},"kubernetes":{"version":"v1.36.3"}}}`

// wants fails the test unless an error is a refusal of a field by a rule; it returns that part of it.
func wants(t *testing.T, err error, field, rule string) event.FieldError {
	t.Helper()
	var no refusal
	if !errors.As(err, &no) {
		t.Fatalf("no refusal: %v", err)
	}
	i := slices.IndexFunc(no, func(e event.FieldError) bool { return e.Field == field && e.Rule == rule && e.Message != "" })
	if i < 0 {
		t.Fatalf("want %s %s, got %+v", field, rule, []event.FieldError(no))
	}
	return no[i]
}

func TestWhole(t *testing.T) {
	key := events.Tenant("default", "demo")
	tenants := kinds[event.TenantControlPlanes]
	whole := func(data, filter string) (map[string]any, error) {
		_, body, err := whole(key, tenants, []byte(data), filter)
		return body, err
	}
	t.Run("what is applied carries the finalizer, and no status", func(t *testing.T) {
		body, err := whole(strings.Replace(good, `"spec"`, `"status":{"controlPlaneEndpoint":"x"},"spec"`, 1), "")
		if err != nil {
			t.Fatal(err)
		}
		data, _ := json.Marshal(body)
		for _, want := range []string{name.FinalizerTenant, `"team":"a"`} {
			if !strings.Contains(string(data), want) {
				t.Errorf("no %s in %s", want, data)
			}
		}
		if body["status"] != nil || strings.Contains(string(data), name.LabelWatchFilter) {
			t.Errorf("%s", data)
		}
	})
	t.Run("a whole number is one however it is written, and a key is given once all the same", func(t *testing.T) {
		body, err := whole(strings.Replace(good, `"serviceType"`, `"additionalPorts":[{"name":"a","port":1e3,"targetPort":1}],"serviceType"`, 1), "")
		if v := lookup(body, "spec.controlPlane.service.additionalPorts[0].port"); err != nil || v != "1000" {
			t.Errorf("%v %v", v, err)
		}
		for _, ports := range []string{`"port":1.5`, `"port":1e3,"port":1e3`, `"port":1e3,"prot":1`} {
			if _, err := whole(strings.Replace(good, `"serviceType"`, `"additionalPorts":[{"name":"a",`+ports+`,"targetPort":1}],"serviceType"`, 1), ""); err == nil {
				t.Errorf("%s is accepted", ports)
			}
		}
	})
	t.Run("an installation with a watch filter labels what it makes", func(t *testing.T) {
		body, err := whole(good, "blue")
		if v := lookup(body, "metadata.labels["+name.LabelWatchFilter+"]"); err != nil || v != "blue" {
			t.Errorf("%v %v", body, err)
		}
		_, err = whole(strings.Replace(good, `"team":"a"`, `"`+name.LabelWatchFilter+`":"green"`, 1), "blue")
		if e := wants(t, err, "metadata.labels["+name.LabelWatchFilter+"]", event.RuleInvalid); e.Value != "green" {
			t.Errorf("%+v", e)
		}
	})
	t.Run("the record of where a tenant's data is can't be set", func(t *testing.T) {
		sent := strings.Replace(good, `"labels":{"team":"a"`, `"annotations":{"`+name.AnnotationDataStore+`":"mine"},"labels":{"`+name.LabelDataStore+`":"mine"`, 1)
		body, err := whole(sent, "")
		if data, _ := json.Marshal(body); sent == good || err != nil || strings.Contains(string(data), "mine") {
			t.Errorf("%s %v", data, err)
		}
	})
	for _, c := range []struct{ name, change, to, field, rule, value string }{
		{"an unknown field", `"kubernetes":{`, `"kubernetes":{"colour":"red",`, "spec.kubernetes.colour", event.RuleUnknown, "red"},
		{"a field given twice", `"version":"v1.36.3"`, `"version":"v1.36.3","version":"v1.35.4"`, "spec.kubernetes.version", event.RuleDuplicate, "v1.35.4"},
		{"a value of the wrong type", `"v1.36.3"`, `136`, "spec.kubernetes.version", event.RuleInvalid, "136"},
		{"a wrong type in a list", `"kubernetes":{`, `"kubernetes":{"admissionControllers":["Priority",7],`, "spec.kubernetes.admissionControllers[1]", event.RuleInvalid, "7"},
		{"a quantity that is none", `"controlPlane":{`, `"controlPlane":{"deployment":{"resources":{"apiServer":{"limits":{"cpu":"1x"}}}},`, "spec.controlPlane.deployment.resources.apiServer.limits.cpu", event.RuleInvalid, "1x"},
		{"a number or percentage that is neither", `"controlPlane":{`, `"controlPlane":{"deployment":{"strategy":{"rollingUpdate":{"maxSurge":true}}},`, "spec.controlPlane.deployment.strategy.rollingUpdate.maxSurge", event.RuleInvalid, "true"},
		{"a label that is no string", `"team":"a"`, `"a/b":1`, "metadata.labels[a/b]", event.RuleInvalid, "1"},
		{"another kind", `"TenantControlPlane"`, `"Pod"`, "kind", event.RuleInvalid, "Pod"},
		{"another name", `"name":"demo"`, `"name":"other"`, "metadata.name", event.RuleInvalid, "other"},
		{"no name", `"name":"demo",`, ``, "metadata.name", event.RuleRequired, ""},
		{"another namespace", `"default"`, `"prod"`, "metadata.namespace", event.RuleInvalid, "prod"},
		{"owner references", `"labels"`, `"ownerReferences":[],"labels"`, "metadata.ownerReferences", event.RuleForbidden, "[]"},
		{"a list", good, `[]`, "event.data", event.RuleInvalid, "[]"},
		{"null", good, `null`, "event.data", event.RuleInvalid, "null"},
		{"nothing", good, ``, "event.data", event.RuleInvalid, ""},
	} {
		t.Run(c.name+" is refused, field and value named", func(t *testing.T) {
			_, err := whole(strings.Replace(good, c.change, c.to, 1), "")
			if e := wants(t, err, c.field, c.rule); e.Value != c.value {
				t.Errorf("value %q, want %q", e.Value, c.value)
			}
		})
	}
	t.Run("of two wrong fields one is named", func(t *testing.T) {
		_, err := whole(strings.NewReplacer(`"v1.36.3"`, `1`, `"LoadBalancer"`, `2`).Replace(good), "")
		wants(t, err, "spec.controlPlane.service.serviceType", event.RuleInvalid)
	})
	t.Run("the search for what is wrong ends", func(t *testing.T) {
		_, err := whole(strings.Replace(good, `"version"`, `"admissionControllers":[`+strings.Repeat(`"x",`, 10000)+`7],"version"`, 1), "")
		wants(t, err, "spec.kubernetes.admissionControllers", event.RuleInvalid)
	})
	t.Run("what has the wrong type is named, not what is in it, however deep", func(t *testing.T) {
		deep := strings.Repeat(`{"a":`, 5000) + "1" + strings.Repeat("}", 5000)
		_, err := whole(strings.Replace(good, `"LoadBalancer"`, deep, 1), "")
		if e := wants(t, err, "spec.controlPlane.service.serviceType", event.RuleInvalid); e.Message != "must be a string, not object" {
			t.Error(e.Message)
		}
	})
}

func TestMergeIsRFC7386(t *testing.T) {
	for _, c := range [][3]string{
		// The examples of the RFC's appendix.
		{`{"a":"b"}`, `{"a":"c"}`, `{"a":"c"}`},
		{`{"a":"b"}`, `{"b":"c"}`, `{"a":"b","b":"c"}`},
		{`{"a":"b"}`, `{"a":null}`, `{}`},
		{`{"a":"b","b":"c"}`, `{"a":null}`, `{"b":"c"}`},
		{`{"a":["b"]}`, `{"a":"c"}`, `{"a":"c"}`},
		{`{"a":"c"}`, `{"a":["b"]}`, `{"a":["b"]}`},
		{`{"a":{"b":"c"}}`, `{"a":{"b":"d","c":null}}`, `{"a":{"b":"d"}}`},
		{`{"a":[{"b":"c"}]}`, `{"a":[1]}`, `{"a":[1]}`},
		{`["a","b"]`, `["c","d"]`, `["c","d"]`},
		{`{"a":"b"}`, `["c"]`, `["c"]`},
		{`{"a":"foo"}`, `null`, `null`},
		{`{"a":"foo"}`, `"bar"`, `"bar"`},
		{`{"e":null}`, `{"a":1}`, `{"e":null,"a":1}`},
		{`[1,2]`, `{"a":"b","c":null}`, `{"a":"b"}`},
		{`{}`, `{"a":{"bb":{"ccc":null}}}`, `{"a":{"bb":{}}}`},
	} {
		var into, patch, want any
		for i, v := range []*any{&into, &patch, &want} {
			if err := json.Unmarshal([]byte(c[i]), v); err != nil {
				t.Fatal(err)
			}
		}
		before, _ := json.Marshal(into)
		if got := merge(into, patch); !reflect.DeepEqual(got, want) {
			t.Errorf("%s merged with %s is %v, want %s", c[0], c[1], got, c[2])
		}
		if after, _ := json.Marshal(into); string(after) != string(before) {
			t.Errorf("merging changed %s into %s", before, after)
		}
	}
}

func FuzzWhole(f *testing.F) {
	f.Add([]byte(good))
	f.Add([]byte(`{"metadata":{"name":null,"labels":[]},"spec":7}`))
	f.Add([]byte(`{"metadata":{"labels":{"a":1}}}`))
	f.Add([]byte(`{"metadata":{"creationTimestamp":"x"},"spec":{"controlPlane":{"deployment":{"strategy":{"rollingUpdate":{"maxSurge":{}}}}}}}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		for _, k := range kinds {
			key := events.DataStore("demo")
			if k.Namespaced {
				key = events.Tenant("default", "demo")
			}
			_, body, err := whole(key, k, data, "blue")
			var no refusal
			if err == nil && body == nil || err != nil && (!errors.As(err, &no) || len(no) == 0 || no[0].Field == "" || no[0].Rule == "" || no[0].Message == "") {
				t.Errorf("%q: %v", data, err)
			}
		}
	})
}
