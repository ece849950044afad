package workload

import (
	"testing"

	"github.com/stoker-k8s/stoker/pkg/api/event"
	"github.com/stoker-k8s/stoker/pkg/api/name"
	"github.com/stoker-k8s/stoker/pkg/api/v1alpha1"
)

func TestPodsAfter(t *testing.T) {
	t.Parallel()
	now := load(t, "minimal")
	config := Deployment(now).Spec.Template.Annotations[name.AnnotationConfigHash]
	for sentence, c := range map[string]struct {
		change func(*v1alpha1.TenantControlPlaneSpec)
		want   string
	}{
		"nothing changes":              {func(*v1alpha1.TenantControlPlaneSpec) {}, event.PodsStay},
		"their number changes":         {func(s *v1alpha1.TenantControlPlaneSpec) { s.ControlPlane.Deployment.Replicas = new(int32(5)) }, event.PodsStay},
		"an add-on changes":            {func(s *v1alpha1.TenantControlPlaneSpec) { s.Addons.KubeProxy = nil }, event.PodsStay},
		"the version changes":          {func(s *v1alpha1.TenantControlPlaneSpec) { s.Kubernetes.Version = "v1.36.4" }, event.PodsRestart},
		"a certificate has more names": {func(s *v1alpha1.TenantControlPlaneSpec) { s.NetworkProfile.CertSANs = []string{"api.example.org"} }, event.PodsMayRestart},
		"the DataStore changes":        {func(s *v1alpha1.TenantControlPlaneSpec) { s.DataStore = "another" }, event.PodsMayRestart},
	} {
		t.Run(sentence, func(t *testing.T) {
			in := now
			after := *now.Tenant
			after.Spec = *now.Tenant.Spec.DeepCopy()
			c.change(&after.Spec)
			in.Tenant = &after
			if got := podsAfter(&now.Tenant.Spec, config, in); got != c.want {
				t.Errorf("%s, not %s", got, c.want)
			}
		})
	}
}
