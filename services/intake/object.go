package intake

// What a command's data must be: the JSON of an object, or of a part of one, strictly.

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kjson "sigs.k8s.io/json"

	"github.com/stoker-k8s/stoker/pkg/api/event"
	"github.com/stoker-k8s/stoker/pkg/api/name"
	"github.com/stoker-k8s/stoker/pkg/api/v1alpha1"
	"github.com/stoker-k8s/stoker/pkg/events"
	"github.com/stoker-k8s/stoker/pkg/kube"
)

// kind is a kind of objects that may be commanded.
type kind struct {
	kube.Resource
	// strict decodes the JSON of an object, or of a part of one. Its error is a refusal.
	strict func(data []byte) (any, error)
}

// kinds by the plural resource name, as in subjects.
var kinds = map[string]kind{
	event.TenantControlPlanes:  {kube.TenantControlPlanes, check[v1alpha1.TenantControlPlane]},
	event.DataStores:           {kube.DataStores, check[v1alpha1.DataStore]},
	event.KubeconfigGenerators: {kube.KubeconfigGenerators, check[v1alpha1.KubeconfigGenerator]},
}

// object is an object of any kind as the API server gave it: its metadata, and all of a tenant.
type object struct {
	metav1.ObjectMeta
	tenant *v1alpha1.TenantControlPlane
	raw    json.RawMessage
}

// object decodes the API server's answer about a command's object.
func (c command) object(raw json.RawMessage) (*object, error) {
	there := &object{raw: raw}
	var err error
	if c.key.IsTenant() {
		there.tenant = &v1alpha1.TenantControlPlane{}
		err = json.Unmarshal(raw, there.tenant)
		there.ObjectMeta = there.tenant.ObjectMeta
	} else {
		var meta metav1.PartialObjectMetadata
		err = json.Unmarshal(raw, &meta)
		there.ObjectMeta = meta.ObjectMeta
	}
	if err != nil {
		return nil, fmt.Errorf("the API server's answer about %s: %w", c.key, err)
	}
	return there, nil
}

// meta is the metadata, nil of no object.
func (o *object) meta() *metav1.ObjectMeta {
	if o == nil {
		return nil
	}
	return &o.ObjectMeta
}

// decode decodes the data of a command strictly. Its error is a refusal.
func decode[T any](data []byte) (*T, error) {
	typed := new(T)
	unknown, err := kjson.UnmarshalStrict(data, typed)
	if err == nil && len(unknown) == 0 {
		return typed, nil
	}
	generic, ok := parse(data)
	if !ok {
		return nil, refuse("event.data", event.RuleInvalid, string(data), "must be a JSON object")
	}
	if err != nil {
		if typed, ok := plain[T](data, generic); ok {
			return typed, nil
		}
		return nil, undecodable[T](generic, err)
	}
	messages := make([]string, len(unknown))
	for i, u := range unknown {
		messages[i] = u.Error()
	}
	return nil, strictly(messages, generic)
}

// plain decodes data with its numbers in plain digits: the API server takes 1e3 for a whole number, Go's decoder doesn't.
func plain[T any](data []byte, generic map[string]any) (*T, bool) {
	var again map[string]any
	if twice, err := kjson.UnmarshalStrict(data, &again); err != nil || len(twice) > 0 { // keys given twice
		return nil, false
	}
	digits, err := json.Marshal(generic)
	if err != nil {
		return nil, false
	}
	typed := new(T)
	unknown, err := kjson.UnmarshalStrict(digits, typed)
	return typed, err == nil && len(unknown) == 0
}

func check[T any](data []byte) (any, error) { return decode[T](data) }

// parse reads JSON that must be an object.
func parse(data []byte) (map[string]any, bool) {
	var m map[string]any
	return m, kjson.UnmarshalCaseSensitivePreserveInts(data, &m) == nil && m != nil
}

// undecodable names the field that keeps data from being decoded, and says what it must be.
func undecodable[T any](generic map[string]any, err error) refusal {
	budget := maxTried
	path, value := culprit("", generic, func(v any) bool {
		if budget < 0 {
			return false
		}
		data, err := json.Marshal(v)
		budget -= len(data) + 1000
		return err == nil && kjson.UnmarshalCaseSensitivePreserveInts(data, new(T)) != nil
	})
	if path == "" {
		return refuse("event.data", event.RuleInvalid, "", events.Clip(err.Error()))
	}
	said := lookup(value, "")
	var mistyped *json.UnmarshalTypeError
	var badTime *time.ParseError
	message := events.Clip(err.Error())
	switch {
	case errors.As(err, &badTime):
		message = "must be an RFC 3339 time, like 2027-01-31T18:00:00Z"
	case errors.As(err, &mistyped):
		message = fmt.Sprintf("must be %s, not %s", article(mistyped.Type.Kind()), mistyped.Value)
	}
	return refuse(path, event.RuleInvalid, said, message)
}

