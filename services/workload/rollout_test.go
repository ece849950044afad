package workload

import (
	"reflect"
	"slices"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/stoker-k8s/stoker/pkg/api/event"
	"github.com/stoker-k8s/stoker/pkg/api/name"
	"github.com/stoker-k8s/stoker/pkg/api/state"
	"github.com/stoker-k8s/stoker/pkg/api/v1alpha1"
)

const oldVersion, newVersion = "v1.35.4", "v1.36.3"

// deploymentOf is a Deployment of as many replicas as desired, whose controller reports a status.
func deploymentOf(desired int32, s appsv1.DeploymentStatus) *appsv1.Deployment {
	d := &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "demo", Generation: 2, ResourceVersion: "7"}, Status: s}
	d.Spec.Replicas = &desired
	d.Spec.Template.Annotations = map[string]string{name.AnnotationConfigHash: "new"}
	return d
}

func TestJudge(t *testing.T) {
	running := state.Workload{Version: newVersion, ConfigHash: "new", Phase: "Ready", Replicas: 2, ReadyReplicas: 2, UpdatedReplicas: 2, AvailableReplicas: 2}
	older := running
	older.Version, older.ConfigHash = oldVersion, "old"
	broken := running
	broken.ReadyReplicas, broken.AvailableReplicas, broken.Phase = 0, 0, "NotReady"
	asleep := state.Workload{Version: newVersion, ConfigHash: "new", Phase: "Sleeping"}
	full := appsv1.DeploymentStatus{ObservedGeneration: 2, Replicas: 2, UpdatedReplicas: 2, ReadyReplicas: 2, AvailableReplicas: 2}
	none := appsv1.DeploymentStatus{ObservedGeneration: 2, Replicas: 2, UpdatedReplicas: 2, UnavailableReplicas: 2}

	tests := map[string]struct {
		limited  bool
		before   state.Workload
		step     string
		told     bool
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
			step: event.Exposed, told: true, replicas: 2, status: full, phase: "Ready", next: event.Available, tell: []string{event.Available}, version: newVersion,
		},
		"and not told again when the Deployment's status is looked at again": {
			before: running, step: event.Available, told: true, replicas: 2, status: full, phase: "Ready", next: event.Available, version: newVersion,
		},
		"but once for each generation": {
			before: running, step: event.Available, replicas: 2, status: full, phase: "Ready", next: event.Available, tell: []string{event.Available}, version: newVersion,
		},
		"a status of an earlier Deployment says nothing": {
			before: running, step: event.Exposed, told: true, replicas: 2, phase: "Unknown", next: event.Exposed, waiting: true, version: newVersion,
			status: appsv1.DeploymentStatus{ObservedGeneration: 1, Replicas: 2, UpdatedReplicas: 2, ReadyReplicas: 2, AvailableReplicas: 2},
		},
		"another version on its way is an upgrade": {
			before: older, step: event.Exposed, told: true, replicas: 2, phase: "Upgrading", next: event.Exposed, waiting: true, version: oldVersion,
			status: appsv1.DeploymentStatus{ObservedGeneration: 2, Replicas: 4, UpdatedReplicas: 2, ReadyReplicas: 2, AvailableReplicas: 2, UnavailableReplicas: 2},
		},
		"old pods that are still there keep a rollout from being complete": {
			before: older, step: event.Exposed, told: true, replicas: 2, phase: "Upgrading", next: event.Exposed, waiting: true, version: oldVersion,
			status: appsv1.DeploymentStatus{ObservedGeneration: 2, Replicas: 3, UpdatedReplicas: 2, ReadyReplicas: 3, AvailableReplicas: 3},
		},
		"an upgrade that is complete is told with both versions": {
			before: older, step: event.Exposed, told: true, replicas: 2, status: full, phase: "Ready", next: event.Available,
			tell: []string{event.Available, event.Upgraded}, version: newVersion,
		},
		"a rollout of the same version is no upgrade": {
			before: running, step: event.Exposed, told: true, replicas: 2, phase: "Unknown", next: event.Exposed, waiting: true, version: newVersion,
			status: appsv1.DeploymentStatus{ObservedGeneration: 2, Replicas: 4, UpdatedReplicas: 2, ReadyReplicas: 2, AvailableReplicas: 2, UnavailableReplicas: 2},
		},
		"no ready pod any more is degraded": {
			before: running, step: event.Available, told: true, replicas: 2, status: none, phase: "NotReady", next: event.Degraded,
			tell: []string{event.Degraded}, waiting: true, version: newVersion,
		},
		"and told once": {
			before: broken, step: event.Degraded, told: true, replicas: 2, status: none, phase: "NotReady", next: event.Degraded, waiting: true, version: newVersion,
		},
		"what was degraded and is back is available": {
			before: broken, step: event.Degraded, told: true, replicas: 2, status: full, phase: "Ready", next: event.Available,
			tell: []string{event.Available}, version: newVersion,
		},
		"blocked writes are not said before they are blocked": {
			limited: true, before: running, step: event.Available, told: true, replicas: 2, status: full, phase: "Ready", next: event.Available, version: newVersion,
		},
		"a tenant goes to sleep when its pods end": {
			before: running, step: event.Exposed, told: true, replicas: 0, phase: "Sleeping", next: event.Exposed, waiting: true, version: newVersion,
			status: appsv1.DeploymentStatus{ObservedGeneration: 2, Replicas: 1, UpdatedReplicas: 1},
		},
		"and pods that are on their way out count": {
			before: running, step: event.Exposed, told: true, replicas: 0, phase: "Sleeping", next: event.Exposed, waiting: true, version: newVersion,
			status: appsv1.DeploymentStatus{ObservedGeneration: 2, TerminatingReplicas: new(int32(1))},
		},
		"it sleeps when none is left": {
			before: asleep, step: event.Exposed, told: true, replicas: 0, phase: "Sleeping", next: event.Slept, tell: []string{event.Slept}, version: newVersion,
			status: appsv1.DeploymentStatus{ObservedGeneration: 2, TerminatingReplicas: new(int32(0))},
		},
		"and sleeps on": {
			before: asleep, step: event.Slept, told: true, replicas: 0, phase: "Sleeping", next: event.Slept, version: newVersion,
			status: appsv1.DeploymentStatus{ObservedGeneration: 2},
		},
		"a tenant that wakes up has broken nothing": {
			before: asleep, step: event.Exposed, told: true, replicas: 2, status: none, phase: "NotReady", next: event.Exposed, waiting: true, version: newVersion,
		},
	}
	for sentence, test := range tests {
		t.Run(sentence, func(t *testing.T) {
			spec := &v1alpha1.TenantControlPlaneSpec{}
			spec.Kubernetes.Version, spec.WritePermissions.BlockCreation = newVersion, test.limited
			v := judge(spec, test.before, test.step, test.told, deploymentOf(test.replicas, test.status))
			if v.Data.Phase != test.phase || v.Step != test.next || !slices.Equal(v.Tell, test.tell) || (v.Waiting != "") != test.waiting || v.Data.Version != test.version {
				t.Errorf("phase %s, step %s, tells %v, waits for %q, version %q", v.Data.Phase, v.Step, v.Tell, v.Waiting, v.Data.Version)
			}
			if slices.Contains(v.Tell, event.Upgraded) && v.From != oldVersion {
				t.Errorf("upgraded from %q", v.From)
			}
			again := judge(spec, v.Data, v.Step, true, deploymentOf(test.replicas, test.status))
			if len(again.Tell) != 0 || !reflect.DeepEqual(again.Data, v.Data) {
				t.Errorf("a second look tells %v and changes the data from\n%+v to\n%+v", again.Tell, v.Data, again.Data)
			}
		})
	}
}

