package events_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/stoker-k8s/stoker/pkg/api/event"
	"github.com/stoker-k8s/stoker/pkg/api/name"
	"github.com/stoker-k8s/stoker/pkg/events"
)

// covers reports whether one of some patterns, with wildcards as NATS has them, is of a subject.
func covers(patterns []string, subject string) bool {
	return slices.ContainsFunc(patterns, func(pattern string) bool {
		of := strings.Split(subject, ".")
		for i, token := range strings.Split(pattern, ".") {
			if token == ">" {
				return len(of) > i
			}
			if i >= len(of) || token != "*" && token != of[i] {
				return false
			}
		}
		return strings.Count(pattern, ".") == len(of)-1
	})
}

// TestWhoMayPublishAndHearWhat lists for each kind of subject those who may. That servers keep to it is what the tests of accounts show.
func TestWhoMayPublishAndHearWhat(t *testing.T) {
	key := events.Tenant("default", "demo")
	state := "$KV." + key.Bucket() + "."
	direct := func(subject string) string { return "$JS.API.DIRECT.GET.KV_" + key.Bucket() + "." + subject }
	fact := func(service, what string) string {
		return "$JS.API.DIRECT.GET." + events.StreamFacts + "." + key.FactSubject(service, what)
	}
	const (
		services = "addons capi certs datastore intake status tenantaddons workload"
		all      = "addons capi certs datastore intake operator status tenantaddons workload"
		leader   = "$JS.API.STREAM.MSG.GET."
		consumer = "$JS.API.CONSUMER."
		elected  = "$JS.EVENT.ADVISORY.CONSUMER.LEADER_ELECTED."
		deleted  = "$JS.EVENT.ADVISORY.STREAM.DELETED."
		pinned   = "$JS.EVENT.ADVISORY.CONSUMER.PINNED."
	)
	users := append(name.Services(), events.UserOperator)
	slices.Sort(users)
	for way, subjects := range map[string]map[string]string{
		"publishes": {
			key.FactSubject("certs", event.Issued): "certs",
			key.TimerSubject("certs", "due"):       "certs",
			key.DeadSubject("certs"):               "certs",
			key.StatusSubject():                    "status",
			key.AnswerSubject("x"):                 "intake",
			key.CommandSubject():                   "intake operator",
			event.QueryOrphans:                     "operator",
			event.QueryMove:                        "operator",
			event.QueryBackup:                      "operator",
			event.QueryDeadReplay:                  "operator",
			event.QueryPartitions:                  "operator",
			event.QueryResync:                      "operator",
			key.PlanSubject():                      "operator",
			key.JoinSubject():                      "",
			event.QueryPods:                        "intake",
			event.QueryInside:                      "intake",
			events.ReplicaSubject("certs"):         "intake",
			"stoker.replay.certs.3.default.demo":   "intake",
			"stoker.status.why":                    "operator",
			"$SRV.PING":                            "operator",

			"$KV." + events.BucketLeases + ".certs.x":        "certs",
			"$KV." + events.BucketCommands + ".x":            "intake",
			state + "spec":                                   "intake",
			state + "certs":                                  "certs",
			direct(state + "spec"):                           all,
			direct(state + "certs"):                          "addons certs operator status tenantaddons workload",
			direct(state + "datastore"):                      "capi certs datastore operator status workload",
			direct(state + "workload"):                       "addons certs datastore operator status tenantaddons workload",
			direct(state + "addons"):                         "addons certs operator status tenantaddons",
			direct(state + "status"):                         "operator status",
			direct(state + "capi"):                           "capi operator status",
			state + "capi":                                   "capi",
			direct(state + "tenantaddons"):                   "operator status tenantaddons",
			state + "tenantaddons":                           "tenantaddons",
			key.FactSubject("capi", event.Initialized):       "capi",
			key.FactSubject("tenantaddons", event.Installed): "tenantaddons",
			fact("certs", event.Issued):                      "certs operator",
			fact("addons", event.Removed):                    "addons operator workload",
			fact("workload", event.Removed):                  "datastore operator workload",
			fact("datastore", event.Removed):                 "certs datastore operator",
			fact("certs", event.Removed):                     "certs intake operator",

			leader + "KV_" + key.Bucket():          all,
			leader + events.StreamIntake:           "intake operator",
			leader + events.StreamFacts:            "intake operator",
			leader + events.StreamStatus:           "intake operator",
			leader + events.StreamDead:             "intake operator",
			leader + "KV_" + events.BucketCommands: "intake operator",

			"$JS.API.INFO": all,
			"$JS.API.STREAM.INFO." + events.StreamFacts:              all,
			"$JS.API.STREAM.LIST":                                    "intake operator",
			"$JS.API.STREAM.CREATE.X":                                "intake",
			"$JS.API.STREAM.UPDATE.X":                                "intake",
			"$JS.API.STREAM.DELETE.X":                                "intake",
			"$JS.API.STREAM.SNAPSHOT." + events.StreamFacts:          "operator",
			"$JS.API.STREAM.RESTORE." + events.StreamFacts:           "",
			"$JS.API.STREAM.PURGE." + events.StreamFacts:             "intake",
			"$JS.API.STREAM.PURGE." + events.StreamDead:              "",
			"$JS.API.STREAM.MSG.DELETE." + events.StreamIntake:       "intake",
			"$JS.API.STREAM.MSG.DELETE." + events.StreamDead:         "intake",
			"$JS.API.STREAM.MSG.DELETE." + events.StreamFacts:        "",
			consumer + "CREATE." + events.StreamFacts + ".x":         "intake operator",
			consumer + "DURABLE.CREATE." + events.StreamFacts + ".x": "intake",
			consumer + "DELETE." + events.StreamFacts:                "intake",
			consumer + "INFO." + events.StreamFacts + ".certs-3":     "certs operator",
			consumer + "MSG.NEXT." + events.StreamFacts + ".certs-3": "certs operator",
			consumer + "UNPIN." + events.StreamFacts + ".certs-3":    "certs",
			"$JS.ACK." + events.StreamFacts + ".certs-3.1":           "certs operator",
			consumer + "INFO." + events.StreamIntake + ".intake-3":   "intake operator",
			consumer + "UNPIN." + events.StreamIntake + ".intake-3":  "intake",
			"$JS.ACK." + events.StreamIntake + ".intake-3.1":         "intake operator",
		},
		"hears": {
			key.FactSubject("certs", event.Issued):    "operator",
			key.StatusSubject():                       "operator",
			key.AnswerSubject("x"):                    "intake operator",
			event.QueryOrphans:                        "datastore operator",
			event.QueryMove:                           "datastore operator",
			event.QueryBackup:                         "datastore operator",
			event.QueryDeadReplay:                     "intake operator",
			event.QueryReplicas:                       "intake operator",
			key.PlanSubject():                         "intake operator",
			key.JoinSubject():                         "addons operator",
			event.QueryPods:                           "operator workload",
			event.QueryInside:                         "addons operator",
			events.ReplicaSubject("certs"):            "certs operator",
			events.ReplicaSubject("capi"):             "capi operator",
			events.ReplicaSubject("tenantaddons"):     "operator tenantaddons",
			"stoker.datastore.drop":                   "datastore operator",
			"stoker.status.get":                       "operator status",
			"stoker.status.why":                       "operator status",
			"$SRV.PING":                               services,
			"_INBOX_certs.x":                          "certs",
			"$KV." + events.BucketLeases + ".certs.x": "certs operator",
			state + "certs":                           "operator",
			elected + events.StreamFacts + ".x":       services,
			pinned + events.StreamFacts + ".x":        services,
			elected + events.StreamIntake + ".x":      "intake",
			pinned + events.StreamIntake + ".x":       "intake",
			deleted + events.StreamStatus:             "intake",
			deleted + events.StreamDead:               "intake",
			deleted + "KV_" + events.BucketCommands:   "intake",
			deleted + key.Bucket():                    "",
		},
	} {
		for subject, want := range subjects {
			var may []string
			for _, user := range users {
				publish, subscribe := events.Permissions(user)
				can := covers(subscribe, subject)
				if way == "publishes" {
					can = covers(publish, subject) && !covers(events.Denied(user), subject)
				}
				if can {
					may = append(may, user)
				}
			}
			if got := strings.Join(may, " "); got != want {
				t.Errorf("who %s %s: %q, not %q", way, subject, got, want)
			}
		}
	}
}

func TestEachServiceWakesWhenTheOneBeforeItHasRemovedItsPart(t *testing.T) {
	before := ""
	for _, service := range event.RemovalOrder() {
		for _, other := range event.RemovalOrder() {
			if wakes := slices.Contains(events.Readers(other, event.Removed), service); wakes != (other == before) {
				t.Errorf("%s wakes when %s has removed its part: %v", service, other, wakes)
			}
		}
		before = service
	}
}
