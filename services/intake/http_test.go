package intake

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/goleak"

	"github.com/stoker-k8s/stoker/local/natsserver"
	"github.com/stoker-k8s/stoker/pkg/api/event"
	"github.com/stoker-k8s/stoker/pkg/api/name"
	"github.com/stoker-k8s/stoker/pkg/events"
	"github.com/stoker-k8s/stoker/pkg/loop"
	"github.com/stoker-k8s/stoker/pkg/pki"
	"github.com/stoker-k8s/stoker/pkg/service"
	"github.com/stoker-k8s/stoker/pkg/token"
)

// TestMain has the tests fail when goroutines of theirs don't end, which may take longer on a busy machine than goleak waits.
func TestMain(m *testing.M) {
	code := m.Run()
	if code == 0 {
		var left error
		for deadline := time.Now().Add(30 * time.Second); ; {
			if left = goleak.Find(); left == nil || time.Now().After(deadline) {
				break
			}
		}
		if left != nil {
			fmt.Fprintln(os.Stderr, left)
			code = 1
		}
	}
	os.Exit(code)
}

const secret = "a-token-that-nobody-guesses"

// tenantIn is a request's headers for a command about a tenant; what is empty is left out.
func tenantIn(id, verb, subject string) http.Header {
	h := http.Header{"Authorization": {"Bearer " + secret}, "Content-Type": {"application/json"}, "Ce-Specversion": {"1.0"}, "Ce-Source": {"/test"}}
	for k, v := range map[string]string{"Ce-Id": id, "Ce-Type": event.CommandType(event.TenantControlPlanes, verb), "Ce-Subject": subject} {
		if v != "" {
			h.Set(k, v)
		}
	}
	return h
}

// entry is the way in under test.
type entry struct {
	*httpIntake
	nats   *natsserver.Server
	url    string
	client *http.Client
}

