package data

// The turns of a tenant whose data are to be in another DataStore than they are: they make what the move needs, have a mover (mover.go)
// do it, and write down how far it is. The pods get gates by the workload service, which hears of each phase by datastore.migrating.

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/stoker-k8s/stoker/pkg/api/event"
	"github.com/stoker-k8s/stoker/pkg/api/name"
	"github.com/stoker-k8s/stoker/pkg/api/reason"
	"github.com/stoker-k8s/stoker/pkg/api/state"
	"github.com/stoker-k8s/stoker/pkg/api/v1alpha1"
	"github.com/stoker-k8s/stoker/pkg/events"
	"github.com/stoker-k8s/stoker/pkg/intent"
	"github.com/stoker-k8s/stoker/pkg/kube"
	"github.com/stoker-k8s/stoker/pkg/loop"
	"github.com/stoker-k8s/stoker/services/datastore/account"
	"github.com/stoker-k8s/stoker/services/datastore/driver"
	"github.com/stoker-k8s/stoker/services/datastore/move"
	"github.com/stoker-k8s/stoker/services/datastore/store"
)

// Moves reports whether a turn has something to do with a move.
func Moves(t *loop.Turn, own state.Datastore) bool {
	return own.Move != nil || changeOf(t.Tenant, own).to != ""
}

// migrating is what a turn knows of a move.
type migrating struct {
	keeper *Keeper
	t      *loop.Turn
	own    state.Datastore
	home   account.Home
	// account is the one in the DataStore that the data are in.
	account driver.Account
	// inputs are those of the account as it is, facts what is to be told of it.
	inputs string
	facts  []loop.Tell
}

// outcome notes how far the move is, and the account as it is.
func (m *migrating) outcome(wait state.Wait, facts ...loop.Tell) loop.Outcome {
	o := loop.Outcome{Step: event.Provisioned, Inputs: m.inputs, Wait: wait, Data: m.own, Facts: append(m.facts, facts...)}
	m.facts = nil
	return o
}

// tell is the fact that says in which phase the move is.
func (m *migrating) tell(phase, why string) loop.Tell {
	v := m.own.Move
	return loop.Tell{What: event.Migrating, Data: event.DatastoreMigrating{
		About: m.t.About(), From: m.from(), To: v.DataStore, Resources: v.Resources, Stage: phase, Keys: v.Keys, Bytes: v.Bytes, Of: v.Of,
		KeysPerSecond: v.KeysPerSecond, SecondsLeft: v.SecondsLeft, Reason: why,
	}}
}

// Migrate takes the next step of a move. It is called once the tenant's account is as it must be where the data are, but for a move that
// goes over: then nothing may be changed there.
func (k *Keeper) Migrate(ctx context.Context, t *loop.Turn, p *account.Plan, h account.Home, facts []loop.Tell) error {
	m := &migrating{keeper: k, t: t, own: p.Want, home: h, account: p.Account, inputs: p.Inputs, facts: facts}
	// The plan's state stays as it is.
	m.own.Move, m.own.Overrides, m.own.Kept = clone(m.own.Move), slices.Clone(m.own.Overrides), slices.Clone(m.own.Kept)
	if was := t.Own(); m.own.Move != nil && m.own.Move.Phase == state.MoveGoingOver && was != nil {
		m.inputs = was.Inputs
	}
	next := changeOf(t.Tenant, m.own)
	switch v := m.own.Move; {
	case v == nil:
		return m.begin(ctx, next)
	case v.Phase == state.MoveDone:
		return m.finish(ctx)
	case !m.is(next):
		return m.abort(ctx, "the spec asks for it no longer")
	}
	if late := m.late(); late != "" {
		return m.abort(ctx, late)
	}
	if !p.UpToDate && m.own.Move.Phase != state.MoveGoingOver { // overrides may be others than when it was begun
		to, _, wait, err := k.accounts.Open(ctx, t, next.to)
		if err != nil {
			return err
		}
		if wait.Waits() {
			return t.Done(ctx, m.outcome(wait))
		}
		against, err := m.against(ctx, to)
		if err != nil {
			return account.IntentOf(t, to, err)
		}
		if against != "" {
			return m.abort(ctx, against)
		}
	}
	return m.goOn(ctx)
}

