package intake

import (
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/stoker-k8s/stoker/pkg/api/name"
	"github.com/stoker-k8s/stoker/pkg/api/state"
	"github.com/stoker-k8s/stoker/pkg/api/v1alpha1"
	"github.com/stoker-k8s/stoker/pkg/intent"
)

func TestAssigned(t *testing.T) {
	before := func(dataStore string) *state.Tenant {
		return &state.Tenant{Spec: v1alpha1.TenantControlPlaneSpec{DataStore: dataStore}}
	}
	for what, c := range map[string]struct {
		spec, status, label, fallback string
		before                        *state.Tenant
		want, recorded                string
	}{
		"nobody names one": {},
		"the default":      {fallback: "d", want: "d", recorded: "d"},
		"what was accepted wins over a default that changed":   {before: before("a"), fallback: "d", want: "a", recorded: "a"},
		"the record wins over what was accepted":               {label: "l", before: before("a"), fallback: "d", want: "l", recorded: "l"},
		"where the data is wins over a record changed by hand": {status: "s", label: "l", fallback: "d", want: "s", recorded: "s"},
		"the spec wins": {spec: "x", label: "l", fallback: "d", want: "x", recorded: "x"},
		"a move is asked for: the data is still where it was":  {spec: "x", status: "s", label: "s", want: "x", recorded: "s"},
		"they have moved, and the status doesn't say so yet":   {spec: "x", status: "s", label: "x", want: "x", recorded: "x"},
		"they have moved, and nothing but the status says so":  {spec: "x", status: "x", label: "l", want: "x", recorded: "x"},
		"after the loss of NATS and of the status, the record": {label: "l", fallback: "d", want: "l", recorded: "l"},
		"nothing accepted so far and no default":               {before: before("")},
	} {
		t.Run(what, func(t *testing.T) {
			o := demo()
			o.Spec.DataStore, o.Status.Storage.DataStoreName = c.spec, c.status
			o.Annotations = map[string]string{name.AnnotationDataStore: c.label}
			got := assigned(o, c.before, c.fallback)
			if got != c.want || record(o, got) != c.recorded {
				t.Errorf("assigned to %q, recorded %q", got, record(o, got))
			}
		})
	}
}

func TestChoose(t *testing.T) {
	ready := func(pairs ...string) store {
		l := labels.Set{}
		for i := 0; i < len(pairs); i += 2 {
			l[pairs[i]] = pairs[i+1]
		}
		return store{ready: true, labels: l}
	}
	limited := func(tenants, bytes string) store {
		s := ready()
		s.limits = limitsOf(annotated(tenants, bytes))
		return s
	}
	holding := func(bytes int64, tenants, most string) store {
		s := limited(tenants, most)
		s.bytes = bytes
		return s
	}
	for what, c := range map[string]struct {
		stores   map[string]store
		used     map[string]int
		selector string
		want     string
		missing  string
	}{
		"none":                      {missing: "there is none"},
		"the least used":            {stores: map[string]store{"a": ready(), "b": ready(), "c": ready()}, used: map[string]int{"a": 3, "b": 1, "c": 2}, want: "b"},
		"ties by name":              {stores: map[string]store{"b": ready(), "a": ready()}, used: map[string]int{"a": 1, "b": 1}, want: "a"},
		"only those that are ready": {stores: map[string]store{"a": {}, "b": ready()}, used: map[string]int{"b": 9}, want: "b"},
		"not one that is paused":    {stores: map[string]store{"a": {ready: true, paused: true}, "b": ready()}, used: map[string]int{"b": 9}, want: "b"},
		"not one that is to go":     {stores: map[string]store{"a": {ready: true, deleting: true}, "b": ready()}, used: map[string]int{"b": 9}, want: "b"},
		"by selector": {
			stores: map[string]store{"a": ready("tier", "silver"), "b": ready("tier", "gold"), "c": ready()}, used: map[string]int{"b": 9},
			selector: "tier=gold", want: "b",
		},
		"by a selector of a set": {
			stores: map[string]store{"a": ready("zone", "x"), "b": ready("zone", "y"), "c": ready("zone", "z")}, used: map[string]int{"b": 1, "c": 0},
			selector: "zone in (y,z)", want: "c",
		},
		"none fits": {
			stores: map[string]store{"a": ready("tier", "silver")}, selector: "tier=gold", missing: `labels "tier=gold" (annotation ` + name.AnnotationDatastoreSelector + `): there is none`,
		},
		"the least full, before the one with fewest tenants": {
			stores: map[string]store{"a": limited("10", ""), "b": limited("1000", "")}, used: map[string]int{"a": 8, "b": 300}, want: "b",
		},
		"one without limits is never full":        {stores: map[string]store{"a": limited("10", ""), "b": ready()}, used: map[string]int{"a": 1, "b": 900}, want: "b"},
		"of several as full, the one with fewest": {stores: map[string]store{"a": limited("100", ""), "b": limited("50", "")}, used: map[string]int{"a": 20, "b": 10}, want: "b"},
		"one that is full is passed over":         {stores: map[string]store{"a": limited("2", ""), "b": limited("2", "")}, used: map[string]int{"a": 2, "b": 1}, want: "b"},
		"more than full, by those who name it":    {stores: map[string]store{"a": limited("2", "")}, used: map[string]int{"a": 3}, missing: "(a: full (3 of 2 tenants))"},
		"bytes fill it as well as tenants": {
			stores: map[string]store{"a": holding(6<<30, "100", "8Gi"), "b": holding(1<<30, "100", "8Gi")}, used: map[string]int{"a": 1, "b": 70}, want: "b",
		},
		"as full and with as many tenants, the one with fewest bytes": {stores: map[string]store{"a": holding(2, "", ""), "b": holding(1, "", "")}, want: "b"},
		"one whose bytes are full": {
			stores: map[string]store{"a": holding(9<<30, "100", "8Gi")}, missing: "a: full (9Gi of 8Gi)",
		},
		"a limit of nobody":                             {stores: map[string]store{"a": limited("0", "")}, missing: "a: full (0 of 0 tenants)"},
		"a limit that can't be read is none to go past": {stores: map[string]store{"a": limited("many", "")}, missing: `a: annotation stoker.dev/max-tenants: "many": must be`},
		"what all wait for": {
			stores: map[string]store{"a": limited("200", ""), "b": {}, "c": {paused: true}, "d": {deleting: true}}, used: map[string]int{"a": 200},
			missing: "one of the DataStores to take tenants (a: full (200 of 200 tenants); b: not ready; c: paused; d: being deleted)",
		},
		"many that take none": {
			stores: map[string]store{"a": {}, "b": {}, "c": {}, "d": {}, "e": {}, "f": {}, "g": {}}, missing: "e: not ready; and 2 more)",
		},
		"as many as are named": {
			stores: map[string]store{"a": {}, "b": {}, "c": {}, "d": {}, "e": {}}, missing: "d: not ready; e: not ready)",
		},
		"those that fit take none": {
			stores: map[string]store{"a": ready("tier", "silver"), "b": {labels: labels.Set{"tier": "gold"}}}, selector: "tier=gold", missing: "not ready",
		},
	} {
		t.Run(what, func(t *testing.T) {
			selector, err := labels.Parse(c.selector)
			if err != nil {
				t.Fatal(err)
			}
			if got := choose(c.stores, c.used, selector); got != c.want {
				t.Errorf("chose %q", got)
			}
			if c.want == "" && !strings.Contains(missingStore(c.stores, c.used, selector), c.missing) {
				t.Error(missingStore(c.stores, c.used, selector))
			}
		})
	}
}

