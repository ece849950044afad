package events_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/stoker-k8s/stoker/pkg/api/event"
	"github.com/stoker-k8s/stoker/pkg/api/name"
	"github.com/stoker-k8s/stoker/pkg/api/state"
	"github.com/stoker-k8s/stoker/pkg/events"
	"github.com/stoker-k8s/stoker/pkg/internal/testing/natstest"
)

// installation has a tenant of another than the attackers, with a state of each service, a status, a fact and a dead letter.
type installation struct {
	*natstest.Server
	intake   *events.Bus
	operator jetstream.JetStream
	theirs   events.Key
	own      events.Key // of the portal acme
}

func attacked(t *testing.T) *installation {
	t.Helper()
	s := natstest.Start(t, events.Portal{Name: "acme", Namespaces: []string{"acme"}})
	x := &installation{
		Server: s, intake: s.Connect(t, name.ServiceIntake, ""), operator: s.Connect(t, events.UserOperator, "").JetStream(),
		theirs: events.Tenant("default", "demo"), own: events.Tenant("acme", "demo"),
	}
	ctx := t.Context()
	for _, key := range []events.Key{x.theirs, x.own} {
		must(t, x.intake.CreateBucket(ctx, key))
		for _, service := range name.Services() {
			_, err := s.Connect(t, service, "").WriteState(ctx, key, events.StateKey(service), &state.State{UID: "uid", Step: service}, 0)
			must(t, err)
		}
		status := s.Connect(t, name.ServiceStatus, "")
		_, err := status.Publish(ctx, key.StatusSubject(), status.NewEvent(key, key.Namespace, event.FactType(name.ServiceStatus, event.Changed), nil, time.Now()))
		must(t, err)
	}
	must(t, x.intake.Tell(ctx, x.theirs, 1, "fact", event.Accepted, nil))
	_, err := x.intake.PublishMsg(ctx, nats.NewMsg(x.theirs.DeadSubject(name.ServiceIntake)))
	must(t, err)
	return x
}

// world is how many messages each stream has ever had and has, but those the attackers may write to.
func (x *installation) world(t *testing.T) map[string]string {
	t.Helper()
	w := map[string]string{}
	list := x.operator.ListStreams(t.Context())
	for s := range list.Info() {
		w[s.Config.Name] = fmt.Sprintf("%d messages up to %d", s.State.Msgs, s.State.LastSeq)
	}
	must(t, list.Err())
	for _, service := range name.Services() {
		bucket := x.theirs.Bucket()
		m, err := x.operator.Conn().Request("$JS.API.DIRECT.GET.KV_"+bucket+".$KV."+bucket+"."+events.StateKey(service), nil, time.Minute)
		must(t, err)
		w["state of "+service] = string(m.Data)
	}
	m, err := x.operator.Conn().Request(x.theirs.LastStatusSubject(), nil, time.Minute)
	must(t, err)
	w["status"] = m.Header.Get("ce-id") + string(m.Data)
	return w
}

// targets are reply subjects that an attacker would like the server to publish on.
func (x *installation) targets() map[string]string {
	return map[string]string{
		"the dead letters are emptied":               "$JS.API.STREAM.PURGE." + events.StreamDead,
		"the facts are deleted":                      "$JS.API.STREAM.DELETE." + events.StreamFacts,
		"another tenant's spec is overwritten":       "$KV." + x.theirs.Bucket() + ".spec",
		"a service's state is overwritten":           "$KV." + x.theirs.Bucket() + ".workload",
		"another tenant's status is forged":          x.theirs.StatusSubject(),
		"a command is given":                         x.theirs.CommandSubject(),
		"a fact is told":                             x.theirs.FactSubject(name.ServiceWorkload, event.Removed),
		"the answer to another's command is forged":  x.theirs.AnswerSubject("x"),
		"a command is kept from being carried out":   "$KV." + events.BucketCommands + "." + events.ID("default", "/portal", "1"),
		"an event that others work on is taken away": "$JS.ACK." + events.StreamFacts + ".status-0.1.1.1.1.1",
	}
}

