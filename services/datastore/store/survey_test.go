package store

import (
	"context"
	"slices"
	"testing"

	"github.com/stoker-k8s/stoker/pkg/api/state"
	"github.com/stoker-k8s/stoker/pkg/api/v1alpha1"
	"github.com/stoker-k8s/stoker/pkg/events"
	"github.com/stoker-k8s/stoker/services/datastore/driver"
)

// observed is a driver whose survey the test says.
type observed struct {
	*line
	seen map[string]string
}

func (o *observed) Survey(context.Context, ...string) (map[string]string, error) { return o.seen, nil }

func TestSurvey(t *testing.T) {
	w, st := newWorld(func() error { return nil })
	o := &observed{seen: map[string]string{"same": "1", "changed": "2"}}
	st.of.drivers[v1alpha1.DriverEtcd] = testKind(func(driver.Config) (driver.Driver, error) {
		o.line = &line{check: func() error { return nil }}
		return o, nil
	})
	for n, fingerprint := range map[string]string{"same": "1", "changed": "1", "gone": "1", "unknown": ""} {
		key := events.Tenant("team", n)
		st.AddTenant(key)
		st.NoteAccount(key, state.Datastore{DataStore: "one", Schema: n, Account: fingerprint})
	}
	st.AddTenant(events.Tenant("team", "waits"))
	st.NoteAccount(events.Tenant("team", "elsewhere"), state.Datastore{Schema: "elsewhere", Account: "1"})
	if _, opened, err := st.Load(t.Context()); opened != nil || err != nil {
		t.Fatal(opened, err)
	}
	w.woken = nil
	st.survey(t.Context())
	slices.Sort(w.woken)
	w.woken = slices.DeleteFunc(w.woken, func(key string) bool { return key == events.DataStore("one").String() })
	if want := []string{"team/changed", "team/gone"}; !slices.Equal(w.woken, want) {
		t.Errorf("woken are %q, not %q", w.woken, want)
	}
}
