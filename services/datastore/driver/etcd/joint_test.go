package etcd_test

import (
	"testing"

	"github.com/stoker-k8s/stoker/internal/testing/etcdserver"
	"github.com/stoker-k8s/stoker/services/datastore/driver"
	"github.com/stoker-k8s/stoker/services/datastore/driver/etcd"
)

func TestJoins(t *testing.T) {
	one, _ := offline(t, ec(t))
	other, _ := offline(t, ec(t))
	both := func(c driver.Config, more driver.Config) driver.Config {
		c.CA = append(append([]byte("a comment\n"), more.CA...), c.CA...)
		return c
	}
	for sentence, test := range map[string]struct {
		a, b driver.Config
		want bool
	}{
		"one authority":                                    {one, one, true},
		"one authority, in another file":                   {one, both(one, other), true},
		"an authority that is being replaced in both":      {both(one, other), both(other, one), true},
		"another authority":                                {one, other, false},
		"one that the other has, but doesn't have it":      {one, both(other, one), false},
		"one that has the other, which doesn't know of it": {both(one, other), other, false},
		"both have both":                                   {both(one, other), both(one, other), true},
	} {
		t.Run(sentence, func(t *testing.T) {
			a, b := open(t, test.a).(driver.Joint), open(t, test.b)
			if got := a.Joins(b); got != test.want {
				t.Errorf("got %t", got)
			}
		})
	}
}

func TestPlaceTellsDatabasesApart(t *testing.T) {
	t.Parallel()
	first := etcdserver.Start(t)
	second := etcdserver.StartWith(t, first.CA, "127.0.0.1")
	a := driver.Account{Owner: "uid", Schema: "s", User: "u"}
	place := func(server *etcdserver.Server, a driver.Account) string {
		d, err := etcd.Open(server.Config(t))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = d.Close() })
		p, err := d.(driver.Joint).Place(t.Context(), a)
		if err != nil {
			t.Fatal(err)
		}
		return p
	}
	if p := place(first, a); p != "" {
		t.Errorf("without an account: %q", p)
	}
	for _, server := range []*etcdserver.Server{first, second} {
		if _, err := open(t, server.Config(t)).Provision(t.Context(), a); err != nil {
			t.Fatal(err)
		}
	}
	if p := place(first, a); p == "" || p != place(first, a) || p == place(second, a) {
		t.Errorf("%q, %q, %q", p, place(first, a), place(second, a))
	}
	if p := place(first, driver.Account{Owner: "another", Schema: "s", User: "u"}); p != "" {
		t.Errorf("of another's: %q", p)
	}
}
