package nats

import (
	"context"

	"github.com/stoker-k8s/stoker/services/datastore/driver"
)

var (
	_ driver.Revisioner = (*server)(nil)
	_ driver.Single     = (*server)(nil)
	_ driver.Recorder   = (*server)(nil)
)

// Revision is the last sequence of the bucket's stream.
func (s *server) Revision(ctx context.Context, a driver.Account) (revision int64, err error) {
	err = s.do(ctx, func(ctx context.Context, p place) error {
		return s.buckets(ctx, p, []string{a.Schema}, func(_ string, d bucketDetail) { revision = int64(d.State.LastSeq) })
	})
	return revision, err
}

// Single is so without an operator's key: whoever connects is the one user there is.
func (s *server) Single() bool { return s.login.operator == nil }
