package main

// stoker plan: what a change of a tenant would come to, before it is made.

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"

	"github.com/stoker-k8s/stoker/cmd/stoker/internal/follow"
	"github.com/stoker-k8s/stoker/pkg/api/event"
	"github.com/stoker-k8s/stoker/pkg/events"
)

func planCommand(a *app) *cobra.Command {
	var version, format string
	var files []string
	c := &cobra.Command{
		Use:   "plan (NAME --version VERSION | -f FILE)",
		Short: "Say what a change of a tenant would come to, without making it",
		Long: `plan asks what another version of Kubernetes, or a changed object, would mean for a tenant: whether the API server accepts it, whether
pods are replaced, and what is against it: DataStores that are not well, kubelets too old for the version, deprecated APIs in use that
it no longer serves. Nothing is changed. Inside a tenant that sleeps nothing can be looked at; that blocks nothing.

Exit code 4: something is against the change.`,
		Example: `  stoker plan demo --version v1.36.3
  stoker plan -f tenant.yaml -o json`,
		Args: cobra.MaximumNArgs(1), ValidArgsFunction: a.complete,
		RunE: func(cmd *cobra.Command, args []string) error {
			if format != "" && format != "json" && format != "yaml" {
				return usagef("-o %s: must be json or yaml", format)
			}
			key, q, err := a.planned(args, version, files)
			if err != nil {
				return err
			}
			return a.plan(cmd.Context(), key, q, format)
		},
	}
	c.Flags().StringVar(&version, "version", "", "`version` of Kubernetes that the tenant would have")
	c.Flags().StringSliceVarP(&files, "filename", "f", nil, "`file` with the tenant's object as it would be applied, - for standard input")
	c.Flags().StringVarP(&format, "output", "o", "", "json or yaml for programs")
	return c
}

// planned is the tenant and the change that the command line names.
func (a *app) planned(args []string, version string, files []string) (events.Key, event.PlanQuery, error) {
	if len(files) > 0 {
		if len(args) > 0 || version != "" {
			return events.Key{}, event.PlanQuery{}, usagef("-f has the tenant and all of its change: name neither NAME nor --version beside it")
		}
		objects, err := read(files, a)
		switch {
		case err != nil:
			return events.Key{}, event.PlanQuery{}, err
		case len(objects) != 1 || !objects[0].Key.IsTenant():
			return events.Key{}, event.PlanQuery{}, usagef("-f must have one TenantControlPlane and nothing else")
		}
		return objects[0].Key, event.PlanQuery{Apply: objects[0].Data}, nil
	}
	if len(args) != 1 || version == "" {
		return events.Key{}, event.PlanQuery{}, usagef("name a tenant and its --version, or a file with -f FILE")
	}
	key, err := a.tenant(args[0])
	spec := map[string]any{"kubernetes": map[string]any{"version": version}}
	return key, event.PlanQuery{Spec: event.Marshal(spec)}, err
}

func (a *app) plan(ctx context.Context, key events.Key, q event.PlanQuery, format string) error {
	bus, err := a.bus(ctx)
	if err != nil {
		return err
	}
	defer bus.Close()
	p, err := follow.Plan(ctx, bus, key, q)
	if errors.Is(err, follow.ErrNoTenant) {
		return fmt.Errorf("%w; `stoker get` lists those there are", err)
	}
	if err != nil {
		return err
	}
	if err := showPlan(a.out, p, format); err != nil {
		return err
	}
	if p.Blocked {
		return errBlocked
	}
	return nil
}

// showPlan writes a plan for a person, or for programs.
func showPlan(w io.Writer, p event.PlanReply, format string) error {
	if format == "" {
		if _, err := io.WriteString(w, headOf(p)); err != nil {
			return err
		}
	}
	return write(w, format, event.Marshal(p), nil, func(bool) [][]string {
		rows := [][]string{{"CHECK", "VERDICT", "REASON", "MESSAGE"}}
		for _, c := range p.Checks {
			rows = append(rows, []string{c.Check, c.Verdict, dash(c.Reason), c.Message})
		}
		return rows
	})
}

// headOf says in one line what the plan is about.
func headOf(p event.PlanReply) string {
	var versions string
	switch {
	case p.From == "":
		versions = p.To + ", new"
	case p.From == p.To || p.To == "":
		versions = p.From
	default:
		versions = p.From + " to " + p.To
	}
	if n := len(p.Steps); n > 1 {
		versions += " through " + strings.Join(p.Steps[:n-1], " and ")
	}
	return strings.TrimSuffix(fmt.Sprintf("tenant %s/%s: %s", p.Namespace, p.Name, versions), ": ") + "\n"
}
