package events

import (
	"fmt"
	"strings"

	"github.com/stoker-k8s/stoker/pkg/api/event"
	"github.com/stoker-k8s/stoker/pkg/api/name"
)

// NATS users besides the services.
const (
	// UserPortal publishes commands and reads statuses, nothing else.
	UserPortal = "portal"
	// UserOperator is a person's: reads everything, publishes commands, asks the micro endpoints.
	UserOperator = "operator"
)

// Users are all NATS users of an installation.
func Users() []string {
	return append(name.Services(), UserOperator, UserPortal)
}

// wakes lists the facts each service listens to, in each with what the order of a deletion adds (event.RemovalOrder).
var wakes = withRemovals(map[string][]string{
	"datastore": {"intake.accepted", "intake.deleting", "workload.available", "workload.slept", "datastore.due", "intake.checked"},
	"certs":     {"intake.accepted", "intake.deleting", "workload.exposed", "certs.due", "certs.generated", "intake.checked"},
	"workload":  {"intake.accepted", "intake.deleting", "intake.released", "certs.issued", "certs.rotated", "datastore.provisioned", "intake.checked"},
	"addons":    {"intake.accepted", "intake.deleting", "intake.released", "workload.available", "certs.rotated", "intake.checked"},
	"intake":    {"datastore.withdrawn", "intake.due"},
	// Every fact but status' own, which would wake it to find nothing new.
	"status": {"intake.*", "certs.*", "datastore.*", "workload.*", "addons.*"},
})

// withRemovals has each service wake when the one before it in a deletion has removed its part.
func withRemovals(facts map[string][]string) map[string][]string {
	for service := range facts {
		if before := event.RemovedBefore(service); before != "" {
			facts[service] = append(facts[service], before+"."+event.Removed)
		}
	}
	return facts
}

// reads lists the services whose states each service reads, besides spec and its own.
var reads = map[string][]string{
	"datastore": {"workload"},
	"certs":     {"workload", "datastore"},
	"workload":  {"certs", "datastore"},
	"addons":    {"certs", "workload"},
	"status":    {"certs", "datastore", "workload", "addons"},
}

// Permissions are the subjects a NATS user may publish and subscribe to: just what its service does.
func Permissions(user string) (publish, subscribe []string) {
	switch user {
	case UserPortal:
		return portalRights()
	case UserOperator:
		return operatorRights()
	}
	return serviceRights(user)
}

// portalRights have no consumers: the server would deliver on any subject the portal names. The last status of a tenant is a
// direct get, what follows a plain subscription.
func portalRights() (publish, subscribe []string) {
	return []string{"stoker.intake.*.*.*", "$JS.API.INFO", "$JS.API.STREAM.INFO." + StreamStatus, "$JS.API.DIRECT.GET." + StreamStatus + ".>"},
		[]string{"stoker.status.>", "_INBOX.>"}
}

func operatorRights() (publish, subscribe []string) {
	return []string{
			"stoker.intake.*.*.*", "stoker.status.get", "stoker.status.why", "stoker.datastore.orphans", "stoker.datastore.drop", "$SRV.>", "$JS.API.INFO",
			"$JS.API.DIRECT.GET.>", "$JS.API.STREAM.INFO.*", "$JS.API.STREAM.LIST", "$JS.API.STREAM.NAMES",
			"$JS.API.STREAM.MSG.GET.*", "$JS.API.CONSUMER.LIST.*", "$JS.API.CONSUMER.NAMES.*", "$JS.API.CONSUMER.INFO.>",
			"$JS.API.CONSUMER.CREATE.*.>", "$JS.API.CONSUMER.MSG.NEXT.>", "$JS.FC.>", "$JS.ACK.>",
		},
		[]string{"stoker.>", "_INBOX_operator.>", "_INBOX.>", "$KV.>"}
}