func TestProgress(t *testing.T) {
	t.Run("ready pods of the old template don't count", func(t *testing.T) {
		d := deploymentOf(2, appsv1.DeploymentStatus{ObservedGeneration: 2, Replicas: 4, UpdatedReplicas: 2, ReadyReplicas: 3})
		if got, _ := progress(d); got != "Deployment default/demo: its pods to be ready (1 of 2)" {
			t.Errorf("got %q", got)
		}
	})
	t.Run("what the Deployment knows of the cause is said", func(t *testing.T) {
		d := deploymentOf(2, appsv1.DeploymentStatus{ObservedGeneration: 2, Conditions: []appsv1.DeploymentCondition{
			{Type: appsv1.DeploymentReplicaFailure, Status: corev1.ConditionTrue, Message: "exceeded quota"},
		}})
		if _, got := progress(d); got.Text != "exceeded quota" {
			t.Errorf("got %+v", got)
		}
	})
}

func TestBlame(t *testing.T) {
	const waits = "Deployment default/demo: its pods to be ready (0 of 1)"
	image := cause{Reason: "ErrImagePull", Text: "kube-apiserver: ErrImagePull: no such version"}
	quota := cause{Reason: "FailedCreate", Text: "exceeded quota"}
	tests := map[string]struct {
		deployment, pods cause
		waited           time.Duration
		waiting, failure string
	}{
		"without a cause, it is said what is waited for":    {waited: time.Second, waiting: waits},
		"what pods say follows":                             {pods: image, waited: 9 * time.Second, waiting: waits + ": " + image.Text},
		"and comes before what the Deployment says":         {deployment: cause{Reason: "ProgressDeadlineExceeded", Text: "timed out"}, pods: image, waiting: waits + ": " + image.Text},
		"but not when there are none":                       {deployment: quota, pods: cause{Reason: reasonNoPods, Text: "none"}, waiting: waits + ": exceeded quota"},
		"a Deployment that knows nothing leaves it at that": {pods: cause{Reason: reasonNoPods, Text: "none"}, waiting: waits + ": none"},
		"it is a failure when it lasts": {
			pods: image, waited: failedAfter, waiting: waits + ": " + image.Text,
			failure: "ErrImagePull: Deployment default/demo is not ready after 3 minutes: " + image.Text,
		},
		"also when nobody knows why": {
			waited: time.Hour, waiting: waits,
			failure: "PodsNotReady: Deployment default/demo is not ready after 3 minutes: its pods don't say why",
		},
	}
	for sentence, test := range tests {
		t.Run(sentence, func(t *testing.T) {
			waiting, f := blame(verdict{Waiting: waits, Starting: true, Cause: test.deployment}, test.pods, test.waited)
			failure := ""
			if f != nil {
				failure = f.Reason + ": " + f.Message
			}
			if waiting != test.waiting || failure != test.failure || f != nil && f.Permanent {
				t.Errorf("waits for %q, fails with %q", waiting, failure)
			}
		})
	}
	t.Run("pods that end are waited for in silence", func(t *testing.T) {
		if waiting, f := blame(verdict{Waiting: "Deployment default/demo: its pods to end"}, image, time.Hour); waiting != "Deployment default/demo: its pods to end" || f != nil {
			t.Errorf("%q %v", waiting, f)
		}
	})
}

