package main

// stoker why: what a tenant waits for, from what the services keep about it.

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/duration"

	"github.com/stoker-k8s/stoker/cmd/stoker/internal/follow"
	"github.com/stoker-k8s/stoker/pkg/api/event"
	"github.com/stoker-k8s/stoker/pkg/api/name"
	"github.com/stoker-k8s/stoker/pkg/api/v1alpha1"
)

func whyCommand(a *app) *cobra.Command {
	var output string
	c := &cobra.Command{
		Use:   "why NAME",
		Short: "Explain where a tenant stands and what it waits for",
		Long: `why asks the status service where each service stands with a tenant: what it did last, what it waits for, what went
wrong, and how to go on.`,
		Example: `  stoker why demo
  stoker why demo -o json`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if output != "" && output != "json" {
				return usagef("-o %s: must be json", output)
			}
			key, err := a.tenant(args[0])
			if err != nil {
				return err
			}
			bus, err := a.bus(cmd.Context())
			if err != nil {
				return err
			}
			defer bus.Close()
			w, err := follow.Why(cmd.Context(), bus, key)
			if errors.Is(err, follow.ErrNoTenant) {
				return fmt.Errorf("%w; `stoker get` lists those there are, `stoker watch %s -n %s --since 24h` shows what happened", err, key.Name, key.Namespace)
			}
			if err != nil {
				return err
			}
			if output == "json" {
				e := json.NewEncoder(a.out)
				e.SetIndent("", "  ")
				return e.Encode(w)
			}
			return explain(a.out, w, time.Now())
		},
	}
	c.Flags().StringVarP(&output, "output", "o", "", "json for programs")
	return c
}

// explain writes an answer for people.
func explain(w io.Writer, r event.WhyReply, now time.Time) error {
	var b strings.Builder
	state := cmp.Or(r.Phase, "new")
	if r.Ready && state != "Ready" {
		state += ", and Ready"
	}
	fmt.Fprintf(&b, "%s/%s is %s", r.Namespace, r.Name, state)
	if r.Message != "" {
		fmt.Fprintf(&b, ": %s", r.Message)
	}
	fmt.Fprintf(&b, "\ngeneration %d", r.Generation)
	if !r.AcceptedAt.IsZero() {
		fmt.Fprintf(&b, ", accepted %s ago", ago(now, r.AcceptedAt))
	}
	b.WriteString("\n\n")

	t := tabwriter.NewWriter(&b, 0, 0, 2, ' ', 0)
	for _, s := range r.Services {
		since := ""
		if !s.Since.IsZero() {
			since = ago(now, s.Since) + " ago"
		}
		// It writes into b, which never fails.
		_, _ = fmt.Fprintf(t, "  %s\t%s\t%s\t%s\n", s.Service, cmp.Or(s.Step, "-"), since, stands(s, r))
	}
	if err := t.Flush(); err != nil {
		return err
	}
	if advice := advise(r, now); len(advice) > 0 {
		b.WriteString("\nHow to go on\n")
		for _, line := range advice {
			fmt.Fprintf(&b, "  - %s\n", line)
		}
	}
	// Cells that are empty at the end of a line leave blanks.
	lines := strings.Split(b.String(), "\n")
	for i := range lines {
		lines[i] = strings.TrimRight(lines[i], " ")
	}
	_, err := io.WriteString(w, strings.Join(lines, "\n"))
	return err
}

// stands says where one service stands.
func stands(s event.ServiceState, r event.WhyReply) string {
	switch {
	case s.Failure != nil && s.Failure.Permanent:
		return fmt.Sprintf("gave up after %d attempts: %s: %s", s.Failure.Attempts, s.Failure.Reason, s.Failure.Message)
	case s.Failure != nil:
		attempt := ""
		if s.Failure.Attempts > 0 { // else it isn't a step that is repeated, but something that lasts
			attempt = fmt.Sprintf(" (attempt %d)", s.Failure.Attempts)
		}
		return fmt.Sprintf("fails and tries again%s: %s: %s", attempt, s.Failure.Reason, s.Failure.Message)
	case s.Waiting != "":
		return "waits for " + strings.TrimPrefix(s.Waiting, "waits for ")
	case s.Step == "" && s.Since.IsZero():
		return "has not come to this tenant yet"
	case s.Generation < r.Generation:
		return fmt.Sprintf("is still at generation %d", s.Generation)
	}
	return ""
}

