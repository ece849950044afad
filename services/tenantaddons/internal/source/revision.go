package source

import (
	"encoding/json"

	"github.com/stoker-k8s/stoker/pkg/api/tenantaddon"
)

// Revision names what all tenants get: the source and the digest of its content, the values that all have, the template of their own ones, and
// the release's name and namespace. It changes with nothing else, such as who gets it and when. Of valuesFrom it is the content that counts.
func Revision(spec *tenantaddon.TenantAddonSpec, digest string, in Inputs) string {
	var values any
	if spec.Values != nil {
		// The order of fields and the space between them don't count.
		if err := json.Unmarshal(spec.Values.Raw, &values); err != nil {
			values = spec.Values.Raw
		}
	}
	return hashOf([]any{
		withoutCredentials(spec), digest, values, in.ValuesFrom, spec.ValuesTemplate, spec.ReleaseName, spec.TargetNamespace,
	})[:revisionLength]
}

// withoutCredentials is the source of spec: with which credentials it is fetched changes nothing for tenants, nor does inline content, whose
// digest counts.
func withoutCredentials(spec *tenantaddon.TenantAddonSpec) []any {
	var chart tenantaddon.Chart
	var kustomization tenantaddon.Kustomization
	var manifests tenantaddon.Manifests
	if spec.Chart != nil {
		chart = *spec.Chart
	}
	if spec.Kustomization != nil {
		kustomization = *spec.Kustomization
	}
	if spec.Manifests != nil {
		manifests = *spec.Manifests
	}
	for _, origin := range []*tenantaddon.Origin{&chart.Origin, &kustomization.Origin, &manifests.Origin} {
		*origin = tenantaddon.Origin{}
	}
	manifests.Inline = ""
	return []any{chart, kustomization, manifests}
}
