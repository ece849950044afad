// Package move moves a tenant's data from one store to another while its API server works, between stores of whatever kinds. Gates in the
// tenant's pods (package gate) lead the API servers from the one to the other; docs/design/0014-moving.md says what follows what, and
// why.
//
// The data are in the former store until the other one's record ([driver.MoveKey]) says that they have moved. That record is
// changed on condition only, so that of two processes that work on one move, the last one to take an attempt is the only one that
// ends it. Before it is written, the former store takes no write of the tenant any more.
//
//  1. Take and Begin write the records.
//  2. Copy exports and imports all; Follow what has changed since, as often as wanted.
//  3. GoOver has the gates hold writes, seals the former store, brings the last changes over, writes the record, and has the gates go on.
//     Until the record is written, whatever fails leaves the tenant with the former store, and writes go on there.
package move

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"iter"
	"time"

	"github.com/stoker-k8s/stoker/services/datastore/driver"
)

// How long gates may take to answer, and how often they are looked for.
const (
	soonWithin   = 10 * time.Second
	heldWithin   = 2 * time.Second
	turnedWithin = 3 * time.Second
	lookEvery    = 5 * time.Millisecond
)

// verifyTries is how often all is compared where what it was is gone before it is read, as of a key that is written often in a NATS.
const verifyTries = 3

// slack is by how much To's revisions must be above From's when the data move: an etcd's go on with other tenants' writes, and a gate that
// reads from it a moment longer may tell of them.
const slack = 1000

// Move is a move of a tenant's data. One goroutine uses it at a time.
type Move struct {
	// ID is another one for each move of a tenant; What is the same for moves of the same data.
	ID, What string
	// From are the data as the tenant has them, To where they go.
	From, To driver.Data
	// Seal takes from the tenant the right to write to From, and returns when nothing is being written any more; Unseal gives it back.
	Seal, Unseal func(context.Context) error

	// Copied is called for each key that Copy or Follow brings, one at a time; it may be nil.
	Copied func(driver.Change)

	// stream is what follows From after Copy.
	stream driver.Stream
	// attempt and revision are those of the record in To.
	attempt  int
	revision int64
	// changed are the keys that were brought since verify and aren't compared yet, with a hash of what they hold, zero for deleted ones; nil
	// before verify. It belongs to whoever reads what is imported.
	changed map[string][sha256.Size]byte
}

// Errors of a move.
var (
	// ErrMoved means that the data have moved already.
	ErrMoved = errors.New("the data have moved")
	// ErrSame means that both stores are one.
	ErrSame = errors.New("both DataStores are one database, in which the tenant's data are already")
	// ErrSuperseded means that another process works on the move, or on another one into the same store.
	ErrSuperseded = errors.New("another process has taken the move over")
	// ErrGates means that not as many gates answer as there should be.
	ErrGates = errors.New("not all pods are ready to go over")
	// ErrBehind means that To's revisions are not above From's.
	ErrBehind = errors.New("the store that the data go to is behind in its revisions")
)

// Take takes the move over from whoever worked on it before: nobody else can end it any more. It needs To alone. ErrMoved means that only
// Finish is left to do. After it, From may be unsealed and opened.
func (m *Move) Take(ctx context.Context) error {
	value, revision, err := m.To.Record(ctx, driver.MoveKey)
	if err != nil {
		return err
	}
	have := driver.DecodeMove(value)
	m.revision = revision
	// Also if another ID says so: that they have moved was forgotten then, for who knows it takes the record away.
	same := have.ID == m.ID || have.What == m.What && m.What != ""
	if same && (have.Phase == driver.MoveDone || have.Phase == driver.MoveThawed) {
		return ErrMoved
	}
	if have.ID == m.ID {
		m.attempt = max(m.attempt, have.Attempt)
	}
	return m.take(ctx)
}

// Begin has writes go on in From, which isn't sealed. ErrSame means that From and To are the same data under two names.
func (m *Move) Begin(ctx context.Context) error {
	for {
		value, _, err := m.From.Record(ctx, driver.MoveKey)
		if err != nil {
			return err
		}
		have := driver.DecodeMove(value)
		if have.ID != m.ID || have.Attempt < m.attempt {
			return m.tell(ctx, driver.MoveOpen)
		}
		// Either To has lost its record, as a bucket that is purged does, and with it the count of attempts; or From has To's.
		m.attempt = have.Attempt
		if err := m.take(ctx); err != nil {
			return err
		}
		if value, _, err = m.From.Record(ctx, driver.MoveKey); err != nil {
			return err
		}
		if driver.DecodeMove(value).Attempt == m.attempt {
			m.To.Guard(0)
			return errors.Join(ErrSame, m.To.DeleteRecord(ctx, driver.MoveKey))
		}
	}
}

