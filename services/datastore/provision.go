package datastore

import (
	"context"

	"github.com/stoker-k8s/stoker/pkg/api/state"
	"github.com/stoker-k8s/stoker/pkg/loop"
	"github.com/stoker-k8s/stoker/services/datastore/account"
	"github.com/stoker-k8s/stoker/services/datastore/data"
	"github.com/stoker-k8s/stoker/services/datastore/store"
)

// provision wakes on intake.accepted, the timer, and changes of the tenant's two Secrets and of its DataStores. It compares what must be with
// the state, and then runs the steps.
func (s *svc) provision(ctx context.Context, t *loop.Turn) error {
	p := &provisioning{svc: s, turn: t}
	if err := t.OwnData(&p.own); err != nil {
		return err
	}
	var wait state.Wait
	var err error
	if p.home, wait, err = s.accounts.OpenHome(ctx, t, p.own); err != nil {
		return err
	}
	if wait.Waits() {
		return t.Wait(ctx, wait)
	}
	if err := s.keeper.TakeBack(ctx, t, &p.own, p.home.Main); err != nil {
		return err
	}
	if p.plan, err = s.accounts.Plan(ctx, t, p.own, p.home); err != nil {
		return err
	}
	return p.run(ctx)
}

// provisioning is one turn of a tenant.
type provisioning struct {
	svc  *svc
	turn *loop.Turn
	// own is the state at the beginning of the turn; plan.Want is what the steps make of it.
	own  state.Datastore
	home account.Home
	plan *account.Plan
	// results of all steps so far.
	result
}

// result is the outcome of a step.
type result struct {
	// changed: the step changed the state, so record must write it. facts are published with the state.
	changed bool
	facts   []loop.Tell
	// wait is what the tenant waits for.
	wait state.Wait
	// ended: run executes no further step.
	ended bool
}

// step is one concern of a turn.
type step struct {
	name string
	// parts are the fields of the state that the step may change.
	parts []string
	// when says whether the step is due; nil for always.
	when func(*provisioning) bool
	do   func(*provisioning, context.Context) (result, error)
}

// steps are the steps of a turn; run executes them in this order.
var steps = []step{
	// While a move holds the tenant's writes, no other step may change the DataStore that has the data.
	{name: "switch DataStores", when: (*provisioning).goesOver, do: (*provisioning).move},
	{name: "note the account", when: (*provisioning).upToDate, do: (*provisioning).noteAccount},
	{name: "measure", parts: []string{"Bytes", "Keys", "MeasuredAt"}, when: (*provisioning).sizeChanged, do: (*provisioning).measure},
	{name: "remove kept copies", parts: []string{"Kept"}, do: (*provisioning).removeKept},
	// A DataStore with a kept copy is not withdrawn: these are removed before.
	{name: "withdraw", parts: []string{"Overrides"}, do: (*provisioning).withdraw},
	{name: "back up", parts: []string{"Backup"}, when: (*provisioning).keepsData, do: (*provisioning).backUp},
	{name: "prepare a restore in place", parts: []string{"InPlace", "Restoring"}, when: (*provisioning).works, do: (*provisioning).prepareRestore},
	{name: "read the usage", parts: []string{"Usage"}, when: (*provisioning).settled, do: (*provisioning).readUsage},
	{name: "rest", when: (*provisioning).atRest, do: (*provisioning).rest},
	// The certificate from the next step opens all DataStores of overrides, so the user there must be the tenant's already.
	{name: "provision overrides", parts: []string{"Overrides"}, when: (*provisioning).outdated, do: (*provisioning).provisionOverrides},
	{
		name: "provision the account", parts: []string{"Config", "Certificate", "Account", "Former"},
		when: (*provisioning).outdated, do: (*provisioning).provisionAccount,
	},
	{name: "announce the account", do: (*provisioning).announce},
	// It writes into the account, so the account must exist.
	{name: "restore", parts: []string{"Restoring", "Restored", "InPlace"}, when: (*provisioning).restoring, do: (*provisioning).restore},
	{name: "move", when: (*provisioning).moving, do: (*provisioning).move},
	{name: "record", do: (*provisioning).record},
}

// observe, if not nil, is called before each step with the state. run calls the returned function after the step.
var observe func(step, *state.Datastore) (after func())

// run executes the steps.
func (p *provisioning) run(ctx context.Context) error {
	for _, s := range steps {
		if s.when != nil && !s.when(p) {
			continue
		}
		after := func() {}
		if observe != nil {
			after = observe(s, &p.plan.Want)
		}
		r, err := s.do(p, ctx)
		after()
		if err != nil || r.ended {
			return err
		}
		p.changed, p.facts = p.changed || r.changed, append(p.facts, r.facts...)
		if r.wait.Waits() {
			p.wait = r.wait
		}
	}
	return nil
}

func (p *provisioning) upToDate() bool { return p.plan.UpToDate }
func (p *provisioning) outdated() bool { return !p.plan.UpToDate }

