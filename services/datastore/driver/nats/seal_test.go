package nats_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/stoker-k8s/stoker/services/datastore/driver"
	"github.com/stoker-k8s/stoker/services/datastore/driver/nats/natsserver"
)

// TestNoKineStartsOnABucketThatIsReadOnly shows what keeps a tenant's pods from being replaced meanwhile.
func TestNoKineStartsOnABucketThatIsReadOnly(t *testing.T) {
	t.Parallel()
	d := open(t, world{natsserver.Start(t, natsserver.Options{})}.Config(t))
	a := account("a")
	access := join(t, d, a)
	a.ReadOnly = true
	_, err := d.Provision(t.Context(), a)
	check(t, err)
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	if _, err := d.(driver.DataAccess).Data(ctx, a, access); err == nil || !strings.Contains(err.Error(), "bucket") {
		t.Errorf("a kine starts: %v", err)
	}
	_, err = d.Drop(t.Context(), a)
	check(t, err)
}
