package follow

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"

	"github.com/stoker-k8s/stoker/pkg/api/event"
	"github.com/stoker-k8s/stoker/pkg/api/name"
	"github.com/stoker-k8s/stoker/pkg/events"
)

// StayedError means that a tenant's data don't move to a DataStore, and why.
type StayedError struct {
	Tenant         events.Key
	DataStore, Why string
}

func (e *StayedError) Error() string {
	return fmt.Sprintf("the data of %s don't move to DataStore %s: %s", e.Tenant, e.DataStore, e.Why)
}

// UntilMoved gives every fact of the feed to out (may be nil) until the tenant's data are in a DataStore, as was asked for in a generation. It
// returns a *StayedError when they don't get there, ctx's error when that ends first.
func UntilMoved(ctx context.Context, f *Feed, to string, generation int64, out func(Line)) (event.DatastoreMigrated, error) {
	for {
		l, err := f.Next(ctx)
		if err != nil {
			return event.DatastoreMigrated{}, err
		}
		if out != nil {
			out(l)
		}
		if l.Service+"."+l.What == name.ServiceDatastore+"."+event.Migrated {
			var moved event.DatastoreMigrated
			if err := json.Unmarshal(l.Event.Data(), &moved); err != nil || moved.To == to && len(moved.Resources) == 0 {
				return moved, err
			}
		}
		if why := stays(l, to, generation); why != "" {
			return event.DatastoreMigrated{}, &StayedError{f.key, to, why}
		}
	}
}

// UntilLeft waits until nothing of the tenant is in a DataStore any more, as was asked for in a generation. It returns a *StayedError when
// something stays, ctx's error when that ends first.
func UntilLeft(ctx context.Context, f *Feed, dataStore string, generation int64) error {
	for {
		l, err := f.Next(ctx)
		if err != nil {
			return err
		}
		var gone event.DatastoreWithdrawn
		var undone event.DatastoreMigrating
		var failed event.StepFailed
		data, why := l.Event.Data(), ""
		switch l.Service + "." + l.What {
		case name.ServiceDatastore + "." + event.Withdrawn:
			if err := json.Unmarshal(data, &gone); err != nil || slices.Contains(gone.DataStores, dataStore) {
				return err
			}
		case name.ServiceDatastore + "." + event.Migrating:
			if json.Unmarshal(data, &undone) == nil && undone.Stage == event.StageUndone && undone.From == dataStore && undone.Generation >= generation {
				why = undone.Reason
			}
		case name.ServiceDatastore + "." + event.Failed:
			if json.Unmarshal(data, &failed) == nil && !failed.Retrying && failed.Generation >= generation {
				why = failed.Reason + ": " + failed.Message
			}
		case name.ServiceIntake + "." + event.Deleting:
			why = "the tenant is being deleted"
		}
		if why != "" {
			return fmt.Errorf("something of %s stays in DataStore %s: %s", f.key, dataStore, why)
		}
	}
}

// stays says by one fact why data don't move, empty when it doesn't say so.
func stays(l Line, to string, generation int64) string {
	data := l.Event.Data()
	switch l.Service + "." + l.What {
	case name.ServiceDatastore + "." + event.Migrating:
		var p event.DatastoreMigrating
		if json.Unmarshal(data, &p) == nil && p.Stage == event.StageUndone && len(p.Resources) == 0 && p.To == to && p.Generation >= generation {
			return p.Reason
		}
	case name.ServiceDatastore + "." + event.Failed:
		var p event.StepFailed
		if json.Unmarshal(data, &p) == nil && !p.Retrying && p.Generation >= generation {
			return p.Reason + ": " + p.Message
		}
	case name.ServiceIntake + "." + event.Accepted:
		var p event.IntakeAccepted
		if json.Unmarshal(data, &p) == nil && p.Generation > generation && p.DataStore != to {
			return "somebody has asked for DataStore " + p.DataStore + " since"
		}
	case name.ServiceIntake + "." + event.Deleting:
		return "the tenant is being deleted"
	}
	return ""
}
