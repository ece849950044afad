package v1alpha1

import (
	"slices"

	"github.com/stoker-k8s/stoker/pkg/api/name"
)

// MadeByKamaji reports whether Kamaji has worked on a tenant, and Stoker never has nor may yet: such a tenant is left alone until the
// annotation [name.AnnotationAdopt] is on it. Kamaji's traces are its finalizers and the Service, the first thing that it notes in the
// status. Stoker's are the label of the partition, which others may take away, and conditions, which Kamaji has none of.
func MadeByKamaji(o *TenantControlPlane) bool {
	if _, may := o.Annotations[name.AnnotationAdopt]; may || o.Labels[name.LabelPartition] != "" || len(o.Status.Conditions) > 0 {
		return false
	}
	return slices.Contains(o.Finalizers, name.FinalizerTenant) || slices.Contains(o.Finalizers, name.FinalizerSoot) ||
		o.Status.Kubernetes.Service != nil
}
