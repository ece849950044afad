package main

// stoker portal: who may order tenants over NATS.

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/spf13/cobra"

	"github.com/stoker-k8s/stoker/internal/natsusers"
	"github.com/stoker-k8s/stoker/pkg/events"
)

func portalCommand(a *app) *cobra.Command {
	var dir string
	c := &cobra.Command{
		Use:     "portal",
		Aliases: []string{"portals"},
		Short:   "Add, list and remove portals: who orders tenants over NATS",
		Long: `A portal has a NATS account of its own. It sends commands for tenants of the namespaces it was given, hears the answers to them and
reads the statuses of those tenants; it sees nothing of other portals. Portals that share a namespace hear each other's answers there.

For the local stack, changes count at once. Elsewhere, --config-dir is a directory of yours with portals.conf: put that file beside
authorization.conf on every NATS server and have the servers read it (nats-server --signal reload), twice: a server makes
the imports of an account work that it knows already.`,
		Example: `  stoker portal add shop --namespace acme
  stoker portal list
  stoker portal remove shop`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	c.PersistentFlags().StringVar(&dir, "config-dir", "",
		"`directory` of portals.conf and the portals' nkey seeds (default: the local stack's)")
	c.AddCommand(portalAddCommand(a, &dir), portalListCommand(a, &dir), portalRemoveCommand(a, &dir))
	return c
}

func portalAddCommand(a *app, dir *string) *cobra.Command {
	var p events.Portal
	c := &cobra.Command{
		Use:   "add NAME --namespace NAMESPACE",
		Short: "Add a portal and write its credentials",
		Long: `add makes an account, a user with an nkey, and the file NAME.nk with its seed: all the portal needs to connect. Whoever
has the file is the portal. For the local stack it also writes a context of the NATS command line; remove removes that again.`,
		Example: `  # Tenants of two namespaces
  stoker portal add shop --namespace acme --namespace globex

  # Tenants of a namespace, and tokens with which machines join them
  stoker portal add fleet --namespace acme --join

  # Tenants of every namespace, and DataStores
  stoker portal add admin --namespace '*' --kind datastores

  # For servers of your own
  stoker portal add shop --namespace acme --config-dir ./nats`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			portals, err := a.portals(*dir)
			if err != nil {
				return err
			}
			p.Name = args[0]
			if _, err := portals.Add(p); err != nil {
				return fmt.Errorf("portal not added: %w", err)
			}
			a.sayf(a.out, "portal %s added; its credentials, for it alone: %s\n", p.Name, portals.SeedFile(p.Name))
			if *dir == "" {
				if err := portals.WriteContext(p.Name, a.target().NATS); err != nil {
					return fmt.Errorf("portal %s is there, and the NATS command line has no context for it: %w", p.Name, err)
				}
				a.sayf(a.out, "with the NATS command line: nats --context %s\n", natsusers.ContextFile(portals.Dir, p.Name))
			}
			return a.applyPortals(cmd.Context(), *dir, portals)
		},
	}
	d := events.DefaultLimits()
	f := c.Flags()
	f.StringArrayVarP(&p.Namespaces, "namespace", "n", nil, "`namespace` whose tenants it orders, or '*' for all; can be repeated")
	f.StringArrayVar(&p.Kinds, "kind", nil,
		"`kind` without a namespace that it orders, too: datastores or kubeconfiggenerators; can be repeated")
	f.BoolVar(&p.Join, "join", false, "it may have tokens made by which machines become nodes of its tenants")
	f.IntVar(&p.Limits.Connections, "max-connections", d.Connections, "connections at a time, per server")
	f.IntVar(&p.Limits.Subscriptions, "max-subscriptions", d.Subscriptions, "subscriptions at a time")
	f.IntVar(&p.Limits.Payload, "max-payload", d.Payload, "`bytes` of a message, headers included")
	return c
}