// culprit finds a field that fails, by trying each alone: decoders of times and quantities don't say where they are. What
// fails without anything in it is the culprit itself.
func culprit(path string, value any, fails func(any) bool) (string, any) {
	switch x := value.(type) {
	case map[string]any:
		if fails(map[string]any{}) {
			break
		}
		for _, k := range slices.Sorted(maps.Keys(x)) {
			only := func(v any) bool { return fails(map[string]any{k: v}) }
			if only(x[k]) {
				return culprit(join(path, k), x[k], only)
			}
		}
	case []any:
		if fails([]any{}) {
			break
		}
		only := func(v any) bool { return fails([]any{v}) }
		for i, v := range x {
			if only(v) {
				return culprit(path+"["+strconv.Itoa(i)+"]", v, only)
			}
		}
	}
	return path, value
}

// join adds a key to a path as Kubernetes writes it.
func join(path, key string) string {
	switch {
	case path == "":
		return key
	case strings.ContainsAny(key, "./"):
		return path + "[" + key + "]"
	}
	return path + "." + key
}

func article(k reflect.Kind) string {
	switch k {
	case reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64, reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64:
		return "a whole number"
	case reflect.Bool:
		return "true or false"
	case reflect.String:
		return "a string"
	case reflect.Slice:
		return "a list"
	}
	return "an object"
}

// metadataAllowed is what of metadata a command may set, or carry because the object was read from somewhere.
var metadataAllowed = []string{
	"name", "namespace", "labels", "annotations", "creationTimestamp", "generation", "managedFields", "resourceVersion", "uid", "selfLink",
}

// whole checks the data of an apply command. It returns the object as it was decoded, and what is to be applied: of the
// metadata only labels and annotations are taken, with what intake adds.
func whole(key events.Key, k kind, data []byte, watchFilter string) (typed any, body map[string]any, err error) {
	if typed, err = k.strict(data); err != nil {
		return nil, nil, err
	}
	m, ok := parse(data)
	if !ok {
		return nil, nil, refuse("event.data", event.RuleInvalid, string(data), "must be the JSON of a "+k.Kind)
	}
	meta, _ := m["metadata"].(map[string]any)
	labels, _ := meta["labels"].(map[string]any)
	var found refusal
	same := func(field string, of map[string]any, at, want string) {
		switch have, _ := of[at].(string); have {
		case want:
		case "":
			found = append(found, refuse(field, event.RuleRequired, "", "missing; must be "+want)...)
		default:
			found = append(found, refuse(field, event.RuleInvalid, have, "must be "+want+", as the event's subject and type say")...)
		}
	}
	same("apiVersion", m, "apiVersion", k.GroupVersion.String())
	same("kind", m, "kind", k.Kind)
	same("metadata.name", meta, "name", key.Name)
	if k.Namespaced {
		same("metadata.namespace", meta, "namespace", key.Namespace)
	}
	for field, v := range meta {
		if !slices.Contains(metadataAllowed, field) {
			found = append(found, refuse("metadata."+field, event.RuleForbidden, fmt.Sprint(v), "a command may set labels and annotations only")...)
		}
	}
	if labels == nil {
		labels = map[string]any{}
	}
	if watchFilter != "" {
		if _, set := labels[name.LabelWatchFilter]; set {
			same("metadata.labels["+name.LabelWatchFilter+"]", labels, name.LabelWatchFilter, watchFilter)
		}
		labels[name.LabelWatchFilter] = watchFilter
	}
	if tenant, ok := typed.(*v1alpha1.TenantControlPlane); ok {
		_, bad := scheduleOf(tenant.Annotations)
		found = append(found, bad...)
		_, bad = backupsOf(tenant.Annotations)
		found = append(found, bad...)
		_, bad = quotaOf(tenant.Annotations)
		found = append(found, bad...)
		_, bad = inPlaceOf(tenant, nil)
		found = append(found, bad...)
		found = append(found, unusable(tenant.Spec.Kubernetes.APIServer)...)
	}
	if len(found) > 0 {
		slices.SortFunc(found, func(a, b event.FieldError) int { return strings.Compare(a.Field, b.Field) })
		return nil, nil, found
	}
	clean := map[string]any{"name": key.Name}
	if k.Namespaced {
		clean["namespace"] = key.Namespace
		clean["finalizers"] = []string{name.FinalizerTenant}
	}
	delete(labels, name.LabelDataStore) // intake's own word, see withRecord
	clean["labels"] = labels
	if a, ok := meta["annotations"].(map[string]any); ok {
		for _, own := range []string{name.AnnotationCommand, name.AnnotationDataStore, name.AnnotationDatastoreOverrides} {
			delete(a, own) // as above
		}
		clean["annotations"] = a
	}
	m["metadata"] = clean
	delete(m, "status")
	return typed, m, nil
}

// merge is RFC 7386: it changes into by a merge patch and returns the result.
func merge(into, patch any) any {
	p, ok := patch.(map[string]any)
	if !ok {
		return patch
	}
	m, ok := into.(map[string]any)
	if !ok {
		m = map[string]any{}
	}
	m = maps.Clone(m)
	for k, v := range p {
		if v == nil {
			delete(m, k)
			continue
		}
		m[k] = merge(m[k], v)
	}
	return m
}
