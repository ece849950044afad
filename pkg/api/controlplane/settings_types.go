package controlplane

import (
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"

	"github.com/stoker-k8s/stoker/pkg/api/v1alpha1"
)

// Settings are what a KamajiControlPlane and a template have in common. Each has a default.
type Settings struct {
	// WritePermissions blocks kinds of writes to the tenant's API, for example to keep a full datastore from growing while deletions still
	// free space. Default: nothing is blocked.
	// +optional
	WritePermissions v1alpha1.Permissions `json:"writePermissions,omitzero"`

	// DataStoreName is the name of the DataStore that holds the tenant's data. A change moves the data to the named DataStore while the
	// tenant works. Default: the default DataStore of the installation, or, without one, a fitting one, chosen once.
	// +optional
	DataStoreName string `json:"dataStoreName,omitempty"`
	// DataStoreSchema is the name of the tenant's database (PostgreSQL, MySQL), key prefix (etcd) or bucket (NATS). It is fixed once the
	// tenant has it. Two tenants must not share it. Default: made of namespace, name and a hash of the TenantControlPlane's UID.
	// +optional
	DataStoreSchema string `json:"dataStoreSchema,omitempty"`
	// DataStoreUsername begins the name of the tenant's user in the DataStore. It is fixed once set. Default: made of namespace and name.
	// +kubebuilder:validation:XValidation:rule="self == oldSelf || self == '' || oldSelf == ''",message="the user cannot change, because the API server of the tenant logs in with it: write the former value"
	// +optional
	DataStoreUsername string `json:"dataStoreUsername,omitempty"`
	// DataStoreOverrides keep single resources, for example events, in a DataStore of their own. Supported by the etcd driver only. Default:
	// all resources are in one DataStore.
	// +kubebuilder:validation:MaxItems=32
	// +listType=map
	// +listMapKey=resource
	// +optional
	DataStoreOverrides []v1alpha1.DataStoreOverride `json:"dataStoreOverrides,omitempty"`

	// Addons are what is installed inside the tenant. An addon that is absent is off, and removed if it was on. Default: none.
	// +optional
	Addons AddonsSpec `json:"addons,omitzero"`

	// AdmissionControllers are the admission plugins to enable beside those Kubernetes enables by itself; the list replaces the default one.
	// Default: that of a TenantControlPlane, also when the list is empty.
	// +optional
	AdmissionControllers []v1alpha1.AdmissionController `json:"admissionControllers,omitempty"`

	// Registry is the registry of the control plane's images, with a path if need be. Default: registry.k8s.io.
	// +kubebuilder:default="registry.k8s.io"
	// +optional
	Registry string `json:"registry,omitempty"`
	// TagSuffix is appended to the tag of those images, which is the Kubernetes version. Default: none.
	// +kubebuilder:validation:MaxLength=63
	// +kubebuilder:validation:Pattern=`^[-A-Za-z0-9_.]*$`
	// +optional
	TagSuffix string `json:"tagSuffix,omitempty"`

	// APIServer is settings of kube-apiserver. Default: those of the fields within.
	// +optional
	APIServer ComponentSpec `json:"apiServer,omitzero"`
	// ControllerManager is settings of kube-controller-manager. Default: those of the fields within.
	// +optional
	ControllerManager ComponentSpec `json:"controllerManager,omitzero"`
	// Scheduler is settings of kube-scheduler. Default: those of the fields within.
	// +optional
	Scheduler ComponentSpec `json:"scheduler,omitzero"`
	// Kine is settings of kine, which runs when the DataStore is not etcd. Default: those of the fields within.
	// +optional
	Kine KineSpec `json:"kine,omitzero"`

	// Kubelet is settings for the tenant's nodes. Default, if nothing is set: preferredAddressTypes InternalIP, ExternalIP, Hostname and
	// cgroupfs systemd.
	// +kubebuilder:default={preferredAddressTypes:{"InternalIP","ExternalIP","Hostname"},cgroupfs:"systemd"}
	// +optional
	Kubelet v1alpha1.KubeletSpec `json:"kubelet,omitzero"`

	// Network is how the control plane is reached. Default: by a Service with serviceType LoadBalancer.
	// +kubebuilder:default={serviceType:"LoadBalancer"}
	// +optional
	Network NetworkSpec `json:"network,omitzero"`

	// Deployment is the pods that run the control plane, and where. Default: those of the fields within.
	// +optional
	Deployment DeploymentSpec `json:"deployment,omitzero"`
}

