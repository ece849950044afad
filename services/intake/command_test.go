package intake

import (
	"errors"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/stoker-k8s/stoker/pkg/api/event"
	"github.com/stoker-k8s/stoker/pkg/api/name"
	"github.com/stoker-k8s/stoker/pkg/api/state"
	"github.com/stoker-k8s/stoker/pkg/api/v1alpha1"
	"github.com/stoker-k8s/stoker/pkg/events"
	"github.com/stoker-k8s/stoker/pkg/kube"
)

const good = `{"apiVersion":"kamaji.clastix.io/v1alpha1","kind":"TenantControlPlane","metadata":{"name":"demo","namespace":"default","labels":{"team":"a"}},` +
	`"spec":{"controlPlane":{"service":{"serviceType":"LoadBalancer"}},"kubernetes":{"version":"v1.36.3"}},"status":{"x":1}}`

func TestObject(t *testing.T) {
	key := events.Tenant("default", "demo")
	t.Run("what is applied carries partition and finalizer, and no status", func(t *testing.T) {
		body, err := object(key, kube.TenantControlPlanes, []byte(strings.Replace(good, `,"status":{"x":1}`, "", 1)), &v1alpha1.TenantControlPlane{})
		if err != nil {
			t.Fatal(err)
		}
		for _, want := range []string{name.FinalizerTenant, `"` + name.LabelPartition + `":"`, `"team":"a"`} {
			if !strings.Contains(string(body), want) {
				t.Errorf("no %s in %s", want, body)
			}
		}
	})
	for _, c := range []struct{ name, change, to, field, rule string }{
		{"an unknown field", `"kubernetes":{`, `"kubernetes":{"colour":"red",`, "spec.kubernetes.colour", "Unknown"},
		{"a field given twice", `"version":"v1.36.3"`, `"version":"v1.36.3","version":"v1.35.4"`, "spec.kubernetes.version", "Duplicate"},
		{"a value of the wrong type", `"v1.36.3"`, `136`, "spec.kubernetes.version", "Invalid"},
		{"another kind", `"TenantControlPlane"`, `"Pod"`, "kind", "Invalid"},
		{"another name", `"name":"demo"`, `"name":"other"`, "metadata.name", "Invalid"},
		{"no name", `"name":"demo",`, ``, "metadata.name", "Required"},
		{"another namespace", `"default"`, `"prod"`, "metadata.namespace", "Invalid"},
		{"owner references", `"labels"`, `"ownerReferences":[],"labels"`, "metadata.ownerReferences", "Forbidden"},
		{"a list", good, `[]`, "event.data", "Invalid"},
		{"nothing", good, ``, "event.data", "Invalid"},
	} {
		t.Run(c.name+" is refused, and the field named", func(t *testing.T) {
			_, err := object(key, kube.TenantControlPlanes, []byte(strings.Replace(strings.Replace(good, `,"status":{"x":1}`, "", 1), strings.Replace(c.change, `,"status":{"x":1}`, "", 1), c.to, 1)), &v1alpha1.TenantControlPlane{})
			var no refusal
			if !errors.As(err, &no) {
				t.Fatalf("%v", err)
			}
			if !slices.ContainsFunc(no, func(e event.FieldError) bool { return e.Field == c.field && e.Rule == c.rule && e.Message != "" }) {
				t.Errorf("want %s %s, got %+v", c.field, c.rule, []event.FieldError(no))
			}
		})
	}
}