// serviceRights are what all services do: tell facts, set timers, bury dead letters, hold a lease, consume, keep a state and read
// the spec and the states in reads; and what each does beside.
func serviceRights(service string) (publish, subscribe []string) {
	publish = []string{
		"stoker.fact.*.*.*." + service + ".*",
		"stoker.timer.*.*.*." + service + ".*",
		"stoker.dead." + service + ".*.*.*",
		"$KV." + BucketLeases + "." + service + ".>",
		"$JS.API.STREAM.MSG.GET.KV_" + BucketLeases,
		"$JS.API.INFO",
		"$JS.API.STREAM.INFO.*",
		"$JS.API.DIRECT.GET." + StreamFacts + ".stoker.fact.*.*.*." + service + ".*",
	}
	if before := event.RemovedBefore(service); before != "" {
		publish = append(publish, "$JS.API.DIRECT.GET."+StreamFacts+".stoker.fact.*.*.*."+before+"."+event.Removed)
	}
	publish = append(publish, consumerRights(StreamFacts, service)...)
	subscribe = []string{
		"_INBOX_" + service + ".>", "$KV." + BucketLeases + "." + service + ".>", "$SRV.>",
		"$JS.EVENT.ADVISORY.CONSUMER.LEADER_ELECTED." + StreamFacts + ".*",
	}
	if service == name.ServiceIntake {
		publish = append(publish, consumerRights(StreamIntake, service)...)
		publish = append(publish, "_INBOX.>", "stoker.intake.*.*.*", "$KV."+BucketCommands+".*",
			"$JS.API.STREAM.MSG.DELETE."+StreamIntake, // commands that hold secrets
			"$JS.API.STREAM.CREATE.*", "$JS.API.STREAM.UPDATE.*", "$JS.API.STREAM.DELETE.*", "$JS.API.STREAM.PURGE."+StreamFacts,
			"$JS.API.CONSUMER.CREATE.>", "$JS.API.CONSUMER.DURABLE.CREATE.>", "$JS.API.CONSUMER.LIST.*", "$JS.API.CONSUMER.DELETE.>")
		subscribe = append(subscribe, InboxHTTP+".>", "$JS.EVENT.ADVISORY.CONSUMER.LEADER_ELECTED."+StreamIntake+".*")
	}
	key := StateKey(service)
	// A question to a stream's leader names what it reads in its body, so this right can't be narrowed to keys, and streams' names not
	// matched in part.
	publish = append(publish, "$KV.*."+key, "$JS.API.DIRECT.GET.*.$KV.*."+key, "$JS.API.STREAM.MSG.GET.*", "$JS.FC.>")
	if key != KeySpec {
		publish = append(publish, "$JS.API.DIRECT.GET.*.$KV.*."+KeySpec)
	}
	for _, other := range reads[service] {
		publish = append(publish, "$JS.API.DIRECT.GET.*.$KV.*."+other)
	}
	switch service {
	case name.ServiceDatastore:
		publish = append(publish, "_INBOX_operator.>", "_INBOX.>")
		subscribe = append(subscribe, "stoker.datastore.orphans", "stoker.datastore.drop")
	case name.ServiceStatus:
		publish = append(publish, "stoker.status.*.*", "_INBOX_operator.>", "_INBOX.>")
		subscribe = append(subscribe, "stoker.status.get", "stoker.status.why")
	}
	return publish, subscribe
}

// consumerRights are those on a service's consumers of a stream. A token can't be matched in part, so that consumers and their
// acknowledgements are listed one by one.
func consumerRights(stream, service string) []string {
	var publish []string
	for p := range name.Partitions {
		c := Consumer(service, p)
		publish = append(publish,
			"$JS.API.CONSUMER.INFO."+stream+"."+c,
			"$JS.API.CONSUMER.MSG.NEXT."+stream+"."+c,
			"$JS.API.CONSUMER.UNPIN."+stream+"."+c,
			"$JS.ACK."+stream+"."+c+".>",
		)
	}
	return publish
}

// Authorization is the authorization block of a NATS server's configuration. Public nkeys are given by user; a missing one
// is written as a variable, STOKER_NKEY_<USER>, to be set in the server's environment.
func Authorization(nkeys map[string]string) string {
	var b strings.Builder
	b.WriteString("authorization {\n  users = [\n")
	for _, user := range Users() {
		key := nkeys[user]
		if key == "" {
			key = "$STOKER_NKEY_" + strings.ToUpper(user)
		}
		publish, subscribe := Permissions(user)
		fmt.Fprintf(&b, "    # %s\n    { nkey: %s, permissions: {\n      publish: { allow: [\n%s      ] }\n      subscribe: { allow: [\n%s      ] }\n    } }\n",
			user, key, quoted(publish), quoted(subscribe))
	}
	b.WriteString("  ]\n}\n")
	return b.String()
}

func quoted(subjects []string) string {
	var b strings.Builder
	for _, s := range subjects {
		fmt.Fprintf(&b, "        %q\n", s)
	}
	return b.String()
}
