package addons

import (
	"bufio"
	"bytes"
	_ "embed"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/version"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	kubeletconfig "k8s.io/kubelet/config/v1beta1"
	kubeadmapi "k8s.io/kubernetes/cmd/kubeadm/app/apis/kubeadm"
	kubeadmscheme "k8s.io/kubernetes/cmd/kubeadm/app/apis/kubeadm/scheme"
	"k8s.io/kubernetes/cmd/kubeadm/app/apis/kubeadm/v1beta3"
	"k8s.io/kubernetes/cmd/kubeadm/app/apis/kubeadm/v1beta4"
	"k8s.io/kubernetes/cmd/kubeadm/app/componentconfigs"
	"k8s.io/kubernetes/cmd/kubeadm/app/constants"
	"k8s.io/kubernetes/cmd/kubeadm/app/phases/addons/dns"
	"k8s.io/kubernetes/cmd/kubeadm/app/phases/addons/proxy"
	kubeadmutil "k8s.io/kubernetes/cmd/kubeadm/app/util"
	"sigs.k8s.io/yaml"
)

// rbacYAML is what kubeadm's phases write that is the same for every tenant. The phases themselves print to standard
// output as they go, so they run in a test, which compares this file with what they write and, with -update, renews it.
//
//go:generate go test -run TestKubeadm -update .
//go:embed rbac.yaml
var rbacYAML []byte

// kubeadm is a tenant in the terms of kubeadm.
type kubeadm struct {
	in       Input
	dnsIPs   []string // none is kubeadm's choice
	cfg      *kubeadmapi.ClusterConfiguration
	local    *kubeadmapi.APIEndpoint
	configGV schema.GroupVersion // in which the tenant's own kubeadm reads kubeadm-config
}

func newKubeadm(in Input) (*kubeadm, error) {
	ver, err := version.ParseSemantic(in.Version)
	if err != nil {
		return nil, &InputError{"Version", in.Version, err}
	}
	if _, err := netip.ParseAddr(in.AdvertiseAddress); err != nil {
		return nil, &InputError{"AdvertiseAddress", in.AdvertiseAddress, err}
	}
	if in.Port == 0 {
		in.Port = constants.KubeAPIServerPort
	}
	host, port, err := kubeadmutil.ParseHostPort(in.Endpoint)
	if err != nil {
		return nil, &InputError{"Endpoint", in.Endpoint, err}
	}
	if port == "" {
		port = strconv.Itoa(int(in.Port))
	}
	for i, cidr := range in.ServiceCIDRs {
		if _, err := netip.ParsePrefix(cidr); err != nil {
			return nil, &InputError{fmt.Sprintf("ServiceCIDRs[%d]", i), cidr, err}
		}
	}
	for i, cidr := range in.PodCIDRs {
		if _, err := netip.ParsePrefix(cidr); err != nil {
			return nil, &InputError{fmt.Sprintf("PodCIDRs[%d]", i), cidr, err}
		}
	}
	for i, ip := range in.DNSServiceIPs {
		if _, err := netip.ParseAddr(ip); err != nil {
			return nil, &InputError{fmt.Sprintf("DNSServiceIPs[%d]", i), ip, err}
		}
	}
	sans := slices.Clone(in.CertSANs)
	for i := range sans {
		sans[i] = strings.ToLower(sans[i])
	}

	versioned := &v1beta4.ClusterConfiguration{
		KubernetesVersion:    "v" + ver.String(),
		ClusterName:          in.Name,
		ControlPlaneEndpoint: net.JoinHostPort(host, port),
		Networking: v1beta4.Networking{
			DNSDomain:     in.ClusterDomain,
			ServiceSubnet: strings.Join(in.ServiceCIDRs, ","),
			PodSubnet:     strings.Join(in.PodCIDRs, ","),
		},
		APIServer:           v1beta4.APIServer{CertSANs: sans},
		EncryptionAlgorithm: v1beta4.EncryptionAlgorithmType(in.KeyAlgorithm),
	}
	if in.CoreDNS == nil {
		versioned.DNS.Disabled = true
	} else {
		versioned.DNS.ImageMeta = v1beta4.ImageMeta{ImageRepository: in.CoreDNS.ImageRepository, ImageTag: in.CoreDNS.ImageTag}
	}
	versioned.Proxy.Disabled = in.KubeProxy == nil
	kubeadmscheme.Scheme.Default(versioned)
	cfg := &kubeadmapi.ClusterConfiguration{}
	if err := kubeadmscheme.Scheme.Convert(versioned, cfg, nil); err != nil {
		return nil, fmt.Errorf("convert kubeadm's configuration: %w", err)
	}
	// kubeadm warns where an endpoint's port differs from that of the API server, which here is nothing odd.
	bindPort, err := kubeadmutil.ParsePort(port)
	if err != nil {
		return nil, &InputError{"Port", port, err}
	}
	local := &kubeadmapi.APIEndpoint{AdvertiseAddress: in.AdvertiseAddress, BindPort: int32(bindPort)}
	componentconfigs.Default(cfg, local, &kubeadmapi.NodeRegistrationOptions{})

	k := &kubeadm{in: in, dnsIPs: in.DNSServiceIPs, cfg: cfg, local: local, configGV: v1beta4.SchemeGroupVersion}
	if ver.LessThan(version.MustParseSemantic("v1.32.0")) {
		// A kubeadm before v1.31 doesn't know v1beta4; its nodes couldn't join, be the tenant of v1.30 or of the minor version after.
		k.configGV = v1beta3.SchemeGroupVersion
		cfg.APIServer.TimeoutForControlPlane = &metav1.Duration{Duration: constants.ControlPlaneComponentHealthCheckTimeout}
	}
	return k, k.configureKubelet()
}

