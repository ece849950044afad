package addons

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"slices"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/stoker-k8s/stoker/pkg/api/name"
	"github.com/stoker-k8s/stoker/pkg/api/v1alpha1"
	"github.com/stoker-k8s/stoker/pkg/kube"
	"github.com/stoker-k8s/stoker/pkg/metric"
)

// The label that every object applied by this service carries in the tenant. What does not carry it is never deleted.
const (
	LabelProject = "kamaji.clastix.io/project"
	Project      = "kamaji"
)

// Input is all that Render needs to know of a tenant, with defaults resolved.
type Input struct {
	Name      string // of the TenantControlPlane; kubeadm's cluster name
	Namespace string // of the TenantControlPlane

	Endpoint         string // host:port at which nodes and people reach the API server; a host without port gets Port
	AdvertiseAddress string // IP the API server advertises; its family decides kube-proxy's bind address
	Port             int32  // of the API server; 0 is 6443
	Version          string // of Kubernetes, with or without the leading v

	ClusterDomain string   // "" is cluster.local
	ServiceCIDRs  []string // one, or one of each family
	PodCIDRs      []string // one, or one of each family
	DNSServiceIPs []string // the kubelets' resolvers; none is kubeadm's choice, the tenth address of the first CIDR
	CACertPEM     []byte   // the tenant's CA, published in cluster-info
	CertSANs      []string // further names of the API server, for kubeadm-config
	KeyAlgorithm  string   // of the tenant's keys in kubeadm's words, such as ECDSA-P256; "" is kubeadm's RSA-2048

	CgroupDriver   string      // of the kubelets: systemd or cgroupfs; "" is systemd
	KubeletPatches []JSONPatch // applied to the KubeletConfiguration, in order
	KubeletServing bool        `json:",omitempty"` // kubelets ask the tenant for their serving certificates

	CoreDNS   *Addon // nil is off
	KubeProxy *Addon // nil is off

	Konnectivity *Konnectivity `json:",omitempty"` // nil is off

	WritePermissions v1alpha1.Permissions `json:",omitzero"` // which writes are blocked; the zero value is none
}

// JSONPatch is one operation of RFC 6902.
type JSONPatch struct {
	Op    string          `json:"op"`
	Path  string          `json:"path"`
	From  string          `json:"from,omitempty"`
	Value json.RawMessage `json:"value,omitempty"`
}

// Addon says where the image of CoreDNS or kube-proxy comes from; each empty field is kubeadm's choice by itself.
type Addon struct {
	ImageRepository string
	ImageTag        string
	Replicas        int32 // of CoreDNS; 0 is kubeadm's choice. A DaemonSet has none.
}

// InputError says which field of Input can't be rendered. No retry helps.
type InputError struct {
	Field string // as in Input, with an index where there is one
	Value string
	Err   error
}

func (e *InputError) Error() string { return fmt.Sprintf("%s %q: %v", e.Field, e.Value, e.Err) }
func (e *InputError) Unwrap() error { return e.Err }

// A component is a part of what exists inside a tenant.
type component struct {
	name    string
	enabled func(Input) bool
	render  func(*kubeadm) ([]*unstructured.Unstructured, error)
}

func always(Input) bool { return true }

func components() []component {
	return []component{
		{"rbac", always, (*kubeadm).rbac},
		{"kubeadm-config", always, (*kubeadm).kubeadmConfig},
		{"kubelet-config", always, (*kubeadm).kubeletConfig},
		{"cluster-info", always, (*kubeadm).clusterInfo},
		{"coredns", func(in Input) bool { return in.CoreDNS != nil }, (*kubeadm).coreDNS},
		{"kube-proxy", func(in Input) bool { return in.KubeProxy != nil }, (*kubeadm).kubeProxy},
		{"konnectivity", func(in Input) bool { return in.Konnectivity != nil }, (*kubeadm).konnectivity},
		{"kept-endpoints", always, (*kubeadm).keptEndpoints},
		{"write-permissions", func(in Input) bool { return in.WritePermissions.Any() }, (*kubeadm).writePermissions},
	}
}

// Render returns what must exist inside the tenant, in the order in which it can be applied. It touches nothing outside
// its argument, and the same input gives the same bytes. An error is an *InputError or a *PatchError unless kubeadm itself is at fault.
func Render(in Input) ([]*unstructured.Unstructured, error) {
	k, err := newKubeadm(in)
	if err != nil {
		return nil, err
	}
	var all []*unstructured.Unstructured
	for _, c := range components() {
		if !c.enabled(in) {
			continue
		}
		objs, err := c.render(k)
		if err != nil {
			return nil, fmt.Errorf("render %s: %w", c.name, err)
		}
		all = append(all, objs...)
	}
	for _, o := range all {
		clean(o)
	}
	slices.SortFunc(all, func(a, b *unstructured.Unstructured) int { return RefOf(a).compare(RefOf(b)) })
	return all, nil
}

// clean removes what the server decides and adds our label.
func clean(o *unstructured.Unstructured) {
	delete(o.Object, "status")
	if meta, ok := o.Object["metadata"].(map[string]any); ok {
		delete(meta, "creationTimestamp")
		delete(meta, "resourceVersion") // CoreDNS's Service has "0", which server-side apply refuses
		delete(meta, "ownerReferences")
	}
	labels := o.GetLabels()
	if labels == nil {
		labels = map[string]string{}
	}
	labels[LabelProject] = Project
	o.SetLabels(labels)
}

