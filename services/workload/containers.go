// Containers of the control plane's components, and their arguments. Pure.

package workload

import (
	"maps"
	"path"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/stoker-k8s/stoker/pkg/api/name"
	"github.com/stoker-k8s/stoker/pkg/api/v1alpha1"
)

// Where things are in the containers.
const (
	dirKubernetes = "/etc/kubernetes"
	dirPKI        = "/etc/kubernetes/pki"
	dirEtcd       = "etcd" // below dirPKI
)

// Ports of components that the spec doesn't name.
const (
	portScheduler         = 10259
	portControllerManager = 10257
)

// flagOverrides says which resources are kept in another etcd.
const flagOverrides = "etcd-servers-overrides"

// shutdownDelay is how long an API server that is told to stop goes on serving, while those who send it requests hear
// that it is no longer ready. Without it, every rollout would refuse some.
const shutdownDelay = "3s"

func (in Input) apiServer() corev1.Container {
	spec := &in.Tenant.Spec.ControlPlane.Deployment
	c := in.container(name.ContainerAPIServer, spec.RegistrySettings.APIServerImage, in.apiServerArgs())
	port := in.Tenant.Spec.NetworkProfile.Port
	c.Ports = []corev1.ContainerPort{{Name: name.PortAPIServer, ContainerPort: port, Protocol: corev1.ProtocolTCP}}
	probeAt(&c, port, "/livez", "/readyz")
	c.VolumeMounts = append([]corev1.VolumeMount{{Name: name.VolumePKI, MountPath: dirPKI, ReadOnly: true}}, caMounts()...)
	if in.hasSocket() {
		c.VolumeMounts = append(c.VolumeMounts, corev1.VolumeMount{Name: name.VolumeKineUDS, MountPath: dirKineSocket})
	}
	if in.hasTunnel() {
		c.VolumeMounts = append(c.VolumeMounts, konnectivityMounts()...)
	}
	if in.encrypts() {
		c.VolumeMounts = append(c.VolumeMounts, encryptionMount())
	}
	if in.settings() != nil {
		_, mounts := in.settingsVolumes()
		c.VolumeMounts = append(c.VolumeMounts, mounts...)
		c.TerminationMessagePolicy = corev1.TerminationMessageFallbackToLogsOnError // it says which setting it refuses
	}
	in.customize(&c, customization{
		value(spec.Probes).APIServer, value(spec.Resources).APIServer,
		value(spec.ContainerSecurityContexts).APIServer, value(spec.AdditionalVolumeMounts).APIServer,
	})
	return c
}

func (in Input) scheduler() corev1.Container {
	spec := &in.Tenant.Spec.ControlPlane.Deployment
	c := in.container(name.ContainerScheduler, spec.RegistrySettings.SchedulerImage, in.schedulerArgs())
	probeAt(&c, portScheduler, "/healthz", "/healthz")
	c.VolumeMounts = []corev1.VolumeMount{{Name: name.VolumeSchedulerKubeconfig, MountPath: dirKubernetes, ReadOnly: true}}
	in.customize(&c, customization{
		value(spec.Probes).Scheduler, value(spec.Resources).Scheduler,
		value(spec.ContainerSecurityContexts).Scheduler, value(spec.AdditionalVolumeMounts).Scheduler,
	})
	return c
}

func (in Input) controllerManager() corev1.Container {
	spec := &in.Tenant.Spec.ControlPlane.Deployment
	c := in.container(name.ContainerControllerManager, spec.RegistrySettings.ControllerManagerImage, in.controllerManagerArgs())
	probeAt(&c, portControllerManager, "/healthz", "/healthz")
	c.VolumeMounts = append([]corev1.VolumeMount{
		{Name: name.VolumeControllerManagerKubeconfig, MountPath: dirKubernetes, ReadOnly: true},
		{Name: name.VolumePKI, MountPath: dirPKI, ReadOnly: true},
	}, caMounts()...)
	in.customize(&c, customization{
		value(spec.Probes).ControllerManager, value(spec.Resources).ControllerManager,
		value(spec.ContainerSecurityContexts).ControllerManager, value(spec.AdditionalVolumeMounts).ControllerManager,
	})
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

// customization is what the spec says of one component's container, each part empty where it says nothing.
type customization struct {
	probes    *v1alpha1.ProbeSet
	resources *corev1.ResourceRequirements
	security  *corev1.SecurityContext
	mounts    []corev1.VolumeMount
}

// customize changes a container as the spec says.
func (in Input) customize(c *corev1.Container, by customization) {
	retimeProbes(c, in.Tenant.Spec.ControlPlane.Deployment.Probes, by.probes)
	c.Resources = value(by.resources)
	c.SecurityContext = in.securityContext(c.Name, by.security)
	c.VolumeMounts = slices.Concat(by.mounts, c.VolumeMounts)
}

// value returns what a pointer points to, the zero value when that is nothing.
func value[T any](p *T) T {
	if p == nil {
		return *new(T)
	}
	return *p
}

func (in Input) extraArgs() v1alpha1.ControlPlaneExtraArgs {
	return value(in.Tenant.Spec.ControlPlane.Deployment.ExtraArgs)
}

func pki(file string) string { return path.Join(dirPKI, file) }

func (in Input) apiServerArgs() []string {
	// Where data is kept is said by the spec's dataStoreOverrides alone: by a flag of its own, a tenant would reach any etcd.
	spec, user := &in.Tenant.Spec, without(in.extraArgs().APIServer, flags{flagOverrides: ""})
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
	if in.hasTunnel() {
		managed[flagEgress] = path.Join(dirEgress, name.KeyEgressSelectorConfiguration)
	}
	if in.encrypts() {
		managed[flagEncryption] = fileEncryption
	}
	maps.Copy(managed, in.settingsFlags())
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
	if _, ok := managed["authorization-config"]; ok || sets(user, "authorization-config") {
		delete(defaults, "authorization-mode") // the API server refuses both
	}
	return layer(managed, defaults, user)
}

// storageFlags say where the API server stores its data.
func (in Input) storageFlags() flags {
	all := flags{}
	if o := in.overrides(); o != "" {
		all[flagOverrides] = o
	}
	if in.hasGate() {
		// What compacts one of two stores would compact the other; and kine, like the datastore service, compacts by itself.
		all["etcd-servers"], all["etcd-compaction-interval"] = gateSocket, never
		return all
	}
	if needsKine(in.Datastore.Driver) {
		// A database of the tenant's own: nobody else compacts it, and no prefix tells it from others.
		return flags{"etcd-servers": kineSocket}
	}
	maps.Copy(all, flags{
		"etcd-cafile":   pki(path.Join(dirEtcd, name.KeyDatastoreCACert)),
		"etcd-certfile": pki(path.Join(dirEtcd, name.KeyDatastoreCert)),
		"etcd-keyfile":  pki(path.Join(dirEtcd, name.KeyDatastoreKey)),
		// Many tenants share an etcd, which datastore compacts. The API server follows that, and would do it itself in a hundred years;
		// with an interval of 0 it doesn't follow, and its lists' pages never expire (since v1.34).
		"etcd-compaction-interval": never,
		"etcd-prefix":              "/" + in.Datastore.Schema,
		"etcd-servers":             urls(in.Datastore.Endpoints, ","),
	})
	return all
}

// never is a hundred years.
const never = "876000h"

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