// attack publishes with each target as the reply subject, and reports what came of it. replies says that the server must see a
// reply to the subject, or the attack attacks nothing.
func (x *installation) attack(t *testing.T, nc *nats.Conn, subject string, data string) {
	t.Helper()
	sub, err := nc.SubscribeSync(nc.NewInbox())
	must(t, err)
	must(t, nc.PublishRequest(subject, sub.Subject, []byte(data)))
	natstest.Next(t, "an answer to "+subject, sub)
	for sentence, target := range x.targets() {
		heard, err := x.operator.Conn().SubscribeSync(target)
		must(t, err)
		must(t, x.operator.Conn().Flush())
		before := x.world(t)
		must(t, nc.PublishRequest(subject, target, []byte(data)))
		// The server has dealt with it once it has answered the same question, asked after it.
		must(t, nc.PublishRequest(subject, sub.Subject, []byte(data)))
		natstest.Next(t, "another answer to "+subject, sub)
		must(t, x.operator.Conn().Flush())
		after := x.world(t)
		if n, _, _ := heard.Pending(); n > 0 {
			t.Errorf("%s by a reply to %s", sentence, subject)
		}
		for what, was := range before {
			// The question itself may be a command or a state.
			if after[what] != was && what != x.streamOf(subject) {
				t.Errorf("%s by a reply to %s: %s was %s, is %s", sentence, subject, what, was, after[what])
			}
		}
		must(t, heard.Unsubscribe())
	}
}

