// Package tenantaddon holds the API kinds, in Stoker's own group stoker.dev, of the software that many tenants run: a TenantAddon says what
// that is and which tenants run it, an AddonRelease is one TenantAddon in one tenant.
//
// Platform teams write TenantAddons; AddonReleases are made from them and tell, tenant by tenant, how far it is.
//
// +kubebuilder:object:generate=true
// +groupName=stoker.dev
// +versionName=v1alpha1
package tenantaddon
