package why

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/labels"

	"github.com/stoker-k8s/stoker/pkg/api/event"
	"github.com/stoker-k8s/stoker/pkg/api/name"
	"github.com/stoker-k8s/stoker/pkg/api/reason"
	"github.com/stoker-k8s/stoker/pkg/api/state"
	"github.com/stoker-k8s/stoker/pkg/api/tenantaddon"
	"github.com/stoker-k8s/stoker/pkg/api/v1alpha1"
)

// silent is how long a service may take to come to a tenant before it is taken for absent.
const silent = 30 * time.Second

// advice says what a person can do, in at least one line.
func advice(r event.WhyReply, now time.Time) []string {
	var lines []string
	if r.Paused {
		end := "somebody resumes it"
		if !r.PausedUntil.IsZero() {
			end = r.PausedUntil.UTC().Format(time.RFC3339)
		}
		lines = append(lines,
			"The tenant is paused: nothing changes until "+end+". To resume it:", fmt.Sprintf("stoker resume %s -n %s", r.Name, r.Namespace))
	}
	working := false
	for _, s := range r.Services {
		working = working || s.Wait.Waits() || behind(s, r.Generation)
		for _, line := range serviceAdvice(s, r, now) {
			if !slices.Contains(lines, line) { // several services may have the same reason
				lines = append(lines, line)
			}
		}
	}
	for _, d := range r.DataStores {
		if entry, known := reason.Find(d.Reason); known && entry.Do != "" && !slices.Contains(lines, entry.Do) {
			lines = append(lines, "DataStore "+d.Name+": "+entry.Do)
		}
	}
	for _, a := range r.TenantAddons {
		if !slices.Contains(underWay, a.Reason) {
			lines = append(lines, fmt.Sprintf("TenantAddon %s/%s: its AddonRelease says what is wrong:", a.Namespace, a.Name),
				fmt.Sprintf("kubectl -n %s describe addonrelease %s.%s.%s", r.Namespace, r.Name, a.Name, a.Namespace))
		}
	}
	if a := r.ArgoCD; a != nil {
		if entry, known := reason.FindCondition(a.Reason); known && entry.Do != "" {
			lines = append(lines, "Argo CD: "+entry.Do)
		}
	}
	if u := r.Usage; u != nil {
		of := map[string]string{state.QuotaNear: reason.NearQuota, state.QuotaFull: reason.QuotaFull}
		if entry, known := reason.FindCondition(of[u.Level]); known {
			lines = append(lines, entry.Do)
		}
	}
	switch {
	case len(lines) > 0:
	case r.Phase == string(v1alpha1.VersionSleeping) && !working:
		lines = append(lines, "Nothing to do: it sleeps as asked for, and wakes with spec.controlPlane.deployment.replicas above 0.")
	case r.Ready && !working:
		lines = append(lines, "Nothing to do.")
	default:
		lines = append(lines, fmt.Sprintf("Nothing to do, it is under way: stoker watch %s -n %s", r.Name, r.Namespace))
	}
	return lines
}

// underWay are the reasons of TenantAddons that nobody need do anything about.
var underWay = []string{
	tenantaddon.ReasonWaiting, tenantaddon.ReasonWaitingForAddon, tenantaddon.ReasonTenantUnavailable, tenantaddon.ReasonProgressing,
	tenantaddon.ReasonPaused, tenantaddon.ReasonDeleting,
}

// serviceAdvice says what a person can do about where one service stands; nothing when it needs nobody.
func serviceAdvice(s event.ServiceState, r event.WhyReply, now time.Time) []string {
	fill := strings.NewReplacer(
		"{service}", s.Service, "{namespace}", r.Namespace, "{name}", r.Name, "{selector}", labels.FormatLabels(name.Selector(r.Name)))
	entry, known := find(s)
	switch {
	case known && entry.Do != "":
		lines := []string{fill.Replace(entry.Do)}
		if entry.Run != "" {
			lines = append(lines, "kubectl "+fill.Replace(entry.Run))
		}
		return lines
	case s.Failure != nil && s.Failure.Permanent:
		return []string{fill.Replace(reason.AdvicePermanent)}
	case s.Failure != nil:
		return []string{fill.Replace(reason.AdviceRetried)}
	case r.Paused || r.Ready:
		return nil
	case s.Since.IsZero() && !r.AcceptedAt.IsZero() && now.Sub(r.AcceptedAt) > silent, keepsWaiting(s, r, now):
		return []string{s.Service + " says nothing: does it run? Its /readyz tells what it misses."}
	}
	return nil
}

// keepsWaiting reports whether a service has not begun to remove its part of a tenant that is being deleted, although it has been its
// turn for a while.
func keepsWaiting(s event.ServiceState, r event.WhyReply, now time.Time) bool {
	if !r.Deleting || s.Step == event.Removed || s.Wait.Waits() && s.Wait.Reason != reason.EarlierRemoval {
		return false
	}
	turn := r.AcceptedAt
	if before := event.RemovedBefore(s.Service); before != "" {
		i := slices.IndexFunc(r.Services, func(s event.ServiceState) bool { return s.Service == before })
		if i < 0 || r.Services[i].Step != event.Removed {
			return false
		}
		turn = r.Services[i].Since
	} else if s.Service != event.RemovalOrder()[0] {
		return false
	}
	return !turn.IsZero() && now.Sub(turn) > silent
}

// behind reports whether a service is still to come to a generation of the tenant. What only some tenants have, as capi's and tenantaddons' parts, is
// none of a generation's.
func behind(s event.ServiceState, generation int64) bool {
	return s.Generation < generation && !name.Optional(s.Service)
}

// find returns the row of what a service fails with or, if it doesn't, waits for. What containers say of themselves may be in no
// table: then the advice is that for pods that aren't ready.
func find(s event.ServiceState) (reason.Entry, bool) {
	cause := s.Reason
	if s.Failure != nil {
		cause = s.Failure.Reason
	} else if cause == reason.PodsNotReady {
		return reason.Entry{}, false // they are starting; the reason becomes another one if something keeps them from it
	}
	entry, known := reason.Find(cause)
	if !known && cause != "" && s.On == deployments {
		return reason.Find(reason.PodsNotReady)
	}
	return entry, known
}

// deployments is what somebody waits on who waits for pods (state.Wait).
const deployments = "Deployment"
