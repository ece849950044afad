package main

// stoker version.

import (
	"github.com/spf13/cobra"

	"github.com/stoker-k8s/stoker/pkg/version"
)

func versionCommand(a *app) *cobra.Command {
	var format string
	c := &cobra.Command{
		Use:   "version",
		Short: "Print which build of Stoker this is",
		Example: `  stoker version
  stoker version -o json`,
		Args: cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			switch format {
			case "", "json", "yaml":
			default:
				return usagef("-o %s: must be json or yaml", format)
			}
			info := version.Get()
			return write(a.out, format, info, nil, func(bool) [][]string { return [][]string{{"stoker " + info.String()}} })
		},
	}
	c.Flags().StringVarP(&format, "output", "o", "", "json or yaml; without it, a line for a person")
	return c
}
