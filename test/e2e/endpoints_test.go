package e2e

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"

	"github.com/stoker-k8s/stoker/pkg/api/event"
	"github.com/stoker-k8s/stoker/pkg/api/name"
	"github.com/stoker-k8s/stoker/pkg/api/reason"
	"github.com/stoker-k8s/stoker/pkg/api/v1alpha1"
	"github.com/stoker-k8s/stoker/pkg/events"
	"github.com/stoker-k8s/stoker/pkg/kube"
	"github.com/stoker-k8s/stoker/test/env"
)

// TestEndpoints tries every kind of endpoint, as a client that has the published kubeconfig and nothing else. What stands before the pods on
// a cluster (load balancers, an ingress controller, a gateway) are small servers of this test that follow the objects as the real ones do.
func TestEndpoints(t *testing.T) {
	env.Long(t, "TestEndpoint in services/workload shows each kind of endpoint; every other test uses one, a LoadBalancer")
	e.Services(t)
	e.PrivilegedFields(t, env.IntakeUser, true)
	serveRoutes(t)
	t.Run("side by side", func(t *testing.T) {
		for what, try := range map[string]func(*testing.T){
			"a load balancer of a class":           endpointByClass,
			"a cluster IP, and an external one":    endpointByClusterIP,
			"a gateway":                            endpointByGateway,
			"one kind of endpoint after the other": endpointsInTurn,
			"IPv6":                                 endpointOfIPv6,
			"dual stack":                           endpointOfBothFamilies,
		} {
			t.Run(what, func(t *testing.T) {
				t.Parallel()
				try(t)
			})
		}
	})
	e.PrivilegedFields(t, env.IntakeUser, false)
}

// serveRoutes has the management cluster serve the Gateway API, from then on.
func serveRoutes(t *testing.T) {
	t.Helper()
	module, err := exec.Command("go", "list", "-m", "-f", "{{.Dir}}", "sigs.k8s.io/gateway-api").Output()
	must(t, err)
	admin := e.Local.Kubeconfig("admin")
	for _, kind := range []string{"gatewayclasses", "gateways", "tlsroutes"} {
		file := filepath.Join(strings.TrimSpace(string(module)), "config", "crd", "standard", "gateway.networking.k8s.io_"+kind+".yaml")
		e.Kubectl(t, admin, "apply", "--server-side", "-f", file)
		env.Eventually(t, kind+" to be served", func() error {
			out, err := e.TryKubectl(t.Context(), admin, nil, "get", kind+".gateway.networking.k8s.io", "-A")
			if err != nil {
				err = errors.New(out)
			}
			return err
		})
	}
	env.Eventually(t, "policies to know that TLSRoutes are served", func() error { return admissionHas(t, name.AdmissionGateway, "true") })
}

// A client has the tenant's published kubeconfig. It knows of hosts where they are, which this machine may not know.
type client struct {
	key events.Key
	at  map[string]string // host:port by host
	// super has it take that of the super-administrator, whom no add-on has to give anything.
	super bool
}

// published reads the kubeconfig.
func (c *client) published(ctx context.Context) ([]byte, error) {
	var s corev1.Secret
	err := e.Admin.Get(ctx, kube.Secrets, c.key.Namespace, name.AdminKubeconfig(c.key.Name), &s)
	if c.super {
		return s.Data[name.KeySuperAdminConf], err
	}
	return s.Data[name.KeyAdminConf], err
}

// ask sends a request, on a connection of its own, to where a kubeconfig leads, and decodes the answer.
func (c *client) ask(ctx context.Context, kubeconfig []byte, method, path string, body []byte, answer any) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	cfg, err := clientcmd.RESTConfigFromKubeConfig(kubeconfig)
	if err != nil {
		return err
	}
	config, err := rest.TLSConfigFor(cfg)
	if err != nil {
		return err
	}
	transport := &http.Transport{TLSClientConfig: config, DisableKeepAlives: true, DialContext: c.dial}
	defer transport.CloseIdleConnections()
	req, err := http.NewRequestWithContext(ctx, method, cfg.Host+path, bytes.NewReader(body))
	if err != nil {
		return err
	}
	req.Header.Set("Content-Type", "application/json")
	resp, err := (&http.Client{Transport: transport}).Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	data, err := io.ReadAll(resp.Body)
	if err == nil && resp.StatusCode >= http.StatusBadRequest {
		err = fmt.Errorf("%s %s", resp.Status, data)
	}
	if err != nil {
		return err
	}
	return json.Unmarshal(data, answer)
}

