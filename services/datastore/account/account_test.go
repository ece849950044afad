package account

import (
	"testing"

	"github.com/stoker-k8s/stoker/pkg/api/name"
	"github.com/stoker-k8s/stoker/pkg/api/state"
	"github.com/stoker-k8s/stoker/pkg/api/v1alpha1"
	"github.com/stoker-k8s/stoker/pkg/events"
	"github.com/stoker-k8s/stoker/services/datastore/driver"
)

func TestAccountOf(t *testing.T) {
	key := events.Tenant("team", "demo")
	schema, user := name.DataStoreSchema("team", "demo", "uid"), name.DataStoreUser("team", "demo", "uid")
	spec := v1alpha1.TenantControlPlaneSpec{DataStoreSchema: "s", DataStoreUsername: "u"}
	like := name.DataStoreUserLike("u", "team", "demo", "uid")
	old := state.Datastore{DataStore: "main", Schema: "old", User: "older"}
	for sentence, test := range map[string]struct {
		tenant state.Tenant
		own    state.Datastore
		want   driver.Account
	}{
		"without a word, namespace and name do": {want: driver.Account{Owner: "uid", Schema: schema, User: user}},
		"the spec's names are taken, the user's with what makes it the tenant's alone": {
			tenant: state.Tenant{Spec: spec}, want: driver.Account{Owner: "uid", Schema: "s", User: like},
		},
		"names that were given once stay, spec or no": {
			state.Tenant{Spec: spec}, old, driver.Account{Owner: "uid", Remembered: true, Schema: "old", User: "older"},
		},
		"what the object says it has, the account adopts": {
			tenant: state.Tenant{Spec: spec, Setup: state.Account{Schema: "s", User: "u"}},
			want:   driver.Account{Owner: "uid", Adopts: true, Schema: "s", User: "u"},
		},
		"a schema that is another than the object says it has isn't adopted": {
			tenant: state.Tenant{Spec: spec, Setup: state.Account{Schema: "another", User: "u"}},
			want:   driver.Account{Owner: "uid", Schema: "s", User: "u"},
		},
	} {
		t.Run(sentence, func(t *testing.T) {
			if got := Of(key, "uid", &test.tenant, test.own); got != test.want {
				t.Errorf("got %+v", got)
			}
		})
	}
}
