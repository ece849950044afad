// Package datastore gives each tenant its place in a DataStore: a user that reaches just the tenant's own data, and the
// two Secrets by which the tenant's API server connects.
//
// It wakes on intake.accepted, intake.deleting, workload.removed and its own timer; on changes of the Secrets it made,
// of DataStore objects and of the Secrets these refer to. It makes so: user, schema and grants, <tenant>-datastore-config,
// <tenant>-datastore-certificate. It publishes datastore.provisioned, datastore.removed and datastore.measured, and about
// DataStores datastore.checked and datastore.measured.
//
// Three packages do the work; each imports the ones before it: store knows the DataStores, account provisions and removes the accounts of
// tenants, data moves and restores what tenants keep. This package runs their steps: provision.go lists the steps for a tenant, remove.go removes
// one, check.go checks a DataStore, watch.go and arrived.go say what causes a turn, orphans.go answers questions.
package datastore

import (
	"cmp"
	"context"
	"log/slog"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/stoker-k8s/stoker/pkg/api/name"
	"github.com/stoker-k8s/stoker/pkg/events"
	"github.com/stoker-k8s/stoker/pkg/kube"
	"github.com/stoker-k8s/stoker/pkg/loop"
	"github.com/stoker-k8s/stoker/pkg/service"
	"github.com/stoker-k8s/stoker/services/datastore/account"
	"github.com/stoker-k8s/stoker/services/datastore/data"
	"github.com/stoker-k8s/stoker/services/datastore/store"
)

// Config is the service's configuration.
type Config struct {
	service.Config
	// SecretNamespaces are the namespaces whose Secrets DataStores may refer to, comma-separated; empty for the installation's own.
	SecretNamespaces string
	// RenewBefore is how long before its end a tenant's client certificate is renewed, as a duration ([service.ParseDeadline]); empty for when
	// a third of its life is left.
	RenewBefore string
}

// Run runs the service until ctx ends.
func Run(ctx context.Context, cfg Config) error {
	before, err := service.ParseDeadline(cfg.RenewBefore)
	if err != nil {
		return err
	}
	var k *data.Keeper
	defer func() { k.Stop() }()
	return service.Run(ctx, cfg.Config, func(c *service.Clients) (*loop.Loop, error) {
		namespaces := strings.FieldsFunc(cmp.Or(cfg.SecretNamespaces, name.SystemNamespace), isSeparator)
		stores := store.New(c.Kube, namespaces, store.Drivers(), c.Log, time.Now)
		a := account.New(c.Kube, c.Log, stores, time.Now, c.Handlers, before)
		k = data.New(c.Kube, c.Bus, c.Log, stores, time.Now, a)
		s := &svc{kube: c.Kube, bus: c.Bus, log: c.Log, stores: stores, now: time.Now, accounts: a, keeper: k}
		stores.Register(c.Metrics, c.Kamaji, cfg.TenantMetrics)
		a.Register(c.Metrics)
		k.Register(c.Metrics)
		if _, err := c.Bus.AnswerQuestions(ctx, s.questions()); err != nil {
			return nil, err
		}
		return &loop.Loop{Bus: c.Bus, Service: name.ServiceDatastore, Handle: s.handle, Watch: s.watch}, nil
	})
}

// DescribeMetrics registers the metrics that datastore has beside those of every service, without a service.
func DescribeMetrics(own, kamaji prometheus.Registerer) {
	new(store.Registry).Register(own, kamaji, true)
	new(account.Provisioner).Register(own)
	new(data.Keeper).Register(own)
}

func isSeparator(r rune) bool { return r == ',' || r == ' ' }

// svc is the service.
type svc struct {
	kube     *kube.Client
	bus      *events.Bus
	log      *slog.Logger
	stores   *store.Registry
	now      func() time.Time
	accounts *account.Provisioner
	keeper   *data.Keeper
}
