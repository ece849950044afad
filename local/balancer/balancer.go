// Package balancer gives Services of type LoadBalancer an address, and forwards connections to it, and to the node ports of Services of
// type NodePort, to the Service's ready pods.
//
// It finds pods by the Service's selector: EndpointSlices refuse loopback addresses, and pods here have no others. Of the EndpointSlices it
// knows those that lead to Stoker's activator, which have the loopback address in an annotation; a Service leads there, too.
package balancer

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/netip"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/client-go/kubernetes"
	corelisters "k8s.io/client-go/listers/core/v1"
	discoverylisters "k8s.io/client-go/listers/discovery/v1"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/util/workqueue"

	"github.com/stoker-k8s/stoker/local/address"
	"github.com/stoker-k8s/stoker/local/informer"
)

// Class is the loadBalancerClass that is served, besides none.
const Class = "stoker.dev/local"

// ManagedBy is the value of the label endpointslice.kubernetes.io/managed-by on the EndpointSlices that are served, and AddressAnnotation
// has their address.
const (
	ManagedBy         = "activator.stoker.dev"
	AddressAnnotation = "stoker.dev/loopback-address"
)

const dialTimeout = 2 * time.Second

// Config is what a balancer needs.
type Config struct {
	Client    kubernetes.Interface // may watch Services and patch their status
	Pods      corelisters.PodLister
	Addresses *address.Pool // for Services of type LoadBalancer; nil: they get none
	Node      netip.Addr    // has the node ports, which pods may have at their own addresses, too
	Activator bool          // Services lead to Stoker's activator, too: Client may watch EndpointSlices
	Log       *slog.Logger
}

// A Balancer serves Services. Make one with New, then call Run.
type Balancer struct {
	cfg      Config
	informer cache.SharedIndexInformer
	sliced   cache.SharedIndexInformer // EndpointSlices to the activator, nil if they are not served
	slices   discoverylisters.EndpointSliceLister
	queue    workqueue.TypedRateLimitingInterface[string]
	services map[string]*service // by namespace/name; used by Run's goroutine only
}

// New returns a balancer that does nothing until Run is called.
func New(cfg Config) *Balancer {
	b := &Balancer{
		cfg:      cfg,
		informer: informer.Services(cfg.Client),
		services: map[string]*service{},
		queue: workqueue.NewTypedRateLimitingQueue(
			workqueue.NewTypedItemExponentialFailureRateLimiter[string](100*time.Millisecond, 10*time.Second)),
	}
	if cfg.Activator {
		b.sliced = informer.EndpointSlices(cfg.Client, discoveryv1.LabelManagedBy, ManagedBy)
		b.slices = discoverylisters.NewEndpointSliceLister(b.sliced.GetIndexer())
	}
	return b
}

// Run serves until ctx ends. When it returns, no listener and no connection is left.
func (b *Balancer) Run(ctx context.Context) error {
	enqueue := func(obj any) {
		if key, err := cache.DeletionHandlingMetaNamespaceKeyFunc(obj); err == nil {
			b.queue.Add(key)
		}
	}
	ctx, cancel := context.WithCancel(ctx)
	var watching sync.WaitGroup
	defer watching.Wait()
	defer cancel()
	watching.Go(func() { b.informer.RunWithContext(ctx) })
	synced := []cache.InformerSynced{b.informer.HasSynced}
	if b.sliced != nil {
		watching.Go(func() { b.sliced.RunWithContext(ctx) })
		synced = append(synced, b.sliced.HasSynced)
	}
	if !cache.WaitForCacheSync(ctx.Done(), synced...) {
		return nil
	}
	// Services that have their address keep it, so they come before those that get one.
	for _, obj := range b.informer.GetStore().List() {
		b.keep(obj.(*corev1.Service))
	}
	if _, err := b.informer.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc: enqueue, UpdateFunc: func(_, obj any) { enqueue(obj) }, DeleteFunc: enqueue,
	}); err != nil {
		return err
	}
	stop := context.AfterFunc(ctx, b.queue.ShutDown)
	defer stop()
	for {
		key, shutdown := b.queue.Get()
		if shutdown {
			break
		}
		if err := b.sync(ctx, key); err != nil {
			if ctx.Err() == nil {
				b.cfg.Log.Warn("service not served, trying again", "service", key, "error", err)
			}
			b.queue.AddRateLimited(key)
		} else {
			b.queue.Forget(key)
		}
		b.queue.Done(key)
	}
	for _, s := range b.services {
		s.close()
	}
	return nil
}

