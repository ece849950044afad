package datastore

import (
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/stoker-k8s/stoker/pkg/api/name"
	"github.com/stoker-k8s/stoker/services/datastore/driver"
)

func TestClaims(t *testing.T) {
	tenant := func(n string) *claimant {
		return &claimant{ObjectMeta: metav1.ObjectMeta{Namespace: "team", Name: n, UID: types.UID("uid-" + n)}}
	}
	c := claims{map[string]bool{}, map[string]bool{}, map[string]bool{}}
	named, had := tenant("named"), tenant("had")
	named.Spec.DataStoreSchema, named.Spec.DataStoreUsername = "by-spec", "user-by-spec"
	had.Status.Storage.Setup.Schema, had.Status.Storage.Setup.User = "by-status", "user-by-status"
	for _, o := range []*claimant{tenant("plain"), named, had} {
		c.add(o)
	}
	for sentence, test := range map[string]struct {
		account driver.Account
		has     bool
	}{
		"nobody's":                                  {driver.Account{Owner: "uid-gone", Schema: "gone", User: "gone"}, false},
		"nobody's, half on record":                  {driver.Account{Owner: "uid-gone", User: "gone"}, false},
		"a tenant's, by its owner":                  {driver.Account{Owner: "uid-plain", Schema: "any", User: "any"}, true},
		"a schema that a tenant asks for":           {driver.Account{Owner: "uid-gone", Schema: "by-spec", User: "gone"}, true},
		"a user that a tenant asks for":             {driver.Account{Owner: "uid-gone", Schema: "gone", User: "user-by-spec"}, true},
		"a schema that a tenant has, as it says":    {driver.Account{Owner: "uid-gone", Schema: "by-status", User: "gone"}, true},
		"a user that a tenant has, as it says":      {driver.Account{Owner: "uid-gone", User: "user-by-status"}, true},
		"a schema that is made for a tenant":        {driver.Account{Owner: "uid-gone", Schema: name.DataStoreSchema("team", "plain", "uid-plain")}, true},
		"what a tenant of the same name had before": {driver.Account{Owner: "uid-before", Schema: name.DataStoreSchema("team", "plain", "uid-before"), User: name.DataStoreUser("team", "plain", "uid-before")}, false},
	} {
		t.Run(sentence, func(t *testing.T) {
			if got := c.has(test.account); got != test.has {
				t.Error(got)
			}
		})
	}
}
