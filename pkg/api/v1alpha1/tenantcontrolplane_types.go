package v1alpha1

import (
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/intstr"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"
)

// TenantControlPlane is one Kubernetes API of its own: its API server, controller manager and scheduler run as a
// Deployment in the namespace of this object, its data lives in a DataStore.
//
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:subresource:scale:specpath=.spec.controlPlane.deployment.replicas,statuspath=.status.kubernetesResources.deployment.replicas,selectorpath=.status.kubernetesResources.deployment.selector
// +kubebuilder:metadata:labels="clusterctl.cluster.x-k8s.io="
// +kubebuilder:resource:path=tenantcontrolplanes,shortName=tcp,categories=kamaji
// +kubebuilder:printcolumn:name="Version",type="string",JSONPath=".spec.kubernetes.version",description="Kubernetes version asked for"
// +kubebuilder:printcolumn:name="Installed Version",type="string",JSONPath=".status.kubernetesResources.version.version",description="Kubernetes version that runs"
// +kubebuilder:printcolumn:name="Status",type="string",JSONPath=".status.kubernetesResources.version.status",description="Status"
// +kubebuilder:printcolumn:name="Control-Plane endpoint",type="string",JSONPath=".status.controlPlaneEndpoint",description="Endpoint of the tenant's API server"
// +kubebuilder:printcolumn:name="Kubeconfig",type="string",JSONPath=".status.kubeconfig.admin.secretName",description="Secret with the admin kubeconfig"
// +kubebuilder:printcolumn:name="Datastore",type="string",JSONPath=".status.storage.dataStoreName",description="DataStore in use"
// +kubebuilder:printcolumn:name="Paused",type="string",priority=1,JSONPath=".status.conditions[?(@.type==\"Paused\")].status",description="True while no service works on it"
// +kubebuilder:printcolumn:name="Age",type="date",JSONPath=".metadata.creationTimestamp",description="Age"
type TenantControlPlane struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// Spec is what the tenant's control plane must be.
	// +required
	Spec TenantControlPlaneSpec `json:"spec"`
	// Status is what was last observed. Written by the status service only.
	// +optional
	Status TenantControlPlaneStatus `json:"status,omitzero"`
}

// TenantControlPlaneList is a list of TenantControlPlane objects.
//
// +kubebuilder:object:root=true
type TenantControlPlaneList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []TenantControlPlane `json:"items"`
}

// TenantControlPlaneSpec is what a tenant's control plane must be. Rules that stand here are evaluated at each write, which
// takes the API server 20 µs a rule; those about what few tenants have are in deployments/policies/objects.yaml instead.
//
// +kubebuilder:validation:XValidation:rule="!has(oldSelf.dataStore) || size(oldSelf.dataStore) == 0 || has(self.dataStore) && size(self.dataStore) > 0",fieldPath=".dataStore",messageExpression="'\"%s\": the field cannot be removed: keep it, or name the DataStore to move the tenant to'.format([oldSelf.dataStore])"
// +kubebuilder:validation:XValidation:rule="!has(oldSelf.dataStoreSchema) || size(oldSelf.dataStoreSchema) == 0 || has(self.dataStoreSchema) && size(self.dataStoreSchema) > 0",fieldPath=".dataStoreSchema",messageExpression="'\"%s\": the field cannot be removed, because the schema has the data of the tenant: keep it'.format([oldSelf.dataStoreSchema])"
// +kubebuilder:validation:XValidation:rule="!has(oldSelf.dataStoreUsername) || size(oldSelf.dataStoreUsername) == 0 || has(self.dataStoreUsername) && size(self.dataStoreUsername) > 0",fieldPath=".dataStoreUsername",messageExpression="'\"%s\": the field cannot be removed, because the API server of the tenant logs in with it: keep it'.format([oldSelf.dataStoreUsername])"
// +kubebuilder:validation:XValidation:rule="has(self.networkProfile.loadBalancerClass) == has(oldSelf.networkProfile.loadBalancerClass) || self.controlPlane.service.serviceType != 'LoadBalancer' || oldSelf.controlPlane.service.serviceType != 'LoadBalancer'",fieldPath=".networkProfile.loadBalancerClass",messageExpression="has(self.networkProfile.loadBalancerClass) ? '\"%s\": the class cannot be added or removed while serviceType is LoadBalancer: Kubernetes fixes it when the Service becomes one'.format([self.networkProfile.loadBalancerClass]) : '\"\": the class cannot be added or removed while serviceType is LoadBalancer: Kubernetes fixes it when the Service becomes one'"
type TenantControlPlaneSpec struct {
	// WritePermissions blocks kinds of writes to the tenant's API, for example to keep a full datastore from growing
	// while deletions still free space. Default: nothing is blocked.
	// +optional
	WritePermissions Permissions `json:"writePermissions,omitzero"`

	// DataStore is the name of the DataStore that holds the tenant's data. Empty: the default DataStore of the
	// installation, or, without one, a fitting DataStore is chosen once and recorded. A change moves the data to the named
	// DataStore, of whatever driver, while the tenant works. It cannot be unset.
	// +kubebuilder:validation:MaxLength=63
	// +kubebuilder:validation:Pattern=`^([a-z0-9]([-a-z0-9]*[a-z0-9])?([.][a-z0-9]([-a-z0-9]*[a-z0-9])?)*)?$`
	// +optional
	DataStore string `json:"dataStore,omitempty"`

	// DataStoreSchema is the name of the tenant's database (PostgreSQL, MySQL), key prefix (etcd) or bucket (NATS).
	// Default: made of namespace, name and a hash of the object's UID, as status.storage.setup shows it. It is fixed once
	// set. Two tenants must not share it.
	// +kubebuilder:validation:MaxLength=253
	// +kubebuilder:validation:Pattern=`^([A-Za-z0-9_][-A-Za-z0-9_.]*)?$`
	// +kubebuilder:validation:XValidation:rule="self == oldSelf || self == '' || oldSelf == ''",message="the schema cannot change, because it has the data of the tenant: write the former value"
	// +optional
	DataStoreSchema string `json:"dataStoreSchema,omitempty"`

	// DataStoreUsername begins the name of the tenant's user in the DataStore; a hash of namespace, name and the object's UID
	// follows, so that no other tenant ever has the same user. status.storage.setup shows it whole. Default: made of namespace
	// and name. It is fixed once set.
	// +kubebuilder:validation:MaxLength=253
	// +kubebuilder:validation:Pattern=`^([A-Za-z0-9_][-A-Za-z0-9_.]*)?$`
	// +kubebuilder:validation:XValidation:rule="self == oldSelf || self == '' || oldSelf == ''",message="the user cannot change, because the API server of the tenant logs in with it: write the former value"
	// +optional
	DataStoreUsername string `json:"dataStoreUsername,omitempty"`

	// DataStoreOverrides keep single resources, for example events, in a DataStore of their own. Supported by the etcd
	// driver only. The other DataStore must have the same certificate authority. A change moves the objects to where they
	// are to be while the tenant works, but for events, which go on there without those of before. Default: all resources
	// are in dataStore.
	// +kubebuilder:validation:MaxItems=32
	// +kubebuilder:validation:XValidation:rule="self.all(o, !has(o.resource) || self.exists_one(p, has(p.resource) && p.resource == o.resource))",messageExpression="'\"%s\": duplicate resource override: a resource can be kept in one DataStore only'.format([self.filter(o, has(o.resource) && !self.exists_one(p, has(p.resource) && p.resource == o.resource))[0].resource])"
	// +optional
	DataStoreOverrides []DataStoreOverride `json:"dataStoreOverrides,omitempty"`

	// ControlPlane says how the control plane runs and is reached in the management cluster.
	// +required
	ControlPlane ControlPlane `json:"controlPlane"`

	// Kubernetes is the version of the tenant's Kubernetes and its settings.
	// +required
	Kubernetes KubernetesSpec `json:"kubernetes"`

	// NetworkProfile is the addresses, ports and networks of the tenant. Each of its fields has a default.
	// +kubebuilder:default={}
	// +optional
	NetworkProfile NetworkProfileSpec `json:"networkProfile,omitzero"`

	// Addons are what is installed inside the tenant. An addon that is absent is off, and removed if it was on. Default:
	// none.
	// +optional
	Addons AddonsSpec `json:"addons,omitzero"`
}

