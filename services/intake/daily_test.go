package intake

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/stoker-k8s/stoker/local/natsserver"
	"github.com/stoker-k8s/stoker/pkg/api/event"
	"github.com/stoker-k8s/stoker/pkg/api/name"
	"github.com/stoker-k8s/stoker/pkg/api/state"
	"github.com/stoker-k8s/stoker/pkg/events"
	"github.com/stoker-k8s/stoker/pkg/loop"
	"github.com/stoker-k8s/stoker/pkg/partition"
)

func TestDailyLooks(t *testing.T) {
	var tenants []events.Key
	for i := range 600 {
		tenants = append(tenants, events.Tenant("default", fmt.Sprint("t", i)))
	}
	var d daily
	now := time.Date(2026, 11, 22, 12, 0, 0, 0, time.UTC)
	t.Run("after a start all are looked at within an hour, a few each minute", func(t *testing.T) {
		looked := map[events.Key]int{}
		for minute := range 60 {
			due := d.due(tenants, now.Add(time.Duration(minute)*time.Minute))
			if len(due) > 10 {
				t.Fatalf("%d at once", len(due))
			}
			for _, key := range due {
				looked[key]++
				d.note(key, now.Add(time.Duration(minute)*time.Minute))
			}
		}
		if len(looked) != len(tenants) {
			t.Errorf("%d of %d were looked at", len(looked), len(tenants))
		}
		for key, n := range looked {
			if n != 1 {
				t.Errorf("%s was looked at %d times", key, n)
			}
		}
	})
	t.Run("then each once within a day", func(t *testing.T) {
		looked := map[events.Key]int{}
		for minute := 60; minute < 24*60+60; minute++ {
			at := now.Add(time.Duration(minute) * time.Minute)
			for _, key := range d.due(tenants, at) {
				looked[key]++
				d.note(key, at)
			}
		}
		for _, key := range tenants {
			if looked[key] == 0 || looked[key] > 2 {
				t.Errorf("%s was looked at %d times", key, looked[key])
			}
		}
	})
	t.Run("one of which nothing came is due again", func(t *testing.T) {
		var d daily
		one := tenants[:1]
		if got := len(d.due(one, now)); got != 1 {
			t.Fatal(got)
		}
		if got := len(d.due(one, now.Add(time.Minute))); got != 0 {
			t.Errorf("at once")
		}
		if got := len(d.due(one, now.Add(time.Hour))); got != 1 {
			t.Errorf("not within an hour")
		}
	})
	t.Run("DataStores are among them, those of the partitions that are held", func(t *testing.T) {
		var x index
		x.reset()
		tenant, dataStore := events.Tenant("default", "demo"), events.DataStore("default")
		x.see(tenant, seen{ours: true})
		x.know(dataStore.Name, &store{})
		var d daily
		if all := x.ours([]int{tenant.Partition(), dataStore.Partition()}); len(all) != 2 {
			t.Errorf("%v", all)
		}
		one := x.ours([]int{dataStore.Partition()})
		if due := d.due(one, now); !slices.Contains(due, dataStore) {
			t.Errorf("%v are looked at", due)
		}
		d.note(dataStore, now)
		if due := d.due(one, now.Add(time.Hour)); len(due) > 0 {
			t.Errorf("%v are looked at after an hour", due)
		}
		if due := d.due(one, now.Add(24*time.Hour)); !slices.Contains(due, dataStore) {
			t.Error("it isn't looked at after a day")
		}
	})
	t.Run("one that is gone is forgotten", func(t *testing.T) {
		if d.due(nil, now); len(d.next) != 0 {
			t.Errorf("%d are left", len(d.next))
		}
	})
	t.Run("a look that a clock noted which was a day ahead puts off none", func(t *testing.T) {
		var d daily
		if !d.over(tenants[0], now.Add(24*time.Hour), now) {
			t.Error("it isn't looked at before that clock's day has come, and another one has passed")
		}
		if d.over(tenants[0], now.Add(time.Second), now) {
			t.Error("clocks that differ by a second make a look")
		}
	})
	t.Run("what was looked at a day ago is looked at, and what was looked at just now isn't", func(t *testing.T) {
		var d daily
		if !d.over(tenants[0], now.Add(-24*time.Hour), now) {
			t.Error("a day ago")
		}
		if d.over(tenants[0], now, now) {
			t.Error("just now")
		}
	})
}

