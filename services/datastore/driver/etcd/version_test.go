package etcd

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stoker-k8s/stoker/pkg/api/reason"
	"github.com/stoker-k8s/stoker/services/datastore/driver/drivertest"
	"github.com/stoker-k8s/stoker/services/datastore/driver/etcd/etcdserver"
)

// TestWarningOfRoom fills an etcd of 4 MiB.
func TestWarningOfRoom(t *testing.T) {
	t.Parallel()
	server := etcdserver.Start(t, "--quota-backend-bytes=4194304")
	d, err := Open(server.Config(t))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = d.Close() })
	says := func(want string) {
		t.Helper()
		drivertest.Eventually(t, 10*time.Second, func() error {
			if why, message := d.(*etcd).Warning(t.Context()); why != want {
				return fmt.Errorf("%q: %s", why, message)
			}
			return nil
		})
	}
	put := func(n int) error {
		_, err := server.Root.Put(t.Context(), fmt.Sprint("/", n), strings.Repeat("x", 100<<10))
		return err
	}
	says("")
	const nearly = 36 // of 104 KiB each
	for n := range nearly {
		if err := put(n); err != nil {
			t.Fatal(err)
		}
	}
	says(reason.EtcdNearlyFull)
	for n := nearly; put(n) == nil; n++ {
	}
	says(reason.EtcdFull)
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
