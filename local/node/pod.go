package node

import (
	"context"
	"fmt"
	"hash/fnv"
	"log/slog"
	"net/netip"
	"os"
	"path/filepath"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// gather is how long news of a pod are collected before its status is written: containers that start together are
// one write.
const gather = 15 * time.Millisecond

// A pod is one pod on this node. One goroutine owns it (run), a second lives its life (live), with one per container.
type pod struct {
	node            *Node
	log             *slog.Logger
	namespace, name string
	uid             types.UID
	dir, short      string
	spec            *corev1.PodSpec

	wake chan struct{} // something changed; holds one

	mu         sync.Mutex
	object     *corev1.Pod // newest that was seen
	gone       bool        // not in the API any more
	address    netip.Addr
	waiting    waiting
	init, main []*container
	sent       *corev1.PodStatus // what was last written
}

// waiting says why a container hasn't been started.
type waiting struct{ reason, message string }

func newPod(n *Node, object *corev1.Pod) *pod {
	p := &pod{
		node:      n,
		log:       n.cfg.Log.With("pod", object.Namespace+"/"+object.Name),
		namespace: object.Namespace, name: object.Name, uid: object.UID,
		dir:   filepath.Join(n.cfg.Dir, dirName(object)),
		short: filepath.Join(n.cfg.ShortDir, shortName(object)),
		spec:  object.Spec.DeepCopy(), object: object,
		wake:    make(chan struct{}, 1),
		waiting: waiting{reason: "ContainerCreating"},
	}
	for i := range p.spec.InitContainers {
		p.init = append(p.init, newContainer(p, &p.spec.InitContainers[i], object.Status.InitContainerStatuses, true))
	}
	for i := range p.spec.Containers {
		p.main = append(p.main, newContainer(p, &p.spec.Containers[i], object.Status.ContainerStatuses, false))
	}
	return p
}

func dirName(object *corev1.Pod) string {
	return fmt.Sprintf("%s_%s_%s", object.Namespace, object.Name, object.UID)
}

func shortName(object *corev1.Pod) string {
	h := fnv.New64a()
	h.Write([]byte(object.UID))
	return fmt.Sprintf("%016x", h.Sum64())
}

// update takes a newer version of the pod.
func (p *pod) update(object *corev1.Pod) {
	p.mu.Lock()
	p.object = object
	p.mu.Unlock()
	p.changed()
}

// vanished takes the news that the pod is not in the API any more.
func (p *pod) vanished() {
	p.mu.Lock()
	p.gone = true
	p.mu.Unlock()
	p.changed()
}

// changed makes run look at the pod again.
func (p *pod) changed() {
	select {
	case p.wake <- struct{}{}:
	default:
	}
}

func (p *pod) latest() (object *corev1.Pod, gone bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.object, p.gone
}

func (p *pod) pid(name string) int {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, c := range append(p.init[:len(p.init):len(p.init)], p.main...) {
		if c.spec.Name == name && c.process != nil && c.process.Running() {
			return c.process.PID()
		}
	}
	return 0
}

// run owns the pod from the first time the node sees it until nothing of it is left, or the node stops:
//
//  1. live gets volumes ready and runs the containers;
//  2. what it changes is written to the pod's status;
//  3. a pod that is being deleted has its life ended, and when no process is left its directories are removed;
//  4. then it is removed from the API, and its address is given back.
func (p *pod) run(ctx context.Context) {
	life, end := context.WithCancel(ctx)
	defer end()
	dead := make(chan struct{})
	go func() {
		defer close(dead)
		p.live(life)
	}()
	finished := false
	var again <-chan time.Time
	p.changed()
	for ended := dead; ; {
		select {
		case <-ctx.Done():
			<-dead
			p.release()
			return
		case <-ended:
			finished, ended = true, nil
		case <-again:
		case <-p.wake:
		}
		object, gone := p.latest()
		if gone || object.DeletionTimestamp != nil {
			end()
		} else if !sleep(ctx, gather) {
			continue
		}
		again = nil
		if !gone {
			if err := p.publish(ctx); err != nil && ctx.Err() == nil {
				p.log.Debug("pod status not written, trying again", "error", err)
				again = time.After(500 * time.Millisecond)
				if !finished {
					continue
				}
			}
		}
		if !finished || !gone && object.DeletionTimestamp == nil {
			continue
		}
		p.clean()
		if !gone {
			if err := p.remove(ctx); err != nil {
				p.log.Debug("pod not removed, trying again", "error", err)
				again = time.After(500 * time.Millisecond)
				continue
			}
		}
		p.release()
		return
	}
}

// live runs the pod's containers, and returns when none of them runs nor will run again.
func (p *pod) live(ctx context.Context) {
	object, _ := p.latest()
	if phase := object.Status.Phase; phase == corev1.PodSucceeded || phase == corev1.PodFailed || object.DeletionTimestamp != nil {
		return
	}
	addr, err := p.node.cfg.Pods.Next()
	for err != nil {
		p.wait("NoAddress", err.Error())
		if !sleep(ctx, 5*time.Second) {
			return
		}
		addr, err = p.node.cfg.Pods.Next()
	}
	p.mu.Lock()
	p.address = addr
	p.mu.Unlock()
	p.changed()

	// A mount fails for a while when the pod is younger than what it mounts. Nothing tells when it's there, so the
	// waiting grows from short to bearable.
	var mounted *mounts
	pause := 100 * time.Millisecond
	for {
		if mounted, err = p.mount(ctx); err == nil {
			break
		}
		if ctx.Err() != nil {
			return
		}
		if p.wait("ContainerCreating", err.Error()) && pause > time.Second {
			p.warn("FailedMount", err.Error())
		}
		if !sleep(ctx, pause) {
			return
		}
		pause = min(2*pause, 5*time.Second)
	}
	p.wait("ContainerCreating", "")

	var running sync.WaitGroup
	if len(mounted.tokens) > 0 {
		running.Go(func() { p.refresh(ctx, mounted) })
	}
	// Sidecars end after the containers they were started before.
	sidecars, endSidecars := context.WithCancel(context.WithoutCancel(ctx))
	defer func() {
		endSidecars()
		running.Wait()
	}()
	for _, c := range p.init {
		if c.sidecar() {
			running.Go(func() { c.run(sidecars, mounted) })
			select {
			case <-c.begun:
			case <-ctx.Done():
				return
			}
			continue
		}
		if c.run(ctx, mounted); ctx.Err() != nil || !c.succeeded() {
			return
		}
	}
	p.initialized()
	var work sync.WaitGroup
	for _, c := range p.main {
		work.Go(func() { c.run(ctx, mounted) })
	}
	work.Wait()
	endSidecars()
}

// wait says why no container has been started yet, and reports whether that is news.
func (p *pod) wait(reason, message string) bool {
	p.mu.Lock()
	w := waiting{reason, message}
	news := p.waiting != w
	p.waiting = w
	p.mu.Unlock()
	if news {
		p.changed()
	}
	return news
}

// initialized marks main containers as next in turn.
func (p *pod) initialized() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.waiting = waiting{reason: "ContainerCreating"}
}

