package datastore

// A tenant that is made anew gets the data of a backup before its first pod starts (name.AnnotationRestoreFrom).

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"iter"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/stoker-k8s/stoker/pkg/api/event"
	"github.com/stoker-k8s/stoker/pkg/api/name"
	"github.com/stoker-k8s/stoker/pkg/api/reason"
	"github.com/stoker-k8s/stoker/pkg/api/state"
	"github.com/stoker-k8s/stoker/pkg/events"
	"github.com/stoker-k8s/stoker/pkg/intent"
	"github.com/stoker-k8s/stoker/pkg/kube"
	"github.com/stoker-k8s/stoker/pkg/loop"
	"github.com/stoker-k8s/stoker/services/datastore/backup"
	"github.com/stoker-k8s/stoker/services/datastore/driver"
)

// Keys of the Secret <tenant>-restore.
const (
	keyIdentity = "identity"
	// keySameAuthority, with any value, says that the tenant is who the backup is of: clients know it, so that no object may be older than
	// they have seen it, and what is about its nodes stays.
	keySameAuthority = "same-authority"
)

// restoreSecret is the Secret by which a backup is opened.
func restoreSecret(tenant string) string { return tenant + "-restore" }

// restores reports whether a tenant is to get the data of a backup first. One that works already keeps what it has; one that has some of a
// backup gets all of it, or never begins.
func restores(t *loop.Turn, own state.Datastore) bool {
	last := t.Own()
	fresh := last == nil || last.Step != event.Provisioned
	return own.Restoring != nil || fresh && own.Restored == "" && t.Tenant.Annotations[name.AnnotationRestoreFrom] != ""
}

// restore starts the job that brings the data back, or notes how far it is. It reports whether the tenant has its data.
func (s *datastore) restore(ctx context.Context, t *loop.Turn, h home, p *plan) (done bool, facts []loop.Tell, err error) {
	now := s.now().UTC()
	r := state.Restoring{Since: now.Truncate(time.Second)}
	if p.want.Restoring != nil {
		r = *p.want.Restoring
	}
	p.want.Restoring = &r
	r.From = cmp.Or(t.Tenant.Annotations[name.AnnotationRestoreFrom], r.From) // what was begun is brought to its end
	if parts := strings.Split(r.From, "/"); len(parts) != 4 || slices.Contains(parts, "") {
		return false, nil, &intent.Permanent{Reason: reason.RestoreImpossible, Message: fmt.Sprintf(
			"metadata.annotations[%s]: %q: must be location/namespace/name/ID, as `stoker backups` shows them", name.AnnotationRestoreFrom, r.From)}
	}
	id := restoreID + r.From
	j := s.jobs.get(t.Key, id)
	if j == nil {
		account, from := p.account, r.From
		j = s.jobs.start(ctx, t.Key, &job{id: id}, func(ctx context.Context, j *job) error { return s.bringBack(ctx, t.Key, h.main, account, from, j) })
	}
	r.Keys, r.Bytes, r.Of = j.progress()
	ended, err := j.outcome()
	if !ended {
		t.Alarm(tellEvery, loop.Wake{Kind: wakeJob})
		text := fmt.Sprintf("the data of backup %s: %d of %d keys are written", r.From, r.Keys, r.Of)
		return false, nil, t.Done(ctx, loop.Outcome{
			Inputs: p.inputs, Wait: state.Wait{On: name.ServiceDatastore, Reason: reason.DataRestoring, Text: text}, Data: p.want,
		})
	}
	s.jobs.end(t.Key)
	if err != nil {
		return false, nil, restoreFailure(r.From, err)
	}
	p.want.Restoring, p.want.Restored = nil, r.From
	if j.kept {
		return true, nil, nil
	}
	return true, []loop.Tell{{What: event.Restored, Data: event.DatastoreRestored{
		About: t.About(), From: r.From, Keys: r.Keys, Bytes: r.Bytes, Milliseconds: now.Sub(r.Since).Milliseconds(),
	}}}, nil
}

// restoreFailure says what became of a backup that could not be brought back. What is amiss with the backup itself stays so; a location, its
// credentials or the Secret that opens the backup may be put right, of which nothing else tells.
func restoreFailure(from string, err error) error {
	var behind *driver.BehindError
	var key *driver.KeyError
	if errors.As(err, &behind) || errors.As(err, &key) || errors.Is(err, backup.ErrBroken) || errors.Is(err, backup.ErrIdentity) {
		return &intent.Permanent{Reason: reason.RestoreImpossible, Message: fmt.Sprintf(
			"backup %s: %s; name another one in metadata.annotations[%s], or delete the tenant", from, err, name.AnnotationRestoreFrom)}
	}
	return &intent.Unavailable{Err: fmt.Errorf("backup %s: %w", from, err)}
}

