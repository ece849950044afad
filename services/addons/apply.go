package addons

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/stoker-k8s/stoker/pkg/api/event"
	"github.com/stoker-k8s/stoker/pkg/api/reason"
	"github.com/stoker-k8s/stoker/pkg/api/state"
	"github.com/stoker-k8s/stoker/pkg/events"
	"github.com/stoker-k8s/stoker/pkg/fence"
	"github.com/stoker-k8s/stoker/pkg/intent"
	"github.com/stoker-k8s/stoker/pkg/loop"
)

// application is what a turn applies inside a tenant.
type application struct {
	input  Input
	inputs string // hash of input and of the access to the tenant
	// adopted is true when what is inside the tenant may be Kamaji's.
	adopted bool
	// before is what was applied last.
	before state.Addons
	// repair is true when before was made from the same inputs: only what drifted is applied.
	repair bool
	// drift has the version that was seen last of each object that drifted, by Ref.String(); "" when it was gone.
	drift map[string]string
	// looked has what came of looking at the tenant's endpoint, once; nil when it isn't looked at.
	looked <-chan error
}

// apply applies everything, or, when only something drifted, that.
func (s *svc) apply(ctx context.Context, t *loop.Turn, w *connection, a application) error {
	objects, err := Render(a.input)
	if err != nil {
		return unrendered(err)
	}
	versions, err := s.write(ctx, t.Key, w, a, objects)
	if err != nil {
		return err
	}
	after := state.Addons{
		Objects: len(objects), CoreDNS: a.input.CoreDNS != nil, KubeProxy: a.input.KubeProxy != nil, Konnectivity: a.input.Konnectivity.kind(),
		WritePermissions: a.input.WritePermissions, Rewritten: a.before.Rewritten, Use: a.before.Use,
		LastUpdate: time.Now().UTC().Truncate(time.Second), Versions: versions,
	}
	if after.Hash, err = Hash(objects); err != nil {
		return err
	}
	if after.Konnectivity == a.before.Konnectivity {
		after.Agents = a.before.Agents
	}
	after.Endpoint, after.Way = a.reach(ctx, t, lookGrace), w.way(a.before)
	facts := a.facts(t, &after)
	if err := t.Done(ctx, loop.Outcome{Step: event.Applied, Inputs: a.inputs, Data: after, Facts: facts}); err != nil {
		return err
	}
	s.follow(t.Key, w, after.Versions) //nolint:contextcheck // the watch outlives the turn
	return nil
}

// facts are what a turn tells after it has applied what is in after; a repair leaves the rest of after as it was.
func (a application) facts(t *loop.Turn, after *state.Addons) []loop.Tell {
	facts := []loop.Tell{{What: event.Applied, Data: event.AddonsApplied{About: t.About(), Objects: after.Objects}}}
	changed := after.Hash != a.before.Hash
	if a.repair {
		repaired := a.repaired(after.Versions)
		versions := maps.Clone(a.before.Versions)
		maps.Copy(versions, after.Versions)
		after.Versions, changed = versions, len(repaired) > 0
		often := !t.Due() && t.Drifted(slices.Collect(maps.Keys(a.drift))...)
		switch {
		case changed && !often:
			facts = []loop.Tell{{What: event.Repaired, Data: event.AddonsRepaired{About: t.About(), Objects: repaired}}}
		case !a.otherwise(*after):
			facts = nil
		}
	}
	if !changed {
		after.LastUpdate = a.before.LastUpdate
	}
	return facts
}

// otherwise reports whether the tenant, or its endpoint, is reached otherwise than before.
func (a application) otherwise(after state.Addons) bool {
	return after.Endpoint != a.before.Endpoint || after.Way != a.before.Way
}