// streamOf a subject that is published on.
func (x *installation) streamOf(subject string) string {
	for _, key := range []events.Key{x.own, x.theirs} {
		switch subject {
		case key.CommandSubject():
			return events.StreamIntake
		case "$KV." + key.Bucket() + ".certs":
			return "KV_" + key.Bucket()
		case key.FactSubject(name.ServiceCerts, event.Issued):
			return events.StreamFacts
		}
	}
	return ""
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func TestAPortalCanNotHaveTheServerPublishElsewhere(t *testing.T) {
	t.Parallel()
	x := attacked(t)
	acme := x.Connect(t, "acme", "").Conn()
	x.attack(t, acme, x.own.LastStatusSubject(), "")
	x.attack(t, acme, events.Tenant("acme", "none").LastStatusSubject(), "")
	x.attack(t, acme, x.own.CommandSubject(), "{}")
}

func TestAServiceCanNotHaveTheServerPublishElsewhere(t *testing.T) {
	t.Parallel()
	x := attacked(t)
	certs := x.Connect(t, name.ServiceCerts, "").Conn()
	direct := "$JS.API.DIRECT.GET.KV_" + x.own.Bucket() + ".$KV." + x.own.Bucket()
	x.attack(t, certs, "$KV."+x.own.Bucket()+".certs", `{"uid":"uid","step":"a command, or another's state"}`)
	x.attack(t, certs, direct+".certs", "")
	x.attack(t, certs, direct+".spec", "")
	x.attack(t, certs, x.own.FactSubject(name.ServiceCerts, event.Issued), "")
	x.attack(t, certs, "$JS.API.STREAM.INFO."+events.StreamFacts, "")
	x.attack(t, certs, "$JS.API.CONSUMER.INFO."+events.StreamFacts+".certs-3", "")
	x.attack(t, certs, "$JS.API.CONSUMER.MSG.NEXT."+events.StreamFacts+"."+events.Consumer(name.ServiceCerts, x.theirs.Partition()),
		`{"batch":1,"no_wait":true,"group":"replicas"}`)
}

func TestAPortalDoesWhatItMayAndNothingElse(t *testing.T) {
	t.Parallel()
	x := attacked(t)
	portal := x.Connect(t, "acme", "")
	acme := portal.Conn()
	for _, subject := range []string{x.own.CommandSubject(), x.own.LastStatusSubject()} {
		if m, err := acme.Request(subject, nil, time.Minute); err != nil || m.Header.Get("Status") != "" {
			t.Errorf("%s is not answered: %v", subject, err)
		}
	}
	for _, subject := range []string{x.theirs.CommandSubject(), x.theirs.LastStatusSubject(), events.DataStore("main").CommandSubject(),
		"$JS.API.STREAM.INFO." + events.StreamStatus, "$JS.API.STREAM.CREATE.MINE", "$JS.API.CONSUMER.CREATE." + events.StreamStatus,
		"$JS.API.DIRECT.GET." + events.StreamStatus, "stoker.status.get", "$SYS.REQ.SERVER.PING"} {
		denied(t, portal, nats.NewMsg(subject))
	}
	heard := map[string]*nats.Subscription{}
	for _, subject := range []string{"stoker.status.acme.*", "stoker.answer.acme.*", "stoker.status.*.*", "stoker.answer.*.*", "stoker.answer.-.x", ">"} {
		sub, err := acme.SubscribeSync(subject)
		must(t, err)
		heard[subject] = sub
	}
	must(t, acme.Flush())
	status := x.Connect(t, name.ServiceStatus, "")
	for _, key := range []events.Key{x.theirs, x.own} {
		must(t, x.intake.Answer(key.AnswerSubject("x"), key, "a", event.Accepted, nil))
		must(t, x.intake.Conn().Flush())
		_, err := status.Publish(t.Context(), key.StatusSubject(), status.NewEvent(key, key.Namespace+" again", event.FactType(name.ServiceStatus, event.Changed), nil, time.Now()))
		must(t, err)
	}
	for _, subject := range []string{"stoker.status.acme.*", "stoker.answer.acme.*"} {
		if m := natstest.Next(t, subject, heard[subject]); m.Header.Get("ce-subject") != "acme/demo" {
			t.Errorf("%s: %v", subject, m.Header)
		}
	}
	must(t, acme.Flush())
	for subject, sub := range heard {
		if n, _, err := sub.Pending(); n > 0 && err == nil {
			t.Errorf("hears %d more on %s", n, subject)
		}
	}
}

// denied sends a message as a user whom the server must not let, by its own word: that no answer comes says nothing.
func denied(t *testing.T, b *events.Bus, m *nats.Msg) {
	t.Helper()
	must(t, b.Conn().PublishMsg(m))
	must(t, b.Conn().Flush()) // the server has read it, and its word has come
	err := b.Conn().LastError()
	if !errors.Is(err, nats.ErrPermissionViolation) || !strings.Contains(err.Error(), fmt.Sprintf("%q", m.Subject)) {
		t.Errorf("%s publishes on %s: %v", b.Config().User, m.Subject, err)
	}
}

func TestNoServiceMakesAConsumer(t *testing.T) {
	t.Parallel()
	x := attacked(t)
	request := func(stream string) *nats.Msg {
		m := nats.NewMsg("$JS.API.CONSUMER.CREATE." + stream + ".push")
		m.Data = fmt.Appendf(nil, `{"stream_name":%q,"action":"","config":{"name":"push","deliver_subject":"push.x","ack_policy":"none","mem_storage":true}}`, stream)
		return m
	}
	streams := []string{events.StreamFacts, "KV_" + events.BucketLeases, "KV_" + x.theirs.Bucket()}
	for _, service := range name.Services() {
		if service == name.ServiceIntake { // makes all of them
			continue
		}
		b := x.Connect(t, service, "")
		for _, stream := range streams {
			denied(t, b, request(stream))
		}
	}
	for _, stream := range streams { // the same request, of one who may
		m, err := x.intake.Conn().RequestMsgWithContext(t.Context(), request(stream))
		must(t, err)
		var made struct {
			Name  string
			Error *jetstream.APIError
		}
		must(t, json.Unmarshal(m.Data, &made))
		if made.Name != "push" || made.Error != nil {
			t.Errorf("intake makes none of %s: %s", stream, m.Data)
		}
	}
}

// rollupNotPermitted is the server's code for the refusal (JSStreamRollupFailedF); nats.go has no name for it.
const rollupNotPermitted jetstream.ErrorCode = 10111

func TestNoServiceEmptiesWhatIsNotItsOwnByAHeader(t *testing.T) {
	t.Parallel()
	x := attacked(t)
	certs := x.Connect(t, name.ServiceCerts, "")
	before := x.world(t)
	for _, subject := range []string{"$KV." + x.theirs.Bucket() + ".certs", "$KV." + events.BucketLeases + ".certs.x", x.theirs.DeadSubject(name.ServiceCerts)} {
		m := nats.NewMsg(subject)
		m.Header.Set(jetstream.MsgRollup, jetstream.MsgRollupAll)
		var refused *jetstream.APIError
		if _, err := certs.PublishMsg(t.Context(), m); !errors.As(err, &refused) || refused.ErrorCode != rollupNotPermitted {
			t.Errorf("rollup of %s: %v", subject, err)
		}
	}
	for what, is := range x.world(t) {
		if before[what] != is {
			t.Errorf("%s was %s, is %s", what, before[what], is)
		}
	}
}

func TestTheOperatorHearsWhatServicesAreAsked(t *testing.T) {
	t.Parallel()
	x := attacked(t)
	for _, service := range []string{name.ServiceDatastore, name.ServiceStatus} {
		b := x.Connect(t, service, "")
		stop, err := b.AnswerQuestions(t.Context(), events.Questions{Service: service, Version: "1.0.0", Description: "a test"})
		must(t, err)
		defer stop()
		must(t, b.Conn().Flush())
	}
	nc := x.operator.Conn()
	sub, err := nc.SubscribeSync(nc.NewInbox())
	must(t, err)
	must(t, nc.PublishRequest("$SRV.PING", sub.Subject, nil))
	for range 2 {
		natstest.Next(t, "the answer of each service", sub)
	}
}
