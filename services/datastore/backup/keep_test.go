package backup

import (
	"fmt"
	"io"
	"slices"
	"strings"
	"testing"
	"time"
)

func TestList(t *testing.T) {
	places(t, func(t *testing.T, a Access) {
		l, recipient := open(t, a), owner(t).Recipient().String()
		if made, unreadable, err := List(t.Context(), l, "", ""); err != nil || len(made)+len(unreadable) > 0 {
			t.Errorf("of nothing: %v, %v, %v", made, unreadable, err)
		}
		for i, tenant := range []string{"default/demo", "default/other", "east/demo", "default/demo", "default/demo-2"} {
			s := source(recipient)
			s.Manifest.Tenant.Namespace, s.Manifest.Tenant.Name, _ = strings.Cut(tenant, "/")
			s.Manifest.ID = fmt.Sprintf("20261126T03150%dZ-%06x", i, 10-i)
			mustMake(t, l, s)
		}
		const broken = "default/demo/20261126T031509Z-000000"
		put(t, l, broken+"/manifest.json", "x")
		put(t, l, "default/demo/latest/manifest.json", "not a backup's")
		put(t, l, "Default/demo/20261126T031509Z-000000/manifest.json", "not a backup's")
		put(t, l, "readme", "not a backup's")
		for _, test := range []struct {
			namespace, tenant string
			seconds           string
			unreadable        int
		}{
			{"", "", "43210", 1}, {"default", "", "4310", 1}, {"default", "demo", "30", 1}, {"default", "other", "1", 0}, {"", "demo", "320", 1},
			{"west", "", "", 0}, {"default", "demo-2", "4", 0},
		} {
			made, unreadable, err := List(t.Context(), l, test.namespace, test.tenant)
			var seconds string
			for _, m := range made {
				seconds += string(m.ID[14])
			}
			if err != nil || seconds != test.seconds || len(unreadable) != test.unreadable || len(unreadable) > 0 && unreadable[0].Path != broken {
				t.Errorf("%s/%s: %s, %v, %v", test.namespace, test.tenant, seconds, unreadable, err)
			}
		}
		for _, names := range [][2]string{{"..", ""}, {"default", "a/b"}, {"Default", ""}} {
			if _, _, err := List(t.Context(), l, names[0], names[1]); err == nil {
				t.Errorf("%v is listed", names)
			}
		}
	})
}

func TestUnfinished(t *testing.T) {
	l, o := open(t, Access{URL: "file://" + t.TempDir()}), owner(t)
	mustMake(t, l, source(o.Recipient().String()))
	put(t, l, "default/demo/20261126T031509Z-000000/data.age", "x")
	put(t, l, "default/other/20261126T031509Z-000000/keys.age", "x")
	put(t, l, "default/demo/theirs/data.age", "x")
	future := time.Now().Add(time.Hour)
	err := l.Put(t.Context(), "default/demo/20261126T031509Z-000001/keys.age", func(w io.Writer) error {
		names, err := Unfinished(t.Context(), l, "", "", future)
		if err != nil || len(names) != 3 || !strings.HasSuffix(names[1], ".part") {
			t.Errorf("of all: %v, %v", names, err)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	for tenant, want := range map[string]int{"": 3, "demo": 2, "other": 1, "nobody": 0} {
		if names, err := Unfinished(t.Context(), l, "default", tenant, future); err != nil || len(names) != want {
			t.Errorf("of %q: %v, %v", tenant, names, err)
		}
	}
	if names, err := Unfinished(t.Context(), l, "", "", time.Now().Add(-time.Hour)); err != nil || len(names) > 0 {
		t.Errorf("before an hour ago: %v, %v", names, err)
	}
	if _, err := Unfinished(t.Context(), l, "..", "", future); err == nil {
		t.Error("of what is no namespace")
	}
}

func TestSurplus(t *testing.T) {
	now := time.Date(2026, 11, 26, 0, 0, 0, 0, time.UTC)
	// made is one a day up to today, newest first: s is scheduled, h was asked for by hand.
	made := func(tenant, kinds string) (all []Manifest) {
		for i, kind := range kinds {
			began := now.Add(-time.Duration(i) * 24 * time.Hour)
			all = append(all, Manifest{
				ID: began.Format("20060102T150405Z") + "-000000", Tenant: Tenant{Namespace: "default", Name: tenant},
				Began: began, Scheduled: kind == 's',
			})
		}
		slices.Reverse(all)
		return all
	}
	const day = 24 * time.Hour
	for name, test := range map[string]struct {
		kinds string
		keep  int
		age   time.Duration
		want  string // ages of what goes, in days
	}{
		"nothing is made":                             {"", 1, day, ""},
		"no bound":                                    {"ssssss", 0, 0, ""},
		"the oldest go":                               {"sssss", 3, 0, "34"},
		"those asked for stay, and don't count":       {"shshs", 2, 0, "4"},
		"those too old go":                            {"sssss", 0, 2 * day, "34"},
		"either bound is enough":                      {"sssss", 4, 3 * day, "4"},
		"the newest stays":                            {"s", 0, 1, ""},
		"the newest stays, even if it was asked for":  {"hs", 0, 1, "1"},
		"those asked for stay however old":            {"shhhh", 1, day, ""},
		"one that is as old as it may be isn't older": {"ss", 0, day, ""},
	} {
		var got string
		for _, m := range Surplus(append(made("demo", test.kinds), made("other", "s")...), test.keep, test.age, now) {
			got += fmt.Sprint(int(now.Sub(m.Began) / day))
		}
		if got != test.want {
			t.Errorf("%s: %q goes, want %q", name, got, test.want)
		}
	}
	if got := Surplus(append(made("a", "ss"), made("b", "ss")...), 1, 0, now); len(got) != 2 {
		t.Errorf("of two tenants: %v", got)
	}
}

func TestIDsSortByTime(t *testing.T) {
	at := time.Date(2026, 11, 26, 3, 15, 0, 0, time.FixedZone("", 3600))
	one, two := NewID(at), NewID(at.Add(time.Second))
	if one >= two || !strings.HasPrefix(one, "20261126T021500Z-") || !idPattern.MatchString(one) || one == NewID(at) {
		t.Errorf("%s, %s", one, two)
	}
}
