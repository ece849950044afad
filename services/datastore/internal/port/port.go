// Package port gives tests ports that stay free until they are listened on.
package port

import (
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"path/filepath"
	"syscall"
	"testing"
)

// Free returns a port of the loopback that was free a moment ago, that no process is given that asks for any, and that no other test of this
// machine gets from here until this one has ended.
func Free(t testing.TB) int {
	t.Helper()
	var taken *os.File
	var err error
	for range 100 {
		port := 10000 + rand.IntN(20000) //nolint:gosec // no secret
		taken, err = os.OpenFile(filepath.Join(os.TempDir(), fmt.Sprint("stoker-test-port-", port)), os.O_CREATE|os.O_RDWR, 0o600)
		if err != nil {
			continue // another user's
		}
		var l net.Listener
		l, err = net.Listen("tcp", fmt.Sprint("127.0.0.1:", port))
		if err == nil {
			_ = l.Close()
			err = syscall.Flock(int(taken.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
		}
		if err != nil {
			_ = taken.Close()
			continue
		}
		t.Cleanup(func() {
			_ = os.Remove(taken.Name())
			_ = taken.Close()
		})
		return port
	}
	t.Fatalf("no port is free: %v", err)
	return 0
}
