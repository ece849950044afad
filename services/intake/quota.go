package intake

import (
	"strconv"

	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/stoker-k8s/stoker/pkg/api/event"
	"github.com/stoker-k8s/stoker/pkg/api/name"
	"github.com/stoker-k8s/stoker/pkg/api/state"
)

// quotaOf is how much a tenant may keep by its annotations, or what of them can't be read.
func quotaOf(annotations map[string]string) (q state.Quota, bad refusal) {
	refuseOf := func(annotation, value, must string) {
		bad = append(bad, refuse("metadata.annotations["+annotation+"]", event.RuleInvalid, value, must)...)
	}
	if value, said := annotations[name.AnnotationQuotaBytes]; said {
		bytes, err := resource.ParseQuantity(value)
		if q.Bytes = bytes.Value(); err != nil || q.Bytes < leastBytes {
			refuseOf(name.AnnotationQuotaBytes, value, "must be how many bytes the tenant may keep, 4Mi at least, such as 512Mi")
		}
	}
	if value, said := annotations[name.AnnotationQuotaObjects]; said {
		var err error
		if q.Objects, err = strconv.ParseInt(value, 10, 64); err != nil || q.Objects < leastObjects {
			refuseOf(name.AnnotationQuotaObjects, value, "must be how many objects the tenant may keep, 1000 at least")
		}
	}
	if bad != nil {
		return state.Quota{}, bad
	}
	return q, nil
}