// Permissions says which kinds of writes to the tenant's API are blocked.
type Permissions struct {
	// BlockCreation refuses creating objects. Default: false.
	// +optional
	BlockCreation bool `json:"blockCreation,omitempty"`
	// BlockUpdate refuses changing objects. Default: false.
	// +optional
	BlockUpdate bool `json:"blockUpdate,omitempty"`
	// BlockDeletion refuses deleting objects. Default: false.
	// +optional
	BlockDeletion bool `json:"blockDeletion,omitempty"`
}

// Any says whether at least one kind of write is blocked.
func (p Permissions) Any() bool {
	return p.BlockCreation || p.BlockUpdate || p.BlockDeletion
}

// Blocked says in words which kinds of writes are blocked ("creation, update and deletion"); "" for none.
func (p Permissions) Blocked() string {
	var all []string
	for _, kind := range []struct {
		is   bool
		word string
	}{{p.BlockCreation, "creation"}, {p.BlockUpdate, "update"}, {p.BlockDeletion, "deletion"}} {
		if kind.is {
			all = append(all, kind.word)
		}
	}
	if last := len(all) - 1; last > 0 {
		return strings.Join(all[:last], ", ") + " and " + all[last]
	}
	return strings.Join(all, "")
}

// ResourceEvents is Events, as kube-apiserver's --etcd-servers-overrides spells them.
const ResourceEvents = "/events"

// DataStoreOverride keeps one resource in a DataStore of its own.
type DataStoreOverride struct {
	// Resource is the resource as kube-apiserver's --etcd-servers-overrides spells it, group/resource, for example
	// "/events" for the events of the core group, "coordination.k8s.io/leases".
	// +kubebuilder:validation:MaxLength=253
	// +kubebuilder:validation:Pattern=`^([a-z0-9]([-a-z0-9.]*[a-z0-9])?)?/[a-z0-9]+$`
	// +required
	Resource string `json:"resource,omitempty"`
	// DataStore is the name of the DataStore that holds this resource.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	// +kubebuilder:validation:Pattern=`^[a-z0-9]([-a-z0-9]*[a-z0-9])?([.][a-z0-9]([-a-z0-9]*[a-z0-9])?)*$`
	// +required
	DataStore string `json:"dataStore,omitempty"`
}

// ControlPlane says how the control plane runs and is reached in the management cluster.
//
// +kubebuilder:validation:XValidation:rule="!(has(self.ingress) && has(self.gateway))",fieldPath=".gateway",message="ingress and gateway exclude each other: remove one"
type ControlPlane struct {
	// Deployment is the pods that run the control plane. Each of its fields has a default.
	// +kubebuilder:default={}
	// +optional
	Deployment DeploymentSpec `json:"deployment,omitzero"`
	// Service is how the control plane is reached.
	// +required
	Service ServiceSpec `json:"service"`
	// Ingress additionally exposes the API server by host name. The ingress controller must pass TLS through. Not
	// together with gateway. Default: none.
	// +optional
	Ingress *IngressSpec `json:"ingress,omitempty"`
	// Gateway additionally exposes the API server by TLSRoutes of the Gateway API. Not together with ingress. Default:
	// none.
	// +optional
	Gateway *GatewaySpec `json:"gateway,omitempty"`
}

