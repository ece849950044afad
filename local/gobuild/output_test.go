package gobuild

import (
	"testing"
	"time"
)

func TestCountStale(t *testing.T) {
	if n := countStale("stale dependency: b\n\n" + cached + "\nbuild ID mismatch\n\n"); n != 2 {
		t.Errorf("%d packages to compile, want 2", n)
	}
}

func TestOutput(t *testing.T) {
	start := time.Date(2026, 11, 22, 10, 0, 0, 0, time.UTC)
	after := func(s int) time.Time { return start.Add(time.Duration(s) * time.Second) }
	o := newOutput(start)
	for _, step := range []struct {
		writes string
		at     int
		want   string
	}{
		{"", 2, "0 modules downloaded, 2s"},
		{"go: downloading a v1\ngo: downl", 4, "1 modules downloaded, 4s"},
		{"oading b v1\n", 6, "2 modules downloaded, 6s"},
	} {
		write(t, o, step.writes)
		if got := o.summary(after(step.at)); got != step.want {
			t.Errorf("after %d s: %q, want %q", step.at, got, step.want)
		}
	}
	o.compile(4, after(6))
	for _, step := range []struct {
		writes string
		at     int
		want   string
	}{
		{"", 30, "0 of 4 packages, 30s"},
		{"fmt\n", 12, "1 of 4 packages, 12s"},
		{"", 26, "1 of 4 packages, 26s, about 60 s left"},
		{"k8s.io/api\n", 126, "2 of 4 packages, 2m6s, about 2 min left"},
		{"k8s.io/core\n", 186, "3 of 4 packages, 3m6s, about 60 s left"},
		{"main\n", 200, "4 of 4 packages, linking, 3m20s"},
		{"# main\n./x.go:1: bad thing\n", 201, "4 of 4 packages, linking, 3m21s"},
	} {
		write(t, o, step.writes)
		if got := o.summary(after(step.at)); got != step.want {
			t.Errorf("after %d s: %q, want %q", step.at, got, step.want)
		}
	}
	if got := o.complaints(); got != "# main\n./x.go:1: bad thing\n" {
		t.Errorf("complaints are %q", got)
	}
}

func write(t *testing.T, o *output, text string) {
	t.Helper()
	if n, err := o.Write([]byte(text)); n != len(text) || err != nil {
		t.Fatal(n, err)
	}
}
