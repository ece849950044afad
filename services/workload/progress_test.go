package workload

import (
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/stoker-k8s/stoker/pkg/api/event"
	"github.com/stoker-k8s/stoker/pkg/api/name"
	"github.com/stoker-k8s/stoker/pkg/api/reason"
	"github.com/stoker-k8s/stoker/pkg/api/state"
	"github.com/stoker-k8s/stoker/pkg/api/v1alpha1"
)

const oldVersion, newVersion = "v1.35.4", "v1.36.3"

// deploymentOf is a Deployment of as many replicas as desired, whose controller reports a status.
func deploymentOf(desired int32, s appsv1.DeploymentStatus) *appsv1.Deployment {
	d := &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "demo", Generation: 2, ResourceVersion: "7"}, Status: s}
	d.Spec.Replicas = &desired
	d.Spec.Template.Annotations = map[string]string{name.AnnotationConfigHash: "new"}
	d.Spec.Template.Labels = map[string]string{name.PodChecksumLabel(name.ChecksumCA): "new"}
	return d
}

func TestAssess(t *testing.T) {
	running := state.Workload{Version: newVersion, ConfigHash: "new", Phase: "Ready", Replicas: 2, ReadyReplicas: 2, UpdatedReplicas: 2, AvailableReplicas: 2}
	older := running
	older.Version, older.ConfigHash = oldVersion, "old"
	others := running
	others.ConfigHash = "old"
	otherCA, sameCA := others, others
	otherCA.CA, sameCA.CA = "old", "new"
	broken := running
	broken.ReadyReplicas, broken.AvailableReplicas, broken.Phase = 0, 0, "NotReady"
	asleep := state.Workload{Version: newVersion, ConfigHash: "new", Phase: "Sleeping"}
	full := appsv1.DeploymentStatus{ObservedGeneration: 2, Replicas: 2, UpdatedReplicas: 2, ReadyReplicas: 2, AvailableReplicas: 2}
	half := appsv1.DeploymentStatus{ObservedGeneration: 2, Replicas: 4, UpdatedReplicas: 2, ReadyReplicas: 2, AvailableReplicas: 2, UnavailableReplicas: 2}
	none := appsv1.DeploymentStatus{ObservedGeneration: 2, Replicas: 2, UpdatedReplicas: 2, UnavailableReplicas: 2}

	tests := map[string]struct {
		limited  bool
		before   state.Workload
		step     string
		current  bool
		replicas int32
		status   appsv1.DeploymentStatus

		phase, next string
		tell        []string
		waiting     bool
		version     string
	}{
		"a new tenant without a ready pod is provisioned": {
			step: event.Exposed, replicas: 2, status: none, phase: "Provisioning", next: event.Exposed, waiting: true,
		},
		"and still is with one of two": {
			step: event.Exposed, replicas: 2, phase: "Provisioning", next: event.Exposed, waiting: true,
			status: appsv1.DeploymentStatus{ObservedGeneration: 2, Replicas: 2, UpdatedReplicas: 2, ReadyReplicas: 1, AvailableReplicas: 1, UnavailableReplicas: 1},
		},
		"when all pods are ready it is told": {
			step: event.Exposed, current: true, replicas: 2, status: full, phase: "Ready", next: event.Available, tell: []string{event.Available}, version: newVersion,
		},
		"and not told again when the Deployment's status is looked at again": {
			before: running, step: event.Available, current: true, replicas: 2, status: full, phase: "Ready", next: event.Available, version: newVersion,
		},
		"but once for each generation": {
			before: running, step: event.Available, replicas: 2, status: full, phase: "Ready", next: event.Available, tell: []string{event.Available}, version: newVersion,
		},
		"a status of an earlier Deployment says nothing": {
			before: running, step: event.Exposed, current: true, replicas: 2, phase: "Unknown", next: event.Exposed, waiting: true, version: newVersion,
			status: appsv1.DeploymentStatus{ObservedGeneration: 1, Replicas: 2, UpdatedReplicas: 2, ReadyReplicas: 2, AvailableReplicas: 2},
		},
		"another version on its way is an upgrade": {
			before: older, step: event.Exposed, current: true, replicas: 2, phase: "Upgrading", next: event.Exposed, waiting: true, version: oldVersion,
			status: appsv1.DeploymentStatus{ObservedGeneration: 2, Replicas: 4, UpdatedReplicas: 2, ReadyReplicas: 2, AvailableReplicas: 2, UnavailableReplicas: 2},
		},
		"old pods that are still there keep a rollout from being complete": {
			before: older, step: event.Exposed, current: true, replicas: 2, phase: "Upgrading", next: event.Exposed, waiting: true, version: oldVersion,
			status: appsv1.DeploymentStatus{ObservedGeneration: 2, Replicas: 3, UpdatedReplicas: 2, ReadyReplicas: 3, AvailableReplicas: 3},
		},
		"an upgrade that is complete is told with both versions": {
			before: older, step: event.Exposed, current: true, replicas: 2, status: full, phase: "Ready", next: event.Available,
			tell: []string{event.Available, event.Upgraded}, version: newVersion,
		},
		"a rollout of the same version is no upgrade": {
			before: running, step: event.Exposed, current: true, replicas: 2, phase: "Unknown", next: event.Exposed, waiting: true, version: newVersion,
			status: appsv1.DeploymentStatus{ObservedGeneration: 2, Replicas: 4, UpdatedReplicas: 2, ReadyReplicas: 2, AvailableReplicas: 2, UnavailableReplicas: 2},
		},
		"nor is one with the authority that all pods have": {
			before: sameCA, step: event.Exposed, current: true, replicas: 2, phase: "Unknown", next: event.Exposed, waiting: true, version: newVersion, status: half,
		},
		"with another authority it is a rotation of that": {
			before: otherCA, step: event.Exposed, current: true, replicas: 2, phase: "CertificateAuthorityRotating", next: event.Exposed, waiting: true,
			version: newVersion, status: half,
		},
		"until all pods have it": {
			before: otherCA, step: event.Exposed, current: true, replicas: 2, status: full, phase: "Ready", next: event.Available,
			tell: []string{event.Available}, version: newVersion,
		},
		"no ready pod any more is degraded": {
			before: running, step: event.Available, current: true, replicas: 2, status: none, phase: "NotReady", next: event.Degraded,
			tell: []string{event.Degraded}, waiting: true, version: newVersion,
		},
		"and told once": {
			before: broken, step: event.Degraded, current: true, replicas: 2, status: none, phase: "NotReady", next: event.Degraded, waiting: true, version: newVersion,
		},
		"what was degraded and is back is available": {
			before: broken, step: event.Degraded, current: true, replicas: 2, status: full, phase: "Ready", next: event.Available,
			tell: []string{event.Available}, version: newVersion,
		},
		"blocked writes are not said before they are blocked": {
			limited: true, before: running, step: event.Available, current: true, replicas: 2, status: full, phase: "Ready", next: event.Available, version: newVersion,
		},
		"a tenant goes to sleep when its pods end": {
			before: running, step: event.Exposed, current: true, replicas: 0, phase: "Sleeping", next: event.Exposed, waiting: true, version: newVersion,
			status: appsv1.DeploymentStatus{ObservedGeneration: 2, Replicas: 1, UpdatedReplicas: 1},
		},
		"and pods that are on their way out count": {
			before: running, step: event.Exposed, current: true, replicas: 0, phase: "Sleeping", next: event.Exposed, waiting: true, version: newVersion,
			status: appsv1.DeploymentStatus{ObservedGeneration: 2, TerminatingReplicas: new(int32(1))},
		},
		"it sleeps when none is left": {
			before: asleep, step: event.Exposed, current: true, replicas: 0, phase: "Sleeping", next: event.Slept, tell: []string{event.Slept}, version: newVersion,
			status: appsv1.DeploymentStatus{ObservedGeneration: 2, TerminatingReplicas: new(int32(0))},
		},
		"and sleeps on": {
			before: asleep, step: event.Slept, current: true, replicas: 0, phase: "Sleeping", next: event.Slept, version: newVersion,
			status: appsv1.DeploymentStatus{ObservedGeneration: 2},
		},
		"as many pods as must be, and one of them old, are no complete rollout": {
			before: running, step: event.Exposed, current: true, replicas: 2, phase: "Unknown", next: event.Exposed, waiting: true, version: newVersion,
			status: appsv1.DeploymentStatus{ObservedGeneration: 2, Replicas: 2, UpdatedReplicas: 1, ReadyReplicas: 2, AvailableReplicas: 2},
		},
		"other pods are told that were all ready before anybody looked": {
			before: others, step: event.Available, current: true, replicas: 2, status: full, phase: "Ready", next: event.Available,
			tell: []string{event.Available}, version: newVersion,
		},
		"a new tenant whose first pod falls is not degraded": {
			before: state.Workload{ReadyReplicas: 1}, step: event.Exposed, current: true, replicas: 2, status: none, phase: "Provisioning",
			next: event.Exposed, waiting: true,
		},
		"a tenant that goes to sleep with another version has that": {
			before: older, step: event.Exposed, current: true, replicas: 0, phase: "Sleeping", next: event.Slept, tell: []string{event.Slept}, version: newVersion,
			status: appsv1.DeploymentStatus{ObservedGeneration: 2},
		},
		"that it sleeps is told once for each generation": {
			before: asleep, step: event.Slept, replicas: 0, phase: "Sleeping", next: event.Slept, tell: []string{event.Slept}, version: newVersion,
			status: appsv1.DeploymentStatus{ObservedGeneration: 2},
		},
		"a tenant that wakes up has broken nothing": {
			before: asleep, step: event.Exposed, current: true, replicas: 2, status: none, phase: "NotReady", next: event.Exposed, waiting: true, version: newVersion,
		},
	}
	for sentence, test := range tests {
		t.Run(sentence, func(t *testing.T) {
			spec := &v1alpha1.TenantControlPlaneSpec{}
			spec.Kubernetes.Version, spec.WritePermissions.BlockCreation = newVersion, test.limited
			r := assess(spec, test.before, test.step, test.current, deploymentOf(test.replicas, test.status))
			if r.Data.Phase != test.phase || r.Step != test.next || !slices.Equal(r.Facts, test.tell) || r.Wait.Waits() != test.waiting || r.Data.Version != test.version {
				t.Errorf("phase %s, step %s, tells %v, waits for %+v, version %q", r.Data.Phase, r.Step, r.Facts, r.Wait, r.Data.Version)
			}
			if r.Starting != (test.waiting && test.replicas > 0) {
				t.Errorf("its pods start: %v", r.Starting)
			}
			type counts struct {
				available, unavailable int32
				observed               int64
				deployment, config     string
			}
			s, data := test.status, r.Data
			got := counts{data.AvailableReplicas, data.UnavailableReplicas, data.ObservedGeneration, data.DeploymentVersion, data.ConfigHash}
			if want := (counts{s.AvailableReplicas, s.UnavailableReplicas, s.ObservedGeneration, "7", "new"}); got != want {
				t.Errorf("notes %+v of the Deployment, not %+v", got, want)
			}
			if slices.Contains(r.Facts, event.Upgraded) && r.From != oldVersion {
				t.Errorf("upgraded from %q", r.From)
			}
			again := assess(spec, r.Data, r.Step, true, deploymentOf(test.replicas, test.status))
			if len(again.Facts) != 0 || !reflect.DeepEqual(again.Data, r.Data) {
				t.Errorf("a second look tells %v and changes the data from\n%+v to\n%+v", again.Facts, r.Data, again.Data)
			}
		})
	}
}