// take begins another attempt: what an earlier one has still to write to the record comes too late.
func (m *Move) take(ctx context.Context) (err error) {
	m.attempt++
	m.revision, err = m.To.SetRecord(ctx, driver.MoveKey, driver.Move{ID: m.ID, What: m.What, Phase: driver.MoveOpen, Attempt: m.attempt}.Encode(), m.revision)
	if errors.Is(err, driver.ErrRaced) {
		return ErrSuperseded
	}
	if err == nil {
		m.To.Guard(m.revision)
	}
	return err
}

// tell writes the record in From, by which gates act. ErrSuperseded means that another process has taken a later attempt.
func (m *Move) tell(ctx context.Context, phase driver.MovePhase) error {
	value := driver.Move{ID: m.ID, What: m.What, Phase: phase, Attempt: m.attempt}.Encode()
	for {
		have, revision, err := m.From.Record(ctx, driver.MoveKey)
		if is := driver.DecodeMove(have); err == nil && is.ID == m.ID && is.Attempt > m.attempt {
			return ErrSuperseded
		}
		if err == nil {
			_, err = m.From.SetRecord(ctx, driver.MoveKey, value, revision)
		}
		if !errors.Is(err, driver.ErrRaced) {
			return err
		}
	}
}

// Copy brings everything over as it is at some revision of From. To is empty.
func (m *Move) Copy(ctx context.Context) error {
	m.Close()
	at, err := m.From.Revision(ctx)
	if err != nil {
		return err
	}
	m.changed, m.stream = nil, m.From.Watch(ctx, at)
	return m.To.Import(ctx, m.counted(m.From.Base(ctx, at)))
}

// Close ends what follows From.
func (m *Move) Close() {
	if m.stream != nil {
		m.stream.Close()
		m.stream = nil
	}
}

// counted passes changes on and tells of them.
func (m *Move) counted(changes iter.Seq2[driver.Change, error]) iter.Seq2[driver.Change, error] {
	return func(yield func(driver.Change, error) bool) {
		for c, err := range changes {
			if err == nil {
				m.noteChange(c)
				if m.Copied != nil {
					m.Copied(c)
				}
			}
			if !yield(c, err) {
				return
			}
		}
	}
}

// Follow brings over what has changed since Copy or the last Follow.
func (m *Move) Follow(ctx context.Context) error {
	at, err := m.From.Mark(ctx)
	if err != nil {
		return err
	}
	return m.upTo(ctx, at)
}

// upTo brings over what has changed up to a revision.
func (m *Move) upTo(ctx context.Context, at int64) error {
	return m.To.Import(ctx, m.counted(m.stream.UpTo(ctx, at)))
}

// GoOver ends the move of a tenant that has so many gates, after Copy. It returns for how long writes were held. ErrGates means that writes
// go on where they were, and another try may do; after any other error but ErrMoved the next one to Take the move finds out.
func (m *Move) GoOver(ctx context.Context, gates int) (held time.Duration, err error) {
	if err := m.take(ctx); err != nil {
		return 0, err
	}
	if err := m.tell(ctx, driver.MoveSoon); err != nil {
		return 0, err
	}
	if err := m.await(ctx, m.From, gates, driver.MoveSoon, soonWithin); err != nil {
		return 0, m.undo(ctx, false, err)
	}
	if err = m.verified(ctx); err != nil {
		return 0, m.undo(ctx, false, err)
	}
	began := time.Now()
	sealed, err := m.drain(ctx, gates)
	if err != nil {
		return 0, m.undo(ctx, sealed, err)
	}
	if err := m.commit(ctx); err != nil {
		return 0, m.undo(ctx, true, err)
	}
	if err := m.Finish(ctx, gates); err != nil {
		return time.Since(began), errors.Join(ErrMoved, err)
	}
	return time.Since(began), nil
}

