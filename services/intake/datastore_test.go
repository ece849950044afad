package intake

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/stoker-k8s/stoker/pkg/api/name"
	"github.com/stoker-k8s/stoker/pkg/api/v1alpha1"
)

func TestUseOf(t *testing.T) {
	o := &v1alpha1.DataStore{ObjectMeta: metav1.ObjectMeta{Name: "d", Generation: 3}}
	// write is what the API server has after u was applied.
	write := func(u use) *v1alpha1.DataStore {
		w := o.DeepCopy()
		data, err := json.Marshal(u)
		if err != nil {
			t.Fatal(err)
		}
		if err := json.Unmarshal(data, &w.Status); err != nil {
			t.Fatal(err)
		}
		w.Status.Conditions = append(w.Status.Conditions, metav1.Condition{Type: v1alpha1.DataStoreConditionValid, Status: metav1.ConditionTrue})
		return w
	}
	two := useOf(o, []string{"default/a", "default/b"}, nil, clock)
	t.Run("one in use may not go", func(t *testing.T) {
		c := two.Conditions[0]
		if c.Status != metav1.ConditionFalse || c.Reason != v1alpha1.DataStoreReasonStillUsed || c.ObservedGeneration != 3 || c.Message != "2 tenants use the DataStore" {
			t.Errorf("%+v", c)
		}
		if len(two.Conditions) != 1 || strings.Join(two.UsedBy, " ") != "default/a default/b" {
			t.Errorf("%+v", two)
		}
	})
	t.Run("one that nobody uses may go, and its list is there, empty", func(t *testing.T) {
		u := useOf(write(two), nil, nil, clock)
		if c := u.Conditions[0]; c.Status != metav1.ConditionTrue || c.Reason != v1alpha1.DataStoreReasonUnused {
			t.Errorf("%+v", c)
		}
		if data, _ := json.Marshal(u); !strings.Contains(string(data), `"usedBy":[]`) {
			t.Error(string(data))
		}
	})
	t.Run("what is written is said, and keeps its time", func(t *testing.T) {
		w := write(two)
		if again := useOf(w, []string{"default/a", "default/b"}, nil, clock.Add(time.Hour)); !again.said(w) {
			t.Errorf("%+v", again)
		}
		if other := useOf(w, []string{"default/a", "default/c"}, nil, clock.Add(time.Hour)); other.said(w) || !other.Conditions[0].LastTransitionTime.Time.Equal(clock) {
			t.Errorf("%+v", other)
		}
	})
	t.Run("a DataStore without any status has nothing said", func(t *testing.T) {
		if useOf(o, nil, nil, clock).said(o) {
			t.Error("said")
		}
	})
	t.Run("a pause is said while it lasts", func(t *testing.T) {
		w := write(two)
		p := useOf(w, w.Status.UsedBy, pausedCondition(clock.Add(time.Hour)), clock)
		if p.said(w) || len(p.Conditions) != 2 || !strings.Contains(p.Conditions[1].Message, "until 2026-11-20T09:00:00Z") {
			t.Errorf("%+v", p)
		}
		w = write(p)
		if !useOf(w, w.Status.UsedBy, pausedCondition(clock.Add(time.Hour)), clock.Add(time.Minute)).said(w) {
			t.Error("said again and again")
		}
		if useOf(w, w.Status.UsedBy, nil, clock).said(w) {
			t.Error("the end of the pause is news")
		}
	})
	t.Run("one that is to go says who holds it", func(t *testing.T) {
		d := o.DeepCopy()
		d.DeletionTimestamp = &metav1.Time{Time: clock}
		if m := useOf(d, []string{"default/a"}, nil, clock).Conditions[0].Message; !strings.HasPrefix(m, "tenant default/a uses the DataStore; it goes once nobody does") {
			t.Error(m)
		}
	})
}

func TestUses(t *testing.T) {
	for what, c := range map[string]struct {
		spec, label, status string
		override, recorded  string
		want                bool
	}{
		"an override names it":                           {spec: "x", label: "x", status: "x", override: "d", want: true},
		"something may be left there of one that did":    {spec: "x", label: "x", status: "x", recorded: "c,d", want: true},
		"overrides of others":                            {override: "x", recorded: "y"},
		"nothing of it":                                  {spec: "x", label: "x", status: "x"},
		"its data is there":                              {status: "d", want: true},
		"its data is there, though it is to move":        {spec: "x", label: "x", status: "d", want: true},
		"it was given it and has no data yet":            {label: "d", want: true},
		"it names it and intake has not seen it yet":     {spec: "d", want: true},
		"it is to move there, and its data is elsewhere": {spec: "d", label: "x", status: "x"},
	} {
		t.Run(what, func(t *testing.T) {
			u := user{ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{
				name.AnnotationDataStore: c.label, name.AnnotationDatastoreOverrides: c.recorded,
			}}}
			u.Spec.DataStoreOverrides = []v1alpha1.DataStoreOverride{{Resource: "/events", DataStore: c.override}}
			u.Spec.DataStore, u.Status.Storage.DataStoreName = c.spec, c.status
			if u.uses("d") != c.want {
				t.Error(!c.want)
			}
		})
	}
}

func TestWrittenWithPauses(t *testing.T) {
	var w written
	for _, c := range []struct {
		store string
		users int
		at    time.Duration
		wait  time.Duration
	}{
		{"d", 0, 0, 0},
		{"d", 9, 300 * time.Millisecond, 700 * time.Millisecond},
		{"other", 0, 300 * time.Millisecond, 0},
		{"d", 1000, time.Second, 0},
		{"d", 1001, 3 * time.Second, 4 * time.Second}, // the second, and five milliseconds for each user
		{"d", 1001, 7 * time.Second, 0},
	} {
		if d := w.wait(c.store, c.users, clock.Add(c.at)); d != c.wait {
			t.Errorf("%+v: %s", c, d)
		}
	}
}
