package store

// How much tenants hold is asked of each DataStore now and then, by every replica that has tenants there. A tenant is woken
// when it holds notably more or less than its state says, and publishes measured; so do the turns of a DataStore about all of
// them. The replica that works on a DataStore shows it as metrics: the sizes of all as a histogram, those of the largest by
// name, for a series per tenant is more than most want to keep.

import (
	"context"
	"slices"
	"time"

	"golang.org/x/sync/errgroup"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/stoker-k8s/stoker/pkg/api/state"
	"github.com/stoker-k8s/stoker/pkg/api/v1alpha1"
	"github.com/stoker-k8s/stoker/pkg/events"
	"github.com/stoker-k8s/stoker/pkg/loop"
	"github.com/stoker-k8s/stoker/pkg/partition"
	"github.com/stoker-k8s/stoker/services/datastore/driver"
)

// sample asks the DataStores of the partitions that are held, and those that this replica has tenants on, for the sizes of all tenants.
func (r *Registry) sample(ctx context.Context, held *partition.Held) {
	tick := time.NewTicker(longestPause)
	defer tick.Stop()
	for {
		var g errgroup.Group
		partitions := held.Now()
		for _, n := range r.Names() {
			mine := slices.Contains(partitions, events.DataStore(n).Partition())
			g.Go(func() error { r.look(ctx, r.Get(n), mine); return nil })
		}
		_ = g.Wait()
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}

// look measures and compacts a DataStore when it is time; mine says whether this replica works on it, and so is the one that compacts.
func (r *Registry) look(ctx context.Context, st *Store, mine bool) {
	if !st.concerns(mine) {
		st.noteSizes(nil, time.Time{})
		return
	}
	if st.Paused(r.now()) {
		return
	}
	if st.unmeasured(r.now()) {
		st.measure(ctx)
	}
	if mine && st.uncompacted(r.now()) {
		r.compact(ctx, st)
	}
}

// concerns notes whether this replica works on the DataStore and reports whether its sizes concern it.
func (st *Store) concerns(mine bool) bool {
	st.mu.Lock()
	defer st.mu.Unlock()
	st.mine = mine
	return mine || len(st.tenants) > 0
}

// unmeasured reports whether it is time to ask.
func (st *Store) unmeasured(now time.Time) bool {
	st.mu.Lock()
	defer st.mu.Unlock()
	pause := sampleEvery
	for _, left := range st.tenants {
		if ripe := left.since.Add(sampleNew); left.home && !left.measured && !now.Before(ripe) && st.measuredAt.Before(ripe) {
			pause = sampleNew
			break
		}
	}
	return st.conn != nil && st.away == nil && now.Sub(st.measuredAt) >= pause
}

// measure asks for sizes, if the driver knows them, and wakes the tenants whose size is news, and the DataStore if what should be put
// right about it is another. What fails is tried again with the next tick; what is wrong is reported by the turns of those who need
// the DataStore.
func (st *Store) measure(ctx context.Context) {
	var sizes map[string]driver.Size
	if err := st.Do(ctx, func(d driver.Driver) (err error) {
		if sizer, ok := d.(driver.Sizer); ok {
			sizes, err = sizer.Sizes(ctx)
		}
		return err
	}); err == nil {
		now := st.of.now()
		st.noteSizes(sizes, now)
		st.of.WakeAll(st.grown(now), loop.Wake{Kind: WakeSize})
		if u := st.Usage(); u != nil {
			if UsageChanged(st.reportedUsage(), u) {
				st.of.WakeAll([]events.Key{events.DataStore(st.Name)}, loop.Wake{Kind: WakeSize})
			}
			why, _ := st.Warning(ctx)
			st.warns(why)
		}
	}
}

func (st *Store) noteSizes(sizes map[string]driver.Size, at time.Time) {
	st.mu.Lock()
	defer st.mu.Unlock()
	st.sizes, st.measuredAt = sizes, at
}

// grown are the tenants that hold notably more or less than their states say.
func (st *Store) grown(now time.Time) []events.Key {
	st.mu.Lock()
	defer st.mu.Unlock()
	var keys []events.Key
	for key, left := range st.tenants {
		is, known := st.sizes[left.schema]
		if known && left.home && notable(left.measured, left.size, is) && (left.measured || now.Sub(left.since) >= sampleNew) {
			keys = append(keys, key)
		}
	}
	return keys
}

// TakeSize puts a tenant's size into its state if that is news, and reports whether it was.
func (st *Store) TakeSize(own *state.Datastore) bool {
	st.mu.Lock()
	defer st.mu.Unlock()
	is, known := st.sizes[own.Schema]
	if !known || !notable(!own.MeasuredAt.IsZero(), driver.Size{Bytes: own.Bytes, Keys: own.Keys}, is) {
		return false
	}
	own.Bytes, own.Keys, own.MeasuredAt = is.Bytes, is.Keys, st.measuredAt.UTC()
	return true
}

// Usage of the DataStore by all its tenants, nil when another replica is to report it.
func (st *Store) Usage() *v1alpha1.DataStoreUsage {
	st.mu.Lock()
	defer st.mu.Unlock()
	if st.sizes == nil || !st.mine {
		return nil
	}
	u := &v1alpha1.DataStoreUsage{LatencyMilliseconds: milliseconds(st.latency)}
	u.MeasuredAt = metav1.NewTime(st.measuredAt.UTC().Truncate(time.Second))
	for _, s := range st.sizes {
		u.Bytes, u.Keys = u.Bytes+s.Bytes, u.Keys+s.Keys
	}
	return u
}

// reportedUsage is the usage that the DataStore's status had when it was read last.
func (st *Store) reportedUsage() *v1alpha1.DataStoreUsage {
	st.mu.Lock()
	defer st.mu.Unlock()
	if st.object == nil {
		return nil
	}
	return st.object.Status.Usage
}

// milliseconds of a latency, at least one, for 0 is none.
func milliseconds(d time.Duration) int64 {
	if d <= 0 {
		return 0
	}
	return int64((d + time.Millisecond - 1) / time.Millisecond)
}

// notable reports whether a size is worth reporting; was is the one reported last, if reported says that one was.
func notable(reported bool, was, is driver.Size) bool {
	return !reported || moved(was.Bytes, is.Bytes, leastBytes) || moved(was.Keys, is.Keys, leastKeys)
}

// moved reports whether a value changed by a tenth and by no less than that.
func moved(was, is, least int64) bool {
	by := max(was-is, is-was)
	return by >= least && by >= was/10
}

// UsageChanged reports whether the usage of a DataStore is worth reporting, after the one reported last, nil for none. A database
// doesn't answer equally fast for long, so that only twice or half as slow is.
func UsageChanged(was, is *v1alpha1.DataStoreUsage) bool {
	if was == nil || is == nil {
		return is != nil
	}
	slow := max(was.LatencyMilliseconds, is.LatencyMilliseconds)
	quick := min(was.LatencyMilliseconds, is.LatencyMilliseconds)
	return notable(!was.MeasuredAt.IsZero(), driver.Size{Bytes: was.Bytes, Keys: was.Keys}, driver.Size{Bytes: is.Bytes, Keys: is.Keys}) ||
		slow >= 2*quick && slow-quick >= leastMilliseconds
}
