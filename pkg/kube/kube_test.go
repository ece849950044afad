package kube

import (
	"reflect"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/stoker-k8s/stoker/pkg/api/name"
)

func TestInScope(t *testing.T) {
	object := func(namespace, filter string) *metav1.ObjectMeta {
		return &metav1.ObjectMeta{Namespace: namespace, Labels: map[string]string{name.LabelWatchFilter: filter}}
	}
	for what, c := range map[string]struct {
		scope  Options
		r      Resource
		object *metav1.ObjectMeta
		want   bool
	}{
		"no limits":                               {r: TenantControlPlanes, object: object("a", "x"), want: true},
		"the namespace":                           {Options{Namespace: "a"}, TenantControlPlanes, object("a", ""), true},
		"another namespace":                       {Options{Namespace: "a"}, TenantControlPlanes, object("b", ""), false},
		"cluster-scoped kinds have none":          {Options{Namespace: "a"}, DataStores, object("", ""), true},
		"the label":                               {Options{WatchFilter: "x"}, DataStores, object("", "x"), true},
		"another label":                           {Options{WatchFilter: "x"}, TenantControlPlanes, object("a", "y"), false},
		"no label":                                {Options{WatchFilter: "x"}, TenantControlPlanes, &metav1.ObjectMeta{Namespace: "a"}, false},
		"the label is on Kamaji's kinds alone":    {Options{WatchFilter: "x"}, Secrets, &metav1.ObjectMeta{Namespace: "a"}, true},
		"both: the label, in another namespace":   {Options{Namespace: "a", WatchFilter: "x"}, TenantControlPlanes, object("b", "x"), false},
		"both: the namespace, with another label": {Options{Namespace: "a", WatchFilter: "x"}, TenantControlPlanes, object("a", "y"), false},
		"both: the namespace and the label":       {Options{Namespace: "a", WatchFilter: "x"}, TenantControlPlanes, object("a", "x"), true},
	} {
		t.Run(what, func(t *testing.T) {
			k := &Client{scope: c.scope}
			if k.InScope(c.r, c.object) != c.want {
				t.Error(!c.want)
			}
			if !k.Unscoped().InScope(c.r, c.object) || !reflect.DeepEqual(k.scope, c.scope) {
				t.Error("without limits everything is in scope, and the limits stay where they were")
			}
		})
	}
}
