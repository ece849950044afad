// Package v1alpha1 has the objects of kamaji.clastix.io/v1alpha1 as Kamaji's provider for Cluster API writes and reads them. Their types are
// generated from the CRD by tools/kamajitypes, which adds the names of Go types and what the provider's published container image sends: in
// particular, it sends an empty struct as {}. Rules and defaults are not here, because the API server has them from the CRDs.
package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// GroupVersion is that of all objects here.
var GroupVersion = schema.GroupVersion{Group: "kamaji.clastix.io", Version: "v1alpha1"}

// KubeconfigSecretKeyAnnotation says which key of the administrator's kubeconfig Secret is to be used.
const KubeconfigSecretKeyAnnotation = "kamaji.clastix.io/kubeconfig-secret-key"

// AddToScheme makes the objects known to a scheme.
func AddToScheme(scheme *runtime.Scheme) error {
	scheme.AddKnownTypes(GroupVersion, &TenantControlPlane{}, &TenantControlPlaneList{})
	metav1.AddToGroupVersion(scheme, GroupVersion)
	return nil
}
