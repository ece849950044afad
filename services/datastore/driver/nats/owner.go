package nats

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"strconv"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/nats-io/nuid"
	"golang.org/x/sync/errgroup"

	"github.com/stoker-k8s/stoker/services/datastore/driver"
	"github.com/stoker-k8s/stoker/services/datastore/driver/internal/owner"
	"github.com/stoker-k8s/stoker/services/datastore/driver/internal/step"
)

// ownersBucket is the administrator's own; no tenant has rights on it.
const ownersBucket = "stoker_owners"

// replicasWanted is how many servers keep the records, where there are so many. As many keep the tenants' buckets.
const replicasWanted = 3

// Keys of the records. keyOnly is that of a DataStore with room for one tenant.
func keySchema(a driver.Account) string { return "schema." + a.Schema }
func keyUser(a driver.Account) string   { return "user." + a.User }

const keyOnly = "tenant"

func subjectOf(key string) string { return "$KV." + ownersBucket + "." + key }

// ownersIn returns the bucket of the records, made if it isn't there. It is read from its leader, for what is read
// decides; and records that go leave no trace.
func (s *server) ownersIn(ctx context.Context, js jetstream.JetStream) (jetstream.Stream, error) {
	stream, err := js.Stream(ctx, streamOf(ownersBucket))
	switch {
	case errors.Is(err, nats.ErrNoResponders):
		return nil, fmt.Errorf("%w: JetStream is off there, or has no leader: %w", driver.ErrAway, err)
	case errors.Is(err, jetstream.ErrStreamNotFound):
		stream, err = s.makeOwners(ctx, js)
	}
	if err != nil {
		return nil, err
	}
	have := stream.CachedInfo().Config
	want := have
	want.AllowAtomicPublish = true
	if clustered := js.Conn().ConnectedClusterName() != ""; clustered {
		want.Replicas = max(have.Replicas, replicasWanted)
	}
	if reflect.DeepEqual(have, want) {
		return stream, nil
	}
	if err := s.held(ctx); err != nil {
		return nil, err
	}
	changed, err := js.UpdateStream(ctx, want)
	if fewServers(err) {
		want.Replicas = have.Replicas
		changed, err = js.UpdateStream(ctx, want)
	}
	if err == nil && !changed.CachedInfo().Config.AllowAtomicPublish {
		err = fmt.Errorf("%w: NATS 2.12 or later is needed, for its batches", driver.ErrAway)
	}
	return changed, err
}

func (s *server) makeOwners(ctx context.Context, js jetstream.JetStream) (jetstream.Stream, error) {
	if err := s.held(ctx); err != nil {
		return nil, err
	}
	config := jetstream.StreamConfig{
		Name: streamOf(ownersBucket), Description: "which tenant has which schema and user", Subjects: []string{subjectOf(">")},
		Replicas: replicasWanted, MaxMsgsPerSubject: 1, Discard: jetstream.DiscardNew, AllowRollup: true, AllowAtomicPublish: true,
	}
	stream, err := js.CreateStream(ctx, config)
	if fewServers(err) {
		config.Replicas = 1
		stream, err = js.CreateStream(ctx, config)
	}
	if errors.Is(err, jetstream.ErrStreamNameAlreadyInUse) { // of two who tried
		return js.Stream(ctx, config.Name)
	}
	return stream, err
}

// fewServers reports whether something was refused because there are too few servers for its replicas.
func fewServers(err error) bool {
	code := codeOf(err)
	return code == codeReplicas || code == codeNoPeers
}

// record is one as it was read, with its place.
type record struct {
	owner.Record
	key string
	// sequence of the message that says so; one that says that there is no record has one, too.
	sequence uint64
	// user is the owner's user, if the record of a schema says so.
	user string
}

// userHeader is where the record of a schema names the user.
const userHeader = "Stoker-User"

