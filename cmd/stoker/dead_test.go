package main

import (
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go/micro"

	"github.com/stoker-k8s/stoker/local/natsserver"
	"github.com/stoker-k8s/stoker/pkg/api/event"
	"github.com/stoker-k8s/stoker/pkg/api/name"
	"github.com/stoker-k8s/stoker/pkg/events"
)

// operated is an intake that answers the operator: with one dead letter that can be replayed and one that can't, and two replicas.
func operated(t *testing.T) (flags []string, asked func() string) {
	t.Helper()
	srv, err := natsserver.Start(t.Context(), t.TempDir(), "127.0.0.1:-1", nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(srv.Stop)
	bus, err := events.Connect(events.Config{
		URL: srv.URL(), User: name.ServiceIntake, SeedFile: srv.SeedFile(name.ServiceIntake), Replica: "test",
		RequestTimeout: 30 * time.Second,
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(bus.Close)
	service, err := micro.AddService(bus.Conn(), micro.Config{Name: event.IntakeService, Version: "1.0.0"})
	if err != nil {
		t.Fatal(err)
	}
	questions := make(chan string, 1)
	good := event.DeadLetter{Sequence: 7, Time: time.Now().Add(-(73*time.Hour + 30*time.Minute)), Service: "certs", Namespace: "default",
		Name: "demo", Reason: "Panic", Cause: strings.Repeat("x", 100), ID: "e-7", Deliveries: 3}
	bad := event.DeadLetter{Sequence: 9, Service: "intake", Namespace: "team-a", Name: "shop"}
	for subject, reply := range map[string]any{
		event.QueryDeadList:   event.DeadListReply{Letters: []event.DeadLetter{good, bad}, More: true},
		event.QueryDeadReplay: event.DeadReplayReply{Replayed: []event.DeadLetter{good}, Left: []event.DeadLeft{{DeadLetter: bad, Error: "it was changed since"}}},
		event.QueryDeadDrop:   event.DeadDropReply{Dropped: []event.DeadLetter{good}, More: true},
		event.QueryReplicas: event.ReplicasReply{Missing: []string{"addons"}, Replicas: []event.Replica{
			{Service: "certs", Replica: "certs-0", Ready: true, Version: "v1", Heartbeat: time.Now().Add(-49 * time.Hour), Partitions: []event.Holding{{Partition: 3}, {Partition: 4}}},
			{Service: "certs", Replica: "certs-1", Silent: true, Partitions: []event.Holding{{Partition: 5}}},
		}},
		event.QueryResync: event.ResyncReply{Asked: 1},
	} {
		endpoint := strings.ReplaceAll(strings.TrimPrefix(subject, "stoker."), ".", "-")
		if err := service.AddEndpoint(endpoint, micro.HandlerFunc(func(r micro.Request) {
			questions <- string(r.Data())
			if strings.Contains(string(r.Data()), `"sequence":404`) {
				_ = r.Error("404", "there is no dead letter 404", nil)
				return
			}
			_ = r.RespondJSON(reply)
		}), micro.WithEndpointSubject(subject)); err != nil {
			t.Fatal(err)
		}
	}
	if err := bus.Conn().Flush(); err != nil {
		t.Fatal(err)
	}
	asked = func() string {
		select {
		case q := <-questions:
			return q
		default:
			return ""
		}
	}
	return []string{"--nats", srv.URL(), "--nkey", srv.SeedFile(events.UserOperator)}, asked
}

func TestReplicasThatAreMissing(t *testing.T) {
	t.Parallel()
	for sentence, test := range map[string]struct {
		missing []string
		named   bool
		want    string // what is complained of; empty: nothing
	}{
		"none":                            {},
		"an installation needs certs":     {missing: []string{"certs"}, want: "no replica of certs answers"},
		"and may do without capi":         {missing: []string{"capi"}},
		"and without tenantaddons":        {missing: []string{"capi", "tenantaddons"}},
		"but not without both":            {missing: []string{"certs", "capi"}, want: "no replica of certs answers"},
		"who asks for capi hears of that": {missing: []string{"capi"}, named: true, want: "no replica of capi answers"},
	} {
		t.Run(sentence, func(t *testing.T) {
			t.Parallel()
			var out, errs strings.Builder
			a := &app{streams: streams{out: &out, err: &errs}}
			err := a.showReplicas("", event.ReplicasReply{Missing: test.missing}, test.named)
			if (err != nil) != (test.want != "") || !strings.Contains(errs.String(), test.want) || strings.Count(errs.String(), "no replica") > 1 {
				t.Errorf("%v: %s", err, errs.String())
			}
		})
	}
}

func TestOperating(t *testing.T) {
	t.Parallel()
	flags, asked := operated(t)
	for _, test := range []struct {
		sentence, args, asks string
		code                 int
		out, errs            []string
	}{
		{
			sentence: "dead letters are listed, and how to see older ones is said", args: "dead list --service certs -n default --name demo --limit 2", code: exitOK,
			asks: `{"service":"certs","namespace":"default","name":"demo","limit":2}`,
			out:  []string{"SEQUENCE   AGE", "7          3d", "certs     default/demo   Panic", "xxx…", "team-a/shop"}, errs: []string{"--before 9"},
		},
		{sentence: "wide, with the cause in full", args: "dead list -o wide", asks: "{}", code: exitOK, out: []string{strings.Repeat("x", 100), "e-7", "DELIVERIES"}},
		{sentence: "for programs", args: "dead list -o json", asks: "{}", code: exitOK, out: []string{`"sequence": 7`, `"more": true`}},
		{
			sentence: "what is left is said, and makes the command fail", args: "dead replay --all --force", asks: `{"all":true,"force":true}`, code: exitFailed,
			out: []string{"default/demo"}, errs: []string{"left: dead letter 9 of team-a/shop: it was changed since"},
		},
		{sentence: "one that isn't there is said", args: "dead replay 404", asks: `{"sequence":404}`, code: exitFailed, errs: []string{"there is no dead letter 404"}},
		{sentence: "what was dropped is said", args: "dead drop 7", asks: `{"sequence":7}`, code: exitOK, out: []string{"default/demo"}, errs: []string{"there are more"}},
		{sentence: "none is dropped that wasn't named", args: "dead drop", code: exitUsage, errs: []string{"or say --all"}},
		{sentence: "nor one and others", args: "dead drop 7 -n team-a", code: exitUsage, errs: []string{"7 is one dead letter"}},
		{sentence: "a name is no sequence", args: "dead replay demo", code: exitUsage, errs: []string{"demo: must be the sequence"}},
		{
			sentence: "replicas, and a service without any makes the command fail", args: "replicas", asks: "{}", code: exitFailed,
			out: []string{"certs     certs-0   true     2d", "certs     certs-1   silent   -           1"}, errs: []string{"no replica of addons answers"},
		},
		{sentence: "of one service, with what they hold", args: "replicas certs -o wide", asks: `{"service":"certs"}`, code: exitFailed, out: []string{"3,4"}},
		{sentence: "a tenant is looked at", args: "resync demo", asks: `{"namespace":"default","name":"demo"}`, code: exitOK, out: []string{"1 tenant is looked at"}},
		{sentence: "or those of a namespace", args: "resync -n team-a -o json", asks: `{"namespace":"team-a"}`, code: exitOK, out: []string{`"asked": 1`}},
		{sentence: "but never all by mistake", args: "resync", code: exitUsage, errs: []string{"or say --all"}},
	} {
		t.Run(test.sentence, func(t *testing.T) {
			code, out, errs := cli(t, "", append(strings.Fields(test.args), flags...)...)
			if q := asked(); code != test.code || q != test.asks {
				t.Errorf("exit %d, asked %s\n%s%s", code, q, out, errs)
			}
			for _, want := range test.out {
				if !strings.Contains(out, want) {
					t.Errorf("no %q in\n%s", want, out)
				}
			}
			for _, want := range test.errs {
				if !strings.Contains(errs, want) {
					t.Errorf("no %q in the errors\n%s", want, errs)
				}
			}
		})
	}
}
