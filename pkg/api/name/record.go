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
