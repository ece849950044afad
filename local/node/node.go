package node

import (
	"context"
	"crypto/tls"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"runtime"
	"sync"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/scheme"
	typedcorev1 "k8s.io/client-go/kubernetes/typed/core/v1"
	corelisters "k8s.io/client-go/listers/core/v1"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/record"

	"github.com/stoker-k8s/stoker/local/address"
	"github.com/stoker-k8s/stoker/local/images"
	"github.com/stoker-k8s/stoker/local/informer"
	"github.com/stoker-k8s/stoker/local/process"
	"github.com/stoker-k8s/stoker/local/progress"
)

const (
	leaseDuration = 40 * time.Second
	leaseRenewal  = 10 * time.Second
	statusRenewal = 5 * time.Minute
	logLimit      = 10 << 20
	// stopGrace is what a container gets to end when the node itself stops, if its pod doesn't give it less.
	stopGrace = 5 * time.Second
)

// Config is what a node needs. All fields are required.
type Config struct {
	Name    string
	Version string // what the node says its kubelet's version is
	// Client acts as the node: user system:node:<Name> of group system:nodes.
	Client kubernetes.Interface
	// Dir holds logs and volumes, one directory per pod.
	Dir string
	// ShortDir holds emptyDir volumes. Its path is short, so that the path of a socket in one stays within the
	// hundred bytes the system allows.
	ShortDir string
	Address  netip.Addr    // the node's own
	Pods     *address.Pool // the pods'
	// Listener takes the API server's requests for logs; TLS admits only the API server.
	Listener net.Listener
	TLS      *tls.Config
	// Pull makes an image ready to run. See images.Store.Pull.
	Pull func(ctx context.Context, reference string, say progress.Func) (images.Program, error)
	// Start starts a container's program. See [StartProcess].
	Start func(process.Spec) (Process, error)
	Log   *slog.Logger
}

// Process is a program that runs, or has run, as a container does. [process.Process] is one, and says what the methods do.
type Process interface {
	PID() int
	Started() time.Time
	Done() <-chan struct{}
	Exit() process.Exit
	Running() bool
	Stop(ctx context.Context, grace time.Duration)
}

// StartProcess is [process.Start].
func StartProcess(spec process.Spec) (Process, error) {
	p, err := process.Start(spec)
	if err != nil {
		return nil, err
	}
	return p, nil
}

// A Node runs pods. Make one with New, then call Run.
type Node struct {
	cfg      Config
	informer cache.SharedIndexInformer
	events   record.EventRecorder

	mu   sync.Mutex
	pods map[types.UID]*pod
	wg   sync.WaitGroup // one per pod
}

// New returns a node that does nothing until Run is called.
func New(cfg Config) *Node {
	return &Node{
		cfg:      cfg,
		informer: informer.Pods(cfg.Client, fields.OneTermEqualSelector("spec.nodeName", cfg.Name).String()),
		pods:     map[types.UID]*pod{},
	}
}

// Lister lists the node's pods, from its watch of them.
func (n *Node) Lister() corelisters.PodLister {
	return corelisters.NewPodLister(n.informer.GetIndexer())
}

// ContainerPID returns the id of the process a container runs as, or 0.
func (n *Node) ContainerPID(namespace, name, container string) int {
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, p := range n.pods {
		if p.namespace == namespace && p.name == name {
			if pid := p.pid(container); pid != 0 {
				return pid
			}
		}
	}
	return 0
}

