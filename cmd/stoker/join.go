package main

// stoker join-command: what to run on a machine that becomes a node of a tenant.

import (
	"context"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/stoker-k8s/stoker/pkg/api/event"
	"github.com/stoker-k8s/stoker/pkg/api/name"
	"github.com/stoker-k8s/stoker/pkg/join"
	"github.com/stoker-k8s/stoker/pkg/kube"
)

func joinCommand(a *app) *cobra.Command {
	var ttl time.Duration
	var format string
	c := &cobra.Command{
		Use:   "join-command NAME",
		Short: "Print the command that makes a machine a node of a tenant",
		Long: `join-command makes a bootstrap token inside a tenant and prints the "kubeadm join" to run, as root, on a machine with a container runtime,
kubelet and kubeadm of the tenant's minor version or the one before. Whoever has the token can join nodes until it ends.`,
		Example: `  stoker join-command demo
  ssh root@worker-1 "$(stoker join-command demo --ttl 15m)"
  kubectl --kubeconfig demo.kubeconfig get nodes`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			key, err := a.tenant(args[0])
			if err != nil {
				return err
			}
			switch format {
			case "", "json", "yaml":
			default:
				return usagef("-o %s: must be json or yaml", format)
			}
			if ttl < event.MinJoinSeconds*time.Second || ttl > event.MaxJoinSeconds*time.Second {
				return usagef("--ttl %s: must be from 1m to %dh", ttl, event.MaxJoinSeconds/3600)
			}
			kubeconfig, err := a.kubeconfig(cmd.Context(), key, name.KeyAdminConf)
			if err != nil {
				return err
			}
			j, err := makeToken(cmd.Context(), kubeconfig, time.Now().Add(ttl))
			if err != nil {
				return fmt.Errorf("bootstrap token in tenant %s: %w", key, err)
			}
			return write(a.out, format, j, nil, func(bool) [][]string { return [][]string{{j.Command}} })
		},
	}
	c.Flags().DurationVar(&ttl, "ttl", event.DefaultJoinSeconds*time.Second, "how long the token is good for")
	c.Flags().StringVarP(&format, "output", "o", "", "json or yaml; without it, the command alone")
	return c
}

// makeToken makes a token inside the tenant of a kubeconfig, and says how a machine joins with it.
func makeToken(ctx context.Context, kubeconfig []byte, expires time.Time) (*event.Join, error) {
	j, err := join.From(kubeconfig)
	if err != nil {
		return nil, fmt.Errorf("kubeconfig: %w", err)
	}
	k, err := kube.FromKubeconfig(kubeconfig, kube.Options{FieldManager: "stoker"})
	if err != nil {
		return nil, err
	}
	defer k.Close()
	return j, join.MakeToken(ctx, k, j, expires, "made by stoker join-command")
}