// verified brings changes over, compares all there is, and brings over and compares what has changed meanwhile, so that hardly
// anything is left to do while writes are held.
func (m *Move) verified(ctx context.Context) error {
	for try := 1; m.changed == nil || len(m.changed) > maxChanged; try++ {
		at, err := m.From.Revision(ctx)
		if err != nil {
			return err
		}
		if err := m.upTo(ctx, at); err != nil {
			return err
		}
		err = m.verify(ctx, at)
		if err != nil && (!errors.Is(err, driver.ErrCompacted) || try == verifyTries) {
			return err
		}
	}
	if err := m.Follow(ctx); err != nil {
		return err
	}
	return m.checkChanges(ctx)
}

// drain holds writes, seals From and brings over what is left.
func (m *Move) drain(ctx context.Context, gates int) (sealed bool, err error) {
	if err := m.tell(ctx, driver.MoveHeld); err != nil {
		return false, err
	}
	if err := m.await(ctx, m.From, gates, driver.MoveHeld, heldWithin); err != nil {
		return false, err
	}
	if err := m.Follow(ctx); err != nil {
		return false, err
	}
	if err := m.Seal(ctx); err != nil {
		return true, err
	}
	last, err := m.From.Last(ctx)
	if err != nil {
		return true, err
	}
	if err := m.upTo(ctx, last); err != nil {
		return true, err
	}
	if err := m.checkChanges(ctx); err != nil {
		return true, err
	}
	now, err := m.To.Last(ctx)
	if err == nil && now <= last+slack {
		err = fmt.Errorf("%w: %d, and the data's are at %d", ErrBehind, now, last)
	}
	return true, err
}

// commit writes the record that says that the data have moved. Whether it was written is asked until it is known.
func (m *Move) commit(ctx context.Context) error {
	done := driver.Move{ID: m.ID, What: m.What, Phase: driver.MoveDone, Attempt: m.attempt}.Encode()
	revision, err := m.To.SetRecord(ctx, driver.MoveKey, done, m.revision)
	for pause := lookEvery; err != nil; {
		if ctx.Err() != nil {
			return ctx.Err()
		}
		var value []byte
		var asked error
		value, revision, asked = m.To.Record(ctx, driver.MoveKey)
		have := driver.DecodeMove(value)
		switch {
		case asked != nil:
			select {
			case <-ctx.Done():
			case <-time.After(pause):
			}
			pause = min(2*pause, time.Second)
		case have.ID == m.ID && have.Phase == driver.MoveDone && have.Attempt == m.attempt:
			err = nil
		case revision == m.revision:
			revision, err = m.To.SetRecord(ctx, driver.MoveKey, done, m.revision)
		default:
			return ErrSuperseded
		}
	}
	m.revision = revision
	return nil
}

// Finish has writes go on in To once no gate reads from From any more.
func (m *Move) Finish(ctx context.Context, gates int) error {
	if err := m.await(ctx, m.To, gates, driver.MoveDone, turnedWithin); err != nil && !errors.Is(err, ErrGates) {
		return err
	}
	revision, err := m.To.SetRecord(ctx, driver.MoveKey, driver.Move{ID: m.ID, What: m.What, Phase: driver.MoveThawed, Attempt: m.attempt}.Encode(), m.revision)
	if err == nil {
		m.revision = revision
	}
	return err
}

// undo has writes go on in From, and returns why.
func (m *Move) undo(ctx context.Context, sealed bool, why error) error {
	if sealed {
		// Only who has the record may give the right back: another may have gone over.
		if err := m.take(ctx); err != nil {
			return errors.Join(why, err)
		}
		if err := m.Unseal(ctx); err != nil {
			return errors.Join(why, err)
		}
	}
	return errors.Join(why, m.tell(ctx, driver.MoveOpen))
}

// await waits until so many gates have said that they are in a phase of this attempt; they say nothing of it once the data have moved.
func (m *Move) await(ctx context.Context, in driver.Data, gates int, phase driver.MovePhase, within time.Duration) error {
	outer := ctx
	ctx, cancel := context.WithTimeout(ctx, within)
	defer cancel()
	for {
		records, err := in.GateRecords(ctx)
		n := 0
		for _, value := range records {
			have := driver.DecodeMove(value)
			if have.ID == m.ID && have.Phase == phase && (phase == driver.MoveDone || have.Attempt == m.attempt) {
				n++
			}
		}
		if err == nil && n >= gates {
			return nil
		}
		select {
		case <-ctx.Done():
			if outer.Err() != nil {
				return outer.Err()
			}
			return errors.Join(fmt.Errorf("%w: %d of %d within %s", ErrGates, n, gates, within), err)
		case <-time.After(lookEvery):
		}
	}
}
