// The objects of a control plane as they must be: Service, Ingress and Deployment, from the effective spec and what the
// other services made. Pure: equal inputs give equal objects, byte for byte.

package workload

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"maps"
	"net"
	"net/netip"
	"path"
	"slices"
	"strconv"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/stoker-k8s/stoker/pkg/api/name"
	"github.com/stoker-k8s/stoker/pkg/api/state"
	"github.com/stoker-k8s/stoker/pkg/api/v1alpha1"
	"github.com/stoker-k8s/stoker/pkg/kube"
)

// Where things are in the containers.
const (
	dirKubernetes = "/etc/kubernetes"
	dirPKI        = "/etc/kubernetes/pki"
	dirEtcd       = "etcd" // below dirPKI
)

const (
	portScheduler         = 10259
	portControllerManager = 10257

	// terminationGrace is how long, in seconds, a pod may take to stop. The API server takes shutdownDelay and then what
	// requests in flight need.
	terminationGrace int64 = 20
	// shutdownDelay is how long an API server that is told to stop goes on serving, while those who send it requests hear
	// that it is no longer ready. Without it, every rollout would refuse some.
	shutdownDelay = "3s"
	// oldReplicaSets are kept by a Deployment for a roll-back, which only the spec can ask for here.
	oldReplicaSets int32 = 2
)

// Subject is the tenant that objects are made for.
type Subject struct {
	// UID of the TenantControlPlane, which owns the objects.
	UID string
	// Tenant has every default resolved.
	Tenant *state.Tenant
}

// Input is everything a Deployment is made from.
type Input struct {
	Subject
	// Advertise is the address the API server announces inside the tenant.
	Advertise string
	// Certs and Datastore are what these services have made.
	Certs     state.Certs
	Datastore state.Datastore
	// KineImage is the image of kine; empty for the default.
	KineImage string
}

// meta is the metadata of an object of the tenant. Stoker's own labels win over the user's: watches rely on them.
func (s Subject) meta(object, component string, additional v1alpha1.AdditionalMetadata) metav1.ObjectMeta {
	t := s.Tenant
	return metav1.ObjectMeta{
		Namespace: t.Namespace, Name: object,
		Labels:      merge(additional.Labels, name.Labels(t.Name, component, name.Partition(t.Namespace, t.Name))),
		Annotations: merge(additional.Annotations),
		OwnerReferences: []metav1.OwnerReference{{
			APIVersion: kube.TenantControlPlanes.GroupVersion.String(), Kind: kube.TenantControlPlanes.Kind,
			Name: t.Name, UID: types.UID(s.UID), Controller: new(true), BlockOwnerDeletion: new(true),
		}},
	}
}

// merge returns the union of maps, later ones win; nil when it is empty.
func merge(all ...map[string]string) map[string]string {
	out := map[string]string{}
	for _, m := range all {
		maps.Copy(out, m)
	}
	if len(out) == 0 {
		return nil
	}
	return out
}

// Service returns how the control plane is reached.
func Service(s Subject) *corev1.Service {
	t := s.Tenant
	spec, profile := &t.Spec.ControlPlane.Service, &t.Spec.NetworkProfile
	o := &corev1.Service{
		TypeMeta:   kube.Services.TypeMeta(),
		ObjectMeta: s.meta(name.Service(t.Name), name.ComponentService, spec.AdditionalMetadata),
		Spec: corev1.ServiceSpec{
			Type:     corev1.ServiceType(spec.ServiceType),
			Selector: name.Selector(t.Name),
			Ports: []corev1.ServicePort{{
				Name: name.PortAPIServer, Protocol: corev1.ProtocolTCP,
				Port: profile.Port, TargetPort: intstr.FromInt32(profile.Port),
			}},
		},
	}
	switch spec.ServiceType {
	case v1alpha1.ServiceTypeNodePort:
		o.Spec.Ports[0].NodePort = profile.Port
	case v1alpha1.ServiceTypeLoadBalancer:
		o.Spec.LoadBalancerClass = profile.LoadBalancerClass
		o.Spec.LoadBalancerSourceRanges = profile.LoadBalancerSourceRanges
		o.Spec.AllocateLoadBalancerNodePorts = spec.AllocateLoadBalancerNodePorts
	}
	if _, err := netip.ParseAddr(profile.Address); err == nil && profile.AllowAddressAsExternalIP && spec.ServiceType != v1alpha1.ServiceTypeLoadBalancer {
		o.Spec.ExternalIPs = []string{profile.Address}
	}
	for _, p := range spec.AdditionalPorts {
		o.Spec.Ports = append(o.Spec.Ports, corev1.ServicePort{
			Name: p.Name, Protocol: p.Protocol, AppProtocol: p.AppProtocol, Port: p.Port, TargetPort: p.TargetPort,
		})
	}
	return o
}