func (c *client) dial(ctx context.Context, network, address string) (net.Conn, error) {
	host, _, err := net.SplitHostPort(address)
	if err != nil {
		return nil, err
	}
	if at, known := c.at[host]; known {
		address = at
	}
	var d net.Dialer
	return d.DialContext(ctx, network, address)
}

// read reads something inside the tenant with the kubeconfig as it is published now.
func (c *client) read(t testing.TB, path string, answer any) {
	t.Helper()
	kubeconfig, err := c.published(t.Context())
	if err == nil {
		err = c.ask(t.Context(), kubeconfig, http.MethodGet, path, nil, answer)
	}
	if err != nil {
		t.Fatalf("%s: %s: %v", c.key, path, err)
	}
}

// leads checks that the tenant's endpoint is this, that its kubeconfigs lead there, and that who takes one gets answers from a server whose
// certificate names it.
func (c *client) leads(t testing.TB, endpoint string) {
	t.Helper()
	var o v1alpha1.TenantControlPlane
	get(t, kube.TenantControlPlanes, c.key.Namespace, c.key.Name, &o)
	if o.Status.ControlPlaneEndpoint != endpoint {
		t.Errorf("endpoint %s, want %s", o.Status.ControlPlaneEndpoint, endpoint)
	}
	var s corev1.Secret
	get(t, kube.Secrets, c.key.Namespace, name.AdminKubeconfig(c.key.Name), &s)
	for key, want := range map[string]string{
		name.KeyAdminConf: endpoint, name.KeySuperAdminConf: endpoint,
		name.KeyAdminSvc: name.ServiceHost(c.key.Name, c.key.Namespace) + ":", name.KeySuperAdminSvc: name.ServiceHost(c.key.Name, c.key.Namespace) + ":",
	} {
		cfg, err := clientcmd.RESTConfigFromKubeConfig(s.Data[key])
		if err != nil || !strings.HasPrefix(cfg.Host, "https://"+want) {
			t.Errorf("%s leads to %s, want %s: %v", key, cfg.Host, want, err)
		}
	}
	host, _, _ := net.SplitHostPort(endpoint)
	if err := c.certificate(t).VerifyHostname(host); err != nil {
		t.Error(err)
	}
	c.read(t, "/api/v1/namespaces/kube-system", &corev1.Namespace{})
}

// certificate is the API server's.
func (c *client) certificate(t testing.TB) *x509.Certificate {
	t.Helper()
	var s corev1.Secret
	get(t, kube.Secrets, c.key.Namespace, name.APIServerCertificate(c.key.Name), &s)
	block, _ := pem.Decode(s.Data[name.KeyAPIServerCert])
	cert, err := x509.ParseCertificate(block.Bytes)
	must(t, err)
	return cert
}

// says checks that what nodes and pods inside the tenant read leads to an endpoint, and the control plane's own parts to themselves.
func (c *client) says(t testing.TB, endpoint string) {
	t.Helper()
	for path, want := range map[string]string{
		"/api/v1/namespaces/kube-public/configmaps/cluster-info":   "server: https://" + endpoint,
		"/api/v1/namespaces/kube-system/configmaps/kubeadm-config": "controlPlaneEndpoint: " + quoted(endpoint),
		"/api/v1/namespaces/kube-system/configmaps/kube-proxy":     "server: https://" + endpoint,
	} {
		var cm corev1.ConfigMap
		c.read(t, path, &cm)
		if text := fmt.Sprint(cm.Data); !strings.Contains(text, want+"\n") {
			t.Errorf("%s: no %q in %s", path, want, text)
		}
	}
	for secret, key := range map[string]string{
		name.ControllerManagerKubeconfig(c.key.Name): name.KeyControllerManagerConf, name.SchedulerKubeconfig(c.key.Name): name.KeySchedulerConf,
	} {
		var s corev1.Secret
		get(t, kube.Secrets, c.key.Namespace, secret, &s)
		if !strings.Contains(string(s.Data[key]), "server: https://127.0.0.1:") {
			t.Errorf("%s doesn't lead to the pod itself", secret)
		}
	}
}

// quoted is a value as YAML has it, which quotes what begins with a bracket.
func quoted(value string) string {
	if strings.HasPrefix(value, "[") {
		return "'" + value + "'"
	}
	return value
}

