// Package release keeps Helm releases in a tenant: it installs, upgrades, repairs, watches and uninstalls them, over one connection to the
// tenant's API.
//
// What is rendered, in which order it is applied, hooks and the history are Helm's. Its client is wrapped (objects.go): objects are made of
// manifests without Helm's downloads of OpenAPI documents, hooks are waited for by watches, and all that is done ends with its context and is
// fenced by it. Errors are an [*Error], [intent.Unavailable], [fence.ErrFenced], or that of the context.
//
// Nobody but the caller may work on a tenant's releases meanwhile: what is found half done was interrupted, and is gone on with.
package release

import (
	"sync"
	"time"

	chart "helm.sh/helm/v4/pkg/chart/v2"
	helmkube "helm.sh/helm/v4/pkg/kube"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/stoker-k8s/stoker/pkg/api/name"
	"github.com/stoker-k8s/stoker/pkg/kube"
)

// Cluster is a tenant's API. It is safe for concurrent use, but for two calls about the same release.
type Cluster struct {
	kube *kube.Client

	mu sync.Mutex
	// kinds are those that releases had objects of.
	kinds map[schema.GroupVersionKind]*kube.Resource
}

// setFieldManager has Helm apply objects under our name; it has one for the process.
var setFieldManager = sync.OnceFunc(func() { helmkube.ManagedFieldsManager = name.FieldManagerTenantAddons })

// Open makes a Cluster of a kubeconfig with embedded certificates, such as super-admin.conf. It doesn't connect yet.
func Open(kubeconfig []byte, o kube.Options) (*Cluster, error) {
	setFieldManager()
	o.FieldManager = name.FieldManagerTenantAddons
	k, err := kube.ForTenant(kubeconfig, o)
	if err != nil {
		return nil, err
	}
	return &Cluster{kube: k, kinds: map[schema.GroupVersionKind]*kube.Resource{}}, nil
}

// Close ends the connection once no request uses it. End watches first.
func (c *Cluster) Close() { c.kube.Close() }

// ID is which release is meant, and for which TenantAddon.
type ID struct {
	// Name and Namespace of the Helm release.
	Name, Namespace string
	// Addon is the TenantAddon; its name is a label of the release and of all objects.
	Addon types.NamespacedName
}

// Release is a release as it is to be.
type Release struct {
	ID
	// Chart isn't changed: it may be used for several tenants at a time.
	Chart *chart.Chart
	// CRDs beside those in the chart's crds/. They go with the release, while those of a chart stay, as they do with Helm.
	CRDs []*unstructured.Unstructured
	// Values aren't changed.
	Values map[string]any
	// Timeout of each hook; 0 for 5 minutes.
	Timeout time.Duration
}

// defaultTimeout is Release.Timeout where none is given.
const defaultTimeout = 5 * time.Minute

// maxHistory is how many revisions of a release there are at most.
const maxHistory = 3
