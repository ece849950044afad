package e2e

import (
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"maps"
	"math/big"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/stoker-k8s/stoker/deployments/local"
	"github.com/stoker-k8s/stoker/pkg/api/name"
	"github.com/stoker-k8s/stoker/pkg/api/v1alpha1"
	"github.com/stoker-k8s/stoker/pkg/events"
	"github.com/stoker-k8s/stoker/pkg/kube"
	"github.com/stoker-k8s/stoker/test/env"
)

// TestAdopt takes over tenants of a Kamaji that really ran them.
func TestAdopt(t *testing.T) {
	env.Long(t) // Kamaji is built
	rsaDataStore(t, "kamaji-etcd")
	controller := e.Kamaji(t)
	key := events.Tenant("default", "made")
	o := env.Tenant(key.Name, "v1.36.3")
	o.Spec.DataStore = "kamaji-etcd"
	madeByKamaji(t, key, o)
	finalizers(t, key, name.FinalizerTenant, name.FinalizerSoot) // the latter as newer versions of it do
	e.Services(t)

	t.Run("adopt refuses while Kamaji is at work", func(t *testing.T) {
		if code, out := stoker(t, "adopt", key.Name); code != 4 || !strings.Contains(out, "kamaji-system/kamaji.clastix.io is held") {
			t.Errorf("%d: %s", code, out)
		}
	})
	controller.Kill()
	before := look(t, key)
	t.Run("Stoker beside it changes nothing, and says why", func(t *testing.T) { leftAlone(t, key, before) })
	t.Run("adopted, it is Ready with the same pods, Secrets and endpoint", func(t *testing.T) {
		env.Eventually(t, "Kamaji's lease to end", func() error {
			if code, out := stoker(t, "adopt", "--plan", key.Name); code != 0 || !strings.Contains(out, "stay") {
				return fmt.Errorf("%d: %s", code, out)
			}
			return nil
		})
		if code, out := stoker(t, "adopt", key.Name); code != 0 || !strings.Contains(out, "default/made adopted: Ready") {
			t.Fatalf("%d: %s", code, out)
		}
		after := look(t, key)
		unmoved(t, before, after)
		is := after.tenant
		if is.Status.ControlPlaneEndpoint != before.tenant.Status.ControlPlaneEndpoint || is.Status.Storage.Setup.Schema != before.tenant.Status.Storage.Setup.Schema ||
			is.Status.Certificates.CA.Checksum != before.tenant.Status.Certificates.CA.Checksum || slices.Contains(is.Finalizers, name.FinalizerSoot) {
			t.Errorf("%+v", is)
		}
	})
	t.Run("so it is after all services were started again, and after the daily look", func(t *testing.T) {
		for _, p := range e.Services(t) {
			must(t, p.Stop())
			p.Restart(t)
		}
		env.Eventually(t, "a look at the tenant", func() error {
			if code, out := stoker(t, "resync", key.Name); code != 0 {
				return fmt.Errorf("%d: %s", code, out)
			}
			return nil
		})
		e.Ready(t, key)
		unmoved(t, before, look(t, key))
	})
	t.Run("other pods are Stoker's, with nothing of Kamaji's", func(t *testing.T) { replaced(t, key, before) })
	t.Run("deleted, nothing is left", func(t *testing.T) {
		e.Delete(t, key)
		e.Gone(t, key)
	})
}

// leftAlone shows that nothing is done for a tenant that isn't adopted.
func leftAlone(t *testing.T, key events.Key, before tenantLook) {
	env.Eventually(t, "intake to have seen it", func() error {
		text, err := e.Service(t, name.ServiceIntake, "a").Metrics(t.Context())
		if err == nil && !strings.Contains(text, `stoker_intake_held_tenants{service="intake"} 1`) {
			err = errNotYet
		}
		return err
	})
	if code, out := stoker(t, "why", key.Name); code != 1 || !strings.Contains(out, "stoker adopt made -n default") {
		t.Errorf("%d: %s", code, out)
	}
	if code, out := stoker(t, "sleep", key.Name); code != 1 || !strings.Contains(out, name.AnnotationAdopt) {
		t.Errorf("%d: %s", code, out)
	}
	if code, out := stoker(t, "get"); code != 0 || !strings.Contains(out, "NotAdopted") {
		t.Errorf("%d: %s", code, out)
	}
	now := look(t, key)
	unmoved(t, before, now)
	if now.tenant.ResourceVersion != before.tenant.ResourceVersion || !maps.Equal(now.versions, before.versions) {
		t.Errorf("%v became %v", before.versions, now.versions)
	}
}

// unmoved shows that a tenant has the pods, the template and the Secrets that it had.
func unmoved(t *testing.T, before, after tenantLook) {
	t.Helper()
	for _, diff := range []string{cmp.Diff(before.pods, after.pods), cmp.Diff(before.template, after.template)} {
		if diff != "" {
			t.Error(diff)
		}
	}
	for n, data := range before.data {
		if !reflect.DeepEqual(data, after.data[n]) {
			t.Errorf("Secret %s is another", n)
		}
	}
}

