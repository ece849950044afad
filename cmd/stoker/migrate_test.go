package main

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go/micro"

	"github.com/stoker-k8s/stoker/pkg/api/event"
	"github.com/stoker-k8s/stoker/pkg/api/name"
	"github.com/stoker-k8s/stoker/pkg/api/reason"
	"github.com/stoker-k8s/stoker/pkg/api/state"
	"github.com/stoker-k8s/stoker/pkg/events"
	"github.com/stoker-k8s/stoker/pkg/loop"
)

// movesOf answers what a move of a tenant would meet, by the tenant's name, and false for one that there isn't.
func movesOf(q event.MoveQuery) (event.MoveReply, bool) {
	p := event.MoveReply{
		About: event.About{Namespace: q.Namespace, Name: q.Name, UID: "u-" + q.Name, Generation: 3}, From: "a", FromDriver: "etcd", Asked: "a",
		To: q.DataStore, ToDriver: "PostgreSQL", Keys: 12_000, Bytes: 3 << 20, MeasuredAt: time.Unix(1, 0), CopySeconds: 6, Findings: []event.MoveFinding{},
	}
	under := func(stage string) { p.Asked, p.Moving, p.Stage = "b", "b", stage }
	switch q.Name {
	case "nobody":
		return p, false
	case "blocked":
		p.Blocked = true
		p.Findings = []event.MoveFinding{
			{What: reason.OverridesSet, Message: "it has \x1b[31moverrides", Blocks: true}, {What: reason.RoomUnknown, Message: "who knows"},
		}
	case "moving":
		under(state.MoveCopying)
		p.Blocked, p.Findings = true, []event.MoveFinding{{What: reason.DataMoving, Message: "on the way", Blocks: true}}
	case "going":
		under(state.MoveGoingOver)
	case "arrived":
		under(state.MoveDone)
		p.From = "b"
	case "there":
		p.From, p.Asked, p.Blocked, p.Findings = "b", "b", true, []event.MoveFinding{{What: reason.AlreadyThere, Message: "they are", Blocks: true}}
	}
	return p, true
}

// tellMove tells what becomes of a move that a tenant was commanded, or is asked about while it moves.
func tellMove(t *testing.T, datastore *events.Bus, tenant string) {
	about := event.About{Namespace: "default", Name: tenant, UID: "u-" + tenant, Generation: 1}
	tell := func(what string, data any) {
		if err := datastore.Tell(t.Context(), events.Tenant("default", tenant), 1, fmt.Sprint(tenant, what, time.Now()), what, data); err != nil {
			t.Error(err)
		}
	}
	switch tenant {
	case "demo", "moving":
		tell(event.Migrating, event.DatastoreMigrating{About: about, From: "a", To: "b", Stage: state.MoveCopying, Keys: 2_100, Bytes: 5 << 20,
			Of: 12_000, KeysPerSecond: 1_050, SecondsLeft: 10})
		tell(event.Migrated, event.DatastoreMigrated{About: about, From: "a", To: "b", HeldMilliseconds: 120, KeptUntil: time.Date(2026, 12, 1, 0, 0, 0, 0, time.UTC)})
	case "undone":
		tell(event.Migrating, event.DatastoreMigrating{About: about, From: "a", To: "b", Stage: event.StageUndone, Reason: "key x doesn't fit"})
	case "failed":
		tell(event.Failed, event.StepFailed{About: about, Reason: reason.MigrationNotSupported, Message: "one database"})
	}
}