func TestWhatIsHeldIsWokenForItsDailyLookOnceAllIsListed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var s svc
		s.index.reset()
		held := events.Tenant("default", "demo")
		for _, key := range []events.Key{held, events.Tenant("default", "elsewhere")} {
			s.index.see(key, seen{ours: true})
		}
		woken := make(chan struct{}, 10)
		ctx, end := context.WithCancel(t.Context())
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			s.lookDaily(ctx, partition.Of(held.Partition()), func(key events.Key, w loop.Wake) {
				if key != held || w != (loop.Wake{Kind: wakeDaily}) {
					t.Errorf("%s is woken: %+v", key, w)
				}
				woken <- struct{}{}
			})
		}()
		after := func(d time.Duration, times int) {
			t.Helper()
			time.Sleep(d) //nolint:forbidigo // by the clock of synctest
			if synctest.Wait(); len(woken) != times {
				t.Fatalf("woken %d times, not %d", len(woken), times)
			}
		}
		after(90*time.Second, 0)
		s.index.listed(event.DataStores)
		s.index.listed(event.TenantControlPlanes)
		after(time.Second, 1)
		after(59*time.Minute, 1)
		after(time.Minute, 2) // nothing came of it
		end()
		<-ended
	})
}

// looks are daily looks on a NATS server, with a sync that counts.
type looks struct {
	*testing.T
	svc
	nats   *natsserver.Server
	facts  jetstream.Stream
	synced int
	failed error // what sync returns
}

func newLooks(t *testing.T) *looks {
	t.Helper()
	l := &looks{T: t}
	var err error
	if l.nats, err = natsserver.Start(t.Context(), t.TempDir(), "127.0.0.1:-1", nil); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(l.nats.Stop)
	l.bus = l.connect()
	if err := l.bus.Provision(t.Context()); err != nil {
		t.Fatal(err)
	}
	if l.facts, err = l.bus.JetStream().Stream(t.Context(), events.StreamFacts); err != nil {
		t.Fatal(err)
	}
	return l
}

func (l *looks) connect() *events.Bus {
	l.Helper()
	bus, err := events.Connect(events.Config{
		URL: l.nats.URL(), User: name.ServiceIntake, SeedFile: l.nats.SeedFile(name.ServiceIntake), Replica: "a",
		RequestTimeout: 30 * time.Second,
	})
	if err != nil {
		l.Fatal(err)
	}
	l.Cleanup(bus.Close)
	return bus
}

// look is a turn of an object now; synced and told say whether it was looked at, and the others were told to.
func (l *looks) look(key events.Key, tenant *state.Tenant, wakes ...loop.Wake) (synced, told bool, err error) {
	l.Helper()
	had, counted := l.told(key), l.synced
	err = l.dailyLook(l.Context(), &loop.Turn{Key: key, UID: "u", Generation: 1, Tenant: tenant, Wakes: wakes}, time.Now(),
		func(context.Context, *loop.Turn, time.Time) error { l.synced++; return l.failed })
	return l.synced > counted, l.told(key) > had, err
}

// told counts what was told of an object.
func (l *looks) told(key events.Key) int {
	l.Helper()
	info, err := l.facts.Info(l.Context(), jetstream.WithSubjectFilter(key.FactSubject(name.ServiceIntake, event.Checked)))
	if err != nil {
		l.Fatal(err)
	}
	return int(info.State.Subjects[key.FactSubject(name.ServiceIntake, event.Checked)])
}

// lookedAt tells of a look at a time.
func (l *looks) lookedAt(key events.Key, at time.Time) {
	l.Helper()
	subject := key.FactSubject(name.ServiceIntake, event.Checked)
	f := state.Fact{ID: fmt.Sprint(key, at), What: event.Checked, Time: at, Data: event.Marshal(event.IntakeChecked{})}
	msg := events.Encode(subject, l.bus.FactEvent(key, 1, "", f))
	msg.Header.Del(nats.MsgIdHdr) // by which the server drops repeats
	if _, err := l.bus.JetStream().PublishMsg(l.Context(), msg); err != nil {
		l.Fatal(err)
	}
}

// forget purges what was told of an object.
func (l *looks) forget(key events.Key) {
	l.Helper()
	if err := l.facts.Purge(l.Context(), jetstream.WithPurgeSubject(key.FactSubject(name.ServiceIntake, event.Checked))); err != nil {
		l.Fatal(err)
	}
}

