// How a rollout stands and what of it is worth telling, decided from the Deployment and from what was known before. Pure.

package workload

import (
	"cmp"
	"fmt"
	"strconv"
	"strings"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"

	"github.com/stoker-k8s/stoker/pkg/api/event"
	"github.com/stoker-k8s/stoker/pkg/api/name"
	"github.com/stoker-k8s/stoker/pkg/api/state"
	"github.com/stoker-k8s/stoker/pkg/api/v1alpha1"
)

// stepRemoving is the step of the own state while the Deployment ends; the other steps are named like facts.
const stepRemoving = "removing"

// waitDeployment starts what the own state waits for while that is the Deployment, which the watch looks after.
const waitDeployment = "Deployment "

// verdict is what a look at the Deployment has come to.
type verdict struct {
	// Step, Waiting and Data for the own state.
	Step, Waiting string
	Data          state.Workload
	// Tell lists the facts owed, in order.
	Tell []string
	// From is the version that ran before, for upgraded.
	From string
	// Starting is true while pods that are asked for aren't ready, Cause is why if the Deployment knows.
	Starting bool
	Cause    cause
}

// complete reports whether every pod there is runs the Deployment's template and is available.
func complete(d *appsv1.Deployment) bool {
	s, want := &d.Status, desired(d)
	return s.ObservedGeneration >= d.Generation && s.UpdatedReplicas == want && s.Replicas == want &&
		s.ReadyReplicas == want && s.AvailableReplicas == want && s.UnavailableReplicas == 0
}

// sleeps reports whether a spec asks for no pods.
func sleeps(spec *v1alpha1.TenantControlPlaneSpec) bool {
	r := spec.ControlPlane.Deployment.Replicas
	return r != nil && *r == 0
}

func desired(d *appsv1.Deployment) int32 {
	if d.Spec.Replicas == nil {
		return 1
	}
	return *d.Spec.Replicas
}

// judge decides phase, facts and what is waited for. before is what was known, step the last step and told whether that
// was for this generation already. d is the Deployment as it is, with the template that was applied.
func judge(spec *v1alpha1.TenantControlPlaneSpec, before state.Workload, step string, told bool, d *appsv1.Deployment) verdict {
	s := &d.Status
	v := verdict{Step: event.Exposed, Data: before}
	v.Data.Replicas, v.Data.ReadyReplicas, v.Data.UpdatedReplicas = s.Replicas, s.ReadyReplicas, s.UpdatedReplicas
	v.Data.AvailableReplicas, v.Data.UnavailableReplicas = s.AvailableReplicas, s.UnavailableReplicas
	v.Data.ObservedGeneration, v.Data.DeploymentVersion = s.ObservedGeneration, d.ResourceVersion
	v.Data.ConfigHash = d.Spec.Template.Annotations[name.AnnotationConfigHash]

	version := spec.Kubernetes.Version
	done := complete(d) && d.DeletionTimestamp == nil
	phase := v1alpha1.VersionUnknown
	switch {
	case desired(d) == 0:
		phase = v1alpha1.VersionSleeping
		v.Data.Version = version
	case s.ReadyReplicas == 0 && before.Version == "":
		// Kamaji says NotReady here, which makes a tenant that is new look like one that broke.
		phase = v1alpha1.VersionProvisioning
	case s.ReadyReplicas == 0:
		phase = v1alpha1.VersionNotReady
	case done:
		phase = v1alpha1.VersionReady
	case before.Version == "":
		phase = v1alpha1.VersionProvisioning
	case before.Version != version:
		phase = v1alpha1.VersionUpgrading
	}
	v.Data.Phase = string(phase)

	switch {
	case desired(d) == 0:
		gone := done && (s.TerminatingReplicas == nil || *s.TerminatingReplicas == 0)
		if !gone {
			v.Waiting = fmt.Sprintf(waitDeployment+"%s/%s: its pods to end", d.Namespace, d.Name)
			return v
		}
		v.Step = event.Slept
		if step != event.Slept || !told {
			v.Tell = []string{event.Slept}
		}
	case done:
		v.Step, v.Data.Version = event.Available, version
		if step != event.Available || !told || before.ConfigHash != v.Data.ConfigHash {
			v.Tell = []string{event.Available}
		}
		if before.Version != "" && before.Version != version {
			v.From, v.Tell = before.Version, append(v.Tell, event.Upgraded)
		}
	default:
		v.Starting = true
		v.Waiting, v.Cause = progress(d)
		if s.ReadyReplicas == 0 && before.Version != "" {
			switch {
			case before.ReadyReplicas > 0:
				v.Step, v.Tell = event.Degraded, []string{event.Degraded}
			case step == event.Degraded:
				v.Step = step
			}
		}
	}
	return v
}

