package drivertest

import (
	"testing"

	"github.com/stoker-k8s/stoker/internal/testing/testserver"
)

// TempDir is a directory for servers' data, in memory where there is enough of it, removed at the end of the test.
func TempDir(t testing.TB) string {
	t.Helper()
	return testserver.OwnDir(t, "data").Path
}
