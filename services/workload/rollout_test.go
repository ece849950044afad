package workload

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/stoker-k8s/stoker/internal/testing/poll"
	"github.com/stoker-k8s/stoker/pkg/api/event"
	"github.com/stoker-k8s/stoker/pkg/api/name"
	"github.com/stoker-k8s/stoker/pkg/api/reason"
	"github.com/stoker-k8s/stoker/pkg/api/state"
	"github.com/stoker-k8s/stoker/pkg/api/v1alpha1"
	"github.com/stoker-k8s/stoker/pkg/events"
	"github.com/stoker-k8s/stoker/pkg/intent"
	"github.com/stoker-k8s/stoker/pkg/kube"
	"github.com/stoker-k8s/stoker/pkg/loop"
)

// A rollout that was begun by a clock that was a day ahead holds its slot no longer than others.
func TestASlotIsHeldNoLongerForAClockThatWasAhead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &svc{now: time.Now, slots: newSlots(1, func(events.Key) {})}
		it := &turn{
			Turn: &loop.Turn{Key: events.Tenant("default", "ahead")}, s: s, spec: &v1alpha1.TenantControlPlaneSpec{},
			data: state.Workload{ConfigHash: "1", LastUpdate: time.Now().Add(24 * time.Hour)},
		}
		it.holdSlot()
		other := events.Tenant("default", "other")
		if s.slots.take(other) {
			t.Fatal("the slot isn't held")
		}
		time.Sleep(slotTime + time.Second) //nolint:forbidigo // by the clock of synctest
		if !s.slots.take(other) {
			t.Errorf("the slot is held for longer than %s", slotTime)
		}
		s.slots.free(other)
	})
}

func TestBegun(t *testing.T) {
	now := time.Date(2026, 11, 22, 12, 0, 0, 0, time.UTC)
	for what, c := range map[string]struct{ noted, want time.Time }{
		"what began a minute ago":                {now.Add(-time.Minute), now.Add(-time.Minute)},
		"what wasn't noted begins now":           {time.Time{}, now},
		"what a clock noted that was a day fast": {now.Add(24 * time.Hour), now},
	} {
		t.Run(what, func(t *testing.T) {
			if got := begun(c.noted, now); !got.Equal(c.want) {
				t.Errorf("%s, not %s", got, c.want)
			}
		})
	}
}

func TestWhichTenantsHoldASlot(t *testing.T) {
	for what, c := range map[string]struct {
		step     string
		config   string        // hash of what its pods have
		ago      time.Duration // since its Deployment was changed, negative for never
		replicas *int32
		held     bool
	}{
		"one whose pods start":                             {step: event.Exposed, config: "1", held: true},
		"one whose pods start, just before its time is up": {step: event.Exposed, config: "1", ago: slotTime - time.Second, held: true},
		"one that has taken its time":                      {step: event.Exposed, config: "1", ago: slotTime},
		"one that is available":                            {step: event.Available, config: "1"},
		"one that sleeps":                                  {step: event.Slept, config: "1"},
		"one that is put to sleep":                         {step: event.Exposed, config: "1", replicas: new(int32)},
		"one of three pods that start":                     {step: event.Exposed, config: "1", replicas: new(int32(3)), held: true},
		"one without pods":                                 {step: event.Exposed},
		"one whose Deployment was never changed":           {step: event.Exposed, config: "1", ago: -1},
	} {
		t.Run(what, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := &svc{now: time.Now, slots: newSlots(1, func(events.Key) {})}
				it := &turn{
					Turn: &loop.Turn{Key: events.Tenant("default", "demo")}, s: s, spec: &v1alpha1.TenantControlPlaneSpec{}, step: c.step,
					data: state.Workload{ConfigHash: c.config},
				}
				it.spec.ControlPlane.Deployment.Replicas = c.replicas
				if c.ago >= 0 {
					it.data.LastUpdate = time.Now().Add(-c.ago)
				}
				if !c.held && !s.slots.take(it.Key) { // a slot that it had is given back
					t.Fatal("the only slot isn't free")
				}
				it.holdSlot()
				other := events.Tenant("default", "other")
				if s.slots.take(other) == c.held {
					t.Errorf("it holds the slot: %v", !c.held)
				}
				s.slots.free(it.Key)
				s.slots.free(other)
			})
		})
	}
}

