package intake

import (
	"strings"
	"testing"

	"github.com/stoker-k8s/stoker/pkg/api/name"
	"github.com/stoker-k8s/stoker/pkg/api/state"
)

func TestQuotaOf(t *testing.T) {
	for sentence, c := range map[string]struct {
		annotations map[string]string
		want        state.Quota
		refused     string
	}{
		"without annotations there is none":      {},
		"both bounds":                            {saying(name.AnnotationQuotaBytes, "512Mi", name.AnnotationQuotaObjects, "20000"), state.Quota{Bytes: 512 << 20, Objects: 20000}, ""},
		"one of them":                            {saying(name.AnnotationQuotaObjects, "1000"), state.Quota{Objects: 1000}, ""},
		"no quantity":                            {saying(name.AnnotationQuotaBytes, "a lot"), state.Quota{}, name.AnnotationQuotaBytes},
		"less than a control plane needs":        {saying(name.AnnotationQuotaBytes, "1Mi"), state.Quota{}, name.AnnotationQuotaBytes},
		"less objects than a control plane has":  {saying(name.AnnotationQuotaObjects, "10"), state.Quota{}, name.AnnotationQuotaObjects},
		"no number":                              {saying(name.AnnotationQuotaObjects, "1k"), state.Quota{}, name.AnnotationQuotaObjects},
		"a bound that can't be read spoils both": {saying(name.AnnotationQuotaBytes, "1Gi", name.AnnotationQuotaObjects, ""), state.Quota{}, name.AnnotationQuotaObjects},
	} {
		t.Run(sentence, func(t *testing.T) {
			got, bad := quotaOf(c.annotations)
			if got != c.want || (c.refused != "") != (bad != nil) || bad != nil && !strings.Contains(bad[0].Field, c.refused) {
				t.Errorf("%+v, %+v", got, bad)
			}
		})
	}
}
