package nats_test

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/k3s-io/kine/pkg/drivers"
	kinenats "github.com/k3s-io/kine/pkg/drivers/nats"

	"github.com/stoker-k8s/stoker/internal/testing/natsserver"
)

// TestNoKineStartsOnABucketThatIsReadOnly shows what keeps a tenant's pods from being replaced meanwhile.
func TestNoKineStartsOnABucketThatIsReadOnly(t *testing.T) {
	t.Parallel()
	d := open(t, world{natsserver.Start(t, natsserver.Options{})}.Config(t))
	a := account("a")
	access := join(t, d, a)
	credentials := filepath.Join(t.TempDir(), "credentials")
	check(t, os.WriteFile(credentials, access.Credentials, 0o600))
	start := func() error {
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		_, _, err := kinenats.New(ctx, &sync.WaitGroup{}, &drivers.Config{Endpoint: endpoint(d, a, credentials)})
		return err
	}
	check(t, start())
	a.ReadOnly = true
	_, err := d.Provision(t.Context(), a)
	check(t, err)
	if err := start(); err == nil || !strings.Contains(err.Error(), "bucket") {
		t.Errorf("a kine starts: %v", err)
	}
	_, err = d.Drop(t.Context(), a)
	check(t, err)
}
