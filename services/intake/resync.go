package intake

// Looks at tenants that the operator asks for: the daily look (daily.go), now. Whoever holds a tenant's partition is told by the fact
// intake.asked. Many tenants are looked at one after the other: the server keeps a timer for each, so that nothing of it is in the memory of
// a replica.

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/stoker-k8s/stoker/pkg/api/event"
	"github.com/stoker-k8s/stoker/pkg/api/name"
	"github.com/stoker-k8s/stoker/pkg/events"
	"github.com/stoker-k8s/stoker/pkg/intent"
	"github.com/stoker-k8s/stoker/pkg/loop"
)

// asked reports whether the operator asked for a look.
func asked(t *loop.Turn) bool {
	return slices.ContainsFunc(t.Events, func(e loop.Event) bool { return e.Service == name.ServiceIntake && e.What == event.Asked })
}

// answerResync has tenants looked at.
func (s *svc) answerResync(ctx context.Context, question []byte) (any, error) {
	var q event.ResyncQuery
	if err := decodeQuestion(question, &q, `{"namespace":"…","name":"…"}, {"namespace":"…"} or {"all":true}`); err != nil {
		return nil, err
	}
	if err := checkFilter(event.DeadFilter{Namespace: q.Namespace, Name: q.Name}); err != nil {
		return nil, err
	}
	switch {
	case q.All && (q.Namespace != "" || q.Name != ""):
		return nil, badQuestion(`all: leave out namespace and name, or "all"`)
	case !q.All && q.Namespace == "":
		return nil, badQuestion(`namespace: missing; send {"namespace":"…","name":"…"}, {"namespace":"…"}, or {"all":true} for all tenants`)
	case !s.index.complete():
		return nil, &intent.Unavailable{Err: errNotListed}
	}
	tenants := s.index.tenantsOf(q.Namespace, q.Name)
	if len(tenants) == 0 && !q.All {
		return nil, &events.Refusal{Code: "404", Message: "there is no tenant " + strings.Trim(q.Namespace+"/"+q.Name, "/") + " of this installation"}
	}
	now := time.Now()
	if len(tenants) == 1 {
		id := events.ID(tenants[0].String(), event.Asked, now.Format(time.RFC3339Nano))
		err := s.bus.Tell(ctx, tenants[0], 0, id, event.Asked, askedFor(tenants[0]))
		return event.ResyncReply{Asked: 1, Until: now.UTC()}, err
	}
	until, err := s.askForMany(ctx, tenants, now)
	return event.ResyncReply{Asked: len(tenants), Until: until.UTC()}, err
}

// askForMany sets a timer for each tenant, in place of one that is still to come, and returns when the last goes off.
func (s *svc) askForMany(ctx context.Context, tenants []events.Key, now time.Time) (until time.Time, err error) {
	var set atomic.Int64
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(timersAtOnce)
	until = now
	for i, key := range tenants {
		at := now.Add(time.Duration(i) * looksEach)
		until = at
		g.Go(func() error {
			id := events.ID(key.String(), event.Asked, now.Format(time.RFC3339Nano))
			fact := s.bus.NewEvent(key, id, event.FactType(name.ServiceIntake, event.Asked), askedFor(key), at)
			err := s.bus.TellAt(ctx, key, event.Asked, fact, at)
			if err == nil {
				set.Add(1)
			}
			return err
		})
	}
	if err := g.Wait(); err != nil {
		return until, fmt.Errorf("only %d of %d tenants will be looked at, ask again: %w", set.Load(), len(tenants), err)
	}
	return until, nil
}

func askedFor(key events.Key) event.IntakeAsked {
	return event.IntakeAsked{About: event.About{Namespace: key.Namespace, Name: key.Name}}
}