// enter opens the way in on a NATS server of its own, and an intake that answers by the tenant's name: "silent" with nothing,
// "rule-…" with a refusal by that rule, all others with a generation.
func enter(t *testing.T, h HTTP, change func(*httpIntake)) *entry {
	t.Helper()
	srv, err := natsserver.Start(t.Context(), t.TempDir(), "127.0.0.1:-1", nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(srv.Stop)
	log := slog.New(slog.DiscardHandler)
	bus, err := events.Connect(events.Config{
		URL: srv.URL(), User: name.ServiceIntake, SeedFile: srv.SeedFile(name.ServiceIntake), Replica: "a", Log: log,
		RequestTimeout: 30 * time.Second,
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(bus.Close)
	if err := bus.Provision(t.Context()); err != nil { // as long before the first command
		t.Fatal(err)
	}
	if h.Address == "" {
		h.Address = "127.0.0.1:0"
	}
	if h.Tokens == "" {
		h.Tokens = write(t, filepath.Join(t.TempDir(), "tokens"), tokensFor(secret))
	}
	if err := h.check(); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	d, err := h.open(ctx, &service.Clients{Bus: bus, Log: log, Metrics: prometheus.NewRegistry()})
	if err != nil {
		t.Fatal(err)
	}
	if change != nil {
		change(d)
	}
	loop := &loop.Loop{Bus: bus, Service: name.ServiceIntake, Commands: true, Ensure: bus.Provision, Handle: func(ctx context.Context, turn *loop.Turn) error {
		for _, e := range turn.Events {
			if err := obey(ctx, bus, turn.Key, e); err != nil {
				return err
			}
		}
		return nil
	}}
	var wg sync.WaitGroup
	wg.Go(func() {
		if err := d.serve(ctx); err != nil {
			t.Error(err)
		}
	})
	wg.Go(func() {
		if err := loop.Run(ctx); err != nil {
			t.Error(err)
		}
	})
	transport := &http.Transport{}
	t.Cleanup(func() {
		transport.CloseIdleConnections()
		cancel()
		wg.Wait()
	})
	scheme := "http://"
	if h.Certificate != "" {
		scheme = "https://"
	}
	return &entry{httpIntake: d, nats: srv, url: scheme + d.listener.Addr().String() + "/events", client: &http.Client{Transport: transport}}
}

func obey(ctx context.Context, bus *events.Bus, key events.Key, e loop.Event) error {
	about := event.About{Namespace: key.Namespace, Name: key.Name, UID: "u", Generation: 1}
	if key.Name == "silent" {
		accepted := event.Marshal(event.IntakeAccepted{About: about, Command: e.ID()})
		if e.ID() == "noted" {
			return bus.NoteAnswer(ctx, key, e.Source(), e.ID(), events.Answer{Request: events.Fingerprint(key, e.Event), What: event.Accepted, Data: accepted})
		}
		return nil
	}
	id := events.AnswerID(e.Event)
	if field, rule, ok := strings.Cut(string(e.Data()), " "); ok && strings.HasPrefix(field, `"`) {
		no := event.IntakeRejected{About: about, Errors: []event.FieldError{{Field: strings.Trim(field, `"`), Rule: strings.Trim(rule, `"`), Value: "x", Message: "no"}}}
		return bus.Answer(events.ReplyTo(e.Event), key, id, event.Rejected, no)
	}
	return bus.Answer(events.ReplyTo(e.Event), key, id, event.Accepted, event.IntakeAccepted{About: about, Command: e.ID()})
}

// tokensFor is the file of a token for everything.
func tokensFor(secret string) string {
	return "# for the test\ntokens:\n- {name: all, hash: \"" + token.Hash(secret) +
		"\", namespaces: [\"*\"], kinds: [tenantcontrolplanes, datastores, kubeconfiggenerators]}\n"
}

func write(t *testing.T, file, text string) string {
	t.Helper()
	if err := os.WriteFile(file+".new", []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(file+".new", file); err != nil {
		t.Fatal(err)
	}
	return file
}

// post sends a request; got is the response with its body read.
type got struct {
	*http.Response
	body   string
	errors []event.FieldError
}

func (e *entry) send(t *testing.T, method, url string, header http.Header, body io.Reader) (got, error) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), method, url, body)
	if err != nil {
		t.Fatal(err)
	}
	for k, v := range header {
		req.Header[http.CanonicalHeaderKey(k)] = v
	}
	resp, err := e.client.Do(req)
	if err != nil {
		return got{}, err
	}
	defer resp.Body.Close()
	data, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	var said struct{ Errors []event.FieldError }
	if err := json.Unmarshal(data, &said); err != nil {
		t.Errorf("%d: the body is no JSON: %s", resp.StatusCode, data)
	}
	return got{resp, string(data), said.Errors}, nil
}

func (e *entry) post(t *testing.T, header http.Header, body string) got {
	t.Helper()
	g, err := e.send(t, http.MethodPost, e.url, header, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	return g
}

// until sends an event until it is answered by a status, as a portal would.
func (e *entry) until(t *testing.T, code int, header http.Header) got {
	t.Helper()
	deadline := time.Now().Add(30 * time.Second)
	for {
		g := e.post(t, header, `{}`)
		if g.StatusCode == code {
			return g
		}
		if time.Now().After(deadline) {
			t.Fatalf("%d %s", g.StatusCode, g.body)
		}
	}
}

func TestHTTP(t *testing.T) {
	in := enter(t, HTTP{}, nil)
	t.Run("a binary event is answered by one", func(t *testing.T) {
		g := in.post(t, tenantIn("1", event.Apply, "default/demo"), `{}`)
		if g.StatusCode != http.StatusOK || g.Header.Get("Ce-Type") != "dev.stoker.intake.accepted.v1" || g.Header.Get("Ce-Subject") != "default/demo" ||
			g.Header.Get("Content-Type") != "application/json" || !strings.Contains(g.body, `"command":"1"`) || g.Header.Get("Nats-Msg-Id") != "" {
			t.Errorf("%d %v %s", g.StatusCode, g.Header, g.body)
		}
	})
	t.Run("so is a structured one, with data as JSON or base64", func(t *testing.T) {
		for _, data := range []string{`"data":{"uid":"x"}`, `"data_base64":"` + base64.StdEncoding.EncodeToString([]byte(`{"uid":"x"}`)) + `"`, `"time":"2026-11-20T12:00:00Z"`} {
			g := in.post(t, http.Header{"authorization": {"bearer " + secret}, "Content-Type": {"application/cloudevents+json; charset=UTF-8"}},
				`{"specversion":"1.0","id":"2","source":"/test","type":"dev.stoker.datastore.pause.v1","subject":"main","datacontenttype":"application/json","expectedgeneration":3,`+data+`}`)
			if g.StatusCode != http.StatusOK || g.Header.Get("Ce-Subject") != "main" || !strings.Contains(g.body, `"command":"2"`) {
				t.Errorf("%s: %d %s", data, g.StatusCode, g.body)
			}
		}
	})
	t.Run("attributes are percent-encoded both ways", func(t *testing.T) {
		h := tenantIn("", event.Apply, "default/demo")
		h.Set("Ce-Id", "%C3%BC%20%25")
		if g := in.post(t, h, `{}`); g.StatusCode != http.StatusOK || !strings.Contains(g.body, `"command":"ü %"`) {
			t.Errorf("%d %s", g.StatusCode, g.body)
		}
	})
	t.Run("a subject that the sender names for its answer is not used", func(t *testing.T) {
		h := tenantIn("3", event.Apply, "default/demo")
		h.Set("Ce-Replyto", "stoker.answer.default.mine")
		if g := in.post(t, h, `{}`); g.StatusCode != http.StatusOK {
			t.Errorf("%d %s", g.StatusCode, g.body)
		}
	})
	for _, c := range []struct {
		field, rule string
		code        int
	}{
		{"spec.networkProfile.port", event.RuleInvalid, 422},
		{"spec.kubernetes.version", event.RuleDuplicate, 422},
		{"spec.controlPlane", event.RuleForbidden, 422},
		{"spec.dataStore", event.RuleNotFound, 422},
		{"uid", event.RuleInvalid, 422},
		{"event.expectedgeneration", event.RuleConflict, 409},
		{"metadata.name", event.RuleDeleting, 409},
		{"event.id", event.RuleDuplicate, 409},
		{"metadata.name", event.RuleNotFound, 404},
		{"metadata.namespace", event.RuleNotFound, 404},
		{"metadata.namespace", event.RuleForbidden, 403},
		{"event.data", event.RuleInvalid, 400},
		{"event.data", event.RuleTooLarge, 413},
		{"object", event.RuleInternal, 500},
	} {
		t.Run(fmt.Sprintf("%s %s is %d", c.field, c.rule, c.code), func(t *testing.T) {
			g := in.post(t, tenantIn("4", event.Apply, "default/demo"), fmt.Sprintf("%q", c.field+" "+c.rule))
			if g.StatusCode != c.code || len(g.errors) != 1 || g.errors[0].Field != c.field || g.errors[0].Rule != c.rule || g.Header.Get("Ce-Type") != "dev.stoker.intake.rejected.v1" {
				t.Errorf("%d %s", g.StatusCode, g.body)
			}
		})
	}
	with := func(change func(http.Header)) http.Header {
		h := tenantIn("5", event.Apply, "default/demo")
		change(h)
		return h
	}
	structured := func(h http.Header) { h.Set("Content-Type", "application/cloudevents+json") }
	large := `"` + strings.Repeat("x", events.MaxPayload) + `"`
	for _, c := range []struct {
		name   string
		method string
		header http.Header
		body   string
		code   int
		field  string
	}{
		{"GET", "GET", with(func(http.Header) {}), "", 405, "request"},
		{"no token", "POST", with(func(h http.Header) { h.Del("Authorization") }), "{}", 401, "request"},
		{"another token", "POST", with(func(h http.Header) { h.Set("Authorization", "Bearer "+secret+"s") }), "{}", 401, "request"},
		{"a token that isn't one for bearers", "POST", with(func(h http.Header) { h.Set("Authorization", "Basic "+secret) }), "{}", 401, "request"},
		{"no event", "POST", with(func(h http.Header) { h.Del("Ce-Specversion") }), "{}", 400, "event.specversion"},
		{"another version of CloudEvents", "POST", with(func(h http.Header) { h.Set("Ce-Specversion", "0.3") }), "{}", 400, "event.specversion"},
		{"no id", "POST", with(func(h http.Header) { h.Del("Ce-Id") }), "{}", 400, "event.id"},
		{"no source", "POST", with(func(h http.Header) { h.Del("Ce-Source") }), "{}", 400, "event.source"},
		{"no type", "POST", with(func(h http.Header) { h.Del("Ce-Type") }), "{}", 400, "event.type"},
		{"an unknown type", "POST", with(func(h http.Header) { h.Set("Ce-Type", "com.example.wish") }), "{}", 400, "event.type"},
		{"no subject", "POST", with(func(h http.Header) { h.Del("Ce-Subject") }), "{}", 400, "event.subject"},
		{"a subject that names no object", "POST", with(func(h http.Header) { h.Set("Ce-Subject", "default/Demo!") }), "{}", 400, "event.subject"},
		{"a tenant without namespace", "POST", with(func(h http.Header) { h.Set("Ce-Subject", "demo") }), "{}", 400, "event.subject"},
		{"a name that no tenant can have", "POST", with(func(h http.Header) { h.Set("Ce-Subject", "default/a.b") }), "{}", 400, "event.subject"},
		{"a DataStore with a namespace", "POST", with(func(h http.Header) { h.Set("Ce-Type", event.DataStoreApply) }), "{}", 400, "event.subject"},
		{"a time that is none", "POST", with(func(h http.Header) { h.Set("Ce-Time", "noon") }), "{}", 400, "event.time"},
		{"an attribute twice", "POST", with(func(h http.Header) { h.Add("Ce-Id", "6") }), "{}", 400, "event.id"},
		{"an attribute that isn't UTF-8", "POST", with(func(h http.Header) { h.Set("Ce-Id", "%FF") }), "{}", 400, "event.id"},
		{"an id with a line feed", "POST", with(func(h http.Header) { h.Set("Ce-Id", "a%0Ab") }), "{}", 400, "event.id"},
		{"an id without end", "POST", with(func(h http.Header) { h.Set("Ce-Id", strings.Repeat("x", 257)) }), "{}", 400, "event.id"},
		{"data that isn't UTF-8", "POST", with(func(http.Header) {}), "\"\xff\"", 400, "event.data"},
		{"a structured event that isn't UTF-8", "POST", with(structured), "{\"specversion\":\"1.0\",\"id\":\"\xff\"}", 400, "event.data"},
		{"a structured event that isn't JSON", "POST", with(structured), "apiVersion: v1", 400, "event.data"},
		{"a structured event without id", "POST", with(structured), `{"specversion":"1.0","source":"/x","type":"x"}`, 400, "event.id"},
		{"nothing", "POST", with(structured), ``, 400, "event.data"},
		{"a batch", "POST", with(func(h http.Header) { h.Set("Content-Type", "application/cloudevents-batch+json") }), "[]", 415, "event.datacontenttype"},
		{"another format", "POST", with(func(h http.Header) { h.Set("Content-Type", "application/cloudevents+xml") }), "<x/>", 415, "event.datacontenttype"},
		{"a form", "POST", with(func(h http.Header) { h.Set("Content-Type", "application/x-www-form-urlencoded") }), "{}", 415, "event.datacontenttype"},
		{"a compressed body", "POST", with(func(h http.Header) { h.Set("Content-Encoding", "gzip") }), "{}", 415, "request"},
		{"too much data", "POST", with(func(http.Header) {}), large, 413, "event.data"},
		{"far too much data", "POST", with(func(http.Header) {}), strings.Repeat(large, 40), 413, "event.data"},
		{"too much data inside an event", "POST", with(structured), `{"specversion":"1.0","id":"1","source":"/x","type":"x","data":` + large + `}`, 413, "event.data"},
	} {
		t.Run(c.name+" is refused", func(t *testing.T) {
			g, err := in.send(t, c.method, in.url, c.header, strings.NewReader(c.body))
			if err != nil {
				t.Fatal(err)
			}
			if g.StatusCode != c.code || len(g.errors) == 0 || g.errors[0].Field != c.field || g.errors[0].Rule == "" || g.errors[0].Message == "" || g.Header.Get("Content-Type") != "application/json" {
				t.Errorf("%d %s, want %d %s", g.StatusCode, g.body, c.code, c.field)
			}
			if c.code == 405 && g.Header.Get("Allow") != "POST" || c.code == 401 && g.Header.Get("Www-Authenticate") == "" {
				t.Errorf("%v", g.Header)
			}
		})
	}
	t.Run("a body without a length, and without an end, is cut off", func(t *testing.T) {
		g, err := in.send(t, http.MethodPost, in.url, tenantIn("5", event.Apply, "default/demo"), io.MultiReader(strings.NewReader(`"`), endless{}))
		if err == nil && g.StatusCode != http.StatusRequestEntityTooLarge {
			t.Errorf("%d %s", g.StatusCode, g.body)
		}
	})
	t.Run("a DataStore's password is refused before it is stored", func(t *testing.T) {
		h := tenantIn("8", event.Apply, "with-password")
		h.Set("Ce-Type", event.DataStoreApply)
		g := in.post(t, h, `{"spec":{"basicAuth":{"password":{"content":"aHVudGVyMg=="}}}}`)
		if g.StatusCode != http.StatusUnprocessableEntity || len(g.errors) != 1 || g.errors[0].Field != "spec.basicAuth.password.content" {
			t.Errorf("%d %s", g.StatusCode, g.body)
		}
		s, err := in.bus.JetStream().Stream(t.Context(), events.StreamIntake)
		if err != nil {
			t.Fatal(err)
		}
		info, err := s.Info(t.Context(), jetstream.WithSubjectFilter("stoker.intake.*.datastores.-.with-password"))
		if err != nil || len(info.State.Subjects) > 0 {
			t.Errorf("%v %v", info, err)
		}
	})
	t.Run("there is nothing else", func(t *testing.T) {
		if g, err := in.send(t, http.MethodGet, strings.Replace(in.url, "/events", "/metrics", 1), nil, nil); err != nil || g.StatusCode != http.StatusNotFound {
			t.Errorf("%d %v", g.StatusCode, err)
		}
	})
	t.Run("tokens are read again when their file changes", func(t *testing.T) {
		file := in.tokens.files[0]
		write(t, file, tokensFor("another-token-that-nobody-guesses"))
		if g := in.post(t, tenantIn("7", event.Apply, "default/demo"), `{}`); g.StatusCode != http.StatusUnauthorized {
			t.Errorf("%d %s", g.StatusCode, g.body)
		}
		write(t, file, "short\n")
		h := tenantIn("7", event.Apply, "default/demo")
		h.Set("Authorization", "Bearer another-token-that-nobody-guesses")
		if g := in.post(t, h, `{}`); g.StatusCode != http.StatusOK {
			t.Errorf("a file that can't be read should leave what was: %d %s", g.StatusCode, g.body)
		}
		write(t, file, "# nobody\n")
		if g := in.post(t, h, `{}`); g.StatusCode != http.StatusUnauthorized {
			t.Errorf("%d %s", g.StatusCode, g.body)
		}
	})
}

// endless is a body without end.
type endless struct{}

func (endless) Read(p []byte) (int, error) {
	for i := range p {
		p[i] = 'x'
	}
	return len(p), nil
}

func TestHTTPWithoutAnswer(t *testing.T) {
	in := enter(t, HTTP{}, func(d *httpIntake) { d.answerIn = 300 * time.Millisecond })
	t.Run("a command that is not answered in time is said to be accepted", func(t *testing.T) {
		g := in.post(t, tenantIn("1", event.Apply, "default/silent"), `{}`)
		if g.StatusCode != http.StatusGatewayTimeout || !strings.Contains(g.body, "still being applied") || g.Header.Get("Retry-After") == "" {
			t.Errorf("%d %s", g.StatusCode, g.body)
		}
	})
	t.Run("an answer that was lost on its way is found in the notes", func(t *testing.T) {
		g := in.until(t, http.StatusOK, tenantIn("noted", event.Apply, "default/silent"))
		if g.StatusCode != http.StatusOK || !strings.Contains(g.body, `"command":"noted"`) || g.Header.Get("Ce-Id") != events.ID("/test", "noted", "answer") {
			t.Errorf("%d %s", g.StatusCode, g.body)
		}
	})
	t.Run("an answer to another command is none", func(t *testing.T) {
		key := events.Tenant("default", "silent")
		sub, err := in.bus.Conn().Subscribe(events.AnswerSubjects, func(m *nats.Msg) {
			if strings.HasSuffix(m.Subject, ".guessed") { // and then to everybody who waits
				in.mu.Lock()
				defer in.mu.Unlock()
				for subject := range in.waiting {
					_ = in.bus.Answer(subject, key, "guessed", event.Accepted, event.IntakeAccepted{})
				}
			}
		})
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = sub.Unsubscribe() }()
		done := make(chan struct{})
		go func() {
			defer close(done)
			for i := 0; i < 100; i++ {
				_ = in.bus.Answer(key.AnswerSubject("guessed"), key, "guessed", event.Accepted, event.IntakeAccepted{})
				_ = in.bus.Conn().FlushTimeout(time.Second)
			}
		}()
		if g := in.post(t, tenantIn("2", event.Apply, "default/silent"), `{}`); g.StatusCode != http.StatusGatewayTimeout {
			t.Errorf("%d %s", g.StatusCode, g.body)
		}
		<-done
	})
	t.Run("without NATS a command is not taken, and with it again", func(t *testing.T) {
		in := enter(t, HTTP{}, nil) // with the usual time for an answer
		in.nats.Stop()
		g := in.post(t, tenantIn("3", event.Apply, "default/demo"), `{}`)
		if g.StatusCode != http.StatusServiceUnavailable || g.Header.Get("Retry-After") == "" || len(g.errors) != 1 || g.errors[0].Rule != "Unavailable" {
			t.Errorf("%d %s", g.StatusCode, g.body)
		}
		if err := in.nats.Restart(t.Context()); err != nil {
			t.Fatal(err)
		}
		in.until(t, http.StatusOK, tenantIn("3", event.Apply, "default/demo"))
	})
}

func TestATokenIsForWhatItSays(t *testing.T) {
	entry := func(n, more string) string {
		return fmt.Sprintf("- {name: %s, hash: %q, %s}\n", n, token.Hash(n), more)
	}
	in := enter(t, HTTP{Tokens: write(t, filepath.Join(t.TempDir(), "tokens"), "tokens:\n"+
		entry("shop", "namespaces: [shop, sales]")+entry("stores", "kinds: [datastores]")+entry("ended", "namespaces: [shop], expires: 2020-01-31T18:00:00Z"))}, nil)
	for what, c := range map[string]struct {
		token, kind, subject string
		code                 int
		field, value         string
	}{
		"a tenant of its namespaces":                     {"shop", event.TenantControlPlanes, "sales/demo", 200, "", ""},
		"a tenant of another namespace":                  {"shop", event.TenantControlPlanes, "other/demo", 403, "metadata.namespace", "other"},
		"a tenant of a namespace that begins like one":   {"shop", event.TenantControlPlanes, "shop-2/demo", 403, "metadata.namespace", "shop-2"},
		"a DataStore, with a token for tenants":          {"shop", event.DataStores, "main", 403, "event.type", event.DataStoreApply},
		"a DataStore, with a token for DataStores":       {"stores", event.DataStores, "main", 200, "", ""},
		"a tenant, with a token for DataStores":          {"stores", event.TenantControlPlanes, "shop/demo", 403, "event.type", event.TenantApply},
		"a KubeconfigGenerator, with a token for none":   {"stores", event.KubeconfigGenerators, "kg", 403, "event.type", event.CommandType(event.KubeconfigGenerators, event.Apply)},
		"anything, with a token that has ended":          {"ended", event.TenantControlPlanes, "shop/demo", 401, "request", ""},
		"anything, with the hash that the file has":      {token.Hash("shop"), event.TenantControlPlanes, "shop/demo", 401, "request", ""},
		"anything, with no token that the file knows of": {"stranger", event.TenantControlPlanes, "shop/demo", 401, "request", ""},
	} {
		t.Run(what, func(t *testing.T) {
			h := tenantIn("1", event.Apply, c.subject)
			h.Set("Authorization", "Bearer "+c.token)
			h.Set("Ce-Type", event.CommandType(c.kind, event.Apply))
			g := in.post(t, h, `{}`)
			if g.StatusCode != c.code || c.code != 200 && (len(g.errors) != 1 || g.errors[0].Field != c.field || g.errors[0].Value != c.value) {
				t.Errorf("%d %s", g.StatusCode, g.body)
			}
			if c.code == 403 && !strings.Contains(g.body, "stoker token add") {
				t.Errorf("no way out: %s", g.body)
			}
		})
	}
}

func TestATokenHasItsShare(t *testing.T) {
	in := enter(t, HTTP{Tokens: write(t, filepath.Join(t.TempDir(), "tokens"), tokensFor(secret)+
		"- {name: other, hash: \""+token.Hash("other")+"\", namespaces: [default]}\n")}, nil)
	other := tenantIn("1", event.Apply, "default/demo")
	other.Set("Authorization", "Bearer other")
	refused := func(t *testing.T, says string) {
		t.Helper()
		g := in.post(t, tenantIn("1", event.Apply, "default/demo"), `{}`)
		if g.StatusCode != http.StatusTooManyRequests || g.Header.Get("Retry-After") == "" || !strings.Contains(g.body, says) {
			t.Errorf("%d %s", g.StatusCode, g.body)
		}
		if g := in.post(t, other, `{}`); g.StatusCode != http.StatusOK {
			t.Errorf("another token: %d %s", g.StatusCode, g.body)
		}
	}
	own := in.shares.get("all")
	t.Run("of requests at once", func(t *testing.T) {
		for range maxPerToken {
			own.slots <- struct{}{}
		}
		refused(t, "64 events")
		for range maxPerToken {
			<-own.slots
		}
	})
	t.Run("of requests a second", func(t *testing.T) {
		own.rate.SetLimit(0)
		for own.rate.Allow() {
		}
		refused(t, "a second")
	})
	t.Run("and leaves its places", func(t *testing.T) {
		becomesFree(t, own.slots)
		becomesFree(t, in.slots)
	})
}

// becomesFree waits until no place is taken: a request leaves its own after its answer.
func becomesFree(t *testing.T, slots chan struct{}) {
	t.Helper()
	for range cap(slots) {
		select {
		case slots <- struct{}{}:
		case <-time.After(3 * time.Minute):
			t.Fatalf("of %d places, some are still taken", cap(slots))
		}
	}
	for range cap(slots) {
		<-slots
	}
}

func TestHTTPBounds(t *testing.T) {
	in := enter(t, HTTP{}, func(d *httpIntake) {
		d.bodyIn, d.server.ReadHeaderTimeout, d.server.ReadTimeout = 2*time.Second, 2*time.Second, 4*time.Second
		d.slots = make(chan struct{}, 2)
	})
	dial := func(t *testing.T, text string) net.Conn {
		t.Helper()
		c, err := net.Dial("tcp", in.listener.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = c.Close() })
		if _, err := io.WriteString(c, text); err != nil {
			t.Fatal(err)
		}
		return c
	}
	const slow = "POST /events HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer " + secret + "\r\nContent-Length: 10\r\n\r\n{"
	all := func(t *testing.T, c net.Conn) string {
		t.Helper()
		if err := c.SetReadDeadline(time.Now().Add(3 * time.Minute)); err != nil {
			t.Fatal(err)
		}
		data, err := io.ReadAll(c)
		if err != nil {
			t.Error("the connection stays open: ", err)
		}
		return string(data)
	}
	// post sends an event again when it doesn't get there within the bounds, as on a busy machine.
	post := func(t *testing.T) got {
		t.Helper()
		for deadline := time.Now().Add(3 * time.Minute); ; {
			g, err := in.send(t, http.MethodPost, in.url, tenantIn("1", event.Apply, "default/demo"), strings.NewReader(`{}`))
			if err == nil && g.StatusCode != http.StatusRequestTimeout {
				return g
			}
			if time.Now().After(deadline) {
				t.Fatalf("%+v: %v", g, err)
			}
		}
	}
	t.Run("more at once than there may be are told to come again", func(t *testing.T) {
		in.slots <- struct{}{}
		in.slots <- struct{}{}
		if g := post(t); g.StatusCode != http.StatusTooManyRequests || g.Header.Get("Retry-After") == "" {
			t.Errorf("%d %s", g.StatusCode, g.body)
		}
		<-in.slots
		<-in.slots
		if g := post(t); g.StatusCode != http.StatusOK {
			t.Errorf("%d %s", g.StatusCode, g.body)
		}
	})
	t.Run("bodies that do not come make room for others", func(t *testing.T) {
		for _, c := range []net.Conn{dial(t, slow), dial(t, slow), dial(t, slow)} {
			if said := all(t, c); !strings.Contains(said, " 408 ") && !strings.Contains(said, " 429 ") {
				t.Error(said)
			}
		}
		becomesFree(t, in.slots)
	})
	t.Run("headers that do not come end the connection", func(t *testing.T) {
		all(t, dial(t, "POST /events HTTP/1.1\r\nHost: x\r\n"))
		all(t, dial(t, ""))
	})
	t.Run("so does the body of who has no token", func(t *testing.T) {
		if said := all(t, dial(t, strings.Replace(slow, secret, "x", 1))); !strings.Contains(said, " 401 ") {
			t.Error(said)
		}
	})
	t.Run("headers without end are refused", func(t *testing.T) {
		h := tenantIn("1", event.Apply, "default/demo")
		h.Set("Ce-Long", strings.Repeat("x", 64<<10))
		req, _ := http.NewRequestWithContext(t.Context(), http.MethodPost, in.url, strings.NewReader("{}"))
		req.Header = h
		resp, err := in.client.Do(req)
		if err == nil {
			_ = resp.Body.Close()
			if resp.StatusCode != http.StatusRequestHeaderFieldsTooLarge {
				t.Error(resp.Status)
			}
		}
	})
}

