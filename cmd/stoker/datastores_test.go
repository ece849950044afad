package main

import (
	"bytes"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/stoker-k8s/stoker/pkg/api/name"
	"github.com/stoker-k8s/stoker/pkg/api/v1alpha1"
)

func TestTableOfDataStores(t *testing.T) {
	t.Parallel()
	dataStore := func(object string, driver v1alpha1.Driver, valid string, users ...string) v1alpha1.DataStore {
		o := v1alpha1.DataStore{ObjectMeta: metav1.ObjectMeta{Name: object, CreationTimestamp: metav1.NewTime(clock.Add(-90 * time.Minute))}}
		o.Spec.Driver, o.Spec.Endpoints = driver, []string{object + ".example:2379"}
		o.Status.UsedBy, o.Status.Ready = users, valid == v1alpha1.DataStoreReasonValid
		if valid != "" {
			o.Status.Conditions = []metav1.Condition{{Type: v1alpha1.DataStoreConditionValid, Status: metav1.ConditionStatus(truth(o.Status.Ready)), Reason: valid}}
		}
		return o
	}
	three := dataStore("etcd-1", v1alpha1.DriverEtcd, v1alpha1.DataStoreReasonValid, "a/x", "b/y")
	three.Spec.Endpoints = []string{"10.0.0.1:2379", "10.0.0.2:2379"}
	three.Annotations = map[string]string{name.AnnotationMaxTenants: "200", name.AnnotationMaxBytes: "8Gi"}
	three.Status.Usage = &v1alpha1.DataStoreUsage{
		StorageUsage: v1alpha1.StorageUsage{Bytes: 3 << 29, Keys: 81234, MeasuredAt: metav1.NewTime(clock)}, LatencyMilliseconds: 2,
	}
	going := dataStore("old", v1alpha1.DriverMySQL, v1alpha1.DataStoreReasonValid, "a/z")
	going.DeletionTimestamp = &metav1.Time{Time: clock}
	paused := dataStore("pg", v1alpha1.DriverPostgreSQL, "Unreachable")
	paused.Status.Conditions = append(paused.Status.Conditions, metav1.Condition{Type: "Paused", Status: metav1.ConditionTrue})
	all := []v1alpha1.DataStore{three, dataStore("new", v1alpha1.DriverNATS, ""), going, paused}
	for format, file := range map[string]string{"": "datastores.txt", "wide": "datastores-wide.txt", "name": "datastores-name.txt", "yaml": "datastores.yaml"} {
		var b bytes.Buffer
		list := all
		if format == "yaml" {
			list = all[:1]
		}
		if err := showDataStores(&b, list, format, false, clock); err != nil {
			t.Fatal(err)
		}
		golden(t, file, b.Bytes())
	}
}
