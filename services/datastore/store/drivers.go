package store

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/stoker-k8s/stoker/pkg/api/v1alpha1"
	"github.com/stoker-k8s/stoker/services/datastore/driver"
	"github.com/stoker-k8s/stoker/services/datastore/driver/etcd"
	"github.com/stoker-k8s/stoker/services/datastore/driver/mysql"
	"github.com/stoker-k8s/stoker/services/datastore/driver/nats"
	"github.com/stoker-k8s/stoker/services/datastore/driver/postgres"
)

// Kind is what the service knows of a kind of database before it has a connection: a row of Drivers.
type Kind struct {
	// Open makes a driver.
	Open driver.Open
	// Describe says what an account is in such a database, for whoever has to remove it by hand.
	Describe func(driver.Account) string
	// Fingerprint is of what of a configuration shows in tenants' Secrets: when it changes, tenants are provisioned again.
	Fingerprint func(driver.Config) string
	// Kine says that tenants reach the database through kine, so that their API servers can't be given several of them
	// (spec.dataStoreOverrides). Such a driver has an Endpoint.
	Kine bool
	// KeysPerSecond is about how many keys of 2 kB a second a move copies into such a database: measured on two cores with nothing else to do,
	// it is a rough guess of what another machine does.
	KeysPerSecond int64
}

// Drivers returns the drivers there are, by a DataStore's spec.driver. A new kind of database is a package below driver and a row
// here.
func Drivers() map[v1alpha1.Driver]Kind {
	return map[v1alpha1.Driver]Kind{
		v1alpha1.DriverEtcd: {Open: etcd.Open, Describe: etcd.Describe, Fingerprint: driver.Config.TenantsChecksum, KeysPerSecond: 12_000},
		v1alpha1.DriverMySQL: {
			Open: mysql.Open, Describe: mysql.Describe, Fingerprint: driver.Config.TenantsChecksum, Kine: true, KeysPerSecond: 1_300,
		},
		v1alpha1.DriverPostgreSQL: {
			Open: postgres.Open, Describe: postgres.Describe, Fingerprint: driver.Config.TenantsChecksum, Kine: true, KeysPerSecond: 2_000,
		},
		// Who tenants are comes from who the administrator is.
		v1alpha1.DriverNATS: {Open: nats.Open, Describe: nats.Describe, Fingerprint: driver.Config.Checksum, Kine: true, KeysPerSecond: 5_000},
	}
}

// Describe says what an account is in a kind of database, in general words where the kind isn't known.
func Describe(kind v1alpha1.Driver, a driver.Account) string {
	if row, known := Drivers()[kind]; known {
		return row.Describe(a)
	}
	return fmt.Sprintf("schema %s and user %s, each if its owner is %s", a.Schema, a.User, a.Owner)
}

// UnsupportedError means that there is no driver for a DataStore's spec.driver.
type UnsupportedError struct {
	Object *v1alpha1.DataStore
	have   []v1alpha1.Driver
}

func (e *UnsupportedError) Error() string {
	have := make([]string, 0, len(e.have))
	for _, d := range e.have {
		have = append(have, string(d))
	}
	return fmt.Sprintf("driver %q of DataStore %s is not supported, only %s", e.Object.Spec.Driver, e.Object.Name, strings.Join(have, ", "))
}

// open makes a driver for a DataStore. Errors: *UnsupportedError, *[driver.ConfigError].
func open(drivers map[v1alpha1.Driver]Kind, object *v1alpha1.DataStore, c driver.Config) (driver.Driver, error) {
	kind, known := drivers[object.Spec.Driver]
	if !known {
		return nil, &UnsupportedError{object, slices.Sorted(maps.Keys(drivers))}
	}
	return kind.Open(c)
}
