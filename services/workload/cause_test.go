package workload

import (
	"slices"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/stoker-k8s/stoker/pkg/api/name"
	"github.com/stoker-k8s/stoker/pkg/api/v1alpha1"
)

func podOf(config string, containers ...corev1.ContainerStatus) corev1.Pod {
	p := corev1.Pod{Status: corev1.PodStatus{Phase: corev1.PodPending, ContainerStatuses: containers}}
	p.Annotations = map[string]string{name.AnnotationConfigHash: config}
	p.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodScheduled, Status: corev1.ConditionTrue}}
	return p
}

func waits(container, reason, message string) corev1.ContainerStatus {
	return corev1.ContainerStatus{Name: container, State: corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: reason, Message: message}}}
}

// crashed is a container in one of the three states a crash loop has.
func crashed(container, phase string, restarts int32, how corev1.ContainerStateTerminated) corev1.ContainerStatus {
	s := corev1.ContainerStatus{Name: container, RestartCount: restarts}
	switch phase {
	case "terminated":
		s.State.Terminated = &how
		return s
	case "waiting":
		s.State.Waiting = &corev1.ContainerStateWaiting{Reason: "CrashLoopBackOff", Message: "back-off 40s restarting failed container"}
	case "running":
		s.State.Running = &corev1.ContainerStateRunning{StartedAt: metav1.Now()}
	}
	s.LastTerminationState.Terminated = &how
	return s
}

// saying is the end of a container whose log ends so.
func saying(log string) corev1.ContainerStateTerminated {
	return corev1.ContainerStateTerminated{ExitCode: 1, Reason: "Error", Message: log}
}

// lost is a pod whose containers were ready when its node reported last.
func lost(p corev1.Pod, node string) corev1.Pod {
	p.Spec.NodeName = node
	return with(with(p, corev1.ContainersReady, corev1.ConditionTrue), corev1.PodReady, corev1.ConditionFalse)
}

func with(p corev1.Pod, condition corev1.PodConditionType, is corev1.ConditionStatus) corev1.Pod {
	p.Status.Conditions = append(p.Status.Conditions, corev1.PodCondition{Type: condition, Status: is})
	return p
}

func gated(p corev1.Pod) corev1.Pod {
	p.Spec.ReadinessGates = []corev1.PodReadinessGate{{ConditionType: "example.com/gate"}}
	return p
}

