package follow

// Facts in words, and lines for a terminal.

import (
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/stoker-k8s/stoker/cmd/stoker/internal/printable"
	"github.com/stoker-k8s/stoker/pkg/api/event"
	"github.com/stoker-k8s/stoker/pkg/api/name"
	"github.com/stoker-k8s/stoker/pkg/api/state"
)

// tail returns the last two tokens of a fact's subject.
func tail(subject string) (service, what string) {
	rest, what := cut(subject)
	_, service = cut(rest)
	return service, what
}

func cut(subject string) (before, last string) {
	i := strings.LastIndexByte(subject, '.')
	if i < 0 {
		return "", subject
	}
	return subject[:i], subject[i+1:]
}

// words puts a payload into words; one that can't be read has none.
func words(service, what string, data []byte) (string, Mood) {
	switch service + "." + what {
	case "intake.accepted":
		return say(data, Plain, func(p event.IntakeAccepted) string {
			return join("generation "+fmt.Sprint(p.Generation), p.Version, prefix("on ", p.DataStore), map[bool]string{true: "paused"}[p.Paused])
		})
	case "intake.rejected":
		return say(data, Bad, func(p event.IntakeRejected) string { return strings.Join(Problems(p), "; ") })
	case "datastore.provisioned":
		return say(data, Plain, func(p event.DatastoreProvisioned) string {
			return fmt.Sprintf("schema %s, user %s on %s (%s)", p.Schema, p.User, p.DataStore, p.Driver)
		})
	case "datastore.checked":
		return say(data, Plain, func(p event.DatastoreChecked) string {
			return join(p.Driver, map[bool]string{true: "ready", false: "not ready"}[p.Ready], p.Reason, p.Message)
		})
	case "datastore.measured":
		return say(data, Plain, func(p event.DatastoreMeasured) string {
			return fmt.Sprintf("%s, %d keys on %s", name.Bytes(p.Bytes), p.Keys, p.DataStore)
		})
	case "certs.issued", "certs.rotated":
		return say(data, Plain, func(p event.CertsIssued) string {
			if p.NotAfter.IsZero() {
				return ""
			}
			return "valid until " + p.NotAfter.UTC().Format(time.DateOnly)
		})
	case "datastore.migrating":
		return say(data, Plain, func(p event.DatastoreMigrating) string {
			done := ""
			if p.Keys > 0 {
				v := state.Move{Keys: p.Keys, Bytes: p.Bytes, KeysPerSecond: p.KeysPerSecond, SecondsLeft: p.SecondsLeft}
				if p.Stage == state.MoveCopying {
					v.Of = p.Of
				}
				done = v.Progress()
			}
			return join(strings.Join(p.Resources, " "), p.From+" → "+p.To, p.Stage, done, p.Reason)
		})
	case "datastore.migrated":
		return say(data, Good, func(p event.DatastoreMigrated) string {
			return join(strings.Join(p.Resources, " "), fmt.Sprintf("%s → %s, %d keys, %d bytes, writes waited for %d ms", p.From, p.To, p.Keys, p.Bytes, p.HeldMilliseconds))
		})
	case "datastore.backedup":
		return say(data, Good, func(p event.DatastoreBackedUp) string {
			return fmt.Sprintf("%s in %s: %d keys, %d bytes, in %d ms", p.ID, p.Location, p.Keys, p.Bytes, p.Milliseconds)
		})
	case "datastore.notbackedup":
		return say(data, Bad, func(p event.DatastoreNotBackedUp) string {
			again := ""
			if !p.Next.IsZero() {
				again = "tried again at " + p.Next.UTC().Format(time.TimeOnly)
			}
			return join(p.Location, p.Message, again)
		})
	case "datastore.quota":
		mood := Plain
		text, _ := say(data, mood, func(p event.DatastoreQuota) string {
			if p.Level == state.QuotaFull {
				mood = Bad
			}
			u := state.Usage{Bytes: p.Bytes, Objects: p.Objects, Quota: state.Quota{Bytes: p.MaxBytes, Objects: p.MaxObjects}}
			return join(p.Level, u.Words())
		})
		return text, mood
	case "datastore.restoring":
		return say(data, Plain, func(p event.DatastoreRestoring) string {
			return p.From + " is whole; the tenant stops, to get its data"
		})
	case "datastore.notrestored":
		return say(data, Bad, func(p event.DatastoreNotRestored) string { return join(p.From, p.Message, "the tenant keeps its data") })
	case "datastore.restored":
		return say(data, Good, func(p event.DatastoreRestored) string {
			return fmt.Sprintf("%s: %d keys, %d bytes, in %d ms", p.From, p.Keys, p.Bytes, p.Milliseconds)
		})
	case "datastore.passedon":
		return say(data, Plain, func(p event.DatastorePassedOn) string {
			return fmt.Sprintf("schema %s, user %s on %s: another management cluster may take them over", p.Schema, p.User, p.DataStore)
		})
	case "workload.exposed":
		return say(data, Plain, func(p event.WorkloadExposed) string { return p.Endpoint })
	case "workload.available":
		return say(data, Plain, pods)
	case "workload.degraded":
		return say(data, Bad, pods)
	case "workload.slept":
		return say(data, Plain, func(event.WorkloadAvailable) string { return "no pod runs" })
	case "workload.called":
		return say(data, Plain, func(event.WorkloadCalled) string { return "somebody has connected" })
	case "workload.upgraded":
		return say(data, Plain, func(p event.WorkloadUpgraded) string { return p.From + " → " + p.To })
	case "addons.applied":
		return say(data, Plain, func(p event.AddonsApplied) string { return fmt.Sprintf("%d objects", p.Objects) })
	case "addons.repaired":
		return say(data, Plain, func(p event.AddonsRepaired) string { return strings.Join(p.Objects, ", ") })
	case "addons.rewritten":
		return say(data, Plain, func(p event.AddonsRewritten) string { return fmt.Sprintf("%d objects", p.Objects) })
	case "addons.idle":
		return say(data, Plain, func(p event.AddonsIdle) string { return "not used since " + p.Since.UTC().Format(time.RFC3339) })
	case "capi.initialized":
		return say(data, Good, func(p event.CAPIInitialized) string { return "cluster " + p.Cluster + " may use it" })
	case "capi.abandoned":
		return say(data, Bad, func(p event.CAPIAbandoned) string {
			return "TenantControlPlane " + p.Tenant + " is left in the cluster of Secret " + p.Secret + ": " + p.Message
		})
	case "tenantaddons.installed":
		return say(data, Good, func(p event.TenantAddonInstalled) string {
			return fmt.Sprintf("%s, release %d, %d objects", addon(p.Addon), p.HelmRevision, p.Objects)
		})
	case "tenantaddons.notinstalled":
		return say(data, Bad, func(p event.TenantAddonNotInstalled) string {
			return addon(p.Addon) + ": " + p.Reason + prefix(": ", p.Message)
		})
	case "tenantaddons.repaired":
		return say(data, Plain, func(p event.TenantAddonRepaired) string {
			more := ""
			if n := p.Count - len(p.Objects); n > 0 {
				more = fmt.Sprintf("%d more", n)
			}
			return addon(p.Addon) + ": " + join(strings.Join(p.Objects, ", "), more)
		})
	case "tenantaddons.uninstalled":
		return say(data, Plain, func(p event.TenantAddonUninstalled) string {
			return join(addon(p.Addon), map[bool]string{true: "its objects are kept"}[p.Kept])
		})
	case "tenantaddons.abandoned":
		return say(data, Bad, func(p event.TenantAddonAbandoned) string {
			return addon(p.Addon) + " is left in the tenant: " + p.Message
		})
	case "status.changed":
		var p event.StatusChanged
		if json.Unmarshal(data, &p) != nil {
			return "", Plain
		}
		mood := Plain
		switch {
		case p.Phase == "Failed":
			mood = Bad
		case p.Ready:
			mood = Good
		}
		text := p.Phase
		if p.Message != "" {
			text += ": " + p.Message
		}
		if p.SecondsToReady > 0 {
			text += fmt.Sprintf(" (%.1f s)", p.SecondsToReady)
		}
		return text, mood
	case "status.deleted":
		return say(data, Good, func(p event.StatusChanged) string {
			return join(p.Message, Counts(p.Removed), prefix("left behind: ", strings.Join(p.Left, "; ")))
		})
	}
	switch what {
	case event.Failed:
		return say(data, Bad, func(p event.StepFailed) string {
			how := "given up"
			if p.Retrying {
				how = "trying again"
			}
			if p.Attempts > 0 { // else it isn't a step that was repeated, but something that lasts
				how = fmt.Sprintf("attempt %d, %s", p.Attempts, how)
			}
			return fmt.Sprintf("%s: %s (%s)", p.Reason, p.Message, how)
		})
	case event.Removed:
		return say(data, Plain, func(p event.Removals) string {
			own := map[string]int{}
			for k, n := range p.Removed {
				if kind, ok := strings.CutPrefix(k, service+"/"); ok {
					own[kind] = n
				}
			}
			return Counts(own)
		})
	}
	return "", Plain
}

