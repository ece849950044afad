package workload

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/stoker-k8s/stoker/internal/testing/poll"
	"github.com/stoker-k8s/stoker/pkg/api/event"
	"github.com/stoker-k8s/stoker/pkg/api/name"
	"github.com/stoker-k8s/stoker/pkg/api/reason"
	"github.com/stoker-k8s/stoker/pkg/api/state"
	"github.com/stoker-k8s/stoker/pkg/events"
	"github.com/stoker-k8s/stoker/pkg/kube"
)

func TestUpgradeOf(t *testing.T) {
	t.Parallel()
	at := time.Date(2026, 11, 25, 12, 0, 0, 0, time.UTC)
	pending := &state.Upgrade{From: "v1.35.4", To: "v1.36.3", Generation: 2, Since: at}
	undone := &state.Upgrade{From: "v1.35.4", To: "v1.36.3", Generation: 2, Since: at, UndoneAt: at, Message: "no"}
	halfway := &state.Upgrade{From: "v1.33.1", To: "v1.35.4", Generation: 2, Through: []string{"v1.34.4"}, UndoneAt: at}
	for what, of := range map[string]struct {
		before     state.Workload
		asked      string
		listed     []string
		generation int64
		want       *state.Upgrade
		step       string // version that pods are to run
	}{
		"a tenant that is new has none":    {asked: "v1.36.3", generation: 1, step: "v1.36.3"},
		"nor has one that runs what it is": {before: state.Workload{Version: "v1.36.3"}, asked: "v1.36.3", generation: 2, step: "v1.36.3"},
		"another version is one": {
			before: state.Workload{Version: "v1.35.4"}, asked: "v1.36.3", generation: 2,
			want: &state.Upgrade{From: "v1.35.4", To: "v1.36.3", Generation: 2}, step: "v1.36.3",
		},
		"so is another patch, also an older one": {
			before: state.Workload{Version: "v1.36.3"}, asked: "v1.36.1", generation: 2,
			want: &state.Upgrade{From: "v1.36.3", To: "v1.36.1", Generation: 2}, step: "v1.36.1",
		},
		"what is listed for minor versions that aren't between is left out": {
			before: state.Workload{Version: "v1.35.4"}, asked: "v1.36.3", listed: []string{"v1.34.4", "v1.35.9", "v1.36.1"}, generation: 2,
			want: &state.Upgrade{From: "v1.35.4", To: "v1.36.3", Generation: 2}, step: "v1.36.3",
		},
		"several minor versions are steps, in their order": {
			before: state.Workload{Version: "v1.33.1"}, asked: "v1.36.3", listed: []string{"v1.35.4", "v1.34.4"}, generation: 2,
			want: &state.Upgrade{From: "v1.33.1", To: "v1.36.3", Generation: 2, Through: []string{"v1.34.4", "v1.35.4"}}, step: "v1.34.4",
		},
		"a step that isn't listed any more stays, once it was begun": {
			before: state.Workload{Version: "v1.34.4", Upgrade: &state.Upgrade{From: "v1.34.4", To: "v1.36.3", Generation: 2, Through: []string{"v1.35.4"}}},
			asked:  "v1.36.3", generation: 2,
			want: &state.Upgrade{From: "v1.34.4", To: "v1.36.3", Generation: 2, Through: []string{"v1.35.4"}}, step: "v1.35.4",
		},
		"one that is under way goes on in the next generation, with the time it has": {
			before: state.Workload{Version: "v1.35.4", Upgrade: pending}, asked: "v1.36.3", generation: 3,
			want: &state.Upgrade{From: "v1.35.4", To: "v1.36.3", Generation: 3, Since: at}, step: "v1.36.3",
		},
		"one that was undone stays so in its generation": {
			before: state.Workload{Version: "v1.35.4", Upgrade: undone}, asked: "v1.36.3", generation: 2, want: undone, step: "v1.35.4",
		},
		"and is tried again in the next": {
			before: state.Workload{Version: "v1.35.4", Upgrade: undone}, asked: "v1.36.3", generation: 3,
			want: &state.Upgrade{From: "v1.35.4", To: "v1.36.3", Generation: 3}, step: "v1.36.3",
		},
		"who asks for the version of before ends it, undone or not": {
			before: state.Workload{Version: "v1.35.4", Upgrade: undone}, asked: "v1.35.4", generation: 3, step: "v1.35.4",
		},
		"also while it is under way": {
			before: state.Workload{Version: "v1.35.4", Upgrade: pending}, asked: "v1.35.4", generation: 3, step: "v1.35.4",
		},
		"and another patch is another upgrade": {
			before: state.Workload{Version: "v1.35.4", Upgrade: undone}, asked: "v1.36.4", generation: 3,
			want: &state.Upgrade{From: "v1.35.4", To: "v1.36.4", Generation: 3}, step: "v1.36.4",
		},
		"what was asked for and not reached is on the way": {
			before: state.Workload{Version: "v1.36.3", Upgrade: &state.Upgrade{From: "v1.34.4", To: "v1.35.4", Generation: 2}}, asked: "v1.36.3", generation: 3,
			want: &state.Upgrade{From: "v1.34.4", To: "v1.36.3", Generation: 3, Through: []string{"v1.35.4"}}, step: "v1.35.4",
		},
		"unless another version of it is named": {
			before: state.Workload{Version: "v1.33.1", Upgrade: halfway}, asked: "v1.36.3", listed: []string{"v1.35.9"}, generation: 3,
			want: &state.Upgrade{From: "v1.33.1", To: "v1.36.3", Generation: 3, Through: []string{"v1.34.4", "v1.35.9"}}, step: "v1.34.4",
		},
	} {
		got := upgradeOf(&of.before, of.asked, of.listed, of.generation)
		if hash(got) != hash(of.want) {
			t.Errorf("%s: %s, want %s", what, event.Marshal(got), event.Marshal(of.want))
		}
		if v := versionOf(got, of.asked, of.generation, false); v != of.step {
			t.Errorf("%s: pods are to run %s, want %s", what, v, of.step)
		}
		if v := versionOf(got, of.asked, of.generation, true); v != of.asked {
			t.Errorf("%s: asleep, %s is on record, want %s", what, v, of.asked)
		}
		if again := upgradeOf(&state.Workload{Version: of.before.Version, Upgrade: got}, of.asked, nil, of.generation); got != nil && hash(again) != hash(got) {
			t.Errorf("%s: looked at again, it is %s", what, event.Marshal(again))
		}
	}
}

