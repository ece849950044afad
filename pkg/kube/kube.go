// Package kube talks to Kubernetes API servers, the management cluster's and the tenants': server-side apply with one
// field manager per service, metadata-only watches of the partitions a replica holds, kubeconfigs. It encodes typed
// objects as JSON and needs neither scheme nor discovery, so that a client costs a connection and little else.
package kube

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	utilnet "k8s.io/apimachinery/pkg/util/net"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/stoker-k8s/stoker/pkg/api/name"
	"github.com/stoker-k8s/stoker/pkg/fence"
	"github.com/stoker-k8s/stoker/pkg/health"
	"github.com/stoker-k8s/stoker/pkg/intent"
)

// Dependency is the name under which the management API appears on /readyz.
const Dependency = "kubernetes"

// requestTimeout bounds every request but watches.
const requestTimeout = 10 * time.Second

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
	Secrets              = Resource{schema.GroupVersion{Version: "v1"}, "secrets", "Secret", true}
	ConfigMaps           = Resource{schema.GroupVersion{Version: "v1"}, "configmaps", "ConfigMap", true}
	Services             = Resource{schema.GroupVersion{Version: "v1"}, "services", "Service", true}
	ServiceAccounts      = Resource{schema.GroupVersion{Version: "v1"}, "serviceaccounts", "ServiceAccount", true}
	Pods                 = Resource{schema.GroupVersion{Version: "v1"}, "pods", "Pod", true}
	Namespaces           = Resource{schema.GroupVersion{Version: "v1"}, "namespaces", "Namespace", false}
	Deployments          = Resource{schema.GroupVersion{Group: "apps", Version: "v1"}, "deployments", "Deployment", true}
	DaemonSets           = Resource{schema.GroupVersion{Group: "apps", Version: "v1"}, "daemonsets", "DaemonSet", true}
	Ingresses            = Resource{schema.GroupVersion{Group: "networking.k8s.io", Version: "v1"}, "ingresses", "Ingress", true}
	Gateways             = Resource{schema.GroupVersion{Group: "gateway.networking.k8s.io", Version: "v1"}, "gateways", "Gateway", true}
	TLSRoutes            = Resource{schema.GroupVersion{Group: "gateway.networking.k8s.io", Version: "v1"}, "tlsroutes", "TLSRoute", true}
	Roles                = Resource{schema.GroupVersion{Group: "rbac.authorization.k8s.io", Version: "v1"}, "roles", "Role", true}
	RoleBindings         = Resource{schema.GroupVersion{Group: "rbac.authorization.k8s.io", Version: "v1"}, "rolebindings", "RoleBinding", true}
	ClusterRoles         = Resource{schema.GroupVersion{Group: "rbac.authorization.k8s.io", Version: "v1"}, "clusterroles", "ClusterRole", false}
	ClusterRoleBindings  = Resource{schema.GroupVersion{Group: "rbac.authorization.k8s.io", Version: "v1"}, "clusterrolebindings", "ClusterRoleBinding", false}
	TenantControlPlanes  = Resource{schema.GroupVersion{Group: "kamaji.clastix.io", Version: "v1alpha1"}, "tenantcontrolplanes", "TenantControlPlane", true}
	DataStores           = Resource{schema.GroupVersion{Group: "kamaji.clastix.io", Version: "v1alpha1"}, "datastores", "DataStore", false}
	KubeconfigGenerators = Resource{schema.GroupVersion{Group: "kamaji.clastix.io", Version: "v1alpha1"}, "kubeconfiggenerators", "KubeconfigGenerator", false}
)

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

// Client is a connection to one API server. It is safe for concurrent use.
type Client struct {
	base    string
	http    *http.Client
	watches *http.Client
	manager string
	health  *health.Health
	scope   Options
}

// Options of a client.
type Options struct {
	// FieldManager owns the fields this client applies ("stoker-certs").
	FieldManager string
	// Health is told whether the API server answers; nil for tenants' API servers.
	Health *health.Health
	// Namespace limits lists and watches of namespaced resources to one namespace; empty: all.
	Namespace string
	// WatchFilter limits lists and watches of Kamaji's kinds to the objects whose label name.LabelWatchFilter has this
	// value; empty: all. Several installations share a management cluster that way.
	WatchFilter string
}