func (p place) record(ctx context.Context, key string) (record, error) {
	r := record{key: key}
	m, err := p.owners.GetLastMsgForSubject(ctx, subjectOf(key))
	if errors.Is(err, jetstream.ErrMsgNotFound) {
		return r, nil
	}
	if err != nil {
		return r, err
	}
	r.sequence = m.Sequence
	if m.Header.Get("KV-Operation") == "" {
		r.Record, r.user = owner.Record{Value: string(m.Data), Recorded: true}, m.Header.Get(userHeader)
	}
	return r, nil
}

// found is what there is of an account.
type found struct {
	schema, user record
	// only is who has the room of a DataStore for one tenant; recorded for nobody where there is an operator.
	only record
}

func (f found) owners() owner.Records {
	return owner.Records{Schema: f.schema.Record, User: f.user.Record}
}

// all are the records that an account must have.
func (s *server) all(f found) []record {
	if s.login.operator != nil {
		return []record{f.schema, f.user}
	}
	return []record{f.schema, f.user, f.only}
}

func (s *server) read(ctx context.Context, p place, a driver.Account) (have found, err error) {
	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() (err error) { have.schema, err = p.record(ctx, keySchema(a)); return err })
	g.Go(func() (err error) { have.user, err = p.record(ctx, keyUser(a)); return err })
	if s.login.operator == nil {
		g.Go(func() (err error) { have.only, err = p.record(ctx, keyOnly); return err })
	}
	return have, noRecords(g.Wait())
}

// noRecords tells the loss of the records from other errors.
func noRecords(err error) error {
	if codeOf(err) == codeNoSuchStream {
		return errNoRecords
	}
	return err
}

// errNoRecords means that somebody removed the bucket of the records.
var errNoRecords = errors.New("the records are gone")

// errRaced means that a record was made since it was looked for.
var errRaced = errors.New("somebody else was recorded as the owner meanwhile")

// claim records the account's owner for all that an account has, or for nothing. Nothing may be made, and nothing of
// what there is given out, before.
func (s *server) claim(ctx context.Context, p place, a driver.Account) (changed []string, err error) {
	for {
		have, err := s.read(ctx, p, a)
		if err != nil {
			return nil, err
		}
		if err := s.refuse(ctx, p, a, have); err != nil {
			return nil, err
		}
		var free []record
		for _, r := range s.all(have) {
			if !r.Recorded {
				free = append(free, r)
			}
		}
		steps := step.New(ctx, s.held)
		if take(steps, p, a, free); !errors.Is(steps.Err(), errRaced) {
			return steps.Changed(), steps.Err()
		}
	}
}

// claimLeft is claim for an account that is to be dropped: it refuses nothing, and what has no owner it takes only when
// it is sure to be the account's, by the service's memory or by a name nobody else has.
func (s *server) claimLeft(ctx context.Context, p place, a driver.Account) (have found, err error) {
	for {
		if have, err = s.read(ctx, p, a); err != nil {
			return have, err
		}
		ofSchema, ofUser := owner.Certain(a, s.Names)
		var free []record
		if !have.schema.Recorded && ofSchema {
			there, err := s.there(ctx, p, a)
			if err != nil {
				return have, err
			}
			if there {
				free = append(free, have.schema)
				if !have.user.Recorded && ofUser { // it is in the account
					free = append(free, have.user)
				}
			}
		}
		steps := step.New(ctx, s.held)
		if take(steps, p, a, free); steps.Err() != nil && !errors.Is(steps.Err(), errRaced) {
			return have, steps.Err()
		}
		if len(free) == 0 {
			return have, nil
		}
	}
}

// there reports whether there is anything of a schema.
func (s *server) there(ctx context.Context, p place, a driver.Account) (bool, error) {
	if s.login.operator != nil {
		account, err := p.account(ctx, accountOf(a.Schema))
		return account != nil, err
	}
	bucket, err := bucketIn(ctx, p.js, a.Schema)
	return bucket != nil, err
}

