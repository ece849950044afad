package status

// Questions about a tenant, answered by whichever replica the server picks: stoker.status.get and stoker.status.why.

import (
	"context"
	"encoding/json"
	"errors"
	"time"

	"github.com/nats-io/nats.go/micro"
	"golang.org/x/sync/errgroup"

	"github.com/stoker-k8s/stoker/pkg/api/event"
	"github.com/stoker-k8s/stoker/pkg/api/name"
	"github.com/stoker-k8s/stoker/pkg/api/state"
	"github.com/stoker-k8s/stoker/pkg/events"
)

// questionTimeout bounds an answer.
const questionTimeout = 3 * time.Second

// serviceVersion is the version of the questions' contract, as `nats micro ls` shows it.
const serviceVersion = "1.0.0"

// answerQuestions registers the endpoints for as long as ctx lasts; the returned function takes them away.
func (s *svc) answerQuestions(ctx context.Context) (stop func(), err error) {
	srv, err := micro.AddService(s.bus.Conn(), micro.Config{
		Name: event.StatusService, Version: serviceVersion, Description: "where a tenant stands, and what it waits for",
		Metadata: map[string]string{"replica": events.DefaultReplica()},
	})
	if err != nil {
		return nil, err
	}
	stop = func() { _ = srv.Stop() }
	for endpoint, subject := range map[string]string{"get": event.QueryStatus, "why": event.QueryWhy} {
		handler := micro.HandlerFunc(func(r micro.Request) { s.answer(ctx, r, endpoint) })
		if err := srv.AddEndpoint(endpoint, handler, micro.WithEndpointSubject(subject)); err != nil {
			stop()
			return nil, err
		}
	}
	return stop, nil
}

func (s *svc) answer(ctx context.Context, r micro.Request, endpoint string) {
	var q event.Query
	if err := json.Unmarshal(r.Data(), &q); err != nil || q.Namespace == "" || q.Name == "" {
		_ = r.Error("400", `send {"namespace":"…","name":"…"}`, nil)
		return
	}
	key := events.Tenant(q.Namespace, q.Name)
	if !key.Valid() {
		_ = r.Error("400", key.String()+" can't be the name of a tenant", nil)
		return
	}
	ctx, cancel := context.WithTimeout(ctx, questionTimeout)
	defer cancel()
	states, err := s.states(ctx, key)
	switch {
	case err != nil:
		_ = r.Error("503", err.Error(), nil)
	case states[name.ServiceIntake] == nil:
		_ = r.Error("404", "there is no tenant "+key.String(), nil)
	case endpoint == "get":
		_ = r.RespondJSON(Get(key, states))
	default:
		_ = r.RespondJSON(Why(key, states))
	}
}

// states reads what every service keeps; those that have come to the tenant.
func (s *svc) states(ctx context.Context, key events.Key) (map[string]*state.State, error) {
	services := name.Services()
	found := make([]*state.State, len(services))
	g, ctx := errgroup.WithContext(ctx)
	for i, service := range services {
		g.Go(func() (err error) {
			found[i], err = s.bus.State(ctx, key, service)
			if errors.Is(err, events.ErrNotFound) {
				found[i], err = nil, nil
			}
			return err
		})
	}
	if err := g.Wait(); err != nil {
		return nil, err
	}
	states := map[string]*state.State{}
	for i, service := range services {
		// A state of an earlier tenant of that name says nothing.
		if found[i] != nil && (found[0] == nil || found[i].UID == found[0].UID) {
			states[service] = found[i]
		}
	}
	return states, nil
}

// decode decodes what intake and status keep.
func decode(key events.Key, states map[string]*state.State) (about event.About, tenant state.Tenant, last state.Status) {
	about = event.About{Namespace: key.Namespace, Name: key.Name}
	if spec := states[name.ServiceIntake]; spec != nil {
		about.UID, about.Generation = spec.UID, spec.Generation
		_ = json.Unmarshal(spec.Data, &tenant) // what can't be read stays unsaid
	}
	if own := states[name.ServiceStatus]; own != nil {
		_ = json.Unmarshal(own.Data, &last)
	}
	return about, tenant, last
}

// Get answers stoker.status.get.
func Get(key events.Key, states map[string]*state.State) event.StatusReply {
	about, tenant, last := decode(key, states)
	if own := states[name.ServiceStatus]; own != nil {
		about.Generation = own.Generation // not yet the accepted one: what is said is of before
	}
	return event.StatusReply{StatusChanged: Reply(about, &tenant, last), Conditions: last.Conditions}
}

// Why answers stoker.status.why.
func Why(key events.Key, states map[string]*state.State) event.WhyReply {
	about, tenant, last := decode(key, states)
	w := event.WhyReply{
		About: about, Phase: last.Phase, Ready: last.Ready, Reason: last.Reason, Message: last.Message,
		AcceptedAt: tenant.AcceptedAt, Deleting: tenant.Deleting, Paused: tenant.Paused, PausedUntil: tenant.PausedUntil,
	}
	for _, service := range name.Services() {
		a := event.ServiceState{Service: service}
		if s := states[service]; s != nil {
			a.Step, a.Generation, a.Wait, a.Failure, a.Since = s.Step, s.Generation, s.Wait, s.Failure, s.UpdatedAt
		}
		w.Services = append(w.Services, a)
	}
	return w
}
