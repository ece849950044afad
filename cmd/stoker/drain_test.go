package main

import (
	"fmt"
	"slices"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/stoker-k8s/stoker/pkg/api/name"
	"github.com/stoker-k8s/stoker/pkg/api/v1alpha1"
)

func TestInside(t *testing.T) {
	t.Parallel()
	tenant := func(n, at, asks string, change func(*v1alpha1.TenantControlPlane)) v1alpha1.TenantControlPlane {
		o := v1alpha1.TenantControlPlane{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: n}}
		o.Status.Storage.DataStoreName, o.Spec.DataStore = at, asks
		if change != nil {
			change(&o)
		}
		return o
	}
	overrides := func(dataStore string) func(*v1alpha1.TenantControlPlane) {
		return func(o *v1alpha1.TenantControlPlane) {
			o.Spec.DataStoreOverrides = []v1alpha1.DataStoreOverride{{Resource: "/events", DataStore: dataStore}}
		}
	}
	todo, left := inside([]v1alpha1.TenantControlPlane{
		tenant("in-b", "a", "a", nil),
		tenant("in-a", "a", "a", nil),
		tenant("by-label", "a", "", func(o *v1alpha1.TenantControlPlane) { o.Labels = map[string]string{name.LabelDataStore: "a"} }),
		tenant("on-its-way", "a", "c", nil),
		tenant("elsewhere", "b", "b", nil),
		tenant("new", "", "a", nil),
		tenant("comes", "b", "a", nil),
		tenant("with-overrides", "a", "a", overrides("b")),
		tenant("overrides-there", "b", "b", overrides("a")),
		tenant("overrode-there", "b", "b", func(o *v1alpha1.TenantControlPlane) {
			o.Annotations = map[string]string{name.AnnotationDatastoreOverrides: "a"}
		}),
		tenant("overrides-elsewhere", "b", "b", overrides("c")),
		tenant("goes", "a", "a", func(o *v1alpha1.TenantControlPlane) { o.DeletionTimestamp = &metav1.Time{Time: time.Now()} }),
		tenant("paused", "a", "a", func(o *v1alpha1.TenantControlPlane) {
			o.Status.Conditions = []metav1.Condition{{Type: "Paused", Status: metav1.ConditionTrue}}
		}),
	}, "a")
	var order []string
	for _, u := range todo {
		d := draining{to: "b"}
		order = append(order, fmt.Sprintf("%s %v %v %s", u.tenant.Name, u.asked, u.overrides, d.goal(u)))
	}
	if want := []string{
		"on-its-way true false c", "by-label false false b", "in-a false false b", "in-b false false b", "overrides-there false true b", "with-overrides false false b",
	}; !slices.Equal(order, want) {
		t.Errorf("%q", order)
	}
	want := []string{
		"default/comes has its data in DataStore b, and they are to go there",
		"default/goes is being deleted",
		"default/new is to have it, and has no data there yet",
		"default/paused is paused",
	}
	if slices.Sort(left); !slices.Equal(left, want) {
		t.Errorf("left out: %q", left)
	}
}
