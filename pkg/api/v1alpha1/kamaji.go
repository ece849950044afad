package v1alpha1

import (
	"slices"

	"github.com/stoker-k8s/stoker/pkg/api/name"
)

// MadeByKamaji reports whether Kamaji has worked on a tenant, and Stoker never has nor may yet: such a tenant is left alone until the
// annotation [name.AnnotationAdopt] is on it. Kamaji's traces are its finalizers and the Service, the first thing that it notes in the
// status. Stoker's are its record ([name.Taken]), which others may take away, and conditions, which Kamaji has none of; a tenant that went
// back to Kamaji may still have those, and has Kamaji's second finalizer again, which Stoker takes off.
func MadeByKamaji(o *TenantControlPlane) bool {
	_, may := o.Annotations[name.AnnotationAdopt]
	switch {
	case may || name.Taken(o.Labels, o.Annotations):
		return false
	case slices.Contains(o.Finalizers, name.FinalizerSoot):
		return true
	}
	return len(o.Status.Conditions) == 0 && (slices.Contains(o.Finalizers, name.FinalizerTenant) || o.Status.Kubernetes.Service != nil)
}
