package release

import (
	"context"
	"errors"
	"maps"

	"helm.sh/helm/v4/pkg/action"
	helmchart "helm.sh/helm/v4/pkg/chart"
	chart "helm.sh/helm/v4/pkg/chart/v2"
	chartutil "helm.sh/helm/v4/pkg/chart/v2/util"
	helmkube "helm.sh/helm/v4/pkg/kube"
	helmrelease "helm.sh/helm/v4/pkg/release"
	"helm.sh/helm/v4/pkg/release/common"
	release "helm.sh/helm/v4/pkg/release/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/stoker-k8s/stoker/pkg/api/name"
	"github.com/stoker-k8s/stoker/pkg/api/tenantaddon"
	"github.com/stoker-k8s/stoker/pkg/kube"
)

// Install installs or upgrades a release, whatever state it is in, and waits for its hooks, but not until it works. What it returns is to be
// watched ([Cluster.Watch]). Reasons of an [*Error] are all that there are.
func (c *Cluster) Install(ctx context.Context, r Release) (*Installed, error) {
	o, err := c.begin(ctx, r.ID, r.Timeout)
	if err != nil {
		return nil, err
	}
	in, err := o.install(ctx, r)
	return in, o.failed(ctx, err)
}

func (o *operation) install(ctx context.Context, r Release) (*Installed, error) {
	if err := chartutil.ValidateReleaseName(r.Name); err != nil {
		return nil, newError(tenantaddon.ReasonRenderFailed, err, "release name %q: %v", r.Name, err)
	}
	if err := o.history.load(r.Name); err != nil {
		return nil, err
	}
	if err := o.history.taken(r.ID); err != nil {
		return nil, err
	}
	if err := o.discover(); err != nil {
		return nil, err
	}
	if err := o.recover(); err != nil {
		return nil, err
	}
	decided := cloneChart(r.Chart)
	if err := keepCRDs(decided, r.CRDs); err != nil {
		return nil, err
	}
	made := cloneChart(decided)
	if err := complete(decided); err != nil {
		return nil, err
	}
	if err := chartutil.ProcessDependencies(decided, r.Values); err != nil {
		return nil, newError(tenantaddon.ReasonRenderFailed, err, "dependencies of the chart: %v", err)
	}
	if err := validate(decided, r.Values); err != nil {
		return nil, err
	}
	crds, err := o.crdsOf(decided)
	if err != nil {
		return nil, err
	}
	if crds, err = o.applyCRDs(ctx, crds); err != nil {
		return nil, err
	}
	return o.release(ctx, made, r.Values, crds)
}

// release has Helm make the release, once its CRDs are applied.
func (o *operation) release(ctx context.Context, ch *chart.Chart, values map[string]any, crds []placed) (*Installed, error) {
	former := append([]*release.Release(nil), o.history.revisions...)
	labels := map[string]string{name.LabelTenantAddon: o.Addon.Name, name.LabelTenantAddonNamespace: o.Addon.Namespace}
	var made helmrelease.Releaser
	var err error
	// Helm is given no context to end with: it would go on in the background. All its requests end with ours.
	if last := o.history.last(); o.history.in(common.StatusDeployed) != nil && last.Info.Status != common.StatusUninstalled {
		up := action.NewUpgrade(o.helm)
		up.Namespace, up.Labels, up.Timeout, up.WaitStrategy = o.Namespace, labels, o.timeout, helmkube.HookOnlyStrategy
		up.ServerSideApply, up.ForceConflicts, up.ResetValues, up.MaxHistory = "true", true, true, maxHistory
		up.SkipCRDs, up.SkipSchemaValidation = true, true
		made, err = up.Run(o.Name, ch, values)
	} else {
		in := action.NewInstall(o.helm)
		in.ReleaseName, in.Namespace, in.Labels, in.Timeout, in.WaitStrategy = o.Name, o.Namespace, labels, o.timeout, helmkube.HookOnlyStrategy
		in.ForceConflicts, in.Replace = true, true
		in.SkipCRDs, in.SkipSchemaValidation = true, true
		made, err = in.Run(ch, values)
	}
	if err != nil {
		return nil, err
	}
	if o.history.lost != nil {
		return nil, o.history.lost
	}
	now, ok := made.(*release.Release)
	if !ok {
		return nil, errors.New("helm made no release of version 1")
	}
	objects, err := o.manifestOf(now)
	if err != nil {
		return nil, err
	}
	if err := o.prune(ctx, former, objects); err != nil {
		return nil, err
	}
	in := o.installed(now, append(crds, objects...))
	for ref, fields := range o.client.applied {
		in.expect(ref, fields)
	}
	return in, o.noteFields(ctx, in)
}

