package data

// What follows from a prospect: pure, one function for each thing that a move may meet. Messages are for people, reasons for programs.

import (
	"errors"
	"fmt"
	"slices"

	"github.com/stoker-k8s/stoker/pkg/api/event"
	"github.com/stoker-k8s/stoker/pkg/api/name"
	"github.com/stoker-k8s/stoker/pkg/api/reason"
	"github.com/stoker-k8s/stoker/pkg/api/v1alpha1"
	"github.com/stoker-k8s/stoker/services/datastore/account"
	"github.com/stoker-k8s/stoker/services/datastore/driver"
	"github.com/stoker-k8s/stoker/services/datastore/store"
)

// finders are asked one after the other; what one finds keeps none from being asked.
var finders = []func(*prospect) []event.MoveFinding{
	(*prospect).ofTenant, (*prospect).ofDataStores, (*prospect).ofAccount, (*prospect).ofRoom, (*prospect).ofRevisions,
}

func blocks(what, format string, a ...any) event.MoveFinding {
	return event.MoveFinding{What: what, Message: fmt.Sprintf(format, a...), Blocks: true}
}

func warns(what, format string, a ...any) event.MoveFinding {
	return event.MoveFinding{What: what, Message: fmt.Sprintf(format, a...)}
}

// reply is the answer.
func (p *prospect) reply() event.MoveReply {
	r := event.MoveReply{
		About: event.About{Namespace: p.key.Namespace, Name: p.key.Name, UID: p.uid, Generation: p.generation},
		From:  p.own.DataStore, FromDriver: p.own.Driver, To: p.target, Asked: p.tenant.Spec.DataStore,
		Keys: p.own.Keys, Bytes: p.own.Bytes, MeasuredAt: p.own.MeasuredAt, Findings: []event.MoveFinding{},
	}
	if v := p.own.Move; v != nil {
		r.Moving, r.Stage = v.DataStore, v.Phase
	}
	if p.target == "" {
		return r
	}
	if p.to.object != nil {
		r.ToDriver = string(p.to.object.Spec.Driver)
		r.CopySeconds = copySeconds(p.to.object.Spec.Driver, p.own.Keys)
	}
	for _, find := range finders {
		r.Findings = append(r.Findings, find(p)...)
	}
	slices.SortStableFunc(r.Findings, func(a, b event.MoveFinding) int { return weight(b) - weight(a) })
	r.Blocked = len(r.Findings) > 0 && r.Findings[0].Blocks
	return r
}

func weight(f event.MoveFinding) int {
	if f.Blocks {
		return 1
	}
	return 0
}

// copySeconds is about how long so many keys are copied for into a kind of database; at least a second.
func copySeconds(kind v1alpha1.Driver, keys int64) int64 {
	rate := store.Drivers()[kind].KeysPerSecond
	if rate == 0 || keys == 0 {
		return 0
	}
	return max((keys+rate-1)/rate, 1)
}

// ofTenant finds what of the tenant itself is in the way.
func (p *prospect) ofTenant() (found []event.MoveFinding) {
	v := p.own.Move
	switch {
	case p.tenant.Deleting:
		found = append(found, blocks(reason.Deleting, "the tenant is being deleted"))
	case p.own.DataStore == "":
		return append(found, blocks(reason.AccountNotProvisioned, "the tenant has no data in any DataStore yet"))
	case v != nil:
		found = append(found, blocks(reason.DataMoving, "its data are on the way to DataStore %s already (%s)", v.DataStore, v.Phase))
	case p.own.DataStore == p.target:
		return append(found, blocks(reason.AlreadyThere, "its data are in DataStore %s already", p.target))
	}
	if p.overrides != "" {
		found = append(found, blocks(reason.OverridesSet, "%s", p.overrides))
	}
	if f := p.failure; f != nil && f.Reason == reason.MigrationUndone && p.tenant.Spec.DataStore == p.target && v == nil {
		found = append(found, blocks(reason.MigrationUndone, "its move there was undone; put spec.dataStore back to %s before you ask once more", p.own.DataStore))
	}
	if p.tenant.LeftAlone() {
		found = append(found, warns(reason.Annotated, "it is paused: its data move when the pause ends"))
	}
	if p.own.MeasuredAt.IsZero() {
		found = append(found, warns(reason.SizeUnknown, "how much it holds has not been measured yet"))
	}
	return found
}

