package release

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"strings"
	"time"

	helmkube "helm.sh/helm/v4/pkg/kube"
	release "helm.sh/helm/v4/pkg/release/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/yaml"
	"k8s.io/cli-runtime/pkg/resource"
	"k8s.io/client-go/rest"

	"github.com/stoker-k8s/stoker/pkg/api/name"
	"github.com/stoker-k8s/stoker/pkg/api/tenantaddon"
	"github.com/stoker-k8s/stoker/pkg/kube"
)

// Ref names an object in a tenant.
type Ref struct {
	Group, Kind, Namespace, Name string
}

// String is <kind> <namespace>/<name>, or <kind> <name>.
func (r Ref) String() string {
	if r.Namespace == "" {
		return r.Kind + " " + r.Name
	}
	return r.Kind + " " + r.Namespace + "/" + r.Name
}

func refOf(o *unstructured.Unstructured) Ref {
	return Ref{o.GroupVersionKind().Group, o.GetKind(), o.GetNamespace(), o.GetName()}
}

// What Helm puts on the objects of a release, beside what is in its manifest.
const (
	labelManagedBy             = "app.kubernetes.io/managed-by"
	managedByHelm              = "Helm"
	annotationReleaseName      = "meta.helm.sh/release-name"
	annotationReleaseNamespace = "meta.helm.sh/release-namespace"
)

// own puts on an object what Helm and we put on the objects of a release.
func (id ID) own(o *unstructured.Unstructured) {
	id.label(o)
	o.SetLabels(with(o.GetLabels(), labelManagedBy, managedByHelm))
	o.SetAnnotations(with(with(o.GetAnnotations(), annotationReleaseName, id.Name), annotationReleaseNamespace, id.Namespace))
}

// label puts on an object what we put on those of a release.
func (id ID) label(o *unstructured.Unstructured) {
	o.SetLabels(with(with(o.GetLabels(), name.LabelTenantAddon, id.Addon.Name), name.LabelTenantAddonNamespace, id.Addon.Namespace))
}

func with(set map[string]string, key, value string) map[string]string {
	if set == nil {
		set = map[string]string{}
	}
	set[key] = value
	return set
}

// owns reports whether an object is the release's, by what own puts on it.
func (id ID) owns(o metav1.Object) bool {
	annotations, labels := o.GetAnnotations(), o.GetLabels()
	return labels[labelManagedBy] == managedByHelm && annotations[annotationReleaseName] == id.Name &&
		annotations[annotationReleaseNamespace] == id.Namespace
}

// parse reads the objects of a manifest, those of lists one by one.
func parse(manifest io.Reader) ([]*unstructured.Unstructured, error) {
	var all []*unstructured.Unstructured
	documents := yaml.NewYAMLOrJSONDecoder(manifest, 4096)
	for {
		o := &unstructured.Unstructured{}
		if err := documents.Decode(&o.Object); errors.Is(err, io.EOF) {
			return all, nil
		} else if err != nil {
			return nil, newError(tenantaddon.ReasonRenderFailed, err, "what is rendered is no YAML: %v", err)
		}
		switch {
		case len(o.Object) == 0:
			continue
		case o.IsList():
			err := o.EachListItem(func(item runtime.Object) error {
				all = append(all, item.(*unstructured.Unstructured))
				return nil
			})
			if err != nil {
				return nil, newError(tenantaddon.ReasonRenderFailed, err, "a list among what is rendered: %v", err)
			}
		default:
			all = append(all, o)
		}
	}
}

// place completes an object's namespace and finds its kind's place; errNoKind when the tenant's API doesn't have it.
func (o *operation) place(u *unstructured.Unstructured) (*kube.Resource, error) {
	kind := u.GroupVersionKind()
	if kind.Kind == "" || kind.Version == "" || u.GetName() == "" && u.GetGenerateName() == "" {
		return nil, newError(tenantaddon.ReasonRenderFailed, nil,
			"an object among what is rendered has no apiVersion, kind or name: %s %s", kind.Kind, u.GetName())
	}
	r, err := o.resource(kind)
	if err != nil {
		return nil, err
	}
	switch {
	case !r.Namespaced:
		u.SetNamespace("")
	case u.GetNamespace() == "":
		u.SetNamespace(o.Namespace)
	}
	return r, nil
}

