package data

// A tenant that is made anew gets its data before its first pod starts: those of a backup (name.AnnotationRestoreFrom), or of another tenant
// that works on meanwhile (name.AnnotationCloneOf). One that works gets those of a backup while it has no pods (inplace.go).

import (
	"cmp"
	"context"
	"crypto/subtle"
	"errors"
	"fmt"
	"iter"
	"maps"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/stoker-k8s/stoker/pkg/api/event"
	"github.com/stoker-k8s/stoker/pkg/api/name"
	"github.com/stoker-k8s/stoker/pkg/api/reason"
	"github.com/stoker-k8s/stoker/pkg/api/state"
	"github.com/stoker-k8s/stoker/pkg/events"
	"github.com/stoker-k8s/stoker/pkg/intent"
	"github.com/stoker-k8s/stoker/pkg/kube"
	"github.com/stoker-k8s/stoker/pkg/loop"
	"github.com/stoker-k8s/stoker/services/datastore/account"
	"github.com/stoker-k8s/stoker/services/datastore/backup"
	"github.com/stoker-k8s/stoker/services/datastore/driver"
)

// sourceOf is what a tenant that is made anew is to get its data from: a backup, location/namespace/name/ID, or the name of a tenant in its
// namespace; empty for nothing.
func sourceOf(t *state.Tenant) (from string, err error) {
	annotation, must := name.AnnotationRestoreFrom, ""
	if from = t.Annotations[annotation]; from != "" {
		if parts := strings.Split(from, "/"); len(parts) != 4 || slices.Contains(parts, "") {
			must = "must be location/namespace/name/ID, as `stoker backups` shows them"
		}
	} else {
		annotation = name.AnnotationCloneOf
		if from = t.Annotations[annotation]; from != "" && len(validation.IsDNS1123Label(from)) > 0 {
			must = "must be the name of a tenant in the same namespace"
		}
	}
	if must != "" {
		err = &intent.Permanent{Reason: reason.RestoreImpossible, Message: fmt.Sprintf("metadata.annotations[%s]: %q: %s", annotation, from, must)}
	}
	return from, err
}

// isClone reports whether a source is a tenant, and not a backup.
func isClone(from string) bool { return !strings.Contains(from, "/") }

// sourceText is a source for people.
func sourceText(from string) string {
	if isClone(from) {
		return "tenant " + from
	}
	return "backup " + from
}

// Restores reports whether a tenant is to get data first. One that works already keeps what it has; one that has some of them gets all, or
// never begins.
func Restores(t *loop.Turn, own state.Datastore) bool {
	last := t.Own()
	fresh := last == nil || last.Step != event.Provisioned
	from, _ := sourceOf(t.Tenant) // Restore reports one that can't be read
	return own.Restoring != nil || fresh && own.Restored == "" && from != ""
}

// Restore starts the job that brings the data, or notes how far it is. It reports whether the tenant has its data.
func (k *Keeper) Restore(ctx context.Context, t *loop.Turn, h account.Home, p *account.Plan) (done bool, facts []loop.Tell, err error) {
	now := k.now().UTC()
	r := state.Restoring{}
	if p.Want.Restoring != nil {
		r = *p.Want.Restoring
	}
	if r.InPlace != "" {
		if goesOn, err := k.restoreInPlace(ctx, t, p, &r); err != nil || !goesOn {
			return err == nil, nil, err
		}
	} else {
		from, err := sourceOf(t.Tenant)
		if err != nil {
			return false, nil, err
		}
		if from = cmp.Or(from, r.From); from != r.From { // what was begun is brought to its end
			r = state.Restoring{From: from, Since: now.Truncate(time.Second)}
		}
	}
	from, id := r.From, restoreID+cmp.Or(r.InPlace, r.From)
	p.Want.Restoring = &r
	j := k.jobs.get(t.Key, id)
	if j == nil && now.Before(r.Next) {
		return false, nil, k.restoreLater(ctx, t, p, r.Next.Sub(now))
	}
	if j == nil {
		b := &bringer{from: from, inPlace: r.InPlace, same: r.InPlace != ""}
		main, account, overrides := h.Main, p.Account, slices.Clone(p.Want.Overrides)
		j = k.jobs.start(ctx, t.Key, &job{id: id}, func(ctx context.Context, j *job) (err error) {
			if b.parts, err = k.partsOf(ctx, t.Key, main, account, overrides); err != nil {
				return err
			}
			return k.bring(ctx, t.Key, b, j)
		})
	}
	r.Keys, r.Bytes, r.Of = j.progress()
	ended, err := j.outcome()
	if !ended {
		return false, nil, k.restoreLater(ctx, t, p, tellEvery)
	}
	k.jobs.end(t.Key)
	switch {
	case err != nil && isForGood(err):
		return false, nil, &intent.Permanent{Reason: reason.RestoreImpossible, Message: sourceText(from) + ": " + err.Error()}
	case err != nil:
		r.Tries++
		r.Failure = state.ClipMessage(err.Error())
		pause := min(firstRestoreRetry<<min(r.Tries-1, 10), longestRestoreRetry)
		r.Next = now.Add(pause).Truncate(time.Second)
		k.log.Warn("data not brought", "tenant", t.Key.String(), "from", sourceText(from), "tries", r.Tries, "next", r.Next, "error", err)
		return false, nil, k.restoreLater(ctx, t, p, pause)
	}
	p.Want.Restoring, p.Want.Restored = nil, from
	if j.kept {
		return true, nil, nil
	}
	if r.InPlace != "" {
		p.Want.InPlace = &state.Replacing{Request: r.InPlace, Since: r.Since, Whole: true, Over: true}
		return true, []loop.Tell{over(t, p.Want.InPlace, r.Keys, r.Bytes, now.Sub(r.Since))}, nil
	}
	return true, []loop.Tell{{What: event.Restored, Data: event.DatastoreRestored{
		About: t.About(), From: from, Keys: r.Keys, Bytes: r.Bytes, Milliseconds: now.Sub(r.Since).Milliseconds(),
	}}}, nil
}