func say[T any](data []byte, mood Mood, text func(T) string) (string, Mood) {
	var p T
	if json.Unmarshal(data, &p) != nil {
		return "", mood
	}
	return text(p), mood
}

// addon names a TenantAddon, with its version if there is one.
func addon(a event.TenantAddon) string {
	return a.Namespace + "/" + a.Name + prefix(" ", a.Version)
}

func pods(p event.WorkloadAvailable) string {
	return fmt.Sprintf("%d of %d pods ready, %s", p.ReadyReplicas, p.Replicas, p.Version)
}

// Counts lists what was removed ("1 Deployment, 9 Secret").
func Counts(removed map[string]int) string {
	var parts []string
	for _, k := range slices.Sorted(maps.Keys(removed)) {
		parts = append(parts, fmt.Sprintf("%d %s", removed[k], k))
	}
	return strings.Join(parts, ", ")
}

// Problems lists what is wrong with a refused command, one line per field.
func Problems(p event.IntakeRejected) []string {
	var lines []string
	for _, e := range p.Errors {
		line := fmt.Sprintf("%s: %s: %s", cmp.Or(e.Field, "object"), e.Rule, e.Message)
		if e.Value != "" && !strings.Contains(e.Message, e.Value) {
			line += fmt.Sprintf(" (is %q)", e.Value)
		}
		lines = append(lines, line)
	}
	return lines
}

