package release

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"helm.sh/helm/v4/pkg/chart/common"
	chart "helm.sh/helm/v4/pkg/chart/v2"
	helmkube "helm.sh/helm/v4/pkg/kube"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/yaml"

	"github.com/stoker-k8s/stoker/pkg/api/name"
	"github.com/stoker-k8s/stoker/pkg/api/tenantaddon"
	"github.com/stoker-k8s/stoker/pkg/kube"
)

// crdsFile is the file of a chart in which Release.CRDs are kept with the release.
const crdsFile = "stoker/crds.yaml"

// establishPatience is how long the tenant's API may take until it serves a kind that it was told of.
const establishPatience = 30 * time.Second

// keepCRDs puts CRDs into a chart, from which crdsOf reads them.
func keepCRDs(in *chart.Chart, crds []*unstructured.Unstructured) error {
	if len(crds) == 0 {
		return nil
	}
	var file bytes.Buffer
	for _, crd := range crds {
		data, err := yaml.Marshal(crd.Object)
		if err != nil {
			return err
		}
		fmt.Fprintf(&file, "---\n%s", data)
	}
	in.Files = append(slices.Clip(in.Files), &common.File{Name: crdsFile, Data: file.Bytes()})
	return nil
}

// crdsOf are the CRDs of a chart whose dependencies are decided on, as they are applied.
func (o *operation) crdsOf(ch *chart.Chart) ([]placed, error) {
	var all []placed
	seen := map[string]bool{}
	add := func(file []byte, own func(*unstructured.Unstructured)) error {
		crds, err := parse(bytes.NewReader(file))
		for _, crd := range crds {
			if gk := crd.GroupVersionKind().GroupKind(); gk.Kind != kube.CustomResourceDefinitions.Kind || seen[crd.GetName()] {
				continue
			}
			seen[crd.GetName()] = true
			own(crd)
			all = append(all, placed{crd, &kube.CustomResourceDefinitions})
		}
		return err
	}
	for _, crd := range ch.CRDObjects() {
		err := add(crd.File.Data, func(u *unstructured.Unstructured) {
			o.label(u)
			u.SetAnnotations(with(u.GetAnnotations(), helmkube.ResourcePolicyAnno, helmkube.KeepPolicy))
		})
		if err != nil {
			return nil, err
		}
	}
	for _, file := range ch.Files {
		if file.Name == crdsFile {
			if err := add(file.Data, o.own); err != nil {
				return nil, err
			}
		}
	}
	return all, nil
}

// applyCRDs applies CRDs, and waits until their kinds are served. It leaves those out that stay when the release goes and that are another's.
func (o *operation) applyCRDs(ctx context.Context, crds []placed) (applied []placed, err error) {
	for _, crd := range crds {
		ours, err := o.mayApply(ctx, crd)
		if err != nil {
			return nil, err
		}
		if !ours {
			continue
		}
		data, err := body(crd.Unstructured)
		if err != nil {
			return nil, err
		}
		is := &unstructured.Unstructured{}
		if err := o.cluster.kube.ApplyRaw(ctx, *crd.resource, "", crd.GetName(), data, &is.Object); err != nil {
			return nil, fmt.Errorf("%s: %w", refOf(crd.Unstructured), err)
		}
		o.client.applied[refOf(is)] = fieldsOf(is)
		applied = append(applied, crd)
	}
	for _, crd := range applied {
		if err := o.awaitServed(ctx, crd); err != nil {
			return nil, err
		}
	}
	return applied, nil
}

func isCRD(p placed) bool { return *p.resource == kube.CustomResourceDefinitions }

// keeps reports whether an object stays when the release goes.
func keeps(p placed) bool {
	return p.GetAnnotations()[helmkube.ResourcePolicyAnno] == helmkube.KeepPolicy
}

// mayApply reports whether a CRD is ours to apply. A CRD of that name that is being deleted must be gone first: the API server deletes it with all
// that was applied to it.
func (o *operation) mayApply(ctx context.Context, crd placed) (bool, error) {
	is := &metav1.PartialObjectMetadata{}
	err := o.cluster.kube.Get(ctx, *crd.resource, "", crd.GetName(), is)
	if err == nil && is.DeletionTimestamp != nil {
		if err := o.awaitGone(ctx, crd.resource, is, establishPatience, tenantaddon.ReasonRefused, refOf(crd.Unstructured).String()); err != nil {
			return false, err
		}
		return o.mayApply(ctx, crd) // somebody may have made another one
	}
	addon := is.Labels[name.LabelTenantAddon]
	ours := addon == o.Addon.Name && is.Labels[name.LabelTenantAddonNamespace] == o.Addon.Namespace
	switch {
	case apierrors.IsNotFound(err):
		return true, nil
	case err != nil:
		return false, err
	case ours, o.owns(is):
		return true, nil
	case keeps(crd):
		return addon == "" && is.Annotations[annotationReleaseName] == "", nil
	}
	return false, newError(tenantaddon.ReasonTaken, nil,
		"%s is there and belongs to somebody else, while it would be deleted with this TenantAddon; delete it, or leave it out", refOf(crd.Unstructured))
}

