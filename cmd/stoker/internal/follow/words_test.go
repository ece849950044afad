package follow

import (
	"bytes"
	"testing"
	"time"

	"github.com/stoker-k8s/stoker/pkg/api/event"
)

func TestEveryFactHasWords(t *testing.T) {
	t.Parallel()
	about := event.About{Namespace: "default", Name: "demo", Generation: 2}
	addon := event.TenantAddon{Namespace: "fleet", Name: "metrics", Version: "1.2.3"}
	tests := map[string]struct {
		service, what string
		payload       any
		want          string
		mood          Mood
	}{
		"acceptance names version and DataStore": {
			"intake", event.Accepted, event.IntakeAccepted{About: about, Version: "v1.36.3", DataStore: "default"}, "generation 2, v1.36.3, on default", Plain,
		},
		"available counts pods": {
			"workload", event.Available, event.WorkloadAvailable{Version: "v1.36.3", Replicas: 2, ReadyReplicas: 2}, "2 of 2 pods ready, v1.36.3", Plain,
		},
		"Ready is good news with its seconds": {
			"status", event.Changed, event.StatusChanged{Phase: "Ready", Ready: true, Message: "it answers", SecondsToReady: 3.21}, "Ready: it answers (3.2 s)", Good,
		},
		"a failure says whether it is tried again": {
			"certs", event.Failed, event.StepFailed{Reason: "Unavailable", Message: "away", Attempts: 4, Retrying: true}, "Unavailable: away (attempt 4, trying again)", Bad,
		},
		"and names no attempt where nothing is repeated": {
			"workload", event.Failed, event.StepFailed{Reason: "ErrImagePull", Message: "no such version", Retrying: true}, "ErrImagePull: no such version (trying again)", Bad,
		},
		"a removal counts what that service removed": {
			"workload", event.Removed, event.Removals{Removed: map[string]int{"addons/ConfigMap": 3, "workload/Deployment": 1, "workload/Service": 1}},
			"1 Deployment, 1 Service", Plain,
		},
		"an upgrade names both versions": {"workload", event.Upgraded, event.WorkloadUpgraded{From: "v1.35.4", To: "v1.36.3"}, "v1.35.4 → v1.36.3", Plain},
		"a move names what moves, if that isn't all": {
			"datastore", event.Migrated, event.DatastoreMigrated{From: "a", To: "b", Resources: []string{"/pods", "/secrets"}, Keys: 3, Bytes: 40, HeldMilliseconds: 90},
			"/pods /secrets, a → b, 3 keys, 40 bytes, writes waited for 90 ms", Good,
		},
		"what Cluster API may use is said by the name of its Cluster": {
			"capi", event.Initialized, event.CAPIInitialized{About: about, ControlPlane: "shop-cp", Cluster: "shop"}, "cluster shop may use it", Good,
		},
		"what is left in another cluster is named": {
			"capi", event.Abandoned, event.CAPIAbandoned{About: about, ControlPlane: "shop-cp", Secret: "a/far", Key: "value", Tenant: "b/kcp-1", Message: "no answer"},
			"TenantControlPlane b/kcp-1 is left in the cluster of Secret a/far: no answer", Bad,
		},
		"an addon is installed in a version": {
			"tenantaddons", event.Installed, event.TenantAddonInstalled{About: about, Addon: addon, HelmRevision: 3, Objects: 7},
			"fleet/metrics 1.2.3, release 3, 7 objects", Good,
		},
		"one that isn't says why": {
			"tenantaddons", event.NotInstalled, event.TenantAddonNotInstalled{About: about, Addon: addon, Reason: "TimedOut", Message: "Deployment a/b"},
			"fleet/metrics 1.2.3: TimedOut: Deployment a/b", Bad,
		},
		"what was put right of it is named, as far as it is": {
			"tenantaddons", event.Repaired, event.TenantAddonRepaired{About: about, Addon: addon, Objects: []string{"Deployment a/b", "Service a/b"}, Count: 5},
			"fleet/metrics 1.2.3: Deployment a/b, Service a/b, 3 more", Plain,
		},
		"one that is gone may leave its objects": {
			"tenantaddons", event.Uninstalled, event.TenantAddonUninstalled{About: about, Addon: event.TenantAddon{Namespace: "fleet", Name: "metrics"}, Kept: true},
			"fleet/metrics, its objects are kept", Plain,
		},
		"one that could not be removed is left": {
			"tenantaddons", event.Abandoned, event.TenantAddonAbandoned{About: about, Addon: addon, Message: "no answer"},
			"fleet/metrics 1.2.3 is left in the tenant: no answer", Bad,
		},
		"a timer needs no words": {"certs", event.Due, event.TimerDue{About: about}, "", Plain},
	}
	for sentence, test := range tests {
		t.Run(sentence, func(t *testing.T) {
			t.Parallel()
			text, mood := words(test.service, test.what, event.Marshal(test.payload))
			if text != test.want || mood != test.mood {
				t.Errorf("%q, %d", text, mood)
			}
		})
	}
	t.Run("a payload that can't be read doesn't end the watch", func(t *testing.T) {
		t.Parallel()
		for _, e := range event.Catalogue() {
			if text, _ := words(e.Service, e.What, []byte("[")); text != "" {
				t.Errorf("%s: %q", e.Type, text)
			}
		}
	})
}

func TestPrint(t *testing.T) {
	t.Parallel()
	var b bytes.Buffer
	p := Printer{Out: &b}
	p.Print(Line{Service: "certs", What: "issued", Since: 1234 * time.Millisecond, Text: "valid until\x1b[31m 2027"})
	p.Print(Line{Service: "certs", What: "due", Since: -1})
	want := " +1.234s  certs.issued           valid until [31m 2027\n          certs.due\n"
	if b.String() != want {
		t.Errorf("got\n%swant\n%s", b.String(), want)
	}
}
