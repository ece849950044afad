package portal

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/stoker-k8s/stoker/pkg/api/event"
	"github.com/stoker-k8s/stoker/pkg/api/name"
	"github.com/stoker-k8s/stoker/pkg/events"
)

// planTimeout is a little longer than a plan takes at most.
const planTimeout = 30 * time.Second

// Plan asks what a change of a tenant would come to: whether it is accepted, whether pods are replaced, and what is against it. Nothing is
// changed. *[DeniedError] when the portal may not ask about the namespace. An *[events.Refusal] with code 404 says that there is no such
// tenant, with 400 that the question is none, with 503 that it may be asked again.
func (c *Client) Plan(ctx context.Context, namespace, tenant string, q event.PlanQuery) (event.PlanReply, error) {
	key := events.Tenant(namespace, tenant)
	if !key.Valid() {
		return event.PlanReply{}, fmt.Errorf("%s can't be the name of a tenant", key)
	}
	reply, err := ask[event.PlanReply](ctx, c, planTimeout, name.ServiceIntake, key.PlanSubject(), q)
	if err != nil {
		return reply, fmt.Errorf("plan of %s: %w", key, err)
	}
	return reply, nil
}

// ask asks a service. Its errors are *[DeniedError], *[events.Refusal], and others that pass by themselves.
func ask[T any](ctx context.Context, c *Client, timeout time.Duration, service, subject string, question any) (T, error) {
	limited, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	reply, err := events.Ask[T](limited, c.nc, subject, question)
	if err != nil {
		if denied := c.denied(subject); denied != nil {
			return reply, denied
		}
		if errors.Is(err, nats.ErrNoResponders) {
			err = fmt.Errorf("no replica of %s answers: %w", service, err)
		}
	}
	return reply, err
}
