// The last step of a turn: the Deployment, and how far its rollout is.

package workload

import (
	"context"
	"errors"
	"slices"
	"time"

	"golang.org/x/sync/errgroup"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/stoker-k8s/stoker/pkg/api/event"
	"github.com/stoker-k8s/stoker/pkg/api/name"
	"github.com/stoker-k8s/stoker/pkg/api/reason"
	"github.com/stoker-k8s/stoker/pkg/api/state"
	"github.com/stoker-k8s/stoker/pkg/kube"
	"github.com/stoker-k8s/stoker/pkg/loop"
)

// rollOut makes the Deployment so and says how far it is. It returns what is missing. Of an upgrade in steps it goes on with the next
// step once all pods run one.
func (t *turn) rollOut(ctx context.Context) (state.Wait, error) {
	t.chooseVersion()
	if err := t.undoLate(ctx); err != nil {
		return state.Wait{}, err
	}
	wait, stepped, err := t.rollOutVersion(ctx)
	for err == nil && stepped {
		if err = t.noteStep(ctx); err == nil {
			wait, stepped, err = t.rollOutVersion(ctx)
		}
	}
	return wait, errors.Join(err, t.setUpgradeTimer(ctx))
}

// rollOutVersion is rollOut for the version that was chosen. stepped is true when it runs in all pods and another is to follow.
func (t *turn) rollOutVersion(ctx context.Context) (wait state.Wait, stepped bool, err error) {
	in := Input{Subject: t.subject, Advertise: t.data.AdvertiseAddress, KineImage: t.s.kineImage, GateImage: t.s.gateImage}
	if wait, err = t.read(ctx, &in); err != nil || wait.Waits() {
		t.step = event.Exposed // of this generation no more is done
		return wait, false, err
	}
	if err := t.describeForKubeadm(ctx, in); err != nil {
		return state.Wait{}, false, err
	}
	if err := t.configureEgress(ctx); err != nil {
		return state.Wait{}, false, err
	}
	want := Deployment(in)
	seen := t.s.observed.get(t.Key, kindDeployment, t.before.DeploymentVersion)
	if t.knowsRollout(in, want, seen) {
		t.s.observed.setKnown(t.Key, kindDeployment, seen.known, seen.generation)
		t.holdSlot()
		if !t.data.WaitingSince.IsZero() {
			t.askPodsLater(t.spec.Sleeps())
		}
		return t.Own().Wait, false, t.retire(ctx, &in.Certs)
	}
	live, wait, err := t.deploy(ctx, want, seen)
	if err != nil || wait.Waits() {
		return wait, false, err
	}
	t.beginUpgrade()
	t.s.observed.setKnown(t.Key, kindDeployment, live.ResourceVersion, live.Generation)

	r := assess(t.spec, t.data, t.step, t.current(), live)
	held := t.haveStopped(ctx, &r)
	stepped = afterStep(&r)
	t.step, t.data = r.Step, r.Data
	t.data.Konnectivity = hasServer(&want.Spec.Template.Spec) || t.before.Konnectivity && r.Step != event.Available && r.Step != event.Slept
	t.data.Overrides = overridesInUse(r.Step, t.before.Overrides, &in.Datastore)
	if r.Step == event.Available || r.Step == event.Slept {
		t.data.Serving = in.Certs.Secrets[name.ComponentAPIServerCertificate].Checksum
	}
	t.data.Credentials = inUse(r.Step, t.before.Credentials, []string{in.Datastore.Certificate.Checksum})
	for _, what := range r.Facts {
		t.facts = append(t.facts, loop.Tell{What: what, Data: t.payload(what, r)})
	}
	t.holdSlot()
	wait = t.explainWait(ctx, r)
	if held {
		t.Alarm(lookForPodsAfter, loop.Wake{Kind: wakePods})
	}
	t.haveEncryption(ctx, in)
	t.haveAddresses(ctx)
	t.haveGates(ctx, in)
	return wait, stepped, t.retire(ctx, &in.Certs)
}

// stoppedAt is when the tenant was to have no pods for its data to be replaced; zero of one that isn't.
func (t *turn) stoppedAt() time.Time {
	if t.Tenant.InPlace.Stage != state.InPlaceStopped {
		return time.Time{}
	}
	return t.Tenant.InPlace.StoppedAt
}

// haveStopped notes that a tenant whose data are to be replaced has no pods, once none is left that may write: Deployments of older clusters
// don't tell of those that end. It reports whether it waits for that.
func (t *turn) haveStopped(ctx context.Context, r *rollout) bool {
	at := t.stoppedAt()
	switch {
	case at.IsZero():
		r.Data.StoppedAt = at
		return false
	case r.Step != event.Slept || r.Data.StoppedAt.Equal(at):
		return false
	}
	pods, listed := t.pods(ctx)
	if !listed || slices.ContainsFunc(pods, func(p corev1.Pod) bool {
		return p.Status.Phase != corev1.PodFailed && p.Status.Phase != corev1.PodSucceeded
	}) {
		r.Step, r.Facts, r.Ending, r.Wait = event.Exposed, nil, true, podsEnding(r.Object)
		return true
	}
	r.Data.StoppedAt = at
	if len(r.Facts) == 0 {
		r.Facts = []string{event.Slept} // whoever waits for it may have heard before that it slept
	}
	return false
}