// bringBack writes the data of a backup to an account that holds none. What holds some is left as it is, but for what an earlier try has
// written: whoever lost the note that the data are back, and the backup since, keeps the tenant.
func (s *datastore) bringBack(ctx context.Context, key events.Key, st *store, account driver.Account, from string, j *job) error {
	there, err := s.reached(ctx, key, st, account)
	if err != nil {
		return err
	}
	// What the location says tells nothing of the database, so the store doesn't hear of it: it finds out by itself.
	opened := st.do(ctx, func(d driver.Driver) error {
		accesses, ok := d.(driver.DataAccess)
		if !ok {
			return errNoAccess
		}
		if j.kept, err = hasOwnData(ctx, accesses, there); err != nil || j.kept {
			return nil
		}
		err = s.bringFrom(ctx, key, &bringer{side: there, from: from, job: j}, accesses)
		return nil
	})
	return errors.Join(opened, err)
}

// hasOwnData reports whether an account holds data that aren't what a try to bring a backup back has left.
func hasOwnData(ctx context.Context, accesses driver.DataAccess, there side) (has bool, err error) {
	data, err := accesses.Data(ctx, there.account, there.access)
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

// bringFrom opens the backup, then writes its data.
func (s *datastore) bringFrom(ctx context.Context, key events.Key, b *bringer, accesses driver.DataAccess) error {
	parts := strings.Split(b.from, "/")
	location, _, err := s.location(ctx, parts[0])
	if err != nil {
		return err
	}
	defer func() { _ = location.Close() }()
	if b.manifest, err = backup.Get(ctx, location, parts[1], parts[2], parts[3]); err != nil {
		return err
	}
	secret := &corev1.Secret{}
	err = s.kube.Get(ctx, kube.Secrets, key.Namespace, restoreSecret(key.Name), secret)
	if apierrors.IsNotFound(err) {
		return fmt.Errorf("there is no Secret %s/%s: its key %s opens the backup; `stoker restore` makes it", key.Namespace, restoreSecret(key.Name), keyIdentity)
	}
	if err != nil {
		return err
	}
	_, b.same = secret.Data[keySameAuthority]
	b.above = b.manifest.Revision + restoreMargin(s.now().Sub(b.manifest.Ended))
	b.job.expect(b.manifest.Keys)
	b.data = func() iter.Seq2[driver.Change, error] {
		return backup.Data(ctx, location, b.manifest, string(secret.Data[keyIdentity]))
	}
	return b.into(ctx, accesses)
}

// restoreID begins the ID of a record that says that a backup is being brought back.
const restoreID = "restore "

// bringer writes the data of a backup to an account.
type bringer struct {
	side
	from     string
	manifest backup.Manifest
	same     bool
	// above is where the revisions of what is the same tenant go on.
	above int64
	job   *job
	data  func() iter.Seq2[driver.Change, error]
}

// into does it. A record among the data says that they aren't whole yet.
func (b *bringer) into(ctx context.Context, accesses driver.DataAccess) (err error) {
	data, err := accesses.Data(ctx, b.account, b.access)
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
	if b.same {
		if err := errors.Join(data.DeleteRecord(ctx, driver.MoveKey), data.Close()); err != nil {
			return err
		}
		if err := accesses.Raise(ctx, b.account, b.access, b.above); err != nil {
			return err
		}
		if data, err = accesses.Data(ctx, b.account, b.access); err != nil {
			return err
		}
		if _, revision, err = data.Record(ctx, driver.MoveKey); err != nil {
			return err
		}
	}
	if _, err := data.SetRecord(ctx, driver.MoveKey, driver.Move{ID: restoreID + b.from, Phase: driver.MoveOpen}.Encode(), revision); err != nil {
		return err
	}
	if err := data.Import(ctx, b.changes()); err != nil {
		return err
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

// changes are what is written, counted.
func (b *bringer) changes() iter.Seq2[driver.Change, error] {
	return func(yield func(driver.Change, error) bool) {
		var keys, bytes int64
		for c, err := range b.data() {
			if err == nil {
				keys, bytes = keys+1, bytes+int64(len(c.Key)+len(c.Value))
				b.job.note(keys, bytes)
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