// Connect makes a client from a kubeconfig file; empty means the Pod's own service account.
func Connect(kubeconfig string, o Options) (*Client, error) {
	if kubeconfig == "" {
		cfg, err := rest.InClusterConfig()
		if err != nil {
			return nil, fmt.Errorf("no kubeconfig given and not in a cluster: %w", err)
		}
		return New(cfg, o)
	}
	data, err := os.ReadFile(kubeconfig)
	if err != nil {
		return nil, fmt.Errorf("kubeconfig: %w", err)
	}
	return FromKubeconfig(data, o)
}

// FromKubeconfig makes a client from the content of a kubeconfig.
func FromKubeconfig(data []byte, o Options) (*Client, error) {
	cfg, err := clientcmd.RESTConfigFromKubeConfig(data)
	if err != nil {
		return nil, fmt.Errorf("kubeconfig: %w", err)
	}
	return New(cfg, o)
}

// New makes a client from a configuration of client-go.
func New(cfg *rest.Config, o Options) (*Client, error) {
	cfg = rest.CopyConfig(cfg)
	cfg.QPS = -1
	if cfg.UserAgent == "" {
		cfg.UserAgent = o.FieldManager
	}
	transport, err := rest.TransportFor(cfg)
	if err != nil {
		return nil, fmt.Errorf("connection to %s: %w", cfg.Host, err)
	}
	base, _, err := rest.DefaultServerUrlFor(cfg)
	if err != nil {
		return nil, fmt.Errorf("server address %q: %w", cfg.Host, err)
	}
	return &Client{
		base: strings.TrimSuffix(base.String(), "/"), manager: o.FieldManager, health: o.Health, scope: o,
		http: &http.Client{Transport: fenced{transport}, Timeout: requestTimeout}, watches: &http.Client{Transport: transport},
	}, nil
}

// fenced lets no write of a replica that lost its lease onto the wire, however long it waited for a connection.
type fenced struct{ http.RoundTripper }

func (f fenced) RoundTrip(req *http.Request) (*http.Response, error) {
	if req.Method != http.MethodGet {
		if err := fence.Check(req.Context()); err != nil {
			return nil, err
		}
	}
	return f.RoundTripper.RoundTrip(req)
}

// CloseIdleConnections makes http.Client.CloseIdleConnections reach the transport, below what client-go wraps it in.
func (f fenced) CloseIdleConnections() { utilnet.CloseIdleConnectionsFor(f.RoundTripper) }

// Close drops idle connections.
func (c *Client) Close() { c.http.CloseIdleConnections() }

// Apply makes the fields of an object so (server-side apply, force) and decodes the result into obj. obj is a pointer to
// a typed object or to a map; namespace and name are its metadata's. Errors are those of apimachinery's errors package,
// *intent.Unavailable when the server can't be reached, and fence.ErrFenced.
func (c *Client) Apply(ctx context.Context, r Resource, obj metav1.Object) error {
	body, err := applyBody(r, obj)
	if err != nil {
		return err
	}
	return c.apply(ctx, r.Path(obj.GetNamespace(), obj.GetName()), body, obj)
}

// ApplyStatus is Apply for the status subresource.
func (c *Client) ApplyStatus(ctx context.Context, r Resource, namespace, name string, status any) error {
	body, err := json.Marshal(map[string]any{
		"apiVersion": r.GroupVersion.String(), "kind": r.Kind,
		"metadata": map[string]any{"name": name, "namespace": namespace}, "status": status,
	})
	if err != nil {
		return err
	}
	return c.apply(ctx, r.Path(namespace, name)+"/status", body, nil)
}

// ApplyRaw applies the JSON or YAML of an object, no key twice, and decodes the result into out, unless nil; a *json.RawMessage
// is given it as it is, here as elsewhere.
func (c *Client) ApplyRaw(ctx context.Context, r Resource, namespace, name string, body []byte, out any) error {
	return c.apply(ctx, r.Path(namespace, name), body, out)
}

func (c *Client) apply(ctx context.Context, path string, body []byte, out any) error {
	// The server reads an apply as YAML. Its parser takes what begins and ends on one line for a possible key, and keeps all
	// of it until it knows better; with a line break it needs half the memory.
	if rest, ok := bytes.CutPrefix(body, []byte("{")); ok {
		body = append([]byte("{\n"), rest...)
	}
	// An apply with fields that the server doesn't know is always refused. Strict would have it read the YAML a second time,
	// for keys that are given twice, which our JSON has not.
	return c.do(ctx, http.MethodPatch, path+"?force=true&fieldValidation=Ignore&fieldManager="+url.QueryEscape(c.manager), string(types.ApplyPatchType), body, out)
}

