// Package datastore gives each tenant its place in a DataStore: a user that reaches just the tenant's own data, and the
// two Secrets by which the tenant's API server connects.
//
// It wakes on intake.accepted, intake.deleting, workload.removed and its own timer; on changes of the Secrets it made,
// of DataStore objects and of the Secrets these refer to. It makes so: user, schema and grants, <tenant>-datastore-config, <tenant>-datastore-certificate.
// It tells datastore.provisioned, datastore.removed and datastore.measured, and about DataStores datastore.checked and
// datastore.measured.
package datastore

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/stoker-k8s/stoker/pkg/api/event"
	"github.com/stoker-k8s/stoker/pkg/api/name"
	"github.com/stoker-k8s/stoker/pkg/api/v1alpha1"
	"github.com/stoker-k8s/stoker/pkg/events"
	"github.com/stoker-k8s/stoker/pkg/kube"
	"github.com/stoker-k8s/stoker/pkg/loop"
	"github.com/stoker-k8s/stoker/pkg/service"
	"github.com/stoker-k8s/stoker/services/datastore/driver"
	"github.com/stoker-k8s/stoker/services/datastore/driver/etcd"
	"github.com/stoker-k8s/stoker/services/datastore/driver/mysql"
	"github.com/stoker-k8s/stoker/services/datastore/driver/nats"
	"github.com/stoker-k8s/stoker/services/datastore/driver/postgres"
)

// Run runs the service until ctx ends.
func Run(ctx context.Context, cfg service.Config) error {
	return service.Run(ctx, cfg, func(c *service.Clients) (*loop.Loop, error) {
		s := &datastore{kube: c.Kube, bus: c.Bus, log: c.Log, stores: newStores(&reader{kube: c.Kube}, Drivers()), now: time.Now}
		s.references = newReferences(c.Kube, func(ctx context.Context, n string) {
			st := s.stores.get(n)
			st.stale()
			_, _, _ = st.load(ctx) // what is wrong is told by the turns of those who need it
		})
		s.stores.refer = func(n string, o *v1alpha1.DataStore) { s.references.set(n, secretsOf(o)) }
		c.Metrics.MustRegister(newGauges(s.stores))
		stop, err := s.answerQuestions(ctx)
		if err != nil {
			return nil, fmt.Errorf("micro service %s: %w", event.DatastoreService, err)
		}
		context.AfterFunc(ctx, stop)
		return &loop.Loop{Bus: c.Bus, Service: name.ServiceDatastore, Handle: s.handle, Watch: s.watch}, nil
	})
}

// Drivers returns the drivers there are, by kind.
func Drivers() map[v1alpha1.Driver]driver.Open {
	return map[v1alpha1.Driver]driver.Open{
		v1alpha1.DriverEtcd: etcd.Open, v1alpha1.DriverMySQL: mysql.Open, v1alpha1.DriverNATS: nats.Open, v1alpha1.DriverPostgreSQL: postgres.Open,
	}
}

// datastore is the service.
type datastore struct {
	kube   *kube.Client
	bus    *events.Bus
	log    *slog.Logger
	stores *stores
	now    func() time.Time

	references *references
	// written are the checksums of Secrets that were there before and were written by this replica, by types.NamespacedName,
	// until a state has them.
	written sync.Map
}

// handle is the one loop, for tenants and for DataStores.
func (s *datastore) handle(ctx context.Context, t *loop.Turn) error {
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