// Ingress returns the Ingress of the API server, nil when the spec asks for none. It has no TLS section: the API server
// ends TLS itself, and the user's annotations make the ingress controller pass it through.
func Ingress(s Subject) *networkingv1.Ingress {
	t := s.Tenant
	spec := t.Spec.ControlPlane.Ingress
	if spec == nil || spec.Hostname == "" {
		return nil
	}
	host := spec.Hostname
	if h, _, err := net.SplitHostPort(host); err == nil {
		host = h
	}
	o := &networkingv1.Ingress{
		TypeMeta:   kube.Ingresses.TypeMeta(),
		ObjectMeta: s.meta(name.Ingress(t.Name), name.ComponentIngress, spec.AdditionalMetadata),
		Spec: networkingv1.IngressSpec{Rules: []networkingv1.IngressRule{{
			Host: host,
			IngressRuleValue: networkingv1.IngressRuleValue{HTTP: &networkingv1.HTTPIngressRuleValue{
				Paths: []networkingv1.HTTPIngressPath{{
					Path: "/", PathType: new(networkingv1.PathTypePrefix),
					Backend: networkingv1.IngressBackend{Service: &networkingv1.IngressServiceBackend{
						Name: name.Service(t.Name), Port: networkingv1.ServiceBackendPort{Number: t.Spec.NetworkProfile.Port},
					}},
				}},
			}},
		}}},
	}
	if spec.IngressClassName != "" {
		o.Spec.IngressClassName = &spec.IngressClassName
	}
	return o
}

// Deployment returns the pods of the control plane. The annotation AnnotationConfigHash of their template is the hash of
// the template without it.
func Deployment(in Input) *appsv1.Deployment {
	t := in.Tenant
	spec := &t.Spec.ControlPlane.Deployment
	o := &appsv1.Deployment{
		TypeMeta:   kube.Deployments.TypeMeta(),
		ObjectMeta: in.meta(name.Deployment(t.Name), name.ComponentDeployment, spec.AdditionalMetadata),
		Spec: appsv1.DeploymentSpec{
			Replicas:             spec.Replicas,
			RevisionHistoryLimit: new(oldReplicaSets),
			Selector:             &metav1.LabelSelector{MatchLabels: name.Selector(t.Name)},
			Strategy:             spec.Strategy,
			Template: corev1.PodTemplateSpec{
				ObjectMeta: metav1.ObjectMeta{Labels: in.podLabels(), Annotations: in.podAnnotations()},
				Spec:       in.pod(),
			},
		},
	}
	o.Annotations = merge(o.Annotations, map[string]string{name.AnnotationAPIServerArgs: hash(in.extraArgs().APIServer)})
	o.Spec.Template.Annotations[name.AnnotationConfigHash] = hash(o.Spec.Template)
	return o
}

// checksums maps the certs service's components that pods mount to the names of the labels that make a change of one roll
// them out.
var checksums = map[string]string{
	name.ComponentAPIServerCertificate:              name.ChecksumAPIServerCertificate,
	name.ComponentAPIServerKubeletClientCertificate: name.ChecksumAPIServerKubeletClientCertificate,
	name.ComponentCA:                                name.ChecksumCA,
	name.ComponentControllerManagerKubeconfig:       name.ChecksumControllerManagerKubeconfig,
	name.ComponentFrontProxyCA:                      name.ChecksumFrontProxyCA,
	name.ComponentFrontProxyClientCertificate:       name.ChecksumFrontProxyClientCertificate,
	name.ComponentServiceAccountKeys:                name.ChecksumServiceAccountKeys,
	name.ComponentSchedulerKubeconfig:               name.ChecksumSchedulerKubeconfig,
}

