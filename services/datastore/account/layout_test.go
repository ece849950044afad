package account

import (
	"cmp"
	"fmt"
	"testing"

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
			if got := fmt.Sprint(OverridesOf(tenant, state.Datastore{DataStore: "main", Overrides: test.own})); got != test.want {
				t.Errorf("got %s", got)
			}
			if len(test.own) > 0 && len(test.own[0].Resources) != 1 {
				t.Error("the state that was read is changed")
			}
		})
	}
}

func TestPrefixesOf(t *testing.T) {
	for resource, want := range map[string]string{
		"/events": "[events/]", "/nodes": "[minions/]", "/services": "[ranges/ services/specs/]", "/endpoints": "[services/endpoints/]",
		"apps/deployments": "[deployments/]", "networking.k8s.io/ingresses": "[ingress/]", "/replicationcontrollers": "[controllers/]",
		// Of these kube-apiserver keeps none elsewhere.
		"/deployments": "[]", "extensions/deployments": "[]", "serving.knative.dev/services": "[]", "events.k8s.io/events": "[]",
		"apiextensions.k8s.io/customresourcedefinitions": "[]",
	} {
		if have := fmt.Sprint(PrefixesOf(resource)); have != want {
			t.Errorf("%s: %s", resource, have)
		}
	}
	if have := PrefixesOf("/services", "/secrets", "/nothing", "/secrets"); fmt.Sprint(have) != "[ranges/ secrets/ services/specs/]" {
		t.Errorf("%q", have)
	}
}
