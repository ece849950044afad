package intake

// When backups of a tenant are due, by its annotations: at the times of a cron expression, and when somebody asked. Like the schedule of
// sleep, it is a function of the annotations and the time alone.

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/stoker-k8s/stoker/pkg/api/event"
	"github.com/stoker-k8s/stoker/pkg/api/name"
	"github.com/stoker-k8s/stoker/pkg/api/state"
)

const (
	mustBeLocation = "must be the name of a Secret in namespace " + name.SystemNamespace + " that says where backups go"
	mustBeKeep     = "must be how many of the scheduled backups stay, such as 14, or for how long, such as 720h"
)

// locationMust says what a name of a location must be, empty when it is one.
func locationMust(value string) string {
	if len(validation.IsDNS1123Subdomain(value)) > 0 {
		return mustBeLocation
	}
	return ""
}

// backups is what a tenant's annotations say of its backups.
type backups struct {
	state.Backups
	at    times
	asked time.Time
}

// backupsOf reads it, or says what of it can't be read; no backups are due then.
func backupsOf(annotations map[string]string) (b backups, bad refusal) {
	zone := time.UTC
	if known, err := time.LoadLocation(annotations[name.AnnotationTimeZone]); err == nil {
		zone = known // one that isn't known is the schedule of sleep's to say
	}
	for annotation, parse := range map[string]func(value string) (must string){
		name.AnnotationBackupLocation: func(value string) string { b.Location = value; return locationMust(value) },
		name.AnnotationBackupSchedule: func(value string) (must string) {
			b.at.zone = zone
			b.at.cron, must = cronOf(value)
			return must
		},
		name.AnnotationBackupAt: func(value string) string {
			at, err := time.Parse(time.RFC3339, value)
			if err != nil {
				return mustBeTime
			}
			b.asked = at.UTC()
			return ""
		},
		name.AnnotationBackupKeep: func(value string) string {
			n, err := strconv.Atoi(value)
			age, notAge := time.ParseDuration(value)
			switch {
			case err == nil && n > 0:
				b.Keep = n
			case err != nil && notAge == nil && age >= time.Hour:
				b.KeepSeconds = int64(age.Seconds())
			default:
				return mustBeKeep
			}
			return ""
		},
	} {
		if value, said := annotations[annotation]; said {
			if must := parse(value); must != "" {
				bad = append(bad, refuse("metadata.annotations["+annotation+"]", event.RuleInvalid, value, must)...)
			}
		}
	}
	if b.Location == "" && (b.at.cron != nil || !b.asked.IsZero()) {
		bad = append(bad, refuse("metadata.annotations["+name.AnnotationBackupLocation+"]", event.RuleRequired, "", "missing; "+mustBeLocation)...)
	}
	if len(bad) > 0 {
		slices.SortFunc(bad, func(a, b event.FieldError) int { return strings.Compare(a.Field, b.Field) })
		return backups{}, bad
	}
	if b.Keep == 0 && b.KeepSeconds == 0 && b.Location != "" {
		b.Keep = keepBackups
	}
	return b, nil
}

// backupsAt is what a tenant's annotations say of its backups at a time. The first one by a schedule is due at once, if there was a time for it
// since the tenant was made.
func backupsAt(o *metav1.ObjectMeta, now time.Time) state.Backups {
	b, bad := backupsOf(o.Annotations)
	if bad != nil || b.Location == "" {
		return state.Backups{}
	}
	scheduled, asked := b.at.last(now), past(b.asked, now)
	if !scheduled.After(o.CreationTimestamp.Time) {
		scheduled = time.Time{}
	}
	b.Due = latest(scheduled, asked).UTC()
	b.Scheduled = !b.Due.IsZero() && !b.Due.Equal(asked)
	b.Next = earliest(b.at.next(now), future(b.asked, now)).UTC()
	return b.Backups
}

// unreadable says in words what of annotations can't be read.
func unreadable(bad refusal) (text string) {
	for _, e := range bad {
		text += fmt.Sprintf("; %s: %q %s", e.Field, e.Value, e.Message)
	}
	return text
}