func portalListCommand(a *app, dir *string) *cobra.Command {
	var format string
	c := &cobra.Command{
		Use:   "list",
		Short: "List portals and what they may order",
		Example: `  stoker portal list
  stoker portal list -o yaml`,
		Args: cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			if err := checkOutput(format); err != nil {
				return err
			}
			portals, err := a.portals(*dir)
			if err != nil {
				return err
			}
			all, err := portals.List()
			if err != nil {
				return err
			}
			if len(all) == 0 && forPeople(format) {
				a.sayf(a.err, "no portals; add one with `stoker portal add NAME --namespace NAMESPACE`\n")
				return nil
			}
			return a.showPortals(all, format)
		},
	}
	output(c, &format)
	return c
}

func (a *app) showPortals(all []events.Portal, format string) error {
	names := make([]string, 0, len(all))
	for _, p := range all {
		names = append(names, p.Name)
	}
	if all == nil {
		all = []events.Portal{}
	}
	return write(a.out, format, all, names, func(wide bool) [][]string {
		head := []string{"NAME", "NAMESPACES", "KINDS"}
		if wide {
			head = append(head, "JOIN", "CONNECTIONS", "SUBSCRIPTIONS", "PAYLOAD", "NKEY")
		}
		rows := [][]string{head}
		for _, p := range all {
			cells := []string{p.Name, dash(strings.Join(p.Namespaces, ",")), dash(strings.Join(p.Kinds, ","))}
			if wide {
				cells = append(cells, strconv.FormatBool(p.Join), strconv.Itoa(p.Limits.Connections), strconv.Itoa(p.Limits.Subscriptions),
					strconv.Itoa(p.Limits.Payload), p.NKey)
			}
			rows = append(rows, cells)
		}
		return rows
	})
}

func portalRemoveCommand(a *app, dir *string) *cobra.Command {
	return &cobra.Command{
		Use:     "remove NAME",
		Short:   "Remove a portal with its credentials; its tenants stay",
		Example: `  stoker portal remove shop`,
		Args:    cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			portals, err := a.portals(*dir)
			if err != nil {
				return err
			}
			err = portals.Remove(args[0])
			if errors.Is(err, natsusers.ErrNoPortal) {
				return fmt.Errorf("%w; `stoker portal list` lists those there are", err)
			}
			if err != nil {
				return err
			}
			a.sayf(a.out, "portal %s removed\n", args[0])
			return a.applyPortals(cmd.Context(), *dir, portals)
		},
	}
}

// portals are those in dir, or the local stack's.
func (a *app) portals(dir string) (natsusers.Portals, error) {
	if dir == "" {
		local := a.target().Local
		if local == "" {
			return natsusers.Portals{}, usagef("no local stack here: name the directory of portals.conf with --config-dir")
		}
		dir = filepath.Join(local, "nats")
	}
	return natsusers.Portals{Dir: dir}, nil
}

// reloadTimeout is how long the local stack's NATS server may take to read its configuration again.
const reloadTimeout = 30 * time.Second

// applyPortals has the local stack's NATS server read what was changed, or says how servers elsewhere do.
func (a *app) applyPortals(ctx context.Context, dir string, portals natsusers.Portals) error {
	if dir != "" {
		a.sayf(a.out, "put %s beside authorization.conf on every NATS server, then on each, twice: nats-server --signal reload\n",
			filepath.Join(dir, events.PortalsFile))
		return nil
	}
	nkey, err := nats.NkeyOptionFromSeed(portals.SeedFile(events.UserSystem))
	if err != nil {
		return fmt.Errorf("nkey of user %s: %w", events.UserSystem, err)
	}
	system, err := nats.Connect(a.target().NATS, nkey, nats.Timeout(reloadTimeout))
	if err != nil {
		return fmt.Errorf("written, and it counts when the local stack starts again: nats %s: %w", a.target().NATS, err)
	}
	defer system.Close()
	ctx, cancel := context.WithTimeout(ctx, reloadTimeout)
	defer cancel()
	if err := natsusers.Reload(ctx, system); err != nil {
		return fmt.Errorf("written, and it counts when the server has read its configuration: %w", err)
	}
	return nil
}
