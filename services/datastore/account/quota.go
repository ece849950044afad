package account

// Quotas of tenants are kept by the gates in their pods, which count what a tenant keeps and note it beside the data (package gate). The
// turns of such a tenant read that now and then, write into its state how near to its quota it is, and tell when that changes.

import (
	"context"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/stoker-k8s/stoker/pkg/api/event"
	"github.com/stoker-k8s/stoker/pkg/api/state"
	"github.com/stoker-k8s/stoker/pkg/events"
	"github.com/stoker-k8s/stoker/pkg/loop"
	"github.com/stoker-k8s/stoker/pkg/metric"
	"github.com/stoker-k8s/stoker/services/datastore/driver"
	"github.com/stoker-k8s/stoker/services/datastore/store"
)

// usages are the tenants of this replica that have a quota.
type usages struct{ store.Tenants[usage] }

type usage struct {
	read  time.Time
	level string
}

// until is how long it is until what a tenant keeps is read again.
func (u usage) until(now time.Time) time.Duration {
	every := readUsageEvery
	if u.level != state.QuotaWithin {
		every = readUsageSoon
	}
	return u.read.Add(every).Sub(now)
}

// register has them counted at each scrape.
func (u *usages) register(own prometheus.Registerer) {
	tenants := prometheus.NewDesc("stoker_datastore_quota_tenants",
		"Tenants of this replica that have a quota, by how near to it they are: Within, Near (80 % of a bound), Full (writes are refused).", []string{"level"}, nil)
	own.MustRegister(metric.AtScrape{Gauges: []*prometheus.Desc{tenants}, Values: func(c chan<- prometheus.Metric) {
		count := map[string]int{state.QuotaWithin: 0, state.QuotaNear: 0, state.QuotaFull: 0}
		for _, is := range u.Values() {
			if is.level != "" {
				count[is.level]++
			}
		}
		for level, n := range count {
			c <- metric.Gauge(tenants, float64(n), level)
		}
	}})
}

// ReadUsage reads what a tenant with a quota keeps, when it is time, and notes how near to it that is. changed says that the state is to be
// written, facts what is to be told.
func (p *Provisioner) ReadUsage(ctx context.Context, t *loop.Turn, home Home, account driver.Account, want *state.Datastore) (changed bool, facts []loop.Tell) {
	quota := t.Tenant.Quota
	if quota == (state.Quota{}) {
		p.usages.Forget(t.Key)
		changed = want.Usage != nil
		want.Usage = nil
		return changed, nil
	}
	if t.Tenant.Sleeps() { // there is nobody who counts
		return false, nil
	}
	now := p.now()
	level := func() string {
		if want.Usage == nil {
			return ""
		}
		return want.Usage.Level
	}
	if pause := p.usages.Get(t.Key).until(now); pause > 0 {
		t.Alarm(pause, loop.Wake{Kind: wakeUsage})
		return false, nil
	}
	is, known, err := p.noted(ctx, t.Key, home.Main, account)
	switch {
	case err != nil: // what is wrong with the database is said by those who need it
		p.log.Info("what the tenant keeps can't be read", "tenant", t.Key.String(), "error", err)
	case known:
		was, use := level(), &state.Usage{Bytes: is.Bytes, Objects: is.Objects, Quota: quota, Since: now.UTC().Truncate(time.Second)}
		use.Level = levelOf(quota, is, was)
		if was == use.Level && want.Usage.Quota == quota {
			break
		}
		want.Usage, changed = use, true
		facts = []loop.Tell{{What: event.Quota, Data: event.DatastoreQuota{
			About: t.About(), Level: use.Level, Bytes: is.Bytes, Objects: is.Objects, MaxBytes: quota.Bytes, MaxObjects: quota.Objects,
		}}}
	}
	read := usage{now, level()}
	p.usages.Set(t.Key, read)
	t.Alarm(read.until(now), loop.Wake{Kind: wakeUsage})
	return changed, facts
}

// levelOf says how near to its quota a tenant is, after what it was.
func levelOf(q state.Quota, is driver.Usage, was string) string {
	near := nearFrom
	if was == state.QuotaNear || was == state.QuotaFull {
		near = nearUntil
	}
	reaches := func(is, bound int64) bool { return bound > 0 && float64(is)*100 >= float64(bound)*float64(near) }
	switch {
	case is.Full:
		return state.QuotaFull
	case reaches(is.Bytes, q.Bytes) || reaches(is.Objects, q.Objects):
		return state.QuotaNear
	}
	return state.QuotaWithin
}

// noted is what a tenant's gates have noted; not known before they have.
func (p *Provisioner) noted(ctx context.Context, key events.Key, st *store.Store, account driver.Account) (is driver.Usage, known bool, err error) {
	there, err := p.Reach(ctx, key, st, account)
	if err != nil {
		return is, false, err
	}
	err = st.Do(ctx, func(d driver.Driver) error {
		value, err := driver.RecordOf(ctx, d, there.Account, there.Access, driver.QuotaKey)
		if err == nil && value != nil {
			is, known = driver.DecodeUsage(value)
		}
		return err
	})
	return is, known, err
}
