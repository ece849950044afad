package data

import (
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/stoker-k8s/stoker/services/datastore/backup"
	"github.com/stoker-k8s/stoker/services/datastore/driver"
)

func TestIsOfBefore(t *testing.T) {
	t.Parallel()
	keys := []string{
		"leases/kube-system/kube-scheduler", "services/endpoints/default/kubernetes", "minions/worker", "secrets/kube-system/bootstrap-token-abcdef",
		"services/endpoints/default/kubernetes-dashboard", "endpointslices/default/kubernetes-x7k2p", "services/specs/default/kubernetes",
		"secrets/kube-system/bootstrap-tokens", "configmaps/default/leases",
	}
	if of := slices.DeleteFunc(slices.Clone(keys), func(k string) bool { return !isOfBefore(k) }); !slices.Equal(of, keys[:4]) {
		t.Errorf("%q", of)
	}
}

func TestRestoreMargin(t *testing.T) {
	t.Parallel()
	for since, want := range map[time.Duration]int64{-time.Hour: 10_000, 0: 10_000, time.Hour: 46_000, 24 * time.Hour: 874_000, 720 * time.Hour: 1_010_000} {
		if n := restoreMargin(since); n != want {
			t.Errorf("%s: %d, not %d", since, n, want)
		}
	}
}

// TestIsForGood: what may be put right where nothing tells of it is tried again.
func TestIsForGood(t *testing.T) {
	t.Parallel()
	for _, err := range []error{backup.ErrNotFound, backup.ErrRefused, backup.ErrAway, errNoLocation, errors.New("there is no Secret")} {
		if isForGood(fmt.Errorf("%w: x", err)) {
			t.Error(err)
		}
	}
	for _, err := range []error{backup.ErrBroken, backup.ErrIdentity, &driver.KeyError{}, &driver.BehindError{}, &unfitError{}} {
		if !isForGood(fmt.Errorf("x: %w", err)) {
			t.Error(err)
		}
	}
}
