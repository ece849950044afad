// Package pki knows the keys, certificates and kubeconfigs of a tenant: which Secrets must exist and what is in each, whether the
// content of one that is there may stay, how content is made, and how a Secret is written. Nothing in it knows of events.
//
// Files in the order of a turn: required.go says what must exist, san.go which names the API server's certificate has, policy.go
// whether what is there may stay and why not, certificate.go makes content, render.go the Secret around it, apply.go brings it to
// the management cluster, owner.go says whose Secret one is.
package pki

import (
	"cmp"
	"crypto/sha256"
	"crypto/x509"
	"encoding/hex"
	"encoding/json"
	"net"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/stoker-k8s/stoker/pkg/api/name"
	"github.com/stoker-k8s/stoker/pkg/api/state"
)

// Input is everything the Secrets of a tenant are made from, besides what they hold already and the time. Its JSON goes into the
// fingerprint that states keep: renaming a field would make every tenant's Secrets be checked once.
type Input struct {
	Namespace, Name, UID string
	// Port of the API server.
	Port          int32
	ClusterDomain string
	ServiceCIDRs  []string
	CertSANs      []string
	// AdvertiseAddress as in the spec; Exposed has the one in use.
	AdvertiseAddress string
	// Exposed is nil for as long as the endpoint isn't known.
	Exposed *Exposed
	// Konnectivity says that the tenant has the tunnel, whose server has a certificate of its own.
	Konnectivity bool `json:",omitempty"`
	// Former is the endpoint where kubeconfigs lead while pods have no certificate for the one in Exposed; empty at all other times.
	Former string `json:",omitempty"`
	// ClusterAPI has the labels by which Cluster API finds the authority of a Cluster with the tenant's name; nil for none.
	ClusterAPI map[string]string `json:",omitempty"`
}

// Exposed is the part of workload's state that certificates depend on.
type Exposed struct {
	Endpoint, Address, ClusterIP, AdvertiseAddress string
	// Konnectivity is where agents reach the konnectivity server, which has the API server's certificate; empty without the tunnel.
	Konnectivity string `json:",omitempty"`
}

// NewInput collects the input. w is workload's state, its zero value when there is none.
func NewInput(uid string, t *state.Tenant, w *state.Workload) Input {
	n := &t.Spec.NetworkProfile
	in := Input{
		Namespace: t.Namespace, Name: t.Name, UID: uid,
		Port: n.Port, ClusterDomain: n.ClusterDomain, ServiceCIDRs: n.ServiceCIDRs, CertSANs: n.CertSANs,
		AdvertiseAddress: n.AdvertiseAddress, Konnectivity: t.Spec.Addons.Konnectivity != nil,
	}
	if t.Labels[name.LabelClusterName] == t.Name {
		in.ClusterAPI = map[string]string{name.LabelClusterName: t.Name}
		if filter, ok := t.Labels[name.LabelWatchFilter]; ok { // Cluster API sees no Secret without it then
			in.ClusterAPI[name.LabelWatchFilter] = filter
		}
	}
	if w.Endpoint != "" {
		in.Exposed = &Exposed{
			Endpoint: w.Endpoint, Address: w.Address, ClusterIP: w.ClusterIP, AdvertiseAddress: w.AdvertiseAddress, Konnectivity: w.KonnectivityEndpoint,
		}
	}
	return in
}

// Hash is a fingerprint of the input.
func (in Input) Hash() string {
	data, err := json.Marshal(in)
	if err != nil { // plain data
		panic(err)
	}
	sum := sha256.Sum256(data)
	return hex.EncodeToString(sum[:16])
}

// Kind says how the content of a Secret is made.
type Kind int

// Kinds of content.
const (
	// Authority is a self-signed CA.
	Authority Kind = iota
	// KeyPair is a private key and its public half.
	KeyPair
	// Issued is certificates signed by a CA of the tenant, as they are or inside kubeconfigs.
	Issued
)

