// A tenant's turn: every Secret is issued that can be, in two stages. What needs no endpoint is issued once the tenant is accepted;
// the rest, once workload knows the endpoint. What the tenant needs no more goes once no pod has it. Then certs.issued is published
// for the generation, or certs.rotated when content changed of one for which everything had been issued before.

package certs

import (
	"context"
	"fmt"
	"maps"
	"strconv"
	"time"

	"github.com/stoker-k8s/stoker/pkg/api/event"
	"github.com/stoker-k8s/stoker/pkg/api/name"
	"github.com/stoker-k8s/stoker/pkg/api/reason"
	"github.com/stoker-k8s/stoker/pkg/api/state"
	"github.com/stoker-k8s/stoker/pkg/kube"
	"github.com/stoker-k8s/stoker/pkg/loop"
	"github.com/stoker-k8s/stoker/services/certs/internal/generator"
	"github.com/stoker-k8s/stoker/services/certs/internal/pki"
)

// issue makes a tenant's Secrets so, unless its state says that they are.
func (s *svc) issue(ctx context.Context, t *loop.Turn) error {
	var own state.Certs
	if err := t.OwnData(&own); err != nil {
		return fmt.Errorf("own state: %w", err)
	}
	own.IssuedFor = state.IssuedFor(t.Own(), &own)
	s.expiries.note(t.Key, &own)
	drift, referenced := drifted(t.Wakes, &own), referencedChanged(t, &own)
	cluster := s.clusterDue(t, &own)
	if len(t.Events) == 0 && !drift && !referenced && !cluster && !t.Woken(generator.WakeKubeconfig) && t.Attempt() == 0 {
		return nil // echoes of what we wrote
	}
	wanted, err := s.generators.Requests(ctx, t)
	if err != nil {
		return err
	}

	var w state.Workload
	if _, err := t.Read(ctx, name.ServiceWorkload, &w); err != nil {
		return err
	}
	in := pki.NewInput(t.UID, t.Tenant, &w)
	in.Former = formerEndpoint(t.Tenant, &own, &w)
	retired := retiredOf(in, &own)
	check := drift || referenced || cluster || t.Due() || !wanted.Met(own.Generated, in.Exposed != nil) || len(retired) > 0 && !w.Konnectivity ||
		in.Former != "" && served(&own, &w)
	if in.Exposed == nil && t.Own() != nil && t.Own().Step == event.Issued && !check {
		return t.Wait(ctx, waitFor(in)) // the endpoint went and will come back; what needs it stays as it is
	}
	if upToDate(t.Own(), inputsOf(t, in), waitFor(in)) && !check {
		return nil
	}

	look := pki.Look{Untouched: !check && onlyExposed(t, in), Generators: generatorsIn(t.Wakes)}
	r, err := s.ensure(ctx, &in, &own, &w, look)
	if err != nil {
		return err
	}
	if err := s.generators.Ensure(ctx, t, in, wanted, own.Generated, r); err != nil {
		return err
	}
	if err := s.retire(ctx, t, retired, w.Konnectivity, r); err != nil {
		return err
	}
	if r.Data.Referenced, err = s.referenced(ctx, t, &own); err != nil {
		return err
	}
	if err := s.register(ctx, t, in, &own, r); err != nil {
		return err
	}
	failure, err := s.encrypt(ctx, t, in, &own, &w, r)
	if err != nil {
		return err
	}
	if (drift || t.Woken(wakeCluster)) && len(t.Events) == 0 {
		t.Drifted(secretsIn(t.Wakes)...)
	}
	return s.done(ctx, t, in, &own, r, failure)
}

// formerEndpoint is the endpoint that kubeconfigs lead to although the tenant has another, empty for none: where no pod has ever served, or
// none is to, nobody is answered at either.
func formerEndpoint(t *state.Tenant, own *state.Certs, w *state.Workload) string {
	if w.Endpoint == "" || w.Endpoint == own.Endpoint || w.Serving == "" || t.Sleeps() {
		return ""
	}
	return own.Endpoint
}

// served reports whether every pod has the API server's certificate that certs has.
func served(c *state.Certs, w *state.Workload) bool {
	return w.Serving == c.Secrets[name.ComponentAPIServerCertificate].Checksum
}