// DeploymentSpec is the pods that run a control plane.
type DeploymentSpec struct {
	// RegistrySettings say where the images of the control plane come from. Default: those of Kubernetes.
	// +kubebuilder:default={registry:"registry.k8s.io",apiServerImage:"kube-apiserver",controllerManagerImage:"kube-controller-manager",schedulerImage:"kube-scheduler"}
	// +optional
	RegistrySettings RegistrySettings `json:"registrySettings,omitzero"`
	// Replicas is the number of pods. 0 puts the tenant to sleep: its data and certificates stay, its API is away.
	// Default: 2.
	// +kubebuilder:default=2
	// +kubebuilder:validation:Minimum=0
	// +optional
	Replicas *int32 `json:"replicas,omitempty"`
	// NodeSelector is the labels of the nodes the pods may run on. Default: any node.
	// +optional
	NodeSelector map[string]string `json:"nodeSelector,omitempty"`
	// RuntimeClassName is the RuntimeClass of the pods. Default: the cluster's default handler.
	// +kubebuilder:validation:MaxLength=253
	// +kubebuilder:validation:Pattern=`^([a-z0-9]([-a-z0-9]*[a-z0-9])?([.][a-z0-9]([-a-z0-9]*[a-z0-9])?)*)?$`
	// +optional
	RuntimeClassName string `json:"runtimeClassName,omitempty"`
	// Strategy is how pods are replaced. Default: RollingUpdate with maxUnavailable 0 and maxSurge 100%, which starts
	// all new pods before an old one goes (blue/green).
	// +kubebuilder:default={type:"RollingUpdate",rollingUpdate:{maxUnavailable:0,maxSurge:"100%"}}
	// +optional
	Strategy appsv1.DeploymentStrategy `json:"strategy,omitzero"`
	// Tolerations of the pods. Default: none.
	// +optional
	Tolerations []corev1.Toleration `json:"tolerations,omitempty"`
	// Affinity of the pods. Default: none.
	// +optional
	Affinity *corev1.Affinity `json:"affinity,omitempty"`
	// TopologySpreadConstraints spread the pods over zones or nodes. A constraint without a labelSelector gets the
	// one of the tenant's pods. Default: none.
	// +optional
	TopologySpreadConstraints []corev1.TopologySpreadConstraint `json:"topologySpreadConstraints,omitempty"`
	// Resources are the CPU and memory of each container. Default: no requests, no limits.
	// +optional
	Resources *ControlPlaneComponentsResources `json:"resources,omitempty"`
	// ExtraArgs are additional flags of each component. They can override defaults and stop the control plane from
	// working; flags Stoker depends on stay as they are.
	// +optional
	ExtraArgs *ControlPlaneExtraArgs `json:"extraArgs,omitempty"`
	// AdditionalMetadata is labels and annotations added to the Deployment. Default: none.
	// +optional
	AdditionalMetadata AdditionalMetadata `json:"additionalMetadata,omitzero"`
	// PodAdditionalMetadata is labels and annotations added to the pods. Default: none.
	// +optional
	PodAdditionalMetadata AdditionalMetadata `json:"podAdditionalMetadata,omitzero"`
	// AdditionalInitContainers run before the control plane's own containers start. They may mount additionalVolumes, and
	// the control plane's own volumes etc-kubernetes-pki, etc-ca-certificates, usr-share-ca-certificates,
	// usr-local-share-ca-certificates, scheduler-kubeconfig and controller-manager-kubeconfig. Default: none.
	// +optional
	AdditionalInitContainers []corev1.Container `json:"additionalInitContainers,omitempty"`
	// AdditionalContainers run beside the control plane's own containers, in the same network: their ports must be free.
	// They may mount the same volumes as additionalInitContainers. One named kine doesn't run: its image replaces that of
	// kine, where the DataStore needs kine. Default: none.
	// +optional
	AdditionalContainers []corev1.Container `json:"additionalContainers,omitempty"`
	// AdditionalVolumes are volumes of the pods, for additional containers and additionalVolumeMounts. Their names must not
	// be those of the control plane's own volumes. Default: none.
	// +optional
	AdditionalVolumes []corev1.Volume `json:"additionalVolumes,omitempty"`
	// AdditionalVolumeMounts mount additionalVolumes into the control plane's own containers, at paths that are not those of
	// their own mounts. Default: none.
	// +optional
	AdditionalVolumeMounts *AdditionalVolumeMounts `json:"additionalVolumeMounts,omitempty"`
	// Probes change the timing of the probes, for all components or for one. Default: as built in.
	// +optional
	Probes *ControlPlaneProbes `json:"probes,omitempty"`
	// ServiceAccountName is the ServiceAccount of the pods, which must exist in the tenant's namespace. Default:
	// default.
	// +kubebuilder:default="default"
	// +kubebuilder:validation:MaxLength=253
	// +kubebuilder:validation:Pattern=`^([a-z0-9]([-a-z0-9]*[a-z0-9])?([.][a-z0-9]([-a-z0-9]*[a-z0-9])?)*)?$`
	// +optional
	ServiceAccountName string `json:"serviceAccountName,omitempty"`
	// AutomountServiceAccountToken says whether the pods get a token of the management cluster, which no control plane
	// needs. Default: false.
	// +optional
	AutomountServiceAccountToken *bool `json:"automountServiceAccountToken,omitempty"`
	// PodSecurityContext is the security context of the pods. Default: none; with an API server's port below 1024, the
	// sysctl that lets every user listen there.
	// +optional
	PodSecurityContext *corev1.PodSecurityContext `json:"podSecurityContext,omitempty"`
	// ContainerSecurityContexts are the security contexts of the control plane's containers. Default, field by field: that
	// of podSecurityContext, else what the Pod Security level restricted asks for, with user and group 65532.
	// +optional
	ContainerSecurityContexts *ControlPlaneSecurityContexts `json:"containerSecurityContexts,omitempty"`
}

// RegistrySettings say where the images of a control plane come from. An image is
// <registry>/<image>:<version><tagSuffix>.
type RegistrySettings struct {
	// Registry is the registry of all images, with a path if need be. Default: registry.k8s.io.
	// +kubebuilder:default="registry.k8s.io"
	// +kubebuilder:validation:MaxLength=255
	// +kubebuilder:validation:Pattern=`^(([A-Za-z0-9]([-A-Za-z0-9.]*[A-Za-z0-9])?|[[][0-9A-Fa-f:]+[]])(:[0-9]{1,5})?(/[a-z0-9]+([-._]+[a-z0-9]+)*)*)?$`
	// +optional
	Registry string `json:"registry,omitempty"`
	// TagSuffix is appended to the tag, which is the Kubernetes version. Default: none.
	// +kubebuilder:validation:MaxLength=63
	// +kubebuilder:validation:Pattern=`^[-A-Za-z0-9_.]*$`
	// +optional
	TagSuffix string `json:"tagSuffix,omitempty"`
	// APIServerImage is the name of the API server's image. Default: kube-apiserver.
	// +kubebuilder:default="kube-apiserver"
	// +kubebuilder:validation:MaxLength=255
	// +kubebuilder:validation:Pattern=`^([a-z0-9]+([-._/]+[a-z0-9]+)*)?$`
	// +optional
	APIServerImage string `json:"apiServerImage,omitempty"`
	// ControllerManagerImage is the name of the controller manager's image. Default: kube-controller-manager.
	// +kubebuilder:default="kube-controller-manager"
	// +kubebuilder:validation:MaxLength=255
	// +kubebuilder:validation:Pattern=`^([a-z0-9]+([-._/]+[a-z0-9]+)*)?$`
	// +optional
	ControllerManagerImage string `json:"controllerManagerImage,omitempty"`
	// SchedulerImage is the name of the scheduler's image. Default: kube-scheduler.
	// +kubebuilder:default="kube-scheduler"
	// +kubebuilder:validation:MaxLength=255
	// +kubebuilder:validation:Pattern=`^([a-z0-9]+([-._/]+[a-z0-9]+)*)?$`
	// +optional
	SchedulerImage string `json:"schedulerImage,omitempty"`
}

// ControlPlaneComponentsResources are the CPU and memory of each container.
type ControlPlaneComponentsResources struct {
	// APIServer is the resources of kube-apiserver.
	// +optional
	APIServer *corev1.ResourceRequirements `json:"apiServer,omitempty"`
	// ControllerManager is the resources of kube-controller-manager.
	// +optional
	ControllerManager *corev1.ResourceRequirements `json:"controllerManager,omitempty"`
	// Scheduler is the resources of kube-scheduler.
	// +optional
	Scheduler *corev1.ResourceRequirements `json:"scheduler,omitempty"`
	// Kine is the resources of kine, which runs when the DataStore is not etcd.
	// +optional
	Kine *corev1.ResourceRequirements `json:"kine,omitempty"`
}