// advertises waits for the address of the Service kubernetes inside the tenant, by which pods reach the API. An API server that ends takes it
// away, and the next one, which has the same, puts it back within ten seconds.
func (c *client) advertises(t testing.TB, address string) {
	t.Helper()
	env.Eventually(t, "pods to be told of "+address, func() error {
		var slice discoveryv1.EndpointSlice
		c.read(t, "/apis/discovery.k8s.io/v1/namespaces/default/endpointslices/kubernetes", &slice)
		if len(slice.Endpoints) != 1 || !slices.Equal(slice.Endpoints[0].Addresses, []string{address}) {
			return fmt.Errorf("they are told %+v", slice.Endpoints)
		}
		return nil
	})
	if err := c.certificate(t).VerifyHostname(address); err != nil {
		t.Error(err)
	}
}

// gone deletes a tenant.
func gone(t testing.TB, key events.Key) {
	t.Helper()
	e.Delete(t, key)
	e.Gone(t, key)
	nothingOfIts(t, key)
}

// nothingOfIts waits until no object is left that leads to a tenant.
func nothingOfIts(t testing.TB, key events.Key) {
	t.Helper()
	for _, r := range []kube.Resource{kube.Services, kube.Ingresses, kube.TLSRoutes} {
		env.Eventually(t, "no "+r.Plural+" of "+key.Name, func() error {
			var list metav1.PartialObjectMetadataList
			err := e.Admin.List(t.Context(), r, key.Namespace, name.LabelName+"="+key.Name, &list)
			if err == nil && len(list.Items) > 0 {
				err = fmt.Errorf("%d left", len(list.Items))
			}
			return err
		})
	}
}

// waits waits until workload waits for something, and says it.
func waits(t testing.TB, key events.Key, why string) {
	t.Helper()
	env.Eventually(t, key.String()+" to wait: "+why, func() error {
		s := e.State(t.Context(), key, name.ServiceWorkload)
		if s == nil || s.Wait.Reason != why {
			return fmt.Errorf("%+v", s)
		}
		return nil
	})
}

// endpointByClass: nobody serves the class until this test does, first with an address, then with host names.
func endpointByClass(t *testing.T) {
	key := events.Tenant("default", "by-class")
	o := env.Tenant(key.Name, "v1.36.3")
	const class, ranges = "endpoints.example/test", "192.0.2.0/24"
	o.Spec.NetworkProfile.LoadBalancerClass = new(class)
	o.Spec.NetworkProfile.LoadBalancerSourceRanges = []string{ranges}
	e.Apply(t, o)
	waits(t, key, reason.AddressPending)
	var service corev1.Service
	get(t, kube.Services, key.Namespace, key.Name, &service)
	if s := service.Spec; s.LoadBalancerClass == nil || *s.LoadBalancerClass != class || !slices.Equal(s.LoadBalancerSourceRanges, []string{ranges}) {
		t.Errorf("%+v", s)
	}
	env.Eventually(t, "the tenant to say what it waits for", func() error {
		s, err := e.Status(t.Context(), key)
		if err == nil && !strings.Contains(s.Message, "LoadBalancer address") {
			err = errors.New(s.Message)
		}
		return err
	})

	at := net.JoinHostPort(someAddress(), "6443")
	balance(t, at, key, 6443)
	c := &client{key: key, at: map[string]string{"one.endpoints.example": at, "two.endpoints.example": at}}
	// The add-ons service knows no such hosts. On a cluster it goes to the Service; here it takes the second address of the load balancer.
	gives := func(given ...corev1.LoadBalancerIngress) {
		t.Helper()
		must(t, e.Admin.ApplyStatus(t.Context(), kube.Services, &metav1.ObjectMeta{Namespace: key.Namespace, Name: key.Name},
			corev1.ServiceStatus{LoadBalancer: corev1.LoadBalancerStatus{Ingress: given}}))
	}
	host, _, _ := net.SplitHostPort(at)
	beside := corev1.LoadBalancerIngress{IP: host}
	gives(corev1.LoadBalancerIngress{Hostname: "one.endpoints.example"}, beside)
	e.Ready(t, key)
	c.leads(t, "one.endpoints.example:6443")
	c.says(t, "one.endpoints.example:6443")
	reachable(t, key, metav1.ConditionFalse, reason.EndpointUnresolved, "one.endpoints.example:6443")

	reads := keepReading(t, c)
	gives(corev1.LoadBalancerIngress{Hostname: "two.endpoints.example"}, beside)
	moved(t, c, "two.endpoints.example:6443")
	c.leads(t, "two.endpoints.example:6443")
	reads.none(t, "the load balancer has another name")

	gives(beside)
	moved(t, c, at)
	c.leads(t, at)
	reachable(t, key, metav1.ConditionTrue, reason.Reached, at)
	reads.none(t, "it has an address")
	gone(t, key)
}

