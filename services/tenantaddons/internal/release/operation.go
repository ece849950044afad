package release

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"path"
	"time"

	"helm.sh/helm/v4/pkg/action"
	"helm.sh/helm/v4/pkg/chart/common"
	helmkube "helm.sh/helm/v4/pkg/kube"
	"helm.sh/helm/v4/pkg/storage"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/discovery"
	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/rest"

	"github.com/stoker-k8s/stoker/pkg/kube"
)

// operation is something that is done with a release. It ends with the context it was begun with.
type operation struct {
	ID
	cluster *Cluster
	config  *rest.Config
	wire    *wire
	helm    *action.Configuration
	client  *client
	history *history
	timeout time.Duration

	// kinds are those that the tenant's API was found to have, failing the groups of it that don't answer.
	kinds        map[schema.GroupVersionKind]*kube.Resource
	failing      map[schema.GroupVersion]error
	capabilities *common.Capabilities
	// declared are the kinds of the release's own CRDs, whether they are there or not.
	declared map[schema.GroupVersionKind]*kube.Resource
}

// begin begins an operation. It doesn't ask the tenant anything.
func (c *Cluster) begin(ctx context.Context, id ID, timeout time.Duration) (*operation, error) {
	o := &operation{ID: id, cluster: c, config: c.kube.Config(ctx), wire: &wire{}, timeout: cmp.Or(timeout, defaultTimeout)}
	o.config.Transport = o.wire.note(o.config.Transport)
	core, err := corev1client.NewForConfig(o.config)
	if err != nil {
		return nil, err
	}
	o.client = newClient(ctx, o)
	o.history = newHistory(core.Secrets(id.Namespace), func() error { return o.makeNamespace(ctx) })
	o.helm = action.NewConfiguration(action.ConfigurationSetLogger(slog.DiscardHandler))
	o.helm.RESTClientGetter = getter{o.config}
	o.helm.KubeClient = o.client
	o.helm.Releases = storage.Init(o.history)
	o.helm.Releases.SetLogger(slog.DiscardHandler)
	o.helm.Releases.MaxHistory = maxHistory
	return o, nil
}

// getter gives Helm the configuration of an operation, for lookup in templates.
type getter struct{ config *rest.Config }

func (g getter) ToRESTConfig() (*rest.Config, error) { return g.config, nil }

func (g getter) ToDiscoveryClient() (discovery.CachedDiscoveryInterface, error) {
	return nil, errors.New("what the API serves is known already")
}

func (g getter) ToRESTMapper() (meta.RESTMapper, error) {
	return nil, errors.New("what the API serves is known already")
}

// discover finds out what the tenant's API serves.
func (o *operation) discover() error {
	d, err := discovery.NewDiscoveryClientForConfig(o.config)
	if err != nil {
		return err
	}
	version, err := d.ServerVersion()
	if err != nil {
		return err
	}
	groups, resources, err := d.ServerGroupsAndResources()
	failing := (*discovery.ErrGroupDiscoveryFailed)(nil)
	if err != nil && !errors.As(err, &failing) {
		return err
	}
	o.failing = map[schema.GroupVersion]error{}
	if failing != nil {
		o.failing = failing.Groups
	}
	o.kinds = map[schema.GroupVersionKind]*kube.Resource{}
	caps := &common.Capabilities{HelmVersion: common.DefaultCapabilities.HelmVersion, KubeVersion: common.KubeVersion{
		Version: version.GitVersion, Major: version.Major, Minor: version.Minor,
	}}
	for _, g := range groups {
		for _, v := range g.Versions {
			caps.APIVersions = append(caps.APIVersions, v.GroupVersion)
		}
	}
	o.capabilities, o.helm.Capabilities = caps, caps
	for _, list := range resources {
		gv, err := schema.ParseGroupVersion(list.GroupVersion)
		if err != nil {
			continue
		}
		for _, r := range list.APIResources {
			if path.Base(r.Name) == r.Name { // no subresource
				o.serve(kube.Resource{GroupVersion: gv, Plural: r.Name, Kind: r.Kind, Namespaced: r.Namespaced})
			}
		}
	}
	return nil
}

// serve notes that the tenant's API serves a kind, for an operation that asks what it serves.
func (o *operation) serve(r kube.Resource) {
	if o.kinds == nil {
		return
	}
	kind := r.GroupVersion.WithKind(r.Kind)
	if o.kinds[kind] == nil {
		o.kinds[kind] = &r
	}
	if id := path.Join(r.GroupVersion.String(), r.Kind); o.capabilities != nil {
		o.capabilities.APIVersions = append(o.capabilities.APIVersions, id)
	}
}

// errNoKind means that the tenant's API doesn't serve a kind.
var errNoKind = errors.New("the tenant's API has no such kind")

// resource is where the tenant's API has a kind, which is asked for that only if no release had an object of it; errNoKind when it doesn't
// have it.
func (o *operation) resource(kind schema.GroupVersionKind) (*kube.Resource, error) {
	o.cluster.mu.Lock()
	known := o.cluster.kinds[kind]
	o.cluster.mu.Unlock()
	if o.kinds == nil && known != nil {
		return known, nil
	}
	if o.kinds == nil {
		if err := o.discover(); err != nil {
			return nil, err
		}
	}
	found := o.kinds[kind]
	if found == nil {
		found = o.declared[kind]
	}
	if found == nil {
		if err := o.failing[kind.GroupVersion()]; err != nil {
			return nil, unavailable(fmt.Errorf("what it serves of %s isn't known now: %w", kind.GroupVersion(), err))
		}
		return nil, errNoKind
	}
	if known != nil && *known == *found {
		return known, nil
	}
	o.cluster.mu.Lock()
	defer o.cluster.mu.Unlock()
	o.cluster.kinds[kind] = found
	return found, nil
}

// makeNamespace makes the release's namespace: as the release's own if it is among its objects, else as nobody's, which is never deleted.
func (o *operation) makeNamespace(ctx context.Context) error {
	if own := o.client.ownNamespace(o.Namespace); own != nil {
		body, err := own.MarshalJSON()
		if err != nil {
			return err
		}
		return o.cluster.kube.ApplyRaw(ctx, kube.Namespaces, "", o.Namespace, body, nil)
	}
	err := o.cluster.kube.Create(ctx, kube.Namespaces, &metav1.PartialObjectMetadata{
		TypeMeta: kube.Namespaces.TypeMeta(), ObjectMeta: metav1.ObjectMeta{Name: o.Namespace},
	})
	if apierrors.IsAlreadyExists(err) {
		return nil
	}
	return err
}

var _ helmkube.Interface = (*client)(nil)