func TestCauseOf(t *testing.T) {
	t.Parallel()
	failed := corev1.ContainerStateTerminated{ExitCode: 1, Reason: "Error"}
	running := corev1.ContainerStatus{Name: "kube-scheduler", Ready: true, State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{}}}
	unready := corev1.ContainerStatus{Name: "kube-apiserver", Started: new(true), State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{}}}
	starting := unready
	starting.Started = new(false)
	const missing = "there is no Kubernetes v1.33.0 here, only v1.35.4 and v1.36.3"

	tests := map[string]struct {
		pods         []corev1.Pod
		reason, text string
	}{
		"without a pod, that is the cause": {nil, "NoPods", "no pod has been created yet"},
		"an image that isn't there is named with what the node says": {
			[]corev1.Pod{podOf("new", waits("kube-apiserver", "ErrImagePull", missing))}, "ErrImagePull", "kube-apiserver: ErrImagePull: " + missing,
		},
		"and the same while the node pauses before it tries again": {
			[]corev1.Pod{podOf("new", waits("kube-apiserver", "ImagePullBackOff", `Back-off pulling image "x": ErrImagePull: `+missing))},
			"ErrImagePull", "kube-apiserver: ErrImagePull: " + missing,
		},
		"a crash loop says how the container ends: while it waits": {
			[]corev1.Pod{podOf("new", crashed("kube-apiserver", "waiting", 4, failed))},
			"CrashLoopBackOff", "kube-apiserver: CrashLoopBackOff: exits with code 1, restarted",
		},
		"a component of Kubernetes says why it ends": {
			[]corev1.Pod{podOf("new", crashed("kube-apiserver", "waiting", 4, saying(`E1125 01:45:52.619334   18922 run.go:72] "command failed" err="unrecognized feature gate: \"Foo\""`)))},
			"CrashLoopBackOff", `kube-apiserver: CrashLoopBackOff: exits with code 1, restarted: unrecognized feature gate: "Foo"`,
		},
		"what it says in several lines is one, without what points into it": {
			[]corev1.Pod{podOf("new", crashed("kube-apiserver", "waiting", 4, saying("I1125 options.go:263] external host\nE1125 01:45 run.go:72] \"command failed\" err=<\n\tauthorizers[0].matchConditions[0].expression: Invalid value: \"request.foo\": undefined field 'foo'\n\t | request.foo\n\t | .......^\n >\n")))},
			"CrashLoopBackOff", `kube-apiserver: CrashLoopBackOff: exits with code 1, restarted: authorizers[0].matchConditions[0].expression: Invalid value: "request.foo": undefined field 'foo'`,
		},
		"a flag that it can't read is what it says": {
			[]corev1.Pod{podOf("new", crashed("kube-scheduler", "waiting", 4, saying("Usage:\n  kube-scheduler [flags]\n\nError: unknown flag: --foo\n")))},
			"CrashLoopBackOff", "kube-scheduler: CrashLoopBackOff: exits with code 1, restarted: unknown flag: --foo",
		},
		"of another log nothing is shown": {
			[]corev1.Pod{podOf("new", crashed("kine", "waiting", 4, saying("connecting to postgres://user:secret@db\ncommand failed err=no\n")))},
			"CrashLoopBackOff", "kine: CrashLoopBackOff: exits with code 1, restarted",
		},
		"a crash loop says how the container ends: while it runs": {
			[]corev1.Pod{podOf("new", crashed("kube-apiserver", "running", 5, failed))},
			"CrashLoopBackOff", "kube-apiserver: CrashLoopBackOff: exits with code 1, restarted",
		},
		"a crash loop says how the container ends: when it has ended": {
			[]corev1.Pod{podOf("new", crashed("kube-apiserver", "terminated", 6, failed))},
			"CrashLoopBackOff", "kube-apiserver: CrashLoopBackOff: exits with code 1, restarted",
		},
		"a pod whose containers were ready when its node reported last": {
			[]corev1.Pod{lost(podOf("new", running), "worker-1")}, "NodeLost", "NodeLost: node worker-1 does not report any more",
		},
		"a pod whose gates somebody else opens": {
			[]corev1.Pod{gated(lost(podOf("new", running), "worker-1"))}, "", "",
		},
		"a pod with a sidecar that isn't ready": {
			[]corev1.Pod{with(podOf("new", running), corev1.ContainersReady, corev1.ConditionFalse)}, "", "",
		},
		"a container out of memory is told as such": {
			[]corev1.Pod{podOf("new", crashed("kube-apiserver", "waiting", 3, corev1.ContainerStateTerminated{ExitCode: 137, Reason: "OOMKilled"}))},
			"OOMKilled", "kube-apiserver: OOMKilled: exits with code 137, for it needs more memory than its limit, restarted",
		},
		"a container that can't be started says what the runtime said": {
			[]corev1.Pod{podOf("new", crashed("kube-apiserver", "waiting", 3, corev1.ContainerStateTerminated{ExitCode: 128, Reason: "StartError", Message: "exec: no such file"}))},
			"CrashLoopBackOff", "kube-apiserver: CrashLoopBackOff: exits with code 128: StartError: exec: no such file, restarted",
		},
		"a key that a Secret lacks": {
			[]corev1.Pod{podOf("new", waits("kube-apiserver", "CreateContainerConfigError", `secret "demo-ca" not found`))},
			"CreateContainerConfigError", `kube-apiserver: CreateContainerConfigError: secret "demo-ca" not found`,
		},
		"a volume's Secret, where the node says so": {
			[]corev1.Pod{podOf("new", waits("kube-apiserver", "ContainerCreating", `volume ca: secret "demo-ca" not found`))},
			"ContainerCreating", `kube-apiserver: ContainerCreating: volume ca: secret "demo-ca" not found`,
		},
		"and where it doesn't, what it may be": {
			[]corev1.Pod{podOf("new", waits("kube-apiserver", "ContainerCreating", ""))},
			"ContainerCreating", "kube-apiserver: ContainerCreating: its image, volumes (do their Secrets exist?) or network are not there yet",
		},
		"with a sandbox, only its image is missing": {
			[]corev1.Pod{with(podOf("new", waits("kube-apiserver", "ContainerCreating", "")), corev1.PodReadyToStartContainers, corev1.ConditionTrue)},
			"ContainerCreating", "kube-apiserver: ContainerCreating: its image is being pulled",
		},
		"without one, it isn't the image": {
			[]corev1.Pod{with(podOf("new", waits("kube-apiserver", "ContainerCreating", "")), corev1.PodReadyToStartContainers, corev1.ConditionFalse)},
			"ContainerCreating", "kube-apiserver: ContainerCreating: the pod's volumes (do their Secrets exist?) or network are not there yet",
		},
		"a pod without a node says what the scheduler says": {
			[]corev1.Pod{{
				ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{name.AnnotationConfigHash: "new"}},
				Status: corev1.PodStatus{Phase: corev1.PodPending, Conditions: []corev1.PodCondition{
					{Type: corev1.PodScheduled, Status: corev1.ConditionFalse, Reason: "Unschedulable", Message: "0/3 nodes are available:\n3 Insufficient cpu."},
				}},
			}},
			"Unschedulable", "Unschedulable: 0/3 nodes are available: 3 Insufficient cpu.",
		},
		"an evicted pod": {
			[]corev1.Pod{{
				ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{name.AnnotationConfigHash: "new"}},
				Status:     corev1.PodStatus{Phase: corev1.PodFailed, Reason: "Evicted", Message: "the node was low on memory"},
			}},
			"Evicted", "Evicted: the node was low on memory",
		},
		"an API server that starts but doesn't come up": {
			[]corev1.Pod{podOf("new", running, starting)}, "ProbesFail", "kube-apiserver: runs, but its startup probe has not succeeded yet",
		},
		"one that was up and doesn't answer": {
			[]corev1.Pod{podOf("new", running, unready)}, "ProbesFail", "kube-apiserver: runs, but its readiness probe fails",
		},
		"of several containers, the one that won't get better by itself": {
			[]corev1.Pod{podOf("new", starting, crashed("kube-scheduler", "waiting", 3, failed), waits("kine", "InvalidImageName", "no such name"))},
			"InvalidImageName", "kine: InvalidImageName: no such name",
		},
		"an init container holds up the others": {
			[]corev1.Pod{func() corev1.Pod {
				p := podOf("new", waits("kube-apiserver", "PodInitializing", ""))
				p.Status.InitContainerStatuses = []corev1.ContainerStatus{crashed("prepare", "waiting", 3, failed)}
				return p
			}()},
			"CrashLoopBackOff", "prepare: CrashLoopBackOff: exits with code 1, restarted",
		},
		"pods of an earlier template and those on their way out say nothing": {
			[]corev1.Pod{
				podOf("old", waits("kube-apiserver", "ErrImagePull", missing)),
				func() corev1.Pod {
					p := podOf("new", crashed("kube-apiserver", "waiting", 3, failed))
					p.DeletionTimestamp = &metav1.Time{Time: time.Now()}
					return p
				}(),
				podOf("new", starting),
			},
			"ProbesFail", "kube-apiserver: runs, but its startup probe has not succeeded yet",
		},
		"a pod that is ready has no cause": {
			[]corev1.Pod{func() corev1.Pod {
				p := podOf("new", running)
				p.Status.Conditions = append(p.Status.Conditions, corev1.PodCondition{Type: corev1.PodReady, Status: corev1.ConditionTrue})
				return p
			}()}, "", "",
		},
	}
	for sentence, test := range tests {
		t.Run(sentence, func(t *testing.T) {
			t.Parallel()
			got := causeOf(test.pods, "new")
			if got.Reason != test.reason || got.Text != test.text {
				t.Errorf("got  %s, %q\nwant %s, %q", got.Reason, got.Text, test.reason, test.text)
			}
			slices.Reverse(test.pods)
			for i := range test.pods {
				slices.Reverse(test.pods[i].Status.ContainerStatuses)
			}
			if again := causeOf(test.pods, "new"); again != got {
				t.Errorf("in another order %+v", again)
			}
		})
	}
	t.Run("what is long is cut at a whole character", func(t *testing.T) {
		t.Parallel()
		got := causeOf([]corev1.Pod{podOf("new", waits("kube-apiserver", "ErrImagePull", strings.Repeat("ö\x1b[31m", 300)))}, "new").Text
		if len(got) > maxCause || !utf8.ValidString(got) || strings.ContainsRune(got, 0x1b) || !strings.HasSuffix(got, "…") {
			t.Errorf("%d bytes: %q", len(got), got)
		}
	})
}