// from is the DataStore that the data come from.
func (m *migrating) from() string { return cmp.Or(m.own.Move.From, m.own.DataStore) }

// is reports whether the move is a change that the spec asks for.
func (m *migrating) is(c change) bool {
	return m.own.Move.DataStore == c.to && m.from() == c.from && slices.Equal(m.own.Move.Resources, c.resources)
}

// part reports whether some resources move, and the rest stays.
func (m *migrating) part() bool { return len(m.own.Move.Resources) > 0 }

// field is what of the spec asks for the move.
func (m *migrating) field() string {
	if m.part() {
		return "spec.dataStoreOverrides"
	}
	return "spec.dataStore"
}

// against says what is against the move, empty for nothing.
func (m *migrating) against(ctx context.Context, to *store.Store) (string, error) {
	if m.part() {
		return m.keeper.againstPart(ctx, to, m.account, append([]*store.Store{m.home.Main}, m.home.Others...)...)
	}
	return m.keeper.againstMove(ctx, m.t.Tenant, m.own, m.account, to)
}

func clone(v *state.Move) *state.Move {
	if v == nil {
		return nil
	}
	c := *v
	return &c
}

// late says that a move takes longer than it may, empty for no.
func (m *migrating) late() string {
	limit, err := time.ParseDuration(m.t.Tenant.Annotations[name.AnnotationMigrationTimeout])
	if err != nil || m.own.Move.Phase == state.MoveGoingOver || m.keeper.now().Sub(m.own.Move.Since) < limit {
		return ""
	}
	return "it takes longer than " + limit.String() + " (" + name.AnnotationMigrationTimeout + ")"
}

// begin notes that the data move. What is on record then is found again after a crash.
func (m *migrating) begin(ctx context.Context, next change) error {
	target := next.to
	if is := m.t.Own(); is != nil && is.Failed() && is.Failure.Reason == reason.MigrationUndone && is.Generation == m.t.Generation {
		return &intent.Permanent{Reason: reason.MigrationUndone, Message: is.Failure.Message}
	}
	to, object, wait, err := m.keeper.accounts.Open(ctx, m.t, target)
	if err != nil {
		return err
	}
	if wait.Waits() {
		return m.t.Done(ctx, m.outcome(wait))
	}
	now := m.keeper.now().UTC()
	m.own.Move = &state.Move{
		ID: events.ID(m.t.UID, next.from, target, strconv.FormatInt(now.UnixNano(), 36)), DataStore: target, Driver: string(object.Spec.Driver),
		Endpoints: object.Spec.Endpoints, Phase: state.MovePreparing, Since: now.Truncate(time.Second), From: next.from, Resources: next.resources,
	}
	if !m.part() {
		m.own.Move.Of = m.own.Keys
	}
	a := m.there(to)
	if err := to.Do(ctx, func(d driver.Driver) error { return d.Validate(a) }); err != nil {
		return account.IntentOf(m.t, to, err)
	}
	against, err := m.against(ctx, to)
	if err != nil {
		return account.IntentOf(m.t, to, err)
	}
	if against != "" {
		return &intent.Permanent{Reason: reason.MigrationNotSupported, Message: m.field() + ": " + against}
	}
	one := false
	if !m.part() {
		if one, err = m.sameDatabase(ctx, to, object); err != nil {
			return account.IntentOf(m.t, to, err)
		}
	}
	if one {
		return &intent.Permanent{Reason: reason.MigrationNotSupported, Message: fmt.Sprintf(
			"spec.dataStore: DataStores %s and %s are one database, in which the tenant's data are already", m.own.DataStore, target)}
	}
	m.own.Move.Schema, m.own.Move.User = a.Schema, a.User
	m.keeper.jobs.end(m.t.Key) // a backup, which would read where the data were
	if err := m.t.Done(ctx, m.outcome(m.wait())); err != nil {
		return err
	}
	return m.goOn(ctx)
}

