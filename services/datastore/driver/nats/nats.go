// Package nats is the driver for NATS with JetStream. A tenant's data is in a key-value bucket, which kine uses. What the
// DataStore's basicAuth holds decides how many tenants there may be:
//
//   - An operator's signing key, beside a user of the system account: many. Each tenant has an account of its own, for
//     nothing less keeps tenants of one NATS apart (docs/design/0004-datastores.md). The account holds one bucket, and
//     its user may do there what kine needs (claims.go). It is made, changed and deleted while the server runs.
//   - A user name and password, a user's credentials, or just a client certificate: one, who connects as the
//     administrator does. That is what Kamaji makes of NATS.
//
// Whose schema and user are is on record in a bucket that only the administrator reaches (owner.go).
package nats

import (
	"context"
	"errors"
	"fmt"
	"net"
	"regexp"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/stoker-k8s/stoker/pkg/fence"
	"github.com/stoker-k8s/stoker/services/datastore/driver"
	"github.com/stoker-k8s/stoker/services/datastore/driver/internal/authority"
	"github.com/stoker-k8s/stoker/services/datastore/driver/internal/gate"
	"github.com/stoker-k8s/stoker/services/datastore/driver/internal/limit"
)

// Times that bound how late a NATS that is away is noticed.
const (
	checkTimeout = 3 * time.Second
	pingInterval = 10 * time.Second
	// answerTimeout is how long a question is waited for that a server may have dropped.
	answerTimeout = 1500 * time.Millisecond
	// slowTimeout is for removing buckets, which waits for the disk.
	slowTimeout = time.Minute
)

// callers is how many use the server at once. Each may hold a connection to a tenant's account for a moment, and a batch
// of records, of which a stream takes fifty at once.
const callers = 8

// server is the connection to one NATS.
type server struct {
	name      string
	endpoints []string
	ca        *authority.Authority
	login     login
	cert, key []byte // of the administrator, for a tenant who is he
	options   []nats.Option
	gate      *gate.Gate
	home      home
	held      func(context.Context) error // asked before each change
	now       func() time.Time
	purging   purging

	replicas atomic.Int64 // as they were known last
}

var (
	_ driver.Open       = Open
	_ driver.Sizer      = (*server)(nil)
	_ driver.Replicated = (*server)(nil)
)

// Open makes a driver of a DataStore of kind NATS. It needs a password or a client certificate, with or without TLS.
func Open(c driver.Config) (driver.Driver, error) {
	s := &server{name: c.Name, endpoints: c.Endpoints, gate: gate.New(callers, classify), held: fence.Check, now: time.Now}
	s.home.lock = make(chan struct{}, 1)
	var err error
	if s.ca, err = authority.New(c); err != nil {
		return nil, err
	}
	tlsConfig, _, err := s.ca.TLS(c)
	if err != nil {
		return nil, err
	}
	if s.login, err = readLogin(c); err != nil {
		return nil, err
	}
	s.cert, s.key = c.ClientCert, c.ClientKey
	if len(c.Endpoints) == 0 {
		return nil, &driver.ConfigError{Part: driver.PartTLS, Field: "endpoints", Err: errors.New("is empty")}
	}
	for _, endpoint := range c.Endpoints {
		_, port, err := net.SplitHostPort(endpoint)
		if err == nil {
			_, err = strconv.ParseUint(port, 10, 16)
		}
		if err != nil {
			return nil, &driver.ConfigError{Part: driver.PartTLS, Field: "endpoints", Err: fmt.Errorf("%q is not host:port: %w", endpoint, err)}
		}
	}
	s.options = []nats.Option{
		nats.Name("stoker " + c.Name), nats.Timeout(limit.Dial), nats.PingInterval(pingInterval),
		// A connection that is lost is made anew by the next who needs one, who sees whether that works.
		nats.NoReconnect(),
		// What matters comes back as an error.
		nats.ErrorHandler(func(*nats.Conn, *nats.Subscription, error) {}),
	}
	if tlsConfig != nil {
		s.options = append(s.options, nats.Secure(tlsConfig))
	}
	return s, nil
}

// url is the servers as NATS clients take them.
func (s *server) url() string { return "nats://" + strings.Join(s.endpoints, ",nats://") }

// Close ends the connections.
func (s *server) Close() error {
	s.home.lock <- struct{}{}
	defer func() { <-s.home.lock }()
	s.home.close()
	s.home.closed = true
	return nil
}

// Endpoint is the first of the servers; kine learns of all by Access.Credentials.
func (s *server) Endpoint() string { return s.endpoints[0] }

