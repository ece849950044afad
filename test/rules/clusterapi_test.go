package rules

import (
	"context"
	"errors"
	"testing"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"

	"github.com/stoker-k8s/stoker/pkg/api/controlplane"
	"github.com/stoker-k8s/stoker/pkg/api/event"
	"github.com/stoker-k8s/stoker/pkg/api/name"
	"github.com/stoker-k8s/stoker/test/env"
)

// ofCluster is a Secret of Cluster API's cluster shop, whose control plane is shop-cp.
func ofCluster(n string, changes ...func(*corev1.Secret)) *corev1.Secret {
	s := &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Name: n, Labels: map[string]string{name.LabelComponent: name.ServiceCAPI}},
		Type:       "cluster.x-k8s.io/secret", Data: map[string][]byte{"value": []byte("a")},
	}
	s.OwnerReferences = []metav1.OwnerReference{{
		APIVersion: controlplane.GroupVersion.String(), Kind: "KamajiControlPlane", Name: "shop-cp",
		UID: "7c0f4a2e-2b1d-4a55-8c57-1f3b6a9d0e42", Controller: new(true),
	}}
	for _, change := range changes {
		change(s)
	}
	return s
}

// ofType makes a Secret one of another type.
func ofType(typ corev1.SecretType) func(*corev1.Secret) {
	return func(s *corev1.Secret) { s.Type = typ }
}

// newClusterSecrets are Secrets of Cluster API that a service makes.
func newClusterSecrets() map[string]newSecret {
	const owner, label = "belongs to no KamajiControlPlane", "carries no label kamaji.clastix.io/component=capi"
	capi := name.ServiceCAPI
	return map[string]newSecret{
		"Cluster API's kubeconfig":                     {service: capi, secret: ofCluster("shop-kubeconfig")},
		"Cluster API's kubeconfig of an older version": {service: capi, secret: ofCluster("shop-kubeconfig", ownedBy("controlplane.cluster.x-k8s.io/v1alpha1", "KamajiControlPlane"))},
		"Cluster API's authority":                      {service: capi, secret: ofCluster("shop-ca")},
		"Cluster API's by another name":                {service: capi, secret: ofCluster("shop-sa"), refused: "not shop-sa"},
		"Cluster API's kubeconfig of type Opaque":      {service: capi, secret: ofCluster("shop-kubeconfig", ofType(corev1.SecretTypeOpaque)), refused: "not of the type cluster.x-k8s.io/secret"},
		"the token of an account, by capi":             {service: capi, secret: ofCluster("shop-ca", token), refused: "not of the type"},
		"Cluster API's without a label":                {service: capi, secret: ofCluster("shop-ca", func(s *corev1.Secret) { s.Labels = nil }), refused: label},
		"Cluster API's with another label":             {service: capi, secret: ofCluster("shop-ca", func(s *corev1.Secret) { s.Labels[name.LabelComponent] = "x" }), refused: label},
		"Cluster API's of nobody":                      {service: capi, secret: ofCluster("shop-ca", func(s *corev1.Secret) { s.OwnerReferences = nil }), refused: owner},
		"Cluster API's that nobody controls":           {service: capi, secret: ofCluster("shop-ca", uncontrolled), refused: owner},
		"Cluster API's of its Cluster":                 {service: capi, secret: ofCluster("shop-ca", ownedBy("cluster.x-k8s.io/v1beta2", "Cluster")), refused: owner},
		"Cluster API's of another API's control plane": {service: capi, secret: ofCluster("shop-ca", ownedBy("example.com/v1", "KamajiControlPlane")), refused: owner},
		"Cluster API's in a namespace of the system":   {service: capi, namespace: metav1.NamespaceSystem, secret: ofCluster("shop-ca"), refused: "namespace kube-system"},
		"Cluster API's in the namespace of Stoker":     {service: capi, namespace: name.SystemNamespace, secret: ofCluster("shop-ca"), refused: "namespace stoker-system"},
		"a tenant's by capi":                           {service: capi, secret: secret("demo-ca", nil), refused: "not of the type cluster.x-k8s.io/secret"},
		"Cluster API's by certs":                       {service: name.ServiceCerts, secret: ofCluster("shop-ca"), refused: "carries no label kamaji.clastix.io/project=kamaji"},
		"Cluster API's by datastore":                   {service: name.ServiceDatastore, secret: ofCluster("shop-kubeconfig"), refused: "carries no label kamaji.clastix.io/project=kamaji"},
		"Cluster API's by a service that writes none":  {service: another, secret: ofCluster("shop-ca"), refused: "writes no Secrets"},
	}
}

