package events_test

import (
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/stoker-k8s/stoker/pkg/api/event"
	"github.com/stoker-k8s/stoker/pkg/events"
	"github.com/stoker-k8s/stoker/pkg/internal/testing/natstest"
)

func TestProvisionPutsRightWhatWasChangedByHand(t *testing.T) {
	t.Parallel()
	s := natstest.Start(t)
	in := s.Connect(t, "intake", "")
	st, err := in.JetStream().Stream(t.Context(), events.StreamFacts)
	if err != nil {
		t.Fatal(err)
	}
	seen, err := s.Connect(t, events.UserOperator, "").JetStream().Stream(t.Context(), events.StreamFacts)
	if err != nil {
		t.Fatal(err)
	}
	c, err := seen.Consumer(t.Context(), "certs-3")
	if err != nil {
		t.Fatal(err)
	}
	want, wantStream := c.CachedInfo().Config, st.CachedInfo().Config
	cfg := want
	cfg.AckWait, cfg.MaxAckPending, cfg.FilterSubjects = time.Hour, 1, []string{"stoker.fact.3.*.*.intake.accepted"}
	if _, err := st.UpdateConsumer(t.Context(), cfg); err != nil {
		t.Fatal(err)
	}
	if err := st.DeleteConsumer(t.Context(), "workload-7"); err != nil {
		t.Fatal(err)
	}
	changed := wantStream
	changed.MaxAge = time.Minute
	changed.Duplicates = time.Second
	if _, err := in.JetStream().UpdateStream(t.Context(), changed); err != nil {
		t.Fatal(err)
	}
	if err := in.Provision(t.Context()); err != nil {
		t.Fatal(err)
	}
	got := func(durable string) jetstream.ConsumerConfig {
		t.Helper()
		c, err := seen.Consumer(t.Context(), durable)
		if err != nil {
			t.Fatal(err)
		}
		return c.CachedInfo().Config
	}
	if g := got("certs-3"); g.AckWait != want.AckWait || g.MaxAckPending != want.MaxAckPending || len(g.FilterSubjects) != len(want.FilterSubjects) {
		t.Errorf("consumer certs-3 is %+v, want %+v", g, want)
	}
	got("workload-7")
	info, err := st.Info(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if info.Config.MaxAge != wantStream.MaxAge || info.Config.Duplicates != wantStream.Duplicates {
		t.Errorf("stream is %+v, want %+v", info.Config, wantStream)
	}
}

func TestWhatIsStoredIsBounded(t *testing.T) {
	t.Parallel()
	s := natstest.Start(t)
	in := s.Connect(t, "intake", "")
	key := events.Tenant("default", "demo")
	if err := in.CreateBucket(t.Context(), key); err != nil {
		t.Fatal(err)
	}
	list := in.JetStream().ListStreams(t.Context())
	for info := range list.Info() {
		c := info.Config
		if c.MaxMsgSize <= 0 || c.MaxMsgsPerSubject <= 0 || c.MaxBytes <= 0 && c.Name != "KV_"+key.Bucket() {
			t.Errorf("%s: %d bytes, %d messages a subject of %d bytes", c.Name, c.MaxBytes, c.MaxMsgsPerSubject, c.MaxMsgSize)
		}
		if c.AllowRollup && c.Name != events.StreamFacts { // schedules need it
			t.Errorf("%s is emptied by one message", c.Name)
		}
	}
	if err := list.Err(); err != nil {
		t.Fatal(err)
	}
}

func TestACommandTooManyIsRefusedAndNoneIsDropped(t *testing.T) {
	t.Parallel()
	s := natstest.Start(t)
	in, portal := s.Connect(t, "intake", ""), s.Connect(t, events.UserPortal, "")
	subject := events.Tenant("default", "demo").CommandSubject()
	stored := 0
	for range 300 {
		if _, err := portal.PublishMsg(t.Context(), nats.NewMsg(subject)); err != nil {
			break
		}
		stored++
	}
	info := func() jetstream.StreamState {
		t.Helper()
		st, err := in.JetStream().Stream(t.Context(), events.StreamIntake)
		if err != nil {
			t.Fatal(err)
		}
		return st.CachedInfo().State
	}
	if is := info(); stored != 256 || is.Msgs != 256 || is.FirstSeq != 1 {
		t.Errorf("%d were stored; the stream has %d from %d", stored, is.Msgs, is.FirstSeq)
	}
	if _, err := portal.PublishMsg(t.Context(), nats.NewMsg(events.Tenant("default", "other").CommandSubject())); err != nil {
		t.Errorf("about another tenant: %v", err)
	}
	c, err := in.JetStream().Consumer(t.Context(), events.StreamIntake, events.Consumer("intake", events.Tenant("default", "demo").Partition()))
	if err != nil {
		t.Fatal(err)
	}
	m := next(t, c)
	if err := m.DoubleAck(t.Context()); err != nil {
		t.Fatal(err)
	}
	natstest.Eventually(t, "what was carried out takes no room", func() bool { return info().Msgs == 256 })
	if _, err := portal.PublishMsg(t.Context(), nats.NewMsg(subject)); err != nil {
		t.Errorf("when one was carried out: %v", err)
	}
}

func TestACommandIsNotDroppedForAnIdThatSomebodyUsedBefore(t *testing.T) {
	t.Parallel()
	s := natstest.Start(t, events.Portal{Name: "acme", Namespaces: []string{"acme"}})
	acme, portal := s.Connect(t, "acme", ""), s.Connect(t, events.UserPortal, "")
	command := func(key events.Key) *nats.Msg {
		return events.Encode(key.CommandSubject(), portal.NewEvent(key, "order-1", event.TenantDelete, nil, time.Now()))
	}
	if _, err := acme.PublishMsg(t.Context(), command(events.Tenant("acme", "demo"))); err != nil {
		t.Fatal(err)
	}
	natstest.Eventually(t, "the server forgets the id", func() bool {
		duplicate, err := portal.PublishMsg(t.Context(), command(events.Tenant("default", "demo")))
		return err == nil && !duplicate
	})
}

func TestProvisionTakesOverWhatAVersionBeforeMade(t *testing.T) {
	t.Parallel()
	s := natstest.Start(t)
	in, portal := s.Connect(t, "intake", ""), s.Connect(t, events.UserPortal, "")
	js, key := in.JetStream(), events.Tenant("default", "demo")
	durable, err := js.Consumer(t.Context(), events.StreamIntake, events.Consumer("intake", key.Partition()))
	must(t, err)
	must(t, js.DeleteStream(t.Context(), events.StreamIntake))
	before := jetstream.StreamConfig{
		Name: events.StreamIntake, Subjects: []string{"stoker.intake.*.*.*"}, AllowDirect: true, Duplicates: 2 * time.Minute,
		SubjectTransform: &jetstream.SubjectTransformConfig{
			Source: "stoker.intake.*.*.*", Destination: "stoker.intake.{{partition(16,2,3)}}.{{wildcard(1)}}.{{wildcard(2)}}.{{wildcard(3)}}",
		},
	}
	st, err := js.CreateStream(t.Context(), before)
	must(t, err)
	bucket := jetstream.StreamConfig{Name: "KV_" + key.Bucket(), Subjects: []string{"$KV." + key.Bucket() + ".>"}, MaxMsgsPerSubject: 16, AllowRollup: true, DenyDelete: true}
	_, err = js.CreateStream(t.Context(), bucket)
	must(t, err)
	c, err := st.CreateConsumer(t.Context(), durable.CachedInfo().Config)
	must(t, err)
	for range 2 {
		_, err := portal.PublishMsg(t.Context(), nats.NewMsg(key.CommandSubject()))
		must(t, err)
	}
	m := next(t, c)
	must(t, m.DoubleAck(t.Context()))

	must(t, in.Provision(t.Context()))
	natstest.Eventually(t, "only the command that waits is left", func() bool {
		info, err := st.Info(t.Context())
		return err == nil && info.Config.Retention == jetstream.InterestPolicy && info.State.Msgs == 1
	})
	b, err := js.Stream(t.Context(), bucket.Name)
	must(t, err)
	if b.CachedInfo().Config.AllowRollup {
		t.Error("the bucket is emptied by one message")
	}
}

// next takes a message from a consumer.
func next(t *testing.T, c jetstream.Consumer) jetstream.Msg {
	t.Helper()
	batch, err := c.Fetch(1, jetstream.FetchPriorityGroup(events.PriorityGroup), jetstream.FetchMaxWait(time.Minute))
	must(t, err)
	m := <-batch.Messages()
	if m == nil {
		t.Fatal("no message: ", batch.Error())
	}
	return m
}
