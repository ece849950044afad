package v1alpha1

import (
	"encoding/json"

	"k8s.io/apimachinery/pkg/runtime"
)

// through copies by way of JSON: that is slow, but needs no code for each type.
func through[T any](in, out *T) {
	data, err := json.Marshal(in)
	if err != nil {
		panic(err)
	}
	var fresh T
	if err := json.Unmarshal(data, &fresh); err != nil {
		panic(err)
	}
	*out = fresh
}

// DeepCopyObject makes it an object for clients.
func (t *TenantControlPlane) DeepCopyObject() runtime.Object {
	out := new(TenantControlPlane)
	through(t, out)
	return out
}

// DeepCopyObject makes it a list for clients.
func (t *TenantControlPlaneList) DeepCopyObject() runtime.Object {
	out := new(TenantControlPlaneList)
	through(t, out)
	return out
}

// The provider's own objects have these within.

// DeepCopyInto copies all that it holds.
func (a *AdditionalMetadata) DeepCopyInto(out *AdditionalMetadata) { through(a, out) }

// DeepCopyInto copies all that it holds.
func (a *AdditionalPort) DeepCopyInto(out *AdditionalPort) { through(a, out) }

// DeepCopyInto copies all that it holds.
func (a *AddonsSpec) DeepCopyInto(out *AddonsSpec) { through(a, out) }

// DeepCopyInto copies all that it holds.
func (k *KubeletSpec) DeepCopyInto(out *KubeletSpec) { through(k, out) }

// DeepCopyInto copies all that it holds.
func (p *ProbeSet) DeepCopyInto(out *ProbeSet) { through(p, out) }