func prefix(p, s string) string {
	if s == "" {
		return ""
	}
	return p + s
}

func join(parts ...string) string {
	return strings.Join(slices.DeleteFunc(parts, func(s string) bool { return s == "" }), ", ")
}

// longest is the width of the column of facts.
var longest = len(name.ServiceDatastore + "." + event.Provisioned)

// Printer writes lines. Colour is for terminals.
type Printer struct {
	Out    io.Writer
	Colour bool
	// Prefix starts every line, to tell several tenants apart.
	Prefix string
}

// Print writes one line: seconds since acceptance, fact, words.
func (p Printer) Print(l Line) {
	since := "        "
	if l.Since >= 0 {
		since = fmt.Sprintf("%8s", fmt.Sprintf("+%.3fs", l.Since.Seconds()))
	}
	fact := fmt.Sprintf("%-*s", longest, printable.Line(l.Service+"."+l.What))
	if p.Colour {
		since = "\x1b[2m" + since + "\x1b[0m"
		switch l.Mood {
		case Good:
			fact = "\x1b[32m" + fact + "\x1b[0m"
		case Bad:
			fact = "\x1b[31m" + fact + "\x1b[0m"
		case Plain:
		}
	}
	// A terminal that went away is noticed by the command's end.
	_, _ = fmt.Fprintln(p.Out, strings.TrimRight(printable.Line(p.Prefix)+since+"  "+fact+"  "+printable.Line(l.Text), " "))
}