func TestALowerMinorVersionIsNotBegun(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 11, 25, 12, 0, 0, 0, time.UTC)
	if refuseLower(nil, now) != nil {
		t.Error("without an upgrade there is one")
	}
	for _, to := range []string{"v1.36.1", "v1.36.4"} {
		if u := refuseLower(&state.Upgrade{From: "v1.36.3", To: to, Generation: 2}, now); u.Undone(2) {
			t.Errorf("%s: %+v", to, u)
		}
	}
	u := refuseLower(&state.Upgrade{From: "v1.36.3", To: "v1.35.4", Generation: 2}, now)
	if !u.Undone(2) || versionOf(u, "v1.35.4", 2, false) != "v1.36.3" {
		t.Errorf("%+v", u)
	}
	if f := undoneBecause(u, nil); !strings.HasPrefix(f.Message, "v1.35.4 was not begun, v1.36.3 runs: it is a lower") || f.Reason != reason.UpgradeUndone || !f.Permanent {
		t.Errorf("%+v", f)
	}
	if again := refuseLower(u, now.Add(time.Hour)); again != u {
		t.Errorf("looked at again, it is %+v", again)
	}
}

func TestAnUpgradeIsLateWhenItsPodsHaveHadTheirTime(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 11, 25, 12, 0, 0, 0, time.UTC)
	u := &state.Upgrade{From: "v1.35.4", To: "v1.36.3", Since: now.Add(-time.Minute)}
	undone := *u
	undone.UndoneAt = now
	for what, of := range map[string]struct {
		u       *state.Upgrade
		timeout time.Duration
		late    bool
	}{
		"none":                             {timeout: time.Second},
		"one that waits for a slot":        {u: &state.Upgrade{From: "v1.35.4", To: "v1.36.3"}, timeout: time.Second},
		"one that has time left":           {u: u, timeout: time.Minute + 1},
		"one whose time is over":           {u: u, timeout: time.Minute, late: true},
		"one that has as long as it likes": {u: u},
		"one that was undone":              {u: &undone, timeout: time.Second},
		"one of a clock that was ahead":    {u: &state.Upgrade{From: "v1.35.4", To: "v1.36.3", Since: now.Add(time.Hour)}, timeout: time.Second},
	} {
		if got := late(bounded(of.u, of.timeout, now), now); got != of.late {
			t.Errorf("%s: late is %v", what, got)
		}
	}
	if ahead := bounded(&state.Upgrade{Since: now.Add(time.Hour)}, time.Minute, now); !ahead.Until.Equal(now.Add(time.Minute)) {
		t.Errorf("a clock that was ahead gives it until %s", ahead.Until)
	}
	if u.Until != (time.Time{}) {
		t.Error("the upgrade itself was changed")
	}
}

