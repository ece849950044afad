package move

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"iter"

	"golang.org/x/sync/errgroup"

	"github.com/stoker-k8s/stoker/services/datastore/driver"
	"github.com/stoker-k8s/stoker/services/datastore/internal/digest"
)

// ErrDiffers means that the copy isn't what it was made from.
var ErrDiffers = errors.New("the copy differs from the data")

// digestOf reads all that an export yields.
func digestOf(changes iter.Seq2[driver.Change, error]) (d digest.Digest, err error) {
	for c, err := range changes {
		if err != nil {
			return d, err
		}
		d.Add(c.Key, c.Value)
	}
	return d, nil
}

// verify compares count and checksum of all keys of From at a revision with those of To, which has everything up to that one and nothing
// after it. From then on, checkChanges compares what Follow brings.
func (m *Move) verify(ctx context.Context, at int64) error {
	last, err := m.To.Last(ctx)
	if err != nil {
		return err
	}
	var from, to digest.Digest
	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() (err error) { from, err = digestOf(m.From.Export(ctx, at)); return err })
	g.Go(func() (err error) { to, err = digestOf(m.To.Export(ctx, last)); return err })
	if err := g.Wait(); err != nil {
		return err
	}
	if from != to {
		return fmt.Errorf("%w: %d keys of %d bytes, and %d of %d", ErrDiffers, to.Keys, to.Bytes, from.Keys, from.Bytes)
	}
	m.changed = map[string][sha256.Size]byte{}
	return nil
}

// maxChanged is how many changes are remembered to be compared. Where there are more, verify is called once more.
const maxChanged = 50_000

// noteChange remembers a change that To is to have.
func (m *Move) noteChange(c driver.Change) {
	if m.changed == nil {
		return
	}
	m.changed[c.Key] = [sha256.Size]byte{}
	if !c.Deleted {
		m.changed[c.Key] = digest.Of(c.Key, c.Value)
	}
}

// checkers is how many keys are asked for at once.
const checkers = 16

// checkChanges compares what Follow has brought since the last call with what To has.
func (m *Move) checkChanges(ctx context.Context) error {
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(checkers)
	for key, want := range m.changed {
		g.Go(func() error {
			value, err := m.To.Value(ctx, key)
			if err != nil {
				return err
			}
			have := [sha256.Size]byte{}
			if value != nil {
				have = digest.Of(key, value)
			}
			if have != want {
				return fmt.Errorf("%w in key %.200q", ErrDiffers, key)
			}
			return nil
		})
	}
	if err := g.Wait(); err != nil {
		return err
	}
	clear(m.changed)
	return nil
}
