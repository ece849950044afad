package events

// What the catalogue of events says about subjects and readers, from the tables that the streams, consumers and rights are
// made from.

import (
	"maps"
	"slices"
	"strings"

	"github.com/stoker-k8s/stoker/pkg/api/event"
)

// Readers lists the services that wake on a fact, sorted.
func Readers(service, what string) []string {
	var readers []string
	for _, reader := range slices.Sorted(maps.Keys(wakes)) {
		if slices.ContainsFunc(wakes[reader], func(f string) bool {
			return f == service+"."+what || f == service+".*"
		}) {
			readers = append(readers, reader)
		}
	}
	return readers
}

// Addresses are subjects with the tokens that vary in braces, as AsyncAPI writes them.
const (
	// AddressAnswer is where commands are answered.
	AddressAnswer = "stoker.answer.{namespace}.{token}"
	// AddressStatus is where portals are told about tenants.
	AddressStatus = "stoker.status.{namespace}.{name}"
	// AddressDead is where events lie that no retry can help.
	AddressDead = "stoker.dead.{service}.{partition}.{namespace}.{name}"
)

// AddressCommand is where commands for objects of a kind are published.
func AddressCommand(kind string) string {
	key := Key{Kind: kind, Namespace: ClusterScoped, Name: "{name}"}
	if kind == event.TenantControlPlanes {
		key.Namespace = "{namespace}"
	}
	return key.CommandSubject()
}

// AddressFact is where a fact is published.
func AddressFact(service, what string) string {
	return strings.Join([]string{"stoker.fact.{partition}.{namespace}.{name}", service, what}, ".")
}

// AddressQuestion is where a question is sent.
func AddressQuestion(q event.Question) string {
	if q.Subject == event.QueryPlan || q.Subject == event.QueryJoin {
		return q.Subject + ".{namespace}.{name}"
	}
	return q.Subject
}

// Scopes lists what stands for the namespace in the subjects of facts about cluster-scoped kinds, by kind.
func Scopes() map[string]string {
	return map[string]string{
		event.DataStores:           DataStore("").scope(),
		event.KubeconfigGenerators: Generator("").scope(),
	}
}