func TestAfterStep(t *testing.T) {
	t.Parallel()
	of := func(step string, u *state.Upgrade) rollout {
		return rollout{Step: step, Facts: []string{event.Available, event.Upgraded}, Data: state.Workload{Upgrade: u}}
	}
	walk := &state.Upgrade{From: "v1.33.1", To: "v1.36.3", Generation: 2, Through: []string{"v1.34.4", "v1.35.4"}, Since: time.Unix(1, 0), Until: time.Unix(2, 0)}
	undone := &state.Upgrade{From: "v1.33.1", To: "v1.36.3", Through: []string{"v1.34.4"}, UndoneAt: time.Unix(3, 0)}
	for what, x := range map[string]struct {
		r     rollout
		more  bool
		step  string
		facts int
		want  *state.Upgrade
	}{
		"without an upgrade nothing is noted":   {r: of(event.Available, nil), step: event.Available, facts: 2},
		"nor before it is complete":             {r: of(event.Exposed, walk), step: event.Exposed, facts: 2, want: walk},
		"at its end it is gone":                 {r: of(event.Available, &state.Upgrade{From: "v1.35.4", To: "v1.36.3"}), step: event.Available, facts: 2},
		"one that was undone stays":             {r: of(event.Available, undone), step: event.Available, facts: 2, want: undone},
		"after a step, the rest is still to go": {r: of(event.Available, walk), more: true, step: event.Exposed, facts: 1, want: &state.Upgrade{From: "v1.34.4", To: "v1.36.3", Generation: 2, Through: []string{"v1.35.4"}}},
	} {
		more := afterStep(&x.r)
		if more != x.more || x.r.Step != x.step || len(x.r.Facts) != x.facts || hash(x.r.Data.Upgrade) != hash(x.want) {
			t.Errorf("%s: more %v, step %s, facts %v, upgrade %s", what, more, x.r.Step, x.r.Facts, event.Marshal(x.r.Data.Upgrade))
		}
		if more && x.r.Facts[0] != event.Upgraded {
			t.Errorf("%s: %v is told", what, x.r.Facts)
		}
	}
}

func TestWhatIsSaidOfAnUpgradeThatWasUndone(t *testing.T) {
	t.Parallel()
	u := &state.Upgrade{From: "v1.34.4", To: "v1.35.4", Since: time.Unix(0, 1), UndoneAt: time.Unix(1, 0), Message: "kube-apiserver: ErrImagePull"}
	f := undoneBecause(u, nil)
	const want = "pods of v1.35.4 did not become ready in time and were taken back, v1.34.4 runs again: kube-apiserver: ErrImagePull"
	if f.Message != want || f.Reason != reason.UpgradeUndone || !f.Permanent {
		t.Errorf("%+v", f)
	}
	u.To, u.Through = "v1.36.3", []string{"v1.35.4"}
	if f := undoneBecause(u, nil); f.Message != "on the way to v1.36.3, "+want {
		t.Errorf("%+v", f)
	}
	if f := undoneBecause(u, &state.Failure{Reason: reason.CrashLoop, Message: "crashes"}); f.Message != "on the way to v1.36.3, "+want+"; with v1.34.4: crashes" || !f.Permanent {
		t.Errorf("%+v", f)
	}
}

func TestWhyAnUpgradeIsUndone(t *testing.T) {
	t.Parallel()
	exit := corev1.ContainerStateTerminated{ExitCode: 1, Message: "I1125 a\nError: unknown flag: --gone\n"}
	quota := cause{Reason: reason.ReplicaCreationError, Text: "exceeded quota"}
	const crashes = "kube-apiserver: CrashLoopBackOff: exits with code 1, restarted: unknown flag: --gone"
	for what, of := range map[string]struct {
		pods       []corev1.Pod
		deployment cause
		want       string
	}{
		"what the API server said":           {pods: []corev1.Pod{podOf("new", crashed("kube-apiserver", "waiting", 4, exit))}, want: crashes},
		"also while it runs again":           {pods: []corev1.Pod{podOf("new", crashed("kube-apiserver", "running", 4, exit))}, deployment: quota, want: crashes},
		"nothing of other pods":              {pods: []corev1.Pod{podOf("old", crashed("kube-apiserver", "waiting", 4, exit))}, want: "no pod has been created yet"},
		"of pods that aren't there, why not": {deployment: quota, want: "exceeded quota"},
	} {
		if got := causeOrDeployments(of.pods, "new", of.deployment); got.Text != of.want {
			t.Errorf("%s: %s", what, got.Text)
		}
	}
}

