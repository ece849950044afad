package account

import (
	"context"
	"slices"

	"github.com/stoker-k8s/stoker/pkg/api/event"
	"github.com/stoker-k8s/stoker/pkg/api/name"
	"github.com/stoker-k8s/stoker/pkg/api/state"
	"github.com/stoker-k8s/stoker/pkg/events"
	"github.com/stoker-k8s/stoker/pkg/loop"
	"github.com/stoker-k8s/stoker/services/datastore/driver"
	"github.com/stoker-k8s/stoker/services/datastore/store"
)

// Plan decides what a turn has to do. The steps in package datastore do it.

// accountVersion is part of the inputs, so that what is new in accounts comes to tenants provisioned before it was: since
// 2, their owners are on record; since 3, it is on record what they were like; since 4, those of etcd see up to where it is compacted;
// since 5, those of NATS ask their bucket's leader for messages.
const accountVersion = "5"

// Plan is what a turn has to do.
type Plan struct {
	Account driver.Account
	// Want is the state as it is to be; Inputs is the hash of what it follows from.
	Want   state.Datastore
	Inputs string
	// known says that the state is of a provisioning from the same inputs; UpToDate, that nobody changed since what was made then;
	// Nothing, that the state need not change either.
	known, UpToDate, Nothing bool
}

// Plan compares what must be with the state and with what woke the turn.
func (p *Provisioner) Plan(ctx context.Context, t *loop.Turn, own state.Datastore, h Home) (*Plan, error) {
	account := Of(t.Key, t.UID, t.Tenant, own)
	if own.Former {
		workload := state.Workload{}
		pods, err := t.Read(ctx, name.ServiceWorkload, &workload)
		if err != nil {
			return nil, err
		}
		account.RolledOut = rolledOut(pods, workload, own.Certificate.Checksum)
	}
	n, kind := h.Main.Name, string(h.Object.Spec.Driver)
	plan := &Plan{
		Account: account,
		Inputs:  events.ID(n, string(h.Object.UID), kind, account.Schema, account.User, h.Main.Fingerprint(), accountVersion+h.othersHash),
		Want: state.Datastore{
			DataStore: n, Driver: kind, Endpoints: h.Object.Spec.Endpoints, Schema: account.Schema, User: account.User,
			Account: own.Account, Config: own.Config, Certificate: own.Certificate, Former: own.Former, Overrides: h.overrides,
			Bytes: own.Bytes, Keys: own.Keys, MeasuredAt: own.MeasuredAt, Move: own.Move, Kept: own.Kept,
			Backup: own.Backup, Usage: own.Usage, Restored: own.Restored, Restoring: own.Restoring, InPlace: own.InPlace,
		},
	}
	last := t.Own()
	plan.known = last != nil && last.Step == event.Provisioned && last.Inputs == plan.Inputs
	plan.UpToDate = plan.known && !last.Failed() && !Touched(t.Wakes, own) && !t.Due() && !account.RolledOut
	plan.Nothing = plan.UpToDate && last.Generation == t.Generation && !last.Wait.Waits()
	return plan, nil
}

// Outcome returns the outcome that records Want and publishes facts.
func (p *Plan) Outcome(facts []loop.Tell) loop.Outcome {
	return loop.Outcome{Step: event.Provisioned, Inputs: p.Inputs, Data: p.Want, Facts: facts}
}

// Provisioned returns the fact datastore.provisioned, or nothing if no other service needs it. own is the state before the turn.
func (p *Plan) Provisioned(t *loop.Turn, own state.Datastore) []loop.Tell {
	if !p.matters(t, own) {
		return nil
	}
	return []loop.Tell{{What: event.Provisioned, Data: event.DatastoreProvisioned{
		About: t.About(), DataStore: p.Want.DataStore, Driver: p.Want.Driver, Schema: p.Want.Schema, User: p.Want.User,
		Overrides: NamesOf(p.Want.Overrides),
	}}}
}

// Measured returns the fact datastore.measured.
func (p *Plan) Measured(t *loop.Turn) loop.Tell {
	return loop.Tell{What: event.Measured, Data: event.DatastoreMeasured{
		About: t.About(), DataStore: p.Want.DataStore, Bytes: p.Want.Bytes, Keys: p.Want.Keys, MeasuredAt: p.Want.MeasuredAt,
	}}
}

// rolledOut reports whether all pods, if there are any, have the credentials of a checksum.
func rolledOut(pods *state.State, workload state.Workload, checksum string) bool {
	return pods != nil && (pods.Step == event.Available || pods.Step == event.Slept) && slices.Equal(workload.Credentials, []string{checksum})
}

// matters reports whether other services must hear of the account: once of each generation, of what rolls out pods, and of the end
// of a failure.
func (p *Plan) matters(t *loop.Turn, own state.Datastore) bool {
	return !p.known || t.Own().Generation != t.Generation || t.Own().Failed() ||
		own.Config.Checksum != p.Want.Config.Checksum || own.Certificate.Checksum != p.Want.Certificate.Checksum
}

// Touched reports whether a wake is about a Secret, or an account, that isn't as the last turn left it.
func Touched(wakes []loop.Wake, own state.Datastore) bool {
	for _, w := range wakes {
		switch w.Kind {
		case store.WakeAccount:
			if w.Version != store.AccountIn(own, w.Object) {
				return true
			}
		case WakeSecret:
			known := own.Config.ResourceVersion
			if w.Object == name.ComponentDatastoreCertificate {
				known = own.Certificate.ResourceVersion
			}
			if w.Gone || w.Version != known {
				return true
			}
		}
	}
	return false
}
