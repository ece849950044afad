// Package datastore gives each tenant its place in a DataStore: a user that reaches just the tenant's own data, and the
// two Secrets by which the tenant's API server connects.
//
// It wakes on intake.accepted, intake.deleting, workload.removed and its own timer; on changes of the Secrets it made and
// of DataStore objects. It makes so: user, schema and grants, <tenant>-datastore-config, <tenant>-datastore-certificate.
// It tells datastore.provisioned, datastore.removed, and datastore.checked about DataStores.
package datastore

import (
	"context"
	"time"

	"github.com/stoker-k8s/stoker/pkg/api/name"
	"github.com/stoker-k8s/stoker/pkg/api/v1alpha1"
	"github.com/stoker-k8s/stoker/pkg/events"
	"github.com/stoker-k8s/stoker/pkg/kube"
	"github.com/stoker-k8s/stoker/pkg/service"
	"github.com/stoker-k8s/stoker/services/datastore/driver"
	"github.com/stoker-k8s/stoker/services/datastore/driver/etcd"
)

// Run runs the service until ctx ends.
func Run(ctx context.Context, cfg service.Config) error {
	return service.Run(ctx, cfg, func(c *service.Clients) (*events.Loop, error) {
		s := &datastore{kube: c.Kube, bus: c.Bus, stores: newStores(&reader{kube: c.Kube}, Drivers()), now: time.Now}
		return &events.Loop{Bus: c.Bus, Service: name.ServiceDatastore, Handle: s.handle, Watch: s.watch}, nil
	})
}

// Drivers returns the drivers there are, by kind.
func Drivers() map[v1alpha1.Driver]driver.Open {
	return map[v1alpha1.Driver]driver.Open{v1alpha1.DriverEtcd: etcd.Open}
}

// datastore is the service.
type datastore struct {
	kube   *kube.Client
	bus    *events.Bus
	stores *stores
	now    func() time.Time
}

// handle is the one loop, for tenants and for DataStores.
func (s *datastore) handle(ctx context.Context, t *events.Turn) error {
	switch {
	case t.Key == events.DataStore(t.Key.Name):
		return s.check(ctx, t)
	case t.Tenant == nil:
		return nil
	case t.Tenant.Deleting:
		return s.remove(ctx, t)
	}
	return s.provision(ctx, t)
}
