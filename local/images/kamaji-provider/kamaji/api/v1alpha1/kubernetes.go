package v1alpha1

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
)

// KubernetesSpec is the tenant's Kubernetes.
type KubernetesSpec struct {
	Version              string               `json:"version"`
	Kubelet              KubeletSpec          `json:"kubelet"`
	AdmissionControllers AdmissionControllers `json:"admissionControllers,omitempty"`
}

// AdmissionControllers are those that are on.
type AdmissionControllers []AdmissionController

// AdmissionController is the name of one.
type AdmissionController string

// KubeletSpec is how kubelets are configured and reached.
type KubeletSpec struct {
	ConfigurationJSONPatches []JSONPatch `json:"configurationJSONPatches,omitempty"`
	PreferredAddressTypes    []string    `json:"preferredAddressTypes,omitempty"`
	CGroupFS                 string      `json:"cgroupfs,omitempty"`
}

// JSONPatch is one step of a patch.
type JSONPatch struct {
	Op    string                `json:"op"`
	Path  string                `json:"path"`
	From  string                `json:"from,omitempty"`
	Value *runtime.RawExtension `json:"value,omitempty"`
}

// AddonsSpec is what is installed in the tenant.
type AddonsSpec struct {
	CoreDNS      *AddonSpec        `json:"coreDNS,omitempty"`
	Konnectivity *KonnectivitySpec `json:"konnectivity,omitempty"`
	KubeProxy    *AddonSpec        `json:"kubeProxy,omitempty"`
}

// AddonSpec is the image of an addon.
type AddonSpec struct {
	ImageRepository string `json:"imageRepository,omitempty"`
	ImageTag        string `json:"imageTag,omitempty"`
}

// KonnectivitySpec is the tunnel from the API server to nodes.
type KonnectivitySpec struct {
	Server KonnectivityServerSpec `json:"server,omitempty"`
	Agent  KonnectivityAgentSpec  `json:"agent,omitempty"`
}

// KonnectivityServerSpec is the end beside the API server.
type KonnectivityServerSpec struct {
	Port      int32                        `json:"port"`
	Version   string                       `json:"version,omitempty"`
	Image     string                       `json:"image,omitempty"`
	Resources *corev1.ResourceRequirements `json:"resources,omitempty"`
	ExtraArgs []string                     `json:"extraArgs,omitempty"`
}

// KonnectivityAgentSpec is the end in the tenant.
type KonnectivityAgentSpec struct {
	Image       string              `json:"image,omitempty"`
	Version     string              `json:"version,omitempty"`
	Tolerations []corev1.Toleration `json:"tolerations,omitempty"`
	ExtraArgs   []string            `json:"extraArgs,omitempty"`
	HostNetwork bool                `json:"hostNetwork,omitempty"`
	Mode        string              `json:"mode,omitempty"`
	Replicas    *int32              `json:"replicas,omitempty"`
}
