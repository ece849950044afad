package data

import (
	"fmt"
	"testing"

	"github.com/stoker-k8s/stoker/pkg/api/state"
	"github.com/stoker-k8s/stoker/pkg/api/v1alpha1"
	"github.com/stoker-k8s/stoker/services/datastore/account"
)

// TestChangeOf: what of a tenant's data is to move next.
func TestChangeOf(t *testing.T) {
	spec := func(dataStore string, pairs ...string) (s v1alpha1.TenantControlPlaneSpec) {
		s.DataStore = dataStore
		for i := 0; i < len(pairs); i += 2 {
			s.DataStoreOverrides = append(s.DataStoreOverrides, v1alpha1.DataStoreOverride{Resource: pairs[i], DataStore: pairs[i+1]})
		}
		return s
	}
	own := state.Datastore{DataStore: "main", Overrides: []state.Override{{DataStore: "b", Resources: []string{"/pods", "/secrets"}}, {DataStore: "c"}}}
	lost := &state.Tenant{Setup: state.Account{DataStore: "main"}, Overridden: spec("", "/pods", "b").DataStoreOverrides}
	for sentence, test := range map[string]struct {
		tenant *state.Tenant
		own    state.Datastore
		spec   v1alpha1.TenantControlPlaneSpec
		want   string
	}{
		"nothing":                            {own: own, spec: spec("main", "/pods", "b", "/secrets", "b", "/events", "c"), want: "{  []}"},
		"what no override names comes first": {own: own, spec: spec("other", "/pods", "c"), want: "{main other []}"},
		"all that go the same way":           {own: own, spec: spec("main", "/secrets", "d", "/pods", "d"), want: "{b d [/pods /secrets]}"},
		"one after the other":                {own: own, spec: spec("main", "/secrets", "d"), want: "{b main [/pods]}"},
		"from its own":                       {own: own, spec: spec("main", "/pods", "b", "/secrets", "b", "/configmaps", "c"), want: "{main c [/configmaps]}"},
		"to its own, by name":                {own: own, spec: spec("main", "/pods", "main", "/secrets", "b"), want: "{b main [/pods]}"},
		"Events don't move":                  {own: own, spec: spec("main", "/pods", "b", "/secrets", "b", "/events", "b"), want: "{  []}"},
		"a tenant without data":              {spec: spec("main", "/pods", "b"), want: "{  []}"},
		"one whose state is lost, at first":  {tenant: lost, spec: spec("main", "/pods", "c"), want: "{  []}"},
	} {
		t.Run(sentence, func(t *testing.T) {
			tenant := state.Tenant{}
			if test.tenant != nil {
				tenant = *test.tenant
			}
			tenant.Spec = test.spec
			if got := fmt.Sprint(changeOf(&tenant, test.own)); got != test.want {
				t.Errorf("got %s", got)
			}
		})
	}
	lost.Spec = spec("main", "/pods", "c", "/secrets", "d")
	if got := fmt.Sprint(account.OverridesOf(lost, state.Datastore{})); got != "[{b [/pods] [] }]" {
		t.Errorf("where its state is lost, its object says where its data are; got %s", got)
	}
}
