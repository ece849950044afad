// Why pods aren't ready, in words, from the pods themselves: the Deployment knows of quotas, but not of images, crashes and
// nodes that are full. Pure.

package workload

import (
	"cmp"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"unicode"

	corev1 "k8s.io/api/core/v1"

	"github.com/stoker-k8s/stoker/pkg/api/name"
	"github.com/stoker-k8s/stoker/pkg/api/reason"
	"github.com/stoker-k8s/stoker/pkg/api/v1alpha1"
)

// cause is why pods aren't ready. It has neither times nor counts, with which it would be another each time the pods are asked.
type cause struct {
	// Reason is a constant of pkg/api/reason, or Kubernetes' own word where that has none; empty when nothing is known.
	Reason string
	// Text is one line for people and begins with the container where one is at fault.
	Text string
	// rank orders causes: those that don't end by themselves first.
	rank int
}

// Ranks of causes.
const (
	rankRefused = iota
	rankCrash
	rankUnschedulable
	rankNode
	rankFailed
	rankProbes
	rankCreating
	rankScheduling
)

// causeOf returns the worst cause among the pods with this config hash, which are those of the Deployment's template; pods of
// earlier templates say nothing about it. The order of the pods makes no difference.
func causeOf(pods []corev1.Pod, config string) cause {
	var all []cause
	found := false
	for i := range pods {
		p := &pods[i]
		if p.Annotations[name.AnnotationConfigHash] != config || p.DeletionTimestamp != nil {
			continue
		}
		found = true
		if !ready(p) {
			all = append(all, podCauses(p)...)
		}
	}
	if !found {
		return cause{Reason: reason.NoPods, Text: "no pod has been created yet"}
	}
	if len(all) == 0 {
		return cause{}
	}
	worst := slices.MinFunc(all, func(a, b cause) int { return cmp.Or(cmp.Compare(a.rank, b.rank), cmp.Compare(a.Text, b.Text)) })
	worst.Text = line(worst.Text)
	return worst
}

// causeOrDeployments is causeOf, or what the Deployment says where there are no pods.
func causeOrDeployments(pods []corev1.Pod, config string, deployment cause) cause {
	c := causeOf(pods, config)
	if (c.Reason == "" || c.Reason == reason.NoPods) && deployment.Text != "" {
		return deployment
	}
	return c
}

func ready(p *corev1.Pod) bool {
	return condition(p, corev1.PodReady) == corev1.ConditionTrue
}

// condition is the status of a pod's condition, empty if it has none of this type.
func condition(p *corev1.Pod, of corev1.PodConditionType) corev1.ConditionStatus {
	for _, c := range p.Status.Conditions {
		if c.Type == of {
			return c.Status
		}
	}
	return ""
}

// podCauses lists what keeps one pod from being ready, at most one cause per container.
func podCauses(p *corev1.Pod) []cause {
	if p.Status.Phase == corev1.PodFailed {
		why := cmp.Or(p.Status.Reason, reason.PodFailed)
		return []cause{{why, join(why, p.Status.Message), rankFailed}}
	}
	for _, c := range p.Status.Conditions {
		if c.Type == corev1.PodScheduled && c.Status != corev1.ConditionTrue {
			why := cmp.Or(c.Reason, reason.Unschedulable)
			return []cause{{why, join(why, c.Message), rankUnschedulable}}
		}
	}
	var all []cause
	missing := missingFor(p)
	for _, s := range p.Status.InitContainerStatuses {
		done := s.State.Terminated != nil && s.State.Terminated.ExitCode == 0
		if c := containerCause(s, missing); c.Reason != "" && !done && s.State.Running == nil {
			all = append(all, c)
		}
	}
	for _, s := range p.Status.ContainerStatuses {
		if c := containerCause(s, missing); c.Reason != "" {
			all = append(all, c)
		}
	}
	if len(p.Status.ContainerStatuses) == 0 && len(all) == 0 {
		all = append(all, cause{reason.PodPending, "no node has taken the pod up yet", rankScheduling})
	}
	if onLostNode(p) {
		all = append(all, cause{reason.NodeLost, join(reason.NodeLost, "node "+p.Spec.NodeName+" does not report any more"), rankNode})
	}
	return all
}

// onLostNode reports whether the node of a pod that isn't ready does not report any more. A kubelet would say of such a pod that it is
// ready. That it isn't comes from Kubernetes' node lifecycle controller.
func onLostNode(p *corev1.Pod) bool {
	return !ready(p) && condition(p, corev1.ContainersReady) == corev1.ConditionTrue && len(p.Spec.ReadinessGates) == 0
}

// missingFor is what a container waits for that is being created, as far as the pod says it: kubelet mounts volumes, then makes
// sandbox and network, then pulls images (KEP-3085).
func missingFor(p *corev1.Pod) string {
	switch condition(p, corev1.PodReadyToStartContainers) {
	case corev1.ConditionTrue:
		return "its image is being pulled"
	case corev1.ConditionFalse:
		return "the pod's volumes (do their Secrets exist?) or network are not there yet"
	}
	return "its image, volumes (do their Secrets exist?) or network are not there yet"
}

