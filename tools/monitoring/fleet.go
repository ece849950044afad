package monitoring

// percentile of a histogram over the last interval, by labels beside le, of what a selector picks.
func percentile(q, histogram, by, selector string) string {
	if by != "" {
		by += ", "
	}
	if selector != "" {
		selector = "{" + selector + "}"
	}
	return "histogram_quantile(" + q + ", sum by (" + by + "le) (rate(" + histogram + "_bucket" + selector + "[$__rate_interval])))"
}

// meanSteps is the mean time to each step on the way to Ready.
const meanSteps = `sum by (step) (rate(stoker_time_to_step_seconds_sum[$__rate_interval]))
/ sum by (step) (rate(stoker_time_to_step_seconds_count[$__rate_interval]))`

// red is a number that should be nought.
func red() option { return colors("green", 1, "red") }

// tenantsByName joins what a tenant is with how it is. Both have a series per tenant only with --tenant-metrics.
const tenantsByName = `max by (tcp_namespace, tcp_name, kubernetes_version, datastore_driver, address) (kamaji_tenant_control_plane_info)
* on (tcp_namespace, tcp_name) group_left (status, ready)
max by (tcp_namespace, tcp_name, status, ready) (kamaji_tenant_control_plane_status)`

// fleet is how all tenants are.
func fleet() *Dashboard {
	return dashboard("stoker-fleet", "Stoker / Fleet", "How all tenants are, and how fast they become Ready.", nil,
		row{"Now", []*Panel{
			stat("Tenants", "All tenants, whatever their phase.", unitShort, 4, query("", "sum(stoker_tenants) or vector(0)")),
			stat("Ready", "Tenants whose API is as their last accepted generation asks.", unitShort, 4,
				query("", `sum(kamaji_tenant_control_planes_current{ready="true"})`), colors("green")),
			stat("Longest not Ready",
				"How long the tenant has not been Ready that has not been for the longest. Paused, sleeping and deleted ones don't count.",
				unitS, 4, query("", "max(stoker_tenant_longest_not_ready_seconds)"), colors("green", 180, "orange", 600, "red"), digits(0),
				runbook("StokerTenantNotReady")),
			stat("Dead letters", "Events that were given up, until somebody drops them.", unitShort, 4,
				query("", "max(stoker_dead_letters_held)"), red(), runbook("StokerDeadLetters")),
			stat("First certificate ends in", "When the first of all certificates ends. They are renewed when a third of their life is left.",
				unitS, 4,
				query("", "min(stoker_certificate_soonest_expiry_timestamp_seconds) - time()"), colors("red", 30*86400, "green"), digits(0),
				runbook("StokerCertificateExpiring")),
			stat("Alerts", "Alerts of Stoker that fire.", unitShort, 4,
				query("", `count(ALERTS{alertname=~"Stoker.+", alertstate="firing"}) or vector(0)`), red()),
		}},
		row{"Tenants", []*Panel{
			graph("Tenants by phase", "Where tenants stand.", unitShort, 12,
				query("{{phase}}", "sum by (phase) (stoker_tenants)"), stacked),
			graph("Time to Ready",
				"From the acceptance of a generation to Ready: half of the tenants take less than p50, nine in ten less than p90.", unitS, 12,
				query("p50", percentile("0.5", "stoker_time_to_ready_seconds", "", "")),
				query("p90", percentile("0.9", "stoker_time_to_ready_seconds", "", "")),
				colors("transparent", 180, "red"), runbook("StokerProvisioningSlow")),
			graph("Time to each step",
				"Mean time from the acceptance of a generation to the steps on its way to Ready. The longest step is where to look.", unitS, 12,
				query("{{step}}", meanSteps)),
			graph("Rollouts", "Tenants whose pods are being rolled out, and those that wait for a place among them.", unitShort, 12,
				query("going on", "sum(stoker_workload_rollouts)"), query("waiting", "sum(stoker_workload_rollouts_waiting)")),
			graph("Commands", "Commands that were taken, by what became of their turn.", unitOps, 12,
				query("{{result}}", `sum by (result) (rate(stoker_events_total{type="command"}[$__rate_interval]))`)),
			bars("Certificates", "Certificates by their state: valid, expiring within a day, or expired.", unitShort, 12,
				query("{{status}}", "sum by (status) (stoker_certificates)")),
		}},
		row{"Each tenant", []*Panel{
			table("Tenants", "Needs the flag --tenant-metrics of status. A name leads to the tenant's own dashboard.", width, 10, tenantsByName,
				[]column{
					{"tcp_namespace", "Namespace"}, {"tcp_name", "Name"}, {"status", "Status"}, {"ready", "Ready"},
					{"kubernetes_version", "Version"}, {"datastore_driver", "Database"}, {"address", "Address"},
				},
				linked("Name", "Show the tenant",
					"/d/stoker-tenant?var-datasource=${datasource}&var-namespace=${__data.fields.Namespace}&var-tenant=${__data.fields.Name}")),
		}},
	)
}

