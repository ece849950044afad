package events

import (
	"slices"

	"github.com/stoker-k8s/stoker/pkg/api/event"
	"github.com/stoker-k8s/stoker/pkg/api/name"
)

// NATS users besides the services.
const (
	// UserPortal is the portal that the local stack and tests have; see [Portal].
	UserPortal = "portal"
	// UserOperator is a person's: reads everything, publishes commands, asks the micro endpoints.
	UserOperator = "operator"
	// UserSystem is an administrator's of the NATS servers: asks them to read their configuration again, sees connections and
	// accounts. It has nothing of Stoker's.
	UserSystem = "system"
)

// Users are all NATS users of an installation but its portals.
func Users() []string {
	return append(name.Services(), UserOperator, UserSystem)
}

// wakes lists the facts each service listens to, in each with what the order of a deletion adds (event.RemovalOrder).
var wakes = withRemovals(map[string][]string{
	"datastore": {"intake.accepted", "intake.deleting", "workload.available", "workload.slept", "datastore.due", "intake.checked"},
	"certs":     {"intake.accepted", "intake.deleting", "workload.exposed", "workload.available", "certs.due", "certs.generated", "addons.rewritten", "intake.checked"},
	"workload":  {"intake.accepted", "intake.deleting", "intake.released", "certs.issued", "certs.rotated", "datastore.provisioned", "datastore.migrating", "datastore.migrated", "workload.due", "intake.checked"},
	"addons":    {"intake.accepted", "intake.deleting", "intake.released", "workload.available", "certs.rotated", "intake.checked"},
	// Of what fails, intake looks for its spec that others can't read.
	"intake": {
		"datastore.withdrawn", "datastore.migrated", "datastore.restoring", "datastore.restored", "datastore.notrestored",
		"workload.called", "addons.idle", "intake.due", "intake.asked", "datastore.failed", "certs.failed", "workload.failed", "addons.failed", "status.failed", "capi.failed",
		"tenantaddons.failed",
	},
	// capi works from watches of the management cluster, waits for tenants to be passed on, and looks at each tenant once a day, as all do.
	"capi": {"intake.checked", "datastore.passedon", "datastore.failed"},
	// tenantaddons works from watches of the management cluster and inside tenants, and on what its templates read.
	"tenantaddons": {"intake.accepted", "intake.deleting", "workload.available", "addons.applied", "certs.rotated", "intake.checked"},
	// Every fact but status' own, which would wake it to find nothing new.
	"status": {"intake.*", "certs.*", "datastore.*", "workload.*", "addons.*", "capi.*", "tenantaddons.*"},
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
	"datastore":    {"workload"},
	"certs":        {"workload", "datastore", "addons"},
	"workload":     {"certs", "datastore"},
	"addons":       {"certs", "workload"},
	"status":       {"certs", "datastore", "workload", "addons", "capi", "tenantaddons"},
	"tenantaddons": {"certs", "workload", "addons"},
	"capi":         {"datastore"},
}

// Permissions are the subjects a NATS user may publish and subscribe to: just what its service does. They say clearly what is
// refused; what holds against a user that means harm is its account ([Authorization]).
func Permissions(user string) (publish, subscribe []string) {
	if user == UserOperator {
		return operatorRights()
	}
	return serviceRights(user)
}

func operatorRights() (publish, subscribe []string) {
	return []string{
			"stoker.intake.*.*.*", "stoker.status.get", "stoker.status.why", "stoker.datastore.orphans", "stoker.datastore.drop", event.QueryMove,
			event.QueryBackups, event.QueryBackup, PlanSubjects,
			event.QueryDeadList, event.QueryDeadReplay, event.QueryDeadDrop, event.QueryReplicas, event.QueryPartitions, event.QueryResync, "$SRV.>", "$JS.API.INFO",
			"$JS.API.DIRECT.GET.>", "$JS.API.STREAM.INFO.*", "$JS.API.STREAM.LIST", "$JS.API.STREAM.NAMES",
			"$JS.API.STREAM.MSG.GET.*", "$JS.API.CONSUMER.LIST.*", "$JS.API.CONSUMER.NAMES.*", "$JS.API.CONSUMER.INFO.>",
			"$JS.API.CONSUMER.CREATE.*.>", "$JS.API.CONSUMER.MSG.NEXT.>", "$JS.FC.>", "$JS.ACK.>",
			"$JS.API.STREAM.SNAPSHOT.*", "$JS.SNAPSHOT.ACK.>", // backups; what restores them would also write
		},
		[]string{"stoker.>", "_INBOX_operator.>", "_INBOX.>", "$KV.>"}
}

// serviceRights are what all services do: tell facts, set timers, bury dead letters, hold a lease, consume, keep a state and read
// the spec and the states in reads; and what each does beside. Only intake creates consumers: the server delivers on any subject
// that a consumer's creator names.
func serviceRights(service string) (publish, subscribe []string) {
	publish = []string{
		"stoker.fact.*.*.*." + service + ".*",
		"stoker.timer.*.*.*." + service + ".*",
		"stoker.dead." + service + ".*.*.*",
		"$KV." + BucketLeases + "." + service + ".>",
		"$JS.API.INFO",
		"$JS.API.STREAM.INFO.*",
		directGet + StreamFacts + ".stoker.fact.*.*.*." + service + ".*",
	}
	if before := event.RemovedBefore(service); before != "" {
		publish = append(publish, directGet+StreamFacts+".stoker.fact.*.*.*."+before+"."+event.Removed)
	}
	publish = append(publish, consumerRights(StreamFacts, service)...)
	subscribe = append([]string{"_INBOX_" + service + ".>", "$KV." + BucketLeases + "." + service + ".>", "$SRV.>"}, advisories(service)...)
	key := StateKey(service)
	// A question to a stream's leader names what it reads in its body, so this right can't be narrowed to keys, and streams' names not
	// matched in part; notRead takes the streams away that are none of a service's business.
	publish = append(publish, "$KV.*."+key, directGet+"*.$KV.*."+key, leaderGet+"*")
	if key != KeySpec {
		publish = append(publish, directGet+"*.$KV.*."+KeySpec)
	}
	for _, other := range reads[service] {
		publish = append(publish, directGet+"*.$KV.*."+other)
	}
	if service == name.ServiceIntake {
		publish = append(publish, consumerRights(StreamIntake, service)...)
		publish = append(publish, AnswerSubjects, "stoker.intake.*.*.*", "$KV."+BucketCommands+".*",
			"$JS.API.STREAM.MSG.DELETE."+StreamIntake, // commands that hold secrets
			event.QueryPods, event.QueryInside,
			replicaSubjects, replaySubjects, "$JS.API.STREAM.MSG.DELETE."+StreamDead, // dead letters, replayed and dropped
			"$JS.API.STREAM.LIST", "$JS.API.STREAM.CREATE.*", "$JS.API.STREAM.UPDATE.*", "$JS.API.STREAM.DELETE.*", "$JS.API.STREAM.PURGE."+StreamFacts,
			"$JS.API.CONSUMER.CREATE.>", "$JS.API.CONSUMER.DURABLE.CREATE.>", "$JS.API.CONSUMER.LIST.*", "$JS.API.CONSUMER.DELETE.>")
		subscribe = append(subscribe, AnswerSubjects)
	}
	if service == name.ServiceStatus {
		publish = append(publish, statusSubjects)
	}
	return publish, append(subscribe, answered(service)...)
}

// answered are the subjects on which a service answers: those of its questions, and the one on which intake asks each of its replicas.
func answered(service string) []string {
	return append(slices.Clone(questions[service]), ReplicaSubject(service))
}

// questions are the subjects on which services answer the operator, and intake; with them, that of all NATS micro services.
var questions = map[string][]string{
	name.ServiceAddons:    {event.QueryInside, JoinSubjects},
	name.ServiceDatastore: {"stoker.datastore.orphans", "stoker.datastore.drop", event.QueryMove, event.QueryBackups, event.QueryBackup},
	name.ServiceIntake: {
		event.QueryDeadList, event.QueryDeadReplay, event.QueryDeadDrop, event.QueryReplicas, event.QueryPartitions, event.QueryResync,
		PlanSubjects,
	},
	name.ServiceStatus:   {"stoker.status.get", "stoker.status.why"},
	name.ServiceWorkload: {event.QueryPods},
}

// notRead are the streams of which no service but intake reads a message through the leader.
var notRead = []string{StreamIntake, StreamFacts, StreamStatus, StreamDead, "KV_" + BucketCommands}

// denied are the subjects a user may not publish although its permissions include them.
func denied(user string) (publish []string) {
	if Account(user) == AccountStoker {
		return nil
	}
	for _, stream := range notRead {
		publish = append(publish, leaderGet+stream)
	}
	return publish
}

// advisories are the subjects on which the server says that a consumer of a service's streams has another leader, where what the former was
// asked is lost, or is pinned to a request for events; and to intake, that a stream which nobody consumes was deleted.
func advisories(service string) (subjects []string) {
	streams := []string{StreamFacts}
	if service == name.ServiceIntake {
		streams = append(streams, StreamIntake)
		for _, stream := range unconsumed {
			subjects = append(subjects, deletedAdvisory+stream)
		}
	}
	for _, stream := range streams {
		subjects = append(subjects, electedAdvisory+stream+".*", pinnedAdvisory+stream+".*")
	}
	return subjects
}

const (
	deletedAdvisory = "$JS.EVENT.ADVISORY.STREAM.DELETED."
	electedAdvisory = "$JS.EVENT.ADVISORY.CONSUMER.LEADER_ELECTED."
	pinnedAdvisory  = "$JS.EVENT.ADVISORY.CONSUMER.PINNED."

	directGet = "$JS.API.DIRECT.GET."
	leaderGet = "$JS.API.STREAM.MSG.GET."
	// microSubjects are those of NATS micro services, for `nats micro ls`.
	microSubjects = "$SRV.>"
)

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