// newAuthority makes a certificate authority.
func newAuthority(t *testing.T) pki.Pair {
	t.Helper()
	return issue(t, &x509.Certificate{Subject: pkix.Name{CommonName: "authority"}, NotAfter: time.Now().Add(time.Hour), IsCA: true, KeyUsage: x509.KeyUsageCertSign}, nil)
}

// sign makes a certificate for both sides of a connection.
func sign(t *testing.T, by pki.Pair, cn string, lasts time.Duration) pki.Pair {
	t.Helper()
	signer, err := by.Signer()
	if err != nil {
		t.Fatal(err)
	}
	return issue(t, &x509.Certificate{
		Subject: pkix.Name{CommonName: cn}, NotAfter: time.Now().Add(lasts), IPAddresses: []net.IP{net.ParseIP("127.0.0.1")},
		KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	}, signer)
}

func issue(t *testing.T, template *x509.Certificate, by *pki.Signer) pki.Pair {
	t.Helper()
	template.NotBefore = time.Now().Add(-2 * time.Hour)
	pair, err := pki.Issue(template, by)
	if err != nil {
		t.Fatal(err)
	}
	return pair
}

func TestHTTPOverTLS(t *testing.T) {
	dir := t.TempDir()
	ours, others := newAuthority(t), newAuthority(t)
	file := func(n, text string) string { return write(t, filepath.Join(dir, n), text) }
	serve := func(cn string) { // as a renewal does it
		pair := sign(t, ours, cn, time.Hour)
		file("tls.crt", string(pair.Cert))
		file("tls.key", string(pair.Key))
	}
	serve("first")
	h := HTTP{
		Certificate: filepath.Join(dir, "tls.crt"), Key: filepath.Join(dir, "tls.key"),
		ClientCA: file("ca.crt", string(ours.Cert)), Tokens: file("tokens", tokensFor(secret)),
	}
	in := enter(t, h, nil)
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(ours.Cert)
	var cfg *tls.Config
	with := func(by *pki.Pair, lasts time.Duration) {
		in.client.CloseIdleConnections()
		cfg = &tls.Config{RootCAs: roots}
		if by != nil {
			pair, err := sign(t, *by, "portal", lasts).TLS()
			if err != nil {
				t.Fatal(err)
			}
			// Shown whatever authorities the server names.
			cfg.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return &pair, nil }
		}
		in.client.Transport = &http.Transport{TLSClientConfig: cfg, ForceAttemptHTTP2: true}
		t.Cleanup(in.client.CloseIdleConnections)
	}
	try := func(t *testing.T) (got, error) {
		t.Helper()
		return in.send(t, http.MethodPost, in.url, tenantIn("1", event.Apply, "default/demo"), strings.NewReader(`{}`))
	}
	// refused is what the server says to whom it doesn't let in: the client is done with its part of the handshake before.
	refused := func(t *testing.T) string {
		t.Helper()
		conn, err := tls.Dial("tcp", in.listener.Addr().String(), cfg)
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		_, err = conn.Read(make([]byte, 1))
		return fmt.Sprint(err)
	}
	t.Run("a certificate of the authority and a token are let in", func(t *testing.T) {
		with(&ours, time.Hour)
		if g, err := try(t); err != nil || g.StatusCode != http.StatusOK || g.ProtoMajor != 2 {
			t.Fatalf("%v %+v", err, g)
		}
	})
	t.Run("a certificate without a token is not", func(t *testing.T) {
		g, err := in.send(t, http.MethodPost, in.url, nil, strings.NewReader(`{}`))
		if err != nil || g.StatusCode != http.StatusUnauthorized {
			t.Errorf("%v %+v", err, g)
		}
	})
	for _, c := range []struct {
		name  string
		by    *pki.Pair
		lasts time.Duration
		said  string
	}{
		{"no certificate", nil, 0, "certificate required"},
		{"one that has expired", &ours, -time.Hour, "expired certificate"},
		{"one of another authority", &others, time.Hour, "unknown certificate authority"},
	} {
		t.Run(c.name+" is not let in", func(t *testing.T) {
			with(c.by, c.lasts)
			if said := refused(t); said != "remote error: tls: "+c.said {
				t.Error(said)
			}
		})
	}
	t.Run("certificate and authorities are read again when their files change", func(t *testing.T) {
		serve("second")
		file("ca.crt", string(others.Cert))
		with(&others, time.Hour)
		g, err := try(t)
		if err != nil || g.StatusCode != http.StatusOK || g.TLS.PeerCertificates[0].Subject.CommonName != "second" {
			t.Fatalf("%v %+v", err, g)
		}
		with(&ours, time.Hour)
		if said := refused(t); said != "remote error: tls: unknown certificate authority" {
			t.Errorf("the authority that was removed is still trusted: %s", said)
		}
	})
	t.Run("plain HTTP is not spoken", func(t *testing.T) {
		resp, err := http.Get(strings.Replace(in.url, "https", "http", 1))
		if err == nil {
			_ = resp.Body.Close()
			if resp.StatusCode != http.StatusBadRequest {
				t.Error(resp.Status)
			}
		}
		http.DefaultClient.CloseIdleConnections()
	})
}

