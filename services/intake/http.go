package intake

// Wakes on HTTP: POST /events takes a CloudEvent, for portals without a NATS client. It is published like any other command,
// so that order, the same id twice and the choice of the replica are those of STOKER_INTAKE, and answered with intake's
// answer.

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"
	"unicode"
	"unicode/utf8"

	ce "github.com/cloudevents/sdk-go/v2/event"
	"github.com/nats-io/nats.go"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/stoker-k8s/stoker/pkg/api/event"
	"github.com/stoker-k8s/stoker/pkg/api/name"
	"github.com/stoker-k8s/stoker/pkg/events"
	"github.com/stoker-k8s/stoker/pkg/service"
	"github.com/stoker-k8s/stoker/pkg/token"
)

// httpIntake is the way in by HTTP while it is open.
type httpIntake struct {
	bus      *events.Bus
	log      *slog.Logger
	listener net.Listener
	server   *http.Server
	tokens   *reloaded[token.File]
	slots    chan struct{}
	shares   shares
	bodyIn   time.Duration // how long a body may take, and an answer
	answerIn time.Duration
	took     *prometheus.HistogramVec

	gone    chan struct{} // closed with the connection: no answer can come any more
	sub     *nats.Subscription
	mu      sync.Mutex
	waiting map[string]chan ce.Event // by subject of the answer
}

// newHTTPTime registers how long requests take.
func newHTTPTime(r prometheus.Registerer) *prometheus.HistogramVec {
	took := prometheus.NewHistogramVec(prometheus.HistogramOpts{
		Name: "stoker_http_events_duration_seconds", Help: "Time of one request to /events.",
		Buckets: []float64{.005, .02, .1, .5, 2, 10, 30},
	}, []string{"code"})
	r.MustRegister(took)
	return took
}

// open begins to listen; nil when there is to be no such way in. Its end is that of serve.
func (h HTTP) open(ctx context.Context, c *service.Clients) (*httpIntake, error) {
	if h.Address == "" {
		return nil, nil
	}
	in := &httpIntake{
		bus: c.Bus, log: c.Log, slots: make(chan struct{}, maxInFlight), gone: make(chan struct{}), bodyIn: bodyTime, answerIn: answerTime,
		waiting: map[string]chan ce.Event{},
		took:    newHTTPTime(c.Metrics),
	}
	var err error
	if in.tokens, err = newReloaded(c.Log, readTokens, h.Tokens); err != nil {
		return nil, err
	}
	in.server = &http.Server{
		Handler: http.HandlerFunc(in.handle), ReadHeaderTimeout: headersTime, ReadTimeout: headersTime + bodyTime, WriteTimeout: responseTime,
		IdleTimeout: idleTime, MaxHeaderBytes: maxHeaders, ErrorLog: slog.NewLogLogger(c.Log.Handler(), slog.LevelDebug),
	}
	if in.server.TLSConfig, err = h.tls(c.Log); err != nil {
		return nil, err
	}
	if in.sub, err = c.Bus.Conn().Subscribe(events.AnswerSubjects, in.answered); err != nil {
		return nil, fmt.Errorf("answers to commands: %w", err)
	}
	if in.listener, err = (&net.ListenConfig{}).Listen(ctx, "tcp", h.Address); err != nil {
		return nil, errors.Join(fmt.Errorf("events-http address %s: %w", h.Address, err), in.sub.Unsubscribe())
	}
	closed := c.Bus.Conn().StatusChanged(nats.CLOSED)
	go func() {
		<-closed
		close(in.gone)
	}()
	return in, nil
}

// serve serves until ctx ends; then it waits a little for what it has taken on.
func (h *httpIntake) serve(ctx context.Context) error {
	ended := make(chan struct{})
	stop := context.AfterFunc(ctx, func() {
		defer close(ended)
		grace, cancel := context.WithTimeout(context.WithoutCancel(ctx), closeTime)
		defer cancel()
		if h.server.Shutdown(grace) != nil {
			_ = h.server.Close()
		}
	})
	var err error
	if h.server.TLSConfig != nil {
		err = h.server.ServeTLS(h.listener, "", "")
	} else {
		err = h.server.Serve(h.listener)
	}
	if !stop() {
		<-ended
	}
	_ = h.sub.Unsubscribe()
	if errors.Is(err, http.ErrServerClosed) {
		return nil
	}
	return err
}

// failure is an answer that isn't intake's.
type failure struct {
	code   int
	errors []event.FieldError
	// header is sent, too, unless empty.
	header, value string
}

