package datastore

import "testing"

func TestPrefixOf(t *testing.T) {
	for resource, want := range map[string]string{
		"/events": "events/", "/nodes": "minions/", "/services": "services/specs/", "/endpoints": "services/endpoints/",
		"apps/deployments": "deployments/", "networking.k8s.io/ingresses": "ingress/", "/replicationcontrollers": "controllers/",
	} {
		if have := prefixOf(resource); have != want {
			t.Errorf("%s: %s", resource, have)
		}
	}
}
