package kube

import (
	"context"
	"fmt"
	"net/url"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/stoker-k8s/stoker/pkg/api/controlplane"
	"github.com/stoker-k8s/stoker/pkg/api/tenantaddon"
)

// Resource is where objects of a kind are found.
type Resource struct {
	GroupVersion schema.GroupVersion
	// Plural is the resource's name in paths ("deployments").
	Plural     string
	Kind       string
	Namespaced bool
}

// Resources Stoker works with.
var (
	Secrets                  = Resource{schema.GroupVersion{Version: "v1"}, "secrets", "Secret", true}
	ConfigMaps               = Resource{schema.GroupVersion{Version: "v1"}, "configmaps", "ConfigMap", true}
	Services                 = Resource{schema.GroupVersion{Version: "v1"}, "services", "Service", true}
	ServiceAccounts          = Resource{schema.GroupVersion{Version: "v1"}, "serviceaccounts", "ServiceAccount", true}
	PersistentVolumeClaims   = Resource{schema.GroupVersion{Version: "v1"}, "persistentvolumeclaims", "PersistentVolumeClaim", true}
	Nodes                    = Resource{schema.GroupVersion{Version: "v1"}, "nodes", "Node", false}
	Pods                     = Resource{schema.GroupVersion{Version: "v1"}, "pods", "Pod", true}
	Namespaces               = Resource{schema.GroupVersion{Version: "v1"}, "namespaces", "Namespace", false}
	Deployments              = Resource{schema.GroupVersion{Group: "apps", Version: "v1"}, "deployments", "Deployment", true}
	DaemonSets               = Resource{schema.GroupVersion{Group: "apps", Version: "v1"}, "daemonsets", "DaemonSet", true}
	EndpointSlices           = Resource{schema.GroupVersion{Group: "discovery.k8s.io", Version: "v1"}, "endpointslices", "EndpointSlice", true}
	Ingresses                = Resource{schema.GroupVersion{Group: "networking.k8s.io", Version: "v1"}, "ingresses", "Ingress", true}
	Gateways                 = Resource{schema.GroupVersion{Group: "gateway.networking.k8s.io", Version: "v1"}, "gateways", "Gateway", true}
	TLSRoutes                = Resource{schema.GroupVersion{Group: "gateway.networking.k8s.io", Version: "v1"}, "tlsroutes", "TLSRoute", true}
	Roles                    = Resource{schema.GroupVersion{Group: "rbac.authorization.k8s.io", Version: "v1"}, "roles", "Role", true}
	RoleBindings             = Resource{schema.GroupVersion{Group: "rbac.authorization.k8s.io", Version: "v1"}, "rolebindings", "RoleBinding", true}
	ClusterRoles             = Resource{schema.GroupVersion{Group: "rbac.authorization.k8s.io", Version: "v1"}, "clusterroles", "ClusterRole", false}
	ClusterRoleBindings      = Resource{schema.GroupVersion{Group: "rbac.authorization.k8s.io", Version: "v1"}, "clusterrolebindings", "ClusterRoleBinding", false}
	SigningRequests          = Resource{schema.GroupVersion{Group: "certificates.k8s.io", Version: "v1"}, "certificatesigningrequests", "CertificateSigningRequest", false}
	TokenReviews             = Resource{schema.GroupVersion{Group: "authentication.k8s.io", Version: "v1"}, "tokenreviews", "TokenReview", false}
	SubjectAccessReviews     = Resource{schema.GroupVersion{Group: "authorization.k8s.io", Version: "v1"}, "subjectaccessreviews", "SubjectAccessReview", false}
	SelfSubjectAccessReviews = Resource{schema.GroupVersion{Group: "authorization.k8s.io", Version: "v1"}, "selfsubjectaccessreviews", "SelfSubjectAccessReview", false}
	TenantControlPlanes      = Resource{schema.GroupVersion{Group: "kamaji.clastix.io", Version: "v1alpha1"}, "tenantcontrolplanes", "TenantControlPlane", true}
	DataStores               = Resource{schema.GroupVersion{Group: "kamaji.clastix.io", Version: "v1alpha1"}, "datastores", "DataStore", false}
	KubeconfigGenerators     = Resource{schema.GroupVersion{Group: "kamaji.clastix.io", Version: "v1alpha1"}, "kubeconfiggenerators", "KubeconfigGenerator", false}
)

