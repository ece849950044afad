package workload

import (
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/stoker-k8s/stoker/pkg/api/reason"
	"github.com/stoker-k8s/stoker/pkg/kube"
)

// asked is when the pods of these tests were asked to end.
var asked = time.Date(2026, 11, 24, 12, 0, 0, 0, time.UTC)

// leaving is a pod on node worker-1 that was asked to end, with containers whose names say whether they run.
func leaving(n string, finalizers []string, containers ...string) corev1.Pod {
	p := corev1.Pod{ObjectMeta: metav1.ObjectMeta{
		Name: n, Finalizers: finalizers, DeletionTimestamp: new(metav1.NewTime(asked.Add(20 * time.Second))), DeletionGracePeriodSeconds: new(int64(20)),
		OwnerReferences: []metav1.OwnerReference{{Kind: "ReplicaSet", Name: "demo-1", Controller: new(true)}},
	}}
	p.Spec.NodeName = "worker-1"
	for _, c := range containers {
		running, runs := strings.CutPrefix(c, "+")
		s := corev1.ContainerStatus{Name: running}
		if runs {
			s.State.Running = &corev1.ContainerStateRunning{}
		} else {
			s.State.Terminated = &corev1.ContainerStateTerminated{}
		}
		p.Status.ContainerStatuses = append(p.Status.ContainerStatuses, s)
	}
	return p
}

func TestWhyPodsDoNotEnd(t *testing.T) {
	t.Parallel()
	const pod = "pod demo-a on node worker-1, asked to end at 2026-11-24T12:00:00Z: "
	hold := []string{"example.com/hold"}
	without := func(change func(*corev1.Pod), p corev1.Pod) corev1.Pod { change(&p); return p }
	for sentence, test := range map[string]struct {
		pods         []corev1.Pod
		after        time.Duration // since they were asked
		reason, text string
	}{
		"none is left": {nil, time.Hour, "", ""},
		"one that is no ReplicaSet's isn't the tenant's": {
			[]corev1.Pod{without(func(p *corev1.Pod) { p.OwnerReferences = nil }, leaving("demo-a", hold, "x"))}, time.Hour, "", "",
		},
		"one that has time to end": {
			[]corev1.Pod{leaving("demo-a", nil, "+kube-apiserver")}, 19 * time.Second, reason.PodsEnding, pod + "it has until 2026-11-24T12:00:20Z",
		},
		"one that has time to end, and will be kept then": {
			[]corev1.Pod{leaving("demo-a", hold, "+kube-apiserver")}, 0, reason.PodsEnding, pod + "it has until 2026-11-24T12:00:20Z",
		},
		"containers that run on": {
			[]corev1.Pod{leaving("demo-a", nil, "+kube-apiserver", "kube-scheduler", "+kine")}, 20 * time.Second, reason.PodsNotEnding,
			pod + "kube-apiserver, kine still run, for longer than the 20 s that they have",
		},
		"containers that run on, and a finalizer": {
			[]corev1.Pod{leaving("demo-a", hold, "+kine")}, time.Minute, reason.PodsNotEnding,
			pod + `kine still run, for longer than the 20 s that they have: it is held by what isn't Stoker's: finalizer "example.com/hold"`,
		},
		"a node that is lost": {
			[]corev1.Pod{with(with(leaving("demo-a", nil, "+kine"), corev1.PodReady, corev1.ConditionFalse), corev1.ContainersReady, corev1.ConditionTrue)},
			time.Minute, reason.PodsOnLostNode, pod + "its node does not report any more",
		},
		"a node that never reported": {
			[]corev1.Pod{leaving("demo-a", nil)}, time.Minute, reason.PodsOnLostNode, pod + "its node does not report any more",
		},
		"one that has ended at once, and is kept by a finalizer": {
			[]corev1.Pod{without(func(p *corev1.Pod) {
				p.DeletionTimestamp, p.DeletionGracePeriodSeconds = new(metav1.NewTime(asked)), new(int64(0))
			}, leaving("demo-a", []string{"example.com/hold", "a\"b"}, "kine"))}, time.Second, reason.PodsHeld,
			pod + `it has ended, and it is held by what isn't Stoker's: finalizers "example.com/hold", "a\"b"`,
		},
		"one that never had a node, and is kept by a finalizer": {
			[]corev1.Pod{without(func(p *corev1.Pod) { p.Spec.NodeName = "" }, leaving("demo-a", hold))}, time.Second, reason.PodsHeld,
			`pod demo-a on no node, asked to end at 2026-11-24T12:00:00Z: it has ended, and it is held by what isn't Stoker's: finalizer "example.com/hold"`,
		},
		"volumes that can't be unmounted": {
			[]corev1.Pod{without(func(p *corev1.Pod) {
				p.Spec.Volumes = []corev1.Volume{
					{Name: "pki", VolumeSource: corev1.VolumeSource{Projected: &corev1.ProjectedVolumeSource{}}},
					{Name: "audit", VolumeSource: corev1.VolumeSource{NFS: &corev1.NFSVolumeSource{}}},
				}
			}, leaving("demo-a", nil, "kine"))}, time.Minute, reason.PodsNotCleanedUp,
			pod + "its containers have ended, but its node has not given its volumes and network back; volumes to unmount: audit",
		},
		"one that was not asked": {
			[]corev1.Pod{without(func(p *corev1.Pod) { p.DeletionTimestamp = nil }, leaving("demo-a", nil, "+kine"))}, time.Minute, reason.PodsNotDeleted,
			"pod demo-a on node worker-1: it has not been asked to end",
		},
		"the worst of several, and of those the first": {
			[]corev1.Pod{leaving("demo-c", hold, "kine"), leaving("demo-b", nil, "+kine"), leaving("demo-a", nil, "+kine"), leaving("demo-0", nil, "kine")},
			time.Minute, reason.PodsNotEnding, pod + "kine still run, for longer than the 20 s that they have",
		},
	} {
		t.Run(sentence, func(t *testing.T) {
			t.Parallel()
			for range 2 {
				if c := endingOf(test.pods, asked.Add(test.after)); c.Reason != test.reason || c.Text != test.text {
					t.Errorf("%s: %s\nnot %s: %s", c.Reason, c.Text, test.reason, test.text)
				}
				slices.Reverse(test.pods)
			}
		})
	}
}