func TestMigrate(t *testing.T) {
	t.Parallel()
	inst := install(t)
	datastore, intake := inst.connect(name.ServiceDatastore), inst.connect(name.ServiceIntake)
	for _, tenant := range []string{"demo", "moving"} { // of whose moves intake hears: it has accepted them before
		key := events.Tenant("default", tenant)
		if err := intake.CreateBucket(t.Context(), key); err != nil {
			t.Fatal(err)
		}
		spec := &state.State{UID: "u-" + tenant, Generation: 1, Step: event.Accepted, UpdatedAt: time.Now(), Data: event.Marshal(state.Tenant{})}
		if _, err := intake.WriteState(t.Context(), key, events.KeySpec, spec, 0); err != nil {
			t.Fatal(err)
		}
	}
	service, err := micro.AddService(datastore.Conn(), micro.Config{Name: event.DatastoreService, Version: "1.0.0"})
	if err != nil {
		t.Fatal(err)
	}
	answer := func(r micro.Request) {
		var q event.MoveQuery
		if err := json.Unmarshal(r.Data(), &q); err != nil {
			t.Error(err)
		}
		p, known := movesOf(q)
		if !known {
			_ = r.Error("404", "there is no tenant "+q.Name, nil)
			return
		}
		_ = r.RespondJSON(p)
		if q.Name == "moving" {
			go tellMove(t, datastore, q.Name)
		}
	}
	if err := service.AddEndpoint("move", micro.HandlerFunc(answer), micro.WithEndpointSubject(event.QueryMove)); err != nil {
		t.Fatal(err)
	}
	if err := datastore.Conn().Flush(); err != nil {
		t.Fatal(err)
	}
	commands := make(chan loop.Event, 64)
	go func() {
		for {
			select {
			case e := <-inst.commands:
				commands <- e
				tellMove(t, datastore, strings.TrimPrefix(e.Subject(), "default/"))
			case <-t.Context().Done():
				return
			}
		}
	}()
	for _, c := range []struct {
		sentence, args string
		code           int
		out, err       string
		patch          string // what was commanded
	}{
		{"a plan of what nothing is against", "demo --to b --plan", exitOK, "tenant default/demo: a (etcd) to b (PostgreSQL), about 12,000 keys, 3MiB, copied in some 6s\nnothing is against it", "", ""},
		{"a plan that is blocked", "blocked --to b --plan", exitFailed, "OverridesSet   yes      it has", "", ""},
		{"a program reads it", "blocked --to b --plan -o json", exitFailed, `"blocked": true`, "", ""},
		{"or as YAML", "demo --to b --plan -o yaml", exitOK, "copySeconds: 6", "", ""},
		{"a plan of nobody", "nobody --to b --plan", exitFailed, "", "there is no such tenant", ""},
		{"a move is commanded", "undone --to b", exitOK, "default/undone: the data go to DataStore b (generation 1)", "", `{"dataStore":"b"}`},
		{"and followed until the data have moved", "demo --to b --wait", exitOK, "2,100 keys, 5MiB of about 12,000 keys, 1,050 a second, some 10 s left", "", `{"dataStore":"b"}`},
		{"which says for how long writes waited", "demo --to b --wait", exitOK, "default/demo: the data are in DataStore b; writes waited for 120 ms; what a holds is kept until 2026-12-01", "", `{"dataStore":"b"}`},
		{"one that is undone says why", "undone --to b --wait", exitFailed, "", "don't move to DataStore b: key x doesn't fit", `{"dataStore":"b"}`},
		{"and one that fails", "failed --to b --wait", exitFailed, "", "MigrationNotSupported: one database", `{"dataStore":"b"}`},
		{"one that takes longer", "slow --to b --wait --timeout 300ms", exitTimeout, "", "after 300ms, and go on moving", `{"dataStore":"b"}`},
		{"one that something is against", "blocked --to b", exitFailed, "", "not moved: OverridesSet", ""},
		{"one that is refused", "bad --to b", exitFailed, "", "was rejected", `{"dataStore":"b"}`},
		{"one that is under way is waited for", "moving --to b --wait", exitOK, "the data are on the way from DataStore a to b (Copying)", "", ""},
		{"data that are there", "there --to b --wait", exitOK, "the data are in DataStore b", "", ""},
		{"data that have just moved", "arrived --to b --wait", exitOK, "the data are in DataStore b", "", ""},
		{"a move is taken back", "moving --undo --wait", exitOK, "default/moving: the data stay in DataStore a", "", `{"dataStore":"a"}`},
		{"but not when data go over", "going --undo", exitFailed, "", "at this moment", ""},
		{"and not when they have", "arrived --undo", exitFailed, "", "another move", ""},
		{"there is nothing to take back", "demo --undo", exitOK, "nobody asks for another one", "", ""},
		{"nobody's move is taken back", "nobody --undo", exitFailed, "", "there is no such tenant", ""},
	} {
		t.Run(c.sentence, func(t *testing.T) {
			code, out, errs := cli(t, "", append(append([]string{"migrate"}, strings.Fields(c.args)...), inst.flags...)...)
			if code != c.code || !strings.Contains(out, c.out) || !strings.Contains(errs, c.err) || strings.Contains(out, "\x1b") {
				t.Errorf("exit %d\n%s%s", code, out, errs)
			}
			patch := ""
			if c.patch != "" || len(commands) > 0 { // the command may arrive after intake's answer
				var e loop.Event
				select {
				case e = <-commands:
				case <-time.After(time.Minute):
					t.Fatal("nothing was commanded")
				}
				var p event.PatchCommand
				if err := json.Unmarshal(e.Data(), &p); err != nil || p.UID != "u-"+strings.Fields(c.args)[0] || fmt.Sprint(e.Extensions()[events.ExtExpectedGeneration]) != "3" {
					t.Errorf("%s: %v", e, err)
				}
				patch = string(p.Spec)
			}
			if patch != c.patch {
				t.Errorf("commanded was %s", patch)
			}
		})
	}
}

func TestMistakesInAMoveOrADrain(t *testing.T) {
	t.Parallel()
	for sentence, c := range map[string]struct{ args, says string }{
		"a move to nowhere":               {"migrate demo", "--to"},
		"a move and its end":              {"migrate demo --to b --undo", "--to"},
		"a name that can't be one":        {"migrate demo --to A", "can't be the name of a DataStore"},
		"a tenant that can't be one":      {"migrate Demo --to b", "can't be the name of a tenant"},
		"a plan that waits":               {"migrate demo --to b --plan --wait", "--plan"},
		"a format of what is no plan":     {"migrate demo --to b -o json", "only for --plan"},
		"a format that there isn't":       {"migrate demo --to b --plan -o wide", "must be json or yaml"},
		"two tenants":                     {"migrate a b --to c", "accepts 1 arg"},
		"a drain to nowhere":              {"drain a", "--to"},
		"a drain to where it is":          {"drain a --to a", "is to be drained"},
		"a drain of what can't be":        {"drain A --to b", "can't be the name"},
		"a selector that isn't one":       {"drain a --to b -l a,,in", "label selector"},
		"none at once":                    {"drain a --to b --at-once 0", "--at-once 0"},
		"a format of a drain, not a plan": {"drain a --to b -o json", "only for --plan"},
	} {
		t.Run(sentence, func(t *testing.T) {
			if code, _, errs := cli(t, "", strings.Fields(c.args)...); code != exitUsage || !strings.Contains(errs, c.says) {
				t.Errorf("exit %d: %s", code, errs)
			}
		})
	}
}