// ControlPlaneExtraArgs are additional flags of each component, one per entry, for example "--v=4".
type ControlPlaneExtraArgs struct {
	// APIServer is additional flags of kube-apiserver. Default: none.
	// +optional
	APIServer []string `json:"apiServer,omitempty"`
	// ControllerManager is additional flags of kube-controller-manager. Default: none.
	// +optional
	ControllerManager []string `json:"controllerManager,omitempty"`
	// Scheduler is additional flags of kube-scheduler. Default: none.
	// +optional
	Scheduler []string `json:"scheduler,omitempty"`
	// Kine is additional flags of kine, which runs when the DataStore is not etcd. Default: none.
	// +optional
	Kine []string `json:"kine,omitempty"`
}

// AdditionalMetadata is labels and annotations added to an object.
type AdditionalMetadata struct {
	// Labels to add. Default: none.
	// +optional
	Labels map[string]string `json:"labels,omitempty"`
	// Annotations to add, with at most 32768 characters in all. Default: none.
	// +optional
	Annotations map[string]string `json:"annotations,omitempty"`
}

// AdditionalVolumeMounts mount volumes into the control plane's own containers.
type AdditionalVolumeMounts struct {
	// APIServer is mounts of kube-apiserver.
	// +optional
	APIServer []corev1.VolumeMount `json:"apiServer,omitempty"`
	// ControllerManager is mounts of kube-controller-manager.
	// +optional
	ControllerManager []corev1.VolumeMount `json:"controllerManager,omitempty"`
	// Scheduler is mounts of kube-scheduler.
	// +optional
	Scheduler []corev1.VolumeMount `json:"scheduler,omitempty"`
}

// ControlPlaneProbes change the timing of probes. Those of a component win over those for all components, field by
// field.
//
// +kubebuilder:validation:XValidation:rule="!has(self.liveness) || !has(self.liveness.successThreshold) || self.liveness.successThreshold == 1",fieldPath=".liveness.successThreshold",messageExpression="'%d: must be 1 for liveness probes'.format([self.liveness.successThreshold])"
// +kubebuilder:validation:XValidation:rule="!has(self.startup) || !has(self.startup.successThreshold) || self.startup.successThreshold == 1",fieldPath=".startup.successThreshold",messageExpression="'%d: must be 1 for startup probes'.format([self.startup.successThreshold])"
type ControlPlaneProbes struct {
	// Liveness is the timing of the liveness probes of all components.
	// +optional
	Liveness *ProbeSpec `json:"liveness,omitempty"`
	// Readiness is the timing of the readiness probes of all components.
	// +optional
	Readiness *ProbeSpec `json:"readiness,omitempty"`
	// Startup is the timing of the startup probes of all components.
	// +optional
	Startup *ProbeSpec `json:"startup,omitempty"`
	// APIServer is the timing of kube-apiserver's probes.
	// +optional
	APIServer *ProbeSet `json:"apiServer,omitempty"`
	// ControllerManager is the timing of kube-controller-manager's probes.
	// +optional
	ControllerManager *ProbeSet `json:"controllerManager,omitempty"`
	// Scheduler is the timing of kube-scheduler's probes.
	// +optional
	Scheduler *ProbeSet `json:"scheduler,omitempty"`
}

// ProbeSet is the timing of the three probes of a component.
//
// +kubebuilder:validation:XValidation:rule="!has(self.liveness) || !has(self.liveness.successThreshold) || self.liveness.successThreshold == 1",fieldPath=".liveness.successThreshold",messageExpression="'%d: must be 1 for liveness probes'.format([self.liveness.successThreshold])"
// +kubebuilder:validation:XValidation:rule="!has(self.startup) || !has(self.startup.successThreshold) || self.startup.successThreshold == 1",fieldPath=".startup.successThreshold",messageExpression="'%d: must be 1 for startup probes'.format([self.startup.successThreshold])"
type ProbeSet struct {
	// Liveness is the timing of the probe that restarts the container.
	// +optional
	Liveness *ProbeSpec `json:"liveness,omitempty"`
	// Readiness is the timing of the probe that takes the pod out of the Service.
	// +optional
	Readiness *ProbeSpec `json:"readiness,omitempty"`
	// Startup is the timing of the probe that must succeed before the others start.
	// +optional
	Startup *ProbeSpec `json:"startup,omitempty"`
}

// ProbeSpec is the timing of one probe. A field that is absent keeps the built-in value.
type ProbeSpec struct {
	// InitialDelaySeconds is the time from the container's start to the first probe, in seconds.
	// +kubebuilder:validation:Minimum=0
	// +optional
	InitialDelaySeconds *int32 `json:"initialDelaySeconds,omitempty"`
	// TimeoutSeconds is how long one probe may take, in seconds.
	// +kubebuilder:validation:Minimum=1
	// +optional
	TimeoutSeconds *int32 `json:"timeoutSeconds,omitempty"`
	// PeriodSeconds is the time from one probe to the next, in seconds.
	// +kubebuilder:validation:Minimum=1
	// +optional
	PeriodSeconds *int32 `json:"periodSeconds,omitempty"`
	// SuccessThreshold is the number of successes in a row after which a failed probe counts as successful. It must be 1
	// for liveness and startup probes.
	// +kubebuilder:validation:Minimum=1
	// +optional
	SuccessThreshold *int32 `json:"successThreshold,omitempty"`
	// FailureThreshold is the number of failures in a row after which the probe counts as failed.
	// +kubebuilder:validation:Minimum=1
	// +optional
	FailureThreshold *int32 `json:"failureThreshold,omitempty"`
}

// ControlPlaneSecurityContexts are the security contexts of the control plane's containers.
type ControlPlaneSecurityContexts struct {
	// APIServer is the security context of kube-apiserver.
	// +optional
	APIServer *corev1.SecurityContext `json:"apiServer,omitempty"`
	// ControllerManager is the security context of kube-controller-manager.
	// +optional
	ControllerManager *corev1.SecurityContext `json:"controllerManager,omitempty"`
	// Scheduler is the security context of kube-scheduler.
	// +optional
	Scheduler *corev1.SecurityContext `json:"scheduler,omitempty"`
	// Kine is the security context of kine, which runs when the DataStore is not etcd.
	// +optional
	Kine *corev1.SecurityContext `json:"kine,omitempty"`
	// KineInit is the security context of the init container that prepares kine's certificates.
	// +optional
	KineInit *corev1.SecurityContext `json:"kineInit,omitempty"`
}

// ServiceType is the type of the Service of a control plane.
//
// +kubebuilder:validation:Enum=ClusterIP;NodePort;LoadBalancer
type ServiceType corev1.ServiceType

// The types a control plane's Service can have.
const (
	ServiceTypeClusterIP    = ServiceType(corev1.ServiceTypeClusterIP)
	ServiceTypeNodePort     = ServiceType(corev1.ServiceTypeNodePort)
	ServiceTypeLoadBalancer = ServiceType(corev1.ServiceTypeLoadBalancer)
)

