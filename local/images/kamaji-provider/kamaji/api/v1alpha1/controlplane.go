package v1alpha1

import (
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"
)

// ControlPlane is how the control plane runs, and is reached.
type ControlPlane struct {
	Deployment DeploymentSpec `json:"deployment,omitempty"`
	Service    ServiceSpec    `json:"service"`
	Ingress    *IngressSpec   `json:"ingress,omitempty"`
	Gateway    *GatewaySpec   `json:"gateway,omitempty"`
}

// DeploymentSpec is the pods.
type DeploymentSpec struct {
	RegistrySettings          RegistrySettings                  `json:"registrySettings,omitempty"`
	Replicas                  *int32                            `json:"replicas,omitempty"`
	NodeSelector              map[string]string                 `json:"nodeSelector,omitempty"`
	RuntimeClassName          string                            `json:"runtimeClassName,omitempty"`
	Strategy                  appsv1.DeploymentStrategy         `json:"strategy,omitempty"`
	Tolerations               []corev1.Toleration               `json:"tolerations,omitempty"`
	Affinity                  *corev1.Affinity                  `json:"affinity,omitempty"`
	TopologySpreadConstraints []corev1.TopologySpreadConstraint `json:"topologySpreadConstraints,omitempty"`
	Resources                 *ControlPlaneComponentsResources  `json:"resources,omitempty"`
	ExtraArgs                 *ControlPlaneExtraArgs            `json:"extraArgs,omitempty"`
	AdditionalMetadata        AdditionalMetadata                `json:"additionalMetadata,omitempty"`
	PodAdditionalMetadata     AdditionalMetadata                `json:"podAdditionalMetadata,omitempty"`
	AdditionalInitContainers  []corev1.Container                `json:"additionalInitContainers,omitempty"`
	AdditionalContainers      []corev1.Container                `json:"additionalContainers,omitempty"`
	AdditionalVolumes         []corev1.Volume                   `json:"additionalVolumes,omitempty"`
	AdditionalVolumeMounts    *AdditionalVolumeMounts           `json:"additionalVolumeMounts,omitempty"`
	Probes                    *ControlPlaneProbes               `json:"probes,omitempty"`
	ServiceAccountName        string                            `json:"serviceAccountName,omitempty"`
}

// RegistrySettings are where images come from.
type RegistrySettings struct {
	Registry               string `json:"registry,omitempty"`
	TagSuffix              string `json:"tagSuffix,omitempty"`
	APIServerImage         string `json:"apiServerImage,omitempty"`
	ControllerManagerImage string `json:"controllerManagerImage,omitempty"`
	SchedulerImage         string `json:"schedulerImage,omitempty"`
}

// ControlPlaneComponentsResources are the CPU and memory of each component.
type ControlPlaneComponentsResources struct {
	APIServer         *corev1.ResourceRequirements `json:"apiServer,omitempty"`
	ControllerManager *corev1.ResourceRequirements `json:"controllerManager,omitempty"`
	Scheduler         *corev1.ResourceRequirements `json:"scheduler,omitempty"`
	Kine              *corev1.ResourceRequirements `json:"kine,omitempty"`
}

// ControlPlaneExtraArgs are further flags of each component.
type ControlPlaneExtraArgs struct {
	APIServer         []string `json:"apiServer,omitempty"`
	ControllerManager []string `json:"controllerManager,omitempty"`
	Scheduler         []string `json:"scheduler,omitempty"`
	Kine              []string `json:"kine,omitempty"`
}

// AdditionalVolumeMounts are further mounts of each component.
type AdditionalVolumeMounts struct {
	APIServer         []corev1.VolumeMount `json:"apiServer,omitempty"`
	ControllerManager []corev1.VolumeMount `json:"controllerManager,omitempty"`
	Scheduler         []corev1.VolumeMount `json:"scheduler,omitempty"`
}

// ControlPlaneProbes are the probes of all components, and of each.
type ControlPlaneProbes struct {
	ProbeSet `json:",inline"`

	APIServer         *ProbeSet `json:"apiServer,omitempty"`
	ControllerManager *ProbeSet `json:"controllerManager,omitempty"`
	Scheduler         *ProbeSet `json:"scheduler,omitempty"`
}

// ProbeSet is the probes of one component.
type ProbeSet struct {
	Liveness  *ProbeSpec `json:"liveness,omitempty"`
	Readiness *ProbeSpec `json:"readiness,omitempty"`
	Startup   *ProbeSpec `json:"startup,omitempty"`
}

// ProbeSpec is the times of a probe.
type ProbeSpec struct {
	InitialDelaySeconds *int32 `json:"initialDelaySeconds,omitempty"`
	TimeoutSeconds      *int32 `json:"timeoutSeconds,omitempty"`
	PeriodSeconds       *int32 `json:"periodSeconds,omitempty"`
	SuccessThreshold    *int32 `json:"successThreshold,omitempty"`
	FailureThreshold    *int32 `json:"failureThreshold,omitempty"`
}

// AdditionalMetadata is labels and annotations for a made object.
type AdditionalMetadata struct {
	Labels      map[string]string `json:"labels,omitempty"`
	Annotations map[string]string `json:"annotations,omitempty"`
}

// ServiceSpec is the Service.
type ServiceSpec struct {
	AdditionalMetadata AdditionalMetadata `json:"additionalMetadata,omitempty"`
	AdditionalPorts    []AdditionalPort   `json:"additionalPorts,omitempty"`
	ServiceType        ServiceType        `json:"serviceType"`
}

// ServiceType is the type of a Service.
type ServiceType string

// AdditionalPort is a further port of the Service.
type AdditionalPort struct {
	Name        string             `json:"name"`
	Protocol    corev1.Protocol    `json:"protocol,omitempty"`
	AppProtocol *string            `json:"appProtocol,omitempty"`
	Port        int32              `json:"port"`
	TargetPort  intstr.IntOrString `json:"targetPort"`
}

// IngressSpec is an Ingress.
type IngressSpec struct {
	AdditionalMetadata AdditionalMetadata `json:"additionalMetadata,omitempty"`
	IngressClassName   string             `json:"ingressClassName,omitempty"`
	Hostname           string             `json:"hostname,omitempty"`
}

// GatewaySpec is routes of the Gateway API.
type GatewaySpec struct {
	AdditionalMetadata AdditionalMetadata          `json:"additionalMetadata,omitempty"`
	GatewayParentRefs  []gatewayv1.ParentReference `json:"parentRefs,omitempty"`
	Hostname           gatewayv1.Hostname          `json:"hostname,omitempty"`
}
