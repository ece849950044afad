package etcd

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"

	"github.com/stoker-k8s/stoker/internal/testing/etcdserver"
	"github.com/stoker-k8s/stoker/pkg/api/reason"
)

// TestWarningOfRoom fills an etcd of 16 MiB.
func TestWarningOfRoom(t *testing.T) {
	t.Parallel()
	server := etcdserver.Start(t, "--quota-backend-bytes=16777216")
	d, err := Open(server.Config(t))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = d.Close() })
	value := strings.Repeat("x", 32<<10)
	// The size that etcd tells is that of its last commit, a tenth of a second ago: from nine tenths on, there is room for fifty values more.
	var warned []string
	for n, full := 0, false; !full; n++ {
		_, err := server.Root.Put(t.Context(), fmt.Sprint("/", n), value)
		if full = errors.Is(err, rpctypes.ErrNoSpace); err != nil && !full {
			t.Fatal(err)
		}
		why, _ := d.(*etcd).Warning(t.Context())
		if len(warned) == 0 || warned[len(warned)-1] != why {
			warned = append(warned, why)
		}
	}
	if want := []string{"", reason.EtcdNearlyFull, reason.EtcdFull}; !slices.Equal(warned, want) {
		t.Errorf("it warned of %q, want %q", warned, want)
	}
}

func TestWhichVersionsDenyTheirStatus(t *testing.T) {
	t.Parallel()
	for v, want := range map[string]bool{
		"3.4.37": false, "3.5.27": false, "3.5.28": true, "3.5.30": true, "3.5.31": false, "3.5.34": false,
		"3.6.0-rc.2": true, "3.6.0": true, "3.6.8": true, "3.6.11": true, "3.6.12": false, "3.6.16": false, "3.7.0": false, "": false, "unknown": false,
	} {
		if denied(v) != want {
			t.Errorf("%q: %t", v, !want)
		}
	}
}
