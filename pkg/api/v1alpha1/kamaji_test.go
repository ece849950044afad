package v1alpha1

import (
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/stoker-k8s/stoker/pkg/api/name"
)

func TestMadeByKamaji(t *testing.T) {
	t.Parallel()
	made := TenantControlPlane{ObjectMeta: metav1.ObjectMeta{Finalizers: []string{name.FinalizerTenant}}}
	for what, change := range map[string]struct {
		made   bool
		change func(*TenantControlPlane)
	}{
		"Kamaji's finalizer":                         {true, func(*TenantControlPlane) {}},
		"only the finalizer that newer Kamajis have": {true, func(o *TenantControlPlane) { o.Finalizers = []string{name.FinalizerSoot} }},
		"a Service in the status, before a finalizer": {true, func(o *TenantControlPlane) {
			o.Finalizers = nil
			o.Status.Kubernetes.Service = &KubernetesServiceStatus{}
		}},
		"nothing: it is new":                         {false, func(o *TenantControlPlane) { o.Finalizers = nil }},
		"it is to be adopted":                        {false, func(o *TenantControlPlane) { o.Annotations = map[string]string{name.AnnotationAdopt: ""} }},
		"the record of its DataStore, none yet":      {false, func(o *TenantControlPlane) { o.Annotations = map[string]string{name.AnnotationDataStore: ""} }},
		"the label of the partition, as before":      {false, func(o *TenantControlPlane) { o.Labels = map[string]string{name.LabelPartition: "3"} }},
		"conditions, after somebody took the record": {false, func(o *TenantControlPlane) { o.Status.Conditions = []metav1.Condition{{Type: "Ready"}} }},
		"conditions, after it went back to Kamaji": {true, func(o *TenantControlPlane) {
			o.Finalizers = append(o.Finalizers, name.FinalizerSoot)
			o.Status.Conditions = []metav1.Condition{{Type: "Ready"}}
		}},
	} {
		o := made.DeepCopy()
		change.change(o)
		if MadeByKamaji(o) != change.made {
			t.Errorf("%s: %t", what, !change.made)
		}
	}
}
