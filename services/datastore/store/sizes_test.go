package store

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/stoker-k8s/stoker/pkg/api/name"
	"github.com/stoker-k8s/stoker/pkg/api/reason"
	"github.com/stoker-k8s/stoker/pkg/api/state"
	"github.com/stoker-k8s/stoker/pkg/api/v1alpha1"
	"github.com/stoker-k8s/stoker/pkg/events"
	"github.com/stoker-k8s/stoker/pkg/kube"
	"github.com/stoker-k8s/stoker/pkg/loop"
	"github.com/stoker-k8s/stoker/services/datastore/driver"
)

// weighed is a driver whose tenants' sizes the test says.
type weighed struct {
	*line
	sizes map[string]driver.Size
	warns string
}

func (w *weighed) Sizes(context.Context) (map[string]driver.Size, error) { return w.sizes, nil }
func (w *weighed) Warning(context.Context) (why, message string)         { return w.warns, w.warns }

func TestADataStoreIsCheckedWhenWhatItWarnsOfIsAnother(t *testing.T) {
	_, st := newWorld(func() error { return nil })
	d := &weighed{line: &line{check: func() error { return nil }}, sizes: map[string]driver.Size{}}
	st.of.drivers[v1alpha1.DriverEtcd] = testKind(func(driver.Config) (driver.Driver, error) { return d, nil })
	if _, opened, err := st.Load(t.Context()); opened != nil || err != nil {
		t.Fatal(opened, err)
	}
	st.concerns(true)
	checks := 0
	st.of.wake = func(key events.Key, w loop.Wake) {
		if key == events.DataStore(st.Name) && w.Kind == WakeDataStore {
			checks++
		}
	}
	measured := func(want int) {
		t.Helper()
		checks = 0
		if st.measure(t.Context()); checks != want {
			t.Errorf("checked %d times, want %d", checks, want)
		}
		st.NoteWarning(d.warns)
	}
	measured(0)
	d.warns = reason.EtcdFull
	measured(1)
	measured(0)
	d.warns = ""
	measured(1)
}

// ofTenants counts the series about what tenants hold.
func ofTenants(series map[string]int) (n int) {
	for _, what := range []string{"tenant_bytes", "tenant_keys", "schema_bytes", "schema_keys"} {
		n += series["stoker_datastore_"+what]
	}
	return n
}

func TestSizes(t *testing.T) {
	sizes := map[string]driver.Size{}
	for n := range 15 {
		sizes[fmt.Sprintf("schema%02d", n)] = driver.Size{Bytes: int64(n) << 20, Keys: int64(100 * n)}
	}
	_, st := newWorld(func() error { return nil })
	st.of.drivers[v1alpha1.DriverEtcd] = testKind(func(driver.Config) (driver.Driver, error) {
		return &weighed{line: &line{check: func() error { return nil }}, sizes: sizes}, nil
	})
	if _, opened, err := st.Load(t.Context()); opened != nil || err != nil {
		t.Fatal(opened, err)
	}
	registry, now := prometheus.NewPedanticRegistry(), time.Now()
	st.of.Register(registry, registry, false)
	series := func() (names map[string]int, told string) {
		t.Helper()
		families, err := registry.Gather()
		if err != nil {
			t.Fatal(err)
		}
		names = map[string]int{}
		for _, f := range families {
			names[f.GetName()] = len(f.GetMetric())
			told += f.String()
		}
		return names, told
	}
	if names, _ := series(); names["stoker_datastore_up"] != 1 || names["stoker_datastore_check_seconds"] != 0 || ofTenants(names) != 0 {
		t.Errorf("unmeasured, it shows %v", names)
	}
	if err := st.Ping(t.Context()); err != nil {
		t.Fatal(err)
	}
	if names, _ := series(); names["stoker_datastore_check_seconds"] != 1 {
		t.Errorf("once it has answered, it shows %v", names)
	}
	if !st.unmeasured(now) {
		t.Error("it is not to be measured")
	}
	st.of.now = func() time.Time { return now }
	st.measure(t.Context())
	if st.unmeasured(now.Add(sampleEvery-time.Second)) || !st.unmeasured(now.Add(sampleEvery)) {
		t.Error("it is measured at other times than every five minutes")
	}
	if names, _ := series(); names["stoker_datastore_tenant_bytes"] != 0 {
		t.Errorf("of a DataStore that another replica works on, it shows %v", names)
	}
	if st.concerns(false) || !st.concerns(true) {
		t.Error("without tenants, it concerns this replica only if it works on it")
	}
	names, told := series()
	if names["stoker_datastore_tenant_bytes"] != 1 || names["stoker_datastore_schema_bytes"] != largest || strings.Contains(told, "schema04") || !strings.Contains(told, "schema05") {
		t.Errorf("it shows %v: %s", names, told)
	}
	o := metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{Name: "one", Annotations: map[string]string{name.AnnotationTenantMetrics: "true"}}}
	st.Observe(kube.Change{Object: &o}, now)
	if names, _ := series(); names["stoker_datastore_schema_bytes"] != 15 || names["stoker_datastore_schema_keys"] != 15 {
		t.Errorf("with the annotation it shows %v", names)
	}
	st.noteSizes(nil, time.Time{})
	st.concerns(false)
	if names, _ := series(); names["stoker_datastore_check_seconds"] != 1 || ofTenants(names) != 0 {
		t.Errorf("measured by another replica, it shows %v", names)
	}
}

