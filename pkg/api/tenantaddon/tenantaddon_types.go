package tenantaddon

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/intstr"
)

// TenantAddon is software that tenants run: a Helm chart, a kustomization or manifests, and which tenants that is for. It is installed in
// each of them, and kept as it must be, as a Helm release.
//
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:path=tenantaddons,shortName=tad,categories=stoker
// +kubebuilder:printcolumn:name="Version",type="string",JSONPath=".status.version",description="Version of what tenants get"
// +kubebuilder:printcolumn:name="Tenants",type="integer",JSONPath=".status.tenants.selected",description="Tenants that it is for"
// +kubebuilder:printcolumn:name="Current",type="integer",JSONPath=".status.tenants.current",description="Those that have it as it is now"
// +kubebuilder:printcolumn:name="Ready",type="integer",JSONPath=".status.tenants.ready",description="Those in which it works"
// +kubebuilder:printcolumn:name="Failed",type="integer",JSONPath=".status.tenants.failed",description="Those in which it doesn't"
// +kubebuilder:printcolumn:name="Status",type="string",JSONPath=".status.conditions[?(@.type=='Ready')].reason",description="Why it is ready or isn't"
// +kubebuilder:printcolumn:name="Age",type="date",JSONPath=".metadata.creationTimestamp",description="Age"
// +kubebuilder:validation:XValidation:rule="self.metadata.name.matches('^[a-z0-9]([-a-z0-9]{0,51}[a-z0-9])?$')",message="metadata.name: must be at most 53 characters of a-z, 0-9 and -, as the name of a Helm release"
// +kubebuilder:validation:XValidation:rule="!has(self.spec.after) || !(self.metadata.name in self.spec.after)",message="spec.after: must not name the TenantAddon itself"
type TenantAddon struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// Spec is what tenants must run.
	// +required
	Spec TenantAddonSpec `json:"spec"`
	// Status is what was last observed.
	// +optional
	Status TenantAddonStatus `json:"status,omitzero"`
}

// TenantAddonList is a list of TenantAddon objects.
//
// +kubebuilder:object:root=true
type TenantAddonList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []TenantAddon `json:"items"`
}

