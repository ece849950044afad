package datastore

import (
	"fmt"
	"testing"
)

func TestPrefixesOf(t *testing.T) {
	for resource, want := range map[string]string{
		"/events": "[events/]", "/nodes": "[minions/]", "/services": "[ranges/ services/specs/]", "/endpoints": "[services/endpoints/]",
		"apps/deployments": "[deployments/]", "networking.k8s.io/ingresses": "[ingress/]", "/replicationcontrollers": "[controllers/]",
		// Of these kube-apiserver keeps none elsewhere.
		"/deployments": "[]", "extensions/deployments": "[]", "serving.knative.dev/services": "[]", "events.k8s.io/events": "[]",
		"apiextensions.k8s.io/customresourcedefinitions": "[]",
	} {
		if have := fmt.Sprint(prefixesOf(resource)); have != want {
			t.Errorf("%s: %s", resource, have)
		}
	}
	if have := prefixesOf("/services", "/secrets", "/nothing", "/secrets"); fmt.Sprint(have) != "[ranges/ secrets/ services/specs/]" {
		t.Errorf("%q", have)
	}
	if has := hasOf([]string{"/nothing"}); has("nothing/a") || has("secrets/a") {
		t.Error("a resource that can't be elsewhere has keys")
	}
}
