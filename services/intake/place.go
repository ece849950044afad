package intake

// Which DataStore a tenant has: the one it names, the one its data is in, or the one that is chosen for it.

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/stoker-k8s/stoker/pkg/api/name"
	"github.com/stoker-k8s/stoker/pkg/api/state"
	"github.com/stoker-k8s/stoker/pkg/api/v1alpha1"
	"github.com/stoker-k8s/stoker/pkg/events"
)

// assigned is the DataStore that a tenant has, empty for none yet. It is given once: where the data is, the record on the
// object and what was accepted before win over a default that changed meanwhile. Only spec.dataStore moves a tenant.
func assigned(o *v1alpha1.TenantControlPlane, before *state.Tenant, fallback string) string {
	accepted := ""
	if before != nil {
		accepted = before.Spec.DataStore
	}
	return cmp.Or(o.Spec.DataStore, o.Status.Storage.DataStoreName, name.DataStore(o.Labels, o.Annotations), accepted, fallback)
}

// record is the value of name.AnnotationDataStore: the DataStore that holds the tenant's data, or will. While a tenant is to move, its data
// is still where it was. That they have moved the annotation says first (migrated), and the status a moment later.
func record(o *v1alpha1.TenantControlPlane, dataStore string) string {
	if at := name.DataStore(o.Labels, o.Annotations); at != "" && at == o.Spec.DataStore {
		return at
	}
	return cmp.Or(o.Status.Storage.DataStoreName, dataStore)
}

// recordOf returns the record of the DataStore for the apply of a tenant, empty for none. there is the metadata of the object
// as the API server has it, nil when there is none: a tenant that is there keeps its record, and if it has none, syncTenant adds it. It
// makes no request. Its error is that of index.reserve.
func (s *svc) recordOf(key events.Key, asked *v1alpha1.TenantControlPlane, there *metav1.ObjectMeta) (string, error) {
	if there != nil {
		return name.DataStore(there.Labels, there.Annotations), nil
	}
	withoutStatus := &v1alpha1.TenantControlPlane{ObjectMeta: asked.ObjectMeta, Spec: asked.Spec}
	if ds := assigned(withoutStatus, nil, s.fallback); ds != "" {
		return label(ds), nil
	}
	ds, _, err := s.place(key, asked.Annotations, len(asked.Spec.DataStoreOverrides) > 0)
	return ds, err
}

// place chooses a DataStore for a tenant, which may have overrides. Without any that fits, missing says which one would.
func (s *svc) place(key events.Key, annotations map[string]string, overrides bool) (dataStore, missing string, err error) {
	text := annotations[name.AnnotationDatastoreSelector]
	selector, bad := labels.Parse(text)
	if bad != nil {
		return "", fmt.Sprintf("a label selector in annotation %s: %q: %s", name.AnnotationDatastoreSelector, text, bad), nil
	}
	if overrides {
		selector = selector.DeepCopySelector().Add(onEtcd...)
	}
	return s.index.reserve(key, selector, time.Now())
}

// labelDriver is a label that storeOf gives each DataStore in memory, with its driver as value, so that selectors can ask for it.
const labelDriver = "stoker.dev/driver"

// onEtcd is what dataStoreOverrides ask of a tenant's own DataStore.
var onEtcd, _ = labels.SelectorFromSet(labels.Set{labelDriver: string(v1alpha1.DriverEtcd)}).Requirements()

// label is a DataStore's name as the value of a label, none when it can't be one: there is no such DataStore, and who named
// it is refused for the name.
func label(dataStore string) string {
	if len(validation.IsValidLabelValue(dataStore)) > 0 {
		return ""
	}
	return dataStore
}

// choose returns the least full of the DataStores that take tenants and fit; of several the one with fewest tenants, then with
// fewest bytes, and then the first by name; empty for none.
func choose(stores map[string]store, used map[string]int, selector labels.Selector) string {
	best := ""
	for _, n := range slices.Sorted(maps.Keys(stores)) {
		s, b := stores[n], stores[best]
		if s.takes(used[n]) && selector.Matches(s.labels) && (best == "" || cmp.Or(
			cmp.Compare(s.fullness(used[n]), b.fullness(used[best])), cmp.Compare(used[n], used[best]), cmp.Compare(s.bytes, b.bytes),
		) < 0) {
			best = n
		}
	}
	return best
}

// missingStore says which DataStore a tenant waits for.
func missingStore(stores map[string]store, used map[string]int, selector labels.Selector) string {
	if len(stores) == 0 {
		return "a DataStore: there is none; name one in spec.dataStore or create one"
	}
	var why []string
	for _, n := range slices.Sorted(maps.Keys(stores)) {
		if s := stores[n]; selector.Matches(s.labels) {
			why = append(why, n+": "+s.closed(used[n]))
		}
	}
	of := "the DataStores"
	if !selector.Empty() {
		of = fmt.Sprintf("the DataStores with labels %q (annotation %s)", selector, name.AnnotationDatastoreSelector)
	}
	switch more := len(why) - maxNamed; {
	case len(why) == 0:
		return fmt.Sprintf("one of %s: there is none", of)
	case more > 0:
		why = append(why[:maxNamed], fmt.Sprintf("and %d more", more))
	}
	return fmt.Sprintf("one of %s to take tenants (%s)", of, strings.Join(why, "; "))
}