func TestConditionsOfADeploymentAreNotedWithShortMessages(t *testing.T) {
	s := appsv1.DeploymentStatus{ObservedGeneration: 2, Conditions: []appsv1.DeploymentCondition{
		{Type: appsv1.DeploymentReplicaFailure, Status: corev1.ConditionTrue, Message: strings.Repeat("x", 5000)},
		{Type: appsv1.DeploymentAvailable, Status: corev1.ConditionTrue, Reason: "MinimumReplicasAvailable"},
	}}
	d := deploymentOf(2, s)
	got := assess(&v1alpha1.TenantControlPlaneSpec{}, state.Workload{}, event.Exposed, true, d).Data.Conditions
	if len(got) != 2 || got[0] != s.Conditions[1] || got[1].Type != appsv1.DeploymentReplicaFailure || len(got[1].Message) != 1024 {
		t.Errorf("%+v", got)
	}
	if len(d.Status.Conditions[0].Message) != 5000 {
		t.Error("the Deployment that was read is changed")
	}
}

func TestADeploymentThatIsBeingDeletedIsNoRolloutThatIsComplete(t *testing.T) {
	spec := &v1alpha1.TenantControlPlaneSpec{}
	spec.Kubernetes.Version = newVersion
	for replicas, step := range map[int32]string{2: event.Available, 0: event.Slept} {
		d := deploymentOf(replicas, appsv1.DeploymentStatus{
			ObservedGeneration: 2, Replicas: replicas, UpdatedReplicas: replicas, ReadyReplicas: replicas, AvailableReplicas: replicas,
		})
		if r := assess(spec, state.Workload{}, event.Exposed, true, d); r.Step != step || r.Wait.Waits() {
			t.Fatalf("step %s, waits for %+v", r.Step, r.Wait)
		}
		d.DeletionTimestamp = &metav1.Time{}
		if r := assess(spec, state.Workload{}, event.Exposed, true, d); r.Step != event.Exposed || len(r.Facts) != 0 || !r.Wait.Waits() {
			t.Errorf("step %s, tells %v, waits for %+v", r.Step, r.Facts, r.Wait)
		}
	}
}