// configureKubelet makes the KubeletConfiguration, which the nodes get when they join.
func (k *kubeadm) configureKubelet() error {
	component := k.cfg.ComponentConfigs[componentconfigs.KubeletGroup]
	kubelet, ok := component.Get().(*kubeletconfig.KubeletConfiguration)
	if !ok {
		return errors.New("kubeadm has no KubeletConfiguration")
	}
	if len(k.dnsIPs) > 0 {
		kubelet.ClusterDNS = slices.Clone(k.dnsIPs)
	}
	switch k.in.CgroupDriver {
	case "":
	case "systemd", "cgroupfs":
		kubelet.CgroupDriver = k.in.CgroupDriver
	default:
		return &InputError{"CgroupDriver", k.in.CgroupDriver, errors.New("must be systemd or cgroupfs")}
	}
	kubelet.ServerTLSBootstrap = k.in.KubeletServing
	if len(k.in.KubeletPatches) == 0 {
		return nil
	}
	patched, err := patchKubelet(kubelet, k.in.KubeletPatches)
	if err != nil {
		return err
	}
	component.Set(patched)
	return nil
}

// rbac lets nodes join and the tenant's administrators administrate.
func (k *kubeadm) rbac() ([]*unstructured.Unstructured, error) { return documents(rbacYAML) }

// kubeadmConfig is what kubeadm on a joining node asks for first.
func (k *kubeadm) kubeadmConfig() ([]*unstructured.Unstructured, error) {
	// The components' configurations have ConfigMaps of their own.
	cfg := k.cfg.DeepCopy()
	cfg.ComponentConfigs = kubeadmapi.ComponentConfigMap{}
	text, err := kubeadmutil.MarshalToYamlForCodecs(cfg, k.configGV, kubeadmscheme.Codecs)
	if err != nil {
		return nil, err
	}
	return configMap("kube-system", constants.KubeadmConfigConfigMap, constants.ClusterConfigurationConfigMapKey, text, false)
}

// kubeletConfig is the configuration every kubelet starts with.
func (k *kubeadm) kubeletConfig() ([]*unstructured.Unstructured, error) {
	text, err := k.cfg.ComponentConfigs[componentconfigs.KubeletGroup].Marshal()
	if err != nil {
		return nil, err
	}
	return configMap("kube-system", constants.KubeletBaseConfigurationConfigMap, constants.KubeletBaseConfigurationConfigMapKey, text, true)
}

// clusterInfo is what a node that only has a token may read. The bootstrap signer adds keys of its own to it, which are
// never among ours.
func (k *kubeadm) clusterInfo() ([]*unstructured.Unstructured, error) {
	if len(k.in.CACertPEM) == 0 {
		return nil, &InputError{"CACertPEM", "", errors.New("is empty")}
	}
	server, err := kubeadmutil.GetControlPlaneEndpoint(k.cfg.ControlPlaneEndpoint, k.local)
	if err != nil {
		return nil, &InputError{"Endpoint", k.in.Endpoint, err}
	}
	text, err := clientcmd.Write(clientcmdapi.Config{Clusters: map[string]*clientcmdapi.Cluster{
		"": {Server: server, CertificateAuthorityData: k.in.CACertPEM},
	}})
	if err != nil {
		return nil, err
	}
	return configMap("kube-public", "cluster-info", "kubeconfig", text, false)
}