// crashing makes a pod of the Deployment as it is whose API server has crashed.
func (x *tenant) crashing(said string) {
	x.t.Helper()
	d := x.deployment()
	p := &corev1.Pod{TypeMeta: kube.Pods.TypeMeta(), ObjectMeta: metav1.ObjectMeta{
		Namespace: d.Namespace, Name: d.Name + fmt.Sprint("-", d.Generation), Labels: d.Spec.Template.Labels, Annotations: d.Spec.Template.Annotations,
	}, Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "kube-apiserver", Image: "x"}}}}
	x.must(x.admin.Create(x.t.Context(), kube.Pods, p))
	x.must(x.admin.ApplyStatus(x.t.Context(), kube.Pods, &metav1.ObjectMeta{Namespace: p.Namespace, Name: p.Name}, corev1.PodStatus{
		Phase:      corev1.PodRunning,
		Conditions: []corev1.PodCondition{{Type: corev1.PodScheduled, Status: corev1.ConditionTrue}},
		ContainerStatuses: []corev1.ContainerStatus{
			crashed("kube-apiserver", "waiting", 3, corev1.ContainerStateTerminated{ExitCode: 1, Reason: "Error", Message: said}),
		},
	}))
}

// image is that of the API server in the Deployment.
func (x *tenant) image() string {
	for _, c := range x.deployment().Spec.Template.Spec.Containers {
		if c.Name == name.ContainerAPIServer {
			return c.Image[strings.LastIndexByte(c.Image, ':')+1:]
		}
	}
	return ""
}

func (x *tenant) runs(version string) {
	x.t.Helper()
	poll.Nil(x.t, x.key.Name+" is to run "+version, func() error {
		if have := x.image(); have != version {
			return errors.New(have)
		}
		return nil
	})
}

func undoneState(s *state.State, w *state.Workload) bool {
	return s.Failure != nil && s.Failure.Reason == reason.UpgradeUndone && w.Upgrade != nil && !w.Upgrade.UndoneAt.IsZero()
}