// moved waits until kubeconfigs lead to an endpoint and the tenant is Ready with it.
func moved(t testing.TB, c *client, endpoint string) {
	t.Helper()
	env.Eventually(t, "kubeconfigs of "+c.key.Name+" to lead to "+endpoint, func() error {
		kubeconfig, err := c.published(t.Context())
		if err == nil && !bytes.Contains(kubeconfig, []byte("server: https://"+endpoint+"\n")) {
			err = errNotYet
		}
		return err
	})
	e.Ready(t, c.key)
}

// endpointByClusterIP: nothing leads to a cluster IP here, so that this test's client goes to the pod, whose certificate has to be for it.
func endpointByClusterIP(t *testing.T) {
	key := events.Tenant("default", "by-cluster-ip")
	o := env.Tenant(key.Name, "v1.36.3")
	o.Spec.ControlPlane.Service.ServiceType = v1alpha1.ServiceTypeClusterIP
	o.Spec.NetworkProfile.AdvertiseAddress = "198.51.100.7"
	e.Apply(t, o)
	e.Fact(t, key, name.ServiceWorkload, event.Available)
	var service corev1.Service
	get(t, kube.Services, key.Namespace, key.Name, &service)
	at := net.JoinHostPort(someAddress(), "6443")
	balance(t, at, key, 6443)
	const external = "192.0.2.44"
	c := &client{key: key, at: map[string]string{service.Spec.ClusterIP: at, external: at}, super: true}
	c.leads(t, service.Spec.ClusterIP+":6443")
	c.advertises(t, "198.51.100.7")

	reads := keepReading(t, c)
	o.Spec.NetworkProfile.Address, o.Spec.NetworkProfile.AllowAddressAsExternalIP = external, true
	e.Apply(t, o)
	kubeconfigs := func(endpoint string) {
		t.Helper()
		env.Eventually(t, "kubeconfigs to lead to "+endpoint, func() error {
			kubeconfig, err := c.published(t.Context())
			if err == nil && !bytes.Contains(kubeconfig, []byte(endpoint)) {
				err = errNotYet
			}
			return err
		})
	}
	kubeconfigs(external)
	c.leads(t, external+":6443")
	get(t, kube.Services, key.Namespace, key.Name, &service)
	if !slices.Equal(service.Spec.ExternalIPs, []string{external}) {
		t.Errorf("external IPs %v", service.Spec.ExternalIPs)
	}
	reads.none(t, "an external IP")

	host, _, _ := net.SplitHostPort(at)
	o.Spec.NetworkProfile.Address, o.Spec.NetworkProfile.AllowAddressAsExternalIP = host, false
	e.Apply(t, o)
	moved(t, c, at)
	c.leads(t, at)
	c.says(t, at)
	c.advertises(t, "198.51.100.7")
	var after corev1.Service
	get(t, kube.Services, key.Namespace, key.Name, &after)
	if len(after.Spec.ExternalIPs) > 0 {
		t.Errorf("external IPs %v", after.Spec.ExternalIPs)
	}
	reads.none(t, "an address of ours")
	gone(t, key)
}