// Want is a Secret as it must be.
type Want struct {
	Component, Secret string
	// Type of the Secret when it is made; empty is Opaque. One that is there keeps its own.
	Type corev1.SecretType
	// Labels besides those that all Secrets of tenants have.
	Labels map[string]string
	// Generator is the KubeconfigGenerator it is made for, empty for the tenant's own.
	Generator string
	Kind      Kind
	// Signer is the component of the CA that signs, empty unless Kind is Issued.
	Signer string
	// Lifecycle is the value of the lifecycle label, empty for none: Kamaji leaves CAs and ServiceAccount keys out.
	Lifecycle string
	// CommonName of a CA.
	CommonName string
	// Keys are the data keys of certificate and private key of a CA, or of public and private key, in this order; a
	// second pair repeats the first.
	Keys [][2]string
	// Credentials are the certificates in it, of the kind Issued. RenewBefore is how long before their end they are renewed, 0 for a third
	// of their life.
	Credentials []Credential
	RenewBefore time.Duration
}

// Credential is a certificate in a Secret, and where in it: under data keys of its own, or in kubeconfigs.
type Credential struct {
	CommonName    string
	Organizations []string
	Usage         x509.ExtKeyUsage
	DNSNames      []string
	IPs           []net.IP
	// Spare are those of IPs that a certificate which Kamaji issued does without: it never had them.
	Spare []net.IP
	// CertKey and KeyKey are data keys, empty for kubeconfigs.
	CertKey, KeyKey string
	// Kubeconfigs that carry the credential.
	Kubeconfigs []Kubeconfig
}

// Kubeconfig is a file in a Secret.
type Kubeconfig struct {
	// Key in the Secret's data; Cluster is the name of the entry, Server its URL.
	Key, Cluster, Server string
}