// grace is how long a container may take to end.
func (p *pod) grace(nodeStops bool) time.Duration {
	object, _ := p.latest()
	seconds := int64(30)
	if s := p.spec.TerminationGracePeriodSeconds; s != nil {
		seconds = *s
	}
	if s := object.DeletionGracePeriodSeconds; s != nil {
		seconds = *s
	}
	grace := time.Duration(seconds) * time.Second
	if nodeStops {
		grace = min(grace, stopGrace)
	}
	return grace
}

// remove takes the pod out of the API for good; only its node may say that it has ended.
func (p *pod) remove(ctx context.Context) error {
	zero := int64(0)
	err := p.node.cfg.Client.CoreV1().Pods(p.namespace).Delete(ctx, p.name, metav1.DeleteOptions{
		GracePeriodSeconds: &zero, Preconditions: &metav1.Preconditions{UID: &p.uid},
	})
	if apierrors.IsNotFound(err) || apierrors.IsConflict(err) {
		return nil
	}
	return err
}

func (p *pod) clean() {
	for _, dir := range []string{p.dir, p.short} {
		if err := os.RemoveAll(dir); err != nil {
			p.log.Warn("leftover of a pod stays", "path", dir, "error", err)
		}
	}
}

func (p *pod) release() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.address.IsValid() {
		p.node.cfg.Pods.Release(p.address)
	}
}

// warn leaves an event, for kubectl describe.
func (p *pod) warn(reason, message string) {
	object, _ := p.latest()
	p.node.events.Event(object, corev1.EventTypeWarning, reason, message)
}
