// Package why explains a tenant to people: where each service stands with it, and what can be done. What can be done comes from
// the table of reasons (pkg/api/reason); sentences of services are printed and never read.
package why

import (
	"cmp"
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
	"time"

	"k8s.io/apimachinery/pkg/util/duration"

	"github.com/stoker-k8s/stoker/cmd/stoker/internal/printable"
	"github.com/stoker-k8s/stoker/pkg/api/event"
	"github.com/stoker-k8s/stoker/pkg/api/name"
	"github.com/stoker-k8s/stoker/pkg/api/state"
)

// Explain writes what services say about a tenant, and how to go on, as it is at a time.
func Explain(w io.Writer, r event.WhyReply, now time.Time) error {
	var b strings.Builder
	phase := cmp.Or(r.Phase, "new")
	if r.Ready && phase != "Ready" {
		phase += ", and Ready"
	}
	fmt.Fprintf(&b, "%s/%s is %s", printable.Line(r.Namespace), printable.Line(r.Name), printable.Line(phase))
	if r.Message != "" {
		fmt.Fprintf(&b, ": %s", printable.Line(r.Message))
	}
	fmt.Fprintf(&b, "\ngeneration %d", r.Generation)
	if !r.AcceptedAt.IsZero() {
		fmt.Fprintf(&b, ", accepted %s ago", age(now, r.AcceptedAt))
	}
	b.WriteString("\n\n")

	t := tabwriter.NewWriter(&b, 0, 0, 2, ' ', 0)
	for _, s := range r.Services {
		since := ""
		if !s.Since.IsZero() {
			since = age(now, s.Since) + " ago"
		}
		// It writes into b, which never fails.
		_, _ = fmt.Fprintf(t, "  %s\t%s\t%s\t%s\n",
			printable.Line(s.Service), printable.Line(cmp.Or(s.Step, "-")), since, printable.Line(standing(s, r.Generation, now)))
	}
	if err := t.Flush(); err != nil {
		return err
	}
	notes(&b, r, now)
	b.WriteString("\nHow to go on\n")
	for _, line := range advice(r, now) {
		fmt.Fprintf(&b, "  - %s\n", printable.Line(line))
	}
	// Cells that are empty at the end of a line leave blanks.
	lines := strings.Split(b.String(), "\n")
	for i := range lines {
		lines[i] = strings.TrimRight(lines[i], " ")
	}
	_, err := io.WriteString(w, strings.Join(lines, "\n"))
	return err
}

// notes writes what else is worth knowing about a tenant.
func notes(b *strings.Builder, r event.WhyReply, now time.Time) {
	for _, d := range r.DataStores {
		is := "is not ready"
		if d.Ready {
			is = "is ready"
		}
		fmt.Fprintf(b, "\nDataStore %s %s: %s", printable.Line(d.Name), is, printable.Line(d.Reason))
		if d.Message != "" {
			fmt.Fprintf(b, ": %s", printable.Line(d.Message))
		}
		b.WriteString("\n")
	}
	for _, a := range r.TenantAddons {
		fmt.Fprintf(b, "\nTenantAddon %s/%s: %s\n", printable.Line(a.Namespace), printable.Line(a.Name), printable.Line(a.Reason))
	}
	if a := r.ArgoCD; a != nil {
		fmt.Fprintf(b, "\nArgo CD %s", printable.Line(a.Reason))
		if !a.Since.IsZero() {
			fmt.Fprintf(b, " for %s", age(now, a.Since))
		}
		if a.Message != "" {
			fmt.Fprintf(b, ": %s", printable.Line(a.Message))
		}
		b.WriteString("\n")
	}
	if r.Backup != nil {
		fmt.Fprintf(b, "\nBackup %s\n", printable.Line(backups(*r.Backup, now)))
	}
	if r.Usage != nil {
		fmt.Fprintf(b, "\nQuota %s\n", printable.Line(quota(*r.Usage, now)))
	}
}

// quota says in words how near to its quota a tenant is.
func quota(u state.Usage, now time.Time) string {
	is := map[string]string{state.QuotaWithin: "is not near", state.QuotaNear: "is near", state.QuotaFull: "is reached, what would grow the tenant is refused"}[u.Level]
	return is + ", found " + age(now, u.Since) + " ago: " + u.Words() + " were used"
}

// backups says in words what became of a tenant's backups.
func backups(b state.Backup, now time.Time) string {
	var is []string
	if f := b.Failure; f != nil {
		is = append(is, fmt.Sprintf("fails for %s%s: %s", age(now, f.Since), retry(f.Next, now), f.Message))
	}
	if m := b.Making; m != nil {
		is = append(is, fmt.Sprintf("being made for %s: %s of about %s keys", age(now, m.Since), name.Count(m.Keys), name.Count(m.Of)))
	}
	if m := b.Last; m != nil {
		is = append(is, fmt.Sprintf("made %s ago: %s in %s", age(now, m.At), m.ID, m.Location))
	}
	return strings.Join(is, "; ")
}

// retry says when what was given up is tried again; nothing when that isn't known.
func retry(at, now time.Time) string {
	switch {
	case at.IsZero():
		return ""
	case !at.After(now):
		return ", tries again soon"
	}
	return ", tries again in " + age(at, now)
}

// standing says in words where one service stands; nothing when it is done with the tenant's generation.
func standing(s event.ServiceState, generation int64, now time.Time) string {
	switch {
	case s.Failure != nil && s.Failure.Permanent:
		return fmt.Sprintf("gave up after %d attempts%s: %s: %s", s.Failure.Attempts, retry(s.Failure.RetryAt, now), s.Failure.Reason, s.Failure.Message)
	case s.Failure != nil:
		attempt := ""
		if s.Failure.Attempts > 0 { // else it isn't a step that is repeated, but something that lasts
			attempt = fmt.Sprintf(" (attempt %d)", s.Failure.Attempts)
		}
		return fmt.Sprintf("fails and tries again%s: %s: %s", attempt, s.Failure.Reason, s.Failure.Message)
	case s.Wait.Waits():
		return "waits for " + s.Wait.Text
	case s.Step == "" && s.Since.IsZero():
		return "has not come to this tenant yet"
	case behind(s, generation):
		return fmt.Sprintf("is still at generation %d", s.Generation)
	}
	return ""
}

// age is a duration up to now, for people; never negative.
func age(now, then time.Time) string { return duration.HumanDuration(max(now.Sub(then), 0)) }