// tenant is one of them.
func tenant() *Dashboard {
	const of = `tcp_namespace="$namespace", tcp_name="$tenant"`
	return dashboard("stoker-tenant", "Stoker / Tenant",
		"One tenant. Needs the flag --tenant-metrics of status and certs. What a tenant waits for and why is not a number: `stoker why` says it.",
		[]Variable{
			choose("namespace", "Namespace", "label_values(kamaji_tenant_control_plane_status, tcp_namespace)", false),
			choose("tenant", "Tenant", `label_values(kamaji_tenant_control_plane_status{tcp_namespace="$namespace"}, tcp_name)`, false),
		},
		row{"$namespace/$tenant", []*Panel{
			stat("Ready", "Whether its API is as its last accepted generation asks.", unitShort, 6,
				query("", `max(kamaji_tenant_control_plane_status{`+of+`, ready="true"}) or vector(0)`), colors("red", 1, "green"),
				words(map[string][2]string{"0": {"not Ready", "red"}, "1": {"Ready", "green"}}), runbook("StokerTenantNotReady")),
			stat("First certificate ends in", "When the first certificate of the tenant ends.", unitS, 6,
				query("", "min(stoker_tenant_certificate_expiry_timestamp_seconds{"+of+"}) - time()"), colors("red", 30*86400, "green"),
				digits(0),
				runbook("StokerCertificateExpiring")),
			table("What it is", "Version, database and address.", 12, 4,
				"max by (kubernetes_version, datastore_driver, exposure_strategy, address) (kamaji_tenant_control_plane_info{"+of+"})",
				[]column{
					{"kubernetes_version", "Version"}, {"datastore_driver", "Database"}, {"exposure_strategy", "Exposed by"}, {"address", "Address"},
				}),
			graph("Status", "Its status over time.", unitShort, 16,
				query("{{status}}", "max by (status) (kamaji_tenant_control_plane_status{"+of+"})"), stacked, most(1)),
			bars("Certificates", "Its certificates, by their state and by whether they are in a Secret of their own (x509) or in a kubeconfig.",
				unitShort, 8,
				query("{{status}} {{strategy}}", "sum by (status, strategy) (kamaji_certificates_current{"+of+"})")),
		}},
		row{"What all tenants share", []*Panel{
			graph("Time to Ready", "Of all tenants: half of them take less than p50, nine in ten less than p90.", unitS, 8,
				query("p50", percentile("0.5", "stoker_time_to_ready_seconds", "", "")),
				query("p90", percentile("0.9", "stoker_time_to_ready_seconds", "", "")),
				runbook("StokerProvisioningSlow")),
			graph("Answers of tenants' APIs", "Requests of Stoker to the API servers of all tenants, by code; 0 is no answer.", unitOps, 8,
				query("{{code}}", `sum by (code) (rate(stoker_api_requests_total{cluster="tenant"}[$__rate_interval]))`)),
			graph("Tenants that somebody changes", "Tenants of which somebody else changes objects again and again.", unitShort, 8,
				query("{{service}}", "sum by (service) (stoker_tenants_drifting)")),
		}},
	)
}
