package data

import (
	"errors"
	"slices"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/stoker-k8s/stoker/pkg/api/reason"
	"github.com/stoker-k8s/stoker/pkg/api/state"
	"github.com/stoker-k8s/stoker/pkg/api/v1alpha1"
	"github.com/stoker-k8s/stoker/pkg/events"
	"github.com/stoker-k8s/stoker/services/datastore/driver"
	"github.com/stoker-k8s/stoker/services/datastore/store"
)

func TestFindings(t *testing.T) {
	t.Parallel()
	dataStore := func(n string, kind v1alpha1.Driver) *v1alpha1.DataStore {
		return &v1alpha1.DataStore{ObjectMeta: metav1.ObjectMeta{Name: n}, Spec: v1alpha1.DataStoreSpec{Driver: kind}}
	}
	// Two etcds, the other one with room, and at a revision above.
	fine := func() *prospect {
		p := &prospect{key: events.Tenant("default", "demo"), uid: "u", tenant: &state.Tenant{}, target: "b"}
		p.own = state.Datastore{DataStore: "a", Driver: "etcd", Keys: 30_000, Bytes: 60 << 20, MeasuredAt: time.Unix(1, 0)}
		p.tenant.Spec.DataStore = "a"
		p.from = aspect{object: dataStore("a", v1alpha1.DriverEtcd), revision: 40_000, room: true, quota: 2 << 30, used: 80 << 20}
		p.to = aspect{object: dataStore("b", v1alpha1.DriverEtcd), revision: 900_000, room: true, quota: 2 << 30, used: 80 << 20, raiseMost: 2_000_000, raisePerSecond: 7_000}
		return p
	}
	undone := &state.Failure{Reason: reason.MigrationUndone}
	for sentence, c := range map[string]struct {
		change func(p *prospect)
		blocks bool
		want   []string
	}{
		"nothing is against it":                   {func(*prospect) {}, false, nil},
		"the tenant is paused":                    {func(p *prospect) { p.tenant.Paused = true }, false, []string{reason.Annotated}},
		"the tenant goes":                         {func(p *prospect) { p.tenant.Deleting = true }, true, []string{reason.Deleting}},
		"it has no data yet":                      {func(p *prospect) { p.own, p.from, p.to = state.Datastore{}, aspect{}, aspect{} }, true, []string{reason.AccountNotProvisioned}},
		"its data are there":                      {func(p *prospect) { p.target, p.to = "a", aspect{} }, true, []string{reason.AlreadyThere}},
		"its data are on the way":                 {func(p *prospect) { p.own.Move = &state.Move{DataStore: "c"} }, true, []string{reason.DataMoving}},
		"overrides are against it":                {func(p *prospect) { p.overrides = "one database" }, true, []string{reason.OverridesSet}},
		"its move there was undone":               {func(p *prospect) { p.failure, p.tenant.Spec.DataStore = undone, "b" }, true, []string{reason.MigrationUndone}},
		"and it asks for where they are since":    {func(p *prospect) { p.failure = undone }, false, nil},
		"it was not measured":                     {func(p *prospect) { p.own.MeasuredAt = time.Time{} }, false, []string{reason.SizeUnknown}},
		"there is no such DataStore":              {func(p *prospect) { p.to = aspect{opened: store.ErrNoDataStore} }, true, []string{reason.DataStoreMissing}},
		"one that doesn't answer":                 {func(p *prospect) { p.to.pinged = driver.ErrAway }, true, []string{reason.Unreachable}},
		"where they are doesn't answer":           {func(p *prospect) { p.from.pinged = driver.ErrAway }, true, []string{reason.Unreachable}},
		"no driver for it":                        {func(p *prospect) { p.to.opened = &store.UnsupportedError{Object: p.to.object} }, true, []string{reason.DriverNotSupported}},
		"another's Secret":                        {func(p *prospect) { p.to.opened = &store.ForeignSecretError{} }, true, []string{reason.ForeignSecret}},
		"one without a certificate":               {func(p *prospect) { p.to.opened = &driver.ConfigError{Err: errors.New("none")} }, true, []string{v1alpha1.DataStoreReasonTLSConfigFailed}},
		"one that goes":                           {func(p *prospect) { p.to.object.DeletionTimestamp = &metav1.Time{} }, true, []string{reason.DataStoreDeleting}},
		"one that is paused":                      {func(p *prospect) { p.to.paused = true }, false, []string{reason.DataStorePaused}},
		"one that is full":                        {func(p *prospect) { p.to.why = reason.EtcdFull }, true, []string{reason.EtcdFull}},
		"one that should be newer":                {func(p *prospect) { p.to.why = reason.EtcdDeniesStatus }, false, []string{reason.EtcdDeniesStatus}},
		"where they are should be newer":          {func(p *prospect) { p.from.why = reason.EtcdDeniesStatus }, false, nil},
		"one database":                            {func(p *prospect) { p.same, p.to.room = true, false }, true, []string{reason.SameDatabase}},
		"a name that it can't have":               {func(p *prospect) { p.names = &driver.NameError{Field: driver.FieldSchema} }, true, []string{reason.InvalidName}},
		"a schema of another's":                   {func(p *prospect) { p.taken = &driver.TakenError{Field: driver.FieldSchema} }, true, []string{reason.SchemaTaken}},
		"a user of another's":                     {func(p *prospect) { p.taken = &driver.TakenError{Field: driver.FieldUser} }, true, []string{reason.UserTaken}},
		"too little room":                         {func(p *prospect) { p.to.used = p.to.quota - 59<<20 }, true, []string{reason.TooLittleRoom}},
		"just enough room":                        {func(p *prospect) { p.to.used = p.to.quota - 61<<20 }, false, []string{reason.NearlyFull}},
		"a quota that isn't told":                 {func(p *prospect) { p.to.quota = 0 }, false, []string{reason.RoomUnknown}},
		"a driver that knows of no quota":         {func(p *prospect) { p.to.room = false }, false, []string{reason.RoomUnknown}},
		"revisions that are a little below":       {func(p *prospect) { p.to.revision = 30_000 }, false, []string{reason.RevisionsRaised}},
		"revisions that are just above":           {func(p *prospect) { p.to.revision = 50_002 }, false, nil},
		"revisions that are too far below":        {func(p *prospect) { p.from.revision = 2_900_000 }, true, []string{reason.RevisionsBehind}},
		"a revision that can't be told":           {func(p *prospect) { p.from.revision = 0 }, false, []string{reason.RevisionsUnknown}},
		"a driver whose revisions need no writes": {func(p *prospect) { p.to.raiseMost, p.to.revision = 0, 0 }, false, nil},
		"what blocks is first":                    {func(p *prospect) { p.tenant.Paused, p.to.pinged = true, driver.ErrAway }, true, []string{reason.Unreachable, reason.Annotated}},
	} {
		t.Run(sentence, func(t *testing.T) {
			t.Parallel()
			p := fine()
			c.change(p)
			r := p.reply()
			var got []string
			for _, f := range r.Findings {
				got = append(got, f.What)
				if _, listed := reason.Find(f.What); f.Message == "" || !listed && !isPlan(f.What) && f.What != v1alpha1.DataStoreReasonTLSConfigFailed {
					t.Errorf("%+v", f)
				}
			}
			if r.Blocked != c.blocks || !slices.Equal(got, c.want) {
				t.Errorf("%+v", r)
			}
		})
	}
	t.Run("without a DataStore it is just said where the data are", func(t *testing.T) {
		t.Parallel()
		p := fine()
		p.target, p.own.Move = "", &state.Move{DataStore: "b", Phase: state.MoveCopying}
		if r := p.reply(); r.From != "a" || r.Moving != "b" || r.Stage != state.MoveCopying || r.Asked != "a" || len(r.Findings) > 0 || r.Blocked {
			t.Errorf("%+v", r)
		}
	})
	t.Run("how long is copied follows from the driver", func(t *testing.T) {
		t.Parallel()
		for kind, want := range map[v1alpha1.Driver]int64{v1alpha1.DriverEtcd: 3, v1alpha1.DriverPostgreSQL: 15, v1alpha1.DriverMySQL: 24, v1alpha1.DriverNATS: 6, "other": 0} {
			if got := copySeconds(kind, 30_000); got != want {
				t.Errorf("%s: %d s, not %d", kind, got, want)
			}
		}
		if copySeconds(v1alpha1.DriverEtcd, 0) != 0 || copySeconds(v1alpha1.DriverEtcd, 1) != 1 {
			t.Error("of none and of one key")
		}
	})
}

// isPlan reports whether a reason is in one of the tables that are not of failures and waits.
func isPlan(what string) bool {
	return slices.ContainsFunc(append(reason.Plans(), reason.Conditions()...), func(e reason.Entry) bool { return e.Reason == what })
}
