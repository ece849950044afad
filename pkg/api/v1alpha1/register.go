package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// GroupName is the API group of all kinds here.
const GroupName = "kamaji.clastix.io"

// Kinds and their plural resource names.
const (
	TenantControlPlaneKind      = "TenantControlPlane"
	TenantControlPlaneResource  = "tenantcontrolplanes"
	DataStoreKind               = "DataStore"
	DataStoreResource           = "datastores"
	KubeconfigGeneratorKind     = "KubeconfigGenerator"
	KubeconfigGeneratorResource = "kubeconfiggenerators"
)

// GroupVersion is the group and version of all kinds here.
var GroupVersion = schema.GroupVersion{Group: GroupName, Version: "v1alpha1"}

// SchemeBuilder collects the registration of the kinds; AddToScheme applies it to a scheme.
var (
	SchemeBuilder = runtime.NewSchemeBuilder(addKnownTypes)
	AddToScheme   = SchemeBuilder.AddToScheme
)

// TenantControlPlaneGVR addresses TenantControlPlane objects in dynamic and metadata clients.
func TenantControlPlaneGVR() schema.GroupVersionResource {
	return GroupVersion.WithResource(TenantControlPlaneResource)
}

// TenantControlPlaneGVK identifies the TenantControlPlane kind.
func TenantControlPlaneGVK() schema.GroupVersionKind {
	return GroupVersion.WithKind(TenantControlPlaneKind)
}

// DataStoreGVR addresses DataStore objects in dynamic and metadata clients.
func DataStoreGVR() schema.GroupVersionResource {
	return GroupVersion.WithResource(DataStoreResource)
}

// DataStoreGVK identifies the DataStore kind.
func DataStoreGVK() schema.GroupVersionKind {
	return GroupVersion.WithKind(DataStoreKind)
}

func addKnownTypes(scheme *runtime.Scheme) error {
	scheme.AddKnownTypes(GroupVersion,
		&TenantControlPlane{}, &TenantControlPlaneList{},
		&DataStore{}, &DataStoreList{},
		&KubeconfigGenerator{}, &KubeconfigGeneratorList{},
	)
	metav1.AddToGroupVersion(scheme, GroupVersion)

	return nil
}