// podLabels: the user's win over Kamaji's, but for the selector, without which the Deployment is refused.
func (in Input) podLabels() map[string]string {
	t := in.Tenant
	own := name.Labels(t.Name, name.ComponentDeployment, name.Partition(t.Namespace, t.Name))
	own[name.LabelPodDatastore] = in.Datastore.DataStore
	for component, checksum := range checksums {
		own[name.PodChecksumLabel(checksum)] = in.Certs.Secrets[component].Checksum
	}
	return merge(own, t.Spec.ControlPlane.Deployment.PodAdditionalMetadata.Labels, name.Selector(t.Name))
}

func (in Input) podAnnotations() map[string]string {
	return merge(in.Tenant.Spec.ControlPlane.Deployment.PodAdditionalMetadata.Annotations, map[string]string{
		name.AnnotationStorageConfig:      in.Datastore.Config.Checksum,
		name.AnnotationStorageCertificate: in.Datastore.Certificate.Checksum,
	})
}

func (in Input) pod() corev1.PodSpec {
	spec := &in.Tenant.Spec.ControlPlane.Deployment
	pod := corev1.PodSpec{
		InitContainers:                spec.AdditionalInitContainers,
		Containers:                    in.additional(),
		Volumes:                       append(in.volumes(), spec.AdditionalVolumes...),
		NodeSelector:                  spec.NodeSelector,
		Tolerations:                   spec.Tolerations,
		Affinity:                      spec.Affinity,
		ServiceAccountName:            spec.ServiceAccountName,
		AutomountServiceAccountToken:  spec.AutomountServiceAccountToken,
		SecurityContext:               spec.PodSecurityContext,
		TerminationGracePeriodSeconds: new(terminationGrace),
	}
	pod.Containers = append(pod.Containers, in.apiServer(), in.scheduler(), in.controllerManager())
	if in.needsKine() {
		pod.InitContainers = append(slices.Clone(pod.InitContainers), in.kine())
	}
	if spec.RuntimeClassName != "" {
		pod.RuntimeClassName = &spec.RuntimeClassName
	}
	for _, c := range spec.TopologySpreadConstraints {
		if c.LabelSelector == nil {
			c.LabelSelector = &metav1.LabelSelector{MatchLabels: name.Selector(in.Tenant.Name)}
		}
		pod.TopologySpreadConstraints = append(pod.TopologySpreadConstraints, c)
	}
	return pod
}

func (in Input) apiServer() corev1.Container {
	spec := &in.Tenant.Spec.ControlPlane.Deployment
	c := in.container(name.ContainerAPIServer, spec.RegistrySettings.APIServerImage, in.apiServerArgs())
	port := in.Tenant.Spec.NetworkProfile.Port
	c.Ports = []corev1.ContainerPort{{Name: name.PortAPIServer, ContainerPort: port, Protocol: corev1.ProtocolTCP}}
	c.LivenessProbe, c.ReadinessProbe, c.StartupProbe = probe("/livez", port, liveness), probe("/readyz", port, readiness), probe("/livez", port, startup)
	c.VolumeMounts = append([]corev1.VolumeMount{{Name: name.VolumePKI, MountPath: dirPKI, ReadOnly: true}}, caMounts()...)
	if in.needsKine() {
		c.VolumeMounts = append(c.VolumeMounts, corev1.VolumeMount{Name: name.VolumeKineUDS, MountPath: dirKineSocket})
	}
	if p := spec.Probes; p != nil {
		override(&c, p, p.APIServer)
	}
	if r := spec.Resources; r != nil {
		c.Resources = resources(r.APIServer)
	}
	if s := spec.ContainerSecurityContexts; s != nil {
		c.SecurityContext = s.APIServer
	}
	if m := spec.AdditionalVolumeMounts; m != nil {
		c.VolumeMounts = append(append([]corev1.VolumeMount{}, m.APIServer...), c.VolumeMounts...)
	}
	return c
}