// dataKeys returns the keys of the Secret's data, sorted.
func (w *Want) dataKeys() []string {
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

// All is Components, and the Secret of the encryption, whose content this package doesn't make.
func All(tenant string) map[string]string {
	all := Components(tenant)
	all[name.ComponentEncryption] = name.Encryption(tenant)
	return all
}

// Components maps each component of this service to the name of its Secret, those too that only some tenants have.
func Components(tenant string) map[string]string {
	return map[string]string{
		name.ComponentKonnectivityCertificate:           name.KonnectivityCertificate(tenant),
		name.ComponentKonnectivityKubeconfig:            name.KonnectivityKubeconfig(tenant),
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

// Konnectivity are the components that only a tenant with the tunnel has.
func Konnectivity() []string {
	return []string{name.ComponentKonnectivityCertificate, name.ComponentKonnectivityKubeconfig}
}

// Sometimes are the components that only some tenants have.
func Sometimes() []string { return append(Konnectivity(), name.ComponentEncryption) }

// Names and groups of the tenant's own users, as kubeadm has them.
const (
	organizationAdmins  = "kubeadm:cluster-admins" // bound to cluster-admin by the add-ons, so RBAC can take it away
	organizationMasters = "system:masters"         // beyond RBAC
)

// Required lists the Secrets that can be made from the input: first those that sign others (roots), and what needs the endpoint
// only once it is known. The error is an *[intent.Permanent] that names the value at fault.
func Required(in Input) (roots, leaves []Want, err error) {
	dns, ips, err := in.altNames()
	if err != nil {
		return nil, nil, err
	}
	roots, leaves = in.requiredRoots(), in.requiredClients()
	if in.Konnectivity {
		leaves = append(leaves, in.requiredOfKonnectivity()...)
	}
	if in.Exposed != nil {
		leaves = append(leaves, in.requiredOfEndpoint(dns, ips)...)
	}
	secret := Components(in.Name)
	for _, list := range [][]Want{roots, leaves} {
		for i := range list {
			list[i].Secret = secret[list[i].Component]
			if list[i].Signer != "" {
				list[i].Kind = Issued
			}
		}
	}
	return roots, leaves, nil
}

// requiredRoots are the authorities and the keys that nothing signs. The Secret of a tenant's CA, <tenant>-ca, is also the one of the Cluster with the
// tenant's name, which Cluster API wants to be of a type and to have a label (its contract for control plane providers).
func (in Input) requiredRoots() []Want {
	ca := Want{
		Component: name.ComponentCA, Kind: Authority, CommonName: "kubernetes", Labels: in.ClusterAPI,
		Keys: [][2]string{{name.KeyCACert, name.KeyCAKey}, {name.KeyTLSCert, name.KeyTLSKey}},
	}
	if in.ClusterAPI != nil {
		ca.Type = name.SecretTypeClusterAPI
	}
	return []Want{ca, {
		Component: name.ComponentFrontProxyCA, Kind: Authority, CommonName: "front-proxy-ca",
		Keys: [][2]string{{name.KeyFrontProxyCACert, name.KeyFrontProxyCAKey}},
	}, {
		Component: name.ComponentServiceAccountKeys, Kind: KeyPair,
		Keys: [][2]string{{name.KeyServiceAccountPublic, name.KeyServiceAccountPrivate}},
	}}
}

// requiredClients are the client certificates of the control plane's own parts, which need no endpoint.
func (in Input) requiredClients() []Want {
	local := "https://" + net.JoinHostPort("127.0.0.1", in.port())
	return []Want{{
		Component: name.ComponentAPIServerKubeletClientCertificate, Signer: name.ComponentCA, Lifecycle: name.LifecycleX509,
		Credentials: []Credential{{
			CommonName: "kube-apiserver-kubelet-client", Organizations: []string{organizationAdmins}, Usage: x509.ExtKeyUsageClientAuth,
			CertKey: name.KeyAPIServerKubeletClientCert, KeyKey: name.KeyAPIServerKubeletClientKey,
		}},
	}, {
		Component: name.ComponentFrontProxyClientCertificate, Signer: name.ComponentFrontProxyCA, Lifecycle: name.LifecycleX509,
		Credentials: []Credential{{
			CommonName: "front-proxy-client", Usage: x509.ExtKeyUsageClientAuth,
			CertKey: name.KeyFrontProxyClientCert, KeyKey: name.KeyFrontProxyClientKey,
		}},
	}, {
		Component: name.ComponentControllerManagerKubeconfig, Signer: name.ComponentCA, Lifecycle: name.LifecycleKubeconfig,
		Credentials: []Credential{{
			CommonName: "system:kube-controller-manager", Usage: x509.ExtKeyUsageClientAuth,
			Kubeconfigs: []Kubeconfig{{name.KeyControllerManagerConf, in.Name, local}},
		}},
	}, {
		Component: name.ComponentSchedulerKubeconfig, Signer: name.ComponentCA, Lifecycle: name.LifecycleKubeconfig,
		Credentials: []Credential{{
			CommonName: "system:kube-scheduler", Usage: x509.ExtKeyUsageClientAuth,
			Kubeconfigs: []Kubeconfig{{name.KeySchedulerConf, in.Name, local}},
		}},
	}}
}

// requiredOfKonnectivity is what the konnectivity server shows the API server: a client certificate, and one in a kubeconfig, which
// is what it reads. Kamaji makes its user a member of system:masters; but all it does is have agents' tokens reviewed, which the
// add-ons allow it, and it is a server that strangers reach.
func (in Input) requiredOfKonnectivity() []Want {
	return []Want{{
		Component: name.ComponentKonnectivityCertificate, Signer: name.ComponentCA, Lifecycle: name.LifecycleX509, Type: corev1.SecretTypeTLS,
		Credentials: []Credential{{
			CommonName: name.KonnectivityUser, Usage: x509.ExtKeyUsageClientAuth, CertKey: name.KeyTLSCert, KeyKey: name.KeyTLSKey,
		}},
	}, {
		Component: name.ComponentKonnectivityKubeconfig, Signer: name.ComponentCA, Lifecycle: name.LifecycleKubeconfig,
		Credentials: []Credential{{
			CommonName: name.KonnectivityUser, Usage: x509.ExtKeyUsageClientAuth,
			Kubeconfigs: []Kubeconfig{{name.KeyKonnectivityConf, in.Name, "https://" + net.JoinHostPort("localhost", in.port())}},
		}},
	}}
}

// NeedsEndpoint reports whether a component's Secret can be made only once the endpoint is known.
func NeedsEndpoint(component string) bool {
	return component == name.ComponentAPIServerCertificate || component == name.ComponentAdminKubeconfig
}

// requiredOfEndpoint is what needs the endpoint: the API server's certificate, with these names, and the administrators'
// kubeconfigs.
func (in Input) requiredOfEndpoint(dns []string, ips []net.IP) []Want {
	at := func(key string) Kubeconfig { return Kubeconfig{key, in.Name, in.server(key)} }
	return []Want{{
		Component: name.ComponentAPIServerCertificate, Signer: name.ComponentCA, Lifecycle: name.LifecycleX509,
		Credentials: []Credential{{
			CommonName: "kube-apiserver", Usage: x509.ExtKeyUsageServerAuth, DNSNames: dns, IPs: ips,
			Spare:   []net.IP{net.ParseIP(in.Exposed.ClusterIP), in.spareAdvertised()},
			CertKey: name.KeyAPIServerCert, KeyKey: name.KeyAPIServerKey,
		}},
	}, {
		Component: name.ComponentAdminKubeconfig, Signer: name.ComponentCA, Lifecycle: name.LifecycleKubeconfig,
		Credentials: []Credential{{
			CommonName: "kubernetes-admin", Organizations: []string{organizationAdmins}, Usage: x509.ExtKeyUsageClientAuth,
			Kubeconfigs: []Kubeconfig{at(name.KeyAdminConf), at(name.KeyAdminSvc)},
		}, {
			CommonName: "kubernetes-super-admin", Organizations: []string{organizationMasters}, Usage: x509.ExtKeyUsageClientAuth,
			Kubeconfigs: []Kubeconfig{at(name.KeySuperAdminConf), at(name.KeySuperAdminSvc)},
		}},
	}}
}

// Generated is the Secret of a KubeconfigGenerator's kubeconfig for a user with groups. The tenant's endpoint must be known;
// endpointKey is the key of the administrators' Secret whose server it leads to.
func (in Input) Generated(generator, user string, groups []string, endpointKey string) Want {
	return Want{
		Component: name.ComponentGeneratedKubeconfig, Secret: name.GeneratedKubeconfig(in.Name, generator), Generator: generator,
		Kind: Issued, Signer: name.ComponentCA, Lifecycle: name.LifecycleKubeconfig,
		Credentials: []Credential{{
			CommonName: user, Organizations: groups, Usage: x509.ExtKeyUsageClientAuth,
			Kubeconfigs: []Kubeconfig{{name.KeyGeneratedKubeconfig, in.Name, in.server(endpointKey)}},
		}},
	}
}

func (in Input) port() string { return strconv.Itoa(int(in.Port)) }

// server is the URL in a kubeconfig of the administrators' Secret, once the endpoint is known.
func (in Input) server(key string) string {
	if key == name.KeyAdminConf || key == name.KeySuperAdminConf {
		return ServerURL(in.Published())
	}
	return "https://" + net.JoinHostPort(in.serviceName(), in.port())
}

// ServerURL is the URL of an endpoint, host:port.
func ServerURL(endpoint string) string { return (&url.URL{Scheme: "https", Host: endpoint}).String() }

// Published is where kubeconfigs lead, host:port, once the endpoint is known.
func (in Input) Published() string { return cmp.Or(in.Former, in.Exposed.Endpoint) }

// serviceName is how the Service is reached inside the management cluster.
func (in Input) serviceName() string { return name.ServiceHost(in.Name, in.Namespace) }

// spareAdvertised is the address that the API server announces, nil when the spec asks for it or the endpoint has it.
func (in Input) spareAdvertised() net.IP {
	e := in.Exposed
	if e.AdvertiseAddress == in.AdvertiseAddress || e.AdvertiseAddress == e.Address || strings.HasPrefix(e.Endpoint, net.JoinHostPort(e.AdvertiseAddress, "")) {
		return nil
	}
	return net.ParseIP(e.AdvertiseAddress)
}