// TenantAddonSpec is what tenants must run, and which.
//
// +kubebuilder:validation:XValidation:rule="[has(self.chart), has(self.kustomization), has(self.manifests)].filter(x, x).size() == 1",message="exactly one of chart, kustomization and manifests must be given"
// +kubebuilder:validation:XValidation:rule="self.releaseName == oldSelf.releaseName && self.targetNamespace == oldSelf.targetNamespace",message="releaseName and targetNamespace can't be changed: it would be other software; delete this TenantAddon and make another"
type TenantAddonSpec struct {
	// Selector chooses tenants by their labels; {} chooses all. Those of the TenantAddon's own namespace, unless namespaceSelector is given.
	// +required
	Selector metav1.LabelSelector `json:"selector"`
	// NamespaceSelector chooses, by their labels, the namespaces whose tenants the selector is for; {} chooses all. It may be given in the
	// namespace of Stoker's services alone: else whoever may write TenantAddons in one namespace could run software in the tenants of others.
	// Default: the TenantAddon's own namespace.
	// +optional
	NamespaceSelector *metav1.LabelSelector `json:"namespaceSelector,omitempty"`

	// Chart is a Helm chart. Default: none; one of chart, kustomization and manifests must be given.
	// +optional
	Chart *Chart `json:"chart,omitempty"`
	// Kustomization is a directory that kustomize builds. Default: none.
	// +optional
	Kustomization *Kustomization `json:"kustomization,omitempty"`
	// Manifests are objects as YAML or JSON. Default: none.
	// +optional
	Manifests *Manifests `json:"manifests,omitempty"`

	// ReleaseName is the name of the Helm release in each tenant. Default: the TenantAddon's name.
	// +kubebuilder:validation:MaxLength=53
	// +kubebuilder:validation:Pattern=`^([a-z0-9]([-a-z0-9]*[a-z0-9])?)?$`
	// +kubebuilder:default=""
	// +optional
	ReleaseName string `json:"releaseName"`
	// TargetNamespace is the release's namespace in each tenant, and that of objects which name none. It is made where it isn't there.
	// Default: kube-system.
	// +kubebuilder:validation:MaxLength=63
	// +kubebuilder:validation:Pattern=`^[a-z0-9]([-a-z0-9]*[a-z0-9])?$`
	// +kubebuilder:default="kube-system"
	// +optional
	TargetNamespace string `json:"targetNamespace"`

	// Values are those of the chart, the same for all tenants. For a kustomization they aren't used; for manifests, if these are templates.
	// Default: none.
	// +kubebuilder:pruning:PreserveUnknownFields
	// +kubebuilder:validation:Type=object
	// +optional
	Values *runtime.RawExtension `json:"values,omitempty"`
	// ValuesFrom are ConfigMaps and Secrets of the TenantAddon's namespace that hold values, as YAML. Later ones win over earlier ones, and over
	// values. Default: none.
	// +kubebuilder:validation:MaxItems=16
	// +listType=atomic
	// +optional
	ValuesFrom []ValuesFrom `json:"valuesFrom,omitempty"`
	// ValuesTemplate is a Go template, with Sprig's functions, that makes a tenant's own values, as YAML. It wins over valuesFrom. It has
	// .Tenant with Name, Namespace, Labels, Version, Endpoint (host:port), Host, Port, PodCIDR, ServiceCIDR, DNSDomain and DNSServiceIPs.
	// Default: none.
	// +kubebuilder:validation:MaxLength=65536
	// +optional
	ValuesTemplate string `json:"valuesTemplate,omitempty"`

	// After are TenantAddons of the same namespace that must be ready in a tenant before this one is installed there, and that are removed after
	// it. One that isn't for the tenant isn't waited for. Default: none.
	// +kubebuilder:validation:MaxItems=16
	// +kubebuilder:validation:items:MaxLength=53
	// +listType=set
	// +optional
	After []string `json:"after,omitempty"`
	// OnRemoval says what becomes of the software when the TenantAddon is deleted or no longer for a tenant: Delete, or Keep. Default: Delete.
	// +kubebuilder:validation:Enum=Delete;Keep
	// +kubebuilder:default=Delete
	// +optional
	OnRemoval string `json:"onRemoval,omitempty"`
	// Paused leaves everything in tenants as it is: nothing is installed, upgraded, repaired or removed. Default: false.
	// +optional
	Paused bool `json:"paused,omitempty"`
	// ReadyWhen says when the software is ready in a tenant: Applied, once its objects are applied; Healthy, once they also work, as workloads
	// do when their pods are ready. Default: Healthy.
	// +kubebuilder:validation:Enum=Applied;Healthy
	// +kubebuilder:default=Healthy
	// +optional
	ReadyWhen string `json:"readyWhen,omitempty"`
	// Timeout is how long an installation may take until it is ready, and each hook of a chart; after that it has failed. Default: 5m.
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:MaxLength=32
	// +kubebuilder:validation:Pattern=`^([0-9]+([.][0-9]+)?(ms|s|m|h))+$`
	// +kubebuilder:validation:XValidation:rule="duration(self) >= duration('1s') && duration(self) <= duration('1h')",message="must be from 1s to 1h"
	// +kubebuilder:default="5m"
	// +optional
	Timeout *metav1.Duration `json:"timeout,omitempty"`
	// Rollout says in which order tenants get what has changed. Default: all tenants, at most 10 at once, until one has failed.
	// +optional
	Rollout Rollout `json:"rollout,omitzero"`
}

// Values of OnRemoval and ReadyWhen.
const (
	RemovalDelete = "Delete"
	RemovalKeep   = "Keep"

	ReadyWhenApplied = "Applied"
	ReadyWhenHealthy = "Healthy"
)

// Chart is where a Helm chart is.
//
// +kubebuilder:validation:XValidation:rule="self.repository.startsWith('oci://') || has(self.name)",message="name must be given, unless the repository is an OCI one"
// +kubebuilder:validation:XValidation:rule="!(self.repository.startsWith('oci://') && has(self.name))",message="an OCI repository names the chart: oci://<registry>/<path>/<chart>; leave name out"
type Chart struct {
	// Repository is an OCI repository, as oci://ghcr.io/stefanprodan/charts/podinfo, or the URL of a Helm repository, as
	// https://charts.jetstack.io.
	// +kubebuilder:validation:Pattern=`^(oci|https|http)://[^\s/@?#]+(/\S*)?$`
	// +kubebuilder:validation:MaxLength=1024
	// +required
	Repository string `json:"repository"`
	// Name of the chart in a Helm repository. Default: none, for an OCI repository names it.
	// +kubebuilder:validation:MaxLength=253
	// +kubebuilder:validation:MinLength=1
	// +optional
	Name string `json:"name,omitempty"`
	// Version is the very version, as 6.9.1: a range could move all tenants without anybody having asked for it.
	// +kubebuilder:validation:Pattern=`^v?[0-9]+\.[0-9]+\.[0-9]+([-+][0-9A-Za-z.+-]+)?$`
	// +kubebuilder:validation:MaxLength=128
	// +required
	Version string `json:"version"`

	Origin `json:",inline"`
}

