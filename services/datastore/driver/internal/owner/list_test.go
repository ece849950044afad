package owner_test

import (
	"slices"
	"testing"

	"github.com/stoker-k8s/stoker/services/datastore/driver"
	"github.com/stoker-k8s/stoker/services/datastore/driver/internal/owner"
)

func TestList(t *testing.T) {
	got := owner.List(
		map[string]string{"s1": "a", "s2": "b", "s4": "d", "s3": "d"},
		map[string]string{"u1": "a", "u3": "c", "u4": "d"},
	)
	want := []driver.Account{
		{Owner: "a", Schema: "s1", User: "u1"}, {Owner: "b", Schema: "s2"}, {Owner: "c", User: "u3"},
		{Owner: "d", Schema: "s3", User: "u4"}, {Owner: "d", Schema: "s4"},
	}
	if !slices.Equal(got, want) {
		t.Errorf("%+v", got)
	}
	if len(owner.List(nil, nil)) != 0 {
		t.Error("accounts of nobody")
	}
}
