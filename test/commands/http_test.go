package commands

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nuid"

	"github.com/stoker-k8s/stoker/internal/testing/port"
	"github.com/stoker-k8s/stoker/pkg/api/event"
	"github.com/stoker-k8s/stoker/pkg/events"
	"github.com/stoker-k8s/stoker/pkg/token"
	"github.com/stoker-k8s/stoker/services/intake"
	"github.com/stoker-k8s/stoker/test/env"
)

const secret = "a-token-that-nobody-guesses"

// overHTTP gives a replica a way in by HTTP; url is where it is.
func overHTTP(t testing.TB) (url string, change func(*intake.Config)) {
	t.Helper()
	address := port.Address(t, e.Local.Block().Management().String())
	file := filepath.Join(t.TempDir(), "tokens")
	content, err := token.File{Tokens: []token.Token{
		{Name: "all", Hash: token.Hash(secret), Namespaces: []string{token.Any}, Kinds: token.Kinds()},
	}}.Marshal()
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(file, content, 0o600); err != nil {
		t.Fatal(err)
	}
	return "http://" + address + "/events", func(c *intake.Config) { c.Events = intake.HTTP{Address: address, Tokens: file} }
}

// response is what a request was answered.
type response struct {
	code   int
	header http.Header
	body   string
	event.IntakeAccepted
	Errors []event.FieldError
}

// post sends a command by HTTP, structured or binary. While it is told to, it sends it again with the same id, as any sender would.
func post(t testing.TB, url string, c command, structured bool) (r response) {
	t.Helper()
	if c.id == "" {
		c.id = nuid.Next()
	}
	env.Eventually(t, c.verb+" "+c.key.String()+" to be answered", func() error {
		r = postOnce(t, url, c, structured)
		if r.header.Get("Retry-After") != "" {
			return fmt.Errorf("%d %s", r.code, r.body)
		}
		return nil
	})
	return r
}

// postOnce sends a command by HTTP; while nobody listens yet it tries again.
func postOnce(t testing.TB, url string, c command, structured bool) response {
	t.Helper()
	if c.data == nil {
		c.data = struct{}{}
	}
	ev := e.Portal.NewEvent(c.key, c.id, event.CommandType(c.key.Kind, c.verb), c.data, time.Now())
	if c.expected != nil {
		ev.SetExtension(events.ExtExpectedGeneration, fmt.Sprint(c.expected))
	}
	header, body := http.Header{"Content-Type": {"application/cloudevents+json"}}, event.Marshal(ev)
	if !structured {
		m := events.Encode("", ev)
		header, body = http.Header{}, m.Data
		for k, v := range m.Header {
			header[http.CanonicalHeaderKey(k)] = v
		}
	}
	header.Set("Authorization", "Bearer "+secret)
	var r response
	var data []byte
	env.Eventually(t, url+" to answer", func() error {
		req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, url, strings.NewReader(string(body)))
		if err != nil {
			t.Fatal(err)
		}
		req.Header = header
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			return err
		}
		defer resp.Body.Close()
		data, err = io.ReadAll(resp.Body)
		r = response{code: resp.StatusCode, header: resp.Header, body: string(data)}
		return err
	})
	if err := json.Unmarshal(data, &r.IntakeAccepted); err != nil {
		t.Errorf("%d %s", r.code, data)
	}
	var no event.IntakeRejected
	_ = json.Unmarshal(data, &no)
	r.Errors = no.Errors
	return r
}

