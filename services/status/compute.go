package status

// Deciding: from what the services keep of a tenant to its API status and to what portals are told. Nothing here reads or
// writes anything, and equal inputs give equal bytes.

import (
	"cmp"
	"net/netip"
	"slices"
	"strings"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/stoker-k8s/stoker/pkg/api/event"
	"github.com/stoker-k8s/stoker/pkg/api/name"
	"github.com/stoker-k8s/stoker/pkg/api/state"
	"github.com/stoker-k8s/stoker/pkg/api/v1alpha1"
)

// Phases beyond those of status.kubernetesResources.version.status.
const (
	PhasePaused      = "Paused"
	PhaseDeleting    = "Deleting"
	PhaseDeleted     = "Deleted"
	PhaseReleased    = "Released"
	PhaseFailed      = "Failed"
	PhaseReconciling = "Reconciling"
)

// Stage is what a service keeps of a tenant; State is nil before it has come to it.
type Stage[T any] struct {
	State *state.State
	Data  T
}

// States is everything a status is computed from beside the desired state.
type States struct {
	// UID and Generation of the TenantControlPlane.
	UID        string
	Generation int64

	Certs     Stage[state.Certs]
	Datastore Stage[state.Datastore]
	Workload  Stage[state.Workload]
	Addons    Stage[state.Addons]
	// Previous is the own state, as Compute returned it last.
	Previous state.Status
}

// Compute returns the API status of a tenant, and what status itself keeps, without the checksum of the former.
func Compute(t *state.Tenant, in States, now time.Time) (v1alpha1.TenantControlPlaneStatus, state.Status) {
	prev := in.Previous
	next := state.Status{
		ReadyAt: prev.ReadyAt, ReadyGeneration: prev.ReadyGeneration, ObservedGeneration: prev.ObservedGeneration, Applied: prev.Applied,
		Version: in.Workload.Data.Version, Endpoint: in.Workload.Data.Endpoint,
	}
	p := standingOf(t, in)

	next.Ready = p.ready
	if p.ready && prev.ReadyGeneration != in.Generation {
		next.ReadyGeneration, next.ReadyAt = in.Generation, now.UTC()
	}
	if p.ready || p.asleep {
		next.ObservedGeneration = in.Generation
	}

	shown := shownStatus(t, in, p, next.ReadyGeneration)
	next.Phase = phase(t, p, shown)
	conditions, summary := conditions(t, in, p, next)
	next.Reason, next.Message = summary.Reason, summary.Message
	next.Conditions = withTimes(conditions, prev.Conditions, in.Generation, now)
	return apiStatus(t, in, next, shown), next
}

// shownStatus is the value of status.kubernetesResources.version.status, by Kamaji's table; but a tenant that never was
// Ready stays Provisioning, and Ready waits for the add-ons the first time. WriteLimited is what the tenant is, not what it asks for.
// One that is being deleted is NotReady, whether or not pods answer still: whoever speaks Kamaji's API has no word of its own for that, and would
// refuse one that the enum lacks.
func shownStatus(t *state.Tenant, in States, p standing, readyGeneration int64) v1alpha1.KubernetesVersionStatus {
	w := in.Workload.Data
	running := v1alpha1.KubernetesVersionStatus(w.Phase)
	switch {
	case t.Sleeps():
		return v1alpha1.VersionSleeping
	case t.Deleting:
		return v1alpha1.VersionNotReady
	case readyGeneration == 0:
		return v1alpha1.VersionProvisioning
	case w.ReadyReplicas == 0 || in.Workload.State == nil:
		return v1alpha1.VersionNotReady
	case in.Datastore.Data.Move != nil:
		return v1alpha1.VersionMigrating
	case in.Addons.Data.WritePermissions.Any():
		return v1alpha1.VersionWriteLimited
	case p.workload.done, w.Upgrade.Undone(in.Generation) && in.Workload.State.Step == event.Available:
		return v1alpha1.VersionReady
	case running == v1alpha1.VersionCARotating:
		return running
	case bare(w.Version) != bare(t.Spec.Kubernetes.Version):
		return v1alpha1.VersionUpgrading
	}
	return v1alpha1.VersionUnknown
}

