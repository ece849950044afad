package intake

import (
	"fmt"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/stoker-k8s/stoker/pkg/api/name"
	"github.com/stoker-k8s/stoker/pkg/api/state"
	"github.com/stoker-k8s/stoker/pkg/api/v1alpha1"
)

var clock = time.Date(2026, 11, 20, 8, 0, 0, 0, time.UTC)

func demo() *v1alpha1.TenantControlPlane {
	return &v1alpha1.TenantControlPlane{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "demo", UID: types.UID("u"), Generation: 2}}
}

func TestDesired(t *testing.T) {
	o, now := demo(), clock
	t.Run("the same generation keeps the time of its acceptance and is no news", func(t *testing.T) {
		first := desired(o, "default", nil, 0, "trace", now)
		again := desired(o, "default", &first, 2, "", now.Add(time.Hour))
		if first.Spec.DataStore != "default" || first.Spec.DataStoreSchema != name.DataStoreSchema("default", "demo", "u") {
			t.Errorf("%s %s", first.Spec.DataStore, first.Spec.DataStoreSchema)
		}
		if !again.AcceptedAt.Equal(now) || again.TraceParent != "trace" || inputsOf(first, 2) != inputsOf(again, 2) {
			t.Errorf("%+v", again)
		}
	})
	t.Run("pausing, deleting and labels are news", func(t *testing.T) {
		base := desired(o, "default", nil, 0, "", now)
		paused, until, deleted, labelled := o.DeepCopy(), o.DeepCopy(), o.DeepCopy(), o.DeepCopy()
		paused.Annotations = map[string]string{name.AnnotationPaused: ""}
		until.Annotations = map[string]string{name.AnnotationPausedUntil: now.Add(time.Hour).Format(time.RFC3339)}
		deleted.DeletionTimestamp = &metav1.Time{Time: now}
		labelled.Labels = map[string]string{"tier": "gold"}
		for what, x := range map[string]*v1alpha1.TenantControlPlane{"paused": paused, "until": until, "deleted": deleted, "labelled": labelled} {
			d := desired(x, "default", &base, 2, "", now)
			if inputsOf(d, 2) == inputsOf(base, 2) || d.Seen == base.Seen {
				t.Errorf("%s: %+v", what, d)
			}
		}
		transferred := o.DeepCopy()
		transferred.Annotations = map[string]string{name.AnnotationTransfer: "first"}
		first := desired(transferred, "default", &base, 2, "", now)
		transferred.Annotations[name.AnnotationTransfer] = "second"
		second := desired(transferred, "default", &base, 2, "", now)
		moved := o.DeepCopy()
		moved.Annotations = map[string]string{name.AnnotationDeleteForMove: ""}
		if last := desired(moved, "default", &second, 2, "", now); last.Transfer != second.Transfer {
			t.Errorf("clusterctl deletes it, and it is taken back: %+v", last)
		}
		if last := desired(moved, "default", &base, 2, "", now); !last.LeftAlone() {
			t.Errorf("%+v", last)
		}
		if !first.LeftAlone() || first.Paused || first.Transfer == "" || first.Transfer == second.Transfer {
			t.Errorf("%+v %+v", first, second)
		}
		if d := desired(until, "default", &base, 2, "", now); !d.Paused || !d.PausedUntil.Equal(now.Add(time.Hour)) {
			t.Errorf("%v %v", d.Paused, d.PausedUntil)
		}
		if d := desired(until, "default", &base, 2, "", now.Add(time.Hour)); d.Paused || !d.PausedUntil.IsZero() {
			t.Errorf("the pause has not ended: %v %v", d.Paused, d.PausedUntil)
		}
	})
	t.Run("while its schedule has it sleep it is to have no pods, and its own spec is left alone", func(t *testing.T) {
		x := o.DeepCopy()
		x.CreationTimestamp = metav1.NewTime(now.Add(-1000 * time.Hour))
		x.Annotations = map[string]string{name.AnnotationSleepAt: "0 9 * * *", name.AnnotationWakeAt: "0 10 * * *"}
		awake := desired(x, "default", nil, 0, "", now)
		asleep := desired(x, "default", &awake, 2, "", now.Add(time.Hour))
		woken := desired(x, "default", &asleep, 2, "", now.Add(2*time.Hour))
		if awake.Sleeps() || !asleep.Sleeps() || woken.Sleeps() || x.Spec.ControlPlane.Deployment.Replicas != nil {
			t.Errorf("%+v %+v %+v", awake.Sleep, asleep.Sleep, woken.Sleep)
		}
		if !awake.Sleep.Until.Equal(now.Add(time.Hour)) || inputsOf(awake, 2) == inputsOf(asleep, 2) || asleep.Seen != awake.Seen {
			t.Errorf("%+v", awake.Sleep)
		}
		x.Spec.ControlPlane.Deployment.Replicas = new(int32)
		if d := desired(x, "default", nil, 0, "", now.Add(time.Hour)); !d.Sleeps() || d.Sleep != (state.Sleep{}) {
			t.Errorf("its object asks for no pods: %+v", d.Sleep)
		}
		x.DeletionTimestamp, x.Spec.ControlPlane.Deployment.Replicas = &metav1.Time{Time: now}, nil
		if d := desired(x, "default", nil, 0, "", now.Add(time.Hour)); d.Sleep != (state.Sleep{}) {
			t.Errorf("it is being deleted: %+v", d.Sleep)
		}
	})
	t.Run("schema and user that the status says the tenant has in its DataStore are told apart from those its author asks for", func(t *testing.T) {
		had, asks, moves := o.DeepCopy(), o.DeepCopy(), o.DeepCopy()
		had.Status.Storage.DataStoreName = "d"
		had.Status.Storage.Setup.Schema, had.Status.Storage.Setup.User = "s", "u"
		asks.Spec.DataStoreSchema, asks.Spec.DataStoreUsername = "s", "u"
		moves.Status = had.Status
		moves.Status.Storage.DataStoreName = "another"
		for what, c := range map[string]struct {
			o    *v1alpha1.TenantControlPlane
			want state.Account
		}{
			"the status": {had, state.Account{DataStore: "d", Schema: "s", User: "u"}}, "its author": {asks, state.Account{}},
			"the status, while it is to move": {moves, state.Account{DataStore: "another", Schema: "s", User: "u"}},
		} {
			if d := desired(c.o, "d", nil, 0, "", now); d.Setup != c.want {
				t.Errorf("%s: %+v", what, d.Setup)
			}
		}
	})
	t.Run("the partition is no label of the author's", func(t *testing.T) {
		x := o.DeepCopy()
		x.Labels = map[string]string{name.LabelPartition: "3", "tier": "gold", name.LabelDataStore: "d"}
		d := desired(x, "d", nil, 0, "", now)
		if len(d.Labels) != 2 || d.Labels["tier"] != "gold" || d.Labels[name.LabelDataStore] != "d" {
			t.Error(d.Labels)
		}
	})
}

