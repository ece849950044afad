package intake

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/labels"

	"github.com/stoker-k8s/stoker/pkg/api/event"
	"github.com/stoker-k8s/stoker/pkg/events"
	"github.com/stoker-k8s/stoker/pkg/loop"
)

// newIndex is an index that knows everything there is.
func newIndex(names ...string) *index {
	x := &index{}
	x.fill(names...)
	return x
}

func (x *index) fill(names ...string) {
	x.reset()
	for _, n := range names {
		x.know(n, &store{ready: true})
	}
	x.listed(event.DataStores)
	x.listed(event.TenantControlPlanes)
}

func tenant(i int) events.Key { return events.Tenant("default", fmt.Sprintf("t%d", i)) }

func TestIndex(t *testing.T) {
	all := labels.Everything()
	give := func(t *testing.T, x *index, key events.Key, now time.Time) string {
		t.Helper()
		ds, missing, err := x.reserve(key, all, now)
		if err != nil || ds == "" {
			t.Fatal(missing, err)
		}
		return ds
	}
	t.Run("nobody is placed before everything is listed", func(t *testing.T) {
		x := &index{}
		x.reset()
		x.know("a", &store{ready: true})
		x.listed(event.DataStores)
		if _, _, err := x.reserve(tenant(1), all, clock); !errors.Is(err, errNotListed) {
			t.Error(err)
		}
		if !x.listed(event.TenantControlPlanes) {
			t.Error("both are listed")
		}
		give(t, x, tenant(1), clock)
	})
	t.Run("many at once spread, before the watch has shown any", func(t *testing.T) {
		x := newIndex("a", "b", "c")
		count := map[string]int{}
		for i := range 30 {
			count[give(t, x, tenant(i), clock)]++
		}
		if count["a"] != 10 || count["b"] != 10 || count["c"] != 10 {
			t.Error(count)
		}
	})
	t.Run("who asks again gets the same one, and what the watch shows counts once", func(t *testing.T) {
		x := newIndex("a", "b")
		first := give(t, x, tenant(1), clock)
		if again := give(t, x, tenant(1), clock); again != first {
			t.Error(first, again)
		}
		x.see(tenant(1), seen{dataStore: first, ours: true})
		x.see(tenant(1), seen{dataStore: first, ours: true})
		if x.used[first] != 1 || len(x.reservations) != 0 {
			t.Error(x.used, x.reservations)
		}
		x.drop(tenant(1))
		x.drop(tenant(1))
		if x.used[first] != 0 || len(x.usedBy(first)) != 0 {
			t.Error(x.used)
		}
	})
	t.Run("what was given to an object that never came is free again", func(t *testing.T) {
		x := newIndex("a", "b")
		give(t, x, tenant(1), clock)
		if ds := give(t, x, tenant(2), clock.Add(time.Minute)); ds != "a" {
			t.Error(ds, x.used)
		}
	})
	t.Run("a DataStore that no longer takes tenants is not given again", func(t *testing.T) {
		x := newIndex("a", "b")
		give(t, x, tenant(1), clock)
		x.know("a", &store{ready: true, deleting: true})
		if ds := give(t, x, tenant(1), clock); ds != "b" {
			t.Error(ds)
		}
	})
	t.Run("what was given counts against the limit, is asked for again without being full, and who doesn't come makes room", func(t *testing.T) {
		x := newIndex("a")
		x.know("a", &store{ready: true, limits: limitsOf(annotated("1", ""))})
		give(t, x, tenant(1), clock)
		give(t, x, tenant(1), clock)
		if ds, missing, err := x.reserve(tenant(2), all, clock); ds != "" || err != nil || !strings.Contains(missing, "full (1 of 1 tenants)") || !x.hasReservations() {
			t.Error(ds, missing, err)
		}
		give(t, x, tenant(2), clock.Add(time.Minute))
	})
	t.Run("the end of the tenant that filled a DataStore is noticed, of others not", func(t *testing.T) {
		x := newIndex("a")
		x.know("a", &store{ready: true, limits: limitsOf(annotated("2", ""))})
		for i := range 3 {
			x.see(tenant(i), seen{dataStore: "a", ours: true})
		}
		for i, want := range []bool{false, true, false} {
			x.drop(tenant(i))
			if got := x.wasFull("a"); got != want {
				t.Error(i, got)
			}
		}
	})
	t.Run("users are listed by name, tenants without a DataStore and DataStores to go are found", func(t *testing.T) {
		x := newIndex("a", "b")
		x.see(tenant(2), seen{dataStore: "a", ours: true})
		x.see(tenant(1), seen{dataStore: "a"}) // another installation's
		x.see(tenant(3), seen{ours: true})
		x.see(tenant(4), seen{})
		x.know("b", &store{deleting: true})
		if got := strings.Join(x.usedBy("a"), " "); got != "default/t1 default/t2" {
			t.Error(got)
		}
		if got := x.unplaced(); len(got) != 1 || got[0] != tenant(3) {
			t.Error(got)
		}
		if got := x.deleting(); len(got) != 1 || got[0] != "b" {
			t.Error(got)
		}
	})
	t.Run("overrides count as users of their DataStores, too, once", func(t *testing.T) {
		x := newIndex("a", "b", "c")
		x.see(tenant(1), seen{dataStore: "a", overrides: "a,b,c", ours: true})
		x.see(tenant(2), seen{overrides: "b", ours: true})
		if fmt.Sprint(x.used["a"], x.used["b"], x.used["c"]) != "1 2 1" || strings.Join(x.usedBy("b"), " ") != "default/t1 default/t2" {
			t.Error(x.used, x.usedBy("b"))
		}
		x.see(tenant(1), seen{dataStore: "a", ours: true})
		x.drop(tenant(2))
		if len(x.usedBy("b")) > 0 || x.used["b"] != 0 || x.used["a"] != 1 {
			t.Error(x.used, x.usedBy("b"))
		}
	})
	t.Run("a tenant that moves counts where it is", func(t *testing.T) {
		x := newIndex("a", "b")
		x.see(tenant(1), seen{dataStore: "a", ours: true})
		if before := x.see(tenant(1), seen{dataStore: "b", ours: true}); before.dataStore != "a" || x.used["a"] != 0 || x.used["b"] != 1 {
			t.Error(before, x.used)
		}
	})
}

