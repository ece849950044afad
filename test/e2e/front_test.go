package e2e

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"slices"
	"strconv"
	"sync"
	"testing"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	"k8s.io/apimachinery/pkg/labels"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"

	"github.com/stoker-k8s/stoker/pkg/events"
	"github.com/stoker-k8s/stoker/pkg/kube"
)

// front takes connections and carries each, byte for byte, to where lead says. What lead reads of one goes there, too; one that it has no
// place for is closed.
func front(t testing.TB, at string, lead func(io.Reader) (to string, err error)) {
	t.Helper()
	l, err := net.Listen("tcp", at)
	if err != nil {
		t.Fatal(err)
	}
	var mu sync.Mutex
	open := []io.Closer{l}
	keep := func(c io.Closer) {
		mu.Lock()
		defer mu.Unlock()
		open = append(open, c)
	}
	t.Cleanup(func() {
		mu.Lock()
		defer mu.Unlock()
		for _, c := range open {
			_ = c.Close()
		}
	})
	go func() {
		for {
			in, err := l.Accept()
			if err != nil {
				return
			}
			keep(in)
			go func() {
				defer in.Close()
				var read bytes.Buffer
				to, err := lead(io.TeeReader(in, &read))
				if err != nil {
					return
				}
				out, err := net.Dial("tcp", to)
				if err != nil {
					return
				}
				keep(out)
				go func() { _, _ = io.Copy(out, io.MultiReader(&read, in)); _ = out.Close() }()
				_, _ = io.Copy(in, out)
			}()
		}
	}()
}

// carry carries connections to another address, as a NAT does.
func carry(t testing.TB, at, to string) {
	t.Helper()
	front(t, at, func(io.Reader) (string, error) { return to, nil })
}

// someAddress is one of this machine that nothing else has.
func someAddress() string { return fmt.Sprintf("127.9.%d.%d", rand.IntN(250)+1, rand.IntN(250)+1) }

var errNoBackend = errors.New("leads nowhere")

// podBehind is the address of a ready pod behind a port of a Service, as what takes connections for Services finds it.
func podBehind(ctx context.Context, namespace, service string, port int32) (string, error) {
	var s corev1.Service
	if err := e.Admin.Get(ctx, kube.Services, namespace, service, &s); err != nil {
		return "", err
	}
	i := slices.IndexFunc(s.Spec.Ports, func(p corev1.ServicePort) bool { return p.Port == port })
	if i < 0 {
		return "", errNoBackend
	}
	var pods corev1.PodList
	if err := e.Admin.List(ctx, kube.Pods, namespace, labels.SelectorFromSet(s.Spec.Selector).String(), &pods); err != nil {
		return "", err
	}
	for _, pod := range pods.Items {
		ready := slices.ContainsFunc(pod.Status.Conditions, func(c corev1.PodCondition) bool {
			return c.Type == corev1.PodReady && c.Status == corev1.ConditionTrue
		})
		if ready && pod.DeletionTimestamp == nil {
			return net.JoinHostPort(pod.Status.PodIP, strconv.Itoa(s.Spec.Ports[i].TargetPort.IntValue())), nil
		}
	}
	return "", errNoBackend
}

// balance carries connections to the pods of a tenant, as a load balancer does.
func balance(t testing.TB, at string, key events.Key, port int32) {
	t.Helper()
	front(t, at, func(io.Reader) (string, error) { return podBehind(t.Context(), key.Namespace, key.Name, port) })
}

// passIngresses is an ingress controller that passes TLS through: it reads the server's name in the hello and follows the Ingress of it.
func passIngresses(t testing.TB, at string) {
	t.Helper()
	front(t, at, func(r io.Reader) (string, error) {
		host, err := serverName(r)
		if err != nil {
			return "", err
		}
		var all networkingv1.IngressList
		if err := e.Admin.List(t.Context(), kube.Ingresses, "default", "", &all); err != nil {
			return "", err
		}
		for _, o := range all.Items {
			for _, rule := range o.Spec.Rules {
				if rule.Host == host && host != "" {
					to := rule.HTTP.Paths[0].Backend.Service
					return podBehind(t.Context(), o.Namespace, to.Name, to.Port.Number)
				}
			}
		}
		return "", errNoBackend
	})
}

// passRoutes is a gateway's listener that passes TLS through: it follows the TLSRoutes that ask for it.
func passRoutes(t testing.TB, at, gateway string, section gatewayv1.SectionName, port gatewayv1.PortNumber) {
	t.Helper()
	asks := func(p gatewayv1.ParentReference) bool {
		return string(p.Name) == gateway && (p.SectionName == nil || *p.SectionName == section) && (p.Port == nil || *p.Port == port)
	}
	front(t, at, func(r io.Reader) (string, error) {
		host, err := serverName(r)
		if err != nil {
			return "", err
		}
		var all gatewayv1.TLSRouteList
		if err := e.Admin.List(t.Context(), kube.TLSRoutes, "default", "", &all); err != nil {
			return "", err
		}
		for _, o := range all.Items {
			if slices.ContainsFunc(o.Spec.ParentRefs, asks) && slices.Contains(o.Spec.Hostnames, gatewayv1.Hostname(host)) {
				to := o.Spec.Rules[0].BackendRefs[0]
				return podBehind(t.Context(), o.Namespace, string(to.Name), *to.Port)
			}
		}
		return "", errNoBackend
	})
}

// serverName reads the beginning of a TLS connection and says which server its client asks for. TLS isn't ended here.
func serverName(r io.Reader) (host string, err error) {
	read := false
	_ = tls.Server(hello{r: r}, &tls.Config{MinVersion: tls.VersionTLS12, GetConfigForClient: func(h *tls.ClientHelloInfo) (*tls.Config, error) {
		host, read = h.ServerName, true
		return nil, io.EOF // enough
	}}).Handshake()
	if !read {
		return "", errors.New("no TLS")
	}
	return host, nil
}

// hello is a connection that is only read from.
type hello struct {
	net.Conn
	r io.Reader
}

func (c hello) Read(p []byte) (int, error)  { return c.r.Read(p) }
func (c hello) Write(p []byte) (int, error) { return len(p), nil }