// ServiceSpec is how a control plane is reached.
//
// +kubebuilder:validation:XValidation:rule="!has(self.allocateLoadBalancerNodePorts) || self.serviceType == 'LoadBalancer'",fieldPath=".allocateLoadBalancerNodePorts",messageExpression="'%s: only Services of type LoadBalancer have it: set serviceType to LoadBalancer, or remove the field'.format([self.allocateLoadBalancerNodePorts])"
type ServiceSpec struct {
	// AdditionalMetadata is labels and annotations added to the Service. Default: none.
	// +optional
	AdditionalMetadata AdditionalMetadata `json:"additionalMetadata,omitzero"`
	// AdditionalPorts are ports of the Service beside those of the API server and konnectivity. Default: none.
	// +kubebuilder:validation:MaxItems=32
	// +kubebuilder:validation:XValidation:rule="self.all(p, self.exists_one(q, q.name == p.name))",messageExpression="'\"%s\": two additional ports have this name: rename one'.format([self.filter(p, !self.exists_one(q, q.name == p.name))[0].name])"
	// +kubebuilder:validation:XValidation:rule="self.all(p, self.exists_one(q, q.port == p.port && (has(q.protocol) ? q.protocol : 'TCP') == (has(p.protocol) ? p.protocol : 'TCP')))",messageExpression="'%d: additional ports must not repeat a port of the same protocol'.format([self.filter(p, !self.exists_one(q, q.port == p.port && (has(q.protocol) ? q.protocol : 'TCP') == (has(p.protocol) ? p.protocol : 'TCP')))[0].port])"
	// +optional
	AdditionalPorts []AdditionalPort `json:"additionalPorts,omitempty"`
	// ServiceType is the type of the Service. With NodePort, the node port is networkProfile.port.
	// +required
	ServiceType ServiceType `json:"serviceType"`
	// AllocateLoadBalancerNodePorts says whether a LoadBalancer Service also gets node ports. Those that it has are freed
	// when this becomes false. Only with serviceType LoadBalancer. Default: true.
	// +optional
	AllocateLoadBalancerNodePorts *bool `json:"allocateLoadBalancerNodePorts,omitempty"`
}

// AdditionalPort is one more port of a control plane's Service.
type AdditionalPort struct {
	// Name of the port, a DNS label, unique within the Service.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	// +kubebuilder:validation:Pattern=`^[a-z0-9]([-a-z0-9]*[a-z0-9])?$`
	// +kubebuilder:validation:XValidation:rule="!(self in ['kube-apiserver', 'konnectivity-server'])",message="additional ports cannot be named kube-apiserver or konnectivity-server"
	// +required
	Name string `json:"name"`
	// Protocol of the port. Default: TCP.
	// +kubebuilder:validation:Enum=TCP;UDP;SCTP
	// +kubebuilder:default=TCP
	// +optional
	Protocol corev1.Protocol `json:"protocol,omitempty"`
	// AppProtocol is a hint for load balancers, in the syntax of a label key. Default: none.
	// +kubebuilder:validation:MaxLength=317
	// +kubebuilder:validation:Pattern=`^([a-z0-9]([-a-z0-9]*[a-z0-9])?([.][a-z0-9]([-a-z0-9]*[a-z0-9])?)*/)?[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?$`
	// +optional
	AppProtocol *string `json:"appProtocol,omitempty"`
	// Port of the Service.
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=65535
	// +required
	Port int32 `json:"port"`
	// TargetPort is the number (1 to 65535) or name of the pods' port.
	// +required
	TargetPort intstr.IntOrString `json:"targetPort"`
}

// IngressSpec exposes a control plane by an Ingress.
type IngressSpec struct {
	// AdditionalMetadata is labels and annotations added to the Ingress, such as those that make the ingress
	// controller pass TLS through. Default: none.
	// +optional
	AdditionalMetadata AdditionalMetadata `json:"additionalMetadata,omitzero"`
	// IngressClassName is the IngressClass. Default: the cluster's default class.
	// +kubebuilder:validation:MaxLength=253
	// +kubebuilder:validation:Pattern=`^([a-z0-9]([-a-z0-9]*[a-z0-9])?([.][a-z0-9]([-a-z0-9]*[a-z0-9])?)*)?$`
	// +optional
	IngressClassName string `json:"ingressClassName,omitempty"`
	// Hostname is the host of the Ingress and of the tenant's endpoint, as host or host:port; without a port the
	// endpoint's is networkProfile.port.
	// +kubebuilder:validation:MaxLength=253
	// +kubebuilder:validation:XValidation:rule="self.matches('^[a-z0-9]([-a-z0-9]*[a-z0-9])?([.][a-z0-9]([-a-z0-9]*[a-z0-9])?)*(:([1-9][0-9]{0,3}|[1-5][0-9]{4}|6[0-4][0-9]{3}|65[0-4][0-9]{2}|655[0-2][0-9]|6553[0-5]))?$') && !isIP(self.split(':')[0])",message="must be a DNS name, or one with a port, such as demo.example.com:443"
	// +required
	Hostname string `json:"hostname,omitempty"`
}

// GatewaySpec exposes a control plane by TLSRoutes of the Gateway API.
type GatewaySpec struct {
	// AdditionalMetadata is labels and annotations added to the routes. Default: none.
	// +optional
	AdditionalMetadata AdditionalMetadata `json:"additionalMetadata,omitzero"`
	// ParentRefs are the gateways the routes attach to.
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=32
	// +required
	ParentRefs []gatewayv1.ParentReference `json:"parentRefs,omitempty"`
	// Hostname is the host of the routes and of the tenant's endpoint.
	// +kubebuilder:validation:XValidation:rule="!self.startsWith('*')",message="must not be a wildcard: it is the host of the tenant's endpoint"
	// +kubebuilder:validation:XValidation:rule="!isIP(self)",message="must be a DNS name, not an IP address"
	// +required
	Hostname gatewayv1.Hostname `json:"hostname,omitempty"`
}

