package kube

import "k8s.io/apimachinery/pkg/util/resourceversion"

// Older reports whether resourceVersion a is older than b. Both must be of the same kind of object (Kubernetes lets clients compare
// them so since 1.35); of two that can't be compared, because one is empty or no number, neither is older.
func Older(a, b string) bool {
	order, err := resourceversion.CompareResourceVersion(a, b)
	return err == nil && order < 0
}
