package status

import (
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/stoker-k8s/stoker/pkg/api/event"
	"github.com/stoker-k8s/stoker/pkg/api/v1alpha1"
)

func TestComputeDataStore(t *testing.T) {
	t.Parallel()
	check := event.DatastoreChecked{About: event.About{Name: "default", Generation: 3}, Driver: "etcd", Ready: true}
	first := ComputeDataStore(&check, nil, v1alpha1.DataStoreStatus{}, clock)
	// written is the status once first is in it, beside what intake says.
	written := v1alpha1.DataStoreStatus{
		ObservedGeneration: first.ObservedGeneration, Ready: first.Ready, UsedBy: []string{"default/a"},
		Conditions: append([]metav1.Condition{{Type: v1alpha1.DataStoreConditionAllowedDeletion, Status: metav1.ConditionFalse}}, first.Conditions...),
	}
	t.Run("a DataStore that answers is ready", func(t *testing.T) {
		t.Parallel()
		if !first.Ready || first.ObservedGeneration != 3 || !meta.IsStatusConditionTrue(first.Conditions, v1alpha1.DataStoreConditionValid) {
			t.Errorf("%+v", first)
		}
		if first.isIn(v1alpha1.DataStoreStatus{}) {
			t.Error("an empty status says nothing")
		}
	})
	t.Run("who uses it is intake's to say", func(t *testing.T) {
		t.Parallel()
		used := check
		used.UsedBy = []string{"b/y"} // as told by earlier versions
		if s := ComputeDataStore(&used, nil, v1alpha1.DataStoreStatus{}, clock); len(s.Conditions) != 1 {
			t.Errorf("%+v", s)
		}
	})
	t.Run("the same check later changes nothing", func(t *testing.T) {
		t.Parallel()
		if again := ComputeDataStore(&check, nil, written, clock.Add(time.Hour)); !again.isIn(written) {
			t.Errorf("%+v", again)
		}
	})
	t.Run("another generation is news", func(t *testing.T) {
		t.Parallel()
		next := check
		next.Generation = 4
		if ComputeDataStore(&next, nil, written, clock).isIn(written) {
			t.Error("said")
		}
	})
	t.Run("a check that failed says why", func(t *testing.T) {
		t.Parallel()
		failed := check
		failed.Ready, failed.Reason, failed.Message = false, v1alpha1.DataStoreReasonTLSConfigFailed, "Secret default/etcd-ca has no key ca.key"
		s := ComputeDataStore(&failed, nil, written, clock)
		c := meta.FindStatusCondition(s.Conditions, v1alpha1.DataStoreConditionValid)
		if s.Ready || s.isIn(written) || c.Status != metav1.ConditionFalse || c.Reason != v1alpha1.DataStoreReasonTLSConfigFailed || c.Message != failed.Message {
			t.Errorf("%+v", s)
		}
	})
	t.Run("what tenants hold is beside the check, and each stays when the other is news", func(t *testing.T) {
		t.Parallel()
		measured := &event.DatastoreMeasured{About: event.About{Name: "default", Generation: 3}, Bytes: 5, Keys: 6, LatencyMilliseconds: 7, MeasuredAt: clock}
		s := ComputeDataStore(nil, measured, written, clock)
		want := v1alpha1.DataStoreUsage{StorageUsage: v1alpha1.StorageUsage{Bytes: 5, Keys: 6, MeasuredAt: at(clock)}, LatencyMilliseconds: 7}
		if !s.Ready || s.ObservedGeneration != 3 || len(s.Conditions) != 1 || s.Usage == nil || *s.Usage != want || s.isIn(written) {
			t.Errorf("%+v", s)
		}
		full := written
		full.Usage = s.Usage
		if !s.isIn(full) {
			t.Error("it isn't said once it is written")
		}
		failed := check
		failed.Ready = false
		if s := ComputeDataStore(&failed, nil, full, clock); s.Ready || s.Usage == nil || *s.Usage != want {
			t.Errorf("%+v", s)
		}
	})
}