// sameDatabase reports whether both DataStores are seen to be one database. That they are not is known only once a record that was
// written to one doesn't show in the other (move.ErrSame).
func (m *migrating) sameDatabase(ctx context.Context, to *store.Store, object *v1alpha1.DataStore) (bool, error) {
	if object.Spec.Driver != m.home.Object.Spec.Driver {
		return false, nil
	}
	if slices.ContainsFunc(object.Spec.Endpoints, func(e string) bool { return slices.Contains(m.home.Object.Spec.Endpoints, e) }) {
		return true, nil
	}
	here, err := m.home.Main.Place(ctx, m.account)
	if err != nil || here == "" {
		return false, err
	}
	there, err := to.Place(ctx, m.account)
	return here == there, err
}

// there is the tenant's account in the other DataStore: of the names it has, or, where the database can't have these and the tenant hasn't
// asked for them, of others.
func (m *migrating) there(to *store.Store) driver.Account {
	a := m.account
	a.RolledOut, a.Password = false, ""
	a.Adopts, _ = strconv.ParseBool(m.t.Tenant.Annotations[name.AnnotationCleanupPriorMigration])
	a.Remembered = slices.ContainsFunc(m.own.Kept, func(k state.Kept) bool { return k.DataStore == to.Name })
	if v := m.own.Move; v.Schema != "" {
		a.Schema, a.User = v.Schema, v.User
		return a
	}
	if d := to.Driver(); d != nil && !m.part() && d.Validate(a) != nil && m.t.Tenant.Spec.DataStoreSchema == "" && m.t.Tenant.Spec.DataStoreUsername == "" {
		a.Schema, a.User = d.Names(m.t.UID)
	}
	return a
}

// wait is what the tenant waits for while its data move.
func (m *migrating) wait() state.Wait {
	v := m.own.Move
	what := "the data"
	if m.part() {
		what = "what is in " + strings.Join(v.Resources, ", ")
	}
	text := what + " to be in DataStore " + v.DataStore + ": "
	switch v.Phase {
	case state.MovePreparing:
		text += "it is made ready"
	case state.MoveCopying:
		text += "copied are " + v.Progress()
	case state.MoveFollowing:
		text += "all pods to have gates"
	case state.MoveGoingOver:
		text += "writes are held for a moment"
	case state.MoveDone:
		text += "all pods to be without gates"
	}
	if v.Why != "" {
		text += "; the last try ended with: " + v.Why
	}
	return state.Wait{On: name.ServiceDatastore, Reason: reason.DataMoving, Text: state.ClipMessage(text)}
}

// goOn makes what pods need for the other DataStore, sees to it that a mover is at work, and takes from it how far it is.
func (m *migrating) goOn(ctx context.Context) error {
	v := m.own.Move
	to, _, wait, err := m.keeper.accounts.Open(ctx, m.t, v.DataStore)
	if err != nil {
		return err
	}
	if wait.Waits() {
		return m.t.Done(ctx, m.outcome(wait))
	}
	one := m.keeper.movers.get(m.t.Key)
	if one != nil && one.move.ID != v.ID {
		m.keeper.movers.end(m.t.Key)
		one = nil
	}
	if one == nil {
		if !m.keeper.movers.room(m.t.Key, v, m.from(), v.DataStore) {
			return m.t.Done(ctx, m.outcome(state.Wait{On: name.ServiceDatastore, Reason: reason.MoveQueued, Text: "other tenants' data to have moved"}))
		}
		from, to, err := m.sides(ctx, to)
		if err != nil {
			return err
		}
		one = m.keeper.movers.start(ctx, m.t.Key, *v, from, to)
	}
	at := one.now()
	v.Keys, v.Bytes, v.Apart = at.keys, at.bytes, v.Apart || at.apart
	v.KeysPerSecond, v.SecondsLeft = 0, 0
	if at.why != nil {
		v.Why = at.why.Error()
	}
	if at.ended {
		m.keeper.movers.end(m.t.Key)
		return m.ended(ctx, at)
	}
	return m.next(ctx, one, at)
}

