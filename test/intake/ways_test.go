package intake

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nuid"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"

	"github.com/stoker-k8s/stoker/pkg/api/event"
	"github.com/stoker-k8s/stoker/pkg/api/name"
	"github.com/stoker-k8s/stoker/pkg/events"
	"github.com/stoker-k8s/stoker/test/env"
	"github.com/stoker-k8s/stoker/test/random"
)

// portal sends commands and gets the answers.
type portal struct {
	inbox   string // starts the tokens of its answers
	answers *nats.Subscription
	sent    int
}

func newPortal(t *testing.T) *portal {
	t.Helper()
	p := &portal{inbox: nuid.Next()}
	var err error
	if p.answers, err = e.Portal.Conn().SubscribeSync(events.AnswerSubjects); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = p.answers.Unsubscribe() })
	return p
}

// send publishes a command and returns what the answer to it is called.
func (p *portal) send(t *testing.T, key events.Key, typ string, data []byte) string {
	t.Helper()
	p.sent++
	id := fmt.Sprint(p.sent)
	command := e.Portal.NewEvent(key, p.inbox+id, typ, struct{}{}, time.Now())
	command.SetExtension(events.ExtReplyTo, key.AnswerSubject(p.inbox+"-"+id))
	command.DataEncoded = data
	env.Publish(t, e.Portal, events.Encode(key.CommandSubject(), command))
	return id
}

// answer is what became of a command.
type answer struct {
	Type   string
	Errors []event.FieldError
}

func (a answer) accepted() bool { return a.Type == event.FactType(name.ServiceIntake, event.Accepted) }

// next waits for an answer to any command.
func (p *portal) next(t *testing.T) (id string, a answer) {
	t.Helper()
	m, err := p.answers.NextMsg(2 * time.Minute)
	if err != nil {
		t.Fatal("no answer: ", err)
	}
	said, err := events.Decode(m.Header, m.Data)
	if err != nil {
		t.Fatal(err)
	}
	a.Type = said.Type()
	var no event.IntakeRejected
	if err := json.Unmarshal(said.Data(), &no); err != nil {
		t.Fatalf("%v: %s", err, said.Data())
	}
	a.Errors = no.Errors
	return m.Subject[strings.LastIndex(m.Subject, p.inbox+"-")+len(p.inbox)+1:], a
}

// ask sends a command and waits for the answer to it; no other may be on its way.
func (p *portal) ask(t *testing.T, key events.Key, typ string, data []byte) answer {
	t.Helper()
	id := p.send(t, key, typ, data)
	for {
		if got, a := p.next(t); got == id {
			return a
		}
	}
}

// client applies objects as kubectl does: server-side, strictly.
type client struct {
	http    *http.Client
	base    string
	manager string
}

func newClient(t *testing.T, manager string) *client {
	t.Helper()
	cfg := e.Local.AdminConfig()
	h, err := rest.HTTPClientFor(cfg)
	if err != nil {
		t.Fatal(err)
	}
	return &client{h, cfg.Host, manager}
}

// apply returns the API server's word: nil when it accepts the object. A dry run changes nothing.
func (c *client) apply(ctx context.Context, d random.Drawn, dry bool) (*metav1.Status, error) {
	q := url.Values{"fieldManager": {c.manager}, "force": {"true"}, "fieldValidation": {"Strict"}}
	if dry {
		q.Set("dryRun", "All")
	}
	target := c.base + resources[d.Kind.Plural].Path(d.Namespace, d.Name) + "?" + q.Encode()
	req, err := http.NewRequestWithContext(ctx, http.MethodPatch, target, bytes.NewReader(d.JSON))
	if err != nil {
		return nil, err
	}
	req.Header.Set("Content-Type", string(types.ApplyPatchType))
	resp, err := c.http.Do(req)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil || resp.StatusCode < 300 {
		return nil, err
	}
	s := &metav1.Status{}
	if err := json.Unmarshal(body, s); err != nil {
		return nil, fmt.Errorf("%d: %s: %w", resp.StatusCode, body, err)
	}
	return s, nil
}