// retire removes what the tenant needs no more: the ConfigMap of a tunnel that is off, and ways that lead to a former endpoint.
func (t *turn) retire(ctx context.Context, certs *state.Certs) error {
	return errors.Join(t.removeEgress(ctx), t.unroute(ctx, certs))
}

// read collects what the other services have made, or says what is missing.
func (t *turn) read(ctx context.Context, in *Input) (state.Wait, error) {
	var certs, datastore *state.State
	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() (err error) {
		certs, err = t.Read(ctx, name.ServiceCerts, &in.Certs)
		return err
	})
	g.Go(func() (err error) {
		read := t.Read
		if t.before.Replicas == 0 && !t.spec.Sleeps() {
			read = t.ReadLatest // its data may be replaced while it has no pods
		}
		datastore, err = read(ctx, name.ServiceDatastore, &in.Datastore)
		return err
	})
	if err := g.Wait(); err != nil {
		return state.Wait{}, err
	}
	return missing(t.Generation, t.spec, certs, &in.Certs, datastore, &in.Datastore), nil
}

// current reports whether the own state is of this generation. A failure is noted for a generation under the step of an
// earlier one, so a state that has one doesn't count; but that an upgrade was undone is noted with all that was done of the generation.
func (t *turn) current() bool {
	own := t.Own()
	return own != nil && own.Generation == t.Generation && (!own.Failed() || own.Failure.Reason == reason.UpgradeUndone)
}

// knowsRollout reports whether the own state says already how far the rollout is, so that the Deployment needn't be read:
// nothing has changed since, and either nothing is waited for, or the Deployment, whose changes the watch reports. States
// written before 2026-12 don't say what they wait for; for them the Deployment is read.
func (t *turn) knowsRollout(in Input, want *appsv1.Deployment, seen observation) bool {
	if e := in.Certs.Encryption; e != nil && e.Revision != t.data.Encryption {
		return false
	}
	if t.data.Gate != in.gateID() || !t.data.StoppedAt.Equal(t.stoppedAt()) || t.data.Hashes.Deployment != hash(want) || seen.changed() ||
		!t.current() || t.Woken(wakePods) || t.Due() {
		return false
	}
	wait := t.Own().Wait
	return !wait.Waits() || wait.On == kube.Deployments.Kind
}

// deploy applies the Deployment unless the one that is there will do, and returns it as it then is; or what it waits for.
func (t *turn) deploy(ctx context.Context, want *appsv1.Deployment, seen observation) (*appsv1.Deployment, state.Wait, error) {
	inputs := hash(want)
	changed, gone := t.data.Hashes.Deployment != inputs, false
	if !changed && !t.before.Adopted {
		live := &appsv1.Deployment{}
		err := t.s.kube.Get(ctx, kube.Deployments, t.Key.Namespace, name.Deployment(t.Key.Name), live)
		if err != nil && !apierrors.IsNotFound(err) {
			return nil, state.Wait{}, err
		}
		gone = err != nil
		// The generation changes with the spec alone, and not with what the Deployment's own controller writes.
		if live.Generation == seen.generation && contains(live, want) {
			return live, state.Wait{}, nil
		}
	}
	if t.mayBeKamajis() {
		live, err := t.keep(ctx, want)
		if err != nil {
			return nil, state.Wait{}, err
		}
		if live != nil {
			t.data.Hashes.Deployment = inputs
			return live, state.Wait{}, nil
		}
	}
	// A slot is for new pods alone: what somebody deleted, or an upgrade took away, comes back at once, whoever else is rolling out.
	config := want.Spec.Template.Annotations[name.AnnotationConfigHash]
	undone := t.data.Upgrade.Undone(t.Generation)
	if config != t.before.ConfigHash && desired(want) > 0 && !undone && !t.s.slots.take(t.Key) {
		t.step = event.Exposed
		return nil, state.Wait{On: name.ServiceWorkload, Reason: reason.RolloutSlot, Text: "a rollout slot"}, nil
	}
	if gone || changed {
		t.data.LastUpdate = t.s.now().UTC().Truncate(time.Second)
		t.data.WaitingSince = time.Time{} // for other pods
		if u := t.data.Upgrade; u != nil && u.UndoneAt.IsZero() {
			t.data.Upgrade = begunAt(u, time.Time{})
		}
	}
	live := want.DeepCopy()
	if err := t.apply(ctx, kube.Deployments, kindDeployment, live); err != nil {
		t.s.slots.free(t.Key)
		return nil, state.Wait{}, refused(err, t.spec, want, kube.Deployments.Kind)
	}
	t.data.Hashes.Deployment = inputs
	return live, state.Wait{}, nil
}