// Removed lists what an addon that is off, or limits of writes that are, may have left in the tenant. Cluster.Delete checks the label of
// each.
func Removed(in Input) []Ref {
	var refs []Ref
	if in.CoreDNS == nil {
		refs = append(refs,
			Ref{"Deployment", "kube-system", "coredns"},
			Ref{"Service", "kube-system", "kube-dns"},
			Ref{"ConfigMap", "kube-system", "coredns"},
			Ref{"ClusterRoleBinding", "", "system:coredns"},
			Ref{"ClusterRole", "", "system:coredns"},
			Ref{"ServiceAccount", "kube-system", "coredns"},
		)
	}
	if in.KubeProxy == nil {
		refs = append(refs,
			Ref{"DaemonSet", "kube-system", "kube-proxy"},
			Ref{"ConfigMap", "kube-system", "kube-proxy"},
			Ref{"RoleBinding", "kube-system", "kube-proxy"},
			Ref{"Role", "kube-system", "kube-proxy"},
			Ref{"ClusterRoleBinding", "", "kubeadm:node-proxier"},
			Ref{"ServiceAccount", "kube-system", "kube-proxy"},
		)
	}
	if !in.WritePermissions.Any() {
		refs = append(refs,
			Ref{kube.ValidatingAdmissionPolicyBindings.Kind, "", name.WritePermissions},
			Ref{kube.ValidatingAdmissionPolicies.Kind, "", name.WritePermissions},
		)
	}
	return append(refs, removedKonnectivity(in.Konnectivity)...)
}

// handlerOf is Kamaji's handler that makes an object, "" for what none of those does that it measures.
func handlerOf(r Ref) string {
	switch r.Name {
	case "kubeadm-config", "kubeadm:nodes-kubeadm-config":
		return metric.HandlerUploadConfigKubeadm
	case "kubelet-config", "kubeadm:kubelet-config":
		return metric.HandlerUploadConfigKubelet
	case "kubeadm:cluster-admins":
		return metric.HandlerClusterAdminRBAC
	case "coredns", "kube-dns", "system:coredns":
		return metric.HandlerCoreDNS
	case "kube-proxy", "kubeadm:node-proxier":
		return metric.HandlerKubeProxy
	case name.KonnectivityUser:
		return metric.HandlerKonnectivityClusterRoleBinding
	case name.KonnectivityAgent:
		if r.Kind == kube.ServiceAccounts.Kind {
			return metric.HandlerKonnectivityServiceAccount
		}
		return metric.HandlerKonnectivityAgent
	case name.WritePermissions, name.KeptEndpoints:
		return ""
	}
	return metric.HandlerBootstrapToken
}

// Hash is the same for two lists of objects exactly if applying one after the other changes nothing.
func Hash(objs []*unstructured.Unstructured) (string, error) {
	h := sha256.New()
	enc := json.NewEncoder(h)
	for _, o := range objs {
		if err := enc.Encode(o.Object); err != nil {
			return "", fmt.Errorf("hash %s: %w", RefOf(o), err)
		}
	}
	return hex.EncodeToString(h.Sum(nil)[:16]), nil
}

// Ref names an object inside a tenant. The kind alone is enough, as no two groups in use share one.
type Ref struct {
	Kind      string
	Namespace string // "" for cluster-scoped kinds
	Name      string
}

// RefOf is the reference of o.
func RefOf(o *unstructured.Unstructured) Ref {
	return Ref{o.GetKind(), o.GetNamespace(), o.GetName()}
}

// String is kind/namespace/name, or kind//name.
func (r Ref) String() string { return r.Kind + "/" + r.Namespace + "/" + r.Name }

func (r Ref) compare(s Ref) int {
	return cmp.Or(
		cmp.Compare(order(r.Kind), order(s.Kind)),
		cmp.Compare(r.Kind, s.Kind),
		cmp.Compare(r.Namespace, s.Namespace),
		cmp.Compare(r.Name, s.Name),
	)
}

// A kind is a resource this service applies.
type kind struct {
	kube.Resource
	runs bool // makes pods; applied when all they need is there
	// whole is for what is another thing with a field more: what others add to it, which server-side apply leaves to them, is taken away.
	whole bool
}

// kinds are all kinds this service applies, in the order in which they are applied.
var kinds = []kind{
	{Resource: kube.ServiceAccounts},
	{Resource: kube.ConfigMaps},
	{Resource: kube.ClusterRoles},
	{Resource: kube.ClusterRoleBindings},
	{Resource: kube.Roles},
	{Resource: kube.RoleBindings},
	{Resource: kube.Services},
	{Resource: kube.ValidatingAdmissionPolicies, whole: true},
	{Resource: kube.ValidatingAdmissionPolicyBindings, whole: true},
	{Resource: kube.DaemonSets, runs: true},
	{Resource: kube.Deployments, runs: true},
}

// order is the kind's place in kinds; a kind that isn't among them comes last.
func order(kindName string) int {
	if i := slices.IndexFunc(kinds, func(k kind) bool { return k.Kind == kindName }); i >= 0 {
		return i
	}
	return len(kinds)
}

// kind of the object.
func (r Ref) kind() (kind, error) {
	i := order(r.Kind)
	switch {
	case i == len(kinds):
		return kind{}, fmt.Errorf("%s: kind %q is not one this service applies", r, r.Kind)
	case r.Name == "" || kinds[i].Namespaced != (r.Namespace != ""):
		return kind{}, fmt.Errorf("%s: name or namespace missing or out of place", r)
	}
	return kinds[i], nil
}