func fail(code int, field, rule, value, message string) *failure {
	return &failure{code: code, errors: refuse(field, rule, value, message)}
}

// later is a failure that the sender may try again after some seconds.
func later(code int, rule, message string) *failure {
	f := fail(code, "request", rule, "", message)
	f.header, f.value = "Retry-After", "1"
	return f
}

func (h *httpIntake) handle(w http.ResponseWriter, r *http.Request) {
	started := time.Now()
	code := h.respond(w, r)
	if code != 0 {
		h.took.WithLabelValues(strconv.Itoa(code)).Observe(time.Since(started).Seconds())
	}
}

// respond answers a request and returns the status, 0 when the sender has gone.
func (h *httpIntake) respond(w http.ResponseWriter, r *http.Request) int {
	answer, failed := h.take(w, r)
	switch {
	case failed != nil:
		if failed.header != "" {
			w.Header().Set(failed.header, failed.value)
		}
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(failed.code)
		_, _ = w.Write(event.Marshal(map[string]any{"errors": failed.errors}))
		return failed.code
	case answer == nil:
		return 0
	}
	code := http.StatusOK
	if answer.Type() == event.FactType(name.ServiceIntake, event.Rejected) {
		var found event.IntakeRejected
		if json.Unmarshal(answer.Data(), &found) != nil || len(found.Errors) == 0 {
			code = http.StatusInternalServerError
		} else {
			code = statusOf(found.Errors[0])
		}
	}
	for k, v := range events.Encode("", *answer).Header {
		if k != nats.MsgIdHdr {
			w.Header()[http.CanonicalHeaderKey(k)] = []string{escape(v[0])}
		}
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(code)
	_, _ = w.Write(answer.Data()) //nolint:gosec // it is JSON and says so
	return code
}

// statusOf says a refusal in HTTP's words; the first error counts.
func statusOf(e event.FieldError) int {
	switch {
	case e.Rule == event.RuleConflict, e.Rule == event.RuleDeleting, e.Rule == event.RuleDuplicate && e.Field == "event.id":
		return http.StatusConflict
	case e.Rule == event.RuleTooLarge:
		return http.StatusRequestEntityTooLarge
	case e.Rule == event.RuleAdmissionTimeout:
		return http.StatusBadGateway
	case e.Rule == event.RuleInternal:
		return http.StatusInternalServerError
	case e.Rule == event.RuleNotFound && strings.HasPrefix(e.Field, "metadata."):
		return http.StatusNotFound
	case e.Rule == event.RuleForbidden &&
		slices.Contains([]string{"object", "metadata.namespace", "metadata.labels[" + name.LabelWatchFilter + "]"}, e.Field):
		return http.StatusForbidden
	case e.Field == "event", strings.HasPrefix(e.Field, "event."):
		return http.StatusBadRequest
	}
	return http.StatusUnprocessableEntity
}

// take takes a command on and returns intake's answer; neither answer nor failure when the sender has gone.
func (h *httpIntake) take(w http.ResponseWriter, r *http.Request) (*ce.Event, *failure) {
	if r.URL.Path != "/events" {
		return nil, fail(http.StatusNotFound, "request", event.RuleNotFound, r.URL.Path, "events are sent to /events")
	}
	if r.Method != http.MethodPost {
		f := fail(http.StatusMethodNotAllowed, "request", event.RuleInvalid, r.Method, "events are sent by POST")
		f.header, f.value = "Allow", http.MethodPost
		return nil, f
	}
	who, failed := h.caller(r, time.Now())
	if failed != nil {
		return nil, failed
	}
	leave, failed := h.admit(who)
	if failed != nil {
		return nil, failed
	}
	defer leave()
	body, failed := h.read(w, r)
	if failed != nil {
		return nil, failed
	}
	e, key, failed := commandIn(r.Header, body)
	if failed == nil {
		failed = scope(who, e, key)
	}
	if secrets := event.InlineSecrets(key.Kind, e.Data()); failed == nil && secrets != nil {
		failed = &failure{code: http.StatusUnprocessableEntity, errors: secrets} // before it is stored
	}
	if failed != nil {
		return nil, failed
	}
	return h.ask(r.Context(), key, e)
}

// read reads the body of a request.
func (h *httpIntake) read(w http.ResponseWriter, r *http.Request) ([]byte, *failure) {
	tooLarge := fail(http.StatusRequestEntityTooLarge, "event.data", event.RuleTooLarge, "",
		fmt.Sprintf("data must not be larger than %d bytes", events.MaxPayload))
	if c := r.Header.Get("Content-Encoding"); c != "" && !strings.EqualFold(c, "identity") {
		return nil, fail(http.StatusUnsupportedMediaType, "request", event.RuleInvalid, c, "the body must not be compressed")
	}
	if r.ContentLength > maxBody {
		return nil, tooLarge
	}
	control := http.NewResponseController(w)
	_ = control.SetReadDeadline(time.Now().Add(h.bodyIn))
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxBody))
	if err == nil {
		_ = control.SetReadDeadline(time.Time{}) // else the end of that time would end the request
	}
	var large *http.MaxBytesError
	switch {
	case errors.As(err, &large):
		return nil, tooLarge
	case err != nil:
		return nil, fail(http.StatusRequestTimeout, "request", event.RuleInvalid, "", fmt.Sprintf("the body did not come within %s", h.bodyIn))
	case !utf8.Valid(body):
		return nil, fail(http.StatusBadRequest, "event.data", event.RuleInvalid, string(body), "must be UTF-8")
	}
	return body, nil
}