// here is the account that the data are in, with what the tenant's Secrets say that it is reached by.
func (m *migrating) here(ctx context.Context) (account.Side, error) {
	at := m.home.Main
	switch v := m.own.Move; {
	case m.part() && v.Phase == state.MoveDone:
		at = m.keeper.stores.Get(v.DataStore)
	case m.part():
		at = m.keeper.stores.Get(v.From)
	}
	return m.keeper.accounts.Reach(ctx, m.t.Key, at, m.account)
}

// sides are the two accounts, with what each is reached by. The tenant gets the one in the other DataStore.
func (m *migrating) sides(ctx context.Context, to *store.Store) (from, there account.Side, err error) {
	v := m.own.Move
	if from, err = m.here(ctx); err != nil {
		return from, there, err
	}
	there = account.Side{Store: to, Account: m.there(to)}
	err = to.Do(ctx, func(d driver.Driver) error {
		if err := d.Claim(ctx, there.Account); err != nil {
			return err
		}
		config := account.SecretFor(m.t.Key, m.t.UID, name.MovingDatastoreConfig(m.t.Key.Name), name.ComponentDatastoreMoving)
		v.Config, err = m.keeper.accounts.Ensure(ctx, config, v.Config, func(have *corev1.Secret, _ bool) (map[string][]byte, error) {
			data := account.ConfigData(have.Data, true, there.Account, d, account.Password)
			there.Account.Password = string(data[name.KeyDBPassword])
			return data, nil
		})
		if err != nil {
			return err
		}
		certificate := account.SecretFor(m.t.Key, m.t.UID, name.MovingDatastoreCertificate(m.t.Key.Name), name.ComponentDatastoreMoving)
		v.Certificate, err = m.keeper.accounts.Ensure(ctx, certificate, v.Certificate, func(have *corev1.Secret, _ bool) (_ map[string][]byte, err error) {
			there.Access, err = d.Access(there.Account, account.AccessOf(have.Data), m.keeper.now())
			return account.CertificateData(there.Access), err
		})
		if err != nil {
			return err
		}
		v.Certificate.Keys = slices.Sorted(maps.Keys(certificate.Data))
		v.Certificate.NotAfter = there.Access.NotAfter
		if _, err = d.Provision(ctx, there.Account); err == nil {
			v.Account, err = account.Surveyed(ctx, d, there.Account)
		}
		return err
	})
	return from, there, account.IntentOf(m.t, to, err)
}

// next notes how far a mover is that runs, and has it go over once all pods have gates.
func (m *migrating) next(ctx context.Context, one *mover, at moverAt) (err error) {
	v := m.own.Move
	was := v.Phase
	if at.phase != was && at.why == nil {
		v.Why = ""
	}
	gates, ready := 0, false
	if v.Phase = at.phase; v.Phase == state.MoveFollowing {
		if gates, ready, err = m.gates(ctx); err != nil {
			return err
		}
		if ready {
			v.Phase = state.MoveGoingOver
		}
	}
	var facts []loop.Tell
	if one.progress(m.keeper.now(), v, v.Phase != was) {
		facts = append(facts, m.tell(v.Phase, ""))
	}
	m.t.Alarm(tellEvery, loop.Wake{Kind: wakeMove})
	// Noted before it goes over: who takes the tenant over then changes nothing where the data were.
	if err := m.t.Done(ctx, m.outcome(m.wait(), facts...)); err != nil {
		return err
	}
	if ready {
		one.goOver(gates)
	}
	return nil
}

// gates is how many gates there are; ready is whether all pods have one.
func (m *migrating) gates(ctx context.Context) (n int, ready bool, err error) {
	workload := state.Workload{}
	pods, err := m.t.Read(ctx, name.ServiceWorkload, &workload)
	if err != nil || pods == nil || pods.Generation < m.t.Generation {
		return 0, false, err
	}
	done := pods.Step == event.Slept || pods.Step == event.Available
	return int(workload.Replicas), done && workload.Gate == m.own.Move.ID, nil
}