// AddonsSpec is what is installed inside a tenant. An addon that is absent is off, and removed if it was on.
type AddonsSpec struct {
	// CoreDNS installs CoreDNS and its Service kube-dns. Default: off.
	// +optional
	CoreDNS *CoreDNSSpec `json:"coreDNS,omitempty"`
	// Konnectivity installs the konnectivity tunnel, needed where the API server has no route to nodes and pods. Default: off.
	// +optional
	Konnectivity *v1alpha1.KonnectivitySpec `json:"konnectivity,omitempty"`
	// KubeProxy installs kube-proxy. Default: off.
	// +optional
	KubeProxy *v1alpha1.AddonSpec `json:"kubeProxy,omitempty"`
}

// CoreDNSSpec is the settings of CoreDNS.
type CoreDNSSpec struct {
	v1alpha1.AddonSpec `json:",inline"`

	// DNSServiceIPs are the addresses of the tenant's DNS Service, each within a service network. With CoreDNS on, they count instead of
	// network.dnsServiceIPs. Default: of each IPv4 service network the 10th address (10.96.0.10), of each IPv6 one that ending in ::10.
	// +optional
	DNSServiceIPs []string `json:"dnsServiceIPs,omitempty"`
}

// ComponentSpec is settings of kube-apiserver, kube-controller-manager or kube-scheduler.
type ComponentSpec struct {
	// ContainerImageName is the name of the image, without registry and tag. Default: the component's name.
	// +kubebuilder:validation:MinLength=1
	// +optional
	ContainerImageName string `json:"containerImageName,omitempty"`
	// ExtraArgs are additional flags, one per entry, for example "--v=4". They can override defaults and stop the control plane from
	// working. Default: none.
	// +optional
	ExtraArgs []string `json:"extraArgs,omitempty"`
	// ExtraVolumeMounts mount deployment.extraVolumes into the container, at paths that are not those of its own mounts. Default: none.
	// +listType=map
	// +listMapKey=mountPath
	// +optional
	ExtraVolumeMounts []corev1.VolumeMount `json:"extraVolumeMounts,omitempty"`
	// Resources are the CPU and memory of the container. Default: no requests, no limits.
	// +optional
	Resources *corev1.ResourceRequirements `json:"resources,omitempty"`
	// Probes change the timing of the component's probes; they win over deployment.probes, field by field. Default: as built in.
	// +optional
	Probes *v1alpha1.ProbeSet `json:"probes,omitempty"`
}

// KineSpec is settings of kine, which keeps a tenant's data in a database or in NATS.
type KineSpec struct {
	// ExtraArgs are additional flags, one per entry. Default: none.
	// +optional
	ExtraArgs []string `json:"extraArgs,omitempty"`
	// Resources are the CPU and memory of the container. Default: no requests, no limits.
	// +optional
	Resources *corev1.ResourceRequirements `json:"resources,omitempty"`
}

