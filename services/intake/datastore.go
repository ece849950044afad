package intake

// Wakes on the DataStores of this replica's partitions and on who uses them. Makes so their finalizer and partition, and in
// their status usedBy and the conditions that speak of use and pauses; the status service writes the rest. A DataStore that
// is to go is held until nobody uses it.

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/stoker-k8s/stoker/pkg/api/name"
	"github.com/stoker-k8s/stoker/pkg/api/v1alpha1"
	"github.com/stoker-k8s/stoker/pkg/events"
	"github.com/stoker-k8s/stoker/pkg/kube"
	"github.com/stoker-k8s/stoker/pkg/loop"
)

// syncDataStore brings a DataStore's object in line with who uses it.
func (s *svc) syncDataStore(ctx context.Context, t *loop.Turn, now time.Time) error {
	if !s.index.complete() {
		return nil // called again once it is
	}
	if wait := s.written.left(t.Key.Name, time.Now()); wait > 0 && len(t.Events) == 0 && t.Woken(wakeUse) &&
		!slices.ContainsFunc(t.Wakes, func(w loop.Wake) bool { return w.Kind != wakeUse }) {
		t.Alarm(wait, loop.Wake{Kind: wakeUse}) // what is news could not be written yet, so nothing is read for it either
		return nil
	}
	o := &v1alpha1.DataStore{}
	err := s.kube.Get(ctx, kube.DataStores, "", t.Key.Name, o)
	if apierrors.IsNotFound(err) || err == nil && !s.kube.InScope(kube.DataStores, o) {
		s.written.forget(t.Key.Name)
		return nil
	}
	if err != nil {
		return err
	}
	paused, until, bad := name.Paused(o.Annotations, now)
	if bad != nil && t.Woken(wakeObject) {
		s.log.Warn("annotation ignored", "datastore", o.Name, "error", bad)
	}
	if !until.IsZero() {
		if err := s.lookAt(ctx, t, until, now); err != nil {
			return err
		}
	}
	if paused {
		return s.writeUse(ctx, t, o, o.Status.UsedBy, pausedCondition(until), now)
	}
	if o.DeletionTimestamp == nil {
		labels := map[string]string{}
		if p := strconv.Itoa(t.Key.Partition()); o.Labels[name.LabelPartition] != p {
			labels[name.LabelPartition] = p
		}
		if err := s.add(ctx, kube.DataStores, &o.ObjectMeta, labels, nil, name.FinalizerDataStore, o); err != nil {
			return err
		}
	}
	users := s.index.users(o.Name, o.Status.UsedBy)
	if o.DeletionTimestamp != nil && len(users) == 0 {
		if users, err = s.usersOf(ctx, o.Name); err != nil {
			return err
		}
		if len(users) == 0 {
			return s.letGo(ctx, o)
		}
	}
	return s.writeUse(ctx, t, o, users, nil, now)
}

// usersOf asks the API server who uses a DataStore, by the objects themselves: the record may lack on one that
// intake hasn't met yet. It is asked before a DataStore is let go.
func (s *svc) usersOf(ctx context.Context, dataStore string) ([]string, error) {
	users := []string{}
	err := kube.Each(ctx, s.kube.Unscoped(), kube.TenantControlPlanes, "", func(o *user) {
		if o.uses(dataStore) {
			users = append(users, events.Tenant(o.Namespace, o.Name).String())
		}
	})
	slices.Sort(users)
	return users, err
}

// user is what of a tenant says which DataStore it uses.
type user struct {
	metav1.ObjectMeta `json:"metadata"`
	Spec              struct {
		DataStore          string                       `json:"dataStore"`
		DataStoreOverrides []v1alpha1.DataStoreOverride `json:"dataStoreOverrides"`
	} `json:"spec"`
	Status struct {
		Storage struct {
			DataStoreName string `json:"dataStoreName"`
		} `json:"storage"`
	} `json:"status"`
}

// uses reports whether a tenant has its data, or some of it by an override, in a DataStore, or is to have it there and has none yet.
func (o *user) uses(dataStore string) bool {
	if slices.Contains(name.Overrides(o.Annotations), dataStore) ||
		slices.ContainsFunc(o.Spec.DataStoreOverrides, func(x v1alpha1.DataStoreOverride) bool { return x.DataStore == dataStore }) {
		return true
	}
	there := o.Status.Storage.DataStoreName
	return there == dataStore || name.DataStore(o.Labels, o.Annotations) == dataStore || there == "" && o.Spec.DataStore == dataStore
}

// letGo takes the finalizer off a DataStore that nobody uses.
func (s *svc) letGo(ctx context.Context, o *v1alpha1.DataStore) error {
	i := slices.Index(o.Finalizers, name.FinalizerDataStore)
	if i < 0 {
		return nil // held by somebody else's
	}
	err := s.kube.JSONPatch(ctx, kube.DataStores, "", o.Name, withoutFinalizer(string(o.UID), name.FinalizerDataStore, i), nil)
	if err == nil {
		s.log.Info("DataStore let go: no tenant uses it", "datastore", o.Name)
	}
	if apierrors.IsNotFound(err) {
		return nil
	}
	return err
}