// phase is the one word portals get.
func phase(t *state.Tenant, p standing, shown v1alpha1.KubernetesVersionStatus) string {
	switch {
	case t.Deleting:
		return PhaseDeleting
	case p.stalled != nil:
		return PhaseFailed
	case shown == v1alpha1.VersionUnknown && p.ready:
		return string(v1alpha1.VersionReady)
	case (shown == v1alpha1.VersionReady || shown == v1alpha1.VersionWriteLimited) && !p.ready, shown == v1alpha1.VersionUnknown:
		return PhaseReconciling
	}
	return string(shown)
}

// rebuilding reports whether a tenant that was Ready merely seems not to be, because not all services have looked at it
// since NATS lost its state, also if that was while it was paused.
func (in States) rebuilding(next state.Status) bool {
	if !in.Previous.Ready || in.Previous.ReadyGeneration != in.Generation || next.Ready || next.Phase == PhaseFailed ||
		next.Phase == PhaseDeleting || next.Phase == string(v1alpha1.VersionSleeping) {
		return false
	}
	for _, s := range []*state.State{in.Certs.State, in.Datastore.State, in.Workload.State, in.Addons.State} {
		if s == nil || s.Wait.Waits() && in.Previous.Phase == "" {
			return true
		}
	}
	return false
}

// bare is a version without its leading v.
func bare(version string) string { return strings.TrimPrefix(version, "v") }

// apiStatus fills Kamaji's fields from the states alone.
func apiStatus(t *state.Tenant, in States, next state.Status, shown v1alpha1.KubernetesVersionStatus) v1alpha1.TenantControlPlaneStatus {
	s := v1alpha1.TenantControlPlaneStatus{
		ObservedGeneration: next.ObservedGeneration, Conditions: next.Conditions, ControlPlaneEndpoint: next.Endpoint,
		Storage: storage(t, in.Datastore.Data), Kubernetes: kubernetes(t, in.Workload.Data),
	}
	s.Kubernetes.Version = v1alpha1.KubernetesVersion{Version: next.Version, Status: &shown}
	s.Certificates, s.KubeConfig = secrets(in.Certs.Data.Secrets)

	if c := in.Workload.Data.KubeadmConfig; c.Checksum != "" {
		s.KubeadmConfig = v1alpha1.KubeadmConfigStatus{ConfigmapName: name.KubeadmConfig(t.Name), Checksum: c.Checksum, LastUpdate: at(c.LastUpdate)}
	}
	a := in.Addons.Data
	if a.Hash != "" {
		s.KubeadmPhase.BootstrapToken = v1alpha1.KubeadmPhaseStatus{Checksum: a.Hash, LastUpdate: at(a.LastUpdate)}
	}
	s.Addons.CoreDNS = addon(a.CoreDNS, a)
	s.Addons.KubeProxy = addon(a.KubeProxy, a)
	s.Addons.Konnectivity = konnectivity(t, in)
	return s
}

// konnectivity says how the tunnel stands; of a tenant that neither wants nor has it only that it isn't enabled, as Kamaji does.
func konnectivity(t *state.Tenant, in States) *v1alpha1.KonnectivityStatus {
	w, a, secrets := in.Workload.Data, in.Addons.Data, in.Certs.Data.Secrets
	if t.Spec.Addons.Konnectivity == nil && !w.Konnectivity && a.Konnectivity == "" {
		return &v1alpha1.KonnectivityStatus{}
	}
	s := &v1alpha1.KonnectivityStatus{Enabled: w.Konnectivity && a.Konnectivity != "", Gateway: w.KonnectivityGateway}
	if w.EgressChecksum != "" {
		s.ConfigMap = v1alpha1.KonnectivityConfigMap{Name: name.KonnectivityEgressSelector(t.Name), Checksum: w.EgressChecksum}
	}
	s.Certificate = pairStatus(secrets[name.ComponentKonnectivityCertificate])
	s.Kubeconfig = kubeconfigStatus(secrets[name.ComponentKonnectivityKubeconfig])
	if a.Konnectivity != "" {
		inside := v1alpha1.ExternalKubernetesObjectStatus{
			Name: name.KonnectivityAgent, Namespace: name.NamespaceKonnectivityAgent, LastUpdate: at(a.LastUpdate),
		}
		s.ServiceAccount = inside
		s.Agent = v1alpha1.KonnectivityAgentStatus{ExternalKubernetesObjectStatus: inside, Mode: v1alpha1.KonnectivityAgentMode(a.Konnectivity)}
		s.ClusterRoleBinding = v1alpha1.ExternalKubernetesObjectStatus{Name: name.KonnectivityUser, LastUpdate: at(a.LastUpdate)}
	}
	if spec := t.Spec.Addons.Konnectivity; spec != nil && w.KonnectivityEndpoint != "" {
		s.Service = serviceStatus(t, w)
		s.Service.Port = spec.Server.Port
	}
	return s
}

