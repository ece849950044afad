package main

import (
	"encoding/json"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats.go/micro"

	"github.com/stoker-k8s/stoker/local/natsserver"
	"github.com/stoker-k8s/stoker/pkg/api/event"
	"github.com/stoker-k8s/stoker/pkg/api/name"
	"github.com/stoker-k8s/stoker/pkg/events"
)

// TestOrphans has a service that knows DataStores etcd-1, with two orphans, one of which can't be removed, clean, and away.
func TestOrphans(t *testing.T) {
	t.Parallel()
	srv, err := natsserver.Start(t.Context(), t.TempDir(), "127.0.0.1:-1", nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(srv.Stop)
	flags := []string{"--nats", srv.URL(), "--nkey", srv.SeedFile(events.UserOperator)}
	orphans := func(args ...string) (int, string, string) {
		return cli(t, "", append(append([]string{"datastores", "orphans"}, args...), flags...)...)
	}
	if code, _, errs := orphans(); code != exitFailed || !strings.Contains(errs, "no datastore service answers") {
		t.Errorf("without a service: exit %d %s", code, errs)
	}

	bus, err := events.Connect(events.Config{
		URL: srv.URL(), User: name.ServiceDatastore, SeedFile: srv.SeedFile(name.ServiceDatastore), Replica: "test",
		RequestTimeout: 30 * time.Second,
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(bus.Close)
	two := []event.Orphan{
		{DataStore: "etcd-1", Schema: "team_a_demo_k7yy6ua5ki", User: "team_a_demo_k7yy6ua5ki", Owner: "0b5e0f0c-7d1e-4f7b-9f34-9a3b6a8f3a3e", Bytes: 3 << 20, Keys: 281},
		{DataStore: "etcd-1", User: "stuck", Owner: "uid-stuck"},
	}
	var drops atomic.Int32
	service, err := micro.AddService(bus.Conn(), micro.Config{Name: event.DatastoreService, Version: "1.0.0"})
	if err != nil {
		t.Fatal(err)
	}
	answer := func(subject string, f func(micro.Request)) {
		if err := service.AddEndpoint(subject[strings.LastIndexByte(subject, '.')+1:], micro.HandlerFunc(f), micro.WithEndpointSubject(subject)); err != nil {
			t.Fatal(err)
		}
	}
	answer(event.QueryOrphans, func(r micro.Request) {
		var q event.OrphansQuery
		if err := json.Unmarshal(r.Data(), &q); err != nil {
			t.Error(err)
		}
		switch q.DataStore {
		case "etcd-1":
			_ = r.RespondJSON(event.OrphansReply{Orphans: two})
		case "clean":
			_ = r.RespondJSON(event.OrphansReply{Orphans: []event.Orphan{}})
		case "":
			_ = r.RespondJSON(event.OrphansReply{Orphans: two, More: 3, Failed: map[string]string{"away": "the database does not answer"}})
		default:
			_ = r.Error("404", "there is no DataStore "+q.DataStore, nil)
		}
	})
	answer(event.QueryDrop, func(r micro.Request) {
		var q event.DropQuery
		if err := json.Unmarshal(r.Data(), &q); err != nil || q.DataStore != "etcd-1" || len(q.Orphans) != 2 || q.Orphans[0] != two[0] || q.Orphans[1] != two[1] {
			t.Errorf("%s: %v", r.Data(), err)
		}
		drops.Add(1)
		_ = r.RespondJSON(event.DropReply{Dropped: []event.Dropped{
			{Orphan: two[0], Removed: map[string]int{"Key": 281, "User": 1}}, {Orphan: two[1], Error: "the database is read-only"},
		}})
	})
	if err := bus.Conn().Flush(); err != nil {
		t.Fatal(err)
	}
	for _, test := range []struct {
		sentence  string
		args      []string
		code      int
		out, errs []string
		drops     int32
	}{
		{
			sentence: "they are listed, and nothing is removed", args: []string{"etcd-1"}, code: exitOK,
			out: []string{"DATASTORE   SCHEMA", "team_a_demo_k7yy6ua5ki", "0b5e0f0c-7d1e-4f7b-9f34-9a3b6a8f3a3e", "3Mi", "281", "etcd-1      -", "stuck"},
		},
		{sentence: "as JSON for programs", args: []string{"etcd-1", "-o", "json"}, code: exitOK, out: []string{`"owner": "uid-stuck"`}},
		{sentence: "none is said", args: []string{"clean"}, code: exitOK, errs: []string{"no orphans"}},
		{sentence: "where there is none, nothing is asked or removed", args: []string{"clean", "--remove", "--yes"}, code: exitOK, errs: []string{"no orphans"}},
		{
			sentence: "of all DataStores, with those that could not be looked into", code: exitFailed,
			out: []string{"stuck"}, errs: []string{"DataStore away: the database does not answer", "and 3 more"},
		},
		{sentence: "a DataStore that isn't there is said", args: []string{"etcd-2"}, code: exitFailed, errs: []string{"there is no such DataStore: etcd-2", "`stoker datastores` lists"}},
		{
			sentence: "exactly those shown are removed, and what is left is said and makes the command fail", args: []string{"etcd-1", "--remove", "--yes"}, code: exitFailed,
			out:  []string{"removed schema team_a_demo_k7yy6ua5ki, user team_a_demo_k7yy6ua5ki of 0b5e0f0c-7d1e-4f7b-9f34-9a3b6a8f3a3e: 281 Key, 1 User"},
			errs: []string{"left: schema -, user stuck of uid-stuck: the database is read-only"}, drops: 1,
		},
	} {
		t.Run(test.sentence, func(t *testing.T) {
			before := drops.Load()
			code, out, errs := orphans(test.args...)
			if code != test.code || drops.Load()-before != test.drops {
				t.Errorf("exit %d, %d removals\n%s%s", code, drops.Load()-before, out, errs)
			}
			for _, want := range test.out {
				if !strings.Contains(out, want) {
					t.Errorf("%q is not in\n%s", want, out)
				}
			}
			for _, want := range test.errs {
				if !strings.Contains(errs, want) {
					t.Errorf("%q is not in\n%s", want, errs)
				}
			}
		})
	}
}

func TestAPersonConfirms(t *testing.T) {
	t.Parallel()
	for answer, want := range map[string]bool{"y\n": true, "Yes\n": true, "\n": false, "n\n": false, "": false, "sure\n": false} {
		var asked strings.Builder
		a := &app{streams: streams{in: strings.NewReader(answer), err: &asked}}
		if got := a.confirmed("Remove? "); got != want || asked.String() != "Remove? " {
			t.Errorf("%q: %v", answer, got)
		}
	}
}