// hadClusterSecrets are Secrets that were there, which capi makes Cluster API's by a patch, its only way of changing one.
func hadClusterSecrets() map[string]hadSecret {
	const owner = "or belonged to none"
	return map[string]hadSecret{
		"Cluster API's":                       {there: ofCluster("shop-kubeconfig")},
		"one whose label is gone":             {there: ofCluster("shop-kubeconfig", func(s *corev1.Secret) { s.Labels = nil }), refused: "or carried none"},
		"one whose owner is gone":             {there: ofCluster("shop-ca", func(s *corev1.Secret) { s.OwnerReferences = nil }), refused: owner},
		"a Cluster's":                         {there: ofCluster("shop-ca", ownedBy("cluster.x-k8s.io/v1beta2", "Cluster")), refused: owner},
		"somebody's of that name":             {there: ofCluster("shop-kubeconfig", stranger, ofType(corev1.SecretTypeOpaque)), refused: "or was not"},
		"a tenant's of that name":             {there: secret("demo-ca", nil), refused: "or was not"},
		"somebody's of another name and type": {there: secret("shop-x", stranger), refused: "not shop-x"},
	}
}

// TestSecretsOfClusterAPI has capi write Secrets: those that Cluster API reads of its control planes, and no others.
func TestSecretsOfClusterAPI(t *testing.T) {
	_, c := admin(t)
	const ns = metav1.NamespaceDefault
	capi := asService(t, name.ServiceCAPI)
	dry := metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}}
	until(t, func() error {
		_, err := capi.CoreV1().Secrets(ns).Create(t.Context(), ofCluster("shop-sa"), dry)
		return err
	})
	for what, test := range newClusterSecrets() {
		t.Run("a new one: "+what, func(t *testing.T) {
			if test.namespace == "" {
				test.namespace = ns
			}
			_, err := asService(t, test.service).CoreV1().Secrets(test.namespace).Create(t.Context(), test.secret, dry)
			expect(t, err, test.refused)
		})
	}
	for what, test := range hadClusterSecrets() {
		t.Run("one that was there: "+what, func(t *testing.T) {
			there := standing(t, c, test.there)
			own := ofCluster(there.Name)
			patch := event.Marshal(map[string]any{"metadata": map[string]any{"labels": own.Labels, "ownerReferences": own.OwnerReferences}, "data": own.Data})
			_, err := capi.CoreV1().Secrets(ns).Patch(t.Context(), there.Name, types.MergePatchType, patch, metav1.PatchOptions{})
			expect(t, err, test.refused)
		})
	}
	t.Run("one that is to be somebody's", func(t *testing.T) {
		there := standing(t, c, ofCluster("shop-kubeconfig"))
		for _, patch := range []string{`{"metadata":{"ownerReferences":null}}`, `{"metadata":{"labels":null}}`} {
			_, err := capi.CoreV1().Secrets(ns).Patch(t.Context(), there.Name, types.MergePatchType, []byte(patch), metav1.PatchOptions{})
			expect(t, err, "Secret shop-kubeconfig")
		}
	})
	t.Run("none goes", func(t *testing.T) {
		there := standing(t, c, ofCluster("shop-kubeconfig"))
		if err := capi.CoreV1().Secrets(ns).Delete(t.Context(), there.Name, metav1.DeleteOptions{}); !apierrors.IsForbidden(err) {
			t.Errorf("its role lets it: %v", err)
		}
		mayAll(t, c, name.ServiceCAPI)
		expect(t, capi.CoreV1().Secrets(ns).Delete(t.Context(), there.Name, metav1.DeleteOptions{}), "service capi deletes no Secrets, not shop-kubeconfig")
	})
}

// standing makes a Secret that is there until the test ends.
func standing(t *testing.T, c kubernetes.Interface, s *corev1.Secret) *corev1.Secret {
	t.Helper()
	there, err := c.CoreV1().Secrets(metav1.NamespaceDefault).Create(t.Context(), s, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := c.CoreV1().Secrets(there.Namespace).Delete(context.Background(), there.Name, metav1.DeleteOptions{}); err != nil {
			t.Error(err)
		}
	})
	return there
}

// mayAll lets a service's account do everything until the test ends, so that the policies alone keep it from that.
func mayAll(t *testing.T, c kubernetes.Interface, service string) {
	t.Helper()
	binding := &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: "rules-" + service}, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "cluster-admin"},
		Subjects: []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Namespace: name.SystemNamespace, Name: "stoker-" + service}},
	}
	if _, err := c.RbacV1().ClusterRoleBindings().Create(t.Context(), binding, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := c.RbacV1().ClusterRoleBindings().Delete(context.Background(), binding.Name, metav1.DeleteOptions{}); err != nil {
			t.Error(err)
		}
	})
	env.Eventually(t, "the account to have its rights", func() error {
		if !may(t, c, service, "", "*", "*", "*") {
			return errors.New("it has none yet")
		}
		return nil
	})
}
