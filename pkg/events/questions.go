package events

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/micro"
	"golang.org/x/sync/errgroup"

	"github.com/stoker-k8s/stoker/pkg/api/event"
)

// Questions are what a service answers when it is asked over NATS: a NATS micro service, so that `nats micro ls` shows every
// replica, of which the server picks one for each question.
type Questions struct {
	// Service is the name of the micro service, Version that of the questions' contract (semantic), Description one line.
	Service, Version, Description string
	// AtOnce is how many questions a replica answers at once at each endpoint; more are refused with code 503. The default is 4.
	AtOnce int
	// Endpoints by name.
	Endpoints map[string]Question
}

// Question is one endpoint.
type Question struct {
	// Subject that the question is sent to; it may have wildcards.
	Subject string
	// Timeout bounds an answer; it must be set.
	Timeout time.Duration
	// Answer returns what is sent back as JSON. An error is sent with the code of the *[Refusal] in it, and with 503 without one.
	// It is called from several goroutines.
	Answer func(ctx context.Context, question []byte) (any, error)
	// AnswerOn is Answer for a Subject with wildcards: it is told which one it was. One of the two is set.
	AnswerOn func(ctx context.Context, subject string, question []byte) (any, error)
}

// Refusal is the answer to a question that can't be answered.
type Refusal struct { //nolint:errname // an answer
	// Code as in HTTP: 400 for a question that isn't one, 404 for one about what isn't there.
	Code string
	// Message is for people.
	Message string
}

func (r *Refusal) Error() string { return r.Message }

// AnswerQuestions answers until ctx ends or stop is called, which waits for answers under way. A question that is on its way then
// is refused with code 503.
func (b *Bus) AnswerQuestions(ctx context.Context, q Questions) (stop func(), err error) {
	if q.AtOnce == 0 {
		q.AtOnce = 4
	}
	srv, err := micro.AddService(b.nc, micro.Config{
		Name: q.Service, Version: q.Version, Description: q.Description, Metadata: map[string]string{"replica": DefaultReplica()},
	})
	if err != nil {
		return nil, fmt.Errorf("micro service %s: %w", q.Service, err)
	}
	var mu sync.Mutex // no answer begins once they are waited for
	stopped := false
	var all []*errgroup.Group
	stop = func() {
		_ = srv.Stop() // its subscriptions end a moment later
		mu.Lock()
		stopped = true
		mu.Unlock()
		for _, answers := range all {
			_ = answers.Wait()
		}
	}
	for endpoint, question := range q.Endpoints {
		// Each has its own, so that those who ask one question crowd out nobody who asks another.
		answers := &errgroup.Group{}
		answers.SetLimit(q.AtOnce)
		all = append(all, answers)
		// Answers may take long, and requests of a connection come one after the other.
		handler := micro.HandlerFunc(func(r micro.Request) {
			mu.Lock()
			begun := !stopped && answers.TryGo(func() error { return b.nc.PublishMsg(question.answer(ctx, r)) })
			mu.Unlock()
			if !begun {
				_ = r.Error("503", fmt.Sprintf("this replica stops, or answers %d questions already; ask again", q.AtOnce), nil)
			}
		})
		if err := srv.AddEndpoint(endpoint, handler, micro.WithEndpointSubject(question.Subject)); err != nil {
			stop()
			return nil, fmt.Errorf("micro service %s: endpoint %s: %w", q.Service, endpoint, err)
		}
	}
	context.AfterFunc(ctx, stop)
	return stop, nil
}

// answer returns the message to send back. It sends none itself, for micro reads what its Request did as soon as the handler returns.
func (q Question) answer(ctx context.Context, r micro.Request) *nats.Msg {
	ctx, cancel := context.WithTimeout(ctx, q.Timeout)
	defer cancel()
	answer := q.AnswerOn
	if answer == nil {
		answer = func(ctx context.Context, _ string, question []byte) (any, error) { return q.Answer(ctx, question) }
	}
	reply, err := answer(ctx, r.Subject(), r.Data())
	m := nats.NewMsg(r.Reply())
	if err == nil {
		m.Data, err = json.Marshal(reply)
	}
	if err != nil {
		refused := &Refusal{Code: "503", Message: err.Error()}
		_ = errors.As(err, &refused)
		m.Header.Set(micro.ErrorCodeHeader, refused.Code)
		m.Header.Set(micro.ErrorHeader, refused.Message)
	}
	return m
}

// Ask puts a question to a service, over the connection of whoever may, and decodes its answer. It waits until ctx ends. The error is a
// *[Refusal] with the service's own words when it answers with an error, nats.ErrNoResponders when no service answers.
func Ask[T any](ctx context.Context, nc *nats.Conn, subject string, question any) (reply T, err error) {
	m, err := nc.RequestWithContext(ctx, subject, event.Marshal(question))
	if err != nil {
		return reply, fmt.Errorf("asking %s: %w", subject, err)
	}
	if code := m.Header.Get(micro.ErrorCodeHeader); code != "" {
		return reply, &Refusal{Code: code, Message: m.Header.Get(micro.ErrorHeader)}
	}
	if err := json.Unmarshal(m.Data, &reply); err != nil {
		return reply, fmt.Errorf("answer of %s: %w", subject, err)
	}
	return reply, nil
}
