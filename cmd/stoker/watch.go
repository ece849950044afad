package main

// stoker watch: a tenant's facts as they happen.

import (
	"encoding/json"
	"time"

	"github.com/spf13/cobra"

	"github.com/stoker-k8s/stoker/cmd/stoker/internal/follow"
)

func watchCommand(a *app) *cobra.Command {
	var since time.Duration
	var output string
	c := &cobra.Command{
		Use:   "watch NAME",
		Short: "Show what happens to a tenant, as it happens",
		Long: `watch prints every fact about a tenant with the seconds since its last change was accepted, until Ctrl-C. The stream of
facts keeps 30 days.`,
		Example: `  stoker watch demo

  # What happened in the last hour, and go on
  stoker watch demo --since 1h

  # As CloudEvents, one JSON object per line
  stoker watch demo --since 24h -o json`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if output != "" && output != "json" {
				return usagef("-o %s: must be json", output)
			}
			if since < 0 {
				return usagef("--since %s: must not be negative", since)
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
			o := follow.Options{}
			if since > 0 {
				o.From = time.Now().Add(-since)
			}
			out := a.printer("").Print
			if output == "json" {
				lines := json.NewEncoder(a.out)
				out = func(l follow.Line) { _ = lines.Encode(l.Event) }
			}
			return follow.Facts(cmd.Context(), bus, key, o, out)
		},
	}
	c.Flags().DurationVar(&since, "since", 0, "show the history of this `duration` too (1h30m)")
	c.Flags().StringVarP(&output, "output", "o", "", "json for CloudEvents, one per line")
	return c
}
