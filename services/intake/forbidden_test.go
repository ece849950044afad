package intake

import (
	"testing"

	"github.com/stoker-k8s/stoker/pkg/api/event"
	"github.com/stoker-k8s/stoker/pkg/events"
)

func TestForbiddenNamespaces(t *testing.T) {
	f, err := forbiddenNamespaces("cattle-*, monitoring,")
	if err != nil {
		t.Fatal(err)
	}
	s := &svc{forbidden: f}
	for namespace, no := range map[string]bool{
		"kube-system": true, "kube-public": true, "stoker-system": true, "cattle-fleet": true, "monitoring": true,
		"default": false, "kube": false, "stoker-system-2": false, "monitoring-2": false, "my-kube-system": false,
	} {
		for _, verb := range []string{event.Apply, event.Delete} {
			key := events.Tenant(namespace, "demo")
			_, err := s.understand(key, commandFor(key, verb, ``).event)
			if no {
				if e := wants(t, err, "metadata.namespace", event.RuleForbidden); e.Value != namespace {
					t.Errorf("%+v", e)
				}
			} else if err != nil {
				t.Errorf("%s in %s: %v", verb, namespace, err)
			}
		}
	}
	t.Run("a DataStore has no namespace", func(t *testing.T) {
		if _, err := s.understand(events.DataStore("ds"), commandFor(events.DataStore("ds"), event.Delete, ``).event); err != nil {
			t.Error(err)
		}
	})
	for _, bad := range []string{"Kube", "a*b", "*a", "-x", "a b"} {
		if _, err := forbiddenNamespaces(bad); err == nil {
			t.Errorf("%q is taken", bad)
		}
	}
}
