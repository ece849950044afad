package monitoring

// dataStores is how the shared databases are.
func dataStores() *Dashboard {
	const of = `datastore=~"$datastore"`
	const full = `max by (datastore) (
  sum by (datastore) (stoker_datastore_tenants{` + of + `}) / max by (datastore) (stoker_datastore_max_tenants{` + of + `} > 0)
or
  sum by (datastore) (stoker_datastore_tenant_bytes_sum{` + of + `}) / max by (datastore) (stoker_datastore_max_bytes{` + of + `} > 0)
)`
	const usable = `max by (datastore_name, driver) (kamaji_datastore_info{datastore_name=~"$datastore"})
* on (datastore_name) group_left (status) max by (datastore_name, status) (kamaji_datastore_status{datastore_name=~"$datastore"})`
	return dashboard("stoker-datastores", "Stoker / DataStores",
		"The databases that hold the state of many tenants each: whether they answer, how fast, and what they hold.",
		[]Variable{choose("datastore", "DataStore", "label_values(stoker_datastore_up, datastore)", true)},
		row{"Now", []*Panel{
			table("DataStores", "Whether each can be used.", 12, 8,
				usable,
				[]column{{"datastore_name", "DataStore"}, {"driver", "Database"}, {"status", "Usable"}}, runbook("StokerDataStoreAway")),
			bars("Full", "Of the tenants or bytes that its annotations allow, whichever is nearer. Without limits it is never full.",
				unitPart, 12,
				query("{{datastore}}", full), colors("green", 0.8, "orange", 0.9, "red"), most(1), runbook("StokerDataStoreFull")),
		}},
		row{"Answers", []*Panel{
			graph("Time of a check", "How long the database took to answer the last check, the slowest of all replicas.", unitS, 8,
				query("{{datastore}}", "max by (datastore) (stoker_datastore_check_seconds{"+of+"})")),
			graph("Replicas that find it away", "Replicas of datastore that ask it now and then instead of at each turn.", unitShort, 8,
				query("{{datastore}}", "sum by (datastore) (stoker_datastore_breaker_open{"+of+"})"), runbook("StokerDataStoreAway")),
			graph("Tenants that wait", "Tenants that wait for the DataStore to be there.", unitShort, 8,
				query("{{datastore}}", "sum by (datastore) (stoker_datastore_tenants_waiting{"+of+"})")),
		}},
		row{"Contents", []*Panel{
			graph("Tenants", "Tenants whose data it holds.", unitShort, 8,
				query("{{datastore}}", "sum by (datastore) (stoker_datastore_tenants{"+of+"})"), stacked),
			graph("Bytes", "What all tenants hold together.", unitBytes, 8,
				query("{{datastore}}", "sum by (datastore) (stoker_datastore_tenant_bytes_sum{"+of+"})"), stacked),
			graph("Keys", "Keys of all tenants together.", unitShort, 8,
				query("{{datastore}}", "sum by (datastore) (stoker_datastore_tenant_keys_sum{"+of+"})"), stacked),
			bars("Largest tenants", "The ten schemas with the most bytes.", unitBytes, 12,
				query("{{datastore}} {{schema}}", "topk(10, max by (datastore, schema) (stoker_datastore_schema_bytes{"+of+"}))")),
			bars("Size of tenants", "Half of the tenants hold less than p50, nine in ten less than p90.", unitBytes, 12,
				query("{{datastore}} p50", "histogram_quantile(0.5, sum by (datastore, le) (stoker_datastore_tenant_bytes_bucket{"+of+"}))"),
				query("{{datastore}} p90", "histogram_quantile(0.9, sum by (datastore, le) (stoker_datastore_tenant_bytes_bucket{"+of+"}))")),
		}},
		row{"Backups", []*Panel{
			graph("Backups", "Backups that were made, and tries that failed, in the last hour, of tenants in any DataStore.", unitShort, 12,
				query("{{result}}", "sum by (result) (increase(stoker_datastore_backups_total[1h]))")),
			graph("Tenants whose backup fails", "Tenants whose last backup could not be made. It is tried again, once an hour at least.", unitShort, 12,
				query("tenants", "sum(stoker_datastore_backups_failing)"), runbook("StokerBackupsFailing")),
		}},
	)
}