// KubernetesSpec is the version of a tenant's Kubernetes and its settings.
type KubernetesSpec struct {
	// Version of Kubernetes, with or without a leading v, from v1.30 to v1.36. It can move one minor version up at a
	// time, or several with the annotation stoker.dev/upgrade-through, and freely among the patches of one; to a lower
	// minor version only back to the one that still runs.
	// +kubebuilder:validation:MaxLength=64
	// +kubebuilder:validation:XValidation:rule="self.matches('^v?1[.]3[0-6][.](0|[1-9][0-9]{0,5})(-[0-9A-Za-z.-]+)?$')",messageExpression="!self.matches('^v?(0|[1-9][0-9]{0,5})[.](0|[1-9][0-9]{0,5})[.](0|[1-9][0-9]{0,5})(-[0-9A-Za-z.-]+)?$') ? 'must be a version of Kubernetes, such as v1.36.3' : int(self.split('.')[0].replace('v', '')) < 1 || int(self.split('.')[0].replace('v', '')) == 1 && int(self.split('.')[1]) < 30 ? 'is older than v1.30, the first version that Stoker supports: upgrade the tenant with Kamaji first (docs/kamaji.md, Versions)' : 'is newer than v1.36, the last version that Stoker supports'"
	// +required
	Version string `json:"version"`
	// Kubelet is settings for the tenant's nodes. Each of its fields has a default.
	// +kubebuilder:default={}
	// +optional
	Kubelet KubeletSpec `json:"kubelet,omitzero"`
	// AdmissionControllers are the admission plugins to enable beside those Kubernetes enables by itself; the list
	// replaces the default one. Reference:
	// https://kubernetes.io/docs/reference/access-authn-authz/admission-controllers
	// +kubebuilder:default={"CertificateApproval","CertificateSigning","CertificateSubjectRestriction","DefaultIngressClass","DefaultStorageClass","DefaultTolerationSeconds","LimitRanger","MutatingAdmissionWebhook","NamespaceLifecycle","PersistentVolumeClaimResize","Priority","ResourceQuota","RuntimeClass","ServiceAccount","StorageObjectInUseProtection","TaintNodesByCondition","ValidatingAdmissionWebhook"}
	// +optional
	AdmissionControllers []AdmissionController `json:"admissionControllers,omitempty"`
	// APIServer is settings of the API server: who signs in, who decides, what is recorded, features and limits. Default: those of
	// Kubernetes.
	// +optional
	APIServer *APIServerSpec `json:"apiServer,omitempty"`
}

// AdmissionController is the name of an admission plugin of kube-apiserver.
//
// +kubebuilder:validation:Enum=AlwaysAdmit;AlwaysDeny;AlwaysPullImages;CertificateApproval;CertificateSigning;CertificateSubjectRestriction;DefaultIngressClass;DefaultStorageClass;DefaultTolerationSeconds;DenyEscalatingExec;DenyExecOnPrivileged;DenyServiceExternalIPs;EventRateLimit;ExtendedResourceToleration;ImagePolicyWebhook;LimitPodHardAntiAffinityTopology;LimitRanger;MutatingAdmissionWebhook;NamespaceAutoProvision;NamespaceExists;NamespaceLifecycle;NodeRestriction;OwnerReferencesPermissionEnforcement;PersistentVolumeClaimResize;PersistentVolumeLabel;PodNodeSelector;PodSecurity;PodSecurityPolicy;PodTolerationRestriction;Priority;ResourceQuota;RuntimeClass;SecurityContextDeny;ServiceAccount;StorageObjectInUseProtection;TaintNodesByCondition;ValidatingAdmissionWebhook
type AdmissionController string

// KubeletSpec is settings for a tenant's nodes and for how its API server reaches them.
type KubeletSpec struct {
	// ConfigurationJSONPatches are applied, in order, to the KubeletConfiguration that joining nodes read. Default: none.
	// +kubebuilder:validation:MaxItems=64
	// +optional
	ConfigurationJSONPatches []JSONPatch `json:"configurationJSONPatches,omitempty"`
	// PreferredAddressTypes is the order in which the API server tries a node's addresses; a type appears once.
	// Default: InternalIP, ExternalIP, Hostname.
	// +kubebuilder:default={"InternalIP","ExternalIP","Hostname"}
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=5
	// +kubebuilder:validation:XValidation:rule="self.all(t, self.indexOf(t) == self.lastIndexOf(t))",messageExpression="'\"%s\": preferredAddressTypes entries must be unique'.format([self.filter(t, self.indexOf(t) != self.lastIndexOf(t))[0]])"
	// +listType=atomic
	// +optional
	PreferredAddressTypes []KubeletPreferredAddressType `json:"preferredAddressTypes,omitempty"`
	// CGroupFS is the cgroup driver of the kubelets. Default: the kubelets' own. Deprecated: use configurationJSONPatches
	// on /cgroupDriver.
	// +optional
	CGroupFS CGroupDriver `json:"cgroupfs,omitempty"`
}

// KubeletPreferredAddressType is a type of node address.
//
// +kubebuilder:validation:MaxLength=16
// +kubebuilder:validation:Enum=Hostname;InternalIP;ExternalIP;InternalDNS;ExternalDNS
type KubeletPreferredAddressType string

// The types of node addresses.
const (
	NodeHostName    KubeletPreferredAddressType = "Hostname"
	NodeInternalIP  KubeletPreferredAddressType = "InternalIP"
	NodeExternalIP  KubeletPreferredAddressType = "ExternalIP"
	NodeInternalDNS KubeletPreferredAddressType = "InternalDNS"
	NodeExternalDNS KubeletPreferredAddressType = "ExternalDNS"
)

// CGroupDriver is the cgroup driver of a kubelet.
//
// +kubebuilder:validation:Enum=systemd;cgroupfs
type CGroupDriver string

// JSONPatch is one operation of a JSON patch, RFC 6902.
//
// +kubebuilder:validation:XValidation:rule="!(self.op in ['move', 'copy']) || has(self.from)",fieldPath=".from",reason=FieldValueRequired,message="move and copy need it: the source, a JSON pointer"
type JSONPatch struct {
	// Op is the operation.
	// +kubebuilder:validation:Enum=add;remove;replace;move;copy;test
	// +required
	Op string `json:"op"`
	// Path is the place in the document, a JSON pointer such as /featureGates.
	// +kubebuilder:validation:MaxLength=1024
	// +kubebuilder:validation:Pattern=`^(/([^~/]|~[01])*)*$`
	// +required
	Path string `json:"path"`
	// From is the source of move and copy, a JSON pointer. Default: none.
	// +kubebuilder:validation:MaxLength=1024
	// +kubebuilder:validation:Pattern=`^(/([^~/]|~[01])*)*$`
	// +optional
	From string `json:"from,omitempty"`
	// Value is the operand of add, replace and test: any JSON value. Default: none.
	// +kubebuilder:pruning:PreserveUnknownFields
	// +kubebuilder:validation:Schemaless
	// +optional
	Value *runtime.RawExtension `json:"value,omitempty"`
}

