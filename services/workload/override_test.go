package workload

import (
	"slices"
	"testing"

	"github.com/stoker-k8s/stoker/pkg/api/event"
	"github.com/stoker-k8s/stoker/pkg/api/state"
	"github.com/stoker-k8s/stoker/pkg/api/v1alpha1"
)

func TestOverridesAreAFlag(t *testing.T) {
	in := Input{Subject: Subject{Tenant: &state.Tenant{}}, Datastore: state.Datastore{Overrides: []state.Override{
		{DataStore: "b", Resources: []string{"/events", "coordination.k8s.io/leases"}, Endpoints: []string{"b1:2379", "b2:2379"}},
		{DataStore: "c", Resources: []string{"apps/deployments"}, Endpoints: []string{"c:2379"}},
		{DataStore: "left", Endpoints: []string{"l:2379"}},
	}}}
	if got, want := in.overrides(), "/events#https://b1:2379;https://b2:2379,apps/deployments#https://c:2379,"+
		"coordination.k8s.io/leases#https://b1:2379;https://b2:2379"; got != want {
		t.Errorf("got %s", got)
	}
	in.Datastore.Move = &state.Move{Phase: state.MoveCopying}
	if got, want := in.overrides(), "/events#unix:///uds/gate-0,apps/deployments#unix:///uds/gate-1,coordination.k8s.io/leases#unix:///uds/gate-0"; got != want {
		t.Errorf("behind a gate: got %s", got)
	}
	in.Datastore.Move.Resources, in.Datastore.Move.From = []string{"apps/deployments"}, "c"
	if got, want := in.overrides(), "/events#unix:///uds/gate-0,apps/deployments#unix:///uds/gate-moving,coordination.k8s.io/leases#unix:///uds/gate-0"; got != want {
		t.Errorf("of which one moves: got %s", got)
	}
	if got, want := in.through(), "/uds/gate-0=https://b1:2379,https://b2:2379;/uds/gate-1=https://c:2379;/uds/gate-moving=https://c:2379"; got != want {
		t.Errorf("of which one moves, the gate's: %s", got)
	}
	in.Datastore.Move.Resources = nil
	if got, want := in.through(), "/uds/gate-0=https://b1:2379,https://b2:2379;/uds/gate-1=https://c:2379"; got != want {
		t.Errorf("the gate's: %s", got)
	}
}

func TestOverridesProvisioned(t *testing.T) {
	d := state.Datastore{DataStore: "a", Overrides: []state.Override{{DataStore: "b", Resources: []string{"/events"}}, {DataStore: "left"}}}
	for sentence, test := range map[string]struct {
		spec []v1alpha1.DataStoreOverride
		want bool
	}{
		"as the spec says":                   {[]v1alpha1.DataStoreOverride{{Resource: "/events", DataStore: "b"}}, true},
		"the tenant's own DataStore is none": {[]v1alpha1.DataStoreOverride{{Resource: "/events", DataStore: "a"}}, false},
		"others stay until they have moved":  {[]v1alpha1.DataStoreOverride{{Resource: "/events", DataStore: "b"}, {Resource: "/pods", DataStore: "b"}}, true},
		"one less":                           {nil, false},
		"elsewhere":                          {[]v1alpha1.DataStoreOverride{{Resource: "/events", DataStore: "c"}}, false},
	} {
		t.Run(sentence, func(t *testing.T) {
			if got := overridesProvisioned(&v1alpha1.TenantControlPlaneSpec{DataStoreOverrides: test.spec}, &d); got != test.want {
				t.Errorf("got %t", got)
			}
		})
	}
}

func TestPodsUseTheDataStoresOfBeforeUntilTheLastIsGone(t *testing.T) {
	d := state.Datastore{Overrides: []state.Override{{DataStore: "c", Resources: []string{"/events"}}, {DataStore: "b"}}}
	for step, want := range map[string][]string{
		event.Exposed: {"b", "c"}, event.Degraded: {"b", "c"}, event.Available: {"c"}, event.Slept: {"c"},
	} {
		if got := overridesInUse(step, []string{"b"}, &d); !slices.Equal(got, want) {
			t.Errorf("%s: %q", step, got)
		}
	}
}