func TestNamingFields(t *testing.T) {
	t.Parallel()
	settings := &v1alpha1.APIServerSpec{
		Authentication: &v1alpha1.AuthenticationSpec{}, Authorization: &v1alpha1.AuthorizationSpec{}, FeatureGates: map[string]bool{"Foo": true},
	}
	for sentence, test := range map[string]struct {
		settings   *v1alpha1.APIServerSpec
		text, want string
	}{
		"an issuer": {
			settings, "kube-apiserver: Error: invalid authentication configuration: jwt[0].issuer.url: Invalid value",
			"kube-apiserver: Error: invalid authentication configuration: spec.kubernetes.apiServer.authentication.jwt[0].issuer.url: Invalid value",
		},
		"an authorizer": {
			settings, "kube-apiserver: Error: authorizers[1].timeout: Invalid value",
			"kube-apiserver: Error: spec.kubernetes.apiServer.authorization.authorizers[1].timeout: Invalid value",
		},
		"a feature gate": {
			settings, "kube-apiserver: Error: unrecognized feature gate: Foo",
			"kube-apiserver: Error: unrecognized feature gate: Foo (spec.kubernetes.apiServer.featureGates)",
		},
		"a document that isn't the spec's": {settings, "kube-apiserver: Error: rules[0].level", "kube-apiserver: Error: rules[0].level"},
		"another container":                {settings, "kube-scheduler: Error: jwt[0]", "kube-scheduler: Error: jwt[0]"},
		"a tenant without settings":        {nil, "kube-apiserver: Error: jwt[0]", "kube-apiserver: Error: jwt[0]"},
	} {
		t.Run(sentence, func(t *testing.T) {
			t.Parallel()
			if got := namingFields(test.settings, test.text); got != test.want {
				t.Errorf("%s", got)
			}
		})
	}
}
