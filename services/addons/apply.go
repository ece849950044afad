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
	// before is what was applied last.
	before state.Addons
	// repair is true when before was made from the same inputs: only what drifted is applied.
	repair bool
	// drift has the version that was seen last of each object that drifted, by Ref.String(); "" when it was gone.
	drift map[string]string
}

// apply applies everything, or, when only something drifted, that.
func (s *addons) apply(ctx context.Context, t *loop.Turn, w *connection, a application) error {
	objects, err := Render(a.input)
	if err != nil {
		return unrendered(err)
	}
	wanted := objects
	if a.repair {
		wanted = slices.DeleteFunc(slices.Clone(objects), func(o *unstructured.Unstructured) bool {
			_, drifted := a.drift[RefOf(o).String()]
			return !drifted
		})
	}
	api := w.api()
	if err := api.Probe(ctx); err != nil {
		return s.refused(t.Key, err)
	}
	versions, err := api.Apply(ctx, wanted)
	w.learn(versions)
	if err != nil {
		return s.refused(t.Key, err)
	}
	w.repaired(a.drift)
	if off := Removed(a.input); len(off) > 0 && a.switched(t.Own() == nil) {
		if _, err := api.Delete(ctx, off); err != nil {
			return s.refused(t.Key, err)
		}
	}
	after := state.Addons{
		Objects: len(objects), CoreDNS: a.input.CoreDNS != nil, KubeProxy: a.input.KubeProxy != nil, Konnectivity: a.input.Konnectivity.kind(),
		LastUpdate: time.Now().UTC().Truncate(time.Second), Versions: versions,
	}
	if after.Hash, err = Hash(objects); err != nil {
		return err
	}
	if after.Konnectivity == a.before.Konnectivity {
		after.Agents = a.before.Agents
	}
	facts := []loop.Tell{{What: event.Applied, Data: event.AddonsApplied{About: t.About(), Objects: len(objects)}}}
	changed := after.Hash != a.before.Hash
	if a.repair {
		after.Versions = maps.Clone(a.before.Versions)
		maps.Copy(after.Versions, versions)
		repaired := a.repaired(versions)
		facts, changed = []loop.Tell{{What: event.Repaired, Data: event.AddonsRepaired{About: t.About(), Objects: repaired}}}, len(repaired) > 0
		often := !t.Due() && t.Drifted(slices.Collect(maps.Keys(a.drift))...)
		if !changed || often {
			facts = nil
		}
	}
	if !changed {
		after.LastUpdate = a.before.LastUpdate
	}
	if err := t.Done(ctx, loop.Outcome{Step: event.Applied, Inputs: a.inputs, Data: after, Facts: facts}); err != nil {
		return err
	}
	s.follow(t.Key, w, after.Versions) //nolint:contextcheck // the watch outlives the turn
	return nil
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

// switched reports whether an addon may have been switched on or off since the last time.
func (a application) switched(first bool) bool {
	return !a.repair && (first || a.before.CoreDNS != (a.input.CoreDNS != nil) || a.before.KubeProxy != (a.input.KubeProxy != nil) ||
		a.before.Konnectivity != a.input.Konnectivity.kind())
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
func (s *addons) refused(key events.Key, err error) error {
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