// secrets says which Secrets hold the tenant's keys, certificates and kubeconfigs.
func secrets(by map[string]state.Secret) (v1alpha1.CertificatesStatus, v1alpha1.KubeconfigsStatus) {
	pair := func(component string) v1alpha1.CertificatePrivateKeyPairStatus { return pairStatus(by[component]) }
	kubeconfig := func(component string) v1alpha1.KubeconfigStatus { return kubeconfigStatus(by[component]) }
	certificates := v1alpha1.CertificatesStatus{
		CA:                     pair(name.ComponentCA),
		APIServer:              pair(name.ComponentAPIServerCertificate),
		APIServerKubeletClient: pair(name.ComponentAPIServerKubeletClientCertificate),
		FrontProxyCA:           pair(name.ComponentFrontProxyCA),
		FrontProxyClient:       pair(name.ComponentFrontProxyClientCertificate),
		SA:                     v1alpha1.PublicKeyPrivateKeyPairStatus(pair(name.ComponentServiceAccountKeys)),
	}
	return certificates, v1alpha1.KubeconfigsStatus{
		Admin:             kubeconfig(name.ComponentAdminKubeconfig),
		ControllerManager: kubeconfig(name.ComponentControllerManagerKubeconfig),
		Scheduler:         kubeconfig(name.ComponentSchedulerKubeconfig),
	}
}

// pairStatus is what is shown of a Secret with a certificate and its key, the zero value of one that isn't there.
func pairStatus(x state.Secret) v1alpha1.CertificatePrivateKeyPairStatus {
	return v1alpha1.CertificatePrivateKeyPairStatus{SecretName: x.Name, LastUpdate: at(x.LastUpdate), Checksum: x.Checksum}
}

// kubeconfigStatus is what is shown of a Secret with a kubeconfig, the zero value of one that isn't there.
func kubeconfigStatus(x state.Secret) v1alpha1.KubeconfigStatus {
	return v1alpha1.KubeconfigStatus{SecretName: x.Name, LastUpdate: at(x.LastUpdate), Checksum: x.Checksum}
}

// kubernetes says which Deployment, Service, Ingress and route there are; the version is not in it.
func kubernetes(t *state.Tenant, w state.Workload) v1alpha1.KubernetesStatus {
	var s v1alpha1.KubernetesStatus
	if w.ConfigHash != "" {
		s.Deployment = &v1alpha1.KubernetesDeploymentStatus{
			DeploymentStatus: appsv1.DeploymentStatus{
				ObservedGeneration: w.ObservedGeneration, Replicas: w.Replicas, UpdatedReplicas: w.UpdatedReplicas,
				ReadyReplicas: w.ReadyReplicas, AvailableReplicas: w.AvailableReplicas, UnavailableReplicas: w.UnavailableReplicas,
				Conditions: w.Conditions,
			},
			Name: name.Deployment(t.Name), Namespace: t.Namespace, Selector: labels.FormatLabels(name.Selector(t.Name)),
			LastUpdate: at(w.LastUpdate),
		}
	}
	if w.ClusterIP != "" || w.Endpoint != "" {
		s.Service = serviceStatus(t, w)
		if t.Spec.ControlPlane.Ingress != nil {
			s.Ingress = &v1alpha1.KubernetesIngressStatus{IngressStatus: w.Ingress, Name: name.Ingress(t.Name), Namespace: t.Namespace}
		}
		s.Gateway = w.Gateway
	}
	return s
}