func TestRecorded(t *testing.T) {
	const noted = name.AnnotationDatastoreOverrides
	for what, c := range map[string]struct {
		overrides []string
		have      string
		gone      []string
		want      string
		// asks is spec.dataStore, label and status are where the data were, or are.
		asks, label, status string
	}{
		"nothing to say":                                       {want: "map[]"},
		"what overrides name, once and sorted":                 {overrides: []string{"c", "b", "c"}, want: "map[" + noted + ":b,c]"},
		"the tenant's own is none":                             {overrides: []string{"main"}, want: "map[]"},
		"what is said already":                                 {overrides: []string{"b"}, have: "b", want: "map[]"},
		"one that is no longer named stays":                    {overrides: []string{"c"}, have: "b", want: "map[" + noted + ":b,c]"},
		"until nothing is left there":                          {overrides: []string{"c"}, have: "b,c", gone: []string{"b"}, want: "map[" + noted + ":c]"},
		"the last one":                                         {have: "b", gone: []string{"b"}, want: "map[" + noted + ":<nil>]"},
		"one that is named again meanwhile":                    {overrides: []string{"b"}, have: "b", gone: []string{"b"}, want: "map[]"},
		"where the data are to go, beside where they are":      {asks: "to", label: "main", status: "main", want: "map[" + noted + ":to]"},
		"where they have come from":                            {have: "main,to", asks: "main", label: "from", status: "from", want: "map[" + noted + ":from,to]"},
		"its own alone":                                        {have: "main", asks: "main", label: "main", status: "main", want: "map[" + noted + ":<nil>]"},
		"what somebody wrote there that can be no DataStore's": {have: "b,/x", want: "map[" + noted + ":b]"},
	} {
		t.Run(what, func(t *testing.T) {
			o := demo()
			for _, n := range c.overrides {
				o.Spec.DataStoreOverrides = append(o.Spec.DataStoreOverrides, v1alpha1.DataStoreOverride{Resource: "/" + n, DataStore: n})
			}
			if o.Annotations = map[string]string{name.AnnotationDataStore: c.label}; c.have != "" {
				o.Annotations[noted] = c.have
			}
			o.Spec.DataStore, o.Status.Storage.DataStoreName = c.asks, c.status
			if got := fmt.Sprint(recorded(o, "main", c.gone)); got != c.want {
				t.Errorf("%s", got)
			}
		})
	}
}

func TestAdopted(t *testing.T) {
	o := demo().ObjectMeta
	o.Finalizers = []string{name.FinalizerTenant}
	if adopted(&o) {
		t.Error("without a record")
	}
	o.Annotations = map[string]string{name.AnnotationDataStore: ""}
	if !adopted(&o) {
		t.Error("with a record of no DataStore yet, and no labels: those are anybody's to take away")
	}
	if o.Finalizers = nil; adopted(&o) {
		t.Error("without the finalizer")
	}
}