// NetworkSpec is how a control plane is reached.
//
// +kubebuilder:validation:XValidation:rule="!(has(self.ingress) && has(self.gateway))",fieldPath=".gateway",message="ingress and gateway exclude each other: remove one"
// +kubebuilder:validation:XValidation:rule="!has(self.allocateLoadBalancerNodePorts) || self.serviceType == 'LoadBalancer'",fieldPath=".allocateLoadBalancerNodePorts",message="only Services of type LoadBalancer have it: set serviceType to LoadBalancer, or remove the field"
// +kubebuilder:validation:XValidation:rule="!has(self.loadBalancerConfig) || !has(self.loadBalancerConfig.loadBalancerSourceRanges) || size(self.loadBalancerConfig.loadBalancerSourceRanges) == 0 || self.serviceType == 'LoadBalancer'",fieldPath=".loadBalancerConfig.loadBalancerSourceRanges",message="only Services of type LoadBalancer have them: set serviceType to LoadBalancer, or remove the field"
// +kubebuilder:validation:XValidation:rule="!has(self.loadBalancerConfig) || !has(self.loadBalancerConfig.loadBalancerClass) || self.serviceType == 'LoadBalancer'",fieldPath=".loadBalancerConfig.loadBalancerClass",message="only Services of type LoadBalancer have one: set serviceType to LoadBalancer, or remove the field"
// +kubebuilder:validation:XValidation:rule="!has(self.loadBalancerConfig) || self.serviceType != 'LoadBalancer' || oldSelf.serviceType != 'LoadBalancer' || has(self.loadBalancerConfig.loadBalancerClass) == (has(oldSelf.loadBalancerConfig) && has(oldSelf.loadBalancerConfig.loadBalancerClass))",fieldPath=".loadBalancerConfig.loadBalancerClass",message="the class cannot be added or removed while serviceType is LoadBalancer: Kubernetes fixes it when the Service becomes one"
type NetworkSpec struct {
	// ServiceType is the type of the Service. With NodePort, the node port is the API server's. Default: LoadBalancer.
	// +kubebuilder:default="LoadBalancer"
	// +optional
	ServiceType v1alpha1.ServiceType `json:"serviceType,omitempty"`
	// ServiceAddress is where clients reach the API server: an IP address or host name. NodePort needs it. Default: the address of the
	// Service.
	// +optional
	ServiceAddress string `json:"serviceAddress,omitempty"`
	// AllowAddressAsExternalIP sets serviceAddress as external IP of a ClusterIP or NodePort Service. Default: false.
	// +optional
	AllowAddressAsExternalIP bool `json:"allowAddressAsExternalIP,omitempty"`
	// AdvertiseAddress is the IP address at which pods inside the tenant reach the API server; it is in the API server's certificate.
	// Default: an IP address of the Service.
	// +optional
	AdvertiseAddress string `json:"advertiseAddress,omitempty"`
	// ServiceLabels are labels added to the Service. Default: none.
	// +optional
	ServiceLabels map[string]string `json:"serviceLabels,omitempty"`
	// ServiceAnnotations are annotations added to the Service, such as those that a load balancer reads. Default: none.
	// +optional
	ServiceAnnotations map[string]string `json:"serviceAnnotations,omitempty"`
	// AdditionalServicePorts are ports of the Service beside those of the API server and konnectivity, for example of extraContainers.
	// Default: none.
	// +kubebuilder:validation:MaxItems=32
	// +kubebuilder:validation:XValidation:rule="self.all(p, self.exists_one(q, q.port == p.port && (has(q.protocol) ? q.protocol : 'TCP') == (has(p.protocol) ? p.protocol : 'TCP')))",message="additional ports must not repeat a port of the same protocol"
	// +listType=map
	// +listMapKey=name
	// +optional
	AdditionalServicePorts []v1alpha1.AdditionalPort `json:"additionalServicePorts,omitempty"`
	// AllocateLoadBalancerNodePorts says whether a LoadBalancer Service also gets node ports. Only with serviceType LoadBalancer. Default:
	// true.
	// +optional
	AllocateLoadBalancerNodePorts *bool `json:"allocateLoadBalancerNodePorts,omitempty"`
	// LoadBalancerConfig is settings of the load balancer. Only with serviceType LoadBalancer. Default: those of the fields within.
	// +optional
	LoadBalancerConfig *LoadBalancerSpec `json:"loadBalancerConfig,omitempty"`
	// CertSANs are additional names of the API server's certificate: IP addresses or DNS names, without a port. The host of ingress or
	// gateway is there anyway. Default: none beside the addresses and names the tenant is reached by.
	// +optional
	CertSANs []string `json:"certSANs,omitempty"`
	// DNSServiceIPs are the addresses of the tenant's DNS Service, each within a service network. With addons.coreDNS, the addresses there
	// count instead. Default: of each IPv4 service network the 10th address (10.96.0.10), of each IPv6 one that ending in ::10.
	// +optional
	DNSServiceIPs []string `json:"dnsServiceIPs,omitempty"`
	// Ingress additionally exposes the API server by host name. The ingress controller must pass TLS through. Not together with gateway.
	// Default: none.
	// +optional
	Ingress *IngressSpec `json:"ingress,omitempty"`
	// Gateway additionally exposes the API server by TLSRoutes of the Gateway API. Not together with ingress. Default: none.
	// +optional
	Gateway *GatewaySpec `json:"gateway,omitempty"`
}