func TestWhatKeepsADeployment(t *testing.T) {
	t.Parallel()
	for sentence, test := range map[string]struct {
		pods       []corev1.Pod
		finalizers []string
		reason     string
		says       string
	}{
		"its pods": {
			[]corev1.Pod{leaving("demo-a", []string{"example.com/hold"}, "kine")}, []string{"foregroundDeletion", "example.com/x"}, reason.PodsHeld, "demo-a",
		},
		"its ReplicaSets, as long as Kubernetes holds it": {
			nil, []string{"foregroundDeletion", "example.com/x"}, reason.PodsNotDeleted, "ReplicaSets",
		},
		"a finalizer of its own": {nil, []string{"example.com/x"}, reason.ObjectHeld, `finalizer "example.com/x"`},
		"nothing":                {nil, nil, "", ""},
	} {
		d := &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{Finalizers: test.finalizers}}
		c := goingOf(d, test.pods, asked.Add(time.Minute))
		if c.Reason != test.reason || !strings.Contains(c.Text, test.says) {
			t.Errorf("%s: %+v", sentence, c)
		}
		wait, f := explainEnding(podsEnding("Deployment default/demo"), c)
		if wait.On != kube.Deployments.Kind || wait.Reason == "" || (f != nil) != (c.Reason != "") {
			t.Errorf("%s: %+v, %+v", sentence, wait, f)
		}
		if f != nil && (f.Permanent || f.Reason != wait.Reason || !strings.HasSuffix(f.Message, c.Text)) {
			t.Errorf("%s: %+v", sentence, f)
		}
	}
}

func TestPodsWithTimeLeftAreNoFailure(t *testing.T) {
	t.Parallel()
	c := endingOf([]corev1.Pod{leaving("demo-a", nil, "+kine")}, asked)
	if wait, f := explainEnding(podsEnding("x"), c); f != nil || wait.Reason != reason.PodsEnding || !strings.Contains(wait.Text, "demo-a") {
		t.Errorf("%+v, %+v", wait, f)
	}
}

func TestWhenPodsAreAskedWhyTheyHaveNotEnded(t *testing.T) {
	t.Parallel()
	for waited, want := range map[time.Duration]time.Duration{
		0: endAfter, endAfter - time.Second: time.Second, endAfter: endAfter, time.Minute: time.Minute, time.Hour: 2 * time.Minute,
	} {
		if in := askEndingIn(waited); in != want {
			t.Errorf("after %s in %s, not %s", waited, in, want)
		}
	}
}

func TestARolloutThatWaitsForOldPods(t *testing.T) {
	t.Parallel()
	stuck, now := leaving("demo-a", nil, "+kine"), asked.Add(time.Minute)
	for sentence, test := range map[string]struct {
		r    rollout
		pods []corev1.Pod
		now  time.Time
		want string
	}{
		"it says why they don't end while none of the new is there": {rollout{Starting: true}, []corev1.Pod{stuck}, now, reason.PodsNotEnding},
		"not while they have time":                                  {rollout{Starting: true}, []corev1.Pod{stuck}, asked, reason.NoPods},
		"not once there are new ones":                               {rollout{Starting: true}, []corev1.Pod{stuck, podOf("new", waits("kine", "ErrImagePull", "x"))}, now, reason.ImagePull},
		"one without pods says so":                                  {rollout{Starting: true}, nil, now, reason.NoPods},
		"going to sleep, it says why they don't end":                {rollout{Ending: true}, []corev1.Pod{stuck}, now, reason.PodsNotEnding},
	} {
		if c := waitsFor(test.r, test.pods, "new", test.now); c.Reason != test.want {
			t.Errorf("%s: %+v", sentence, c)
		}
	}
}
