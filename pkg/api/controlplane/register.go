package controlplane

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// GroupName is the API group of all kinds here.
const GroupName = "controlplane.cluster.x-k8s.io"

// Kinds and their plural resource names.
const (
	KamajiControlPlaneKind             = "KamajiControlPlane"
	KamajiControlPlaneResource         = "kamajicontrolplanes"
	KamajiControlPlaneTemplateKind     = "KamajiControlPlaneTemplate"
	KamajiControlPlaneTemplateResource = "kamajicontrolplanetemplates"
)

// The served versions. Their objects differ in nothing but apiVersion.
var (
	// GroupVersion is the stored one, of contract v1beta2.
	GroupVersion = schema.GroupVersion{Group: GroupName, Version: "v1alpha2"}
	// GroupVersionV1Alpha1 is that of contract v1beta1.
	GroupVersionV1Alpha1 = schema.GroupVersion{Group: GroupName, Version: "v1alpha1"}
)

// SchemeBuilder collects the registration of the kinds under both versions; AddToScheme applies it to a scheme. An object that is to be
// encoded by a scheme must have its apiVersion, for the Go type alone doesn't say which of the two is meant.
var (
	SchemeBuilder = runtime.NewSchemeBuilder(addKnownTypes)
	AddToScheme   = SchemeBuilder.AddToScheme
)

// KamajiControlPlaneGVR addresses KamajiControlPlane objects in dynamic and metadata clients.
func KamajiControlPlaneGVR() schema.GroupVersionResource {
	return GroupVersion.WithResource(KamajiControlPlaneResource)
}

// KamajiControlPlaneGVK identifies the KamajiControlPlane kind.
func KamajiControlPlaneGVK() schema.GroupVersionKind {
	return GroupVersion.WithKind(KamajiControlPlaneKind)
}

// KamajiControlPlaneTemplateGVR addresses KamajiControlPlaneTemplate objects in dynamic and metadata clients.
func KamajiControlPlaneTemplateGVR() schema.GroupVersionResource {
	return GroupVersion.WithResource(KamajiControlPlaneTemplateResource)
}

// KamajiControlPlaneTemplateGVK identifies the KamajiControlPlaneTemplate kind.
func KamajiControlPlaneTemplateGVK() schema.GroupVersionKind {
	return GroupVersion.WithKind(KamajiControlPlaneTemplateKind)
}

func addKnownTypes(scheme *runtime.Scheme) error {
	for _, version := range []schema.GroupVersion{GroupVersion, GroupVersionV1Alpha1} {
		scheme.AddKnownTypes(version,
			&KamajiControlPlane{}, &KamajiControlPlaneList{},
			&KamajiControlPlaneTemplate{}, &KamajiControlPlaneTemplateList{},
		)
		metav1.AddToGroupVersion(scheme, version)
	}
	return nil
}
