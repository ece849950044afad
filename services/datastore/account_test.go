package datastore

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
	spec := &v1alpha1.TenantControlPlaneSpec{DataStoreSchema: "s", DataStoreUsername: "u"}
	held := bytesOf("DB_SCHEMA", "had", "DB_USER", "had-user")
	for sentence, test := range map[string]struct {
		spec *v1alpha1.TenantControlPlaneSpec
		own  state.Datastore
		held map[string][]byte
		want driver.Account
	}{
		"without a word, namespace and name do":       {&v1alpha1.TenantControlPlaneSpec{}, state.Datastore{}, nil, driver.Account{Owner: "uid", Schema: schema, User: user}},
		"the spec's names are taken":                  {spec, state.Datastore{}, nil, driver.Account{Owner: "uid", Schema: "s", User: "u"}},
		"names that were given once stay, spec or no": {spec, state.Datastore{DataStore: "main", Schema: "old", User: "older"}, held, driver.Account{Owner: "uid", Remembered: true, Schema: "old", User: "older"}},
		"when the state is lost, the Secret knows":    {spec, state.Datastore{}, held, driver.Account{Owner: "uid", Schema: "had", User: "had-user"}},
	} {
		t.Run(sentence, func(t *testing.T) {
			if got := accountOf(key, "uid", test.spec, test.own, test.held); got != test.want {
				t.Errorf("got %+v", got)
			}
		})
	}
}