// client is Helm's client of the tenant's API.
type client struct {
	*helmkube.Client
	operation *operation
	waiter    *waiter
	clients   map[schema.GroupVersion]resource.RESTClient
	// built are the objects of the latest manifest that is to be applied, hooks apart.
	built []*resource.Info
	// applied are the fields of objects that were applied, as [fieldsOf] has them.
	applied map[Ref]uint64
	// undeleted is what Delete returned; Helm drops it.
	undeleted []error
}

func newClient(ctx context.Context, o *operation) *client {
	c := &client{
		Client: &helmkube.Client{}, operation: o, clients: map[schema.GroupVersion]resource.RESTClient{},
		applied: map[Ref]uint64{},
		waiter: &waiter{hook: func(r *kube.Resource, u *unstructured.Unstructured, timeout time.Duration) error {
			return o.awaitHook(ctx, r, u, timeout)
		}, gone: func(r *kube.Resource, u *unstructured.Unstructured, timeout time.Duration) error {
			return o.awaitGone(ctx, r, u, timeout, tenantaddon.ReasonHookFailed, fmt.Sprintf("hook %s of an earlier time", refOf(u)))
		}},
	}
	c.SetLogger(slog.DiscardHandler)
	return c
}

// Build makes objects of a manifest. validate is true of what is to be applied: this must be of kinds that the API has. What there was of
// kinds that are no more is gone with them.
func (c *client) Build(manifest io.Reader, validate bool) (helmkube.ResourceList, error) {
	objects, err := parse(manifest)
	if err != nil {
		return nil, err
	}
	var list helmkube.ResourceList
	hooks := false
	for _, u := range objects {
		r, err := c.operation.place(u)
		if errors.Is(err, errNoKind) {
			if !validate {
				continue
			}
			return nil, newError(tenantaddon.ReasonRefused, err, "%s: the tenant's API has no kind %s of %s", refOf(u), u.GetKind(), u.GetAPIVersion())
		}
		if err != nil {
			return nil, err
		}
		if u.GetAnnotations()[release.HookAnnotation] != "" {
			hooks = true
		} else {
			c.operation.label(u)
		}
		api, err := c.of(r.GroupVersion)
		if err != nil {
			return nil, err
		}
		list = append(list, &resource.Info{
			Client: api, Namespace: u.GetNamespace(), Name: u.GetName(), Object: u, Mapping: mapping(r),
		})
	}
	if validate && !hooks {
		c.built = list
	}
	return list, nil
}

func mapping(r *kube.Resource) *meta.RESTMapping {
	scope := meta.RESTScopeRoot
	if r.Namespaced {
		scope = meta.RESTScopeNamespace
	}
	return &meta.RESTMapping{Resource: r.GroupVersion.WithResource(r.Plural), GroupVersionKind: r.GroupVersion.WithKind(r.Kind), Scope: scope}
}

// resourceOf is mapping the other way.
func resourceOf(info *resource.Info) *kube.Resource {
	m := info.Mapping
	return &kube.Resource{
		GroupVersion: m.GroupVersionKind.GroupVersion(), Plural: m.Resource.Resource, Kind: m.GroupVersionKind.Kind,
		Namespaced: m.Scope.Name() == meta.RESTScopeNameNamespace,
	}
}

// of is a client of a group and version.
func (c *client) of(gv schema.GroupVersion) (resource.RESTClient, error) {
	if made := c.clients[gv]; made != nil {
		return made, nil
	}
	config := rest.CopyConfig(c.operation.config)
	config.ContentConfig = resource.UnstructuredPlusDefaultContentConfig()
	config.GroupVersion, config.APIPath = &gv, "/apis"
	if gv.Group == "" {
		config.APIPath = "/api"
	}
	made, err := rest.RESTClientFor(config)
	if err != nil {
		return nil, err
	}
	c.clients[gv] = made
	return made, nil
}

