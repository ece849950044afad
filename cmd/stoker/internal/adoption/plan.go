// Package adoption looks at tenants that Kamaji made: what becomes of each when Stoker works on it, and what is against that.
package adoption

import (
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"slices"
	"strings"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/stoker-k8s/stoker/pkg/api/name"
	"github.com/stoker-k8s/stoker/pkg/api/v1alpha1"
)

// What becomes of a tenant's pods.
const (
	PodsStay    = "stay"
	PodsRestart = "restart"
	PodsNone    = "none"
	PodsEnd     = "end" // with the tenant, which is being deleted
)

// Plan says what becomes of a tenant.
type Plan struct {
	Namespace string `json:"namespace"`
	Name      string `json:"name"`
	Version   string `json:"version"`
	DataStore string `json:"dataStore,omitempty"`
	Endpoint  string `json:"endpoint,omitempty"`
	// Pods is stay, restart, none or end; Why says why they don't stay.
	Pods string   `json:"pods"`
	Why  []string `json:"why,omitempty"`
	// Against is what must be put right first.
	Against []string `json:"against,omitempty"`
	// Keeps are Secrets whose content stays, Makes those that are missing and are made.
	Keeps []string `json:"keeps,omitempty"`
	Makes []string `json:"makes,omitempty"`
	// Changes is what is written on objects that are there, Leaves what of Kamaji's stays without a use.
	Changes []string `json:"changes"`
	Leaves  []string `json:"leaves,omitempty"`
	Paused  bool     `json:"paused,omitempty"`
}

// Seen is what there is of a tenant. Deployment and DataStore are nil for none; Secrets are by name.
type Seen struct {
	Tenant     *v1alpha1.TenantControlPlane
	DataStore  *v1alpha1.DataStore
	Deployment *appsv1.Deployment
	Secrets    map[string]*corev1.Secret
}

const (
	oldestMinor = 30
	newestMinor = 36
	// renewBefore is when certs renews what Kamaji issued.
	renewBefore = 7 * 24 * time.Hour
)

// Of plans the adoption of a tenant. Pure.
func Of(s Seen, now time.Time) Plan {
	o := s.Tenant
	p := Plan{
		Namespace: o.Namespace, Name: o.Name, Version: o.Spec.Kubernetes.Version, Endpoint: o.Status.ControlPlaneEndpoint,
		DataStore: o.Status.Storage.DataStoreName, Pods: PodsStay, Against: against(o),
		Changes: []string{"annotation and label " + name.AnnotationDataStore, "label " + name.LabelPartition + " on what was made for it", "status"},
		Leaves:  []string{"fields of Kamaji's field manager on the Deployment, until its pods are replaced", "annotation " + name.AnnotationAdopt},
	}
	if p.DataStore == "" {
		p.DataStore = o.Spec.DataStore
	}
	p.Paused, _, _ = name.Paused(o.Annotations, now)
	if a := &o.Spec.Addons; a.CoreDNS != nil || a.KubeProxy != nil || a.Konnectivity != nil {
		p.Changes = append(p.Changes, "add-ons inside the tenant become Stoker's: their pods are replaced once")
	}
	if o.Spec.Addons.Konnectivity != nil {
		p.Changes = append(p.Changes, "Secrets "+name.KonnectivityCertificate(o.Name)+" and "+name.KonnectivityKubeconfig(o.Name))
	}
	if o.Spec.WritePermissions.Any() {
		p.Changes = append(p.Changes, "Kamaji's webhook inside the tenant, which blocks writes, gives way to an admission policy")
	}
	if slices.Contains(o.Finalizers, name.FinalizerSoot) {
		p.Changes = append(p.Changes, "finalizer "+name.FinalizerSoot+" is taken off")
	}
	for _, n := range secretsOf(o) {
		secret := s.Secrets[n]
		if secret == nil {
			p.Makes = append(p.Makes, "Secret "+n)
			continue
		}
		if slices.Contains(secret.Finalizers, name.FinalizerDatastoreSecret) {
			p.Changes = append(p.Changes, "finalizer "+name.FinalizerDatastoreSecret+" is taken off Secret "+n)
		}
		if why := ends(secret, now); why != "" {
			p.Why = append(p.Why, why)
			continue
		}
		p.Keeps = append(p.Keeps, n)
	}
	if o.DeletionTimestamp != nil {
		p.Pods, p.Why = PodsEnd, []string{"it is being deleted, and the deletion is finished"}
		p.Keeps, p.Makes, p.Against = nil, nil, nil
		return p
	}
	if s.Deployment == nil || s.Deployment.Spec.Replicas != nil && *s.Deployment.Spec.Replicas == 0 {
		p.Pods, p.Why = PodsNone, nil
		return p
	}
	if p.Why = append(p.Why, differs(s)...); len(p.Why) > 0 {
		p.Pods = PodsRestart
	}
	return p
}

// against is what must be put right with Kamaji first.
func against(o *v1alpha1.TenantControlPlane) (all []string) {
	if minor, ok := v1alpha1.Minor(o.Spec.Kubernetes.Version); !ok || minor < oldestMinor || minor > newestMinor {
		all = append(all, fmt.Sprintf("version %s: must be from v1.%d to v1.%d", o.Spec.Kubernetes.Version, oldestMinor, newestMinor))
	}
	if s := o.Status.Kubernetes.Version.Status; s != nil {
		switch *s {
		case v1alpha1.VersionMigrating, v1alpha1.VersionUpgrading, v1alpha1.VersionCARotating:
			all = append(all, "Kamaji says "+string(*s)+": have it finish that first")
		}
	}
	if is := o.Status.Storage.DataStoreName; is != "" && o.Spec.DataStore != "" && is != o.Spec.DataStore {
		all = append(all, "its data is in DataStore "+is+", and the spec asks for "+o.Spec.DataStore+": have Kamaji migrate it, or change it back")
	}
	return all
}