// applyBody encodes an object without what a field manager must not claim: status and the server's own metadata.
func applyBody(r Resource, obj any) ([]byte, error) {
	data, err := json.Marshal(obj)
	if err != nil {
		return nil, err
	}
	var m map[string]any
	if err := json.Unmarshal(data, &m); err != nil {
		return nil, err
	}
	m["apiVersion"], m["kind"] = r.GroupVersion.String(), r.Kind
	delete(m, "status")
	if meta, ok := m["metadata"].(map[string]any); ok {
		for _, k := range []string{"creationTimestamp", "managedFields", "generation", "uid", "resourceVersion"} {
			delete(meta, k)
		}
	}
	return json.Marshal(m)
}

// Create makes an object that must not exist yet and decodes the result into it; apierrors.IsAlreadyExists otherwise.
func (c *Client) Create(ctx context.Context, r Resource, obj metav1.Object) error {
	data, err := json.Marshal(obj)
	if err != nil {
		return err
	}
	return c.do(ctx, http.MethodPost, r.Path(obj.GetNamespace(), "")+"?fieldValidation=Strict&fieldManager="+url.QueryEscape(c.manager), "application/json", data, obj)
}

// Get decodes an object into out.
func (c *Client) Get(ctx context.Context, r Resource, namespace, name string, out any) error {
	return c.do(ctx, http.MethodGet, r.Path(namespace, name), "", nil, out)
}

// List decodes the objects that a label selector matches into out, a typed list.
func (c *Client) List(ctx context.Context, r Resource, namespace, selector string, out any) error {
	namespace, selector = c.within(r, namespace, selector)
	path := r.Path(namespace, "")
	if selector != "" {
		path += "?labelSelector=" + url.QueryEscape(selector)
	}
	return c.do(ctx, http.MethodGet, path, "", nil, out)
}

// Each calls f with every object that a label selector matches, in all namespaces, decoded into T, which need hold no more
// than what is looked at. It asks for 500 at a time, so that memory doesn't grow with their number.
func Each[T any](ctx context.Context, c *Client, r Resource, selector string, f func(*T)) error {
	namespace, selector := c.within(r, "", selector)
	q := url.Values{"limit": {"500"}}
	if selector != "" {
		q.Set("labelSelector", selector)
	}
	for {
		var page struct {
			Metadata metav1.ListMeta `json:"metadata"`
			Items    []T             `json:"items"`
		}
		if err := c.do(ctx, http.MethodGet, r.Path(namespace, "")+"?"+q.Encode(), "", nil, &page); err != nil {
			return err
		}
		for i := range page.Items {
			f(&page.Items[i])
		}
		if page.Metadata.Continue == "" {
			return nil
		}
		q.Set("continue", page.Metadata.Continue)
	}
}

// Unscoped is the client without the limits of Options.Namespace and Options.WatchFilter: it sees what belongs to other
// installations, too.
func (c *Client) Unscoped() *Client {
	all := *c
	all.scope = Options{}
	return &all
}

// InScope reports whether an object is one that lists and watches show: what was read by name need not be.
func (c *Client) InScope(r Resource, o metav1.Object) bool {
	if r.Namespaced && c.scope.Namespace != "" && o.GetNamespace() != c.scope.Namespace {
		return false
	}
	return c.scope.WatchFilter == "" || r.GroupVersion.Group != TenantControlPlanes.GroupVersion.Group ||
		o.GetLabels()[name.LabelWatchFilter] == c.scope.WatchFilter
}

// within narrows a namespace and a label selector to what this client may see.
func (c *Client) within(r Resource, namespace, selector string) (ns, sel string) {
	if namespace == "" && r.Namespaced {
		namespace = c.scope.Namespace
	}
	if c.scope.WatchFilter != "" && r.GroupVersion.Group == TenantControlPlanes.GroupVersion.Group {
		filter := name.LabelWatchFilter + "=" + c.scope.WatchFilter
		if selector != "" {
			filter = selector + "," + filter
		}
		selector = filter
	}
	return namespace, selector
}