// replaced asks for something that takes other pods, and shows that they are Stoker's.
func replaced(t *testing.T, key events.Key, before tenantLook) {
	patch := map[string]any{"spec": map[string]any{"controlPlane": map[string]any{"deployment": map[string]any{
		"podAdditionalMetadata": map[string]any{"annotations": map[string]string{"example.com/asked": "for"}},
	}}}}
	must(t, e.Admin.MergePatch(t.Context(), kube.TenantControlPlanes, key.Namespace, key.Name, patch, nil))
	var d appsv1.Deployment
	env.Eventually(t, "pods with what is asked for", func() error {
		get(t, kube.Deployments, key.Namespace, key.Name, &d)
		if d.Spec.Template.Annotations["example.com/asked"] != "for" || d.Status.UpdatedReplicas != 1 || d.Status.Replicas != 1 ||
			d.Status.ObservedGeneration != d.Generation || d.Status.AvailableReplicas != 1 {
			return errNotYet
		}
		return nil
	})
	for _, v := range d.Spec.Template.Spec.Volumes {
		if v.Name == "etc-ssl-certs" {
			t.Errorf("Kamaji's volume %s is left", v.Name)
		}
	}
	if kube.Formerly(&d) || d.Spec.Template.Annotations[name.AnnotationConfigHash] == "" {
		t.Errorf("%+v", d.ObjectMeta)
	}
	e.Ready(t, key)
	after := look(t, key)
	for n, data := range before.data {
		if !reflect.DeepEqual(data, after.data[n]) {
			t.Errorf("Secret %s is another", n)
		}
	}
}

// madeByKamaji creates a tenant and waits until Kamaji says that it is Ready.
func madeByKamaji(t *testing.T, key events.Key, o *v1alpha1.TenantControlPlane) {
	t.Helper()
	o.TypeMeta = kube.TenantControlPlanes.TypeMeta()
	must(t, e.Admin.Create(t.Context(), kube.TenantControlPlanes, o))
	env.Eventually(t, "Kamaji to say Ready", func() error {
		var is v1alpha1.TenantControlPlane
		get(t, kube.TenantControlPlanes, key.Namespace, key.Name, &is)
		if s := is.Status.Kubernetes.Version.Status; s == nil || *s != v1alpha1.VersionReady {
			return fmt.Errorf("%+v", is.Status.Kubernetes)
		}
		return nil
	})
}

// tenantLook is what must not change when a tenant is adopted.
type tenantLook struct {
	tenant   v1alpha1.TenantControlPlane
	pods     map[string]string            // UID and restarts by name
	data     map[string]map[string][]byte // of Secrets
	template corev1.PodTemplateSpec
	versions map[string]string
}

func look(t *testing.T, key events.Key) tenantLook {
	t.Helper()
	l := tenantLook{pods: map[string]string{}, data: map[string]map[string][]byte{}, versions: map[string]string{}}
	var pods corev1.PodList
	var secrets corev1.SecretList
	var d appsv1.Deployment
	get(t, kube.TenantControlPlanes, key.Namespace, key.Name, &l.tenant)
	get(t, kube.Deployments, key.Namespace, key.Name, &d)
	selector := labels.FormatLabels(name.Selector(key.Name))
	e.List(t, kube.Pods, key.Namespace, selector, &pods)
	e.List(t, kube.Secrets, key.Namespace, selector, &secrets)
	for _, p := range pods.Items {
		l.pods[p.Name] = fmt.Sprint(p.UID, " ", p.Status.ContainerStatuses[0].RestartCount)
	}
	for _, s := range secrets.Items {
		l.data[s.Name], l.versions[s.Name] = s.Data, s.ResourceVersion
	}
	l.template, l.versions[d.Name] = d.Spec.Template, d.ResourceVersion
	return l
}

// rsaDataStore runs an etcd whose authority has the kind of key that Kamaji can sign with.
func rsaDataStore(t *testing.T, n string) {
	t.Helper()
	key, err := rsa.GenerateKey(rand.Reader, 2048)
	must(t, err)
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: n}, NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(24 * time.Hour),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign | x509.KeyUsageDigitalSignature,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	must(t, err)
	dir := filepath.Join(e.Local.Dir(), "pki", local.DriverEtcd+"-"+n)
	must(t, os.MkdirAll(dir, 0o700))
	for file, block := range map[string]*pem.Block{
		"ca.crt": {Type: "CERTIFICATE", Bytes: der}, "ca.key": {Type: "RSA PRIVATE KEY", Bytes: x509.MarshalPKCS1PrivateKey(key)},
	} {
		must(t, os.WriteFile(filepath.Join(dir, file), pem.EncodeToMemory(block), 0o600))
	}
	must(t, e.Local.AddDataStore(t.Context(), local.DataStore{Name: n, Driver: local.DriverEtcd}))
}
