// What must exist: from the effective spec and the endpoint to a list of Secrets, each described completely. Pure.

package certs

import (
	"crypto/sha256"
	"crypto/x509"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"net"
	"net/netip"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/stoker-k8s/stoker/pkg/api/name"
	"github.com/stoker-k8s/stoker/pkg/api/state"
	"github.com/stoker-k8s/stoker/pkg/intent"
)

// input is everything the Secrets of a tenant are made from, besides what they hold already and the time.
type input struct {
	Namespace, Name, UID string
	// Port of the API server.
	Port          int32
	ClusterDomain string
	ServiceCIDRs  []string
	CertSANs      []string
	// AdvertiseAddress as in the spec; Exposed has the one in use.
	AdvertiseAddress string
	// Exposed is nil for as long as the endpoint isn't known.
	Exposed *exposed
}

// exposed is the part of workload's state that certificates depend on.
type exposed struct {
	Endpoint, Address, ClusterIP, AdvertiseAddress string
}

// inputOf collects the input. w is workload's state, its zero value when there is none.
func inputOf(uid string, t *state.Tenant, w *state.Workload) input {
	n := &t.Spec.NetworkProfile
	in := input{
		Namespace: t.Namespace, Name: t.Name, UID: uid,
		Port: n.Port, ClusterDomain: n.ClusterDomain, ServiceCIDRs: n.ServiceCIDRs, CertSANs: n.CertSANs,
		AdvertiseAddress: n.AdvertiseAddress,
	}
	if w.Endpoint != "" {
		in.Exposed = &exposed{Endpoint: w.Endpoint, Address: w.Address, ClusterIP: w.ClusterIP, AdvertiseAddress: w.AdvertiseAddress}
	}
	return in
}

// hash is a fingerprint of the input.
func (in input) hash() string {
	data, err := json.Marshal(in)
	if err != nil { // plain data
		panic(err)
	}
	sum := sha256.Sum256(data)
	return hex.EncodeToString(sum[:16])
}

// kind says how the content of a Secret is made.
type kind int

const (
	// authority is a self-signed CA.
	authority kind = iota
	// keyPair is a private key and its public half.
	keyPair
	// issued is certificates signed by a CA of the tenant, as they are or inside kubeconfigs.
	issued
)

// want is a Secret as it must be.
type want struct {
	Component, Secret string
	// Generator that asks for it, empty for the tenant's own.
	Generator string
	Kind      kind
	// Signer is the component of the CA that signs, empty unless issued.
	Signer string
	// Lifecycle is the value of the lifecycle label, empty for none: Kamaji leaves CAs and ServiceAccount keys out.
	Lifecycle string
	// CommonName of a CA.
	CommonName string
	// Keys are the data keys of certificate and private key of a CA, or of public and private key, in this order; a
	// second pair repeats the first.
	Keys [][2]string
	// Credentials are the certificates of an issued one.
	Credentials []credential
}

// credential is a certificate of a Secret, and where in it it is: under data keys of its own, or in kubeconfigs.
type credential struct {
	CommonName    string
	Organizations []string
	Usage         x509.ExtKeyUsage
	DNSNames      []string
	IPs           []net.IP
	// CertKey and KeyKey are data keys, empty for kubeconfigs.
	CertKey, KeyKey string
	// Kubeconfigs that carry the credential.
	Kubeconfigs []kubeconfig
}

// kubeconfig is a file of a Secret.
type kubeconfig struct {
	// Key in the data, Cluster is the name of the entry, Server its URL.
	Key, Cluster, Server string
}

// dataKeys returns the keys of the Secret's data, sorted.
func (w *want) dataKeys() []string {
	var keys []string
	for _, pair := range w.Keys {
		keys = append(keys, pair[0], pair[1])
	}
	for _, c := range w.Credentials {
		if c.CertKey != "" {
			keys = append(keys, c.CertKey, c.KeyKey)
		}
		for _, k := range c.Kubeconfigs {
			keys = append(keys, k.Key)
		}
	}
	slices.Sort(keys)
	return keys
}

// components maps each component of this service to the name of its Secret.
func components(tenant string) map[string]string {
	return map[string]string{
		name.ComponentCA:                                name.CA(tenant),
		name.ComponentFrontProxyCA:                      name.FrontProxyCA(tenant),
		name.ComponentServiceAccountKeys:                name.ServiceAccountKeys(tenant),
		name.ComponentAPIServerCertificate:              name.APIServerCertificate(tenant),
		name.ComponentAPIServerKubeletClientCertificate: name.APIServerKubeletClientCertificate(tenant),
		name.ComponentFrontProxyClientCertificate:       name.FrontProxyClientCertificate(tenant),
		name.ComponentAdminKubeconfig:                   name.AdminKubeconfig(tenant),
		name.ComponentControllerManagerKubeconfig:       name.ControllerManagerKubeconfig(tenant),
		name.ComponentSchedulerKubeconfig:               name.SchedulerKubeconfig(tenant),
	}
}