func (in Input) scheduler() corev1.Container {
	spec := &in.Tenant.Spec.ControlPlane.Deployment
	c := in.container(name.ContainerScheduler, spec.RegistrySettings.SchedulerImage, in.schedulerArgs())
	c.LivenessProbe, c.ReadinessProbe, c.StartupProbe = probe("/healthz", portScheduler, liveness), probe("/healthz", portScheduler, readiness), probe("/healthz", portScheduler, startup)
	c.VolumeMounts = []corev1.VolumeMount{{Name: name.VolumeSchedulerKubeconfig, MountPath: dirKubernetes, ReadOnly: true}}
	if p := spec.Probes; p != nil {
		override(&c, p, p.Scheduler)
	}
	if r := spec.Resources; r != nil {
		c.Resources = resources(r.Scheduler)
	}
	if s := spec.ContainerSecurityContexts; s != nil {
		c.SecurityContext = s.Scheduler
	}
	if m := spec.AdditionalVolumeMounts; m != nil {
		c.VolumeMounts = append(append([]corev1.VolumeMount{}, m.Scheduler...), c.VolumeMounts...)
	}
	return c
}

func (in Input) controllerManager() corev1.Container {
	spec := &in.Tenant.Spec.ControlPlane.Deployment
	c := in.container(name.ContainerControllerManager, spec.RegistrySettings.ControllerManagerImage, in.controllerManagerArgs())
	c.LivenessProbe, c.ReadinessProbe, c.StartupProbe = probe("/healthz", portControllerManager, liveness), probe("/healthz", portControllerManager, readiness), probe("/healthz", portControllerManager, startup)
	c.VolumeMounts = append([]corev1.VolumeMount{
		{Name: name.VolumeControllerManagerKubeconfig, MountPath: dirKubernetes, ReadOnly: true},
		{Name: name.VolumePKI, MountPath: dirPKI, ReadOnly: true},
	}, caMounts()...)
	if p := spec.Probes; p != nil {
		override(&c, p, p.ControllerManager)
	}
	if r := spec.Resources; r != nil {
		c.Resources = resources(r.ControllerManager)
	}
	if s := spec.ContainerSecurityContexts; s != nil {
		c.SecurityContext = s.ControllerManager
	}
	if m := spec.AdditionalVolumeMounts; m != nil {
		c.VolumeMounts = append(append([]corev1.VolumeMount{}, m.ControllerManager...), c.VolumeMounts...)
	}
	return c
}

// container is what the three have in common.
func (in Input) container(component, image string, args []string) corev1.Container {
	r := &in.Tenant.Spec.ControlPlane.Deployment.RegistrySettings
	return corev1.Container{
		Name:    component,
		Image:   r.Registry + "/" + image + ":" + in.Tenant.Spec.Kubernetes.Version + r.TagSuffix,
		Command: []string{component},
		Args:    args,
		// Tags of Kubernetes versions don't move. Kamaji asks the registry at every start, so that its tenants don't
		// start while the registry is away.
		ImagePullPolicy: corev1.PullIfNotPresent,
	}
}

func resources(r *corev1.ResourceRequirements) corev1.ResourceRequirements {
	if r == nil {
		return corev1.ResourceRequirements{}
	}
	return *r
}

func (in Input) extraArgs() v1alpha1.ControlPlaneExtraArgs {
	if args := in.Tenant.Spec.ControlPlane.Deployment.ExtraArgs; args != nil {
		return *args
	}
	return v1alpha1.ControlPlaneExtraArgs{}
}

func pki(file string) string { return path.Join(dirPKI, file) }

