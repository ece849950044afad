package release

import (
	"context"
	"errors"

	chartutil "helm.sh/helm/v4/pkg/chart/v2/util"
	"helm.sh/helm/v4/pkg/release/common"
	release "helm.sh/helm/v4/pkg/release/v1"
	"helm.sh/helm/v4/pkg/storage/driver"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/stoker-k8s/stoker/pkg/kube"
)

// Read returns the release that is installed, nil for none: none there, or none that ever was installed in full. Watched, it tells what has changed since
// it was installed. The error is an [*Error] with the reason Taken if the release is somebody else's.
func (c *Cluster) Read(ctx context.Context, id ID) (*Installed, error) {
	o, err := c.begin(ctx, id, 0)
	if err != nil {
		return nil, err
	}
	in, err := o.readInstalled(ctx)
	return in, o.failed(ctx, err)
}

func (o *operation) readInstalled(ctx context.Context) (*Installed, error) {
	if err := o.history.load(o.Name); err != nil {
		return nil, err
	}
	if err := o.history.taken(o.ID); err != nil {
		return nil, err
	}
	deployed := o.history.in(common.StatusDeployed)
	if deployed == nil {
		return nil, nil //nolint:nilnil // none, as its comment says
	}
	objects, err := o.objectsOf(deployed)
	if err != nil {
		return nil, err
	}
	if objects, err = o.withoutOthers(ctx, objects); err != nil {
		return nil, err
	}
	in := o.installed(deployed, objects)
	secret := &metav1.PartialObjectMetadata{}
	if err := o.cluster.kube.Get(ctx, kube.Secrets, o.Namespace, secretName(o.Name, deployed.Version), secret); err != nil {
		return nil, err
	}
	in.expectAll(secret.Annotations[annotationFields])
	return in, nil
}

// objectsOf are all objects of a revision, as they are applied: CRDs, then those of its manifest, also of kinds whose CRD is among them and isn't
// there now.
func (o *operation) objectsOf(r *release.Release) ([]placed, error) {
	decided := cloneChart(r.Chart)
	if err := chartutil.ProcessDependencies(decided, r.Config); err != nil {
		return nil, err
	}
	crds, err := o.crdsOf(decided)
	if err != nil {
		return nil, err
	}
	for _, crd := range crds {
		if err := o.declare(crd); err != nil {
			return nil, err
		}
	}
	objects, err := o.manifestOf(r)
	for _, p := range objects {
		o.own(p.Unstructured)
	}
	return append(crds, objects...), err
}

// withoutOthers leaves out the CRDs that stay when the release goes and that are another's, as [operation.applyCRDs] does.
func (o *operation) withoutOthers(ctx context.Context, objects []placed) ([]placed, error) {
	var all []placed
	for _, p := range objects {
		if isCRD(p) && keeps(p) {
			if ours, err := o.mayApply(ctx, p); err != nil {
				return nil, err
			} else if !ours {
				continue
			}
		}
		all = append(all, p)
	}
	return all, nil
}

// Repair puts objects of a release back as they were installed, and returns those that it has changed: of what is as it should be nothing is
// written. An object that can't be put back holds up no other. The error joins an [*Error] for each, with the reasons Refused, TenantWebhook or
// Taken; it is [ErrNotInstalled] when the release isn't there.
func (c *Cluster) Repair(ctx context.Context, in *Installed, refs []Ref) (repaired []Ref, err error) {
	o, err := c.begin(ctx, in.ID, 0)
	if err != nil {
		return nil, err
	}
	wanted := map[Ref]bool{}
	for _, ref := range refs {
		wanted[ref] = true
	}
	objects, err := o.revision(in.Revision)
	if err != nil {
		return nil, o.failed(ctx, err)
	}
	var errs []error
	for _, p := range objects {
		if !wanted[refOf(p.Unstructured)] {
			continue
		}
		delete(wanted, refOf(p.Unstructured)) // once
		changed, err := o.repair(ctx, in, p)
		if changed {
			repaired = append(repaired, refOf(p.Unstructured))
		}
		if err = o.failed(ctx, err); err != nil {
			errs = append(errs, err)
			o.wire.forget()
		}
		if kube.IsAway(err) || ctx.Err() != nil {
			break
		}
	}
	return repaired, errors.Join(errs...)
}

// revision are the objects of a revision that is there.
func (o *operation) revision(number int) ([]placed, error) {
	found, err := o.history.Secrets.Get(secretName(o.Name, number))
	if errors.Is(err, driver.ErrReleaseNotFound) {
		return nil, ErrNotInstalled
	}
	if err != nil {
		return nil, err
	}
	r, ok := found.(*release.Release)
	if !ok {
		return nil, ErrNotInstalled
	}
	o.history.revisions = []*release.Release{r}
	if o.history.taken(o.ID) != nil {
		return nil, ErrNotInstalled
	}
	return o.objectsOf(r)
}

// repair applies an object, unless it is as it should be, and reports whether that has changed it.
func (o *operation) repair(ctx context.Context, in *Installed, p placed) (changed bool, err error) {
	ref, k := refOf(p.Unstructured), o.cluster.kube
	was := &metav1.PartialObjectMetadata{}
	err = k.Get(ctx, *p.resource, p.GetNamespace(), p.GetName(), was)
	if err != nil && !apierrors.IsNotFound(err) {
		return false, err
	}
	if err == nil && fieldsOf(was) == in.expected(ref) {
		return false, nil
	}
	if isCRD(p) {
		if ours, err := o.mayApply(ctx, p); err != nil || !ours {
			return false, err
		}
	}
	data, err := body(p.Unstructured)
	if err != nil {
		return false, err
	}
	is := &metav1.PartialObjectMetadata{}
	apply := func() error { return k.ApplyRaw(ctx, *p.resource, p.GetNamespace(), p.GetName(), data, is) }
	err = apply()
	if namespaceMissing(err) && p.GetNamespace() == o.Namespace {
		if err = o.makeNamespace(ctx); err == nil {
			err = apply()
		}
	}
	if apierrors.IsInvalid(err) && was.UID != "" && replaceable(p.Unstructured) {
		// Somebody made it anew with another role, which can't be changed, only replaced.
		_, err = k.Delete(ctx, *p.resource, p.GetNamespace(), p.GetName(), metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &was.UID}})
		if err == nil {
			err = apply()
		}
	}
	if err != nil {
		return false, err
	}
	in.expect(ref, fieldsOf(is))
	if is.UID != was.UID && isCRD(p) { // what comes next may be of its kind
		err = o.awaitServed(ctx, p)
	}
	return is.ResourceVersion != was.ResourceVersion || is.UID != was.UID, err
}

// replaceable reports whether an object can be deleted and made anew without harm: who may do what is all that it says.
func replaceable(u *unstructured.Unstructured) bool {
	return u.GroupVersionKind().Group == kube.RoleBindings.GroupVersion.Group
}

// namespaceMissing reports whether an object was refused because its namespace isn't there.
func namespaceMissing(err error) bool {
	answered := asAnswer(err)
	return apierrors.IsNotFound(err) && answered != nil && answered.Status().Details != nil && answered.Status().Details.Kind == kube.Namespaces.Plural
}
