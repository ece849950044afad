package main

// stoker kubeconfig: an administrator's access to a tenant, from the Secret in the management cluster.

import (
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/stoker-k8s/stoker/cmd/stoker/internal/printable"
	"github.com/stoker-k8s/stoker/pkg/api/name"
	"github.com/stoker-k8s/stoker/pkg/events"
	"github.com/stoker-k8s/stoker/pkg/kube"
)

func kubeconfigCommand(a *app) *cobra.Command {
	var super bool
	var file string
	c := &cobra.Command{
		Use:   "kubeconfig NAME",
		Short: "Print the kubeconfig of a tenant's administrator",
		Long: `kubeconfig reads the administrator's kubeconfig of a tenant from its Secret in the management cluster. It never changes a
kubeconfig you have: it prints, or writes a file of its own that only you can read.`,
		Example: `  stoker kubeconfig demo -o demo.kubeconfig
  kubectl --kubeconfig demo.kubeconfig get ns`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			key, err := a.tenant(args[0])
			if err != nil {
				return err
			}
			entry := name.KeyAdminConf
			if super {
				entry = name.KeySuperAdminConf
			}
			data, err := a.kubeconfig(cmd.Context(), key, entry)
			if err != nil {
				return err
			}
			if file == "" || file == "-" {
				_, err := io.WriteString(a.out, printable.Text(string(data)))
				return err
			}
			if err := writePrivate(file, data); err != nil {
				return err
			}
			a.sayf(a.err, "written to %s; try: kubectl --kubeconfig %s get ns\n", file, file)
			return nil
		},
	}
	c.Flags().BoolVar(&super, "super", false, "the super-administrator's, which no RBAC rule of the tenant can lock out")
	c.Flags().StringVarP(&file, "output", "o", "", "`file` to write, readable by you alone")
	return c
}

// kubeconfig reads one of a tenant's kubeconfigs.
func (a *app) kubeconfig(ctx context.Context, key events.Key, entry string) ([]byte, error) {
	k, err := a.kube()
	if err != nil {
		return nil, err
	}
	defer k.Close()
	var secret corev1.Secret
	err = k.Get(ctx, kube.Secrets, key.Namespace, name.AdminKubeconfig(key.Name), &secret)
	if apierrors.IsNotFound(err) || err == nil && len(secret.Data[entry]) == 0 {
		return nil, fmt.Errorf("tenant %s has no kubeconfig (yet): `stoker why %s -n %s` says what it waits for", key, key.Name, key.Namespace)
	}
	if err != nil {
		return nil, fmt.Errorf("kubeconfig of tenant %s: %w", key, err)
	}
	return secret.Data[entry], nil
}

// writePrivate replaces a file by one that only its owner can read, from the first byte on.
func writePrivate(file string, data []byte) error {
	f, err := os.CreateTemp(filepath.Dir(file), ".kubeconfig-*") // mode 0600
	if err != nil {
		return err
	}
	defer func() { _ = os.Remove(f.Name()) }()
	if _, err := f.Write(data); err != nil {
		_ = f.Close()
		return err
	}
	if err := f.Close(); err != nil {
		return err
	}
	return os.Rename(f.Name(), file)
}