// endpointByGateway: the API server and the konnectivity server behind one host name, at two listeners.
func endpointByGateway(t *testing.T) {
	key := events.Tenant("default", "by-gateway")
	const host, port = "routed.endpoints.example", 8443
	address := someAddress()
	api, tunnel := net.JoinHostPort(address, "8443"), net.JoinHostPort(address, "8132")
	if out, err := e.TryKubectl(t.Context(), e.Local.Kubeconfig("admin"), strings.NewReader(`
apiVersion: gateway.networking.k8s.io/v1
kind: GatewayClass
metadata: {name: passthrough}
spec: {controllerName: endpoints.example/test}
---
apiVersion: gateway.networking.k8s.io/v1
kind: Gateway
metadata: {namespace: default, name: edge}
spec:
  gatewayClassName: passthrough
  listeners:
  - {name: kube-apiserver, port: 8443, protocol: TLS, tls: {mode: Passthrough}}
  - {name: konnectivity-server, port: 8132, protocol: TLS, tls: {mode: Passthrough}}
`), "apply", "-f", "-"); err != nil {
		t.Fatal(err, out)
	}
	passRoutes(t, api, "edge", "kube-apiserver", port)
	passRoutes(t, tunnel, "edge", name.PortKonnectivity, 8132)
	o := env.Tenant(key.Name, "v1.35.4")
	parent := gatewayv1.ParentReference{Name: "edge", SectionName: new(gatewayv1.SectionName("kube-apiserver")), Port: new(gatewayv1.PortNumber(port))}
	o.Spec.ControlPlane.Gateway = &v1alpha1.GatewaySpec{Hostname: host, ParentRefs: []gatewayv1.ParentReference{parent}}
	o.Spec.Addons.Konnectivity = &v1alpha1.KonnectivitySpec{}
	e.Apply(t, o)
	e.Ready(t, key)
	c := &client{key: key, at: map[string]string{host: api}}
	c.leads(t, fmt.Sprintf("%s:%d", host, port))
	c.says(t, fmt.Sprintf("%s:%d", host, port))
	refusesOthers(t, api)
	t.Run("agents reach the konnectivity server by the same name", func(t *testing.T) {
		var ca corev1.Secret
		get(t, kube.Secrets, key.Namespace, name.CA(key.Name), &ca)
		roots := x509.NewCertPool()
		roots.AppendCertsFromPEM(ca.Data[name.KeyCACert])
		conn, err := tls.Dial("tcp", tunnel, &tls.Config{RootCAs: roots, ServerName: host, MinVersion: tls.VersionTLS12})
		must(t, err)
		_ = conn.Close()
	})
	t.Run("the status says at which listeners, once the gateway takes the routes", func(t *testing.T) {
		yes := func(typ string) []metav1.Condition {
			return []metav1.Condition{{Type: typ, Status: metav1.ConditionTrue, Reason: typ, LastTransitionTime: metav1.Now()}}
		}
		must(t, e.Admin.ApplyStatus(t.Context(), kube.Gateways, &metav1.ObjectMeta{Namespace: "default", Name: "edge"}, gatewayv1.GatewayStatus{
			Conditions: yes("Programmed"), Addresses: []gatewayv1.GatewayStatusAddress{{Value: address}},
		}))
		for _, route := range []string{name.Route(key.Name), name.KonnectivityRoute(key.Name)} {
			var live gatewayv1.TLSRoute
			get(t, kube.TLSRoutes, key.Namespace, route, &live)
			must(t, e.Admin.ApplyStatus(t.Context(), kube.TLSRoutes, &metav1.ObjectMeta{Namespace: key.Namespace, Name: route},
				gatewayv1.TLSRouteStatus{RouteStatus: gatewayv1.RouteStatus{Parents: []gatewayv1.RouteParentStatus{{
					ParentRef: live.Spec.ParentRefs[0], ControllerName: "endpoints.example/test", Conditions: yes("Accepted"),
				}}}}))
		}
		env.Eventually(t, "the access points", func() error {
			s := read(t, key).Status
			if g, k := s.Kubernetes.Gateway, s.Addons.Konnectivity.Gateway; g == nil || k == nil || len(g.AccessPoints) != 1 || len(k.AccessPoints) != 1 ||
				g.AccessPoints[0].Value != "https://"+host+":8443" || k.AccessPoints[0].Value != "https://"+host+":8132" {
				return fmt.Errorf("%+v, %+v", g, k)
			}
			return nil
		})
	})
	t.Run("an upgrade, read through the gateway", func(t *testing.T) { upgrades(t, c, o) })
	gone(t, key)
}