// restoreInPlace notes that the data of a tenant that worked are being replaced, before they are; goesOn is false if they aren't to be any
// more. What was begun is brought to its end, but for another request, which takes its place.
func (k *Keeper) restoreInPlace(ctx context.Context, t *loop.Turn, p *account.Plan, r *state.Restoring) (goesOn bool, err error) {
	if !r.Begun {
		may, err := mayReplace(ctx, t, *r)
		if err != nil {
			return false, err
		}
		if !may {
			p.Want.Restoring = nil
			t.Alarm(0, loop.Wake{Kind: WakeJob}) // what is asked for now
			return false, nil
		}
	}
	if asked, ok := name.ParseInPlace(t.Tenant.InPlace.Request); ok && t.Tenant.InPlace.Request != r.InPlace {
		*r = state.Restoring{From: asked.Backup, InPlace: t.Tenant.InPlace.Request, Since: k.now().UTC().Truncate(time.Second), Begun: true}
	} else if r.Begun {
		return true, nil
	}
	r.Begun = true
	p.Want.Restoring = r
	return true, k.restoreLater(ctx, t, p, tellEvery)
}

// restoreLater ends a turn of a tenant that hasn't its data yet. Another one looks again.
func (k *Keeper) restoreLater(ctx context.Context, t *loop.Turn, p *account.Plan, after time.Duration) error {
	t.Alarm(after, loop.Wake{Kind: WakeJob})
	r := p.Want.Restoring
	text := fmt.Sprintf("the data of %s: %d of %d keys are written", sourceText(r.From), r.Keys, r.Of)
	if r.Failure != "" {
		text = fmt.Sprintf("the data of %s: %s; tried again at %s", sourceText(r.From), r.Failure, r.Next.Format(time.TimeOnly))
	}
	return t.Done(ctx, loop.Outcome{
		Inputs: p.Inputs, Wait: state.Wait{On: name.ServiceDatastore, Reason: reason.DataRestoring, Text: text}, Data: p.Want,
	})
}

// isForGood reports whether what is amiss stays so. A location, its credentials or the Secret that opens a backup may be put right, of which
// nothing else tells.
func isForGood(err error) bool {
	var behind *driver.BehindError
	var key *driver.KeyError
	var unfit *unfitError
	return errors.As(err, &behind) || errors.As(err, &key) || errors.As(err, &unfit) || errors.Is(err, backup.ErrBroken) || errors.Is(err, backup.ErrIdentity)
}

// unfitError says why a tenant can't be the source of another one's data.
type unfitError struct{ message string }

func (e *unfitError) Error() string { return e.message }

// bring writes data to an account that holds none. What holds some is left as it is, but for what an earlier try has written: whoever lost
// the note that the data are there, and the source since, keeps the tenant.
func (k *Keeper) bring(ctx context.Context, key events.Key, b *bringer, j *job) error {
	b.job = j
	return inParts(ctx, b.parts, func(accesses []driver.DataAccess) (err error) {
		b.accesses = accesses
		if b.inPlace == "" {
			if j.kept, err = hasOwnData(ctx, accesses[0], b.parts[0].Side); err != nil || j.kept {
				return err
			}
		}
		if isClone(b.from) {
			return k.bringClone(ctx, key, b)
		}
		return k.bringBackup(ctx, key, b)
	})
}

