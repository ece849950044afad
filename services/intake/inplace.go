package intake

// A tenant that works is set back to a backup in these steps: the datastore service reads the backup to its end, while the tenant works
// (fact datastore.restoring), intake has the tenant stop, the datastore service replaces its data (datastore.restored), and intake has it
// start again. A backup that can't be read stops nobody (datastore.notrestored).

import (
	"time"

	"github.com/stoker-k8s/stoker/pkg/api/event"
	"github.com/stoker-k8s/stoker/pkg/api/name"
	"github.com/stoker-k8s/stoker/pkg/api/reason"
	"github.com/stoker-k8s/stoker/pkg/api/state"
	"github.com/stoker-k8s/stoker/pkg/api/v1alpha1"
	"github.com/stoker-k8s/stoker/pkg/intent"
	"github.com/stoker-k8s/stoker/pkg/loop"
)

// inPlaceOf is the restore in place that a tenant's annotation asks for, or what of it can't be read. before is what was accepted last, nil for
// nothing. What was asked before the object was made was asked of another one.
func inPlaceOf(o *v1alpha1.TenantControlPlane, before *state.Tenant) (p state.InPlace, bad refusal) {
	value, said := o.Annotations[name.AnnotationRestoreInPlace]
	if !said {
		return p, nil
	}
	const field = "metadata.annotations[" + name.AnnotationRestoreInPlace + "]"
	asked, ok := name.ParseInPlace(value)
	switch {
	case !ok:
		return p, refuse(field, event.RuleInvalid, value, "must be a backup and the time of the request, location/namespace/name/ID@2026-11-27T08:00:00Z")
	case asked.At.Before(o.CreationTimestamp.Time):
		return p, nil
	case asked.Namespace != o.Namespace || asked.Name != o.Name:
		return p, refuse(field, event.RuleForbidden, value, "must be a backup of this tenant: "+name.AnnotationRestoreFrom+" makes another tenant of it")
	case before != nil && before.InPlace.Request == value:
		return before.InPlace, nil
	}
	return state.InPlace{Request: value}, nil
}

// stopped is the sleep of a tenant whose data are being replaced, in place of what its schedule says.
func stopped(p state.InPlace, scheduled state.Sleep) state.Sleep {
	if p.Stage != state.InPlaceStopped {
		return scheduled
	}
	return state.Sleep{Asleep: true, Since: p.StoppedAt, By: name.AnnotationRestoreInPlace + " " + p.Request}
}

// replaced notes how far a restore in place is, as a fact of the datastore service says. It reports whether that is news.
func replaced(t *loop.Turn, e loop.Event, now time.Time) (bool, error) {
	var fact struct {
		event.About
		InPlace string `json:"inPlace"`
	}
	if err := e.DataAs(&fact); err != nil {
		return false, &intent.Permanent{Reason: reason.InvalidFact, Message: e.Service + "." + e.What + " can't be read", Err: err}
	}
	if t.Tenant == nil || fact.UID != t.UID || fact.InPlace == "" || t.Tenant.InPlace.Request != fact.InPlace || t.Tenant.InPlace.Stage == state.InPlaceOver {
		return false, nil
	}
	tenant := *t.Tenant
	tenant.InPlace.Stage = state.InPlaceOver
	if e.What == event.Restoring {
		tenant.InPlace.Stage, tenant.InPlace.StoppedAt = state.InPlaceStopped, now.UTC().Truncate(time.Second)
	}
	t.Tenant = &tenant
	return true, nil
}