// upgrades takes a tenant of v1.35 to v1.36 while it is read ten times a second. It need not become Ready: where nothing knows the name of an
// Ingress, as here, Stoker itself doesn't reach a tenant behind it by another way than the Service's name, which is a cluster's.
func upgrades(t *testing.T, c *client, o *v1alpha1.TenantControlPlane) {
	t.Helper()
	reads := keepReading(t, c)
	o.Spec.Kubernetes.Version = "v1.36.3"
	e.Apply(t, o)
	env.Eventually(t, "all to be of the new version", func() error {
		var said struct {
			GitVersion string `json:"gitVersion"`
		}
		kubeconfig, err := c.published(t.Context())
		if err == nil {
			err = c.ask(t.Context(), kubeconfig, http.MethodGet, "/version", nil, &said)
		}
		if of := read(t, c.key).Status.Kubernetes.Version.Version; err == nil && (said.GitVersion != o.Spec.Kubernetes.Version || of != said.GitVersion) {
			err = fmt.Errorf("it says that it is of %s, its status of %s", said.GitVersion, of)
		}
		if s := e.State(t.Context(), c.key, name.ServiceWorkload); err == nil && (s == nil || s.Step != event.Available) {
			err = errNotYet
		}
		return err
	})
	reads.none(t, "an upgrade")
}

// refusesOthers checks that what passes TLS through by name leads nobody to a tenant who asks for another server, or for none.
func refusesOthers(t testing.TB, at string) {
	t.Helper()
	for _, other := range []string{"other.endpoints.example", ""} {
		conn, err := tls.Dial("tcp", at, &tls.Config{InsecureSkipVerify: true, ServerName: other, MinVersion: tls.VersionTLS12})
		if err == nil {
			_ = conn.Close()
			t.Errorf("who asks for %q is led to %s", other, conn.ConnectionState().PeerCertificates[0].Subject)
		}
	}
}

// endpointsInTurn: one tenant, whose clients read its kubeconfig anew all the time.
func endpointsInTurn(t *testing.T) {
	key := events.Tenant("default", "in-turn")
	const host = "changing.endpoints.example"
	node, port := e.Local.Block().Management().String(), int32(30000+rand.IntN(2700))
	ingress := net.JoinHostPort(someAddress(), "7443")
	passIngresses(t, ingress)
	o := env.Tenant(key.Name, "v1.35.4")
	o.Spec.NetworkProfile.Port = port
	e.Apply(t, o)
	first := e.Ready(t, key).Status.ControlPlaneEndpoint
	c := &client{key: key, at: map[string]string{host: ingress}}
	c.leads(t, first)
	reads := keepReading(t, c)

	t.Run("from the load balancer, which is gone at once, to a node port", func(t *testing.T) {
		o.Spec.ControlPlane.Service = v1alpha1.ServiceSpec{ServiceType: v1alpha1.ServiceTypeNodePort, AdditionalPorts: []v1alpha1.AdditionalPort{
			{Name: "again", Port: 9443, TargetPort: intstr.FromInt32(port)},
		}}
		o.Spec.NetworkProfile.Address = node
		e.Apply(t, o)
		at := fmt.Sprintf("%s:%d", node, port)
		moved(t, c, at)
		c.leads(t, at)
		c.says(t, at)
		var service corev1.Service
		get(t, kube.Services, key.Namespace, key.Name, &service)
		if p := service.Spec.Ports; len(p) != 2 || p[0].NodePort != port || p[1].Name != "again" || p[1].Port != 9443 || p[1].NodePort == 0 {
			t.Fatalf("%+v", p)
		}
		again := &client{key: key, at: map[string]string{node: fmt.Sprintf("%s:%d", node, service.Spec.Ports[1].NodePort)}}
		env.Eventually(t, "an answer at the additional port", func() error {
			kubeconfig, err := again.published(t.Context())
			return errors.Join(err, again.ask(t.Context(), kubeconfig, http.MethodGet, "/version", nil, &struct{}{}))
		})
		t.Logf("%d reads failed until the kubeconfig led to the node port", reads.forget())
	})
	t.Run("to an Ingress, while the node port leads there as before", func(t *testing.T) {
		o.Spec.ControlPlane.Ingress = &v1alpha1.IngressSpec{Hostname: host + ":7443", IngressClassName: "passthrough"}
		e.Apply(t, o)
		moved(t, c, host+":7443")
		c.leads(t, host+":7443")
		c.says(t, host+":7443")
		refusesOthers(t, ingress)
		reads.none(t, "an Ingress comes")
		address, _, _ := net.SplitHostPort(ingress)
		must(t, e.Admin.ApplyStatus(t.Context(), kube.Ingresses, &metav1.ObjectMeta{Namespace: key.Namespace, Name: name.Ingress(key.Name)},
			networkingv1.IngressStatus{LoadBalancer: networkingv1.IngressLoadBalancerStatus{Ingress: []networkingv1.IngressLoadBalancerIngress{{IP: address}}}}))
		env.Eventually(t, "the status to say where the Ingress is", func() error {
			if i := read(t, key).Status.Kubernetes.Ingress; i == nil || len(i.LoadBalancer.Ingress) != 1 || i.LoadBalancer.Ingress[0].IP != address {
				return fmt.Errorf("%+v", i)
			}
			return nil
		})
	})
	t.Run("an upgrade, read through the Ingress", func(t *testing.T) { upgrades(t, c, o) })
	t.Run("back to a load balancer: the Ingress goes once kubeconfigs lead elsewhere", func(t *testing.T) {
		o.Spec.ControlPlane.Ingress, o.Spec.NetworkProfile.Address = nil, ""
		o.Spec.ControlPlane.Service = v1alpha1.ServiceSpec{ServiceType: v1alpha1.ServiceTypeLoadBalancer}
		e.Apply(t, o)
		vanished(t, kube.Ingresses, key.Namespace, name.Ingress(key.Name))
		last := e.Ready(t, key).Status.ControlPlaneEndpoint
		if strings.HasPrefix(last, host) || strings.HasPrefix(last, node) {
			t.Errorf("endpoint %s", last)
		}
		c.leads(t, last)
		c.says(t, last)
		reads.none(t, "the Ingress goes")
		if i := read(t, key).Status.Kubernetes.Ingress; i != nil {
			t.Errorf("the status still has an Ingress: %+v", i)
		}
	})
	gone(t, key)
}