// LoadBalancerSpec is settings of the load balancer before a control plane.
type LoadBalancerSpec struct {
	// LoadBalancerSourceRanges are the networks, as CIDRs, whose clients the load balancer lets in. Default: all.
	// +optional
	LoadBalancerSourceRanges []string `json:"loadBalancerSourceRanges,omitempty"`
	// LoadBalancerClass chooses among several load balancer implementations. It is fixed, also to be none, once the Service is of type
	// LoadBalancer. Default: the cluster's default.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:XValidation:rule="self == oldSelf",message="the class cannot change, because Kubernetes fixes it for a Service: write the former value"
	// +optional
	LoadBalancerClass *string `json:"loadBalancerClass,omitempty"`
}

// IngressSpec exposes a control plane by an Ingress.
type IngressSpec struct {
	// ClassName is the IngressClass. Default: the cluster's default class.
	// +optional
	ClassName string `json:"className,omitempty"`
	// Hostname is the host of the Ingress and of the tenant's endpoint, as host or host:port.
	// +kubebuilder:validation:MinLength=1
	// +required
	Hostname string `json:"hostname"`
	// ExtraLabels are labels added to the Ingress. Default: none.
	// +optional
	ExtraLabels map[string]string `json:"extraLabels,omitempty"`
	// ExtraAnnotations are annotations added to the Ingress, such as those that make the ingress controller pass TLS through. Default: none.
	// +optional
	ExtraAnnotations map[string]string `json:"extraAnnotations,omitempty"`
}

// GatewaySpec exposes a control plane by TLSRoutes of the Gateway API.
type GatewaySpec struct {
	// Name of the Gateway that the routes attach to.
	// +kubebuilder:validation:MinLength=1
	// +required
	Name string `json:"name"`
	// Namespace of the Gateway.
	// +kubebuilder:validation:MinLength=1
	// +required
	Namespace string `json:"namespace"`
	// Hostname is the host of the routes and of the tenant's endpoint. A port after a colon doesn't count.
	// +kubebuilder:validation:MinLength=1
	// +required
	Hostname string `json:"hostname"`
	// SectionName is the listener of the Gateway that the API server's route attaches to. Default: each that lets it.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	// +optional
	SectionName string `json:"sectionName,omitempty"`
	// Port of the listener. With sectionName, the listener must have both. Default: that of a listener that lets the route attach.
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=65535
	// +optional
	Port *int32 `json:"port,omitempty"`
	// ExtraLabels are labels added to the routes. Default: none.
	// +optional
	ExtraLabels map[string]string `json:"extraLabels,omitempty"`
	// ExtraAnnotations are annotations added to the routes. Default: none.
	// +optional
	ExtraAnnotations map[string]string `json:"extraAnnotations,omitempty"`
}

