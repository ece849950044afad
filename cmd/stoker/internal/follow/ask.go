package follow

// Questions to the services.

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/stoker-k8s/stoker/pkg/api/event"
	"github.com/stoker-k8s/stoker/pkg/api/name"
	"github.com/stoker-k8s/stoker/pkg/events"
)

// Bounds of a question, of a look into all DataStores, and of the removal of what is there.
const (
	// askTimeout is a little longer than intake takes at most. The other services take less.
	askTimeout     = 30 * time.Second
	orphansTimeout = 30 * time.Second
	dropTimeout    = 6 * time.Minute
	backupsTimeout = time.Minute
)

// Errors of questions about what isn't there.
var (
	// ErrNoTenant means that there is no tenant of that name.
	ErrNoTenant = errors.New("there is no such tenant")
	// ErrNoDataStore means that there is no DataStore of that name.
	ErrNoDataStore = errors.New("there is no such DataStore")
)

// Status asks for the status of a tenant. ErrNoTenant when there is none.
func Status(ctx context.Context, bus *events.Bus, key events.Key) (event.StatusReply, error) {
	return about[event.StatusReply](ctx, bus, event.QueryStatus, key)
}

// Why asks where each service stands with a tenant. ErrNoTenant when there is none.
func Why(ctx context.Context, bus *events.Bus, key events.Key) (event.WhyReply, error) {
	return about[event.WhyReply](ctx, bus, event.QueryWhy, key)
}

// Orphans asks what DataStores, or one, keep for owners that are no tenant. ErrNoDataStore when there is none.
func Orphans(ctx context.Context, bus *events.Bus, dataStore string) (event.OrphansReply, error) {
	q := event.OrphansQuery{DataStore: dataStore}
	reply, err := ask[event.OrphansReply](ctx, bus, orphansTimeout, name.ServiceDatastore, event.QueryOrphans, q)
	if errors.Is(err, errNothing) {
		err = fmt.Errorf("%w: %s", ErrNoDataStore, dataStore)
	}
	return reply, err
}

// DropOrphans has orphans of a DataStore removed.
func DropOrphans(ctx context.Context, bus *events.Bus, dataStore string, orphans []event.Orphan) (event.DropReply, error) {
	q := event.DropQuery{DataStore: dataStore, Orphans: orphans}
	return ask[event.DropReply](ctx, bus, dropTimeout, name.ServiceDatastore, event.QueryDrop, q)
}

// Backups asks which backups there are in a location, of one tenant or, with the zero key, of all.
func Backups(ctx context.Context, bus *events.Bus, location string, key events.Key) (event.BackupsReply, error) {
	q := event.BackupsQuery{Location: location, Namespace: key.Namespace, Name: key.Name}
	return ask[event.BackupsReply](ctx, bus, backupsTimeout, name.ServiceDatastore, event.QueryBackups, q)
}

// Backup asks for one backup.
func Backup(ctx context.Context, bus *events.Bus, q event.BackupQuery) (event.BackupReply, error) {
	return ask[event.BackupReply](ctx, bus, backupsTimeout, name.ServiceDatastore, event.QueryBackup, q)
}

// Move asks what a move of a tenant's data to a DataStore would meet, or, without one, where they are. ErrNoTenant when there is none.
func Move(ctx context.Context, bus *events.Bus, key events.Key, dataStore string) (event.MoveReply, error) {
	q := event.MoveQuery{Query: event.Query{Namespace: key.Namespace, Name: key.Name}, DataStore: dataStore}
	reply, err := ask[event.MoveReply](ctx, bus, askTimeout, name.ServiceDatastore, event.QueryMove, q)
	if errors.Is(err, errNothing) {
		err = fmt.Errorf("%w: %s", ErrNoTenant, key)
	}
	return reply, err
}

// about asks the status service about a tenant.
func about[T any](ctx context.Context, bus *events.Bus, subject string, key events.Key) (T, error) {
	reply, err := ask[T](ctx, bus, askTimeout, name.ServiceStatus, subject, event.Query{Namespace: key.Namespace, Name: key.Name})
	if errors.Is(err, errNothing) {
		err = fmt.Errorf("%w: %s", ErrNoTenant, key)
	}
	return reply, err
}

// Plan asks what a change of a tenant would come to. ErrNoTenant when there is none.
func Plan(ctx context.Context, bus *events.Bus, key events.Key, q event.PlanQuery) (event.PlanReply, error) {
	reply, err := ask[event.PlanReply](ctx, bus, askTimeout, name.ServiceIntake, key.PlanSubject(), q)
	if errors.Is(err, errNothing) {
		err = fmt.Errorf("%w: %s", ErrNoTenant, key)
	}
	return reply, err
}

// Dead lists dead letters.
func Dead(ctx context.Context, bus *events.Bus, q event.DeadListQuery) (event.DeadListReply, error) {
	return ask[event.DeadListReply](ctx, bus, askTimeout, name.ServiceIntake, event.QueryDeadList, q)
}

// ReplayDead has dead letters replayed.
func ReplayDead(ctx context.Context, bus *events.Bus, q event.DeadReplayQuery) (event.DeadReplayReply, error) {
	return ask[event.DeadReplayReply](ctx, bus, askTimeout, name.ServiceIntake, event.QueryDeadReplay, q)
}

// DropDead has dead letters removed.
func DropDead(ctx context.Context, bus *events.Bus, q event.DeadDropQuery) (event.DeadDropReply, error) {
	return ask[event.DeadDropReply](ctx, bus, askTimeout, name.ServiceIntake, event.QueryDeadDrop, q)
}

// Replicas asks for the replicas of a service, or of all.
func Replicas(ctx context.Context, bus *events.Bus, service string) (event.ReplicasReply, error) {
	q := event.ReplicasQuery{Service: service}
	return ask[event.ReplicasReply](ctx, bus, askTimeout, name.ServiceIntake, event.QueryReplicas, q)
}

// Resync has tenants looked at anew by every service.
func Resync(ctx context.Context, bus *events.Bus, q event.ResyncQuery) (event.ResyncReply, error) {
	return ask[event.ResyncReply](ctx, bus, askTimeout, name.ServiceIntake, event.QueryResync, q)
}

// errNothing means that there is nothing of what was asked for.
var errNothing = errors.New("there is no such thing")

// nothingError is errNothing in the service's words.
type nothingError string

func (e nothingError) Error() string { return string(e) }

// Is makes it errNothing.
func (nothingError) Is(target error) bool { return target == errNothing }

func ask[T any](ctx context.Context, bus *events.Bus, patience time.Duration, service, subject string, query any) (reply T, err error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	reply, err = events.Ask[T](ctx, bus.Conn(), subject, query)
	var refused *events.Refusal
	switch {
	case errors.Is(err, nats.ErrNoResponders):
		return reply, fmt.Errorf("no %s service answers: is one running? (`nats micro ls` shows them)", service)
	case errors.As(err, &refused) && refused.Code == "404":
		return reply, nothingError(refused.Message)
	case errors.As(err, &refused):
		return reply, fmt.Errorf("%s answers %s: %s", subject, refused.Code, refused.Message)
	}
	return reply, err
}
