package status

// The status of DataStores. Wakes on datastore.checked; makes so status.ready, usedBy and the conditions of the DataStore.

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/stoker-k8s/stoker/pkg/api/event"
	"github.com/stoker-k8s/stoker/pkg/api/name"
	"github.com/stoker-k8s/stoker/pkg/api/v1alpha1"
	"github.com/stoker-k8s/stoker/pkg/events"
	"github.com/stoker-k8s/stoker/pkg/kube"
)

// dataStore writes down the latest check. DataStores have no bucket, so what was written is read from the object.
func (s *svc) dataStore(ctx context.Context, t *events.Turn) error {
	var last *event.DatastoreChecked
	for _, e := range t.Events {
		if e.Err != nil || e.Service != name.ServiceDatastore || e.What != event.Checked {
			continue
		}
		c := event.DatastoreChecked{}
		if err := json.Unmarshal(e.Data(), &c); err != nil {
			return &events.Permanent{Reason: "InvalidPayload", Message: "datastore.checked of " + t.Key.String() + " is not readable", Err: err}
		}
		last = &c
	}
	if last == nil {
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
	if last.UID != "" && last.UID != string(ds.UID) || last.Generation < ds.Status.ObservedGeneration {
		return nil // about an earlier one of that name, or overtaken
	}
	next := ComputeDataStore(*last, ds.Status, time.Now())
	if equality.Semantic.DeepEqual(next, ds.Status) {
		return nil
	}
	err = s.kube.ApplyStatus(ctx, kube.DataStores, "", t.Key.Name, next)
	if apierrors.IsNotFound(err) {
		return nil
	}
	return err
}

// ComputeDataStore returns the status of a DataStore after a check.
func ComputeDataStore(c event.DatastoreChecked, previous v1alpha1.DataStoreStatus, now time.Time) v1alpha1.DataStoreStatus {
	valid := metav1.Condition{
		Type: v1alpha1.DataStoreConditionValid, Status: metav1.ConditionTrue, Reason: v1alpha1.DataStoreReasonValid, Message: "the DataStore answers",
	}
	if !c.Ready {
		valid.Status, valid.Reason, valid.Message = metav1.ConditionFalse, v1alpha1.DataStoreReasonMissingCondition, "the DataStore cannot be used"
		if c.Reason != "" {
			valid.Reason = c.Reason
		}
	}
	if c.Message != "" {
		valid.Message = c.Message
	}
	deletion := metav1.Condition{
		Type: v1alpha1.DataStoreConditionAllowedDeletion, Status: metav1.ConditionTrue, Reason: v1alpha1.DataStoreReasonUnused,
		Message: "no tenant uses the DataStore",
	}
	usedBy := slices.Sorted(slices.Values(c.UsedBy))
	if len(usedBy) > 0 {
		deletion.Status, deletion.Reason = metav1.ConditionFalse, v1alpha1.DataStoreReasonStillUsed
		deletion.Message = fmt.Sprintf("%d tenants use the DataStore", len(usedBy))
		if len(usedBy) == 1 {
			deletion.Message = "tenant " + usedBy[0] + " uses the DataStore"
		}
	}
	return v1alpha1.DataStoreStatus{
		ObservedGeneration: c.Generation, Ready: c.Ready, UsedBy: usedBy,
		Conditions: settle([]metav1.Condition{valid, deletion}, previous.Conditions, c.Generation, now),
	}
}
