package status

// The status of DataStores, as far as the datastore service says it: intake says who uses them. Wakes on datastore.checked and
// datastore.measured; makes so ready, observedGeneration, the condition of validation, and usage.

import (
	"context"
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/stoker-k8s/stoker/pkg/api/event"
	"github.com/stoker-k8s/stoker/pkg/api/name"
	"github.com/stoker-k8s/stoker/pkg/api/v1alpha1"
	"github.com/stoker-k8s/stoker/pkg/kube"
	"github.com/stoker-k8s/stoker/pkg/loop"
)

// dataStore writes down the latest check and the latest measurement. DataStores have no bucket, so what was written is read
// from the object.
func (s *svc) dataStore(ctx context.Context, t *loop.Turn) error {
	var checked *event.DatastoreChecked
	var measured *event.DatastoreMeasured
	for _, e := range t.Events {
		if e.Err != nil || e.Service != name.ServiceDatastore {
			continue
		}
		var err error
		switch e.What {
		case event.Checked:
			checked = &event.DatastoreChecked{}
			err = decodeFact(t.Key, e, checked)
		case event.Measured:
			measured = &event.DatastoreMeasured{}
			err = decodeFact(t.Key, e, measured)
		}
		if err != nil {
			return err
		}
	}
	if checked == nil && measured == nil {
		return nil
	}
	ds := v1alpha1.DataStore{}
	err := s.kube.Get(ctx, kube.DataStores, "", t.Key.Name, &ds)
	if apierrors.IsNotFound(err) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("DataStore %s: %w", t.Key.Name, err)
	}
	// About an earlier one of that name, or overtaken.
	if checked != nil && (checked.UID != "" && checked.UID != string(ds.UID) || checked.Generation < ds.Status.ObservedGeneration) {
		checked = nil
	}
	if u := ds.Status.Usage; measured != nil && (measured.UID != string(ds.UID) || u != nil && measured.MeasuredAt.Before(u.MeasuredAt.Time)) {
		measured = nil
	}
	next := ComputeDataStore(checked, measured, ds.Status, time.Now())
	if next.isIn(ds.Status) {
		return nil
	}
	err = s.kube.ApplyStatus(ctx, kube.DataStores, &ds.ObjectMeta, next)
	if apierrors.IsNotFound(err) {
		return nil
	}
	return err
}

// DataStoreCheck is this service's part of a DataStore's status. What isn't ready says so.
type DataStoreCheck struct {
	ObservedGeneration int64                    `json:"observedGeneration"`
	Ready              bool                     `json:"ready"`
	Conditions         []metav1.Condition       `json:"conditions"`
	Usage              *v1alpha1.DataStoreUsage `json:"usage,omitempty"`
}

// ComputeDataStore returns what a check and a measurement mean for the status of a DataStore; what there is no news of, nil,
// stays.
func ComputeDataStore(
	checked *event.DatastoreChecked, measured *event.DatastoreMeasured, previous v1alpha1.DataStoreStatus, now time.Time,
) DataStoreCheck {
	next := DataStoreCheck{
		ObservedGeneration: previous.ObservedGeneration, Ready: previous.Ready, Conditions: []metav1.Condition{}, Usage: previous.Usage,
	}
	if c := meta.FindStatusCondition(previous.Conditions, v1alpha1.DataStoreConditionValid); c != nil {
		next.Conditions = append(next.Conditions, *c)
	}
	if checked != nil {
		next.ObservedGeneration, next.Ready = checked.Generation, checked.Ready
		next.Conditions = withTimes([]metav1.Condition{validity(*checked)}, previous.Conditions, checked.Generation, now)
	}
	if measured != nil {
		next.Usage = &v1alpha1.DataStoreUsage{
			StorageUsage:        v1alpha1.StorageUsage{Bytes: measured.Bytes, Keys: measured.Keys, MeasuredAt: at(measured.MeasuredAt)},
			LatencyMilliseconds: measured.LatencyMilliseconds,
		}
	}
	return next
}

// validity is the condition that a check comes to.
func validity(c event.DatastoreChecked) metav1.Condition {
	valid := metav1.Condition{
		Type: v1alpha1.DataStoreConditionValid, Status: metav1.ConditionTrue,
		Reason: v1alpha1.DataStoreReasonValid, Message: "the DataStore answers",
	}
	if !c.Ready {
		valid.Status, valid.Reason = metav1.ConditionFalse, v1alpha1.DataStoreReasonMissingCondition
		valid.Message = "the DataStore cannot be used"
	}
	if c.Reason != "" { // of one that can be used, too: what should be put right all the same
		valid.Reason = c.Reason
	}
	if c.Message != "" {
		valid.Message = c.Message
	}
	return valid
}

// isIn reports whether a status has this part already.
func (d DataStoreCheck) isIn(s v1alpha1.DataStoreStatus) bool {
	if d.Ready != s.Ready || d.ObservedGeneration != s.ObservedGeneration || !equality.Semantic.DeepEqual(d.Usage, s.Usage) {
		return false
	}
	for _, c := range d.Conditions {
		if have := meta.FindStatusCondition(s.Conditions, c.Type); have == nil || !equality.Semantic.DeepEqual(c, *have) {
			return false
		}
	}
	return true
}