// goesOver reports whether a move holds the tenant's writes.
func (p *provisioning) goesOver() bool {
	return p.own.Move != nil && p.own.Move.Phase == state.MoveGoingOver
}

// moving reports whether a move is in progress or requested.
func (p *provisioning) moving() bool {
	return data.Moves(p.turn, p.plan.Want) && !p.own.WantsInPlace(p.turn.Tenant)
}

// restoring reports whether the tenant must get its data before its first pod, or again; works is its opposite.
func (p *provisioning) restoring() bool { return data.Restores(p.turn, p.own) }
func (p *provisioning) works() bool     { return !p.restoring() }

// keepsData reports whether no restore is about to replace the data.
func (p *provisioning) keepsData() bool {
	return p.works() && !p.plan.Want.WantsInPlace(p.turn.Tenant)
}

// settled reports whether the tenant is provisioned and does not move.
func (p *provisioning) settled() bool { return p.works() && p.plan.UpToDate && !p.moving() }

// sizeChanged reports whether a new size caused the turn.
func (p *provisioning) sizeChanged() bool { return p.turn.Woken(store.WakeSize) }

// atRest reports whether the turn has nothing to do.
func (p *provisioning) atRest() bool { return p.plan.Nothing && !p.changed && !p.moving() }

func (p *provisioning) rest(context.Context) (result, error) { return result{ended: true}, nil }

// noteAccount tells the DataStores the fingerprint of the account, so that a survey finds drift.
func (p *provisioning) noteAccount(context.Context) (result, error) {
	p.home.NoteAccount(p.turn, p.own)
	return result{}, nil
}

func (p *provisioning) measure(context.Context) (r result, err error) {
	if r.changed = p.home.Main.TakeSize(&p.plan.Want); r.changed {
		r.facts = append(r.facts, p.plan.Measured(p.turn))
	}
	return r, nil
}

func (p *provisioning) removeKept(ctx context.Context) (result, error) {
	return result{changed: p.svc.accounts.RemoveKept(ctx, p.turn, &p.plan.Want)}, nil
}

func (p *provisioning) withdraw(ctx context.Context) (r result, err error) {
	r.facts, err = p.svc.accounts.Withdraw(ctx, p.turn, p.plan, p.home)
	r.changed = len(r.facts) > 0
	return r, err
}

func (p *provisioning) backUp(ctx context.Context) (r result, err error) {
	r.changed, r.facts = p.svc.keeper.BackUp(ctx, p.turn, p.home, &p.plan.Want)
	return r, nil
}

func (p *provisioning) prepareRestore(ctx context.Context) (r result, err error) {
	r.wait, r.changed, r.facts, err = p.svc.keeper.Replace(ctx, p.turn, p.home, p.plan)
	return r, err
}

func (p *provisioning) readUsage(ctx context.Context) (r result, err error) {
	r.changed, r.facts = p.svc.accounts.ReadUsage(ctx, p.turn, p.home, p.plan.Account, &p.plan.Want)
	return r, nil
}

func (p *provisioning) provisionOverrides(ctx context.Context) (result, error) {
	return result{}, p.svc.accounts.ApplyOverrides(ctx, p.turn, p.plan, p.home)
}

func (p *provisioning) provisionAccount(ctx context.Context) (result, error) {
	main := p.home.Main
	if err := p.svc.accounts.Apply(ctx, p.turn, main, account.Sealed(p.plan.Account, p.plan.Want, main.Name), &p.plan.Want); err != nil {
		return result{}, err
	}
	if len(p.turn.Events) == 0 && account.Touched(p.turn.Wakes, p.own) {
		p.turn.Drifted("the account and its Secrets")
	}
	return result{}, nil
}

// announce publishes datastore.provisioned if another service needs it.
func (p *provisioning) announce(context.Context) (result, error) {
	return result{facts: p.plan.Provisioned(p.turn, p.own)}, nil
}

// restore ends the turn until the data are complete.
func (p *provisioning) restore(ctx context.Context) (r result, err error) {
	done, facts, err := p.svc.keeper.Restore(ctx, p.turn, p.home, p.plan)
	return result{facts: facts, ended: !done}, err
}

// move takes the next step of a move, which records the state, and ends the turn.
func (p *provisioning) move(ctx context.Context) (result, error) {
	if !p.goesOver() {
		p.home.NoteAccount(p.turn, p.plan.Want)
	}
	return result{ended: true}, p.svc.keeper.Migrate(ctx, p.turn, p.plan, p.home, p.facts)
}

// record writes the state and publishes the facts.
func (p *provisioning) record(ctx context.Context) (result, error) {
	o := p.plan.Outcome(p.facts)
	o.Wait = p.wait
	if p.plan.Want.Restoring != nil { // recorded before the data are touched
		o.Step = ""
		p.turn.Alarm(0, loop.Wake{Kind: data.WakeJob})
	}
	if err := p.turn.Done(ctx, o); err != nil {
		return result{}, err
	}
	p.home.NoteAccount(p.turn, p.plan.Want)
	return result{}, nil
}