// Run registers the node, and runs pods until ctx ends; it returns when all their processes have ended. Pods stay in
// the API; the next Run starts them again.
func (n *Node) Run(ctx context.Context) error {
	broadcaster := record.NewBroadcaster(record.WithContext(ctx))
	defer broadcaster.Shutdown()
	broadcaster.StartRecordingToSink(&typedcorev1.EventSinkImpl{Interface: n.cfg.Client.CoreV1().Events("")})
	n.events = broadcaster.NewRecorder(scheme.Scheme, corev1.EventSource{Component: "process-node", Host: n.cfg.Name})

	if err := n.register(ctx); err != nil {
		return fmt.Errorf("register node %s: %w", n.cfg.Name, err)
	}
	var wg sync.WaitGroup
	defer wg.Wait()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	wg.Go(func() { n.serve(ctx) })
	wg.Go(func() { n.heartbeat(ctx) })
	wg.Go(func() { n.rotate(ctx) })

	registration, err := n.informer.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc:    func(obj any) { n.observe(ctx, obj.(*corev1.Pod)) },
		UpdateFunc: func(_, obj any) { n.observe(ctx, obj.(*corev1.Pod)) },
		DeleteFunc: func(obj any) {
			if gone, ok := obj.(cache.DeletedFinalStateUnknown); ok {
				obj = gone.Obj
			}
			if pod, ok := obj.(*corev1.Pod); ok {
				n.forget(pod)
			}
		},
	})
	if err != nil {
		return err
	}
	var watching sync.WaitGroup
	watching.Go(func() { n.informer.RunWithContext(ctx) })
	if cache.WaitForCacheSync(ctx.Done(), registration.HasSynced) {
		n.clean()
	}
	<-ctx.Done()
	watching.Wait()
	n.wg.Wait()
	return nil
}

// observe gives a pod its owner, or its owner the news.
func (n *Node) observe(ctx context.Context, object *corev1.Pod) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if p, ok := n.pods[object.UID]; ok {
		p.update(object)
		return
	}
	if ctx.Err() != nil {
		return
	}
	p := newPod(n, object)
	n.pods[object.UID] = p
	n.wg.Go(func() {
		p.run(ctx)
		n.mu.Lock()
		defer n.mu.Unlock()
		delete(n.pods, object.UID)
	})
}

func (n *Node) forget(object *corev1.Pod) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if p, ok := n.pods[object.UID]; ok {
		p.vanished()
	}
}

// clean removes what pods left behind that went away while no node ran.
func (n *Node) clean() {
	keep := map[string]bool{}
	for _, obj := range n.informer.GetStore().List() {
		object := obj.(*corev1.Pod)
		keep[dirName(object)] = true
		keep[shortName(object)] = true
	}
	for _, parent := range []string{n.cfg.Dir, n.cfg.ShortDir} {
		entries, err := os.ReadDir(parent)
		if err != nil {
			continue
		}
		for _, entry := range entries {
			if keep[entry.Name()] {
				continue
			}
			if err := os.RemoveAll(filepath.Join(parent, entry.Name())); err != nil {
				n.cfg.Log.Warn("leftover of a pod stays", "path", filepath.Join(parent, entry.Name()), "error", err)
			}
		}
	}
}

func (n *Node) register(ctx context.Context) error {
	nodes := n.cfg.Client.CoreV1().Nodes()
	node := &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: n.cfg.Name, Labels: map[string]string{
			corev1.LabelHostname:   n.cfg.Name,
			corev1.LabelOSStable:   runtime.GOOS,
			corev1.LabelArchStable: runtime.GOARCH,
		}},
		Status: n.status(),
	}
	err := retry(ctx, func() error {
		_, err := nodes.Create(ctx, node, metav1.CreateOptions{})
		if apierrors.IsAlreadyExists(err) {
			return nil
		}
		return err
	})
	if err != nil {
		return err
	}
	if err := retry(ctx, func() error { return n.renew(ctx) }); err != nil {
		return err
	}
	return retry(ctx, func() error { return n.report(ctx) })
}