// ended notes what a mover has come to.
func (m *migrating) ended(ctx context.Context, at moverAt) error {
	v := m.own.Move
	var behind *driver.BehindError
	var key *driver.KeyError
	switch err := at.err; {
	case err == nil:
		v.HeldMilliseconds = at.held.Milliseconds()
		return m.moved(ctx)
	case errors.Is(err, move.ErrSame), errors.Is(err, errThereAlready), errors.As(err, &behind), errors.As(err, &key):
		// Each of these is found before the data move, and after writes go on.
		v.Phase = state.MoveCopying
		return m.abort(ctx, err.Error())
	default:
		// Whether the store that the data come from was sealed is what the next mover finds out first.
		v.Why = err.Error()
		if err := m.t.Done(ctx, m.outcome(m.wait())); err != nil {
			return err
		}
		return &intent.Unavailable{Err: fmt.Errorf("move to DataStore %s: %w", v.DataStore, err)}
	}
}

// moved notes that the data are in the other DataStore: first in the Secrets, then in the state.
func (m *migrating) moved(ctx context.Context) error {
	if m.part() {
		return m.partMoved(ctx)
	}
	v, key := m.own.Move, m.t.Key
	now := m.keeper.now().UTC()
	grace := graceOf(m.t.Tenant.Annotations)
	kept := state.Kept{
		DataStore: m.own.DataStore, Driver: m.own.Driver, Schema: m.own.Schema, User: m.own.User, Until: now.Add(grace).Truncate(time.Second),
	}
	m.own.Kept = append(slices.DeleteFunc(m.own.Kept, func(k state.Kept) bool { return k.DataStore == v.DataStore }), kept)
	for _, secret := range []struct {
		from, to, component string
		of                  *state.Secret
	}{
		{name.MovingDatastoreConfig(key.Name), name.DatastoreConfig(key.Name), name.ComponentDatastoreConfig, &m.own.Config},
		{name.MovingDatastoreCertificate(key.Name), name.DatastoreCertificate(key.Name), name.ComponentDatastoreCertificate, &m.own.Certificate},
	} {
		have := &corev1.Secret{}
		if err := m.keeper.kube.Get(ctx, kube.Secrets, key.Namespace, secret.from, have); err != nil {
			return err
		}
		var err error
		*secret.of, err = m.keeper.accounts.Ensure(ctx, account.SecretFor(key, m.t.UID, secret.to, secret.component), *secret.of,
			func(*corev1.Secret, bool) (map[string][]byte, error) { return have.Data, nil })
		if err != nil {
			return err
		}
	}
	m.own.Certificate.Keys, m.own.Certificate.NotAfter = v.Certificate.Keys, v.Certificate.NotAfter
	from := m.own.DataStore
	m.keeper.stores.Get(from).RemoveTenant(key)
	m.own.DataStore, m.own.Driver, m.own.Endpoints, m.own.Schema, m.own.User = v.DataStore, v.Driver, v.Endpoints, v.Schema, v.User
	m.own.Account, m.own.Former = v.Account, false
	v.Phase = state.MoveDone
	return m.t.Done(ctx, m.outcome(m.wait(), loop.Tell{What: event.Migrated, Data: event.DatastoreMigrated{
		About: m.t.About(), From: from, To: v.DataStore, Keys: v.Keys, Bytes: v.Bytes, HeldMilliseconds: v.HeldMilliseconds, KeptUntil: kept.Until,
	}}))
}