// reach is what is known of the tenant's endpoint at the end of a turn, which waits for it. One that is still being looked at then, or
// doesn't answer, gets another turn.
func (a application) reach(ctx context.Context, t *loop.Turn, patience time.Duration) state.Reach {
	r := a.before.Endpoint
	if a.looked != nil {
		select {
		case err := <-a.looked:
			if err != nil && ctx.Err() != nil { // the turn's end, not the endpoint's fault
				return r
			}
			r = reachAfter(r, a.input.Endpoint, err, time.Now())
		case <-time.After(patience):
			t.Alarm(0, loop.Wake{Kind: unreached})
			return r
		}
	}
	if r.Since.IsZero() {
		t.NoAlarm()
	} else {
		t.Alarm(lookAgainAfter(r.Since, time.Now()), loop.Wake{Kind: unreached})
	}
	return r
}

// write applies the objects, or those that drifted, and returns their versions. Unless it repairs, it removes what must not be there.
func (s *svc) write(
	ctx context.Context, key events.Key, w *connection, a application, objects []*unstructured.Unstructured,
) (map[string]string, error) {
	wanted := objects
	if a.repair {
		wanted = slices.DeleteFunc(slices.Clone(objects), func(o *unstructured.Unstructured) bool {
			_, drifted := a.drift[RefOf(o).String()]
			return !drifted
		})
	}
	api := w.api()
	if err := api.Probe(ctx); err != nil {
		return nil, s.refused(key, err)
	}
	var kept error // an object that can't be taken over holds up no other, either
	if a.adopted {
		kept = api.takeOver(ctx, wanted)
	}
	versions, err := api.Apply(ctx, wanted)
	w.learn(versions)
	if err = errors.Join(kept, err); err != nil {
		err = s.refused(key, err)
	}
	// What can't be applied, as with a broken webhook, holds up nothing that goes: limits of writes, for one.
	if !a.repair && intent.Of(err) <= intent.Retry {
		if _, left := api.Delete(ctx, Removed(a.input)); left != nil {
			err = errors.Join(err, s.refused(key, left))
		}
	}
	if err != nil {
		return nil, err
	}
	w.repaired(a.drift)
	return versions, nil
}

// unrendered is the intent of an error of Render: what the spec says must be put right.
func unrendered(err error) error {
	var in *InputError
	var patch *PatchError
	switch {
	case errors.As(err, &patch):
		return &intent.Permanent{Reason: reason.InvalidKubeletPatch, Message: patch.Error()}
	case errors.As(err, &in):
		return &intent.Permanent{Reason: reason.InvalidAddons, Message: "the tenant's objects can't be rendered: " + err.Error(), Err: err}
	}
	return err
}

// repaired returns the objects that were changed by applying them. An object that already was in the version it has now is as we
// want it, as when the bootstrap signer adds its signatures.
func (a application) repaired(versions map[string]string) []string {
	var repaired []string
	for ref, version := range versions {
		if a.drift[ref] != version {
			repaired = append(repaired, ref)
		}
	}
	slices.Sort(repaired)
	return repaired
}

// refused is tenantAway, and has the next turn connect anew, by the kubeconfig as it is by then, when the tenant's API doesn't know us
// or we don't know it.
func (s *svc) refused(key events.Key, err error) error {
	if untrusted := (*tls.CertificateVerificationError)(nil); apierrors.IsUnauthorized(err) || errors.As(err, &untrusted) {
		s.drop(key)
	}
	return tenantAway(key, err)
}

// tenantAway gives errors of a tenant's API their intent: one that doesn't answer, or doesn't know us, is waited for, and is no reason
// for this service not to be ready.
func tenantAway(key events.Key, err error) error {
	var answered apierrors.APIStatus
	var object *ObjectError
	if errors.As(err, &object) && object.Webhook != "" || errors.Is(err, fence.ErrFenced) {
		return err
	}
	if errors.As(err, &answered) && answered.Status().Code < 500 && !apierrors.IsUnauthorized(err) {
		return err
	}
	return &intent.Unavailable{Err: fmt.Errorf("API of tenant %s: %w", key, err)}
}