// reader reads a tenant's API ten times a second, each time with the kubeconfig as it is published then.
type reader struct {
	mu     sync.Mutex
	reads  int
	failed []string
}

func keepReading(t testing.TB, c *client) *reader {
	t.Helper()
	r := &reader{}
	ctx, cancel := context.WithCancel(t.Context())
	var done sync.WaitGroup
	t.Cleanup(func() { cancel(); done.Wait() })
	done.Go(func() {
		every := time.NewTicker(100 * time.Millisecond)
		defer every.Stop()
		for ctx.Err() == nil {
			err := r.once(ctx, c)
			r.mu.Lock()
			if r.reads++; err != nil && ctx.Err() == nil {
				r.failed = append(r.failed, err.Error())
			}
			r.mu.Unlock()
			select {
			case <-ctx.Done():
			case <-every.C:
			}
		}
	})
	return r
}

// once reads; one that fails doesn't count where the kubeconfig has become another meanwhile.
func (r *reader) once(ctx context.Context, c *client) error {
	kubeconfig, err := c.published(ctx)
	for err == nil {
		if err = c.ask(ctx, kubeconfig, http.MethodGet, "/api/v1/namespaces/default", nil, &corev1.Namespace{}); err == nil {
			return nil
		}
		now, gone := c.published(ctx)
		if gone != nil || bytes.Equal(now, kubeconfig) {
			return err
		}
		kubeconfig, err = now, nil
	}
	return nil // the management cluster was too busy
}

// forget returns how many reads failed, and begins anew.
func (r *reader) forget() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	n := len(r.failed)
	r.reads, r.failed = 0, nil
	return n
}

// none checks that no read failed since the last time.
func (r *reader) none(t testing.TB, while string) {
	t.Helper()
	r.mu.Lock()
	t.Logf("%s: %d reads", while, r.reads)
	if r.reads == 0 || len(r.failed) > 0 {
		t.Errorf("%s: %d of %d reads failed: %s", while, len(r.failed), r.reads, strings.Join(r.failed[:min(len(r.failed), 3)], "\n"))
	}
	r.mu.Unlock()
	r.forget()
}

