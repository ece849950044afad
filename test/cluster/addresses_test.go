package cluster

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
)

// giver gives addresses to Services of type LoadBalancer where the cluster itself gives none: those of a network for documentation
// (RFC 5737), which kube-proxy makes reachable from within the cluster. It is safe for concurrent use.
type giver struct {
	i *installation
	// patience is how long the cluster has to give an address itself.
	patience time.Duration

	mu    sync.Mutex
	given int
}

// giveAddresses starts a giver that works until the test ends.
func (i *installation) giveAddresses(t *testing.T) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	g := &giver{i: i, patience: 20 * time.Second}
	var all sync.WaitGroup
	all.Go(func() {
		for ctx.Err() == nil {
			services, err := i.core.CoreV1().Services(namespace).Watch(ctx, metav1.ListOptions{})
			if err != nil {
				if ctx.Err() == nil {
					t.Errorf("watch of Services: %v", err)
				}
				return
			}
			for e := range services.ResultChan() {
				if s, ok := e.Object.(*corev1.Service); ok && e.Type != watch.Deleted && lacksAddress(s) {
					all.Go(func() { g.give(ctx, t, s.Name) })
				}
			}
		}
	})
	t.Cleanup(func() { cancel(); all.Wait() })
}

func lacksAddress(s *corev1.Service) bool {
	return s.Spec.Type == corev1.ServiceTypeLoadBalancer && len(s.Status.LoadBalancer.Ingress) == 0
}

// give gives a Service an address, unless it gets one meanwhile. What it found about the cluster with the first, it knows for all.
func (g *giver) give(ctx context.Context, t *testing.T, service string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.given == 0 {
		select {
		case <-ctx.Done():
			return
		case <-time.After(g.patience):
		}
	}
	services := g.i.core.CoreV1().Services(namespace)
	s, err := services.Get(ctx, service, metav1.GetOptions{})
	if err != nil || !lacksAddress(s) {
		return
	}
	if g.given == 0 {
		t.Log("the cluster gives no addresses to Services of type LoadBalancer: the test does")
	}
	g.given++
	s.Status.LoadBalancer.Ingress = []corev1.LoadBalancerIngress{{IP: fmt.Sprintf("198.51.100.%d", g.given)}}
	if _, err := services.UpdateStatus(ctx, s, metav1.UpdateOptions{}); err != nil && ctx.Err() == nil {
		t.Errorf("address of %s: %v", service, err)
	}
}
