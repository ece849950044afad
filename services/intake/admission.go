package intake

// What admission policies have to know and no object they see says: which DataStores there are, with their drivers, and
// whether TLSRoutes are served. intake keeps it in a ConfigMap that the policies take as parameter. Several installations
// share it, so each changes just the keys it knows of.

import (
	"context"
	"fmt"
	"strconv"
	"strings"

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
	GroupVersion: schema.GroupVersion{Group: "apiextensions.k8s.io", Version: "v1"}, Plural: "customresourcedefinitions", Kind: "CustomResourceDefinition",
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

// admit makes the ConfigMap say what there is.
func (s *intake) admit(ctx context.Context) error {
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
		TypeMeta:   kube.ConfigMaps.TypeMeta(),
		ObjectMeta: metav1.ObjectMeta{Namespace: admissionKey.Namespace, Name: admissionKey.Name, Labels: map[string]string{name.LabelProject: name.Project}},
		Data:       map[string]string{},
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
func (s *intake) dataStore(ctx context.Context, n string) (*v1alpha1.DataStore, error) {
	o := &v1alpha1.DataStore{}
	err := s.kube.Get(ctx, kube.DataStores, "", n, o)
	if apierrors.IsNotFound(err) {
		return nil, nil
	}
	return o, err
}

// servesRoutes reports whether the API server serves TLSRoutes in the version that workload makes.
func (s *intake) servesRoutes(ctx context.Context) (bool, error) {
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

// notIndexed is what the policy says of a DataStore that isn't in the ConfigMap.
const notIndexed = " DataStore does not exist"

// lags reports whether a tenant was refused only because the policies have not heard yet of its DataStore, which is there:
// then the ConfigMap is put right, and the write is to be tried again.
func (s *intake) lags(ctx context.Context, refused error) (bool, error) {
	n := namedIn(refused)
	if n == "" {
		return false, nil
	}
	o, err := s.dataStore(ctx, n)
	if err != nil || o == nil || o.DeletionTimestamp != nil {
		return false, err
	}
	data := map[string]any{name.AdmissionDataStore(n): string(o.Spec.Driver)}
	err = s.kube.MergePatch(ctx, kube.ConfigMaps, admissionKey.Namespace, admissionKey.Name, map[string]any{"data": data}, nil)
	if apierrors.IsNotFound(err) {
		err = nil // about to be made
	}
	return err == nil, err
}

// namedIn finds the DataStore that a refusal calls missing, empty for other refusals.
func namedIn(refused error) string {
	before, _, ok := strings.Cut(refused.Error(), notIndexed)
	if !ok {
		return ""
	}
	words := strings.FieldsFunc(before, func(r rune) bool { return strings.ContainsRune(" \t\n:,;\"'(", r) })
	if len(words) == 0 {
		return ""
	}
	return words[len(words)-1]
}
