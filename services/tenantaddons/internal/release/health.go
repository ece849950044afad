package release

import (
	"strings"

	"github.com/fluxcd/cli-utils/pkg/kstatus/status"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/stoker-k8s/stoker/pkg/kube"
)

// looked reports whether objects of a kind are looked at to see whether they work: those of workloads, volumes, and all that isn't Kubernetes'
// own. Others work by being there.
func looked(r *kube.Resource) bool {
	switch group := r.GroupVersion.Group; group {
	case "":
		switch r.Kind {
		case "Pod", "PersistentVolumeClaim", "Service", "ReplicationController":
			return true
		}
		return false
	case "apps", "batch", "policy", "apiextensions.k8s.io", "apiregistration.k8s.io":
		return true
	case "autoscaling":
		return false
	default:
		_, own := kubernetesGroups[group]
		return !own
	}
}

// kubernetesGroups are those of Kubernetes' own whose objects work by being there.
var kubernetesGroups = map[string]struct{}{
	"admissionregistration.k8s.io": {}, "authentication.k8s.io": {}, "authorization.k8s.io": {}, "certificates.k8s.io": {}, "coordination.k8s.io": {},
	"discovery.k8s.io": {}, "events.k8s.io": {}, "flowcontrol.apiserver.k8s.io": {}, "networking.k8s.io": {}, "node.k8s.io": {},
	"rbac.authorization.k8s.io": {}, "resource.k8s.io": {}, "scheduling.k8s.io": {}, "storage.k8s.io": {},
}

// healthOf says whether an object works.
func healthOf(u *unstructured.Unstructured) objectHealth {
	result, err := status.Compute(u)
	if err != nil {
		return objectHealth{State: InProgress, Message: clip("its status can't be read: "+err.Error(), maxHealth/2)}
	}
	message := clip(strings.TrimSpace(result.Message), maxHealth/2)
	switch result.Status {
	case status.CurrentStatus:
		return objectHealth{State: Current}
	case status.FailedStatus:
		return objectHealth{State: Failed, Message: message}
	case status.TerminatingStatus:
		return objectHealth{State: InProgress, Message: "it is being deleted"}
	}
	return objectHealth{State: InProgress, Message: message}
}