// endpointOfIPv6: networks, address and advertised address are of IPv6. This machine's pods have IPv4 addresses, so that something carries
// from one to the other, as before an old cluster.
func endpointOfIPv6(t *testing.T) {
	key := events.Tenant("default", "ipv6")
	o := env.Tenant(key.Name, "v1.36.3")
	n := &o.Spec.NetworkProfile
	n.ServiceCIDRs, n.PodCIDRs = []string{"fd00:10:96::/112"}, []string{"fd00:10:244::/56"}
	n.Address, n.AdvertiseAddress = "2001:db8::15", "2001:db8::20"
	e.Apply(t, o)
	e.Ready(t, key)
	at := "[::1]:0"
	if l, err := net.Listen("tcp", at); err != nil {
		t.Logf("this machine has no IPv6: the client connects by IPv4: %v", err)
		at = net.JoinHostPort(someAddress(), "6443")
	} else {
		at = l.Addr().String()
		_ = l.Close()
	}
	balance(t, at, key, 6443)
	c := &client{key: key, at: map[string]string{"2001:db8::15": at}}
	c.leads(t, "[2001:db8::15]:6443")
	c.says(t, "[2001:db8::15]:6443")
	c.advertises(t, "2001:db8::20")
	c.networks(t, []string{"fd00:10:96::10"}, "fd00:10:96::/112", "fd00:10:244::/56")
	if err := c.certificate(t).VerifyHostname("fd00:10:96::1"); err != nil {
		t.Error(err)
	}
	c.nodeGets(t, "fd00:10:244::/")
	gone(t, key)
}

// endpointOfBothFamilies: the first network's family is that of the API server's own address.
func endpointOfBothFamilies(t *testing.T) {
	key := events.Tenant("default", "dual")
	o := env.Tenant(key.Name, "v1.36.3")
	n := &o.Spec.NetworkProfile
	n.ServiceCIDRs, n.PodCIDRs = []string{"10.97.0.0/16", "fd00:10:97::/112"}, []string{"10.245.0.0/16", "fd00:10:245::/56"}
	n.CertSANs = []string{"2001:db8::99"}
	e.Apply(t, o)
	endpoint := e.Ready(t, key).Status.ControlPlaneEndpoint
	c := &client{key: key}
	c.leads(t, endpoint)
	c.says(t, endpoint)
	c.advertises(t, "192.0.2.1")
	c.networks(t, []string{"10.97.0.10", "fd00:10:97::10"}, "10.97.0.0/16,fd00:10:97::/112", "10.245.0.0/16,fd00:10:245::/56")
	for _, address := range []string{"10.97.0.1", "fd00:10:97::1", "2001:db8::99"} {
		if err := c.certificate(t).VerifyHostname(address); err != nil {
			t.Error(err)
		}
	}
	c.nodeGets(t, "10.245.0.0/", "fd00:10:245::/")
	gone(t, key)
}

// networks checks what the tenant's DNS, kubeadm and kubelets are told of its networks.
func (c *client) networks(t testing.TB, dns []string, services, pods string) {
	t.Helper()
	var service corev1.Service
	c.read(t, "/api/v1/namespaces/kube-system/services/kube-dns", &service)
	if !slices.Equal(service.Spec.ClusterIPs, dns) {
		t.Errorf("the DNS is at %v, want %v", service.Spec.ClusterIPs, dns)
	}
	var kubeadm, kubelet corev1.ConfigMap
	c.read(t, "/api/v1/namespaces/kube-system/configmaps/kubeadm-config", &kubeadm)
	for _, want := range []string{"serviceSubnet: " + services + "\n", "podSubnet: " + pods + "\n"} {
		if text := fmt.Sprint(kubeadm.Data); !strings.Contains(text, want) {
			t.Errorf("no %q in %s", want, text)
		}
	}
	c.read(t, "/api/v1/namespaces/kube-system/configmaps/kubelet-config", &kubelet)
	if text := fmt.Sprint(kubelet.Data); !strings.Contains(text, "clusterDNS:\n- "+strings.Join(dns, "\n- ")+"\n") {
		t.Errorf("kubelets look elsewhere than at %v: %s", dns, text)
	}
}

// nodeGets checks that a node that joins gets networks for its pods that begin like this.
func (c *client) nodeGets(t testing.TB, networks ...string) {
	t.Helper()
	kubeconfig, err := c.published(t.Context())
	must(t, err)
	node := corev1.Node{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Node"}, ObjectMeta: metav1.ObjectMeta{Name: "joins"}}
	body, err := json.Marshal(node)
	must(t, err)
	must(t, c.ask(t.Context(), kubeconfig, http.MethodPost, "/api/v1/nodes", body, &node))
	env.Eventually(t, "networks of the node's pods", func() error {
		if err := c.ask(t.Context(), kubeconfig, http.MethodGet, "/api/v1/nodes/joins", nil, &node); err != nil {
			return err
		}
		if !slices.EqualFunc(node.Spec.PodCIDRs, networks, strings.HasPrefix) {
			return fmt.Errorf("%v", node.Spec.PodCIDRs)
		}
		return nil
	})
}