func (b *Balancer) served(s *corev1.Service) bool {
	return s.DeletionTimestamp == nil && (s.Spec.Type == corev1.ServiceTypeNodePort || b.balanced(s))
}

// balanced tells whether a Service gets an address of its own.
func (b *Balancer) balanced(s *corev1.Service) bool {
	class := s.Spec.LoadBalancerClass
	return b.cfg.Addresses != nil && s.Spec.Type == corev1.ServiceTypeLoadBalancer && (class == nil || *class == Class)
}

func current(s *corev1.Service) (netip.Addr, bool) {
	for _, ingress := range s.Status.LoadBalancer.Ingress {
		if a, err := netip.ParseAddr(ingress.IP); err == nil {
			return a, true
		}
	}
	return netip.Addr{}, false
}

// keep gives a Service the address its status names, if it can have it.
func (b *Balancer) keep(s *corev1.Service) {
	if !b.served(s) || !b.balanced(s) {
		return
	}
	if a, ok := current(s); ok && b.cfg.Addresses.Take(a) {
		b.services[s.Namespace+"/"+s.Name] = b.newService(s, a)
	}
}

// sync makes what runs for one Service what the Service says.
func (b *Balancer) sync(ctx context.Context, key string) error {
	namespace, name, err := cache.SplitMetaNamespaceKey(key)
	if err != nil {
		return err
	}
	object, err := corelisters.NewServiceLister(b.informer.GetIndexer()).Services(namespace).Get(name)
	gone := apierrors.IsNotFound(err)
	if err != nil && !gone {
		return err
	}
	s := b.services[key]
	if s != nil && (gone || s.uid != object.UID || !b.served(object) || s.address.IsValid() != b.balanced(object)) {
		s.close()
		if s.address.IsValid() {
			b.cfg.Addresses.Release(s.address)
		}
		delete(b.services, key)
		s = nil
		if !gone && object.DeletionTimestamp == nil && object.Spec.Type != corev1.ServiceTypeLoadBalancer {
			if err := b.report(ctx, object, nil); err != nil {
				return err
			}
		}
	}
	if gone || !b.served(object) {
		return nil
	}
	if s == nil {
		var a netip.Addr
		if b.balanced(object) {
			if a, err = b.pick(object); err != nil {
				return err
			}
		}
		s = b.newService(object, a)
		b.services[key] = s
	}
	if err := s.serve(object); err != nil {
		return err
	}
	if !b.balanced(object) {
		return nil
	}
	if a, ok := current(object); ok && a == s.address {
		return nil
	}
	b.cfg.Log.Info("service has an address", "service", key, "address", s.address.String())
	mode := corev1.LoadBalancerIPModeProxy
	return b.report(ctx, object, []corev1.LoadBalancerIngress{{IP: s.address.String(), IPMode: &mode}})
}

// pick chooses an address: the one the status has, the one the Service asks for, or any.
func (b *Balancer) pick(object *corev1.Service) (netip.Addr, error) {
	if a, ok := current(object); ok && b.cfg.Addresses.Take(a) {
		return a, nil
	}
	if want := object.Spec.LoadBalancerIP; want != "" {
		a, err := netip.ParseAddr(want)
		if err == nil && b.cfg.Addresses.Contains(a) {
			if b.cfg.Addresses.Take(a) {
				return a, nil
			}
			return netip.Addr{}, fmt.Errorf("the address it asks for, %s, belongs to another service", want)
		}
	}
	return b.cfg.Addresses.Next()
}