// use is intake's part of a DataStore's status. It always has the list, so that it owns it also when it is empty.
type use struct {
	UsedBy     []string           `json:"usedBy"`
	Conditions []metav1.Condition `json:"conditions"`
}

// useOf returns intake's part of a status: who uses the DataStore, whether it may go, and the pause, nil for none.
func useOf(o *v1alpha1.DataStore, users []string, paused *metav1.Condition, now time.Time) use {
	deletion := metav1.Condition{
		Type: v1alpha1.DataStoreConditionAllowedDeletion, Status: metav1.ConditionTrue, Reason: v1alpha1.DataStoreReasonUnused,
		Message: "no tenant uses the DataStore",
	}
	if len(users) > 0 {
		deletion.Status, deletion.Reason = metav1.ConditionFalse, v1alpha1.DataStoreReasonStillUsed
		deletion.Message = fmt.Sprintf("%d tenants use the DataStore", len(users))
		if len(users) == 1 {
			deletion.Message = "tenant " + users[0] + " uses the DataStore"
		}
		if o.DeletionTimestamp != nil {
			deletion.Message += "; it goes once nobody does, and gets no new ones"
		}
	}
	u := use{UsedBy: append([]string{}, users...), Conditions: []metav1.Condition{deletion}}
	if paused != nil {
		u.Conditions = append(u.Conditions, *paused)
	}
	for i := range u.Conditions {
		c := &u.Conditions[i]
		c.ObservedGeneration, c.LastTransitionTime = o.Generation, metav1.NewTime(now.UTC().Truncate(time.Second))
		if before := meta.FindStatusCondition(o.Status.Conditions, c.Type); before != nil && before.Status == c.Status {
			c.LastTransitionTime = before.LastTransitionTime
		}
	}
	return u
}

// said reports whether a DataStore's status has this part already.
func (u use) said(o *v1alpha1.DataStore) bool {
	if !slices.Equal(u.UsedBy, o.Status.UsedBy) {
		return false
	}
	for _, typ := range []string{v1alpha1.DataStoreConditionAllowedDeletion, conditionPaused} {
		want, have := meta.FindStatusCondition(u.Conditions, typ), meta.FindStatusCondition(o.Status.Conditions, typ)
		if (want == nil) != (have == nil) || want != nil && !sameCondition(*want, *have) {
			return false
		}
	}
	return true
}

func sameCondition(a, b metav1.Condition) bool {
	same := a.LastTransitionTime.Equal(&b.LastTransitionTime)
	a.LastTransitionTime, b.LastTransitionTime = metav1.Time{}, metav1.Time{}
	return same && a == b
}

// conditionPaused is there while a DataStore is paused.
const conditionPaused = "Paused"

func pausedCondition(until time.Time) *metav1.Condition {
	c := &metav1.Condition{
		Type: conditionPaused, Status: metav1.ConditionTrue, Reason: "Annotated",
		Message: "annotation " + name.AnnotationPaused + ": the DataStore is not checked, not let go, and gets no new tenants",
	}
	if !until.IsZero() {
		c.Message = "annotation " + name.AnnotationPausedUntil + ": until " + until.Format(time.RFC3339) +
			" the DataStore is not checked, not let go, and gets no new tenants"
	}
	return c
}

// writeUse writes intake's part of the status if it is another, with a pause after each write, so that with many new tenants
// each tells of several.
func (s *svc) writeUse(
	ctx context.Context, t *loop.Turn, o *v1alpha1.DataStore, users []string, paused *metav1.Condition, now time.Time,
) error {
	u := useOf(o, users, paused, now)
	if u.said(o) {
		return nil
	}
	if wait := s.written.wait(o.Name, len(users), time.Now()); wait > 0 {
		t.Alarm(wait, loop.Wake{Kind: wakeUse})
		return nil
	}
	err := s.kube.ApplyStatus(ctx, kube.DataStores, &o.ObjectMeta, u)
	if apierrors.IsNotFound(err) {
		return nil
	}
	return err
}

// written is when the statuses of DataStores may be written again. It is safe for concurrent use.
type written struct {
	mu   sync.Mutex
	next map[string]time.Time
}

// pauseAfter is the least time between two writes of one DataStore's status: a second, and more for those with many users, all
// of whom each write says, so that a thousand new tenants don't cost a million names.
func pauseAfter(users int) time.Duration {
	return time.Second + time.Duration(users)*5*time.Millisecond
}

// left returns how long a write has to wait, zero or less when it hasn't.
func (w *written) left(n string, now time.Time) time.Duration {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.next[n].Sub(now)
}

// wait is left; if there is no need to wait, the write, with so many users, is noted.
func (w *written) wait(n string, users int, now time.Time) time.Duration {
	w.mu.Lock()
	defer w.mu.Unlock()
	if d := w.next[n].Sub(now); d > 0 {
		return d
	}
	if w.next == nil {
		w.next = map[string]time.Time{}
	}
	w.next[n] = now.Add(pauseAfter(users))
	return 0
}

func (w *written) forget(n string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	delete(w.next, n)
}