// shown is the wake of a watch that showed a tenant with this fingerprint.
func shown(fingerprint string) loop.Wake { return loop.Wake{Kind: wakeTenant, Version: fingerprint} }

func TestEchoes(t *testing.T) {
	demo, other := events.Tenant("default", "demo"), events.Tenant("default", "other")
	var x index
	x.expect(demo, "early") // before the first watch
	for what, c := range map[string]struct {
		wakes [][]loop.Wake
		known []bool
	}{
		"what was accepted, once":   {[][]loop.Wake{{shown("b")}, {shown("b")}}, []bool{true, false}},
		"what was accepted before":  {[][]loop.Wake{{shown("a")}}, []bool{false}},
		"more than what was":        {[][]loop.Wake{{shown("b"), {Kind: wakeDataStores}}, {shown("b")}}, []bool{false, true}},
		"nothing that has to be":    {[][]loop.Wake{{shown("")}, {}}, []bool{false, false}},
		"that it is gone meanwhile": {[][]loop.Wake{{{Kind: wakeTenant, Gone: true}}}, []bool{false}},
	} {
		t.Run(what, func(t *testing.T) {
			x.reset()
			x.expect(demo, "a")
			x.expect(demo, "b")
			for i, r := range c.wakes {
				if x.known(other, r) {
					t.Errorf("%v of another", r)
				}
				if known := x.known(demo, r); known != c.known[i] {
					t.Errorf("%v: %t", r, known)
				}
			}
			x.drop(demo)
			if x.known(demo, []loop.Wake{shown("b")}) {
				t.Error("of a tenant that is gone")
			}
		})
	}
	x.expect(demo, "a")
	x.reset()
	if x.known(demo, []loop.Wake{shown("a")}) {
		t.Error("a watch that starts shows what may have changed meanwhile")
	}
}