// awaitServed waits until the tenant's API serves the kind of a CRD that was applied.
func (o *operation) awaitServed(ctx context.Context, crd placed) error {
	ctx, end := context.WithTimeoutCause(ctx, establishPatience, errInTime)
	defer end()
	why := ""
	is := &apiextensionsv1.CustomResourceDefinition{}
	err := o.cluster.await(ctx, crd.resource, "", crd.GetName(), func(u *unstructured.Unstructured) (bool, error) {
		*is = apiextensionsv1.CustomResourceDefinition{}
		if err := runtime.DefaultUnstructuredConverter.FromUnstructured(u.Object, is); err != nil {
			return false, err
		}
		for _, c := range is.Status.Conditions {
			switch {
			case c.Type == apiextensionsv1.Established && c.Status == apiextensionsv1.ConditionTrue:
				return true, nil
			case c.Type == apiextensionsv1.NamesAccepted && c.Status == apiextensionsv1.ConditionFalse:
				why = ": " + c.Message
			}
		}
		return false, nil
	})
	if errors.Is(err, errInTime) {
		return newError(tenantaddon.ReasonRefused, err, "%s isn't established after %s%s", refOf(crd.Unstructured), establishPatience, why)
	}
	if err != nil {
		return err
	}
	served := servedBy(is)
	for _, r := range served {
		o.serve(r)
	}
	if len(served) == 0 {
		return nil
	}
	return o.awaitAnswer(ctx, served[0]) // and so for the other versions
}

// servedBy are the versions of a CRD's kind.
func servedBy(crd *apiextensionsv1.CustomResourceDefinition) []kube.Resource {
	var all []kube.Resource
	for _, v := range crd.Spec.Versions {
		if v.Served {
			all = append(all, kube.Resource{
				GroupVersion: schema.GroupVersion{Group: crd.Spec.Group, Version: v.Name}, Plural: crd.Spec.Names.Plural, Kind: crd.Spec.Names.Kind,
				Namespaced: crd.Spec.Scope == apiextensionsv1.NamespaceScoped,
			})
		}
	}
	return all
}

// declare notes where the tenant's API has the kinds of a CRD once it is there.
func (o *operation) declare(crd placed) error {
	is := &apiextensionsv1.CustomResourceDefinition{}
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(crd.Object, is); err != nil {
		return fmt.Errorf("%s: %w", refOf(crd.Unstructured), err)
	}
	if o.declared == nil {
		o.declared = map[schema.GroupVersionKind]*kube.Resource{}
	}
	for _, r := range servedBy(is) {
		o.declared[r.GroupVersion.WithKind(r.Kind)] = &r
	}
	return nil
}

// answerPause is between two looks at whether a kind that is established is also served: what serves it learns of that by a watch of its own,
// which nobody else sees.
const answerPause = 50 * time.Millisecond

// awaitAnswer waits until a kind that is established is served.
func (o *operation) awaitAnswer(ctx context.Context, r kube.Resource) error {
	tick := time.NewTicker(answerPause)
	defer tick.Stop()
	for {
		err := o.cluster.kube.List(ctx, r, "", name.LabelTenantAddon+"=none", &metav1.PartialObjectMetadataList{})
		if !apierrors.IsNotFound(err) && !kube.IsAway(err) { // it begins with "storage is (re)initializing"
			return err
		}
		select {
		case <-ctx.Done():
			return cmp.Or(err, context.Cause(ctx))
		case <-tick.C:
		}
	}
}

// removeCRDs deletes the CRDs that go with the release, and takes our labels off those that stay.
func (o *operation) removeCRDs(ctx context.Context, keep bool) error {
	var found []*metav1.PartialObjectMetadata
	selector := name.LabelTenantAddon + "=" + o.Addon.Name + "," + name.LabelTenantAddonNamespace + "=" + o.Addon.Namespace
	err := kube.Each(ctx, o.cluster.kube, kube.CustomResourceDefinitions, selector, func(m *metav1.PartialObjectMetadata) { found = append(found, m) })
	if err != nil {
		return err
	}
	for _, crd := range found {
		if keep || crd.Annotations[helmkube.ResourcePolicyAnno] == helmkube.KeepPolicy {
			err = o.unlabel(ctx, kube.CustomResourceDefinitions, "", crd.Name)
		} else if o.owns(crd) {
			_, err = o.cluster.kube.Delete(ctx, kube.CustomResourceDefinitions, "", crd.Name, metav1.DeleteOptions{
				Preconditions: &metav1.Preconditions{UID: &crd.UID},
			})
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// unlabel takes our labels off an object, if it is there.
func (o *operation) unlabel(ctx context.Context, r kube.Resource, namespace, object string) error {
	err := o.cluster.kube.MergePatch(ctx, r, namespace, object, map[string]any{"metadata": map[string]any{
		"labels": map[string]any{name.LabelTenantAddon: nil, name.LabelTenantAddonNamespace: nil},
	}}, nil)
	if apierrors.IsNotFound(err) {
		return nil
	}
	return err
}
