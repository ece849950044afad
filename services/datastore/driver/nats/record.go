package nats

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/nats-io/nats.go/jetstream"
	"github.com/shengdoushi/base58"

	"github.com/stoker-k8s/stoker/services/datastore/driver"
	"github.com/stoker-k8s/stoker/services/datastore/driver/internal/data"
)

// Record reads one message, as the administrator.
func (s *server) Record(ctx context.Context, a driver.Account, _ driver.Access, key string) (value []byte, err error) {
	err = s.inBucket(ctx, a, func(ctx context.Context, js jetstream.JetStream, bucket jetstream.Stream) error {
		have, err := s.administered(a.Schema, js, bucket).last(ctx, kinePrefix+key)
		if have.kv != nil {
			value = have.kv.Value
		}
		return err
	})
	return value, err
}

// administered is a tenant's bucket, by the rights of the administrator.
func (s *server) administered(schema string, js jetstream.JetStream, bucket jetstream.Stream) *tenant {
	return &tenant{s: s, account: driver.Account{Schema: schema}, nc: js.Conn(), js: js, bucket: bucket}
}

// Record reads a record of a move.
func (t *tenant) Record(ctx context.Context, key string) (value []byte, revision int64, err error) {
	have, err := data.Step(ctx, func(ctx context.Context) (last, error) { return t.last(ctx, kinePrefix+key) })
	if err != nil || have.kv == nil {
		return nil, 0, t.failed(ctx, "read the record of a move", err)
	}
	return have.kv.Value, have.kv.ModRevision, nil
}

// Value returns what a key holds.
func (t *tenant) Value(ctx context.Context, key string) ([]byte, error) {
	value, _, err := t.Record(ctx, key)
	return value, err
}

// SetRecord writes a record of a move.
func (t *tenant) SetRecord(ctx context.Context, key string, value []byte, revision int64) (int64, error) {
	key = kinePrefix + key
	done, err := data.Step(ctx, func(ctx context.Context) (uint64, error) {
		have, err := t.last(ctx, key)
		if err != nil {
			return 0, err
		}
		at := int64(0)
		if have.kv != nil {
			at = have.kv.ModRevision
		}
		if at != revision {
			return 0, driver.ErrRaced
		}
		done, err := t.write(ctx, key, driver.Change{Value: value}, have)
		if conflicts(err) {
			err = driver.ErrRaced
		}
		return done, err
	})
	if errors.Is(err, driver.ErrRaced) {
		return 0, err
	}
	return int64(done), t.failed(ctx, "write the record of a move", err)
}

// DeleteRecord deletes a record.
func (t *tenant) DeleteRecord(ctx context.Context, key string) error {
	return t.failed(ctx, "delete the record of a move", t.put(ctx, driver.Change{Key: key, Deleted: true}))
}

// GateRecords are those of gates, by key.
func (t *tenant) GateRecords(ctx context.Context) (map[string][]byte, error) {
	all, err := data.Step(ctx, func(ctx context.Context) (map[string][]byte, error) {
		below := subjects(t.account.Schema) + nameOf(kinePrefix+strings.TrimSuffix(driver.GateKeys, "/"))
		info, err := t.bucket.Info(ctx, jetstream.WithSubjectFilter(below+".*"))
		if err != nil {
			return nil, err
		}
		all := map[string][]byte{}
		for subject := range info.State.Subjects {
			pod, err := base58.Decode(strings.TrimPrefix(subject, below+"."), base58.BitcoinAlphabet)
			if err != nil {
				return nil, fmt.Errorf("subject %q is not kine's: %w", subject, err)
			}
			key := driver.GateKey(string(pod))
			have, err := t.last(ctx, kinePrefix+key)
			if err != nil {
				return nil, err
			}
			if have.kv != nil {
				all[key] = have.kv.Value
			}
		}
		return all, nil
	})
	return all, t.failed(ctx, "read the records of gates", err)
}

// Guard does nothing: only an etcd compares another key with each that is written.
func (t *tenant) Guard(int64) {}
