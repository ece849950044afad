package local

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestWant(t *testing.T) {
	remembers := state{DataStores: map[string]int{"default": 0, "pg": 1}, Drivers: map[string]string{"pg": DriverPostgres}}
	for sentence, test := range map[string]struct {
		state state
		asked []DataStore
		want  string
		fails string
	}{
		"what is asked for, in its order": {
			asked: []DataStore{{"b", DriverMySQL}, {"a", DriverEtcd}}, want: "[{b mysql} {a etcd}]",
		},
		"and what is remembered, for tenants are there": {
			state: remembers, asked: []DataStore{{"default", DriverEtcd}}, want: "[{default etcd} {pg postgres}]",
		},
		"one that is remembered is asked for once more": {
			state: remembers, asked: []DataStore{{"pg", DriverPostgres}, {"default", DriverEtcd}}, want: "[{pg postgres} {default etcd}]",
		},
		"never twice":                 {asked: []DataStore{{"a", DriverEtcd}, {"a", DriverEtcd}}, fails: "asked for twice"},
		"nor on another database":     {state: remembers, asked: []DataStore{{"pg", DriverMySQL}}, fails: "pg is on postgres already"},
		"the first ones were on etcd": {state: remembers, asked: []DataStore{{"default", DriverMySQL}}, fails: "default is on etcd already"},
	} {
		t.Run(sentence, func(t *testing.T) {
			got, err := test.state.want(test.asked)
			if test.fails != "" {
				if err == nil || !strings.Contains(err.Error(), test.fails) {
					t.Errorf("got %v, %v", got, err)
				}
				return
			}
			if err != nil || fmt.Sprint(got) != test.want {
				t.Errorf("got %v, %v", got, err)
			}
		})
	}
}

func TestPostgresReady(t *testing.T) {
	dir := t.TempDir()
	for sentence, test := range map[string]struct {
		file  string
		ready bool
	}{
		"when it says so":               {"12\n/data\n1\n5432\n\n127.0.0.1\n 1 2\nready   \n", true},
		"not while it starts":           {"12\n/data\n1\n5432\n\n127.0.0.1\n 1 2\nstarting\n", false},
		"not before it says":            {"12\n/data\n", false},
		"not by what another one wrote": {"11\n/data\n1\n5432\n\n127.0.0.1\n 1 2\nready   \n", false},
	} {
		t.Run(sentence, func(t *testing.T) {
			if err := os.WriteFile(filepath.Join(dir, "postmaster.pid"), []byte(test.file), 0o600); err != nil {
				t.Fatal(err)
			}
			if err := postgresReady(dir, 12); (err == nil) != test.ready {
				t.Errorf("got %v", err)
			}
		})
	}
}

func TestOperatorIsMadeOnce(t *testing.T) {
	file := filepath.Join(t.TempDir(), "operator.json")
	first, err := openOperator(file)
	if err != nil {
		t.Fatal(err)
	}
	again, err := openOperator(file)
	if err != nil || again != first || !strings.HasPrefix(first.Signing, "SO") || first.Operator == "" {
		t.Errorf("made %v and %v: %v", first, again, err)
	}
}
