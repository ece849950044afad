package events_test

import (
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/stoker-k8s/stoker/pkg/api/event"
	"github.com/stoker-k8s/stoker/pkg/api/name"
	"github.com/stoker-k8s/stoker/pkg/events"
)

func TestAddressesAreTheSubjectsOfKeys(t *testing.T) {
	fill := func(address string, k events.Key) string {
		return strings.NewReplacer("{namespace}", k.Namespace, "{name}", k.Name, "{partition}", strconv.Itoa(k.Partition()), "{service}", "certs").Replace(address)
	}
	tenant := events.Tenant("default", "demo")
	for _, test := range [][2]string{
		{fill(events.AddressCommand(event.TenantControlPlanes), tenant), tenant.CommandSubject()},
		{fill(events.AddressCommand(event.DataStores), events.DataStore("etcd")), events.DataStore("etcd").CommandSubject()},
		{fill(events.AddressCommand(event.KubeconfigGenerators), events.Generator("ops")), events.Generator("ops").CommandSubject()},
		{fill(events.AddressFact("certs", event.Issued), tenant), tenant.FactSubject("certs", event.Issued)},
		{fill(events.AddressStatus, tenant), tenant.StatusSubject()},
		{fill(events.AddressDead, tenant), tenant.DeadSubject("certs")},
	} {
		if test[0] != test[1] {
			t.Errorf("%s, not %s", test[0], test[1])
		}
	}
	for kind, scope := range events.Scopes() {
		subject := events.Key{Kind: kind, Namespace: events.ClusterScoped, Name: "x"}.FactSubject("intake", event.Accepted)
		if got := strings.Split(subject, ".")[3]; got != scope {
			t.Errorf("facts about %s lie under %s, not %s", kind, got, scope)
		}
	}
}

func TestEveryFactIsReadByAnother(t *testing.T) {
	for _, e := range event.Catalogue() {
		readers := events.Readers(e.Service, e.What)
		if !e.Command && e.Service != name.ServiceStatus && !slices.Contains(readers, name.ServiceStatus) {
			t.Errorf("%s is not read by status: %v", e.Type, readers)
		}
	}
	if got := events.Readers("certs", event.Rotated); !slices.Equal(got, []string{"addons", "status", "tenantaddons", "workload"}) {
		t.Errorf("certs.rotated is read by %v", got)
	}
}