func TestADailyLook(t *testing.T) {
	l := newLooks(t)
	now := time.Now()
	before := now.Add(-48 * time.Hour)
	accepted := func(at time.Time) *state.Tenant {
		tenant := &state.Tenant{AcceptedAt: at, Seen: "1"}
		tenant.Spec.DataStore = "default"
		return tenant
	}
	news, none := loop.Wake{Kind: wakeTenant, Version: "2"}, loop.Wake{Kind: wakeDaily}
	for what, c := range map[string]struct {
		tenant       *state.Tenant // nil when it is gone
		looked       time.Time     // zero for not known
		wake         loop.Wake
		failed       error
		synced, told bool
	}{
		"a tenant that was accepted just now isn't looked at":         {tenant: accepted(now), wake: none},
		"nor one that was accepted now, and looked at before":         {tenant: accepted(now), looked: before, wake: none},
		"nor one that was accepted before, and looked at now":         {tenant: accepted(before), looked: now, wake: none},
		"what a watch saw of it is looked at, and not told to others": {tenant: accepted(now), wake: news, synced: true},
		"which may fail": {tenant: accepted(now), wake: news, failed: errors.New("no"), synced: true},
		"one that was accepted before is, and others are told": {tenant: accepted(before), wake: none, synced: true, told: true},
		"also if it was looked at long ago":                    {tenant: accepted(before), looked: before, wake: none, synced: true, told: true},
		"nobody is told of one that failed":                    {tenant: accepted(before), wake: none, failed: errors.New("no"), synced: true},
		"nor of a tenant that is gone":                         {wake: none, synced: true},
		"nor of one that is gone, when that failed":            {wake: none, failed: errors.New("no"), synced: true},
		"which is looked at also if it was just now":           {looked: now, wake: none, synced: true},
	} {
		t.Run(what, func(t *testing.T) {
			key := events.Tenant("default", "t"+events.ID(what))
			if !c.looked.IsZero() {
				l.lookedAt(key, c.looked)
			}
			l.failed = c.failed
			synced, told, err := l.look(key, c.tenant, c.wake)
			if synced != c.synced || told != c.told || !errors.Is(err, c.failed) {
				t.Errorf("looked at: %v, told: %v, %v", synced, told, err)
			}
		})
	}
	l.failed = nil
	dataStore := events.DataStore("default")
	t.Run("a DataStore whose last look isn't known is looked at, and is due again only after a day", func(t *testing.T) {
		l.daily.due([]events.Key{dataStore}, now)
		if synced, told, err := l.look(dataStore, nil); !synced || !told || err != nil {
			t.Errorf("looked at: %v, told: %v, %v", synced, told, err)
		}
		if due := l.daily.due([]events.Key{dataStore}, now.Add(2*time.Hour)); len(due) > 0 {
			t.Error("it is due after two hours")
		}
		if synced, told, err := l.look(dataStore, nil); synced || told || err != nil {
			t.Errorf("at once again: looked at: %v, told: %v, %v", synced, told, err)
		}
	})
	t.Run("a repeat of a look is dropped, but where the last isn't known none is taken for one", func(t *testing.T) {
		key := events.DataStore("repeated")
		for _, repeated := range []bool{false, true} {
			l.forget(key)
			l.lookedAt(key, before)
			if _, told, err := l.look(key, nil); told == repeated || err != nil {
				t.Errorf("repeated: %v, told: %v, %v", repeated, told, err)
			}
		}
		for range 2 {
			l.forget(key)
			if _, told, err := l.look(key, nil); !told || err != nil {
				t.Errorf("told: %v, %v", told, err)
			}
		}
	})
	t.Run("that NATS is away is an error, before the look and after it", func(t *testing.T) {
		key := events.DataStore("away")
		turn := &loop.Turn{Key: key}
		l.bus = l.connect()
		leave := func(context.Context, *loop.Turn, time.Time) error { l.bus.Close(); return nil }
		if err := l.dailyLook(t.Context(), turn, now, leave); err == nil {
			t.Error("after the look there is none")
		}
		never := func(context.Context, *loop.Turn, time.Time) error { t.Error("it is looked at"); return nil }
		if err := l.dailyLook(t.Context(), turn, now, never); err == nil {
			t.Error("before the look there is none")
		}
	})
}
