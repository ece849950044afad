package intake

import (
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/stoker-k8s/stoker/pkg/api/name"
	"github.com/stoker-k8s/stoker/pkg/api/state"
)

func TestBackupsAt(t *testing.T) {
	nightly := func(pairs ...string) map[string]string {
		all := saying(name.AnnotationBackupLocation, "offsite", name.AnnotationBackupSchedule, "15 3 * * *", name.AnnotationTimeZone, berlin)
		for k, v := range saying(pairs...) {
			all[k] = v
		}
		return all
	}
	for sentence, c := range map[string]struct {
		annotations map[string]string
		created     string
		now         string
		due, next   string
		scheduled   bool
		keep        int
		keepFor     time.Duration
		location    string
	}{
		"without annotations there are none":       {now: "2026-11-25T12:00:00Z"},
		"a location alone asks for none":           {annotations: saying(name.AnnotationBackupLocation, "offsite"), now: "2026-11-25T12:00:00Z", keep: 7, location: "offsite"},
		"the last time of the schedule is due":     {annotations: nightly(), now: "2026-11-25T12:00:00Z", due: "2026-11-25T02:15:00Z", scheduled: true, next: "2026-11-26T02:15:00Z", keep: 7, location: "offsite"},
		"at its very moment it is due":             {annotations: nightly(), now: "2026-11-26T02:15:00Z", due: "2026-11-26T02:15:00Z", scheduled: true, next: "2026-11-27T02:15:00Z", keep: 7, location: "offsite"},
		"none is due from before the tenant":       {annotations: nightly(), created: "2026-11-25T02:15:00Z", now: "2026-11-25T12:00:00Z", next: "2026-11-26T02:15:00Z", keep: 7, location: "offsite"},
		"one that was asked for later comes first": {annotations: nightly(name.AnnotationBackupAt, "2026-11-25T10:00:00.5+01:00"), now: "2026-11-25T12:00:00Z", due: "2026-11-25T09:00:00.5Z", next: "2026-11-26T02:15:00Z", keep: 7, location: "offsite"},
		"one that was asked for earlier is past":   {annotations: nightly(name.AnnotationBackupAt, "2026-11-25T01:00:00Z"), now: "2026-11-25T12:00:00Z", due: "2026-11-25T02:15:00Z", scheduled: true, next: "2026-11-26T02:15:00Z", keep: 7, location: "offsite"},
		"one may be asked for later":               {annotations: nightly(name.AnnotationBackupAt, "2026-11-25T20:00:00Z"), now: "2026-11-25T12:00:00Z", due: "2026-11-25T02:15:00Z", scheduled: true, next: "2026-11-25T20:00:00Z", keep: 7, location: "offsite"},
		"so many are kept":                         {annotations: nightly(name.AnnotationBackupKeep, "30"), now: "2026-11-25T12:00:00Z", due: "2026-11-25T02:15:00Z", scheduled: true, next: "2026-11-26T02:15:00Z", keep: 30, location: "offsite"},
		"or for so long":                           {annotations: nightly(name.AnnotationBackupKeep, "720h"), now: "2026-11-25T12:00:00Z", due: "2026-11-25T02:15:00Z", scheduled: true, next: "2026-11-26T02:15:00Z", keepFor: 720 * time.Hour, location: "offsite"},
		"what can't be read asks for none":         {annotations: nightly(name.AnnotationBackupKeep, "many"), now: "2026-11-25T12:00:00Z"},
	} {
		t.Run(sentence, func(t *testing.T) {
			o := &metav1.ObjectMeta{Annotations: c.annotations, CreationTimestamp: metav1.NewTime(instantOf(t, "2026-11-20T10:00:00Z"))}
			if c.created != "" {
				o.CreationTimestamp.Time = instantOf(t, c.created)
			}
			want := state.Backups{
				Location: c.location, Due: instantOf(t, c.due), Scheduled: c.scheduled, Next: instantOf(t, c.next), Keep: c.keep, KeepSeconds: int64(c.keepFor.Seconds()),
			}
			if got := backupsAt(o, instantOf(t, c.now)); got != want {
				t.Errorf("\n%+v, not\n%+v", got, want)
			}
		})
	}
}

func TestBackupsThatCannotBeRead(t *testing.T) {
	for _, c := range []struct {
		annotations        map[string]string
		field, value, says string
	}{
		{saying(name.AnnotationBackupSchedule, "0 3 * * *"), name.AnnotationBackupLocation, "", "missing; must be the name of a Secret"},
		{saying(name.AnnotationBackupAt, "2026-11-25T12:00:00Z"), name.AnnotationBackupLocation, "", "missing; must be the name of a Secret"},
		{saying(name.AnnotationBackupLocation, "Off Site"), name.AnnotationBackupLocation, "Off Site", "must be the name of a Secret"},
		{saying(name.AnnotationBackupLocation, "a", name.AnnotationBackupSchedule, "daily"), name.AnnotationBackupSchedule, "daily", "as cron has them"},
		{saying(name.AnnotationBackupLocation, "a", name.AnnotationBackupAt, "noon"), name.AnnotationBackupAt, "noon", "RFC 3339"},
		{saying(name.AnnotationBackupLocation, "a", name.AnnotationBackupKeep, "0"), name.AnnotationBackupKeep, "0", "must be how many"},
		{saying(name.AnnotationBackupLocation, "a", name.AnnotationBackupKeep, "10m"), name.AnnotationBackupKeep, "10m", "must be how many"},
	} {
		_, bad := backupsOf(c.annotations)
		if len(bad) != 1 || bad[0].Field != "metadata.annotations["+c.field+"]" || bad[0].Value != c.value || !strings.Contains(bad[0].Message, c.says) {
			t.Errorf("%v: %+v", c.annotations, bad)
		}
	}
}
