package etcd

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	"k8s.io/apimachinery/pkg/util/version"

	"github.com/stoker-k8s/stoker/pkg/api/reason"
	"github.com/stoker-k8s/stoker/services/datastore/driver"
	"github.com/stoker-k8s/stoker/services/datastore/driver/internal/limit"
)

var _ driver.Warner = (*etcd)(nil)

// deniesStatus are the versions, from the first to below the second, whose Maintenance.Status wants the role root (etcd-io/etcd#21663).
// A tenant's API server asks for it to learn whether etcd reports the progress of watches; denied, it does without (kubernetes#139220).
var deniesStatus = [][2]*version.Version{
	{version.MustParseSemantic("3.5.28"), version.MustParseSemantic("3.5.31")},
	{version.MustParseSemantic("3.6.0-0"), version.MustParseSemantic("3.6.12")},
}

// nearlyFull is the part of its quota from which a member has too little room left to wait with making some.
const nearlyFull = 0.9

// Warning says that there is no room left, or else names members that have little, or else a version that keeps the tenants' API servers from what they
// should use. Members that don't answer are left out.
func (e *etcd) Warning(ctx context.Context) (why, message string) {
	if e.full(ctx) {
		return reason.EtcdFull, "the DataStore answers and all references are valid, but its etcd has raised the alarm NOSPACE: it refuses" +
			" writes of all tenants, and lets them read and delete; make room (runbook StokerDataStoreFull)"
	}
	var filling, old []string
	for _, endpoint := range e.client.Endpoints() {
		ctx, cancel := context.WithTimeout(ctx, limit.Step)
		status, err := e.client.Status(ctx, endpoint)
		cancel()
		if err != nil {
			continue
		}
		member := strings.TrimPrefix(endpoint, "https://")
		if quota := status.DbSizeQuota; quota > 0 && float64(status.DbSize) >= nearlyFull*float64(quota) { // v3.6 and later tell it
			filling = append(filling, fmt.Sprintf("%s (%d of %d MiB)", member, status.DbSize>>20, quota>>20))
		}
		if denied(status.Version) {
			old = append(old, fmt.Sprintf("%s (v%s)", member, status.Version))
		}
	}
	switch {
	case len(filling) > 0:
		return reason.EtcdNearlyFull, "the DataStore answers and all references are valid, but etcd at " + strings.Join(filling, ", ") +
			" has nearly reached its quota, at which it refuses writes of all tenants; give it a larger --quota-backend-bytes or move tenants elsewhere"
	case len(old) == 0:
		return "", ""
	}
	return reason.EtcdDeniesStatus, "the DataStore answers and all references are valid, but etcd at " + strings.Join(old, ", ") +
		" denies Maintenance.Status to tenants: watches without a resource version fail on quiet resources, and lists aren't served from" +
		" API servers' caches; have v3.6.12 or later, or v3.5.31 or later of v3.5"
}

// full reports whether a member has no room left; false when etcd doesn't say.
func (e *etcd) full(ctx context.Context) bool {
	ctx, cancel := context.WithTimeout(ctx, limit.Step)
	defer cancel()
	all, err := e.client.AlarmList(ctx)
	return err == nil && slices.ContainsFunc(all.Alarms, func(a *etcdserverpb.AlarmMember) bool { return a.Alarm == etcdserverpb.AlarmType_NOSPACE })
}

// denied reports whether etcd of a version denies its status to users without the role root.
func denied(etcd string) bool {
	v, err := version.ParseSemantic(etcd)
	if err != nil {
		return false
	}
	for _, span := range deniesStatus {
		if v.AtLeast(span[0]) && v.LessThan(span[1]) {
			return true
		}
	}
	return false
}