// coreDNS is the tenant's DNS server, at the first address of each family among the kubelets' resolvers.
func (k *kubeadm) coreDNS() ([]*unstructured.Unstructured, error) {
	var out bytes.Buffer
	if err := dns.EnsureDNSAddon(k.cfg, nil, "", &out, true); err != nil {
		return nil, err
	}
	objs, err := documents(out.Bytes())
	if err != nil {
		return nil, err
	}
	for _, o := range objs {
		switch o.GetKind() {
		case "Deployment":
			if n := k.in.CoreDNS.Replicas; n > 0 {
				if err := unstructured.SetNestedField(o.Object, int64(n), "spec", "replicas"); err != nil {
					return nil, err
				}
			}
		case "Service":
			if err := k.addressDNS(o); err != nil {
				return nil, err
			}
		}
	}
	return objs, nil
}

func (k *kubeadm) addressDNS(service *unstructured.Unstructured) error {
	var ips []any
	var v4, v6 bool
	for _, s := range k.dnsIPs {
		ip, err := netip.ParseAddr(s)
		if err != nil {
			return err
		}
		family := &v6
		if ip.Is4() {
			family = &v4
		}
		if !*family {
			*family = true
			ips = append(ips, ip.String())
		}
	}
	if len(ips) == 0 {
		return nil
	}
	spec, ok := service.Object["spec"].(map[string]any)
	if !ok {
		return errors.New("kubeadm's Service has no spec")
	}
	// All three are said even for one address: so a tenant can go from one family to two and back.
	spec["clusterIP"] = ips[0]
	spec["clusterIPs"] = ips
	spec["ipFamilyPolicy"] = string(corev1.IPFamilyPolicySingleStack)
	if len(ips) > 1 {
		spec["ipFamilyPolicy"] = string(corev1.IPFamilyPolicyRequireDualStack)
	}
	return nil
}

// kubeProxy is the service proxy of each node.
func (k *kubeadm) kubeProxy() ([]*unstructured.Unstructured, error) {
	cfg := k.cfg.DeepCopy()
	if repo := k.in.KubeProxy.ImageRepository; repo != "" {
		cfg.ImageRepository = repo
	}
	if tag := k.in.KubeProxy.ImageTag; tag != "" {
		// kubeadm takes the image's tag from the version, and uses that for nothing else in this phase.
		cfg.KubernetesVersion = tag
	}
	// Printing, unlike writing, doesn't copy proxy variables of this process's environment into the tenant.
	var out bytes.Buffer
	if err := proxy.EnsureProxyAddon(cfg, k.local, nil, &out, true); err != nil {
		return nil, err
	}
	objs, err := documents(out.Bytes())
	if err != nil {
		return nil, err
	}
	for _, o := range objs {
		if o.GetKind() != "ConfigMap" {
			continue
		}
		// Printing, unlike writing, doesn't sign either.
		cm := &corev1.ConfigMap{}
		if err := runtime.DefaultUnstructuredConverter.FromUnstructured(o.Object, cm); err != nil {
			return nil, err
		}
		o.SetAnnotations(map[string]string{constants.ComponentConfigHashAnnotationKey: componentconfigs.ChecksumForConfigMap(cm)})
	}
	return objs, nil
}

// configMap is a ConfigMap with one key; signed tells kubeadm that nobody has written it by hand.
func configMap(namespace, name, key string, text []byte, signed bool) ([]*unstructured.Unstructured, error) {
	o := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "v1",
		"kind":       "ConfigMap",
		"metadata":   map[string]any{"namespace": namespace, "name": name},
		"data":       map[string]any{key: string(text)},
	}}
	if signed {
		sum := componentconfigs.ChecksumForConfigMap(&corev1.ConfigMap{Data: map[string]string{key: string(text)}})
		o.SetAnnotations(map[string]string{constants.ComponentConfigHashAnnotationKey: sum})
	}
	return []*unstructured.Unstructured{o}, nil
}

// documents reads objects from a stream of YAML.
func documents(text []byte) ([]*unstructured.Unstructured, error) {
	var objs []*unstructured.Unstructured
	r := utilyaml.NewYAMLReader(bufio.NewReader(bytes.NewReader(text)))
	for {
		doc, err := r.Read()
		if errors.Is(err, io.EOF) {
			return objs, nil
		}
		if err != nil {
			return nil, err
		}
		js, err := yaml.YAMLToJSON(doc)
		if err != nil {
			return nil, err
		}
		if string(js) == "null" {
			continue
		}
		o := &unstructured.Unstructured{}
		if err := o.UnmarshalJSON(js); err != nil {
			return nil, err
		}
		objs = append(objs, o)
	}
}