func (b *Balancer) report(ctx context.Context, object *corev1.Service, ingress []corev1.LoadBalancerIngress) error {
	patch, err := json.Marshal(map[string]any{
		"metadata": map[string]any{"uid": object.UID},
		"status":   map[string]any{"loadBalancer": map[string]any{"ingress": ingress}},
	})
	if err != nil {
		return err
	}
	_, err = b.cfg.Client.CoreV1().Services(object.Namespace).
		Patch(ctx, object.Name, types.MergePatchType, patch, metav1.PatchOptions{FieldManager: "stoker-local"}, "status")
	if apierrors.IsNotFound(err) || apierrors.IsConflict(err) {
		return nil // it is another Service by now; the watch will say so
	}
	return err
}

// A service is one Service that is served.
type service struct {
	uid       types.UID
	namespace string
	address   netip.Addr // its own; the zero value if it has none
	node      netip.Addr // has its node ports
	name      string
	pods      corelisters.PodLister
	slices    discoverylisters.EndpointSliceLister
	log       *slog.Logger
	fronts    map[netip.AddrPort]*front
}

func (b *Balancer) newService(object *corev1.Service, a netip.Addr) *service {
	return &service{
		uid: object.UID, namespace: object.Namespace, name: object.Name, address: a, node: b.cfg.Node, pods: b.cfg.Pods,
		slices: b.slices,
		log:    b.cfg.Log.With("service", object.Namespace+"/"+object.Name),
		fronts: map[netip.AddrPort]*front{},
	}
}

// at is where connections to one of the Service's ports come in; not valid while it has no node port.
func (s *service) at(port corev1.ServicePort) netip.AddrPort {
	if s.address.IsValid() {
		return netip.AddrPortFrom(s.address, uint16(port.Port))
	}
	if port.NodePort == 0 {
		return netip.AddrPort{}
	}
	return netip.AddrPortFrom(s.node, uint16(port.NodePort))
}

// serve listens on the Service's ports and no others.
func (s *service) serve(object *corev1.Service) error {
	want := map[netip.AddrPort]bool{}
	var failed error
	for _, port := range object.Spec.Ports {
		if port.Protocol != corev1.ProtocolTCP && port.Protocol != "" {
			continue
		}
		at := s.at(port)
		if !at.IsValid() {
			continue
		}
		want[at] = true
		to := &backend{name: port.Name, selector: labels.SelectorFromSet(object.Spec.Selector), port: port.TargetPort}
		if len(object.Spec.Selector) == 0 {
			to.selector = labels.Nothing()
		}
		if port.TargetPort == (intstr.IntOrString{}) {
			to.port = intstr.FromInt32(port.Port)
		}
		if f, ok := s.fronts[at]; ok {
			f.backend.Store(to)
			continue
		}
		listener, err := net.Listen("tcp", at.String())
		if err != nil {
			failed = errors.Join(failed, err)
			continue
		}
		f := &front{service: s, listener: listener, connections: map[net.Conn]bool{}}
		f.backend.Store(to)
		f.done.Go(f.accept)
		s.fronts[at] = f
	}
	for at, f := range s.fronts {
		if !want[at] {
			f.close()
			delete(s.fronts, at)
		}
	}
	return failed
}

func (s *service) close() {
	for _, f := range s.fronts {
		f.close()
	}
}

// A backend is where connections go.
type backend struct {
	name     string // of the Service's port
	selector labels.Selector
	port     intstr.IntOrString
}

// A front is where connections to one port of a Service come in.
type front struct {
	service  *service
	listener net.Listener
	backend  atomic.Pointer[backend]
	turn     atomic.Uint32
	done     sync.WaitGroup

	mu          sync.Mutex
	closed      bool
	connections map[net.Conn]bool
}

func (f *front) accept() {
	for {
		conn, err := f.listener.Accept()
		if err != nil {
			if errors.Is(err, net.ErrClosed) {
				return
			}
			f.service.log.Warn("connection not accepted", "error", err)
			time.Sleep(50 * time.Millisecond) //nolint:forbidigo // out of file descriptors; nothing tells when there are some
			continue
		}
		f.done.Go(func() { f.forward(conn) })
	}
}

