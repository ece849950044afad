package data

// Backups of a tenant: the turn that finds one due starts a job, and writes down how far it is. What a backup is made of is package backup's.

import (
	"context"
	"encoding/json"
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
	"github.com/stoker-k8s/stoker/pkg/api/state"
	"github.com/stoker-k8s/stoker/pkg/api/v1alpha1"
	"github.com/stoker-k8s/stoker/pkg/events"
	"github.com/stoker-k8s/stoker/pkg/kube"
	"github.com/stoker-k8s/stoker/pkg/loop"
	"github.com/stoker-k8s/stoker/pkg/version"
	"github.com/stoker-k8s/stoker/services/datastore/account"
	"github.com/stoker-k8s/stoker/services/datastore/backup"
	"github.com/stoker-k8s/stoker/services/datastore/driver"
)

// backingUp is what one turn does for the tenant's backups.
type backingUp struct {
	keeper *Keeper
	t      *loop.Turn
	home   account.Home
	own    *state.Datastore
	// changed says that own is another now; facts are to be told of it.
	changed bool
	facts   []loop.Tell
}

// BackUp sees to it that the backup that is due is made. It changes own, and returns what is to be told.
func (k *Keeper) BackUp(ctx context.Context, t *loop.Turn, h account.Home, own *state.Datastore) (changed bool, facts []loop.Tell) {
	due := t.Tenant.Backups.Due
	if due.IsZero() || own.Backup != nil && !due.After(own.Backup.Done) {
		if k.jobs.get(t.Key, "") != nil || // none is wanted: one that is being made is ended
			own.Backup == nil || own.Backup.Making == nil && own.Backup.Failure == nil {
			return false, nil
		}
		is := *own.Backup // the annotations ask for none any more
		is.Making, is.Failure = nil, nil
		own.Backup = &is
		k.failing.Forget(t.Key)
		return true, nil
	}
	if own.Move != nil {
		return false, nil // at its end there is another turn
	}
	b := &backingUp{keeper: k, t: t, home: h, own: own}
	is := state.Backup{}
	if own.Backup != nil {
		is = *own.Backup
	}
	own.Backup = &is
	b.goOn(ctx)
	return b.changed, b.facts
}

// goOn starts the job of the backup that is due, or notes how far it is. One that is being made while another one falls due is made to its end.
func (b *backingUp) goOn(ctx context.Context) {
	is, due, now := b.own.Backup, b.t.Tenant.Backups.Due, b.keeper.now().UTC()
	j := b.keeper.jobs.get(b.t.Key, backupID)
	if j == nil {
		if f := is.Failure; f != nil && f.Due.Equal(due) && now.Before(f.Next) {
			b.keeper.failing.add(b.t.Key) // it may have failed elsewhere
			b.t.Alarm(f.Next.Sub(now), loop.Wake{Kind: WakeJob})
			return
		}
		j = b.keeper.startBackup(ctx, b.t, b.home, *b.own)
	}
	keys, bytes, of := j.progress()
	ended, err := j.outcome()
	if !ended {
		m := state.Making{Due: j.backup.Due, Since: j.backup.since, Keys: keys, Bytes: bytes, Of: of}
		if is.Making == nil || *is.Making != m {
			is.Making, b.changed = &m, true
		}
		b.t.Alarm(tellEvery, loop.Wake{Kind: WakeJob})
		return
	}
	b.keeper.jobs.end(b.t.Key)
	b.changed = true
	is.Making = nil
	if err != nil {
		b.failed(j, err, now)
		b.t.Alarm(is.Failure.Next.Sub(now), loop.Wake{Kind: WakeJob})
		return
	}
	b.made(j)
	if due.After(is.Done) {
		b.goOn(ctx) // the one that fell due meanwhile
	}
}

// made notes a backup that was made.
func (b *backingUp) made(j *job) {
	is, done := b.own.Backup, j.backup
	m := done.manifest
	is.Done, is.Failure = done.Due, nil
	is.Last = &state.Made{ID: m.ID, Location: done.Location, At: m.Ended.UTC(), Revision: m.Revision, Keys: m.Keys, Bytes: m.Bytes, Size: m.Size}
	b.facts = append(b.facts, loop.Tell{What: event.BackedUp, Data: event.DatastoreBackedUp{
		About: b.t.About(), Location: done.Location, ID: m.ID, Scheduled: m.Scheduled, Revision: m.Revision, Keys: m.Keys, Bytes: m.Bytes, Size: m.Size,
		Milliseconds: m.Ended.Sub(m.Began).Milliseconds(), Expired: done.expired,
	}})
	b.keeper.failing.made(b.t.Key)
}

