package name

import "cmp"

// DataStore is the DataStore that a tenant was assigned to, by the labels and annotations of its object, empty for none. Of a tenant that
// was taken on before there was AnnotationDataStore the label says it.
func DataStore(labels, annotations map[string]string) string {
	return cmp.Or(annotations[AnnotationDataStore], labels[LabelDataStore])
}

// Taken reports whether Stoker works on a tenant, by the labels and annotations of its object: by AnnotationDataStore, or the label of the
// partition, which tenants had before that.
func Taken(labels, annotations map[string]string) bool {
	_, recorded := annotations[AnnotationDataStore]
	return recorded || labels[LabelPartition] != ""
}

// Records are the labels and annotations of tenants and control planes in which an installation notes what it alone may say of its own: they
// go from no object to another.
func Records() []string {
	return []string{
		AnnotationDataStore, AnnotationDatastoreOverrides, AnnotationCommand, AnnotationAwakeReplicas, AnnotationSleptAt, AnnotationSleptBy,
		AnnotationWokenAt, AnnotationExternalTenant, AnnotationControlPlane, LabelPartition,
	}
}