// refuse returns a *driver.TakenError for what is another's, and a *driver.ConfigError where there is room for no more.
// What has no owner on record goes to the account that adopts it: an account that lets another owner's tenant in, and a bucket of
// kine's beside the records, which Kamaji has made. Other buckets are of another use and go to nobody.
func (s *server) refuse(ctx context.Context, p place, a driver.Account, have found) error {
	if err := have.owners().Refuse(a); err != nil {
		return err
	}
	ofSchema, _ := owner.Certain(a, s.Names)
	unclear := !have.schema.Recorded && !ofSchema
	if s.login.operator != nil {
		if !unclear || a.Adopts {
			return nil
		}
		account, err := p.account(ctx, accountOf(a.Schema))
		if err == nil && account != nil && letsInAnother(account, a.Owner) {
			err = owner.TakenSchema(a, driver.TakenUnrecorded)
		}
		return err
	}
	if have.only.IsOther(a) {
		return &driver.ConfigError{Part: driver.PartBasicAuth, Field: driver.PartBasicAuth, Err: errors.New(
			"is a user of the NATS, as whom every tenant would connect, so that there is room for one tenant, and another has it; " +
				"an operator's signing seed (SO…) beside the creds of a user of the system account makes room for many")}
	}
	if !unclear {
		return nil
	}
	bucket, err := bucketIn(ctx, p.js, a.Schema)
	switch {
	case err != nil || bucket == nil:
		return err
	case bucket.Description != description:
		return owner.TakenSchema(a, driver.TakenByOthers)
	case !a.Adopts:
		return owner.TakenSchema(a, driver.TakenUnrecorded)
	}
	return nil
}

// take records the account's owner in place of records as they were read, all or, with errRaced, nothing.
func take(s *step.Steps, p place, a driver.Account, records []record) {
	if len(records) == 0 {
		return
	}
	s.Do("owner recorded", func(ctx context.Context) error {
		batch := nuid.Next()
		for i, r := range records {
			m := nats.NewMsg(subjectOf(r.key))
			m.Data = []byte(a.Owner)
			if r.key == keySchema(a) {
				m.Header.Set(userHeader, a.User)
			}
			m.Header.Set("Nats-Batch-Id", batch)
			m.Header.Set("Nats-Batch-Sequence", strconv.Itoa(i+1))
			m.Header.Set(jetstream.ExpectedLastSubjSeqHeader, strconv.FormatUint(r.sequence, 10))
			if i < len(records)-1 {
				if err := p.nc.PublishMsg(m); err != nil {
					return err
				}
				continue
			}
			m.Header.Set("Nats-Batch-Commit", "1")
			answer, err := p.nc.RequestMsgWithContext(ctx, m)
			if err != nil {
				return err
			}
			var ack struct {
				Error *jetstream.APIError `json:"error"`
			}
			if err := json.Unmarshal(answer.Data, &ack); err != nil {
				return fmt.Errorf("the server's answer to records: %w", err)
			}
			switch {
			case ack.Error == nil:
			case ack.Error.ErrorCode == codeWrongSequence, ack.Error.ErrorCode == codeWrongInBatch:
				return errRaced
			default:
				return ack.Error
			}
		}
		return nil
	})
}

// release deletes the records that name the account's owner, as they were read.
func (s *server) release(ctx context.Context, p place, a driver.Account, have found, removed driver.Removed) error {
	for _, r := range s.all(have) {
		if !r.Is(a) {
			continue
		}
		switch err := p.owners.DeleteMsg(ctx, r.sequence); {
		case err == nil && r.key == keyOnly, codeOf(err) == codeNoSuchMessage:
		case err != nil:
			return err
		default:
			removed[driver.RemovedOwner]++
		}
	}
	return nil
}

// Describe says what an account is in NATS, for whoever has to remove it by hand.
func Describe(a driver.Account) string {
	return fmt.Sprintf("account %s with bucket %s, or without an operator that bucket alone, if key %s of bucket %s is %s; that key, and %s, if it is so, too",
		accountOf(a.Schema), a.Schema, keySchema(a), ownersBucket, a.Owner, keyUser(a))
}

// validate is Validate and looks that there is an owner.
func (s *server) validate(a driver.Account) error {
	if err := owner.Without(a); err != nil {
		return err
	}
	return s.Validate(a)
}