// secretsOf are the Secrets that a tenant has.
func secretsOf(o *v1alpha1.TenantControlPlane) []string {
	all := []string{
		name.CA(o.Name), name.FrontProxyCA(o.Name), name.ServiceAccountKeys(o.Name), name.APIServerCertificate(o.Name),
		name.APIServerKubeletClientCertificate(o.Name), name.FrontProxyClientCertificate(o.Name), name.AdminKubeconfig(o.Name),
		name.ControllerManagerKubeconfig(o.Name), name.SchedulerKubeconfig(o.Name), name.DatastoreConfig(o.Name), name.DatastoreCertificate(o.Name),
	}
	return all
}

// mounted are the Secrets of which pods have a checksum, by the name of that.
func mounted(tenant string) map[string]string {
	return map[string]string{
		name.ChecksumCA: name.CA(tenant), name.ChecksumFrontProxyCA: name.FrontProxyCA(tenant),
		name.ChecksumServiceAccountKeys: name.ServiceAccountKeys(tenant), name.ChecksumAPIServerCertificate: name.APIServerCertificate(tenant),
		name.ChecksumAPIServerKubeletClientCertificate: name.APIServerKubeletClientCertificate(tenant),
		name.ChecksumFrontProxyClientCertificate:       name.FrontProxyClientCertificate(tenant),
		name.ChecksumControllerManagerKubeconfig:       name.ControllerManagerKubeconfig(tenant),
		name.ChecksumSchedulerKubeconfig:               name.SchedulerKubeconfig(tenant),
	}
}

// differs says in what pods differ from what is asked for now.
func differs(s Seen) (all []string) {
	template := &s.Deployment.Spec.Template
	for checksum, n := range mounted(s.Tenant.Name) {
		if secret := s.Secrets[n]; secret == nil || template.Labels[name.PodChecksumLabel(checksum)] != name.KamajiChecksum(secret.Data) {
			all = append(all, "pods don't have what is in Secret "+n)
		}
	}
	slices.Sort(all)
	version := strings.TrimPrefix(s.Tenant.Spec.Kubernetes.Version, "v")
	want := version + s.Tenant.Spec.ControlPlane.Deployment.RegistrySettings.TagSuffix
	for _, c := range template.Spec.Containers {
		_, tag, _ := strings.Cut(c.Image[strings.LastIndex(c.Image, "/")+1:], ":")
		core := c.Name == name.ContainerAPIServer || c.Name == name.ContainerControllerManager || c.Name == name.ContainerScheduler
		if core && strings.TrimPrefix(tag, "v") != want {
			all = append(all, fmt.Sprintf("container %s runs %s, not v%s", c.Name, c.Image, version))
		}
	}
	return append(append(all, kineDiffers(s)...), tunnelDiffers(s)...)
}

// kineDiffers says what kine can't go on with. Later versions of Kamaji have checksums of what it connects with on the pods.
func kineDiffers(s Seen) (all []string) {
	if s.DataStore == nil || s.DataStore.Spec.Driver == v1alpha1.DriverEtcd {
		return nil
	}
	annotations := s.Deployment.Spec.Template.Annotations
	_, hashed := annotations[name.AnnotationStorageCertificate]
	if s.DataStore.Spec.Driver == v1alpha1.DriverNATS {
		if hashed || annotations[name.AnnotationStorageConfig] != "" {
			n := s.Tenant.Name
			all = append(all, "Secrets "+name.DatastoreConfig(n)+" and "+name.DatastoreCertificate(n)+" get more keys, for NATS")
		}
		return all
	}
	tls, is := s.DataStore.Spec.TLSConfig, "kine has the certificate of DataStore "+s.DataStore.Name+"'s administrator, "
	switch {
	case tls == nil || tls.ClientCertificate == nil:
	case tls.CertificateAuthority.PrivateKey == nil:
		all = append(all, is+"which is taken away; the tenant has its password")
	case hashed:
		all = append(all, is+"in whose place the tenant gets one of its own")
	}
	return all
}

// tunnelDiffers says whether the konnectivity server is another than the one that is asked for.
func tunnelDiffers(s Seen) []string {
	is, must := "none", "none"
	for _, c := range s.Deployment.Spec.Template.Spec.Containers {
		if c.Name == name.ContainerKonnectivity {
			is = c.Image
		}
	}
	if k := s.Tenant.Spec.Addons.Konnectivity; k != nil {
		must = k.Server.Image + ":" + v1alpha1.KonnectivityVersion(k.Server.Version, s.Tenant.Spec.Kubernetes.Version)
	}
	if is == must {
		return nil
	}
	return []string{fmt.Sprintf("container %s: %s becomes %s", name.ContainerKonnectivity, is, must)}
}

// ends says which certificate of a Secret is to be renewed at once, empty for none.
func ends(secret *corev1.Secret, now time.Time) string {
	for key, value := range secret.Data {
		if config, err := clientcmd.Load(value); err == nil {
			for _, user := range config.AuthInfos {
				value = user.ClientCertificateData
			}
		}
		block, _ := pem.Decode(value)
		if block == nil || block.Type != "CERTIFICATE" {
			continue
		}
		if c, err := x509.ParseCertificate(block.Bytes); err == nil && !c.IsCA && now.Add(renewBefore).After(c.NotAfter) {
			return fmt.Sprintf("Secret %s, %s: the certificate ends at %s and is renewed", secret.Name, key, c.NotAfter.UTC().Format(time.RFC3339))
		}
	}
	return ""
}