func TestWhatADeploymentSaysOfARolloutThatDoesNotGetOn(t *testing.T) {
	condition := func(of appsv1.DeploymentConditionType, is corev1.ConditionStatus, reason, message string) appsv1.DeploymentCondition {
		return appsv1.DeploymentCondition{Type: of, Status: is, Reason: reason, Message: message}
	}
	for sentence, test := range map[string]struct {
		conditions []appsv1.DeploymentCondition
		want       cause
	}{
		"nothing": {},
		"pods that can't be made": {
			[]appsv1.DeploymentCondition{condition(appsv1.DeploymentReplicaFailure, corev1.ConditionTrue, "FailedCreate", "exceeded quota")}, cause{Reason: "FailedCreate", Text: "exceeded quota"},
		},
		"a rollout that has taken too long": {
			[]appsv1.DeploymentCondition{condition(appsv1.DeploymentProgressing, corev1.ConditionFalse, "ProgressDeadlineExceeded", "has timed out")}, cause{Reason: "ProgressDeadlineExceeded", Text: "has timed out"},
		},
		"pods that could not be made, and can now": {
			[]appsv1.DeploymentCondition{condition(appsv1.DeploymentReplicaFailure, corev1.ConditionFalse, "FailedCreate", "exceeded quota")}, cause{},
		},
		"a rollout that gets on": {
			[]appsv1.DeploymentCondition{
				condition(appsv1.DeploymentAvailable, corev1.ConditionTrue, "MinimumReplicasAvailable", "has minimum availability"),
				condition(appsv1.DeploymentAvailable, corev1.ConditionFalse, "MinimumReplicasUnavailable", "does not have minimum availability"),
				condition(appsv1.DeploymentProgressing, corev1.ConditionTrue, "ReplicaSetUpdated", "is progressing"),
			}, cause{},
		},
		"one that doesn't say why, and one that does": {
			[]appsv1.DeploymentCondition{
				condition(appsv1.DeploymentProgressing, corev1.ConditionFalse, "ProgressDeadlineExceeded", ""),
				condition(appsv1.DeploymentReplicaFailure, corev1.ConditionTrue, "FailedCreate", "exceeded quota"),
			}, cause{Reason: "FailedCreate", Text: "exceeded quota"},
		},
	} {
		t.Run(sentence, func(t *testing.T) {
			if got := deploymentCause(deploymentOf(2, appsv1.DeploymentStatus{Conditions: test.conditions})); got != test.want {
				t.Errorf("%+v", got)
			}
		})
	}
}

