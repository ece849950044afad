// How far a rollout is and which facts that makes, decided from the Deployment and from what was known before. Pure.

package workload

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"

	"github.com/stoker-k8s/stoker/pkg/api/event"
	"github.com/stoker-k8s/stoker/pkg/api/name"
	"github.com/stoker-k8s/stoker/pkg/api/reason"
	"github.com/stoker-k8s/stoker/pkg/api/state"
	"github.com/stoker-k8s/stoker/pkg/api/v1alpha1"
	"github.com/stoker-k8s/stoker/pkg/kube"
)

// rollout is how far a Deployment is.
type rollout struct {
	// Step, Wait and Data for the own state.
	Step string
	Wait state.Wait
	Data state.Workload
	// Facts lists the facts owed, in order.
	Facts []string
	// From is the version that ran before, for upgraded.
	From string
	// Object is the Deployment's kind, namespace and name, for messages.
	Object string
	// Starting is true while pods that the spec asks for aren't ready; Cause is why, if the Deployment knows.
	Starting bool
	Cause    cause
	// Ending is true while pods end that the spec doesn't ask for.
	Ending bool
}

// complete reports whether every pod there is runs the Deployment's template and is available.
func complete(d *appsv1.Deployment) bool {
	s, want := &d.Status, desired(d)
	return s.ObservedGeneration >= d.Generation && s.UpdatedReplicas == want && s.Replicas == want && s.AvailableReplicas == want
}

func desired(d *appsv1.Deployment) int32 {
	if d.Spec.Replicas == nil {
		return 1
	}
	return *d.Spec.Replicas
}

// assess says how far a rollout is: phase, facts and what is waited for. before is what was known and step the last step;
// current says whether that was for this generation. d is the Deployment as it is, with the template that was applied.
func assess(spec *v1alpha1.TenantControlPlaneSpec, before state.Workload, step string, current bool, d *appsv1.Deployment) rollout {
	s := &d.Status
	r := rollout{Step: event.Exposed, Data: before, Object: kube.Deployments.Kind + " " + d.Namespace + "/" + d.Name}
	r.Data.Replicas, r.Data.ReadyReplicas, r.Data.UpdatedReplicas = s.Replicas, s.ReadyReplicas, s.UpdatedReplicas
	r.Data.AvailableReplicas, r.Data.UnavailableReplicas = s.AvailableReplicas, s.UnavailableReplicas
	r.Data.ObservedGeneration, r.Data.DeploymentVersion = s.ObservedGeneration, d.ResourceVersion
	r.Data.Conditions = conditionsOf(s)
	r.Data.ConfigHash = d.Spec.Template.Annotations[name.AnnotationConfigHash]

	version := spec.Kubernetes.Version
	done := complete(d) && d.DeletionTimestamp == nil
	r.Data.Phase = string(phase(version, before, done, d))
	switch {
	case desired(d) == 0:
		r.Data.Version, r.Data.CA = version, authority(d)
		if gone := done && (s.TerminatingReplicas == nil || *s.TerminatingReplicas == 0); !gone {
			r.Ending, r.Wait = true, podsEnding(r.Object)
			return r
		}
		r.Step = event.Slept
		if step != event.Slept || !current {
			r.Facts = []string{event.Slept}
		}
	case done:
		r.Step, r.Data.Version, r.Data.CA = event.Available, version, authority(d)
		if step != event.Available || !current || before.ConfigHash != r.Data.ConfigHash {
			r.Facts = []string{event.Available}
		}
		if before.Version != "" && before.Version != version {
			r.From, r.Facts = before.Version, append(r.Facts, event.Upgraded)
		}
	default:
		r.Starting, r.Cause = true, deploymentCause(d)
		r.Wait = state.Wait{
			On: kube.Deployments.Kind, Reason: reason.PodsNotReady,
			Text: fmt.Sprintf("%s: its pods to be ready (%d of %d)", r.Object, readyPods(d), desired(d)),
		}
		if s.ReadyReplicas == 0 && before.Version != "" {
			switch {
			case before.ReadyReplicas > 0:
				r.Step, r.Facts = event.Degraded, []string{event.Degraded}
			case step == event.Degraded:
				r.Step = step
			}
		}
	}
	return r
}

