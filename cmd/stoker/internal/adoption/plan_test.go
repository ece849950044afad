package adoption

import (
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/stoker-k8s/stoker/pkg/api/name"
	"github.com/stoker-k8s/stoker/pkg/api/v1alpha1"
)

// made is a tenant as Kamaji leaves it.
func made() Seen {
	o := &v1alpha1.TenantControlPlane{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "demo", Finalizers: []string{name.FinalizerSoot}}}
	o.Spec.Kubernetes.Version = "v1.35.4"
	s := Seen{Tenant: o, DataStore: &v1alpha1.DataStore{}, Deployment: &appsv1.Deployment{}, Secrets: map[string]*corev1.Secret{}}
	for _, n := range secretsOf(o) {
		s.Secrets[n] = &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: n}, Data: map[string][]byte{"x": []byte(n)}}
	}
	s.DataStore.Spec.Driver = v1alpha1.DriverEtcd
	s.Deployment.Spec.Template.Labels = map[string]string{}
	for checksum, n := range mounted(o.Name) {
		s.Deployment.Spec.Template.Labels[name.PodChecksumLabel(checksum)] = name.KamajiChecksum(s.Secrets[n].Data)
	}
	s.Deployment.Spec.Template.Spec.Containers = []corev1.Container{{Name: name.ContainerAPIServer, Image: "r:5000/kube-apiserver:v1.35.4"}}
	return s
}

func TestOf(t *testing.T) {
	t.Parallel()
	status := v1alpha1.VersionMigrating
	for what, c := range map[string]struct {
		change        func(Seen)
		pods, says    string
		keeps, blocks int
	}{
		"everything stays":                {func(Seen) {}, PodsStay, "", 11, 0},
		"another version":                 {func(s Seen) { s.Tenant.Spec.Kubernetes.Version = "v1.36.3" }, PodsRestart, "runs r:5000/kube-apiserver:v1.35.4", 11, 0},
		"one with the same beginning":     {func(s Seen) { s.Tenant.Spec.Kubernetes.Version = "v1.35.40" }, PodsRestart, "not v1.35.40", 11, 0},
		"one that begins so":              {func(s Seen) { s.Tenant.Spec.Kubernetes.Version = "v1.35" }, PodsRestart, "not v1.35", 11, 0},
		"a Secret that pods haven't":      {func(s Seen) { s.Secrets["demo-ca"].Data["x"] = nil }, PodsRestart, "Secret demo-ca", 11, 0},
		"a Secret that is missing":        {func(s Seen) { delete(s.Secrets, "demo-sa-certificate") }, PodsRestart, "Secret demo-sa-certificate", 10, 0},
		"no pods":                         {func(s Seen) { s.Deployment.Spec.Replicas = new(int32(0)) }, PodsNone, "", 11, 0},
		"a version that is too old":       {func(s Seen) { s.Tenant.Spec.Kubernetes.Version = "v1.29.0" }, PodsRestart, "", 11, 1},
		"write limits":                    {func(s Seen) { s.Tenant.Spec.WritePermissions.BlockCreation = true }, PodsStay, "", 11, 0},
		"a deletion":                      {func(s Seen) { s.Tenant.DeletionTimestamp = new(metav1.Now()) }, PodsEnd, "being deleted", 0, 0},
		"a database with passwords alone": {func(s Seen) { s.DataStore.Spec.Driver = v1alpha1.DriverMySQL }, PodsStay, "", 11, 0},
		"kine with the administrator's certificate": {func(s Seen) {
			s.DataStore.Spec.Driver = v1alpha1.DriverMySQL
			s.DataStore.Spec.TLSConfig = &v1alpha1.TLSConfig{ClientCertificate: &v1alpha1.ClientCertificate{}}
		}, PodsRestart, "which is taken away", 11, 0},
		"kine with one whose place another takes": {func(s Seen) {
			s.DataStore.Spec.Driver = v1alpha1.DriverPostgreSQL
			s.DataStore.Spec.TLSConfig = &v1alpha1.TLSConfig{ClientCertificate: &v1alpha1.ClientCertificate{}}
			s.DataStore.Spec.TLSConfig.CertificateAuthority.PrivateKey = &v1alpha1.ContentRef{}
		}, PodsStay, "", 11, 0},
		"kine with one that is hashed": {func(s Seen) {
			s.DataStore.Spec.Driver = v1alpha1.DriverPostgreSQL
			s.DataStore.Spec.TLSConfig = &v1alpha1.TLSConfig{ClientCertificate: &v1alpha1.ClientCertificate{}}
			s.DataStore.Spec.TLSConfig.CertificateAuthority.PrivateKey = &v1alpha1.ContentRef{}
			s.Deployment.Spec.Template.Annotations = map[string]string{name.AnnotationStorageCertificate: "x"}
		}, PodsRestart, "one of its own", 11, 0},
		"NATS whose Secrets are hashed": {func(s Seen) {
			s.DataStore.Spec.Driver = v1alpha1.DriverNATS
			s.Deployment.Spec.Template.Annotations = map[string]string{name.AnnotationStorageConfig: "x"}
		}, PodsRestart, "for NATS", 11, 0},
		"a tunnel that pods don't have": {func(s Seen) {
			s.Tenant.Spec.Addons.Konnectivity = &v1alpha1.KonnectivitySpec{}
			s.Tenant.Spec.Addons.Konnectivity.Server.Image = "proxy-server"
		}, PodsRestart, "none becomes proxy-server:v0.35.0", 11, 0},
		"a migration": {func(s Seen) { s.Tenant.Status.Kubernetes.Version.Status = &status }, PodsStay, "", 11, 1},
	} {
		s := made()
		c.change(s)
		p := Of(s, time.Now())
		if p.Pods != c.pods || !strings.Contains(strings.Join(p.Why, "; "), c.says) || len(p.Keeps) != c.keeps || len(p.Against) != c.blocks {
			t.Errorf("%s: %+v", what, p)
		}
	}
}