func TestADeploymentIsPutRightWhenItsLabelsAnnotationsOrOwnerAreNot(t *testing.T) {
	of := func(label, annotation, owner string, controller bool) *appsv1.Deployment {
		return &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{
			Labels: map[string]string{"a": label}, Annotations: map[string]string{"a": annotation},
			OwnerReferences: []metav1.OwnerReference{{UID: types.UID(owner), Controller: &controller}},
		}}
	}
	more := of("1", "1", "u", true)
	more.Labels["b"], more.Annotations["b"] = "x", "x"
	for what, c := range map[string]struct {
		live *appsv1.Deployment
		want bool
	}{
		"as it must be":           {of("1", "1", "u", true), true},
		"with what others added":  {more, true},
		"with another label":      {of("2", "1", "u", true), false},
		"with another annotation": {of("1", "2", "u", true), false},
		"with another owner":      {of("1", "1", "v", true), false},
		"with no controller":      {of("1", "1", "u", false), false},
		"with nothing":            {&appsv1.Deployment{}, false},
	} {
		if got := contains(c.live, of("1", "1", "u", true)); got != c.want {
			t.Errorf("%s: it will do: %v", what, got)
		}
	}
}

func TestWhatIsToldOfARollout(t *testing.T) {
	it := &turn{Turn: &loop.Turn{Key: events.Tenant("default", "demo")}, data: state.Workload{Version: "v1.36.3", Replicas: 2}}
	if p, ok := it.payload(event.Upgraded, rollout{From: "v1.35.4"}).(event.WorkloadUpgraded); !ok || p.From != "v1.35.4" || p.To != "v1.36.3" || p.Name != "demo" {
		t.Errorf("upgraded: %+v", p)
	}
	if p, ok := it.payload(event.Available, rollout{}).(event.WorkloadAvailable); !ok || p.Version != "v1.36.3" || p.Replicas != 2 {
		t.Errorf("available: %+v", p)
	}
}

func TestWhenPodsAreAskedWhyTheyArentReady(t *testing.T) {
	for waited, want := range map[time.Duration]time.Duration{
		0: askPodsAfter, 3 * time.Second: askPodsAfter - 3*time.Second, askPodsAfter: askPodsEvery, time.Minute: askPodsEvery,
	} {
		if got := askPodsIn(waited); got != want {
			t.Errorf("those waited for for %s in %s, not %s", waited, got, want)
		}
	}
}

// turn is one of the tenant's turns, of a loop that does nothing, until the test ends.
func (x *tenant) turn() *loop.Turn {
	x.t.Helper()
	turns, done := make(chan *loop.Turn), make(chan error, 1)
	ctx, end := context.WithCancel(context.Background())
	l := &loop.Loop{Bus: x.bus[name.ServiceWorkload], Service: name.ServiceWorkload, Handle: func(_ context.Context, lt *loop.Turn) error {
		if lt.Key == x.key {
			select {
			case turns <- lt:
				<-ctx.Done()
			case <-ctx.Done():
			}
		}
		return nil
	}}
	go func() { done <- l.Run(ctx) }()
	x.t.Cleanup(func() {
		end()
		if err := <-done; err != nil {
			x.t.Error(err)
		}
	})
	x.accept()
	return <-turns
}

// listed waits until the watch has listed a tenant's Deployment.
func (s *svc) listed(t *testing.T, key events.Key) {
	t.Helper()
	poll.Nil(t, "the watch has listed the Deployment", func() error {
		if seen := s.observed.get(key, kindDeployment, ""); seen.version == "" {
			return errors.New("not yet")
		}
		return nil
	})
}