// containerCause says what keeps a container from being ready; empty when it is. The kubelet has several words for one cause and
// uses them in turn; here it is one. A container that is being created waits for what is missing.
func containerCause(s corev1.ContainerStatus, missing string) cause {
	if s.Ready {
		return cause{}
	}
	last := s.State.Terminated
	if last == nil {
		last = s.LastTerminationState.Terminated
	}
	w := s.State.Waiting
	switch {
	case w != nil && (w.Reason == reason.ContainerCreating || w.Reason == ""):
		// A kubelet says no more than this, be it a Secret or an address that is missing.
		return cause{reason.ContainerCreating, join(s.Name, reason.ContainerCreating, cmp.Or(w.Message, missing)), rankCreating}
	case w != nil && w.Reason == reason.PodInitializing:
		return cause{reason.PodInitializing, s.Name + ": waits for the pod's init containers", rankScheduling}
	case w != nil && w.Reason == imagePullBackOff:
		message := w.Message
		if _, detail, ok := strings.Cut(message, reason.ImagePull+": "); ok {
			message = detail
		}
		return cause{reason.ImagePull, join(s.Name, reason.ImagePull, message), rankRefused}
	case w != nil && w.Reason != reason.CrashLoop:
		return cause{w.Reason, join(s.Name, w.Reason, w.Message), rankRefused}
	case last != nil && (last.ExitCode != 0 || s.State.Running == nil):
		return crash(s, last)
	case s.State.Running != nil && (s.Started == nil || !*s.Started):
		return cause{reason.ProbesFail, s.Name + ": runs, but its startup probe has not succeeded yet", rankProbes}
	case s.State.Running != nil:
		return cause{reason.ProbesFail, s.Name + ": runs, but its readiness probe fails", rankProbes}
	}
	return cause{}
}

// imagePullBackOff is the kubelet's word between two tries to pull an image.
const imagePullBackOff = "ImagePullBackOff"

// crash says how a container ended.
func crash(s corev1.ContainerStatus, last *corev1.ContainerStateTerminated) cause {
	how := fmt.Sprintf("exits with code %d", last.ExitCode)
	if last.Signal != 0 {
		how = fmt.Sprintf("is ended by signal %d", last.Signal)
	}
	why := reason.Crashes
	if s.RestartCount > 1 || s.State.Waiting != nil {
		why = reason.CrashLoop
	}
	said := ""
	switch last.Reason {
	case "", "Error", "Completed":
		said = lastWords(last.Message)
	case reason.OutOfMemory:
		why, how = last.Reason, how+", for it needs more memory than its limit"
	default: // ContainerCannotRun, StartError: it never ran
		how = join(how, last.Reason, last.Message)
	}
	if s.RestartCount > 0 {
		how += ", restarted"
	}
	return cause{why, join(s.Name, why, how, said), rankCrash}
}

// commandFailed begins what the log of a component of Kubernetes ends in, which says why it has ended; flagRefused does where the
// component can't read its flags.
const (
	commandFailed = `"command failed" err=`
	flagRefused   = "Error: "
)

// lastWords are the error that a component of Kubernetes has ended with, by the end of its log; empty where there is none. Nothing else
// of a log is shown.
func lastWords(log string) string {
	lines := strings.Split(strings.TrimSpace(log), "\n")
	if words, ok := strings.CutPrefix(lines[len(lines)-1], flagRefused); ok {
		return words
	}
	at := strings.LastIndex(log, commandFailed)
	if at < 0 {
		return ""
	}
	rest := log[at+len(commandFailed):]
	if quoted, err := strconv.QuotedPrefix(rest); err == nil {
		words, _ := strconv.Unquote(quoted) // what QuotedPrefix returns is quoted
		return words
	}
	block, ok := strings.CutPrefix(rest, "<\n") // of several lines
	if !ok {
		return ""
	}
	var words []string
	for line := range strings.SplitSeq(block, "\n") {
		line = strings.TrimSpace(line)
		if line == ">" {
			break
		}
		if !strings.HasPrefix(line, "|") { // which points into an expression
			words = append(words, line)
		}
	}
	return strings.Join(words, " ")
}

// inDocument is a field of a document that the API server reads, as its errors name it: the first of its path.
var inDocument = regexp.MustCompile(`\b(jwt|authorizers|rules)\[`)

// namingFields has what the API server says of its settings name the fields of the TenantControlPlane.
func namingFields(settings *v1alpha1.APIServerSpec, text string) string {
	if settings == nil || !strings.HasPrefix(text, name.ContainerAPIServer+": ") {
		return text
	}
	at := map[string]string{}
	if settings.Authentication != nil {
		at["jwt["] = "authentication."
	}
	if settings.Authorization != nil {
		at["authorizers["] = "authorization."
	}
	if settings.Audit != nil {
		at["rules["] = "audit.policy."
	}
	text = inDocument.ReplaceAllStringFunc(text, func(first string) string {
		if at[first] == "" {
			return first
		}
		return "spec.kubernetes.apiServer." + at[first] + first
	})
	if len(settings.FeatureGates) > 0 && strings.Contains(text, "feature gate") {
		text += " (spec.kubernetes.apiServer.featureGates)"
	}
	return line(text)
}

// join puts colons between the parts that aren't empty.
func join(parts ...string) string {
	return strings.Join(slices.DeleteFunc(parts, func(s string) bool { return s == "" }), ": ")
}

// line makes a text from elsewhere one line of printable characters, of at most maxCause bytes.
func line(s string) string {
	s = oneLine(s)
	if len(s) <= maxCause {
		return s
	}
	const more = "…"
	return strings.ToValidUTF8(s[:maxCause-len(more)], "") + more
}

// oneLine makes a text from elsewhere one line of printable characters.
func oneLine(s string) string {
	return strings.Join(strings.FieldsFunc(strings.ToValidUTF8(s, "�"), func(r rune) bool {
		return unicode.IsSpace(r) || !unicode.IsPrint(r)
	}), " ")
}