// progress says in words what a rollout waits for, and why it doesn't get it if the Deployment knows.
func progress(d *appsv1.Deployment) (waiting string, why cause) {
	ready := int32(0)
	if d.Status.ObservedGeneration >= d.Generation {
		ready = min(d.Status.UpdatedReplicas, d.Status.ReadyReplicas)
		if d.Status.Replicas > d.Status.UpdatedReplicas {
			// Pods of the old template are counted as ready too.
			ready = max(d.Status.ReadyReplicas-(d.Status.Replicas-d.Status.UpdatedReplicas), 0)
		}
	}
	waiting = fmt.Sprintf(waitDeployment+"%s/%s: its pods to be ready (%d of %d)", d.Namespace, d.Name, ready, desired(d))
	for _, c := range d.Status.Conditions {
		failed := c.Type == appsv1.DeploymentReplicaFailure && c.Status == corev1.ConditionTrue ||
			c.Type == appsv1.DeploymentProgressing && c.Status == corev1.ConditionFalse
		if failed && c.Message != "" {
			return waiting, cause{Reason: c.Reason, Text: line(c.Message)}
		}
	}
	return waiting, cause{}
}

// failedAfter is how long pods may take before that counts as a failure, if one that may still end well.
const failedAfter = 3 * time.Minute

// blame completes what is waited for by its cause, and makes it a failure when it has lasted. What the pods say comes
// before what the Deployment says of them, unless there are none.
func blame(v verdict, pods cause, waited time.Duration) (waiting string, failure *state.Failure) {
	if !v.Starting {
		return v.Waiting, nil
	}
	c := pods
	if c.Reason == "" || c.Reason == reasonNoPods && v.Cause.Text != "" {
		c = v.Cause
	}
	waiting = join(v.Waiting, c.Text)
	if waited < failedAfter {
		return waiting, nil
	}
	// Not how many are ready: that would change with each crash.
	deployment, _, _ := strings.Cut(v.Waiting, ":")
	return waiting, &state.Failure{
		Reason:  cmp.Or(c.Reason, reasonPodsNotReady),
		Message: fmt.Sprintf("%s is not ready after %.0f minutes: %s", deployment, failedAfter.Minutes(), cmp.Or(c.Text, "its pods don't say why")),
	}
}

// missing says what the Deployment still needs from the other services, empty when it has everything. A nil state is one
// that isn't there.
func missing(generation int64, certs *state.State, c *state.Certs, datastore *state.State, d *state.Datastore) string {
	if certs == nil || !issuedFor(generation, certs) {
		return "certs: keys and certificates"
	}
	for component := range checksums {
		if c.Secrets[component].Checksum == "" {
			return "certs: keys and certificates"
		}
	}
	if c.Secrets[name.ComponentAdminKubeconfig].Checksum == "" {
		return "certs: keys and certificates"
	}
	if datastore == nil || datastore.Step == "" || d.Schema == "" || len(d.Endpoints) == 0 || d.Certificate.Checksum == "" {
		return "datastore: user and schema"
	}
	return ""
}

// issuedFor reports whether certs has made everything for a generation. Its Inputs end in the generation they were
// computed for; they are asked because its Generation says that of a step that failed or waits, too.
func issuedFor(generation int64, certs *state.State) bool {
	if certs.Step != event.Issued && certs.Step != event.Rotated {
		return false
	}
	return strings.HasSuffix(certs.Inputs, "-"+strconv.FormatInt(generation, 10)) ||
		certs.Generation >= generation && certs.Waiting == "" && certs.Failure == nil
}