// NetworkProfileSpec is the addresses, ports and networks of a tenant.
type NetworkProfileSpec struct {
	// Address is where clients reach the API server: an IP address or host name. Default: the address of the Service
	// (LoadBalancer: the first address the load balancer gets; ClusterIP: the cluster IP). NodePort needs it.
	// +kubebuilder:validation:MaxLength=253
	// +kubebuilder:validation:XValidation:rule="self == '' || isIP(self) || self.matches('^[a-z0-9]([-a-z0-9]*[a-z0-9])?([.][a-z0-9]([-a-z0-9]*[a-z0-9])?)*$')",message="must be an IP address or a DNS name, without a port"
	// +optional
	Address string `json:"address,omitempty"`
	// AdvertiseAddress is the IP address at which pods inside the tenant reach the API server: kube-apiserver's
	// --advertise-address, which becomes the endpoint of the tenant's Service kubernetes. It is in the API server's
	// certificate. Nodes are told the tenant's endpoint instead. Default: the Service's address, or else its cluster
	// IP, whichever is an IP address of the family of the first service network and no loopback address.
	// +kubebuilder:validation:MaxLength=45
	// +kubebuilder:validation:XValidation:rule="self == '' || isIP(self)",message="must be an IP address, such as 192.0.2.10"
	// +kubebuilder:validation:XValidation:rule="!isIP(self) || ip(self).isGlobalUnicast()",message="advertiseAddress must not be a loopback, link-local, multicast or unspecified address: nodes could not reach it"
	// +optional
	AdvertiseAddress string `json:"advertiseAddress,omitempty"`
	// AllowAddressAsExternalIP sets address as external IP of a ClusterIP or NodePort Service. Default: false.
	// +optional
	AllowAddressAsExternalIP bool `json:"allowAddressAsExternalIP,omitempty"`
	// Port of the API server, of the Service and, with serviceType NodePort, of the nodes. Default: 6443.
	// +kubebuilder:default=6443
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=65535
	// +kubebuilder:validation:XValidation:rule="!(self in [10257, 10259])",message="is used by kube-controller-manager or kube-scheduler, which run beside the API server"
	// +optional
	Port int32 `json:"port,omitempty"`
	// CertSANs are additional names of the API server's certificate: IP addresses or DNS names, perhaps with a leading
	// wildcard label, without a port. Default: none beside the addresses and names the tenant is reached by.
	// +kubebuilder:validation:MaxItems=128
	// +kubebuilder:validation:items:MaxLength=253
	// +kubebuilder:validation:items:XValidation:rule="isIP(self) || self.matches('^([*][.])?[a-z0-9]([-a-z0-9]*[a-z0-9])?([.][a-z0-9]([-a-z0-9]*[a-z0-9])?)*$')",message="each entry must be an IP address or a DNS name, without a port, such as api.example.com"
	// +optional
	CertSANs []string `json:"certSANs,omitempty"`
	// ClusterDomain is the DNS domain of the tenant. It is fixed once set. Default: cluster.local.
	// +kubebuilder:default="cluster.local"
	// +kubebuilder:validation:MaxLength=253
	// +kubebuilder:validation:XValidation:rule="self.matches('^[a-z0-9]([-a-z0-9]*[a-z0-9])?([.][a-z0-9]([-a-z0-9]*[a-z0-9])?)+$')",messageExpression="self.contains('.') ? 'must be a DNS name' : 'must contain a dot'"
	// +kubebuilder:validation:XValidation:rule="self == oldSelf",message="the cluster domain cannot change, because certificates and pods have it: write the former value"
	// +optional
	ClusterDomain string `json:"clusterDomain,omitempty"`
	// ServiceCIDR is the network of the tenant's Services. Ignored when serviceCidrs is set. Default: 10.96.0.0/16.
	// Deprecated: use serviceCidrs.
	// +kubebuilder:default="10.96.0.0/16"
	// +kubebuilder:validation:MaxLength=49
	// +kubebuilder:validation:XValidation:rule="self == '' || isCIDR(self)",message="must be a CIDR, such as 10.96.0.0/16, or empty"
	// +optional
	ServiceCIDR string `json:"serviceCidr,omitempty"`
	// ServiceCIDRs are the networks of the tenant's Services, one or, for dual stack, one of each IP family; the first
	// is the primary family. Default: serviceCidr.
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=2
	// +kubebuilder:validation:items:MaxLength=49
	// +kubebuilder:validation:items:XValidation:rule="isCIDR(self)",message="each entry must be a CIDR, such as 10.96.0.0/16"
	// +kubebuilder:validation:XValidation:rule="size(self) < 2 || self[0] == self[1] || !self.all(x, isCIDR(x)) || cidr(self[0]).ip().family() != cidr(self[1]).ip().family()",messageExpression="'\"%s\": serviceCidrs must not contain two CIDRs of the same IP family'.format([self[1]])"
	// +optional
	ServiceCIDRs []string `json:"serviceCidrs,omitempty"`
	// PodCIDR is the network of the tenant's pods. Ignored when podCidrs is set. Default: 10.244.0.0/16.
	// Deprecated: use podCidrs.
	// +kubebuilder:default="10.244.0.0/16"
	// +kubebuilder:validation:MaxLength=49
	// +kubebuilder:validation:XValidation:rule="self == '' || isCIDR(self)",message="must be a CIDR, such as 10.244.0.0/16, or empty"
	// +optional
	PodCIDR string `json:"podCidr,omitempty"`
	// PodCIDRs are the networks of the tenant's pods, one or, for dual stack, one of each IP family, in the order of
	// serviceCidrs. Default: podCidr.
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=2
	// +kubebuilder:validation:items:MaxLength=49
	// +kubebuilder:validation:items:XValidation:rule="isCIDR(self)",message="each entry must be a CIDR, such as 10.244.0.0/16"
	// +kubebuilder:validation:XValidation:rule="size(self) < 2 || self[0] == self[1] || !self.all(x, isCIDR(x)) || cidr(self[0]).ip().family() != cidr(self[1]).ip().family()",messageExpression="'\"%s\": podCidrs must not contain two CIDRs of the same IP family'.format([self[1]])"
	// +optional
	PodCIDRs []string `json:"podCidrs,omitempty"`
	// DNSServiceIPs are the addresses of the tenant's DNS Service, each within a service CIDR. Default: of each IPv4
	// service CIDR the 10th address (10.96.0.10), of each IPv6 one the address ending in ::10.
	// +kubebuilder:validation:MaxItems=8
	// +kubebuilder:validation:items:MaxLength=45
	// +kubebuilder:validation:items:XValidation:rule="isIP(self)",message="each entry must be an IP address, such as 10.96.0.10"
	// +optional
	DNSServiceIPs []string `json:"dnsServiceIPs,omitempty"`
	// LoadBalancerSourceRanges are the networks, as CIDRs, whose clients a LoadBalancer Service lets in. Only with
	// serviceType LoadBalancer. Default: all.
	// +kubebuilder:validation:MaxItems=16
	// +kubebuilder:validation:items:MaxLength=49
	// +kubebuilder:validation:items:XValidation:rule="isCIDR(self)",message="each entry must be a CIDR, such as 192.0.2.0/24"
	// +optional
	LoadBalancerSourceRanges []string `json:"loadBalancerSourceRanges,omitempty"`
	// LoadBalancerClass chooses among several load balancer implementations. Only with serviceType LoadBalancer, and
	// fixed from then on. Default: the cluster's default.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=317
	// +kubebuilder:validation:Pattern=`^([a-z0-9]([-a-z0-9]*[a-z0-9])?([.][a-z0-9]([-a-z0-9]*[a-z0-9])?)*/)?[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?$`
	// +kubebuilder:validation:XValidation:rule="self == oldSelf",message="the class cannot change, because Kubernetes fixes it for a Service: write the former value"
	// +optional
	LoadBalancerClass *string `json:"loadBalancerClass,omitempty"`
}

