package move

import (
	"context"
	"iter"

	"github.com/stoker-k8s/stoker/services/datastore/driver"
)

// Part is what of data has keys of one kind, as data of its own: what is written to it has only such keys. Records are those of the whole.
func Part(whole driver.Data, has func(key string) bool) driver.Data { return part{whole, has} }

type part struct {
	driver.Data
	has func(key string) bool
}

// Only yields those of some changes whose keys has has, and errors.
func Only(all iter.Seq2[driver.Change, error], has func(key string) bool) iter.Seq2[driver.Change, error] {
	return func(yield func(driver.Change, error) bool) {
		for c, err := range all {
			if (err != nil || has(c.Key)) && !yield(c, err) {
				return
			}
		}
	}
}

func (p part) Export(ctx context.Context, at int64) iter.Seq2[driver.Change, error] {
	return Only(p.Data.Export(ctx, at), p.has)
}

func (p part) Base(ctx context.Context, at int64) iter.Seq2[driver.Change, error] {
	return Only(p.Data.Base(ctx, at), p.has)
}

func (p part) Follow(ctx context.Context, after, to int64) iter.Seq2[driver.Change, error] {
	return Only(p.Data.Follow(ctx, after, to), p.has)
}

func (p part) Watch(ctx context.Context, after int64) driver.Stream {
	return partStream{p.Data.Watch(ctx, after), p}
}

// Clear deletes the keys of the part.
func (p part) Clear(ctx context.Context) error {
	at, err := p.Revision(ctx)
	if err != nil {
		return err
	}
	return p.Import(ctx, func(yield func(driver.Change, error) bool) {
		for c, err := range p.Export(ctx, at) {
			if !yield(driver.Change{Revision: c.Revision, Key: c.Key, Deleted: true}, err) {
				return
			}
		}
	})
}

type partStream struct {
	driver.Stream
	part part
}

func (s partStream) UpTo(ctx context.Context, to int64) iter.Seq2[driver.Change, error] {
	return Only(s.Stream.UpTo(ctx, to), s.part.has)
}