// failed notes that a backup could not be made, and when it is tried again.
func (b *backingUp) failed(j *job, err error, now time.Time) {
	is, made := b.own.Backup, j.backup
	f := state.BackupFailure{Due: made.Due, Message: state.ClipMessage(err.Error()), Since: now.Truncate(time.Second), Tries: 1}
	if was := is.Failure; was != nil {
		f.Since = was.Since
		if was.Due.Equal(made.Due) {
			f.Tries = was.Tries + 1
		}
	}
	f.Next = now.Add(min(firstRetry<<min(f.Tries-1, 10), longestRetry)).Truncate(time.Second)
	is.Failure = &f
	b.facts = append(b.facts, loop.Tell{What: event.NotBackedUp, Data: event.DatastoreNotBackedUp{
		About: b.t.About(), Location: made.Location, Due: made.Due, Scheduled: made.Scheduled, Next: f.Next, Message: f.Message,
	}})
	b.keeper.log.Warn("backup not made", "tenant", b.t.Key.String(), "location", made.Location, "tries", f.Tries, "next", f.Next, "error", err)
	b.keeper.failing.failed(b.t.Key)
}

// backupID is the ID of jobs that make backups.
const backupID = "backup"

// backupJob is what a job that makes a backup was told, and what it has made once it has ended.
type backupJob struct {
	state.Backups
	since    time.Time
	manifest backup.Manifest
	expired  int
}

// startBackup starts the job that makes a backup.
func (k *Keeper) startBackup(ctx context.Context, t *loop.Turn, h account.Home, own state.Datastore) *job {
	key, uid, tenant := t.Key, t.UID, *t.Tenant
	account := account.Of(key, uid, t.Tenant, own)
	overrides := slices.Clone(own.Overrides) // this turn may still write to own's
	j := &job{id: backupID, backup: backupJob{Backups: tenant.Backups, since: k.now().UTC().Truncate(time.Second)}}
	return k.jobs.start(ctx, key, j, func(ctx context.Context, j *job) error {
		location, recipients, err := k.location(ctx, tenant.Backups.Location)
		if err != nil {
			return err
		}
		defer func() { _ = location.Close() }()
		source := backup.Source{Recipients: recipients, Manifest: backup.Manifest{
			Tenant: backup.Tenant{Namespace: key.Namespace, Name: key.Name, UID: uid}, Stoker: version.Get().Version,
			Kubernetes: tenant.Spec.Kubernetes.Version, DataStore: own.DataStore, Driver: own.Driver, Scheduled: tenant.Backups.Scheduled,
		}}
		if source.Manifest.Object, err = k.objectOf(ctx, key, uid); err != nil {
			return err
		}
		if source.Secrets, err = k.keysOf(ctx, key); err != nil {
			return err
		}
		parts, err := k.partsOf(ctx, key, h.Main, account, overrides)
		if err != nil {
			return err
		}
		j.expect(own.Keys)
		source.Progress = j.note
		if j.backup.manifest, err = makeBackup(ctx, location, parts, source); err != nil {
			return err
		}
		j.backup.expired, err = k.expire(ctx, location, key, tenant.Backups)
		if err != nil { // the backup is made all the same
			k.log.Warn("backups whose time is up are not removed", "tenant", key.String(), "location", tenant.Backups.Location, "error", err)
		}
		return nil
	})
}

// makeBackup reads what a tenant keeps, as it is at one revision of each DataStore, and writes it to a location.
func makeBackup(ctx context.Context, location backup.Location, parts []part, source backup.Source) (m backup.Manifest, err error) {
	err = inParts(ctx, parts, func(accesses []driver.DataAccess) (err error) {
		for range fromAnew {
			err = exportOf(ctx, parts, accesses, func(revision int64, all iter.Seq2[driver.Change, error]) error {
				source.Manifest.Revision, source.Export = revision, all
				m, err = backup.Make(ctx, location, source)
				return err
			})
			if !errors.Is(err, driver.ErrCompacted) {
				return err
			}
		}
		return err
	})
	return m, err
}

