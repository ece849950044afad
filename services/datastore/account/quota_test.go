package account

import (
	"testing"

	"github.com/stoker-k8s/stoker/pkg/api/state"
	"github.com/stoker-k8s/stoker/services/datastore/driver"
)

func TestLevelOf(t *testing.T) {
	bytes, both := state.Quota{Bytes: 1000}, state.Quota{Bytes: 1000, Objects: 100}
	for _, c := range []struct {
		quota state.Quota
		is    driver.Usage
		was   string
		want  string
	}{
		{bytes, driver.Usage{Bytes: 799, Objects: 1 << 40}, "", state.QuotaWithin},
		{bytes, driver.Usage{Bytes: 800}, state.QuotaWithin, state.QuotaNear},
		{bytes, driver.Usage{Bytes: 751}, state.QuotaNear, state.QuotaNear},
		{bytes, driver.Usage{Bytes: 749}, state.QuotaNear, state.QuotaWithin},
		{both, driver.Usage{Bytes: 1, Objects: 80}, state.QuotaWithin, state.QuotaNear},
		{both, driver.Usage{Bytes: 960, Full: true}, state.QuotaNear, state.QuotaFull},
		{both, driver.Usage{Bytes: 760}, state.QuotaFull, state.QuotaNear},
		{both, driver.Usage{Bytes: 1}, state.QuotaFull, state.QuotaWithin},
		{state.Quota{Bytes: 1 << 62}, driver.Usage{Bytes: 1 << 61}, "", state.QuotaWithin},
	} {
		if got := levelOf(c.quota, c.is, c.was); got != c.want {
			t.Errorf("%+v of %+v after %q: %s, not %s", c.is, c.quota, c.was, got, c.want)
		}
	}
}