func TestReadyPods(t *testing.T) {
	for sentence, test := range map[string]struct {
		status appsv1.DeploymentStatus
		want   int32
	}{
		"ready pods of the old template don't count": {
			appsv1.DeploymentStatus{ObservedGeneration: 2, Replicas: 4, UpdatedReplicas: 2, ReadyReplicas: 3}, 1,
		},
		"without old ones all that are ready count": {
			appsv1.DeploymentStatus{ObservedGeneration: 2, Replicas: 2, UpdatedReplicas: 2, ReadyReplicas: 2}, 2,
		},
		"a status of an earlier Deployment says nothing": {
			appsv1.DeploymentStatus{ObservedGeneration: 1, Replicas: 2, UpdatedReplicas: 2, ReadyReplicas: 2}, 0,
		},
	} {
		t.Run(sentence, func(t *testing.T) {
			if got := readyPods(deploymentOf(2, test.status)); got != test.want {
				t.Errorf("%d are ready, want %d", got, test.want)
			}
		})
	}
}

func TestDeploymentCause(t *testing.T) {
	d := deploymentOf(2, appsv1.DeploymentStatus{ObservedGeneration: 2, Conditions: []appsv1.DeploymentCondition{
		{Type: appsv1.DeploymentReplicaFailure, Status: corev1.ConditionTrue, Reason: "FailedCreate", Message: "exceeded quota"},
	}})
	if got, want := deploymentCause(d), (cause{Reason: reason.ReplicaCreationError, Text: "exceeded quota"}); got != want {
		t.Errorf("got %+v", got)
	}
}

