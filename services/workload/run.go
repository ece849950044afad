// Package workload exposes each tenant's control plane and rolls out its pods.
//
// It wakes on intake.accepted (the Service, and with it the endpoint), certs.issued, certs.rotated and
// datastore.provisioned (the Deployment), changes of its Services, Deployments, Ingresses and TLSRoutes, a rollout slot that
// has become free, pods that have not become ready and objects that have been denied after a while, connections to tenants that
// sleep, and for a deletion on intake.deleting and addons.removed. It tells workload.exposed, .available, .upgraded, .degraded,
// .slept, .called, .failed and .removed.
//
// A turn (turn.go) has these steps and ends in one write: the Service and the endpoint (expose.go, endpoint.go), what leads there
// (route.go), doors for those who wake a tenant (door.go), the Deployment (rollout.go; it waits for the other services by needs.go).
// Beside them:
//   - what the objects must be: render.go, containers.go, volumes.go, kine.go, gate.go, args.go, probes.go, override.go
//   - how far a rollout is: progress.go; why its pods aren't ready: cause.go
//   - what a refusal by the API server means, and which field of the spec is at fault: refused.go, fields.go
//   - drift: watch.go wakes, observed.go tells it from the echo of own writes
//   - adopt.go leaves pods that Kamaji made, until others are wanted
//   - slots.go paces rollouts, remove.go takes everything away
//   - internal/activator holds connections to tenants that sleep
//   - plan.go answers what a change would mean for the pods.
package workload

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"net/netip"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/stoker-k8s/stoker/pkg/api/name"
	"github.com/stoker-k8s/stoker/pkg/events"
	"github.com/stoker-k8s/stoker/pkg/kube"
	"github.com/stoker-k8s/stoker/pkg/loop"
	"github.com/stoker-k8s/stoker/pkg/metric"
	"github.com/stoker-k8s/stoker/pkg/service"
	"github.com/stoker-k8s/stoker/services/workload/internal/activator"
)

// Config of the service.
type Config struct {
	service.Config
	// MaxRollouts is how many tenants may start pods at once per replica, a number of at least 1. Empty means 1.5 per core,
	// at least 2. On a cluster whose nodes have room for more it can be more: the pods start there, not here.
	MaxRollouts string
	// ActivatorAddress is the IP address of this replica at which the activator has its doors, by which connections to tenants that sleep
	// wake them; empty: none do.
	ActivatorAddress string
	// KineImage is the image of kine, which runs beside the API server on other databases than etcd; empty for
	// DefaultKineImage. Another one rolls out the tenants that run kine and don't name an image themselves.
	KineImage string
	// GateImage is the image of the gate, which pods have while their data move to another DataStore; empty for that of the same version.
	GateImage string
}

// Kinds of wakes.
const (
	// wakeObject: an object of the tenant was changed or deleted by somebody else, or its status changed.
	wakeObject = "object"
	// wakeMissing: the tenant has neither Service nor Deployment.
	wakeMissing = "missing"
	// wakeSlot: a rollout slot is free for the tenant.
	wakeSlot = "slot"
	// wakePods: pods have been waited for, and are asked why they aren't ready.
	wakePods = "pods"
	// wakeCall: somebody has connected to the tenant, which sleeps.
	wakeCall = "call"
	// wakeDenied: an object that was denied is applied again.
	wakeDenied = "denied"
)

type svc struct {
	kube     *kube.Client
	log      *slog.Logger
	now      func() time.Time
	observed observations
	slots    *slots
	// activator has connections to tenants that sleep wake them.
	activator *activator.Activator
	handlers  *metric.HandlerTime
	// kineImage and gateImage are those of Config.
	kineImage, gateImage string
	wake                 atomic.Pointer[loop.Waker]
	// retryDenied is the time until an object that was denied is applied again.
	retryDenied time.Duration
	// routed is closed when the first TLSRoute is there: before that there may be no such kind to watch.
	routed    chan struct{}
	closeOnce sync.Once
}

// Run works until ctx ends. It returns early only with an error that no waiting helps. Safe to run several times in a
// process.
func Run(ctx context.Context, cfg Config) error {
	rollouts := defaultRollouts()
	if cfg.MaxRollouts != "" {
		n, err := strconv.Atoi(cfg.MaxRollouts)
		if err != nil || n < 1 {
			return fmt.Errorf("max-rollouts %q: must be a number of at least 1", cfg.MaxRollouts)
		}
		rollouts = n
	}
	var address netip.Addr
	if cfg.ActivatorAddress != "" {
		var err error
		if address, err = netip.ParseAddr(cfg.ActivatorAddress); err != nil {
			return fmt.Errorf("activator-address %q: must be an IP address of this replica, or empty", cfg.ActivatorAddress)
		}
	}
	var s *svc
	err := service.Run(ctx, cfg.Config, func(c *service.Clients) (*loop.Loop, error) {
		s = newService(c.Kube, c.Log, rollouts)
		s.activator.Address = address
		s.kineImage, s.gateImage, s.handlers = cfg.KineImage, cmp.Or(cfg.GateImage, defaultGateImage()), c.Handlers
		c.Metrics.MustRegister(s.slots.metrics(), s.activator.Metrics())
		if _, err := c.Bus.AnswerQuestions(ctx, s.questions(c.Bus)); err != nil {
			return nil, err
		}
		return s.loop(c.Bus), nil
	})
	if s != nil {
		s.activator.End()
	}
	return err
}

func newService(client *kube.Client, log *slog.Logger, rollouts int) *svc {
	s := &svc{kube: client, log: log, now: time.Now, retryDenied: retryDenied, routed: make(chan struct{})}
	waker := func(kind string) func(events.Key) {
		return func(key events.Key) {
			if wake := s.wake.Load(); wake != nil {
				(*wake)(key, loop.Wake{Kind: kind})
			}
		}
	}
	s.slots, s.activator = newSlots(rollouts, waker(wakeSlot)), activator.New(log, waker(wakeCall))
	return s
}

func (s *svc) loop(bus *events.Bus) *loop.Loop {
	return &loop.Loop{
		// A tenant that is paused rolls out nothing; its slot is for others.
		Bus: bus, Service: name.ServiceWorkload, Handle: s.handle, Paused: func(t *loop.Turn) { s.slots.free(t.Key) }, Watch: s.watch,
	}
}
