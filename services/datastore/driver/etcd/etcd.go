// Package etcd is the driver for etcd. A tenant has the keys below /<schema>/, a role named like its schema that may read
// and write just these, and a user with that role. That both are its own is on record in keys that no tenant can reach
// (owner.go). The user has no password: etcd takes the common name of the client
// certificate for the user's name (--client-cert-auth and authentication on).
package etcd

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"regexp"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/stoker-k8s/stoker/pkg/fence"
	"github.com/stoker-k8s/stoker/services/datastore/driver"
	"github.com/stoker-k8s/stoker/services/datastore/driver/internal/authority"
	"github.com/stoker-k8s/stoker/services/datastore/driver/internal/limit"
)

// Times that bound how long an etcd that is away is noticed late.
const (
	keepAliveTime    = 10 * time.Second
	keepAliveTimeout = 3 * time.Second
	checkTimeout     = 2 * time.Second
	// longestRedial is the longest pause between two tries to connect; gRPC's own grows to two minutes.
	longestRedial = 2 * time.Second
)

// root is the user and role of etcd that may do everything.
const root = "root"

// etcd is the connection to one cluster.
type etcd struct {
	client     *clientv3.Client
	endpoints  []string // as host:port
	admin      string   // the user this driver is
	ca         *authority.Authority
	held       func(context.Context) error // asked before each change
	survey     survey
	compaction compaction
}

var _ driver.Open = Open

// Open makes a driver of a DataStore of kind etcd; it needs the CA with its key and the administrator's certificate.
func Open(c driver.Config) (driver.Driver, error) {
	e := &etcd{held: fence.Check, compaction: compaction{defragmented: map[string]int64{}}}
	fault := func(field, message string) error {
		return &driver.ConfigError{Part: driver.PartTLS, Field: driver.PartTLS + "." + field, Err: errors.New(message)}
	}
	var err error
	if e.ca, err = authority.New(c); err != nil {
		return nil, err
	}
	if !e.ca.Signs() {
		return nil, fault("certificateAuthority", "etcd needs certificate and privateKey, for its tenants are known by their certificates")
	}
	config, admin, err := e.ca.TLS(c)
	if err != nil {
		return nil, err
	}
	if admin == "" {
		return nil, fault("clientCertificate", "must be a certificate with a common name, the user of etcd's administrator")
	}
	e.admin = admin
	e.endpoints = c.Endpoints
	e.client, err = connect(c.Endpoints, config)
	if err != nil {
		return nil, &driver.ConfigError{Part: driver.PartTLS, Field: "endpoints", Err: err}
	}
	return e, nil
}

// connect makes a client, which connects when it is used.
func connect(hosts []string, config *tls.Config) (*clientv3.Client, error) {
	endpoints := make([]string, 0, len(hosts))
	for _, endpoint := range hosts {
		endpoints = append(endpoints, "https://"+endpoint)
	}
	return clientv3.New(clientv3.Config{
		Endpoints:            endpoints,
		DialTimeout:          limit.Dial,
		DialKeepAliveTime:    keepAliveTime,
		DialKeepAliveTimeout: keepAliveTimeout,
		TLS:                  config,
		DialOptions: []grpc.DialOption{grpc.WithConnectParams(grpc.ConnectParams{
			Backoff:           backoff.Config{BaseDelay: 100 * time.Millisecond, Multiplier: 1.6, Jitter: 0.2, MaxDelay: longestRedial},
			MinConnectTimeout: limit.Dial,
		})},
		// What matters comes back as an error; the client's own log would repeat each outage a hundred times.
		Logger: zap.NewNop(),
	})
}

// Close ends the connection.
func (e *etcd) Close() error { return e.client.Close() }

// Access returns the tenant's client certificate: the one it has while it is good, else a new one with a new key.
func (e *etcd) Access(a driver.Account, have driver.Access, now time.Time) (driver.Access, error) {
	if err := e.Validate(a); err != nil {
		return driver.Access{}, err
	}
	return e.ca.Access(a, have, now)
}

// Names are the UID as it is.
func (e *etcd) Names(uid string) (schema, user string) { return uid, uid }

// Endpoint is empty: kube-apiserver speaks to etcd itself.
func (e *etcd) Endpoint() string { return "" }

