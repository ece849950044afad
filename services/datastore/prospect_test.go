package datastore_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/stoker-k8s/stoker/internal/testing/drivertest"
	"github.com/stoker-k8s/stoker/pkg/api/event"
	"github.com/stoker-k8s/stoker/pkg/api/name"
	"github.com/stoker-k8s/stoker/pkg/api/reason"
	"github.com/stoker-k8s/stoker/pkg/api/state"
	"github.com/stoker-k8s/stoker/pkg/api/v1alpha1"
)

func TestWhatAMoveWouldMeet(t *testing.T) {
	t.Parallel()
	in := install(t)
	stop := in.run()
	defer func() { stop() }()
	stores := map[string]database{"meets-a": onEtcd(t), "meets-b": onEtcd(t), "meets-sql": onPostgres(t), "meets-nats": onNATS(t), "meets-my": onMySQL(t)}
	for n, d := range stores {
		in.object(n, d)
		in.await("-/"+n, event.Checked, &event.DatastoreChecked{})
	}
	in.object("meets-a-again", stores["meets-a"])
	away := stores["meets-b"]
	away.config.Endpoints = []string{"127.0.0.1:1"}
	in.object("meets-away", away)
	x := in.tenant("meets")
	x.t.Spec.DataStore = "meets-a"
	x.accept()
	x.await(event.Provisioned, &event.DatastoreProvisioned{})
	x.await(event.Measured, &event.DatastoreMeasured{})
	meets := func(to string) (r event.MoveReply, found string) {
		t.Helper()
		in.must(ask(in, event.QueryMove, event.MoveQuery{Query: event.Query{Namespace: x.namespace, Name: x.key.Name}, DataStore: to}, &r))
		var all []string
		for _, f := range r.Findings {
			all = append(all, fmt.Sprint(f.What, " ", f.Blocks))
		}
		return r, strings.Join(all, ", ")
	}
	held := func() (all []string) {
		for _, n := range []string{"meets-a", "meets-b", "meets-sql", "meets-nats", "meets-my"} {
			all = append(all, stores[n].holds(t)...)
		}
		return all
	}
	t.Run("it is said what is against it, and nothing is written", func(t *testing.T) {
		before := held()
		for to, want := range map[string]string{
			"meets-b":       reason.RevisionsRaised + " false",
			"meets-sql":     reason.RoomUnknown + " false",
			"meets-my":      reason.RoomUnknown + " false",
			"meets-nats":    reason.RoomUnknown + " false",
			"meets-a":       reason.AlreadyThere + " true",
			"meets-a-again": reason.SameDatabase + " true",
			"meets-away":    reason.Unreachable + " true",
			"meets-nowhere": reason.DataStoreMissing + " true",
			"":              "",
		} {
			if r, found := meets(to); found != want || r.From != "meets-a" || r.FromDriver != string(v1alpha1.DriverEtcd) || r.Generation != 1 || r.UID != x.spec.UID {
				t.Errorf("to %s: %+v", to, r)
			}
		}
		if after := held(); !slices.Equal(before, after) {
			t.Errorf("before: %q\nafter: %q", before, after)
		}
	})
	t.Run("data of any driver can be asked about", func(t *testing.T) {
		for _, from := range []string{"meets-sql", "meets-my", "meets-nats"} {
			y := in.tenant("from-" + from)
			y.t.Spec.DataStore = from
			y.accept()
			y.await(event.Provisioned, &event.DatastoreProvisioned{})
			var r event.MoveReply
			in.must(ask(in, event.QueryMove, event.MoveQuery{Query: event.Query{Namespace: y.namespace, Name: y.key.Name}, DataStore: "meets-b"}, &r))
			for _, f := range r.Findings {
				if f.Blocks || !slices.Contains([]string{reason.SizeUnknown, reason.RevisionsUnknown, reason.RevisionsRaised}, f.What) {
					t.Errorf("from %s: %+v", from, f)
				}
				t.Logf("from %s: %s: %s", from, f.What, f.Message)
			}
		}
	})
	t.Run("a schema that another has there is taken", func(t *testing.T) {
		thief := in.tenant("meets-thief")
		thief.t.Spec.DataStore, thief.t.Spec.DataStoreSchema = "meets-b", x.account().Schema
		thief.accept()
		thief.await(event.Provisioned, &event.DatastoreProvisioned{})
		if r, found := meets("meets-b"); !strings.HasPrefix(found, reason.SchemaTaken+" true") {
			t.Errorf("%+v", r)
		}
	})
	t.Run("overrides keep data where they are", func(t *testing.T) {
		with := in.tenant("meets-overrides")
		with.t.Spec.DataStore = "meets-a"
		with.t.Spec.DataStoreOverrides = []v1alpha1.DataStoreOverride{{Resource: "/events", DataStore: "meets-a"}}
		with.accept()
		with.await(event.Provisioned, &event.DatastoreProvisioned{})
		var r event.MoveReply
		in.must(ask(in, event.QueryMove, event.MoveQuery{Query: event.Query{Namespace: with.namespace, Name: with.key.Name}, DataStore: "meets-sql"}, &r))
		if !r.Blocked || r.Findings[0].What != reason.OverridesSet {
			t.Errorf("%+v", r)
		}
	})
	t.Run("what is no question, and a tenant that there isn't, are refused", func(t *testing.T) {
		for code, q := range map[string]event.MoveQuery{
			"400": {Query: event.Query{Namespace: "A", Name: "b"}, DataStore: "c"},
			"404": {Query: event.Query{Namespace: x.namespace, Name: "nobody"}, DataStore: "meets-b"},
		} {
			if err := ask(in, event.QueryMove, q, &event.MoveReply{}); err == nil || !strings.HasPrefix(err.Error(), code) {
				t.Errorf("%s: %v", code, err)
			}
		}
	})
	t.Run("a move that is under way is told, and how fast it is", func(t *testing.T) {
		x.t.Spec.DataStore = "meets-sql"
		x.spec.Generation++
		x.accept()
		fact := event.DatastoreMigrating{}
		x.await(event.Migrating, &fact)
		// Few objects may be copied before anyone looks.
		if fact.Stage != state.MoveCopying && fact.Stage != state.MoveFollowing || fact.To != "meets-sql" || fact.From != "meets-a" {
			t.Errorf("%+v", fact)
		}
		drivertest.Eventually(t, func() error {
			if r, found := meets("meets-sql"); r.Moving != "meets-sql" || r.Stage != state.MoveFollowing || r.Asked != "meets-sql" || !strings.HasPrefix(found, reason.DataMoving+" true") {
				return fmt.Errorf("%+v", r)
			}
			return nil
		})
		x.t.Spec.DataStore = "meets-a"
		x.spec.Generation++
		x.accept()
		for fact.Stage != event.StageUndone {
			x.await(event.Migrating, &fact)
		}
		if s, d := x.state(); d.Move != nil || s.Wait.On == name.ServiceDatastore {
			t.Errorf("%+v", d)
		}
	})
}