// Names are the UID as it is.
func (s *server) Names(uid string) (schema, user string) { return uid, uid }

// Check asks whether the server answers, keeps data, and obeys.
func (s *server) Check(ctx context.Context) error {
	parent := ctx
	return s.gate.Do(parent, func() error {
		ctx, cancel := context.WithTimeout(parent, checkTimeout)
		defer cancel()
		at, err := s.at(ctx)
		if err != nil {
			return err
		}
		if s.login.operator != nil {
			if err := s.obeys(ctx, at); err != nil {
				return err
			}
		}
		_, err = at.owners.Info(ctx)
		return err
	})
}

// fitting is what buckets, and the keys of the records, can be named.
var fitting = regexp.MustCompile(`^[A-Za-z0-9_][A-Za-z0-9_-]*$`)

// The longest names: a bucket's stream, KV_…, is a directory of the server's.
const (
	maxSchema = 128
	maxUser   = 128
)

// Validate refuses names that no bucket can have, and that of the administrator's.
func (s *server) Validate(a driver.Account) error {
	for _, n := range []struct {
		field, value string
		limit        int
	}{{driver.FieldSchema, a.Schema, maxSchema}, {driver.FieldUser, a.User, maxUser}} {
		message := ""
		switch {
		case !fitting.MatchString(n.value):
			message = "must be letters, digits, '_' and '-', not starting with '-'"
		case len(n.value) > n.limit:
			message = fmt.Sprintf("has %d characters, such a name of NATS' at most %d", len(n.value), n.limit)
		case n.field == driver.FieldSchema && n.value == ownersBucket:
			message = "is the bucket of the administration"
		}
		if message != "" {
			return &driver.NameError{Field: n.field, Value: n.value, Message: message}
		}
	}
	return nil
}

// connectError means that there was no connection.
type connectError struct{ err error }

func (e *connectError) Error() string { return e.err.Error() }
func (e *connectError) Unwrap() error { return e.err }

// Codes of JetStream's errors that are told apart.
const (
	codeNoPeers         = 10005 // too few servers for so many replicas
	codeReplicas        = 10074 // this is no cluster
	codeNoAccount       = 10035
	codeNotEnabled      = 10039
	codeNotCreated      = 10049
	codeDisabled        = 10076
	codeOutOfResources  = 10023
	codeOutOfStorage    = 10047
	codeNoSuchMessage   = 10037
	codeNoSuchStream    = 10059
	codeTooLarge        = 10054
	codeWrongSequence   = 10071
	codeWrongInBatch    = 10164
	codeTooManyInFlight = 10210
)

// away are the codes of a server that can't do anything for anybody.
var away = map[jetstream.ErrorCode]bool{
	codeNoPeers: true, codeNotEnabled: true, codeDisabled: true,
}

// codeOf is JetStream's code of an error, 0 when it is none of its.
func codeOf(err error) jetstream.ErrorCode {
	var js jetstream.JetStreamError
	if errors.As(err, &js) && js.APIError() != nil {
		return js.APIError().ErrorCode
	}
	return 0
}

// classify tells a server that is away, or refuses everybody, from one that refuses just this.
func classify(err error) error {
	if errors.Is(err, driver.ErrAway) {
		return err
	}
	var js jetstream.JetStreamError
	if errors.As(err, &js) && js.APIError() != nil {
		switch api := js.APIError(); {
		case api.ErrorCode == codeOutOfResources, api.ErrorCode == codeOutOfStorage:
			return fmt.Errorf("%w: %w", driver.ErrFull, err)
		case api.Code >= 500, away[api.ErrorCode]:
			return fmt.Errorf("%w: %w", driver.ErrAway, err)
		}
		return err
	}
	var connect *connectError
	var network net.Error
	gone := errors.As(err, &connect) || errors.As(err, &network) || errors.Is(err, context.DeadlineExceeded)
	for _, target := range []error{
		nats.ErrTimeout, nats.ErrNoResponders, nats.ErrConnectionClosed, nats.ErrDisconnected, nats.ErrStaleConnection, nats.ErrNoServers,
		nats.ErrReconnectBufExceeded, nats.ErrAuthorization, nats.ErrAuthExpired, nats.ErrAuthRevoked, nats.ErrAccountAuthExpired,
		nats.ErrConnectionReconnecting,
		jetstream.ErrConnectionClosed, jetstream.ErrServerShutdown, jetstream.ErrNoStreamResponse,
	} {
		gone = gone || errors.Is(err, target)
	}
	if gone {
		return fmt.Errorf("%w: %w", driver.ErrAway, err)
	}
	return err
}
