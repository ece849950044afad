package rules

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/stoker-k8s/stoker/pkg/api/name"
	"github.com/stoker-k8s/stoker/pkg/api/state"
	"github.com/stoker-k8s/stoker/pkg/api/v1alpha1"
	"github.com/stoker-k8s/stoker/services/workload"
	"github.com/stoker-k8s/stoker/test/env"
)

// asService is a client with what the account of a service may.
func asService(t *testing.T, service string) kubernetes.Interface {
	t.Helper()
	cfg, _ := admin(t)
	cfg.Impersonate = rest.ImpersonationConfig{
		UserName: "system:serviceaccount:" + name.SystemNamespace + ":stoker-" + service,
		Groups:   []string{"system:serviceaccounts", "system:serviceaccounts:" + name.SystemNamespace, "system:authenticated"},
	}
	c, err := kubernetes.NewForConfig(cfg)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// owned is metadata of an object of the tenant demo.
func owned(object string) metav1.ObjectMeta {
	return metav1.ObjectMeta{
		Name: object, Labels: map[string]string{name.LabelProject: name.Project, name.LabelName: "demo"},
		OwnerReferences: []metav1.OwnerReference{{
			APIVersion: v1alpha1.GroupVersion.String(), Kind: v1alpha1.TenantControlPlaneKind, Name: "demo",
			UID: "5e1b8c1e-7f3a-4f57-9d38-0d3f8e0b7a11", Controller: new(true),
		}},
	}
}

// until waits for a policy to refuse what it must, which it doesn't do at once when it is new.
func until(t *testing.T, refused func() error) {
	t.Helper()
	env.Eventually(t, "the policies to be looked at", func() error {
		if err := refused(); !apierrors.IsInvalid(err) {
			return fmt.Errorf("not refused: %w", cmp.Or(err, errors.New("accepted")))
		}
		return nil
	})
}

// TestSecretsThatServicesWrite has services write Secrets: those of tenants, and no others.
func TestSecretsThatServicesWrite(t *testing.T) {
	_, c := admin(t)
	const ns = metav1.NamespaceDefault
	secret := func(n string, change func(*corev1.Secret)) *corev1.Secret {
		s := &corev1.Secret{ObjectMeta: owned(n), Type: corev1.SecretTypeOpaque, Data: map[string][]byte{"a": []byte("b")}}
		if change != nil {
			change(s)
		}
		return s
	}
	stranger := func(s *corev1.Secret) { s.Labels, s.OwnerReferences = nil, nil }
	dry := metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}}
	until(t, func() error {
		_, err := asService(t, name.ServiceCerts).CoreV1().Secrets(ns).Create(t.Context(), secret("demo-datastore-config", nil), dry)
		return err
	})
	for what, test := range map[string]struct {
		service, namespace string
		secret             *corev1.Secret
		refused            string // part of the message; empty: accepted
	}{
		"a tenant's certificate":                 {service: name.ServiceCerts, secret: secret("demo-ca", nil)},
		"a tenant's credentials":                 {service: name.ServiceDatastore, secret: secret("demo-datastore-config", nil)},
		"credentials by certs":                   {service: name.ServiceCerts, secret: secret("demo-datastore-config", nil), refused: "does not write"},
		"the token of an account":                {service: name.ServiceCerts, secret: secret("demo-token", token), refused: "is of type kubernetes.io/service-account-token"},
		"the token of an account, by datastore":  {service: name.ServiceDatastore, secret: secret("demo-datastore-config", token), refused: "is of type"},
		"one that belongs to nobody":             {service: name.ServiceCerts, secret: secret("demo-ca", func(s *corev1.Secret) { s.OwnerReferences = nil }), refused: "belongs to no TenantControlPlane"},
		"one that belongs to a Deployment":       {service: name.ServiceCerts, secret: secret("demo-ca", func(s *corev1.Secret) { s.OwnerReferences[0].Kind = "Deployment" }), refused: "belongs to no TenantControlPlane"},
		"one with the name of something else":    {service: name.ServiceCerts, secret: secret("other-ca", nil), refused: "belongs to no TenantControlPlane"},
		"one in a namespace of the system":       {service: name.ServiceCerts, namespace: metav1.NamespaceSystem, secret: secret("demo-ca", nil), refused: "namespace kube-system"},
		"one in the namespace of Stoker":         {service: name.ServiceDatastore, namespace: name.SystemNamespace, secret: secret("demo-datastore-config", nil), refused: "namespace stoker-system"},
		"the token of an account, in stoker's":   {service: name.ServiceCerts, namespace: name.SystemNamespace, secret: secret("demo-token", token), refused: "namespace stoker-system"},
		"a Secret without the label of a tenant": {service: name.ServiceCerts, secret: secret("demo-ca", func(s *corev1.Secret) { s.Labels = nil }), refused: "carries no label"},
	} {
		t.Run("a new one: "+what, func(t *testing.T) {
			if test.namespace == "" {
				test.namespace = ns
			}
			_, err := asService(t, test.service).CoreV1().Secrets(test.namespace).Create(t.Context(), test.secret, dry)
			expect(t, err, test.refused)
		})
	}
	for what, test := range map[string]struct {
		service string
		there   *corev1.Secret
		refused string
	}{
		"a tenant's":                           {service: name.ServiceCerts, there: secret("demo-ca", nil)},
		"a tenant's whose owner is gone":       {service: name.ServiceCerts, there: secret("demo-ca", func(s *corev1.Secret) { s.OwnerReferences = nil })},
		"a tenant's whose labels are gone":     {service: name.ServiceCerts, there: secret("demo-ca", func(s *corev1.Secret) { s.Labels = nil })},
		"a CA that somebody brought":           {service: name.ServiceCerts, there: secret("demo-ca", func(s *corev1.Secret) { stranger(s); s.Data = authority })},
		"somebody's with the name of a CA":     {service: name.ServiceCerts, there: secret("demo-ca", stranger), refused: "belongs to no tenant"},
		"somebody's own":                       {service: name.ServiceCerts, there: secret("demo-admin-kubeconfig", stranger), refused: "belongs to no tenant"},
		"somebody's own, by datastore":         {service: name.ServiceDatastore, there: secret("demo-datastore-config", stranger), refused: "belongs to no tenant"},
		"somebody's own with the keys of a CA": {service: name.ServiceCerts, there: secret("demo-admin-kubeconfig", func(s *corev1.Secret) { stranger(s); s.Data = authority }), refused: "belongs to no tenant"},
	} {
		t.Run("one that was there: "+what, func(t *testing.T) {
			there, err := c.CoreV1().Secrets(ns).Create(t.Context(), test.there, metav1.CreateOptions{})
			if err != nil {
				t.Fatal(err)
			}
			defer func() {
				if err := c.CoreV1().Secrets(ns).Delete(t.Context(), there.Name, metav1.DeleteOptions{}); err != nil {
					t.Error(err)
				}
			}()
			changed := secret(there.Name, nil)
			_, err = asService(t, test.service).CoreV1().Secrets(ns).Update(t.Context(), changed, metav1.UpdateOptions{})
			expect(t, err, test.refused)
		})
	}
}

