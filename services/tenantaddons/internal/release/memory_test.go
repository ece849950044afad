package release

import (
	"runtime"
	"testing"

	"github.com/stoker-k8s/stoker/pkg/kube"
)

// What a tenant costs whose release is watched: nine kinds, ten objects and CRDs, as everything has. A replica has as many as it has tenants.
func TestWatchedTenantIsSmall(t *testing.T) {
	const tenants, most = 20, 600 << 10
	id := newID()
	if _, err := open(t, kube.Options{}).Install(t.Context(), everything(t, id, false)); err != nil {
		t.Fatal(err)
	}
	heap := func() (int64, int) { // signed: there may be less afterwards than before
		var m runtime.MemStats
		for range 3 {
			runtime.GC()
		}
		runtime.ReadMemStats(&m)
		return int64(m.HeapAlloc + m.StackInuse), runtime.NumGoroutine()
	}
	before, running := heap()
	all := make([]*watched, tenants)
	for i := range all {
		c := open(t, kube.Options{})
		in, err := c.Read(t.Context(), id)
		if err != nil {
			t.Fatal(err)
		}
		all[i] = watching(t, c, in)
		all[i].settle(t)
	}
	after, runningThen := heap()
	each := (after - before) / tenants
	t.Logf("a watched tenant costs %d KB and %d goroutines", each>>10, (runningThen-running)/tenants)
	if each > most {
		t.Errorf("that is more than %d KB", most>>10)
	}
	unwatched := make([]*Cluster, tenants)
	before, _ = heap()
	for i := range unwatched {
		unwatched[i] = open(t, kube.Options{})
		if _, err := unwatched[i].Install(t.Context(), everything(t, id, false)); err != nil {
			t.Fatal(err)
		}
	}
	after, _ = heap()
	t.Logf("a tenant that isn't watched, after an installation, costs %d KB", (after-before)>>10/tenants)
	runtime.KeepAlive(unwatched)
}