// DeploymentSpec is the pods that run a control plane, and where.
type DeploymentSpec struct {
	// NodeSelector is the labels of the nodes the pods may run on. Default: any node.
	// +optional
	NodeSelector map[string]string `json:"nodeSelector,omitempty"`
	// RuntimeClassName is the RuntimeClass of the pods. Default: the cluster's default handler.
	// +optional
	RuntimeClassName string `json:"runtimeClassName,omitempty"`
	// ServiceAccountName is the ServiceAccount of the pods, which must exist in the tenant's namespace. Default: default.
	// +optional
	ServiceAccountName string `json:"serviceAccountName,omitempty"`
	// AutomountServiceAccountToken says whether the pods get a token of the management cluster, which no control plane needs. Default:
	// false.
	// +optional
	AutomountServiceAccountToken *bool `json:"automountServiceAccountToken,omitempty"`
	// PodSecurityContext is the security context of the pods. Default: none; with an API server's port below 1024, the sysctl that lets
	// every user listen there.
	// +optional
	PodSecurityContext *corev1.PodSecurityContext `json:"podSecurityContext,omitempty"`
	// ContainerSecurityContexts are the security contexts of the control plane's containers. Default, field by field: that of
	// podSecurityContext, else what the Pod Security level restricted asks for, with user and group 65532.
	// +optional
	ContainerSecurityContexts *v1alpha1.ControlPlaneSecurityContexts `json:"containerSecurityContexts,omitempty"`
	// AdditionalMetadata is labels and annotations added to the Deployment. Default: none.
	// +optional
	AdditionalMetadata v1alpha1.AdditionalMetadata `json:"additionalMetadata,omitzero"`
	// PodAdditionalMetadata is labels and annotations added to the pods. Default: none.
	// +optional
	PodAdditionalMetadata v1alpha1.AdditionalMetadata `json:"podAdditionalMetadata,omitzero"`
	// Strategy is how pods are replaced. Default, also when it is empty: RollingUpdate with maxUnavailable 0 and maxSurge 100%, which
	// starts all new pods before an old one goes.
	// +optional
	Strategy appsv1.DeploymentStrategy `json:"strategy,omitzero"`
	// Affinity of the pods. Default: none.
	// +optional
	Affinity *corev1.Affinity `json:"affinity,omitempty"`
	// Tolerations of the pods. Default: none.
	// +optional
	Tolerations []corev1.Toleration `json:"tolerations,omitempty"`
	// TopologySpreadConstraints spread the pods over zones or nodes. A constraint without a labelSelector gets the one of the tenant's
	// pods. Default: none.
	// +listType=map
	// +listMapKey=topologyKey
	// +listMapKey=whenUnsatisfiable
	// +optional
	TopologySpreadConstraints []corev1.TopologySpreadConstraint `json:"topologySpreadConstraints,omitempty"`
	// ExtraInitContainers run before the control plane's own containers start. They may mount extraVolumes and the control plane's own
	// volumes. Default: none.
	// +listType=map
	// +listMapKey=name
	// +optional
	ExtraInitContainers []corev1.Container `json:"extraInitContainers,omitempty"`
	// ExtraContainers run beside the control plane's own containers, in the same network: their ports must be free. One named kine doesn't
	// run: its image replaces that of kine, where the DataStore needs kine. Default: none.
	// +listType=map
	// +listMapKey=name
	// +optional
	ExtraContainers []corev1.Container `json:"extraContainers,omitempty"`
	// ExtraVolumes are volumes of the pods, for extra containers and extraVolumeMounts. Their names must not be those of the control
	// plane's own volumes. Default: none.
	// +listType=map
	// +listMapKey=name
	// +optional
	ExtraVolumes []corev1.Volume `json:"extraVolumes,omitempty"`
	// Probes change the timing of the probes of all components. Default: as built in.
	// +optional
	Probes *v1alpha1.ProbeSet `json:"probes,omitempty"`
	// ExternalClusterReference is another cluster where the pods run. Default: they run in the management cluster.
	// +optional
	ExternalClusterReference *ExternalClusterReference `json:"externalClusterReference,omitempty"`
}

// ExternalClusterReference is a cluster other than the management cluster.
type ExternalClusterReference struct {
	// KubeconfigSecretName is the name of the Secret with the kubeconfig by which that cluster is reached.
	// +kubebuilder:validation:MinLength=1
	// +required
	KubeconfigSecretName string `json:"kubeconfigSecretName"`
	// KubeconfigSecretKey is the key in the Secret.
	// +kubebuilder:validation:MinLength=1
	// +required
	KubeconfigSecretKey string `json:"kubeconfigSecretKey"`
	// KubeconfigSecretNamespace is the namespace of the Secret. Another one than the KamajiControlPlane's must be allowed by the
	// installation. Default: that of the KamajiControlPlane.
	// +optional
	KubeconfigSecretNamespace string `json:"kubeconfigSecretNamespace,omitempty"`
	// DeploymentNamespace is the namespace in that cluster. It must exist.
	// +required
	DeploymentNamespace string `json:"deploymentNamespace"`
}