// partMoved notes that some resources are in the other DataStore.
func (m *migrating) partMoved(ctx context.Context) error {
	v := m.own.Move
	from := m.keeper.stores.Get(v.From)
	err := from.Do(ctx, func(d driver.Driver) error {
		seen, err := account.Surveyed(ctx, d, m.account) // which may not write all of its keys now
		m.noteAccount(v.From, seen)
		return err
	})
	if err != nil {
		return account.IntentOf(m.t, from, err)
	}
	var overrides []state.Override
	there := state.Override{DataStore: v.DataStore}
	for _, o := range m.own.Overrides {
		o.Resources = slices.DeleteFunc(slices.Clone(o.Resources), func(resource string) bool { return slices.Contains(v.Resources, resource) })
		if o.DataStore == v.DataStore {
			there = o
			continue
		}
		overrides = append(overrides, o)
	}
	if v.DataStore != m.own.DataStore {
		there.Resources = slices.Sorted(slices.Values(slices.Concat(there.Resources, v.Resources)))
		there.Endpoints, there.Account = v.Endpoints, v.Account
		overrides = append(overrides, there)
	}
	slices.SortFunc(overrides, func(a, b state.Override) int { return strings.Compare(a.DataStore, b.DataStore) })
	m.own.Overrides = overrides
	v.Phase = state.MoveDone
	return m.t.Done(ctx, m.outcome(m.wait(), loop.Tell{What: event.Migrated, Data: event.DatastoreMigrated{
		About: m.t.About(), From: v.From, To: v.DataStore, Resources: v.Resources, Keys: v.Keys, Bytes: v.Bytes, HeldMilliseconds: v.HeldMilliseconds,
		KeptUntil: m.keeper.now().UTC(),
	}}))
}

// leave has the tenant write again where some resources were and others are still, and takes away what of them is left there. A DataStore
// that nothing is in any more is withdrawn from as others are.
func (m *migrating) leave(ctx context.Context, dataStore string) error {
	if !m.part() || dataStore != m.own.DataStore && !slices.Contains(account.NamesOf(m.own.Overrides), dataStore) {
		return nil
	}
	at, err := m.keeper.accounts.Reach(ctx, m.t.Key, m.keeper.stores.Get(dataStore), m.account)
	if err != nil {
		return err
	}
	err = at.Store.Do(ctx, func(d driver.Driver) error {
		accesses, ok := d.(driver.DataAccess)
		if !ok {
			return errNoAccess
		}
		if _, err := d.Provision(ctx, at.Account); err != nil {
			return err
		}
		seen, err := account.Surveyed(ctx, d, at.Account)
		if err != nil {
			return err
		}
		m.noteAccount(dataStore, seen)
		data, err := accesses.Data(ctx, at.Account, at.Access)
		if err != nil {
			return err
		}
		return errors.Join(move.Part(data, hasOf(m.own.Move.Resources)).Clear(ctx), data.Close(), clearRecords(ctx, d, at.Account, at.Access))
	})
	return account.IntentOf(m.t, at.Store, err)
}

// noteAccount records the fingerprint of the account in a DataStore, so that later turns don't take it for drift.
func (m *migrating) noteAccount(dataStore, seen string) {
	if dataStore == m.own.DataStore {
		m.own.Account = seen
	}
	for i := range m.own.Overrides {
		if m.own.Overrides[i].DataStore == dataStore {
			m.own.Overrides[i].Account = seen
		}
	}
}

// graceOf is how long the tenant asks for.
func graceOf(annotations map[string]string) time.Duration {
	if d, err := time.ParseDuration(annotations[name.AnnotationMigrationGrace]); err == nil && d >= 0 {
		return d
	}
	return defaultGrace
}

// lookAgain has the tenant looked at once more when the spec names yet another DataStore.
func (m *migrating) lookAgain() {
	if Moves(m.t, m.own) {
		m.t.Alarm(0, loop.Wake{Kind: wakeMove})
	}
}

// finish takes away what the move needed, once no pod has a gate.
func (m *migrating) finish(ctx context.Context) error {
	workload := state.Workload{}
	pods, err := m.t.Read(ctx, name.ServiceWorkload, &workload)
	if err != nil {
		return err
	}
	done := pods != nil && pods.Generation >= m.t.Generation && workload.Gate == "" &&
		(pods.Step == event.Slept || pods.Step == event.Available && slices.Equal(workload.Credentials, []string{m.own.Certificate.Checksum}))
	if !done {
		return m.t.Done(ctx, m.outcome(m.wait()))
	}
	if err := errors.Join(m.clear(ctx), m.leave(ctx, m.from())); err != nil {
		return err
	}
	m.own.Move = nil
	if m.keeper.accounts.RemoveKept(ctx, m.t, &m.own) {
		m.t.Alarm(0, loop.Wake{Kind: wakeMove}) // it is told that nothing is left there ([account.Provisioner.Withdraw])
	}
	if next := account.NextKept(m.own); !next.IsZero() {
		if err := m.t.At(ctx, next); err != nil {
			return err
		}
	}
	m.lookAgain()
	o := m.outcome(state.Wait{}, loop.Tell{What: event.Provisioned, Data: event.DatastoreProvisioned{
		About: m.t.About(), DataStore: m.own.DataStore, Driver: m.own.Driver, Schema: m.own.Schema, User: m.own.User,
		Overrides: account.NamesOf(m.own.Overrides),
	}})
	return m.t.Done(ctx, o)
}

