package intake

// Tenants whose object a Cluster API control plane provider writes. It sets the object's spec again whenever it looks at it, so that what a
// command changed there would go back, and forth with the next command. Such commands are refused, with the field named that is to be
// changed instead. Annotations stay, so that pauses, backups and schedules work as for other tenants.

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/stoker-k8s/stoker/pkg/api/controlplane"
	"github.com/stoker-k8s/stoker/pkg/api/event"
)

// writer is the control plane object of Cluster API that an object's spec comes from; nil for none.
func writer(o *object) *metav1.OwnerReference {
	if o == nil || o.tenant == nil {
		return nil
	}
	owner := metav1.GetControllerOf(&o.ObjectMeta)
	if owner == nil || !strings.HasPrefix(owner.APIVersion, controlplane.GroupName+"/") {
		return nil
	}
	return owner
}

// provided refuses a patch of what the provider of a tenant's control plane writes.
func provided(o *object, patch map[string]any) refusal {
	owner, spec := writer(o), patch["spec"]
	if owner == nil || spec == nil {
		return nil
	}
	var found refusal
	for _, path := range leaves("spec", spec) {
		if from, is := providedFrom(path); is {
			found = append(found, refuse(path, event.RuleForbidden, lookup(patch, path),
				fmt.Sprintf("comes from %s %s, whose provider writes it: change %s there, or in its Cluster if that has a topology",
					owner.Kind, owner.Name, from))...)
		}
	}
	return found
}

// providedFields are the fields that the provider writes, and of those that have a field of their own in a KamajiControlPlane which one; of
// others it is one above. Longer paths say more than those that they begin with.
var providedFields = map[string]string{
	"spec":                                  "spec",
	"spec.writePermissions":                 "", // an operator's, which the provider leaves alone
	"spec.dataStore":                        "spec.dataStoreName",
	"spec.dataStoreSchema":                  "spec.dataStoreSchema",
	"spec.dataStoreUsername":                "spec.dataStoreUsername",
	"spec.dataStoreOverrides":               "spec.dataStoreOverrides",
	"spec.addons":                           "spec.addons",
	"spec.kubernetes.version":               "spec.version",
	"spec.kubernetes.kubelet":               "spec.kubelet",
	"spec.kubernetes.admissionControllers":  "spec.admissionControllers",
	"spec.controlPlane.deployment":          "spec.deployment",
	"spec.controlPlane.deployment.replicas": "spec.replicas",
	"spec.controlPlane.service":             "spec.network",
	"spec.controlPlane.ingress":             "spec.network.ingress",
	"spec.controlPlane.gateway":             "spec.network.gateway",
	"spec.networkProfile":                   "spec.network",
}

// providedFrom is the field of a KamajiControlPlane that a field of a tenant comes from; false when the provider doesn't write it.
func providedFrom(path string) (field string, is bool) {
	for at := path; ; {
		if from, known := providedFields[at]; known {
			return from, from != ""
		}
		i := strings.LastIndexByte(at, '.')
		if i < 0 {
			return "", false
		}
		at = at[:i]
	}
}

// providedWhole refuses a command that is about the whole object.
func providedWhole(o *object) error {
	owner := writer(o)
	if owner == nil {
		return nil
	}
	return refuse("metadata.ownerReferences", event.RuleForbidden, owner.Kind+" "+owner.Name,
		"the provider of this "+owner.Kind+" makes the tenant, and makes it again: change or delete that, or its Cluster")
}

// leaves are the paths of what a merge patch changes, sorted.
func leaves(path string, patch any) []string {
	m, ok := patch.(map[string]any)
	if !ok || len(m) == 0 {
		return []string{path}
	}
	var all []string
	for _, k := range slices.Sorted(maps.Keys(m)) {
		all = append(all, leaves(path+"."+k, m[k])...)
	}
	return all
}
