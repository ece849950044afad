package name

import (
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation"
)

// Overrides are the DataStores that AnnotationDatastoreOverrides lists, sorted, each once.
func Overrides(annotations map[string]string) []string {
	return SplitOverrides(annotations[AnnotationDatastoreOverrides])
}

// SplitOverrides are the DataStores that a value of AnnotationDatastoreOverrides lists, sorted, each once.
func SplitOverrides(value string) []string {
	var stores []string
	for _, n := range strings.Split(value, ",") {
		if n = strings.TrimSpace(n); len(validation.IsDNS1123Subdomain(n)) == 0 {
			stores = append(stores, n)
		}
	}
	slices.Sort(stores)
	return slices.Compact(stores)
}

// OverridesValue is the value of AnnotationDatastoreOverrides for DataStores.
func OverridesValue(stores []string) string { return strings.Join(stores, ",") }
