package etcd

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/stoker-k8s/stoker/services/datastore/driver"
	"github.com/stoker-k8s/stoker/services/datastore/driver/internal/limit"
)

var _ driver.Surveyor = (*etcd)(nil)

// survey is what was found last. etcd counts the changes of all users and roles, so that while it counts none, nothing
// but the owners needs to be asked for.
type survey struct {
	sync.Mutex
	revision uint64
	found    map[string]string // by schema and user
}

// Survey asks for the owners of all, and for each role and user when any has changed since the last time.
func (e *etcd) Survey(ctx context.Context, schemas ...string) (map[string]string, error) {
	seen, err := e.surveyed(ctx, schemas)
	return seen, e.classify(ctx, err)
}

func (e *etcd) surveyed(ctx context.Context, schemas []string) (map[string]string, error) {
	status, err := within(ctx, func(ctx context.Context) (*clientv3.AuthStatusResponse, error) { return e.client.AuthStatus(ctx) })
	if err != nil {
		return nil, err
	}
	schemaOwner, userOwner, err := e.records(ctx)
	if err != nil {
		return nil, err
	}
	if len(schemas) > 0 {
		maps.DeleteFunc(schemaOwner, func(n, _ string) bool { return !slices.Contains(schemas, n) })
	}
	user := map[string]string{} // of each owner
	for _, n := range slices.Sorted(maps.Keys(userOwner)) {
		user[userOwner[n]] = n
	}
	e.survey.Lock()
	before := map[string]string{}
	if e.survey.revision == status.AuthRevision {
		before = maps.Clone(e.survey.found)
	}
	e.survey.Unlock()
	seen, found := map[string]string{}, map[string]string{}
	for schema, owner := range schemaOwner {
		key := schema + "/" + user[owner]
		if found[key] = before[key]; found[key] == "" {
			if found[key], err = e.surveyOne(ctx, schema, user[owner]); err != nil {
				return nil, err
			}
		}
		seen[schema] = driver.Fingerprint(owner, user[owner], found[key])
	}
	if len(schemas) == 0 {
		e.survey.Lock()
		// Asked for before roles and users were: whatever changed meanwhile is found the next time.
		e.survey.revision, e.survey.found = status.AuthRevision, found
		e.survey.Unlock()
	}
	return seen, nil
}

// surveyOne is what etcd says of a role and a user.
func (e *etcd) surveyOne(ctx context.Context, schema, user string) (string, error) {
	role, err := within(ctx, func(ctx context.Context) (*clientv3.AuthRoleGetResponse, error) { return e.client.RoleGet(ctx, schema) })
	if err = except(err, rpctypes.ErrRoleNotFound); err != nil {
		return "", err
	}
	said := []string{"role " + fmt.Sprint(role != nil), "", ""}
	if role != nil {
		for _, p := range role.Perm {
			said[1] += fmt.Sprintf("%d %q %q;", p.PermType, p.Key, p.RangeEnd)
		}
	}
	if user != "" {
		got, err := within(ctx, func(ctx context.Context) (*clientv3.AuthUserGetResponse, error) { return e.client.UserGet(ctx, user) })
		if err = except(err, rpctypes.ErrUserNotFound); err != nil {
			return "", err
		}
		if got != nil {
			said[2] = fmt.Sprintf("%q", got.Roles)
		}
	}
	return driver.Fingerprint(said...), nil
}

// within gives a step its time-out.
func within[T any](ctx context.Context, step func(context.Context) (T, error)) (T, error) {
	ctx, cancel := context.WithTimeout(ctx, limit.Step)
	defer cancel()
	return step(ctx)
}