// Kustomization is where the directory is that kustomize builds. Its files must be all that it needs: what refers to other places isn't
// fetched, and neither plugins nor Helm charts in it are run.
//
// +kubebuilder:validation:XValidation:rule="has(self.url) != has(self.configMap)",message="exactly one of url and configMap must be given"
type Kustomization struct {
	// URL is an OCI artifact, as oci://ghcr.io/org/manifests:v1 or oci://…@sha256:…, or an archive, as https://example.com/manifests.tar.gz.
	// Default: none.
	// +kubebuilder:validation:Pattern=`^(oci|https|http)://[^\s/@?#]+(/\S*)?$`
	// +kubebuilder:validation:MaxLength=1024
	// +optional
	URL string `json:"url,omitempty"`
	// ConfigMap of the TenantAddon's namespace whose keys are the files. Default: none.
	// +kubebuilder:validation:MaxLength=253
	// +kubebuilder:validation:MinLength=1
	// +optional
	ConfigMap string `json:"configMap,omitempty"`
	// Path of the directory in the archive or artifact. Default: its root.
	// +kubebuilder:validation:MaxLength=1024
	// +optional
	Path string `json:"path,omitempty"`

	Origin `json:",inline"`
}

// Manifests are objects, or where they are.
//
// +kubebuilder:validation:XValidation:rule="[has(self.inline), has(self.configMap), has(self.url)].filter(x, x).size() == 1",message="exactly one of inline, configMap and url must be given"
type Manifests struct {
	// Inline are the objects, as YAML documents. Default: none.
	// +kubebuilder:validation:MaxLength=524288
	// +kubebuilder:validation:MinLength=1
	// +optional
	Inline string `json:"inline,omitempty"`
	// ConfigMap of the TenantAddon's namespace whose keys are files with objects. Default: none.
	// +kubebuilder:validation:MaxLength=253
	// +kubebuilder:validation:MinLength=1
	// +optional
	ConfigMap string `json:"configMap,omitempty"`
	// URL is a file, as https://example.com/install.yaml, an archive of files, as https://example.com/manifests.tar.gz, or an OCI artifact, as
	// oci://ghcr.io/org/manifests:v1. Default: none.
	// +kubebuilder:validation:Pattern=`^(oci|https|http)://[^\s/@?#]+(/\S*)?$`
	// +kubebuilder:validation:MaxLength=1024
	// +optional
	URL string `json:"url,omitempty"`
	// Path of the directory with the files in the archive or artifact. Default: its root.
	// +kubebuilder:validation:MaxLength=1024
	// +optional
	Path string `json:"path,omitempty"`
	// Template has the files be templates as those of a Helm chart, with .Values. Default: false.
	// +optional
	Template bool `json:"template,omitempty"`

	Origin `json:",inline"`
}

// Origin says how what is fetched is proven to be right.
type Origin struct {
	// Digest of what is fetched, as sha256:…: of the file or archive, or the manifest of an OCI artifact. Anything else is refused. Default: what
	// was fetched first since the spec was changed is what all tenants get.
	// +kubebuilder:validation:Pattern=`^sha256:[0-9a-f]{64}$`
	// +optional
	Digest string `json:"digest,omitempty"`
	// Credentials is a Secret of the TenantAddon's namespace: username and password, or .dockerconfigjson for an OCI registry; and ca.crt, the
	// authority of the server's certificate. Each may be left out. Without TLS no credentials are sent.
	// Default: none.
	// +kubebuilder:validation:MaxLength=253
	// +kubebuilder:validation:MinLength=1
	// +optional
	Credentials string `json:"credentials,omitempty"`
}

// ValuesFrom is a ConfigMap or Secret with values.
type ValuesFrom struct {
	// Kind is ConfigMap or Secret.
	// +kubebuilder:validation:Enum=ConfigMap;Secret
	// +required
	Kind string `json:"kind"`
	// Name of the object.
	// +kubebuilder:validation:MaxLength=253
	// +kubebuilder:validation:MinLength=1
	// +required
	Name string `json:"name"`
	// Key in it. Default: values.yaml.
	// +kubebuilder:validation:MaxLength=253
	// +kubebuilder:default="values.yaml"
	// +optional
	Key string `json:"key,omitempty"`
	// Optional allows the object or the key to be missing. Default: false.
	// +optional
	Optional bool `json:"optional,omitempty"`
}