func (in Input) apiServerArgs() []string {
	spec, user := &in.Tenant.Spec, in.extraArgs().APIServer
	var plugins, addresses []string
	for _, p := range spec.Kubernetes.AdmissionControllers {
		plugins = append(plugins, string(p))
	}
	for _, a := range spec.Kubernetes.Kubelet.PreferredAddressTypes {
		addresses = append(addresses, string(a))
	}
	managed := flags{
		"advertise-address":                in.Advertise,
		"client-ca-file":                   pki(name.KeyCACert),
		"enable-admission-plugins":         strings.Join(plugins, ","),
		"kubelet-client-certificate":       pki(name.KeyAPIServerKubeletClientCert),
		"kubelet-client-key":               pki(name.KeyAPIServerKubeletClientKey),
		"kubelet-preferred-address-types":  strings.Join(addresses, ","),
		"proxy-client-cert-file":           pki(name.KeyFrontProxyClientCert),
		"proxy-client-key-file":            pki(name.KeyFrontProxyClientKey),
		"requestheader-allowed-names":      "front-proxy-client",
		"requestheader-client-ca-file":     pki(name.KeyFrontProxyCACert),
		"secure-port":                      strconv.Itoa(int(spec.NetworkProfile.Port)),
		"service-account-key-file":         pki(name.KeyServiceAccountPublic),
		"service-account-signing-key-file": pki(name.KeyServiceAccountPrivate),
		"service-cluster-ip-range":         strings.Join(spec.NetworkProfile.ServiceCIDRs, ","),
		"tls-cert-file":                    pki(name.KeyAPIServerCert),
		"tls-private-key-file":             pki(name.KeyAPIServerKey),
	}
	maps.Copy(managed, in.storageFlags())
	defaults := flags{
		"allow-privileged":                   "true",
		"authorization-mode":                 "Node,RBAC",
		"enable-bootstrap-token-auth":        "true",
		"requestheader-extra-headers-prefix": "X-Remote-Extra-",
		"requestheader-group-headers":        "X-Remote-Group",
		"requestheader-username-headers":     "X-Remote-User",
		// Whatever the cluster domain is: tokens outlive a change of mind, and Kamaji's tenants have this issuer.
		"service-account-issuer":  "https://kubernetes.default.svc.cluster.local",
		"shutdown-delay-duration": shutdownDelay,
		// Watches end soon after the delay; whoever watches goes on at another pod, and this one needn't outlive them.
		"shutdown-watch-termination-grace-period": "1s",
	}
	if sets(user, "authorization-config") {
		delete(defaults, "authorization-mode") // the API server refuses both
	}
	return layer(managed, defaults, user)
}

// storageFlags say where the API server keeps what it is given.
func (in Input) storageFlags() flags {
	if in.needsKine() {
		// A database of the tenant's own: nobody else compacts it, and no prefix tells it from others.
		return flags{"etcd-servers": kineSocket}
	}
	all := flags{
		"etcd-cafile":              pki(path.Join(dirEtcd, name.KeyDatastoreCACert)),
		"etcd-certfile":            pki(path.Join(dirEtcd, name.KeyDatastoreCert)),
		"etcd-keyfile":             pki(path.Join(dirEtcd, name.KeyDatastoreKey)),
		"etcd-compaction-interval": "0", // many tenants share an etcd, which compacts by itself
		"etcd-prefix":              "/" + in.Datastore.Schema,
		"etcd-servers":             urls(in.Datastore.Endpoints, ","),
	}
	if o := in.overrides(); o != "" {
		all["etcd-servers-overrides"] = o
	}
	return all
}

func (in Input) schedulerArgs() []string {
	kubeconfig := path.Join(dirKubernetes, name.KeySchedulerConf)
	return layer(flags{
		"authentication-kubeconfig": kubeconfig,
		"authorization-kubeconfig":  kubeconfig,
		"bind-address":              "0.0.0.0",
		"kubeconfig":                kubeconfig,
		// Also with one replica: while a rollout goes on there are two.
		"leader-elect": "true",
	}, nil, in.extraArgs().Scheduler)
}

// controllerManagerArgs are defaults all: Kamaji's users may replace each.
func (in Input) controllerManagerArgs() []string {
	kubeconfig := path.Join(dirKubernetes, name.KeyControllerManagerConf)
	profile := &in.Tenant.Spec.NetworkProfile
	return layer(nil, flags{
		"allocate-node-cidrs":       "true",
		"authentication-kubeconfig": kubeconfig,
		"authorization-kubeconfig":  kubeconfig,
		"bind-address":              "0.0.0.0",
		"client-ca-file":            pki(name.KeyCACert),
		"cluster-cidr":              strings.Join(profile.PodCIDRs, ","),
		"cluster-name":              in.Tenant.Name,
		"cluster-signing-cert-file": pki(name.KeyCACert),
		"cluster-signing-key-file":  pki(name.KeyCAKey),
		"controllers":               "*,bootstrapsigner,tokencleaner",
		"kubeconfig":                kubeconfig,
		"leader-elect":              "true",
		// With both CA files given, the controller manager needs no look-up at the API server before it listens, and so
		// doesn't exit when it starts first, as it does in every new pod.
		"requestheader-client-ca-file":     pki(name.KeyFrontProxyCACert),
		"root-ca-file":                     pki(name.KeyCACert),
		"service-account-private-key-file": pki(name.KeyServiceAccountPrivate),
		"service-cluster-ip-range":         strings.Join(profile.ServiceCIDRs, ","),
		"use-service-account-credentials":  "true",
	}, in.extraArgs().ControllerManager)
}

