// Package v1alpha1 has the objects of kamaji.clastix.io/v1alpha1 as Kamaji's provider for Cluster API writes and reads them: of the spec
// what it sets, or may find set and must not lose; of the status what it reads. It is Stoker's text, but for the names of types and fields,
// and what they are in JSON: those are Kamaji's own, so that the provider sends what its published container image sends. In particular, an
// empty struct is sent as {}. Rules and defaults are not here, for the API server has them from the CRDs.
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
