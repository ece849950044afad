package tenantaddon

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// GroupName is the API group of all kinds here.
const GroupName = "stoker.dev"

// Kinds and their plural resource names.
const (
	TenantAddonKind      = "TenantAddon"
	TenantAddonResource  = "tenantaddons"
	AddonReleaseKind     = "AddonRelease"
	AddonReleaseResource = "addonreleases"
)

// GroupVersion is the version that is served and stored.
var GroupVersion = schema.GroupVersion{Group: GroupName, Version: "v1alpha1"}

// SchemeBuilder collects the registration of the kinds; AddToScheme applies it to a scheme.
var (
	SchemeBuilder = runtime.NewSchemeBuilder(addKnownTypes)
	AddToScheme   = SchemeBuilder.AddToScheme
)

func addKnownTypes(scheme *runtime.Scheme) error {
	scheme.AddKnownTypes(GroupVersion, &TenantAddon{}, &TenantAddonList{}, &AddonRelease{}, &AddonReleaseList{})
	metav1.AddToGroupVersion(scheme, GroupVersion)
	return nil
}