// ensure makes the Secrets so. As long as pods have a certificate without the name of a new endpoint, kubeconfigs lead to the former one,
// and the new certificate has both names: so whoever reads a kubeconfig is answered by old pods and by new ones. in says what was made.
func (s *svc) ensure(ctx context.Context, in *pki.Input, own *state.Certs, w *state.Workload, look pki.Look) (*pki.Result, error) {
	r, err := s.secrets.Ensure(ctx, *in, own, look, s.now())
	if err != nil || in.Former == "" || !served(&r.Data, w) {
		return r, err
	}
	in.Former = ""
	moved, err := s.secrets.Ensure(ctx, *in, own, pki.Look{Generators: look.Generators}, s.now())
	if err != nil {
		return nil, err
	}
	maps.Copy(moved.Reasons, r.Reasons)
	moved.NewCA = moved.NewCA || r.NewCA
	return moved, nil
}

// retiredOf are the Secrets that the state has and the tenant needs no more, by component.
func retiredOf(in pki.Input, own *state.Certs) map[string]state.Secret {
	retired := map[string]state.Secret{}
	for _, component := range pki.Konnectivity() {
		if secret, there := own.Secrets[component]; there && !in.Konnectivity {
			retired[component] = secret
		}
	}
	return retired
}

// retire deletes Secrets that the tenant needs no more, once no pod has them; until then the state keeps them.
func (s *svc) retire(ctx context.Context, t *loop.Turn, retired map[string]state.Secret, inUse bool, r *pki.Result) error {
	if inUse {
		maps.Copy(r.Data.Secrets, retired)
		return nil
	}
	for _, secret := range retired {
		if err := s.secrets.Remove(ctx, kube.Owner{Name: t.Key.Name, UID: t.UID}, t.Key.Namespace, secret.Name); err != nil {
			return err
		}
	}
	return nil
}

// onlyExposed reports whether nothing is new since the last turn but that the endpoint is known.
func onlyExposed(t *loop.Turn, in pki.Input) bool {
	own := t.Own()
	if own == nil || in.Exposed == nil || own.Failed() || t.Attempt() > 0 || own.Step == event.Issued {
		return false
	}
	in.Exposed = nil
	return own.Inputs == inputsOf(t, in)
}

// inputsOf is the hash of what a turn works from.
func inputsOf(t *loop.Turn, in pki.Input) string {
	return in.Hash() + "-" + strconv.FormatInt(t.Generation, 10)
}

// generatorsIn are the generators of kubeconfigs that watches saw.
func generatorsIn(wakes []loop.Wake) (generators []string) {
	for _, w := range wakes {
		if w.Kind == generator.WakeKubeconfig {
			generators = append(generators, w.Object)
		}
	}
	return generators
}

// secretsIn are the Secrets that watches saw, for people.
func secretsIn(wakes []loop.Wake) (secrets []string) {
	for _, w := range wakes {
		if w.Kind == wakeReferenced || w.Kind == wakeClusterRetry {
			continue // somebody else's, or nothing was seen
		}
		secrets = append(secrets, "Secret of "+w.Object)
	}
	return secrets
}

// upToDate reports whether a state says that all was done for these inputs, with nothing to wait for but this. What a state of the
// version before waits for isn't known, as it has no reason.
func upToDate(o *state.State, inputs string, wait state.Wait) bool {
	return o != nil && o.Inputs == inputs && !o.Failed() && o.Wait.Waits() == wait.Waits() && o.Wait.Reason == wait.Reason
}

// waitFor is what a tenant waits for, the zero Wait once kubeconfigs lead to its endpoint.
func waitFor(in pki.Input) state.Wait {
	switch {
	case in.Exposed == nil:
		return state.Wait{On: name.ServiceWorkload, Reason: reason.EndpointUnknown, Text: "the endpoint"}
	case in.Former != "":
		return state.Wait{
			On: name.ServiceWorkload, Reason: reason.EndpointMoving,
			Text: "all pods to have a certificate for " + in.Exposed.Endpoint + "; until then kubeconfigs lead to " + in.Former,
		}
	}
	return state.Wait{}
}

