package main

// stoker clone: a tenant from another one that works on meanwhile.

import (
	"context"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/stoker-k8s/stoker/cmd/stoker/internal/manifest"
	"github.com/stoker-k8s/stoker/pkg/api/name"
	"github.com/stoker-k8s/stoker/pkg/api/v1alpha1"
	"github.com/stoker-k8s/stoker/pkg/events"
	"github.com/stoker-k8s/stoker/pkg/kube"
	"github.com/stoker-k8s/stoker/services/datastore/backup"
)

func cloneCommand(a *app) *cobra.Command {
	var n anew
	c := &cobra.Command{
		Use:   "clone TENANT NAME",
		Short: "Make a tenant from another one",
		Long: `clone makes a tenant that has the data of another one in its namespace, as they are at one moment, while that one works on.

It is another tenant: it gets an endpoint, authorities and keys of its own, and nothing of what is about the original's machines and addresses: leases, nodes,
endpoints of the API server, requests for certificates, bootstrap tokens (see docs/backup.md). Its PersistentVolumes and webhooks name what the original's do: look at
them before it gets nodes.

Exit codes: 1 the tenant can't be made; 3 it was not Ready in time.`,
		Example: `  stoker clone demo demo-test --wait

  # To try the next version of Kubernetes, in another DataStore
  stoker clone demo demo-test --data-store etcd-2 -p '{"spec":{"kubernetes":{"version":"v1.36.3"}}}' --wait`,
		Args: cobra.ExactArgs(2), ValidArgsFunction: a.complete,
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := n.read(); err != nil {
				return err
			}
			original, err := a.tenant(args[0])
			if err != nil {
				return err
			}
			clone := events.Tenant(original.Namespace, args[1])
			if !clone.Valid() {
				return usagef("%s: can't be the name of a tenant; the clone is in the namespace of its original, %s", args[1], original.Namespace)
			}
			return a.clone(cmd.Context(), original, clone, n)
		},
	}
	n.flags(c.Flags())
	return c
}

// clone makes the Secret that the clone is to have from the beginning, then asks for it.
func (a *app) clone(ctx context.Context, original, clone events.Key, n anew) error {
	k, err := a.kube()
	if err != nil {
		return err
	}
	defer k.Close()
	o := &v1alpha1.TenantControlPlane{}
	if err := k.Get(ctx, kube.TenantControlPlanes, original.Namespace, original.Name, o); err != nil {
		return err
	}
	if err := mustBeFree(ctx, k, clone); err != nil {
		return err
	}
	object, err := n.object(backup.ObjectOf(o), clone, false, name.AnnotationCloneOf, original.Name)
	if err != nil {
		return err
	}
	s := &corev1.Secret{}
	err = k.Get(ctx, kube.Secrets, original.Namespace, name.Encryption(original.Name), s)
	if err == nil { // by which it reads what the original has encrypted
		err = makeSecret(ctx, k, clone.Namespace, name.Encryption(clone.Name), s.Type, labelsFor(clone, s.Labels), s.Annotations, s.Data)
	} else if apierrors.IsNotFound(err) {
		err = nil
	}
	if err != nil {
		return err
	}
	return a.apply(ctx, []manifest.Object{object}, 0, n.wait, n.timeout)
}