func TestUpgradesOnARealAPIServer(t *testing.T) {
	c := sharedCluster(t)
	in := c.subtest

	in("pods of another version that aren't ready in time go, with what they said last; the version stays until a generation asks anew", func(t *testing.T) {
		_, stop := c.service(3)
		x := c.tenant("default", "undone")
		x.Tenant.Annotations = map[string]string{name.AnnotationUpgradeTimeout: "8s"}
		x.available()
		before := x.deployment()
		x.Tenant.Spec.Kubernetes.Version = "v1.36.3"
		x.accept()
		_, w := x.becomes("under way", func(_ *state.State, w *state.Workload) bool { return w.Upgrade != nil && !w.Upgrade.Until.IsZero() })
		if u := w.Upgrade; u.From != "v1.35.4" || u.To != "v1.36.3" || u.Until.Sub(u.Since) != 8*time.Second || w.Version != "v1.35.4" {
			t.Errorf("%+v", u)
		}
		x.crashing("Error: unknown flag: --gone")
		stop() // the next replica goes on with what is in NATS
		_, stop = c.service(3)
		x.runs("v1.35.4")
		s, _ := x.becomes("undone", undoneState)
		if m := s.Failure.Message; !s.Failure.Permanent || !strings.Contains(m, "v1.36.3") || !strings.Contains(m, "v1.35.4") ||
			!strings.Contains(m, "kube-apiserver: CrashLoopBackOff: exits with code 1, restarted: unknown flag: --gone") {
			t.Error(m)
		}
		if hash(x.deployment().Spec.Template) != hash(before.Spec.Template) {
			t.Error("the pods aren't those of before")
		}
		x.rolledOut()
		s, w = x.becomes("back", func(s *state.State, w *state.Workload) bool { return s.Step == event.Available && undoneState(s, w) })
		if w.Version != "v1.35.4" || w.Phase != "Ready" || s.Wait.Waits() || !strings.HasPrefix(s.Failure.Message, "pods of v1.36.3 did not become ready in time") {
			t.Errorf("%+v, %+v", w, s.Failure)
		}
		poll.Nil(t, "it is told", func() error {
			if failed, available := x.told(event.Failed), x.told(event.Available); failed != 1 || available != 2 {
				return fmt.Errorf("failed %d times, available %d times", failed, available)
			}
			return nil
		})

		back, revision := x.deployment(), event.Marshal(s)
		stop()
		c.service(3)
		x.again(event.IntakeAccepted{})
		other := c.tenant("default", "undone-other") // of which it is known when the service has worked
		other.accept()
		other.waits("its pods to be ready")
		if s, _ := x.becomes("still undone", undoneState); string(event.Marshal(s)) != string(revision) || x.deployment().Generation != back.Generation {
			t.Errorf("handled again it is %s, Deployment at %d of %d", event.Marshal(s), x.deployment().Generation, back.Generation)
		}
		if failed, available, upgraded := x.told(event.Failed), x.told(event.Available), x.told(event.Upgraded); failed != 1 || available != 2 || upgraded != 0 {
			t.Errorf("failed was told %d times, available %d times, upgraded %d times", failed, available, upgraded)
		}

		x.Tenant.Spec.Kubernetes.Version = "v1.35.4"
		x.accept()
		if _, w := x.is(event.Available); w.Upgrade != nil || x.deployment().Generation != back.Generation {
			t.Errorf("the version of before is a rollout: %+v", w.Upgrade)
		}
		x.Tenant.Spec.Kubernetes.Version = "v1.36.3"
		x.accept()
		x.runs("v1.36.3")
		x.rolledOut()
		if _, w := x.is(event.Available); w.Upgrade != nil || w.Version != "v1.36.3" {
			t.Errorf("%+v", w)
		}
	})

	in("a replica that ended when it had noted that an upgrade is undone, and before it did so, has another do it", func(t *testing.T) {
		_, stop := c.service(3)
		x := c.tenant("default", "killed")
		x.available()
		x.Tenant.Spec.Kubernetes.Version = "v1.36.3"
		x.accept()
		s, w := x.becomes("under way", func(_ *state.State, w *state.Workload) bool { return w.Upgrade != nil && !w.Upgrade.Since.IsZero() })
		stop()
		w.Upgrade.UndoneAt, w.Upgrade.Message = w.Upgrade.Until, "its pods don't say why"
		s.Failure, s.Data = undoneBecause(w.Upgrade, nil), event.Marshal(w)
		x.put(name.ServiceWorkload, name.ServiceWorkload, *s)
		c.service(3)
		x.runs("v1.35.4")
		x.rolledOut()
		x.becomes("back", func(s *state.State, w *state.Workload) bool { return s.Step == event.Available && undoneState(s, w) })
	})

	in("an upgrade that may take as long as it likes isn't undone, and is once it may not", func(t *testing.T) {
		c.service(3)
		x := c.tenant("default", "never")
		x.Tenant.Annotations = map[string]string{name.AnnotationUpgradeTimeout: name.NeverUndone}
		x.available()
		x.Tenant.Spec.Kubernetes.Version = "v1.36.3"
		x.accept()
		_, w := x.becomes("under way", func(_ *state.State, w *state.Workload) bool { return w.Upgrade != nil && !w.Upgrade.Since.IsZero() })
		if !w.Upgrade.Until.IsZero() {
			t.Errorf("%+v", w.Upgrade)
		}
		x.Tenant.Annotations[name.AnnotationUpgradeTimeout] = "1s"
		x.again(event.IntakeAccepted{})
		x.runs("v1.35.4")
		x.becomes("undone", undoneState)
	})

	in("a lower minor version than all pods run by now is not begun", func(t *testing.T) {
		c.service(3)
		x := c.tenant("default", "lower")
		x.available()
		before := x.deployment()
		x.Tenant.Spec.Kubernetes.Version = "v1.34.4"
		x.accept()
		s, _ := x.becomes("refused", func(s *state.State, w *state.Workload) bool { return s.Step == event.Available && undoneState(s, w) })
		if !strings.Contains(s.Failure.Message, "v1.34.4 was not begun") || x.deployment().Generation != before.Generation {
			t.Errorf("%+v", s.Failure)
		}
	})

	in("several minor versions are gone through one by one; a step that fails is undone, and the way ends there", func(t *testing.T) {
		c.service(3)
		x := c.tenant("default", "walks")
		x.Tenant.Annotations = map[string]string{name.AnnotationUpgradeThrough: "v1.35.4,v1.34.4", name.AnnotationUpgradeTimeout: "10s"}
		x.Tenant.Spec.Kubernetes.Version = "v1.33.1"
		x.available()
		x.Tenant.Spec.Kubernetes.Version = "v1.36.3"
		x.accept()
		x.runs("v1.34.4")
		x.rolledOut()
		x.runs("v1.35.4")
		_, w := x.becomes("at its first step", func(s *state.State, w *state.Workload) bool { return w.Version == "v1.34.4" && s.Step == event.Exposed })
		if u := w.Upgrade; u == nil || u.From != "v1.34.4" || !slices.Equal(u.Through, []string{"v1.35.4"}) {
			t.Errorf("%+v", u)
		}
		s, _ := x.becomes("undone", undoneState)
		if m := s.Failure.Message; !strings.HasPrefix(m, "on the way to v1.36.3, pods of v1.35.4 ") || !strings.Contains(m, "v1.34.4 runs again") {
			t.Error(m)
		}
		x.runs("v1.34.4")
		x.rolledOut()
		x.becomes("back", func(s *state.State, w *state.Workload) bool { return s.Step == event.Available && undoneState(s, w) })
		x.Tenant.Annotations[name.AnnotationUpgradeTimeout] = "never"
		x.accept() // with the same version
		x.runs("v1.35.4")
		x.rolledOut()
		x.runs("v1.36.3")
		x.rolledOut()
		if _, w := x.is(event.Available); w.Version != "v1.36.3" || w.Upgrade != nil {
			t.Errorf("%+v", w)
		}
		var steps []string
		poll.Nil(t, "each step is told", func() error {
			steps = x.upgraded()
			if !slices.Equal(steps, []string{"v1.33.1 v1.34.4", "v1.34.4 v1.35.4", "v1.35.4 v1.36.3"}) {
				return fmt.Errorf("%v", steps)
			}
			return nil
		})
		if available := x.told(event.Available); available != 3 {
			t.Errorf("it was told to be available %d times, not at its beginning, after the undo and at its end alone", available)
		}
	})

	in("what was asked for while a tenant slept is gone through when it wakes, and undone to what ran before", func(t *testing.T) {
		c.service(3)
		x := c.tenant("default", "wakes")
		x.Tenant.Annotations = map[string]string{name.AnnotationUpgradeTimeout: "8s"}
		x.Tenant.Spec.Kubernetes.Version = "v1.34.4"
		x.available()
		x.Tenant.Spec.ControlPlane.Deployment.Replicas = new(int32(0))
		for _, version := range []string{"v1.34.4", "v1.35.4", "v1.36.3"} {
			x.Tenant.Spec.Kubernetes.Version = version
			x.accept()
			x.runs(version)
			x.waits("its pods to end")
			x.rolledOut()
			if _, w := x.is(event.Slept); w.Version != version || w.Upgrade != nil && !w.Upgrade.Until.IsZero() {
				t.Errorf("%+v", w)
			}
		}
		x.Tenant.Spec.ControlPlane.Deployment.Replicas = new(int32(1))
		x.accept()
		x.runs("v1.35.4")
		x.becomes("undone", undoneState)
		x.runs("v1.34.4")
		x.rolledOut()
		_, w := x.becomes("back", func(s *state.State, w *state.Workload) bool { return s.Step == event.Available && undoneState(s, w) })
		if w.Version != "v1.34.4" || w.Phase != "Ready" {
			t.Errorf("%+v", w)
		}
	})
}

// upgraded lists what was told of versions that all pods run.
func (x *tenant) upgraded() (steps []string) {
	x.t.Helper()
	st, err := x.bus[events.UserOperator].JetStream().Stream(x.t.Context(), events.StreamFacts)
	x.must(err)
	info, err := st.Info(x.t.Context())
	x.must(err)
	for seq := info.State.FirstSeq; seq <= info.State.LastSeq; seq++ {
		m, err := st.GetMsg(x.t.Context(), seq)
		if err != nil || m.Subject != x.key.FactSubject(name.ServiceWorkload, event.Upgraded) {
			continue
		}
		var u event.WorkloadUpgraded
		x.must(json.Unmarshal(m.Data, &u))
		steps = append(steps, u.From+" "+u.To)
	}
	return steps
}
