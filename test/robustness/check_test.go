package robustness

import (
	"fmt"
	"strings"
	"testing"
	"time"
)

// each check finds what it is for, and nothing in a history as it should be.
func TestChecks(t *testing.T) {
	good := []Record{
		{Kind: Asked, By: "shop", Tenant: "default/a", What: "apply", ID: "shop-1", Mark: "shop-1"},
		{Kind: Answered, By: "shop", Tenant: "default/a", What: "apply", ID: "shop-1", Mark: "shop-1", UID: "u", Generation: 1},
		{Kind: Wrote, By: "intake@1", Tenant: "default/a", What: "create", Object: "tenantcontrolplanes/a", Mark: "shop-1"},
		{Kind: Wrote, By: "certs@1", Tenant: "default/a", What: "create", Object: "secrets/a-ca"},
		{Kind: Wrote, By: "certs@2", Tenant: "default/a", What: "patch", Object: "secrets/a-ca"},
		{Kind: Told, By: "certs", Tenant: "default/a", What: "issued", UID: "u", Generation: 1},
		{Kind: Showed, By: "status", Tenant: "default/a", What: "Ready", UID: "u", Generation: 1, Ready: true},
		{Kind: Asked, By: "shop", Tenant: "default/a", What: "spoil", ID: "shop-2", Mark: "shop-2"},
		{Kind: Refused, By: "shop", Tenant: "default/a", What: "spoil", ID: "shop-2", Mark: "shop-2"},
		{Kind: Expected, Tenant: "default/a", What: "Ready", UID: "u", Mark: "shop-1"},
		{Kind: Ended, Tenant: "default/a", What: "Ready", UID: "u", Mark: "shop-1"},
	}
	start := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	timed := func(history []Record) []Record {
		for i := range history {
			history[i].At = start.Add(time.Duration(i) * 100 * time.Millisecond)
		}
		return history
	}
	without := func(i int) []Record { return append(append([]Record(nil), good[:i]...), good[i+1:]...) }
	with := func(r ...Record) []Record { return append(append([]Record(nil), good...), r...) }
	cases := map[string]struct {
		history []Record
		want    string
	}{
		"nothing is wrong": {good, ""},
		"an actor gave up waiting for an answer": {
			with(Record{Kind: Unanswered, Tenant: "default/a", ID: "shop-3"}), "every command is answered",
		},
		"a change is answered twice":          {with(good[1]), "every command is answered"},
		"a refused change shows in an object": {with(Record{Kind: Wrote, Tenant: "default/a", Object: "deployments/a", Mark: "shop-2"}), "what was refused has no effect"},
		"a service goes back to an earlier generation": {
			with(Record{Kind: Told, By: "certs", Tenant: "default/a", What: "issued", UID: "u"}), "generations in order",
		},
		"a service tells again what it told": {
			with(Record{Kind: Told, By: "certs", Tenant: "default/a", What: "issued", UID: "u", Generation: 2, ID: "2"},
				Record{Kind: Told, By: "certs", Tenant: "default/a", What: "issued", UID: "u", Generation: 3, ID: "3"},
				Record{Kind: Told, By: "certs", Tenant: "default/a", What: "issued", UID: "u", Generation: 2, ID: "2"}), "",
		},
		"a second CA": {
			with(Record{Kind: Wrote, By: "certs@2", Tenant: "default/a", What: "create", Object: "secrets/a-ca"}), "one CA ever",
		},
		"two replicas write by turns": {with(Record{Kind: Wrote, By: "certs@1", Tenant: "default/a", Object: "secrets/a-ca", What: "patch"}), "one writer at a time"},
		"two replicas label a DataStore by turns": {with(
			Record{Kind: Wrote, By: "intake@1", Tenant: "datastores/default", Object: "datastores/default", What: "patch"},
			Record{Kind: Wrote, By: "intake@2", Tenant: "datastores/default", Object: "datastores/default", What: "patch"},
			Record{Kind: Wrote, By: "intake@1", Tenant: "datastores/default", Object: "datastores/default", What: "patch"}), "one writer at a time"},
		"a replica adds to what another keeps": {with(
			Record{Kind: Wrote, By: "intake@1", Tenant: "configmaps/stoker-admission", Object: "configmaps/stoker-admission", What: "patch"},
			Record{Kind: Wrote, By: "intake@2", Tenant: "configmaps/stoker-admission", Object: "configmaps/stoker-admission", What: adds},
			Record{Kind: Wrote, By: "intake@1", Tenant: "configmaps/stoker-admission", Object: "configmaps/stoker-admission", What: "patch"}), ""},
		"a tenant isn't what it shall be":  {append(without(10), Record{Kind: Ended, Tenant: "default/a", What: "Ready", UID: "u", Mark: "shop-0"}), "every tenant comes to what was asked for"},
		"nobody knows what a tenant is":    {without(10), "every tenant comes to what was asked for"},
		"a generation has no end":          {without(6), "every accepted generation ends"},
		"a Secret is left":                 {with(Record{Kind: Left, Tenant: "default/b", What: "Secret", Object: "b-ca"}), "nothing is left of a deleted tenant"},
		"a DataStore is gone that is used": {with(Record{Kind: Lost, Tenant: "datastores/vault", Object: "datastores/vault"}), "a used DataStore stays"},
		"a DataStore is left":              {with(Record{Kind: Expected, Tenant: "datastores/vault", What: "Deleted"}, Record{Kind: Ended, Tenant: "datastores/vault", What: "Unused"}), "every tenant comes to what was asked for"},
		"an object in a tenant isn't put right": {
			with(Record{Kind: Drifted, Tenant: "default/a", Object: "configmaps/coredns"}), "what drifts in a tenant is put right",
		},
		"a key is in a log": {with(Record{Kind: Leaked, What: "log"}), "no key outside Secrets"},
	}
	for sentence, c := range cases {
		t.Run(sentence, func(t *testing.T) {
			var said []string
			for _, v := range Check(timed(c.history)) {
				said = append(said, v.Invariant)
			}
			if got := strings.Join(said, "; "); got != c.want {
				t.Errorf("%q, not %q", got, c.want)
			}
		})
	}
}

func TestEqualSeedsGiveEqualSchedules(t *testing.T) {
	drawn := func(seed uint64) string {
		var b strings.Builder
		for _, s := range Schedule(seed, 2*time.Hour, strikePause, Faults()) {
			fmt.Fprintln(&b, s.After, s.Fault.Name, s.For, s.Seed)
		}
		return b.String()
	}
	first := drawn(1)
	if again := drawn(1); again != first {
		t.Error("one seed gives two schedules")
	}
	if drawn(2) == first {
		t.Error("two seeds give one schedule")
	}
	for _, f := range Faults() {
		if f.Weight > 0 && !strings.Contains(first, f.Name) {
			t.Errorf("two hours have no fault %q", f.Name)
		}
	}
}
