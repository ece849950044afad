package intake

import (
	"encoding/json"
	"errors"
	"slices"
	"testing"

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

func TestNamedIn(t *testing.T) {
	for message, want := range map[string]string{
		`ValidatingAdmissionPolicy 'stoker-tenants' with binding 'x' denied request: gold DataStore does not exist`: "gold",
		"gold DataStore does not exist":                                 "gold",
		"spec.dataStore: etcd-1 DataStore does not exist; name another": "etcd-1",
		"another reason altogether":                                     "",
		" DataStore does not exist":                                     "",
	} {
		if got := namedIn(errors.New(message)); got != want {
			t.Errorf("%q: %q", message, got)
		}
	}
}