// hasOwnData reports whether an account holds data that aren't what an earlier try has left.
func hasOwnData(ctx context.Context, accesses driver.DataAccess, there account.Side) (has bool, err error) {
	data, err := accesses.Data(ctx, there.Account, there.Access)
	if err != nil {
		return false, err
	}
	defer func() { err = errors.Join(err, data.Close()) }()
	record, _, err := data.Record(ctx, driver.MoveKey)
	if err != nil || strings.HasPrefix(driver.DecodeMove(record).ID, restoreID) {
		return false, err
	}
	empty, err := isEmpty(ctx, data)
	return !empty, err
}

// opened is a backup with what opens it.
type opened struct {
	location backup.Location
	manifest backup.Manifest
	identity string
	// same says that the tenant is who the backup is of.
	same bool
}

// openBackup opens the backup that a tenant is to have. The caller closes its location.
func (k *Keeper) openBackup(ctx context.Context, key events.Key, from string) (b opened, err error) {
	parts := strings.Split(from, "/")
	location, _, err := k.location(ctx, parts[0])
	if err != nil {
		return b, err
	}
	defer func() {
		if err != nil {
			_ = location.Close()
		}
	}()
	m, err := backup.Get(ctx, location, parts[1], parts[2], parts[3])
	if err != nil {
		return b, err
	}
	secret := &corev1.Secret{}
	err = k.kube.Get(ctx, kube.Secrets, key.Namespace, name.Restore(key.Name), secret)
	if apierrors.IsNotFound(err) {
		return b, fmt.Errorf("there is no Secret %s/%s: its key %s opens the backup; `stoker restore` makes it", key.Namespace, name.Restore(key.Name), name.KeyRestoreIdentity)
	}
	if err != nil {
		return b, err
	}
	_, same := secret.Data[name.KeyRestoreSameAuthority]
	return opened{location: location, manifest: m, identity: string(secret.Data[name.KeyRestoreIdentity]), same: same}, nil
}

// bringBackup opens the backup, then writes its data.
func (k *Keeper) bringBackup(ctx context.Context, key events.Key, b *bringer) error {
	from, err := k.openBackup(ctx, key, b.from)
	if err != nil {
		return err
	}
	defer func() { _ = from.location.Close() }()
	if from.same && b.inPlace == "" {
		b.same, b.above = true, from.manifest.Revision+restoreMargin(k.now().Sub(from.manifest.Ended))
	}
	b.job.expect(from.manifest.Keys)
	return b.all(ctx, backup.Data(ctx, from.location, from.manifest, from.identity))
}

// bringClone writes what another tenant keeps, as it is at one revision.
func (k *Keeper) bringClone(ctx context.Context, key events.Key, b *bringer) error {
	original := events.Tenant(key.Namespace, b.from)
	p, err := k.stands(ctx, original)
	switch {
	case err != nil:
		return err
	case original == key:
		return &unfitError{"a tenant can't be its own clone"}
	case p.own.Schema == "" || p.own.Move != nil:
		return errors.New("its data are on their way")
	}
	if err := k.sameEncryption(ctx, original, key); err != nil {
		return err
	}
	st := k.stores.Get(p.own.DataStore)
	if _, opened, err := st.Load(ctx); err != nil || opened != nil {
		return errors.Join(opened, err)
	}
	parts, err := k.partsOf(ctx, original, st, account.Of(original, p.uid, p.tenant, p.own), p.own.Overrides)
	if err != nil {
		return err
	}
	b.job.expect(p.own.Keys)
	return inParts(ctx, parts, func(reads []driver.DataAccess) error {
		return exportOf(ctx, parts, reads, func(_ int64, all iter.Seq2[driver.Change, error]) error { return b.all(ctx, all) })
	})
}

// sameEncryption refuses a clone that couldn't read what its original has encrypted.
func (k *Keeper) sameEncryption(ctx context.Context, original, clone events.Key) error {
	var secrets [2]corev1.Secret
	for i, key := range []events.Key{original, clone} {
		err := k.kube.Get(ctx, kube.Secrets, key.Namespace, name.Encryption(key.Name), &secrets[i])
		if apierrors.IsNotFound(err) && i == 0 {
			return nil // nothing is encrypted
		}
		if err != nil && !apierrors.IsNotFound(err) {
			return err
		}
	}
	same := func(a, b []byte) bool { return subtle.ConstantTimeCompare(a, b) == 1 }
	if !maps.EqualFunc(secrets[0].Data, secrets[1].Data, same) {
		return fmt.Errorf("its objects are encrypted: Secret %s/%s has to hold what %s holds; `stoker clone` sees to it",
			clone.Namespace, name.Encryption(clone.Name), name.Encryption(original.Name))
	}
	return nil
}

