package store

import (
	"errors"
	"testing"

	"github.com/stoker-k8s/stoker/pkg/api/reason"
	"github.com/stoker-k8s/stoker/pkg/api/v1alpha1"
	"github.com/stoker-k8s/stoker/pkg/testing/ruletest"
	"github.com/stoker-k8s/stoker/services/datastore/driver"
)

func TestDrivers(t *testing.T) {
	drivers := Drivers()
	for _, kind := range ruletest.Drivers() {
		t.Run(string(kind)+" has a whole row", func(t *testing.T) {
			row, known := drivers[kind]
			if !known || row.Open == nil || row.Describe == nil || row.Fingerprint == nil {
				t.Fatalf("%+v", row)
			}
			var bad *driver.ConfigError
			if _, err := row.Open(driver.Config{}); !errors.As(err, &bad) {
				t.Errorf("opened with nothing: %v", err)
			}
			one := driver.Config{Endpoints: []string{"a:1"}, Username: []byte("u")}
			two := one
			if two.Endpoints = []string{"b:1"}; row.Fingerprint(one) == row.Fingerprint(two) {
				t.Error("another endpoint has the same fingerprint")
			}
		})
	}
	if len(drivers) != len(ruletest.Drivers()) {
		t.Errorf("%d drivers, of which a DataStore may have %v", len(drivers), ruletest.Drivers())
	}
}

func TestKineIsForDriversWithAnEndpoint(t *testing.T) {
	c := driver.Config{Endpoints: []string{"127.0.0.1:1"}, Username: []byte("u"), Password: []byte("p")}
	for kind, row := range Drivers() {
		d, err := row.Open(c)
		if err != nil {
			continue // it wants certificates or credentials; its contract shows the same
		}
		if (d.Endpoint() != "") != row.Kine {
			t.Errorf("%s: kine %t, endpoint %q", kind, row.Kine, d.Endpoint())
		}
		if err := d.Close(); err != nil {
			t.Error(err)
		}
	}
}

func TestDescribe(t *testing.T) {
	a := driver.Account{Owner: "uid", Schema: "s", User: "u"}
	if got := Describe("", a); got != "schema s and user u, each if its owner is uid" {
		t.Error(got)
	}
	if got := Describe(v1alpha1.DriverMySQL, a); got == Describe("", a) {
		t.Error("a kind that is known has no words of its own")
	}
}

func TestADriverThatThereIsNot(t *testing.T) {
	w, st := newWorld(nil)
	w.object.Spec.Driver = v1alpha1.DriverNATS
	_, opened, err := st.Load(t.Context())
	if v := ReadinessOf(opened, nil); err != nil || v.Usable || v.Reason != reason.DriverNotSupported ||
		v.Message != `driver "NATS" of DataStore one is not supported, only etcd` {
		t.Errorf("%+v, %v", v, err)
	}
}