// Check asks whether a quorum answers, knows this driver as root, and tells users apart: without authentication every
// tenant could read every other's keys.
func (e *etcd) Check(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, checkTimeout)
	defer cancel()
	status, err := e.client.AuthStatus(ctx)
	if err != nil {
		if err = e.classify(ctx, err); !errors.Is(err, driver.ErrAway) {
			// It answers, but not this administrator: nothing can be done here until that changes.
			err = fmt.Errorf("%w to its administrator %q: %w", driver.ErrAway, e.admin, err)
		}
		return err
	}
	if !status.Enabled {
		return fmt.Errorf("%w: authentication is off, so tenants would not be kept apart; make a user root with the role root and run etcdctl auth enable", driver.ErrAway)
	}
	return nil
}

// fitting is what etcd's roles and users, key prefixes and certificates' common names all can hold, and a prefix's
// neighbours can't be reached with.
var fitting = regexp.MustCompile(`^[A-Za-z0-9_][A-Za-z0-9_.-]{0,252}$`)

// maxUser is the longest common name of a certificate (ub-common-name of RFC 5280).
const maxUser = 64

// Validate refuses names that would reach into another tenant's keys or be etcd's administrator.
func (e *etcd) Validate(a driver.Account) error {
	const rule = "must be letters, digits, '_', '-' and '.', not starting with '-' or '.'"
	switch {
	case !fitting.MatchString(a.Schema):
		return &driver.NameError{Field: driver.FieldSchema, Value: a.Schema, Message: rule}
	case a.Schema == root:
		return &driver.NameError{Field: driver.FieldSchema, Value: a.Schema, Message: "is etcd's administrator role"}
	case !fitting.MatchString(a.User):
		return &driver.NameError{Field: driver.FieldUser, Value: a.User, Message: rule}
	case len(a.User) > maxUser:
		return &driver.NameError{Field: driver.FieldUser, Value: a.User, Message: fmt.Sprintf("has %d characters, a certificate's name at most %d", len(a.User), maxUser)}
	case a.User == root || a.User == e.admin:
		return &driver.NameError{Field: driver.FieldUser, Value: a.User, Message: "is etcd's administrator"}
	}
	return nil
}

// classify tells an etcd that is away, or refuses everybody, from one that refuses just this.
func (e *etcd) classify(ctx context.Context, err error) error {
	switch {
	case err == nil:
		return nil
	case errors.Is(ctx.Err(), context.Canceled):
		return ctx.Err()
	case errors.Is(err, context.DeadlineExceeded):
		return fmt.Errorf("%w in time: %w", driver.ErrAway, err)
	}
	if errors.Is(err, rpctypes.ErrNoSpace) || errors.Is(rpctypes.Error(err), rpctypes.ErrNoSpace) {
		return fmt.Errorf("%w: %w", driver.ErrFull, err)
	}
	for _, away := range []error{
		rpctypes.ErrPermissionDenied, rpctypes.ErrUserEmpty, rpctypes.ErrInvalidAuthToken, rpctypes.ErrNoLeader, rpctypes.ErrNotLeader,
		rpctypes.ErrLeaderChanged, rpctypes.ErrStopped, rpctypes.ErrTimeout, rpctypes.ErrTimeoutDueToLeaderFail,
		rpctypes.ErrTimeoutDueToConnectionLost, rpctypes.ErrUnhealthy, rpctypes.ErrTooManyRequests, rpctypes.ErrCorrupt,
	} {
		if errors.Is(err, away) || errors.Is(rpctypes.Error(err), away) {
			return fmt.Errorf("%w: %w", driver.ErrAway, err)
		}
	}
	switch status.Code(err) {
	case codes.Unavailable, codes.DeadlineExceeded, codes.Canceled, codes.PermissionDenied, codes.Unauthenticated:
		return fmt.Errorf("%w: %w", driver.ErrAway, err)
	}
	if errors.Is(err, clientv3.ErrNoAvailableEndpoints) || errors.Is(err, clientv3.ErrOldCluster) || errors.Is(err, context.Canceled) {
		return fmt.Errorf("%w: %w", driver.ErrAway, err)
	}
	return err
}