func FuzzObject(f *testing.F) {
	f.Add([]byte(good))
	f.Add([]byte(`{"metadata":{"name":null,"labels":[]},"spec":7}`))
	f.Add([]byte(`{"metadata":{"labels":{"a":1}}}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		_, err := object(events.Tenant("default", "demo"), kube.TenantControlPlanes, data, &v1alpha1.TenantControlPlane{})
		var no refusal
		if err != nil && (!errors.As(err, &no) || len(no) == 0 || no[0].Field == "" || no[0].Message == "") {
			t.Errorf("%q: %v", data, err)
		}
	})
}

func TestRefused(t *testing.T) {
	invalid := &apierrors.StatusError{ErrStatus: metav1.Status{Reason: metav1.StatusReasonInvalid, Code: 422, Details: &metav1.StatusDetails{Causes: []metav1.StatusCause{
		{Type: metav1.CauseTypeFieldValueInvalid, Field: "spec.networkProfile.port", Message: `Invalid value: 99999: must be at most 65535`},
		{Type: metav1.CauseTypeFieldValueRequired, Field: "spec.kubernetes.version", Message: "Required value"},
	}}}}
	var no refusal
	if !errors.As(refused(invalid), &no) || len(no) != 2 {
		t.Fatal(no)
	}
	if no[0] != (event.FieldError{Field: "spec.networkProfile.port", Rule: "Invalid", Value: "99999", Message: "must be at most 65535"}) || no[1].Rule != "Required" {
		t.Errorf("%+v", no)
	}
	for what, err := range map[string]error{
		"a conflict is tried again":                 &apierrors.StatusError{ErrStatus: metav1.Status{Reason: metav1.StatusReasonConflict, Code: http.StatusConflict}},
		"a server that can't answer is waited for":  &events.Unavailable{Dependency: kube.Dependency, Err: errors.New("refused")},
		"an error inside the server is tried again": &apierrors.StatusError{ErrStatus: metav1.Status{Reason: metav1.StatusReasonInternalError, Code: 500, Message: "boom"}},
	} {
		if errors.As(refused(err), &no) {
			t.Errorf("%s: %v", what, no)
		}
	}
	list := &apierrors.StatusError{ErrStatus: metav1.Status{Code: 500, Message: "failed to create typed patch object: duplicate entries"}}
	if !errors.As(refused(list), &no) {
		t.Error("duplicates in a list are no refusal")
	}
}

func TestDesired(t *testing.T) {
	o := &v1alpha1.TenantControlPlane{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "demo", UID: types.UID("u"), Generation: 2}}
	now := time.Date(2026, 11, 20, 8, 0, 0, 0, time.UTC)
	t.Run("a tenant that names no DataStore gets the default, once", func(t *testing.T) {
		first := desired(o, "default", nil, 0, "", now)
		if first.Spec.DataStore != "default" || first.Spec.DataStoreSchema != "u" {
			t.Errorf("%s %s", first.Spec.DataStore, first.Spec.DataStoreSchema)
		}
		if again := desired(o, "another", &first, 2, "", now); again.Spec.DataStore != "default" {
			t.Error("it moved to another DataStore by itself")
		}
		told := o.DeepCopy()
		told.Status.Storage.DataStoreName = "old"
		if lost := desired(told, "another", nil, 0, "", now); lost.Spec.DataStore != "old" {
			t.Error("after the state was lost, the status says where the data is")
		}
	})
	t.Run("the same generation keeps the time of its acceptance and is no news", func(t *testing.T) {
		first := desired(o, "default", nil, 0, "trace", now)
		again := desired(o, "default", &first, 2, "", now.Add(time.Hour))
		if !again.AcceptedAt.Equal(now) || again.TraceParent != "trace" || inputsOf(first, 2) != inputsOf(again, 2) {
			t.Errorf("%+v", again)
		}
	})
	t.Run("pausing and deleting are news", func(t *testing.T) {
		base := desired(o, "default", nil, 0, "", now)
		paused := o.DeepCopy()
		paused.Annotations = map[string]string{name.AnnotationPaused: ""}
		deleted := o.DeepCopy()
		deleted.DeletionTimestamp = &metav1.Time{Time: now}
		for _, x := range []*v1alpha1.TenantControlPlane{paused, deleted} {
			d := desired(x, "default", &base, 2, "", now)
			if inputsOf(d, 2) == inputsOf(base, 2) || d.Seen == base.Seen || !d.Paused && !d.Deleting {
				t.Errorf("%+v", d)
			}
		}
	})
	t.Run("what the watch shows and the spec knows is no news", func(t *testing.T) {
		d := desired(o, "default", nil, 0, "", now)
		s := &intake{}
		if s.news(&events.Turn{Tenant: &d, Reasons: []string{fingerprint(&o.ObjectMeta)}}) || !s.news(&events.Turn{Tenant: &state.Tenant{}, Reasons: []string{fingerprint(&o.ObjectMeta)}}) {
			t.Error("fingerprints don't tell")
		}
	})
}
