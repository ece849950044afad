package monitoring

// ofService selects the services chosen at the top, management their requests to the management cluster's API server.
const (
	ofService  = `service=~"$service"`
	management = `cluster="management", ` + ofService
)

// perSecond is the rate of a counter by labels, of what a selector picks.
func perSecond(by, counter, selector string) string {
	return "sum by (" + by + ") (rate(" + counter + "{" + selector + "}[$__rate_interval]))"
}

// eventPath is how events get from NATS through the services.
func eventPath() *Dashboard {
	return dashboard("stoker-events", "Stoker / Event path", "How events get from NATS through the services, and where they wait.",
		[]Variable{choose("service", "Service", "label_values(stoker_events_pending, service)", true)},
		row{"Flow", []*Panel{
			graph("Events handled", "By the service that handled them.", unitOps, 8,
				query("{{service}}", perSecond("service", "stoker_events_total", ofService))),
			graph("By result", "By what became of the turn: done, retry, unavailable (what it needs is away), dead, fenced.", unitOps, 8,
				query("{{result}}", perSecond("result", "stoker_events_total", ofService))),
			graph("By type", "The ten most frequent: commands, and facts by service and what happened.", unitOps, 8,
				query("{{type}}", `topk(10, sum by (type) (rate(stoker_events_total{service=~"$service"}[$__rate_interval])))`)),
		}},
		row{"Waiting", []*Panel{
			graph("Age of events (p99)", "From the storing of an event to the beginning of its first turn, by service and stream.",
				unitS, 12,
				query("{{service}} {{stream}}", percentile("0.99", "stoker_event_age_seconds", "service, stream", ofService)),
				colors("transparent", 60, "red"), runbook("StokerEventsOld")),
			graph("Events not acknowledged", "Events that a service has received and is not done with.", unitShort, 12,
				query("{{service}}", `sum by (service) (stoker_events_pending{service=~"$service"})`)),
			graph("Events nobody has received", "By NATS, if it is scraped. If this stays above nought, nobody takes them.", unitShort, 12,
				query("{{service}} {{stream}}", `sum by (service, stream) (stoker_nats_server_consumer_unprocessed{service=~"$service"})`),
				runbook("StokerEventsOld")),
			graph("Time of a turn (p99)", "How long a service works on an object once it has begun.", unitS, 12,
				query("{{service}}", percentile("0.99", "stoker_step_duration_seconds", "service", ofService))),
		}},
		row{"Trouble", []*Panel{
			graph("Dead letters", "Events given up, in the last ten minutes.", unitShort, 6,
				query("{{service}}", `sum by (service) (increase(stoker_dead_letters_total{service=~"$service"}[10m]))`),
				runbook("StokerDeadLetters")),
			graph("Delivered again", "Events that came a second time, because a replica died or handed over.", unitOps, 6,
				query("{{service}}", perSecond("service", "stoker_redeliveries_total", ofService))),
			graph("State conflicts", "Writes of a state that lost, because somebody else had written it.", unitOps, 6,
				query("{{service}}", perSecond("service", "stoker_state_conflicts_total", ofService))),
			graph("Facts owed", "Objects of which facts may lack in the stream, until they are told again.", unitShort, 6,
				query("{{service}}", `sum by (service) (stoker_facts_owed{service=~"$service"})`)),
		}},
		row{"Commands by HTTP", []*Panel{
			graph("Requests", "Requests to /events, by code of the answer; nought where that way in is off.", unitOps, 12,
				query("{{code}}", `sum by (code) (rate(stoker_http_events_duration_seconds_count[$__rate_interval]))
or on () label_replace(vector(0), "code", "none", "", "")`)),
			graph("Time of a request (p90)", "How long a request to /events takes.", unitS, 12,
				query("p90", percentile("0.9", "stoker_http_events_duration_seconds", "", "")+" or vector(0)")),
		}},
	)
}

// services is how the eight services are.
func services() *Dashboard {
	// Metrics of the process have no label service of their own.
	process := func(expr string) string {
		return "sum by (service, instance) (" + expr + " * on (instance) group_left (service) " +
			"max by (instance, service) (stoker_build_info{" + ofService + "}))"
	}
	requests := perSecond("service", "stoker_api_requests_total", management)
	failures := perSecond("service", "stoker_api_requests_total", management+`, code=~"0|401|403|429|5.."`)
	failing := "(" + failures + " or 0 * " + requests + ") / " + requests
	return dashboard("stoker-services", "Stoker / Services",
		"How the replicas of the eight services are, and how they get on with API server and NATS.",
		[]Variable{choose("service", "Service", "label_values(stoker_build_info, service)", true)},
		row{"Replicas", []*Panel{
			table("Replicas", "What runs, and which build it is.", 12, 8,
				`max by (service, instance, version, goversion) (stoker_build_info{service=~"$service"})`,
				[]column{{"service", "Service"}, {"instance", "Replica"}, {"version", "Version"}, {"goversion", "Go"}}),
			graph("Partitions held", "16 of each service over all its replicas, but for seconds at a hand-over.", unitShort, 12,
				query("{{service}} {{instance}}", `sum by (service, instance) (stoker_partitions_held{service=~"$service"})`),
				runbook("StokerReplicaWithoutLease")),
			graph("Replicas with a lease", "Replicas that may work: their last sign of life is stored in NATS.", unitShort, 8,
				query("{{service}}", `sum by (service) (stoker_lease_held{service=~"$service"})`), runbook("StokerReplicaWithoutLease")),
			graph("CPU", "Processors in use.", unitShort, 8,
				query("{{service}} {{instance}}", process("rate(process_cpu_seconds_total[$__rate_interval])"))),
			graph("Memory", "Memory in use.", unitBytes, 8, query("{{service}} {{instance}}", process("process_resident_memory_bytes"))),
		}},
		row{"The management cluster's API", []*Panel{
			graph("Requests", "By service; watches count when they begin.", unitOps, 8,
				query("{{service}}", requests)),
			graph("Part that fails", "No answer, 401, 403, 429 and 5xx. Others are answers that services expect.", unitPart, 8,
				query("{{service}}", failing),
				colors("transparent", 0.1, "red"), runbook("StokerAPIErrors")),
			graph("Time of a request (p99)", "By verb, over all services.", unitS, 8,
				query("{{verb}}", percentile("0.99", "stoker_api_request_duration_seconds", "verb", management))),
		}},
		row{"NATS, as services see it", []*Panel{
			graph("Messages", "Received and sent.", unitOps, 8,
				query("{{service}} {{direction}}", perSecond("service, direction", "stoker_nats_messages_total", ofService))),
			graph("Connected replicas", "Replicas that are connected to a server.", unitShort, 8,
				query("{{service}}", `sum by (service) (stoker_nats_connected{service=~"$service"})`), runbook("StokerNATSWithoutQuorum")),
			graph("Errors", "In the last ten minutes: what was not stored, connections lost, refusals.", unitShort, 8,
				query("not stored", `sum(increase(stoker_nats_publish_errors_total{service=~"$service"}[10m]))`),
				query("connections lost", `sum(increase(stoker_nats_disconnects_total{service=~"$service"}[10m]))`),
				query("{{kind}}", `sum by (kind) (increase(stoker_nats_errors_total{service=~"$service"}[10m]))`)),
		}},
	)
}