func TestEscape(t *testing.T) {
	for plain, header := range map[string]string{"a-b/c": "a-b/c", "a b": "a%20b", `"`: "%22", "100%": "100%25", "Größe": "Gr%C3%B6%C3%9Fe", "€": "%E2%82%AC"} {
		if got := escape(plain); got != header {
			t.Errorf("%q is written %q, want %q", plain, got, header)
		}
		if got, err := unescape(header); err != nil || got != plain {
			t.Errorf("%q is read %q (%v)", header, got, err)
		}
	}
	for header, plain := range map[string]string{`"a\"b"`: `a"b`, "100%": "100%", "a+b": "a+b", "ü": "ü"} {
		if got, err := unescape(header); err != nil || got != plain {
			t.Errorf("%q is read %q (%v)", header, got, err)
		}
	}
	if _, err := unescape("\xff"); !errors.Is(err, errNotUTF8) {
		t.Error(err)
	}
}

func FuzzCommandIn(f *testing.F) {
	f.Add("application/json", "1", event.TenantApply, "default/demo", []byte(`{}`))
	f.Add("application/cloudevents+json", "", "", "", []byte(`{"specversion":"1.0","id":"1","source":"/x","type":"dev.stoker.datastore.pause.v1","subject":"a","data":{}}`))
	f.Fuzz(func(t *testing.T, media, id, typ, subject string, body []byte) {
		h := http.Header{"Content-Type": {media}, "Ce-Specversion": {"1.0"}, "Ce-Source": {"/x"}, "Ce-Id": {id}, "Ce-Type": {typ}, "Ce-Subject": {subject}}
		e, key, failed := commandIn(h, body)
		if failed != nil {
			if failed.code < 400 || failed.code >= 500 || len(failed.errors) == 0 || failed.errors[0].Message == "" {
				t.Errorf("%+v", failed)
			}
			return
		}
		if !key.Valid() || strings.Count(key.CommandSubject(), ".") != 4 {
			t.Errorf("%v", key)
		}
		// What is published is what came.
		m := events.Encode(key.CommandSubject(), e)
		again, err := events.Decode(m.Header, m.Data)
		if err != nil || again.ID() != e.ID() || again.Source() != e.Source() || !bytes.Equal(again.Data(), e.Data()) {
			t.Errorf("%v: %v and %v", err, e, again)
		}
	})
}