func token(s *corev1.Secret) {
	s.Type = corev1.SecretTypeServiceAccountToken
	s.Annotations = map[string]string{corev1.ServiceAccountNameKey: "default"}
}

var authority = map[string][]byte{name.KeyCACert: []byte("a"), name.KeyCAKey: []byte("b")}

// expect checks what was said of a write: refused by a policy with a message that has a part, or accepted when that is empty.
func expect(t *testing.T, err error, refused string) {
	t.Helper()
	switch {
	case refused == "" && err != nil:
		t.Errorf("refused: %v", err)
	case refused != "" && (!apierrors.IsInvalid(err) || !strings.Contains(err.Error(), "ValidatingAdmissionPolicy") || !strings.Contains(err.Error(), refused)):
		t.Errorf("not refused with %q: %v", refused, err)
	}
}

// TestObjectsThatWorkloadWrites has workload write Deployments and Services: those of tenants, and no others.
func TestObjectsThatWorkloadWrites(t *testing.T) {
	_, c := admin(t)
	w := asService(t, name.ServiceWorkload)
	const ns = metav1.NamespaceDefault
	tcp := &v1alpha1.TenantControlPlane{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "demo", UID: "5e1b8c1e-7f3a-4f57-9d38-0d3f8e0b7a11"}}
	tcp.Spec.Kubernetes.Version, tcp.Spec.ControlPlane.Service.ServiceType = "v1.36.3", v1alpha1.ServiceTypeClusterIP
	v1alpha1.Default(tcp)
	subject := workload.Subject{UID: string(tcp.UID), Tenant: &state.Tenant{Namespace: ns, Name: tcp.Name, Spec: tcp.Spec}}
	pods := func(change func(*appsv1.Deployment)) *appsv1.Deployment {
		d := workload.Deployment(workload.Input{
			Subject: subject, Advertise: "192.0.2.1",
			Datastore: state.Datastore{DataStore: "a", Driver: string(v1alpha1.DriverEtcd), Schema: "a", Endpoints: []string{"a:1"}},
		})
		change(d)
		return d
	}
	service := func(change func(*corev1.Service)) *corev1.Service {
		s := workload.Service(subject)
		change(s)
		return s
	}
	dry := metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}}
	until(t, func() error {
		_, err := w.CoreV1().Services(ns).Create(t.Context(), service(func(s *corev1.Service) { s.OwnerReferences = nil }), dry)
		return err
	})
	for what, test := range map[string]struct {
		deployment *appsv1.Deployment
		service    *corev1.Service
		refused    string
	}{
		"a tenant's Deployment":            {deployment: pods(func(*appsv1.Deployment) {})},
		"a tenant's Service":               {service: service(func(*corev1.Service) {})},
		"a Deployment of nobody":           {deployment: pods(func(d *appsv1.Deployment) { d.OwnerReferences = nil }), refused: "belongs to no TenantControlPlane"},
		"a Deployment of another name":     {deployment: pods(func(d *appsv1.Deployment) { d.Name = "other" }), refused: "belongs to no TenantControlPlane"},
		"a Deployment in kube-system":      {deployment: pods(func(d *appsv1.Deployment) { d.Namespace = metav1.NamespaceSystem }), refused: "namespace kube-system"},
		"a Deployment beside the services": {deployment: pods(func(d *appsv1.Deployment) { d.Namespace = name.SystemNamespace }), refused: "namespace stoker-system"},
		"pods in a node's network":         {deployment: pods(func(d *appsv1.Deployment) { d.Spec.Template.Spec.HostNetwork = true }), refused: "node's network"},
		"pods among a node's processes":    {deployment: pods(func(d *appsv1.Deployment) { d.Spec.Template.Spec.HostPID = true }), refused: "node's network"},
		"pods that name a node":            {deployment: pods(func(d *appsv1.Deployment) { d.Spec.Template.Spec.NodeName = "a" }), refused: "name a node"},
		"a Service that leads elsewhere": {service: service(func(s *corev1.Service) {
			s.Spec.Type, s.Spec.ExternalName = corev1.ServiceTypeExternalName, "a.example.com"
		}), refused: "must lead to the pods"},
		"a Service of somebody else's pods": {service: service(func(s *corev1.Service) { s.Spec.Selector = map[string]string{"app": "other"} }), refused: "must lead to the pods"},
	} {
		t.Run("a new one: "+what, func(t *testing.T) {
			var err error
			if test.deployment != nil {
				_, err = w.AppsV1().Deployments(test.deployment.Namespace).Create(t.Context(), test.deployment, dry)
			} else {
				_, err = w.CoreV1().Services(test.service.Namespace).Create(t.Context(), test.service, dry)
			}
			expect(t, err, test.refused)
		})
	}
	t.Run("one that was there and is somebody else's is neither changed nor deleted", func(t *testing.T) {
		there := pods(func(d *appsv1.Deployment) { d.OwnerReferences, d.Labels = nil, nil })
		if _, err := c.AppsV1().Deployments(ns).Create(t.Context(), there, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
		applied := pods(func(d *appsv1.Deployment) { d.Labels = maps.Clone(d.Labels) })
		data, err := json.Marshal(applied)
		if err != nil {
			t.Fatal(err)
		}
		_, err = w.AppsV1().Deployments(ns).Patch(t.Context(), there.Name, "application/apply-patch+yaml", data, metav1.PatchOptions{FieldManager: "test", Force: new(true)})
		expect(t, err, "belongs to no tenant")
		expect(t, w.AppsV1().Deployments(ns).Delete(t.Context(), there.Name, metav1.DeleteOptions{}), "belongs to no tenant")
		if err := c.AppsV1().Deployments(ns).Delete(t.Context(), there.Name, metav1.DeleteOptions{}); err != nil {
			t.Error(err)
		}
	})
}
