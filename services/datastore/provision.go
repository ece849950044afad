package datastore

import (
	"context"

	"github.com/stoker-k8s/stoker/pkg/api/state"
	"github.com/stoker-k8s/stoker/pkg/loop"
	"github.com/stoker-k8s/stoker/services/datastore/account"
	"github.com/stoker-k8s/stoker/services/datastore/data"
	"github.com/stoker-k8s/stoker/services/datastore/store"
)

// provision wakes on intake.accepted, the timer, changes of the tenant's two Secrets and of its DataStores. It makes user,
// schema, grants and both Secrets so, and publishes datastore.provisioned.
func (s *svc) provision(ctx context.Context, t *loop.Turn) error {
	own := state.Datastore{}
	if err := t.OwnData(&own); err != nil {
		return err
	}
	home, wait, err := s.accounts.OpenHome(ctx, t, own)
	if err != nil {
		return err
	}
	if wait.Waits() {
		return t.Wait(ctx, wait)
	}
	if err := s.keeper.TakeBack(ctx, t, &own, home.Main); err != nil {
		return err
	}
	p, err := s.accounts.Plan(ctx, t, own, home)
	if err != nil {
		return err
	}
	if own.Move != nil && own.Move.Phase == state.MoveGoingOver {
		return s.keeper.Migrate(ctx, t, p, home, nil) // nothing may be changed where the data are
	}
	if p.UpToDate {
		home.NoteAccount(t, own)
	}
	measured := t.Woken(store.WakeSize) && home.Main.TakeSize(&p.Want)
	removed := s.accounts.RemoveKept(ctx, t, &p.Want)
	withdrawn, err := s.accounts.Withdraw(ctx, t, p, home)
	if err != nil {
		return err
	}
	restoring := data.Restores(t, own)
	moving := data.Moves(t, p.Want) && !own.WantsInPlace(t.Tenant)
	var changed bool
	var facts []loop.Tell
	if !restoring {
		if wait, changed, facts, err = s.tend(ctx, t, home, p, moving); err != nil {
			return err
		}
	}
	if p.Nothing && len(withdrawn) == 0 && !measured && !removed && !moving && !changed {
		return nil
	}
	if !p.UpToDate {
		if err := s.accounts.ApplyOverrides(ctx, t, p, home); err != nil {
			return err
		}
		if err := s.accounts.Apply(ctx, t, home.Main, account.Sealed(p.Account, p.Want, home.Main.Name), &p.Want); err != nil {
			return err
		}
		if len(t.Events) == 0 && account.Touched(t.Wakes, own) {
			t.Drifted("the account and its Secrets")
		}
	}
	if restoring {
		done, restored, err := s.keeper.Restore(ctx, t, home, p)
		if err != nil || !done {
			return err
		}
		facts = append(facts, restored...)
	}
	outcome := p.Outcome(t, own, withdrawn, measured)
	outcome.Facts, outcome.Wait = append(outcome.Facts, facts...), wait
	if p.Want.Restoring != nil { // noted before the data are touched
		outcome.Step = ""
		t.Alarm(0, loop.Wake{Kind: data.WakeJob})
	}
	if moving {
		home.NoteAccount(t, p.Want)
		return s.keeper.Migrate(ctx, t, p, home, outcome.Facts)
	}
	if err := t.Done(ctx, outcome); err != nil {
		return err
	}
	home.NoteAccount(t, p.Want)
	return nil
}

// tend does what is due of backups, of a restore in place and of a quota. It changes the plan's state, and returns what the tenant waits for,
// whether the state is another, and what is to be told.
func (s *svc) tend(ctx context.Context, t *loop.Turn, home account.Home, p *account.Plan, moving bool) (wait state.Wait, changed bool, facts []loop.Tell, err error) {
	if !p.Want.WantsInPlace(t.Tenant) {
		changed, facts = s.keeper.BackUp(ctx, t, home, &p.Want)
	}
	wait, replaces, told, err := s.keeper.Replace(ctx, t, home, p)
	if err != nil {
		return wait, false, nil, err
	}
	changed, facts = changed || replaces, append(facts, told...)
	if p.UpToDate && !moving {
		used, told := s.accounts.ReadUsage(ctx, t, home, p.Account, &p.Want)
		changed, facts = changed || used, append(facts, told...)
	}
	return wait, changed, facts, nil
}