// silent is how long a service may take to come to a tenant before it is taken for absent.
const silent = 30 * time.Second

// advise says what a person can do.
func advise(r event.WhyReply, now time.Time) []string {
	var lines []string
	if r.Paused {
		end := "somebody resumes it"
		if !r.PausedUntil.IsZero() {
			end = r.PausedUntil.UTC().Format(time.RFC3339)
		}
		lines = append(lines, "The tenant is paused: nothing changes until "+end+". To resume it:", fmt.Sprintf("stoker resume %s -n %s", r.Name, r.Namespace))
	}
	working := false
	for _, s := range r.Services {
		working = working || s.Waiting != "" || s.Generation < r.Generation
		can := hint(s, r)
		switch {
		case s.Failure != nil && s.Failure.Permanent:
			lines = append(lines, fmt.Sprintf("%s can't go on by itself: put right what its message names, then apply the tenant again.", s.Service))
		case len(can) > 0:
			lines = append(lines, can...)
		case s.Failure != nil:
			lines = append(lines, fmt.Sprintf("%s tries again by itself; if it doesn't end, put right what its message names.", s.Service))
		case s.Since.IsZero() && !r.Paused && !r.Ready && !r.AcceptedAt.IsZero() && now.Sub(r.AcceptedAt) > silent:
			lines = append(lines, fmt.Sprintf("%s says nothing: does it run? Its /readyz tells what it misses.", s.Service))
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

// hints are what can be done about pods that don't become ready, by words of the cause, the first that fits. What follows
// is run to know more.
var hints = []struct {
	words []string
	do    string
	run   string
}{
	{
		[]string{"ErrImagePull", "InvalidImageName", "ErrImageNeverPull"},
		"An image can't be had: is there such a version (spec.kubernetes.version), and do nodes reach the registry " +
			"(spec.controlPlane.deployment.registrySettings)? Put it right and apply the tenant again; a registry that comes back is noticed.",
		"",
	},
	{[]string{"Unschedulable"}, "No node takes the pods: make room, or change resources, nodeSelector, affinity or tolerations under spec.controlPlane.deployment.", "get nodes"},
	{[]string{"OOMKilled"}, "A container needs more memory: raise its limit under spec.controlPlane.deployment.resources and apply the tenant again.", ""},
	{[]string{"CrashLoopBackOff", "Crashes: "}, "A container crashes; what it said last:", "-n {namespace} logs -l {selector} --all-containers --prefix --previous --ignore-errors --tail=20"},
	{[]string{" probe "}, "A container runs, but doesn't answer; what it says:", "-n {namespace} logs -l {selector} --all-containers --prefix --tail=20"},
	{[]string{" its pods to be ready (", "is not ready after"}, "What the pods wait for, if it lasts:", "-n {namespace} describe pods -l {selector}"},
}

// hint says what can be done about pods that don't become ready, once workload has said why.
func hint(s event.ServiceState, r event.WhyReply) []string {
	cause := s.Waiting
	if s.Failure != nil {
		cause = s.Failure.Reason + ": " + s.Failure.Message
	}
	_, _, said := strings.Cut(cause, "): ") // after the number of pods
	if s.Service != name.ServiceWorkload || s.Failure == nil && !said {
		return nil
	}
	for _, h := range hints {
		if !slices.ContainsFunc(h.words, func(word string) bool { return strings.Contains(cause, word) }) {
			continue
		}
		lines := []string{h.do}
		if h.run != "" {
			run := strings.NewReplacer("{namespace}", r.Namespace, "{selector}", labels.FormatLabels(name.Selector(r.Name))).Replace(h.run)
			lines = append(lines, "kubectl "+run)
		}
		return lines
	}
	return nil
}

func ago(now, then time.Time) string { return duration.HumanDuration(max(now.Sub(then), 0)) }
