package etcd

import (
	"context"

	"github.com/stoker-k8s/stoker/services/datastore/driver"
	"github.com/stoker-k8s/stoker/services/datastore/driver/internal/limit"
)

func init() { limit.Raise() }

// SetHeld has a driver ask held before each change.
func SetHeld(d driver.Driver, held func(context.Context) error) { d.(*etcd).held = held }

// CompactOnly is Compact without what comes after the compaction.
func CompactOnly(ctx context.Context, d driver.Driver) error { return d.(*etcd).compact(ctx) }
