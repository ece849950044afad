package intake

// What admission policies have to know and no object they see says: which DataStores there are, with their drivers, and
// whether TLSRoutes are served. intake keeps it in a ConfigMap that the policies take as parameter. Several installations
// share it, so each changes just the keys it knows of.

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/stoker-k8s/stoker/pkg/api/name"
	"github.com/stoker-k8s/stoker/pkg/api/v1alpha1"
	"github.com/stoker-k8s/stoker/pkg/events"
	"github.com/stoker-k8s/stoker/pkg/intent"
	"github.com/stoker-k8s/stoker/pkg/kube"
)

// admissionKey makes one replica at a time keep the ConfigMap: who holds its partition.
var admissionKey = events.Key{Kind: kube.ConfigMaps.Plural, Namespace: name.SystemNamespace, Name: name.AdmissionConfigMap}

// tlsRoutes is the CustomResourceDefinition of TLSRoute, and the version of it that workload makes.
const (
	tlsRoutes        = "tlsroutes.gateway.networking.k8s.io"
	tlsRoutesVersion = "v1"
)

var definitions = kube.Resource{
	GroupVersion: schema.GroupVersion{Group: "apiextensions.k8s.io", Version: "v1"},
	Plural:       "customresourcedefinitions", Kind: "CustomResourceDefinition",
}

// admissionDependsOn are single objects whose changes wake intake for the ConfigMap: itself, for drift, and the definition of
// TLSRoute, which may be installed at any time.
var admissionDependsOn = []struct {
	resource        kube.Resource
	namespace, name string
}{
	{kube.ConfigMaps, name.SystemNamespace, name.AdmissionConfigMap},
	{definitions, "", tlsRoutes},
}

// syncAdmission makes the ConfigMap say what there is.
func (s *svc) syncAdmission(ctx context.Context) error {
	if !s.index.complete() {
		return nil // called again once it is
	}
	served, err := s.servesRoutes(ctx)
	if err != nil {
		return err
	}
	have := &corev1.ConfigMap{}
	err = s.kube.Get(ctx, kube.ConfigMaps, admissionKey.Namespace, admissionKey.Name, have)
	missing := apierrors.IsNotFound(err)
	if err != nil && !missing {
		return err
	}
	patch, doubtful := admissionPatch(have.Data, s.index.all(), served)
	for _, n := range doubtful {
		there, err := s.dataStore(ctx, n)
		if err != nil {
			return err
		}
		if there == nil || there.DeletionTimestamp != nil {
			patch[name.AdmissionDataStore(n)] = nil
		}
	}
	if !missing {
		if len(patch) == 0 {
			return nil
		}
		return s.kube.MergePatch(ctx, kube.ConfigMaps, admissionKey.Namespace, admissionKey.Name, map[string]any{"data": patch}, nil)
	}
	made := &corev1.ConfigMap{
		TypeMeta: kube.ConfigMaps.TypeMeta(),
		ObjectMeta: metav1.ObjectMeta{
			Namespace: admissionKey.Namespace, Name: admissionKey.Name, Labels: map[string]string{name.LabelProject: name.Project},
		},
		Data: map[string]string{},
	}
	for k, v := range patch {
		made.Data[k] = *v
	}
	err = s.kube.Create(ctx, kube.ConfigMaps, made)
	if apierrors.IsAlreadyExists(err) {
		return fmt.Errorf("%w: %w", intent.ErrStale, err) // by another installation, just now
	}
	return err
}

// admissionPatch returns what of the ConfigMap's data must change, nil values for keys that must go, and DataStores it
// names that this installation doesn't know: they may be another's.
func admissionPatch(have map[string]string, all map[string]store, served bool) (patch map[string]*string, doubtful []string) {
	patch = map[string]*string{}
	set := func(k, v string) {
		if old, ok := have[k]; !ok || old != v {
			patch[k] = &v
		}
	}
	set(name.AdmissionGateway, strconv.FormatBool(served))
	for n, st := range all {
		if !st.deleting {
			set(name.AdmissionDataStore(n), string(st.driver))
		}
	}
	for k := range have {
		n, ok := strings.CutPrefix(k, name.AdmissionDataStore(""))
		if !ok {
			continue
		}
		switch st, known := all[n]; {
		case !known:
			doubtful = append(doubtful, n)
		case st.deleting:
			patch[k] = nil
		}
	}
	return patch, doubtful
}

// dataStore reads a DataStore of any installation; nil when there is none.
func (s *svc) dataStore(ctx context.Context, n string) (*v1alpha1.DataStore, error) {
	o := &v1alpha1.DataStore{}
	err := s.kube.Get(ctx, kube.DataStores, "", n, o)
	if apierrors.IsNotFound(err) {
		return nil, nil
	}
	return o, err
}

// servesRoutes reports whether the API server serves TLSRoutes in the version that workload makes.
func (s *svc) servesRoutes(ctx context.Context) (bool, error) {
	var d definition
	err := s.kube.Get(ctx, definitions, "", tlsRoutes, &d)
	if apierrors.IsNotFound(err) {
		return false, nil
	}
	return d.serves(tlsRoutesVersion), err
}

