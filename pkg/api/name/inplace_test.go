package name

import (
	"testing"
	"time"
)

func TestParseInPlace(t *testing.T) {
	const value = "offsite/default/demo/20261126T031500Z-4f2a9c@2026-11-27T08:00:00Z"
	want := InPlace{
		Backup: "offsite/default/demo/20261126T031500Z-4f2a9c", Namespace: "default", Name: "demo", At: time.Date(2026, 11, 27, 8, 0, 0, 0, time.UTC),
	}
	if p, ok := ParseInPlace(value); !ok || p != want || p.String() != value {
		t.Errorf("got %+v, %v, again %s", p, ok, p)
	}
	for _, bad := range []string{
		"", "@", "offsite/default/demo/id", "offsite/default/demo/id@", "offsite/default/demo/id@today", "offsite/default/demo@2026-11-27T08:00:00Z",
		"offsite//demo/id@2026-11-27T08:00:00Z", "offsite/default/demo/id/more@2026-11-27T08:00:00Z",
	} {
		if p, ok := ParseInPlace(bad); ok {
			t.Errorf("%q is read as %+v", bad, p)
		}
	}
}
