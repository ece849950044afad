package datastore

import (
	"errors"
	"testing"

	"github.com/stoker-k8s/stoker/pkg/api/name"
	"github.com/stoker-k8s/stoker/pkg/api/state"
	"github.com/stoker-k8s/stoker/pkg/api/v1alpha1"
	"github.com/stoker-k8s/stoker/pkg/events"
	"github.com/stoker-k8s/stoker/pkg/loop"
	"github.com/stoker-k8s/stoker/services/datastore/driver"
)

func TestTouched(t *testing.T) {
	own := state.Datastore{DataStore: "main", Account: "as left", Config: state.Secret{ResourceVersion: "5"}, Certificate: state.Secret{ResourceVersion: "6"}}
	for sentence, test := range map[string]struct {
		wake loop.Wake
		want bool
	}{
		"the echo of our own write is no drift":       {loop.Wake{Kind: wakeSecret, Object: name.ComponentDatastoreConfig, Version: "5"}, false},
		"each Secret has its own version":             {loop.Wake{Kind: wakeSecret, Object: name.ComponentDatastoreCertificate, Version: "5"}, true},
		"another version is drift":                    {loop.Wake{Kind: wakeSecret, Object: name.ComponentDatastoreConfig, Version: "7"}, true},
		"a deletion is drift":                         {loop.Wake{Kind: wakeSecret, Object: name.ComponentDatastoreConfig, Version: "5", Gone: true}, true},
		"a change of the DataStore touches no Secret": {loop.Wake{Kind: wakeDataStore}, false},
		"an account that is another is drift":         {loop.Wake{Kind: wakeAccount, Object: "main", Version: "another"}, true},
		"one that was put right meanwhile is not":     {loop.Wake{Kind: wakeAccount, Object: "main", Version: "as left"}, false},
		"one that is gone is drift":                   {loop.Wake{Kind: wakeAccount, Object: "main"}, true},
	} {
		t.Run(sentence, func(t *testing.T) {
			if got := touched([]loop.Wake{test.wake}, own); got != test.want {
				t.Errorf("got %t", got)
			}
		})
	}
}

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

func TestLeftBehindSaysWhatAndWhere(t *testing.T) {
	got := leftBehind(place{"main", v1alpha1.DriverEtcd, true}, driver.Account{Owner: "uid", Schema: "s", User: "u"}, errors.New("gone"))
	if want := "left in DataStore main: keys from /s/ to /s0 and role s, if the value of key stoker.dev/owner/schema/s is uid; " +
		"user u, if that of stoker.dev/owner/user/u is; and these two keys: gone"; got != want {
		t.Errorf("got %q", got)
	}
}
