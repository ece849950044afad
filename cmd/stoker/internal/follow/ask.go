package follow

// Questions to the status service.

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/micro"

	"github.com/stoker-k8s/stoker/pkg/api/event"
	"github.com/stoker-k8s/stoker/pkg/events"
)

// askTimeout bounds a question.
const askTimeout = 5 * time.Second

// ErrNoTenant means that there is no tenant of that name.
var ErrNoTenant = errors.New("there is no such tenant")

// Status asks for the status of a tenant. ErrNoTenant when there is none.
func Status(ctx context.Context, bus *events.Bus, key events.Key) (event.StatusReply, error) {
	return ask[event.StatusReply](ctx, bus, event.QueryStatus, key)
}

// Why asks where each service stands with a tenant. ErrNoTenant when there is none.
func Why(ctx context.Context, bus *events.Bus, key events.Key) (event.WhyReply, error) {
	return ask[event.WhyReply](ctx, bus, event.QueryWhy, key)
}

func ask[T any](ctx context.Context, bus *events.Bus, subject string, key events.Key) (reply T, err error) {
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	m, err := bus.Conn().RequestWithContext(ctx, subject, event.Marshal(event.Query{Namespace: key.Namespace, Name: key.Name}))
	switch {
	case errors.Is(err, nats.ErrNoResponders):
		return reply, errors.New("no status service answers: is one running? (`nats micro ls` shows them)")
	case err != nil:
		return reply, fmt.Errorf("asking %s: %w", subject, err)
	}
	switch code := m.Header.Get(micro.ErrorCodeHeader); code {
	case "":
	case "404":
		return reply, fmt.Errorf("%w: %s", ErrNoTenant, key)
	default:
		return reply, fmt.Errorf("%s answers %s: %s", subject, code, m.Header.Get(micro.ErrorHeader))
	}
	if err := json.Unmarshal(m.Data, &reply); err != nil {
		return reply, fmt.Errorf("answer of %s: %w", subject, err)
	}
	return reply, nil
}
