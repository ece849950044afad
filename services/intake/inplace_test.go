package intake

import (
	"encoding/json"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/stoker-k8s/stoker/pkg/api/event"
	"github.com/stoker-k8s/stoker/pkg/api/name"
	"github.com/stoker-k8s/stoker/pkg/api/state"
	"github.com/stoker-k8s/stoker/pkg/api/v1alpha1"
	"github.com/stoker-k8s/stoker/pkg/events"
)

// setBack is a tenant whose annotation asks for a restore in place.
func setBack(value string) *v1alpha1.TenantControlPlane {
	o := demo()
	o.CreationTimestamp = metav1.NewTime(clock.Add(-time.Hour))
	o.Annotations = map[string]string{name.AnnotationRestoreInPlace: value}
	return o
}

const setBackTo = "offsite/default/demo/20261120T031500Z-4f2a9c"

func TestRestoreInPlace(t *testing.T) {
	const request = setBackTo + "@2026-11-20T08:00:00Z"
	at := func(d state.Tenant, stage string) state.Tenant {
		d.InPlace.Stage = stage
		if stage == state.InPlaceStopped {
			d.InPlace.StoppedAt = clock
		}
		return d
	}
	t.Run("the tenant has no pods from when its backup is whole until it has its data", func(t *testing.T) {
		o := setBack(request)
		o.Annotations[name.AnnotationWakeAt], o.Annotations[name.AnnotationSleepAt] = "0 8 * * *", "0 7 * * *"
		asked := desired(o, "d", nil, 0, "", clock)
		stopped, over := at(asked, state.InPlaceStopped), at(asked, state.InPlaceOver)
		for what, c := range map[string]struct {
			before *state.Tenant
			sleeps bool
		}{"asked": {nil, false}, "again": {&asked, false}, "stopped": {&stopped, true}, "over": {&over, false}} {
			d := desired(o, "d", c.before, 2, "", clock)
			if d.Sleeps() != c.sleeps || d.InPlace.Request != request {
				t.Errorf("%s: %+v %+v", what, d.InPlace, d.Sleep)
			}
		}
	})
	t.Run("what doesn't ask for one", func(t *testing.T) {
		stopped := at(desired(setBack(request), "d", nil, 0, "", clock), state.InPlaceStopped)
		for what, o := range map[string]*v1alpha1.TenantControlPlane{
			"no annotation": demo(), "another request": setBack(setBackTo + "@2026-11-20T08:00:01Z"),
			"one that was asked of an earlier tenant": setBack(setBackTo + "@2026-11-20T06:59:59Z"),
		} {
			if d := desired(o, "d", &stopped, 2, "", clock); d.Sleeps() {
				t.Errorf("%s: %+v", what, d.Sleep)
			}
		}
	})
	t.Run("what is refused", func(t *testing.T) {
		for what, c := range map[string]struct {
			o    *v1alpha1.TenantControlPlane
			rule string
		}{
			"no time":          {setBack(setBackTo), event.RuleInvalid},
			"nothing":          {setBack(""), event.RuleInvalid},
			"another tenant's": {setBack("offsite/default/other/id@2026-11-20T08:00:00Z"), event.RuleForbidden},
		} {
			p, bad := inPlaceOf(c.o, nil)
			if len(bad) != 1 || bad[0].Rule != c.rule || p != (state.InPlace{}) {
				t.Errorf("%s: %+v %+v", what, p, bad)
			}
			if w := waitOf(c.o, "", clock); w.Reason == "" {
				t.Errorf("%s: nothing says so", what)
			}
		}
	})
}

func TestRestoreCommand(t *testing.T) {
	tenantWith := func(annotations map[string]string) *object {
		o := demo()
		o.Annotations = annotations
		data, err := json.Marshal(o)
		if err != nil {
			t.Fatal(err)
		}
		return objectOf(t, string(data))
	}
	patchOf := func(backup string, o *object) (map[string]any, error) {
		data := event.Marshal(event.RestoreCommand{Backup: backup})
		what, err := verbs[event.Restore].change(commandFor(events.Tenant("default", "demo"), event.Restore, string(data)))
		if err != nil {
			return nil, err
		}
		return what.patch(o)
	}
	const noted = `{"metadata":{"annotations":{"stoker.dev/restore-in-place":"` + setBackTo + `@2026-11-20T12:00:00Z"}}}`
	for what, c := range map[string]struct{ before, want string }{
		"asks for one":                                      {"", noted},
		"asks for the same once more":                       {setBackTo + "@2026-11-20T11:59:59Z", noted},
		"which comes again, changes nothing":                {setBackTo + "@2026-11-20T12:00:00Z", `{}`},
		"which comes again after a later one, does so, too": {setBackTo + "@2026-11-20T12:00:01Z", `{}`},
	} {
		patch, err := patchOf(setBackTo, tenantWith(map[string]string{name.AnnotationRestoreInPlace: c.before}))
		if got := string(event.Marshal(patch)); err != nil || got != c.want {
			t.Errorf("a command that %s: %s, want %s (%v)", what, got, c.want, err)
		}
	}
	_, err := patchOf("offsite/default/demo", tenantWith(nil))
	if e := wants(t, err, "backup", event.RuleInvalid); e.Value != "offsite/default/demo" {
		t.Error(e.Value)
	}
	_, err = patchOf("offsite/default/other/id", tenantWith(nil))
	if e := wants(t, err, "backup", event.RuleForbidden); e.Value != "offsite/default/other/id" {
		t.Error(e.Value)
	}
}
