package store

import (
	"context"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/stoker-k8s/stoker/pkg/api/name"
	"github.com/stoker-k8s/stoker/pkg/api/v1alpha1"
	"github.com/stoker-k8s/stoker/pkg/kube"
	"github.com/stoker-k8s/stoker/services/datastore/driver"
)

// compacts is a driver that counts how often it compacts.
type compacts struct {
	*line
	times int
}

func (c *compacts) Compact(context.Context) (string, error) { c.times++; return "", nil }

func TestADataStoreIsCompactedWhenItIsTime(t *testing.T) {
	_, st := newWorld(func() error { return nil })
	d := &compacts{line: &line{check: func() error { return nil }}}
	st.of.drivers[v1alpha1.DriverEtcd] = testKind(func(driver.Config) (driver.Driver, error) { return d, nil })
	now := time.Now()
	if st.uncompacted(now) {
		t.Error("a DataStore that nobody has connected to is to be compacted")
	}
	if _, opened, err := st.Load(t.Context()); opened != nil || err != nil {
		t.Fatal(opened, err)
	}
	if err := st.Ping(t.Context()); err != nil {
		t.Fatal(err)
	}
	st.of.now = func() time.Time { return now }
	for _, step := range []struct {
		after time.Duration
		mine  bool
		times int
	}{{0, false, 0}, {0, true, 1}, {compactEvery - time.Second, true, 1}, {time.Second, false, 1}, {0, true, 2}} {
		now = now.Add(step.after)
		st.of.look(t.Context(), st, step.mine)
		if d.times != step.times {
			t.Errorf("%+v: compacted %d times", step, d.times)
		}
	}
	st.Observe(kube.Change{Object: &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{Name: "one", Annotations: map[string]string{name.AnnotationPaused: ""}}}}, now)
	now = now.Add(2 * compactEvery)
	if st.of.look(t.Context(), st, true); d.times != 2 {
		t.Error("it is compacted though it is paused")
	}
}