// definition is what of a CustomResourceDefinition says whether a version is served.
type definition struct {
	Spec struct {
		Versions []struct {
			Name   string `json:"name"`
			Served bool   `json:"served"`
		} `json:"versions"`
	} `json:"spec"`
	Status struct {
		Conditions []struct {
			Type   string `json:"type"`
			Status string `json:"status"`
		} `json:"conditions"`
	} `json:"status"`
}

func (d definition) serves(version string) bool {
	established := false
	for _, c := range d.Status.Conditions {
		established = established || c.Type == "Established" && c.Status == "True"
	}
	for _, v := range d.Spec.Versions {
		if v.Name == version && v.Served {
			return established
		}
	}
	return false
}

// policies says when the ConfigMap changed last, as far as the watch has shown it. It is safe for concurrent use.
type policies struct {
	mu      sync.Mutex
	version string // the ConfigMap's resourceVersion
	at      time.Time
}

// saw notes that the watch showed a version of the ConfigMap.
func (p *policies) saw(version string, now time.Time) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if version != p.version {
		p.version, p.at = version, now
	}
}

// mayLag reports whether policies may not have heard of a version of the ConfigMap yet.
func (p *policies) mayLag(version string, now time.Time) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return version != p.version || now.Sub(p.at) < policyLag
}

// deniedEarly reports whether a tenant was denied only because admission policies have not heard yet of a DataStore that it names and
// that is there: then the ConfigMap is put right, and the write is to be tried again. A denial by any other rule is final at once, for
// those behind the command wait with it.
func (s *svc) deniedEarly(ctx context.Context, denied error, sent any) (bool, error) {
	names := dataStoresInDoubt(denied, sent)
	if len(names) == 0 {
		return false, nil
	}
	have := &corev1.ConfigMap{}
	err := s.kube.Get(ctx, kube.ConfigMaps, admissionKey.Namespace, admissionKey.Name, have)
	missing := apierrors.IsNotFound(err) // it is about to be made
	if err != nil && !missing {
		return false, err
	}
	listed, unlisted := false, map[string]any{}
	for _, n := range names {
		if _, ok := have.Data[name.AdmissionDataStore(n)]; ok {
			listed = true
			continue
		}
		o, err := s.dataStore(ctx, n)
		if err != nil {
			return false, err
		}
		if o != nil && o.DeletionTimestamp == nil {
			unlisted[name.AdmissionDataStore(n)] = string(o.Spec.Driver)
		}
	}
	if len(unlisted) == 0 {
		return listed && s.policies.mayLag(have.ResourceVersion, time.Now()), nil
	}
	if missing {
		return true, nil
	}
	err = s.kube.MergePatch(ctx, kube.ConfigMaps, admissionKey.Namespace, admissionKey.Name, map[string]any{"data": unlisted}, nil)
	if apierrors.IsNotFound(err) {
		err = nil
	}
	return err == nil, err
}

// dataStoresInDoubt are the DataStores of which an admission policy says that there are none, of those that the object names which was
// sent; none for all other errors. The policy's whole answer must be the one about that DataStore: it begins with words that no sender
// has a part in, so that nothing a sender writes elsewhere, which other rules repeat, is taken for it.
func dataStoresInDoubt(denied error, sent any) []string {
	var status apierrors.APIStatus
	if !errors.As(denied, &status) || status.Status().Reason != metav1.StatusReasonInvalid || status.Status().Details == nil {
		return nil
	}
	data, err := json.Marshal(sent)
	var o user
	if err != nil || json.Unmarshal(data, &o) != nil {
		return nil
	}
	var names []string
	for _, c := range status.Status().Details.Causes {
		// What the schema refuses has the type of the error and the field; what a policy denies has a message alone.
		if c.Type != "" || c.Field != "" {
			continue
		}
		if c.Message == missingDataStore("spec.dataStore", o.Spec.DataStore) {
			names = append(names, o.Spec.DataStore)
		}
		for _, n := range overridesOf(o.Spec.DataStoreOverrides) {
			if c.Message == missingDataStore("spec.dataStoreOverrides", n) && !slices.Contains(names, n) {
				names = append(names, n)
			}
		}
	}
	return names
}

// missingDataStore is what the API server says when a field names a DataStore that admission policies don't know
// (deployments/policies/objects.yaml).
func missingDataStore(field, dataStore string) string {
	const policy = "stoker-tenant-references"
	return fmt.Sprintf("ValidatingAdmissionPolicy '%s' with binding '%s' denied request: %s: Invalid value: %q: no DataStore has this name: create it, or name another one",
		policy, policy, field, dataStore)
}

func overridesOf(overrides []v1alpha1.DataStoreOverride) []string {
	names := make([]string, len(overrides))
	for i, o := range overrides {
		names[i] = o.DataStore
	}
	return names
}
