// The ConfigMap <tenant>-kubeadmconfig: the tenant in kubeadm's terms, in the form Kamaji keeps it in, for scripts and people that read it
// there. Nothing of Stoker does: each service works from the spec. Pure, but for its step.

package workload

import (
	"cmp"
	"context"
	"encoding/json"
	"maps"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/stoker-k8s/stoker/pkg/api/name"
	"github.com/stoker-k8s/stoker/pkg/api/state"
	"github.com/stoker-k8s/stoker/pkg/api/v1alpha1"
	"github.com/stoker-k8s/stoker/pkg/kube"
)

// Below are kubeadm's internal types, which have no names for JSON but those of their fields, as far as something of them is said of a
// tenant; what is left out is zero in kubeadm's types. test/e2e holds them against kubeadm's own.
type (
	initConfiguration struct {
		LocalAPIEndpoint kubeadmEndpoint
	}
	kubeadmEndpoint struct {
		AdvertiseAddress string
		BindPort         int32
	}
	clusterConfiguration struct {
		Etcd                        kubeadmEtcd
		Networking                  kubeadmNetworking
		KubernetesVersion           string
		ControlPlaneEndpoint        string
		APIServer                   kubeadmAPIServer
		DNS, Proxy                  kubeadmAddon
		CertificatesDir             string
		ImageRepository             string
		ClusterName                 string
		EncryptionAlgorithm         string
		CertificateValidityPeriod   string
		CACertificateValidityPeriod string
	}
	kubeadmEtcd struct {
		External kubeadmExternalEtcd
	}
	kubeadmExternalEtcd struct {
		Endpoints                 []string
		CAFile, CertFile, KeyFile string
	}
	kubeadmNetworking struct {
		ServiceSubnet, PodSubnet, DNSDomain string
	}
	kubeadmAPIServer struct {
		ExtraArgs []kubeadmArg
		CertSANs  []string
	}
	kubeadmArg struct {
		Name, Value string
	}
	kubeadmAddon struct {
		Disabled bool
	}
)

// How certs makes keys and certificates, in kubeadm's words.
const (
	kubeadmAlgorithm    = "ECDSA-P256"
	kubeadmLeafValidity = "8760h0m0s"
	kubeadmCAValidity   = "87600h0m0s"
)

// KubeadmConfig returns the ConfigMap of a tenant that is reached at endpoint (host:port), of which address is the host.
func KubeadmConfig(in Input, endpoint, address string) *corev1.ConfigMap {
	t, spec := in.Tenant, &in.Tenant.Spec
	network := &spec.NetworkProfile
	cluster := clusterConfiguration{
		Etcd: in.kubeadmEtcd(),
		Networking: kubeadmNetworking{
			ServiceSubnet: strings.Join(network.ServiceCIDRs, ","), PodSubnet: strings.Join(network.PodCIDRs, ","), DNSDomain: network.ClusterDomain,
		},
		KubernetesVersion: spec.Kubernetes.Version, ControlPlaneEndpoint: endpoint, ClusterName: t.Name,
		APIServer: kubeadmAPIServer{ExtraArgs: in.kubeadmArgs(), CertSANs: kubeadmSANs(t, address)},
		DNS:       kubeadmAddon{Disabled: spec.Addons.CoreDNS == nil}, Proxy: kubeadmAddon{Disabled: spec.Addons.KubeProxy == nil},
		CertificatesDir: dirPKI, ImageRepository: spec.ControlPlane.Deployment.RegistrySettings.Registry, EncryptionAlgorithm: kubeadmAlgorithm,
		CertificateValidityPeriod: kubeadmLeafValidity, CACertificateValidityPeriod: kubeadmCAValidity,
	}
	local := initConfiguration{LocalAPIEndpoint: kubeadmEndpoint{AdvertiseAddress: in.Advertise, BindPort: network.Port}}
	data := map[string]string{name.KeyInitConfiguration: asJSON(local), name.KeyClusterConfiguration: asJSON(cluster)}
	checksum := v1alpha1.AdditionalMetadata{Annotations: map[string]string{name.AnnotationChecksum: name.ChecksumStrings(data)}}
	return &corev1.ConfigMap{
		TypeMeta: kube.ConfigMaps.TypeMeta(), ObjectMeta: in.meta(name.KubeadmConfig(t.Name), name.ComponentKubeadmConfig, checksum), Data: data,
	}
}

// kubeadmEtcd is where the API server stores its data: at kine's socket on other databases than etcd.
func (in Input) kubeadmEtcd() kubeadmEtcd {
	flags := in.storageFlags()
	return kubeadmEtcd{External: kubeadmExternalEtcd{
		Endpoints: strings.Split(flags["etcd-servers"], ","),
		CAFile:    flags["etcd-cafile"], CertFile: flags["etcd-certfile"], KeyFile: flags["etcd-keyfile"],
	}}
}

// kubeadmArgs are the flags of storage that kubeadm has no field for.
func (in Input) kubeadmArgs() (args []kubeadmArg) {
	flags := in.storageFlags()
	for _, flag := range slices.Sorted(maps.Keys(flags)) {
		switch flag {
		case "etcd-servers", "etcd-cafile", "etcd-certfile", "etcd-keyfile":
		default:
			args = append(args, kubeadmArg{flag, flags[flag]})
		}
	}
	return args
}

// kubeadmSANs are the names of the API server's certificate beside those that kubeadm adds by itself.
func kubeadmSANs(t *state.Tenant, address string) []string {
	service := name.Service(t.Name) + "." + t.Namespace + ".svc"
	network := &t.Spec.NetworkProfile
	own := []string{"127.0.0.1", "localhost", name.Service(t.Name), service, service + ".cluster.local", address}
	var unique []string
	for _, san := range append(slices.Concat(own, network.CertSANs), network.AdvertiseAddress) {
		if san != "" && !slices.Contains(unique, san) {
			unique = append(unique, san)
		}
	}
	return unique
}

// asJSON never fails: there is nothing but strings, numbers and booleans in it.
func asJSON(v any) string {
	text, _ := json.Marshal(v)
	return string(text)
}

// describeForKubeadm makes the ConfigMap so. One that went while no replica watched comes back with the daily look: it isn't worth a
// request for each tenant whenever a replica starts.
func (t *turn) describeForKubeadm(ctx context.Context, in Input) error {
	want := KubeadmConfig(in, t.data.Endpoint, t.data.Address)
	inputs := hash(want)
	seen := t.s.observed.get(t.Key, kindKubeadm, t.before.KubeadmConfig.ResourceVersion)
	unseen := seen.version == "" && !seen.gone
	if t.data.Hashes.KubeadmConfig == inputs && (unseen || !seen.changed()) && !t.Due() {
		if !unseen {
			t.s.observed.setKnown(t.Key, kindKubeadm, seen.known, 0)
		}
		return nil
	}
	checksum := want.Annotations[name.AnnotationChecksum]
	if err := t.apply(ctx, kube.ConfigMaps, kindKubeadm, want); err != nil {
		return refused(err, t.spec, want, kube.ConfigMaps.Kind)
	}
	t.s.observed.setKnown(t.Key, kindKubeadm, want.ResourceVersion, 0)
	made := state.ConfigMap{Checksum: checksum, ResourceVersion: want.ResourceVersion, LastUpdate: t.s.now().UTC().Truncate(time.Second)}
	if before := t.before.KubeadmConfig; before.Checksum == checksum {
		made.LastUpdate = cmp.Or(before.LastUpdate, made.LastUpdate)
	}
	t.data.Hashes.KubeadmConfig, t.data.KubeadmConfig = inputs, made
	return nil
}