// done writes what has come of a turn, and tells it when everything exists. own is the state before; failure is what went wrong with the
// encryption alone, nil for nothing.
func (s *svc) done(ctx context.Context, t *loop.Turn, in pki.Input, own *state.Certs, r *pki.Result, failure *state.Failure) error {
	step, inputs := "", inputsOf(t, in)
	switch {
	case in.Exposed != nil:
		step, r.Data.IssuedFor, r.Data.Endpoint = event.Issued, t.Generation, in.Published()
	case t.Own() != nil && t.Own().Step == event.Issued:
		// What needs the endpoint is there from before; it can't be checked now, so it isn't forgotten, and inputs and generation
		// stay those it was issued for.
		step, inputs, r.Data.IssuedFor, r.Data.Endpoint = event.Issued, t.Own().Inputs, own.IssuedFor, own.Endpoint
		for component, secret := range own.Secrets {
			if _, ok := r.Data.Secrets[component]; !ok {
				r.Data.Secrets[component] = secret
			}
		}
	}
	s.logChanges(t, step, r)
	if err := s.setTimer(ctx, t, own, &r.Data); err != nil { // before the state: a crash in between repeats the turn
		return err
	}
	o := loop.Outcome{Step: step, Inputs: inputs, Wait: waitFor(in), Data: r.Data, Failure: failure}
	if !o.Wait.Waits() && failure == nil {
		o.Wait = waitForEncryption(r.Data.Encryption)
	}
	if step == event.Issued {
		if what := announce(own, &r.Data); what != "" {
			o.Facts = []loop.Tell{{What: what, Data: fact(t.About(), r)}}
		}
	}
	if f := registered(t.About(), own.ArgoCD, r.Data.ArgoCD); f != nil {
		o.Facts = append(o.Facts, loop.Tell{What: event.Registered, Data: f})
	}
	if err := t.Done(ctx, o); err != nil {
		return err
	}
	s.expiries.note(t.Key, &r.Data)
	return nil
}

// logChanges logs what was made anew or put right.
func (s *svc) logChanges(t *loop.Turn, step string, r *pki.Result) {
	if r.NewCA {
		s.log.Warn("tenant has a new certificate authority: its nodes have to join again, kubeconfigs handed out are void",
			"tenant", t.Key.String(), "generation", t.Generation, "step", step, "reason", r.Reasons[name.ComponentCA])
	}
	for component, reason := range r.Reasons {
		s.log.Debug("secret written", "tenant", t.Key.String(), "generation", t.Generation, "step", step,
			"component", component, "reason", reason)
	}
}

// setTimer sets the time of the next renewal or check. A turn that only confirms what is known leaves the timer that runs.
func (s *svc) setTimer(ctx context.Context, t *loop.Turn, before, after *state.Certs) error {
	if t.Own() != nil && !t.Due() && before.RenewAt.Equal(after.RenewAt) {
		return nil
	}
	return t.At(ctx, checkAt(after.RenewAt, s.now()))
}

// checkAt is when Secrets are to be looked at of which the first is to be renewed at a time, zero for none.
func checkAt(renew, now time.Time) time.Time {
	next, first := now.Add(checkEvery), now.Add(soonest)
	switch {
	case renew.IsZero() || renew.After(next):
		return next
	case renew.Before(first):
		return first
	}
	return renew
}

// announce returns the fact to publish: issued for another generation than before, rotated when content changed for the same one,
// empty when nothing did.
func announce(before, after *state.Certs) string {
	if before.IssuedFor != after.IssuedFor {
		return event.Issued
	}
	for component, secret := range after.Secrets {
		if before.Secrets[component].Checksum != secret.Checksum {
			return event.Rotated
		}
	}
	sameContent := func(a, b state.Secret) bool { return a.Checksum == b.Checksum }
	if !maps.EqualFunc(before.Referenced, after.Referenced, sameContent) || rewrites(after) && !rewrites(before) {
		return event.Rotated
	}
	return ""
}

// rewrites reports whether objects are to be written anew.
func rewrites(c *state.Certs) bool {
	return c.Encryption != nil && c.Encryption.Phase == state.EncryptionRewriting
}

// fact is the payload of issued and rotated.
func fact(about event.About, r *pki.Result) event.CertsIssued {
	f := event.CertsIssued{About: about, Checksums: map[string]string{}, Reasons: r.Reasons}
	for component, secret := range r.Data.Secrets {
		f.Checksums[component] = secret.Checksum
		f.NotAfter = pki.Earliest(f.NotAfter, secret.NotAfter)
	}
	return f
}
