package main

// stoker why: what a tenant waits for, from what the services keep about it.

import (
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/stoker-k8s/stoker/cmd/stoker/internal/follow"
	"github.com/stoker-k8s/stoker/cmd/stoker/internal/why"
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
				return fmt.Errorf("%w; `stoker get` lists those there are, `stoker watch %s -n %s --since 24h` shows what happened",
					err, key.Name, key.Namespace)
			}
			if err != nil {
				return err
			}
			if output == "json" {
				e := json.NewEncoder(a.out)
				e.SetIndent("", "  ")
				return e.Encode(w)
			}
			return why.Explain(a.out, w, time.Now())
		},
	}
	c.Flags().StringVarP(&output, "output", "o", "", "json for programs")
	return c
}