// ofDataStores finds which of the two DataStores can't be used, and why.
func (p *prospect) ofDataStores() (found []event.MoveFinding) {
	if p.own.DataStore == "" || p.own.DataStore == p.target {
		return nil
	}
	for _, x := range []struct {
		name string
		aspect
	}{{p.own.DataStore, p.from}, {p.target, p.to}} {
		switch {
		case errors.Is(x.opened, store.ErrNoDataStore), x.object == nil:
			found = append(found, blocks(reason.DataStoreMissing, "there is no DataStore %s", x.name))
			continue
		case x.opened != nil || x.pinged != nil:
			r := store.ReadinessOf(x.opened, x.pinged)
			found = append(found, blocks(r.Reason, "DataStore %s can't be used: %s", x.name, r.Message))
		case x.why == reason.EtcdFull && x.name == p.target:
			found = append(found, blocks(x.why, "DataStore %s: %s", x.name, x.warning))
		case x.why != "" && x.name == p.target:
			found = append(found, warns(x.why, "DataStore %s: %s", x.name, x.warning))
		}
		if x.name != p.target {
			continue
		}
		if x.object.DeletionTimestamp != nil {
			found = append(found, blocks(reason.DataStoreDeleting, "DataStore %s is being deleted", x.name))
		}
		if x.paused {
			found = append(found, warns(reason.DataStorePaused, "DataStore %s is paused: it is taken as it was before", x.name))
		}
	}
	return found
}

// ofAccount finds what keeps the tenant from having an account in the other database.
func (p *prospect) ofAccount() (found []event.MoveFinding) {
	if p.same {
		found = append(found, blocks(reason.SameDatabase, "DataStores %s and %s are one database", p.own.DataStore, p.target))
	}
	var taken *driver.TakenError
	switch {
	case p.names != nil:
		found = append(found, blocks(reason.InvalidName, "DataStore %s can't have the tenant's names: %s", p.target, p.names))
	case errors.As(p.taken, &taken) && !p.same:
		found = append(found, blocks(account.TakenReasons[taken.Field], "DataStore %s: %s", p.target, taken))
	}
	return found
}

// ofRoom finds whether the data fit. What they take is known by the statistics of the database that they are in.
func (p *prospect) ofRoom() []event.MoveFinding {
	size, free := p.own.Bytes, p.to.quota-p.to.used
	switch {
	case !p.to.usable() || p.same:
		return nil
	case !p.to.room || p.to.quota == 0:
		return []event.MoveFinding{warns(reason.RoomUnknown, "how much room DataStore %s has can't be told; the data take about %s", p.target, name.Bytes(size))}
	case size > free:
		return []event.MoveFinding{blocks(reason.TooLittleRoom, "DataStore %s has room for %s more (%s of %s are used), and the data take about %s",
			p.target, name.Bytes(max(free, 0)), name.Bytes(p.to.used), name.Bytes(p.to.quota), name.Bytes(size))}
	case float64(p.to.used+size) >= fullPart*float64(p.to.quota):
		return []event.MoveFinding{warns(reason.NearlyFull, "DataStore %s holds about %s of %s with the data",
			p.target, name.Bytes(p.to.used+size), name.Bytes(p.to.quota))}
	}
	return nil
}

// ofRevisions finds whether the other database's revisions have to be raised by writes.
func (p *prospect) ofRevisions() []event.MoveFinding {
	to := p.to
	above := p.from.revision + margin
	missing := driver.Compacted(above) - to.revision
	switch {
	case !to.usable() || to.raiseMost == 0 || p.same:
		return nil
	case p.from.revision == 0 || to.revision == 0:
		return []event.MoveFinding{warns(reason.RevisionsUnknown,
			"the revision of the data can't be told; if it is above that of DataStore %s (%d), that one is raised by writes, %d at most", p.target, to.revision, to.raiseMost)}
	case missing > to.raiseMost:
		return []event.MoveFinding{blocks(reason.RevisionsBehind, "DataStore %s: %s", p.target, &driver.BehindError{Above: above, Now: to.revision})}
	case missing > 0:
		return []event.MoveFinding{warns(reason.RevisionsRaised, "DataStore %s is at revision %d, the data at %d: it is raised by %d writes, which take some %d s, and compacted",
			p.target, to.revision, p.from.revision, missing, max(missing/to.raisePerSecond, 1))}
	}
	return nil
}
