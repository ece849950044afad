package node

import (
	"context"
	"encoding/json"
	"os"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// publish writes the pod's status if it is another one than was written last.
func (p *pod) publish(ctx context.Context) error {
	p.mu.Lock()
	if p.terminal() {
		p.mu.Unlock()
		return nil
	}
	status := p.status()
	same := p.sent != nil && equality.Semantic.DeepEqual(*p.sent, status)
	p.mu.Unlock()
	if same {
		return nil
	}
	// A merge patch: it replaces what it names and leaves the rest, such as qosClass. The uid refuses it for another
	// pod of that name.
	patch, err := json.Marshal(map[string]any{
		"metadata": map[string]any{"uid": p.uid},
		"status": map[string]any{
			"observedGeneration": status.ObservedGeneration,
			"phase":              status.Phase, "conditions": status.Conditions,
			"hostIP": status.HostIP, "hostIPs": status.HostIPs, "podIP": status.PodIP, "podIPs": status.PodIPs,
			"startTime": status.StartTime, "containerStatuses": status.ContainerStatuses,
			"initContainerStatuses": status.InitContainerStatuses,
		},
	})
	if err != nil {
		return err
	}
	_, err = p.node.cfg.Client.CoreV1().Pods(p.namespace).
		Patch(ctx, p.name, types.MergePatchType, patch, metav1.PatchOptions{}, "status")
	if apierrors.IsNotFound(err) || apierrors.IsConflict(err) {
		return nil // the watch will say so, too
	}
	if err != nil {
		return err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.sent = &status
	return nil
}

// status is the pod's status as it should read now. The caller holds the mutex.
func (p *pod) status() corev1.PodStatus {
	object := p.object
	status := corev1.PodStatus{
		ObservedGeneration: object.Generation,
		StartTime:          object.Status.StartTime,
		HostIP:             p.node.cfg.Address.String(),
		HostIPs:            []corev1.HostIP{{IP: p.node.cfg.Address.String()}},
	}
	if p.sent != nil {
		status.StartTime = p.sent.StartTime
	}
	if status.StartTime == nil {
		now := metav1.Now().Rfc3339Copy()
		status.StartTime = &now
	}
	if p.address.IsValid() {
		status.PodIP = p.address.String()
		status.PodIPs = []corev1.PodIP{{IP: status.PodIP}}
	}
	initialized := true
	for _, c := range p.init {
		status.InitContainerStatuses = append(status.InitContainerStatuses, p.containerStatus(c))
		if c.sidecar() {
			initialized = initialized && c.hasBegun()
		} else {
			initialized = initialized && c.state.Terminated != nil && c.state.Terminated.ExitCode == 0
		}
	}
	ready := true
	for _, c := range p.main {
		status.ContainerStatuses = append(status.ContainerStatuses, p.containerStatus(c))
	}
	for _, c := range append(p.init[:len(p.init):len(p.init)], p.main...) {
		if !c.init || c.sidecar() {
			ready = ready && c.ready
		}
	}
	if object.DeletionTimestamp != nil {
		ready = false
	}
	status.Phase = p.phase()
	status.Conditions = p.conditions(initialized, ready, status.Phase)
	return status
}

// terminal tells whether the pod had ended before this node was started: its status stands.
func (p *pod) terminal() bool {
	phase := p.object.Status.Phase
	return p.sent == nil && (phase == corev1.PodSucceeded || phase == corev1.PodFailed)
}

func (p *pod) phase() corev1.PodPhase {
	for _, c := range p.init {
		if t := c.state.Terminated; t != nil && t.ExitCode != 0 && !c.sidecar() && !c.again(t.ExitCode) {
			return corev1.PodFailed
		}
	}
	begun, ended, failed := false, 0, false
	for _, c := range p.main {
		if c.state.Running != nil || c.state.Terminated != nil || c.last.Terminated != nil {
			begun = true
		}
		if t := c.state.Terminated; t != nil && (!c.again(t.ExitCode) || p.object.DeletionTimestamp != nil) {
			ended++
			failed = failed || t.ExitCode != 0
		}
	}
	switch {
	case ended == len(p.main) && failed:
		return corev1.PodFailed
	case ended == len(p.main):
		return corev1.PodSucceeded
	case begun:
		return corev1.PodRunning
	default:
		return corev1.PodPending
	}
}

func (p *pod) containerStatus(c *container) corev1.ContainerStatus {
	started := c.started
	status := corev1.ContainerStatus{
		Name: c.spec.Name, Image: c.spec.Image, ImageID: c.spec.Image,
		State: *c.state.DeepCopy(), LastTerminationState: *c.last.DeepCopy(),
		RestartCount: c.restarts, Ready: c.ready, Started: &started,
	}
	switch {
	case c.state.Running != nil && c.process != nil:
		status.ContainerID = containerID(c.process)
	case c.state.Terminated != nil:
		status.ContainerID = c.state.Terminated.ContainerID
		if c.init && !c.sidecar() {
			status.Ready = c.state.Terminated.ExitCode == 0
		}
	case c.state.Waiting == nil:
		status.State.Waiting = &corev1.ContainerStateWaiting{Reason: p.waiting.reason, Message: p.waiting.message}
		if len(p.init) > 0 && !c.init && p.waiting.message == "" {
			status.State.Waiting.Reason = "PodInitializing"
		}
	}
	return status
}

// conditions are the pod's own four, and whatever others have said of it.
func (p *pod) conditions(initialized, ready bool, phase corev1.PodPhase) []corev1.PodCondition {
	reason, message := "", ""
	if !ready {
		reason = "ContainersNotReady"
		if phase == corev1.PodSucceeded {
			reason = "PodCompleted"
		}
		var names []string
		for _, c := range p.main {
			if !c.ready {
				names = append(names, c.spec.Name)
			}
		}
		message = "containers with unready status: [" + strings.Join(names, " ") + "]"
	}
	all := ready
	for _, gate := range p.spec.ReadinessGates {
		open := false
		for _, c := range p.object.Status.Conditions {
			open = open || c.Type == gate.ConditionType && c.Status == corev1.ConditionTrue
		}
		all = all && open
	}
	if ready && !all {
		reason, message = "ReadinessGatesNotReady", "a readiness gate of the pod is closed"
	}
	own := []corev1.PodCondition{
		{Type: corev1.PodReadyToStartContainers, Status: truth(p.address.IsValid())},
		{Type: corev1.PodInitialized, Status: truth(initialized)},
		{Type: corev1.PodReady, Status: truth(all), Reason: reason, Message: message},
		{Type: corev1.ContainersReady, Status: truth(ready), Reason: reason, Message: message},
	}
	before := p.object.Status.Conditions
	if p.sent != nil {
		before = p.sent.Conditions
	}
	for i := range own {
		own[i].ObservedGeneration = p.object.Generation
		own[i].LastTransitionTime = metav1.Now().Rfc3339Copy()
		for _, old := range before {
			if old.Type == own[i].Type && old.Status == own[i].Status {
				own[i].LastTransitionTime = old.LastTransitionTime
			}
		}
	}
	scheduled := false
	for _, c := range p.object.Status.Conditions {
		switch c.Type {
		case corev1.PodReadyToStartContainers, corev1.PodInitialized, corev1.PodReady, corev1.ContainersReady:
		default:
			own = append(own, c)
			scheduled = scheduled || c.Type == corev1.PodScheduled
		}
	}
	if !scheduled {
		own = append(own, corev1.PodCondition{
			Type: corev1.PodScheduled, Status: corev1.ConditionTrue, LastTransitionTime: p.object.CreationTimestamp,
		})
	}
	return own
}

func truth(b bool) corev1.ConditionStatus {
	if b {
		return corev1.ConditionTrue
	}
	return corev1.ConditionFalse
}

// tail is the last lines of a log, for a person who asks why a container ended.
func tail(path string, lines int) string {
	data, err := lastBytes(path, 2<<10)
	if err != nil {
		return ""
	}
	all := strings.Split(strings.TrimRight(string(data), "\n"), "\n")
	if len(all) > lines {
		all = all[len(all)-lines:]
	}
	return strings.Join(all, "\n")
}

func lastBytes(path string, n int64) ([]byte, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return nil, err
	}
	offset := max(0, info.Size()-n)
	data := make([]byte, info.Size()-offset)
	read, err := f.ReadAt(data, offset)
	if read < len(data) && err != nil {
		return data[:read], nil
	}
	return data, nil
}
