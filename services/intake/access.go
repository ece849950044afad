package intake

// Who may come in by HTTP, for what and how much of it: the server's certificate, the authorities of clients' certificates and the
// bearer tokens, each read again when its file changes.

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	ce "github.com/cloudevents/sdk-go/v2/event"
	"golang.org/x/time/rate"

	"github.com/stoker-k8s/stoker/pkg/api/event"
	"github.com/stoker-k8s/stoker/pkg/events"
	"github.com/stoker-k8s/stoker/pkg/token"
)

// HTTP is the way in for CloudEvents over HTTP.
type HTTP struct {
	// Address to listen on; empty: there is no such way in.
	Address string
	// Certificate and Key are the files of the server's certificate. Only a loopback address needs none.
	Certificate, Key string
	// Tokens is the file of bearer tokens, as [token.File] has it: who may command what.
	Tokens string
	// ClientCA is the file with the authorities of the certificates that clients show beside their tokens; empty: none is asked for.
	ClientCA string
}

// check says what of the settings can't be; a way in must not be open by mistake.
func (h HTTP) check() error {
	switch {
	case h == HTTP{}:
		return nil
	case h.Address == "":
		return errors.New("--events-http is missing: the address on which events are taken, like :8443; " +
			"without it the other --events flags mean nothing")
	case (h.Certificate == "") != (h.Key == ""):
		return fmt.Errorf("--events-cert %q and --events-key %q: give both or none", h.Certificate, h.Key)
	case h.ClientCA != "" && h.Certificate == "":
		return fmt.Errorf("--events-client-ca %q: clients show certificates on TLS connections only; "+
			"give --events-cert and --events-key", h.ClientCA)
	case h.Tokens == "":
		return fmt.Errorf("--events-http %q would be open to anybody: give --events-token, the file that `stoker token add` writes", h.Address)
	}
	host, _, err := net.SplitHostPort(h.Address)
	if err != nil {
		return fmt.Errorf("--events-http %q: must be host:port: %w", h.Address, err)
	}
	if ip := net.ParseIP(host); h.Certificate == "" && host != "localhost" && (ip == nil || !ip.IsLoopback()) {
		return fmt.Errorf("--events-http %q: without TLS only a loopback address may be listened on; "+
			"give --events-cert and --events-key", h.Address)
	}
	return nil
}

// tls is the server's side of TLS, nil for none.
func (h HTTP) tls(log *slog.Logger) (*tls.Config, error) {
	if h.Certificate == "" {
		return nil, nil
	}
	files := []string{h.Certificate, h.Key}
	if h.ClientCA != "" {
		files = append(files, h.ClientCA)
	}
	now, err := newReloaded(log, readTLS, files...)
	if err != nil {
		return nil, err
	}
	return &tls.Config{
		MinVersion:         tls.VersionTLS12,
		GetConfigForClient: func(*tls.ClientHelloInfo) (*tls.Config, error) { return now.get(), nil },
	}, nil
}

// readTLS makes a configuration of certificate, key and, if given, clients' authorities.
func readTLS(files [][]byte) (*tls.Config, error) {
	pair, err := tls.X509KeyPair(files[0], files[1])
	if err != nil {
		return nil, err
	}
	cfg := &tls.Config{MinVersion: tls.VersionTLS12, Certificates: []tls.Certificate{pair}, NextProtos: []string{"h2", "http/1.1"}}
	if len(files) > 2 {
		cfg.ClientCAs, cfg.ClientAuth = x509.NewCertPool(), tls.RequireAndVerifyClientCert
		// Each connection shows a certificate that is valid now, by an authority that is trusted now.
		cfg.SessionTicketsDisabled = true
		if !cfg.ClientCAs.AppendCertsFromPEM(files[2]) {
			return nil, errors.New("no certificate of an authority found")
		}
	}
	return cfg, nil
}

// readTokens reads the file of tokens. Without any, nobody may come in.
func readTokens(files [][]byte) (token.File, error) { return token.Parse(files[0]) }

// share is what one token uses of a replica.
type share struct {
	rate  *rate.Limiter
	slots chan struct{}
}

// shares are those of all tokens that came, by name. It is safe for concurrent use.
type shares struct {
	mu sync.Mutex
	of map[string]*share
}

func (s *shares) get(name string) *share {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.of == nil {
		s.of = map[string]*share{}
	}
	if s.of[name] == nil {
		s.of[name] = &share{rate: rate.NewLimiter(tokenPerSecond, tokenBurst), slots: make(chan struct{}, maxPerToken)}
	}
	return s.of[name]
}