// forward carries one connection to a ready pod. With none, it is closed at once.
func (f *front) forward(client net.Conn) {
	defer client.Close()
	if !f.hold(client) {
		return
	}
	defer f.drop(client)
	server := f.dial()
	if server == nil {
		return
	}
	defer server.Close()
	if !f.hold(server) {
		return
	}
	defer f.drop(server)
	var both sync.WaitGroup
	both.Go(func() { pipe(server, client) })
	pipe(client, server)
	both.Wait()
}

// pipe copies one direction. Its end is passed on, so that the other direction can finish; an error ends both.
func pipe(to, from net.Conn) {
	_, err := io.Copy(to, from)
	if half, ok := to.(*net.TCPConn); ok && err == nil {
		_ = half.CloseWrite()
		return
	}
	to.Close()
	from.Close()
}

// dial connects to the pod whose turn it is. One that takes no connection is not passed over, as it isn't by a cluster's Services:
// what a rollout would break there must break here.
func (f *front) dial() net.Conn {
	targets := f.targets()
	if len(targets) == 0 {
		return nil
	}
	target := targets[int(f.turn.Add(1))%len(targets)]
	conn, err := net.DialTimeout("tcp", target, dialTimeout) //nolint:noctx // the timeout is the only end it needs
	if err != nil {
		f.service.log.Debug("pod takes no connection", "pod", target, "error", err)
		return nil
	}
	return conn
}

// targets are the addresses of the ready pods, and those of EndpointSlices.
func (f *front) targets() []string {
	to := f.backend.Load()
	pods, err := f.service.pods.Pods(f.service.namespace).List(to.selector)
	if err != nil {
		return nil
	}
	var targets []string
	for _, pod := range pods {
		if pod.DeletionTimestamp != nil || pod.Status.PodIP == "" || !ready(pod) {
			continue
		}
		if port := portOf(pod, to.port); port != 0 {
			targets = append(targets, net.JoinHostPort(pod.Status.PodIP, strconv.Itoa(int(port))))
		}
	}
	targets = append(targets, f.service.sliced(to.name)...)
	slices.Sort(targets) // a list of the cache has no order, and taking turns needs one
	return targets
}

// sliced are the addresses that EndpointSlices have for a port of the Service.
func (s *service) sliced(port string) (all []string) {
	if s.slices == nil {
		return nil
	}
	found, err := s.slices.EndpointSlices(s.namespace).List(labels.SelectorFromSet(labels.Set{discoveryv1.LabelServiceName: s.name}))
	if err != nil {
		return nil
	}
	for _, slice := range found {
		for _, p := range slice.Ports {
			if address := slice.Annotations[AddressAnnotation]; address != "" && p.Port != nil && p.Name != nil && *p.Name == port {
				all = append(all, net.JoinHostPort(address, strconv.Itoa(int(*p.Port))))
			}
		}
	}
	return all
}

func ready(pod *corev1.Pod) bool {
	for _, c := range pod.Status.Conditions {
		if c.Type == corev1.PodReady {
			return c.Status == corev1.ConditionTrue
		}
	}
	return false
}

func portOf(pod *corev1.Pod, port intstr.IntOrString) int32 {
	if port.Type == intstr.Int {
		return port.IntVal
	}
	for _, c := range pod.Spec.Containers {
		for _, p := range c.Ports {
			if p.Name == port.StrVal {
				return p.ContainerPort
			}
		}
	}
	return 0
}

// hold notes a connection, so that close ends it; it fails when the front is closed already.
func (f *front) hold(c net.Conn) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.closed {
		return false
	}
	f.connections[c] = true
	return true
}

func (f *front) drop(c net.Conn) {
	f.mu.Lock()
	defer f.mu.Unlock()
	delete(f.connections, c)
}

func (f *front) close() {
	f.listener.Close()
	f.mu.Lock()
	f.closed = true
	for c := range f.connections {
		c.Close()
	}
	f.mu.Unlock()
	f.done.Wait()
}