// clear removes the records of the move from the store that has the data, and the Secrets that pods had for it.
func (m *migrating) clear(ctx context.Context) error {
	here, err := m.here(ctx)
	if err != nil {
		return err
	}
	err = here.Store.Do(ctx, func(d driver.Driver) error { return clearRecords(ctx, d, here.Account, here.Access) })
	if err != nil {
		return account.IntentOf(m.t, here.Store, err)
	}
	owner := kube.Owner{Name: m.t.Key.Name, UID: m.t.UID}
	for _, secret := range []string{name.MovingDatastoreConfig(m.t.Key.Name), name.MovingDatastoreCertificate(m.t.Key.Name)} {
		if _, err := m.keeper.kube.RemoveOwned(ctx, kube.Secrets, m.t.Key.Namespace, secret, owner); err != nil {
			return err
		}
	}
	return nil
}

// clearRecords removes the records of a move from a tenant's data.
func clearRecords(ctx context.Context, d driver.Driver, account driver.Account, access driver.Access) error {
	accesses, ok := d.(driver.DataAccess)
	if !ok {
		return nil
	}
	data, err := accesses.Data(ctx, account, access)
	if err != nil {
		return err
	}
	defer data.Close()
	gates, err := data.GateRecords(ctx)
	if err != nil {
		return err
	}
	for key := range gates {
		if err := data.DeleteRecord(ctx, key); err != nil {
			return err
		}
	}
	return data.DeleteRecord(ctx, driver.MoveKey)
}

// abort leaves the data where they are.
func (m *migrating) abort(ctx context.Context, why string) error {
	v := m.own.Move
	if v.Phase == state.MoveGoingOver {
		// It is asked for too late: the data are here or there in a moment.
		return m.goOn(ctx)
	}
	m.keeper.movers.end(m.t.Key)
	if err := m.clear(ctx); err != nil {
		return err
	}
	if v.Apart { // else there may be such objects that aren't this move's
		if err := m.leave(ctx, v.DataStore); err != nil {
			return err
		}
	}
	to := m.keeper.stores.Get(v.DataStore)
	a := m.there(to)
	used, err := m.keeper.accounts.StillUsed(ctx, m.own, a, v.DataStore)
	if err != nil {
		return account.IntentOf(m.t, to, err)
	}
	if v.Apart && !used { // else it may be the account that the tenant's data are in, by another name of its database
		err = to.Do(ctx, func(d driver.Driver) error {
			_, err := d.Drop(ctx, a)
			return err
		})
	}
	if err != nil {
		m.keeper.log.Warn("what a move that was undone has made is left", "tenant", m.t.Key.String(), "dataStore", v.DataStore, "error", err)
	}
	if !used { // by an override that came meanwhile, it may be
		to.RemoveTenant(m.t.Key)
	}
	fact := m.tell(event.StageUndone, why)
	from, field, asked := m.from(), m.field(), m.is(changeOf(m.t.Tenant, m.own))
	m.own.Move = nil
	m.lookAgain()
	o := m.outcome(state.Wait{}, fact)
	if asked {
		o.Failure = &state.Failure{Reason: reason.MigrationUndone, Permanent: true, Message: fmt.Sprintf(
			"%s: the data stay in DataStore %s, for their move to %s was undone: %s", field, from, v.DataStore, why)}
	}
	return m.t.Done(ctx, o)
}