// caDirs are the directories in which programs look for certificate authorities they trust; the tenant's is in each.
var caDirs = []struct{ volume, path string }{
	{name.VolumeEtcCACertificates, "/etc/ca-certificates"},
	{name.VolumeUsrShareCACertificates, "/usr/share/ca-certificates"},
	{name.VolumeUsrLocalShareCACertificates, "/usr/local/share/ca-certificates"},
}

func caMounts() []corev1.VolumeMount {
	var mounts []corev1.VolumeMount
	for _, d := range caDirs {
		mounts = append(mounts, corev1.VolumeMount{Name: d.volume, MountPath: d.path, ReadOnly: true})
	}
	return mounts
}

// mode of the files in volumes: containers may run as any user, and nobody else sees them.
const mode int32 = 0o644

func (in Input) volumes() []corev1.Volume {
	tenant := in.Tenant.Name
	projection := func(secret string, keys ...string) corev1.VolumeProjection {
		return corev1.VolumeProjection{Secret: &corev1.SecretProjection{
			LocalObjectReference: corev1.LocalObjectReference{Name: secret}, Items: items("", keys...),
		}}
	}
	volumes := []corev1.Volume{{
		Name: name.VolumePKI,
		// Key by key: the key of the front proxy's CA, for one, is needed by none of the containers.
		VolumeSource: corev1.VolumeSource{Projected: &corev1.ProjectedVolumeSource{DefaultMode: new(mode), Sources: []corev1.VolumeProjection{
			projection(name.APIServerCertificate(tenant), name.KeyAPIServerCert, name.KeyAPIServerKey),
			projection(name.CA(tenant), name.KeyCACert, name.KeyCAKey),
			projection(name.APIServerKubeletClientCertificate(tenant), name.KeyAPIServerKubeletClientCert, name.KeyAPIServerKubeletClientKey),
			projection(name.FrontProxyCA(tenant), name.KeyFrontProxyCACert),
			projection(name.FrontProxyClientCertificate(tenant), name.KeyFrontProxyClientCert, name.KeyFrontProxyClientKey),
			projection(name.ServiceAccountKeys(tenant), name.KeyServiceAccountPublic, name.KeyServiceAccountPrivate),
		}}},
	}}
	if !in.needsKine() {
		etcd := projection(name.DatastoreCertificate(tenant))
		etcd.Secret.Items = items(dirEtcd, name.KeyDatastoreCACert, name.KeyDatastoreCert, name.KeyDatastoreKey)
		volumes[0].Projected.Sources = append(volumes[0].Projected.Sources, etcd)
	}
	secret := func(volume, secret string, keys ...string) {
		volumes = append(volumes, corev1.Volume{Name: volume, VolumeSource: corev1.VolumeSource{
			Secret: &corev1.SecretVolumeSource{SecretName: secret, DefaultMode: new(mode), Items: items("", keys...)},
		}})
	}
	for _, d := range caDirs {
		// Kamaji mounts the whole Secret, with the key that signs, where only the certificate is of use.
		secret(d.volume, name.CA(tenant), name.KeyCACert)
	}
	secret(name.VolumeSchedulerKubeconfig, name.SchedulerKubeconfig(tenant), name.KeySchedulerConf)
	secret(name.VolumeControllerManagerKubeconfig, name.ControllerManagerKubeconfig(tenant), name.KeyControllerManagerConf)
	if in.needsKine() {
		volumes = append(volumes, in.kineVolumes()...)
	}
	return volumes
}

// items are keys of a Secret as files of the same names below a directory.
func items(dir string, keys ...string) []corev1.KeyToPath {
	var out []corev1.KeyToPath
	for _, key := range keys {
		out = append(out, corev1.KeyToPath{Key: key, Path: path.Join(dir, key)})
	}
	return out
}

// hash is a fingerprint of plain data.
func hash(data any) string {
	b, err := json.Marshal(data)
	if err != nil {
		panic("object is not plain data: " + err.Error())
	}
	sum := sha256.Sum256(b)
	return hex.EncodeToString(sum[:16])
}