func TestMissing(t *testing.T) {
	issued := func() *state.State { return &state.State{Step: event.Issued, Generation: 3, Inputs: "abc-3"} }
	provisioned := func() *state.State { return &state.State{Step: event.Provisioned} }
	tests := map[string]struct {
		certs, datastore *state.State
		change           func(*state.Certs, *state.Datastore)
		want             string
	}{
		"with everything there, nothing is":             {certs: issued(), datastore: provisioned()},
		"certificates that aren't there are":            {datastore: provisioned(), want: "certs: keys and certificates"},
		"certificates for an earlier generation are":    {certs: &state.State{Step: event.Issued, Generation: 2, Inputs: "abc-2"}, datastore: provisioned(), want: "certs: keys and certificates"},
		"also when their state says that it failed now": {certs: &state.State{Step: event.Issued, Generation: 3, Inputs: "abc-2", Failure: &state.Failure{}}, datastore: provisioned(), want: "certs: keys and certificates"},
		"but not when the failure came later":           {certs: &state.State{Step: event.Issued, Generation: 3, Inputs: "abc-3", Failure: &state.Failure{}}, datastore: provisioned()},
		"certificates of the first stage only are": {
			certs: &state.State{Generation: 3, Inputs: "abc-3", Waiting: "workload: the endpoint"}, datastore: provisioned(), want: "certs: keys and certificates",
		},
		"an administrator's kubeconfig that isn't there is": {
			certs: issued(), datastore: provisioned(), want: "certs: keys and certificates",
			change: func(c *state.Certs, _ *state.Datastore) { delete(c.Secrets, name.ComponentAdminKubeconfig) },
		},
		"a schema that isn't there is": {certs: issued(), want: "datastore: user and schema"},
		"a client certificate that isn't there is": {
			certs: issued(), datastore: provisioned(), want: "datastore: user and schema",
			change: func(_ *state.Certs, d *state.Datastore) { d.Certificate.Checksum = "" },
		},
	}
	for sentence, test := range tests {
		t.Run(sentence, func(t *testing.T) {
			in := load(t, "minimal")
			if test.change != nil {
				test.change(&in.Certs, &in.Datastore)
			}
			if got := missing(3, test.certs, &in.Certs, test.datastore, &in.Datastore); got != test.want {
				t.Errorf("got %q, want %q", got, test.want)
			}
		})
	}
}