func TestExplain(t *testing.T) {
	const object = "Deployment default/demo"
	const waits = object + ": its pods to be ready (0 of 1)"
	image := cause{Reason: reason.ImagePull, Text: "kube-apiserver: ErrImagePull: no such version"}
	quota := cause{Reason: reason.ReplicaCreationError, Text: "exceeded quota"}
	none := cause{Reason: reason.NoPods, Text: "none"}
	tests := map[string]struct {
		deployment, pods     cause
		waited               time.Duration
		why, waiting, failed string
	}{
		"without a cause, it is said what is waited for": {waited: time.Second, why: reason.PodsNotReady, waiting: waits},
		"what pods say follows":                          {pods: image, waited: 9 * time.Second, why: reason.ImagePull, waiting: waits + ": " + image.Text},
		"and comes before what the Deployment says": {
			deployment: cause{Reason: reason.DeadlineExceeded, Text: "timed out"}, pods: image, why: reason.ImagePull, waiting: waits + ": " + image.Text,
		},
		"but not when there are none":                       {deployment: quota, pods: none, why: reason.ReplicaCreationError, waiting: waits + ": exceeded quota"},
		"a Deployment that knows nothing leaves it at that": {pods: none, why: reason.NoPods, waiting: waits + ": none"},
		"a Deployment that gives no reason leaves that of waiting": {
			deployment: cause{Text: "stuck"}, why: reason.PodsNotReady, waiting: waits + ": stuck",
		},
		"it is a failure when it lasts": {
			pods: image, waited: failedAfter, why: reason.ImagePull, waiting: waits + ": " + image.Text,
			failed: "ErrImagePull: Deployment default/demo is not ready after 3 minutes: " + image.Text,
		},
		"also when nobody knows why": {
			waited: time.Hour, why: reason.PodsNotReady, waiting: waits,
			failed: "PodsNotReady: Deployment default/demo is not ready after 3 minutes: its pods don't say why",
		},
	}
	for sentence, test := range tests {
		t.Run(sentence, func(t *testing.T) {
			starting := rollout{
				Object: object, Starting: true, Cause: test.deployment,
				Wait: state.Wait{On: "Deployment", Reason: reason.PodsNotReady, Text: waits},
			}
			wait, f := explain(starting, test.pods, test.waited)
			failed := ""
			if f != nil {
				failed = f.Reason + ": " + f.Message
			}
			if want := (state.Wait{On: "Deployment", Reason: test.why, Text: test.waiting}); wait != want || failed != test.failed || f != nil && f.Permanent {
				t.Errorf("waits for %+v, fails with %q", wait, failed)
			}
		})
	}
	t.Run("where no pods are waited for, nobody says why", func(t *testing.T) {
		if wait, f := explain(rollout{Object: object}, image, time.Hour); wait.Waits() || f != nil {
			t.Errorf("%+v %v", wait, f)
		}
	})
}