// Names and groups of the tenant's own users, as kubeadm has them.
const (
	organizationAdmins  = "kubeadm:cluster-admins" // bound to cluster-admin by the add-ons, so RBAC can take it away
	organizationMasters = "system:masters"         // beyond RBAC
)

// wants lists the Secrets that can be made from the input: roots first, and what needs the endpoint only once it is known.
// The error is an *intent.Permanent that names the value at fault.
func wants(in input) (roots, leaves []want, err error) {
	dns, ips, err := in.altNames()
	if err != nil {
		return nil, nil, err
	}
	secret := components(in.Name)
	local := "https://" + net.JoinHostPort("127.0.0.1", in.port())

	roots = []want{{
		Component: name.ComponentCA, Kind: authority, CommonName: "kubernetes",
		Keys: [][2]string{{name.KeyCACert, name.KeyCAKey}, {name.KeyTLSCert, name.KeyTLSKey}},
	}, {
		Component: name.ComponentFrontProxyCA, Kind: authority, CommonName: "front-proxy-ca",
		Keys: [][2]string{{name.KeyFrontProxyCACert, name.KeyFrontProxyCAKey}},
	}, {
		Component: name.ComponentServiceAccountKeys, Kind: keyPair,
		Keys: [][2]string{{name.KeyServiceAccountPublic, name.KeyServiceAccountPrivate}},
	}}
	leaves = []want{{
		Component: name.ComponentAPIServerKubeletClientCertificate, Signer: name.ComponentCA, Lifecycle: name.LifecycleX509,
		Credentials: []credential{{
			CommonName: "kube-apiserver-kubelet-client", Organizations: []string{organizationAdmins}, Usage: x509.ExtKeyUsageClientAuth,
			CertKey: name.KeyAPIServerKubeletClientCert, KeyKey: name.KeyAPIServerKubeletClientKey,
		}},
	}, {
		Component: name.ComponentFrontProxyClientCertificate, Signer: name.ComponentFrontProxyCA, Lifecycle: name.LifecycleX509,
		Credentials: []credential{{
			CommonName: "front-proxy-client", Usage: x509.ExtKeyUsageClientAuth,
			CertKey: name.KeyFrontProxyClientCert, KeyKey: name.KeyFrontProxyClientKey,
		}},
	}, {
		Component: name.ComponentControllerManagerKubeconfig, Signer: name.ComponentCA, Lifecycle: name.LifecycleKubeconfig,
		Credentials: []credential{{
			CommonName: "system:kube-controller-manager", Usage: x509.ExtKeyUsageClientAuth,
			Kubeconfigs: []kubeconfig{{name.KeyControllerManagerConf, in.Name, local}},
		}},
	}, {
		Component: name.ComponentSchedulerKubeconfig, Signer: name.ComponentCA, Lifecycle: name.LifecycleKubeconfig,
		Credentials: []credential{{
			CommonName: "system:kube-scheduler", Usage: x509.ExtKeyUsageClientAuth,
			Kubeconfigs: []kubeconfig{{name.KeySchedulerConf, in.Name, local}},
		}},
	}}
	if in.Exposed != nil {
		at := func(key string) kubeconfig { return kubeconfig{key, in.Name, in.server(key)} }
		leaves = append(leaves, want{
			Component: name.ComponentAPIServerCertificate, Signer: name.ComponentCA, Lifecycle: name.LifecycleX509,
			Credentials: []credential{{
				CommonName: "kube-apiserver", Usage: x509.ExtKeyUsageServerAuth, DNSNames: dns, IPs: ips,
				CertKey: name.KeyAPIServerCert, KeyKey: name.KeyAPIServerKey,
			}},
		}, want{
			Component: name.ComponentAdminKubeconfig, Signer: name.ComponentCA, Lifecycle: name.LifecycleKubeconfig,
			Credentials: []credential{{
				CommonName: "kubernetes-admin", Organizations: []string{organizationAdmins}, Usage: x509.ExtKeyUsageClientAuth,
				Kubeconfigs: []kubeconfig{at(name.KeyAdminConf), at(name.KeyAdminSvc)},
			}, {
				CommonName: "kubernetes-super-admin", Organizations: []string{organizationMasters}, Usage: x509.ExtKeyUsageClientAuth,
				Kubeconfigs: []kubeconfig{at(name.KeySuperAdminConf), at(name.KeySuperAdminSvc)},
			}},
		})
	}
	for _, list := range [][]want{roots, leaves} {
		for i := range list {
			list[i].Secret = secret[list[i].Component]
			if list[i].Signer != "" {
				list[i].Kind = issued
			}
		}
	}
	return roots, leaves, nil
}