// FuzzHTTP takes the headers and bodies of requests as anybody may send them.
func FuzzHTTP(f *testing.F) {
	const binary = "Ce-Specversion: 1.0\nCe-Id: 1\nCe-Source: /portal\nCe-Type: dev.stoker.tenantcontrolplane.apply.v1\nCe-Subject: default/shop\n"
	f.Add(binary, []byte(good))
	f.Add(binary+"Ce-Replyto: \"stoker.answer.default.%41\"\nCe-Expectedgeneration: 3\nContent-Type: application/json\n", []byte(`{}`))
	f.Add(strings.Replace(binary, "default/shop", "%FF/..", 1), []byte(nil))
	f.Add("Content-Type: application/cloudevents+json\n", []byte(`{"specversion":"1.0","id":"1","source":"/p","type":"dev.stoker.datastore.delete.v1","subject":"main.eu","data":null}`))
	f.Add("Content-Type: application/cloudevents-batch+json\n", []byte(`[]`))
	f.Fuzz(func(t *testing.T, lines string, body []byte) {
		h := http.Header{}
		for line := range strings.Lines(lines) {
			k, v, _ := strings.Cut(strings.TrimSuffix(line, "\n"), ": ")
			h.Add(k, v)
		}
		e, key, failed := commandIn(h, body)
		if failed != nil {
			if missing := said(refusal(failed.errors)); missing != "" || failed.code < 400 || failed.code > 499 {
				t.Errorf("%q %q: %d %s: %+v", lines, body, failed.code, missing, failed.errors)
			}
			return
		}
		if !key.Valid() || e.ID() == "" || e.Source() == "" || commands[e.Type()].Kind != key.Kind {
			t.Errorf("%q %q: %v %v", lines, body, key, e)
		}
		if escaped, err := unescape(escape(e.Source())); err != nil || escaped != e.Source() {
			t.Errorf("%q comes back as %q: %v", e.Source(), escaped, err)
		}
		events.Fingerprint(key, e)
	})
}
