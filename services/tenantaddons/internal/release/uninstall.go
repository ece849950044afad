package release

import (
	"context"
	"errors"
	"time"

	"helm.sh/helm/v4/pkg/action"
	helmkube "helm.sh/helm/v4/pkg/kube"
	"helm.sh/helm/v4/pkg/release/common"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/stoker-k8s/stoker/pkg/api/name"
	"github.com/stoker-k8s/stoker/pkg/kube"
)

// Removal says how a release is uninstalled.
type Removal struct {
	// NoHooks leaves out the hooks of the chart, for one whose hooks fail.
	NoHooks bool
	// Timeout of each hook; 0 for 5 minutes.
	Timeout time.Duration
}

// Uninstall removes a release, whatever state it is in: its objects, what was left of revisions that failed, the CRDs that go with it, and what Helm
// has noted of it. That there is none is no error, and neither that it is somebody else's. It doesn't wait until the objects are gone. Reasons of an
// [*Error] are HookFailed, TenantWebhook and Refused.
func (c *Cluster) Uninstall(ctx context.Context, id ID, r Removal) error {
	o, err := c.begin(ctx, id, r.Timeout)
	if err != nil {
		return err
	}
	return o.failed(ctx, o.uninstall(ctx, r))
}

func (o *operation) uninstall(ctx context.Context, r Removal) error {
	if err := o.history.load(o.Name); err != nil {
		return err
	}
	if o.history.has(o.ID) {
		if err := o.discover(); err != nil { // what is taken for a kind that is no more must be none
			return err
		}
		wanted, err := o.manifestOf(o.history.last())
		if err != nil {
			return err
		}
		if err := o.prune(ctx, o.history.revisions, wanted); err != nil {
			return err
		}
		if err := o.undeploy(r); err != nil {
			return err
		}
	}
	return o.removeCRDs(ctx, false)
}

// undeploy has Helm uninstall the release.
func (o *operation) undeploy(r Removal) error {
	un := action.NewUninstall(o.helm)
	un.DisableHooks, un.IgnoreNotFound, un.Timeout, un.WaitStrategy = r.NoHooks, true, o.timeout, helmkube.HookOnlyStrategy
	_, err := un.Run(o.Name)
	if err != nil {
		return errors.Join(append(o.client.undeleted, err)...)
	}
	return nil
}

// Forget leaves a release as it is, as nobody's: another TenantAddon may take it over, and whoever is in the tenant may do with it as they like.
func (c *Cluster) Forget(ctx context.Context, id ID) error {
	o, err := c.begin(ctx, id, 0)
	if err != nil {
		return err
	}
	return o.failed(ctx, o.forgetAll(ctx))
}

func (o *operation) forgetAll(ctx context.Context) error {
	if err := o.history.load(o.Name); err != nil {
		return err
	}
	if !o.history.has(o.ID) {
		return nil
	}
	if deployed := o.history.in(common.StatusDeployed); deployed != nil {
		objects, err := o.manifestOf(deployed)
		if err != nil {
			return err
		}
		for _, p := range objects {
			if err := o.unlabel(ctx, *p.resource, p.GetNamespace(), p.GetName()); err != nil {
				return err
			}
		}
	}
	if err := o.removeCRDs(ctx, true); err != nil {
		return err
	}
	// Last, so that one that is interrupted is gone on with. The label stays, empty: without it, somebody else has made the release.
	for _, r := range o.history.revisions {
		err := o.cluster.kube.MergePatch(ctx, kube.Secrets, o.Namespace, secretName(r.Name, r.Version), map[string]any{"metadata": map[string]any{
			"labels": map[string]any{name.LabelTenantAddon: "", name.LabelTenantAddonNamespace: nil},
		}}, nil)
		if err != nil && !apierrors.IsNotFound(err) {
			return err
		}
	}
	return nil
}