// batchMedia is that of several events in one request, which would need several answers.
const batchMedia = "application/cloudevents-batch"

// commandIn finds the command in a request, and what it is about.
func commandIn(header http.Header, body []byte) (ce.Event, events.Key, *failure) {
	e, key := ce.Event{}, events.Key{}
	if media := header.Get("Content-Type"); strings.HasPrefix(media, batchMedia) {
		return e, key, fail(http.StatusUnsupportedMediaType, "event.datacontenttype", event.RuleInvalid, media,
			"batches are not taken: send each event by itself")
	}
	plain := nats.Header{}
	for k, values := range header {
		v, err := values[0], error(nil)
		if strings.HasPrefix(k, "Ce-") {
			v, err = unescape(v)
		}
		if err != nil || len(values) > 1 && strings.HasPrefix(k, "Ce-") {
			attribute := strings.ToLower(strings.TrimPrefix(k, "Ce-"))
			return e, key, fail(http.StatusBadRequest, "event."+attribute, event.RuleInvalid, values[0],
				"must be given once, as UTF-8 with %XX for what is not ASCII")
		}
		plain[k] = []string{v}
	}
	e, err := decodeEvent(plain, body)
	var attribute *events.AttributeError
	switch {
	case errors.As(err, &attribute):
		code := http.StatusBadRequest
		if attribute.Attribute == "datacontenttype" {
			code = http.StatusUnsupportedMediaType
		}
		return e, key, fail(code, "event."+attribute.Attribute, event.RuleInvalid, attribute.Value, attribute.Message)
	case err != nil:
		return e, key, fail(http.StatusBadRequest, "event", event.RuleInvalid, "", err.Error())
	case len(e.Data()) > events.MaxPayload:
		return e, key, fail(http.StatusRequestEntityTooLarge, "event.data", event.RuleTooLarge, fmt.Sprintf("%d bytes", len(e.Data())),
			fmt.Sprintf("must not be larger than %d bytes", events.MaxPayload))
	}
	for _, a := range []struct{ name, value string }{{"id", e.ID()}, {"source", e.Source()}} {
		if len(a.value) > maxID || strings.TrimSpace(a.value) != a.value || strings.ContainsFunc(a.value, unicode.IsControl) {
			return e, key, fail(http.StatusBadRequest, "event."+a.name, event.RuleInvalid, a.value,
				fmt.Sprintf("must not be longer than %d bytes, nor hold control characters, nor begin or end with a space", maxID))
		}
	}
	key, failed := keyOf(e)
	return e, key, failed
}

// decodeEvent is events.Decode for what anybody may have sent.
func decodeEvent(header nats.Header, body []byte) (e ce.Event, err error) {
	defer func() {
		if r := recover(); r != nil {
			err = fmt.Errorf("can't be decoded: %v", r)
		}
	}()
	return events.Decode(header, body)
}

