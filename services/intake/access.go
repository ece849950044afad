package intake

// Who may come in by HTTP: the server's certificate, the authorities of clients' certificates and the bearer tokens, each
// read again when its file changes.

import (
	"crypto/sha256"
	"crypto/subtle"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"slices"
	"strings"
	"sync"
	"time"
)

// HTTP is the way in for CloudEvents over HTTP.
type HTTP struct {
	// Address to listen on; empty: there is no such way in.
	Address string
	// Certificate and Key are the files of the server's certificate. Only a loopback address needs none.
	Certificate, Key string
	// ClientCA is the file with the authorities of clients' certificates, Token the one with bearer tokens. At least one
	// must be there; if both are, both are asked for.
	ClientCA, Token string
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
	case h.ClientCA == "" && h.Token == "":
		return fmt.Errorf("--events-http %q would be open to anybody: give --events-token, or --events-client-ca, or both", h.Address)
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

// tokens are the SHA-256 sums of the bearer tokens that are taken.
type tokens [][sha256.Size]byte

// minToken is the least length of a token that nobody guesses.
const minToken = 16

// readTokens reads one token a line; lines that begin with # are comments. Without any, nobody may come in.
func readTokens(files [][]byte) (tokens, error) {
	var all tokens
	for i, line := range strings.Split(string(files[0]), "\n") {
		line = strings.TrimSpace(line)
		switch {
		case line == "" || strings.HasPrefix(line, "#"):
		case len(line) < minToken || strings.ContainsAny(line, " \t"):
			return nil, fmt.Errorf("line %d: a token has at least %d characters and no space", i+1, minToken)
		default:
			all = append(all, sha256.Sum256([]byte(line)))
		}
	}
	return all, nil
}

// knows reports whether the value of an Authorization header holds one of the tokens. How long it takes says nothing about
// them.
func (all tokens) knows(authorization string) bool {
	scheme, token, _ := strings.Cut(authorization, " ")
	sum := sha256.Sum256([]byte(strings.TrimSpace(token)))
	known := 0
	for _, t := range all {
		known |= subtle.ConstantTimeCompare(t[:], sum[:])
	}
	return known == 1 && strings.EqualFold(scheme, "Bearer")
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