func TestCommandsByHTTP(t *testing.T) {
	url, with := overHTTP(t)
	startIntake(t, "a", with)
	other, also := overHTTP(t)
	startIntake(t, "b", also)
	t.Cleanup(http.DefaultClient.CloseIdleConnections)
	key, o := tenant(t, "by-http")
	want := func(t *testing.T, r response, code int, field, rule string) {
		t.Helper()
		if r.code != code || len(r.Errors) == 0 || r.Errors[0].Field != field || r.Errors[0].Rule != rule || r.Errors[0].Message == "" {
			t.Errorf("%d %s, want %d %s %s", r.code, r.body, code, field, rule)
		}
	}
	t.Run("every verb, binary and structured, at both replicas, answered when it is done", func(t *testing.T) {
		for i, c := range []command{
			{verb: event.Apply, data: o, expected: 0}, {verb: event.Patch, data: spec(`{"networkProfile":{"port":7443}}`)}, {verb: event.Pause}, {verb: event.Resume},
			{verb: event.Sleep}, {verb: event.Wake}, {verb: event.Apply, data: o, expected: 4}, {verb: event.Delete},
		} {
			c.key = key
			r := post(t, []string{url, other}[i%2], c, i%3 == 0)
			if r.code != 200 || r.UID == "" || r.header.Get("Ce-Subject") != key.String() {
				t.Fatalf("%s: %d %s", c.verb, r.code, r.body)
			}
			now := there(t, key)
			if now.Metadata.Generation < r.Generation || now.Metadata.UID != r.UID {
				t.Errorf("%s: answered %d, the object has %d", c.verb, r.Generation, now.Metadata.Generation)
			}
		}
		store, ds := dataStore("by-http")
		if r := post(t, url, command{key: store, verb: event.Apply, data: ds}, false); r.code != 200 {
			t.Errorf("%d %s", r.code, r.body)
		}
		kc, g := generator("by-http")
		if r := post(t, url, command{key: kc, verb: event.Apply, data: g}, true); r.code != 200 {
			t.Errorf("%d %s", r.code, r.body)
		}
	})
	t.Run("a refusal has its status, field, rule, value and message", func(t *testing.T) {
		want(t, post(t, url, command{key: key, verb: event.Apply, data: o}, false), 409, "metadata.name", "Deleting")
		gone, _ := tenant(t, "nobody-by-http")
		want(t, post(t, url, command{key: gone, verb: event.Sleep}, false), 404, "metadata.name", "NotFound")
		key, o := tenant(t, "refused-by-http")
		if r := post(t, url, command{key: key, verb: event.Apply, data: o, id: "http-1"}, false); r.code != 200 {
			t.Fatal(r.body)
		}
		want(t, post(t, url, command{key: key, verb: event.Sleep, id: "http-1"}, true), 409, "event.id", "Duplicate")
		want(t, post(t, url, command{key: key, verb: event.Sleep, expected: 9}, true), 409, "event.expectedgeneration", "Conflict")
		want(t, post(t, url, command{key: key, verb: event.Sleep, expected: "nine"}, false), 400, "event.expectedgeneration", "Invalid")
		r := post(t, url, command{key: key, verb: event.Patch, data: spec(`{"networkProfile":{"serviceCidr":"10.0.0.0/99"}}`)}, false)
		want(t, r, 422, "spec.networkProfile.serviceCidr", "Invalid")
		if r.Errors[0].Value != "10.0.0.0/99" {
			t.Errorf("%+v", r.Errors)
		}
	})
	t.Run("the same id twice is one change, one after the other and at once, at whichever replica", func(t *testing.T) {
		key, o := tenant(t, "twice-by-http")
		c := command{key: key, verb: event.Apply, data: o, id: "http-2", expected: 0}
		answers := make([]response, 8)
		var wg sync.WaitGroup
		for i := range answers {
			wg.Go(func() { answers[i] = post(t, []string{url, other}[i%2], c, i%3 == 0) })
		}
		wg.Wait()
		for _, r := range append(answers, post(t, url, c, false)) {
			if r.code != 200 || r.body != answers[0].body {
				t.Errorf("%d %s, and %s", r.code, r.body, answers[0].body)
			}
		}
		if a := ask(t, c); a.data != answers[0].body {
			t.Errorf("by NATS: %s", a.data)
		}
	})
	t.Run("while NATS is away nothing is taken; what was sent again with the same id is carried out once", func(t *testing.T) {
		key, o := tenant(t, "outage-by-http")
		c := command{key: key, verb: event.Apply, data: o, id: "http-3", expected: 0}
		e.NATS.Stop()
		r := postOnce(t, url, c, false)
		if r.code != 503 || r.header.Get("Retry-After") == "" || len(r.Errors) != 1 {
			t.Errorf("%d %s", r.code, r.body)
		}
		if err := e.NATS.Restart(t.Context()); err != nil {
			t.Fatal(err)
		}
		if r = post(t, url, c, false); r.code != 200 || r.Generation != 1 {
			t.Errorf("%d %s", r.code, r.body)
		}
	})
}