func (n *Node) status() corev1.NodeStatus {
	room := corev1.ResourceList{
		corev1.ResourcePods:             resource.MustParse("5000"),
		corev1.ResourceCPU:              resource.MustParse("10000"),
		corev1.ResourceMemory:           resource.MustParse("100Ti"),
		corev1.ResourceEphemeralStorage: resource.MustParse("100Ti"),
	}
	now := metav1.Now()
	condition := func(kind corev1.NodeConditionType, status corev1.ConditionStatus, reason string) corev1.NodeCondition {
		return corev1.NodeCondition{Type: kind, Status: status, Reason: reason, LastHeartbeatTime: now, LastTransitionTime: now}
	}
	var status corev1.NodeStatus
	status.Capacity, status.Allocatable = room, room
	status.Phase = corev1.NodeRunning
	status.Conditions = []corev1.NodeCondition{
		condition(corev1.NodeReady, corev1.ConditionTrue, "ProcessNodeReady"),
		condition(corev1.NodeMemoryPressure, corev1.ConditionFalse, "NotMeasured"),
		condition(corev1.NodeDiskPressure, corev1.ConditionFalse, "NotMeasured"),
		condition(corev1.NodePIDPressure, corev1.ConditionFalse, "NotMeasured"),
	}
	status.Addresses = []corev1.NodeAddress{
		{Type: corev1.NodeInternalIP, Address: n.cfg.Address.String()},
		{Type: corev1.NodeHostName, Address: n.cfg.Name},
	}
	status.DaemonEndpoints.KubeletEndpoint.Port = address.ClaimPort
	status.NodeInfo = corev1.NodeSystemInfo{
		KubeletVersion: n.cfg.Version, OperatingSystem: runtime.GOOS, Architecture: runtime.GOARCH,
		ContainerRuntimeVersion: "process://1", OSImage: "processes of this machine",
	}
	return status
}

func (n *Node) report(ctx context.Context) error {
	node, err := n.cfg.Client.CoreV1().Nodes().Get(ctx, n.cfg.Name, metav1.GetOptions{})
	if err != nil {
		return err
	}
	status := n.status()
	for i := range status.Conditions {
		for _, old := range node.Status.Conditions {
			if old.Type == status.Conditions[i].Type && old.Status == status.Conditions[i].Status {
				status.Conditions[i].LastTransitionTime = old.LastTransitionTime
			}
		}
	}
	node.Status = status
	_, err = n.cfg.Client.CoreV1().Nodes().UpdateStatus(ctx, node, metav1.UpdateOptions{})
	return err
}

// renew keeps the node's lease, by which Kubernetes knows that a node lives.
func (n *Node) renew(ctx context.Context) error {
	leases := n.cfg.Client.CoordinationV1().Leases(corev1.NamespaceNodeLease)
	seconds := int32(leaseDuration / time.Second)
	spec := coordinationv1.LeaseSpec{
		HolderIdentity: &n.cfg.Name, LeaseDurationSeconds: &seconds, RenewTime: &metav1.MicroTime{Time: time.Now()},
	}
	lease, err := leases.Get(ctx, n.cfg.Name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		_, err = leases.Create(ctx, &coordinationv1.Lease{
			ObjectMeta: metav1.ObjectMeta{Name: n.cfg.Name, Namespace: corev1.NamespaceNodeLease}, Spec: spec,
		}, metav1.CreateOptions{})
		return err
	}
	if err != nil {
		return err
	}
	lease.Spec = spec
	_, err = leases.Update(ctx, lease, metav1.UpdateOptions{})
	return err
}

func (n *Node) heartbeat(ctx context.Context) {
	lease, status := time.NewTicker(leaseRenewal), time.NewTicker(statusRenewal)
	defer lease.Stop()
	defer status.Stop()
	healthy := true
	for {
		var err error
		select {
		case <-ctx.Done():
			return
		case <-lease.C:
			err = n.renew(ctx)
		case <-status.C:
			err = n.report(ctx)
		}
		if ctx.Err() != nil {
			return
		}
		if err != nil && healthy {
			n.cfg.Log.Warn("node can't renew its lease", "error", err)
		}
		healthy = err == nil
	}
}

func (n *Node) rotate(ctx context.Context) {
	tick := time.NewTicker(time.Minute)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		logs, _ := filepath.Glob(filepath.Join(n.cfg.Dir, "*", "*.log"))
		for _, log := range logs {
			if err := process.Rotate(log, logLimit); err != nil && !os.IsNotExist(err) {
				n.cfg.Log.Warn("log can't be rotated", "path", log, "error", err)
			}
		}
	}
}

// retry calls f until it succeeds, at first after a tenth of a second, later every two seconds.
func retry(ctx context.Context, f func() error) error {
	wait := 100 * time.Millisecond
	for {
		err := f()
		if err == nil {
			return nil
		}
		if !sleep(ctx, wait) {
			return err
		}
		wait = min(2*wait, 2*time.Second)
	}
}

// sleep waits, and reports whether it did to the end.
func sleep(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-timer.C:
		return true
	}
}