func TestRollOutOnARealAPIServer(t *testing.T) {
	c := sharedCluster(t)
	in := c.subtest

	in("what a rollout waits for is what its pods say, once they have been waited for, and a failure when that lasts", func(t *testing.T) {
		x := c.tenant("default", "waited")
		lt := x.turn()
		now := time.Date(2026, 11, 22, 12, 0, 0, 0, time.UTC)
		starting := rollout{Starting: true, Wait: state.Wait{On: kube.Deployments.Kind, Reason: reason.PodsNotReady}}
		ended, end := context.WithCancel(t.Context())
		end()
		for what, of := range map[string]struct {
			ctx    context.Context
			ends   bool          // pods end, and none start
			waited time.Duration // negative for not before
			since  time.Duration // as noted then, negative for not
			reason string
			failed bool
		}{
			"pods that start":                  {waited: -1, reason: reason.PodsNotReady},
			"pods that have just started":      {waited: askPodsAfter - 1, since: askPodsAfter - 1, reason: reason.PodsNotReady},
			"pods that were waited for":        {waited: askPodsAfter, since: askPodsAfter, reason: reason.NoPods},
			"pods that can't be listed":        {ctx: ended, waited: askPodsAfter, since: askPodsAfter, reason: reason.PodsNotReady},
			"pods that were waited for long":   {waited: failedAfter, since: failedAfter, reason: reason.NoPods, failed: true},
			"pods that end after such a while": {ends: true, waited: failedAfter, since: failedAfter, reason: reason.PodsEnding},
			"pods that have just begun to end": {ends: true, waited: -1, reason: reason.PodsEnding},
		} {
			s := newService(c.own, slog.New(slog.DiscardHandler), 1)
			s.now = func() time.Time { return now }
			it, r, since := &turn{Turn: lt, s: s, spec: &x.Tenant.Spec}, starting, time.Time{}
			if of.waited >= 0 {
				it.data.WaitingSince = now.Add(-of.waited)
			}
			if of.since >= 0 {
				since = now.Add(-of.since)
			}
			if of.ends {
				r = rollout{Ending: true, Wait: podsEnding("x")}
			}
			if of.ctx == nil {
				of.ctx = t.Context()
			}
			wait := it.explainWait(of.ctx, r)
			if wait.Reason != of.reason || (it.failure != nil) != of.failed || !it.data.WaitingSince.Equal(since) {
				t.Errorf("%s: waits since %s for %+v, failure %+v", what, it.data.WaitingSince, wait, it.failure)
			}
		}
	})

	in("a Deployment is applied when it isn't as it must be, with a slot for new pods, and noted as an update when its pods start", func(t *testing.T) {
		x := c.tenant("default", "deployed")
		now := time.Date(2026, 11, 22, 12, 0, 0, 0, time.UTC)
		earlier, other := now.Add(-time.Hour), events.Tenant("default", "other")
		started := func() *svc {
			s := newService(c.own, slog.New(slog.DiscardHandler), 1)
			s.now = func() time.Time { return now }
			return s
		}
		// a turn of a tenant whose pods have the config of want, whose Deployment was updated an hour ago.
		turnOf := func(s *svc, want *appsv1.Deployment, inputs string) *turn {
			data := state.Workload{LastUpdate: earlier, WaitingSince: earlier, Hashes: state.ObjectHashes{Deployment: inputs}}
			data.ConfigHash = want.Spec.Template.Annotations[name.AnnotationConfigHash]
			return &turn{
				Turn: &loop.Turn{Key: x.key, UID: x.UID, Tenant: x.Tenant}, s: s, spec: &x.Tenant.Spec, step: event.Available, before: data, data: data,
			}
		}
		// deploys deploys want, and says whether it was applied, and noted as an update.
		deploys := func(it *turn, want *appsv1.Deployment, generation int64) (live *appsv1.Deployment, applied, updated bool) {
			t.Helper()
			live, wait, err := it.deploy(t.Context(), want, observation{generation: generation})
			if err != nil || wait.Waits() {
				t.Fatalf("waits for %+v: %v", wait, err)
			}
			if there := x.deployment(); live.ResourceVersion != there.ResourceVersion || live.Generation != there.Generation {
				t.Errorf("it returns version %s of generation %d, there is %s of %d", live.ResourceVersion, live.Generation, there.ResourceVersion, there.Generation)
			}
			if it.data.Hashes.Deployment != hash(want) {
				t.Error("what it is made of isn't noted")
			}
			updated = it.data.LastUpdate.Equal(now) && it.data.WaitingSince.IsZero()
			if !updated && (it.data.LastUpdate != earlier || it.data.WaitingSince != earlier) {
				t.Errorf("updated at %s, waiting since %s", it.data.LastUpdate, it.data.WaitingSince)
			}
			return live, it.s.observed.get(x.key, kindDeployment, "").uid != "", updated
		}
		expect := func(what string, is, must bool) {
			t.Helper()
			if is != must {
				t.Errorf("%s: %v", what, is)
			}
		}
		want := Deployment(x.Input)

		s := started()
		s.slots.take(other)
		it := turnOf(s, want, "")
		it.before.ConfigHash = ""
		_, wait, err := it.deploy(t.Context(), want, observation{})
		if err != nil || wait.On != name.ServiceWorkload || wait.Reason != reason.RolloutSlot || it.step != event.Exposed || x.deployment().Name != "" {
			t.Errorf("new pods without a slot: %v, waits for %+v, step %s", err, wait, it.step)
		}
		s.slots.free(other)
		live, _, updated := deploys(it, want, 0)
		expect("new pods are an update", updated, true)
		expect("another tenant gets the slot as well", s.slots.take(other), false)

		s = started()
		s.slots.take(other)
		_, applied, updated := deploys(turnOf(s, want, hash(want)), want, live.Generation)
		expect("what is as it must be is applied", applied, false)
		expect("it is an update", updated, false)
		if _, waiting := s.slots.count(); waiting != 0 {
			t.Error("pods that don't change wait for a slot")
		}
		_, applied, updated = deploys(turnOf(s, want, hash(want)), want, live.Generation-1)
		expect("what somebody changed is applied", applied, true)
		expect("it is an update", updated, false)

		// The config of the pods stays, so it takes no slot.
		labelled := want.DeepCopy()
		labelled.Labels["a"] = "b"
		live, _, updated = deploys(turnOf(s, labelled, hash(want)), labelled, live.Generation)
		expect("what is to be otherwise is an update", updated, true)
		expect("it is as it is to be", live.Labels["a"] == "b", true)
		c.must(c.admin.MergePatch(t.Context(), kube.Deployments, "default", "deployed", map[string]any{"metadata": map[string]any{"labels": map[string]any{"a": nil}}}, nil))
		live, _, updated = deploys(turnOf(s, labelled, hash(labelled)), labelled, live.Generation)
		expect("a label that is put back is an update", updated, false)
		expect("it is put back", live.Labels["a"] == "b", true)

		asleep := want.DeepCopy()
		asleep.Spec.Replicas, asleep.Spec.Template.Annotations[name.AnnotationConfigHash] = new(int32), "another"
		it = turnOf(s, want, hash(want))
		_, _, updated = deploys(it, asleep, live.Generation)
		expect("other pods, of which there are none, are an update", updated, true)

		ended, end := context.WithCancel(t.Context())
		end()
		it = turnOf(s, asleep, hash(asleep))
		if _, _, err := it.deploy(ended, asleep, observation{}); err == nil || it.data.LastUpdate != earlier {
			t.Errorf("one that can't be read: %v, updated at %s", err, it.data.LastUpdate)
		}

		_, err = c.admin.Delete(t.Context(), kube.Deployments, "default", "deployed", metav1.DeleteOptions{})
		c.must(err)
		_, _, updated = deploys(turnOf(s, want, hash(want)), want, 0)
		expect("what was deleted is an update, for which a slot isn't waited", updated, true)

		s = started()
		refused := want.DeepCopy()
		refused.Spec.Template.Annotations[name.AnnotationConfigHash], refused.Spec.Template.Spec.Containers[0].Image = "another", ""
		it = turnOf(s, want, hash(want))
		var no *intent.Permanent
		if _, _, err := it.deploy(t.Context(), refused, observation{}); !errors.As(err, &no) || it.data.Hashes.Deployment != hash(want) {
			t.Errorf("one that is refused: %v", err)
		}
		expect("it gives its slot back", s.slots.take(other), true)
	})

	in("a Deployment that somebody changes or deletes is put right at once, though the only slot is taken", func(t *testing.T) {
		_, stop := c.service(1)
		x := c.tenant("default", "drifts")
		x.available()
		s, w := x.is(event.Available)
		stop()
		begun := w.LastUpdate.Add(-time.Hour)
		w.LastUpdate = begun
		s.Data = event.Marshal(w)
		x.put(name.ServiceWorkload, name.ServiceWorkload, *s)
		c.service(1)
		other := c.tenant("default", "starting")
		other.accept()
		other.waits("its pods to be ready")
		right := x.deployment()
		for what, change := range map[string]map[string]any{
			"its replicas":    {"spec": map[string]any{"replicas": 5}},
			"its labels":      {"metadata": map[string]any{"labels": nil}},
			"its annotations": {"metadata": map[string]any{"annotations": nil}},
		} {
			c.must(c.admin.MergePatch(t.Context(), kube.Deployments, "default", "drifts", change, nil))
			poll.Nil(t, what+" are put right", func() error {
				if d := x.deployment(); desired(d) != 1 || !maps.Equal(d.Labels, right.Labels) || !maps.Equal(d.Annotations, right.Annotations) {
					return fmt.Errorf("%d replicas, %v, %v", desired(d), d.Labels, d.Annotations)
				}
				return nil
			})
			x.rolledOut()
		}
		x.becomes("available, and not as if it had been updated", func(s *state.State, w *state.Workload) bool {
			return s.Step == event.Available && w.LastUpdate.Equal(begun)
		})
		_, err := c.admin.Delete(t.Context(), kube.Deployments, "default", "drifts", metav1.DeleteOptions{})
		c.must(err)
		x.becomes("updated, since its pods start", func(_ *state.State, w *state.Workload) bool { return w.LastUpdate.After(begun) })
		x.rolledOut()
		x.is(event.Available)
	})

	in("pods that start are asked why they aren't ready though nothing happens", func(t *testing.T) {
		_, stop := c.service(1)
		defer stop()
		x := c.tenant("default", "silent")
		x.accept()
		_, w := x.becomes("told that it has no pods", func(s *state.State, _ *state.Workload) bool { return s.Wait.Reason == reason.NoPods })
		pod := &corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{
				Namespace: "default", Name: "silent", Labels: name.Selector("silent"), Annotations: map[string]string{name.AnnotationConfigHash: w.ConfigHash},
			},
			Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "kube-apiserver", Image: "a"}}},
		}
		c.must(c.admin.Apply(t.Context(), kube.Pods, pod))
		x.becomes("told that it has one", func(s *state.State, _ *state.Workload) bool { return s.Wait.Reason == reason.PodPending })
	})

	in("a rollout that goes on keeps its slot over a restart, and its pods are asked in their time", func(t *testing.T) {
		_, stop := c.service(1)
		x := c.tenant("default", "lasting")
		x.accept()
		s, w := x.becomes("waiting for pods", func(s *state.State, _ *state.Workload) bool { return s.Wait.Reason == reason.PodsNotReady })
		stop()
		w.WaitingSince = time.Now().Add(2*time.Second - askPodsAfter)
		s.Data = event.Marshal(w)
		x.put(name.ServiceWorkload, name.ServiceWorkload, *s)
		started, stop := c.service(1)
		defer stop()
		started.listed(t, x.key)
		for range 2 {
			x.again(event.IntakeAccepted{})
			poll.Nil(t, "it holds its slot, and its Deployment is on record", func() error {
				held, _ := started.slots.count()
				if seen := started.observed.get(x.key, kindDeployment, ""); held != 1 || seen.changed() {
					return fmt.Errorf("%d are held, %+v", held, seen)
				}
				return nil
			})
			// The first turn may have come before the list, and read the Deployment; to the next one it is known.
			started.slots.free(x.key)
			started.observed.doubt(x.key)
		}
		x.again(event.IntakeAccepted{})
		x.becomes("told of its pods", func(s *state.State, _ *state.Workload) bool { return s.Wait.Reason == reason.NoPods })
	})

	in("a Deployment that no watch says anything of is looked at once a day", func(t *testing.T) {
		running, stop := c.service(3)
		x := c.tenant("default", "unseen")
		x.available()
		s, w := x.is(event.Available)
		stop()
		d := x.deployment()
		if held, _ := running.slots.count(); held != 0 {
			t.Error("one that is available holds a slot")
		}
		if seen := running.observed.get(x.key, kindDeployment, ""); seen.known != d.ResourceVersion || seen.generation != d.Generation {
			t.Errorf("%+v is noted of version %s, generation %d", seen, d.ResourceVersion, d.Generation)
		}
		c.must(c.admin.MergePatch(t.Context(), kube.Deployments, "default", "unseen", map[string]any{"spec": map[string]any{"replicas": 5}}, nil))
		w.DeploymentVersion = x.deployment().ResourceVersion // as if it had been looked at
		s.Data = event.Marshal(w)
		x.put(name.ServiceWorkload, name.ServiceWorkload, *s)
		running, stop = c.service(3)
		defer stop()
		running.listed(t, x.key)
		x.tell(name.ServiceIntake, event.Checked, event.IntakeChecked{About: x.about()})
		poll.Nil(t, "its replicas are put right", func() error {
			if n := desired(x.deployment()); n != 1 {
				return fmt.Errorf("%d replicas", n)
			}
			return nil
		})
	})
	in("that a rollout is complete is told for each generation, also when the same pods do and the one before the fact failed", func(t *testing.T) {
		_, stop := c.service(3)
		x := c.tenant("default", "same")
		told := func(times uint64) {
			t.Helper()
			poll.Nil(t, fmt.Sprintf("it is told of %d generations", times), func() error { // a fact is published after the state that announces it
				if n := x.told(event.Available); n != times {
					return fmt.Errorf("told %d times", n)
				}
				return nil
			})
		}
		x.available()
		x.accept()
		s, _ := x.is(event.Available)
		told(2)
		stop()
		x.generation++
		s.Failure = &state.Failure{Reason: reason.InvalidState, Message: "of the generation to come, whose step is still that of the one before"}
		x.put(name.ServiceWorkload, name.ServiceWorkload, *s)
		_, stop = c.service(3)
		defer stop()
		x.generation--
		x.accept()
		x.is(event.Available)
		told(3)
		if n := x.dead(); n != 0 {
			t.Errorf("%d dead letters", n)
		}
	})

	in("of a generation that certs isn't done with no more is done than exposed; nor with states that can't be read", func(t *testing.T) {
		_, stop := c.service(3)
		defer stop()
		x := c.tenant("default", "keyless")
		x.available()
		x.generation++
		x.again(event.IntakeAccepted{})
		x.becomes("exposed", func(s *state.State, _ *state.Workload) bool {
			return s.Step == event.Exposed && s.Wait.On == name.ServiceCerts
		})
		x.generation--
		x.accept()
		x.is(event.Available)
		for _, of := range []string{name.ServiceCerts, name.ServiceDatastore} {
			x.put(of, of, state.State{Data: json.RawMessage(`"x"`)})
			x.again(event.IntakeAccepted{})
			x.becomes("failed", func(s *state.State, _ *state.Workload) bool {
				return s.Failure != nil && strings.Contains(s.Failure.Message, "state "+of+" of")
			})
			x.accept()
			x.is(event.Available)
		}
	})

	in("a Deployment that this version makes otherwise is applied for a generation that was done", func(t *testing.T) {
		_, stop := c.service(3)
		x := c.tenant("default", "upgraded")
		x.available()
		s, w := x.is(event.Available)
		stop()
		right := w.Hashes.Deployment
		w.Hashes.Deployment = "of what another version made"
		s.Data, s.Facts = event.Marshal(w), nil
		x.put(name.ServiceWorkload, name.ServiceWorkload, *s)
		_, stop = c.service(3)
		defer stop()
		x.again(event.IntakeAccepted{})
		s, _ = x.becomes("applied", func(_ *state.State, w *state.Workload) bool { return w.Hashes.Deployment == right })
		if len(s.Facts) > 0 {
			t.Errorf("it tells of the same pods again: %+v", s.Facts)
		}
	})
}