// contains reports whether an object still has the labels, annotations and owner that it must have; one that isn't there has none.
func contains(live, want metav1.Object) bool {
	for key, value := range want.GetLabels() {
		if live.GetLabels()[key] != value {
			return false
		}
	}
	for key, value := range want.GetAnnotations() {
		if live.GetAnnotations()[key] != value {
			return false
		}
	}
	owner := metav1.GetControllerOf(live)
	return owner != nil && owner.UID == metav1.GetControllerOf(want).UID
}

// payload of a fact about the rollout.
func (t *turn) payload(what string, r rollout) any {
	if what == event.Upgraded {
		return event.WorkloadUpgraded{About: t.About(), From: r.From, To: t.data.Version}
	}
	return event.WorkloadAvailable{
		About: t.About(), Version: t.data.Version, Replicas: t.data.Replicas, ReadyReplicas: t.data.ReadyReplicas,
		ConfigHash: t.data.ConfigHash,
	}
}

// holdSlot holds the tenant's slot while its pods start, for as long as slotTime, and else gives it back.
func (t *turn) holdSlot() {
	starting := t.step != event.Available && t.step != event.Slept && t.data.ConfigHash != "" && !t.spec.Sleeps()
	now := t.s.now()
	if left := slotTime - now.Sub(begun(t.data.LastUpdate, now)); starting && !t.data.LastUpdate.IsZero() && left > 0 {
		t.s.slots.keep(t.Key, left)
		return
	}
	t.s.slots.free(t.Key)
}

// begun is when something began: as it was noted, unless it wasn't, or by a clock that was ahead of this one.
func begun(noted, now time.Time) time.Time {
	if noted.IsZero() || noted.After(now) {
		return now.Truncate(time.Second)
	}
	return noted
}

// explainWait says what the rollout waits for, and once it has waited for a while asks the pods why. Where they can't be
// listed, the rollout goes on without.
func (t *turn) explainWait(ctx context.Context, r rollout) state.Wait {
	if !r.Starting && !r.Ending {
		t.data.WaitingSince = time.Time{}
		t.NoAlarm()
		return r.Wait
	}
	now := t.s.now().UTC()
	t.data.WaitingSince = begun(t.data.WaitingSince, now)
	waited := now.Sub(t.data.WaitingSince)
	t.askPodsLater(r.Ending)
	var why cause
	if waited >= askPodsAfter && !r.Ending || waited >= endAfter {
		if pods, listed := t.pods(ctx); listed {
			why = waitsFor(r, pods, t.podsConfig(), now)
			why.Text = namingFields(t.spec.Kubernetes.APIServer, why.Text)
		}
	}
	wait, failure := explain(r, why, waited)
	t.failure = failure
	return wait
}

// podsConfig is the config hash on pods of the Deployment's template: Kamaji's have none.
func (t *turn) podsConfig() string {
	if t.data.Adopted {
		return ""
	}
	return t.data.ConfigHash
}

// haveAddresses notes where the API servers are, for who asks each of them whether the tenant is used.
func (t *turn) haveAddresses(ctx context.Context) {
	if name.IdleTime(t.Tenant.Annotations) == 0 || t.step != event.Available {
		t.data.Pods = nil
		return
	}
	if pods, listed := t.pods(ctx); listed {
		t.data.Pods = readyAt(pods, t.spec.NetworkProfile.Port)
		slices.Sort(t.data.Pods)
	}
}

// pods lists the tenant's pods; false where they can't be listed.
func (t *turn) pods(ctx context.Context) ([]corev1.Pod, bool) {
	var list corev1.PodList
	err := t.s.kube.List(ctx, kube.Pods, t.Key.Namespace, labels.FormatLabels(name.Selector(t.Key.Name)), &list)
	if err != nil && !kube.IsAway(err) && ctx.Err() == nil {
		t.s.log.Warn("could not list pods to see what they wait for", "tenant", t.Key.String(), "generation", t.Generation, "error", err)
	}
	return list.Items, err == nil
}

// askPodsLater wakes the tenant when its pods are to be asked next: no watch tells why they aren't ready, or haven't ended.
func (t *turn) askPodsLater(ending bool) {
	waited := t.s.now().Sub(t.data.WaitingSince)
	in := askPodsIn(waited)
	if ending {
		in = askEndingIn(waited)
	}
	t.Alarm(in, loop.Wake{Kind: wakePods})
}

// askPodsIn is how long after now pods are asked that have been waited for so long.
func askPodsIn(waited time.Duration) time.Duration {
	if waited < askPodsAfter {
		return askPodsAfter - waited
	}
	return askPodsEvery
}