// storage says where the tenant's data lives. Where the datastore service's state is lost, that stays as it was said before: the service finds the
// data by it.
func storage(t *state.Tenant, d state.Datastore) v1alpha1.StorageStatus {
	if had := t.Setup; d.DataStore == "" {
		return v1alpha1.StorageStatus{
			DataStoreName: had.DataStore, Overrides: t.Overridden, Setup: v1alpha1.DataStoreSetupStatus{Schema: had.Schema, User: had.User},
		}
	}
	return v1alpha1.StorageStatus{
		Driver: d.Driver, DataStoreName: d.DataStore, Overrides: overrides(d),
		Config: v1alpha1.DataStoreConfigStatus{SecretName: d.Config.Name, Checksum: d.Config.Checksum},
		Setup: v1alpha1.DataStoreSetupStatus{
			Schema: d.Schema, User: d.User, LastUpdate: at(d.Config.LastUpdate), Checksum: d.Config.Checksum,
		},
		Certificate: v1alpha1.DataStoreCertificateStatus{
			SecretName: d.Certificate.Name, Checksum: d.Certificate.Checksum, LastUpdate: at(d.Certificate.LastUpdate),
		},
		Usage: usage(d),
	}
}

// overrides are the resources that are elsewhere, sorted; not nil.
func overrides(d state.Datastore) []v1alpha1.DataStoreOverride {
	all := []v1alpha1.DataStoreOverride{}
	for _, o := range d.Overrides {
		for _, resource := range o.Resources {
			all = append(all, v1alpha1.DataStoreOverride{Resource: resource, DataStore: o.DataStore})
		}
	}
	slices.SortFunc(all, func(a, b v1alpha1.DataStoreOverride) int { return strings.Compare(a.Resource, b.Resource) })
	return all
}

// usage is nil until the tenant was measured.
func usage(d state.Datastore) *v1alpha1.StorageUsage {
	if d.MeasuredAt.IsZero() {
		return nil
	}
	return &v1alpha1.StorageUsage{Bytes: d.Bytes, Keys: d.Keys, MeasuredAt: at(d.MeasuredAt)}
}

func serviceStatus(t *state.Tenant, w state.Workload) *v1alpha1.KubernetesServiceStatus {
	s := &v1alpha1.KubernetesServiceStatus{
		Name: name.Service(t.Name), Namespace: t.Namespace, Port: cmp.Or(t.Spec.NetworkProfile.Port, w.Port),
	}
	if s.ServiceStatus = w.Service; len(s.LoadBalancer.Ingress) > 0 {
		return s
	}
	// 2026-11: states written before lack the Service's status, until it is looked at once a day; to be removed once no installation has
	// such states. Only an address nobody declared is the load balancer's own.
	_, err := netip.ParseAddr(w.Address)
	if t.Spec.ControlPlane.Service.ServiceType == v1alpha1.ServiceTypeLoadBalancer && t.Spec.NetworkProfile.Address == "" &&
		t.Spec.ControlPlane.Ingress == nil && t.Spec.ControlPlane.Gateway == nil && err == nil {
		s.LoadBalancer.Ingress = []corev1.LoadBalancerIngress{{IP: w.Address}}
	}
	return s
}

// addon says of every add-on, as Kamaji does, whether it is there.
func addon(installed bool, a state.Addons) *v1alpha1.AddonStatus {
	if !installed {
		return &v1alpha1.AddonStatus{}
	}
	return &v1alpha1.AddonStatus{Enabled: true, LastUpdate: at(a.LastUpdate)}
}

// at is a time as the API keeps it, in whole seconds.
func at(t time.Time) metav1.Time {
	if t.IsZero() {
		return metav1.Time{}
	}
	return metav1.NewTime(t.UTC().Truncate(time.Second))
}