// AddonsSpec is what is installed inside a tenant. An addon that is absent is off, and removed if it was on.
type AddonsSpec struct {
	// CoreDNS installs CoreDNS and its Service kube-dns. Default: off.
	// +optional
	CoreDNS *AddonSpec `json:"coreDNS,omitempty"`
	// Konnectivity installs the konnectivity tunnel, needed where the API server has no route to nodes and pods. Default:
	// off.
	// +optional
	Konnectivity *KonnectivitySpec `json:"konnectivity,omitempty"`
	// KubeProxy installs kube-proxy. Default: off.
	// +optional
	KubeProxy *AddonSpec `json:"kubeProxy,omitempty"`
}

// AddonSpec is the settings of CoreDNS or kube-proxy.
type AddonSpec struct {
	// ImageRepository is where the image comes from; its name is fixed. Default: the one of kubeadm.
	// +kubebuilder:validation:MaxLength=255
	// +kubebuilder:validation:Pattern=`^([A-Za-z0-9]([-A-Za-z0-9.]*[A-Za-z0-9])?(:[0-9]{1,5})?(/[a-z0-9]+([-._]+[a-z0-9]+)*)*)?$`
	// +optional
	ImageRepository string `json:"imageRepository,omitempty"`
	// ImageTag is the image's tag. Default: the one that fits the tenant's Kubernetes version, also after upgrades.
	// +kubebuilder:validation:Pattern=`^([A-Za-z0-9_][-A-Za-z0-9_.]{0,127})?$`
	// +optional
	ImageTag string `json:"imageTag,omitempty"`
}

// KonnectivitySpec is the settings of the konnectivity tunnel.
type KonnectivitySpec struct {
	// Server runs beside the API server. Each of its fields has a default.
	// +kubebuilder:default={}
	// +optional
	Server KonnectivityServerSpec `json:"server,omitzero"`
	// Agent runs inside the tenant. Each of its fields has a default.
	// +kubebuilder:default={}
	// +optional
	Agent KonnectivityAgentSpec `json:"agent,omitzero"`
}

// KonnectivityServerSpec is the konnectivity server, a container beside the API server.
type KonnectivityServerSpec struct {
	// Port the agents connect to, also of the Service and, with serviceType NodePort, of the nodes. Default: 8132.
	// +kubebuilder:default=8132
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=65535
	// +kubebuilder:validation:XValidation:rule="!(self in [8133, 8134, 10257, 10259])",message="is used by the konnectivity server itself, kube-controller-manager or kube-scheduler"
	// +optional
	Port int32 `json:"port,omitempty"`
	// Version is the image's tag. Default: v0.<minor>.0 of the tenant's Kubernetes version.
	// +kubebuilder:validation:Pattern=`^([A-Za-z0-9_][-A-Za-z0-9_.]{0,127})?$`
	// +optional
	Version string `json:"version,omitempty"`
	// Image without its tag. Default: registry.k8s.io/kas-network-proxy/proxy-server.
	// +kubebuilder:default="registry.k8s.io/kas-network-proxy/proxy-server"
	// +kubebuilder:validation:MaxLength=255
	// +kubebuilder:validation:Pattern=`^([A-Za-z0-9]([-A-Za-z0-9.]*[A-Za-z0-9])?(:[0-9]{1,5})?(/[a-z0-9]+([-._]+[a-z0-9]+)*)*)?$`
	// +optional
	Image string `json:"image,omitempty"`
	// Resources are the CPU and memory of the container. Default: no requests, no limits.
	// +optional
	Resources *corev1.ResourceRequirements `json:"resources,omitempty"`
	// ExtraArgs are additional flags, one per entry. Default: none.
	// +optional
	ExtraArgs []string `json:"extraArgs,omitempty"`
	// SecurityContext of the container. Default: none.
	// +optional
	SecurityContext *corev1.SecurityContext `json:"securityContext,omitempty"`
}

// KonnectivityAgentMode is the kind of workload that runs the konnectivity agent.
//
// +kubebuilder:validation:Enum=DaemonSet;Deployment
type KonnectivityAgentMode string

// The kinds of workload that can run the konnectivity agent.
const (
	KonnectivityAgentModeDaemonSet  KonnectivityAgentMode = "DaemonSet"
	KonnectivityAgentModeDeployment KonnectivityAgentMode = "Deployment"
)

// KonnectivityAgentSpec is the konnectivity agent inside a tenant.
//
// +kubebuilder:validation:XValidation:rule="!has(self.replicas) || (has(self.mode) && self.mode == 'Deployment' ? self.replicas > 0 : self.replicas == 0)",fieldPath=".replicas",messageExpression="'%d: replicas must be 0 (or unset) when mode is DaemonSet, and greater than 0 (or unset) when mode is Deployment'.format([self.replicas])"
type KonnectivityAgentSpec struct {
	// Image without its tag. Default: registry.k8s.io/kas-network-proxy/proxy-agent.
	// +kubebuilder:default="registry.k8s.io/kas-network-proxy/proxy-agent"
	// +kubebuilder:validation:MaxLength=255
	// +kubebuilder:validation:Pattern=`^([A-Za-z0-9]([-A-Za-z0-9.]*[A-Za-z0-9])?(:[0-9]{1,5})?(/[a-z0-9]+([-._]+[a-z0-9]+)*)*)?$`
	// +optional
	Image string `json:"image,omitempty"`
	// Version is the image's tag. Default: v0.<minor>.0 of the tenant's Kubernetes version.
	// +kubebuilder:validation:Pattern=`^([A-Za-z0-9_][-A-Za-z0-9_.]{0,127})?$`
	// +optional
	Version string `json:"version,omitempty"`
	// Tolerations of the pods. Default: CriticalAddonsOnly.
	// +kubebuilder:default={{key:"CriticalAddonsOnly",operator:"Exists"}}
	// +optional
	Tolerations []corev1.Toleration `json:"tolerations,omitempty"`
	// ExtraArgs are additional flags, one per entry. Default: none.
	// +optional
	ExtraArgs []string `json:"extraArgs,omitempty"`
	// HostNetwork runs the agent in the node's network, so that it works before a CNI plugin does. Default: false.
	// +kubebuilder:default=false
	// +optional
	HostNetwork bool `json:"hostNetwork,omitempty"`
	// Mode is DaemonSet (one agent on each node) or Deployment. Default: DaemonSet.
	// +kubebuilder:default="DaemonSet"
	// +optional
	Mode KonnectivityAgentMode `json:"mode,omitempty"`
	// Replicas is the number of agents with mode Deployment. Default: 1 with mode Deployment.
	// +optional
	Replicas *int32 `json:"replicas,omitempty"`
}
