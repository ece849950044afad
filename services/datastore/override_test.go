package datastore

import (
	"cmp"
	"fmt"
	"testing"

	"github.com/stoker-k8s/stoker/pkg/api/event"
	"github.com/stoker-k8s/stoker/pkg/api/name"
	"github.com/stoker-k8s/stoker/pkg/api/state"
	"github.com/stoker-k8s/stoker/pkg/api/v1alpha1"
)

func TestOverridesOf(t *testing.T) {
	spec := func(pairs ...string) (all []v1alpha1.DataStoreOverride) {
		for i := 0; i < len(pairs); i += 2 {
			all = append(all, v1alpha1.DataStoreOverride{Resource: pairs[i], DataStore: pairs[i+1]})
		}
		return all
	}
	holding := func(resource string) []state.Override {
		return []state.Override{{DataStore: "b", Resources: []string{resource}}}
	}
	known := []state.Override{{DataStore: "b", Resources: []string{"/events"}, Endpoints: []string{"b:2379"}, Account: "as left"}}
	for sentence, test := range map[string]struct {
		spec     []v1alpha1.DataStoreOverride
		recorded string
		own      []state.Override
		moves    string
		want     string
	}{
		"none":                             {want: "[]"},
		"several resources of one":         {spec: spec("/pods", "b", "/events", "b"), own: holding("/pods"), want: "[{b [/events /pods] [] }]"},
		"one that is to be moved there":    {spec: spec("/pods", "c", "/events", "c"), own: holding("/pods"), want: "[{b [/pods] [] } {c [/events] [] }]"},
		"one that is to come from its own": {spec: spec("/pods", "c", "/events", "b"), want: "[{b [/events] [] }]"},
		"one that is to go back to it":     {own: holding("/pods"), want: "[{b [/pods] [] }]"},
		"what is known of one is kept":     {spec: spec("/events", "b"), own: known, want: "[{b [/events] [b:2379] as left}]"},
		"one that nobody names has none":   {own: known, want: "[{b [] [b:2379] as left}]"},
		"another one comes in its place":   {spec: spec("/events", "c"), own: known, want: "[{b [] [b:2379] as left} {c [/events] [] }]"},
		"the record remembers":             {recorded: "c,b", spec: spec("/events", "c"), want: "[{b [] [] } {c [/events] [] }]"},
		"the tenant's own needs none":      {recorded: "main", spec: spec("/events", "main"), want: "[]"},
		"what it is to move to is another": {spec: spec("/events", "b"), moves: "b", want: "[{b [/events] [] }]"},
	} {
		t.Run(sentence, func(t *testing.T) {
			tenant := &state.Tenant{Annotations: map[string]string{name.AnnotationDatastoreOverrides: test.recorded}}
			tenant.Spec.DataStore, tenant.Spec.DataStoreOverrides = cmp.Or(test.moves, "main"), test.spec
			if got := fmt.Sprint(overridesOf(tenant, state.Datastore{DataStore: "main", Overrides: test.own})); got != test.want {
				t.Errorf("got %s", got)
			}
			if len(test.own) > 0 && len(test.own[0].Resources) != 1 {
				t.Error("the state that was read is changed")
			}
		})
	}
}

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
	if got := fmt.Sprint(overridesOf(lost, state.Datastore{})); got != "[{b [/pods] [] }]" {
		t.Errorf("where its state is lost, its object says where its data are; got %s", got)
	}
}

func TestPodsUseADataStoreUntilAllAreKnownNotTo(t *testing.T) {
	for sentence, test := range map[string]struct {
		pods *state.State
		uses []string
		want bool
	}{
		"nothing is known of them":            {nil, nil, true},
		"they are of an earlier generation":   {&state.State{Generation: 2, Step: event.Available}, nil, true},
		"they are being rolled out":           {&state.State{Generation: 3, Step: event.Exposed}, nil, true},
		"they use it":                         {&state.State{Generation: 3, Step: event.Available}, []string{"b"}, true},
		"they use another one":                {&state.State{Generation: 3, Step: event.Available}, []string{"c"}, false},
		"there are none":                      {&state.State{Generation: 3, Step: event.Slept}, nil, false},
		"this generation has been overtaken":  {&state.State{Generation: 4, Step: event.Available}, nil, false},
		"none is ready any more, of whatever": {&state.State{Generation: 3, Step: event.Degraded}, nil, true},
	} {
		t.Run(sentence, func(t *testing.T) {
			if got := uses(test.pods, state.Workload{Overrides: test.uses}, 3, "b"); got != test.want {
				t.Errorf("got %t", got)
			}
		})
	}
}