// restoreID begins the ID of a record that says that data are being brought.
const restoreID = "restore "

// bringer writes data to an account that has none, or in place of those that it has.
type bringer struct {
	parts    []part
	accesses []driver.DataAccess // to the databases of parts
	from     string
	// inPlace is the request by which they take the place of others, empty where there are none.
	inPlace string
	// same says that the tenant is the one that its data are of; above is where revisions go on that its clients know, 0 where they go on anyway.
	same  bool
	above int64
	job   *job
	// keys and bytes are what was read.
	keys, bytes int64
}

// all does it. The tenant's own DataStore comes last, for its records say whether the data are whole.
func (b *bringer) all(ctx context.Context, from iter.Seq2[driver.Change, error]) error {
	for i, p := range slices.Backward(b.parts) {
		if err := b.into(ctx, b.accesses[i], p, i == 0, p.of(from)); err != nil {
			return err
		}
	}
	return nil
}

// into writes one part, the last or not. A record among the data says that they aren't whole yet.
func (b *bringer) into(ctx context.Context, accesses driver.DataAccess, p part, last bool, from iter.Seq2[driver.Change, error]) (err error) {
	data, err := accesses.Data(ctx, p.Account, p.Access)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, data.Close()) }()
	_, revision, err := data.Record(ctx, driver.MoveKey)
	if err != nil {
		return err
	}
	if err := data.Clear(ctx); err != nil { // of an earlier try
		return err
	}
	if b.above > 0 {
		if err := errors.Join(data.DeleteRecord(ctx, driver.MoveKey), data.Close()); err != nil {
			return err
		}
		if err := accesses.Raise(ctx, p.Account, p.Access, b.above); err != nil {
			return err
		}
		if data, err = accesses.Data(ctx, p.Account, p.Access); err != nil {
			return err
		}
		if _, revision, err = data.Record(ctx, driver.MoveKey); err != nil {
			return err
		}
	}
	if _, err := data.SetRecord(ctx, driver.MoveKey, driver.Move{ID: restoreID + b.from, Phase: driver.MoveOpen}.Encode(), revision); err != nil {
		return err
	}
	if err := data.Import(ctx, b.counted(from)); err != nil {
		return err
	}
	if b.inPlace != "" && last {
		_, before, err := data.Record(ctx, driver.RestoredKey)
		if err != nil {
			return err
		}
		if _, err := data.SetRecord(ctx, driver.RestoredKey, []byte(b.inPlace), before); err != nil {
			return err
		}
	}
	return data.DeleteRecord(ctx, driver.MoveKey)
}

// restoreMargin is by how much revisions begin above a backup's that was made so long ago: what clients have seen since was written at
// some ten revisions a second at most, and an etcd can make up for about as many as this (driver.ByWrites).
func restoreMargin(since time.Duration) int64 {
	return margin + min(10*int64(max(since, 0).Seconds()), 1_000_000)
}

// isEmpty reports whether a tenant has written nothing yet.
func isEmpty(ctx context.Context, data driver.Data) (bool, error) {
	at, err := data.Revision(ctx)
	if err != nil {
		return false, err
	}
	for _, err := range data.Export(ctx, at) {
		return false, err
	}
	return true, nil
}

// counted are the changes that are written.
func (b *bringer) counted(from iter.Seq2[driver.Change, error]) iter.Seq2[driver.Change, error] {
	return func(yield func(driver.Change, error) bool) {
		for c, err := range from {
			if err == nil {
				b.keys, b.bytes = b.keys+1, b.bytes+int64(len(c.Key)+len(c.Value))
				b.job.note(b.keys, b.bytes)
				if !b.same && isOfBefore(c.Key) {
					continue
				}
			}
			if !yield(c, err) {
				return
			}
		}
	}
}

// ofBefore are the keys of what a tenant that is another one than its data are of doesn't get, for it is about machines, addresses and
// keys that it doesn't have: who leads, the API servers' addresses, nodes, what they say and what is attached to them, tokens by which
// machines join, requests for certificates. One that ends with a slash or a hyphen stands for all that begin so.
var ofBefore = []string{
	"leases/", "masterleases/", "services/endpoints/default/kubernetes", "endpointslices/default/kubernetes", "minions/", "csinodes/", "volumeattachments/",
	"certificatesigningrequests/", "secrets/kube-system/bootstrap-token-", "peerserverleases/",
}

func isOfBefore(key string) bool {
	return slices.ContainsFunc(ofBefore, func(of string) bool {
		return key == of || strings.HasPrefix(key, of) && (strings.HasSuffix(of, "/") || strings.HasSuffix(of, "-"))
	})
}