// caller is whose token a request carries.
func (h *httpIntake) caller(r *http.Request, now time.Time) (*token.Token, *failure) {
	scheme, secret, _ := strings.Cut(r.Header.Get("Authorization"), " ")
	who := h.tokens.get().Find(strings.TrimSpace(secret))
	message := "send a token of this installation as header Authorization: Bearer TOKEN"
	switch {
	case who == nil || !strings.EqualFold(scheme, "Bearer"):
	case who.Expired(now):
		message = fmt.Sprintf("token %s ended at %s; `stoker token add` makes another", who.Name, who.Expires.UTC().Format(time.RFC3339))
	default:
		return who, nil
	}
	f := fail(http.StatusUnauthorized, "request", event.RuleUnauthorized, "", message)
	f.header, f.value = "WWW-Authenticate", `Bearer realm="stoker"`
	return nil, f
}

// admit takes a place among the requests in work, of the token and in all, until leave is called.
func (h *httpIntake) admit(who *token.Token) (leave func(), failed *failure) {
	own := h.shares.get(who.Name)
	if !own.rate.Allow() {
		return nil, later(http.StatusTooManyRequests, event.RuleTooMany,
			fmt.Sprintf("token %s may send %d events a second; send it again in a moment", who.Name, tokenPerSecond))
	}
	for i, slots := range []chan struct{}{own.slots, h.slots} {
		select {
		case slots <- struct{}{}:
		default:
			if i > 0 {
				<-own.slots
			}
			return nil, later(http.StatusTooManyRequests, event.RuleTooMany,
				fmt.Sprintf("%d events are being worked on; send it again in a moment", cap(slots)))
		}
	}
	return func() { <-h.slots; <-own.slots }, nil
}

// scope refuses a command about what a token is not for.
func scope(who *token.Token, e ce.Event, key events.Key) *failure {
	switch err := who.Allows(key.Kind, key.Namespace); {
	case errors.Is(err, token.ErrKind):
		return fail(http.StatusForbidden, "event.type", event.RuleForbidden, e.Type(), fmt.Sprintf(
			"token %s is not for %s; `stoker token add NAME --kind %s` makes one that is", who.Name, key.Kind, key.Kind))
	case err != nil:
		return fail(http.StatusForbidden, "metadata.namespace", event.RuleForbidden, key.Namespace, fmt.Sprintf(
			"token %s is for %s; `stoker token add NAME --namespace %s` makes one for this namespace", who.Name,
			strings.Join(who.Namespaces, ", "), key.Namespace))
	}
	return nil
}

// reloaded is something made from files, made again when one of them has changed. What can't be made leaves it as it was. It
// is safe for concurrent use.
type reloaded[T any] struct {
	files []string
	build func(contents [][]byte) (T, error)
	log   *slog.Logger

	mu    sync.Mutex
	seen  []stamp
	value T
}

// stamp tells one content of a file from the next.
type stamp struct {
	changed time.Time
	size    int64
}

func newReloaded[T any](log *slog.Logger, build func([][]byte) (T, error), files ...string) (*reloaded[T], error) {
	f := &reloaded[T]{files: files, build: build, log: log}
	f.seen = f.stamps()
	value, err := f.read()
	f.value = value
	return f, err
}

func (f *reloaded[T]) read() (value T, err error) {
	contents := make([][]byte, len(f.files))
	for i, file := range f.files {
		if contents[i], err = os.ReadFile(file); err != nil {
			return value, err
		}
	}
	if value, err = f.build(contents); err != nil {
		err = fmt.Errorf("%s: %w", strings.Join(f.files, ", "), err)
	}
	return value, err
}

func (f *reloaded[T]) stamps() []stamp {
	all := make([]stamp, len(f.files))
	for i, file := range f.files {
		if info, err := os.Stat(file); err == nil {
			all[i] = stamp{info.ModTime(), info.Size()}
		}
	}
	return all
}

// get returns what the files say now.
func (f *reloaded[T]) get() T {
	f.mu.Lock()
	defer f.mu.Unlock()
	now := f.stamps()
	if slices.Equal(now, f.seen) {
		return f.value
	}
	f.seen = now
	value, err := f.read()
	if err != nil {
		f.log.Error("what was read before stays in use", "error", err)
		return f.value
	}
	f.log.Info("files were read again", "files", f.files)
	f.value = value
	return f.value
}