// MergePatch changes an object by a JSON merge patch (RFC 7386) and decodes the result into out, unless nil.
func (c *Client) MergePatch(ctx context.Context, r Resource, namespace, name string, patch, out any) error {
	data, err := json.Marshal(patch)
	if err != nil {
		return err
	}
	return c.do(ctx, http.MethodPatch, r.Path(namespace, name)+"?fieldValidation=Strict&fieldManager="+url.QueryEscape(c.manager), string(types.MergePatchType), data, out)
}

// JSONPatch changes an object by operations of RFC 6902; one whose test fails is refused as invalid.
func (c *Client) JSONPatch(ctx context.Context, r Resource, namespace, name string, operations []map[string]any) error {
	data, err := json.Marshal(operations)
	if err != nil {
		return err
	}
	return c.do(ctx, http.MethodPatch, r.Path(namespace, name)+"?fieldManager="+url.QueryEscape(c.manager), string(types.JSONPatchType), data, nil)
}

// Delete removes an object; no error when it is gone already. Preconditions and propagation as in o.
func (c *Client) Delete(ctx context.Context, r Resource, namespace, name string, o metav1.DeleteOptions) (found bool, err error) {
	o.TypeMeta = metav1.TypeMeta{APIVersion: "v1", Kind: "DeleteOptions"}
	data, err := json.Marshal(o)
	if err != nil {
		return false, err
	}
	err = c.do(ctx, http.MethodDelete, r.Path(namespace, name), "application/json", data, nil)
	if apierrors.IsNotFound(err) {
		return false, nil
	}
	return err == nil, err
}

func (c *Client) do(ctx context.Context, method, path, contentType string, body []byte, out any) error {
	req, err := http.NewRequestWithContext(ctx, method, c.base+path, bytes.NewReader(body))
	if err != nil {
		return err
	}
	if contentType != "" {
		req.Header.Set("Content-Type", contentType)
	}
	req.Header.Set("Accept", "application/json")
	req.GetBody = nil // a write is not repeated behind our back
	resp, err := c.http.Do(req)
	if errors.Is(err, fence.ErrFenced) {
		return fence.ErrFenced
	}
	if err != nil {
		return c.away(ctx, err)
	}
	defer resp.Body.Close()
	data, err := io.ReadAll(resp.Body)
	if err != nil {
		return c.away(ctx, err)
	}
	if err := statusError(resp, data); err != nil {
		if away(err) {
			return c.away(ctx, err)
		}
		return err
	}
	if c.health != nil {
		c.health.Up(Dependency)
	}
	if out == nil {
		return nil
	}
	if raw, ok := out.(*json.RawMessage); ok {
		*raw = data
		return nil
	}
	if err := json.Unmarshal(data, out); err != nil {
		return fmt.Errorf("%s %s: answer is not the object asked for: %w", method, path, err)
	}
	return nil
}

// away turns an error of the connection into an intent.
func (c *Client) away(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return fmt.Errorf("%w: %w", ctx.Err(), err)
	}
	if c.health != nil {
		c.health.Down(Dependency, err)
	}
	return &intent.Unavailable{Dependency: Dependency, Err: err}
}

// statusError makes the server's Status an error of apimachinery's errors package.
func statusError(resp *http.Response, data []byte) error {
	if resp.StatusCode < 300 {
		return nil
	}
	s := metav1.Status{}
	if err := json.Unmarshal(data, &s); err == nil && s.Kind == "Status" {
		if s.Code == 0 {
			s.Code = int32(resp.StatusCode)
		}
		return apierrors.FromObject(&s)
	}
	return apierrors.NewGenericServerResponse(resp.StatusCode, resp.Request.Method, schema.GroupResource{}, "", strings.TrimSpace(string(data[:min(len(data), 512)])), 0, true)
}

// away reports whether an answer means that the server isn't able to answer now.
func away(err error) bool {
	// Unauthorized says nothing about the object: our token has run out, or the server can't check it now.
	return apierrors.IsUnauthorized(err) || apierrors.IsServerTimeout(err) || apierrors.IsTooManyRequests(err) || apierrors.IsServiceUnavailable(err) ||
		apierrors.IsTimeout(err)
}

// IsAway reports whether an error means that the server couldn't be reached or couldn't answer.
func IsAway(err error) bool {
	var u *intent.Unavailable
	var n net.Error
	return errors.As(err, &u) || errors.As(err, &n)
}
