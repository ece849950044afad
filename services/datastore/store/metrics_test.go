package store

import (
	"fmt"
	"maps"
	"math"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/stoker-k8s/stoker/pkg/api/name"
	"github.com/stoker-k8s/stoker/pkg/api/reason"
	"github.com/stoker-k8s/stoker/pkg/api/state"
	"github.com/stoker-k8s/stoker/pkg/events"
	"github.com/stoker-k8s/stoker/services/datastore/driver"
)

// standingMetrics are those that say how a DataStore stands.
var standingMetrics = []string{
	"kamaji_datastore_info", "kamaji_datastore_status", "kamaji_datastores_current", "stoker_datastore_breaker_open", "stoker_datastore_tenants_waiting",
	"stoker_datastore_up",
}

func TestDataStoresAreShownAsTheyStand(t *testing.T) {
	var answer error
	_, st := newWorld(func() error { return answer })
	registry := prometheus.NewPedanticRegistry()
	st.of.Register(registry, registry, false)
	shows := func(what, want string) {
		t.Helper()
		if err := testutil.GatherAndCompare(registry, strings.NewReader(want), standingMetrics...); err != nil {
			t.Errorf("%s: %v", what, err)
		}
	}
	kamajis := func(status string) string {
		return strings.ReplaceAll(`# HELP kamaji_datastore_info What a DataStore is; always 1.
# TYPE kamaji_datastore_info gauge
kamaji_datastore_info{datastore_name="one",driver="etcd"} 1
# HELP kamaji_datastore_status Whether a DataStore can be used: True, False, or Unknown before it was tried; always 1.
# TYPE kamaji_datastore_status gauge
kamaji_datastore_status{datastore_name="one",ready="READY",status="`+status+`"} 1
# HELP kamaji_datastores_current DataStores, by whether they can be used; always 1.
# TYPE kamaji_datastores_current gauge
kamaji_datastores_current{datastore_name="one",driver="etcd",ready="READY"} 1
`, "READY", fmt.Sprint(status == "True"))
	}
	own := func(up, open, waiting int) string {
		return fmt.Sprintf(`# HELP stoker_datastore_breaker_open Whether this replica takes the database for away, and asks it now and then instead of at each turn.
# TYPE stoker_datastore_breaker_open gauge
stoker_datastore_breaker_open{datastore="one"} %d
# HELP stoker_datastore_tenants_waiting Tenants of this replica that wait for the DataStore to be there.
# TYPE stoker_datastore_tenants_waiting gauge
stoker_datastore_tenants_waiting{datastore="one"} %d
# HELP stoker_datastore_up Whether the database answered this replica last.
# TYPE stoker_datastore_up gauge
stoker_datastore_up{datastore="one"} %d
`, open, waiting, up)
	}
	shows("of a DataStore that isn't there", "")
	if _, opened, err := st.Load(t.Context()); opened != nil || err != nil {
		t.Fatal(opened, err)
	}
	shows("which another replica works on", own(0, 0, 0))
	st.concerns(true)
	shows("before it was tried", kamajis("Unknown")+own(0, 0, 0))
	if err := st.Ping(t.Context()); err != nil {
		t.Fatal(err)
	}
	shows("when it answers", kamajis("True")+own(1, 0, 0))
	st.NoteWarning(reason.EtcdFull)
	warnings := func(full int) {
		t.Helper()
		want := fmt.Sprintf(`# HELP stoker_datastore_warning Whether the last check of an etcd found something that should be put right although it can be used, by the reason of the DataStore's condition. Shown by the replica that works on it.
# TYPE stoker_datastore_warning gauge
stoker_datastore_warning{datastore="one",reason="EtcdDeniesStatus"} 0
stoker_datastore_warning{datastore="one",reason="EtcdFull"} %d
stoker_datastore_warning{datastore="one",reason="EtcdNearlyFull"} 0
`, full)
		if err := testutil.GatherAndCompare(registry, strings.NewReader(want), "stoker_datastore_warning"); err != nil {
			t.Error(err)
		}
	}
	warnings(1)
	answer = driver.ErrAway
	if err := st.Ping(t.Context()); err == nil {
		t.Fatal("it answers")
	}
	st.AddWaiting(events.Tenant("default", "demo"))
	shows("when it is away", kamajis("False")+own(0, 1, 1))
	warnings(0)
}

func TestRoomOfADataStoreIsShown(t *testing.T) {
	_, st := newWorld(func() error { return nil })
	registry := prometheus.NewPedanticRegistry()
	st.of.Register(registry, registry, false)
	if _, opened, err := st.Load(t.Context()); opened != nil || err != nil {
		t.Fatal(opened, err)
	}
	own, other := events.Tenant("default", "own"), events.Tenant("default", "override")
	st.AddTenant(own)
	st.NoteAccount(own, state.Datastore{DataStore: st.Name})
	st.AddTenant(other)
	st.NoteAccount(other, state.Datastore{DataStore: "another"})
	shows := func(what string, want map[string]float64) {
		t.Helper()
		families, err := registry.Gather()
		if err != nil {
			t.Fatal(err)
		}
		got := map[string]float64{}
		for _, f := range families {
			if n := strings.TrimPrefix(f.GetName(), "stoker_datastore_"); n == "tenants" || strings.HasPrefix(n, "max_") {
				got[n] = f.GetMetric()[0].GetGauge().GetValue()
			}
		}
		if !maps.Equal(got, want) {
			t.Errorf("%s: %v, want %v", what, got, want)
		}
	}
	shows("which another replica works on", map[string]float64{"tenants": 1})
	st.concerns(true)
	shows("without limits", map[string]float64{"tenants": 1, "max_tenants": math.Inf(1), "max_bytes": math.Inf(1)})
	st.annotations = map[string]string{name.AnnotationMaxTenants: "200", name.AnnotationMaxBytes: "8Ki"}
	shows("with limits", map[string]float64{"tenants": 1, "max_tenants": 200, "max_bytes": 8192})
}