func (in input) port() string { return strconv.Itoa(int(in.Port)) }

// server is the URL in a kubeconfig of the administrators' Secret, once the endpoint is known.
func (in input) server(key string) string {
	if key == name.KeyAdminConf || key == name.KeySuperAdminConf {
		return (&url.URL{Scheme: "https", Host: in.Exposed.Endpoint}).String()
	}
	return "https://" + net.JoinHostPort(in.serviceName(), in.port())
}

// generated is the Secret that a generator asks for, once the endpoint is known.
func (in input) generated(a ask) want {
	return want{
		Component: name.ComponentGeneratedKubeconfig, Secret: name.GeneratedKubeconfig(in.Name, a.generator), Generator: a.generator,
		Kind: issued, Signer: name.ComponentCA, Lifecycle: name.LifecycleKubeconfig,
		Credentials: []credential{{
			CommonName: a.user, Organizations: a.groups, Usage: x509.ExtKeyUsageClientAuth,
			Kubeconfigs: []kubeconfig{{name.KeyGeneratedKubeconfig, in.Name, in.server(a.endpoint)}},
		}},
	}
}

// serviceName is how the Service is reached inside the management cluster.
func (in input) serviceName() string { return name.Service(in.Name) + "." + in.Namespace + ".svc" }

// altNames returns the names of the API server's certificate, sorted, none twice.
func (in input) altNames() (dns []string, ips []net.IP, err error) {
	// Kamaji's and kubeadm's; "node" is the node name Kamaji gives kubeadm.
	dns = []string{
		"localhost", "node", in.Name, in.serviceName(), in.serviceName() + ".cluster.local",
		"kubernetes", "kubernetes.default", "kubernetes.default.svc",
	}
	if in.ClusterDomain != "" {
		dns = append(dns, "kubernetes.default.svc."+in.ClusterDomain)
	}
	addrs := []netip.Addr{netip.AddrFrom4([4]byte{127, 0, 0, 1})}
	add := func(value, reason, what string) error {
		if value == "" {
			return nil
		}
		if addr, err := netip.ParseAddr(value); err == nil && addr.Zone() == "" {
			addrs = append(addrs, addr.Unmap())
			return nil
		}
		host := strings.ToLower(value)
		if len(validation.IsDNS1123Subdomain(host)) != 0 && len(validation.IsWildcardDNS1123Subdomain(host)) != 0 {
			return &intent.Permanent{Reason: reason, Message: fmt.Sprintf("%s %q is neither an IP address nor a DNS name", what, clip(value))}
		}
		dns = append(dns, host)
		return nil
	}
	for _, cidr := range in.ServiceCIDRs {
		prefix, err := netip.ParsePrefix(cidr)
		if err != nil {
			return nil, nil, &intent.Permanent{Reason: "InvalidServiceCIDR", Message: fmt.Sprintf("service network %q is no CIDR", clip(cidr))}
		}
		// The first address of the network is that of the Service kubernetes.
		if first := prefix.Masked().Addr().Next(); prefix.Contains(first) {
			addrs = append(addrs, first)
		}
	}
	for _, san := range in.CertSANs {
		if err := add(san, "InvalidCertSAN", "entry of certSANs"); err != nil {
			return nil, nil, err
		}
	}
	if err := add(in.AdvertiseAddress, "InvalidAdvertiseAddress", "advertiseAddress"); err != nil {
		return nil, nil, err
	}
	if e := in.Exposed; e != nil {
		host, port, err := net.SplitHostPort(e.Endpoint)
		if err != nil || host == "" || port == "" {
			return nil, nil, &intent.Permanent{Reason: "InvalidEndpoint", Message: fmt.Sprintf("endpoint %q is not host:port", clip(e.Endpoint))}
		}
		clusterIP := e.ClusterIP
		if clusterIP == "None" { // a headless Service
			clusterIP = ""
		}
		for _, value := range []string{host, e.Address, e.AdvertiseAddress, clusterIP} {
			if err := add(value, "InvalidEndpoint", "address"); err != nil {
				return nil, nil, err
			}
		}
	}
	slices.Sort(dns)
	slices.SortFunc(addrs, netip.Addr.Compare)
	for _, addr := range slices.Compact(addrs) {
		ips = append(ips, addr.AsSlice())
	}
	return slices.Compact(dns), ips, nil
}

// clip keeps messages short.
func clip(s string) string { return s[:min(len(s), 256)] }