// annotated are the annotations of a DataStore with these limits, empty for none.
func annotated(tenants, bytes string) map[string]string {
	a := map[string]string{}
	if tenants != "" {
		a[name.AnnotationMaxTenants] = tenants
	}
	if bytes != "" {
		a[name.AnnotationMaxBytes] = bytes
	}
	return a
}

// there is the metadata of an object with this record, nil for no object.
func there(record *string) *metav1.ObjectMeta {
	if record == nil {
		return nil
	}
	return &metav1.ObjectMeta{Annotations: map[string]string{name.AnnotationDataStore: *record}}
}

func TestNobodyIsPlacedBeforeAllTenantsAndDataStoresAreListed(t *testing.T) {
	if got, err := new(svc).recordOf(tenant(1), demo(), nil); got != "" || intent.Of(err) != intent.Wait {
		t.Error(got, err)
	}
}

func TestRecordOf(t *testing.T) {
	s := &svc{fallback: "d"}
	s.index.fill("a")
	for what, c := range map[string]struct {
		spec, asked, status string
		there               *string
		want                string
	}{
		"a new tenant that names one":                                   {spec: "x", want: "x"},
		"a new tenant that names none":                                  {want: "d"},
		"one that comes back from a backup, with its record":            {asked: "l", want: "l"},
		"a status that came with a command says nothing":                {status: "s", want: "d"},
		"one that is there keeps its record, whatever the command says": {spec: "x", asked: "l", there: new("old"), want: "old"},
		"one that is there without a record gets it from sync":          {spec: "x", there: new("")},
	} {
		t.Run(what, func(t *testing.T) {
			o := demo()
			o.Spec.DataStore, o.Status.Storage.DataStoreName = c.spec, c.status
			o.Annotations = map[string]string{name.AnnotationDataStore: c.asked}
			got, err := s.recordOf(tenant(1), o, there(c.there))
			if err != nil || got != c.want {
				t.Errorf("%q %v", got, err)
			}
		})
	}
	t.Run("one of before there were records as annotations keeps that of its label", func(t *testing.T) {
		old := &metav1.ObjectMeta{Labels: map[string]string{name.LabelDataStore: "old"}}
		if got, err := s.recordOf(tenant(1), demo(), old); err != nil || got != "old" {
			t.Error(got, err)
		}
	})
	t.Run("without a default one is chosen", func(t *testing.T) {
		s.fallback = ""
		if got, err := s.recordOf(tenant(1), demo(), nil); err != nil || got != "a" {
			t.Error(got, err)
		}
	})
	t.Run("a tenant with overrides is placed on an etcd", func(t *testing.T) {
		s.index.know("a", &store{ready: true, labels: storeOf(&v1alpha1.DataStore{Spec: v1alpha1.DataStoreSpec{Driver: v1alpha1.DriverMySQL}}, clock).labels})
		s.index.know("e", &store{ready: true, labels: storeOf(&v1alpha1.DataStore{Spec: v1alpha1.DataStoreSpec{Driver: v1alpha1.DriverEtcd}}, clock).labels})
		if got, missing, err := s.place(tenant(1), nil, true); got != "e" || err != nil {
			t.Error(got, missing, err)
		}
	})
	t.Run("a selector that can't be read places nobody and says so", func(t *testing.T) {
		_, missing, err := s.place(tenant(1), map[string]string{name.AnnotationDatastoreSelector: "tier in"}, false)
		if err != nil || !strings.Contains(missing, `"tier in"`) {
			t.Error(missing, err)
		}
	})
}