// expire removes backups that the tenant's annotations have no longer, and what others have begun and not finished.
func (k *Keeper) expire(ctx context.Context, location backup.Location, key events.Key, b state.Backups) (n int, err error) {
	now := k.now()
	made, _, err := backup.List(ctx, location, key.Namespace, key.Name)
	if err != nil {
		return 0, err
	}
	for _, m := range backup.Surplus(made, b.Keep, time.Duration(b.KeepSeconds)*time.Second, now) {
		if err := backup.Remove(ctx, location, m); err != nil {
			return n, err
		}
		n++
	}
	unfinished, err := backup.Unfinished(ctx, location, key.Namespace, key.Name, now.Add(-forgetUnfinished))
	for _, object := range unfinished {
		err = errors.Join(err, location.Delete(ctx, object))
	}
	return n, err
}

// errNoLocation means that there is no such location.
var errNoLocation = errors.New("there is no Secret")

// location opens a location of backups, and says to whom they are encrypted.
func (k *Keeper) location(ctx context.Context, n string) (backup.Location, []string, error) {
	secret := &corev1.Secret{}
	err := k.kube.Get(ctx, kube.Secrets, name.SystemNamespace, n, secret)
	if apierrors.IsNotFound(err) {
		return nil, nil, fmt.Errorf("%w %s/%s: a location of backups is a Secret of that name", errNoLocation, name.SystemNamespace, n)
	}
	if err != nil {
		return nil, nil, err
	}
	if secret.Type != name.BackupLocation {
		return nil, nil, fmt.Errorf("secret %s/%s is of type %q: one that says where backups go is of type %s", name.SystemNamespace, n, secret.Type, name.BackupLocation)
	}
	text := func(key string) string { return string(secret.Data[key]) }
	recipients := linesOf(text(name.KeyLocationRecipients))
	if len(recipients) == 0 {
		return nil, nil, fmt.Errorf("secret %s/%s has no key recipients: the age recipients (age1…), one a line, who can open backups", name.SystemNamespace, n)
	}
	location, err := backup.OpenLocation(ctx, backup.Access{
		URL: text(name.KeyLocationURL), AccessKeyID: text(name.KeyLocationAccessKeyID), SecretAccessKey: text(name.KeyLocationSecretAccessKey),
		SessionToken: text(name.KeyLocationSessionToken), CA: secret.Data[name.KeyLocationCA],
	})
	if err != nil {
		return nil, nil, fmt.Errorf("secret %s/%s: %w", name.SystemNamespace, n, err)
	}
	return location, recipients, nil
}

// objectOf is the tenant's object as a manifest: what its author wrote, and nothing that is of this installation.
func (k *Keeper) objectOf(ctx context.Context, key events.Key, uid string) ([]byte, error) {
	o := &v1alpha1.TenantControlPlane{}
	if err := k.kube.Get(ctx, kube.TenantControlPlanes, key.Namespace, key.Name, o); err != nil {
		return nil, err
	}
	if string(o.UID) != uid {
		return nil, fmt.Errorf("%s is another object than the one that is backed up", key)
	}
	return json.Marshal(backup.ObjectOf(o))
}

// keysOf are the Secrets of a tenant that nothing else has: its authorities, the key of its service accounts' tokens, and by what it encrypts.
func (k *Keeper) keysOf(ctx context.Context, key events.Key) (keys []backup.Secret, err error) {
	for _, n := range []string{name.CA(key.Name), name.FrontProxyCA(key.Name), name.ServiceAccountKeys(key.Name), name.Encryption(key.Name)} {
		secret := &corev1.Secret{}
		err := k.kube.Get(ctx, kube.Secrets, key.Namespace, n, secret)
		if apierrors.IsNotFound(err) && n == name.Encryption(key.Name) {
			continue // it encrypts nothing
		}
		if err != nil {
			return nil, err
		}
		keys = append(keys, backup.Secret{
			Name: n, Type: string(secret.Type), Labels: secret.Labels, Annotations: secret.Annotations, Data: secret.Data,
		})
	}
	return keys, nil
}

// linesOf are the lines of a text that aren't empty or comments.
func linesOf(text string) (lines []string) {
	for line := range strings.Lines(text) {
		if line = strings.TrimSpace(line); line != "" && !strings.HasPrefix(line, "#") {
			lines = append(lines, line)
		}
	}
	return lines
}
