package intake

import (
	"strings"
	"testing"

	"github.com/stoker-k8s/stoker/pkg/api/name"
	"github.com/stoker-k8s/stoker/pkg/api/state"
	"github.com/stoker-k8s/stoker/pkg/api/v1alpha1"
)

func TestQuotaOf(t *testing.T) {
	elsewhere := []v1alpha1.DataStoreOverride{{Resource: "/events", DataStore: "other"}}
	for sentence, c := range map[string]struct {
		annotations map[string]string
		overrides   []v1alpha1.DataStoreOverride
		want        state.Quota
		refused     string
	}{
		"without annotations there is none":      {overrides: elsewhere},
		"both bounds":                            {saying(name.AnnotationQuotaBytes, "512Mi", name.AnnotationQuotaObjects, "20000"), nil, state.Quota{Bytes: 512 << 20, Objects: 20000}, ""},
		"one of them":                            {saying(name.AnnotationQuotaObjects, "1000"), nil, state.Quota{Objects: 1000}, ""},
		"no quantity":                            {saying(name.AnnotationQuotaBytes, "a lot"), nil, state.Quota{}, name.AnnotationQuotaBytes},
		"less than a control plane needs":        {saying(name.AnnotationQuotaBytes, "1Mi"), nil, state.Quota{}, name.AnnotationQuotaBytes},
		"less objects than a control plane has":  {saying(name.AnnotationQuotaObjects, "10"), nil, state.Quota{}, name.AnnotationQuotaObjects},
		"no number":                              {saying(name.AnnotationQuotaObjects, "1k"), nil, state.Quota{}, name.AnnotationQuotaObjects},
		"what is elsewhere isn't counted":        {saying(name.AnnotationQuotaObjects, "1000"), elsewhere, state.Quota{}, "spec.dataStoreOverrides"},
		"a bound that can't be read spoils both": {saying(name.AnnotationQuotaBytes, "1Gi", name.AnnotationQuotaObjects, ""), nil, state.Quota{}, name.AnnotationQuotaObjects},
	} {
		t.Run(sentence, func(t *testing.T) {
			got, bad := quotaOf(c.annotations, c.overrides)
			if got != c.want || (c.refused != "") != (bad != nil) || bad != nil && !strings.Contains(bad[0].Field, c.refused) {
				t.Errorf("%+v, %+v", got, bad)
			}
		})
	}
}
