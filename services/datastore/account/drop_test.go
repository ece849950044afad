package account

import (
	"errors"
	"fmt"
	"testing"

	"github.com/stoker-k8s/stoker/pkg/api/name"
	"github.com/stoker-k8s/stoker/pkg/api/state"
	"github.com/stoker-k8s/stoker/pkg/api/v1alpha1"
	"github.com/stoker-k8s/stoker/services/datastore/driver"
)

func TestLeftBehindSaysWhatAndWhere(t *testing.T) {
	got := leftBehind(place{dataStore: "main", driver: v1alpha1.DriverEtcd, certain: true}, driver.Account{Owner: "uid", Schema: "s", User: "u"}, errors.New("gone"))
	if want := "left in DataStore main: keys from /s/ to /s0 and role s, if the value of key stoker.dev/owner/schema/s is uid; " +
		"user u, if that of stoker.dev/owner/user/u is; and these two keys: gone"; got != want {
		t.Errorf("got %q", got)
	}
}

func TestPlacesOf(t *testing.T) {
	tenant := &state.Tenant{Annotations: map[string]string{name.AnnotationDatastoreOverrides: "former,recorded,to"}}
	tenant.Spec.DataStore = "main"
	tenant.Spec.DataStoreOverrides = []v1alpha1.DataStoreOverride{{Resource: "/events", DataStore: "c"}}
	own := state.Datastore{DataStore: "main", Driver: "etcd", Overrides: []state.Override{{DataStore: "b", Account: "as left"}}}
	moving := state.Datastore{
		DataStore: "main", Driver: "etcd", Move: &state.Move{DataStore: "to", Driver: "NATS", Schema: "s", User: "u"},
		Kept: []state.Kept{{DataStore: "former", Driver: "MySQL", Schema: "t", User: "v"}},
	}
	for want, own := range map[string]state.Datastore{
		"[{main etcd true  } {b etcd true  } {c etcd false  } {former  false  } {recorded  false  } {to  false  }]": own,
		"[{main  false  } {c etcd false  } {former  false  } {recorded  false  } {to  false  }]":                    {},
		"[{main etcd true  } {to NATS true s u} {former MySQL true t v} {c etcd false  } {recorded  false  }]":      moving,
	} {
		if got := fmt.Sprint(placesOf(tenant, own)); got != want {
			t.Errorf("got %s", got)
		}
	}
	if got := placesOf(&state.Tenant{}, state.Datastore{}); len(got) > 0 {
		t.Errorf("got %v", got)
	}
}
