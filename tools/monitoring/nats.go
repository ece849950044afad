package monitoring

// nats is how the NATS servers are, by `stoker nats-metrics` beside each.
func nats() *Dashboard {
	const server = "stoker_nats_server_"
	named := func(expr string) string {
		return "max by (server) (" + expr + " * on (instance) group_left (server) " + server + "info)"
	}
	return dashboard("stoker-nats", "Stoker / NATS",
		"How the NATS servers and Stoker's streams are. Needs `stoker nats-metrics` beside each server.", nil,
		row{"Now", []*Panel{
			stat("Servers that answer", "Servers that answer on their monitoring port.", unitShort, 4,
				query("", "sum("+server+"up)"), colors("red", 1, "green")),
			stat("Servers that know a leader", "Without a leader nothing can be written.", unitShort, 4,
				query("", "sum("+server+"leader_known)"), colors("red", 1, "green"),
				runbook("StokerNATSWithoutQuorum")),
			stat("Replicas behind", "Replicas of Stoker's streams that are away or behind.", unitShort, 4,
				query("", "sum("+server+"stream_replicas_lagging)"), red(),
				runbook("StokerNATSWithoutQuorum")),
			stat("Tenants' buckets", "One for each tenant.", unitShort, 4, query("", "sum("+server+"tenant_buckets)")),
			stat("Connections", "Of services, portals and people.", unitShort, 4, query("", "sum("+server+"connections)")),
			stat("Dead letters", "Events that were given up, until somebody drops them.", unitShort, 4,
				query("", `max(`+server+`stream_messages{stream="STOKER_DEAD"})`), red(),
				runbook("StokerDeadLetters")),
		}},
		row{"Streams", []*Panel{
			graph("Messages in streams", "What Stoker's streams and its own buckets hold.", unitShort, 8,
				query("{{stream}}", "max by (stream) ("+server+"stream_messages)")),
			bars("Streams, how full",
				"Of the bytes that a stream may have. At its limit STOKER_INTAKE refuses new commands; others drop what is oldest.", unitPart, 8,
				query("{{stream}}", "max by (stream) ("+server+"stream_bytes) / max by (stream) ("+server+"stream_max_bytes > 0)"),
				colors("green", 0.8, "orange", 0.95, "red"), most(1)),
			graph("Tenants' buckets", "Size of the buckets of all tenants.", unitBytes, 8,
				query("all", "sum("+server+"tenant_buckets_bytes)")),
			graph("Not received", "Events that no replica of a service has received yet.", unitShort, 12,
				query("{{service}} {{stream}}", "sum by (service, stream) ("+server+"consumer_unprocessed)"), runbook("StokerEventsOld")),
			graph("Not acknowledged", "Events that a replica of a service has received and not acknowledged.", unitShort, 12,
				query("{{service}} {{stream}}", "sum by (service, stream) ("+server+"consumer_ack_pending)"), runbook("StokerEventsOld")),
		}},
		row{"Servers", []*Panel{
			graph("Messages", "Received from clients and sent to them.", unitOps, 8,
				query("{{direction}}", "sum by (direction) (rate("+server+"messages_total[$__rate_interval]))")),
			graph("Bytes", "Received from clients and sent to them.", unitBps, 8,
				query("{{direction}}", "sum by (direction) (rate("+server+"bytes_total[$__rate_interval]))")),
			graph("Storage", "What JetStream has on each server's disk.", unitBytes, 8, query("{{server}}", named(server+"storage_bytes"))),
			graph("CPU", "Processors in use.", unitShort, 8, query("{{server}}", named(server+"cpu_ratio"))),
			graph("Memory", "Of the servers' processes.", unitBytes, 8, query("{{server}}", named(server+"memory_bytes"))),
			graph("Trouble", "In the last ten minutes: clients that were too slow, and requests to JetStream answered by an error. "+
				"Some of these are normal: what is asked for may not be there yet.",
				unitShort, 8,
				query("slow clients", "sum(increase("+server+"slow_consumers_total[10m]))"),
				query("answered by an error", "sum(increase("+server+"api_errors_total[10m]))")),
		}},
	)
}
