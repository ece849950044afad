package intake

import (
	"encoding/json"
	"errors"
	"net/http"
	"strings"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/stoker-k8s/stoker/pkg/api/event"
	"github.com/stoker-k8s/stoker/pkg/events"
)

// said reports what is missing of a refusal, empty when it says all it must.
func said(err error) string {
	var no refusal
	if !errors.As(err, &no) || len(no) == 0 {
		return "no refusal"
	}
	for _, e := range no {
		switch {
		case e.Field == "" || e.Rule == "" || e.Message == "":
			return "field, rule or message is missing"
		case len(e.Value) > 2*maxText || len(e.Message) > 8*maxText:
			return "value or message is long"
		}
	}
	return ""
}

// FuzzPatch takes the data of commands that change an object, as anybody may send them.
func FuzzPatch(f *testing.F) {
	f.Add(event.Patch, []byte(`{"spec":{"kubernetes":{"version":"v1.36.3"},"networkProfile":null}}`))
	f.Add(event.Patch, []byte(`{"uid":"u","spec":{"controlPlane":{"deployment":{"replicas":1e3,"extraArgs":{"apiServer":["--v=2",null]}}}}}`))
	f.Add(event.Patch, []byte(`{"spec":{"addons":{},"addons":{"coreDNS":null}}}`))
	f.Add(event.Patch, []byte(`{"spec":[]}`))
	f.Add(event.Patch, []byte(`{"metadata":{"name":"x"}}`))
	f.Add(event.Pause, []byte(`{"until":"2027-01-31T18:00:00Z"}`))
	f.Add(event.Pause, []byte(`{"until":12}`))
	f.Add(event.Sleep, []byte(`null`))
	f.Add(event.Wake, []byte(`{"uid":7}`))
	there, err := order{key: events.Tenant("default", "demo")}.object([]byte(good))
	if err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, verb string, data []byte) {
		for name := range kinds {
			if _, ok := commands[event.CommandType(name, verb)]; !ok || verb == event.Apply || verb == event.Delete {
				continue
			}
			key := events.Tenant("default", "demo")
			key.Kind = name
			c, err := ordered(key, verb, string(data)).asked()
			if err != nil {
				if missing := said(err); missing != "" {
					t.Errorf("%s %s %q: %s: %v", name, verb, data, missing, err)
				}
				continue
			}
			patch, err := c.patch(there)
			if err != nil {
				t.Errorf("%s %s %q: %v", name, verb, data, err)
				continue
			}
			for field := range patch {
				if field != "spec" && field != "metadata" {
					t.Errorf("%s %s %q changes %s", name, verb, data, field)
				}
			}
			whole, _ := parse(there.raw)
			if _, err := json.Marshal(merge(any(whole), any(patch))); err != nil {
				t.Errorf("%s %s %q: %v", name, verb, data, err)
			}
		}
	})
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
		var no refusal
		if errors.As(err, &no) {
			if missing := said(err); missing != "" {
				t.Errorf("%s: %s: %+v", data, missing, no)
			}
		} else if err == nil {
			t.Errorf("%s is no error", data)
		}
	})
}

// FuzzHTTP takes the headers and bodies of requests as anybody may send them.
func FuzzHTTP(f *testing.F) {
	const binary = "Ce-Specversion: 1.0\nCe-Id: 1\nCe-Source: /portal\nCe-Type: dev.stoker.tenantcontrolplane.apply.v1\nCe-Subject: default/shop\n"
	f.Add(binary, []byte(good))
	f.Add(binary+"Ce-Replyto: \"_INBOX.%41\"\nCe-Expectedgeneration: 3\nContent-Type: application/json\n", []byte(`{}`))
	f.Add(strings.Replace(binary, "default/shop", "%FF/..", 1), []byte(nil))
	f.Add("Content-Type: application/cloudevents+json\n", []byte(`{"specversion":"1.0","id":"1","source":"/p","type":"dev.stoker.datastore.delete.v1","subject":"main.eu","data":null}`))
	f.Add("Content-Type: application/cloudevents-batch+json\n", []byte(`[]`))
	f.Fuzz(func(t *testing.T, lines string, body []byte) {
		h := http.Header{}
		for line := range strings.Lines(lines) {
			k, v, _ := strings.Cut(strings.TrimSuffix(line, "\n"), ": ")
			h.Add(k, v)
		}
		e, key, failed := commandIn(h, body)
		if failed != nil {
			if missing := said(refusal(failed.errors)); missing != "" || failed.code < 400 || failed.code > 499 {
				t.Errorf("%q %q: %d %s: %+v", lines, body, failed.code, missing, failed.errors)
			}
			return
		}
		if !key.Valid() || e.ID() == "" || e.Source() == "" || commands[e.Type()].Kind != key.Kind {
			t.Errorf("%q %q: %v %v", lines, body, key, e)
		}
		if escaped, err := unescape(escape(e.Source())); err != nil || escaped != e.Source() {
			t.Errorf("%q comes back as %q: %v", e.Source(), escaped, err)
		}
		gist(key, e)
	})
}
