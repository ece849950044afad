// Why pods don't end, in words, from the pods themselves, and why a Deployment doesn't go that has none any more. Pure.

package workload

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/stoker-k8s/stoker/pkg/api/reason"
	"github.com/stoker-k8s/stoker/pkg/api/state"
	"github.com/stoker-k8s/stoker/pkg/kube"
	"github.com/stoker-k8s/stoker/pkg/loop"
)

// askEndingIn is how long after now pods are asked that should have ended for so long.
func askEndingIn(waited time.Duration) time.Duration {
	if waited < endAfter {
		return endAfter - waited
	}
	return loop.HeldAgain(waited)
}

// Ranks of why pods don't end.
const (
	rankEndingNode = iota
	rankEndingContainers
	rankEndingFinalizer
	rankEndingCleanup
	rankEndingUnasked
	rankEndingInTime
)

// endingOf returns the worst cause among the pods of ReplicaSets, the zero cause when there are none. The order of the pods makes no
// difference. A pod that still has time to end counts as PodsEnding.
func endingOf(pods []corev1.Pod, now time.Time) cause {
	worst := cause{}
	for i := range pods {
		if c := metav1.GetControllerOf(&pods[i]); c == nil || c.Kind != "ReplicaSet" {
			continue
		}
		c := endingCause(&pods[i], now)
		if worst.Reason == "" || cmp.Or(cmp.Compare(c.rank, worst.rank), cmp.Compare(c.Text, worst.Text)) < 0 {
			worst = c
		}
	}
	worst.Text = line(worst.Text)
	return worst
}

// endingCause says what keeps one pod.
func endingCause(p *corev1.Pod, now time.Time) cause {
	who := "pod " + p.Name + " on "
	if p.Spec.NodeName == "" {
		who += "no node"
	} else {
		who += "node " + p.Spec.NodeName
	}
	if p.DeletionTimestamp == nil {
		return cause{reason.PodsNotDeleted, who + ": it has not been asked to end", rankEndingUnasked}
	}
	asked := p.DeletionTimestamp.Time
	if s := p.DeletionGracePeriodSeconds; s != nil {
		asked = asked.Add(-time.Duration(*s) * time.Second)
	}
	who += ", asked to end at " + asked.UTC().Format(time.RFC3339) + ": "
	running := runningIn(p)
	kept := ""
	if len(p.Finalizers) > 0 {
		kept = "it is held by what isn't Stoker's: " + kube.FinalizersOf(p.Finalizers)
	}
	ended := len(running) == 0 && (p.Spec.NodeName == "" || len(p.Status.ContainerStatuses) > 0)
	switch {
	case ended && kept != "":
		return cause{reason.PodsHeld, who + "it has ended, and " + kept, rankEndingFinalizer}
	case now.Before(p.DeletionTimestamp.Time):
		return cause{reason.PodsEnding, who + "it has until " + p.DeletionTimestamp.UTC().Format(time.RFC3339), rankEndingInTime}
	case onLostNode(p), !ended && len(running) == 0:
		return cause{reason.PodsOnLostNode, join(who+"its node does not report any more", kept), rankEndingNode}
	case !ended:
		what := fmt.Sprintf("%s still run, for longer than the %d s that they have", strings.Join(running, ", "), terminationGrace)
		return cause{reason.PodsNotEnding, join(who+what, kept), rankEndingContainers}
	}
	what := "its containers have ended, but its node has not given its volumes and network back"
	if v := mounted(p); len(v) > 0 {
		what += "; volumes to unmount: " + strings.Join(v, ", ")
	}
	return cause{reason.PodsNotCleanedUp, who + what, rankEndingCleanup}
}

// runningIn lists the containers of a pod that run.
func runningIn(p *corev1.Pod) (all []string) {
	for _, s := range slices.Concat(p.Status.InitContainerStatuses, p.Status.ContainerStatuses) {
		if s.State.Running != nil {
			all = append(all, s.Name)
		}
	}
	return all
}

// mounted lists the volumes of a pod that may take a while to be unmounted, or for ever: all that aren't files of the kubelet's own.
func mounted(p *corev1.Pod) (all []string) {
	for _, v := range p.Spec.Volumes {
		if v.ConfigMap == nil && v.Secret == nil && v.Projected == nil && v.EmptyDir == nil && v.DownwardAPI == nil && v.HostPath == nil {
			all = append(all, v.Name)
		}
	}
	return all
}

// goingOf says what keeps a Deployment that was deleted in the foreground: its pods and, when none is left, a finalizer, its own or one
// of its ReplicaSets'.
func goingOf(d *metav1.PartialObjectMetadata, pods []corev1.Pod, now time.Time) cause {
	if c := endingOf(pods, now); c.Reason != "" {
		return c
	}
	if slices.Contains(d.Finalizers, metav1.FinalizerDeleteDependents) {
		return cause{Reason: reason.PodsNotDeleted, Text: "no pod is left, but Kubernetes has not removed its ReplicaSets"}
	}
	if len(d.Finalizers) == 0 {
		return cause{}
	}
	return cause{Reason: reason.ObjectHeld, Text: "no pod is left, but it is held by what isn't Stoker's: " + kube.FinalizersOf(d.Finalizers)}
}

// explainEnding completes the wait for pods to end by what keeps them. Unless they still have time, that is a failure, if one that may
// still end well.
func explainEnding(wait state.Wait, c cause) (state.Wait, *state.Failure) {
	if c.Reason == "" {
		return wait, nil
	}
	wait.Reason, wait.Text = c.Reason, join(wait.Text, c.Text)
	if c.Reason == reason.PodsEnding {
		return wait, nil
	}
	return wait, &state.Failure{Reason: wait.Reason, Message: "waits for " + wait.Text}
}
