package datastore_test

import (
	"fmt"
	"testing"

	"github.com/stoker-k8s/stoker/internal/testing/drivertest"
	"github.com/stoker-k8s/stoker/internal/testing/etcdserver"
	"github.com/stoker-k8s/stoker/pkg/api/event"
	"github.com/stoker-k8s/stoker/pkg/api/state"
	"github.com/stoker-k8s/stoker/services/datastore/driver"
)

// TestUsage: what gates note of a tenant with a quota is in its state, and is told when it comes to another level.
func TestUsage(t *testing.T) {
	t.Parallel()
	server := etcdserver.Start(t)
	in := install(t)
	in.etcdStore("bounded", server)
	defer in.run()()
	demo := in.tenant("demo")
	demo.t.Spec.DataStore, demo.t.Quota = "bounded", state.Quota{Objects: 1000}
	demo.accept()
	provisioned := event.DatastoreProvisioned{}
	demo.await(event.Provisioned, &provisioned)
	s, err := demo.secret("demo-datastore-certificate")
	in.must(err)
	gate := server.Connect(t, s.Data["server.crt"], s.Data["server.key"])
	says := func(u driver.Usage, level string) {
		t.Helper()
		_, err := gate.Put(t.Context(), "/"+provisioned.Schema+"/"+driver.QuotaKey, string(u.Encode()))
		in.must(err)
		drivertest.Eventually(t, func() error {
			if _, own := demo.state(); own.Usage == nil || own.Usage.Level != level || own.Usage.Objects != u.Objects || own.Usage.Quota != demo.t.Quota {
				return fmt.Errorf("%+v", own.Usage)
			}
			return nil
		})
	}
	says(driver.Usage{Objects: 800}, state.QuotaNear)
	told := event.DatastoreQuota{}
	demo.await(event.Quota, &told)
	if told.Level != state.QuotaNear || told.Objects != 800 || told.MaxObjects != 1000 || told.MaxBytes != 0 {
		t.Errorf("told %+v", told)
	}
	says(driver.Usage{Objects: 1000, Full: true}, state.QuotaFull)
	says(driver.Usage{Objects: 749}, state.QuotaWithin)
	demo.t.Quota = state.Quota{}
	demo.accept()
	drivertest.Eventually(t, func() error {
		if _, own := demo.state(); own.Usage != nil {
			return fmt.Errorf("%+v", own.Usage)
		}
		return nil
	})
}
