package nats

import (
	"context"
	"strings"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/stoker-k8s/stoker/services/datastore/driver"
)

// Sizes asks the servers what each account holds. Without an operator it asks for the one bucket there is. Deleted keys
// count until Compact has removed them.
func (s *server) Sizes(ctx context.Context) (map[string]driver.Size, error) {
	sizes := map[string]driver.Size{}
	err := s.do(ctx, func(ctx context.Context, p place) error {
		clear(sizes)
		schemas, err := p.schemas(ctx)
		if err != nil {
			return err
		}
		return s.buckets(ctx, p, schemas, func(schema string, d bucketDetail) {
			sizes[schema] = driver.Size{Bytes: int64(d.State.Bytes), Keys: int64(d.State.NumSubjects)}
		})
	})
	return sizes, err
}

// schemas are those on record.
func (p place) schemas(ctx context.Context) ([]string, error) {
	return p.names(ctx, keySchema(driver.Account{}))
}

// names are those on record of a kind, which begins their keys.
func (p place) names(ctx context.Context, kind string) (names []string, err error) {
	prefix := subjectOf(kind)
	info, err := p.owners.Info(ctx, jetstream.WithSubjectFilter(prefix+">"))
	if codeOf(err) == codeNoSuchStream {
		return nil, errNoRecords
	}
	if err != nil {
		return nil, err
	}
	for subject := range info.State.Subjects {
		names = append(names, strings.TrimPrefix(subject, prefix))
	}
	return names, nil
}