// conditionsOf are a Deployment's conditions as they are shown, by type: its controller moves one that it writes to the end. They change
// with the numbers of pods, which are written as well.
func conditionsOf(s *appsv1.DeploymentStatus) []appsv1.DeploymentCondition {
	shown := slices.Clone(s.Conditions)
	for i := range shown {
		shown[i].Message = state.ClipMessage(shown[i].Message)
	}
	slices.SortFunc(shown, func(a, b appsv1.DeploymentCondition) int { return cmp.Compare(a.Type, b.Type) })
	return shown
}

// authority is the checksum of the certificate authority that pods of the Deployment's template have.
func authority(d *appsv1.Deployment) string {
	return d.Spec.Template.Labels[name.PodChecksumLabel(name.ChecksumCA)]
}

// phase is the one the API status shows. before has the version and the authority of the last complete rollout, empty before the
// first.
func phase(version string, before state.Workload, done bool, d *appsv1.Deployment) v1alpha1.KubernetesVersionStatus {
	running := before.Version
	switch {
	case desired(d) == 0:
		return v1alpha1.VersionSleeping
	case d.Status.ReadyReplicas == 0 && running == "":
		// Kamaji says NotReady here, which makes a tenant that is new look like one that broke.
		return v1alpha1.VersionProvisioning
	case d.Status.ReadyReplicas == 0:
		return v1alpha1.VersionNotReady
	case done:
		return v1alpha1.VersionReady
	case running == "":
		return v1alpha1.VersionProvisioning
	case before.CA != "" && before.CA != authority(d):
		return v1alpha1.VersionCARotating
	case running != version:
		return v1alpha1.VersionUpgrading
	}
	return v1alpha1.VersionUnknown
}

// podsEnding is the wait for the pods of a Deployment to end.
func podsEnding(object string) state.Wait {
	return state.Wait{On: kube.Deployments.Kind, Reason: reason.PodsEnding, Text: object + ": its pods to end"}
}

// readyPods counts the pods of the Deployment's template that are ready.
func readyPods(d *appsv1.Deployment) int32 {
	s := &d.Status
	if s.ObservedGeneration < d.Generation {
		return 0
	}
	// Pods of the old template are counted as ready too.
	return max(s.ReadyReplicas-(s.Replicas-s.UpdatedReplicas), 0)
}

// deploymentCause is why a rollout doesn't get on, as far as the Deployment knows.
func deploymentCause(d *appsv1.Deployment) cause {
	for _, c := range d.Status.Conditions {
		failed := c.Type == appsv1.DeploymentReplicaFailure && c.Status == corev1.ConditionTrue ||
			c.Type == appsv1.DeploymentProgressing && c.Status == corev1.ConditionFalse
		if failed && c.Message != "" {
			return cause{Reason: c.Reason, Text: line(c.Message)}
		}
	}
	return cause{}
}

// waitsFor is what the pods say of what a rollout waits for. New pods that aren't there yet may wait for old ones to end (strategy
// Recreate).
func waitsFor(r rollout, pods []corev1.Pod, config string, now time.Time) cause {
	if r.Ending {
		return endingOf(pods, now)
	}
	c := causeOf(pods, config)
	if c.Reason != reason.NoPods {
		return c
	}
	old := slices.DeleteFunc(slices.Clone(pods), func(p corev1.Pod) bool { return p.DeletionTimestamp == nil })
	if e := endingOf(old, now); e.Reason != "" && e.Reason != reason.PodsEnding {
		return e
	}
	return c
}

// explain completes what a rollout waits for by its cause, and makes it a failure when it has lasted. What the pods say comes
// before what the Deployment says of them, unless there are none.
func explain(r rollout, pods cause, waited time.Duration) (state.Wait, *state.Failure) {
	wait := r.Wait
	switch {
	case r.Ending:
		return explainEnding(wait, pods)
	case !r.Starting:
		return wait, nil
	}
	c := pods
	if c.Reason == "" || c.Reason == reason.NoPods && r.Cause.Text != "" {
		c = r.Cause
	}
	wait.Reason, wait.Text = cmp.Or(c.Reason, wait.Reason), join(wait.Text, c.Text)
	if waited < failedAfter {
		return wait, nil
	}
	// Not how many are ready: that would change with each crash.
	return wait, &state.Failure{
		Reason:  wait.Reason,
		Message: fmt.Sprintf("%s is not ready after %.0f minutes: %s", r.Object, failedAfter.Minutes(), cmp.Or(c.Text, "its pods don't say why")),
	}
}
