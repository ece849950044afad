// Package kube talks to Kubernetes API servers, the management cluster's and the tenants': server-side apply with one
// field manager per service, metadata-only watches of the partitions a replica holds, kubeconfigs.
//
// Connections, requests, answers and watches are client-go's. Stoker's own are the fence in the transport (transport.go), what an
// error means (classify.go), and what a client may see (Options.Namespace, Options.WatchFilter). Objects are encoded as JSON, and
// neither scheme nor discovery is needed, so that a client costs a connection and little else.
package kube

import (
	"cmp"
	"fmt"
	"net/http"
	"os"
	"time"

	metascheme "k8s.io/apimachinery/pkg/apis/meta/internalversion/scheme"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/stoker-k8s/stoker/pkg/api/name"
	"github.com/stoker-k8s/stoker/pkg/health"
)

// Dependency is the name under which the management API appears on /readyz.
const Dependency = "kubernetes"

// Client is a connection to one API server. It is safe for concurrent use.
type Client struct {
	http    *http.Client
	rest    *rest.RESTClient
	host    string
	manager string
	health  *health.Health
	// dependency of errors that mean that the server is away: empty for a tenant's, which concerns that tenant alone.
	dependency string
	// opening has one place: whoever opens a list or watch takes it, so that a server which is away gets one attempt at a time, and
	// one that is back one connection. Nil for none.
	opening chan struct{}
	timeout time.Duration
	scope   Options
	// told is told of each answer, nil, and of why there was none. Nil for nobody.
	told func(away error)
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
	// Requests is told of each request; nil for nobody.
	Requests RequestFunc
	// Timeout bounds every request except watches and lists of metadata; 0: 10 s.
	Timeout time.Duration
	// Ways lead to a tenant's API server ([ForTenant]); nil: it is where its kubeconfig says.
	Ways *Ways
}

// Connect makes a client from a kubeconfig file; empty means the Pod's own service account. It doesn't connect yet.
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

// ForTenant makes a client of a tenant's API server from a kubeconfig with embedded certificates, such as super-admin.conf; all it
// does shares one HTTP/2 connection with small buffers. By whichever of Options.Ways it is made, the server must have a certificate of the
// kubeconfig's authority. An outage is [intent.Unavailable] without a dependency.
func ForTenant(kubeconfig []byte, o Options) (*Client, error) {
	cfg, err := tenantConfig(kubeconfig, o.Ways)
	if err != nil {
		return nil, err
	}
	c, err := New(cfg, o)
	if err != nil {
		return nil, err
	}
	c.dependency, c.opening = "", make(chan struct{}, 1)
	return c, nil
}

// New makes a client from a configuration of client-go.
func New(cfg *rest.Config, o Options) (*Client, error) {
	cfg = rest.CopyConfig(cfg)
	cfg.QPS = -1 // the loop bounds how much goes on at a time, and the server has priorities
	cfg.WarningHandler = rest.NoWarnings{}
	cfg.ContentType, cfg.AcceptContentTypes = jsonType, jsonType
	cfg.NegotiatedSerializer = metascheme.Codecs.WithoutConversion()
	if cfg.UserAgent == "" {
		cfg.UserAgent = o.FieldManager
	}
	transport, err := rest.TransportFor(cfg)
	if err != nil {
		return nil, fmt.Errorf("connection to %s: %w", cfg.Host, err)
	}
	c := &Client{host: cfg.Host, manager: o.FieldManager, health: o.Health, dependency: Dependency, scope: o,
		timeout: cmp.Or(o.Timeout, requestTimeout), http: &http.Client{
			Transport:     fenced{transport, o.Requests},
			CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }, // an API server is where it is
		}}
	if c.rest, err = rest.UnversionedRESTClientForConfigAndClient(cfg, c.http); err != nil {
		return nil, fmt.Errorf("server address %q: %w", cfg.Host, err)
	}
	return c, nil
}

// Close ends connections that no request or watch uses; end watches first.
func (c *Client) Close() { c.http.CloseIdleConnections() }

// Unscoped is the client without the limits of Options.Namespace and Options.WatchFilter: it sees what belongs to other
// installations, too.
func (c *Client) Unscoped() *Client {
	all := *c
	all.scope = Options{}
	return &all
}

// In is the client limited to one namespace instead of Options.Namespace: what it lists and watches is there, whoever's it is.
func (c *Client) In(namespace string) *Client {
	other := *c
	other.scope = Options{Namespace: namespace}
	return &other
}

// As is the client with another field manager, over the same connection.
func (c *Client) As(fieldManager string) *Client {
	other := *c
	other.manager = fieldManager
	return &other
}

// Observed is the client, over the same connection, that also tells whether the server answers, be it a refusal: nil, or what was in the way
// ([intent.Unavailable]). Who was told before is still told. told is called with each request and as each watch begins, from several goroutines,
// and must not block.
func (c *Client) Observed(told func(away error)) *Client {
	other := *c
	other.told = told
	if before := c.told; before != nil {
		other.told = func(away error) { before(away); told(away) }
	}
	return &other
}

// InScope reports whether an object is one that lists and watches show: what was read by name need not be.
func (c *Client) InScope(r Resource, o metav1.Object) bool {
	if r.Namespaced && c.scope.Namespace != "" && o.GetNamespace() != c.scope.Namespace {
		return false
	}
	return c.scope.WatchFilter == "" || !r.filtered() ||
		o.GetLabels()[name.LabelWatchFilter] == c.scope.WatchFilter
}

// within narrows a namespace and a label selector to what this client may see.
func (c *Client) within(r Resource, namespace, selector string) (ns, sel string) {
	if namespace == "" && r.Namespaced {
		namespace = c.scope.Namespace
	}
	if c.scope.WatchFilter != "" && r.filtered() {
		filter := name.LabelWatchFilter + "=" + c.scope.WatchFilter
		if selector != "" {
			filter = selector + "," + filter
		}
		selector = filter
	}
	return namespace, selector
}