// recover makes of a release that was left half done one that has failed, from which Helm goes on. One that was superseded by nothing is
// deployed: else Helm would take the next one for the first.
func (o *operation) recover() error {
	last := o.history.last()
	if last == nil {
		return nil
	}
	status := last.Info.Status
	if status.IsPending() || status == common.StatusUninstalling || status == common.StatusUnknown {
		if err := o.history.note(last, common.StatusFailed, "interrupted while "+status.String()); err != nil {
			return err
		}
	}
	if superseded := o.history.in(common.StatusSuperseded); superseded != nil && last.Info.Status != common.StatusUninstalled &&
		o.history.in(common.StatusDeployed) == nil {
		return o.history.note(superseded, common.StatusDeployed, "what superseded it was interrupted, or is gone")
	}
	return nil
}

// prune deletes what is the release's of objects that only revisions which failed have: Helm looks at the one that is deployed.
func (o *operation) prune(ctx context.Context, revisions []*release.Release, wanted []placed) error {
	keep := map[Ref]bool{}
	for _, p := range wanted {
		keep[refOf(p.Unstructured)] = true
	}
	for _, r := range revisions {
		if r.Info.Status != common.StatusFailed && r.Info.Status != common.StatusDeployed {
			continue
		}
		objects, err := o.manifestOf(r)
		if err != nil {
			return err
		}
		for _, p := range objects {
			if ref := refOf(p.Unstructured); !keep[ref] {
				keep[ref] = true
				if err := o.deleteOwn(ctx, p); err != nil {
					return err
				}
			}
		}
	}
	return nil
}

// deleteOwn deletes an object if it is the release's and isn't to be kept.
func (o *operation) deleteOwn(ctx context.Context, p placed) error {
	is := &metav1.PartialObjectMetadata{}
	err := o.cluster.kube.Get(ctx, *p.resource, p.GetNamespace(), p.GetName(), is)
	if apierrors.IsNotFound(err) || err == nil && (!o.owns(is) || is.Annotations[helmkube.ResourcePolicyAnno] == helmkube.KeepPolicy) {
		return nil
	}
	if err != nil {
		return err
	}
	background := metav1.DeletePropagationBackground
	_, err = o.cluster.kube.Delete(ctx, *p.resource, p.GetNamespace(), p.GetName(), metav1.DeleteOptions{
		Preconditions: &metav1.Preconditions{UID: &is.UID}, PropagationPolicy: &background,
	})
	return err
}

// annotationFields of a revision's Secret says how its objects are when nobody has changed them: what [fieldsOf] makes of each, in their order.
const annotationFields = "stoker.dev/fields"

// noteFields notes with the release how its objects are, for who reads it later.
func (o *operation) noteFields(ctx context.Context, in *Installed) error {
	return o.cluster.kube.MergePatch(ctx, kube.Secrets, o.Namespace, secretName(o.Name, in.Revision), map[string]any{"metadata": map[string]any{
		"annotations": map[string]any{annotationFields: in.fields()},
	}}, nil)
}

// complete checks that a chart has the dependencies in it that it names.
func complete(c *chart.Chart) error {
	var named []helmchart.Dependency
	for _, d := range c.Metadata.Dependencies {
		named = append(named, d)
	}
	if err := action.CheckDependencies(c, named); err != nil {
		return newError(tenantaddon.ReasonRenderFailed, err, "chart %s: dependencies %v", c.Name(), err)
	}
	return nil
}

// cloneChart copies what Helm changes of a chart when it renders it.
func cloneChart(c *chart.Chart) *chart.Chart {
	if c == nil {
		c = &chart.Chart{}
	}
	clone := &chart.Chart{
		Lock: c.Lock, Templates: c.Templates, Values: cloneValues(c.Values), Schema: c.Schema, SchemaModTime: c.SchemaModTime, Files: c.Files,
		ModTime: c.ModTime, Raw: c.Raw,
	}
	clone.Metadata = &chart.Metadata{}
	if c.Metadata != nil {
		*clone.Metadata = *c.Metadata
		clone.Metadata.Dependencies = nil
		for _, d := range c.Metadata.Dependencies {
			if d != nil {
				dependency := *d
				clone.Metadata.Dependencies = append(clone.Metadata.Dependencies, &dependency)
			}
		}
	}
	for _, d := range c.Dependencies() {
		clone.AddDependency(cloneChart(d))
	}
	return clone
}

func cloneValues(values map[string]any) map[string]any {
	clone := maps.Clone(values)
	for key, value := range clone {
		if table, ok := value.(map[string]any); ok {
			clone[key] = cloneValues(table)
		}
	}
	return clone
}