func TestWhatTenantsHoldIsToldWhenItChangesNotably(t *testing.T) {
	w, st := newWorld(func() error { return nil })
	d := &weighed{line: &line{check: func() error { return nil }}, sizes: map[string]driver.Size{"s": {Bytes: 3 << 20, Keys: 300}, "other": {Bytes: 1 << 20, Keys: 10}}}
	st.of.drivers[v1alpha1.DriverEtcd] = testKind(func(driver.Config) (driver.Driver, error) { return d, nil })
	if _, opened, err := st.Load(t.Context()); opened != nil || err != nil {
		t.Fatal(opened, err)
	}
	key, clock := events.Tenant("default", "t"), time.Now().Add(time.Minute)
	own := state.Datastore{DataStore: "one", Schema: "s"}
	if err := st.Ping(t.Context()); err != nil {
		t.Fatal(err)
	}
	st.AddTenant(key)
	st.NoteAccount(key, own)
	if !st.unmeasured(clock) {
		t.Error("it is not to be measured")
	}
	met := time.Now()
	st.noteSizes(d.sizes, met)
	if early := st.grown(met); len(early) > 0 {
		t.Error("it is measured before it can have written anything")
	}
	ripe := met.Add(sampleNew + time.Second)
	if st.unmeasured(met.Add(sampleNew-time.Second)) || !st.unmeasured(ripe) {
		t.Error("a tenant that is new is measured at another time than once it can have written something")
	}
	st.noteSizes(d.sizes, ripe)
	if st.unmeasured(ripe.Add(sampleEvery - time.Second)) {
		t.Error("a tenant of which the database knows nothing yet is asked for again and again")
	}
	woken := func() (n int) {
		w.mu.Lock()
		defer w.mu.Unlock()
		for _, k := range w.woken {
			if k == key.String() {
				n++
			}
		}
		w.woken = nil
		return n
	}
	woken()
	for _, step := range []struct {
		sentence string
		size     driver.Size
		news     bool
	}{
		{"the first time", driver.Size{Bytes: 3 << 20, Keys: 300}, true},
		{"the same again is none", driver.Size{Bytes: 3 << 20, Keys: 300}, false},
		{"a tenth that is little is none", driver.Size{Bytes: 3<<20 + 400<<10, Keys: 900}, false},
		{"a megabyte more is", driver.Size{Bytes: 4 << 20, Keys: 300}, true},
		{"a thousand keys more are", driver.Size{Bytes: 4 << 20, Keys: 1300}, true},
		{"a thousand fewer, too", driver.Size{Bytes: 4 << 20, Keys: 300}, true},
		{"much more is", driver.Size{Bytes: 4 << 30, Keys: 300}, true},
		{"a megabyte of much is none", driver.Size{Bytes: 4<<30 + 1<<20, Keys: 300}, false},
	} {
		d.sizes["s"] = step.size
		st.of.now = func() time.Time { return clock }
		st.measure(t.Context())
		if n := woken(); (n == 1) != step.news || n > 1 {
			t.Errorf("%s: woken %d times", step.sentence, n)
		}
		if news := st.TakeSize(&own); news != step.news {
			t.Errorf("%s: told %v", step.sentence, news)
		}
		if step.news && (own.Bytes != step.size.Bytes || own.Keys != step.size.Keys || !own.MeasuredAt.Equal(clock)) {
			t.Errorf("%s: %+v", step.sentence, own)
		}
		st.NoteAccount(key, own)
	}
	st.NoteAccount(key, state.Datastore{DataStore: "another", Schema: "s"})
	if len(st.grown(clock)) > 0 || st.unmeasured(clock) {
		t.Error("what it holds where its overrides are is news")
	}
	st.NoteAccount(key, own)
	if unknown := (state.Datastore{Schema: "new"}); st.TakeSize(&unknown) {
		t.Error("one that wasn't there is measured")
	}
	if st.unmeasured(clock.Add(sampleEvery-time.Second)) || !st.unmeasured(clock.Add(sampleEvery)) {
		t.Error("once all were measured, it is measured at other times than every five minutes")
	}
	if st.Usage() != nil {
		t.Error("another replica works on the DataStore")
	}
	st.concerns(true)
	u := st.Usage()
	if u == nil || u.Bytes != 4<<30+2<<20 || u.Keys != 310 || !u.MeasuredAt.Time.Equal(clock.Truncate(time.Second)) {
		t.Errorf("the DataStore's usage is %+v", u)
	}
}

