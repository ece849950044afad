// Package intake is the way in. It turns commands into objects of the management cluster by server-side apply, so that
// every rule sits in the API server once, and objects, whoever wrote them, into the spec the other services work from.
package intake

import (
	"context"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/stoker-k8s/stoker/pkg/api/event"
	"github.com/stoker-k8s/stoker/pkg/api/name"
	"github.com/stoker-k8s/stoker/pkg/events"
	"github.com/stoker-k8s/stoker/pkg/kube"
	"github.com/stoker-k8s/stoker/pkg/service"
)

// Config of the service.
type Config struct {
	service.Config
	// DataStore is for tenants that name none.
	DataStore string
}

// Run runs the service until ctx ends.
func Run(ctx context.Context, cfg Config) error {
	return service.Run(ctx, cfg.Config, func(c *service.Clients) (*events.Loop, error) {
		s := &intake{kube: c.Kube, bus: c.Bus, dataStore: cfg.DataStore}
		return &events.Loop{
			Bus: c.Bus, Service: name.ServiceIntake, Handle: s.handle, Watch: s.watch, Ensure: c.Bus.Provision, Commands: true,
		}, nil
	})
}

type intake struct {
	kube      *kube.Client
	bus       *events.Bus
	dataStore string
}

// handle does what each event asks for, in order, and then brings the spec in line with the object.
func (s *intake) handle(ctx context.Context, t *events.Turn) error {
	for _, e := range t.Events {
		var err error
		switch {
		case e.Service == "":
			err = s.command(ctx, t, e)
		case e.Service == name.ServiceCerts && e.What == event.Removed:
			err = s.finish(ctx, t, e)
		}
		if err != nil {
			return err
		}
	}
	if t.Key.IsTenant() && s.news(t) {
		return s.sync(ctx, t)
	}
	return nil
}

// watch sees every tenant's object: those written by kubectl carry no partition label yet.
func (s *intake) watch(ctx context.Context, _ []int, wake events.Wake) error {
	return s.kube.Watch(ctx, kube.TenantControlPlanes, "", "", func(c kube.Change) {
		reason := gone
		if c.Type != watch.Deleted {
			reason = fingerprint(&c.Object.ObjectMeta)
		}
		wake(events.Tenant(c.Object.Namespace, c.Object.Name), reason)
	})
}

// gone is the reason given by the watch when an object is no more.
const gone = "gone"

// news reports whether a watch saw something the spec doesn't know.
func (s *intake) news(t *events.Turn) bool {
	for _, r := range t.Reasons {
		if t.Tenant == nil && r == gone || t.Tenant != nil && r == t.Tenant.Seen {
			continue
		}
		return true
	}
	return false
}

// fingerprint is what of an object's metadata the spec depends on; the generation stands for the object's spec.
func fingerprint(o *metav1.ObjectMeta) string {
	deleting, owned := "", ""
	if o.DeletionTimestamp != nil {
		deleting = "deleting"
	}
	if adopted(o) {
		owned = "adopted"
	}
	annotations := name.ChecksumStrings(specAnnotations(o))
	return events.ID(string(o.UID), generation(o), deleting, owned, annotations)
}
