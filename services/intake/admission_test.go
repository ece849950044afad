package intake

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/stoker-k8s/stoker/pkg/api/name"
	"github.com/stoker-k8s/stoker/pkg/api/v1alpha1"
)

func TestAdmissionPatch(t *testing.T) {
	etcd := store{driver: v1alpha1.DriverEtcd, ready: true}
	going := store{driver: v1alpha1.DriverEtcd, deleting: true}
	for what, c := range map[string]struct {
		have     map[string]string
		stores   map[string]store
		served   bool
		want     string
		doubtful []string
	}{
		"nothing there yet":   {stores: map[string]store{"a": etcd}, want: `{"datastore.a":"etcd","gateway":"false"}`},
		"as it must be":       {have: map[string]string{"datastore.a": "etcd", "gateway": "true", "other": "x"}, stores: map[string]store{"a": etcd}, served: true, want: `{}`},
		"drift":               {have: map[string]string{"datastore.a": "MySQL", "gateway": "true"}, stores: map[string]store{"a": etcd}, want: `{"datastore.a":"etcd","gateway":"false"}`},
		"one that is to go":   {have: map[string]string{"datastore.a": "etcd", "gateway": "false"}, stores: map[string]store{"a": going}, want: `{"datastore.a":null}`},
		"one that isn't ours": {have: map[string]string{"datastore.b": "etcd", "gateway": "false"}, want: `{}`, doubtful: []string{"b"}},
	} {
		t.Run(what, func(t *testing.T) {
			patch, doubtful := admissionPatch(c.have, c.stores, c.served)
			if got, _ := json.Marshal(patch); string(got) != c.want || !slices.Equal(doubtful, c.doubtful) {
				t.Errorf("%s %v", got, doubtful)
			}
		})
	}
	if name.AdmissionDataStore("a") != "datastore.a" {
		t.Error("the table is about other keys")
	}
}

func TestServes(t *testing.T) {
	for what, c := range map[string]struct {
		crd  string
		want bool
	}{
		"v1, established":      {`{"spec":{"versions":[{"name":"v1alpha2","served":true},{"name":"v1","served":true}]},"status":{"conditions":[{"type":"Established","status":"True"}]}}`, true},
		"not established yet":  {`{"spec":{"versions":[{"name":"v1","served":true}]},"status":{}}`, false},
		"v1 is not served":     {`{"spec":{"versions":[{"name":"v1","served":false}]},"status":{"conditions":[{"type":"Established","status":"True"}]}}`, false},
		"only an earlier one":  {`{"spec":{"versions":[{"name":"v1alpha2","served":true}]},"status":{"conditions":[{"type":"Established","status":"True"}]}}`, false},
		"no definition at all": {`{}`, false},
	} {
		t.Run(what, func(t *testing.T) {
			var d definition
			if err := json.Unmarshal([]byte(c.crd), &d); err != nil {
				t.Fatal(err)
			}
			if d.serves(tlsRoutesVersion) != c.want {
				t.Error(!c.want)
			}
		})
	}
}

func TestDataStoresInDoubt(t *testing.T) {
	denied := func(causes ...metav1.StatusCause) error {
		return &apierrors.StatusError{ErrStatus: metav1.Status{
			Reason: metav1.StatusReasonInvalid, Code: 422, Details: &metav1.StatusDetails{Causes: causes},
		}}
	}
	policy := func(message string) error {
		return denied(metav1.StatusCause{Message: "ValidatingAdmissionPolicy 'stoker-tenant-references' with binding 'stoker-tenant-references' denied request: " + message})
	}
	const missing = `no DataStore has this name: create it, or name another one`
	label := metav1.StatusCause{Type: metav1.CauseTypeFieldValueInvalid, Field: "metadata.labels", Message: `Invalid value: "` + missing + `": a valid label must be`}
	for what, c := range map[string]struct {
		err  error
		sent string
		want string
	}{
		"the one that was sent":                            {policy("spec.dataStore: Invalid value: \"gold\": " + missing), `{"spec":{"dataStore":"gold","dataStoreOverrides":[{"dataStore":"b"}]}}`, "[gold]"},
		"one of an override, once":                         {policy("spec.dataStoreOverrides: Invalid value: \"gold\": " + missing), `{"spec":{"dataStore":"a","dataStoreOverrides":[{"dataStore":"gold"},{"dataStore":"gold"}]}}`, "[gold]"},
		"none by another rule":                             {policy("spec.controlPlane.gateway: Forbidden: no"), `{"spec":{"dataStore":"gold"}}`, "[]"},
		"none by a key like the message":                   {policy("metadata.labels: Invalid value: \"spec.dataStore: Invalid value: \\\"gold\\\": " + missing + "\""), `{"spec":{"dataStore":"gold"}}`, "[]"},
		"none of another's policy":                         {denied(metav1.StatusCause{Message: "ValidatingAdmissionPolicy 'x' with binding 'x' denied request: spec.dataStore: Invalid value: \"gold\": " + missing}), `{"spec":{"dataStore":"gold"}}`, "[]"},
		"none that was not sent":                           {policy("spec.dataStore: Invalid value: \"gold\": " + missing), `{"spec":{"dataStore":"silver"}}`, "[]"},
		"none when none was sent":                          {policy(missing), `{"spec":{}}`, "[]"},
		"none when the schema refuses":                     {denied(label), `{"spec":{"dataStore":"silver"}}`, "[]"},
		"none by a label's value":                          {denied(label), `{"metadata":{"labels":{"a":"` + missing + `"}},"spec":{}}`, "[]"},
		"none by a value that a policy repeats":            {policy("spec.x: Invalid value: \"" + missing + "\""), `{"spec":{"x":"` + missing + `"}}`, "[]"},
		"none by a conflict":                               {&apierrors.StatusError{ErrStatus: metav1.Status{Reason: metav1.StatusReasonConflict, Message: missing}}, `{"spec":{"dataStore":"gold"}}`, "[]"},
		"none by an error that isn't the API server's":     {errors.New(missing), `{"spec":{"dataStore":"gold"}}`, "[]"},
		"none by an object that isn't decoded, but denied": {policy(missing), `{"spec":{"dataStore":7}}`, "[]"},
	} {
		t.Run(what, func(t *testing.T) {
			var sent any
			if err := json.Unmarshal([]byte(c.sent), &sent); err != nil {
				t.Fatal(err)
			}
			if got := fmt.Sprint(dataStoresInDoubt(c.err, sent)); got != c.want {
				t.Errorf("%s, want %s", got, c.want)
			}
		})
	}
}

func TestPoliciesMayLag(t *testing.T) {
	var p policies
	p.saw("1", clock)
	for _, c := range []struct {
		name    string
		version string
		after   time.Duration
		want    bool
	}{
		{"just after a change", "1", time.Second, true},
		{"a while after it", "1", time.Minute, false},
		{"before the watch has shown the change", "2", time.Minute, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			if got := p.mayLag(c.version, clock.Add(c.after)); got != c.want {
				t.Error(got)
			}
		})
	}
	t.Run("a watch that starts anew shows no change", func(t *testing.T) {
		p.saw("1", clock.Add(time.Hour))
		if p.mayLag("1", clock.Add(time.Hour)) {
			t.Error("it does")
		}
	})
}