// keyOf says what a command is about: the kind by its type, namespace and name by its subject.
func keyOf(e ce.Event) (events.Key, *failure) {
	entry, ok := commands[e.Type()]
	if !ok {
		types := typesOf(event.TenantControlPlanes, event.DataStores, event.KubeconfigGenerators)
		return events.Key{}, &failure{code: http.StatusBadRequest, errors: refuseType(e.Type(), types)}
	}
	key := events.Key{Kind: entry.Kind, Namespace: events.ClusterScoped, Name: e.Subject()}
	form := "the name of the object"
	if kinds[entry.Kind].Namespaced {
		form = "namespace/name of the object"
		key.Namespace, key.Name, _ = strings.Cut(e.Subject(), "/")
	}
	if e.Subject() == "" {
		return key, fail(http.StatusBadRequest, "event.subject", event.RuleRequired, "", "missing; must be "+form)
	}
	if !key.Valid() || kinds[entry.Kind].Namespaced == (key.Namespace == events.ClusterScoped) {
		return key, fail(http.StatusBadRequest, "event.subject", event.RuleInvalid, e.Subject(),
			"must be "+form+": lower-case letters, digits, dashes")
	}
	return key, nil
}

// ask publishes a command and waits for the answer.
func (h *httpIntake) ask(ctx context.Context, key events.Key, e ce.Event) (*ce.Event, *failure) {
	subject := key.NewAnswerSubject()
	came := make(chan ce.Event, 1)
	h.mu.Lock()
	h.waiting[subject] = came
	h.mu.Unlock()
	defer func() {
		h.mu.Lock()
		delete(h.waiting, subject)
		h.mu.Unlock()
	}()
	away := later(http.StatusServiceUnavailable, event.RuleUnavailable,
		"NATS does not answer; send the event again with the same id: it is carried out once")
	if !h.bus.Conn().IsConnected() {
		return nil, away
	}
	e.SetExtension(events.ExtReplyTo, subject)
	msg := events.Encode(key.CommandSubject(), e)
	// What was sent twice is stored twice, so that both are answered; intake carries it out once.
	msg.Header.Set(nats.MsgIdHdr, subject)
	publish, cancel := context.WithTimeout(ctx, publishTime)
	_, err := h.bus.JetStream().PublishMsg(publish, msg)
	cancel()
	if err != nil {
		if ctx.Err() != nil {
			return nil, nil
		}
		h.log.Warn("a command that came by HTTP could not be published", "tenant", key.String(), "error", err)
		return nil, away
	}
	wait := time.NewTimer(h.answerIn)
	defer wait.Stop()
	mine := events.AnswerID(e)
	for {
		select {
		case answer := <-came:
			if answer.ID() == mine { // and not that to another command that named the same subject
				return &answer, nil
			}
		case <-ctx.Done():
			return nil, nil
		case <-h.gone:
			return nil, away
		case <-wait.C:
			// The answer is sent once, and may have been lost with a connection.
			noted, err := h.bus.Answered(ctx, key, e.Source(), e.ID())
			if err == nil && noted != nil && noted.Request == events.Fingerprint(key, e) {
				answer := h.bus.NewEvent(key, mine, event.FactType(name.ServiceIntake, noted.What), noted.Data, time.Now())
				return &answer, nil
			}
			return nil, later(http.StatusGatewayTimeout, event.RuleTimeout, fmt.Sprintf("accepted, and still being applied after %s; "+
				"send the event again with the same id to hear what became of it", h.answerIn))
		}
	}
}

// answered hands an answer to who waits for it.
func (h *httpIntake) answered(m *nats.Msg) {
	h.mu.Lock()
	came := h.waiting[m.Subject]
	h.mu.Unlock()
	if came == nil {
		return
	}
	e, err := decodeEvent(m.Header, m.Data)
	if err != nil {
		return
	}
	select {
	case came <- e:
	default:
	}
}

// escape writes an attribute as a header's value (CloudEvents HTTP binding 1.0.2, section 3.1.3.2).
func escape(s string) string {
	if !strings.ContainsFunc(s, special) {
		return s
	}
	var b strings.Builder
	for _, c := range []byte(s) {
		if special(rune(c)) || c >= utf8.RuneSelf {
			fmt.Fprintf(&b, "%%%02X", c)
		} else {
			b.WriteByte(c)
		}
	}
	return b.String()
}

func special(r rune) bool { return r <= ' ' || r == '"' || r == '%' || r >= 0x7f }

var errNotUTF8 = errors.New("not UTF-8")

// unescape reads an attribute from a header's value. A % that escapes nothing stands for itself.
func unescape(s string) (string, error) {
	if len(s) > 1 && s[0] == '"' && s[len(s)-1] == '"' {
		if u, err := strconv.Unquote(s); err == nil {
			s = u
		}
	}
	if u, err := url.PathUnescape(s); err == nil {
		s = u
	}
	if !utf8.ValidString(s) {
		return "", errNotUTF8
	}
	return s, nil
}