// Kinds of Cluster API, and how kinds are defined.
var (
	Clusters                  = Resource{schema.GroupVersion{Group: "cluster.x-k8s.io", Version: "v1beta2"}, "clusters", "Cluster", true}
	KamajiControlPlanes       = Resource{controlplane.GroupVersion, "kamajicontrolplanes", "KamajiControlPlane", true}
	CustomResourceDefinitions = Resource{schema.GroupVersion{Group: "apiextensions.k8s.io", Version: "v1"}, "customresourcedefinitions", "CustomResourceDefinition", false}
)

// Kinds of Stoker's own.
var (
	TenantAddons  = Resource{tenantaddon.GroupVersion, "tenantaddons", "TenantAddon", true}
	AddonReleases = Resource{tenantaddon.GroupVersion, "addonreleases", "AddonRelease", true}
)

// Admission policies and webhooks of a cluster, to which no policy and no webhook applies.
var (
	admission                         = schema.GroupVersion{Group: "admissionregistration.k8s.io", Version: "v1"}
	ValidatingAdmissionPolicies       = Resource{admission, "validatingadmissionpolicies", "ValidatingAdmissionPolicy", false}
	ValidatingAdmissionPolicyBindings = Resource{admission, "validatingadmissionpolicybindings", "ValidatingAdmissionPolicyBinding", false}
	ValidatingWebhookConfigurations   = Resource{admission, "validatingwebhookconfigurations", "ValidatingWebhookConfiguration", false}
	MutatingWebhookConfigurations     = Resource{admission, "mutatingwebhookconfigurations", "MutatingWebhookConfiguration", false}
)

// filtered reports whether objects of a kind carry [name.LabelWatchFilter] where several installations share a cluster.
func (r Resource) filtered() bool {
	switch r.GroupVersion.Group {
	case TenantControlPlanes.GroupVersion.Group, KamajiControlPlanes.GroupVersion.Group, TenantAddons.GroupVersion.Group:
		return true
	}
	return false
}

// Path of an object, or of the collection when name is empty; of all namespaces when namespace is empty.
func (r Resource) Path(namespace, name string) string {
	p := "/apis/" + r.GroupVersion.Group + "/" + r.GroupVersion.Version
	if r.GroupVersion.Group == "" {
		p = "/api/" + r.GroupVersion.Version
	}
	if r.Namespaced && namespace != "" {
		p += "/namespaces/" + url.PathEscape(namespace)
	}
	p += "/" + r.Plural
	if name != "" {
		p += "/" + url.PathEscape(name)
	}
	return p
}

// TypeMeta of the resource's objects.
func (r Resource) TypeMeta() metav1.TypeMeta {
	return metav1.TypeMeta{APIVersion: r.GroupVersion.String(), Kind: r.Kind}
}

// Find is where the server has objects of a kind; [NoKindError] when it has none such.
func (c *Client) Find(ctx context.Context, of schema.GroupVersionKind) (Resource, error) {
	gv := of.GroupVersion()
	served := &metav1.APIResourceList{}
	path := strings.TrimSuffix(Resource{GroupVersion: gv}.Path("", ""), "/")
	if err := c.Document(ctx, path, served); err != nil && !apierrors.IsNotFound(err) {
		return Resource{}, err
	}
	for _, r := range served.APIResources {
		if r.Kind == of.Kind && !strings.Contains(r.Name, "/") {
			return Resource{gv, r.Name, r.Kind, r.Namespaced}, nil
		}
	}
	return Resource{}, &NoKindError{of}
}

// NoKindError means that a server doesn't have a kind. It passes when the kind is defined.
type NoKindError struct{ Kind schema.GroupVersionKind }

func (e *NoKindError) Error() string {
	return fmt.Sprintf("kind %s of %s isn't defined there", e.Kind.Kind, e.Kind.GroupVersion())
}