// ownNamespace is a namespace's object among those that are to be applied, as Helm applies it; nil for none.
func (c *client) ownNamespace(of string) *unstructured.Unstructured {
	for _, info := range c.built {
		if u, ok := info.Object.(*unstructured.Unstructured); ok && info.Name == of && refOf(u) == (Ref{Kind: "Namespace", Name: of}) {
			own := u.DeepCopy()
			c.operation.own(own)
			return own
		}
	}
	return nil
}

// Create applies objects that aren't there.
func (c *client) Create(list helmkube.ResourceList, options ...helmkube.ClientCreateOption) (*helmkube.Result, error) {
	if len(list) == 0 { // which Helm takes for an error
		return &helmkube.Result{}, nil
	}
	result, err := c.Client.Create(list, options...)
	c.learn(list)
	return result, err
}

// Update applies objects, and deletes those that are no more.
func (c *client) Update(from, to helmkube.ResourceList, options ...helmkube.ClientUpdateOption) (*helmkube.Result, error) {
	result, err := c.Client.Update(from, to, options...)
	c.learn(to)
	return result, err
}

// learn notes objects as they are after they were applied.
func (c *client) learn(list helmkube.ResourceList) {
	for _, info := range list {
		if u, ok := info.Object.(*unstructured.Unstructured); ok {
			c.applied[refOf(u)] = fieldsOf(u)
		}
	}
}

// Delete deletes objects, and keeps what is in the way.
func (c *client) Delete(list helmkube.ResourceList, policy metav1.DeletionPropagation) (*helmkube.Result, []error) {
	if len(list) == 0 { // which Helm takes for an error
		return &helmkube.Result{}, nil
	}
	deleted, errs := c.Client.Delete(list, policy)
	c.undeleted = append(c.undeleted, errs...)
	return deleted, errs
}

// IsReachable says nothing: the first request finds out.
func (c *client) IsReachable() error { return nil }

// GetWaiter returns what waits for hooks, and for nothing else.
func (c *client) GetWaiter(helmkube.WaitStrategy) (helmkube.Waiter, error) { return c.waiter, nil }

// GetWaiterWithOptions is GetWaiter.
func (c *client) GetWaiterWithOptions(helmkube.WaitStrategy, ...helmkube.WaitOption) (helmkube.Waiter, error) {
	return c.waiter, nil
}

// GetPodList finds no pods: logs of hooks are nobody's to read here.
func (c *client) GetPodList(string, metav1.ListOptions) (*corev1.PodList, error) {
	return &corev1.PodList{}, nil
}

// OutputContainerLogsForPodList writes nothing.
func (c *client) OutputContainerLogsForPodList(*corev1.PodList, string, func(_, _, _ string) io.Writer) error {
	return nil
}

// BuildTable isn't asked for.
func (c *client) BuildTable(io.Reader, bool) (helmkube.ResourceList, error) {
	return nil, errors.New("objects aren't read as tables")
}

// manifestOf are the objects of a revision's manifest in their order, in their namespaces; those of kinds that are no more are left out.
func (o *operation) manifestOf(r *release.Release) ([]placed, error) {
	return o.placeAll(strings.NewReader(r.Manifest))
}

// placed is an object and where its kind is.
type placed struct {
	*unstructured.Unstructured
	resource *kube.Resource
}

func (o *operation) placeAll(manifest io.Reader) ([]placed, error) {
	objects, err := parse(manifest)
	if err != nil {
		return nil, err
	}
	var all []placed
	for _, u := range objects {
		r, err := o.place(u)
		if errors.Is(err, errNoKind) {
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("%s: %w", refOf(u), err)
		}
		all = append(all, placed{u, r})
	}
	return all, nil
}

// body is an object as it is applied.
func body(u *unstructured.Unstructured) ([]byte, error) {
	data, err := u.MarshalJSON()
	return bytes.TrimSpace(data), err
}

// get reads an object.
func (c *Cluster) get(ctx context.Context, r *kube.Resource, namespace, object string) (*unstructured.Unstructured, error) {
	var raw json.RawMessage
	if err := c.kube.Get(ctx, *r, namespace, object, &raw); err != nil {
		return nil, err
	}
	u := &unstructured.Unstructured{}
	return u, u.UnmarshalJSON(raw) // which makes integers of numbers
}