func TestNewsOfADataStore(t *testing.T) {
	usage := func(bytes, keys, latency int64) *v1alpha1.DataStoreUsage {
		return &v1alpha1.DataStoreUsage{
			StorageUsage: v1alpha1.StorageUsage{Bytes: bytes, Keys: keys, MeasuredAt: metav1.Now()}, LatencyMilliseconds: latency,
		}
	}
	for sentence, c := range map[string]struct {
		was, is *v1alpha1.DataStoreUsage
		news    bool
	}{
		"nothing known":               {},
		"not measured by this one":    {was: usage(1, 1, 1)},
		"the first time":              {is: usage(0, 0, 1), news: true},
		"the same":                    {was: usage(1<<30, 1e5, 3), is: usage(1<<30, 1e5, 4)},
		"a tenth of much":             {was: usage(10<<30, 1e5, 3), is: usage(11<<30, 1e5, 4), news: true},
		"less":                        {was: usage(10<<30, 1e5, 3), is: usage(5<<30, 1e5, 4), news: true},
		"slow, then as slow":          {was: usage(1, 1, 100), is: usage(1, 1, 150)},
		"slow":                        {was: usage(1, 1, 3), is: usage(1, 1, 150), news: true},
		"quick again":                 {was: usage(1, 1, 150), is: usage(1, 1, 3), news: true},
		"quick, in different degrees": {was: usage(1, 1, 1), is: usage(1, 1, 19)},
	} {
		t.Run(sentence, func(t *testing.T) {
			if got := UsageChanged(c.was, c.is); got != c.news {
				t.Error(got)
			}
		})
	}
	for took, want := range map[time.Duration]int64{0: 0, time.Microsecond: 1, time.Millisecond: 1, 1001 * time.Microsecond: 2} {
		if got := milliseconds(took); got != want {
			t.Error(took, got)
		}
	}
}