// Rollout says in which order tenants get what has changed: wave by wave, and within a wave some at once. A wave begins when all tenants of
// the one before are ready, and the rollout stops when more than maxFailures have failed.
type Rollout struct {
	// Waves choose tenants by their labels; a tenant belongs to the first that chooses it. All others come last, in a wave of their own.
	// Default: one wave.
	// +kubebuilder:validation:MaxItems=16
	// +listType=map
	// +listMapKey=name
	// +optional
	Waves []Wave `json:"waves,omitempty"`
	// MaxParallel is how many tenants may be changed at once, or which share of them ("10%", at least one). Default: 10.
	// +kubebuilder:validation:XIntOrString
	// +kubebuilder:validation:XValidation:rule="type(self) == int ? self >= 1 && self <= 999999 : self.matches('^([1-9][0-9]{0,5}|([1-9][0-9]?|100)%)$')",message="must be a number of tenants, at least 1, or a share of them from 1% to 100%"
	// +optional
	MaxParallel *intstr.IntOrString `json:"maxParallel,omitempty"`
	// MaxFailures is how many tenants may have failed without stopping the rollout, or which share of them. Default: 0.
	// +kubebuilder:validation:XIntOrString
	// +kubebuilder:validation:XValidation:rule="type(self) == int ? self >= 0 && self <= 999999 : self.matches('^([0-9]{1,6}|([0-9]{1,2}|100)%)$')",message="must be a number of tenants, or a share of them from 0% to 100%"
	// +optional
	MaxFailures *intstr.IntOrString `json:"maxFailures,omitempty"`
}

// Wave is some of the tenants.
type Wave struct {
	// Name of the wave, for status.
	// +kubebuilder:validation:MaxLength=63
	// +kubebuilder:validation:MinLength=1
	// +required
	Name string `json:"name"`
	// Selector chooses tenants by their labels.
	// +required
	Selector metav1.LabelSelector `json:"selector"`
	// Soak is how long the wave's tenants must have been ready before the next wave begins. Default: 0s.
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:MaxLength=32
	// +kubebuilder:validation:Pattern=`^([0-9]+([.][0-9]+)?(ms|s|m|h))+$`
	// +kubebuilder:validation:XValidation:rule="duration(self) >= duration('0s') && duration(self) <= duration('168h')",message="must be from 0s to 168h"
	// +optional
	Soak *metav1.Duration `json:"soak,omitempty"`
}

// TenantAddonStatus is what was last observed of a TenantAddon in all its tenants.
type TenantAddonStatus struct {
	// ObservedGeneration is the generation of the spec that the status is about.
	// +optional
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`
	// Revision names what tenants must have: it changes with the source, its content and the values that are the same for all tenants.
	// +optional
	Revision string `json:"revision,omitempty"`
	// RevisedAt is when that became what all must have: tenants that are made later get it at once.
	// +optional
	RevisedAt *metav1.Time `json:"revisedAt,omitempty"`
	// Source is a hash of what the spec says of the source: while it stays, so does the content.
	// +optional
	Source string `json:"source,omitempty"`
	// Version of the chart; of other sources, the beginning of the digest.
	// +optional
	Version string `json:"version,omitempty"`
	// Digest of the content that all tenants get.
	// +optional
	Digest string `json:"digest,omitempty"`
	// Tenants says how many there are.
	// +optional
	Tenants TenantCounts `json:"tenants,omitzero"`
	// Wave is the name of the wave that gets the revision now; empty when all have it. That of the tenants that no wave chooses is "rest".
	// +optional
	Wave string `json:"wave,omitempty"`
	// WaveReadySince is when all tenants of the wave were ready, while the next one waits for its soak.
	// +optional
	WaveReadySince *metav1.Time `json:"waveReadySince,omitempty"`
	// Failing are the tenants in which it has failed, at most 20.
	// +kubebuilder:validation:MaxItems=20
	// +listType=atomic
	// +optional
	Failing []FailingTenant `json:"failing,omitempty"`
	// Conditions are Valid, RolledOut and Ready.
	// +listType=map
	// +listMapKey=type
	// +optional
	Conditions []metav1.Condition `json:"conditions,omitempty"`
}

// TenantCounts says how many tenants there are.
type TenantCounts struct {
	// Selected are those that it is for.
	Selected int32 `json:"selected"`
	// Current are those of them that have the revision.
	Current int32 `json:"current"`
	// Ready are those of them that have the revision and in which it is ready.
	Ready int32 `json:"ready"`
	// Failed are those of them in which it has failed, of whatever revision.
	Failed int32 `json:"failed"`
	// Removing are those that it was for, and in which it still is.
	Removing int32 `json:"removing"`
}

// FailingTenant is a tenant in which a TenantAddon has failed.
type FailingTenant struct {
	// Namespace of the tenant.
	Namespace string `json:"namespace"`
	// Name of the tenant.
	Name string `json:"name"`
	// Reason is that of the condition Ready of its AddonRelease.
	Reason string `json:"reason"`
	// Message likewise, cut at 256 characters.
	// +optional
	Message string `json:"message,omitempty"`
}
